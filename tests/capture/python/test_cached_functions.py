"""functools.lru_cache around functions that make tensors of constants: masks, tables of angles, grids."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import CountingBackend, check_made, t

import jitney

Fn = Callable[..., Any]


def _mask() -> Fn:
    @functools.lru_cache(maxsize=8)
    def mask(n: int, device: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.ones(n, n, device=device, dtype=dtype).tril()

    return lambda x: (mask(x.shape[0], x.device) @ x, mask(3, device=x.device, dtype=torch.int64))


def _angles() -> Fn:
    @functools.cache
    def angles(n: int) -> dict[str, Any]:
        turns = torch.arange(n).float() / n
        return {"parts": (turns.sin(), turns.cos()), "n": n}

    def fn(x: torch.Tensor) -> Any:
        table = angles(x.shape[0])
        sin, cos = table["parts"]
        return x * sin + x * cos * table["n"], angles(2)["parts"][0] is angles(2)["parts"][0]

    return fn


def _without_gradients() -> Fn:
    @functools.cache
    def weights(n: int) -> torch.Tensor:
        return torch.full((n,), 2.0, requires_grad=torch.is_grad_enabled())

    def fn(x: torch.Tensor) -> Any:
        with torch.no_grad():
            y = x * weights(x.shape[0])
        return y, (x * weights(x.shape[0])).requires_grad

    return fn


@pytest.mark.parametrize("make", [_mask, _angles], ids=["mask", "angles"])
def test_tensors_that_a_cache_holds_come_from_outside(make: Fn) -> None:
    check_made(make, t(), calls=3, graphs=1, breaks=0)


def test_a_cached_tensor_remembers_the_mode_in_which_it_was_made() -> None:
    check_made(_without_gradients, t(), calls=3)


def test_what_is_cached_is_computed_once_and_is_no_part_of_the_graph() -> None:
    @functools.cache
    def table(n: int) -> torch.Tensor:
        return torch.arange(n).float().sin().cos()

    backend = CountingBackend()
    compiled = jitney.compile(lambda x: x * table(x.shape[0]), backend=backend, fullgraph=True)
    held = table(3)
    assert torch.equal(compiled(torch.ones(3)), held)
    assert [n.name for g in backend.graphs for n in g.graph.nodes if n.op.startswith("call")] == ["mul"]
    held.zero_()
    assert torch.equal(compiled(torch.ones(3)), torch.zeros(3))
    assert table(3) is held


def test_a_write_to_what_is_cached_is_there_at_the_next_call() -> None:
    def make() -> Fn:
        @functools.cache
        def buffer(n: int) -> torch.Tensor:
            return torch.zeros(n)

        return lambda x: buffer(x.shape[0]).add_(x) * 1

    check_made(make, t(), calls=3)


REFUSED: dict[str, Fn] = {
    "drawn": lambda: functools.cache(lambda n: torch.rand(n)),
    "dropout": lambda: functools.cache(lambda n: torch.dropout(torch.ones(n), 0.5, True)),
    "of a tensor from outside": lambda: (lambda w: functools.cache(lambda n: w[:n] * 2))(torch.arange(5.0)),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_functions_that_do_more_than_compute_of_constants_run_in_python(make: Fn) -> None:
    def fresh() -> Fn:
        cached = make()

        def fn(x: torch.Tensor) -> Any:
            y = torch.rand(2) + x.sum()
            return y, cached(3) * 2, cached(3), torch.rand(2)

        return fn

    check_made(fresh, t(), calls=3, skips=None)


def test_a_tensor_given_to_a_cached_function_is_known_by_identity() -> None:
    def make() -> Fn:
        cached = functools.cache(lambda v: v * 2)

        def fn(x: torch.Tensor) -> Any:
            first = cached(x).clone()
            x.add_(1)
            return first, cached(x)

        return fn

    check_made(make, t(), calls=2, skips=None)
