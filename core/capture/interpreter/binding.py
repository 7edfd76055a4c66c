"""Arguments to parameters, by the rules of a Python call; the result is a frame."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from jitney._util.ownership import trusted_function
from jitney.capture.interpreter.frame import Frame, make_frame
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import ATOMS
from jitney.capture.original_functions import is_own

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

VARARGS, VARKEYWORDS = 0x04, 0x08


def bind_arguments(vm: Interpreter, fn: types.FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Frame:
    """A frame of ``fn`` with its parameters filled; raises what Python raises where it refuses the call."""
    try:
        return _bound(vm, fn, args, kwargs)
    except _RefusedError as refused:
        if not vm.world.is_fresh(fn):
            source = vm.world.anchor(fn).source
            for name in ("__defaults__", "__kwdefaults__"):
                vm.world.guard(source.attr(name), "is", getattr(fn, name))
        vm.native(fn, *args, **kwargs)  # none of its instructions runs
        raise refused from None


class _RefusedError(Break):
    """A call with arguments that the function does not take."""


def _bound(vm: Interpreter, fn: types.FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Frame:
    code = _code_of(vm, fn)
    count, only = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    values: dict[str, Any] = dict(zip(names[:count], args, strict=False))
    extra = tuple(args[count:])
    at = count + only
    if code.co_flags & VARARGS:
        values[names[at]] = extra
        at += 1
    elif extra:
        raise _refused(fn)
    rest: dict[str, Any] = {}
    allowed = names[code.co_posonlyargcount : count + only]
    for key, value in kwargs.items():
        if type(key) is not str:
            raise _refused(fn)
        if key in allowed:
            if key in values:
                raise _refused(fn)
            values[key] = value
        elif code.co_flags & VARKEYWORDS:
            rest[key] = value
        else:
            raise _refused(fn)
    if code.co_flags & VARKEYWORDS:
        values[names[at]] = vm.world.mark_fresh(rest)
    for i in range(len(args), count):
        if names[i] not in values:
            values[names[i]] = _default(vm, fn, i - count)
    for name in names[count : count + only]:
        if name not in values:
            values[name] = _keyword_default(vm, fn, name)
    frame = make_frame(fn, values)
    if code.co_freevars:
        frame.cells.update(zip(code.co_freevars, closure_cells(vm, fn), strict=True))
    return frame


def _code_of(vm: Interpreter, fn: types.FunctionType) -> types.CodeType:
    """The function's code; guarded where no more is known than which function it is."""
    code, record = fn.__code__, vm.world.record_of(fn)
    if record is not None and not trusted_function(fn) and all(g.kind != "code" for g in record.source.guards):
        vm.world.guard(record.source.attr("__code__"), "is", code)
    return code


def held(vm: Interpreter, holder: Any, name: str) -> Any:
    """The function of a property or a static or class method, which never gets another one."""
    fn = getattr(holder, name)
    if type(fn) is types.FunctionType and not (vm.world.is_fresh(fn) or trusted_function(fn)):
        if vm.world.record_of(fn) is None:
            vm.world.add(fn, vm.world.const(holder).attr(name))
    return fn


def _default(vm: Interpreter, fn: types.FunctionType, index: int) -> Any:
    defaults = fn.__defaults__
    if defaults is None or -index > len(defaults):
        raise _refused(fn)
    value = defaults[index]
    if vm.world.is_fresh(fn):
        return value
    record = vm.world.anchor(fn)
    at = record.source.attr("__defaults__")
    if not record.source.is_const:
        return vm.world.wrap(defaults, at)[index]
    if not is_own(fn):
        vm.world.guard(at, "is", defaults)
    if type(value) in ATOMS:
        return value
    return vm.world.wrap(value, vm.world.const(defaults).item(len(defaults) + index))


def _keyword_default(vm: Interpreter, fn: types.FunctionType, name: str) -> Any:
    defaults = fn.__kwdefaults__
    if defaults is None or name not in defaults:
        raise _refused(fn)
    if vm.world.is_fresh(fn):
        return defaults[name]
    if is_own(fn) and type(defaults[name]) in ATOMS:
        return defaults[name]
    return vm.world.wrap(defaults[name], vm.world.anchor(fn).source.attr("__kwdefaults__").item(name))


def closure_cells(vm: Interpreter, fn: types.FunctionType) -> tuple[types.CellType, ...]:
    """The function's cells, registered with their source unless the function is fresh."""
    cells = fn.__closure__ or ()
    if not vm.world.is_fresh(fn):
        base = vm.world.anchor(fn).source.attr("__closure__")
        for i, cell in enumerate(cells):
            if not vm.world.is_fresh(cell):
                vm.world.add(cell, base.item(i))
    return cells


def _refused(fn: types.FunctionType) -> Break:
    return _RefusedError(f"{fn.__qualname__}() is called with arguments that it does not take")
