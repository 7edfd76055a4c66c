"""Convolutions of single channels with small windows: filters of images, depthwise layers.

They read and write more than they multiply. As one value per element of the result they fuse with what is around them,
and the window's elements that neighbours share come from the cache.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, registering
from jitney_lowering.aten.tensor import ZERO, Shape, Tensor
from jitney_lowering.index import index
from jitney_lowering.ir.scalar import Scalar
from jitney_lowering.ir.values import FARTHEST, Value, constant
from jitney_lowering.rules.promotion import opmath

# So often an element is multiplied, at most; where neighbours lie apart, that counts more. On an H100 kernels that load
# it each time take 0.5 of the time of cuDNN's at 36 and 200, 1.5 times as long at 576, 2.4 times at 3136 (float32).
SHARED = 200
aten = torch.ops.aten
CONVOLUTIONS: dict[Any, Rule] = {}

convolution = registering(CONVOLUTIONS)


@convolution(aten.convolution.default)
def single_channels(call: Call) -> Tensor:
    """The sum over a window, row by row, in float32 at least; rounded once, with the bias inside."""
    x, weight, bias, stride, padding, dilation, transposed, _, groups = call.args
    most = call.builder.policy.filter_window
    call.refuse_unless(most > 0 and not transposed, "a convolution")
    channels, inner, *window = weight.size
    call.refuse_unless(inner == 1 and len(x.size) == len(weight.size), "a convolution of several channels")
    count, *numbers = [n.value or 0 for n in (channels, *window)]  # 0: a symbolic size
    call.refuse_unless(count > 0 and 0 < math.prod(numbers) <= most, "a convolution with a large window")
    call.refuse_unless(call.dtype.is_floating_point and x.dtype is weight.dtype is call.dtype, "a convolution")
    call.refuse_unless(count == 1 or not _channels_last(call), "a convolution with the channels last")
    each = count // groups  # results of one channel
    work = each * math.prod(numbers) * min(stride[-1], FARTHEST)
    call.refuse_unless(each == 1 or work <= SHARED, "a convolution with many results of one channel")
    edges = [(ZERO, ZERO)] * 2 + [(index(p), index(p)) for p in padding]
    source = call.builder.padded(x, edges, constant(0, x.dtype)) if any(padding) else call.builder.spread(x)
    weight = call.builder.spread(weight)
    wide = opmath(call.dtype)

    def element(at: Shape) -> Value:
        batch, channel, *place = at
        total = Scalar(constant(0, wide)) if bias is None else Scalar(bias.load((channel,))).to(wide)
        for offset in itertools.product(*map(range, numbers)):
            spot = [i * s + k * d for i, s, k, d in zip(place, stride, offset, dilation, strict=True)]
            value = Scalar(source.load((batch, channel // each, *spot))).to(wide)
            total = total + value * Scalar(weight.load((channel, ZERO, *map(index, offset)))).to(wide)
        return total.to(call.dtype).value

    return call.result(element)


def _channels_last(call: Call) -> bool:
    """Do libraries have better kernels for this format, which share what neighbours read?"""
    hint = call.builder.sizes.hint
    _, channels, *places = [hint(stride) for stride in call.stride]
    return channels < min(places)
