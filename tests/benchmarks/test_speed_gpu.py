"""What of the command needs no GPU: comparing, choosing, reporting; no figure of time is asserted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import speed_gpu
import torch
import workloads_gpu
from workloads_gpu import WORKLOADS, trained

NAMES = (
    "bias_gelu_residual softmax_rows layernorm layernorm_train rmsnorm_swiglu cross_entropy_train column_sum rope "
    "adam_update matmul_bias_gelu transformer_blocks transformer_blocks_train small_batch_mlp gpt2_train resnet50_train"
).split()


def test_there_are_the_workloads_that_the_goals_are_about() -> None:
    assert list(WORKLOADS) == NAMES


def test_a_training_step_gives_fresh_gradients_of_arguments_and_parameters() -> None:
    model, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    job = trained(model, x)
    for _ in range(2):
        result, of_x, of_weight, of_bias = job.step(job.target)
        assert result.shape == (4, 2)
        torch.testing.assert_close(of_x, model.weight.sum(0).expand(4, 3).detach())
        torch.testing.assert_close(of_bias, torch.full((2,), 4.0))
        torch.testing.assert_close(of_weight, x.detach().sum(0).expand(2, 3))
    words = trained(torch.nn.Embedding(5, 3), torch.tensor([1, 2]))
    assert len(words.step(words.target)) == 2
    assert len(trained(model, torch.randn(4, 3), of_inputs=False).step(model)) == 3


def test_small_rounding_is_right_and_everything_else_is_wrong() -> None:
    x = torch.randn(100, 100)
    assert speed_gpu.compare([x], [x + 1e-3]) == (pytest.approx(1e-3, rel=0.1), "")
    assert speed_gpu.compare([x], [x.clone()]) == (0.0, "")
    for other in (x * 1.1, x.double(), x[:50], x / 0):
        assert speed_gpu.compare([x], [other])[1]
    assert speed_gpu.compare([x], [x, x])[1]
    assert speed_gpu.compare([torch.zeros(3)], [torch.ones(3)])[1]


def test_what_is_about_as_far_from_what_is_exact_as_eager_is_right() -> None:
    exact = torch.randn(100, 100, generator=torch.Generator().manual_seed(0))
    eager, same, worse = exact + 0.2, exact - 0.3, exact - 0.5
    assert speed_gpu.compare([eager], [same])[1]
    assert speed_gpu.compare([eager], [same], [exact])[1] == ""
    assert "what is exact" in speed_gpu.compare([eager], [worse], [exact])[1]
    assert speed_gpu.compare([eager], [eager / 0], [exact])[1]


def record(ms: float, **more: Any) -> dict[str, Any]:
    return {
        "ms": ms,
        "speed": {"eager": 2.0 / ms, "inductor": 1.0 / ms, "triton_gpu": 0.5 / ms},
        "first_s": 1.0,
        **more,
    }


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """One workload, as its process reports it; on a device that is only named."""
    monkeypatch.setattr(speed_gpu, "about", lambda: {"gpu": "a GPU", "torch": "2", "triton": "3", "date": "today"})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    tools = {"eager": record(2.0, peak_bytes=1 << 20), "inductor": record(1.0), "triton_gpu": record(0.5, kernels=3)}
    found = {"bytes": 8, "copy_gb_s": 4000.0, "front_ends": tools}
    monkeypatch.setattr(speed_gpu, "ask", lambda script, task, caches, timeout: found | {"asked": task})
    return found


def test_a_report_is_a_table_a_file_of_figures_and_bars(found: dict[str, Any], tmp_path: Path, capsys: Any) -> None:
    assert speed_gpu.main(["--only", "^rope$", "--out", str(tmp_path)]) == 0
    data = json.loads((tmp_path / "speed_gpu.json").read_text())
    assert data["about"]["gpu"] == "a GPU" and data["complete"]
    assert data["workloads"]["rope"]["asked"]["front_ends"] == ["eager", "inductor", "triton_gpu"]
    assert data["geometric_means"]["triton_gpu"]["speed"] == {
        "eager": pytest.approx(4.0),
        "inductor": pytest.approx(2.0),
    }
    assert "a GPU" in (tmp_path / "speed_gpu.svg").read_text()
    assert "rope" in capsys.readouterr().out


def test_a_wrong_answer_is_a_failure(found: dict[str, Any], tmp_path: Path, capsys: Any) -> None:
    found["front_ends"]["triton_gpu"] = {"wrong": "tensor 0 of 1: off by 1"}
    assert speed_gpu.main(["--only", "^rope$", "--out", str(tmp_path)]) == 1
    assert "rope: triton_gpu, wrong: tensor 0 of 1: off by 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [(["--only", "zzz"], "nothing of that name"), (["--only", "("], "--only"), (["--rounds", "0"], "one round")],
)
def test_wrong_usage_is_said(argv: list[str], message: str, capsys: Any) -> None:
    assert speed_gpu.main(argv) == 2
    assert message in capsys.readouterr().err


def test_a_machine_without_a_gpu_is_said(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert speed_gpu.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_what_is_moved_is_what_is_read_and_written() -> None:
    job = workloads_gpu.inference(torch.sin, torch.zeros(6))
    assert workloads_gpu.bytes_moved(job, [torch.zeros(6)]) == 48


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small workloads on the CPU, with a clock of one millisecond a step."""
    for module in (speed_gpu, workloads_gpu):
        monkeypatch.setattr(module, "DEVICE", "cpu")
    monkeypatch.setattr(speed_gpu, "CACHE", 8)
    monkeypatch.setattr(speed_gpu, "timed", lambda turn, steps, flushed: (turn(), 1e-3)[1])
    monkeypatch.setattr(speed_gpu, "peak", lambda step: 0)
    monkeypatch.setattr(speed_gpu, "kernel_seconds", lambda turn, steps=5: (turn(), 5e-4)[1])
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def sines() -> workloads_gpu.Job:
        return workloads_gpu.inference(torch.sin, workloads_gpu.random(4, 8))

    def linear() -> workloads_gpu.Job:
        return trained(torch.nn.Linear(8, 8), workloads_gpu.random(4, 8, dtype=torch.float32))

    made = [workloads_gpu.Workload("sines", sines, True, False), workloads_gpu.Workload("linear", linear, False, True)]
    monkeypatch.setattr(speed_gpu, "WORKLOADS", {w.name: w for w in made})


@pytest.mark.usefixtures("on_the_cpu")
def test_front_ends_take_turns() -> None:
    task = {"front_ends": ["eager", "jitney:eager", "aot_eager"], "rounds": 3, "budget": 60.0}
    sines = speed_gpu.measure({"workload": "sines", **task})
    assert sines["bytes"] == 128 and sines["copy_gb_s"] == pytest.approx(128 / 1e-3 / 1e9)
    for name, found in sines["front_ends"].items():
        assert (found["rounds"], found["speed"]["eager"], found["copy_share"], found["largest_difference"]) == (
            3,
            1,
            1,
            0,
        )
        assert name == "eager" or found["graphs"] == 1
    linear = speed_gpu.measure({"workload": "linear", **task})
    assert linear["bytes"] is None and "copy" not in linear["front_ends"]
    assert all(found["largest_difference"] == 0 for found in linear["front_ends"].values())


@pytest.mark.usefixtures("on_the_cpu")
def test_what_is_wrong_or_raises_gets_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Doubling(speed_gpu.FrontEnd):
        def compile(self, target: Any, dynamic: bool | None = None) -> Any:
            return lambda *args: target(*args) * 2

    known = {"eager": speed_gpu.FrontEnd("eager"), "doubling": Doubling("doubling")}
    monkeypatch.setattr(speed_gpu, "front_end", lambda name: known[name])
    task = {"workload": "sines", "front_ends": ["eager", "doubling", "missing"], "rounds": 1, "budget": 0.0}
    found = speed_gpu.measure(task)["front_ends"]
    assert "off by 1" in found["doubling"]["wrong"] and "ms" not in found["doubling"]
    assert found["missing"]["error"] == "KeyError: 'missing'" and found["eager"]["ms"] == pytest.approx(1.0)
