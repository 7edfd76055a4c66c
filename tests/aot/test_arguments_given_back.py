"""Operations that may give back their argument: writes to the result are writes to it, in inference mode too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import jitney
from jitney import events

OPERATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "type_as": lambda x: x.type_as(x),
    "to_dense": lambda x: x.to_dense(),
    "conj_physical": lambda x: x.conj_physical(),
    "sum_to_size": lambda x: x.sum_to_size(x.shape),
    "atleast_2d": lambda x: torch.atleast_2d(x),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x)[0],
    "dropout": lambda x: F.dropout(x, 0.5, False),
    "dropout2d": lambda x: F.dropout2d(x[None, None], 0.5, False),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, False),
    "einsum": lambda x: torch.einsum("ij->ji", x),
    "dequantize": lambda x: x.dequantize(),
    "contiguous": lambda x: x.contiguous(),
    "reshape": lambda x: x.reshape(-1),
}


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_write_to_the_result_is_a_write_to_the_argument(name: str, mode: Callable[[], torch.no_grad]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = OPERATORS[name](x)
        y.mul_(2)
        return y

    outcomes = []
    for run in (fn, jitney.compile(fn, backend="aot_eager")):
        for inside in (False, True):
            x = torch.arange(6.0).reshape(3, 2)
            with mode():
                if inside:
                    x = x.clone()
                y = run(x)
            outcomes.append((x.tolist(), y.tolist(), y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()))
    assert outcomes[:2] == outcomes[2:]


def test_views_of_what_requires_grad_do_so_in_inference_mode() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[1:], x.t(), x.detach(), x * 2

    for x in (torch.ones(2, 2, requires_grad=True), torch.ones(2, 2, requires_grad=True) * 1):
        with torch.inference_mode():
            expected, found = fn(x), jitney.compile(fn, backend="aot_eager")(x)
        assert [y.requires_grad for y in found] == [y.requires_grad for y in expected]
        assert [y.is_inference() for y in found] == [y.is_inference() for y in expected]


def test_sizes_that_change_stay_symbolic_in_inference_mode() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = (x[1:] * 2).relu() + y.mean()
        x.mul_(2)
        return z, x.t()

    captured: list[Any] = []
    compiled = jitney.compile(fn, backend="aot_eager")
    with events.listen(lambda e: captured.append(e) if isinstance(e, events.GraphCaptured) else None):
        for size in (4, 5, 6, 9, 3):
            with torch.inference_mode():
                x, y = torch.randn(size, size + 1)[:, 1:], torch.randn(2 * size, 3).t()
                torch.testing.assert_close(compiled(x.clone(), y), fn(x, y))
    assert len(captured) == 2
