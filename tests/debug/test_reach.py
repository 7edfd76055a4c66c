"""What a function has at hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from jitney.debug.reach import reached
from jitney_tools.compare.outcome import modules_of

LAYER = torch.nn.Linear(2, 2)


class Trainer:
    def __init__(self) -> None:
        self.model = torch.nn.Linear(3, 3)
        self.others = {"head": [torch.nn.ReLU()]}

    def step(self, x: Any) -> Any:
        return self.model(x)


@dataclasses.dataclass
class Slotted:
    __slots__ = ("held",)
    held: Any


def test_modules_of_an_owner_and_in_its_containers() -> None:
    trainer = Trainer()
    assert modules_of(trainer.step, ()) == [trainer.model]  # the list in a dictionary in an object is too deep
    assert set(modules_of(trainer.step, [trainer.others])) == {trainer.model, trainer.others["head"][0]}


def test_closures_and_named_globals_and_those_of_inner_functions() -> None:
    own = torch.nn.Linear(1, 1)

    def inner(x: Any) -> Any:
        return [LAYER(own(part)) for part in x]

    assert modules_of(inner, ()) == [LAYER, own]


def test_a_cell_that_is_empty_yet() -> None:
    def later() -> Any:
        return missing

    assert modules_of(later, ()) == []
    missing = LAYER
    assert modules_of(later, ()) == [LAYER]


def test_cycles_large_containers_and_objects_without_a_dictionary_end() -> None:
    loop: list[Any] = [Slotted(1)]
    loop.append(loop)
    assert len(list(reached(None, [loop]))) == 3
    assert len(list(reached(None, [list(range(10**6))]))) < 1100
