"""What the cache is told to keep."""

from __future__ import annotations

import torch

from jitney_lowering.index import Size, Var, index
from jitney_lowering.ir import Kernel, Load, Nest, Store, Value, apply, load
from jitney_triton_gpu import tiles
from jitney_triton_gpu.emit.policies import AGAIN, ONCE, policies

F = torch.float32


def plain(loops: tuple[Var, ...], value: Value, outer: tuple[Var, ...] = ()) -> Kernel:
    where = index(0)
    for loop in (*outer, *loops):
        where = where * loop.size + loop
    return Kernel("k", outer, (Nest(loops, (Store("o", where, value),)),), dict.fromkeys("abo", F))


def hints(kernel: Kernel, *, streams: bool = False) -> dict[str, str]:
    found = policies(kernel, streams=streams)
    assert all(isinstance(v, Load) for v in found)
    return {v.buffer: hint for v, hint in found.items()}


def test_what_each_iteration_further_out_loads_again_is_kept() -> None:
    i, j = Var("i", 64), Var("j", 32)
    value = apply("add", load("a", i * 32 + j, F), load("b", index(j), F))
    assert hints(plain((i, j), value)) == hints(plain((j,), value, (i,))) == {"b": AGAIN}


def test_what_one_iteration_uses_all_the_time_needs_no_hint() -> None:
    i, j = Var("i", 64), Var("j", 32)
    row, number = load("a", index(i), F), load("b", index(0), F)
    assert hints(plain((i, j), apply("add", row, number))) == {}
    assert hints(plain((Var("n", 1), j), load("a", index(j), F))) == {}


def test_more_than_the_cache_holds_is_not_kept() -> None:
    i, j = Var("i", 2), Var("j", tiles.CACHE // 4 + 1)
    assert hints(plain((i, j), load("a", index(j), F))) == {}


def test_long_streams_leave_the_cache_alone_where_little_is_written() -> None:
    i, j = Var("i", 2), Var("j", tiles.CACHE // 4 + 1)
    long, short = load("a", i * j.size + j, F), load("b", index(i), F)
    kernel = plain((i, j), apply("add", long, short))
    assert hints(kernel, streams=True) == {"a": ONCE}
    assert hints(kernel) == {}


def test_sizes_that_nobody_knows_get_no_hint() -> None:
    i, j = Var("i", 2), Var("j", Size("s0"))
    assert hints(plain((i, j), load("a", index(j), F)), streams=True) == {}
