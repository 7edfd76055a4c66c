"""Where a value came from: a path from an argument, a global or a constant object, walked once per call.

Sources form a tree; equal paths are one node. ``KINDS`` says how each step is written in Python. At each node are its
guards: ``CHECKS`` says how these are.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from traceback import FrameSummary
from typing import Any

from jitney._util.generated_code import is_name, variable
from jitney.guards.checks import CHECKS, brief
from jitney.guards.pool import Pool

_NOTHING = object()


def item_of(mapping: dict[Any, Any], key: Any) -> Any:
    """An item of a dictionary of a class with ideas of its own; not what its ``__missing__`` would put there.

    Raises:
        KeyError: there is none.
    """
    found = dict.get(mapping, key, _NOTHING)
    if found is _NOTHING:
        raise KeyError(key)
    return found


# What a list, dictionary or tuple holds, as no method of its own class's has a say.
CONTENTS = {
    "list": "_b.list.copy({0})",
    "dict": "_b.dict(_b.dict.items({0}))",
    "tuple": "_b.tuple.__getitem__({0}, _b.slice(None))",
}
# kind -> how the step reads, given the parent's expression, the key's expression and the raw key
KINDS: dict[str, Callable[[str, str, Any], str]] = {
    "attr": lambda base, key, raw: f"{base}.{raw}" if is_name(raw) else f"_b.getattr({base}, {key})",
    "static_attr": lambda base, key, raw: f"_b.object.__getattribute__({base}, {key})",
    "class_dict": lambda base, key, raw: f"{base}.__dict__[{key}]",
    "item": lambda base, key, raw: f"{base}[{key}]",
    "dict_item": lambda base, key, raw: f"_item_of({base}, {key})",
    "list_item": lambda base, key, raw: f"_b.list.__getitem__({base}, {key})",
    "tuple_item": lambda base, key, raw: f"_b.tuple.__getitem__({base}, {key})",
    "dict_of": lambda base, key, raw: f"{base}.__dict__",
    "type_of": lambda base, key, raw: f"_b.type({base})",
    "keys": lambda base, key, raw: f"[*{base}]",
    "size": lambda base, key, raw: f"{base}.size({key})",
    "values": lambda base, key, raw: f"[*{base}.values()]",
    "stride": lambda base, key, raw: f"{base}.stride({key})",
    "storage_offset": lambda base, key, raw: f"{base}.storage_offset()",
    "parts": lambda base, key, raw: f"_parts({base})",
    "ahead": lambda base, key, raw: f"_ahead({base}, {raw})",
    "from_numpy": lambda base, key, raw: f"_from_numpy({base})",
    "from_readonly": lambda base, key, raw: f"_from_readonly({base})",
    "from_scalar": lambda base, key, raw: f"_from_scalar({base})",
    "contents": lambda base, key, raw: CONTENTS[raw].format(base),
    "plain": lambda base, key, raw: f"_plain({base})",
    "referent": lambda base, key, raw: f"_referent({base})",
    "call": lambda base, key, raw: f"{base}()",
    "call_with": lambda base, key, raw: f"{base}(*{key}[0], **_b.dict({key}[1]))",
}


# The same steps as functions of the parent and the key, for those that run no user's code of their own.
STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "attr": getattr,
    "static_attr": object.__getattribute__,
    "class_dict": lambda base, key: base.__dict__[key],
    "item": lambda base, key: base[key],
    "dict_item": item_of,
    "list_item": list.__getitem__,
    "tuple_item": tuple.__getitem__,
    "dict_of": lambda base, key: base.__dict__,
    "type_of": lambda base, key: type(base),
    "keys": lambda base, key: [*base],
    "values": lambda base, key: [*base.values()],
}


class Source:
    """One node: ``base`` stepped by ``kind`` with ``key``. Roots are locals (``local``) and objects (``const``)."""

    __slots__ = ("base", "children", "guards", "key", "kind", "label", "seen", "wanted")

    def __init__(self, base: Source | None, kind: str, key: Any) -> None:
        self.base = base
        self.kind = kind
        self.key = key
        self.children: dict[Any, Source] = {}
        self.guards: list[Guard] = []
        self.wanted = False  # the emitted code uses the value itself
        self.seen: Any = None  # what capture made of it: a one-tuple, or None
        self.label = ""  # what people know an object by that has no name of its own

    def step(self, kind: str, key: Any = None) -> Source:
        """The child for this step; the same node each time."""
        found = self.known(kind, key)
        if found is None:
            found = self.children[_tag(kind, key)] = Source(self, kind, key)
        return found

    def known(self, kind: str, key: Any = None) -> Source | None:
        """The child for this step, if there is one already."""
        return self.children.get(_tag(kind, key))

    def attr(self, name: str) -> Source:
        """The child for ``.name``."""
        return self.step("attr", name)

    def item(self, key: Any) -> Source:
        """The child for ``[key]``."""
        return self.step("item", key)

    def call(self, arguments: tuple[Any, Any]) -> Source:
        """The child for a call with these constants, positional ones and pairs of named ones."""
        known = (s for s in self.children.values() if s.kind == "call_with" and repr(s.key) == repr(arguments))
        return next(known, None) or self.step("call_with", arguments)

    @property
    def is_const(self) -> bool:
        """Is it the root for an object whose identity is certain?"""
        return self.kind == "const"

    def expression(self, base: str, pool: Pool) -> str:
        """Python text of this step over the parent's expression."""
        if self.kind == "local":
            return variable(self.key)
        if self.kind == "const":
            return pool.object(self.key)
        key = pool.name(self.key) if self.key is not None or self.kind == "item" else ""
        return KINDS[self.kind](base, key, self.key)

    def path(self, pool: Pool) -> str:
        """The whole path as one expression."""
        base = self.base.path(pool) if self.base is not None else ""
        return self.expression(base, pool)

    @property
    def name(self) -> str:
        """For people: ``self._modules['encoder'].training``."""
        if self.kind == "local":
            return str(self.key)
        if self.kind == "const":
            return self.label or _describe(self.key)
        base = self.base.name if self.base is not None else ""
        if self.kind in ("dict_of", "contents", "plain", "from_numpy", "from_readonly", "from_scalar"):
            return base
        if self.base is not None and self.base.kind == "dict_of" and isinstance(self.key, str):
            return f"{base}.{self.key}"
        key = _describe(self.key) if isinstance(self.key, type) or callable(self.key) else repr(self.key)
        if self.kind == "dict_item":
            return f"{base}[{key}]"
        return KINDS[self.kind](base, key, self.key).replace("_b.", "")

    def walk(self) -> Iterator[Source]:
        """This node and everything below it."""
        yield self
        for child in self.children.values():
            yield from child.walk()

    def __repr__(self) -> str:
        return f"<Source {self.name}>"


def _tag(kind: str, key: Any) -> tuple[Any, ...]:
    """What tells the steps from one parent apart."""
    return (kind, type(key), key) if type(key) in (str, int, bool, type(None)) else (kind, id(key))


def _describe(value: Any) -> str:
    if isinstance(value, dict) and "__name__" in value:
        return f"globals of {value['__name__']}"
    if isinstance(value, enum.Enum):  # members are told apart: what one holds is not another's, changed
        return f"{type(value).__qualname__}.{value._name_}"
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    return str(name) if isinstance(name, str) else f"<{type(value).__name__}>"


@dataclass(frozen=True, slots=True)
class Guard:
    """``kind`` of check on ``source`` against ``expected``; ``origin`` is the user's line that read it."""

    source: Source
    kind: str
    expected: Any
    origin: FrameSummary | None = None

    def code(self, value: str, pool: Pool) -> str:
        """The check as Python text over the expression ``value``."""
        return CHECKS[self.kind](value, self.expected, pool)

    @property
    def text(self) -> str:
        """For people, without pool names: ``self.training is True``."""
        name = self.source.name
        if self.kind == "disjoint":
            return f"{name} has none of {', '.join(sorted(map(str, self.expected)))}"
        if self.kind == "type":
            return f"type({name}) is {self.expected.__qualname__}"
        if self.kind == "dtype":
            return f"{name} is {self.expected}"
        if self.kind == "code":
            return f"{name} is a function with the code of {self.expected.co_qualname}"
        if self.kind in ("is", "equals"):
            described = getattr(self.expected, "__qualname__", None) or brief(self.expected)
            return f"{name} {'is' if self.kind == 'is' else '=='} {described}"
        if self.kind == "keys":
            return f"[*{name}] == {brief(self.expected)}"
        if self.kind == "set":
            return f"{name} == {brief(self.expected)}"
        if self.kind in ("empty", "nonempty"):
            return f"{name} is {'empty' if self.kind == 'empty' else 'not empty'}"
        if self.kind in ("lacks_attr", "lacks_class_attr"):
            return f"{name} has no attribute {self.expected!r}"
        if self.kind == "wraps":
            return f"{name} is a {self.expected.cls.__qualname__} in the context {brief(self.expected.context)}"
        if self.kind == "frozen":
            return f"{name}, whose numbers are in the graph (options={{'freeze': True}}), is as it was"
        if self.kind in ("instance", "subclass"):
            classes, answer = self.expected
            return f"is{self.kind}({name}, {getattr(classes, '__qualname__', None) or brief(classes)}) is {answer}"
        return CHECKS[self.kind](name, self.expected, Pool()).replace("_b.", "")

    def found(self, value: Any) -> str:
        """What was there instead, for the recompile log."""
        if self.kind == "type":
            return f"type {type(value).__qualname__}"
        if self.kind == "wraps" and type(value) is self.expected.cls:
            return f"the context {brief(value.__tensor_flatten__()[1])}"
        if self.kind == "frozen":
            return str(self.expected.found(value))
        if self.kind == "len":
            return f"length {len(value)}"
        if self.kind == "keys":
            return f"keys {brief([*value])}"
        try:
            return brief(value)
        except Exception:  # the user's own __repr__
            return f"<{type(value).__qualname__}>"
