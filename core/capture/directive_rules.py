"""What directives mean in code that is being captured: jitney's, then torch.compile's."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

from jitney.capture.directives import (
    BREAKS,
    called_in,
    error_on_graph_break,
    graph_break,
    is_compiling,
    is_dynamo_compiling,
    mark_dynamic,
    mark_static,
    maybe_mark_dynamic,
)
from jitney.capture.interpreter import arity
from jitney.capture.interpreter.binding import bind_arguments, closure_cells
from jitney.capture.interpreter.signals import Break
from jitney.capture.marks import mark_allowed
from jitney.capture.numpy.wrap_numpy import call_on_arrays
from jitney.capture.python import attributes
from jitney.capture.python.c_boundary import has_tensor, in_python
from jitney.capture.tables import Args, CodeHandler, FunctionTable, Kwargs
from jitney.capture.world.cells import cell_get
from jitney.capture.world.writes import writes

CONSTANTS = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)

special = FunctionTable()


@special(graph_break)
def _graph_break(vm: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    raise Break("graph_break() is called")


@special(is_compiling, is_dynamo_compiling)
def _is_compiling(vm: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    return bool(vm.is_compiling())


@special(mark_dynamic, maybe_mark_dynamic, mark_static)
def _mark_inside(vm: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    raise Break("mark_dynamic or mark_static is called inside compiled code", "call it on the inputs, outside")


@special(mark_allowed)
def allow(vm: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """What is older than the frame is one operation from now on; into what the frame has made, capture looks."""
    (fn,) = args
    if vm.world.record_of(fn) is not None:
        mark_allowed(fn)
        vm.world.assumptions.keep_private("allow_in_graph was called")


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
    if writes(vm)[0] and not all(_is_unwritten(vm, v) for v in values):
        raise Break(f"{what} is called after writes that wait for the graph", "call it before")
    result = in_python(vm, fn, args, kwargs)
    if not _is_constant(result):
        raise Break(f"{what} returns a {type(result).__qualname__}", "return numbers, text, dtypes, devices or tuples")
    vm.world.assumptions.keep_private(f"{what} was called")
    return result


def _is_unwritten(vm: Any, value: Any) -> bool:
    """Is it a number, text or the like, or a class, to which nothing waits to be written?"""
    if not isinstance(value, type):
        return _is_constant(value)
    records = map(vm.world.record_of, value.__mro__)
    return not any(record is not None and record.dirty for record in records)


def _is_constant(value: Any) -> bool:
    return all(map(_is_constant, value)) if type(value) is tuple else type(value) in CONSTANTS


# ------------------------------------------------------------------ torch.compile's decorators and context managers

# They are known by where their code was written: the program has loaded ``torch._dynamo``, if anybody has. What is not
# here belongs to torch.compile, and breaks the graph.

ON_ARRAYS: Any = call_on_arrays
CALLED_IN: Any = called_in
# What only tunes torch.compile: the same numbers without it.
TUNING = ("CudagraphOverrideContextManager", "DynamoConfigPatchProxy")


def _cell(vm: Any, fn: types.FunctionType, name: str) -> Any:
    cells = dict(zip(fn.__code__.co_freevars, closure_cells(vm, fn), strict=True))
    return cell_get(vm, cells[name], name)


def _as_written(vm: Any, fn: types.FunctionType, args: Args, kwargs: Kwargs) -> Any:
    return bind_arguments(vm, fn, args, kwargs)


def _region(vm: Any, fn: types.FunctionType, args: Args, kwargs: Kwargs) -> Any:
    """A region of ``nested_compile_region`` is part of the graph: what it calls, with the arguments that follow."""
    return vm.call(args[0], *args[1:], **kwargs)


def _on_arrays(vm: Any, fn: types.FunctionType, args: Args, kwargs: Kwargs) -> Any:
    named = vm.world.mark_fresh(dict(kwargs))
    return bind_arguments(vm, ON_ARRAYS, [_cell(vm, fn, "f"), tuple(args), named], {})


def _breaks_are_errors(vm: Any, fn: types.FunctionType, args: Args, kwargs: Kwargs) -> Any:
    return vm.call(error_on_graph_break, *args, **kwargs)


def _in_context(vm: Any, fn: types.FunctionType, args: Args, kwargs: Kwargs) -> Any:
    """A function that one of torch.compile's context managers decorates."""
    context, inner = _cell(vm, fn, "self"), _cell(vm, fn, "func")
    kind = type(context).__name__
    if kind in TUNING:
        return vm.call(inner, *args, **kwargs)
    if kind != "ErrorOnGraphBreakDecoratorContextManager":
        raise Break(f"a function decorated by torch.compile's {kind}", "call it outside the compiled function")
    errors = vm.call(error_on_graph_break, vm.call(getattr, context, "error_on_graph_break"))
    return bind_arguments(vm, CALLED_IN, [errors, inner, tuple(args), vm.world.mark_fresh(dict(kwargs))], {})


def _allow_by_torch(vm: Any, fn: types.FunctionType, args: Args, kwargs: Kwargs) -> Any:
    arity.check(fn, args, kwargs)
    (allowed,) = args or kwargs.values()
    if type(allowed) in (list, tuple):
        raise Break("a list is given to torch.compiler.allow_in_graph", "allow them outside compiled code")
    allow(vm, [allowed], {})
    return allowed


def _tuned(vm: Any, fn: types.FunctionType, args: Args, kwargs: Kwargs) -> None:
    """Torch.compile is told which sizes to take for constants: the same numbers without it."""


DECORATORS, UTILITIES = "torch._dynamo.decorators", "torch._dynamo.external_utils"
REGIONS = "torch._higher_order_ops.invoke_subgraph"
FUNCTIONS: dict[tuple[str, str], CodeHandler] = {
    (REGIONS, "mark_compile_region.<locals>.wrap.<locals>.inner"): _as_written,
    (REGIONS, "invoke_subgraph_placeholder"): _region,
    (UTILITIES, "wrap_numpy.<locals>.wrap"): _on_arrays,
    (UTILITIES, "wrap_dunder_call_ctx_manager.<locals>.inner"): _in_context,
    (DECORATORS, "allow_in_graph"): _allow_by_torch,
    (DECORATORS, "mark_static"): _tuned,
    (DECORATORS, "error_on_graph_break"): _breaks_are_errors,
    (DECORATORS, "substitute_in_graph.<locals>.wrapper.<locals>.wrapped"): _as_written,
}


def torchs_meaning(fn: types.FunctionType) -> CodeHandler | None:
    """What a function of torch.compile's does in captured code; None: it is not captured."""
    return FUNCTIONS.get((str(fn.__globals__.get("__name__")), fn.__code__.co_qualname))


def substitute(fn: Any) -> types.FunctionType | None:
    """The program's function that ``torch.compiler.substitute_in_graph`` has put in the place of one in C."""
    functions = sys.modules.get("torch._dynamo.variables.functions")
    table = getattr(functions, "PolyfilledFunctionVariable", None)
    found = table._get_polyfill_handlers().get(fn) if table is not None else None
    python = getattr(found, "__torch_dynamo_polyfill__", None)
    if not isinstance(python, types.FunctionType) or python.__globals__.get("__name__", "").startswith("torch."):
        return None
    return python
