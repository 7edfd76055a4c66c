"""What a schedule says of itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import jitney
from jitney import events

F = torch.nn.functional


def scheduled(fn: Any, *args: torch.Tensor, dynamic: bool | None = None) -> events.Scheduled:
    told: list[events.Scheduled] = []

    def collect(event: events.Event) -> None:
        if isinstance(event, events.Scheduled):
            told.append(event)

    with events.listen(collect), events.details(), jitney.config.patch(cache=False):
        jitney.compile(fn, backend="llvm_cpu", dynamic=dynamic)(*args)
    (event,) = told
    return event


@pytest.mark.parametrize("dynamic", [None, True])
def test_bytes_are_those_of_the_elements_that_are_touched(dynamic: bool | None) -> None:
    x, row = torch.randn(64, 32), torch.randn(32)
    event = scheduled(lambda x, row: x.add(row).relu(), x, row, dynamic=dynamic)
    (launch,) = event.launches
    assert (launch.kind, launch.operators) == ("kernel", ("add", "relu"))
    assert launch.read == (64 * 32 + 32) * 4 and launch.written == 64 * 32 * 4
    assert launch.alive == (2 * 64 * 32 + 32) * 4


def test_gathered_rows_are_counted_and_not_the_whole_table() -> None:
    (launch,) = scheduled(F.embedding, torch.tensor([3, 1, 3]), torch.randn(1000, 8)).launches
    assert launch.read == 3 * 8 * 4 + 3 * 8 and launch.written == 3 * 8 * 4 + 1  # was an index wrong?


def test_temporaries_are_alive_from_first_to_last_use() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x.exp() @ x).exp() @ x

    x = torch.randn(32, 32)
    event = scheduled(program, x)
    matrix = 32 * 32 * 4
    kinds = [launch.kind for launch in event.launches]
    assert kinds == ["kernel", "extern", "kernel", "extern"]
    assert [launch.alive for launch in event.launches][::3] == [2 * matrix, 3 * matrix]
    assert event.launches[1].reason == "called from native code" and event.arena >= matrix


def test_each_says_its_operators_its_lines_and_its_loops() -> None:
    event = scheduled(lambda x: x.sort().values + 1, torch.randn(80))
    sort, kernel = event.launches
    assert (sort.name, sort.kind, sort.reason) == ("0 sort", "extern", "no rule")
    assert kernel.name == "1 add" and kernel.text.startswith("kernel ")
    assert [place.rpartition("/")[2].partition(":")[0] for place in kernel.places] == ["test_description.py"]
    assert "aten.sort" in event.before and "kernel " in event.after


def test_nobody_is_told_who_does_not_ask() -> None:
    told: list[events.Event] = []
    with events.listen(told.append), jitney.config.patch(cache=False):
        jitney.compile(lambda x: x + 1, backend="llvm_cpu")(torch.ones(3))
    assert not any(isinstance(event, events.Scheduled) for event in told)
    assert [e.name for e in told if isinstance(e, events.Artefact)] == ["aot_wrapper"]
