"""What of a program C code runs or keeps by itself: special methods that are objects, hashes that raise."""

from __future__ import annotations

import functools
import itertools
import operator
import stat
from typing import Any

import pytest
import torch
from helpers import check, check_logged, graph_break

import jitney


def test_a_descriptor_whose_get_and_set_are_no_functions() -> None:
    class Counter:
        calls = 0

        def __call__(self, *args: object) -> int:
            self.calls += 1
            return 1

    class Field:
        pass

    setattr(Field, "__get__", Counter())  # noqa: B010
    setattr(Field, "__set__", Counter())  # noqa: B010

    class Holder:
        field = Field()

    def use(x: torch.Tensor) -> torch.Tensor:
        holder = Holder()
        holder.field = 3
        holder.field = 4
        return x * holder.field

    jitney.compile(use, backend="eager")(torch.ones(2))
    assert (vars(Field)["__get__"].calls, vars(Field)["__set__"].calls) == (1, 2)


def test_a_key_whose_hash_begins_to_raise() -> None:
    class Key:
        fails = False

        def __hash__(self) -> int:
            if self.fails:
                raise LookupError("no hash")
            return 42

    def use(x: torch.Tensor) -> tuple[torch.Tensor, str]:
        key, table = Key(), {}
        table[key] = x + 1
        key.fails = True
        try:
            table.pop(key)
        except LookupError as error:
            return x * 2, str(error)
        return x, ""

    check(use, torch.ones(2))


def test_a_comparison_function_that_breaks_the_graph() -> None:
    def use(x: torch.Tensor) -> list[int]:
        items = [3, 1, 2]

        def compare(a: int, b: int) -> int:
            graph_break()
            return a - b

        items.sort(key=functools.cmp_to_key(compare))
        return [*items, int(x.sum())]

    check(use, torch.ones(2))


def test_a_subclass_of_a_number_whose_parts_are_kept_in_c() -> None:
    class Number(complex):
        pass

    def use(x: torch.Tensor) -> tuple[torch.Tensor, str, float]:
        number = Number(1.0, 2.0)
        graph_break()
        return x + 1, repr(number), number.imag

    assert jitney.compile(use, backend="eager")(torch.ones(2))[1:] == ("(1+2j)", 2.0)


def test_a_c_function_without_signature() -> None:
    def use(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
        return x + 1, stat.S_ISLNK(0o120000)

    check(use, torch.ones(2))


def test_a_property_named_as_something_that_the_metaclass_says() -> None:
    class Named:
        @property
        def __name__(self) -> str:
            return "own"

    named = Named()
    check(lambda x: (x + 1, named.__name__), torch.ones(2))


class Item:
    def __init__(self, log: list[Any], number: int) -> None:
        self.log = log
        self.number = number
        log.append(f"made {number}")

    def method(self, more: int) -> int:
        self.log.append(f"method {self.number}")
        return self.number + more

    @property
    def read(self) -> int:
        self.log.append(f"read {self.number}")
        return self.number

    def __getitem__(self, key: str) -> int:
        self.log.append(key)
        return self.number


def _noted(log: list[Any], *numbers: int) -> int:
    log.append(numbers)
    return sum(numbers)


@pytest.mark.parametrize(
    "call",
    [
        lambda log: [item.number for item in map(functools.partial(Item, log), [1, 2])],
        lambda log: list(map(functools.partial(_noted, log), [1, 2])),
        lambda log: list(map(functools.partial(map, functools.partial(_noted, log)), [[1], [2]]))[1].__next__(),
        lambda log: list(filter(functools.partial(_noted, log), [1, 0, 2])),
        lambda log: sorted([3, 1, 2], key=functools.partial(_noted, log)),
        lambda log: functools.reduce(functools.partial(_noted, log), [1, 2, 3]),
        lambda log: list(itertools.accumulate([1, 2, 3], functools.partial(_noted, log))),
        lambda log: list(itertools.starmap(functools.partial(_noted, log), [(1, 2), (3, 4)])),
        lambda log: list(map(operator.methodcaller("method", 3), [Item(log, 1), Item(log, 2)])),
        lambda log: list(map(operator.attrgetter("read"), [Item(log, 1), Item(log, 2)])),
        lambda log: max([Item(log, 1), Item(log, 2)], key=operator.itemgetter("key")).number,
    ],
)
def test_c_code_calls_python_through_objects_of_c_code_once(call: Any) -> None:
    def program(log: list[Any]) -> Any:
        def fn(x: torch.Tensor) -> Any:
            log.append("begin")
            found = call(log)
            log.append("end")
            return x + 1, found

        return fn

    check_logged(program)
