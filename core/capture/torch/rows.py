"""``x[i]`` where ``i`` is a tensor of one integer: eager's is a view of a place that only its value tells.

The graph has a copy of the row instead, which is the same as long as nobody writes to either of them, and nobody gets
the row after the graph: that is seen at the end of the capture, which starts over with a break there if it is not so.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture import metadata
from jitney.capture.interpreter.signals import Restart
from jitney.capture.kinds import is_stand_in
from jitney.capture.numpy.constants import constant_of
from jitney.capture.torch.conversions import INTEGERS

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

PLAIN = (int, slice, type(None), type(Ellipsis))  # what else may be in the index
REASON = "an index needs the values of a tensor"
HINT = "use torch.index_select, or numbers as indices"


@dataclass(frozen=True, slots=True)
class Row:
    """A copy of a row, the step that made it, and what may not have been written to since."""

    step: int
    tensor: Any
    copy: Any
    written: tuple[Any, ...]


def taken(vm: Interpreter, tensor: Any, key: Any) -> Any:
    """``tensor[key]`` as a copy, if one part of the key is an integer of the graph; else None."""
    keys = key if type(key) is tuple else (key,)
    places = [at for at, part in enumerate(keys) if type(part) not in PLAIN]
    if len(places) != 1 or not _is_captured(vm, tensor, keys[places[0]]):
        return None
    at = places[0]
    whole = (*keys[:at], slice(None), *keys[at + 1 :])
    dim = _dimension(keys, at, tensor.dim())
    paused, vm.tracer.pause = vm.tracer.pause, True
    try:
        rows = tensor[whole]
        fits = rows.shape[dim] > 0 and rows.select(dim, 0).is_contiguous()
    except Exception:
        return None  # torch says what is wrong
    finally:
        vm.tracer.pause = paused
    if not fits:
        return None
    rows = tensor if whole == (slice(None),) else vm.native(operator.getitem, tensor, whole)
    index = keys[at]
    if index.dtype is not torch.int64:
        index = vm.native(torch.Tensor.to, index, torch.int64)
    index = vm.native(torch.where, index < 0, index + rows.shape[dim], index)
    copy = vm.native(torch.select, vm.native(torch.index_select, rows, dim, index), dim, 0)
    vm.rows.append(Row(vm.break_step(), tensor, copy, _written(vm, tensor, copy)))
    return copy


def _is_captured(vm: Interpreter, tensor: Any, index: Any) -> bool:
    """Is this an integer that only the running graph knows, in a plain tensor of the CPU, outside of transforms?"""
    tracer = vm.tracer
    if not is_stand_in(index) or index.dim() or index.dtype not in INTEGERS or index.dtype is torch.uint8:
        return False
    if tracer is not vm.world.tracer or tracer.region is not None or tracer.symbols.reads_numbers:
        return False
    if not (tensor.is_cpu and index.is_cpu) or metadata.version_of(tensor) < 0 or metadata.version_of(index) < 0:
        return False
    if tensor.requires_grad and not torch.is_grad_enabled():  # a view would require grad all the same
        return False
    return constant_of(tracer, index) is None


def _dimension(keys: tuple[Any, ...], at: int, dims: int) -> int:
    """Which dimension of ``tensor[keys]`` the part at ``at`` would be, were it a slice."""
    taken_up = sum(part is not None and part is not Ellipsis for part in keys)
    sizes = {int: 0, type(Ellipsis): dims - taken_up}
    return sum(sizes.get(type(part), 1) for part in keys[:at])


def _written(vm: Interpreter, tensor: Any, copy: Any) -> tuple[Any, ...]:
    """Another tuple if one of the tensors from outside, or one in the memory of these two, is written to."""
    tracer = vm.tracer
    outside = sum(metadata.version_of(fake) - tracer.versions[id(fake)] for fake in tracer.outside())
    versions = {metadata.version_of(tensor), metadata.version_of(copy)}
    places = {metadata.storage(tensor), metadata.storage(copy)}
    others = {metadata.version_of(known) for known in tracer.known() if _lies_in(known, places)} - {0}
    return outside, tracer.data_writes, tracer.writes_statistics(), versions, others


def _lies_in(known: Any, places: set[int]) -> bool:
    return is_stand_in(known) and metadata.storage(known) in places


def check(vm: Interpreter, outputs: list[Any]) -> None:
    """Start over with a break where a copy is not the same as eager's view, now that all is captured."""
    for row in vm.rows:
        place = {metadata.storage(row.copy)}
        if row.written != _written(vm, row.tensor, row.copy) or any(_lies_in(given, place) for given in outputs):
            raise Restart(row.step, REASON, HINT)
