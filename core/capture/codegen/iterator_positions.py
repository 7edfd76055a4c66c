"""Where iterators from outside stand once a frame has run.

Emitted code puts each sequence iterator where the capture's copy of it stands, or at its end for good. The calls of
``next`` that the frame made are not made again: by the time the list may have other items, and a zip that was at its
end would go on. Only what cannot be put somewhere (enumerate, counters, iterators over ranges and dictionaries) is
advanced.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jitney.capture.builtin_iterators import BACKWARDS, COUNT, FORMS, RANGE, parts
from jitney.capture.interpreter.iterators import ItemsAhead
from jitney.capture.interpreter.signals import GiveUp
from jitney.capture.world.world import World

# What to do with an iterator: steps of ``next``, then a position (None: stay; END: be exhausted), then its parts.
Move = tuple[int, "int | None", tuple[Any, ...]]
END = -2


@dataclass
class Needs:
    """What the lists that an iterator goes through must be like when it is moved: as they were before, or are after."""

    before: bool = True
    after: bool = True
    table: bool = False

    def items(self, world: World, leaf: Any, count: int) -> None:
        """The sequence of this iterator has at least so many items."""
        owner = parts(leaf)[0]
        if not isinstance(owner, list):
            return
        record = world.record_of(owner)
        final = record.content if record is not None and record.content is not None else owner
        self.before &= count <= list.__len__(owner)
        self.after &= count <= list.__len__(final)


def move_of(world: World, real: Iterator[Any], copy: Iterator[Any], steps: int) -> tuple[Move, bool]:
    """What takes an iterator to where its copy is, after ``steps`` items; is it done before the frame's writes?

    Raises:
        GiveUp: its list has been too short at both times.
    """
    if type(copy) is ItemsAhead:
        return (copy.calls, None, ()), True
    needs = Needs()
    move = (steps, None, ()) if type(real) is COUNT else _move(world, real, copy, 0, needs)
    if not needs.before and (needs.table or not needs.after):
        raise GiveUp("an iterator from outside goes through a list that the frame makes longer and shorter")
    return move, needs.before


def _move(world: World, real: Any, copy: Any, taken: int, needs: Needs) -> Move:
    """``taken``: how often the iterators around it call its ``next``."""
    if type(real) is zip:
        pairs = zip(parts(real)[:-1], parts(copy)[:-1], strict=True)
        return 0, None, tuple(_move(world, a, b, taken, needs) for a, b in pairs)
    if type(real) is enumerate:
        (inner, start, _), (inner_copy, now, _) = parts(real), parts(copy)
        steps = now - start - taken
        _passed(world, inner, taken + steps, needs)
        return steps, None, (_move(world, inner, inner_copy, taken + steps, needs),)
    if type(real) is COUNT:
        return copy.taken - taken, None, ()
    if type(real) is RANGE:
        return parts(real)[1] - parts(copy)[1] - taken, None, ()
    if type(real) in FORMS:
        needs.table = True
        (owner, *_, before), (going, *_, now) = parts(real), parts(copy)
        if owner is None:  # it was at its end before
            return 0, None, ()
        return (0, END, ()) if going is None else (now - before - taken, None, ())
    return 0, _place(world, real, copy, taken, needs), ()


def _passed(world: World, real: Any, steps: int, needs: Needs) -> None:
    """So many items are taken from an iterator: all its sequences are to have them."""
    if type(real) in (zip, enumerate):
        for part in parts(real)[: -1 if type(real) is zip else 1]:
            _passed(world, part, steps, needs)
    elif type(real) not in (COUNT, RANGE, *FORMS) and steps:
        position = parts(real)[-1] or 0
        needs.items(world, real, position + 1 if type(real) is BACKWARDS else position + steps)


def _place(world: World, real: Any, copy: Any, taken: int, needs: Needs) -> int | None:
    """The position of a copy that goes through a sequence; None where the iterator is there already."""
    (owner, before), (going, now) = parts(real), parts(copy)
    record = world.record_of(owner)
    if going is not (record.content if record is not None and record.content is not None else owner) and not going:
        return END
    if now is None or (now == before and not taken):
        return None
    needs.items(world, real, now + (type(real) is BACKWARDS))
    return now


def put(iterator: Any, move: Move) -> None:
    """What the emitted code does to the real iterator."""
    steps, position, inner = move
    for _ in range(steps):
        next(iterator, None)
    if position == END and type(iterator) in FORMS:
        for _ in iterator:
            pass
    elif position == END:
        iterator.__setstate__(-1 if type(iterator) is BACKWARDS else sys.maxsize)  # past what its list may have got
        next(iterator, None)
    elif position is not None:
        iterator.__setstate__(position)
    if inner:
        for part, each in zip(parts(iterator), inner, strict=False):
            put(part, each)
