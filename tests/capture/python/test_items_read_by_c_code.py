"""C code that goes through a container from outside: what it reads there is guarded."""

from __future__ import annotations

import collections
import types
from typing import Any

import pytest
import torch
from helpers import compile_fn, t

import jitney

READERS: dict[str, Any] = {
    "bytes of values": lambda d: bytes(d.values()),
    "bytes of a list": lambda d: bytes(d[2]),
    "bytearray": lambda d: bytearray(d[2]),
    "int.from_bytes": lambda d: int.from_bytes(d[2], "big"),
    "int.from_bytes of keys": lambda d: int.from_bytes({d[0]: 1}, "big"),
    "a mapping proxy": lambda d: types.MappingProxyType(d)[0],
    "a dictionary of a mapping proxy": lambda d: dict(types.MappingProxyType(d)),
    "str.maketrans": lambda d: str.maketrans({"a": d[0]}),
    "repr": lambda d: repr(d),
    "str through its method": lambda d: d.__str__(),
    "str.format": lambda d: "{0[0]} {0}".format(d),
    "str % of it": lambda d: "%s" % (d,),
    "str % of a list of it": lambda d: "%s" % [d],
    "a deque as text": lambda d: f"{collections.deque(d.values())}",
    "a dictionary as text": lambda d: f"{ {1: d[0]} } {[d[1]]}",
}


WITH_LIST = {"bytes of a list", "bytearray", "int.from_bytes"}


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.Counter])
@pytest.mark.parametrize("name", READERS)
def test_items_that_change(name: str, kind: Any) -> None:
    def fn(x: torch.Tensor, given: Any) -> Any:
        return x + 1, READERS[name](given)

    compiled = compile_fn(fn)
    for first, second in ((1, 2), (3, 2), (2, 5), (1, 7), (1, 2)):
        items: dict[int, Any] = {0: first, 1: second}
        if kind is dict and name in WITH_LIST:
            items[2] = [first, second]
        mine, theirs = kind(items), kind(items)
        assert repr(outcome(compiled, mine)) == repr(outcome(fn, theirs))


def outcome(fn: Any, given: Any) -> Any:
    try:
        return fn(t(2), given)
    except (TypeError, KeyError) as error:
        return repr(error)


@pytest.mark.parametrize("break_first", [False, True])
def test_named_fields_of_what_torch_returns(break_first: bool) -> None:
    def fn(x: torch.Tensor, given: Any) -> Any:
        made = x.topk(2)
        if break_first:
            jitney.graph_break()
        return made.values + made.indices, given.indices * 2, given[0] is given.values, given.values.add_(1)

    for n in (3, 4):
        x = torch.arange(float(n))
        compiled, expected = compile_fn(fn)(x, x.sort()), fn(x, x.sort())
        assert str(compiled) == str(expected)
    report = jitney.explain(fn)(x, x.sort())
    assert report.graph_break_count == break_first
