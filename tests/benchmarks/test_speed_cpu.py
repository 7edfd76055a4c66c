"""The command as a whole, on workloads small enough for a test; no figure of time is asserted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import front_ends
import pytest
import speed_child
import speed_cpu
import torch
import workloads_cpu
from children import ask
from speed_child import COPY
from torch import Tensor, nn
from workloads_cpu import WORKLOADS, Job, Workload

LIMITS = {"rounds": 3, "budget": 0.0, "patience": 0.0}


def ask_here(script: str, task: dict[str, Any], caches: str, timeout: float) -> dict[str, Any]:
    """In place of a process: the measure here, and its answer through JSON all the same."""
    answer: dict[str, Any] = json.loads(json.dumps(speed_child.measure(task)))
    return answer


def small() -> Job:
    return workloads_cpu.inference(lambda x: torch.sin(x) + 1, torch.randn(64, 64))


def small_training() -> Job:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).square().mean()

    return workloads_cpu.training(Model(), torch.randn(4, 8))


@pytest.fixture
def workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small workloads and one small batched model in place of the real ones."""
    made = (Workload("small", small, True, False), Workload("small_training", small_training, False, True))
    for module in (speed_child, speed_cpu):
        monkeypatch.setattr(module, "WORKLOADS", {w.name: w for w in made})
        monkeypatch.setattr(
            module, "BATCHED", {"small_batches": lambda: (nn.Linear(4, 4).eval(), lambda n: torch.randn(n, 4))}
        )
    monkeypatch.setattr(speed_cpu, "ask", ask_here)
    monkeypatch.setattr(speed_child, "TURN_SECONDS", 0.0)


def run(out: Path, *extra: str) -> int:
    quick = ["--rounds", "2", "--budget", "0", "--patience", "0", "--out", str(out)]
    return speed_cpu.main([*quick, *extra])


def saved(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "speed_cpu.json").read_text())
    return found


@pytest.mark.usefixtures("workloads")
def test_every_part_is_measured_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--frontends", "aot_eager,jitney:eager") == 0
    found = saved(tmp_path)
    assert found["complete"] and found["front_ends"] == ["eager", "aot_eager", "jitney:eager"]
    assert list(found["workloads"]) == ["small", "small_training"]
    for workload in found["workloads"].values():
        for name in ("aot_eager", "jitney:eager"):
            record = workload["front_ends"][name]
            assert record["graphs"] == 1 and record["left"] == []
            assert record["largest_difference"] < 1e-5 and record["ms"] > 0 and record["speed"]["eager"] > 0
            assert len(record["cold_s"]) == len(record["warm_s"]) == 1
            assert 0 <= record["cold_loading_s"][0] < record["cold_s"][0]
    small = found["workloads"]["small"]
    assert small["bytes"] == 2 * 64 * 64 * 4
    assert small["front_ends"]["aot_eager"]["copy_share"] > 0 and COPY not in small["front_ends"]
    assert "copy_share" not in found["workloads"]["small_training"]["front_ends"]["eager"]
    assert list(found["memory"]) == ["small_training"]
    assert set(found["memory"]["small_training"]) == {"eager", "aot_eager", "jitney:eager"}
    batches = found["batches"]["models"]["small_batches"]["aot_eager"]
    assert batches["dynamic"]["graphs"] == 1 and batches["automatic"]["graphs"] == 2
    assert (tmp_path / "speed_cpu.svg").read_text().startswith("<svg")
    said = capsys.readouterr().out
    for title in ("Speed on the CPU", "Seconds of the first call", "Peak memory", "many batch sizes", "geometric mean"):
        assert title in said
    assert f"wrote {tmp_path / 'speed_cpu.json'}" in said.replace("\n", "")


class Broken(front_ends.FrontEnd):
    """A front end whose answers are off by one, or that raises."""

    def compile(self, target: Callable[..., Any], dynamic: bool | None = None) -> Callable[..., Any]:
        if self.name == "raises":
            raise RuntimeError("no kernel\nsecond line")
        return lambda *args: target(*args) + 1


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """`off_by_one` and `raises` are front ends."""
    known = front_ends.front_end

    def front_end(name: str) -> front_ends.FrontEnd:
        return Broken(name) if name in ("off_by_one", "raises") else known(name)

    for module in (speed_child, speed_cpu):
        monkeypatch.setattr(module, "front_end", front_end)


@pytest.mark.usefixtures("workloads", "broken")
def test_wrong_answers_and_errors_get_no_speed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--frontends", "off_by_one,raises", "--parts", "speed", "--only", "^small$") == 1
    records = saved(tmp_path)["workloads"]["small"]["front_ends"]
    assert records["off_by_one"]["wrong"].startswith("step 1, tensor 0 of 1: off by 1")
    assert records["raises"]["error"] == "RuntimeError: no kernel" and "second line" in records["raises"]["traceback"]
    assert "ms" in records["eager"] and not {"ms", "speed"} & (set(records["off_by_one"]) | set(records["raises"]))
    said = capsys.readouterr().out
    assert "small: off_by_one, wrong: step 1" in said and "small: raises, error: RuntimeError: no kernel" in said
    assert "wrong" in (tmp_path / "speed_cpu.svg").read_text()


def test_a_second_step_that_differs_is_found() -> None:
    """Such as one that gives its first result's memory away."""

    class Forgetful(front_ends.FrontEnd):
        def compile(self, target: Callable[..., Any], dynamic: bool | None = None) -> Callable[..., Any]:
            calls: list[None] = []

            def compiled(x: Tensor) -> Any:
                calls.append(None)
                return target(x) * len(calls)

            return compiled

    workload, record = Workload("small", small, False, False), dict[str, Any]()
    expected = speed_child.first_steps(front_ends.front_end("eager"), workload.job(), [], {})
    speed_child.first_steps(Forgetful("forgetful"), workload.job(), expected, record)
    assert record["wrong"].startswith("step 2, tensor 0 of 1")


@pytest.mark.usefixtures("workloads")
def test_ctrl_c_keeps_and_reports_what_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def interrupted(script: str, task: dict[str, Any], caches: str, timeout: float) -> dict[str, Any]:
        asked.append(task["workload"])
        if len(asked) == 2:
            raise KeyboardInterrupt
        return ask_here(script, task, caches, timeout)

    monkeypatch.setattr(speed_cpu, "ask", interrupted)
    assert run(tmp_path, "--frontends", "aot_eager", "--parts", "speed") == 130
    assert not saved(tmp_path)["complete"] and list(saved(tmp_path)["workloads"]) == ["small"]
    assert "stopped before the end" in capsys.readouterr().out


@pytest.mark.usefixtures("workloads")
def test_a_front_end_that_ends_the_process_does_not_take_the_others_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashes(script: str, task: dict[str, Any], caches: str, timeout: float) -> dict[str, Any]:
        if "jitney:eager" in task["front_ends"]:
            return {"error": "exit status -11: Segmentation fault", "traceback": ""}
        return ask_here(script, task, caches, timeout)

    monkeypatch.setattr(speed_cpu, "ask", crashes)
    names = "aot_eager,jitney:eager"
    assert run(tmp_path, "--frontends", names, "--parts", "speed", "--only", "^small$") == 1
    records = saved(tmp_path)["workloads"]["small"]["front_ends"]
    assert records["jitney:eager"]["error"].startswith("exit status -11") and records["aot_eager"]["ms"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "no_such_thing"], "nothing of that name among bias_gelu_residual"),
        (["--only", "("], "--only '('"),
        (["--frontends", "no_such_backend"], "no backend no_such_backend; `jitney backends` lists those installed"),
        (["--frontends", "torch:"], "'torch:' is not the name of a front end"),
        (["--parts", "speed,taste"], "unknown: taste"),
        (["--rounds", "0"], "give at least one part"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert speed_cpu.main(["--frontends", "aot_eager", *options]) == 2
    assert said in capsys.readouterr().err


def test_rounds_with_other_load_are_dropped_while_there_are_enough_quiet_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = iter([0.9, 0.0, 0.05, 0.9, 0.1])

    class Watch:
        def read(self) -> tuple[float, float]:
            return 1.0, next(loads)

    monkeypatch.setattr(speed_child, "Stopwatch", Watch)
    times, load, disturbed = speed_child.rounds({"a": lambda: None, "b": lambda: None}, 3, 0.0, 60.0)
    assert (len(times["a"]), len(times["b"]), load, disturbed) == (3, 3, 0.05, False)


def test_without_enough_quiet_rounds_all_are_kept_and_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Watch:
        def read(self) -> tuple[float, float]:
            return 1.0, 0.9

    monkeypatch.setattr(speed_child, "Stopwatch", Watch)
    times, load, disturbed = speed_child.rounds({"a": lambda: None}, 3, 0.0, 0.0)
    assert (len(times["a"]), load, disturbed) == (1, 0.9, True)


def test_there_are_fourteen_workloads_and_training_among_them() -> None:
    assert len(WORKLOADS) >= 14
    assert {"mlp_training", "gpt2_training"} <= {name for name, w in WORKLOADS.items() if w.trains}


@pytest.mark.parametrize("name", ["outer_product_sum", "adam_50_tensors", "transformer_block_backward"])
def test_a_workload_makes_equal_data_of_its_own_each_time(name: str) -> None:
    first, second = WORKLOADS[name].job(), WORKLOADS[name].job()
    before = [t.detach().clone() for t in second.inputs]
    first.step(first.target)
    assert all(torch.equal(a, b) for a, b in zip(before, second.inputs, strict=True))
    third = WORKLOADS[name].job()
    assert all(torch.equal(a, b) for a, b in zip(before, third.inputs, strict=True))


def test_a_child_answers_fails_and_is_ended(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(
        "import json, os, sys, time\n"
        "task = json.loads(sys.argv[2])\n"
        "if task['do'] == 'wait': time.sleep(60)\n"
        "if task['do'] == 'fail': sys.exit('it broke')\n"
        "open(sys.argv[3], 'w').write(json.dumps({'caches': os.environ['JITNEY_CACHE_DIR']}))\n"
    )
    caches = str(tmp_path / "caches")
    assert ask(str(script), {"do": "answer"}, caches, 60) == {"caches": caches}
    assert ask(str(script), {"do": "fail"}, caches, 60) == {
        "error": "exit status 1: it broke",
        "traceback": "it broke",
    }
    assert ask(str(script), {"do": "wait"}, caches, 0.2) == {"error": "no result within 0.2 s"}
