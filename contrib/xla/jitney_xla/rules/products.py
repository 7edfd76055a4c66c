"""Matrix products."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import torch
from jax import lax
from torch import fx

from jitney_xla.rules.call import Call, cast, number, rule
from jitney_xla.rules.kinds import is_float

aten = torch.ops.aten


def product(call: Call, x: Any, y: Any) -> Any:
    """``x @ y``, summed in the dtype to compute in."""
    batch = tuple(range(x.ndim - 2))
    dims = (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch))
    return lax.dot_general(cast(x, call.computes), cast(y, call.computes), dims, precision=lax.Precision.HIGHEST)


@rule(aten.mm.default, aten.bmm.default, only=is_float)
def mm(call: Call, x: Any, y: Any) -> Any:
    """``x @ y``, of matrices or of many."""
    return call.made(product(call, x, y))


def _plain(node: fx.Node) -> bool:
    return is_float(node) and all(isinstance(v, (int, float)) for v in node.kwargs.values())


@rule(aten.addmm.default, aten.baddbmm.default, only=_plain)
def addmm(call: Call, bias: Any, x: Any, y: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """``beta * bias + alpha * (x @ y)``; with a beta of 0 the bias does not count, not even its NaN."""
    made = product(call, x, y)
    made = made if alpha == 1 else made * number(alpha, made.dtype)
    if beta == 0:
        return call.made(made)
    bias = cast(bias, made.dtype)
    return call.made(made + jnp.broadcast_to(bias if beta == 1 else bias * number(beta, made.dtype), made.shape))


@rule(aten.mv.default, aten.dot.default, only=is_float)
def mv(call: Call, x: Any, y: Any) -> Any:
    """A matrix, or a vector, times a vector."""
    made = product(call, x.reshape(-1, x.shape[-1]), y[:, None])
    return call.made(made.reshape(x.shape[:-1]))
