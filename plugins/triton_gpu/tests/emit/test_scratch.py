"""Memory of rows that several of their arrays have, one after the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import jitney
from jitney_lowering.index import Var, index
from jitney_lowering.ir import Accumulate, Kernel, Nest, Scratch, Store, apply, constant, load
from jitney_triton_gpu import tiles
from jitney_triton_gpu.emit.scratch import homes

F = torch.float32


def chain(length: int, count: int) -> Kernel:
    """Arrays of a row, each made of the one before, turned round."""
    row = Var("row", 6)
    names = ["a", *(f"s{k}" for k in range(count)), "b"]
    nests = []
    for source, target in zip(names, names[1:], strict=False):
        i = Var("i", length)
        base = row * length if source == "a" else index(0)
        value = apply("mul", load(source, base + (length - 1 - i), F), constant(1.5, F))
        nests.append(Nest((i,), (Store(target, i + (row * length if target == "b" else 0), value),)))
    scratch = tuple(Scratch(name, F, index(length)) for name in names[1:-1])
    return Kernel("k", (row,), tuple(nests), {"a": F, "b": F}, scratch=scratch)


def test_arrays_that_nobody_reads_any_more_give_their_memory() -> None:
    kernel = chain(5, 6)
    assert homes(kernel, kernel.scratch) == {"s0": "s0", "s1": "s1", "s2": "s0", "s3": "s1", "s4": "s0", "s5": "s1"}


def test_arrays_of_other_types_and_sizes_have_their_own() -> None:
    kernel = chain(5, 4)
    scratch = (kernel.scratch[0], kernel.scratch[1], Scratch("s2", torch.int32, index(5)), Scratch("s3", F, index(6)))
    assert set(homes(kernel, scratch).values()) == {"s0", "s1", "s2", "s3"}


def test_what_is_added_to_lives_from_its_first_store_to_its_last_sum() -> None:
    row, i = Var("row", 3), Var("i", 4)
    zero = constant(0.0, F)
    nests = (
        Nest((i,), (Store("s", index(i), zero),)),
        Nest((i,), (Accumulate("s", index(i), "sum", load("a", row * 4 + i, F)),)),
        Nest((i,), (Store("t", index(i), load("s", 3 - i, F)),)),
        Nest((i,), (Store("u", index(i), load("t", 3 - i, F)),)),
        Nest((i,), (Store("b", row * 4 + i, load("u", 3 - i, F)),)),
    )
    scratch = tuple(Scratch(name, F, index(4)) for name in "stu")
    kernel = Kernel("k", (row,), nests, {"a": F, "b": F}, scratch=scratch)
    assert homes(kernel, scratch) == {"s": "s", "t": "t", "u": "s"}


def test_a_sorting_network_sorts() -> None:
    def sort(x: torch.Tensor) -> torch.Tensor:
        size = 2
        while size <= x.size(1):
            stride = size // 2
            while stride:
                k = x.view(x.size(0), -1, 2, stride)
                up = ((torch.arange(k.size(1)) * 2 * stride // size) % 2 == 0)[:, None]
                swap = (k[:, :, 0] > k[:, :, 1]) == up
                low, high = torch.where(swap, k[:, :, 1], k[:, :, 0]), torch.where(swap, k[:, :, 0], k[:, :, 1])
                x = torch.stack([low, high], dim=2).view_as(x)
                stride //= 2
            size *= 2
        return x

    x = torch.randn(3, 64)
    torch.testing.assert_close(jitney.compile(sort, backend="triton_gpu")(x), x.sort(1).values)


@pytest.mark.parametrize("longest", [4096, 4])
def test_rows_whole_and_in_pieces_give_the_same(check: Any, monkeypatch: pytest.MonkeyPatch, longest: int) -> None:
    monkeypatch.setattr(tiles, "LONGEST_ROW", longest)
    monkeypatch.setattr(tiles, "GUESS", longest)
    made = check(chain(12, 5), {"a": torch.randn(72), "b": torch.zeros(72)}, rtol=1e-6, atol=0)
    assert len(made.codes[0].workspaces) == 2
