"""Code of the program that C code calls while a frame is captured: what it reads may be otherwise at the next call."""

from __future__ import annotations

import abc
import collections
import enum
import functools
import gc
import itertools
import math
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import jitney

STATE = 1  # what all the methods below read


class Index:
    def __index__(self) -> int:
        return STATE


class Key:
    def __hash__(self) -> int:
        return 5

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and STATE == 1


class Item:
    def __class_getitem__(cls, item: int) -> int:
        return item + STATE


class Shown:
    def __str__(self) -> str:
        return str(STATE)


class Truth:
    def __bool__(self) -> bool:
        return STATE == 1


class Ordered:
    def __init__(self, value: int) -> None:
        self.value = value

    def __lt__(self, other: Any) -> bool:
        return bool((self.value < other.value) == (STATE == 1))


class Number:
    def __float__(self) -> float:
        return float(STATE)

    def __add__(self, other: Any) -> int:
        return STATE

    def __radd__(self, other: Any) -> Any:
        return other + STATE


class Several:
    def __iter__(self) -> Any:
        return iter([STATE, STATE])


class AsksMeta(type):
    def __instancecheck__(cls, value: object) -> bool:
        return STATE == 1

    def __subclasscheck__(cls, other: type) -> bool:
        return STATE == 1


class Asked(metaclass=AsksMeta):
    pass


class Abstract(abc.ABC):  # noqa: B024 (only its hook matters)
    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        return STATE == 1


class Colour(enum.Enum):
    RED = 1
    BLUE = 2

    def __eq__(self, other: object) -> bool:
        return STATE == 1

    def __hash__(self) -> int:
        return 1

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return cls.RED if STATE == 1 else cls.BLUE


class Named:
    def __set_name__(self, owner: Any, name: str) -> None:
        owner.found = STATE


class Base:
    found = 0

    def __init_subclass__(cls) -> None:
        cls.found = STATE


class Numbers(tuple[int, ...]):
    def __iter__(self) -> Any:
        return iter((STATE,))

    def __len__(self) -> int:
        return STATE


O = SimpleNamespace(  # noqa: E741 (short: it is in every line below)
    index=Index(), key=Key(), shown=Shown(), truth=Truth(), number=Number(), several=Several(),
    ordered=[Ordered(1), Ordered(2)], numbers=Numbers((1, 2)), keys={Key(): 3}, groups=[[1, 2], [3]],
)  # fmt: skip

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a slice of a tuple": lambda x: x + (1, 2, 3)[: O.index][-1],
    "an index of a list": lambda x: x + [1, 2, 3][O.index],
    "an index of a tensor": lambda x: x[O.index],
    "a range": lambda x: x + list(range(O.index))[-1],
    "pop": lambda x: x + [5, 6, 7].pop(O.index),
    "repeat": lambda x: x + len([0] * O.index),
    "a size": lambda x: x.new_zeros(O.index),
    "islice": lambda x: x + sum(itertools.islice(range(1, 9), O.index)),
    "gcd": lambda x: x + math.comb(5, O.index),
    "a key of a display": lambda x: x + {O.key: 1}.get(Key(), 7),
    "a key from outside": lambda x: x + O.keys.get(O.key, 9),
    "a set": lambda x: x + len({O.key, Key()}),
    "membership": lambda x: x + (Key() in O.keys),
    "equal lists": lambda x: x + ([O.key] == [Key()]),
    "a counter": lambda x: x + len(collections.Counter([O.key, Key()])),
    "a class's item": lambda x: x + Item[1],  # type: ignore[valid-type,misc]
    "text by map": lambda x: x + int(",".join(map(str, [O.shown]))),
    "text by format": lambda x: x + int(f"{O.shown}") + int("%s" % O.shown),  # noqa: UP031 (another operator)
    "isinstance of several": lambda x: x + isinstance(3, (str, Asked)),
    "issubclass": lambda x: x + issubclass(int, Asked),
    "an abstract class": lambda x: x + isinstance(Truth(), Abstract),
    "a missing member": lambda x: x + Colour(7).value,
    "members of a set": lambda x: x + len({Colour.RED, Colour.BLUE}),
    "compress": lambda x: x + len(list(itertools.compress([1], [O.truth]))),
    "any": lambda x: x + any([O.truth]) + len(list(filter(None, [O.truth]))),
    "sorted by a key": lambda x: x + sorted(O.ordered, key=lambda value: value)[0].value,
    "min": lambda x: x + min(O.ordered).value + sorted([(v, 1) for v in O.ordered])[0][0].value,
    "fsum": lambda x: x + math.fsum([O.number]) + math.sqrt(O.number),
    "reduce": lambda x: x + functools.reduce(operator.add, [1, O.number]),
    "sum": lambda x: x + sum(O.several) + sum([O.number]),
    "a symbol as text": lambda x: x + int("".join(map(str, O.several))),
    "set_name": lambda x: x + type("Made", (), {"a": Named()}).found,  # type: ignore[attr-defined]
    "init_subclass": lambda x: x + type("Made", (Base,), {}).found,  # type: ignore[attr-defined]
    "a tuple's own ideas": lambda x: x + sum(O.numbers) + len(O.numbers),
    "a key function in C": lambda x: x + max(O.groups, key=len)[0] + sum(map(len, O.groups)),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_it_reads_is_read_at_each_call(name: str, backend: str) -> None:
    global STATE
    fn = PROGRAMS[name]
    compiled = jitney.compile(fn, backend=backend)
    x = torch.tensor([[0.5, -1.5, 2.0], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    try:
        for STATE in (1, 2, 1, 2, 1):
            if STATE == 2:
                O.groups[1].extend([4, 5])
            assert torch.equal(compiled(x), fn(x))
    finally:
        STATE = 1
        del O.groups[1][1:]


def test_the_break_says_what_was_called() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + (1, 2, 3)[: O.index][-1]

    with pytest.raises(jitney.errors.Unsupported, match="Index.__index__, which C code has called"):
        jitney.compile(fn, backend="eager", fullgraph=True)(torch.ones(1))


def test_it_is_called_once_for_each_call() -> None:
    calls: list[int] = []

    class Counted:
        def __index__(self) -> int:
            calls.append(STATE)
            return 1

    def fn(x: torch.Tensor, at: Any) -> torch.Tensor:
        return (x + 1) * (1, 2, 3)[:at][-1] * 2

    compiled = jitney.compile(fn, backend="eager")
    compiled(torch.ones(1), Counted())
    calls.clear()
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(1), Counted()), torch.full((1,), 4.0))
    assert len(calls) == 3


def test_what_python_calls_between_instructions_is_no_part_of_the_program() -> None:
    seen: list[str] = []

    class Dropped:
        def __del__(self) -> None:
            seen.append("dropped")

    def collected(phase: str, info: Any) -> None:
        seen.append(phase)

    class Plus:
        def __add__(self, other: int) -> int:
            return [other for _ in [[]]][0] + 1

    circle: list[Any] = [Dropped()]
    circle.append(circle)
    del circle
    gc.callbacks.append(collected)
    try:
        compiled = jitney.compile(lambda x, plus: x + (plus + 1), backend="eager", fullgraph=True)
        threshold = gc.get_threshold()
        gc.set_threshold(1)
        try:
            assert torch.equal(compiled(torch.ones(2), Plus()), torch.full((2,), 3.0))
        finally:
            gc.set_threshold(*threshold)
    finally:
        gc.callbacks.remove(collected)
    assert {"start", "stop", "dropped"} <= {*seen}
