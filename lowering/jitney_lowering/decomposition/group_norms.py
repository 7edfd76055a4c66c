"""Group norms, forward and backward.

On the CPU a group's sums are those of its channels, each over its pixels: so values are read as they lie in memory,
with the channels first or last. Elsewhere a group is a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from jitney.torch_compat.stand_ins.tensor_iterator import hint
from jitney.torch_compat.torch_private import suggest_memory_format
from jitney_lowering.decomposition.norms import Maybe, moments, parameter_dtype, per_channel
from jitney_lowering.decomposition.table import aten, count, decomposes, is_empty, wide

CHANNELS = 16  # side by side in memory, or else a group's values lie better one after the other
PIXELS = 16  # fewer are not worth sums of their own


@decomposes(aten.native_group_norm.default)
def group_norm(
    x: Tensor, weight: Maybe, bias: Maybe, n: Any, channels: Any, pixels: Any, groups: int, eps: float
) -> Any:
    """Normalised over the channels of each group and all pixels."""
    if is_empty(x):
        return NotImplemented
    kept = parameter_dtype(x, weight, bias)
    if groups > 1 and _by_channels(x):
        return _forward_by_channels(x, weight, bias, groups, eps, kept)
    one = groups == 1 and x.dim() > 2  # no view then, so that it may be computed in any memory format
    source = wide(x).contiguous()
    source = source if one else source.view(n, groups, channels // groups, pixels)
    variance, mean = moments(source, [*range(1, x.dim())] if one else [2, 3])
    rstd = (variance + eps).rsqrt()
    kept_mean, kept_rstd = mean.view(n, groups).to(kept), rstd.view(n, groups).to(kept)
    if x.device.type != "cpu":  # where what is kept is also what is used
        mean, rstd = wide(kept_mean).view(mean.shape), wide(kept_rstd).view(rstd.shape)
    result = (source - mean) * rstd
    result = result if one else result.view(n, channels, pixels)
    if weight is not None:
        result = result * per_channel(result, wide(weight))
    if bias is not None:
        result = result + per_channel(result, wide(bias))
    result = result.to(x.dtype) if one else result.to(x.dtype).view(x.shape)
    if x.device.type == "cpu":
        result = result.contiguous(memory_format=suggest_memory_format(x))
    return result, kept_mean, kept_rstd


def _forward_by_channels(x: Tensor, weight: Maybe, bias: Maybe, groups: int, eps: float, kept: Any) -> Any:
    """With the variances of groups put together from those of channels (Chan, Golub and LeVeque, 1979)."""
    source, pixels = wide(x), count(x, [*range(2, x.dim())])
    number = pixels * (x.shape[1] // groups)
    sums = _pixels(source)
    own = sums * (1 / pixels) if isinstance(pixels, int) else sums / pixels  # means of channels
    distance = source - _of_images(own, x)
    mean = _of_groups(sums, groups) / number
    between = own - _spread(mean, x).view(own.shape)
    squares = _pixels(distance * distance) + between * between * pixels
    rstd = (_of_groups(squares, groups) / number + eps).rsqrt()
    factor = _spread(rstd, x)
    factor = factor if weight is None else factor * per_channel(x, wide(weight))
    summand = _of_images(between, x) * factor
    summand = summand if bias is None else summand + per_channel(x, wide(bias))
    result = (distance * factor + summand).to(x.dtype).contiguous(memory_format=suggest_memory_format(x))
    return result, mean.to(kept), rstd.to(kept)


@decomposes(aten.native_group_norm_backward.default)
def group_norm_backward(
    grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Maybe, n: Any, channels: Any, pixels: Any,
    groups: int, output_mask: Sequence[bool],
) -> Any:  # fmt: skip
    """The gradients of input, weight and bias."""
    if is_empty(x):
        return NotImplemented
    kept = x.dtype if weight is None else weight.dtype
    if _by_channels(x):
        found = _backward_by_channels(wide(grad), wide(x), wide(mean), wide(rstd), weight, groups)
        kinds = (x.dtype, kept, kept)
        return tuple(t.to(kind) if wanted else None for t, kind, wanted in zip(found, kinds, output_mask, strict=True))
    shape = (n, groups, channels // groups, pixels)
    g, source = wide(grad).contiguous().view(shape), wide(x).contiguous().view(shape)
    mean, rstd = wide(mean).view(n, groups, 1, 1), wide(rstd).view(n, groups, 1, 1)
    normal = (source - mean) * rstd
    grad_x = grad_weight = grad_bias = None
    if output_mask[0]:
        scaled = g if weight is None else g * wide(weight).view(1, groups, channels // groups, 1)
        number = count(source, [2, 3])
        first = scaled.sum([2, 3], keepdim=True) / number
        second = (scaled * normal).sum([2, 3], keepdim=True) / number
        grad_x = ((scaled - first - normal * second) * rstd).to(x.dtype).view(x.shape)
    if output_mask[1]:
        grad_weight = (g * normal).sum([0, 3]).view(channels).to(kept)
    if output_mask[2]:
        grad_bias = g.sum([0, 3]).view(channels).to(kept)
    return grad_x, grad_weight, grad_bias


def _backward_by_channels(
    g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Maybe, groups: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The three gradients, all arguments in the precision of sums."""
    mean, rstd = _spread(mean.view(-1, groups), x), _spread(rstd.view(-1, groups), x)
    normal = (x - mean) * rstd
    scale = None if weight is None else wide(weight)
    sums, products = _pixels(g), _pixels(g * normal)  # of each channel
    number = count(x, [*range(2, x.dim())]) * (x.shape[1] // groups)
    first, second = (
        _spread(_of_groups(part if scale is None else part * scale, groups) / number, x) for part in (sums, products)
    )
    scaled = g if scale is None else g * per_channel(g, scale)
    grad_x = ((scaled - first - normal * second) * rstd).contiguous()
    return grad_x, products.sum(0), sums.sum(0)


def _by_channels(x: Tensor) -> bool:
    if x.device.type != "cpu" or x.dim() < 3 or hint(x.shape[1]) < CHANNELS:
        return False
    return math.prod(map(hint, x.shape[2:])) >= PIXELS


def _of_images(statistic: Tensor, x: Tensor) -> Tensor:
    """A number for each channel of each image, in as many dimensions as ``x``."""
    return statistic.view([*statistic.shape] + [1] * (x.dim() - 2))


def _pixels(x: Tensor) -> Tensor:
    """The sum of each channel."""
    return x.sum([*range(2, x.dim())])


def _of_groups(x: Tensor, groups: int) -> Tensor:
    """Sums of channels put together."""
    return x.view(-1, groups, x.shape[1] // groups).sum(2)


def _spread(statistic: Tensor, x: Tensor) -> Tensor:
    """A number for each group as one for each channel of ``x``."""
    groups, each = statistic.shape[1], x.shape[1] // statistic.shape[1]
    spread = statistic.unsqueeze(2).expand(-1, groups, each)
    return spread.reshape([-1, x.shape[1]] + [1] * (x.dim() - 2))
