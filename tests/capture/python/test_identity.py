"""Which object is which: aliases, objects as keys, weak references, ``is`` between values."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check_made, check_scenario, outcome, t

Compile = Callable[[Any], Any]


class Thing:
    def __init__(self, k: int = 0) -> None:
        self.k = k

    def method(self) -> int:
        return self.k


class Slotted:
    __slots__ = ("k",)

    def __init__(self, k: int = 0) -> None:
        self.k: Any = k


def test_alias_among_arguments_comes_and_goes() -> None:
    def scenario(compile: Compile) -> Any:
        def written(a: Any, b: Any, x: torch.Tensor) -> Any:
            a.k = x * 2
            return b.k

        def appended(a: Any, b: Any, x: torch.Tensor) -> Any:
            a.k.append(x)
            return len(b.k)

        write, append = compile(written), compile(appended)
        out = []
        for make in (Thing, Slotted):
            a, b, c = make(1), make(2), make(3)
            out += [write(a, b, t()), write(c, c, t()), write(a, b, t())]
        first, second = Thing(), Thing()
        first.k, second.k = [1], [2]  # type: ignore[assignment]
        out += [append(first, second, t()), append(first, first, t())]
        second.k = first.k
        return out + [append(first, second, t())]

    check_scenario(scenario)


def test_object_and_its_dictionary_and_a_global_object() -> None:
    def scenario(compile: Compile) -> Any:
        shared = Thing(1)

        def by_dict(obj: Any, storage: Any, x: torch.Tensor) -> Any:
            obj.k = 3
            return x * storage["k"]

        def by_cell(obj: Any, x: torch.Tensor) -> Any:
            obj.k = 9
            return x * shared.k

        first, second = compile(by_dict), compile(by_cell)
        obj = Thing(2)
        out = [first(obj, {"k": 5}, t()), first(obj, obj.__dict__, t())]
        return out + [second(obj, t()), second(shared, t())]

    check_scenario(scenario)


def test_two_functions_share_a_cell_or_do_not() -> None:
    def make() -> tuple[Any, Any]:
        n = 0

        def bump() -> None:
            nonlocal n
            n += 1

        return bump, lambda: n

    def scenario(compile: Compile) -> Any:
        def fn(bump: Any, get: Any, x: torch.Tensor) -> Any:
            bump()
            return x * get()

        called = compile(fn)
        (a, seen_a), (b, seen_b) = make(), make()
        for _ in range(5):
            b()
        return [called(*pair, t()) for pair in ((a, seen_a), (a, seen_a), (a, seen_b), (b, seen_b), (a, seen_b))]

    check_scenario(scenario)


@pytest.mark.parametrize("made", [Thing, lambda k: lambda: k, lambda k: torch.nn.Linear(k, 1)])
def test_objects_as_keys(made: Callable[[int], Any]) -> None:
    def scenario(compile: Compile) -> Any:
        a, b = made(1), made(2)
        table: dict[Any, Any] = {a: 2, b: 5}
        members, seen, memo = {a}, set(), {}

        def remember(obj: Any, x: torch.Tensor) -> Any:
            if obj not in seen:
                seen.add(obj)
                memo.setdefault(obj, []).append(x * len(seen))
            return memo[obj][0]

        calls = [
            compile(lambda obj, x: x * table[obj]),
            compile(lambda obj, x: x + 1 if obj in members else x - 1),
            compile(remember),
        ]
        out = [[call(obj, t()) for obj in (a, b, a, b)] for call in calls]
        members.add(b)
        return out, calls[1](b, t()), len(memo), [len(v) for v in memo.values()]

    check_scenario(scenario)


def test_tuples_and_methods_of_objects_as_keys() -> None:
    def scenario(compile: Compile) -> Any:
        a, b = Thing(1), Thing(2)
        table = {(a, 1): 2, (b, 1): 5}
        methods = {a.method: 3, b.method: 7}
        called = compile(lambda obj, x: x * table[(obj, 1)] + methods[obj.method])
        return [called(obj, t()) for obj in (a, b, a)]

    check_scenario(scenario)


# --- weak references ---------------------------------------------------------------------------------------------


def looked_up(d: Any, k: Any, x: torch.Tensor) -> Any:
    return x * d[k]


def got(d: Any, k: Any, x: torch.Tensor) -> Any:
    return x * d.get(k, 7)


def member(d: Any, k: Any, x: torch.Tensor) -> Any:
    return x + 1 if k in d else x - 1


def stored(d: Any, k: Any, x: torch.Tensor) -> Any:
    d[k] = len(d) + 2
    return x * d[k] + len(d)


def popped(d: Any, k: Any, x: torch.Tensor) -> Any:
    return x * d.pop(k, 9)


def deleted(d: Any, k: Any, x: torch.Tensor) -> Any:
    del d[k]
    return x * len(d)


def defaulted(d: Any, k: Any, x: torch.Tensor) -> Any:
    return x * d.setdefault(k, len(d) + 1)


@pytest.mark.parametrize("use", [looked_up, got, member, stored, popped, deleted, defaulted])
def test_weak_key_dictionary(use: Callable[..., Any]) -> None:
    def scenario(compile: Compile) -> Any:
        a, b, c = Thing(), Thing(), Thing()
        table = weakref.WeakKeyDictionary({a: 2, b: 5})
        called = compile(use)
        out = []
        for key in (a, b, c, a, c):
            result = outcome(called, table, key, t())
            out.append(type(result) if isinstance(result, Exception) else result)
        table[c] = 8
        return out, outcome(called, table, c, t()), len(table)

    check_scenario(scenario)


def test_weak_value_dictionary() -> None:
    def scenario(compile: Compile) -> Any:
        a, b = Thing(2), Thing(3)
        table: Any = weakref.WeakValueDictionary({"a": a, "b": b})
        call = compile(lambda key, x: x if table.get(key) is None else x * table[key].k + len(table))
        out = [call("a", t()), call("b", t())]
        table["a"] = b
        b.k = 8
        out += [call("a", t()), call("c", t())]
        table["c"] = a
        out.append(call("c", t()))
        del a
        gc.collect()
        return out + [call("c", t()), sorted(table)]

    check_scenario(scenario)


def test_weak_set() -> None:
    def scenario(compile: Compile) -> Any:
        a, b = Thing(2), Thing(3)
        seen: Any = weakref.WeakSet()

        def fn(obj: Any, x: torch.Tensor) -> Any:
            if obj in seen:
                return x - sum(o.k for o in seen)
            seen.add(obj)
            return x + len(seen)

        called = compile(fn)
        out = [called(obj, t()) for obj in (a, b, a, b)]
        seen.discard(a)
        out += [called(b, t()), called(a, t())]
        del b
        gc.collect()
        return out + [called(a, t()), len(seen)]

    check_scenario(scenario)


def test_weak_references_as_values() -> None:
    def scenario(compile: Compile) -> Any:
        a, b = Thing(2), Thing(3)
        table, members, listed = {weakref.ref(a): 2, weakref.ref(b): 5}, {weakref.ref(a)}, [weakref.ref(a)]
        calls = [
            compile(lambda o, p, x: x * table[weakref.ref(o)]),
            compile(lambda o, p, x: x + 1 if weakref.ref(o) in members else x - 1),
            compile(lambda o, p, x: x + 1 if weakref.ref(o) in listed else x - 1),
            compile(lambda o, p, x: x + 1 if weakref.ref(o) == weakref.ref(p) else x - 1),
            compile(lambda o, p, x: x + 1 if weakref.ref(o) is weakref.ref(p) else x - 1),
        ]
        return [[call(o, p, t()) for o, p in ((a, b), (b, b), (b, a), (a, a))] for call in calls]

    check_scenario(scenario)


def test_weak_reference_to_an_object_that_changes_and_dies() -> None:
    def scenario(compile: Compile) -> Any:
        class Holder:
            ref: Any = None

        a, b, holder = Thing(2), Thing(3), Holder()
        by_object = compile(lambda h, x: x if h.ref() is None else x * h.ref().k)
        by_method = compile(lambda h, x: x if h.ref() is None else x * h.ref()())
        out = []
        for called, make in ((by_object, weakref.ref), (by_method, lambda o: weakref.WeakMethod(o.method))):
            holder.ref = make(a)
            out.append(called(holder, t()))
            a.k += 3
            out.append(called(holder, t()))
            holder.ref = make(b)
            out.append(called(holder, t()))
        del b
        gc.collect()
        return out + [by_object(holder, t()), by_method(holder, t())]

    check_scenario(scenario)


# --- identity of values ---------------------------------------------------------------------------------------------


def test_is_between_equal_values() -> None:
    def scenario(compile: Compile) -> Any:
        called = compile(lambda x, a, b: x + 1 if a is b else x - 1)
        out = []
        for value, equal in (
            ((1000, 2), tuple([1000, 2])),
            (1.5, float("1.5")),
            ("some text", "".join(["some ", "text"])),
        ):
            out += [called(t(), value, value), called(t(), value, equal), called(t(), value, value)]
        return out + [called(t(), a, b) for a, b in ((5, 5), (5, 6), ("a", "a"), (True, 1), (None, None), ((), ()))]

    check_scenario(scenario)


def test_is_on_a_number_that_has_become_symbolic() -> None:
    def scenario(compile: Compile) -> Any:
        three = 3
        called = compile(lambda x, n: (x * n, n is three))
        return [called(t(), n) for n in (3, 4, 5, 3)]

    check_scenario(scenario)


def test_equal_keys_and_items_of_another_class_or_order() -> None:
    def scenario(compile: Compile) -> Any:
        called = compile(lambda x, items: (x * 1, [v for v in items]))
        grown: set[int] = set()
        grown.add(8)
        grown.add(0)
        values: list[Any] = [{1}, {True}, {1.0}, {1: 2}, {True: 2}, {1.0: 2}, {0, 8}, grown]
        return [called(t(), v) for v in (*values, frozenset([0, 8]), frozenset([8, 0]), range(0, 3, 2), range(0, 4, 2))]

    check_scenario(scenario)


def test_weak_dictionaries_are_part_of_the_graph() -> None:
    def make() -> Any:
        known: Any = weakref.WeakKeyDictionary()
        names: Any = weakref.WeakValueDictionary()

        class Layer(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> Any:
                state = known.setdefault(self, {"uses": 0})
                state["uses"] += 1
                return x * state["uses"] + len(known) + (names["thing"].k if "thing" in names else 0)

        names["thing"] = kept = Thing()
        kept.k = 3
        return torch.nn.Sequential(Layer(), Layer()), kept

    check_made(make, t(), calls=3, graphs=1, breaks=0)
