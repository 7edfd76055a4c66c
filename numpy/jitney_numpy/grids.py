"""Grids, and the limits of dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.numpy.stand_in import Array
from jitney_numpy.calls import HINT, ArrayTable, as_array, result, sampled

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

table = ArrayTable()
captures = table.captures


def _meshgrid(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    arrays = [as_array(vm, a) for a in args]
    indexing = kwargs.get("indexing", "xy")
    if set(kwargs) - {"indexing"} or not arrays or any(a.tensor.ndim != 1 for a in arrays):
        raise Break("np.meshgrid with more than vectors", HINT)
    like = sampled(np.meshgrid, arrays, kwargs)
    if len({a.dtype for a in arrays}) > 1:
        raise Break("np.meshgrid of several dtypes", HINT)
    grids = torch.meshgrid(*[a.tensor for a in arrays], indexing=indexing)
    return result(vm, [grid.clone(memory_format=torch.contiguous_format) for grid in grids], like, arrays)


captures(np.meshgrid, _meshgrid)


def _limits(cls: type) -> Any:
    def made(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
        values = [a.dtype if type(a) is Array else a for a in args]
        if kwargs or len(values) != 1 or not isinstance(values[0], (str, type, np.dtype)):
            raise Break(f"np.{cls.__name__} of something else than a dtype", HINT)
        return cls(values[0])

    return made


for _cls in (np.finfo, np.iinfo):
    table.add(_cls, _limits(_cls))
