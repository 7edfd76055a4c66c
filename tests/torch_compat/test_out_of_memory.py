"""What users are told when memory runs out in compiled code."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import fx

import jitney
from jitney.torch_compat.out_of_memory import advice, advise, is_exhausted

HUGE = 2**50


def grown(x: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(HUGE) + x.sum()


class Wide(torch.autograd.Function):
    """Needs more memory than there is, in its backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient + gradient.new_ones(2**50).sum()


def notes_of(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", ()))


@pytest.mark.parametrize("backend", ["eager", "llvm_cpu"])
def test_the_users_error_has_advice(backend: str) -> None:
    compiled = jitney.compile(grown, backend=backend)
    with pytest.raises(RuntimeError, match="allocate memory") as raised:
        compiled(torch.ones(2))
    assert type(raised.value) is RuntimeError  # as eager raises it
    assert "memory ran out in grown" in notes_of(raised.value)
    assert "activation_memory_budget = 0.5 (it is 1)" in notes_of(raised.value)
    assert "jitney memory FILE:FUNCTION" in notes_of(raised.value) and "forms" not in notes_of(raised.value)


def test_a_backward_has_advice_too() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return Wide.apply(x).sum()  # type: ignore[no-untyped-call]

    y = jitney.compile(program, backend="aot_eager")(torch.ones(2, requires_grad=True))
    with pytest.raises(RuntimeError, match="allocate memory") as raised:
        y.backward()
    assert "memory ran out in the backward of program" in notes_of(raised.value)


def test_a_backend_that_needs_more_than_eager_is_named_with_advice() -> None:
    def wasteful(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        def run(*given: Any) -> Any:
            torch.empty(HUGE)
            return graph(*given)

        return run

    compiled = jitney.compile(lambda x: x + 1, backend=wasteful)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert compiled(torch.ones(2)).tolist() == [2, 2]
    (warning,) = told
    assert "backend wasteful" in str(warning.message) and "try: config.activation_memory_budget" in str(warning.message)


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), OSError("x")])
def test_only_errors_about_memory_get_it_and_once(error: Exception) -> None:
    advise(error, "f", forms=3)
    advise(error, "outer")
    expected = not isinstance(error, OSError)
    assert is_exhausted(error) is expected and len(getattr(error, "__notes__", ())) == expected
    if expected:
        assert "in f, which" in notes_of(error) and "3 forms are compiled" in notes_of(error)


def test_a_budget_of_nothing_is_not_halved() -> None:
    with jitney.config.patch(activation_memory_budget=0.0):
        assert not any("budget" in line for line in advice())
