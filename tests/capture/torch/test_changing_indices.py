"""Indices of tensors that are numbers which change from call to call: one graph for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney

Program = Callable[[int, torch.Tensor, torch.Tensor], Any]


def rows(i: int, x: torch.Tensor, table: torch.Tensor) -> Any:
    return table[i] * x, table[-i], table[[i, i + 1]], table[i, 0], table[i][1]


def places(i: int, x: torch.Tensor, table: torch.Tensor) -> Any:
    return (
        table[..., None, i % 2],
        table[None, i],
        table[i, :1],
        table[:, i % 2, None],
        table[2:, 1:][i],
        table[..., i, :],
    )


def written(i: int, x: torch.Tensor, table: torch.Tensor) -> Any:
    made = table * 1
    made[i] = x
    made[i, 1] = 7
    made[:, i % 2] += 1
    made[i] += x
    row = made[i]
    row.mul_(3)
    return made, row


def argument(i: int, x: torch.Tensor, table: torch.Tensor) -> Any:
    table[i] += 1
    table[0, i % 2] = x.sum()
    return table[i]


PROGRAMS = [rows, places, written, argument]


@pytest.mark.parametrize("fn", PROGRAMS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu", "triton_gpu"])
def test_one_graph_for_all(fn: Program, backend: str) -> None:
    compiled = jitney.compile(fn, backend=backend)
    with jitney.CompileProfiler() as profile:
        for i in (3, 4, 5, 7, 2, 6):
            given = [(i, torch.full((2,), 2.0), torch.arange(20.0).reshape(10, 2)) for _ in range(2)]
            torch.testing.assert_close(compiled(*given[0]), fn(*given[1]))
            assert torch.equal(given[0][2], given[1][2])
    assert profile.recompiles == 1 and not profile.graph_breaks


@pytest.mark.parametrize("fn", PROGRAMS)
def test_places_that_are_not_there(fn: Program) -> None:
    compiled = jitney.compile(fn, backend="eager")
    for i in (3, 4, 5, 0, 1, 9, 10, 30, -3, -10, -11):
        results = []
        for run in (fn, compiled):
            given = i, torch.ones(2), torch.arange(20.0).reshape(10, 2)
            try:
                results.append((run(*given), given[2]))
            except IndexError as error:
                results.append((torch.tensor(list(str(error).encode())), given[2]))
        torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
def test_gradients(backend: str) -> None:
    def fn(i: int, x: torch.Tensor, table: torch.Tensor) -> Any:
        product = table * x
        return (product[i] * product[:, i % 2].sum()).sum() + product[2:, 1:][i].sum()

    compiled = jitney.compile(fn, backend=backend)
    for i in (1, 2, 3, 5, 4):
        given = [torch.full((2,), 2.0, requires_grad=True) for _ in range(2)]
        table = torch.arange(20.0).reshape(10, 2)
        compiled(i, given[0], table).backward()
        fn(i, given[1], table).backward()
        torch.testing.assert_close(given[0].grad, given[1].grad)


def test_counter_of_an_object() -> None:
    class Schedule:
        step: int | None = None
        table = torch.arange(20.0)

    def fn(schedule: Schedule, x: torch.Tensor) -> torch.Tensor:
        if schedule.step is None:
            schedule.step = 0
        now, following = schedule.table[schedule.step], schedule.table[schedule.step + 1]
        schedule.step += 1
        return x * now + following

    compiled, mine, other = jitney.compile(fn, backend="eager"), Schedule(), Schedule()
    with jitney.CompileProfiler() as profile:
        for _ in range(10):
            assert torch.equal(compiled(mine, torch.ones(2)), fn(other, torch.ones(2)))
    assert profile.graphs <= 3 and mine.step == other.step == 10


def test_a_row_of_a_tensor_with_one_integer_under_fullgraph() -> None:
    def fn(x: torch.Tensor, t: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return x * table[t]

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    for at in (1, 3, -1):
        given = torch.ones(2), torch.tensor(at), torch.arange(4.0)
        assert torch.equal(compiled(*given), fn(*given))
