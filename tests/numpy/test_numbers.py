"""Numbers that small arrays from outside hold, where the program needs them before the graph runs: they are guarded."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import check_scenario, observe

import jitney


def branch(x: torch.Tensor, a: Any) -> Any:
    return x * float(a[0]) if a[1] > 2 else x + int(a[2])


def loop(x: torch.Tensor, a: Any) -> Any:
    for value in a:
        x = x * value + math.copysign(1.0, value)
    return x, [float(v) for v in a[1:]]


def reads(x: torch.Tensor, a: Any) -> Any:
    return x * a.max().item() + a[1].item(), bool(a[0] != 0), x[int(a.argmin())]


def written(x: torch.Tensor, a: Any) -> Any:
    a[0] += 1
    return x * float(a[0]), x if a[1] > 2 else -x


VALUES = [[1.0, 2.0, 3.0], [1.0, 3.0, 3.0], [1.0, 2.0, 3.0], [0.0, 2.0, -1.0], [-0.0, 2.0, -1.0], [2.0, 5.0, 1.0]]


@pytest.mark.parametrize("fn", [branch, loop, reads, written])
@pytest.mark.parametrize("make", [np.array, lambda v: np.array([v, v]).T[:, 1], lambda v: np.array(v, dtype=np.int32)])
def test_numbers_of_small_arrays(fn: Callable[..., Any], make: Callable[[Any], Any]) -> None:
    def scenario(wrap: Callable[[Any], Any]) -> Any:
        called, arrays = wrap(fn), [make(v) for v in VALUES]
        return [called(torch.arange(1.0, 4.0), a) for a in arrays], arrays

    check_scenario(scenario)


@pytest.mark.parametrize("fn", [branch, loop, reads])
def test_they_are_part_of_one_graph(fn: Callable[..., Any]) -> None:
    with observe() as seen:
        jitney.compile(fn, backend="eager", fullgraph=True)(torch.ones(3), np.array(VALUES[0]))
    assert len(seen.graphs) == 1


def test_memory_that_the_frame_has_written_to() -> None:
    def scenario(wrap: Callable[[Any], Any]) -> Any:
        held = np.array([1.0, 2.0, 3.0])
        tensor, part = torch.from_numpy(held), held[1:]

        def by_tensor(x: torch.Tensor) -> Any:
            tensor.mul_(2)
            return x * float(held[1])

        def by_view(x: torch.Tensor) -> Any:
            part[0] = 7
            return x * float(held[1]), x if held[2] > 3 else -x

        return [wrap(fn)(torch.ones(2)) for fn in (by_tensor, by_view) for _ in range(3)], held

    check_scenario(scenario)


def test_many_values_do_not_compile_for_ever() -> None:
    compiled = jitney.compile(branch, backend="eager")
    with observe() as seen:
        for k in range(30):
            a = np.array([k, k, k / 2])
            torch.testing.assert_close(compiled(torch.ones(2), a), branch(torch.ones(2), a))
    assert len(seen.graphs) < 20
