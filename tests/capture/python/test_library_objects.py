"""Objects of the standard library in captured code: patterns, getters, dispatchers, modules that are not loaded yet."""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import operator
import os
import pathlib
import re
import sys
import textwrap
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import check, check_made, t

import jitney

Fn = Callable[..., Any]
LAYER = re.compile(r"layer_(\d+)\.(?P<name>\w+)")

TEXT: dict[str, Fn] = {
    "match": lambda x: x * int(LAYER.match("layer_12.weight").group(1)),  # type: ignore[union-attr]
    "no match": lambda x: (LAYER.match("q") is None, x + 1),
    "names": lambda x: (lambda m: (m["name"], m.groupdict(), m.span("name"), x + 1))(LAYER.search("layer_1.b")),
    "sub": lambda x: (re.sub("a", "b", "aa"), re.compile("a").sub(lambda m: m.group() * 2, "bab"), x + 1),
    "sub with a function": lambda x: (re.sub("_([a-z])", lambda m: m[1].upper(), "to_camel_case", count=1), x + 1),
    "others": lambda x: (LAYER.pattern, re.findall("a.", "abac"), re.compile(",").split("a,b"), LAYER.flags, x + 1),
    "finditer": lambda x: ([m.group() for m in re.compile(r"\d").finditer("a1b2")], x + 1),
    "paths": lambda x: ((pathlib.Path("/a") / "b.txt").suffix, os.path.join("a", "b"), os.fspath("c"), x + 1),
    "limits of dtypes": lambda x: x.masked_fill(x > 0, float(np.finfo(np.float32).min)) + np.iinfo(np.int8).max,
}  # fmt: skip


@pytest.mark.parametrize("fn", TEXT.values(), ids=TEXT)
def test_text_is_taken_apart_while_capturing(fn: Fn) -> None:
    check(fn, t(), graphs=1, breaks=0)


def test_a_pattern_that_is_given_is_guarded() -> None:
    compiled = jitney.compile(lambda x, p: x * len(p.findall("abcab")), backend="eager", fullgraph=True)
    for pattern, count in (("a", 2), ("[abc]", 5), ("a", 2), ("z", 0)):
        assert torch.equal(compiled(t(), re.compile(pattern)), t() * count)


def test_getters_that_are_given_are_guarded() -> None:
    def fn(x: torch.Tensor, getter: Any) -> Any:
        return getter([x, x + 1, 2 * x]) if type(getter) is operator.itemgetter else getter(x)

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    for getter in (
        operator.itemgetter(0), operator.itemgetter(2), operator.itemgetter(1), operator.attrgetter("data"),
        operator.methodcaller("mul", 3), operator.methodcaller("mul", 4), operator.itemgetter(1, 2),
    ):  # fmt: skip
        for expected, got in zip(fn(t(), getter), compiled(t(), getter), strict=True):
            assert torch.equal(expected, got)


def test_a_getter_with_objects_in_it_is_pythons() -> None:
    check(lambda x, g: g(x), t(), operator.methodcaller("mul", 2.5))


class Combiner:
    @functools.singledispatchmethod
    def combine(self, value: Any, x: torch.Tensor) -> Any:
        return "other"

    @combine.register
    def _(self, value: int, x: torch.Tensor) -> Any:
        return x * value

    @combine.register
    def _(self, value: torch.Tensor, x: torch.Tensor) -> Any:
        return x + value


def test_single_dispatch() -> None:
    def fn(x: torch.Tensor) -> Any:
        return describe(2, x), describe([1, True], x), describe(x, x), describe("a", x), Combiner().combine(3, x)

    @functools.singledispatch
    def describe(value: Any, x: torch.Tensor) -> Any:
        return x

    @describe.register(int)
    def _(value: int, x: torch.Tensor) -> Any:
        return x * value

    @describe.register(list)
    def _(value: list[Any], x: torch.Tensor) -> Any:
        return sum(describe(v, x) for v in value)

    @describe.register(torch.Tensor)
    def _(value: torch.Tensor, x: torch.Tensor) -> Any:
        return x + value

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        for expected, got in zip(fn(t()), compiled(t()), strict=True):
            assert torch.equal(expected, got)
        describe.register(bool, lambda value, x: x - 7)  # the second time, another one is found


def test_a_function_that_is_registered_inside_is_found() -> None:
    def make() -> Fn:
        @functools.singledispatch
        def describe(value: Any) -> str:
            return "any"

        def fn(x: torch.Tensor) -> Any:
            before = describe(1)
            describe.register(int, lambda value: "int")
            return before, describe(1), x + 1

        return fn

    check_made(make, t(), calls=2, skips=None)


@pytest.fixture
def lazy(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that can be imported and is not."""
    (tmp_path / "loaded_late.py").write_text(
        textwrap.dedent("""
        import torch

        TABLE = torch.arange(3.0)
        LOADED = torch.is_grad_enabled()

        def scale(x):
            return x * TABLE
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "loaded_late", raising=False)
    return "loaded_late"


def test_a_module_is_loaded_by_python(lazy: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x + 1
        from loaded_late import scale  # type: ignore[import-not-found]

        return scale(y)

    got = jitney.compile(fn, backend="eager")(torch.ones(3))
    assert torch.equal(got, fn(torch.ones(3)))
    assert type(sys.modules[lazy].TABLE) is torch.Tensor


def test_a_module_is_not_loaded_ahead_of_writes(lazy: str) -> None:
    def fn(x: torch.Tensor, log: list[str]) -> Any:
        log.append(str(lazy in sys.modules))
        import loaded_late

        return x * loaded_late.TABLE, len(log)

    log: list[str] = []
    got = jitney.compile(fn, backend="eager")(torch.ones(3), log)
    assert torch.equal(got[0], torch.arange(3.0))
    assert log == ["False"]


def test_a_module_that_is_missing(lazy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(x: torch.Tensor) -> Any:
        try:
            import not_there_at_all.inner  # type: ignore[import-not-found]
        except ImportError as error:
            return x + 1, str(error)
        return x + not_there_at_all.inner, ""

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(t())[0], t() + 1)
        assert compiled(t())[1] == fn(t())[1]
    package = type(sys)("not_there_at_all")
    package.inner = 5  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "not_there_at_all", package)
    monkeypatch.setitem(sys.modules, "not_there_at_all.inner", package)
    assert torch.equal(compiled(t())[0], t() + 5)


def test_a_module_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def scale(x: torch.Tensor) -> Any:
        try:
            import replaced_later.inner as inner  # type: ignore[import-not-found]
        except ImportError as error:
            return x, str(error)
        return x * inner.factor, ""

    def package(factor: float) -> None:
        made: Any = type(sys)("replaced_later")
        made.inner = type(sys)("replaced_later.inner")
        made.inner.factor = factor
        monkeypatch.setitem(sys.modules, "replaced_later", made)
        monkeypatch.setitem(sys.modules, "replaced_later.inner", made.inner)

    compiled = jitney.compile(scale, backend="eager", fullgraph=True)
    for factor in (2.0, 3.0):
        package(factor)
        assert torch.equal(compiled(t())[0], t() * factor)
    monkeypatch.setitem(sys.modules, "replaced_later.inner", None)
    assert compiled(t())[1] == scale(t())[1] != ""
    package(4.0)
    assert torch.equal(compiled(t())[0], t() * 4)
    monkeypatch.delitem(sys.modules, "replaced_later")
    fresh = jitney.compile(scale, backend="eager")
    for called in (compiled, fresh):
        assert called(t())[1] == scale(t())[1] != ""


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    labels: list[int]
    mask: torch.Tensor | None = None


def test_deep_copies_of_tensors() -> None:
    def fn(x: torch.Tensor) -> Any:
        batch = Batch(x, [1, 2], x > 0)
        made = dataclasses.asdict(batch)
        twice = copy.deepcopy({"a": x, "again": x, "b": [x * 2, 3]})
        twice["a"].add_(1)
        made["labels"].append(3)
        return made, batch.labels, twice, twice["a"] is twice["again"], twice["a"] is x, x + 1

    check(fn, t(), graphs=1, breaks=0)


COPIED: dict[str, Fn] = {
    "views of one": lambda x: (lambda a, b: (a.add_(1), b))(*copy.deepcopy((x[:1], x[1:]))),
    "a transposed one": lambda x: copy.deepcopy(x.unsqueeze(0).expand(2, -1).t()).stride(),
    "with a gradient": lambda x: copy.deepcopy(x.detach().requires_grad_()).requires_grad,
    "a parameter": lambda x: type(copy.deepcopy(torch.nn.Parameter(x))),
}


@pytest.mark.parametrize("fn", COPIED.values(), ids=COPIED)
def test_deep_copies_that_are_more_than_clones_are_pythons(fn: Fn) -> None:
    check(lambda x: (fn(x), x + 1), t(), skips=None)


def test_inputs_that_share_memory_share_it_in_their_copies() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        made = copy.deepcopy([a, b])
        made[0].add_(1)
        return made[1] * 1

    compiled = jitney.compile(fn, backend="eager")
    base = torch.zeros(3)
    for a, b in ((torch.zeros(3), torch.zeros(3)), (base, base.view(3)), (torch.zeros(3), torch.zeros(3))):
        assert torch.equal(compiled(a, b), fn(a, b))


def test_references_of_a_class_of_their_own() -> None:
    class Receiver:
        def __init__(self, scale: int) -> None:
            self.scale = scale

        def receive(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    def fn(x: torch.Tensor, references: list[Any]) -> Any:
        for reference in references:
            method = reference()
            x = x if method is None else method(x)
        return x

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    kept, gone = Receiver(2), Receiver(3)
    references = [weakref.WeakMethod(kept.receive), weakref.WeakMethod(gone.receive)]
    assert [compiled(torch.ones(1), references).tolist() for _ in range(2)] == [[6], [6]]
    del gone
    gc.collect()
    assert [compiled(torch.ones(1), references).tolist() for _ in range(2)] == [[2], [2]]


def test_trees_with_sizes_are_taken_apart_in_the_graph() -> None:
    def fn(x: torch.Tensor) -> Any:
        tree = {"x": x, "size": x.shape, "rest": [torch.Size([2]), 3]}
        leaves, spec = torch.utils._pytree.tree_flatten(tree)
        mapped = torch.utils._pytree.tree_map_only(torch.Tensor, torch.sin, tree)
        return torch.utils._pytree.tree_unflatten(leaves, spec), mapped, type(mapped["size"]).__name__

    check(fn, t(), graphs=1, breaks=0)
