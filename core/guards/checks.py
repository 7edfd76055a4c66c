"""``CHECKS`` is the table of what guards check: how each kind of condition is written in Python."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any

import torch

from jitney.guards.pool import Pool

NAMESPACE = vars(ModuleType)["__dict__"]  # of a module, whatever its class says
FEW = 6  # names that are looked for one by one


def same(value: Any, expected: Any) -> bool:
    """Equal, and of the same class all the way down: 1, True and 1.0 differ, so do 0.0 and -0.0."""
    if type(value) is not type(expected):
        return False
    if isinstance(value, tuple):
        return len(value) == len(expected) and all(map(same, value, expected))
    if type(value) is float:
        return (value == expected and math.copysign(1.0, value) == math.copysign(1.0, expected)) or (
            value != value and expected != expected
        )
    if type(value) is complex:
        return same(value.real, expected.real) and same(value.imag, expected.imag)
    if type(value) is range:
        return (value.start, value.stop, value.step) == (expected.start, expected.stop, expected.step)
    return bool(value == expected)


def brief(value: Any) -> str:
    """A value for one line of a report: long ones are cut in the middle, a module's namespace goes by its name."""
    if type(value) is dict and isinstance(value.get("__name__"), str):
        return f"the namespace of {value['__name__']}"
    return _BRIEF.repr(value)


class _Brief(reprlib.Repr):
    """Texts of one line; of tensors and modules what they are, not what is in them."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring, self.maxother, self.maxlist, self.maxtuple, self.maxdict = 120, 200, 20, 20, 12

    def repr1(self, value: Any, level: int) -> str:
        """The text of a value, at whatever depth of a container."""
        if isinstance(value, torch.Tensor):
            return f"{type(value).__name__}({', '.join(map(str, value.shape))}) of {str(value.dtype)[6:]}"
        if isinstance(value, torch.nn.Module):
            return f"<{type(value).__qualname__}>"
        if isinstance(value, ModuleType):
            return f"the module {(NAMESPACE.__get__(value) or {}).get('__name__', '?')}"
        return " ".join(super().repr1(value, level).split())


_BRIEF = _Brief()


def same_items(value: Any, expected: tuple[Any, ...]) -> bool:
    """The same items in the same order: what iterating over a set or dictionary shows."""
    return same((*value,), expected)


def same_dtype(value: Any, expected: Any) -> bool:
    """The same dtype of NumPy, though maybe another object (pickle makes such): of the same C type, nothing more."""
    return bool(value == expected and value.char == expected.char and value.metadata is None)


def all_different(*values: Any) -> bool:
    """Is none of these objects another one of them?"""
    return len({*map(id, values)}) == len(values)


def apart(written: int, *values: Any) -> bool:
    """Is none of the first so many objects another one of all these?"""
    first = {*map(id, values[:written])}
    return len(first) == written and first.isdisjoint(map(id, values[written:]))


def lacks_slot(value: Any, name: str) -> bool:
    """Has the object no such attribute of its own? Asked without running the user's ``__getattr__``."""
    try:
        object.__getattribute__(value, name)
    except (AttributeError, ValueError):
        return True
    return False


def lacks_attribute(value: Any, name: str) -> bool:
    """Has a class no such attribute, its bases included?"""
    return not any(name in vars(cls) for cls in value.__mro__)


def without(keys: str, names: Collection[str], pool: Pool) -> str:
    """Is none of the names among the keys? Few are asked for one by one, which is faster than a call."""
    if len(names) <= FEW:
        return " and ".join(f"{name!r} not in {keys}" for name in sorted(names))
    return f"{keys}.isdisjoint({pool.object(tuple(sorted(names)))})"


def _disjoint(value: str, expected: Any, pool: Pool) -> str:
    return without(value if len(expected) <= FEW else f"{value}.keys()", expected, pool)


def _lacks_class_attr(value: str, expected: Any, pool: Pool) -> str:
    if not hasattr(type, expected):
        return f"not _b.hasattr({value}, {expected!r})"
    return f"{pool.object(lacks_attribute)}({value}, {expected!r})"


def _keys(value: str, expected: Any, pool: Pool) -> str:
    if all(type(k) is str for k in expected):
        return f"[*{value}] == {pool.object(expected)}"
    return f"{pool.object(same_items)}({value}, {pool.object(tuple(expected))})"


def _equals(value: str, expected: Any, pool: Pool) -> str:
    name = pool.object(expected)
    return f"({value} is {name} or {pool.object(same)}({value}, {name}))"


# kind -> the condition's text, given the value's expression, what is expected, and the pool
CHECKS: dict[str, Callable[[str, Any, Pool], str]] = {
    "is": lambda v, x, pool: f"{v} is {pool.name(x)}",
    "type": lambda v, x, pool: f"_type({v}) is {pool.object(x)}",
    "equals": _equals,
    "dtype": lambda v, x, pool: f"({v} is {pool.object(x)} or {pool.object(same_dtype)}({v}, {pool.object(x)}))",
    "code": lambda v, x, pool: f"_type({v}) is {pool.object(type(lambda: 0))} and {v}.__code__ is {pool.object(x)}",
    "len": lambda v, x, pool: f"_b.len({v}) == {x}",
    "keys": _keys,
    "set": lambda v, x, pool: f"{pool.object(same_items)}({v}, {pool.object((*x,))})",
    "instance": lambda v, x, pool: f"_b.isinstance({v}, {pool.object(x[0])}) is {x[1]}",
    "subclass": lambda v, x, pool: f"_b.issubclass({v}, {pool.object(x[0])}) is {x[1]}",
    "has": lambda v, x, pool: f"{pool.name(x)} in {v}",
    "lacks": lambda v, x, pool: f"{pool.name(x)} not in {v}",
    "lacks_attr": lambda v, x, pool: f"{pool.object(lacks_slot)}({v}, {x!r})",
    "lacks_class_attr": _lacks_class_attr,
    "disjoint": _disjoint,
    "empty": lambda v, x, pool: f"not {v}",
    "nonempty": lambda v, x, pool: f"{v}",
    "true": lambda v, x, pool: x.replace("{v}", v),
    "hookless": lambda v, x, pool: f"{v}._backward_hooks is None and {v}._post_accumulate_grad_hooks is None",
    "answers": lambda v, x, pool: f"{pool.object(x[0])}({v}) is {x[1]}",
    "wraps": lambda v, x, pool: f"{pool.object(x)}.holds({v})",
    "frozen": lambda v, x, pool: f"{pool.object(x)}.holds({v})",
}
