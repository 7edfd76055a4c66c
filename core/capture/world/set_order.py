"""The order of sets from outside, which depends on the sizes that they had and on what was removed from them.

An item's place in the table of a set is the first free one on the path that its hash gives (CPython,
``Objects/setobject.c``); the places of removed items are not used again. Neither places nor removed items can be seen,
only the order and the size of the table. So a copy is made that has these two, and where the order depends on more (a
set from outside has grown, or another one was made from it) reading it is a graph break.
"""

from __future__ import annotations

import collections
import functools
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

from jitney.capture.interpreter.signals import Break, Restart
from jitney.capture.kinds import is_stand_in

Set = set[Any] | frozenset[Any]
Chain = tuple[int, tuple[Any, ...]]  # what places cost, and they: the last, and the chain of those before

LEAST = 8  # places of the smallest table, which is part of the set object
ENTRY = 16  # bytes of a place: the item and its hash
LINEAR_PROBES = 9
PERTURB_SHIFT = 5
WORD = (1 << 64) - 1
PATH = 24  # places of an item's path that are tried
KEEPING = {"discard", "remove"}  # leave the places of the other items as they are
JOINS = {
    name: method
    for names, method in (
        ("ior __ior__ update", "update"),
        ("iand __iand__ intersection_update", "intersection_update"),
        ("isub __isub__ difference_update", "difference_update"),
        ("ixor __ixor__ symmetric_difference_update", "symmetric_difference_update"),
    )
    for name in names.split()
}
IN_PLACE = {"ior", "iand", "isub", "ixor"}  # in the module operator, whose first argument is the set
OPERATORS = {"ior", "ixor"}  # in the module operator; their left operand is changed
MERGING = ("update", "symmetric_difference_update")  # their order depends on the tables of both
JOINED = (set, frozenset, list, tuple)
NEVER = -1
BY_ADDRESS: Any = object.__hash__
HINT = "sort it, or keep the items in a dictionary"


class SetOrders:
    """Of which sets does a capture know the order?

    ``sizes`` holds the sets that stand for those from outside, and those made of them, with the size that each had
    last. ``unknown`` says at which step a set's order was lost, or ``NEVER`` known; ``writes`` what was called on a set
    from outside, with copies of the arguments, and ``rearranged`` the first step at which more was done to it.
    """

    def __init__(self) -> None:
        self.sizes: dict[int, tuple[Set, int]] = {}
        self.unknown: dict[int, int] = {}
        self.writes: dict[int, list[tuple[str, list[Any]]]] = {}
        self.rearranged: dict[int, int] = {}

    def adopt(self, value: Set, step: int | None = None) -> None:
        """``value`` stands for a set from outside, and has its order if ``step`` is None."""
        self.sizes[id(value)] = (value, len(value))
        self.unknown.pop(id(value), None)
        if step is not None:
            self.unknown[id(value)] = step

    def holds(self, value: Any) -> bool:
        """Does it stand for a set from outside whose items are guarded, or is it made of one?"""
        return id(value) in self.sizes

    def follow(self, fn: Any, args: Sequence[Any], result: Any, step: int) -> None:
        """C code has worked on these values, at this step."""
        operands = (*args, getattr(fn, "__self__", None))
        adopted = [value for value in operands if id(value) in self.sizes]
        if not adopted:
            return
        name = getattr(fn, "__name__", "")
        for value in adopted:
            if len(value) != self.sizes[id(value)][1] or name in JOINS:
                self._write(value, name, args, step)
        target = args[0] if name in OPERATORS else getattr(fn, "__self__", None)
        if JOINS.get(name) in MERGING and isinstance(target, set) and id(target) not in self.sizes:
            self.adopt(target, step)
        if isinstance(result, set | frozenset) and id(result) not in self.sizes and not _adds(name, operands):
            self.adopt(result, step)

    def _write(self, value: Set, name: str, args: Sequence[Any], step: int) -> None:
        lost = self.unknown.get(id(value), None if name in KEEPING else step)
        self.adopt(value, lost if value else None)
        others = [arg for arg in args if arg is not value]
        itself = len(args) - len(others) > (name in IN_PLACE)
        if itself and JOINS.get(name) in ("difference_update", "symmetric_difference_update"):
            write = ("clear", list[Any]())
        elif name in ("add", "clear", *KEEPING):
            write = ("discard" if name == "remove" else name, [*others])
        elif name in JOINS and all(type(other) in JOINED for other in others):
            write = (JOINS[name], [type(other)(list(other)) for other in others])
        else:
            self.rearranged.setdefault(id(value), step)
            return
        self.writes.setdefault(id(value), []).append(write)

    def written(self, value: Set) -> list[tuple[str, list[Any]]]:
        """The methods of set, and their arguments, that have to be called on the set from outside, in this order.

        Raises:
            Restart: Python has to do what was done to it at an earlier step.
        """
        if id(value) in self.rearranged:
            raise Restart(self.rearranged[id(value)], "a set from outside is changed by what an iterator gives", HINT)
        return self.writes.get(id(value), [])

    def pop(self, value: Set) -> None:
        """An item is taken out: the one behind that which was taken out last, and where that was cannot be seen.

        Raises:
            Break: the set is from outside.
            Restart: it was made of such.
        """
        if id(value) in self.sizes and len(value) > 1:
            self.read(value)
            raise Break("pop() of a set from outside", HINT)

    def read(self, value: Set) -> None:
        """The items are looked at one after the other.

        Raises:
            Break: their order was never known.
            Restart: it was lost at an earlier step, which Python has to do.
        """
        step = self.unknown.get(id(value))
        if step is None or len(value) <= 1:
            return
        if step != NEVER:
            raise Restart(step, "a set from outside grows, or another one is made of it, and its order is read", HINT)
        raise Break("the order of a set of tensors from outside is read", HINT)


def _adds(name: str, operands: Sequence[Any]) -> bool:
    """Are items added to a new set, one after the other, in an order that is known? Else a table is copied first."""
    sets = [value for value in operands if isinstance(value, set | frozenset)]
    if len(sets) != 2 or sets[0] is sets[1]:
        return False
    if name in ("sub", "__sub__", "difference"):  # an operator's operands are in order, a method's object comes last
        left, right = sets if name == "sub" else sets[::-1]
        return len(left) // 4 <= len(right)
    return name in ("and_", "__and__", "intersection")


def moves(value: Set) -> bool:
    """Has a set that the frame made another order when it is rebuilt: are items' hashes their addresses?"""
    return len(value) > 1 and any(is_stand_in(item) or type(item).__hash__ is BY_ADDRESS for item in value)


def set_in_order(items: Sequence[Any], size: int) -> set[Any] | None:
    """A set of these items in this order, in a table of ``size`` places, or None where none was found."""
    hashes = [hash(item) & WORD for item in items]
    places = _places(hashes, size)
    made = _filled(items, hashes, places, size) if places is not None else None
    return made if made is not None and is_like(made, items, size) else None


def ordered_set(kind: type, items: Sequence[Any], size: int) -> Any:
    """What emitted code makes a set or frozenset with, in this order where one is found."""
    found = set_in_order(items, size)
    made = found if found is not None and kind is set else kind(found or items)
    return made if is_like(made, items, size) else kind(items)


def is_like(value: Set, items: Sequence[Any], size: int) -> bool:
    """Are the items of a set these, in this order, in a table of ``size`` places?"""
    return table_size(value) == size and len(value) == len(items) and all(map(operator.is_, value, items))


def table_size(value: Set) -> int:
    """The number of places in the table of a set."""
    base = set if isinstance(value, set) else frozenset
    return (base.__sizeof__(value) - type(value).__basicsize__) // ENTRY or LEAST


def _path(value: int, size: int) -> Iterator[int]:
    """The places that an item of this hash may have, the one that it takes if it is free first."""
    mask, place, perturb = size - 1, value & (size - 1), value
    while True:
        yield from range(place, place + (LINEAR_PROBES if place + LINEAR_PROBES <= mask else 0) + 1)
        perturb >>= PERTURB_SHIFT
        place = (place * 5 + 1 + perturb) & mask


def _places(hashes: list[int], size: int) -> list[int] | None:
    """Ascending places, each on its item's path, as near to the paths' beginnings as can be."""
    best: dict[int, Chain] = {-1: (0, ())}  # by the last place: cost, and the chain of places
    for value in hashes:
        found: dict[int, Chain] = {}
        before = sorted(best)
        cheapest = list(itertools.accumulate((best[place] for place in before), _cheaper))
        for cost, place in enumerate(itertools.islice(_path(value, size), PATH)):
            earlier = sum(1 for last in before if last < place)
            if earlier and place not in found:
                paid, chain = cheapest[earlier - 1]
                found[place] = (paid + cost, (place, chain))
        best = found
    if not best:
        return None
    chain = functools.reduce(_cheaper, best.values())[1]
    places = list[int]()
    while chain:
        place, chain = chain
        places.append(place)
    return places[::-1]


def _cheaper(a: Chain, b: Chain) -> Chain:
    return b if b[0] < a[0] else a


class _Filler:
    """Holds a place of a table until it is removed."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __hash__(self) -> int:
        return self.place


def _filled(items: Sequence[Any], hashes: list[int], places: list[int], size: int) -> set[Any] | None:
    """A set with the items at these places of its table, or None: what is in an item's way goes in before it."""
    at = dict(zip(places, range(len(items)), strict=True))
    ways = [[*itertools.takewhile(at_place.__ne__, _path(h, size))] for h, at_place in zip(hashes, places, strict=True)]
    fillers = [_Filler(place) for place in {*itertools.chain(*ways)} - at.keys()]
    order = _sorted({i: [at[place] for place in way if place in at] for i, way in enumerate(ways)})
    if order is None:
        return None
    entries = [*fillers, *(items[i] for i in order)]
    least = LEAST if size == LEAST else max(5, size // 4)
    spare = [_Filler(i) for i in range(least - len(entries))] if size > LEAST else []
    entries += spare
    made: set[Any] = set(dict.fromkeys(entries[:least]))  # a table for twice as many
    for entry in entries[least:]:
        made.add(entry)
    for filler in (*fillers, *spare):
        made.discard(filler)
    return made


def _sorted(needs: dict[int, list[int]]) -> list[int] | None:
    """Each after those that it needs, or None where that cannot be."""
    waiting = {i: len({*before}) for i, before in needs.items()}
    after: dict[int, list[int]] = collections.defaultdict(list)
    for i, before in needs.items():
        for other in {*before}:
            after[other].append(i)
    ready = [i for i, count in waiting.items() if not count]
    for i in ready:
        for other in after[i]:
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    return ready if len(ready) == len(needs) else None
