"""What ``wrap_numpy`` comes to in code that is being captured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jitney.capture.interpreter.signals import Break
from jitney.capture.numpy.dtypes import BACK
from jitney.capture.numpy.stand_in import Array
from jitney.capture.numpy.wrap_numpy import as_numpy_value, as_tensor_value
from jitney.capture.tables import FunctionTable
from jitney.capture.torch.stand_ins import is_stand_in
from jitney.config import config
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()


@special(as_numpy_value)
def _as_array(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (value,) = args
    if not is_stand_in(value):
        return value
    plain = config.trace_numpy and type(value) is torch_private.FakeTensor
    if not plain or value.is_conj() or value.is_neg() or value.dtype not in BACK:
        raise Break("a tensor that is not for NumPy is given to a function made by wrap_numpy")
    vm.elsewhere.enter(value.device)
    return Array(vm, value)


@special(as_tensor_value)
def _as_tensor(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (value,) = args
    vm.elsewhere.leave()
    if type(value) is Array:
        if value.readonly:
            return value.tensor.clone()
        return value.tensor[...] if vm.tracer.source_of(value.tensor) is not None else value.tensor
    if isinstance(value, np.generic):
        raise Break("a constant scalar of NumPy is a result of a function made by wrap_numpy")
    return value
