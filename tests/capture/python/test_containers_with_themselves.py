"""Containers that are their own argument (``items += items``), made inside and from outside."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import compile_fn, t


class Items(list[Any]):
    pass


def _in_place(text: str) -> Callable[[Any], Any]:
    namespace: dict[str, Any] = {}
    exec(f"def change(o):\n    {text}\n    return o", namespace)
    change: Callable[[Any], Any] = namespace["change"]
    return change


MAKERS: dict[str, Callable[[], Any]] = {
    "list": lambda: [1, 2],
    "list of a subclass": lambda: Items([1, 2]),
    "deque": lambda: collections.deque([1, 2]),
    "deque with an end": lambda: collections.deque([1, 2], maxlen=3),
    "dict": lambda: {1: 2, 3: 4},
    "set": lambda: {1, 2},
    "Counter": lambda: collections.Counter("aab"),
    "UserList": lambda: collections.UserList([1, 2]),
}
OPERATIONS: dict[str, Callable[[Any], Any]] = {
    **{text: _in_place(text) for text in ("o += o", "o |= o", "o -= o", "o ^= o", "o &= o", "o *= 2", "o[:0] = o")},
    "extend": lambda o: o.extend(o),
    "extendleft": lambda o: o.extendleft(o),
    "update": lambda o: o.update(o),
    "difference_update": lambda o: o.difference_update(o),
    "symmetric_difference_update": lambda o: o.symmetric_difference_update(o),
    "intersection_update": lambda o: o.intersection_update(o),
    "__iadd__": lambda o: o.__iadd__(o),
    "__isub__": lambda o: o.__isub__(o),
    "subtract": lambda o: o.subtract(o),
    "a sum": lambda o: o + o,
    "a union": lambda o: o | o,
    "a difference": lambda o: o - o,
    "a product": lambda o: o * 2,
}
NO_TEXT = {("deque", "o[:0] = o"), ("deque with an end", "o[:0] = o")}  # other words, known


def text(value: Any) -> str:
    """``repr``, which has no end where a Counter holds itself: from Python 3.12 on a slice may be its key."""
    try:
        return repr(value)
    except RecursionError:
        return "endless"


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("inside", [False, True])
def test_an_operation_on_itself(name: str, kind: str, inside: bool) -> None:
    def fn(x: torch.Tensor, given: Any) -> Any:
        own = MAKERS[kind]() if inside else given
        try:
            result = OPERATIONS[name](own)
        except (TypeError, AttributeError) as error:
            return x - 1, (type(error), "" if (kind, name) in NO_TEXT else str(error)), own
        return x + 1, "itself" if result is own else result, own

    mine, theirs = MAKERS[kind](), MAKERS[kind]()
    got, wanted = compile_fn(fn)(t(2), mine), fn(t(2), theirs)
    assert text(got[1:]) == text(wanted[1:]) and text(mine) == text(theirs)
