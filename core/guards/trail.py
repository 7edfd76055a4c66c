"""What a capture has taken for granted, without guards: a later process must find the same before it may use it."""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from typing import Any

from jitney.trust import IMMUTABLE, trusted


@dataclass
class Trail:
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

    def asked(self, cls: type, others: Any) -> None:
        """Is ``cls`` a subclass of these? It was asked; abstract classes may answer otherwise in another process."""
        if isinstance(others, (tuple, types.UnionType)):
            for other in others if isinstance(others, tuple) else others.__args__:
                self.asked(cls, other)
        elif isinstance(others, type) and type(others) is not type and not (trusted(cls) and trusted(others)):
            self.subclasses[id(cls), id(others)] = (cls, others, issubclass(cls, others))

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
