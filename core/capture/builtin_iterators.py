"""The builtin iterators: what they go through, where they are, and what is still to come. No item is taken here."""

from __future__ import annotations

import ast
import collections
import gc
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

BACKWARDS: type = type(reversed([]))
RANGE: type = type(iter(range(1)))
LEAVES = {type(iter([])), type(iter(())), RANGE, type(iter("")), type(iter("é")), BACKWARDS}
COMPOSED = {enumerate, zip}
END = StopIteration  # stands for no item: a class, so that a later process finds the same one
ITERABLES = (list, tuple, str, bytes, range, dict)  # within a chain: beginning to go over them runs nobody's code
CHAIN: type = itertools.chain
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
    if type(iterator) is CHAIN:  # the iterator that gives it the next one, and the one that it goes through
        return tuple(r for r in gc.get_referents(iterator) if r is not CHAIN)  # which it refers to from Python 3.12 on
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


def item_ahead(iterator: Any, count: int) -> Any:
    """What ``next`` will give after ``count`` others, or ``END``; the emitted code calls this too.

    Raises:
        LookupError: nobody knows without taking it.
    """
    rule = RULES.get(type(iterator))
    if rule is None:
        raise LookupError(f"a {type(iterator).__qualname__} does not tell what is to come")
    return rule(iterator, count)


def next_values(value: Any) -> tuple[Any, ...]:
    """What an iterator will give next, or what is in that tuple; nothing for other values, or where nobody knows."""
    if type(type(value)) is not type or type(value) not in RULES:  # a metaclass of the program's may hash otherwise
        return ()
    try:
        found = item_ahead(value, 0)
    except (LookupError, RuntimeError):
        return ()
    return found if type(found) is tuple else (found,)


def _of_zip(iterator: Any, count: int) -> Any:
    *inner, strict = parts(iterator)
    found = tuple(item_ahead(part, count) for part in inner)
    ends = [value is END for value in found]
    if strict and any(ends) and not all(ends):
        raise LookupError("a strict zip of different lengths")
    return END if any(ends) or not found else found


def _of_enumerate(iterator: Any, count: int) -> Any:
    inner, start, _ = parts(iterator)
    found = item_ahead(inner, count)
    return END if found is END else (start + count, found)


def _of_count(iterator: Any, count: int) -> Any:
    if not (found := parts(iterator)):
        raise LookupError("a counter of other numbers")
    return found[0] + count * found[1]


def _of_range(iterator: Any, count: int) -> Any:
    left, length = parts(iterator)
    return left[count] if count < length else END


def _of_table(iterator: Any, count: int) -> Any:
    _, (rest,) = iterator.__reduce__()
    return _known(rest[count]) if count < len(rest) else END


def _of_sequence(iterator: Any, count: int) -> Any:
    owner, position = parts(iterator)
    base: Any = next(kind for kind in ITERABLES if isinstance(owner, kind))
    if position is None:
        return END
    place = position - count if type(iterator) is BACKWARDS else position + count
    return _known(base.__getitem__(owner, place)) if 0 <= place < base.__len__(owner) else END


def _of_chain(iterator: Any, count: int) -> Any:
    source, *active = parts(iterator) or (iter(()),)
    for part in itertools.chain(active, _begun(source)):
        at = 0
        while (found := item_ahead(part, at)) is not END and at < count:
            at += 1
        if found is not END:
            return found
        count -= at
    return END


def _begun(source: Any) -> Iterator[Any]:
    """Iterators over what a chain has still to go over."""
    for place in itertools.count():
        iterable = item_ahead(source, place)
        if iterable is END:
            return
        if type(iterable) not in ITERABLES:
            raise LookupError("a chain of other iterables")
        yield iter(iterable)


def _known(value: Any) -> Any:
    if value is END:
        raise LookupError("an item that is taken for the end")
    return value


RULES: dict[type, Callable[[Any, int], Any]] = {
    **dict.fromkeys(LEAVES, _of_sequence),
    zip: _of_zip,
    enumerate: _of_enumerate,
    COUNT: _of_count,
    RANGE: _of_range,
    CHAIN: _of_chain,
    **dict.fromkeys(FORMS, _of_table),
}
