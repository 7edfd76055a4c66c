"""Iterators older than the frame: a loop that a graph break has cut goes on in the next capture.

The builtin iterators tell what they iterate over and where they are (``__reduce__``, which consumes nothing). Capture
walks a copy over guarded items and advances the real iterator by as many steps once the graph has run. The position
is a constant of the capture; where it changes between calls, ``next`` is a graph break instead.
"""

from __future__ import annotations

import ast
import collections
import functools
import gc
import itertools
import types
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.world.record import CONTENT_TYPES, Record
from jitney.guards import Source

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

BACKWARDS: type = type(reversed([]))
RANGE: type = type(iter(range(1)))
LEAVES = {type(iter([])), type(iter(())), RANGE, type(iter("")), type(iter("é")), BACKWARDS}
COMPOSED = {enumerate, zip}
COUNT = itertools.count  # whose position is a number like others: it may change from call to call
_od: Any = collections.OrderedDict()
TABLES: tuple[Any, ...] = ({}, _od)
VIEWS: dict[type, str] = {type(getattr(d, name)()): name for d in TABLES for name in ("keys", "values", "items")}
PROXY: type = types.MappingProxyType
# Iterators over dictionaries and sets: the views that one of the class may go through, and whether backwards.
FORMS: dict[type, tuple[tuple[str, bool], ...]] = {
    **{type(iter(getattr({}, view)())): ((view, False),) for view in ("keys", "values", "items")},
    **{type(reversed(getattr({}, view)())): ((view, True),) for view in ("keys", "values", "items")},
    type(iter(set())): (("__iter__", False),),
    type(iter(_od)): tuple((view, way) for view in ("keys", "values", "items") for way in (False, True)),
}
SEVERAL = {kind for kind, forms in FORMS.items() if len(forms) > 1}
LEAVES |= FORMS.keys()
HINT = "make the iterator inside the compiled function"


def parts(iterator: Any) -> tuple[Any, ...]:
    """``(what it iterates over..., position)`` of a builtin iterator; the emitted code calls this too.

    Of a view or proxy, the dictionary alone. Where the class does not tell which view an iterator goes through, and
    which way, that comes before the position, or None if nobody knows. Of a range what is left of it, and how many
    numbers these are: from Python 3.12 on nothing else is known, and there is no position to go to.
    """
    if type(iterator) in VIEWS or type(iterator) is PROXY:
        return tuple(r for r in gc.get_referents(iterator) if isinstance(r, dict))
    if type(iterator) in FORMS:
        owner, passed = of_table(iterator)
        if type(iterator) not in SEVERAL:
            return owner, passed
        return owner, None if owner is None else form_of(iterator, owner, passed), passed
    if type(iterator) is COUNT:  # its text says it, if it counts in plain numbers; Python 3.14 has no __reduce__ of it
        try:
            found = ast.literal_eval(repr(iterator).removeprefix("count"))
        except (ValueError, SyntaxError):
            return ()
        return found if type(found) is tuple else (found, 1)
    _, args, *state = iterator.__reduce__()
    if type(iterator) is RANGE:
        left = args[0][state[0] or 0 :]
        return left, len(left)
    return (*args, state[0] if state else None)


def beginning(iterator: Any, owner: Any) -> Any:
    """What makes such an iterator over a sequence: no method of a subclass's own."""
    if type(iterator) is BACKWARDS:
        return list.__reversed__
    return next((kind.__iter__ for kind in (list, tuple, str, bytes) if isinstance(owner, kind)), iter)


def of_table(iterator: Any) -> tuple[Any, int]:
    """The dictionary or set, and how many items are passed; ``(None, 0)`` if it has come to its end.

    Raises:
        RuntimeError: since it began, the dictionary has got another size or other keys.
    """
    owner = next((r for r in gc.get_referents(iterator) if isinstance(r, dict | set | frozenset)), None)
    _, (rest,) = iterator.__reduce__()
    return (None, 0) if owner is None else (owner, base_of_table(owner).__len__(owner) - len(rest))


def base_of_table(owner: Any) -> Any:
    """Its builtin class, whose methods are not the program's."""
    return next(kind for kind in (collections.OrderedDict, dict, set, frozenset) if isinstance(owner, kind))


def table_iterator(owner: Any, view: str, backwards: bool, passed: int) -> Any:
    """An iterator over a dictionary or set that has passed some of its items; the emitted code calls this too."""
    items = getattr(base_of_table(owner), view)(owner)
    made = reversed(items) if backwards else iter(items)
    for _ in range(passed):
        next(made)
    return made


def view_of(owner: Any, kind: type) -> Any:
    """A view of this class of a dictionary, or a proxy."""
    return types.MappingProxyType(owner) if kind is PROXY else getattr(base_of_table(owner), VIEWS[kind])(owner)


def form_of(iterator: Any, owner: Any, passed: int) -> tuple[str, bool] | None:
    """The view that an iterator over ``owner`` goes through, and whether backwards; None where that is not known."""
    _, (rest,) = iterator.__reduce__()
    fitting = [form for form in FORMS[type(iterator)] if same_objects(list(table_iterator(owner, *form, passed)), rest)]
    return fitting[0] if len(fitting) == 1 or (fitting and not rest) else None


def same_objects(found: list[Any], wanted: list[Any]) -> bool:
    """Are these the same objects, or new pairs of the same ones?"""
    if len(found) != len(wanted):
        return False
    return all(
        a is b or (type(a) is tuple and type(b) is tuple and len(a) == len(b) == 2 and a[0] is b[0] and a[1] is b[1])
        for a, b in zip(found, wanted, strict=True)
    )


def adopt(vm: Interpreter, iterator: Any, record: Record) -> Any:
    """The walking copy of an iterator from outside, made on first use."""
    if record.content is None:
        known = type(iterator) in LEAVES | COMPOSED and vm.world.steady(record.source, _known_position(iterator))
        if not known and not _counts(iterator):
            raise Break(f"an iterator of class {type(iterator).__qualname__} from outside is advanced", HINT)
        _claim(vm, iterator, record.source)
        record.content = _copy(vm, iterator, record.source)
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
