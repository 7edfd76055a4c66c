"""Iterators over dictionaries, sets and deques across graph breaks see what becomes of these, as in plain Python."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import outcome

import jitney

BODIES = {
    "a value is replaced": "for k, v in d.items():\n    B()\n    d['c'] = v * 10\n    out.append((k, v))",
    "by values": "for v in d.values():\n    B()\n    d['c'] = v * 10\n    x = x + v\n    B()\n    out.append(v)",
    "it grows": "for k in d:\n    B()\n    d['z' + k] = 5",
    "it grows at the end": "for k in d:\n    B()\n    if k == 'c': d['q'] = 1",
    "it shrinks": "for k in d:\n    B()\n    if k == 'b': del d['b']",
    "other keys": "for k in d:\n    B()\n    if k == 'a': del d['b']; d['n'] = 4\n    out.append(k)",
    "backwards": "for k in reversed(d):\n    B()\n    d['a'] += 1\n    out.append(d[k])",
    "backwards, by items": "for k, v in reversed(d.items()):\n    B()\n    d['a'] += 1\n    out.append((k, v))",
    "enumerate": "for i, (k, v) in enumerate(d.items()):\n    B()\n    d['c'] += i + 1\n    out.append((k, v))",
    "zip": "for k, v in zip(d, d.values()):\n    B()\n    d['c'] += 1\n    out.append((k, v))",
    "map": "for v in map(lambda v: v * 2, d.values()):\n    B()\n    d['c'] = 50\n    out.append(v)",
    "a generator": "for v in (v * 2 for v in d.values()):\n    B()\n    d['c'] = 50\n    out.append(v)",
    "made inside": "e = type(d)(d)\nfor k, v in e.items():\n    B()\n    e['c'] = v * 10\n    out.append((k, v))",
    "made inside, grows": "e = dict(d)\nfor k, v in e.items():\n    B()\n    e['q'] = v * 10",
    "by hand": "it = iter(d.values())\nnext(it)\nB()\nd['b'] = 77\nout.append(next(it))\nB()\nd['c'] = 78\nout += it\n"
    "d['z'] = 1\nout += it\ndel d['z']",
    "written to before": "d['n'] = 9\nfor k, v in d.items():\n    B()\n    d['n'] = v\n    out.append(v)\ndel d['n']",
    "kept, written to before": "d['n'] = 9\nits = [iter(d)]\nB()\nout += its[0]\ndel d['n']",
}


def both(body: str, container: Callable[[], Any]) -> tuple[list[Any], list[Any]]:
    """What three calls give and leave, compiled and plain."""
    text = f"def f(d, x):\n    out = []\n    {body.replace(chr(10), chr(10) + '    ')}\n    return x + 1, out"
    namespace: dict[str, Any] = {"B": jitney.graph_break}
    exec(text, namespace)
    results = []
    for fn in (jitney.compile(namespace["f"], backend="eager"), namespace["f"]):
        given, told = container(), []
        for _ in range(3):
            told.append(
                (
                    str(outcome(fn, given, torch.zeros(2))),
                    list(given.items()) if hasattr(given, "items") else list(given),
                )
            )
        results.append(told)
    return results[0], results[1]


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.Counter])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_dictionaries(body: str, kind: type) -> None:
    found, wanted = both(body, lambda: kind({"a": 1, "b": 2, "c": 3}))
    assert found == wanted


OTHERS: dict[str, tuple[str, Callable[[], Any]]] = {
    "a set that grows": ("for k in d:\n    B()\n    d.add(k + 10)", lambda: {1, 2, 3}),
    "a set that shrinks": ("for k in d:\n    B()\n    d.discard(2)", lambda: {1, 2, 3}),
    "a set that stays": ("for k in d:\n    B()\n    x = x + k\n    out.append(k)", lambda: {1, 2, 3}),
    "a set made inside": ("e = set(d)\nfor k in e:\n    B()\n    e.add(k + 10)", lambda: {1, 2, 3}),
    "a set written to before": ("d.add(9)\nfor k in d:\n    B()\n    out.append(k)\nd.discard(9)", lambda: {1, 2, 3}),
    "a deque's item": (
        "for k in d:\n    B()\n    d[2] = k * 5\n    out.append(k)",
        lambda: collections.deque([1, 2, 3]),
    ),
    "a deque that grows": ("for k in d:\n    B()\n    d.append(k)", lambda: collections.deque([1, 2, 3])),
    "a deque written to before": (
        "d.append(9)\nfor k in d:\n    B()\n    out.append(k)\nd.pop()",
        lambda: collections.deque([1, 2, 3]),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_sets_and_deques(name: str) -> None:
    found, wanted = both(*OTHERS[name])
    assert found == wanted


def test_a_loop_over_a_dictionary_goes_on_in_graphs() -> None:
    def fn(d: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        for value in d.values():
            jitney.graph_break()
            x = x * value + 1
        return x

    report = jitney.explain(fn, backend="eager")({"a": torch.ones(2), "b": torch.ones(2)}, torch.ones(2))
    assert report.graph_count == 2


def test_an_ordered_dictionarys_iterator_may_go_another_way_at_the_next_call() -> None:
    table = collections.OrderedDict(a=1, b=2, c=3)
    pair = (4, 4)
    same = collections.OrderedDict([(pair, pair), (5, 5)])

    def fn(it: Any, x: torch.Tensor) -> Any:
        return x + 1, next(it), list(it)

    ways: tuple[Any, ...] = (iter, lambda d: iter(d.values()), reversed, lambda d: reversed(d.items()))
    for d in (table, same):
        compiled = jitney.compile(fn, backend="eager")
        for made in ways:
            for passed in (0, 1):
                found, wanted = made(d), made(d)
                assert [next(found) for _ in range(passed)] == [next(wanted) for _ in range(passed)]
                with jitney.CompileProfiler() as profile:
                    told = outcome(compiled, found, torch.zeros(1))
                assert str(told) == str(outcome(fn, wanted, torch.zeros(1)))
                assert profile.graph_breaks == 0 or d is same or passed or made is not iter


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_an_iterator_over_a_dictionary_given_as_an_argument(kind: Any) -> None:
    def fn(it: Any, x: torch.Tensor) -> Any:
        return x + next(it), next(it, None)

    compiled = jitney.compile(fn, backend="eager")
    table = kind(a=1, b=2, c=3)
    found, wanted = iter(table.values()), iter(table.values())
    for _ in range(3):
        assert str(outcome(compiled, found, torch.zeros(1))) == str(outcome(fn, wanted, torch.zeros(1)))


SHARED = {
    "zip of one iterator twice": "it = iter(d)\nz = zip(it, it)\nB()\nout += z\nout += it",
    "in turn": "it = iter(d)\nz = zip(it, it)\nB()\nout.append(next(z))\nB()\nout.append(next(it, 0))\nout += z",
    "enumerate and its iterator": "it = iter(d)\ne = enumerate(it)\nnext(e)\nB()\nout += [next(it), next(e)]\n"
    "B()\nout += e",
    "pairs": "for a, b in zip(*[iter(d)] * 2):\n    B()\n    out.append((a, b))",
    "two over one list": "a, b = iter(d), iter(d)\nB()\nout += [next(a), next(b), *zip(a, b)]",
}


@pytest.mark.parametrize("body", SHARED.values(), ids=SHARED)
def test_one_iterator_advanced_in_two_ways(body: str) -> None:
    found, wanted = both(body, lambda: [1, 2, 3, 4])
    assert found == wanted


def test_two_iterators_given_as_arguments_may_be_one() -> None:
    def fn(a: Any, b: Any, x: torch.Tensor) -> Any:
        return x + next(a), next(b)

    def outcomes(called: Any) -> list[Any]:
        one, other, same = iter([1, 2, 3]), iter([1, 2, 3]), iter([1, 2, 3])
        return [str(called(one, other, torch.zeros(1))), str(called(same, same, torch.zeros(1)))]

    assert outcomes(jitney.compile(fn, backend="eager")) == outcomes(fn)


class Item:
    """Hashed by its address."""


def through_tensors(tensors: list[torch.Tensor], out: list[Any]) -> torch.Tensor:
    for tensor in {t for t in tensors}:  # noqa: C416
        jitney.graph_break()
        out.append(tensor)
    return tensors[0] + 1


def through_numbered_tensors(tensors: list[torch.Tensor], out: list[Any]) -> torch.Tensor:
    for _, tensor in enumerate(set(tensors)):
        jitney.graph_break()
        out.append(tensor)
    return tensors[0] + 1


def through_a_generator(tensors: list[torch.Tensor], out: list[Any]) -> torch.Tensor:
    for tensor in (t for t in frozenset(tensors)):
        jitney.graph_break()
        out.append(tensor)
    return tensors[0] + 1


def through_objects(tensors: list[torch.Tensor], out: list[Any]) -> torch.Tensor:
    items = {Item(): t for t in tensors}
    for item in set(items):
        jitney.graph_break()
        out.append(items[item])
    return tensors[0] + 1


@pytest.mark.parametrize("fn", [through_tensors, through_numbered_tensors, through_a_generator, through_objects])
def test_each_item_of_a_set_made_inside_once(fn: Callable[..., Any]) -> None:
    alive: list[Any] = []
    for number in range(8):  # addresses decide on the order
        tensors = []
        for i in range(5):
            alive.append([torch.zeros(1) for _ in range((i * 7 + number * 3) % 5)])
            tensors.append(torch.ones(2))
        compiled, out = jitney.compile(fn, backend="eager"), list[Any]()
        compiled(tensors, out)
        assert sorted(map(id, out)) == sorted(map(id, tensors))
