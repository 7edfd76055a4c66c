"""Functions of NumPy that are made of others: of NumPy's own, of torch's, or as they are in ``torch._numpy``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from jitney.capture.interpreter.signals import Break
from jitney.torch_compat import torch_private
from jitney_numpy.calls import HINT, ArrayTable
from jitney_numpy.dtypes import cast, is_float

table = ArrayTable()
captures, implements = table.captures, table.implements

Tensor = Any
Want = torch.dtype


def _as(other: Any) -> Callable[..., Any]:
    """Another function of NumPy stands for this one."""
    return lambda vm, args, kwargs: vm.handlers.functions[id(other)](vm, args, kwargs)


captures(np.linalg.matmul, _as(np.matmul))
captures(np.linalg.matrix_transpose, _as(np.matrix_transpose))
captures(np.linalg.tensordot, _as(np.tensordot))
captures(np.astype, lambda vm, args, kwargs: vm.handlers.arrays.methods["astype"](vm, args[0], args[1:], kwargs))


@implements(np.linalg.outer, arrays=2, half=False)
def _outer(want: Want, x: Tensor, y: Tensor) -> Tensor:
    return torch.outer(cast(x, want), cast(y, want))


@implements(np.linalg.vecdot, arrays=2, half=False)
def _vecdot(want: Want, x: Tensor, y: Tensor, axis: int = -1) -> Tensor:
    if want is torch.bool:
        raise Break("np.linalg.vecdot of bools", HINT)
    return torch.sum(cast(x, want) * cast(y, want), axis, dtype=want)


@implements(np.linalg.trace, half=False)
def _trace(want: Want, x: Tensor, *, offset: int = 0) -> Tensor:
    return torch.sum(torch.diagonal(x, offset, -2, -1), -1, dtype=want)


@implements(np.linalg.eigvalsh, half=False, raises=True)
def _eigvalsh(want: Want, x: Tensor, UPLO: str = "L") -> Tensor:
    return torch.linalg.eigvalsh(cast(x, want), UPLO=UPLO)


@implements(np.linalg.svdvals, half=False, raises=True)
def _svdvals(want: Want, x: Tensor) -> Tensor:
    return torch.linalg.svdvals(cast(x, want))


# ------------------------------------------------------------------ element by element


@implements(np.isposinf)
def _isposinf(want: Want, x: Tensor) -> Tensor:
    return torch.isposinf(x)


@implements(np.isneginf)
def _isneginf(want: Want, x: Tensor) -> Tensor:
    return torch.isneginf(x)


@implements(np.iscomplex)
def _iscomplex(want: Want, x: Tensor) -> Tensor:
    return torch.zeros_like(x, dtype=torch.bool)


@implements(np.isreal)
def _isreal(want: Want, x: Tensor) -> Tensor:
    return torch.ones_like(x, dtype=torch.bool)


@implements(np.fix)
def _fix(want: Want, x: Tensor) -> Tensor:
    return torch.trunc(x) if is_float(x.dtype) else cast(x, want)


# ------------------------------------------------------------------ that leave NaN out


def _replaced(x: Tensor, number: float) -> Tensor:
    return torch.where(torch.isnan(x), number, x) if is_float(x.dtype) else x


@implements(np.nancumsum, half=False)
def _nancumsum(want: Want, x: Tensor, axis: Any = None, dtype: Any = None) -> Tensor:
    kept = _replaced(x, 0)
    return torch.cumsum(kept.reshape(-1), 0, dtype=want) if axis is None else torch.cumsum(kept, axis, dtype=want)


@implements(np.nancumprod, half=False)
def _nancumprod(want: Want, x: Tensor, axis: Any = None, dtype: Any = None) -> Tensor:
    kept = _replaced(x, 1)
    return torch.cumprod(kept.reshape(-1), 0, dtype=want) if axis is None else torch.cumprod(kept, axis, dtype=want)


@implements(np.nanprod, half=False)
def _nanprod(want: Want, x: Tensor, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Tensor:
    kept = _replaced(x, 1)
    if axis is None and not keepdims:
        return torch.prod(kept.reshape(-1), 0, dtype=want)
    if not isinstance(axis, int):
        raise Break("np.nanprod over several axes", HINT)
    return torch.prod(kept, axis, keepdim=keepdims, dtype=want)


def _nan_spread(root: bool) -> Any:
    def made(
        want: Want, x: Tensor, axis: Any = None, dtype: Any = None, *, ddof: int = 0, keepdims: bool = False
    ) -> Tensor:
        if not is_float(x.dtype) or dtype is not None:
            raise Break("a variance without NaN of integers, or in another dtype", HINT)
        dims = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (int(axis),)
        there = ~torch.isnan(x)
        count = torch.sum(there, dims, keepdim=True).to(want)
        mean = torch.sum(torch.where(there, x, 0), dims, keepdim=True) / count
        apart = torch.sum(torch.where(there, x - mean, 0).square(), dims, keepdim=True)
        free = count - ddof
        found = torch.where(free <= 0, torch.nan, apart / free)
        found = found if keepdims else found.squeeze(dims)
        return torch.sqrt(found) if root else found

    return made


implements(np.nanvar, half=False)(_nan_spread(False))
implements(np.nanstd, half=False)(_nan_spread(True))


# ------------------------------------------------------------------ along an axis


def _cumulative(fn: Any) -> Any:
    def made(want: Want, x: Tensor, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
        if include_initial or (axis is None and x.ndim != 1):
            raise Break("a cumulative sum with an initial value", HINT)
        return fn(x, 0 if axis is None else int(axis), dtype=want)

    return made


# NumPy has them since 2.1.
if hasattr(np, "cumulative_sum"):
    implements(np.cumulative_sum, half=False)(_cumulative(torch.cumsum))
    implements(np.cumulative_prod, half=False)(_cumulative(torch.cumprod))


@implements(np.trapezoid, half=False)
def _trapezoid(want: Want, y: Tensor, x: Any = None, dx: float = 1.0, axis: int = -1) -> Tensor:
    if x is not None or y.dtype is torch.bool:
        raise Break("np.trapezoid between given places", HINT)
    count = y.shape[axis] - 1
    halves = dx * (y.narrow(axis, 1, count) + y.narrow(axis, 0, count)) / 2.0
    return torch.sum(cast(halves, want), axis)


@implements(np.take_along_axis, arrays=2, raises=True)
def _take_along_axis(want: Want, x: Tensor, indices: Tensor, axis: Any = -1) -> Tensor:
    if axis is None or indices.dtype is not torch.int64 or indices.ndim != x.ndim:
        raise Break("np.take_along_axis by what are no int64, or of all elements", HINT)
    dim, size = int(axis) % x.ndim, x.shape[axis]
    others = [n for d, n in enumerate(x.shape) if d != dim]
    if others != [n for d, n in enumerate(indices.shape) if d != dim]:
        raise Break("np.take_along_axis that broadcasts", HINT)
    return torch.gather(x, dim, torch.where(indices < 0, indices + size, indices))


@implements(np.cross, np.linalg.cross, arrays=2)
def _cross(want: Want, a: Tensor, b: Tensor, *, axis: int = -1) -> Tensor:
    if axis != -1 or a.shape[-1] != 3 or b.shape[-1] != 3 or want is torch.bool:
        raise Break("np.cross of other than three coordinates, which come last", HINT)
    (a0, a1, a2), (b0, b1, b2) = (cast(v, want).unbind(-1) for v in (a, b))
    return torch.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], -1)


def _shifted(sign: int) -> Any:
    def made(want: Want, x: Tensor, axes: Any = None) -> Tensor:
        dims = range(x.ndim) if axes is None else [axes] if isinstance(axes, int) else list(axes)
        sizes = [int(x.shape[d]) for d in dims]
        return torch.roll(x, [n // 2 if sign > 0 else -(n // 2) for n in sizes], list(dims))

    return made


implements(np.fft.fftshift)(_shifted(1))
implements(np.fft.ifftshift)(_shifted(-1))


@implements(np.pad)
def _pad(want: Want, x: Tensor, pad_width: Any, mode: Any = "constant", *, constant_values: Any = 0) -> Tensor:
    if mode != "constant" or type(constant_values) not in (bool, int, float):
        raise Break("np.pad with other than one constant", HINT)
    width = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    if not all(type(n) is int and n >= 0 for pair in width for n in pair):
        raise Break("np.pad by other than numbers from 0 on", HINT)
    if not is_float(want) and np.array(constant_values).astype(np.int64) != constant_values:
        raise Break(f"an array of integers is padded with {constant_values}", HINT)
    flat = [n for pair in reversed(width) for n in pair]
    return torch.nn.functional.pad(x, flat, value=constant_values)


# ------------------------------------------------------------------ that agree with torch._numpy's


def _counterpart(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Tensors go in and out as arrays of ``torch._numpy``, in the dtype that NumPy's result has."""

    def made(want: torch.dtype, *args: Any, **kwargs: Any) -> Any:
        if "dtype" in kwargs:
            raise Break("dtype= there", HINT)
        wrapped = [torch_private.numpy.ndarray(cast(a, want)) if isinstance(a, torch.Tensor) else a for a in args]
        found = fn(*wrapped, **kwargs)
        return [f.tensor for f in found] if isinstance(found, (list, tuple)) else found.tensor

    return made


# name -> how many arguments are arrays
FUNCTIONS = {
    "dot": 2, "vdot": 2, "inner": 2, "outer": 2, "kron": 2, "tensordot": 2, "trace": 1, "vander": 1,
    "linalg.norm": 1, "linalg.det": 1, "linalg.inv": 1, "linalg.solve": 2, "linalg.matrix_power": 1,
}  # fmt: skip
RAISING = ("linalg.inv", "linalg.solve", "linalg.matrix_power")  # of singular matrices
for _name, _arrays in FUNCTIONS.items():
    _ours: Any = np
    _theirs: Any = torch_private.numpy
    for _part in _name.split("."):
        _ours, _theirs = getattr(_ours, _part), getattr(_theirs, _part)
    _method = _name if _name in ("dot", "trace") else ""
    implements(_ours, arrays=_arrays, method=_method, half=False, raises=_name in RAISING)(_counterpart(_theirs))
