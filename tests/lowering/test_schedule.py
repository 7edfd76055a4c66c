"""Fused kernels compute what the steps compute one by one; and typical programs become the kernels one would write."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering.graphs import Captured
from lowering.interpreter import Memory, extents, run_kernel, run_step

import jitney
from jitney.errors import BackendFailed
from jitney_lowering.index import Index, Names, Size, index
from jitney_lowering.ir import Buffer, Computed, Extern, Kernel, Program, Strided, Value, apply, constant, load
from jitney_lowering.policy import CPU, GPU, Policy
from jitney_lowering.scheduler import Schedule, schedule
from jitney_lowering.scheduler.backwards import turned_round
from jitney_lowering.scheduler.spaces import match

F32, I64 = torch.float32, torch.int64
AGAIN = replace(CPU, turned_row=64, recompute=1e6)  # whatever can be computed again is


class Maker:
    """Builds programs of steps by hand."""

    def __init__(self, dtype: torch.dtype = F32) -> None:
        self.program = Program({}, [], [], [], {})
        self.names = Names()
        self.dtype = dtype
        self.counter = itertools.count()

    def buffer(self, *size: Any, order: Sequence[int] | None = None) -> Buffer:
        stride: dict[int, Index] = {}
        total = index(1)
        for dim in reversed(order if order is not None else range(len(size))):
            stride[dim] = total
            total = total * size[dim]
        made = Buffer(
            f"b{next(self.counter)}", self.dtype, tuple(map(index, size)), tuple(stride[d] for d in range(len(size)))
        )
        self.program.buffers[made.name] = made
        return made

    def input(self, *size: Any) -> Buffer:
        made = self.buffer(*size)
        self.program.inputs.append(made.name)
        return made

    def at(self, buffer: Buffer, *place: Any) -> Value:
        return load(buffer.name, buffer.place([index(p) for p in place]), buffer.dtype)

    def pointwise(self, size: Sequence[Any], value: Callable[..., Value], order: Sequence[int] | None = None) -> Buffer:
        made = self.buffer(*size, order=order)
        loops = tuple(self.names.var(s) for s in size)
        nest = tuple(loops[d] for d in order) if order is not None else loops
        self.program.steps.append(Computed(made.name, loops, made.place(loops), value(*loops), order=nest))
        return made

    def reduce(
        self,
        kind: str,
        size: Sequence[Any],
        dims: set[int],
        value: Callable[..., Value],
        order: Sequence[int] | None = None,
    ) -> Buffer:
        made = self.buffer(*(s for d, s in enumerate(size) if d not in dims))
        loops = tuple(self.names.var(s) for s in size)
        kept = tuple(v for d, v in enumerate(loops) if d not in dims)
        gone = tuple(v for d, v in enumerate(loops) if d in dims)
        nest = tuple(loops[d] for d in order) if order is not None else loops
        step = Computed(made.name, kept, made.place(kept), value(*loops), gone, kind, nest)
        self.program.steps.append(step)
        return made

    def scan(self, size: Sequence[Any], dim: int, value: Callable[..., Value]) -> Buffer:
        made = self.buffer(*size)
        loops = tuple(self.names.var(s) for s in size)
        rows = (*loops[:dim], *loops[dim + 1 :])
        order = (*rows, loops[dim])
        step = Computed(made.name, rows, made.place(loops), value(*loops), loops[dim : dim + 1], "cumsum", order)
        self.program.steps.append(step)
        return made

    def output(self, *buffers: Buffer) -> Program:
        self.program.outputs += [Strided(b.name, b.dtype, b.size, b.stride, index(0)) for b in buffers]
        self.program.verify()
        return self.program


def kernels(made: Schedule) -> list[Kernel]:
    made.verify()
    assert not any(isinstance(item, Extern) for item in made.items)
    return [item for item in made.items if isinstance(item, Kernel)]


def test_softmax_is_one_kernel_of_three_nests() -> None:
    m = Maker()
    x = m.input(64, 32)
    top = m.reduce("max", (64, 32), {1}, lambda i, j: m.at(x, i, j))
    e = m.pointwise((64, 32), lambda i, j: apply("exp", apply("sub", m.at(x, i, j), m.at(top, i))))
    total = m.reduce("sum", (64, 32), {1}, lambda i, j: m.at(e, i, j))
    out = m.pointwise((64, 32), lambda i, j: apply("div", m.at(e, i, j), m.at(total, i)))
    (kernel,) = kernels(schedule(m.output(out)))
    assert [len(nest.statements) for nest in kernel.body] == [1, 2, 1]
    assert [s.extent.value for s in kernel.scratch] == [32]
    assert kernel.reads == {x.name} and kernel.writes == {out.name}


def test_layer_norm_backward_reads_its_inputs_in_one_kernel() -> None:
    m = Maker()
    rows, columns = 64, 32
    x, dy, w, mean, scale = (
        m.input(rows, columns),
        m.input(rows, columns),
        m.input(columns),
        m.input(rows),
        m.input(rows),
    )
    space = (rows, columns)
    hat = m.pointwise(space, lambda i, j: apply("mul", apply("sub", m.at(x, i, j), m.at(mean, i)), m.at(scale, i)))
    g = m.pointwise(space, lambda i, j: apply("mul", m.at(dy, i, j), m.at(w, j)))
    s1 = m.reduce("sum", space, {1}, lambda i, j: m.at(g, i, j))
    s2 = m.reduce("sum", space, {1}, lambda i, j: apply("mul", m.at(g, i, j), m.at(hat, i, j)))
    dx = m.pointwise(
        space,
        lambda i, j: apply("sub", m.at(g, i, j), apply("add", m.at(s1, i), apply("mul", m.at(hat, i, j), m.at(s2, i)))),
    )
    dw = m.reduce("sum", space, {0}, lambda i, j: apply("mul", m.at(dy, i, j), m.at(hat, i, j)))
    db = m.reduce("sum", space, {0}, lambda i, j: m.at(dy, i, j))
    (kernel,) = kernels(schedule(m.output(dx, dw, db)))
    assert len(kernel.partials) == 2 and len(kernel.body) == 2


def test_sums_over_each_dimension_read_the_tensor_once() -> None:
    m = Maker()
    x = m.input(16, 16, 16)
    out = [m.reduce("sum", (16, 16, 16), {d}, lambda i, j, k: m.at(x, i, j, k)) for d in range(3)]
    assert len(kernels(schedule(m.output(*out)))) == 1


def test_contiguous_pointwise_is_one_loop() -> None:
    m = Maker()
    x = m.input(4, 5, 6)
    out = m.pointwise((4, 5, 6), lambda i, j, k: apply("neg", m.at(x, i, j, k)))
    (kernel,) = kernels(schedule(m.output(out)))
    assert kernel.outer == () and [v.size.value for v in kernel.body[0].loops] == [120]


def test_rows_of_a_reshaped_tensor_fuse() -> None:
    """(batch * time, width) and (batch, time, width) are one space."""
    m = Maker()
    x = m.input(24, 8)
    a = m.pointwise((24, 8), lambda i, j: apply("neg", m.at(x, i, j)))
    b = m.pointwise((4, 6, 8), lambda i, j, k: apply("abs", load(a.name, (i * 6 + j) * 8 + k, F32)))
    total = m.reduce("sum", (4, 6, 8), {2}, lambda i, j, k: m.at(b, i, j, k))
    (kernel,) = kernels(schedule(m.output(a, b, total)))
    assert kernel.reads == {x.name}


def test_symbolic_sizes_fuse_and_collapse() -> None:
    m = Maker()
    n = Size("n")
    x = m.input(n, 4, 8)
    a = m.pointwise((n, 4, 8), lambda i, j, k: apply("neg", m.at(x, i, j, k)))
    b = m.pointwise((n, 4, 8), lambda i, j, k: apply("abs", m.at(a, i, j, k)))
    m.program.sizes[n] = None  # type: ignore[assignment]
    (kernel,) = kernels(schedule(m.output(b)))
    assert len(kernel.body[0].loops) == 1 and kernel.writes == {b.name}


def test_a_value_read_transposed_is_made_before() -> None:
    m = Maker()
    x = m.input(8, 8)
    a = m.pointwise((8, 8), lambda i, j: apply("neg", m.at(x, i, j)))
    b = m.pointwise((8, 8), lambda i, j: apply("add", m.at(a, i, j), m.at(a, j, i)))
    assert len(kernels(schedule(m.output(b)))) == 2


def test_equal_steps_run_once() -> None:
    m = Maker()
    x = m.input(8)
    a, b = (m.pointwise((8,), lambda i: apply("exp", m.at(x, i))) for _ in range(2))
    out = m.pointwise((8,), lambda i: apply("add", m.at(a, i), m.at(b, i)))
    (kernel,) = kernels(schedule(m.output(out)))
    assert str(kernel).count("exp") == 2  # one value, printed twice
    assert kernel.writes == {out.name}


def test_temporaries_share_the_arena() -> None:
    m = Maker()
    x = m.input(16, 16)
    for _ in range(6):  # each step waits for all of the one before
        last = x
        x = m.pointwise((16, 16), lambda i, j, last=last: apply("neg", m.at(last, j, i)))
    made = schedule(m.output(x))
    assert made.memory.size.value == 2 * 16 * 16 * 4


# ------------------------------------------------------------------ any program


@st.composite
def programs(draw: st.DrawFn) -> tuple[Program, dict[Any, int]]:
    """Integer programs: whatever the order of sums, the numbers are equal."""
    m = Maker(I64)
    symbol = Size("n")
    dims = draw(st.lists(st.sampled_from([2, 3, 4, 1, symbol]), min_size=1, max_size=3))
    env = {symbol: draw(st.integers(2, 4))}
    m.program.sizes[symbol] = None  # type: ignore[assignment]
    known = [m.input(*dims) for _ in range(2)]
    for _ in range(draw(st.integers(1, 8))):
        source = draw(st.sampled_from(known))
        size = source.size
        other = draw(st.sampled_from(known))

        how = draw(st.integers(0, 5))

        def read(*at: Any, source: Buffer = source, other: Buffer = other, size: Any = size, how: int = how) -> Value:
            first = m.at(source, *at)
            if how == 1 and len(at) > 1 and size[0] is size[-1]:
                return apply("sub", first, m.at(source, at[-1], *at[1:-1], at[0]))
            if how == 2 and at and size[-1].value is not None:
                return apply("sub", first, m.at(source, *at[:-1], (at[-1] + 1) % size[-1]))
            matching = [at[list(size).index(s)] for s in other.size if s in size]
            if len(matching) == len(other.size):
                return apply("add", apply("mul", first, constant(3, I64)), m.at(other, *matching))
            return apply("add", first, constant(how, I64))

        long = [d for d, s in enumerate(size) if s.value != 1]
        if len(long) > 1 and draw(st.integers(0, 3)) == 0:
            made = m.scan(size, draw(st.sampled_from(long)), read)
        elif draw(st.booleans()) or not size:
            order = draw(st.permutations(range(len(size))))
            made = m.pointwise(size, read, order=order if draw(st.booleans()) else None)
        else:
            kind = draw(st.sampled_from(["sum", "max", "min", "argmax"]))
            gone = draw(st.sets(st.sampled_from(range(len(size))), min_size=1))
            order = draw(st.permutations(range(len(size))))
            made = m.reduce(kind, size, gone, read, order=order if draw(st.booleans()) else None)
        known.append(made)
    outputs = draw(st.lists(st.sampled_from(known[2:]), min_size=1, max_size=3, unique_by=lambda b: b.name))
    return m.output(*outputs), env


def fresh(program: Program, env: dict[Any, int]) -> Memory:
    generator = torch.Generator().manual_seed(0)
    counts = extents(program.buffers, env)
    memory = {name: torch.full((counts[name],), -99) for name in program.buffers}
    for name in program.inputs:
        assert isinstance(name, str)
        memory[name] = torch.randint(-9, 9, (counts[name],), generator=generator)
    return memory


def test_scratch_of_loops_in_another_order_than_the_dimensions() -> None:
    m = Maker(I64)
    x = m.input(9, 3, 2)
    a = m.pointwise((9, 3, 2), lambda i, j, k: apply("mul", m.at(x, i, j, k), m.at(x, i, j, k)), order=(0, 2, 1))
    b = m.pointwise(
        (9, 3, 2), lambda i, j, k: apply("add", apply("mul", m.at(a, i, j, k), m.at(a, i, j, k)), m.at(x, i, j, k))
    )
    total = m.reduce("sum", (9, 3, 2), {0}, lambda i, j, k: m.at(b, i, j, k))
    same(m.output(total), {})


def test_positions_of_extremes_are_found_one_a_row() -> None:
    m = Maker(I64)
    x = m.input(9, 3, 2)
    top = m.reduce("argmax", (9, 3, 2), {2}, lambda i, j, k: m.at(x, i, j, k))
    total = m.reduce("sum", (9, 3, 2), {1, 2}, lambda i, j, k: m.at(x, i, j, k))
    both = m.pointwise((9, 3), lambda i, j: apply("add", m.at(top, i, j), m.at(total, i)))
    same(m.output(both), {})


def test_a_scan_is_a_nest_between_what_it_reads_and_what_reads_it() -> None:
    m = Maker(I64)
    x = m.input(9, 40)
    total = m.reduce("sum", (9, 40), {1}, lambda i, j: m.at(x, i, j))
    rest = m.pointwise((9, 40), lambda i, j: apply("sub", m.at(x, i, j), m.at(total, i)))
    running = m.scan((9, 40), 1, lambda i, j: m.at(rest, i, j))
    end = m.pointwise((9, 40), lambda i, j: apply("mul", m.at(running, i, j), m.at(x, i, 39 - j)))
    program = m.output(end)
    same(program, {})
    (kernel,) = kernels(schedule(program))
    assert [type(s).__name__ for nest in kernel.body for s in nest.statements] == ["Reduce", "Scan", "Store"]
    assert [len(nest.loops) for nest in kernel.body] == [1, 1] and not kernel.scratch


def test_a_loop_of_one_round_splits_no_other() -> None:
    """What stands for the split loop has all loops of the spine; one of a single round is nowhere in it."""
    names = Names()
    first, second = ([names.var(n) for n in sizes] for sizes in ((4, 64, 5), (4, 1, 2, 32, 5)))
    found = match(first, second, names)
    assert [v.size.value for v in found.spine] == [4, 2, 32, 5] and found.count == 4
    assert found.first[first[1]].atoms == {*found.spine[1:3]}
    assert found.second[second[1]] is index(0) and not found.rest


def test_few_rows_do_not_keep_what_is_much_wider() -> None:
    """Positions in each of a few sequences, and an embedding of each: a GPU has more threads than sequences."""

    def embedded(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        real = ids.ne(1).int()
        return table[(torch.cumsum(real, 1) * real).long()] + table[ids]

    taken = Captured(policy=replace(GPU, asserts=True))
    ids, table = torch.randint(0, 100, (2, 96)), torch.randn(100, 256)
    jitney.compile(embedded, backend=taken.backend, dynamic=False)(ids, table)
    items = schedule(taken.program, policy=taken.policy).items
    assert len([item for item in items if isinstance(item, Kernel)]) == 2


def test_a_scan_has_rows_and_goes_along_something() -> None:
    for size, dim in (((1, 5), 1), ((5, 1), 1), ((1, 3, 1), 1), ((4, 0), 1)):
        m = Maker(I64)
        x = m.input(*size)
        running = m.scan(size, dim, lambda *at, m=m, x=x: m.at(x, *at))
        with pytest.raises(BackendFailed, match="several rows"):
            m.output(running)


def test_a_scan_that_is_read_elsewhere_in_its_row_goes_through_memory_of_the_row() -> None:
    m = Maker(I64)
    x = m.input(9, 40)
    running = m.scan((9, 40), 1, lambda i, j: m.at(x, i, j))
    end = m.pointwise((9, 40), lambda i, j: apply("sub", m.at(running, i, 39 - j), m.at(running, i, j)))
    program = m.output(end)
    same(program, {})
    (kernel,) = kernels(schedule(program))
    assert [len(nest.statements) for nest in kernel.body] == [2, 1]
    assert [s.extent.value for s in kernel.scratch] == [40]


def test_what_reads_a_scan_backwards_is_turned_round_and_so_is_what_it_reads_besides() -> None:
    m = Maker(I64)
    x = m.input(9, 40)
    double = m.pointwise((9, 40), lambda i, j: apply("add", m.at(x, i, j), m.at(x, i, j)))
    running = m.scan((9, 40), 1, lambda i, j: m.at(x, i, 39 - j))
    total = m.reduce("sum", (9, 40), {1}, lambda i, j: apply("mul", m.at(running, i, 39 - j), m.at(double, i, j)))
    end = m.pointwise((9, 40), lambda i, j: apply("sub", m.at(running, i, 39 - j), m.at(total, i)))
    program = m.output(end, double)
    same(program, {})
    (kernel,) = kernels(schedule(program))
    assert [type(s).__name__ for s in kernel.body[0].statements] == ["Store", "Scan", "Reduce", "Store"]
    assert len(kernel.body) == 2 and [s.name for s in kernel.scratch] == [f"s_{running.name}"]


def test_a_reduction_that_a_scan_goes_on_with_stays_as_it_is() -> None:
    m = Maker(I64)
    x = m.input(9, 40, 8)
    wide = m.pointwise((9, 40, 8), lambda i, j, k: apply("add", m.at(x, i, j, k), m.at(x, i, j, k)))
    row = m.reduce("sum", (9, 40, 8), {2}, lambda i, j, k: m.at(wide, i, j, k))
    running = m.scan((9, 40), 1, lambda i, j: m.at(row, i, 39 - j))
    end = m.pointwise((9, 40), lambda i, j: m.at(running, i, 39 - j))
    program = m.output(end, wide)
    same(program, {})
    assert "-" not in str(turned_round(program.steps)[0])


def test_a_scan_of_long_rows_is_read_where_it_is_made() -> None:
    m = Maker(I64)
    x = m.input(3, 1 << 15)
    running = m.scan((3, 1 << 15), 1, lambda i, j: m.at(x, i, j))
    total = m.reduce("sum", (3, 1 << 15), {1}, lambda i, j: m.at(running, i, j))
    (kernel,) = kernels(schedule(m.output(total)))
    assert not kernel.scratch and len(kernel.body) == 2 and running.name not in kernel.writes


def test_the_position_of_the_extreme_of_everything() -> None:
    m = Maker(I64)
    x = m.input(9, 4)
    top = m.reduce("argmax", (9, 4), {0, 1}, lambda i, j: m.at(x, i, j))
    total = m.reduce("sum", (9, 4), {1}, lambda i, j: m.at(x, i, j))
    mean = m.pointwise((9, 4), lambda i, j: apply("sub", m.at(x, i, j), m.at(total, i)))
    same(m.output(top, mean), {})


def test_reductions_of_everything_in_another_order_than_the_dimensions() -> None:
    for kind in ("sum", "argmax"):
        m = Maker(I64)
        x = m.input(5, 1, 4)
        total = m.reduce(kind, (5, 1, 4), {0, 1, 2}, lambda i, j, k: load(x.name, k * 5 + i + j, I64), order=(2, 1, 0))
        same(m.output(total), {})


def same(
    program: Program, env: dict[Any, int], order: Callable[[list[Any]], list[Any]] = list, policy: Policy = CPU
) -> None:
    """Run the steps, and the kernels with rows in this order: equal outputs."""
    plan = schedule(program, policy=policy)
    plan.verify()
    wanted, got = fresh(program, env), fresh(replace(program, buffers=plan.program.buffers), env)
    for step in program.steps:
        assert isinstance(step, Computed)
        run_step(step, wanted, env)
    for kernel in plan.items:
        assert isinstance(kernel, Kernel)
        run_kernel(kernel, got, env, order)
    for output in program.outputs:
        assert torch.equal(got[output.buffer], wanted[output.buffer]), f"{plan}\n{output.buffer}"


def shuffled(dice: random.Random) -> Callable[[list[Any]], list[Any]]:
    """Rows in another order."""

    def shuffle(rows: list[Any]) -> list[Any]:
        dice.shuffle(rows)
        return rows

    return shuffle


@settings(max_examples=250, deadline=None)
@given(programs(), st.sampled_from([CPU, GPU, AGAIN]), st.randoms(use_true_random=False))
def test_kernels_compute_what_the_steps_do(
    made: tuple[Program, dict[Any, int]], policy: Policy, dice: random.Random
) -> None:
    same(*made, shuffled(dice), policy)
