"""Convolutions, and what their backward computes: those that XLA has as fast and as precise as torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import torch
from jax import lax
from torch import fx

from jitney_xla.rules.call import Call, cast, fake, rule
from jitney_xla.rules.reductions import total

aten = torch.ops.aten


def convolved(x: Any, weight: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> Any:
    """A convolution over one or two dimensions, without bias."""
    count = x.ndim - 2
    names = "HW"[2 - count :]
    stride, padding, dilation = (
        tuple(given) * count if len(given) == 1 else tuple(given) for given in (stride, padding, dilation)
    )
    return lax.conv_general_dilated(
        x,
        weight,
        stride,
        [(p, p) for p in padding],
        rhs_dilation=dilation,
        dimension_numbers=(f"NC{names}", f"OI{names}", f"NC{names}"),
        precision=lax.Precision.HIGHEST,
    )


def _taken(node: fx.Node, first: int) -> bool:
    """Three dimensions and transposed ones are summed less precisely than in eager; groups take many times as long."""
    x: torch.Tensor = fake(node.args[first])
    transposed, groups = node.args[first + 6], node.args[first + 8]
    return x.dtype.is_floating_point and x.dim() in (3, 4) and not transposed and bool(groups == 1)


@rule(aten.convolution.default, only=lambda node: _taken(node, 0))
def convolution(call: Call, x: Any, weight: Any, bias: Any, *how: Any) -> Any:
    """A convolution in one group."""
    made = convolved(cast(x, call.computes), cast(weight, call.computes), *how[:3])
    if bias is not None:
        made = made + cast(bias, made.dtype).reshape((1, -1) + (1,) * (made.ndim - 2))
    return call.made(made)


@rule(aten.convolution_backward.default, only=lambda node: _taken(node, 1))
def convolution_backward(call: Call, grad: Any, x: Any, weight: Any, bias_sizes: Any, *how: Any) -> Any:
    """The gradients of input, weight and bias, those that are asked for."""
    grad, wanted = cast(grad, call.computes), how[-1]
    _, backward = jax.vjp(lambda a, b: convolved(a, b, *how[:3]), cast(x, grad.dtype), cast(weight, grad.dtype))
    of_x, of_weight = backward(grad)
    of_bias = total(grad, [d for d in range(grad.ndim) if d != 1]) if wanted[2] else None
    return [call.made(g) if want else None for g, want in zip((of_x, of_weight, of_bias), wanted, strict=True)]
