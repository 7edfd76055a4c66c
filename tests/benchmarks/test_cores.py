"""Which cores measure, and which compile; no figure of time."""

from __future__ import annotations

import os

import cores
import pytest
from breadth.exclusive import Exclusive


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processes cannot be bound to cores")
@pytest.mark.parametrize(
    ("threads", "found"),
    [(1, ([0], [2, 3, 4, 5])), (2, ([0, 2], [4, 5])), (3, ([], [])), (8, ([], [])), (0, ([], []))],
)
def test_who_measures_has_physical_cores_alone(
    threads: int, found: tuple[list[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)))
    monkeypatch.setattr(cores, "siblings", lambda at: frozenset({at - at % 2, at - at % 2 + 1}))
    assert cores.division(threads) == found


def test_one_holds_the_processors_of_those_who_measure(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[object] = []
    monkeypatch.setattr("breadth.exclusive.bind", bound.append)
    monkeypatch.setattr("breadth.exclusive.renice", bound.append)
    alone = Exclusive(f"{tmp_path}/lock", [0], [1])
    alone.give_way()
    with alone.held():
        assert bound == [10, [1], 0, [0]]
    assert bound[4:] == [10, [1]]
    with Exclusive("").held():
        assert len(bound) == 6
