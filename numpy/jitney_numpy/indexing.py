"""Subscripts of arrays: views by numbers and slices, copies by arrays of indices, and writes to either."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.numpy.stand_in import Array
from jitney_numpy.calls import (
    MOST,
    as_array,
    as_in_numpy,
    attempt,
    check_writeable,
    holds_array,
    may_raise,
    sample,
    write,
)
from jitney_numpy.creation import assigned

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def getitem(vm: Interpreter, array: Array, key: Any) -> Any:
    """``array[key]``."""
    return attempt(vm, "ndarray.__getitem__", lambda vm, args, _: _get(vm, array, args[0]), [key], {})


def setitem(vm: Interpreter, array: Array, key: Any, value: Any) -> None:
    """``array[key] = value``."""
    attempt(vm, "ndarray.__setitem__", lambda vm, args, _: _set(vm, array, *args), [key, value], {})


def _get(vm: Interpreter, array: Array, key: Any) -> Any:
    if array.scalar:
        raise Break("a scalar of NumPy is subscripted")
    parts = key if type(key) is tuple else (key,)
    made = [_part(vm, p) for p in parts]
    if any(isinstance(p, torch.Tensor) for p in made):
        if any(isinstance(p, torch.Tensor) and p.dtype is torch.bool for p in made):
            raise Break("how many elements a mask takes depends on its values", "use np.where(mask, a, b)")
        _check_fancy(made)
        if not _are_listed(array, parts, made):
            may_raise(vm)
        like = sample(array)[tuple(slice(None) if type(p) is slice else np.zeros(_small(p), int) for p in made)]
        return Array(vm, as_in_numpy(array.tensor[tuple(made)], like))
    _check_bounds(vm, array, made)
    found = array.tensor[tuple(made)]
    whole = Ellipsis not in made and found.ndim == 0
    return Array(vm, found.clone(), scalar=True) if whole else Array(vm, found, readonly=array.readonly)


def _small(indices: Any) -> tuple[int, ...]:
    """The shape of a sample of an array of indices."""
    return tuple(min(int(n), MOST) if type(n) is int else MOST for n in indices.shape)


def _set(vm: Interpreter, array: Array, key: Any, value: Any) -> None:
    check_writeable(array)
    parts = key if type(key) is tuple else (key,)
    made = [_part(vm, p) for p in parts]
    given = assigned(vm, value, array)
    masks = [p for p in made if isinstance(p, torch.Tensor) and p.dtype is torch.bool]
    if masks:
        _set_masked(array, made, given)
        return
    if any(isinstance(p, torch.Tensor) for p in made):
        _check_fancy(made)
        if isinstance(given, torch.Tensor) and given.ndim:
            raise Break("an array is written to by indices: which one of equal ones is last")
        if not _are_listed(array, parts, made):
            raise Break("an array is written to by an array of indices, where one out of bounds leaves it as it is")
        array.tensor[tuple(made)] = given
        return
    _check_bounds(vm, array, made)
    target = Array(vm, array.tensor[tuple(made)])
    if isinstance(given, torch.Tensor):
        if given.ndim and not target.tensor.ndim:
            raise Break("an element is set to an array", "NumPy refuses most")
        while given.ndim > target.tensor.ndim and type(given.shape[0]) is int and given.shape[0] == 1:
            given = given.squeeze(0)
    write(target, given)


def _set_masked(array: Array, made: list[Any], given: Any) -> None:
    """``array[mask] = value`` with one value for all."""
    (mask,) = made
    if isinstance(given, torch.Tensor):
        if given.ndim:
            raise Break("as many values as a mask has are written")
    else:
        given = torch.full((), given, dtype=array.tensor.dtype)
    if tuple(mask.shape) != tuple(array.tensor.shape[: mask.ndim]):
        raise Break("a mask of another shape", "NumPy raises for it")
    wide = mask.reshape((*mask.shape, *[1] * (array.tensor.ndim - mask.ndim)))
    write(array, torch.where(wide, given, array.tensor))


def _end(value: Any) -> Any:
    """An end of a slice as a plain number, if it is one that capture knows."""
    if type(value) is Array and value.scalar and value.dtype.kind in "iu":
        number = value.number()
        return value if number is None else number
    return int(value) if isinstance(value, np.integer) else value


def _part(vm: Interpreter, part: Any) -> Any:
    """One part of a key as torch takes it."""
    kind = type(part)
    if part is None or kind in (int, torch.SymInt, types.EllipsisType):
        return part
    if isinstance(part, np.integer):
        return int(part)
    if kind is slice:
        values = [_end(v) for v in (part.start, part.stop, part.step)]
        if any(v is not None and type(v) not in (int, torch.SymInt) for v in values):
            raise Break("a slice whose ends are no numbers that capture knows", "slice outside compiled code")
        if (values[2] or 1) < 1:
            raise Break("a slice that goes backwards", "torch has no such views")
        return slice(*values)
    if kind is list and not part:
        raise Break("an empty list as an index")
    if kind in (Array, list):
        found = as_array(vm, part).tensor
        if found.ndim == 0:
            raise Break("an index that is a value of an array")
        if found.dtype is torch.bool:
            return found
        if found.dtype not in INTEGERS:
            raise Break("indices that are no integers", "NumPy raises for it")
        return found.to(torch.int64)
    raise Break(f"an index of class {kind.__qualname__}")


def _check_fancy(made: list[Any]) -> None:
    """Break unless the arrays of indices are together, and only slices beside them: there torch agrees with NumPy."""
    places = [i for i, p in enumerate(made) if isinstance(p, torch.Tensor)]
    others = [p for p in made if not isinstance(p, torch.Tensor)]
    if any(type(p) is not slice for p in others) or places != list(range(places[0], places[-1] + 1)):
        raise Break("arrays of indices beside other indices")


def _are_listed(array: Array, parts: tuple[Any, ...], made: list[Any]) -> bool:
    """Are the arrays of indices lists of numbers? Breaks where such a number is out of bounds."""
    known = True
    for axis, (part, found) in enumerate(zip(parts, made, strict=True)):
        if not isinstance(found, torch.Tensor):
            continue
        if type(part) is not list or holds_array(part):
            known = False
            continue
        size = array.tensor.shape[axis]
        if not all(-size <= n < size for n in _listed(part)):
            raise Break("an index in a list is out of bounds", "NumPy raises for it")
    return known


def _listed(value: Any) -> list[int]:
    """The numbers in a list of lists."""
    return [n for v in value for n in _listed(v)] if type(value) in (list, tuple) else [int(value)]


def _check_bounds(vm: Interpreter, array: Array, made: list[Any]) -> None:
    """Raise NumPy's IndexError for a number that is out of bounds: iterating over an array ends by it."""
    axis = 0
    if made.count(Ellipsis) > 1:
        raise Break("several ellipses")
    for part in made:
        if part is None:
            continue
        if part is Ellipsis:
            axis = array.tensor.ndim - sum(p is not None and p is not Ellipsis for p in made) + axis
            continue
        if axis >= array.tensor.ndim or axis < 0:
            raise Break("more indices than dimensions", "NumPy raises for it")
        size = array.tensor.shape[axis]
        if type(part) in (int, torch.SymInt) and not -size <= part < size:
            vm.raise_user(IndexError(f"index {part} is out of bounds for axis {axis} with size {int(size)}"))
        axis += 1
