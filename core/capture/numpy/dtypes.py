"""Which dtypes of NumPy are captured, and which dtype of torch each is."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from jitney.capture.interpreter.signals import Break

DTYPES: dict[np.dtype[Any], torch.dtype] = {
    np.dtype(np.bool_): torch.bool,
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.int8): torch.int8,
    np.dtype(np.int16): torch.int16,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.float16): torch.float16,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
}
BACK: dict[torch.dtype, np.dtype[Any]] = {t: d for d, t in DTYPES.items()}
# Equal dtypes may be of different C types (long, long long), whose scalars are of different classes.
KNOWN: dict[str, np.dtype[Any]] = {d.char: d for d in DTYPES}
SCALARS: dict[type, np.dtype[Any]] = {d.type: d for d in DTYPES}
DTYPE_CLASSES: tuple[type, ...] = tuple(type(d) for d in DTYPES)


def is_known(dtype: np.dtype[Any]) -> bool:
    """Is it one of the table, in this machine's byte order, and no more than that?"""
    return dtype.char in KNOWN and dtype.isnative and dtype.metadata is None


def as_numpy(dtype: Any) -> np.dtype[Any]:
    """What the user wrote as ``dtype=``; breaks at one that is not captured."""
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except Exception:
        raise Break("a dtype that NumPy does not know") from None
    if not is_known(found):
        raise Break(f"NumPy's dtype {found} is not captured")
    return KNOWN[found.char]


def as_torch(dtype: np.dtype[Any]) -> torch.dtype:
    """The dtype of torch that holds the same values."""
    if not is_known(dtype):
        raise Break(f"NumPy's dtype {dtype} is not captured")
    return DTYPES[KNOWN[dtype.char]]


def is_float(dtype: torch.dtype) -> bool:
    """Has the dtype fractions?"""
    return dtype.is_floating_point


def cast(tensor: Any, dtype: torch.dtype) -> Any:
    """The tensor in another dtype; itself if it has it."""
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


def fits(value: float, dtype: torch.dtype) -> bool:
    """Can a Python number be a value of this dtype, as NumPy asks before it computes?"""
    if dtype is torch.bool:
        return isinstance(value, bool)
    if is_float(dtype):
        return True
    info = torch.iinfo(dtype)
    return isinstance(value, int) and info.min <= value <= info.max


def rounded(value: float, dtype: torch.dtype) -> float:
    """A Python number as the nearest value of a floating dtype: NumPy rounds it before it computes, torch may not."""
    with np.errstate(all="ignore"):
        return float(BACK[dtype].type(value))
