"""``x[i]`` where ``i`` is a tensor of one integer: eager's is a view of a place that only its value tells.

The graph has a copy of the row instead, which is the same as long as nobody writes to either of them, and nobody gets
the row after the graph: that is seen at the end of the capture, which starts over with a break there if it is not so.

``x[i] = y`` copies into that place. The copy that ``x[i] += y`` writes to is its own, and goes there, too.
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
    """A copy of a row, the step that made it, its key, and what may not have been written to since."""

    step: int
    tensor: Any
    key: Any
    copy: Any
    written: tuple[Any, ...]
    version: int  # of the copy
    passing: bool  # is it on its way back, as in ``x[i] += y``?


@dataclass(frozen=True, slots=True)
class Place:
    """Where a key with one integer of the graph leads: a view of the tensor, a dimension of it, and the index there."""

    rows: Any
    dim: int
    index: Any


def taken(vm: Interpreter, tensor: Any, key: Any) -> Any:
    """``tensor[key]`` as a copy, if one part of the key is an integer of the graph; else None."""
    place = _place(vm, tensor, key)
    if place is None or (tensor.requires_grad and not torch.is_grad_enabled()):  # a view would require grad even so
        return None
    if not place.rows.select(place.dim, 0).is_contiguous():
        return None
    copy = vm.native(torch.select, vm.native(torch.index_select, place.rows, place.dim, place.index), place.dim, 0)
    version, written = metadata.version_of(copy), _written(vm, tensor)
    vm.rows.append(Row(vm.break_step(), tensor, key, copy, written, version, _comes_back(vm)))
    return copy


def put(vm: Interpreter, tensor: Any, key: Any, value: Any) -> bool:
    """``tensor[key] = value``, if one part of the key is an integer of the graph; False: it is not."""
    own = next((r for r in vm.rows if r.passing and r.copy is value and r.tensor is tensor and _same(r.key, key)), None)
    if own is not None and own.written != _written(vm, tensor):
        return False
    place = _place(vm, tensor, key)
    if place is None:
        return False
    if isinstance(value, torch.Tensor):
        if not value.is_cpu or value.is_complex() > tensor.is_complex():
            return False
        if value.dtype is not tensor.dtype:
            value = vm.native(torch.Tensor.to, value, tensor.dtype)
        shape = [size for dim, size in enumerate(place.rows.shape) if dim != place.dim]
        extra = max(0, value.dim() - len(shape))
        if any(size != 1 for size in value.shape[:extra]):
            return False
        if extra:
            value = vm.native(torch.Tensor.reshape, value, value.shape[extra:])
        if metadata.storage(value) == metadata.storage(tensor):
            value = vm.native(torch.Tensor.clone, value)
        value = vm.native(torch.Tensor.unsqueeze, vm.native(torch.Tensor.expand, value, shape), place.dim)
        index = vm.native(torch.Tensor.reshape, place.index, (1,))
        vm.native(torch.Tensor.index_copy_, place.rows, place.dim, index, value)
    elif type(value) in (int, float, bool):
        vm.native(torch.Tensor.index_fill_, place.rows, place.dim, place.index, value)
    else:
        return False
    if own is not None:
        vm.rows.remove(own)
    return True


def _place(vm: Interpreter, tensor: Any, key: Any) -> Place | None:
    """Where the key leads; None if it has not just one integer of the graph, or torch says what is wrong."""
    keys = key if type(key) is tuple else (key,)
    places = [at for at, part in enumerate(keys) if type(part) not in PLAIN]
    if len(places) != 1 or not _is_captured(vm, tensor, keys[places[0]]):
        return None
    at = places[0]
    whole = (*keys[:at], slice(None), *keys[at + 1 :])
    dim = dimension(keys, at, tensor.dim())
    paused, vm.tracer.pause = vm.tracer.pause, True
    try:
        rows = tensor[whole]
        fits = rows.shape[dim] > 0
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
    from_end = (index < 0) & (index >= -rows.shape[dim])  # what is out of range stays, for the error to name it
    index = vm.native(torch.where, from_end, index + rows.shape[dim], index)
    return Place(rows, dim, index)


def _is_captured(vm: Interpreter, tensor: Any, index: Any) -> bool:
    """Is this an integer that only the running graph knows, in a plain tensor of the CPU, outside of transforms?"""
    tracer = vm.tracer
    if not is_stand_in(index) or index.dim() or index.dtype not in INTEGERS or index.dtype is torch.uint8:
        return False
    if tracer is not vm.world.tracer or tracer.region is not None:
        return False
    if not (tensor.is_cpu and index.is_cpu) or metadata.version_of(tensor) < 0 or metadata.version_of(index) < 0:
        return False
    return constant_of(tracer, index) is None


def dimension(keys: tuple[Any, ...], at: int, dims: int) -> int:
    """Which dimension of ``tensor[keys]`` the part at ``at`` would be, were it a slice."""
    taken_up = sum(part is not None and part is not Ellipsis for part in keys)
    sizes = {int: 0, type(Ellipsis): dims - taken_up}
    return sum(sizes.get(type(part), 1) for part in keys[:at])


def _comes_back(vm: Interpreter) -> bool:
    """Is the row read only to be written to and put back, by ``x[i] += y``? Nobody else sees it."""
    frame = vm.frames[-1]
    before = [instr for instr in frame.instrs[max(0, frame.at - 2) : frame.at] if instr.op == "COPY"]
    return frame.instrs[frame.at].op == "BINARY_SUBSCR" and len(before) == 2


def _same(key: Any, other: Any) -> bool:
    """Are these the same keys, part by part?"""
    keys, others = (k if type(k) is tuple else (k,) for k in (key, other))
    return len(keys) == len(others) and all(
        a is b or (type(a) is type(b) and type(a) in PLAIN and a == b) for a, b in zip(keys, others, strict=True)
    )


def _written(vm: Interpreter, tensor: Any) -> tuple[Any, ...]:
    """Another tuple if one of the tensors from outside, or one in the tensor's memory, is written to."""
    tracer = vm.tracer
    outside = sum(metadata.version_of(fake) - tracer.versions[id(fake)] for fake in tracer.outside())
    place = {metadata.storage(tensor)}
    others = {metadata.version_of(known) for known in tracer.known() if _lies_in(known, place)} - {0}
    return outside, tracer.data_writes, tracer.writes_statistics(), metadata.version_of(tensor), others


def _lies_in(known: Any, places: set[int]) -> bool:
    return is_stand_in(known) and metadata.storage(known) in places


def check(vm: Interpreter, outputs: list[Any]) -> None:
    """Start over with a break where a copy is not the same as eager's view, now that all is captured."""
    for row in vm.rows:
        place = {metadata.storage(row.copy)}
        others = {metadata.version_of(known) for known in vm.tracer.known() if _lies_in(known, place)}
        untouched = others == {row.version} and row.written == _written(vm, row.tensor)
        if not untouched or any(_lies_in(given, place) for given in outputs):
            raise Restart(row.step, REASON, HINT)
