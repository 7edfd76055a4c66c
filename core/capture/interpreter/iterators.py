"""Iterators older than the frame: a loop that a graph break has cut goes on in the next capture.

The builtin iterators tell what they iterate over and where they are (``__reduce__``, which consumes nothing). Capture
walks a copy over guarded items and advances the real iterator by as many steps once the graph has run. The position
is a constant of the capture. Where it changes between calls, as at each turn of a loop that a break cuts, what is still
to come has a source of its own, ``_ahead(iterator, k)``: each item that the frame takes is guarded, and so is the end.
"""

from __future__ import annotations

import functools
import gc
import itertools
import types
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.builtin_iterators import (
    CHAIN,
    COMPOSED,
    COUNT,
    END,
    FORMS,
    LEAVES,
    RANGE,
    VIEWS,
    beginning,
    item_ahead,
    parts,
    same_objects,
    table_iterator,
)
from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.world.record import CONTENT_TYPES, Record
from jitney.guards import Source

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

HINT = "make the iterator inside the compiled function"


def adopt(vm: Interpreter, iterator: Any, record: Record) -> Any:
    """The walking copy of an iterator from outside, made on first use."""
    if record.content is None:
        known = type(iterator) in LEAVES | COMPOSED and vm.world.steady(record.source, _known_position(iterator))
        if known or _counts(iterator):
            _claim(vm, iterator, record.source)
            record.content = _copy(vm, iterator, record.source)
        else:
            record.content = ItemsAhead(vm, iterator, record.source)
        record.slots["advanced"] = 0
    return record.content


def _counts(iterator: Any) -> bool:
    """Is it an ``itertools.count`` of ints?"""
    return type(iterator) is COUNT and [type(number) for number in parts(iterator)] == [int, int]


def _known_position(iterator: Any) -> Any:
    try:
        return _position(iterator)
    except RuntimeError as error:
        raise Break(f"an iterator from outside is advanced: {error}", HINT) from None


def _position(iterator: Any) -> Any:
    """What must stay the same for the capture to be used again."""
    found = parts(iterator)
    return tuple(_position(p) if type(p) in LEAVES | COMPOSED else p for p in found if isinstance(p, int) or _is(p))


def _owners(vm: Interpreter, iterator: Any, source: Source) -> Iterator[Any]:
    """The containers that an iterator goes through, with records: what the frame writes to must not be one of them."""
    kind = type(iterator)
    if kind not in LEAVES | COMPOSED and kind is not CHAIN and not _counts(iterator):
        raise Break(f"an iterator of class {kind.__qualname__} from outside is advanced", HINT)
    world = vm.world
    world.guard(source, "type", kind)
    _claim(vm, iterator, source)
    if kind is COUNT or kind is RANGE:
        return
    found, base = parts(iterator), source.step("parts")
    world.guard(base, "len", len(found))
    if kind in LEAVES:
        if type(found[0]) not in (str, bytes, tuple):
            yield world.wrap(found[0], base.item(0))
        else:
            world.guard(base.item(0), "type", type(found[0]))
        return
    inner = found[:1] if kind is enumerate else found[:-1] if kind is zip else found
    for place, part in enumerate(inner):
        yield from _owners(vm, part, base.item(place))
    if kind is CHAIN and found:
        yield from _owners_to_come(vm, found[0], base.item(0))


def _owners_to_come(vm: Interpreter, iterator: Any, source: Source) -> Iterator[Any]:
    """What a chain will go through: all of it is given, or nobody would know what is written to."""
    for place in itertools.count():
        found, ahead = item_ahead(iterator, place), source.step("ahead", place)
        if found is END:
            vm.world.guard(ahead, "is", END)
            return
        yield vm.world.wrap(found, ahead)


class ItemsAhead:
    """The copy of an iterator whose position is not known: its items are read one by one."""

    __slots__ = ("calls", "iterator", "owners", "source", "vm")

    def __init__(self, vm: Interpreter, iterator: Any, source: Source) -> None:
        self.vm = vm
        self.iterator = iterator
        self.source = source
        self.owners = list(_owners(vm, iterator, source))  # what it goes through
        self.calls = 0  # of ``next``, those at the end among them

    def __iter__(self) -> ItemsAhead:
        return self

    def __next__(self) -> Any:
        if any(record is not None and record.dirty for record in map(self.vm.world.record_of, self.owners)):
            raise Break("an iterator from outside goes through what the frame has changed")
        try:
            value = item_ahead(self.iterator, self.calls)
        except (LookupError, RuntimeError) as error:
            raise Break(f"an iterator of class {type(self.iterator).__qualname__} from outside: {error}") from None
        place = self.source.step("ahead", self.calls)
        self.calls += 1
        if value is END:
            self.vm.world.guard(place, "is", END)
            raise StopIteration
        return self.vm.world.wrap(value, place)


def _is(value: Any) -> bool:
    return type(value) in LEAVES | COMPOSED


def _copy(vm: Interpreter, iterator: Any, source: Source) -> Any:
    world = vm.world
    found = parts(iterator)
    base = source.step("parts")
    world.guard(base, "len", len(found))
    if type(iterator) is COUNT:
        return CounterCopy(COUNT(world.wrap(found[0], base.item(0)), world.wrap(found[1], base.item(1))))
    if type(iterator) is zip:
        inner = [_inner(vm, part, base.item(i)) for i, part in enumerate(found[:-1])]
        world.guard(base.item(len(found) - 1), "is", found[-1])
        return zip(*inner, strict=bool(found[-1]))
    position = found[1] if type(iterator) is enumerate else found[-1]
    world.guard(base.item(1 if type(iterator) is enumerate else len(found) - 1), "equals", position)
    if type(iterator) is enumerate:
        return enumerate(_inner(vm, found[0], base.item(0)), position)
    if type(iterator) in FORMS:
        return _copy_of_table(vm, iterator, found, base)
    if type(iterator) is RANGE:
        return iter(world.wrap(found[0], base.item(0)))
    items = world.wrap(found[0], base.item(0))
    inner_record = world.record_of(items)
    if inner_record is not None and isinstance(items, list):
        items = world.content(inner_record)
    made = beginning(iterator, items)(items)
    if position is not None:
        made.__setstate__(position)
        if parts(made)[-1] != position:
            raise Break("an iterator from outside goes through a list that is shorter than its position", HINT)
    return made


def _copy_of_table(vm: Interpreter, iterator: Any, found: tuple[Any, ...], base: Source) -> Any:
    """A copy of an iterator over a dictionary or set: over what capture has of that."""
    world = vm.world
    owner, *told, passed = found
    for form in told:
        world.guard(base.item(1), "equals", form)
    form = told[0] if told else FORMS[type(iterator)][0]
    record = world.record_of(world.wrap(owner, base.item(0)))
    if record is None:
        return iter(())
    if form is None:
        raise Break("an iterator from outside goes through a dictionary in a way that it does not tell", HINT)
    content = world.content(record)
    if isinstance(content, set | frozenset):
        world.set_orders.read(content)
    if not same_objects(list(content), list(record.original)):
        raise Break("an iterator from outside goes through what the frame has changed", HINT)
    view, backwards = form
    return table_iterator(content, view, backwards, passed)


def _inner(vm: Interpreter, iterator: Any, source: Source) -> Any:
    if type(iterator) not in LEAVES | COMPOSED and not _counts(iterator):
        raise Break(f"an iterator of class {type(iterator).__qualname__} from outside is advanced", HINT)
    vm.world.guard(source, "type", type(iterator))
    _claim(vm, iterator, source)
    return _copy(vm, iterator, source)


def _claim(vm: Interpreter, iterator: Any, source: Source) -> None:
    """Break at an iterator that is advanced in two ways, as in ``zip(it, it)``: each way would have a copy."""
    for other, found in vm.claimed_iterators:
        if other is iterator:
            raise Break(f"a {type(iterator).__qualname__} from outside is advanced in two ways", HINT)
        if type(other) is type(iterator):
            vm.world.relate(found, source, False)
    vm.claimed_iterators.append((iterator, source))


def advance(vm: Interpreter, iterator: Any, record: Record) -> Any:
    """``next`` of an iterator from outside."""
    made = adopt(vm, iterator, record)
    record.dirty = True
    try:
        value = vm.native(next, made)
    except UserRaised as raised:
        if not isinstance(raised.value, StopIteration):
            raise Break(f"a {type(iterator).__qualname__} from outside raises", HINT) from None
        raise
    record.slots["advanced"] += 1
    return value


class CounterCopy:
    """A copy of a counter, whose numbers may be symbolic: how many it has given is known all the same."""

    __slots__ = ("counter", "taken")

    def __init__(self, counter: Iterator[Any]) -> None:
        self.counter = counter
        self.taken = 0

    def __iter__(self) -> CounterCopy:
        return self

    def __next__(self) -> Any:
        self.taken += 1
        return next(self.counter)


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


def set_state(iterator: Any, state: Any) -> None:
    """What the emitted code does to an iterator of itertools, whose ``__setstate__`` warns from Python 3.12 on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        iterator.__setstate__(state)


# ------------------------------------------------------------------ iterators within reach of a broken instruction

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
