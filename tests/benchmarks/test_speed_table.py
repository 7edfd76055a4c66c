"""The arithmetic of the tables, on figures that can be checked by hand."""

from __future__ import annotations

from typing import Any

import pytest
import speed_table

NAMES = ["eager", "inductor", "mine"]


def workload(inductor: float, mine: float | None, **more: Any) -> dict[str, Any]:
    """Speeds relative to eager, as in the results; None: mine was wrong."""
    theirs = {"ms": 8 / inductor, "speed": {"eager": inductor, "inductor": 1.0}, "cold_s": [12.0, 8.0], "first_s": 4.0}
    ours: dict[str, Any] = {"wrong": "step 1, tensor 0 of 1: off by 1"}
    if mine is not None:
        ours = {"ms": 8 / mine, "speed": {"eager": mine, "inductor": mine / inductor}, "first_s": 1.0}
        ours |= {"cold_s": [1.0], "warm_s": [0.25], "cold_loading_s": [0.2], "warm_loading_s": [0.2], "copy_share": 0.5}
    eager = {"ms": 8.0, "speed": {"eager": 1.0, "inductor": 1 / inductor}}
    return {"front_ends": {"eager": eager, "inductor": theirs, "mine": ours}, **more}


def summary(workloads: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"workloads": workloads, "memory": {}, "batches": {"models": {}}, **more}


def test_ratios_are_medians_of_the_rounds_not_ratios_of_medians() -> None:
    times = {"eager": [1.0, 10.0, 3.0], "mine": [1.0, 1.0, 2.0]}
    assert speed_table.ratios(times, "mine") == {"eager": 1.5, "mine": 1.0}
    assert speed_table.ratios(times, "eager") == {"eager": 1.0, "mine": pytest.approx(2 / 3)}


def test_the_mean_is_geometric_and_leaves_out_what_is_not_known() -> None:
    assert speed_table.mean([2.0, None, 8.0]) == pytest.approx(4.0)
    assert speed_table.mean([None]) is None


def test_means_over_the_workloads() -> None:
    found = speed_table.means({"a": workload(1.0, 2.0), "b": workload(2.0, 8.0), "c": workload(4.0, None)}, NAMES)
    assert found["inductor"]["workloads"] == 3
    assert found["inductor"]["speed"] == {"eager": pytest.approx(2.0)}
    mine = found["mine"]
    assert mine["workloads"] == 2
    assert mine["speed"] == {"eager": pytest.approx(4.0), "inductor": pytest.approx(8**0.5)}
    assert mine["copy_share"] == pytest.approx(0.5)
    assert mine["warm_over_cold"] == {"in all": pytest.approx(0.25), "after loading": pytest.approx(0.0625)}
    assert mine["seconds_over_inductor"] == {
        "cold_s": pytest.approx(0.1),
        "first_s": pytest.approx(0.25),
        "warm_s": None,
    }


def test_disturbed_workloads_are_marked_and_have_a_mean_without_them() -> None:
    workloads = {"a": workload(1.0, 2.0), "b": workload(1.0, 8.0, disturbed=True)}
    _, head, rows, caption = speed_table.speed_table(workloads, NAMES)
    column = head.index("mine / eager")
    means = [("geometric mean", pytest.approx(4.0)), ("geometric mean, without *", pytest.approx(2.0))]
    assert [(row[0], row[column]) for row in rows] == [("a", 2.0), ("b *", 8.0), *means]
    assert "other processes" in caption
    assert all(len(row) == len(head) for row in rows)


def test_a_wrong_answer_has_no_speed_and_is_named() -> None:
    workloads = {"a": workload(1.0, None)}
    _, head, (row, _), _ = speed_table.speed_table(workloads, NAMES)
    assert row[head.index("mine ms")] == "wrong"
    assert row[head.index("mine / eager")] is None
    assert speed_table.failures(summary(workloads)) == ["a: mine, wrong: step 1, tensor 0 of 1: off by 1"]


def test_first_calls_are_medians_of_their_processes() -> None:
    _, head, rows, _ = speed_table.start_table({"a": workload(1.0, 2.0)}, NAMES)
    assert dict(zip(head, rows[0], strict=True)) == {
        "workload": "a",
        "inductor cold": 10.0,
        "mine cold": 1.0,
        "inductor again": 4.0,
        "mine again": 1.0,
        "inductor second": None,
        "mine second": 0.25,
    }
    assert rows[1][0] == "geometric mean"


def test_first_calls_that_shared_the_machine_are_marked() -> None:
    quiet, busy = workload(1.0, 2.0), workload(1.0, 2.0)
    busy["front_ends"]["mine"]["warm_load"] = [0.0, 0.5]
    _, _, rows, caption = speed_table.start_table({"quiet": quiet, "busy": busy}, NAMES)
    assert [row[0] for row in rows] == ["quiet", "busy *", "geometric mean"]
    assert "other processes" in caption


def test_memory_is_in_mib_and_beside_the_peer() -> None:
    def record(process: int, steps: int, before: int) -> dict[str, int]:
        return {"process": process << 20, "steps": steps << 20, "before": before << 20}

    by_name = {"eager": record(400, 300, 200), "inductor": record(900, 600, 400), "mine": record(450, 450, 350)}
    _, head, (row,), _ = speed_table.memory_table({"mlp": by_name}, NAMES)
    found = dict(zip(head, row, strict=True))
    assert [found[f"{name} own"] for name in NAMES] == [100, 200, 100]
    assert [found[f"mine / inductor {kind}"] for kind in ("process", "steps", "own")] == [0.5, 0.75, 0.5]


def test_a_machine_that_cannot_forget_its_peak_has_only_the_one_of_the_process() -> None:
    by_name = {"eager": {"process": 5 << 20, "steps": None, "before": None}}
    _, head, (row,), _ = speed_table.memory_table({"mlp": by_name}, ["eager"])
    assert row == ["mlp", 5, None, None]
    assert len(head) == 4


def test_graphs_of_many_batch_sizes_and_what_went_wrong_there() -> None:
    good = {"graphs": 1, "seconds": 0.5, "wrong": [], "left": []}
    bad = {"graphs": 2, "seconds": 0.75, "wrong": ["batch size 3: off"], "left": ["a reason", "a reason"]}
    models = {"mlp": {"inductor": {"error": "no compiler"}, "mine": {"dynamic": good, "automatic": bad}}}
    _, head, rows, _ = speed_table.batch_table(models, NAMES, (2, 3))
    assert rows[0] == ["mlp", "inductor", "error", None, None, None, None]
    assert rows[1] == ["mlp", "mine", 1, 0.5, 2, 0.75, 1]
    assert len(head) == 7
    told = summary({}, batches={"models": models})
    assert speed_table.failures(told) == [
        "batch sizes of mlp: inductor, error: no compiler",
        "batch sizes of mlp: mine, wrong: batch size 3: off",
    ]
    assert speed_table.left_to_eager(told) == ["batch sizes of mlp: mine left to eager: a reason"]
