"""Kernels that the program has written in Triton: a launch is one operation of the graph, and nobody looks into it.

``kernel[grid](...)`` ends in the kernel's ``run``. What it writes to is not known: it may be all that it is given.
A grid that is a function is asked when the graph runs, as Triton does: who tunes a kernel chooses its sizes then.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.codegen.graph_runner import RUNS_EAGERLY
from jitney.capture.interpreter.binding import closure_cells
from jitney.capture.interpreter.code import leaves_traces
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import ATOMS, is_stand_in
from jitney.capture.python.c_boundary import SYMBOLIC, expose
from jitney.capture.world.cells import cell_get
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

ROOM = "triton.runtime."
HINT = "launch the kernel outside compiled code"
WRITES = "writes"  # what ``meta["opaque"]`` says of an operator that may write to all that it is given
Held = dict[str | int, Any]


def is_kernel(value: Any) -> bool:
    """Is it a kernel of Triton's, or what tunes one?"""
    return (type(value).__module__ or "").startswith(ROOM) and callable(getattr(value, "run", None))


def is_helper(value: Any) -> bool:
    """Is it a function that kernels and Python may call, such as ``triton.cdiv``? It is around one of Python's."""
    return (type(value).__module__ or "").startswith(ROOM) and type(getattr(value, "fn", None)) is types.FunctionType


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """A launch on stand-ins, in code that is run on them as it is, does nothing meanwhile."""
    runtime: Any = sys.modules["triton.runtime"]  # the program has imported it: it has a kernel
    kinds = [kind for kind in _kinds(runtime.KernelInterface) if "run" in vars(kind)]
    before = {kind: vars(kind)["run"] for kind in kinds}
    try:
        for kind, run in before.items():
            kind.run = _unless_stand_ins(run)
        yield
    finally:
        for kind, run in before.items():
            kind.run = run


def _kinds(cls: Any) -> list[Any]:
    return [cls, *(kind for below in cls.__subclasses__() for kind in _kinds(below))]


def _unless_stand_ins(run: Callable[..., Any]) -> Callable[..., Any]:
    """Other threads may launch kernels meanwhile."""

    def launched(*args: Any, **kwargs: Any) -> Any:
        return None if any(map(is_stand_in, (*args, *kwargs.values()))) else run(*args, **kwargs)

    return launched


def is_one(fn: types.FunctionType) -> bool:
    """Is it the function by which a kernel of Triton's is launched?"""
    return fn.__name__ == "run" and (fn.__module__ or "").startswith(ROOM)


def call(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> None:
    """``kernel.run(*args, grid=..., warmup=False)``, recorded as one node."""
    kernel, *rest = args
    named = dict(kwargs)
    grid = named.pop("grid", None)
    record = vm.world.record_of(kernel)
    if record is None or named.pop("warmup", None) is not False or not _is_dropped(vm):
        raise Break("a kernel of Triton's is made, warmed up, or what its launch gives is used", HINT)
    vm.world.guard(record.source, "is", kernel)
    vm.world.assumptions.keep_private("a kernel of Triton's")
    sizes: tuple[Any, ...] = ()
    if isinstance(grid, types.FunctionType):
        sizes = _variables(vm, grid)
    elif type(grid) is not tuple or not all(type(n) in (int, torch.SymInt) for n in grid):
        raise Break(f"a kernel of Triton's is launched on a {type(grid).__qualname__}", HINT)
    positions: Held = dict(enumerate(expose(vm, value) for value in rest))
    given: Held = positions | {name: expose(vm, value) for name, value in named.items()}
    held = {key: _constant(vm, value) for key, value in given.items() if not _in_graph(value)}
    mapped = {key: value for key, value in given.items() if key not in held}
    code = grid if isinstance(grid, types.FunctionType) else None
    launch = _launch(kernel, code, held, [*mapped], len(rest))
    node_args = (sizes if code is not None else grid, *mapped.values())
    for value in node_args:
        vm.tracer.check_argument(value)
    node = vm.tracer.record(launch, node_args, {}, None)
    if node is None:
        raise Break("a kernel of Triton's is launched without tensors", HINT)
    node.meta["opaque"] = WRITES
    written([value for value in mapped.values() if is_stand_in(value)])


def _is_dropped(vm: Interpreter) -> bool:
    """Does the program drop what the launch gives?"""
    frame = vm.frames[-1]
    if frame.info.code.co_name == "<lambda>" and str(frame.globals.get("__name__")).startswith(ROOM):
        frame = vm.frames[-2]  # ``kernel[grid]`` is a function around ``run``
    return frame.instrs[frame.ip].op == "POP_TOP"


def _variables(vm: Interpreter, grid: types.FunctionType) -> tuple[Any, ...]:
    """What the variables around a grid's function hold, and its defaults; it may read no more than that and globals."""
    record = vm.world.record_of(grid.__globals__)
    if leaves_traces(grid.__code__) or grid.__kwdefaults__ or (record is not None and record.dirty):
        raise Break("the grid of a kernel of Triton's does more than compute", HINT)
    cells = [cell_get(vm, cell, "") for cell in closure_cells(vm, grid)]
    values = (*cells, *(grid.__defaults__ or ()))
    if not all(map(_in_graph, values)):
        raise Break("the grid of a kernel of Triton's reads objects", HINT)
    return values


def _in_graph(value: Any) -> bool:
    return is_stand_in(value) or type(value) in (*ATOMS, *SYMBOLIC)


def _constant(vm: Interpreter, value: Any) -> Any:
    """A ``constexpr`` argument that no graph holds, such as a dtype of Triton's: that very object, guarded."""
    record = vm.world.record_of(value)
    known = isinstance(value, types.FunctionType | type) or (type(value).__module__ or "").startswith("triton.")
    if record is None or not known:
        raise Break(f"a kernel of Triton's is given a {type(value).__qualname__}", HINT)
    vm.world.guard(record.source, "is", value)
    return value


def _launch(
    kernel: Any, grid: types.FunctionType | None, held: Held, keys: list[Any], count: int
) -> Callable[..., None]:
    """The operation: it gets the grid, or what the grid's function is to read, then the arguments of these keys."""

    def launch(sizes: tuple[Any, ...], *args: Any) -> None:
        given = held | dict(zip(keys, args, strict=True))
        where: Any = sizes
        if grid is not None:
            cells = len(grid.__code__.co_freevars)
            closure = tuple(map(types.CellType, sizes[:cells]))
            where = types.FunctionType(grid.__code__, grid.__globals__, grid.__name__, sizes[cells:], closure)
        named = {key: value for key, value in given.items() if type(key) is str}
        kernel.run(*(given[i] for i in range(count)), grid=where, warmup=False, **named)

    launch.__name__ = launch.__qualname__ = f"launch_{getattr(kernel, '__name__', 'kernel')}"
    launch.__dict__[RUNS_EAGERLY] = True
    return launch


def written(tensors: list[Any]) -> None:
    """Nobody knows what these stand-ins hold from now on."""
    with torch_private.DisableTorchFunction():
        for tensor in tensors:
            tensor.constant = None
        torch.autograd.graph.increment_version([x for x in tensors if not x.is_inference()])
