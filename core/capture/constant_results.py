"""Functions that the program promises to return always the same (``assume_constant_result``): called in Python."""

from __future__ import annotations

from typing import Any

import torch

from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.python.c_boundary import has_tensor
from jitney.capture.torch.checkpoints import writes
from jitney.torch_compat import torch_private

CONSTANTS = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)


def call(vm: Any, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A call of a function that ``assume_constant_result`` was told of."""
    what = f"{fn.__qualname__}, of constant result,"
    values = [*args, *kwargs.values()]
    if has_tensor(values) or any(type(v) in (torch.SymInt, torch.SymFloat, torch.SymBool) for v in values):
        raise Break(f"{what} is called with tensors, or numbers that change", "give it constants")
    if writes(vm)[0]:
        raise Break(f"{what} is called after writes that wait for the graph", "call it before")
    paused = vm.watch is not None and vm.watch.pause()
    entered = vm.witness.latest if vm.witness is not None else ""
    try:
        with torch_private.without_modes():
            result = fn(*args, **kwargs)
    except Exception as error:
        raise UserRaised(error) from None
    finally:  # what the function enters is its own affair
        if paused:
            vm.watch.go_on()
        if vm.witness is not None:
            vm.witness.latest = entered
    if not _is_constant(result):
        raise Break(f"{what} returns a {type(result).__qualname__}", "return numbers, text, dtypes, devices or tuples")
    vm.world.assumptions.keep_private(f"{what} was called")
    return result


def _is_constant(value: Any) -> bool:
    return all(map(_is_constant, value)) if type(value) is tuple else type(value) in CONSTANTS
