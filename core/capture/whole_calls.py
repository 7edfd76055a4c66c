"""Calls that run in Python as a whole where something in them breaks the graph.

Of a library that knows nothing of tensors (one that logs, asks the clock, formats text) each line may be a break, and
nothing that it does would be in a graph. So is what torch does for a module's backward hooks, in autograd's own graph.
The graph breaks once, at the call that led there, unless the call has been given something of the program's that
computes: a tensor, a module, a function.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from jitney._util.ownership import trusted_code
from jitney.capture.kinds import ARRAYS, is_stand_in

if TYPE_CHECKING:
    from jitney.capture.interpreter.frame import Frame
    from jitney.capture.interpreter.interpreter import Interpreter

INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
COMPUTING = ("torch", "numpy")
BOOKKEEPING = {("torch.utils.hooks", "BackwardHook")}  # classes of torch's, by module and name
DEPTH = 2  # of containers among what a call has been given


def step_of_call(vm: Interpreter) -> int | None:
    """The step of the outermost call that runs as a whole, where the instruction that breaks is within one."""
    found = None
    frames = vm.frames
    most = vm.nesting[0] if vm.nesting else len(frames) - 1  # C code that has called Python cannot be gone on with
    for at in range(len(frames) - 1, 0, -1):
        frame = frames[at]
        whole = _is_bookkeeping(frame) or is_aside(frame.info.code, frame.globals)
        if not whole and not (trusted_code(frame.info.code) and not _of_torch(frame)):
            break
        if whole and frame.generator is None and at <= most + 1 and (_is_bookkeeping(frame) or not _computes(frame)):
            found = at
    return None if found is None else frames[found - 1].step


def is_aside(code: types.CodeType, space: dict[str, Any]) -> bool:
    """Is it code of an installed package that knows nothing of tensors?"""
    name = space.get("__name__")
    installed = any(part in code.co_filename for part in INSTALLED)
    return installed and isinstance(name, str) and not _knows_tensors(name.partition(".")[0])


@functools.lru_cache(maxsize=256)
def _knows_tensors(package: str) -> bool:
    """Does a module of this package hold something of torch's or NumPy's?"""
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == package]
    return any(_is_computing(value) for module in modules for value in list(getattr(module, "__dict__", {}).values()))


def _is_computing(value: Any) -> bool:
    name = value.__name__ if type(value) is types.ModuleType else getattr(type(value), "__module__", "")
    owner = getattr(value, "__module__", "") if isinstance(value, (type, types.FunctionType)) else ""
    return any(isinstance(found, str) and found.partition(".")[0] in COMPUTING for found in (name, owner))


def _of_torch(frame: Frame) -> bool:
    return str(frame.globals.get("__name__", "")).partition(".")[0] == "torch"


def _is_bookkeeping(frame: Frame) -> bool:
    owner = frame.info.code.co_qualname.partition(".")[0]
    return (frame.globals.get("__name__"), owner) in BOOKKEEPING and trusted_code(frame.info.code)


def _computes(frame: Frame) -> bool:
    """Does the frame hold a tensor, a module or a function of the program's?"""
    return any(_may_compute(value, DEPTH) for value in _variables(frame))


def _variables(frame: Frame) -> Iterator[Any]:
    yield from frame.locals.values()
    for cell in frame.cells.values():
        try:
            yield cell.cell_contents
        except ValueError:  # it is empty
            continue


def _may_compute(value: Any, depth: int) -> bool:
    if is_stand_in(value) or type(value) in ARRAYS or isinstance(value, (torch.Tensor, torch.nn.Module)):
        return True
    if isinstance(value, types.MethodType):
        return _may_compute(value.__func__, depth) or _may_compute(value.__self__, depth)
    if isinstance(value, functools.partial):
        return any(_may_compute(part, depth) for part in (value.func, *value.args, *value.keywords.values()))
    if isinstance(value, types.FunctionType):
        return not trusted_code(value.__code__) and not is_aside(value.__code__, value.__globals__)
    if type(value) in (tuple, list, dict) and depth:
        return any(_may_compute(part, depth - 1) for part in (value.values() if type(value) is dict else value))
    return False
