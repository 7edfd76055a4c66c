"""Branches on small tensors of the host (``if t > 0``): guarded where nothing is written, and always as in eager."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import compile_fn, observe

import jitney
from jitney.config import config

Program = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]


def schedule(x: torch.Tensor, t: torch.Tensor, table: torch.Tensor) -> Any:
    before = t - 2
    old = table[before] if before >= 0 else table[0] * 2
    return x * table[t] + old


def checked(x: torch.Tensor, t: torch.Tensor, table: torch.Tensor) -> Any:
    growing = table[1:] > table[:-1]
    if not (growing.all() or (~growing).all()):
        raise ValueError("neither up nor down")
    return x * 2 if table[0] < table[-1] and torch.isfinite(table).all() else x - 1


def solver(x: torch.Tensor, t: torch.Tensor, table: torch.Tensor) -> Any:
    at, out = 1, [x]
    for begin, end in zip(table[:-1], table[1:]):
        x = x + (end - begin) * x.cos()
        while at < len(table) and end >= table[at]:
            out.append(x)
            at += 1
    return torch.stack(out)


def chained(x: torch.Tensor, t: torch.Tensor, table: torch.Tensor) -> Any:
    return x + 1 if 0 < t <= 3 else x - t


READING = [schedule, checked, solver, chained]


def views(x: torch.Tensor, t: torch.Tensor, table: torch.Tensor) -> Any:
    made = torch.zeros(3)
    part = made[0:1]
    made.add_(t)
    return x * 2 if part > 2 else x


def view_of_view(x: torch.Tensor, t: torch.Tensor, table: torch.Tensor) -> Any:
    made = table * 1
    made[1:][0].add_(t)
    return x * 2 if made[1] > 3 else x


def argument(x: torch.Tensor, t: torch.Tensor, table: torch.Tensor) -> Any:
    table[0] = t
    return x * 2 if table[:2].max() > 2 else x


def shared(x: torch.Tensor, t: torch.Tensor, table: torch.Tensor) -> Any:
    part = table[:2]
    part += t
    return x * 2 if (table[:2] > 2).any() else x


def data(x: torch.Tensor, t: torch.Tensor, table: torch.Tensor) -> Any:
    table.data.add_(t)
    return x * 2 if (table > 5).any() else x


def replaced(x: torch.Tensor, t: torch.Tensor, table: torch.Tensor) -> Any:
    table.data = table + t
    return x * 2 if (table > 5).any() else x


def mutable_flag(x: torch.Tensor, t: torch.Tensor, table: torch.Tensor) -> Any:
    flag = t > 2
    flag.logical_not_()
    return x * 2 if flag else x


def numpy_memory(x: torch.Tensor, t: torch.Tensor, table: torch.Tensor) -> Any:
    table.numpy()[0] = 7
    return x * 2 if table[0] > 6 else x


WRITING = [views, view_of_view, argument, shared, data, replaced, mutable_flag, numpy_memory]


def same_as_eager(fn: Program, backend: str, inference: bool = False, **options: Any) -> jitney.CompileProfiler:
    compiled = jitney.compile(fn, backend=backend, **options)
    tables = [torch.arange(5.0), torch.arange(5.0).flip(0), torch.tensor([0.0, 2, 2, 3]), torch.tensor([0.0, math.nan])]
    with jitney.CompileProfiler() as profile, torch.inference_mode(inference):
        for table in [*tables, *tables]:
            for t in (0, 1, 3, 2, 4):
                results = []
                for run in (fn, compiled):
                    given = [torch.arange(3.0), torch.tensor(t), copy.deepcopy(table)]
                    try:
                        results.append((run(*given), *given))
                    except (ValueError, IndexError) as error:
                        results.append((torch.tensor(len(str(error))), *given))
                torch.testing.assert_close(results[1], results[0], equal_nan=True)
    return profile


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("fn", [*READING, *WRITING])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_branch_is_eagers(fn: Program, backend: str, inference: bool) -> None:
    same_as_eager(fn, backend, inference)


@pytest.mark.parametrize("fn", [schedule, checked, chained])
def test_each_way_is_one_graph(fn: Program) -> None:
    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    with jitney.CompileProfiler() as profile:
        for t in (4, 3, 1, 4, 2, 0, 3):
            given = torch.ones(3), torch.tensor(t), torch.arange(5.0)
            assert torch.equal(compiled(*given), fn(*given))
    assert profile.graph_breaks == 0 and profile.graphs <= 3
    assert all("a branch on t is " in cause for cause, _ in profile.causes())


def test_a_solver_of_fixed_steps_is_one_graph() -> None:
    compiled = jitney.compile(solver, backend="eager", fullgraph=True)
    with jitney.CompileProfiler() as profile:
        for scale in (1, 2, 3):
            given = torch.ones(3), torch.tensor(1), torch.arange(5.0) * scale
            assert torch.equal(compiled(*given), solver(*given))
    assert profile.graphs == 1


def test_branches_that_go_many_ways_become_graph_breaks() -> None:
    def fn(x: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
        for at in range(6):
            x = x * 2 if flags[at] else x + at
        return x

    compiled = jitney.compile(fn, backend="eager")
    with jitney.CompileProfiler() as profile:
        for number in range(64):
            flags = torch.tensor([bool(number >> at & 1) for at in range(6)])
            assert torch.equal(compiled(torch.ones(2), flags), fn(torch.ones(2), flags))
    assert profile.graph_breaks and not any(frame.at_limit for frame in profile.frames.values())


def test_a_function_of_the_program_is_not_run_ahead() -> None:
    calls: list[int] = []

    def lt(t: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return t < len(calls)

    jitney.allow_in_graph(lt)

    def fn(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return x * 2 if lt(t) else x

    with pytest.raises(jitney.errors.Unsupported, match="needs the values"):
        jitney.compile(fn, backend="eager", fullgraph=True)(torch.ones(2), torch.tensor(1))


def test_large_tensors_are_left_to_the_graph() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if (x > 1).all() else x

    with pytest.raises(jitney.errors.Unsupported, match="needs the values"):
        jitney.compile(fn, backend="eager", fullgraph=True)(torch.ones(65))


def test_limit_of_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "cache_size_limit", 2)
    for fn in READING:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            same_as_eager(fn, "eager", dynamic=False)


def test_equal_is_a_branch_where_sizes_do_not_decide() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return (x.sum() + 1 if torch.equal(x * 1, y) else x.sum() + 2), x.equal(y)

    nan, ones = torch.tensor([float("nan")]), torch.ones
    compiled = compile_fn(fn, fullgraph=True)
    for x, y in ((ones(3), ones(4)), (ones(3), ones(3, 1)), (ones(3), ones(3)), (ones(3), ones(3) * 2), (nan, nan)):
        assert str(compiled(x, y)) == str(fn(x, y))
    with observe() as seen:
        compiled = compile_fn(fn)
        assert str(compiled(ones(99), ones(99))) == str(fn(ones(99), ones(99)))
        assert str(compiled(ones(3), ones(3, dtype=torch.int64))) == str(fn(ones(3), ones(3, dtype=torch.int64)))
    assert len(seen.breaks) >= 2
