"""The breadth benchmark: its rows, what is measured of one, journal, totals and report; no figure of time."""

from __future__ import annotations

import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import children
import pytest
import speed_breadth
import torch
from breadth import accuracy, job, measure, present, rows, totals, zoo
from breadth.journal import Journal
from breadth.row import Made, Place, Row
from torch import Tensor, nn

EVERY = rows.all_rows("cpu")
PROGRAMS = [row for row in EVERY if speed_breadth.group_of(row) == "programs"]
PLACE = Place("cpu")


# --- rows ----------------------------------------------------------------------------------------------------------


def test_there_are_many_rows_of_every_group_and_their_names_are_unique() -> None:
    assert len({row.name for row in EVERY}) == len(EVERY) >= 220
    counts = Counter(map(speed_breadth.group_of, EVERY))
    assert counts["timm"] >= 60 and counts["torchvision"] >= 30 and counts["transformers"] >= 45


def test_halves_modes_and_types_are_about_even() -> None:
    on_gpus = rows.all_rows("cuda")
    assert [row.name for row in on_gpus] == [row.name for row in EVERY]
    library = [row for row in on_gpus if speed_breadth.group_of(row) != "programs"]
    for some in (
        [row.tuned for row in EVERY],
        [row.mode == "training" for row in library],
        [(row.autocast or row.dtype) is torch.float32 for row in library],
    ):
        assert 0.4 <= sum(some) / len(some) <= 0.6


def test_rows_on_a_cpu_are_float32() -> None:
    assert all(zoo.kinds(word, "cpu") == {} for word in ("float32", "bfloat16", "auto:float16"))
    assert zoo.kinds("auto:float16", "cuda") == {"autocast": torch.float16}


def test_a_library_that_is_not_there_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(zoo.importlib, "import_module", missing)
    found = measure.measure(task("timm/resnet50" if rows.named("timm/resnet50", "cpu") else ""))
    assert "timm" in found["not_installed"]
    assert totals.status(found) == "not installed"


def test_what_drops_at_random_does_not_and_no_layer_is_zero() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.BatchNorm1d(2))
    nn.init.zeros_(model[0].weight)
    zoo.steady(model, "training")
    assert (model[0].training, model[1].training, model[2].training) == (True, False, True)
    assert model[0].weight.count_nonzero()


# --- one row -------------------------------------------------------------------------------------------------------


def linear(place: Place) -> Made:
    return nn.Linear(3, 2), (place.randn(4, 3).requires_grad_(),)


def closure(place: Place) -> Made:
    weight, layer = place.randn(3), nn.Linear(3, 3)
    return lambda x: functools.reduce(torch.add, [layer(x) * weight]), (place.randn(4, 3),)


def counting(place: Place) -> Made:
    def count(x: Tensor, total: Tensor) -> Tensor:
        total += x.sum(0)
        return total * 2

    return count, (place.randn(4, 3), torch.zeros(3))


def task(name: str, *front_ends: str) -> dict[str, Any]:
    return {"row": name, "device": "cpu", "threads": 0, "budget": 0.0, "lock": "", "front_ends": list(front_ends)}


def test_training_gives_gradients_of_parameters_and_arguments() -> None:
    own = job.make(Row("t/linear", linear, "training"), PLACE)
    result, of_weight, of_bias, of_x = own.outcome(own.target)
    torch.testing.assert_close(of_x, own.target.weight.sum(0).expand(4, 3).detach() / 8)
    torch.testing.assert_close(of_bias, torch.full((2,), 0.5))
    assert result.shape == (4, 2) and of_weight.shape == (2, 3)


@pytest.mark.parametrize("make", [linear, closure, counting])
def test_what_is_exact_is_the_same_in_float64_and_leaves_the_row_alone(make: Any) -> None:
    row = Row("t/row", make, writes=make is counting)
    own = job.make(row, PLACE)
    exact = job.exact(own, PLACE)
    found = own.outcome(own.target)
    assert exact[0].dtype is torch.float64 and found[0].dtype is torch.float32
    assert 0 < accuracy.error(exact, found) < 1e-5
    assert torch.get_default_dtype() is torch.float32


def test_what_a_call_writes_is_compared_and_taken_back() -> None:
    own = job.make(Row("t/counting", counting, writes=True), PLACE)
    first, second = own.outcome(own.target), own.outcome(own.target)
    assert len(first) == 3 and torch.equal(first[2] * 2, first[0])
    assert all(map(torch.equal, first, second))
    assert not own.args[1].any()


def test_a_row_is_measured_from_its_first_call_to_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "all_rows", lambda device: (Row("t/linear", linear, "training"),))
    drafts: list[Any] = []
    found = json.loads(json.dumps(measure.measure(task("t/linear", "eager", "jitney"), drafts.append)))
    assert totals.status(found) == "ok" and "unfinished" not in found
    assert [draft["unfinished"] for draft in drafts][:4] == ["eager", "eager", "jitney", "timing"]
    ours = found["front_ends"]["jitney"]
    assert ours["graphs"] == 1 and ours["ms"] > 0 and ours["first_s"] > 0 and ours["error_from_exact"] < 1e-5


@pytest.mark.parametrize("row", PROGRAMS[:1], ids=lambda row: row.name)
def test_a_program_is_measured(row: Row) -> None:
    found = measure.measure(task(row.name, "eager", "jitney"))
    assert "not_made" not in found and "ms" in found["front_ends"]["eager"]


def test_a_wrong_answer_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(measure.FrontEnd):
        def compile(self, target: Any, dynamic: bool | None = None) -> Any:
            return lambda *args: target(*args) + 0.01

    monkeypatch.setattr(rows, "all_rows", lambda device: (Row("t/linear", linear),))
    monkeypatch.setitem(measure.FRONT_ENDS, "jitney", Wrong("jitney"))
    found = measure.measure(task("t/linear", "eager", "jitney"))
    assert totals.status(found) == "failed" and "from float64" in totals.problem(found, "jitney")
    assert "ms" not in found["front_ends"]["jitney"]


def test_an_error_counts_when_it_is_large_beside_both_rounding_and_eagers() -> None:
    f32 = torch.float32
    assert accuracy.verdict(5e-5, 1e-7, f32) == ""
    assert accuracy.verdict(5e-3, 1e-3, f32) == ""
    assert "eager by" in accuracy.verdict(5e-3, 1e-4, f32)
    assert "from eager" in accuracy.verdict(5e-3, None, f32)
    assert accuracy.verdict(5e-3, None, torch.bfloat16) == ""
    assert accuracy.verdict(float("nan"), 1e-3, f32)
    assert accuracy.error([torch.tensor([True, False])], [torch.tensor([True, True])]) == 1.0
    wide = torch.tensor([1.0, 2.0])
    assert accuracy.error([wide, wide * 1e-12], [wide + 0.5, wide * 0]) == pytest.approx(0.25)
    assert accuracy.error([wide], [wide / 0]) == float("inf") == accuracy.error([wide], [wide[:1]])


# --- many rows -----------------------------------------------------------------------------------------------------


def record(name: str, eager: float, ours: float | None, theirs: float | None, **more: Any) -> dict[str, Any]:
    front_ends: dict[str, Any] = {"eager": {"ms": eager, "first_s": 0.1, "error_from_exact": 1e-7}}
    front_ends["jitney"] = {"error": "Oops: no"} if ours is None else {"ms": ours, "first_s": 1.0, "peak_bytes": 2}
    front_ends["torch.compile"] = (
        {"error": "Bad"} if theirs is None else {"ms": theirs, "first_s": 4.0, "peak_bytes": 4}
    )
    return {"row": name, "mode": "training", "front_ends": front_ends, **more}


RECORDS = {
    name: found
    for name, found in {
        "a/fast": record("a/fast", 8.0, 2.0, 4.0),
        "a/slow": record("a/slow", 4.0, 4.0, 2.0, where={"parts": {"kernels": 0.9}, "top": []}),
        "a/fails": record("a/fails", 1.0, None, 1.0),
        "a/alone": record("a/alone", 1.0, 1.0, None),
        "a/dies": {"row": "a/dies", "front_ends": {}, "unfinished": "jitney", "error": "exit status -11: "},
        "a/absent": {"row": "a/absent", "not_installed": "timm"},
    }.items()
}


def test_totals_count_and_average() -> None:
    found = totals.totals(RECORDS.values(), 10)
    assert (found["rows"], found["measured"], found["ok"], found["failed"]) == (10, 6, 3, 2)
    assert (found["not installed"], found["torch.compile failed"]) == (1, 1)
    assert found["means"]["/ t.c"] == pytest.approx(1.0) and found["means"]["/ eager"] == pytest.approx(4 ** (1 / 3))
    assert found["/ t.c"] == {"rows": 2, "behind": 0.5, "far behind": 0.5, "least": 0.5}
    assert found["means"]["first"] == pytest.approx(0.25) and found["means"]["memory"] == pytest.approx(0.5)
    assert totals.worst(RECORDS) == ["a/slow"]


def test_what_kills_the_process_is_a_failure_of_who_was_at_work() -> None:
    assert totals.status(RECORDS["a/dies"]) == "failed"
    assert totals.status(RECORDS["a/dies"] | {"unfinished": "torch.compile"}) == "no figures"


def test_the_report_names_rows_of_the_tuned_half_only(capsys: Any) -> None:
    sums = {"tuned": totals.totals(RECORDS.values(), 6), "untouched": totals.totals([record("z/secret", 1, 1, 1)], 1)}
    present.present(RECORDS, sums)
    out = capsys.readouterr().out
    assert "a/fails: jitney: Oops: no" in out and "90.0% kernels" in out
    assert "secret" not in out
    svg = present.chart(RECORDS, sums["tuned"]["means"], "note")
    assert "absent" not in svg and "fast" in svg


def test_a_journal_goes_on_where_it_stopped(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "run", resume=True)
    journal.add("tuned", {"row": "a/b", "n": 1})
    journal.add("tuned", {"row": "a/b", "n": 2})
    journal.add("untouched", {"row": "a/c"})
    with journal.files["tuned"].open("a") as file:
        file.write('{"row": "cut sh')
    journal.begin(("tuned", "untouched"))
    journal.add("tuned", {"row": "a/d"})
    assert list(journal.read("tuned")) == ["a/b", "a/d"] and journal.read("tuned")["a/b"]["n"] == 2
    Journal(tmp_path, "run", resume=False).begin(("tuned",))
    assert not journal.read("tuned") and list(journal.read("untouched")) == ["a/c"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What children were asked, in place of children."""
    found: list[dict[str, Any]] = []

    def ask(script: str, task: dict[str, Any], caches: str, timeout: float) -> dict[str, Any]:
        found.append(task)
        return record(task["row"], 2.0, 1.0, 1.0)

    monkeypatch.setattr(speed_breadth, "ask", ask)
    return found


def test_a_resumed_run_measures_what_is_left(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    rest = ["--out", str(tmp_path), "--jobs", "2", "--group", "transformers"]
    assert speed_breadth.main(["--rows", "Bert", *rest]) == 0
    first = {task["row"] for task in asked}
    asked.clear()
    assert speed_breadth.main(["--rows", "Bert|Llama", "--resume", *rest]) == 0
    assert {task["row"] for task in asked} == {"transformers/LlamaForCausalLM"}
    data = json.loads((tmp_path / "speed_breadth_cpu.json").read_text())
    assert set(data["rows"]) == {name for name in first | {"transformers/LlamaForCausalLM"} if tuned(name)}
    assert data["totals"]["untouched"]["measured"] == sum(not tuned(name) for name in first)
    asked.clear()
    assert speed_breadth.main(["--report", *rest]) == 0 and not asked


def tuned(name: str) -> bool:
    return rows.named(name, "cpu").tuned


def test_a_slice_that_is_over_begins_nothing(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    assert speed_breadth.main(["--rows", "Bert", "--seconds", "1e-9", "--out", str(tmp_path)]) == 130
    assert not asked


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--rows", "zzz"], "nothing of that name"),
        (["--rows", "("], "--rows"),
        (["--group", "zoo"], "--group"),
        (["--jobs", "0"], "one job"),
        (["--frontends", "jitney"], "eager is the first"),
    ],
)
def test_wrong_usage_is_said(argv: list[str], message: str, capsys: Any) -> None:
    assert speed_breadth.main(argv) == 2
    assert message in capsys.readouterr().err


def test_options_choose_rows() -> None:
    options = speed_breadth.arguments(["--half", "tuned", "--group", "timm"])
    assert all(row.tuned and row.group == "timm" for row in speed_breadth.chosen(options))
    smoke = speed_breadth.chosen(speed_breadth.arguments(["--smoke"]))
    assert len(smoke) == speed_breadth.SMOKE_ROWS


def test_a_draft_is_what_is_left_of_a_child_that_dies(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(
        "import json, os, sys\nopen(sys.argv[3], 'w').write(json.dumps({'unfinished': 'jitney'}))\nos._exit(3)\n"
    )
    found = children.ask(str(script), {}, str(tmp_path), 60)
    assert found["unfinished"] == "jitney" and "exit status 3" in found["error"]
    assert not children.RUNNING
