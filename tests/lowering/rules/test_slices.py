"""Tensors with a part replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lowering.graphs import externs, kinds, lowered, trained

import jitney

PARTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "middle": lambda x: x[:, 2:5],
    "first": lambda x: x[:2],
    "last": lambda x: x[:, -3:],
    "every other": lambda x: x[1::2],
    "before the first": lambda x: x[:, -100:3],
    "none": lambda x: x[3:3],
    "all": lambda x: x[:],
    "row": lambda x: x[1],
    "last row": lambda x: x[-1],
    "column": lambda x: x[:, 3],
    "element": lambda x: x[2, 4],
    "part of a row": lambda x: x[1, 2:6:3],
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_writing_to_a_part(name: str, dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        PARTS[name](x).copy_(PARTS[name](y))
        return x

    lowered(fn, torch.randn(6, 8).to(dtype), torch.randn(6, 8).to(dtype), whole=(), exact=True)


def test_a_source_is_converted_and_broadcast() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[:, 1:3] = y
        x[2] = 7
        return x

    lowered(fn, torch.randn(4, 5), torch.arange(2), exact=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_of_reading_parts_are_no_operators(dynamic: bool) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x[:, 0].sin() + x[:, -1].cos() * x[:, 1:3].sum(1)

    trained(fn, torch.randn(5, 4, requires_grad=True), dynamic=dynamic)


def test_what_is_costly_is_computed_for_the_part_only() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[:, 3] = (y.exp() + y.sin()).tanh()
        return x

    captured = lowered(fn, torch.randn(64, 32), torch.randn(64))
    first = captured.program.steps[0]
    assert kinds(captured.program) == ["pointwise", "pointwise"] and len(first.vars) == 1  # type: ignore[union-attr]


SLICES = st.tuples(st.integers(-7, 7), st.integers(-7, 7), st.integers(1, 3)).map(lambda s: slice(*s))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), SLICES | st.integers(-5, 4), st.booleans()), min_size=1, max_size=5))
@example([(False, slice(0, 5, 1), False), (False, slice(0, 5, 1), True), (False, slice(0, 0, 1), True)])
def test_any_chain_of_writes(writes: list[tuple[bool, Any, bool]]) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        for turned, part, own in writes:
            target = (x.t() if turned else x)[part]
            target.copy_(((x if own else y).t() if turned else x if own else y)[part].flip(0) * 2)
        return x

    lowered(fn, torch.randn(5, 5), torch.randn(5, 5), exact=True)


def _diagonal(x: torch.Tensor) -> torch.Tensor:
    return x.fill_diagonal_(7)


GRIDS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], bool]] = {
    "diagonal": (_diagonal, True),
    "every third": (lambda x: x.as_strided_scatter(x.reshape(-1)[:6], (6,), (3,), 2), True),
    "grid": (lambda x: x.as_strided_scatter(x[:2, :3], (2, 3), (11, 2), 4), True),
    "grid turned": (lambda x: x.as_strided_scatter(x[:2, :3], (2, 3), (2, 7), 1), True),
    "one": (lambda x: x.as_strided_scatter(x[:1, :1], (1, 1), (9, 9), 20), True),
    "from its beginning": (lambda x: x.as_strided_scatter(x[0], (8,), (5,)), True),
    "woven": (lambda x: x.as_strided_scatter(x[:2, :3], (2, 3), (3, 2), 1), False),
    "of columns": (lambda x: x.t().as_strided_scatter(x[0, :5], (5,), (7,), 3), False),
    "read of columns": (lambda x: x.t().as_strided((5,), (7,), 3) * 2, False),
}


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_writing_to_places_in_memory(name: str, dtype: torch.dtype) -> None:
    """Temporaries lie somewhere in a larger storage, after what is computed before them."""
    run, ruled = GRIDS[name]

    def fn(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = z.cosh()
        return run(torch.logical_or(x, y) if dtype is torch.bool else x + y), before[:, None] - before

    x, y, z = torch.randn(6, 8).to(dtype), torch.randn(6, 8).to(dtype), torch.randn(8)
    found = jitney.compile(fn, backend="llvm_cpu", fullgraph=True)(x, y, z)
    torch.testing.assert_close(found, fn(x, y, z))
    whole = externs(lowered(fn, x, y, z, whole=None).programs)
    assert any("as_strided" in name for name in whole) is not ruled, whole


@pytest.mark.parametrize("offset", [0, 1, -2])
@pytest.mark.parametrize("dims", [(0, 1), (1, 0), (-1, -2)])
@pytest.mark.parametrize("shape", [(5, 7), (7, 5), (3, 6, 4)])
def test_writing_to_a_diagonal(shape: tuple[int, ...], dims: tuple[int, int], offset: int) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x.diagonal(offset, *dims).copy_(y)
        x.diagonal(0, *dims).mul_(2)
        return x + 1

    x = torch.randn(shape)
    lowered(fn, x, torch.randn(x.diagonal(offset, *dims).shape), whole=(), exact=True)
