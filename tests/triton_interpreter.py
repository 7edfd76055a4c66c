"""Triton's kernels on the CPU, for tests and the fuzzer."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np


def interpret_triton() -> None:
    """Have Triton's kernels interpreted on the CPU; to be called before anything imports Triton."""
    os.environ["TRITON_INTERPRET"] = "1"
    triton = importlib.import_module("triton")
    importlib.import_module("jitney_triton_gpu.device")
    triton.knobs.runtime.interpret = True
    interpreter = importlib.import_module("triton.runtime.interpreter")
    interpreter.ReduceOps.generic_reduce = _reduce
    interpreter.ScanOps.generic_scan = _scan
    interpreter._patch_lang = functools.partial(_patch_once, interpreter, interpreter._patch_lang)


def _patch_once(interpreter: Any, patch: Callable[[Any], Any], fn: Any) -> Any:
    """``interpreter._patch_lang``, which each call of a function from a kernel does again, a millisecond for naught."""
    language, is_builtin = interpreter.tl, interpreter.tl.core.is_builtin
    seen = [value for value in fn.__globals__.values() if value is language or value is language.core]
    if any(is_builtin(module.load) or is_builtin(module.tensor.__add__) for module in seen):
        return patch(fn)
    return interpreter._LangPatchScope()


# Triton's interpreter combines the elements of a reduction or a scan one by one, in Python: seconds for a row of some
# thousands. These combine whole arrays, in log2(length) steps, as a GPU does. Lengths are powers of two.


def _reduce(ops: Any, given: tuple[Any, ...]) -> list[Any]:
    """``ReduceOps.generic_reduce``: neighbours are combined until one is left."""
    dims = len(given[0].handle.data.shape)
    values, axis = ops.unravel(given, ops.axis)
    while values[0].handle.data.shape[axis] > 1:
        values = _combine(ops, *(_mapped(ops, values, lambda a, at=at: _strided(a, axis, at)) for at in (0, 1)))
    if ops.axis is not None:
        return list(_mapped(ops, values, lambda a: a if ops.keep_dims else a.squeeze(axis)))
    return list(_mapped(ops, values, lambda a: a.reshape((1,) * dims) if ops.keep_dims else a.item()))


def _scan(ops: Any, given: tuple[Any, ...]) -> list[Any]:
    """``ScanOps.generic_scan`` as Hillis and Steele do it: each takes in what is 1, 2, 4, ... places before it."""
    shape = given[0].handle.data.shape
    place = np.indices(shape, sparse=True)[ops.axis]
    values, step = tuple(given), 1
    while step < shape[ops.axis]:
        before = _mapped(ops, values, lambda a, step=step: np.roll(a, step, ops.axis))
        both = zip(_combine(ops, before, values), values, strict=True)
        values = tuple(
            ops.to_tensor(np.where(place < step, alone.handle.data, more.handle.data), alone.dtype)
            for more, alone in both
        )
        step *= 2
    return list(values)


def _strided(array: np.ndarray[Any, Any], axis: int, first: int) -> np.ndarray[Any, Any]:
    """Each second along an axis."""
    return array.take(range(first, array.shape[axis], 2), axis)


def _mapped(ops: Any, values: tuple[Any, ...], fn: Callable[[Any], Any]) -> tuple[Any, ...]:
    return tuple(ops.to_tensor(fn(value.handle.data), value.dtype) for value in values)


def _combine(ops: Any, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the function makes of pairs of elements; ``left`` comes first."""
    made = ops.combine_fn.fn(*left, *right)
    results = zip(made if isinstance(made, tuple) else (made,), left, strict=True)
    return tuple(ops.to_tensor(result.handle.data, value.dtype) for result, value in results)
