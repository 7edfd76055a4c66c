"""NumPy programs beside themselves compiled: values, dtypes, classes, what is writeable, what was written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from helpers import Observed, compile_fn, observe

TOLERANCE = {"float16": 2e-3, "float32": 2e-6, "float64": 2e-13}


def difference(a: Any, b: Any, sign: bool = True) -> str:
    """What differs between two results, all the way down, with ``sign`` that of a zero too; empty if nothing does."""
    if type(a) is not type(b):
        return f"class {type(a)}, {type(b)}"
    if isinstance(a, (tuple, list)):
        if len(a) != len(b):
            return f"length {len(a)}, {len(b)}"
        return next(filter(None, (difference(p, q, sign) for p, q in zip(a, b, strict=True))), "")
    if not isinstance(a, (np.ndarray, np.generic)):
        return "" if a == b or (a != a and b != b) else f"{a}, {b}"
    if a.dtype.char != b.dtype.char or a.shape != b.shape:
        return f"{a.dtype} of {a.shape}, {b.dtype} of {b.shape}"
    if isinstance(a, np.ndarray) and a.flags.writeable != b.flags.writeable:
        return f"writeable {a.flags.writeable}, {b.flags.writeable}"
    if isinstance(a, np.ndarray) and (a.flags.c_contiguous, a.flags.f_contiguous) != (
        b.flags.c_contiguous,
        b.flags.f_contiguous,
    ):
        return f"strides {a.strides}, {b.strides}"
    if a.dtype.kind not in "fc":
        return "" if np.array_equal(a, b) else f"{a}, {b}"
    tolerance = TOLERANCE.get(str(a.dtype), 1e-6)
    if not np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True):
        return f"{a}, {b}"
    if a.dtype.kind == "c" or not sign:
        return ""
    zeros = (a == 0) & (b == 0)
    return f"sign of zero: {a}, {b}" if np.any((np.signbit(a) != np.signbit(b)) & zeros) else ""


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    """What a call gives, or the exception that it raises."""
    try:
        return fn(*args)
    except Exception as error:
        return type(error), str(error)


def agrees(fn: Callable[..., Any], *args: Any, sign: bool = True, backend: Any = None, calls: int = 1) -> Observed:
    """Call NumPy and compiled code on copies of the arguments; compare results, and the arguments afterwards."""
    compiled = compile_fn(fn, backend=backend)
    with observe() as seen, np.errstate(all="ignore"):
        for _ in range(calls):
            ours, theirs = _copies(args), _copies(args)
            found, wanted = outcome(compiled, *ours), outcome(fn, *theirs)
            assert difference(found, wanted, sign) == ""
            assert difference(list(ours), list(theirs)) == ""
    return seen


def _copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.copy(order="K") if isinstance(a, np.ndarray) else a for a in args)


def whole(fn: Callable[..., Any], *args: Any, graphs: int = 1, **options: Any) -> None:
    """It agrees, and is captured without a break."""
    seen = agrees(fn, *args, **options)
    assert (seen.breaks, seen.skips, len(seen.graphs)) == ([], [], graphs)


def broken(fn: Callable[..., Any], *args: Any, reason: str, **options: Any) -> None:
    """It agrees, and the first graph break has this in its reason."""
    seen = agrees(fn, *args, **options)
    assert seen.breaks and reason in seen.breaks[0], (seen.breaks, seen.skips)


def numbers(*shape: int, dtype: Any = np.float32) -> Any:
    """An array with the numbers from 1 on."""
    return (np.arange(np.prod(shape, dtype=int)) + 1).reshape(shape).astype(dtype)
