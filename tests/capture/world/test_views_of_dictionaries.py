"""Views of dictionaries from outside: what the program reads of them is what capture has of the dictionary."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney

USES: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "len": lambda x, view: x * len(view),
    "iteration": lambda x, view: [x for _ in view],
    "list": lambda x, view: (x, list(view)),
    "truth": lambda x, view: x * 2 if view else x,
    "zip": lambda x, view: (x, list(zip(view, range(5), strict=False))),
    "search": lambda x, view: x * 2 if "a" in view else x,
    "backwards": lambda x, view: (x, list(reversed(view))),
    "itself": lambda x, view: (x, view),
}


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
@pytest.mark.parametrize("name", ["keys", "values", "items"])
@pytest.mark.parametrize("use", USES)
def test_a_view_is_read_in_the_graph(use: str, name: str, kind: type) -> None:
    fn = USES[use]
    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for content in ({"a": 1, "b": 2}, {"a": 1, "b": 2}, {"b": 2}, {"b": 2, "a": 3}, {}):
        view = getattr(kind(content), name)()
        wanted, got = fn(x, view), compiled(x, view)
        assert str(got) == str(wanted)
        if use == "itself":
            assert got[1] is view


def test_tensors_of_a_view_are_inputs_of_the_graph() -> None:
    compiled = jitney.compile(lambda x, view: [x * y for y in view], backend="eager", fullgraph=True)
    for size in (2, 3, 4):
        values = {"a": torch.randn(size), "b": torch.randn(size)}
        torch.testing.assert_close(compiled(torch.ones(size), values.values()), list(values.values()))


def written(x: torch.Tensor, table: dict[str, int], view: Any) -> Any:
    table["new"] = 4
    return x * len(view), list(view)


def popped(x: torch.Tensor, table: dict[str, int], view: Any) -> Any:
    before = list(view)
    table.pop("a")
    return x * len(view), before, view


@pytest.mark.parametrize("fn", [written, popped])
def test_a_view_sees_what_the_frame_writes(fn: Any) -> None:
    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        for other in (False, True):  # a view of this dictionary, or of one like it
            results = []
            for run in (fn, compiled):
                table = {"a": 1, "b": 2}
                view = {"a": 1, "b": 2}.keys() if other else table.keys()
                results.append((str(run(torch.ones(2), table, view)), table, list(view)))
            assert results[0] == results[1]


def test_views_are_told_apart() -> None:
    def fn(x: torch.Tensor, one: Any, other: Any) -> Any:
        return one is other, one == other, x + 1

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    keys = {"a": 1}.keys()
    for one, other in ((keys, keys), (keys, {"a": 1}.keys()), (keys, {"b": 1}.keys()), (keys, keys)):
        assert compiled(torch.ones(2), one, other)[:2] == (one is other, one == other)


def test_a_dictionary_that_holds_its_own_view() -> None:
    def fn(x: torch.Tensor, table: Any) -> torch.Tensor:
        return x * len(table["keys"])

    table: dict[str, Any] = {"a": 1}
    table["keys"] = table.keys()
    compiled = jitney.compile(fn, backend="eager")
    for size in (2, 3):
        table[str(size)] = size
        assert compiled(torch.ones(1), table).tolist() == [size + 1]


class Plain:
    first = 1


def test_a_view_of_a_namespace_sees_what_the_frame_sets() -> None:
    def of_class(x: torch.Tensor, view: Any) -> torch.Tensor:
        Plain.second = 2  # type: ignore[attr-defined]
        return x * ("second" in view)

    def of_instance(x: torch.Tensor, plain: Any, view: Any) -> torch.Tensor:
        plain.second = 2
        return x * ("second" in view)

    x = torch.ones(2)
    assert jitney.compile(of_class, backend="eager")(x, vars(Plain).keys()).tolist() == [1, 1]
    compiled = jitney.compile(of_instance, backend="eager")
    for _ in range(2):
        plain = Plain()
        assert compiled(x, plain, vars(plain).keys()).tolist() == [1, 1]


PROXY_USES: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    **{name: use for name, use in USES.items() if name != "zip"},
    "item": lambda x, proxy: x * proxy["b"],
    "get": lambda x, proxy: (x, proxy.get("a"), proxy.get("z", 3)),
    "items": lambda x, proxy: [x * value for _, value in proxy.items()],
    "views": lambda x, proxy: (x, proxy.keys(), list(proxy.values()), proxy.copy()),
    "dict": lambda x, proxy: (x, dict(proxy), {**proxy}, proxy | {"z": 1}),
    "arguments": lambda x, proxy: dict(x=x, **proxy),
    "equality": lambda x, proxy: (x, proxy == {"a": 1, "b": 2}),
}


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
@pytest.mark.parametrize("use", PROXY_USES)
def test_a_proxy_is_read_in_the_graph(use: str, kind: type) -> None:
    fn = PROXY_USES[use]
    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    x, table = torch.ones(2), kind(a=1, b=2)
    proxy = types.MappingProxyType(table)
    for change in ({}, {"b": 3}, {"c": 4}):
        table.update(change)
        wanted, got = fn(x, proxy), compiled(x, proxy)
        assert str(got) == str(wanted)
        if use == "itself":
            assert got[1] is proxy


def test_a_proxy_sees_what_the_frame_writes() -> None:
    def fn(x: torch.Tensor, table: dict[str, int], proxy: Any) -> Any:
        table["new"] = len(proxy)
        return x * len(proxy), list(proxy), proxy.get("new")

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    for other in (False, True, False):
        results = []
        for run in (fn, compiled):
            table = {"a": 1}
            results.append(
                (str(run(torch.ones(2), table, types.MappingProxyType({"b": 1} if other else table))), table)
            )
        assert results[0] == results[1]


class Doubled(dict[str, int]):
    def __getitem__(self, key: str) -> int:
        return 2 * super().__getitem__(key)


def test_a_proxy_of_a_class_of_the_programs_asks_its_methods() -> None:
    proxy = types.MappingProxyType(Doubled(a=2))
    compiled = jitney.compile(lambda x: x * proxy["a"], backend="eager")
    assert compiled(torch.ones(1)).tolist() == [4]
