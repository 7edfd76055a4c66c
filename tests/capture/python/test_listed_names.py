"""``dir()`` of classes and objects: the names are constants of the capture, which guards hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney
from jitney.errors import Unsupported


class Listed(type):
    """As libraries list what they offer."""

    def all(cls) -> list[str]:
        return sorted(getattr(cls, name) for name in dir(cls) if not name.startswith("__"))


class Base:
    zero = "zero"


class Names(Base, metaclass=Listed):
    euler = "first"
    heun = "second"


class Plain:
    limit = 3

    def method(self) -> int:
        return 1


class Slotted:
    __slots__ = ("value",)


class Own(Plain):
    def __dir__(self) -> list[str]:
        return ["z", *vars(self), "a"]


class Hidden(Plain):
    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return {"unlike": 1}


def filled(kind: type = Plain) -> Any:
    found = kind()
    found.scale = 2.0
    return found


def names(x: torch.Tensor, value: Any) -> Any:
    return x * len(dir(value)), dir(value)


MAKERS: dict[str, Callable[[], Any]] = {
    "class": lambda: Names,
    "instance": filled,
    "own": lambda: filled(Own),
    "slots": Slotted,
    "module": lambda: torch.nn.Linear(2, 2),
    "module of torch": lambda: torch.nn.functional,
    "number": lambda: 3,
    "function": lambda: filled,
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_names_are_those_that_python_lists(name: str) -> None:
    compiled = jitney.compile(names, backend="eager", fullgraph=True)
    for _ in range(2):
        value = MAKERS[name]()
        wanted, got = names(torch.ones(2), value), compiled(torch.ones(2), value)
        assert got[0].tolist() == wanted[0].tolist() and got[1] == wanted[1]


def test_a_metaclass_lists_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(x: torch.Tensor) -> Any:
        return x * ("third" in Names.all()), Names.all()

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    assert compiled(torch.ones(2))[1] == fn(torch.ones(2))[1]
    monkeypatch.setattr(Base, "rk", "third", raising=False)
    assert compiled(torch.ones(2))[1] == ["first", "second", "third", "zero"]
    monkeypatch.delattr(Names, "euler")
    assert compiled(torch.ones(2))[1] == ["second", "third", "zero"]


def test_names_of_an_instance_are_those_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = jitney.compile(names, backend="eager", fullgraph=True)
    value = filled()
    for change in (lambda: None, lambda: setattr(value, "more", 1), lambda: delattr(value, "scale")):
        change()
        assert compiled(torch.ones(2), value)[1] == dir(value)
    monkeypatch.setattr(Plain, "later", 1, raising=False)
    assert compiled(torch.ones(2), value)[1] == dir(value)


def test_names_that_the_frame_has_set() -> None:
    def fn(x: torch.Tensor, value: Any) -> Any:
        value.early = 1
        fresh = Plain()
        fresh.late = x  # type: ignore[attr-defined]
        return x, dir(value), dir(fresh)

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        assert compiled(torch.ones(2), filled())[1:] == fn(torch.ones(2), filled())[1:]


def test_names_that_the_frame_has_set_on_the_class() -> None:
    def fn(x: torch.Tensor) -> Any:
        Slotted.early = 1  # type: ignore[attr-defined]
        return x, "early" in dir(Slotted), "early" in dir(Slotted())

    try:
        assert jitney.compile(fn, backend="eager")(torch.ones(2))[1:] == (True, True)
    finally:
        del Slotted.early  # type: ignore[attr-defined]


def test_an_object_that_says_otherwise_what_it_has_is_refused() -> None:
    value = Hidden()
    compiled = jitney.compile(names, backend="eager")
    assert compiled(torch.ones(2), value)[1] == dir(value)
    with pytest.raises(Unsupported, match=r"dir\(\) of a Hidden"):
        jitney.compile(names, backend="eager", fullgraph=True)(torch.ones(2), value)


def test_names_of_a_tensor_are_a_graph_break() -> None:
    value = torch.ones(2)
    assert jitney.compile(names, backend="eager")(torch.ones(2), value)[1] == dir(value)


class Settings:
    rate = 0.5
    scale = torch.ones(2)
    steps = [1, 2]  # noqa: RUF012

    @classmethod
    def public(cls) -> dict[str, Any]:
        return {k: v for k, v in vars(cls).items() if not k.startswith("_") and not isinstance(v, classmethod)}


class Derived(Settings):
    extra = 1


def asked(x: torch.Tensor) -> Any:
    own = ["rate" in kind.__dict__ for kind in Derived.__mro__]
    return x * Settings.__dict__["rate"], own, Settings.public(), Derived.__dict__.get("rate", 0), {**vars(Derived)}


def same_answer(found: Any, wanted: Any) -> bool:
    x, own, public, rate, derived = found
    same = torch.equal(x, wanted[0]) and (own, rate, derived) == (wanted[1], wanted[3], wanted[4])
    return bool(same) and list(public) == list(wanted[2]) and all(public[k] is vars(Settings)[k] for k in ("scale",))


def test_the_namespace_of_a_class_is_read_in_the_graph_and_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = jitney.compile(asked, backend="eager", fullgraph=True)
    x = torch.ones(2)
    assert same_answer(compiled(x), asked(x))
    for owner, name, value in ((Settings, "rate", 2.0), (Derived, "rate", 4), (Settings, "steps", [5])):
        monkeypatch.setattr(owner, name, value, raising=False)
        assert same_answer(compiled(x), asked(x))


def test_a_write_to_a_class_whose_namespace_was_read_shows_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(x: torch.Tensor, value: int) -> Any:
        names = vars(Derived)
        Derived.extra = value
        return x * names["extra"]

    monkeypatch.setattr(Derived, "extra", 1)
    x = torch.ones(2)
    compiled = jitney.compile(fn, backend="eager")
    assert [compiled(x, n).tolist() for n in (3, 4)] == [[3.0, 3.0], [4.0, 4.0]]
    assert Derived.extra == 4
