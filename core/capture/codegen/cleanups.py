"""Generators that wait in a ``try`` or ``with``: dropping one runs code of the program's, at that very moment.

Emitted code, step and resume functions hand a frame's values on, and hold them longer than the frame would. So a frame
that has such a generator at a graph break runs eagerly.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import itertools
import warnings
from collections.abc import Iterable, Iterator
from types import CodeType, GeneratorType, GetSetDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from jitney._util.ownership import HEAP
from jitney.capture.interpreter.code import decode
from jitney.capture.interpreter.generators import InterpretedGenerator
from jitney.capture.interpreter.signals import GiveUp

if TYPE_CHECKING:
    from jitney.capture.interpreter.frame import Frame
    from jitney.capture.world.record import Record
    from jitney.capture.world.world import World
    from jitney.guards import Source

ITERATORS = {zip, enumerate, map, filter, itertools.accumulate, itertools.chain, itertools.compress, itertools.cycle,
             itertools.dropwhile, itertools.filterfalse, itertools.islice, itertools.starmap, itertools.takewhile,
             itertools.zip_longest}  # fmt: skip
CONTAINERS = (list, tuple, set, frozenset, collections.deque)
# What has entered a context manager leaves it before it drops it, as contextlib's own code does.
CLOSING: tuple[type, ...] = (type(contextlib.contextmanager(lambda: iter(()))()).__mro__[1],)
DEPTH = 4
PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None), type(...)})  # these hold nothing
REPLACED = "a generator that waits in a try or with is replaced where something older than the frame holds it"
REASON = "a generator that waits in a try or with may be dropped after a graph break"


def check(frames: Iterable[Frame]) -> None:
    """Raise ``GiveUp`` if one of the frames that are about to be cut has a generator whose cleanup is still to come."""
    for frame in frames:
        if frame.globals is not vars(contextlib) and any(
            map(waits_to_clean_up, (*frame.stack, *frame.saved, *frame.locals.values()))
        ):
            raise GiveUp(REASON, "take the graph break out of the loop over the generator")


def check_replaced(world: World) -> None:
    """Raise ``GiveUp`` if writes that wait for the graph drop what would clean up: eager drops it before that.

    What the frame puts in a place is dropped by the next call, by the same code: it need not have read the place.
    """
    for record in list(world.records.values()):
        if record.dirty:
            new = (*record.overlay.values(), *record.slots.values(), *(record.cell or ()))
            if any(map(waits_to_clean_up, (*_replaced(record), *new))):
                raise GiveUp(REPLACED, "close the generator before another one is put in its place")


def _replaced(record: Record) -> Iterator[Any]:
    """What is in the places that are written to, before they are."""
    value = record.value
    if isinstance(value, dict):
        yield from (dict.get(value, key) for key in record.overlay)
    for name in record.slots:
        with contextlib.suppress(AttributeError, TypeError):
            yield object.__getattribute__(value, name)
    if record.cell is not None:
        with contextlib.suppress(ValueError):  # an empty one
            yield value.cell_contents
    if record.original is not None:
        before, after = (c.values() if isinstance(c, dict) else c for c in (record.original, record.content))
        left = set(map(id, after))
        yield from (item for item in before if id(item) not in left)


def guard(world: World, value: Any, source: Source) -> None:
    """The same of what the rest of a frame begins with, which is the program's own generator by then."""
    if type(value) is GeneratorType:
        if waits_to_clean_up(value):
            raise GiveUp(REASON)
        world.guard(source, "answers", (waits_to_clean_up, False))


def waits_to_clean_up(value: Any, depth: int = DEPTH) -> bool:
    """Would dropping this object run the rest of a generator's ``try`` or ``with``?"""
    kind = type(value)
    if kind is InterpretedGenerator:
        if value.state != "suspended":
            return False
        frame = value.frame
        held: Iterable[Any] = (*frame.stack, *frame.locals.values())
        return frame.info.is_protected(frame.at) or (depth > 0 and _any_waits(held, depth - 1))
    if kind is GeneratorType:
        at = _place(value.gi_code, value.gi_frame.f_lasti) if value.gi_frame is not None else None
        if at is None or value.gi_running:
            return False
        if decode(value.gi_code).is_protected(at):
            return True
    return depth > 0 and _any_waits(_held(value), depth - 1)


def _any_waits(values: Iterable[Any], depth: int) -> bool:
    return any(waits_to_clean_up(v, depth) for v in values if type(v) not in PLAIN)


def _held(value: Any) -> Iterable[Any]:
    """What a generator, another iterator, a container or an instance holds; asked past the program's own methods."""
    kind = type(value)
    if kind is GeneratorType:
        return gc.get_referents(value)
    if kind in ITERATORS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of those of itertools, from Python 3.12 on
            return tuple(value.__reduce__()[1:])
    if kind in CONTAINERS:
        return list(value)
    if kind is dict:
        return list(value.values())
    if not kind.__flags__ & HEAP or issubclass(kind, (type, torch.Tensor, torch.nn.Module, *CLOSING)):
        return ()
    shown = next((vars(cls)["__dict__"] for cls in kind.__mro__ if "__dict__" in vars(cls)), None)
    if type(shown) is not GetSetDescriptorType:  # where a class of the program's has another by that name
        return gc.get_referents(value)
    try:
        return list(shown.__get__(value).values())
    except (AttributeError, TypeError):
        return ()


def _place(code: CodeType, offset: int) -> int | None:
    """The instruction at which a generator waits; None before it has begun."""
    return next((instr.index for instr in decode(code).instrs if instr.offset == offset > 0), None)
