from __future__ import annotations

import pytest
import torch

import jitney
from jitney import events
from jitney.torch_compat.markers import Span
from jitney_tools import call_profile
from jitney_tools.call_profile import Key, bytes_told, measure, parts_of, rows_of


def span(kind: str, begin: float, end: float, name: str = "", detail: str = "forward") -> Span:
    return Span(kind, name or kind, 1, detail, begin, end, 0)


CALL = [
    span("frame", 1.0, 1.0),
    span("run", 3.0, 9.0),
    span("graph", 4.0, 8.0),
    span("kernel", 5.0, 6.0),
    span("extern", 6.0, 7.5),
]


def test_each_moment_counts_once() -> None:
    parts = parts_of(CALL, [(0.0, 11.0)])
    assert list(parts.values()) == [1.0, 1.5, 1.5, 2.0, 2.0, 2.0, 1.0]
    assert parts["guards, and fetching inputs"] == 2.0 and sum(parts.values()) == 11.0


def test_parts_are_per_call() -> None:
    again = [s._replace(begin=s.begin + 20, end=s.end + 20) for s in CALL]
    assert parts_of([*CALL, *again], [(0.0, 11.0), (20.0, 31.0)]) == parts_of(CALL, [(0.0, 11.0)])


def test_what_the_clocks_take_is_taken_off_where_they_are() -> None:
    parts = parts_of(CALL, [(0.0, 11.0)], cost=0.25)
    assert list(parts.values()) == [1.0, 1.5, 1.0, 1.75, 2.0, 1.75, 1.0]


def test_a_frame_without_a_graph_has_no_guards_to_tell() -> None:
    parts = parts_of([span("frame", 1.0, 1.0)], [(0.0, 3.0)])
    assert parts == {call_profile.PARTS["frame"]: 2.0, call_profile.PARTS["call"]: 1.0}


def test_rows_are_medians_with_bytes() -> None:
    spans = [span("kernel", t, t + d, "0 add") for t, d in ((0, 1.0), (5, 2.0), (10, 9.0))]
    slow, fast = rows_of([*spans, span("extern", 0, 0.5, "1 mm")], 3, {(1, "forward", "0 add"): 8})
    assert (slow.name, slow.runs, slow.seconds, slow.bandwidth) == ("0 add", 1.0, 2.0, 4.0)
    assert (fast.name, fast.kind, fast.moved, fast.bandwidth) == ("1 mm", "extern", 0, 0.0)


@pytest.mark.parametrize("backend", ["llvm_cpu", "eager"])
def test_a_measured_program_has_rows_and_parts(backend: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).relu().sum(0)

    x = torch.randn(16, 16)
    moved: dict[Key, int] = {}
    bare, marked = (jitney.compile(program, backend=backend) for _ in range(2))
    with events.listen(bytes_told(moved)), events.details(), jitney.config.patch(cache=False):
        profile = measure(lambda: bare(x), lambda: marked(x), 3, moved)
    assert profile.calls == 3 and profile.seconds > 0 and set(profile.parts) <= set(call_profile.PARTS.values())
    rows = {row.name: row for row in profile.rows}
    if backend == "eager":
        assert not rows
        return
    assert rows.keys() == {"0 mm", "1 relu+sum"} and all(row.runs == 1 for row in rows.values())
    assert rows["1 relu+sum"].moved == (16 * 16 + 16) * 4 and rows["0 mm"].moved == 2 * 16 * 16 * 4  # x is read once


def test_the_machine_copies_at_some_speed() -> None:
    assert call_profile.copy_bandwidth(torch.device("cpu")) > 0
