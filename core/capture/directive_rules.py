"""What directives mean in code that is being captured."""

from __future__ import annotations

from typing import Any

import torch

from jitney.capture.directives import (
    BREAKS,
    graph_break,
    is_compiling,
    is_dynamo_compiling,
    mark_dynamic,
    mark_static,
    maybe_mark_dynamic,
)
from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.python import attributes
from jitney.capture.python.c_boundary import has_tensor
from jitney.capture.tables import FunctionTable
from jitney.capture.torch.checkpoints import writes
from jitney.torch_compat import torch_private

CONSTANTS = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)

special = FunctionTable()


@special(graph_break)
def _graph_break(vm: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    raise Break("graph_break() is called")


@special(is_compiling, is_dynamo_compiling)
def _is_compiling(vm: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    return True


@special(mark_dynamic, maybe_mark_dynamic, mark_static)
def _mark_inside(vm: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    raise Break("mark_dynamic or mark_static is called inside compiled code", "call it on the inputs, outside")


def breaks_are_errors(vm: Any) -> bool | None:
    """What ``error_on_graph_break`` says where capture is; None: nothing. Guarded."""
    found = attributes.load_attr(vm, BREAKS, "error")
    return None if found is None else bool(found)


def call_constant(vm: Any, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a function that the program promises to return always the same (``assume_constant_result``), in Python."""
    what = f"{fn.__qualname__}, of constant result,"
    values = [*args, *kwargs.values()]
    if has_tensor(values) or any(type(v) in (torch.SymInt, torch.SymFloat, torch.SymBool) for v in values):
        raise Break(f"{what} is called with tensors, or numbers that change", "give it constants")
    if writes(vm)[0]:
        raise Break(f"{what} is called after writes that wait for the graph", "call it before")
    result = in_python(vm, fn, args, kwargs)
    if not _is_constant(result):
        raise Break(f"{what} returns a {type(result).__qualname__}", "return numbers, text, dtypes, devices or tuples")
    vm.world.assumptions.keep_private(f"{what} was called")
    return result


def in_python(vm: Any, fn: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What the function itself returns, called now."""
    paused = vm.watch is not None and vm.watch.pause()
    entered = vm.witness.latest if vm.witness is not None else ""
    try:
        with torch_private.without_modes():
            return fn(*args, **kwargs)
    except Exception as error:
        raise UserRaised(error) from None
    finally:  # what the function enters is its own affair
        if paused:
            vm.watch.go_on()
        if vm.witness is not None:
            vm.witness.latest = entered


def _is_constant(value: Any) -> bool:
    return all(map(_is_constant, value)) if type(value) is tuple else type(value) in CONSTANTS
