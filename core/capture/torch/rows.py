"""``x[i]`` where ``i`` is a tensor of one integer: eager's is a view of a place that only its value tells.

The graph has a copy of the row instead, which is the same as long as nobody writes to either of them, and nobody gets
the row after the graph: that is seen at the end of the capture, which starts over with a break there if it is not so.

``x[i] = y`` copies into that place. The copy that ``x[i] += y`` writes to is its own, and goes there, too.

``x[mask] += y`` is computed at all places of a copy, and goes where the mask is set: how many places these are only its
values tell, so ``y`` may be nothing that has a value for each of them.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from jitney.capture import metadata
from jitney.capture.interpreter.signals import Restart, Retry
from jitney.capture.kinds import is_stand_in
from jitney.capture.numpy.constants import constant_of
from jitney.capture.torch.conversions import INTEGERS

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

PLAIN = (int, slice, type(None), type(Ellipsis))  # what else may be in the index
REASON = "an index needs the values of a tensor"
HINT = "use torch.index_select, or numbers as indices"
# What may be computed at all places: it raises nowhere, and gradients of places that the mask leaves out are zero.
ADDED = frozenset(("iadd", "isub", "add_", "sub_", "__iadd__", "__isub__"))
SCALED = frozenset(("imul", "itruediv", "mul_", "div_", "__imul__", "__itruediv__"))


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
class MaskedUpdate:
    """``x[mask] += y`` before it is put back: the step, the copy of all places and its node, and what it is of."""

    step: int
    tensor: Any
    mask: Any
    copy: Any
    node: fx.Node
    versions: tuple[int, int]  # of the copy and the mask
    written: tuple[Any, ...]


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


def masked(vm: Interpreter, tensor: Any, key: Any) -> Any:
    """All places of a copy for ``tensor[mask] += y``; None where it is something else."""
    tracer = vm.tracer
    plain = is_stand_in(key) and key.dtype is torch.bool and tracer is vm.world.tracer and tracer.region is None
    if (
        not plain
        or vm.break_step() in vm.plain_steps
        or not _comes_back(vm)
        or not 0 < key.dim() <= tensor.dim()
        or key.device != tensor.device
    ):
        return None
    if tensor.dtype is torch.bool or min(map(metadata.version_of, (tensor, key))) < 0 or not _is_apart(tensor):
        return None
    if metadata.storage(tensor) == metadata.storage(key):
        return None  # which eager refuses
    if key.shape != tensor.shape[: key.dim()] or constant_of(tracer, key) is not None:
        return None
    copy = vm.native(torch.clone, tensor, memory_format=torch.contiguous_format)
    if key.dim() > 1:
        copy = vm.native(torch.flatten, copy, 0, key.dim() - 1)
    versions = metadata.version_of(copy), metadata.version_of(key)
    written = _written(vm, tensor, key)
    vm.masked_updates.append(MaskedUpdate(vm.break_step(), tensor, key, copy, tracer.node_of(copy), versions, written))
    return copy


def put_masked(vm: Interpreter, tensor: Any, key: Any, value: Any) -> bool:
    """``tensor[mask] = value`` of such a copy; False: it is something else."""
    own = next((u for u in vm.masked_updates if u.copy is value and u.tensor is tensor and u.mask is key), None)
    if own is None:
        return False
    versions = metadata.version_of(value) - 1, metadata.version_of(key)
    if versions != own.versions or own.written != _written(vm, tensor, key) or not _is_alike_everywhere(own):
        raise Retry(own.step)
    rest = (1,) * (tensor.dim() - key.dim())
    updated = vm.native(torch.Tensor.reshape, value, tensor.shape)
    places = vm.native(torch.Tensor.reshape, key, (*key.shape, *rest)) if rest else key
    vm.native(torch.Tensor.copy_, tensor, vm.native(torch.where, places, updated, tensor))
    vm.masked_updates.remove(own)
    return True


def _is_apart(tensor: Any) -> bool:
    """Is each element in a place of its own? All are written, also those that the mask leaves out, as they were.

    False also for some layouts that interleave dimensions without any two elements meeting.
    """
    reach = 0  # the farthest element of the dimensions inside
    for step, count in sorted(zip(tensor.stride(), tensor.shape, strict=True), key=lambda dim: dim[0]):
        if count != 1:
            if step <= reach:
                return False
            reach += (count - 1) * step
    return True


def _is_alike_everywhere(update: MaskedUpdate) -> bool:
    """Has the copy been written to once, by what has one value for all places?"""
    users = list(update.node.users)
    if len(users) != 1 or users[0].args[0] is not update.node or len(users[0].args) != 2 or users[0].kwargs:
        return False
    target, other = users[0].target, users[0].args[1]
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    made: Any = other.meta.get("example_value") if isinstance(other, fx.Node) else None
    if isinstance(made, torch.Tensor):
        if made.dim() >= update.copy.dim() and not (made.dim() == update.copy.dim() and made.shape[0] == 1):
            return False
        if name in SCALED:  # gradients of places that are left out would be zero times infinity
            return not (made.requires_grad or update.copy.requires_grad)
        return name in ADDED
    if not isinstance(other, (int, float)) or not math.isfinite(other):
        return False
    return name in ADDED or (name in SCALED and other != 0)


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


def _written(vm: Interpreter, tensor: Any, *others: Any) -> tuple[Any, ...]:
    """Another tuple if one of the tensors from outside, or one in the memory of these, is written to."""
    tracer = vm.tracer
    outside = sum(metadata.version_of(fake) - tracer.versions[id(fake)] for fake in tracer.outside())
    places = set(map(metadata.storage, (tensor, *others)))
    versions = {metadata.version_of(known) for known in tracer.known() if _lies_in(known, places)} - {0}
    writes = _writes(vm, places)  # by ``x.data``, too, which has a version of its own
    return outside, tracer.data_writes, tracer.writes_statistics(), metadata.version_of(tensor), versions, writes


def _writes(vm: Interpreter, places: set[int]) -> int:
    """How often operators have written to this memory."""
    return sum(vm.tracer.fake_mode.writes[place] for place in places)


def _lies_in(known: Any, places: set[int]) -> bool:
    return is_stand_in(known) and metadata.storage(known) in places


def check(vm: Interpreter, outputs: list[Any]) -> None:
    """Start over, with a break or without the copy, where a copy is not the same as eager's view after all."""
    for update in vm.masked_updates:
        raise Retry(update.step)
    for row in vm.rows:
        place = {metadata.storage(row.copy)}
        others = {metadata.version_of(known) for known in vm.tracer.known() if _lies_in(known, place)}
        untouched = others == {row.version} and not _writes(vm, place) and row.written == _written(vm, row.tensor)
        if not untouched or any(_lies_in(given, place) for given in outputs):
            raise Restart(row.step, REASON, HINT)
