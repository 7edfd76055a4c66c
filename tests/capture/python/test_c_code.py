"""C code that would run Python methods, tell objects apart, use up iterators or print addresses."""

from __future__ import annotations

import bisect
import collections
import heapq
import itertools
import math
import operator
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check_scenario, outcome, t

Compile = Callable[[Any], Any]
Use = Callable[..., Any]
setting = {"k": 2}


class Number:
    """Its every answer depends on ``setting``."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def __floor__(self) -> int:
        return setting["k"]

    __ceil__ = __trunc__ = __length_hint__ = __floor__

    def __pow__(self, other: Any, modulo: Any = None) -> int:
        return setting["k"]

    __rpow__ = __rdivmod__ = __pow__

    def __bytes__(self) -> bytes:
        return bytes([setting["k"]])

    def __complex__(self) -> complex:
        return complex(setting["k"])

    def __gt__(self, other: Any) -> bool:
        return self.value > other.value if setting["k"] == 2 else self.value < other.value


class Equal:
    def __eq__(self, other: object) -> bool:
        return setting["k"] == 2

    def __hash__(self) -> int:
        return 1

    def __bool__(self) -> bool:
        return setting["k"] == 2


class Scaling(dict[str, int]):
    def __setitem__(self, key: str, value: int) -> None:
        dict.__setitem__(self, key, value * setting["k"])


NATIVE: dict[str, Use] = {
    "math.floor": lambda: math.floor(Number()),
    "math.ceil": lambda: math.ceil(Number()),
    "math.trunc": lambda: math.trunc(Number()),
    "pow": lambda: (pow(Number(), 2), pow(2, Number())),
    "bytes and complex": lambda: (bytes(Number()), complex(Number())),
    "divmod": lambda: divmod(3, Number()),
    "length_hint": lambda: operator.length_hint(Number()),
    "operator.call": lambda: operator.call(lambda v: v * setting["k"], 3),
    "max of arguments": lambda: max(Number(1), Number(2), Number(0)).value,
    "max of a list": lambda: max([Number(1), Number(2)]).value,
    "max of an iterator": lambda: max(iter([Number(1), Number(2)])).value,
    "sorted": lambda: [n.value for n in sorted([Number(2), Number(1)])],
    "heapq.nlargest": lambda: heapq.nlargest(1, [Number(1), Number(2)])[0].value,
    "bisect": lambda: bisect.bisect([1, 2, 3], 2, key=lambda v: v * setting["k"]),
    "list <": lambda: [Number(1), Number(2)] < [Number(2), Number(1)],
    "tuple >": lambda: (Number(1),) > (Number(2),),
    "countOf": lambda: operator.countOf([Equal(), Equal()], 3),
    "indexOf": lambda: outcome(operator.indexOf, [Equal()], 3),
    "list ==": lambda: ([Equal()] == [3], (1, Equal()) == (1, 3), {"a": Equal()} == {"a": 3}, [[Equal()]] != [[3]]),
    "deque": lambda: (collections.deque([Equal()]) == collections.deque([3]), collections.deque([Equal()]).count(3)),
    "index and remove": lambda: (outcome([Equal()].remove, 3), outcome((Equal(),).index, 3), outcome([1].index, 3)),
    "fromkeys": lambda: dict(Scaling.fromkeys(["a"], 3)),
    "accumulate": lambda: list(itertools.accumulate([1, 2, 3], lambda a, b: a + b * setting["k"])),
}


@pytest.mark.parametrize("name", NATIVE)
def test_c_code_that_runs_python_methods(name: str) -> None:
    def scenario(compile: Compile) -> Any:
        called = compile(lambda x: (x * 1, NATIVE[name]()))
        out = []
        for setting["k"] in (2, 5, 2):
            out.append(called(t()))
        return out

    check_scenario(scenario)


# --- two objects, or one under two names ---------------------------------------------------------------------------


class Plain:
    def method(self) -> None: ...


def changed(a: Any, b: Any) -> Any:
    s, d = {a}, {a: 1}
    s.add(b)
    d.update({b: 2})
    sizes = [len(s), len(d)]
    s |= {b}
    d |= {b: 3}
    s.discard(b)
    return sizes, len(s), len(d), d.pop(b, None), d.setdefault(a, 7)


APART: dict[str, Use] = {
    "displays": lambda a, b: (len({a, b}), len({a: 1, b: 2}), len({o for o in (a, b)}), len({o: 1 for o in (a, b)})),
    "constructors": lambda a, b: (len(set([a, b])), len(frozenset((a, b))), len(dict([(a, 1), (b, 2)]))),
    "fromkeys": lambda a, b: len(dict.fromkeys([a, b])),
    "counter": lambda a, b: len(collections.Counter([a, b])),
    "look-ups": lambda a, b: ({a: 1}.get(b), b in {a: 1}, b in {a}, b in frozenset([a]), b in (a,), [a, a].count(b)),
    "updates": changed,
    "set operators": lambda a, b: (len({a} & {b}), len({a} | {b}), len({a} - {b}), {a} <= {b}, {a} == {b}),
    "set methods": lambda a, b: ({a}.isdisjoint([b]), len({a}.union([b])), len(frozenset([a]).difference([b]))),
    "views": lambda a, b: ({a: 1}.keys() & {b: 1}.keys() == set(), {1: a}.items() == {1: b}.items()),
    "containers": lambda a, b: ([a] == [b], (a, 1) == (b, 1), {"k": a} == {"k": b}, [[a]] != [[b]], (a, 1) in [(b, 1)]),
    "tuples as keys": lambda a, b: (len({(a, 1), (b, 1)}), {(a, 1): 1}.get((b, 1))),
    "methods": lambda a, b: (a.method == b.method, a.method in [b.method], len({a.method, b.method})),
    "identity": lambda a, b: (a is not b, a == b, id(a) == id(b)),
}


@pytest.mark.parametrize("name", APART)
def test_objects_told_apart_by_c_code(name: str) -> None:
    def scenario(compile: Compile) -> Any:
        a, b = Plain(), Plain()
        called = compile(lambda x, a, b: (x * 1, APART[name](a, b)))
        return [called(t(), *pair) for pair in ((a, b), (a, a), (b, a), (b, b), (a, b))]

    check_scenario(scenario)


@pytest.mark.parametrize("name", [n for n in APART if n != "methods"])
def test_functions_told_apart_by_c_code(name: str) -> None:
    def scenario(compile: Compile) -> Any:
        a, b = [(lambda k: lambda: k)(k) for k in (1, 2)]
        called = compile(lambda x, a, b: (x * 1, APART[name](a, b)))
        return [called(t(), *pair) for pair in ((a, b), (a, a), (b, a), (b, b), (a, b))]

    check_scenario(scenario)


OVERLAP: dict[str, Use] = {
    "operators": lambda a, b: (len(a & b), len(a | b), a == b, a <= b),
    "methods": lambda a, b: (a.issubset(b), a.isdisjoint(b), len(a.union(b)), len(a.difference(b))),
    "as lists": lambda a, b: (list(a) == list(b), len({*a, *b}), list(a)[0] in b),
    "as dictionaries": lambda a, b: (dict.fromkeys(a, 1) == dict.fromkeys(b, 1), len(dict(zip(a, b, strict=True)))),
}


@pytest.mark.parametrize("kind", [set, frozenset])
@pytest.mark.parametrize("name", OVERLAP)
def test_sets_from_outside_that_overlap_or_do_not(name: str, kind: Any) -> None:
    def scenario(compile: Compile) -> Any:
        a, b = Plain(), Plain()
        called = compile(lambda x, s, o: (x * 1, OVERLAP[name](s, o)))
        pairs = (([a], [b]), ([a], [a]), ([b], [b]), ([b], [a]))
        return [called(t(), kind(s), kind(o)) for s, o in pairs]

    check_scenario(scenario)


# --- text ----------------------------------------------------------------------------------------------------------

TEXTS: dict[str, Use] = {
    "f-string": lambda v: f"{v}",
    "repr": repr,
    "percent": lambda v: "%s" % (v,),
    "in a list": lambda v: str([v]),
    "in a dictionary": lambda v: f"{ {'k': [v]} }",
    "format": lambda v: "{} {k}".format([v], k=v),
    "hash": lambda v: (hash(v), hash((v, 1))),
    "id": id,
}


@pytest.mark.parametrize("kind", ["function", "object"])
@pytest.mark.parametrize("name", TEXTS)
def test_addresses_of_objects_are_no_constants(name: str, kind: str) -> None:
    def scenario(compile: Compile) -> Any:
        make = {"function": lambda k: lambda: k, "object": lambda k: Plain()}[kind]
        called = compile(lambda x, v: (x * 1, TEXTS[name](v)))
        values = [make(k) for k in range(3)]
        return [called(t(), v)[1] == TEXTS[name](v) for v in (*values, values[0])]

    check_scenario(scenario)


def test_module_with_its_own_getattr() -> None:
    def scenario(compile: Compile) -> Any:
        module = types.ModuleType("made_here")
        module.__getattr__ = lambda name: setting["k"] * len(name)  # type: ignore[method-assign]
        called = compile(lambda x: x * module.abc)
        out = []
        for setting["k"] in (2, 5):
            out.append(called(t()))
        module.abc = 7  # type: ignore[attr-defined]
        return out + [called(t())]

    check_scenario(scenario)


# --- iterators that an instruction has begun to use up ----------------------------------------------------------------

ITERATORS: dict[str, Use] = {
    "list": lambda: iter([1, 2, torch.ones(1), 3]),
    "generator": lambda: (v for v in [1, 2, torch.ones(1), 3]),
    "map": lambda: map(lambda v: v + 1, [1, 2, torch.ones(1)]),
    "zip": lambda: zip([1, 2], [3, torch.ones(1)], strict=True),
    "objects": lambda: iter([Equal(), Equal(), 5]),
}
CONSUMERS: dict[str, Use] = {
    "any": any,
    "all": all,
    "sum": sum,
    "in": lambda i: 5 in i,
    "set": lambda i: len(set(i)),
    "fromkeys": lambda i: len(dict.fromkeys(i)),
    "max": max,
    "sorted": sorted,
    "dict": lambda i: len(dict(i)),
    "islice": lambda i: tuple(itertools.islice(i, 2)),
    "join": lambda i: len(",".join(map(str, i))),
    "min with key": lambda i: min(i, key=lambda v: setting["k"]),
}


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("made", ITERATORS)
def test_instruction_that_breaks_after_it_took_from_an_iterator(made: str, consumer: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        values = ITERATORS[made]()
        return x * 1, CONSUMERS[consumer](values), next(values, "end")

    def scenario(compile: Compile) -> Any:
        called = compile(fn)
        out = []
        for setting["k"] in (2, 5, 5):
            result = outcome(called, t())
            out.append(type(result) if isinstance(result, Exception) else result)
        return out

    check_scenario(scenario)
