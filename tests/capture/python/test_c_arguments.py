"""C code called with too few, too many or wrong arguments: it raises what it raises in eager, in its own words."""

from __future__ import annotations

import builtins
import collections
import functools
import itertools
import operator
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check_scenario

from jitney.capture.interpreter import arity

Compile = Callable[[Any], Any]


class Names(dict[str, int]):
    pass


class Items(list[int]):
    pass


OWNERS: dict[str, Callable[[], Any]] = {
    "dict": lambda: {"a": 1, "b": 2},
    "list": lambda: [3, 1, 2],
    "set": lambda: {1, 2},
    "frozenset": lambda: frozenset({1, 2}),
    "tuple": lambda: (1, 2, 1),
    "str": lambda: "abc",
    "int": lambda: 5,
    "deque": lambda: collections.deque([1, 2]),
    "OrderedDict": lambda: collections.OrderedDict(a=1),
    "defaultdict": lambda: collections.defaultdict(int, a=1),
    "subclass of dict": lambda: Names(a=1),
    "subclass of list": lambda: Items((3, 1, 2)),
    "range": lambda: range(3),
    "None": lambda: None,
}
WRONG: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}), ((None,), {}), ((42,), {}), (("a",), {}), (([],), {}), ((1, 2), {}), ((1, 2, 3), {}), ((1, 2, 3, 4), {}),
    ((), {"zz": 1}), ((1,), {"zz": 1}),
]  # fmt: skip
# What they give is about the process, not about what they were called with.
LEFT_OUT = {"__init_subclass__", "__subclasshook__", "__class__", "__sizeof__", "__reduce__", "__reduce_ex__",
            "__dir__", "__getstate__", "__hash__", "__doc__"}  # fmt: skip
CLASSES = [
    dict, list, set, frozenset, tuple, str, bytes, int, float, bool, complex, range, slice, enumerate, zip, reversed,
    map, filter, collections.deque, collections.OrderedDict, collections.defaultdict, object, property, staticmethod,
    classmethod, type, types.SimpleNamespace, functools.partial, operator.itemgetter, operator.attrgetter,
    operator.methodcaller, types.MethodType, types.MappingProxyType, itertools.chain, itertools.repeat,
    itertools.product, itertools.islice, itertools.accumulate, itertools.zip_longest, itertools.starmap,
    ValueError, KeyError,
]  # fmt: skip
FUNCTIONS = (
    "abs all any ascii bin callable chr divmod format hex len max min oct ord pow repr round sorted sum getattr "
    "hasattr setattr delattr isinstance issubclass iter next vars type"
).split()


def shown(value: Any) -> Any:
    """What a call gave, as what two sides can be compared by."""
    if type(value) is tuple and value[:1] == ("raises",):
        return value
    if hasattr(type(value), "__next__"):  # which one, and what it gives, is for the tests of iterators
        return "iterator"
    if type(value).__name__.endswith(("_keys", "_values", "_items")):
        return type(value).__name__, list(value)
    plain = (int, float, complex, str, bytes, list, tuple, set, frozenset, dict, collections.deque, range, slice)
    return value if isinstance(value, plain) or value is NotImplemented else type(value).__name__


def calls(wrong: Any) -> Callable[[Callable[[], Any]], list[Any]]:
    """A function that makes each of the calls, with what is called made anew."""

    def fn(make: Callable[[], Any]) -> list[Any]:
        out: list[Any] = []
        for args, kwargs in wrong:
            try:
                out.append(make()(*args, **kwargs))
            except Exception as error:
                out.append(("raises", type(error).__name__, str(error)))
        return out

    return fn


def check_calls(make: Callable[[], Any], wrong: Any = WRONG) -> None:
    check_scenario(lambda compile: [shown(value) for value in compile(calls(wrong))(make)])


@pytest.mark.parametrize("kind", OWNERS)
def test_methods(kind: str) -> None:
    make = OWNERS[kind]
    for name in dir(make()):
        if name not in LEFT_OUT and callable(getattr(make(), name)):
            check_calls(lambda name=name: getattr(make(), name))  # type: ignore[misc]


@pytest.mark.parametrize("kind", [dict, list, set, tuple, str, int, object, type])
def test_methods_through_their_class(kind: Any) -> None:
    owner = int if kind is type else kind()
    wrong = [((*first, *args), kwargs) for first in ((), (None,), (owner,), (kind,)) for args, kwargs in WRONG]
    for name in ("__new__", "__init__", "__eq__", "__getattribute__", "__setattr__", "keys", "get", "append", "sort"):
        if hasattr(kind, name) and not (kind is type and name == "__new__"):
            check_calls(lambda name=name: getattr(kind, name), wrong)  # type: ignore[misc]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: str(kind.__name__))
def test_classes(kind: Any) -> None:
    check_calls(lambda: kind)


class Object:
    def __init__(self) -> None:
        self.a = 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_builtins(name: str) -> None:
    function = getattr(builtins, name)
    check_calls(lambda: function)
    forms = ("o", "o 1", "o a", "o a 3", "o a 3 4", "o None 3", "1 o", "1 int 3", "1 a")

    def scenario(compile: Compile) -> Any:
        values = {"o": Object(), "1": 1, "a": "a", "3": 3, "4": 4, "None": None, "int": int}
        wrong = [(tuple(values[part] for part in form.split()), {}) for form in forms]
        given = compile(calls(wrong))(lambda: function)
        return [type(value).__name__ if name in ("repr", "ascii", "format") else shown(value) for value in given]

    check_scenario(scenario)


@pytest.mark.parametrize("name", [n for n in dir(operator) if not n.startswith("_")])
def test_functions_of_operator(name: str) -> None:
    function = getattr(operator, name)
    check_calls(lambda: function)


RECEIVERS: tuple[Callable[[], Any], ...] = (
    lambda: [3, 1], lambda: (3, 1), lambda: {1: 2}, lambda: {1, 2}, lambda: frozenset((1, 2)), lambda: "a b",
    lambda: b"ab", lambda: 5, lambda: 2.5, lambda: 1j, lambda: range(4), lambda: slice(1, 2),
    lambda: collections.deque((1, 2)),
    lambda: collections.OrderedDict(a=1), lambda: collections.defaultdict(list, a=[1]), lambda: None, object,
    lambda: bytearray(b"ab"), lambda: ValueError("x"), lambda: iter([1, 2]), lambda: zip((1,), (2,)),
)  # fmt: skip
GIVEN: tuple[Any, ...] = (1, "a", None, (1, 2), {3}, [(1, 2)], {"a": 1}, str, len)


def test_what_c_code_takes_is_not_refused() -> None:
    """A row of the tables that is too narrow costs a graph break: there is none."""
    for make in RECEIVERS:
        for name in dir(make()):
            for args in [(), *((a,) for a in GIVEN), *itertools.product(GIVEN[:6], repeat=2)]:
                method = getattr(make(), name)
                if not isinstance(method, arity.METHODS) or name in ("__reduce_ex__", "__sizeof__"):
                    continue
                try:
                    method(*args)
                except Exception:
                    continue
                assert arity._takes(getattr(make(), name), list(args), {}), (make(), name, args)


def test_sets_take_up_several_at_once() -> None:
    def fn(x: Any, given: set[Any], *rest: Any) -> Any:
        given.update([x.sum()], (n for n in rest))
        own: set[Any] = set()
        own.update(*rest)
        return x + len(given) + sum(own)

    def scenario(compile: Compile) -> Any:
        given: set[Any] = {1}
        result = compile(fn)(torch.ones(2), given, iter([1, 2]), (n for n in (4, 5)))
        return result, len(given), any(type(value).__name__ == "FakeTensor" for value in given)

    check_scenario(scenario)
