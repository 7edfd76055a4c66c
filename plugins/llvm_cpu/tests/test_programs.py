"""Whole programs beside eager: those of all backends, and what only CPUs do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from backend_programs import *  # noqa: F403
from backend_programs import outcome
from torch.nn import functional as F

import jitney


def test_large_outputs_use_memory_again_only_when_they_are_gone() -> None:
    compiled = jitney.compile(lambda x: x + 1, backend="llvm_cpu")
    x = torch.zeros(8 << 20)
    one, two = compiled(x), compiled(x + 1)
    view = one[5:10]
    address = one.data_ptr()
    del one
    three = compiled(x + 2)
    assert three.data_ptr() != address
    assert view.tolist() == [1.0] * 5 and two[-1] == 2 and three[0] == 3
    del view
    assert compiled(x).data_ptr() == address


OUT_OF_RANGE: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "embedding": (lambda w, i: F.embedding(i, w), lambda: (torch.ones(5, 3), torch.tensor([0, 7]))),
    "gather": (lambda w, i: w.gather(0, i), lambda: (torch.ones(5, 3), torch.tensor([[0, 7]]))),
    "subscript": (lambda w, i: w[i], lambda: (torch.ones(5, 3), torch.tensor([0, -6]))),
    "index_select": (lambda w, i: w.index_select(0, i), lambda: (torch.ones(5, 3), torch.tensor([0, 7]))),
    "scatter": (lambda w, i: w.scatter(0, i, 1.0), lambda: (torch.ones(5, 3), torch.tensor([[0, 7]]))),
    "index_put": (lambda w, i: w.index_put((i,), torch.ones(())), lambda: (torch.ones(5, 3), torch.tensor([0, 7]))),
    "cross_entropy": (lambda w, i: F.cross_entropy(w, i), lambda: (torch.ones(2, 5), torch.tensor([0, 7]))),
}


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_indices_out_of_range_fail_as_in_eager(name: str, writes: bool) -> None:
    """The message is eager's, and so is what was written before."""
    fn, make = OUT_OF_RANGE[name]

    def program(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> Any:
        if writes:
            x.add_(1)
        made = fn(w, i)
        if writes:
            x.add_(made.sum())
        return made

    compiled = jitney.compile(program, backend="llvm_cpu")
    for _ in range(2):
        wanted, got = (outcome(f, (torch.zeros(3), *make())) for f in (program, compiled))
        assert got[1] == wanted[1] is not None
        assert torch.equal(got[2][0], wanted[2][0])


RAISING: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "inv": (torch.linalg.inv, torch.zeros(2, 2)),
    "cholesky": (torch.linalg.cholesky, -torch.eye(2)),
    "solve": (lambda x: torch.linalg.solve(x, x), torch.zeros(2, 2)),
    "assert": (lambda x: (torch._assert_async((x > 0).all()), x + 1)[1], -torch.ones(2)),
}


@pytest.mark.parametrize("name", RAISING)
def test_operators_that_only_check_are_called(name: str) -> None:
    fn, x = RAISING[name]
    with pytest.raises(RuntimeError) as wanted:
        fn(x)
    with pytest.raises(type(wanted.value)) as got:
        jitney.compile(fn, backend="llvm_cpu")(x)
    assert str(got.value) == str(wanted.value)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8, torch.uint8, torch.int16])
def test_the_last_element_of_a_row_writes_to_no_other(dtype: torch.dtype, dynamic: bool) -> None:
    @jitney.compile(backend="llvm_cpu", fullgraph=True, dynamic=dynamic)
    def write(rows: torch.Tensor, x: torch.Tensor) -> None:
        rows.copy_(x * 1.5)

    room = torch.full((3, 80), 7, dtype=dtype)
    width = 65  # one more than some vectors, whatever their size
    x = torch.arange(width, dtype=torch.float32)[None].expand(3, width)
    write(room[:, :width], x)
    assert room[:, :width].equal((x * 1.5).to(dtype))
    assert (room[:, width:] == 7).all()


def test_functions_of_numbers_that_change() -> None:
    """On numbers of the program's, and of a tensor's; what Python refuses is refused when the graph has run."""

    def of_number(x: torch.Tensor, s: float) -> Any:
        return x * math.cos(s) * math.exp(-s) + math.sin(s) * 10000 ** (s / 4) * (s - 1) ** 3, s**2

    def of_tensor(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * math.cos(y.item()) + math.exp(y.item()) - math.sin(y.item())

    x = torch.arange(8.0)
    compiled = jitney.compile(of_number, backend="llvm_cpu")
    for value in (0.25, 0.5, 1.5, -3.0):
        got, wanted = compiled(x, value), of_number(x, value)
        torch.testing.assert_close(got[0], wanted[0])
        assert got[1] == wanted[1]
    with jitney.config.patch(capture_scalar_outputs=True):
        inside = jitney.compile(of_tensor, backend="llvm_cpu")
        for value in (0.25, -700.0, 20.0, math.nan):
            y = torch.tensor(value)
            torch.testing.assert_close(inside(x, y), of_tensor(x, y), equal_nan=True)
        with pytest.raises(OverflowError, match="math range error"):
            inside(x, torch.tensor(1000.0))
        with pytest.raises(ValueError, match="math domain error"):
            inside(x, torch.tensor(-math.inf))
