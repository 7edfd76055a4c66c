"""Loads where a mask leaves one value of a loop are at the place of the loop, and writes to slices are one kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lowering.graphs import lowered
from lowering.test_schedule import F32, Maker, kernels

import jitney
from jitney_lowering import GPU
from jitney_lowering.index import Var, index
from jitney_lowering.ir import Computed, Load, Value, apply, constant, load, masked, position, walk
from jitney_lowering.scheduler import schedule
from jitney_lowering.scheduler.traffic.points import along_loops


def at(var: Var, number: int) -> Value:
    return apply("eq", position(index(var)), constant(number, torch.int64))


def loads(value: Value) -> set[Value]:
    return {v for v in walk(value) if isinstance(v, Load)}


def step_of(m: Maker, value: Callable[[Var, Var], Value]) -> Computed:
    m.pointwise((8, 16), value)
    step = m.program.steps[-1]
    assert isinstance(step, Computed)
    return step


def test_one_column_is_read_like_the_others() -> None:
    m = Maker()
    x = m.input(8, 16)

    def element(i: Var, j: Var) -> Value:
        return apply("where", at(j, 4), masked(apply("neg", m.at(x, i, 4)), at(j, 4)), m.at(x, i, j))

    step = step_of(m, element)
    i, j = step.vars
    assert loads(step.value) == {load(x.name, i * 16 + 4, F32, mask=at(j, 4)), load(x.name, i * 16 + j, F32)}
    assert loads(along_loops(step).value) == {load(x.name, i * 16 + j, F32)}


def test_another_column_stays_another() -> None:
    m = Maker()
    x = m.input(8, 16)

    def element(i: Var, j: Var) -> Value:
        return apply("where", at(j, 4), masked(m.at(x, i, 5), at(j, 4)), m.at(x, i, j))

    step = step_of(m, element)
    assert along_loops(step) is step


def test_what_is_read_nowhere_else_keeps_its_mask() -> None:
    m = Maker()
    x = m.input(8, 16)

    def element(i: Var, j: Var) -> Value:
        return apply("where", at(j, 4), masked(m.at(x, i, 4), at(j, 4)), constant(0.0, F32))

    step = step_of(m, element)
    i, j = step.vars
    assert loads(along_loops(step).value) == {load(x.name, i * 16 + j, F32, mask=at(j, 4))}


def source(x: torch.Tensor) -> torch.Tensor:
    """A source at a point, and one in a column: each changes what has just been computed."""
    y = x * 2 + x.roll(1, 0)
    y[3, 5] += 1.5
    y[:, 7] *= 0.5
    return y


def walls(x: torch.Tensor) -> torch.Tensor:
    """The values at the walls, some of them their neighbours'."""
    for _ in range(3):
        x = x + 0.1 * (x.roll(1, -1) - x)
        x[0] = 0
        x[:, -1] = x[:, -2]
        x[-1, 2:4] -= x[-2, 2:4]
        x[1:2] += 1
        x[2:3, 3] = x[1, 3]
    return x


@pytest.mark.parametrize("backend", ["llvm_cpu", "triton_gpu"])
@pytest.mark.parametrize("case", [source, walls])
@pytest.mark.parametrize("dynamic", [False, True])
def test_numbers_are_eagers(case: Callable[[torch.Tensor], torch.Tensor], backend: str, dynamic: bool) -> None:
    compiled = jitney.compile(case, backend=backend, fullgraph=True, dynamic=dynamic)
    device = "cuda" if backend == "triton_gpu" and torch.cuda.is_available() else "cpu"
    for size in ((9, 12), (33, 16)):
        x = torch.rand(*size, device=device)
        torch.testing.assert_close(compiled(x.clone()), case(x.clone()), rtol=1e-5, atol=1e-5)


def test_a_source_is_added_by_the_kernel_that_computes_the_field() -> None:
    program = lowered(source, torch.rand(64, 64), whole=None, policy=GPU).program
    assert len(kernels(schedule(program, policy=GPU))) == 1
