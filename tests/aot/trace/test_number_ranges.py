"""Numbers that a dtype cannot hold: eager raises, and so do compiled calls, also those whose number has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import jitney

Program = Callable[[torch.Tensor, Any], torch.Tensor]

PROGRAMS: dict[str, Program] = {
    "tensor": lambda x, n: torch.tensor([n], dtype=x.dtype) + 0,
    "new_tensor": lambda x, n: x.new_tensor([n, 1]) + 0,
    "full": lambda x, n: torch.full((2,), n, dtype=x.dtype) + 0,
    "full_like": lambda x, n: torch.full_like(x, n) + 0,
    "fill_": lambda x, n: x.clone().fill_(n) + 0,
    "masked_fill": lambda x, n: x.masked_fill(x > 1, n),
    "where": lambda x, n: torch.where(x > 1, torch.tensor(n, dtype=x.dtype), x),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([0]), n),
    "scatter": lambda x, n: x.scatter(-1, torch.tensor([0]), n),
    "pad": lambda x, n: F.pad(x, (1, 1), value=n),
    "clamp": lambda x, n: x.clamp(max=n),
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
}
NUMBERS = {torch.uint8: (3, 4, 5, 300, 6, -300), torch.int16: (3, 4, 5, 40_000, -40_000), torch.float16: (3, 4, 70_000)}


def outcome(fn: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor | type[Exception]:
    try:
        return fn(*args)
    except RuntimeError as error:
        return type(error)


def compare(program: Program, dtype: torch.dtype, numbers: tuple[Any, ...], backend: str) -> None:
    compiled = jitney.compile(program, backend=backend)
    for number in numbers:
        x = torch.tensor([1, 2, 3]).to(dtype)
        expected, found = outcome(program, x, number), outcome(compiled, x, number)
        if isinstance(expected, torch.Tensor):
            assert isinstance(found, torch.Tensor), number
            assert torch.equal(found, expected), number
            assert found.dtype is expected.dtype
        else:
            assert found is expected, number


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_numbers_that_change(program: Program, dtype: torch.dtype, backend: str) -> None:
    compare(program, dtype, NUMBERS[dtype], backend)


@pytest.mark.parametrize("number", [300, 1e39, float("inf")])
def test_constants(number: float) -> None:
    compare(lambda x, n: F.pad(x, (1, 1), value=number), torch.uint8, (0,), "llvm_cpu")
    compare(lambda x, n: F.pad(x, (1, 1), value=number), torch.float32, (0,), "llvm_cpu")


def test_floats_beside_integers_are_promoted() -> None:
    compare(lambda x, n: x.clamp(max=n), torch.int32, (1.5, 3e9, 2.5, 1e39), "llvm_cpu")


def test_what_fits_is_compiled() -> None:
    kept: list[str] = []

    def look(event: Any) -> None:
        if isinstance(event, jitney.events.GraphKept):
            kept.append(event.reason)

    compiled = jitney.compile(lambda x, n: x.masked_fill(x > 1, n) + n, backend="llvm_cpu")
    with jitney.events.listen(look):
        for n in (1, 2, 255):
            compiled(torch.tensor([1, 2], dtype=torch.uint8), n)
        assert not kept
        outcome(compiled, torch.tensor([1, 2], dtype=torch.uint8), 256)
    assert len(kept) == 1
    assert "may not hold" in kept[0]
