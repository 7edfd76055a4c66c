"""How the emitted code makes again iterators in C that are still needed, where capture had got to in them."""

from __future__ import annotations

import collections
import itertools
import re
import warnings
from typing import Any, Protocol

from jitney.capture.builtin_iterators import (
    BACKWARDS,
    FORMS,
    beginning,
    form_of,
    of_table,
    same_objects,
    table_iterator,
)
from jitney.capture.interpreter.code import PY312
from jitney.capture.interpreter.iterators import set_state
from jitney.capture.interpreter.signals import GiveUp
from jitney.capture.world.record import Record
from jitney.capture.world.set_order import HINT as ORDER_HINT
from jitney.capture.world.set_order import moves

NAME = re.compile(r"\b_r\d+\b")
_od: Any = collections.OrderedDict()
ITERATORS: tuple[type, ...] = (
    type(iter([])), type(iter(())), type(iter({})), type(iter({}.values())), type(iter({}.items())), type(iter(set())),
    type(iter(range(1))), type(iter("")), type(iter(b"")), zip, enumerate, map, filter, reversed, BACKWARDS,
    type(iter(collections.deque())), type(iter(_od)), type(iter(_od.values())), type(iter(_od.items())),
    itertools.chain, itertools.count, itertools.cycle, itertools.islice, itertools.repeat, itertools.starmap,
    itertools.takewhile, itertools.dropwhile, itertools.zip_longest, itertools.product, itertools.permutations,
    itertools.combinations, itertools.accumulate, itertools.compress, itertools.filterfalse, itertools.pairwise,
    type(reversed({})), type(iter(range(1 << 70))), type(reversed(range(3))),
)  # fmt: skip


class Lines(Protocol):
    """What rules need of ``Rebuilder``."""

    lines: list[str]
    after: dict[str, list[str]]
    owners: dict[int, Record]

    def expr(self, value: Any) -> str:
        """Text for a value."""
        ...

    def each(self, values: Any) -> str:
        """Text for the items of a display."""
        ...

    def constant(self, value: Any) -> str:
        """The name of an object that emitted code holds."""
        ...

    def assign(self, value: Any, text: str, late: bool = False) -> str:
        """Bind a new variable."""
        ...


def rebuilt_iterator(rebuild: Lines, value: Any) -> str:
    """Iterators tell how to make them again (``__reduce__``); those over dictionaries and sets only what is left."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            table = of_table(value) if type(value) in FORMS else (None, 0)
            made, args, *state = value.__reduce__()
        except Exception as error:
            raise GiveUp(f"a {type(value).__qualname__} is alive at a graph break: {error}") from None
    if table[0] is not None:
        return _over_table(rebuild, value, *table)
    if type(value) is BACKWARDS or (made is iter and len(args) == 1):
        made = beginning(value, args[0])
    text = f"{rebuild.constant(made)}({rebuild.each(args)})"
    late = not rebuild.after.keys().isdisjoint(NAME.findall(text)) or _written_anew(rebuild, args)
    name = rebuild.assign(value, text, late)
    if state and state[0] is not None:
        setter = rebuild.constant(set_state) if PY312 and type(value).__module__ == "itertools" else None
        found = rebuild.expr(state[0])
        line = f"{setter}({name}, {found})" if setter else f"{name}.__setstate__({found})"
        items = next((owner for owner in args if isinstance(owner, list)), None)
        if not late and items is not None and not _fits_before(rebuild, value, items, state[0]):
            rebuild.after[f"the place of {name}"] = [line]  # its list may be shorter than that until all is written
        else:
            (rebuild.after[name] if late else rebuild.lines).append(line)
    return name


def _fits_before(rebuild: Lines, value: Any, items: list[Any], position: int) -> bool:
    """Is its list too short for its position once all is written, but not before?"""
    needed = position + 1 if type(value) is BACKWARDS else position
    if needed <= list.__len__(items):
        return False
    record = rebuild.owners.get(id(items))
    if record is None or needed > list.__len__(record.value):
        raise GiveUp(f"a {type(value).__qualname__} is alive that has passed the end of a list made shorter")
    return True


def _over_table(rebuild: Lines, value: Any, owner: Any, passed: int) -> str:
    """It begins again, and passes what it has passed: what the program does to the dictionary meanwhile, it sees."""
    form = form_of(value, owner, passed)
    if form is None:
        raise GiveUp(f"a {type(value).__qualname__} is alive at a graph break")
    if passed and isinstance(owner, set | frozenset) and id(owner) not in rebuild.owners and moves(owner):
        raise GiveUp(
            "a set of tensors or new objects, whose order is another one each time, is gone through", ORDER_HINT
        )
    view, backwards = form
    text = f"{rebuild.constant(table_iterator)}({rebuild.expr(owner)}, {view!r}, {backwards}, {passed})"
    return rebuild.assign(value, text, _written_anew(rebuild, (owner,)))


def _written_anew(rebuild: Lines, args: Any) -> bool:
    """Is one of these a container from outside that is written to so that no iterator over it would go on?"""
    for owner in args:
        record = rebuild.owners.get(id(owner))
        if record is not None and record.dirty and isinstance(owner, dict | set | frozenset | collections.deque):
            if not isinstance(owner, dict) or not same_objects([*owner], [*record.original]):
                return True
    return False


def escapes(rebuild: Lines, effects: list[str]) -> bool:
    """Is something that is only made once all is written needed for that?"""
    lines = (*rebuild.lines, *effects) if rebuild.after else ()
    return any(name in rebuild.after for line in lines for name in NAME.findall(line))


def finished() -> Any:
    """A generator that has ended."""
    nothing: list[Any] = []
    made = (x for x in nothing)
    next(made, None)
    return made
