"""Numbers that small arrays from outside hold, where the program needs them before the graph runs: they are guarded."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import check, check_scenario, observe

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


MADE = [
    lambda: np.float64(1.5),
    lambda: np.sqrt(2.0),
    lambda: np.int32(2) * 2,
    lambda: np.float16(0.5),
    lambda: np.sqrt(np.bool_(True)),
    lambda: np.float32(1) * np.float64(2),
]
DATA = [
    lambda v: (torch.tensor(v), torch.tensor([v, 1]), torch.tensor([[v], [v]]), torch.tensor(data=v)),
    lambda v: (torch.as_tensor(v), torch.as_tensor([v]), torch.asarray(v), torch.asarray(obj=[v, v])),
    lambda v: (torch.as_tensor(data=np.arange(3) * v), torch.tensor(data=np.ones(2), dtype=torch.float32)),
    lambda v: (torch.tensor(v, dtype=torch.float64), torch.as_tensor(v, dtype=torch.half), torch.tensor(v, dtype=None)),
    lambda v: (torch.ones(2).new_tensor(v), torch.ones(2).new_tensor([v]), torch.stack([torch.tensor(v)] * 2)),
]


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("data", DATA)
def test_tensors_of_numbers_that_the_frame_makes_have_their_dtype(
    make: Callable[[], Any], data: Callable[[Any], Any]
) -> None:
    check(lambda x: (x, *data(make())), torch.ones(2), graphs=1)


def test_a_number_from_outside_is_the_data_of_a_tensor_by_name() -> None:
    number = np.float32(1.5)
    check(lambda x: (x, torch.tensor(data=number), torch.as_tensor(data=number)), torch.ones(2))


def test_numbers_of_numpy_in_a_tuple_of_sizes() -> None:
    def f(x: torch.Tensor) -> Any:
        rows, columns = np.array([3, 2])
        return x.reshape((rows, columns)), torch.zeros([columns, rows]), x.reshape(tuple(np.array([2, 3])))

    check(f, torch.arange(6.0), graphs=1)


def test_functions_of_math_that_take_ints_take_those_of_numpy() -> None:
    def f(x: torch.Tensor, n: int) -> Any:
        number = np.int64(n) * 2
        try:
            return x * math.gcd(number, 6), math.lcm(number, 4), math.comb(number, 2), math.isqrt(number)
        except TypeError as error:
            return str(error)

    check(f, torch.ones(2), 3, graphs=1)
