"""Operators on lists of tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lowering.graphs import lowered

from jitney_lowering.decomposition.foreach import foreach

CALLS: dict[str, Any] = {
    "add": lambda a, b: (torch._foreach_add(a, b, alpha=2), torch._foreach_add(a, 1.5),
                         torch._foreach_add(a, [1, 2.5])),
    "sub": lambda a, b: (torch._foreach_sub(a, b, alpha=2), torch._foreach_sub(a, 1.5)),
    "mul": lambda a, b: (torch._foreach_mul(a, b), torch._foreach_mul(a, 2.0)),
    "div": lambda a, b: (torch._foreach_div(a, b), torch._foreach_div(a, [2.0, 3.0])),
    "extremes": lambda a, b: (torch._foreach_maximum(a, b), torch._foreach_maximum(a, 0.5),
                              torch._foreach_minimum(a, [0.5, 0.1]), torch._foreach_clamp_max(a, b)),
    "pow": lambda a, b: (torch._foreach_pow(a, 2), torch._foreach_pow(a, [2.0, 3.0]), torch._foreach_pow(2.0, a)),
    "addcmul": lambda a, b: (torch._foreach_addcmul(a, a, b, 0.5), torch._foreach_addcmul(a, a, b, [0.5, 2.0])),
    "addcdiv": lambda a, b: torch._foreach_addcdiv(a, b, torch._foreach_exp(b), value=0.5),
    "lerp": lambda a, b: (torch._foreach_lerp(a, b, 0.3), torch._foreach_lerp(a, b, b)),
    "unary": lambda a, b: [f(torch._foreach_abs(a)) for f in (torch._foreach_sqrt, torch._foreach_neg,
                                                             torch._foreach_log, torch._foreach_reciprocal)],
    "norm": lambda a, b: (torch._foreach_norm(a), torch._foreach_norm(a, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_each_tensor_of_a_list(name: str) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> Any:
        return CALLS[name]([a, b], [c, d])

    lowered(fn, torch.randn(3, 4), torch.randn(5), torch.randn(3, 4), torch.randn(5))


def test_no_row_of_the_table_writes_in_place() -> None:
    assert all(not overload._schema.is_mutable for overload in foreach())
    assert len(foreach()) > 60
