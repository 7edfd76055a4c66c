"""``wrap_numpy``: a function of NumPy as one of tensors, through which gradients flow where it is compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jitney import _torch
from jitney.capture.arrays.dtypes import BACK
from jitney.capture.arrays.stand_in import Array
from jitney.capture.signals import Break
from jitney.capture.special import special
from jitney.capture.stand_ins import is_stand_in
from jitney.config import config

if TYPE_CHECKING:
    from jitney.capture.interpreter import Interpreter


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of ndarrays take and give tensors, in tuples, lists and dictionaries too.

    In compiled code its operations on arrays are operations on the tensors, so gradients flow through it. Elsewhere,
    and where capture breaks, it runs in NumPy, which takes tensors on the CPU that do not require grad: others raise
    what ``Tensor.numpy`` raises. Results share memory with arguments as NumPy's do.
    """

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        arrays = [mapped(as_numpy_value, a) for a in args]
        named = {k: mapped(as_numpy_value, v) for k, v in kwargs.items()}
        return mapped(as_tensor_value, fn(*arrays, **named))

    return wrapped


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


def as_tensor_value(value: Any) -> Any:
    """An array or a scalar of NumPy as a tensor; anything else as it is."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    return torch.from_numpy(value if isinstance(value, np.ndarray) and value.flags.writeable else np.array(value))


@special(as_numpy_value)
def _as_array(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (value,) = args
    if not is_stand_in(value):
        return value
    plain = config.trace_numpy and type(value) is _torch.FakeTensor and value.device.type == "cpu"
    if not plain or value.is_conj() or value.is_neg() or value.dtype not in BACK:
        raise Break("a tensor that is not for NumPy is given to a function made by wrap_numpy")
    return Array(vm, value)


@special(as_tensor_value)
def _as_tensor(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (value,) = args
    if type(value) is Array:
        if value.readonly:
            return value.tensor.clone()
        return value.tensor[...] if vm.tracer.source_of(value.tensor) is not None else value.tensor
    if isinstance(value, np.generic):
        raise Break("a constant scalar of NumPy is a result of a function made by wrap_numpy")
    return value
