"""Other shapes of the same elements, most of them views; joins, and choices between elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.numpy.stand_in import Array
from jitney.capture.python.c_boundary import specialise
from jitney_numpy.calls import HINT, ArrayTable, as_array, number, result, sampled, tried, view
from jitney_numpy.dtypes import as_numpy, as_torch, cast, is_float, rounded

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

table = ArrayTable()
captures, implements = table.captures, table.implements

Tensor = Any
Want = torch.dtype


def views(*functions: Any, method: str = "", itself: bool = False) -> Callable[..., Any]:
    """Register functions whose result has the array's dtype and, where torch's has, its memory.

    With ``itself`` the result is the array itself, and no new view, where the implementation gives its argument.
    """

    def register(made: Callable[..., Any]) -> Callable[..., Any]:
        def run(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
            base = as_array(vm, args[0])
            found = made(base.tensor, *args[1:], **kwargs)
            if isinstance(found, (list, tuple)):
                return vm.world.mark_fresh([view(base, t) for t in found])
            if found is base.tensor:
                if base.scalar:
                    raise Break("a view of a scalar of NumPy")
                if itself:
                    return base
                found = base.tensor[...]
            return view(base, found)

        for fn in functions:
            captures(fn, run)
        if method:
            table.methods[method] = lambda vm, owner, args, kwargs: run(vm, [owner, *args], kwargs)
        return made

    return register


def _order(order: Any) -> None:
    if order not in ("C", None):
        raise Break(f"order={order!r}", HINT)


def shape_of(given: Any) -> tuple[Any, ...]:
    """A shape as NumPy takes it: a number or several."""
    values = tuple(given) if isinstance(given, (tuple, list, torch.Size)) else (given,)
    return tuple(v if type(v) is torch.SymInt else _integer(v) for v in values)


def _integer(value: Any) -> int:
    value = specialise(value)
    if type(value) is bool or not isinstance(value, (int, np.integer)):
        raise Break(f"a size or an axis that is a {type(value).__qualname__}")
    return int(value)


@views(np.reshape)
def _reshape(x: Tensor, shape: Any, order: Any = "C", *, copy: Any = None) -> Tensor:
    _order(order)
    if copy is not None:
        raise Break("np.reshape with copy=")
    return x.reshape(shape_of(shape))


@views(method="reshape")
def _reshape_method(x: Tensor, *shape: Any, order: Any = "C", copy: Any = None) -> Tensor:
    return _reshape(x, shape[0] if len(shape) == 1 else shape, order, copy=copy)


@views(np.ravel, method="ravel")
def _ravel(x: Tensor, order: Any = "C") -> Tensor:
    _order(order)
    return x.contiguous().reshape(-1)  # not a view of what is not contiguous, even where there would be one


@views(np.transpose)
def _transpose(x: Tensor, axes: Any = None) -> Tensor:
    return x.permute(tuple(range(x.ndim))[::-1] if axes is None else shape_of(axes))


@views(method="transpose")
def _transpose_method(x: Tensor, *axes: Any) -> Tensor:
    return _transpose(x, (axes[0] if len(axes) == 1 else axes) or None)


@views(np.matrix_transpose)
def _matrix_transpose(x: Tensor) -> Tensor:
    return x.transpose(-1, -2)


@views(np.swapaxes, method="swapaxes")
def _swapaxes(x: Tensor, axis1: Any, axis2: Any) -> Tensor:
    return x.transpose(_integer(axis1), _integer(axis2))


@views(np.moveaxis)
def _moveaxis(x: Tensor, source: Any, destination: Any) -> Tensor:
    return torch.movedim(x, shape_of(source), shape_of(destination))


@views(np.expand_dims)
def _expand_dims(x: Tensor, axis: Any) -> Tensor:
    axes = shape_of(axis)
    total = x.ndim + len(axes)
    places = sorted(a + total if a < 0 else a for a in axes)
    if len(set(places)) != len(axes) or any(not 0 <= a < total for a in places):
        raise Break("np.expand_dims with axes that do not fit", HINT)
    for place in places:
        x = x.unsqueeze(place)
    return x


@views(np.squeeze, method="squeeze", itself=True)
def _squeeze(x: Tensor, axis: Any = None) -> Tensor:
    axes = [i for i, n in enumerate(x.shape) if type(n) is int and n == 1] if axis is None else shape_of(axis)
    if any(type(x.shape[a]) is not int or x.shape[a] != 1 for a in axes):
        raise Break("np.squeeze of an axis that is not 1", HINT)
    return x.squeeze(tuple(axes)) if axes else x


def _broadcast_readonly(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Array:
    base, shape = as_array(vm, args[0]), args[1] if len(args) > 1 else kwargs["shape"]
    if base.scalar:
        base = Array(vm, base.tensor.clone())
    if set(kwargs) - {"shape"} or len(args) > 2:
        raise Break("np.broadcast_to with subok=")
    return Array(vm, base.tensor.expand(shape_of(shape)), readonly=True)


captures(np.broadcast_to, _broadcast_readonly)


@views(np.atleast_1d, itself=True)
def _atleast_1d(x: Tensor) -> Tensor:
    return x if x.ndim >= 1 else torch.atleast_1d(x)


@views(np.atleast_2d, itself=True)
def _atleast_2d(x: Tensor) -> Tensor:
    return x if x.ndim >= 2 else torch.atleast_2d(x)


@views(np.atleast_3d, itself=True)
def _atleast_3d(x: Tensor) -> Tensor:
    return x if x.ndim >= 3 else torch.atleast_3d(x)


def _pieces(x: Tensor, parts: Any, axis: Any, equal: bool) -> Any:
    dim = _integer(axis)
    if isinstance(parts, (list, tuple)):
        return torch.tensor_split(x, list(map(_integer, parts)), dim)
    count = _integer(parts)
    if equal and int(x.shape[dim]) % count:
        raise Break("np.split into parts that are not equal", HINT)
    return torch.tensor_split(x, count, dim)


@views(np.split)
def _split(x: Tensor, indices_or_sections: Any, axis: Any = 0) -> Any:
    return _pieces(x, indices_or_sections, axis, True)


@views(np.array_split)
def _array_split(x: Tensor, indices_or_sections: Any, axis: Any = 0) -> Any:
    return _pieces(x, indices_or_sections, axis, False)


@views(np.vsplit)
def _vsplit(x: Tensor, indices_or_sections: Any) -> Any:
    if x.ndim < 2:
        raise Break("np.vsplit of one dimension", HINT)
    return _pieces(x, indices_or_sections, 0, True)


@views(np.hsplit)
def _hsplit(x: Tensor, indices_or_sections: Any) -> Any:
    return _pieces(x, indices_or_sections, 1 if x.ndim > 1 else 0, True)


# ------------------------------------------------------------------ copies


@implements(method="flatten")
def _flatten(want: Want, x: Tensor, order: Any = "C") -> Tensor:
    _order(order)
    return x.reshape(-1)


@implements(np.copy)
def _copy(want: Want, x: Tensor, order: Any = "K") -> Tensor:
    return x.clone()


@implements(method="copy")
def _copy_method(want: Want, x: Tensor, order: Any = "C") -> Tensor:
    return x.clone()


@implements(np.roll)
def _roll(want: Want, x: Tensor, shift: Any, axis: Any = None) -> Tensor:
    return torch.roll(x, shift, axis)


def _itself(vm: Interpreter, owner: Array) -> Array:
    """What real arrays give as their conjugate."""
    return owner


table.methods["conj"] = table.methods["conjugate"] = lambda vm, owner, args, kwargs: _itself(vm, owner, *args, **kwargs)


@implements(np.tile)
def _tile(want: Want, x: Tensor, reps: Any) -> Tensor:
    return torch.tile(x, shape_of(reps))


@implements(np.repeat, method="repeat")
def _repeat(want: Want, x: Tensor, repeats: Any, axis: Any = None) -> Tensor:
    if not isinstance(repeats, int):
        raise Break("np.repeat with several counts", HINT)
    flat, dim = (x.reshape(-1), 0) if axis is None else (x, int(axis))
    return torch.repeat_interleave(flat, repeats, dim)


@implements(np.tril)
def _tril(want: Want, x: Tensor, k: int = 0) -> Tensor:
    return torch.tril(x, k)


@implements(np.triu)
def _triu(want: Want, x: Tensor, k: int = 0) -> Tensor:
    return torch.triu(x, k)


@implements(np.round, np.around, method="round")
def _round(want: Want, x: Tensor, decimals: int = 0) -> Tensor:
    if is_float(x.dtype):
        return torch.round(x, decimals=decimals) if decimals else torch.round(x)
    if decimals < 0:
        raise Break("np.round of integers to tens")
    return cast(x, want)


@implements(np.nan_to_num)
def _nan_to_num(
    want: Want, x: Tensor, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    if not copy:
        raise Break("np.nan_to_num in place")
    return torch.nan_to_num(x, nan, posinf, neginf) if is_float(x.dtype) else x


@implements(np.take, method="take", arrays=2, raises=True)
def _take(want: Want, x: Tensor, indices: Tensor, axis: Any = None) -> Tensor:
    flat, dim = (x.reshape(-1), 0) if axis is None else (x, int(axis))
    if is_float(indices.dtype) or indices.dtype in (torch.bool, torch.uint8):
        raise Break("np.take by what are no signed integers", HINT)
    size = flat.shape[dim]
    at = indices.to(torch.int64)
    places = torch.where(at < 0, at + size, at).reshape(-1)
    found = torch.index_select(flat, dim, places)
    dim = dim % flat.ndim
    return found.reshape((*flat.shape[:dim], *indices.shape, *flat.shape[dim + 1 :]))


@implements(np.diag)
def _diag(want: Want, x: Tensor, k: int = 0) -> Tensor:
    if x.ndim != 1:
        raise Break("np.diag of a matrix, a view")
    return torch.diag(x, k)


@implements(np.isclose, arrays=2)
def _isclose(
    want: Want, a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    if not is_float(a.dtype) or a.dtype is not b.dtype:
        raise Break("np.isclose of what are not floats of one dtype", HINT)
    bound = atol + rtol * torch.abs(b)
    found = ((torch.abs(a - b) <= bound) & torch.isfinite(b)) | (a == b)
    return found | (torch.isnan(a) & torch.isnan(b)) if equal_nan else found


# ------------------------------------------------------------------ what capture knows


captures(np.ndim, lambda vm, args, kwargs: as_array(vm, *args, **kwargs).tensor.ndim)
captures(np.shape, lambda vm, args, kwargs: tuple(as_array(vm, *args, **kwargs).tensor.shape))


def _size(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (value,) = args
    return as_array(vm, value, **kwargs).tensor.numel()


captures(np.size, _size)


def _diagonal(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Array:
    base = as_array(vm, args[0])
    if kwargs or base.scalar:
        raise Break("np.diagonal with keywords")
    given = [*map(specialise, args[1:])]
    offset, first, second = given + [0, 0, 1][len(given) :]
    found = torch.diagonal(base.tensor, offset, first, second)
    return Array(vm, found, readonly=True)


captures(np.diagonal, _diagonal)
table.methods["diagonal"] = lambda vm, owner, args, kwargs: _diagonal(vm, [owner, *args], kwargs)


# ------------------------------------------------------------------ several arrays


def _join(np_fn: Any, fn: Callable[[Any, list[Tensor]], Tensor], axis: int | None = 0) -> None:
    """A function of a list of arrays: all in the dtype that NumPy gives the result."""

    def made(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
        given = args[0]
        if type(given) not in (list, tuple) or len(args) > 2 or set(kwargs) - {"axis"}:
            raise Break(f"np.{np_fn.__name__} of what is no list of arrays", HINT)
        items = [as_array(vm, a) for a in given]
        rest = specialise(args[1]) if len(args) > 1 else specialise(kwargs.get("axis", axis))
        named = {} if axis is None else {"axis": rest}
        like = sampled(np_fn, [list(given)], named)
        want = as_torch(as_numpy(like.dtype))
        return result(vm, fn(rest, [cast(i.tensor, want) for i in items]), like, items)

    captures(np_fn, made)


def _concatenate(axis: Any, tensors: list[Tensor]) -> Tensor:
    if axis is None:
        return torch.cat([t.reshape(-1) for t in tensors])
    return torch.cat(tensors, axis)


_join(np.concatenate, _concatenate)
_join(np.stack, lambda axis, tensors: torch.stack(tensors, axis))
_join(np.vstack, lambda axis, tensors: torch.vstack(tensors), None)
_join(np.hstack, lambda axis, tensors: torch.hstack(tensors), None)
_join(np.dstack, lambda axis, tensors: torch.dstack(tensors), None)
_join(np.column_stack, lambda axis, tensors: torch.column_stack(tensors), None)


def _append(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (array, values), axis = args[:2], args[2] if len(args) > 2 else kwargs.get("axis")
    return vm.call(np.concatenate, [as_array(vm, array), as_array(vm, values)], axis=axis)


captures(np.append, _append)


def _einsum(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    subscripts, *operands = args
    if kwargs or type(subscripts) is not str or "..." in subscripts:
        raise Break("np.einsum with more than letters and arrays", HINT)
    arrays = [as_array(vm, a) for a in operands]
    like = sampled(np.einsum, args, {})
    want = as_torch(as_numpy(like.dtype))
    if want is torch.float16:
        raise Break("np.einsum of float16, which overflows elsewhere", HINT)
    tried(lambda *tensors: torch.einsum(subscripts, *[cast(t, want) for t in tensors]), *arrays)
    return result(vm, torch.einsum(subscripts, *[cast(a.tensor, want) for a in arrays]), like, arrays)


captures(np.einsum, _einsum)


def _value(vm: Interpreter, value: Any, want: Want) -> Any:
    """An operand in the result's dtype: a tensor, of a number too."""
    if type(value) in (int, float):
        number(value, want)
        kept = rounded(value, want) if is_float(want) else value
        return torch.full((), kept, dtype=want)
    return cast(as_array(vm, value).tensor, want)


def _where(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if len(args) != 3 or kwargs:
        raise Break("np.where(condition): how many there are depends on the values", "use np.where(condition, a, b)")
    args = [specialise(a) for a in args]
    like = sampled(np.where, args, {})
    want = as_torch(as_numpy(like.dtype))
    condition = as_array(vm, args[0]).tensor
    true = condition if condition.dtype is torch.bool else condition != 0
    return result(vm, torch.where(true, _value(vm, args[1], want), _value(vm, args[2], want)), like, [])


captures(np.where, _where)


def _clip(vm: Interpreter, x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = specialise(min if a_min is None else a_min), specialise(max if a_max is None else a_max)
    base = as_array(vm, x)
    like = sampled(np.clip, [base, low, high], {})
    want = as_torch(as_numpy(like.dtype))
    found = cast(base.tensor, want)
    found = found if low is None else torch.maximum(found, _value(vm, low, want))
    found = found if high is None else torch.minimum(found, _value(vm, high, want))
    return result(vm, found, like, [base])


captures(np.clip, lambda vm, args, kwargs: _clip(vm, *args, **kwargs))
table.methods["clip"] = lambda vm, owner, args, kwargs: _clip(vm, owner, *args, **kwargs)
