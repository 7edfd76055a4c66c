"""Which dtypes of NumPy are captured, and which dtype of torch each is."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

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
