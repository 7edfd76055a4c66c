"""Pooling over windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from torch import fx

from jitney_xla.rules.call import Call, cast, fake, rule
from jitney_xla.rules.kinds import is_first_float, is_float

aten = torch.ops.aten


def argument(node: fx.Node, position: int, default: Any) -> Any:
    """An argument, or what it is if it is left out."""
    return node.args[position] if len(node.args) > position else default


def both(value: Sequence[int] | int, default: Sequence[int] = ()) -> tuple[int, ...]:
    """Two numbers, of one or two."""
    given = [value] if isinstance(value, int) else list(value or default)
    return (given[0], given[-1])


def list_of(value: Any) -> list[Any]:
    """Several numbers of a node."""
    return list(value)


# --- means ----------------------------------------------------------------------------------------------------------


def _floors(node: fx.Node) -> bool:
    return is_float(node) and fake(node.args[0]).dim() == 4 and not argument(node, 4, False)


@rule(aten.avg_pool2d.default, only=_floors)
def avg_pool(
    call: Call,
    x: Any,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Any:
    """The mean of each window."""
    x = cast(x, call.computes)
    window = (1, 1, *both(kernel))
    steps = (1, 1, *both(stride, both(kernel)))
    edges = ((0, 0), (0, 0), *((p, p) for p in both(padding)))
    zero = jnp.zeros((), x.dtype)
    sums = lax.reduce_window(x, zero, lax.add, window, steps, edges)
    if divisor is not None or count_include_pad:
        return call.made(sums / (divisor or math.prod(window)))
    ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
    return call.made(sums / lax.reduce_window(jnp.asarray(ones), zero, lax.add, window, steps, edges))


def _divides(node: fx.Node) -> bool:
    shape, size = fake(node.args[0]).shape, list_of(node.args[1])
    known = all(isinstance(n, int) for n in [*shape[-2:], *size])
    return is_float(node) and known and all(n % m == 0 for n, m in zip(shape[-2:], size, strict=True))


@rule(aten._adaptive_avg_pool2d.default, only=_divides)
def adaptive_avg_pool(call: Call, x: Any, size: Sequence[int]) -> Any:
    """The mean of equal parts."""
    x = cast(x, call.computes)
    *before, h, w = x.shape
    parts = x.reshape(*before, size[0], h // size[0], size[1], w // size[1])
    return call.made(jnp.mean(parts, axis=(-3, -1)))


# --- extremes -------------------------------------------------------------------------------------------------------


def _max_floors(node: fx.Node) -> bool:
    at = 2 if node.target is aten.max_pool2d_with_indices_backward.default else 1
    kernel: Any = node.args[at]
    floors = is_first_float(node) and fake(node.args[0]).dim() == 4 and not argument(node, at + 4, False)
    return floors and math.prod(both(kernel)) <= 64


@rule(aten.max_pool2d_with_indices.default, only=_max_floors)
def max_pool(
    call: Call, x: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """The largest of each window and where it is: the first one, or the last NaN, as eager's kernel finds it."""
    (kh, kw), (sh, sw) = both(kernel), both(stride, both(kernel))
    (ph, pw), (dh, dw) = both(padding), both(dilation)
    h, w = x.shape[2:]
    oh = (h + 2 * ph - dh * (kh - 1) - 1) // sh + 1
    ow = (w + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    lowest = jnp.asarray(-jnp.inf, x.dtype)
    padded = lax.pad(x, lowest, ((0, 0, 0), (0, 0, 0), (ph, ph, 0), (pw, pw, 0)))
    rows, columns = jnp.arange(oh)[:, None] * sh - ph, jnp.arange(ow)[None, :] * sw - pw
    best: Any = None
    place: Any = None
    for i, j in itertools.product(range(kh), range(kw)):
        r, c = rows + i * dh, columns + j * dw
        inside = (r >= 0) & (r < h) & (c >= 0) & (c < w)
        here = (r * w + c).astype(jnp.int64)
        top, left = i * dh, j * dw
        value = padded[:, :, top : top + (oh - 1) * sh + 1 : sh, left : left + (ow - 1) * sw + 1 : sw]
        if best is None:
            best = jnp.full(value.shape, -jnp.inf, x.dtype)
            place = jnp.full(value.shape, -1, jnp.int64)
        place = jnp.where((place < 0) & inside, here, place)  # the first that is there
        better = ((value > best) | (value != value)) & inside
        best, place = jnp.where(better, value, best), jnp.where(better, here, place)
    return best, place


@rule(aten.max_pool2d_with_indices_backward.default, only=_max_floors)
def max_pool_backward(call: Call, grad: Any, x: Any, *rest: Any) -> Any:
    """Each window's gradient where its largest was."""
    indices = rest[-1]
    n, c = x.shape[:2]
    flat = jnp.zeros((n, c, x.shape[2] * x.shape[3]), call.computes)
    a, b = jnp.arange(n)[:, None, None], jnp.arange(c)[None, :, None]
    made = flat.at[a, b, indices.reshape(n, c, -1)].add(grad.reshape(n, c, -1).astype(flat.dtype))
    return call.made(made.reshape(x.shape))
