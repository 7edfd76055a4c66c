"""Sums, means, extremes and their like, and what goes along one axis: cumulative sums, sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from jitney.capture.interpreter.signals import Break
from jitney_numpy.calls import HINT, ArrayTable
from jitney_numpy.dtypes import cast, is_float

table = ArrayTable()
implements = table.implements

Tensor = Any
Want = torch.dtype


def _dims(x: Tensor, axis: Any) -> tuple[int, ...]:
    """The dimensions that ``axis`` names: all for None."""
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(axis) if isinstance(axis, (tuple, list)) else (int(axis),)


def _flat(x: Tensor, axis: Any) -> tuple[Tensor, int]:
    """The tensor and one dimension of it; all elements in one for None."""
    return (x.reshape(-1), 0) if axis is None else (x, int(axis))


@implements(np.sum, method="sum", half=False)
def _sum(want: Want, x: Tensor, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
    dims = _dims(x, axis)
    return torch.sum(x, dims, keepdim=keepdims, dtype=want) if dims else x.to(want).clone()


@implements(np.prod, method="prod", half=False)
def _prod(want: Want, x: Tensor, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
    if isinstance(axis, tuple) or (axis is None and keepdims):
        raise Break("np.prod over several axes")
    flat, dim = _flat(x, axis)
    return torch.prod(flat, dim, keepdim=keepdims, dtype=want)


@implements(np.mean, method="mean")
def _mean(want: Want, x: Tensor, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
    dims = _dims(x, axis)
    if dtype is not None and want is torch.float16:
        raise Break("a mean in float16: asked for, NumPy adds in it, and else in float32", HINT)
    return torch.mean(cast(x, want), dims, keepdim=keepdims) if dims else x.to(want).clone()


def _spread(fn: Any) -> Any:
    def made(
        want: Want, x: Tensor, axis: Any = None, dtype: Any = None, *, ddof: int = 0, keepdims: bool = False
    ) -> Any:
        dims = _dims(x, axis)
        if not dims or any(type(x.shape[d]) is int and x.shape[d] <= ddof for d in dims):
            raise Break("a variance of fewer elements than degrees of freedom", HINT)
        return fn(cast(x, want), dims, correction=ddof, keepdim=keepdims)

    return made


implements(np.var, method="var", half=False)(_spread(torch.var))
# NumPy's variance is a number of the result's dtype before the root is taken: torch.std has none that overflows.
implements(np.std, method="std", half=False)(_spread(lambda *args, **kwargs: torch.sqrt(torch.var(*args, **kwargs))))


def _extreme(fn: Any) -> Any:
    def made(want: Want, x: Tensor, axis: Any = None, *, keepdims: bool = False) -> Tensor:
        dims = _dims(x, axis)
        return fn(x, dims, keepdim=keepdims) if dims else x.clone()

    return made


implements(np.max, np.amax, method="max")(_extreme(torch.amax))
implements(np.min, np.amin, method="min")(_extreme(torch.amin))


@implements(np.ptp)
def _ptp(want: Want, x: Tensor, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    dims = _dims(x, axis)
    return torch.amax(x, dims, keepdim=keepdims) - torch.amin(x, dims, keepdim=keepdims)


def _position(fn: Any) -> Any:
    def made(want: Want, x: Tensor, axis: Any = None, *, keepdims: bool = False) -> Tensor:
        numbers = x.to(torch.uint8) if x.dtype is torch.bool else x
        return fn(numbers, None if axis is None else int(axis), keepdim=keepdims)

    return made


implements(np.argmax, method="argmax")(_position(torch.argmax))
implements(np.argmin, method="argmin")(_position(torch.argmin))


def _truth(fn: Any) -> Any:
    def made(want: Want, x: Tensor, axis: Any = None, *, keepdims: bool = False) -> Tensor:
        dims = _dims(x, axis)
        true = x if x.dtype is torch.bool else x != 0
        return fn(true, dims, keepdim=keepdims) if dims else true.clone()

    return made


implements(np.all, method="all")(_truth(torch.all))
implements(np.any, method="any")(_truth(torch.any))


@implements(np.count_nonzero)
def _count_nonzero(want: Want, x: Tensor, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    return torch.sum(x != 0, _dims(x, axis), keepdim=keepdims, dtype=want)


# ------------------------------------------------------------------ that leave NaN out


@implements(np.nansum, half=False)
def _nansum(want: Want, x: Tensor, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
    kept = torch.where(torch.isnan(x), 0, x) if is_float(x.dtype) else x
    return torch.sum(kept, _dims(x, axis), keepdim=keepdims, dtype=want)


@implements(np.nanmean, half=False)
def _nanmean(want: Want, x: Tensor, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
    if not is_float(x.dtype):
        return torch.mean(x.to(want), _dims(x, axis), keepdim=keepdims)
    missing, dims = torch.isnan(x), _dims(x, axis)
    total = torch.sum(torch.where(missing, 0, x), dims, keepdim=keepdims, dtype=want)
    return total / torch.sum(~missing, dims, keepdim=keepdims).to(want)


def _nan_extreme(fn: Any, neutral: float) -> Any:
    def made(want: Want, x: Tensor, axis: Any = None, *, keepdims: bool = False) -> Tensor:
        dims = _dims(x, axis)
        if not is_float(x.dtype):
            return fn(x, dims, keepdim=keepdims)
        missing = torch.isnan(x)
        found = fn(torch.where(missing, neutral, x), dims, keepdim=keepdims)
        return torch.where(torch.all(missing, dims, keepdim=keepdims), torch.nan, found)

    return made


implements(np.nanmax)(_nan_extreme(torch.amax, -torch.inf))
implements(np.nanmin)(_nan_extreme(torch.amin, torch.inf))


# ------------------------------------------------------------------ along one axis


@implements(np.cumsum, method="cumsum", half=False)
def _cumsum(want: Want, x: Tensor, axis: Any = None, dtype: Any = None) -> Tensor:
    flat, dim = _flat(x, axis)
    return torch.cumsum(flat, dim, dtype=want)


@implements(np.cumprod, method="cumprod", half=False)
def _cumprod(want: Want, x: Tensor, axis: Any = None, dtype: Any = None) -> Tensor:
    flat, dim = _flat(x, axis)
    return torch.cumprod(flat, dim, dtype=want)


@implements(np.sort)
def _sort(want: Want, x: Tensor, axis: Any = -1) -> Tensor:
    flat, dim = _flat(x, axis)
    return torch.sort(flat, dim).values


@implements(np.argsort, method="argsort")
def _argsort(want: Want, x: Tensor, axis: Any = -1, *, kind: Any = None, stable: Any = None) -> Tensor:
    if not stable and kind not in ("stable", "mergesort"):
        raise Break("np.argsort that is not stable: NumPy's order of equal elements", 'say kind="stable"')
    flat, dim = _flat(x, axis)
    return torch.argsort(flat, dim=dim, stable=True)


@implements(np.median, half=False)
def _median(want: Want, x: Tensor, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    if isinstance(axis, tuple) or (axis is None and keepdims) or x.numel() == 0:
        raise Break("np.median over several axes")
    flat, dim = _flat(cast(x, want), axis)
    size = int(flat.shape[dim])
    ordered = torch.sort(flat, dim).values
    low, high = (ordered.narrow(dim, at, 1) for at in ((size - 1) // 2, size // 2))
    middle = low if size % 2 else (low + high) / 2
    found = torch.where(torch.isnan(ordered.narrow(dim, size - 1, 1)), torch.nan, middle)
    return found if keepdims else found.squeeze(dim)


@implements(np.average)
def _average(want: Want, x: Tensor, axis: Any = None, *, keepdims: bool = False) -> Tensor:
    return torch.mean(cast(x, want), _dims(x, axis), keepdim=keepdims)


@implements(np.diff)
def _diff(want: Want, x: Tensor, n: int = 1, axis: int = -1) -> Tensor:
    return torch.diff(x, n, axis)
