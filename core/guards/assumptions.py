"""What a capture has taken for granted, without guards: a later process must find the same before it may use it."""

from __future__ import annotations

import collections
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jitney._util.ownership import IMMUTABLE, trusted

VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))
CONTAINERS = (list, tuple, set, frozenset, collections.deque, *VIEWS)


def each_class(classes: Any) -> Iterator[Any]:
    """The classes that ``isinstance`` asks of: those in tuples and unions too, all the way down."""
    if isinstance(classes, (tuple, types.UnionType)) or typing.get_origin(classes) is typing.Union:
        for part in classes if isinstance(classes, tuple) else classes.__args__:
            yield from each_class(part)
    else:
        yield classes


@dataclass
class Assumptions:
    """What is trusted while a process lives, and may be otherwise in another one.

    Args:
        functions: the Python functions that were looked into, by code.
        taken: what was read without guards: (owner, name, value) by (id of the owner, name). Owners are classes,
            modules and dictionaries of globals.
        subclasses: (class, abstract class, is it a subclass) by their ids.
        lacking: names that an owner, as above, does not have, by the same keys.
        private: why the capture is of no use to another process; empty if it is.
    """

    functions: dict[types.CodeType, types.FunctionType] = field(default_factory=dict)
    taken: dict[tuple[int, str], tuple[Any, str, Any]] = field(default_factory=dict)
    private: str = ""
    lacking: dict[tuple[int, str], tuple[Any, str]] = field(default_factory=dict)
    subclasses: dict[tuple[int, int], tuple[type, type, bool]] = field(default_factory=dict)  # abstract classes', asked

    def asked(self, cls: type, others: Any) -> list[type]:
        """Is ``cls`` a subclass of these? It was asked; abstract classes may answer otherwise in another process.

        Returns those of which it was not asked before. Raises what an abstract class raises.
        """
        found = []
        for other in each_class(others):
            if isinstance(other, type) and type(other) is not type and not (trusted(cls) and trusted(other)):
                if (id(cls), id(other)) not in self.subclasses:
                    self.subclasses[id(cls), id(other)] = (cls, other, issubclass(cls, other))
                    found.append(other)
        return found

    def keep_private(self, reason: str) -> None:
        """What was captured holds in this process only."""
        self.private = self.private or reason

    def order_of(self, values: Any) -> None:
        """A set was iterated over: text and objects come in another order in each process."""
        if len(values) > 1 and not all(isinstance(v, (int, float)) for v in values):
            self.keep_private("the order of a set")

    def enter(self, function: Any) -> None:
        """A function is looked into."""
        if isinstance(function, types.FunctionType):
            self.functions[function.__code__] = function

    def lack(self, owner: Any, name: str) -> None:
        """``owner`` itself has no such name, which no guard asks."""
        if not isinstance(owner, type) or not owner.__flags__ & IMMUTABLE:
            self.lacking[id(owner), name] = (owner, name)

    def lack_with_bases(self, cls: type, name: str) -> None:
        """Neither the class nor one of its bases has such a name."""
        if (id(cls), name) not in self.lacking:
            for base in cls.__mro__:
                self.lack(base, name)

    def take(self, owner: Any, name: str, value: Any) -> Any:
        """``value`` was read from its owner without a guard; the value."""
        self.taken[id(owner), name] = (owner, name, value)
        return value
