"""``wrap_numpy``: a function of NumPy as one of tensors, through which gradients flow where it is compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of ndarrays take and give tensors, in tuples, lists and dictionaries too.

    In compiled code its operations on arrays are operations on the tensors, so gradients flow through it, and it is
    computed on the tensors' device, arrays that it makes included. Elsewhere, and where capture breaks, it runs in
    NumPy, which takes tensors on the CPU that do not require grad: others raise what ``Tensor.numpy`` raises. Results
    share memory with arguments as NumPy's do.
    """

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        arrays = [mapped(as_numpy_value, a) for a in args]
        named = {k: mapped(as_numpy_value, v) for k, v in kwargs.items()}
        return mapped(as_tensor_value, fn(*arrays, **named))

    return wrapped


def call_on_arrays(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function made by ``torch.compiler.wrap_numpy`` does: scalars among its results stay NumPy's."""
    arrays = [mapped(as_numpy_value, a) for a in args]
    named = {k: mapped(as_numpy_value, v) for k, v in kwargs.items()}
    return mapped(array_as_tensor, fn(*arrays, **named))


def mapped(each: Callable[[Any], Any], value: Any) -> Any:
    """``each`` of every value in plain containers."""
    if type(value) in (tuple, list):
        return type(value)([mapped(each, v) for v in value])
    if type(value) is dict:
        return {k: mapped(each, v) for k, v in value.items()}
    return each(value)


def as_numpy_value(value: Any) -> Any:
    """A tensor as an array of its memory; anything else as it is."""
    return value.numpy() if isinstance(value, torch.Tensor) else value


def array_as_tensor(value: Any) -> Any:
    """An array as a tensor; anything else, a scalar of NumPy too, as it is."""
    return torch.as_tensor(value) if isinstance(value, np.ndarray) else value


def as_tensor_value(value: Any) -> Any:
    """An array or a scalar of NumPy as a tensor; anything else as it is."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    return torch.from_numpy(value if isinstance(value, np.ndarray) and value.flags.writeable else np.array(value))
