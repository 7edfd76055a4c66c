"""Short rows put in order: each element's place is how many elements of its row come before it.

That takes a comparison for each pair of elements, all of them at the same time; libraries' kernels, which are made for
rows of thousands, take a hundred times as long for a row of four as for four elements of a long one. Of equal elements
the first comes first, as under ``stable=True``; else eager leaves that open.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from jitney.torch_compat import torch_private
from jitney.torch_compat.stand_ins.tensor_iterator import hint
from jitney_lowering.decomposition.table import aten, decomposes, is_empty

SHORT = 64  # elements of the longest row, of 64 bits on GPUs
APART = 16  # where they do not lie side by side: each goes through all of them, from the cache or not
PAIRS = 4  # elements of others on GPUs: longer ones are sorted, see ``rules/orders.py``
TINY = 8  # elements of the longest row for each of whose places all elements are asked
GREATEST = (1 << 31) - 1
DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
)  # fmt: skip
SORTS = (aten.sort.default, aten.sort.stable)
SELECTIONS = (aten.topk.default, aten.kthvalue.default, aten.median.dim)
"""Pick some elements of each row; where such are equal, eager's kernels on CPUs have an order of their own."""


def _is_short(x: Tensor, dim: int) -> bool:
    if not -x.dim() <= dim < x.dim() or x.dtype not in DTYPES or is_empty(x):
        return False
    size = x.shape[dim]
    most = SHORT
    if x.device.type != "cpu":
        most = PAIRS if x.dtype.itemsize < 8 else SHORT if hint(x.stride(dim)) == 1 else APART
    return type(size) is int and size <= most


def _is_picked_from(x: Tensor, dim: int) -> bool:
    """Eager's selections refuse truth values."""
    return x.dtype is not torch.bool and _is_short(x, dim)


def _numbers(x: Tensor, dim: int) -> Tensor:
    """The positions in a row, in the shape of a row."""
    numbers = torch.arange(x.shape[dim], dtype=torch.int32, device=x.device)
    return numbers.view(-1, *[1] * (x.dim() - 1 - dim))


def _places(x: Tensor, dim: int, descending: bool = False) -> Tensor:
    """The place of each element in its row when that is in order, counted from 0."""
    numbers = _numbers(x, dim)
    if x.dtype.itemsize < 8 and x.shape[dim] > TINY:
        keys = _keys(x, descending) * SHORT + numbers
        before = keys.unsqueeze(dim) < keys.unsqueeze(dim + 1)
    else:
        mine, other = x.unsqueeze(dim + 1), x.unsqueeze(dim)
        less, more = (mine, other) if descending else (other, mine)
        earlier = numbers < numbers.unsqueeze(1)
        before = torch.where(earlier, ~_is_less(more, less), _is_less(less, more))
    return before.sum(dim + 1, dtype=torch.int32)


def _keys(x: Tensor, descending: bool) -> Tensor:
    """Whole numbers of 32 bits, held in 64, in the order of the elements; what is no number is greater than those."""
    keys = x
    if x.is_floating_point():
        bits = (x.to(torch.float32) + 0.0).view(torch.int32)  # there is one zero
        keys = torch.where(x == x, torch.where(bits < 0, bits ^ GREATEST, bits), GREATEST)
    keys = keys.to(torch.int64)
    return -keys if descending else keys


def _is_less(a: Tensor, b: Tensor) -> Tensor:
    """The same order."""
    return ~(a >= b) & (a == a) if a.is_floating_point() else a < b


def _at(x: Tensor, dim: int, there: Tensor, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Of each row the one element that is there, and its position, as reductions."""
    position = torch.where(there, _numbers(x, dim), 0).sum(dim, keepdim, dtype=torch.int32)
    if x.dtype is torch.bool:
        return (there & x).any(dim, keepdim), _index(position, x.shape[dim])
    least = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    return torch.where(there, x, least).amax(dim, keepdim), _index(position, x.shape[dim])


def _index(position: Tensor, size: int) -> Tensor:
    """In words from which it can be seen that it is in range: nothing is checked where it picks elements."""
    return position.clamp(0, size - 1).to(torch.int64)


def _first(x: Tensor, dim: int, count: int, descending: bool) -> tuple[Tensor, Tensor]:
    """The elements that go to the first places of each row, and their positions."""
    places, numbers = _places(x, dim, descending), _numbers(x, dim)
    if x.shape[dim] <= TINY:
        return _at(x.unsqueeze(dim), dim + 1, places.unsqueeze(dim) == numbers[:count].unsqueeze(1))
    places = _index(places, x.shape[dim])
    values, positions = (
        t.new_zeros(t.shape).scatter(dim, places, t).narrow(dim, 0, count).contiguous()
        for t in (x, numbers.expand(x.shape).contiguous())
    )
    return values, _index(positions, x.shape[dim])


@decomposes(aten.sort.default)
def sort(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """All elements of each row; they lie as a copy of the input would."""
    if not _is_short(x, dim):
        return NotImplemented
    with torch_private.without_modes():
        strides = torch.empty_like(x).stride()
    order = sorted(range(x.dim()), key=lambda d: hint(strides[d]), reverse=True)
    first = _first(x.permute(order), order.index(dim % x.dim()), x.shape[dim], descending)
    values, positions = (made.permute([order.index(d) for d in range(x.dim())]) for made in first)
    return values, positions


@decomposes(aten.sort.stable)
def stable_sort(x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """The same."""
    return sort(x, dim, descending)


@decomposes(aten.topk.default)
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The least or the greatest elements of each row; always in order."""
    if not _is_picked_from(x, dim) or type(k) is not int or not 0 < k <= x.shape[dim]:
        return NotImplemented
    return _first(x, dim % x.dim(), k, largest)


@decomposes(aten.kthvalue.default)
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """One of each row, counted from 1."""
    if not _is_picked_from(x, dim) or type(k) is not int or not 0 < k <= x.shape[dim]:
        return NotImplemented
    dim %= x.dim()
    return _at(x, dim, _places(x, dim) == k - 1, keepdim)


@decomposes(aten.median.dim)
def median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower one of two; of a row in which something is no number, the first such element."""
    if not _is_picked_from(x, dim):
        return NotImplemented
    dim %= x.dim()
    wanted: Any = (x.shape[dim] - 1) // 2
    if x.is_floating_point():
        missing = (x != x).sum(dim, keepdim=True, dtype=torch.int32)
        wanted = torch.where(missing > 0, x.shape[dim] - missing, wanted)
    return _at(x, dim, _places(x, dim) == wanted, keepdim)
