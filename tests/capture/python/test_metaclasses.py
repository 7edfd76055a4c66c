"""Classes that cannot be hashed, since their metaclass has ``__eq__`` alone: these stay in Python."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from helpers import check, compile_fn, t


class Compared(type):
    def __eq__(cls, other: object) -> bool:
        return cls is other


class Unhashable(metaclass=Compared):
    def __init__(self) -> None:
        self.value = 3

    def add(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.value


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.held = Unhashable()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.held.add(x * 2) * 3


def made() -> Any:
    return Unhashable()


def hashed(x: torch.Tensor) -> Any:
    try:
        return {Unhashable: 1}
    except TypeError as error:
        return x + 1, str(error)


OBJECT = Unhashable()
PROGRAMS: dict[str, Any] = {
    "a global": lambda x: OBJECT.add(x) * 2,
    "made inside": lambda x: Unhashable().add(x + 1) * 2,
    "made by a callee": lambda x: made().add(x + 1) * 2,
    "asked after": lambda x: x + 1 if isinstance(OBJECT, Unhashable) else x,
    "its type": lambda x: (x + 1) * type(OBJECT)().value,
    "in a list": lambda x: [kind().add(x * 2) for kind in [Unhashable, Unhashable]],
    "hashed": hashed,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_runs_as_in_eager(name: str) -> None:
    check(PROGRAMS[name], t(), skips=None)


REACHED: dict[str, tuple[Any, tuple[Any, ...]]] = {  # which ``copy.deepcopy`` refuses
    "a module's": (Holder(), ()),
    "a bound method": (OBJECT.add, ()),
    "a partial's": (functools.partial(lambda u, x: u.add(x) + 1, OBJECT), ()),
    "an argument": (lambda x, u: u.add(x + 1) * u.value, (OBJECT,)),
    "a class as argument": (lambda x, c: c().add(x * 2), (Unhashable,)),
}


@pytest.mark.parametrize("name", REACHED)
def test_where_it_comes_from_elsewhere(name: str) -> None:
    fn, rest = REACHED[name]
    compiled = compile_fn(fn)
    for _ in range(2):
        assert torch.equal(compiled(t(), *rest), fn(t(), *rest))
