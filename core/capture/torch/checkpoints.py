"""``torch.utils.checkpoint``: where the backend splits forward and backward, its function is a region of the graph.

The operations of a region carry its number in ``meta["checkpoint"]``; AOT computes them again in the backward. A
backend that runs the captured graph as it is would keep everything, so there the call is a break and runs as in eager.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Sized
from typing import TYPE_CHECKING, Any

import torch.utils.checkpoint

from jitney.capture.interpreter.signals import Break
from jitney.capture.metadata import version_of
from jitney.capture.record import CONTENT_TYPES
from jitney.capture.tables import Args, FunctionTable, Kwargs

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

REASON = "torch.utils.checkpoint runs its function again in the backward"
OPTIONS = {
    "context_fn": torch.utils.checkpoint.noop_context_fn,
    "determinism_check": "default",
    "debug": False,
    "early_stop": True,
    "preserve_rng_state": True,
}


@special(torch.utils.checkpoint.checkpoint)
def _checkpoint(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if not vm.has_regions:
        raise Break(REASON, "call it outside the compiled function, or compile for a backend that takes ATen graphs")
    if kwargs.get("use_reentrant") is not False or not args:
        raise Break(REASON, "pass use_reentrant=False")
    kwargs = {k: v for k, v in kwargs.items() if k != "use_reentrant"}
    for name, plain in OPTIONS.items():
        if kwargs.pop(name, plain) not in (plain, "none"):
            raise Break(f"{REASON}, here with {name}=", "call it outside the compiled function")
    refuse_shared(vm, args[0], REASON)
    before, tensors = writes(vm), vm.tracer.snapshot()
    outer, vm.tracer.region = vm.tracer.region, vm.tracer.new_region()
    try:
        result = vm.call(args[0], *args[1:], **kwargs)
    finally:
        vm.tracer.region = outer
    if writes(vm) != before or any(version_of(t) != version for t, version in tensors):
        raise Break(f"{REASON}, and it changes something, which would then happen twice", "return what it computes")
    return result


def writes(vm: Interpreter) -> tuple[Any, ...]:
    """How much has been written to objects and tensors older than the frame."""
    records = [
        (key, len(r.overlay), len(r.pending), len(r.slots), r.cell, _extent(r.content))
        for key, r in list(vm.world.records.items())
        if r.dirty
    ]
    return records, vm.tracer.written(), vm.tracer.writes_statistics()


def _extent(content: Any) -> Any:
    """How much a shadow holds; of an iterator that a break has cut, how much is left."""
    if content is None or isinstance(content, Sized):
        return content and len(content)
    return operator.length_hint(content)


def refuse_shared(vm: Interpreter, fn: Any, reason: str) -> None:
    """A function that closes over a container of the frame may write to it, which would then happen twice."""
    cells = getattr(getattr(fn, "__func__", fn), "__closure__", None) or ()
    contents = [_content(vm, cell) for cell in cells]
    if any(isinstance(c, CONTENT_TYPES) and vm.world.is_fresh(c) for c in contents):
        raise Break(f"{reason}, and it closes over a container", "give the function what it needs as arguments")


def _content(vm: Interpreter, cell: types.CellType) -> Any:
    """What is in a cell now, if anything: after a graph break it may be older than the frame."""
    record = vm.world.record_of(cell)
    if record is not None and record.cell is not None:
        return record.cell[0]
    try:
        return cell.cell_contents
    except ValueError:
        return None
