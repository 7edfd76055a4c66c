"""``copy.copy`` and ``copy.deepcopy`` of objects that have a say in it."""

from __future__ import annotations

import copy
import copyreg
import dataclasses
import enum
from typing import Any

import pytest
import torch
from helpers import check, check_scenario, compile_fn, outcome, t
from torch import nn

import jitney


class Norm(enum.Enum):
    LAYER = "layer"
    RMS = "rms"


class Act(str, enum.Enum):
    RELU = "relu"


@dataclasses.dataclass
class Config:
    norm: Norm
    act: Act = Act.RELU


class Shared:
    """Keeps its table when it is copied, and copies its list."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.table = {"a": 1}

    def __deepcopy__(self, memo: dict[int, Any]) -> Shared:
        made = Shared.__new__(Shared)
        made.items = copy.deepcopy(self.items, memo)
        made.table = self.table
        return made


class WithState:
    def __init__(self, value: Any) -> None:
        self.value = value
        self.cache = [1]

    def __getstate__(self) -> dict[str, Any]:
        return {"value": self.value}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.restored = True


class Restoring:
    def __setstate__(self, state: Any) -> None:
        self.state = sorted(state)


def test_members_of_enumerations_are_their_own_copies() -> None:
    config = Config(Norm.RMS)

    def fn(x: torch.Tensor) -> Any:
        made = copy.deepcopy(config)
        table = dataclasses.asdict(config)
        return x + 1, made.norm is Norm.RMS, table["act"] is Act.RELU, copy.copy(Norm.LAYER) is Norm.LAYER

    check(fn, t(), graphs=1, breaks=0)


def test_deep_copies_that_objects_make_of_themselves() -> None:
    items = [1, [2]]

    def fn(x: torch.Tensor) -> Any:
        first = Shared(items)
        made = copy.deepcopy({"one": first, "again": first, "items": first.items})
        made["one"].items[1].append(3)
        shares = made["one"].table is first.table
        return x + 1, made["one"] is made["again"], made["items"] is made["one"].items, made["items"], shares, items

    check(fn, t(), graphs=1, breaks=0)


def test_states_that_objects_give_and_take() -> None:
    held = WithState([1])

    def fn(x: torch.Tensor) -> Any:
        shallow, deep = copy.copy(held), copy.deepcopy(held)
        deep.value.append(2)
        empty, full = Restoring(), Restoring()
        full.a = 1  # type: ignore[attr-defined]
        return (
            x + 1,
            shallow.value is held.value,
            sorted(vars(shallow)),
            deep.value,
            held.value,
            vars(copy.copy(empty)),
            vars(copy.deepcopy(full)),
        )

    check(fn, t(), graphs=1, breaks=0)


def test_layers_copied_inside_have_parameters_of_their_own() -> None:
    torch.manual_seed(0)
    base = nn.Linear(4, 4)
    base.bias.requires_grad_(False)

    def fn(x: torch.Tensor) -> Any:
        layers = nn.ModuleList([copy.deepcopy(base) for _ in range(2)])
        with torch.no_grad():
            layers[0].weight.mul_(2)
        for layer in layers:
            x = x + layer(x).relu()
        first: Any = layers[0]
        return x, first.weight, first.bias.requires_grad, first.weight is base.weight, len(list(layers.parameters()))

    compiled = compile_fn(fn, fullgraph=True)
    for rows in (2, 3):
        got, wanted = compiled(t(rows, 4)), fn(t(rows, 4))
        torch.testing.assert_close(got[:2], wanted[:2])
        assert got[2:] == wanted[2:] and type(got[1]) is nn.Parameter and got[1].is_leaf
        for call in (got, wanted):
            call[0].sum().backward()
        torch.testing.assert_close(got[1].grad, wanted[1].grad)
    assert base.weight.grad is None


class Number(int):
    pass


class Given(int):
    def __new__(cls, value: int, extra: Any = None) -> Any:
        made = super().__new__(cls, value)
        made.extra = extra  # type: ignore[attr-defined]
        return made


class Wants:
    def __new__(cls, value: int) -> Any:
        return super().__new__(cls)


def test_copies_of_numbers_and_text_with_attributes() -> None:
    class Text(str):
        pass

    def fn(x: torch.Tensor) -> Any:
        answers: list[Any] = []
        for value in (Number(5), Given(6, [1]), Text("a")):
            value.more = [2]  # type: ignore[attr-defined]
            shallow, deep = copy.copy(value), copy.deepcopy(value)
            answers += [shallow, deep, shallow is value, deep is value, type(deep), vars(shallow), vars(deep)]
            answers += [shallow.more is value.more, deep.more is value.more]  # type: ignore[attr-defined]
        return x + 1, answers

    check(fn, t())


def test_a_copy_calls_new_as_eager_does() -> None:
    def fn(x: torch.Tensor) -> Any:
        value = Wants(1)
        return x + 1, outcome(copy.copy, value), outcome(copy.deepcopy, value)

    check(fn, t(), skips=None)


def test_a_copy_by_a_registered_function() -> None:
    class Registered:
        def __init__(self, value: int) -> None:
            self.value = value

    def scenario(compile: Any) -> Any:
        value = Registered(3)
        called = compile(lambda x: (x + 1, copy.copy(value).value))
        before = called(t())
        copyreg.pickle(Registered, lambda v: (Registered, (v.value + 1,)))  # type: ignore[arg-type,return-value]
        try:
            return before, called(t())
        finally:
            del copyreg.dispatch_table[Registered]

    check_scenario(scenario)


class Renamed:
    """Reads some attributes under other names, as configurations do."""

    names: dict[str, str] = {"width": "hidden"}

    def __init__(self) -> None:
        self.hidden = 3
        self.sizes = [1, 2]

    def __getattribute__(self, name: str) -> Any:
        if name != "names" and name in super().__getattribute__("names"):
            name = super().__getattribute__("names")[name]
        return super().__getattribute__(name)


class Noting:
    """Notes what it is asked for, and does not have."""

    asked: list[str] = []

    def __init__(self) -> None:
        self.sizes = [1, 2]

    def __getattr__(self, name: str) -> Any:
        Noting.asked.append(name)
        raise AttributeError(name)


class Answering:
    """Has a method of the protocol, which its class does not know."""

    def __init__(self) -> None:
        self.sizes = [1, 2]

    def __getattr__(self, name: str) -> Any:
        if name == "__deepcopy__":
            return lambda memo: 7
        raise AttributeError(name)


def test_copies_of_objects_that_answer_themselves() -> None:
    def copied(x: Any, found: Any) -> Any:
        deep, shallow = copy.deepcopy(found), copy.copy(found)
        if not isinstance(deep, int):
            deep.sizes.append(5)
        return x + 1, deep, shallow, getattr(deep, "width", 0), found.sizes

    check(copied, t(3), Renamed(), graphs=1, breaks=0)

    def scenario(compile: Any) -> Any:
        Noting.asked.clear()
        fn = compile(copied)
        answered = fn(t(3), Answering())
        return answered[1], answered[2].sizes, [fn(t(3), Noting())[1].sizes for _ in range(2)], [*Noting.asked]

    check_scenario(scenario)


def copied_and_written(tensors: dict[str, torch.Tensor]) -> Any:
    copied = copy.deepcopy(tensors)
    copied["a"].add_(1)
    return copied, copied["b"] * 2


def apart() -> dict[str, torch.Tensor]:
    return {"a": torch.ones(2), "b": torch.zeros(2)}


def in_one_memory() -> dict[str, torch.Tensor]:
    memory = torch.zeros(4)
    return {"a": memory[:3], "b": memory[1:]}


def one_tensor() -> dict[str, torch.Tensor]:
    memory = torch.zeros(3)
    return {"a": memory, "b": memory}


def of_one_parameter() -> dict[str, torch.Tensor]:
    parameter = torch.zeros(3)
    return {"a": torch.nn.Parameter(parameter, requires_grad=False), "b": torch.nn.Parameter(parameter)}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_several_tensors_are_copied_in_the_graph_unless_they_share_memory(backend: str) -> None:
    compiled = jitney.compile(copied_and_written, backend=backend)
    for made in (apart, apart, in_one_memory, apart, one_tensor, of_one_parameter, in_one_memory):
        torch.testing.assert_close(compiled(made()), copied_and_written(made()))
    whole = jitney.compile(copied_and_written, backend=backend, fullgraph=True)
    torch.testing.assert_close(whole(apart()), copied_and_written(apart()))
