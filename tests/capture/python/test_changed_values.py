"""Containers and other objects from outside that change between calls, beside each expression that looks at them."""

from __future__ import annotations

import array
import collections
import copy
import functools
import itertools
import operator
import random
import re
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import compile_fn, t

Made = tuple[Any, list[Callable[[], Any]]]


class Items(list[Any]): ...


class Names(set[Any]): ...


class Boxed:
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Any:
        return iter(self.items)


def _list() -> Made:
    value = [3, 1, 2]
    return value, [lambda: value.append(5), lambda: operator.setitem(value, 1, 1.0), value.sort]


def _nested() -> Made:
    value: list[Any] = [[3], {"a": [1]}, (1, [2])]
    return value, [lambda: value[0].append(5), lambda: value[1]["a"].append(7), lambda: value[2][1].append(8)]


def _dict() -> Made:
    value: dict[str, Any] = {"a": 1, "b": [2]}
    return value, [lambda: value.update(c=3), lambda: value["b"].append(4), lambda: operator.setitem(value, "a", True)]


def _defaultdict() -> Made:
    value = collections.defaultdict(list, a=[1])
    return value, [lambda: value["z"], lambda: value["a"].append(2), lambda: setattr(value, "default_factory", int)]


def _counter() -> Made:
    value = collections.Counter("aab")
    return value, [lambda: value.update("b"), value.clear]


def _set() -> Made:
    value = Names([1])
    return value, [lambda: value.add(9), lambda: value.discard(1)]


def _subclass() -> Made:
    value = Items([3, 1])
    return value, [lambda: value.append(5), lambda: operator.setitem(value, 0, 0)]


def _bytes() -> Made:
    value = bytearray(b"abc")
    return value, [lambda: value.append(100), lambda: operator.setitem(value, 0, 90)]


def _array() -> Made:
    value = array.array("i", [1, 2])
    return value, [lambda: value.append(5), lambda: operator.setitem(value, 0, 9)]


def _memory() -> Made:
    owner = bytearray(b"abc")
    return memoryview(owner), [lambda: operator.setitem(owner, 0, 90)]


def _proxy() -> Made:
    owner = {"a": 1}
    return types.MappingProxyType(owner), [lambda: owner.update(b=2), lambda: owner.update(a=5)]


def _values() -> Made:
    owner = {"a": 1}
    return owner.values(), [lambda: owner.update(b=2), lambda: owner.update(a=5)]


def _exception() -> Made:
    value = ValueError("a", 1)
    return value, [lambda: setattr(value, "args", ("b",))]


def _iterator() -> Made:
    value = iter([1, 2, 3, 4, 5, 6])
    return value, [lambda: next(value, 0)]


def _slice() -> Made:
    stop = [1]
    return slice(0, stop, 2), [lambda: stop.append(2)]


def _class() -> Made:
    value = type("Made", (), {"a": 1})
    return value, [lambda: setattr(value, "a", 2), lambda: setattr(value, "b", 1)]


def _weak_proxy() -> Made:
    owner = Boxed([1])
    return weakref.proxy(owner), [lambda: owner.items.append(2)]


def _words() -> Made:
    value = np.array(["a", "b"])[:1]
    return value, [lambda: operator.setitem(value, 0, "1")]


VALUES = [_words, _list, _nested, _dict, _defaultdict, _counter, _set, _subclass, _bytes, _array, _memory, _proxy,
          _values, _exception, _iterator, _slice, _class, _weak_proxy]  # fmt: skip
EXPRESSIONS = """
str(o)
repr(o)
f"{o}"
"%s" % (o,)
"%(a)s" % o
"{}".format(o)
"{a}".format(**o)
"{0.a}".format(o)
f"{[o]}"
str({1: o})
", ".join(map(str, o))
1 in o
operator.contains(o, 1)
list(reversed(o))
bytes(o)
bytearray(o)
int.from_bytes(o, "big")
b"".join([o, b"z"])
o + o
o | o
o.copy()
sorted(o, key=str)
max(o, key=str)
[*o]
dir(o)[-3:]
list(itertools.chain.from_iterable([o, o]))
next(iter(o))
tuple(o)
(o,) + (o,)
[o] * 2
sorted([o, o], key=len)[0] is o
sorted([[o, 1]])[0][0] is o
max([o], key=len) is o
max(o, [0])
min(o, o) is o
functools.reduce(lambda a, b: b, [1, o]) is o
sum([[o]], [])[0] is o
list(reversed([o]))[0] is o
[1].__add__([o])[1] is o
(1,).__add__((o,))[1] is o
({"a": 1} | {"b": o})["b"] is o
copy.copy([o])[0] is o
list(zip([o], [1]))[0][0] is o
random.Random(0).choice([o]) is not None
[o] == [1]
{}.pop("k", o) is o
(1,) == (o,)
""".strip().splitlines()


def outcomes(make: Callable[[], Made], fn: Any) -> list[Any]:
    value, changes = make()
    found: list[Any] = []
    for change in (lambda: None, lambda: None, *changes):
        change()
        try:
            result = fn(t(), value)[1]
            several = isinstance(result, (list, tuple)) and not isinstance(value, slice)
            shared = several and [[a is b for b in result] for a in result]
            text = re.sub("0x[0-9a-f]+", "", repr(result))
            found.append((type(result), text, result is value, shared))
        except Exception as error:
            found.append((type(error), str(error)))
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("make", VALUES)
def test_what_is_seen_of_a_value_is_what_it_is_now(make: Callable[[], Made], expression: str) -> None:
    space: dict[str, Any] = {"torch": torch, **{m.__name__: m for m in (operator, itertools, functools, copy, random)}}
    exec(f"def fn(x, o):\n    return x + 1, {expression}", space)
    expected = outcomes(make, space["fn"])
    assert outcomes(make, compile_fn(space["fn"])) == expected


def test_a_length_below_zero() -> None:
    class Sized:
        size = 2

        def __len__(self) -> int:
            return self.size

    def fn(x: torch.Tensor, o: Sized) -> torch.Tensor:
        return x + 1 if o else x - 1

    compiled, value = compile_fn(fn), Sized()
    assert torch.equal(compiled(t(), value), t() + 1)
    value.size = -1
    with pytest.raises(ValueError, match=r"__len__\(\) should return >= 0"):
        compiled(t(), value)
