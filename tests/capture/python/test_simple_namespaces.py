"""Subclasses of ``types.SimpleNamespace``: made, written to and read in the graph."""

from __future__ import annotations

import types
from typing import Any

import torch
from helpers import t

import jitney


class Space(types.SimpleNamespace):
    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value * 2)


class OwnSpace(types.SimpleNamespace):
    def __init__(self, a: int, **rest: Any) -> None:
        super().__init__(a=a, **rest)
        self.b = 1


def test_subclasses_of_namespaces_are_made_in_the_graph() -> None:
    def fn(x: torch.Tensor, n: int) -> Any:
        space, own = Space(scale=n, w=x * 2), OwnSpace(4, q=x)
        space.twice = 3
        return x * space["scale"] + space.w + own.a, space, own, vars(own), vars(space)

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    for n in (2, 3):
        found, wanted = compiled(t(2), n), fn(t(2), n)
        assert type(found[1]) is Space and vars(found[1]) is found[4]
        assert repr(found) == repr(wanted)


def test_init_of_a_namespace_from_outside_waits_for_the_graph() -> None:
    def fn(x: torch.Tensor, space: Any) -> Any:
        space.__init__(m=x, n=2)
        return x * space.n

    compiled, space = jitney.compile(fn, backend="eager", fullgraph=True), Space(n=1)
    assert torch.equal(compiled(t(2), space), t(2) * 2)
    assert space.n == 2 and torch.equal(space.m, t(2))


class Doubling:
    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value * 2)


def test_an_object_gets_its_dict_past_its_class() -> None:
    def fn(x: torch.Tensor, kind: Any) -> Any:
        made = kind()
        made.a = x
        return vars(made), made

    for kind in (Doubling, Space):
        found = jitney.compile(fn, backend="eager")(t(2), kind)
        assert vars(found[1]) is found[0] and torch.equal(found[1].a, t(2) * 2)
