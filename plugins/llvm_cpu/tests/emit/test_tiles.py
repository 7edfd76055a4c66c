"""Reading against the order of writing, in tiles: every remainder, dtype and number of loops."""

from __future__ import annotations

import itertools

import pytest
import torch
from kernel_reference import run_kernel

from jitney_llvm_cpu.emit.scalars import Machine
from jitney_llvm_cpu.emit.tiles import plan
from jitney_llvm_cpu.target import Target
from jitney_llvm_cpu.vector_math import VectorMath
from jitney_lowering.index import Size, Var, index
from jitney_lowering.ir import ALL, Kernel, Nest, Reduce, Store, apply, load, position, ref

F = torch.float32
MACHINE = Machine(Target.host(), VectorMath(Target.host()))


def data(n: int, dtype: torch.dtype = F) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        return torch.randn(n, generator=generator).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 120, (n,), generator=generator).to(dtype)


def check(compiled, kernel, buffers, sizes=None):
    sizes = sizes or {}
    expected = {name: t.clone() for name, t in buffers.items()}
    run_kernel(kernel, expected, sizes)
    function = compiled(kernel, sizes=list(sizes))
    for threads in (1, 2, 3):
        found = {name: t.clone() for name, t in buffers.items()}
        function(found, list(sizes.values()), threads)
        for name in buffers:
            assert torch.equal(found[name], expected[name])


def transpose(m, n, dtype=F) -> Nest:
    i, j = Var("i", m), Var("j", n)
    x = load("a", j * m + i, dtype)
    y = load("b", i * n + j, dtype)
    return Nest((i, j), (Store("o", i * n + j, apply("maximum", x, y)), Store("p", i * n + j, x)))


def names(dtype=F) -> dict[str, torch.dtype]:
    return {name: dtype for name in "abop"}


def tensors(count: int, dtype=F) -> dict[str, torch.Tensor]:
    return {"a": data(count, dtype), "b": data(count, dtype).flip(0)} | {
        name: torch.zeros(count, dtype=dtype) for name in "op"
    }


@pytest.mark.parametrize("dtype", sorted(ALL, key=str), ids=str)
def test_every_remainder_of_a_tile(compiled, dtype):
    assert plan(transpose(64, 64, dtype), MACHINE) is not None
    kernels, buffers = [], {}
    for number, (m, n) in enumerate(itertools.product([4, 15, 16, 33], [5, 16, 17, 32])):
        nest = transpose(m, n, dtype)
        kernel = Kernel(f"k{number}", (), (nest,), names(dtype))
        check_now = tensors(m * n, dtype)
        kernels.append((kernel, check_now))
        buffers[number] = check_now
    for kernel, given in kernels:
        check(compiled, kernel, given)


def test_one_code_for_all_sizes(compiled):
    s, t = Size("s0"), Size("s1")
    kernel = Kernel("k", (), (transpose(s, t),), names())
    function = compiled(kernel, sizes=[s, t])
    for m, n in itertools.product([2, 3, 16, 40], [2, 7, 16, 33]):
        buffers = tensors(m * n)
        expected = {name: t.clone() for name, t in buffers.items()}
        run_kernel(kernel, expected, {s: m, t: n})
        function(buffers, [m, n])
        assert all(torch.equal(buffers[name], expected[name]) for name in buffers)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_permuted_loops(compiled, order):
    sizes = (5, 18, 20)
    loops = [Var(f"i{k}", sizes[k]) for k in range(3)]
    place, stride = index(0), index(1)
    for k in reversed(order):
        place = place + loops[k] * stride
        stride = stride * loops[k].size
    straight = (loops[0] * 18 + loops[1]) * 20 + loops[2]
    x = load("a", place, F)
    value = apply("add", x, position(loops[1] % 7 + loops[2], F))
    inner = Nest(tuple(loops[1:]), (Store("o", straight, value),))
    for kernel in (
        Kernel("alone", (), (Nest(tuple(loops), (Store("o", straight, value),)),), {"a": F, "o": F}),
        Kernel("outer", (loops[0],), (inner,), {"a": F, "o": F}),
    ):
        check(compiled, kernel, {"a": data(5 * 18 * 20), "o": torch.zeros(5 * 18 * 20)})


@pytest.mark.parametrize("sizes", [(20, 3, 33), (3, 20, 16), (40, 2, 5)])
def test_reading_against_an_outer_loop(compiled, sizes):
    a, b, j = (Var(name, size) for name, size in zip("abj", sizes, strict=True))
    place = (a * b.size + b) * j.size + j
    n = sizes[0] * sizes[1] * sizes[2]
    for turned in ((b * j.size + j) * a.size + a, (j * a.size + a) * b.size + b):
        store = Store("o", place, apply("add", load("x", turned, F), position(b * 5 + j, F)))
        kernel = Kernel("k", (a, b), (Nest((j,), (store,)),), {"x": F, "o": F})
        check(compiled, kernel, {"x": data(n), "o": torch.zeros(n)})


def test_tiles_after_a_reduction_of_the_same_iteration(compiled):
    m, n = 20, 35
    o, i, j = Var("o", 3), Var("i", m), Var("j", n)
    x = load("a", o * m * n + j * m + i, F)
    nests = (
        Nest((j, i), (Reduce("r", "max", x),)),
        Nest((i, j), (Store("b", o * m * n + i * n + j, apply("sub", x, ref("r", F))),)),
        Nest((i, j), (Store("c", o * m * n + i * n + j, apply("sub", load("b", o * m * n + j * m + i, F), x)),)),
    )
    kernel = Kernel("k", (o,), nests, {"a": F, "b": F, "c": F})
    assert sum(plan(nest, MACHINE) is not None for nest in nests) == 2
    check(compiled, kernel, {"a": data(3 * m * n), "b": torch.zeros(3 * m * n), "c": torch.zeros(3 * m * n)})


def test_no_tiles_where_there_is_nothing_to_turn():
    i, j, small = Var("i", 40), Var("j", 40), Var("k", 3)
    x = load("a", j * 40 + i, F)
    assert plan(Nest((i, j), (Store("o", i * 40 + j, load("a", i * 40 + j, F)),)), MACHINE) is None
    assert plan(Nest((i, j), (Reduce("r", "sum", x),)), MACHINE) is None
    assert plan(Nest((j,), (Store("o", index(j), load("a", j * 40, F)),)), MACHINE) is None
    assert plan(Nest((small, j), (Store("o", small * 40 + j, load("a", j * 3 + small, F)),)), MACHINE) is None
