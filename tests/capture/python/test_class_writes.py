"""Attributes of classes older than the call: plain data is written after the graph, the rest is a break."""

from __future__ import annotations

import abc
from typing import Any

import pytest
import torch
from helpers import Compiled, check_made, check_scenario, graph_break, observe, t


def check_class(body: Any, *, graphs: int | None = None, breaks: int | None = None, **options: Any) -> None:
    """``body(Base, Derived, x)`` on classes made anew for each side; what they hold is compared after each call."""
    __tracebackhide__ = True

    def make() -> Any:
        class Base:
            total = 0
            names: list[Any] = []

            @property
            def known(self) -> str:
                return "property"

            def method(self) -> str:
                return "method"

        class Derived(Base):
            pass

        def fn(x: torch.Tensor) -> Any:
            return body(Base, Derived, x)

        def state() -> Any:
            return [{k: v for k, v in vars(c).items() if type(v) in (int, str, list, torch.Tensor)}
                    for c in (Base, Derived)]  # fmt: skip

        return fn, state

    check_made(make, t(), graphs=graphs, breaks=breaks, **options)


def test_counter() -> None:
    def body(base: Any, derived: Any, x: torch.Tensor) -> Any:
        base.total += 1
        base.total += 1
        return x + base.total, derived.total, base().total, derived().total

    check_class(body, graphs=1, breaks=0, calls=4)


def test_subclass_gets_its_own() -> None:
    def body(base: Any, derived: Any, x: torch.Tensor) -> Any:
        derived.total += 5
        first = base.total, derived.total, derived().total
        base.total += 1
        return x + derived.total, first, base.total, derived.total, base().total

    check_class(body, graphs=1, breaks=0, calls=3)


def test_new_attribute() -> None:
    def body(base: Any, derived: Any, x: torch.Tensor) -> Any:
        before = hasattr(base, "flag"), getattr(derived, "flag", None)
        base.flag = "set"
        return x + 1, before, hasattr(base, "flag"), derived.flag, derived().flag

    check_class(body, graphs=1, breaks=0, calls=3)


def test_through_super_and_instances() -> None:
    class Base:
        size = 1

    class Derived(Base):
        size = 2

        def both(self) -> tuple[int, int]:
            return super().size, self.size

    def fn(x: torch.Tensor, n: int) -> Any:
        Base.size = n
        made = Derived()
        made.size = n + 1
        return x + 1, made.both(), Derived().both(), type(made).size

    compiled = Compiled(fn)
    compiled(t(), 5)
    compiled(t(), 6)
    compiled.expect(2)
    assert (Base.size, Derived.size) == (6, 2)


def test_subclass_hides_it_later() -> None:
    class Base:
        size = 1

    class Derived(Base):
        pass

    def fn(x: torch.Tensor) -> Any:
        Base.size = 3
        return x + Derived.size

    compiled = Compiled(fn)
    compiled(t())
    compiled(t())
    Derived.size = 7
    assert torch.equal(compiled(t()), t() + 7)


def test_containers_and_tensors() -> None:
    def body(base: Any, derived: Any, x: torch.Tensor) -> Any:
        y = x + 1
        base.names = [*base.names, y]
        base.last = y
        y.add_(1)
        return base.last is derived().last, len(derived.names), base.names[-1] is y

    check_class(body, graphs=1, breaks=0, calls=3)


def test_written_before_a_break_and_an_exception() -> None:
    def broken(base: Any, derived: Any, x: torch.Tensor) -> Any:
        base.total = 3
        x = x + base.total
        graph_break()
        base.total += 1
        return x * derived.total

    def raised(base: Any, derived: Any, x: torch.Tensor) -> Any:
        base.total += 3
        if base.total > 5:
            raise ValueError(base.total)
        base.total += 1
        return x

    check_class(broken, breaks=1)
    check_class(raised, calls=3, raises=BaseException)


def test_graph_that_fails() -> None:
    def body(base: Any, derived: Any, x: torch.Tensor) -> Any:
        base.total += 1
        y = x[torch.tensor([0, 100])]
        base.total += 10
        return y

    check_class(body, raises=IndexError)


def test_more_than_data_is_a_break() -> None:
    def function(base: Any, derived: Any, x: torch.Tensor) -> Any:
        base.total = lambda self: 5
        result = derived().total()
        base.total = 0
        return x + result

    def method(base: Any, derived: Any, x: torch.Tensor) -> Any:
        base.method = "data"
        return x + 1, derived().method

    def hidden_property(base: Any, derived: Any, x: torch.Tensor) -> Any:
        derived.known = "data"
        return x + 1, derived().known, base().known

    def deleted(base: Any, derived: Any, x: torch.Tensor) -> Any:
        base.extra = 1
        try:
            del base.extra
        except AttributeError:
            return x
        return x + 1, hasattr(base, "extra")

    def special(base: Any, derived: Any, x: torch.Tensor) -> Any:
        base.__doc__ = "text"
        return x + 1, base.__doc__, derived().__doc__

    for body in (function, method, hidden_property, deleted, special):
        check_class(body)


def test_class_that_cannot_be_written() -> None:
    def builtin(base: Any, derived: Any, x: torch.Tensor) -> Any:
        try:
            int.extra = 1  # type: ignore[attr-defined]
        except TypeError:
            return x + 1
        return x

    def by_object(base: Any, derived: Any, x: torch.Tensor) -> Any:
        try:
            object.__setattr__(base, "extra", 1)
        except TypeError:
            return x + 1
        return x

    check_class(builtin)
    check_class(by_object)


@pytest.mark.parametrize("kind", ["setattr", "property", "abc"])
def test_metaclasses(kind: str) -> None:
    def make() -> Any:
        log: list[str] = []

        class Meta(type):
            if kind == "setattr":

                def __setattr__(cls, name: str, value: Any) -> None:
                    log.append(name)
                    super().__setattr__(name, value)

            if kind == "property":

                @property
                def total(cls) -> str:
                    return "of the metaclass"

                @total.setter
                def total(cls, value: Any) -> None:
                    log.append(str(value))

        class Base(metaclass=abc.ABCMeta if kind == "abc" else Meta):
            total = 1

        def fn(x: torch.Tensor) -> Any:
            Base.total = 2
            return x + 1, Base.total, Base().total

        return fn, lambda: (list(log), vars(Base)["total"])

    check_made(make, t())


def test_handle_of_a_hook_counts() -> None:
    def make() -> Any:
        model = torch.nn.Linear(3, 3)
        torch.nn.init.ones_(model.weight)
        start = torch.utils.hooks.RemovableHandle.next_id
        seen: list[Any] = []

        def hook(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
            return output * 2

        def fn(x: torch.Tensor) -> Any:
            if not model._forward_hooks:
                model.register_forward_hook(hook)
            return model(x)

        return fn, lambda: (seen, len(model._forward_hooks), torch.utils.hooks.RemovableHandle.next_id - start)

    check_made(make, t(2, 3), graphs=1, breaks=0, calls=3)


class Counted:
    calls = 0


def test_a_counter_of_a_class_that_an_instance_comes_to_hide() -> None:
    def counts(x: torch.Tensor, counted: Any) -> Any:
        Counted.calls += 1
        return x * counted.calls

    def scenario(compiled: Any) -> Any:
        Counted.calls = 0
        fn, counted = compiled(counts), Counted()
        results = [fn(t(2), counted) for _ in range(4)]
        counted.calls = 100
        return [*results, fn(t(2), counted), fn(t(2), counted), Counted.calls]

    with observe() as seen:
        check_scenario(scenario)
    assert seen.skips == []
