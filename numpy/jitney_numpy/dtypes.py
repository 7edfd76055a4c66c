"""Dtypes as a program writes them, as NumPy and torch have them, and which numbers they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.numpy.dtypes import BACK, DTYPES, KNOWN, is_known


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
