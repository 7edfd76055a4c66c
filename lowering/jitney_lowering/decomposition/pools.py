"""Pooling whose places are kept as small numbers: a byte within each window rather than eight within the plane."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from jitney_lowering.decomposition.table import aten, decomposes, is_empty

CPU = "cpu"  # whose memory is not what is short
LARGEST = 127  # elements of a window


class _Within(threading.local):
    pooling = False


_within = _Within()


@dataclass(frozen=True)
class Windows:
    """Windows over planes; each field for rows and columns."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    def offsets(self, places: Tensor, width: Any) -> Tensor:
        """Places in planes (int64) of this width as places in their windows, int8."""
        row = (places // width - self._starts(places, 0)) // self.dilation[0]
        column = (places % width - self._starts(places, 1)) // self.dilation[1]
        return (row * self.kernel[1] + column).to(torch.int8)

    def places(self, offsets: Tensor, width: Any) -> Tensor:
        """The inverse of ``offsets``."""
        wide = offsets.to(torch.int64)
        row = wide // self.kernel[1] * self.dilation[0] + self._starts(offsets, 0)
        column = wide % self.kernel[1] * self.dilation[1] + self._starts(offsets, 1)
        return row * width + column

    def _starts(self, like: Tensor, axis: int) -> Tensor:
        """Where each window begins along an axis, in a shape that goes with ``like``."""
        count = like.shape[axis - 2]
        starts = torch.arange(count, device=like.device) * self.stride[axis] - self.padding[axis]
        return starts if axis else starts.unsqueeze(-1)


@decomposes(aten.max_pool2d_with_indices.default)
def max_pool(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    """Itself, but that what a backward keeps of the places is bytes."""
    sizes = _pair(kernel)
    if _within.pooling or x.device.type == CPU or is_empty(x) or sizes[0] * sizes[1] > LARGEST:
        return NotImplemented
    windows = Windows(sizes, _pair(stride) if len(stride) else sizes, _pair(padding), _pair(dilation))
    _within.pooling = True
    try:
        result, places = aten.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)
    finally:
        _within.pooling = False
    return result, windows.places(windows.offsets(places, x.shape[-1]), x.shape[-1])


def _pair(given: Sequence[int] | int) -> tuple[int, int]:
    several = [given] if isinstance(given, int) else list(given)
    return (several[0], several[-1])
