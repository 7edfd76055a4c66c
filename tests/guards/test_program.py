"""The guard program as text, and that conditions written together still fail one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import FRONTEND, Compiled, Observed, observe, t
from torch import nn

from jitney.guards import Guard, Pool, Program, Source

only_jitney = pytest.mark.skipif(FRONTEND != "jitney", reason="jitney's own names")


# --- the text ------------------------------------------------------------------------------------------------------


def guarded(source: Source, kind: str, expected: Any = None) -> Source:
    source.guards.append(Guard(source, kind, expected))
    return source


def lines(*roots: Source, wanted: tuple[Source, ...] = ()) -> list[str]:
    """The program for these sources, as lines."""
    program = Program(Pool())
    for source in wanted:
        program.expression(source)
    program.write(roots)
    return program.finish()


def test_conditions_on_one_object_are_one_if() -> None:
    root = guarded(Source(None, "local", "m"), "type", nn.Linear)
    storage = root.step("dict_of")
    guarded(storage, "lacks", "forward")
    weight = storage.item("_parameters").item("weight")
    guarded(storage.item("_hooks"), "empty")
    guarded(storage.item("training"), "is", True)
    guarded(storage.item("eps"), "equals", 0.5)
    assert lines(root, wanted=(weight,)) == [
        "if not (",
        "    _type(m) is _c2",
        "    and 'forward' not in (_at1 := m.__dict__)",
        "    and not _at1['_hooks']",
        "    and _at1['training'] is True",
        "    and ((_at2 := _at1['eps']) is _c3 or _c4(_at2, _c3))",
        "): return MISS",
        "_v0 = _at1['_parameters']['weight']",
    ]


def test_constants_named_often_are_read_once() -> None:
    root = Source(None, "local", "items")
    for i in range(12):
        guarded(root.item(i), "type", nn.Linear)
    first, *text = lines(root)
    assert first == "_type, _c2, = _often"
    assert text[1] == "    _type(items[0]) is _c2" and text[12] == "    and _type(items[11]) is _c2"


def test_long_conditions_are_cut() -> None:
    root = Source(None, "local", "items")
    for i in range(30):
        guarded(root.item(i), "is", None)
    text = lines(root)
    assert [line.startswith("if not") for line in text].count(True) == 3
    assert sum("is None" in line for line in text) == 30


def test_a_literal_that_looks_like_a_variable_stays_a_literal() -> None:
    root = Source(None, "local", "d")
    inner = root.item("_at1")
    guarded(inner, "lacks", "_at1")
    guarded(inner, "lacks", "_c2")
    assert lines(root) == [
        "if not (",
        "    '_at1' not in (_at1 := d['_at1'])",
        "    and '_c2' not in _at1",
        "): return MISS",
    ]


def test_names_that_classes_lack_are_asked_once_of_each_class() -> None:
    class Base:
        pass

    class First(Base):
        pass

    class Second(Base):
        pass

    first = guarded(guarded(Source(None, "const", First), "lacks_class_attr", "a"), "lacks_class_attr", "b")
    second = guarded(Source(None, "const", Second), "lacks_class_attr", "a")
    guarded(second.step("dict_of"), "disjoint", {"c", "a"})
    pool = Pool()
    program = Program(pool)
    program.write([first, second])
    text = program.finish()
    assert [line.strip().removeprefix("and ") for line in text[1:-1]] == [
        "_c2.__mro__ is _c4",
        "_c3.__mro__ is _c5",
        "'a' not in _c6 and 'b' not in _c6",
        "'a' not in _c7 and 'b' not in _c7",
        "'a' not in _c8 and 'c' not in _c8",
    ]
    assert pool.namespace["_c4"] == (First, Base, object) and pool.namespace["_c7"] == Base.__dict__.keys()


def test_cells_and_parts_of_code_need_no_check() -> None:
    def outer() -> Callable[[], int]:
        value = 1
        return lambda: value

    function = outer()
    cell = Source(None, "const", function).attr("__closure__")
    guarded(cell, "len", 1)
    guarded(cell.item(0).attr("cell_contents"), "is", 1)
    code = Source(None, "const", function.__code__)
    guarded(code.attr("co_varnames"), "equals", ())
    assert cell.base is not None
    assert lines(cell.base, code) == ["if not (_c4.cell_contents is 1): return MISS"]


# --- each condition by itself --------------------------------------------------------------------------------------


class Level(nn.Module):
    """A module of modules."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.scale = 0.5
        self.count = 1
        self.name = "level"
        self.shape = (2, 3)
        self.inner = Level(depth - 1) if depth else nn.Identity()
        self.second = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.inner(self.first(x) * self.scale + self.count))
        return x + len(self.name) if self.training else x * self.shape[1]


class Loud(nn.Linear):
    """Another class with the same attributes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 100


def _hook(*args: Any) -> None:
    return None


def _set(path: str, name: str, value: Any) -> Callable[[nn.Module], Any]:
    return lambda model: setattr(model.get_submodule(path), name, value)


CHANGES: dict[str, tuple[Callable[[nn.Module], Any], str]] = {
    "hook of the root": (lambda m: m.register_forward_hook(_hook), "_forward_hooks"),
    "pre-hook of a leaf": (lambda m: m.inner.inner.first.register_forward_pre_hook(_hook), "_forward_pre_hooks"),
    "hook of the last": (lambda m: m.second.register_forward_hook(_hook), "_modules['second']._forward_hooks"),
    "own forward": (_set("inner.first", "forward", lambda x: x * 7), "'forward'"),
    "own forward of the last": (_set("second", "forward", lambda x: x * 7), "'forward'"),
    "float": (_set("inner", "scale", 0.25), "scale"),
    "float of the innermost": (_set("inner.inner", "scale", 0.25), "_modules['inner']._modules['inner'].scale"),
    "int to equal bool": (_set("inner", "count", True), "count"),
    "int to equal float": (_set("inner.inner", "count", 1.0), "count"),
    "tuple with an equal bool": (_set("inner", "shape", (2, 3.0)), "shape"),
    "class of a leaf": (_set("inner.inner", "first", Loud(2, 2)), "type("),
    "class of the last": (_set("", "second", Loud(2, 2)), "type("),
    "mode of one": (lambda m: m.inner.inner.train(), "training"),
    "mode of the root": (lambda m: setattr(m, "training", True), "training"),
    "a parameter gone": (_set("inner.inner.second", "bias", None), "bias"),
    "a parameter's size": (lambda m: _set("inner", "second", nn.Linear(2, 1))(m), "weight"),
    "a parameter frozen": (lambda m: m.inner.second.weight.requires_grad_(False), "weight"),
    "a shared parameter": (lambda m: setattr(m.inner.second, "weight", m.second.weight), "one object"),
}


def check_change(seen: Observed, compiled: Compiled, says: str) -> None:
    """One compilation more, and one report that says this."""
    compiled(t(1, 2))
    compiled(t(1, 2))
    compiled.expect(2)
    if FRONTEND == "jitney":
        assert len(seen.recompiles) == 1 and says in seen.recompiles[0], seen.recompiles


@pytest.mark.parametrize("name", CHANGES)
def test_one_change_in_a_model_recompiles_once_and_is_named(name: str) -> None:
    change, says = CHANGES[name]
    model = Level(2).eval()
    compiled = Compiled(model)
    compiled(t(1, 2))
    compiled(t(1, 2))
    compiled.expect(1)
    change(model)
    with observe() as seen:
        check_change(seen, compiled, says)


def test_an_unrelated_change_does_not_recompile() -> None:
    model = Level(2).eval()
    compiled = Compiled(model)
    compiled(t(1, 2))
    model.inner.other = 1
    model.inner.first.weight = nn.Parameter(torch.ones(2, 2))
    model.inner.shape = (*model.inner.shape,)
    model.inner.scale = float("0.5")
    compiled(t(1, 2))
    compiled.expect(1)


class Grandparent:
    pass


class Parent(Grandparent):
    pass


class Other(Grandparent):
    pass


class Child(Parent):
    def __init__(self) -> None:
        self.alpha, self.beta = 2.0, 3.0


class Sibling(Parent):
    def __init__(self) -> None:
        self.alpha, self.gamma = 5.0, 7.0


class Adds:
    """A data descriptor: it goes before what the object itself has."""

    def __get__(self, instance: Any, owner: Any = None) -> float:
        return 100.0

    def __set__(self, instance: Any, value: Any) -> None:
        raise AttributeError


@only_jitney
@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("owner", [Child, Parent, Grandparent])
def test_a_class_that_gains_a_name(owner: type, name: str) -> None:
    def fn(x: torch.Tensor, a: Child, b: Sibling) -> torch.Tensor:
        return x * a.alpha + a.beta + b.alpha - b.gamma

    a, b = Child(), Sibling()
    compiled = Compiled(fn)
    compiled(t(1, 2), a, b)
    compiled(t(1, 2), a, b)
    compiled.expect(1)
    setattr(owner, name, Adds())
    try:
        with observe() as seen:
            compiled(t(1, 2), a, b)
            compiled(t(1, 2), a, b)
    finally:
        delattr(owner, name)
    compiled.expect(2)
    assert len(seen.recompiles) == 1 and f"has no attribute '{name}'" in seen.recompiles[0]
    compiled(t(1, 2), a, b)
    compiled.expect(2)


@only_jitney
def test_a_class_that_gains_another_name_or_changes_its_values() -> None:
    compiled = Compiled(lambda x, a: x * a.alpha)
    a = Child()
    compiled(t(1, 2), a)
    Parent.unrelated = 1  # type: ignore[attr-defined]
    try:
        compiled(t(1, 2), a)
    finally:
        del Parent.unrelated  # type: ignore[attr-defined]
    compiled.expect(1)


@only_jitney
def test_a_class_with_other_bases() -> None:
    compiled = Compiled(lambda x, a: x * a.alpha)
    a = Child()
    compiled(t(1, 2), a)
    Child.__bases__ = (Other,)
    try:
        with observe() as seen:
            compiled(t(1, 2), a)
            compiled.expect(2)
            Other.alpha = Adds()  # type: ignore[attr-defined]
            compiled(t(1, 2), a)
            compiled.expect(3)
    finally:
        Child.__bases__ = (Parent,)
        del Other.alpha  # type: ignore[attr-defined]
    assert "Child.__mro__" in seen.recompiles[0] and "'alpha'" in seen.recompiles[1]
    compiled(t(1, 2), a)  # Python makes the order anew, so that it is another object
    compiled.expect(4)


def test_nested_containers_share_variables_but_not_values() -> None:
    def make() -> dict[str, Any]:
        return {k: {"_at1": [1, {"_v0": n}], "_at2": {"_c2": n + 1}} for n, k in enumerate(("_at1", "b", "_v1"))}

    def fn(x: torch.Tensor, d: dict[str, Any]) -> list[torch.Tensor]:
        return [x * v["_at1"][1]["_v0"] + v["_at2"]["_c2"] for v in d.values()]

    compiled = Compiled(fn, dynamic=False)
    compiled(t(), make())
    compiled.expect(1)
    for n, key in enumerate(make()):
        for step in (0, 1):
            changed = make()
            if step:
                changed[key]["_at1"][1]["_v0"] = 10 + n
            else:
                changed[key]["_at2"]["_c2"] = 20 + n
            compiled(t(), changed)
            compiled.expect(2 + 2 * n + step)
    compiled(t(), make())
    compiled.expect(7)


# --- many tensors --------------------------------------------------------------------------------------------------


def test_many_tensors_are_passed_in_order_and_each_is_checked() -> None:
    def fn(*xs: torch.Tensor) -> torch.Tensor:
        total = xs[-1] * 2
        for i, x in enumerate(xs[3:]):
            total = total - x * i
        return total + xs[0] + xs[2] - xs[1] / 4

    xs = [t() + i for i in range(14)]
    for i in (0, 2, 13):
        compiled = Compiled(fn, dynamic=False)
        compiled(*xs)
        compiled(*reversed(xs))
        compiled.expect(1)
        with observe() as seen:
            compiled(*xs[:i], xs[i].double(), *xs[i + 1 :])
        compiled.expect(2)
        assert FRONTEND != "jitney" or f"xs[{i}] is Tensor" in seen.recompiles[0]


def test_many_tensors_of_which_some_are_symbolic_unused_or_one() -> None:
    def fn(xs: list[torch.Tensor], n: int) -> Any:
        y = sum(x * n for x in xs[1:])
        return y, xs[0]

    compiled = Compiled(fn)
    same = t(4, 2)
    for size, n in ((3, 2), (4, 2), (5, 3), (6, 4)):
        compiled([t(size, 2) + i for i in range(12)], n)
    compiled([same] * 12, 4)
    compiled([same, *(t(4, 2) for _ in range(11))], 4)


# --- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["_v0", "_at1", "_c7", "_o0", "_r0", "_graph", "_b", "_type", "_inputs", "_often", "MISS", "_x", "_kept"]
)
def test_parameters_named_like_emitted_variables(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def fn(x, {name}, d): return x * 2 + len({name}) + d['k'], {name}, [x + 1]", namespace)
    compiled = Compiled(namespace["fn"])
    compiled(t(), [1, 2], {"k": 3})
    compiled(t(), [1, 2, 3], {"k": 3})
    compiled(t(), [1, 2], {"k": 4})


def test_objects_with_attributes_named_like_emitted_variables() -> None:
    def fn(x: torch.Tensor, o: Any) -> torch.Tensor:
        return x * o._at1._v0 + o._c2 - o._type

    compiled = Compiled(fn, dynamic=False)
    compiled(t(), SimpleNamespace(_at1=SimpleNamespace(_v0=2), _c2=3, _type=4))
    compiled(t(), SimpleNamespace(_at1=SimpleNamespace(_v0=5), _c2=3, _type=4))
    compiled(t(), SimpleNamespace(_at1=SimpleNamespace(_v0=5), _c2=3, _type=6))
    compiled.expect(3)


def test_names_of_one_module_are_checked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Source(None, "const", math)
    for name in ("sin", "cos", "tan"):
        source = root.attr(name)
        source.guards.append(Guard(source, "is", getattr(math, name)))
    pool = Pool({"MISS": "miss"})
    program = Program(pool)
    program.write([root])
    lines = program.finish()
    assert len(lines) == 1
    exec("def holds():\n    " + lines[0] + "\n    return True", pool.namespace)
    holds = pool.namespace["holds"]
    assert holds() is True
    for name in ("sin", "cos", "tan"):
        with monkeypatch.context() as patch:
            patch.setattr(math, name, math.exp)
            assert holds() == "miss"
        assert holds() is True
