"""The memory of an array as a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class _Memory:
    """An array's memory, described as writeable whatever the array says."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.owner = array
        described = dict(array.__array_interface__)
        described["data"] = (described["data"][0], False)
        self.__array_interface__ = described


def from_readonly(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A tensor over the memory of a read-only array, which nobody will write to.

    ``torch.from_numpy`` would warn that such memory may be written to; capture breaks where the program tries.
    """
    if array.flags.writeable:
        raise ValueError("the array is writeable")
    return torch.from_numpy(np.asarray(_Memory(array)))


def from_scalar(value: Any) -> torch.Tensor:
    """A scalar of NumPy as a tensor without dimensions."""
    return torch.from_numpy(np.array(value))


def as_readonly(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array, read-only."""
    array.flags.writeable = False
    return array


# What sources of arrays call, by the name that guards and emitted code know it by.
FETCHES = {"_from_numpy": torch.from_numpy, "_from_readonly": from_readonly, "_from_scalar": from_scalar}
