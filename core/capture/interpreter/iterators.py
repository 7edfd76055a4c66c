"""Iterators older than the frame: a loop that a graph break has cut goes on in the next capture.

The builtin iterators tell what they iterate over and where they are (``__reduce__``, which consumes nothing). Capture
walks a copy over guarded items and advances the real iterator by as many steps once the graph has run. The position
is a constant of the capture; where it changes between calls, ``next`` is a graph break instead.
"""

from __future__ import annotations

import functools
import gc
import types
import warnings
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.world.record import CONTENT_TYPES, Record
from jitney.guards import Source

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

LEAVES = {type(iter([])), type(iter(())), type(iter(range(1))), type(iter("")), type(iter("é")), type(reversed([]))}
COMPOSED = {enumerate, zip}
HINT = "make the iterator inside the compiled function"


def parts(iterator: Any) -> tuple[Any, ...]:
    """``(what it iterates over..., position)`` of a builtin iterator; the emitted code calls this too."""
    _, args, *state = iterator.__reduce__()
    return (*args, state[0] if state else None)


def adopt(vm: Interpreter, iterator: Any, record: Record) -> Any:
    """The walking copy of an iterator from outside, made on first use."""
    if record.content is None:
        if type(iterator) not in LEAVES | COMPOSED or not vm.world.steady(record.source, _position(iterator)):
            raise Break(f"an iterator of class {type(iterator).__qualname__} from outside is advanced", HINT)
        record.content = _copy(vm, iterator, record.source)
        record.slots["advanced"] = 0
        record.slots["ended"] = False
    return record.content


def _position(iterator: Any) -> Any:
    """What must stay the same for the capture to be used again."""
    found = parts(iterator)
    return tuple(_position(p) if type(p) in LEAVES | COMPOSED else p for p in found if isinstance(p, int) or _is(p))


def _is(value: Any) -> bool:
    return type(value) in LEAVES | COMPOSED


def _copy(vm: Interpreter, iterator: Any, source: Source) -> Any:
    world = vm.world
    found = parts(iterator)
    base = source.step("parts")
    world.guard(base, "len", len(found))
    if type(iterator) is zip:
        inner = [_inner(vm, part, base.item(i)) for i, part in enumerate(found[:-1])]
        world.guard(base.item(len(found) - 1), "is", found[-1])
        return zip(*inner, strict=bool(found[-1]))
    position = found[1] if type(iterator) is enumerate else found[-1]
    world.guard(base.item(1 if type(iterator) is enumerate else len(found) - 1), "equals", position)
    if type(iterator) is enumerate:
        return enumerate(_inner(vm, found[0], base.item(0)), position)
    items = world.wrap(found[0], base.item(0))
    inner_record = world.record_of(items)
    if inner_record is not None and isinstance(items, list):
        items = world.content(inner_record)
    made = reversed(items) if type(iterator) is type(reversed([])) else iter(items)
    if position is not None:
        made.__setstate__(position)
    return made


def _inner(vm: Interpreter, iterator: Any, source: Source) -> Any:
    if type(iterator) not in LEAVES | COMPOSED:
        raise Break(f"an iterator of class {type(iterator).__qualname__} from outside is advanced", HINT)
    vm.world.guard(source, "type", type(iterator))
    return _copy(vm, iterator, source)


def advance(vm: Interpreter, iterator: Any, record: Record) -> Any:
    """``next`` of an iterator from outside."""
    made = adopt(vm, iterator, record)
    record.dirty = True
    try:
        value = vm.native(next, made)
    except UserRaised as raised:
        if isinstance(raised.value, StopIteration):
            record.slots["ended"] = True
        raise
    record.slots["advanced"] += 1
    return value


class OutsideIterator:
    """An iterator from outside as C code gets it."""

    __slots__ = ("iterator", "record", "vm")

    def __init__(self, vm: Interpreter, iterator: Any, record: Record) -> None:
        self.vm = vm
        self.iterator = iterator
        self.record = record
        adopt(vm, iterator, record)

    def __iter__(self) -> OutsideIterator:
        return self

    def __next__(self) -> Any:
        try:
            return advance(self.vm, self.iterator, self.record)
        except UserRaised as raised:
            error = raised.value
        raise error


def run_ahead(iterator: Any, steps: int, ended: bool) -> None:
    """What the emitted code does to the real iterator."""
    for _ in range(steps):
        next(iterator, None)
    if ended:
        next(iterator, None)


def set_state(iterator: Any, state: Any) -> None:
    """What the emitted code does to an iterator of itertools, whose ``__setstate__`` warns from Python 3.12 on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        iterator.__setstate__(state)


# ------------------------------------------------------------------ iterators within reach of a broken instruction

VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))
HOLDERS = (tuple, frozenset, *CONTENT_TYPES, *VIEWS, types.MappingProxyType)
BOUND = (types.BuiltinFunctionType, types.MethodWrapperType, types.MethodType)


def reaches_iterator(vm: Interpreter, values: list[Any]) -> bool:
    """Can C code that gets these values advance an iterator: one of them, or in one's items, ``self`` or arguments?

    A C iterator takes an element before it calls back, and cannot be put back where that call breaks the graph. What
    instances hold is left out: C code comes to it only through Python methods, whose instructions are own steps.
    """
    todo, seen = list(values), set[int]()
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        record = vm.world.record_of(value)
        if hasattr(type(value), "__next__"):
            if record is None or record.content is not None:  # one from outside is advanced through its copy only
                return True
        elif isinstance(value, HOLDERS) and not isinstance(value, torch.Size):
            todo += _items(value)
            if record is not None:
                todo += [*_items(record.content or ()), *record.pending, *record.overlay.values()]
        elif isinstance(value, BOUND):
            todo.append(value.__self__)
        elif isinstance(value, functools.partial):
            todo += (value.func, *value.args, *value.keywords.values())
    return False


def _items(holder: Any) -> list[Any]:
    """What a container holds, by the methods of the builtin classes: a subclass's own are not to run."""
    if isinstance(holder, types.MappingProxyType):
        return gc.get_referents(holder)  # the mapping, whose methods may be the program's
    if isinstance(holder, dict):
        return [*dict.keys(holder), *dict.values(holder)]
    base: Any = next((kind for kind in HOLDERS if isinstance(holder, kind)), type(holder))
    return list(base.__iter__(holder))
