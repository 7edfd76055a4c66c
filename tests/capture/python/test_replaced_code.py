"""``__code__``, ``__defaults__`` and ``__kwdefaults__`` replaced between calls: of what is compiled or called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers import check_scenario, graph_break, observe, outcome, storybook, t

Compile = Callable[[Any], Any]
story, test_story = storybook()


def make() -> tuple[Any, Any]:
    def first(x: torch.Tensor, a: int = 1, *, k: int = 2) -> Any:
        return x * a + k

    def other(x: torch.Tensor, a: int = 1, *, k: int = 3) -> Any:
        return x * a - k

    return first, other


def replacements(first: Any, other: Any) -> Iterator[Any]:
    """Each step changes the function once more."""
    yield "as it is"
    first.__defaults__ = (5,)
    yield "defaults"
    first.__kwdefaults__ = {"k": 7}
    yield "keyword defaults"
    first.__kwdefaults__["k"] = 9
    yield "keyword defaults in place"
    first.__kwdefaults__ = None
    yield "no keyword defaults"
    first.__defaults__ = None
    first.__kwdefaults__ = {"k": 1}
    yield "no defaults"
    first.__defaults__ = (4, 2)
    yield "more defaults"
    first.__code__ = other.__code__
    yield "code"
    first.__defaults__ = (1,)
    yield "defaults of the new code"


@story
def of_the_compiled_function(compile: Compile) -> Any:
    first, other = make()
    called = compile(first)
    return [(step, outcome(called, t()), outcome(called, t(), 3, k=2)) for step in replacements(first, other)]


@story
def through_the_compiled_function_itself(compile: Compile) -> Any:
    first, other = make()
    called = compile(first)
    return [(step, outcome(called, t()), called.__defaults__) for step in replacements(called, other)]


@story
def of_a_function_that_is_called(compile: Compile) -> Any:
    first, other = make()
    called = compile(lambda x: first(x) * 2)
    return [(step, outcome(called, t())) for step in replacements(first, other)]


@story
def of_a_function_that_is_called_after_a_break(compile: Compile) -> Any:
    first, other = make()

    def fn(x: torch.Tensor) -> Any:
        y = first(x)
        graph_break()
        return y * first(x, 2)

    called = compile(fn)
    return [(step, outcome(called, t())) for step in replacements(first, other)]


@story
def of_a_method(compile: Compile) -> Any:
    first, other = make()

    class Owner:
        def method(self, x: torch.Tensor) -> Any:
            return x

    setattr(Owner, "method", lambda self, a=1, *, k=2: t() * a + k)
    setattr(Owner, "other", lambda self, a=1, *, k=2: t() * a - k)
    called = compile(lambda owner: owner.method())
    methods = vars(Owner)
    return [(step, outcome(called, Owner())) for step in replacements(methods["method"], methods["other"])]


@story
def of_a_module_forward(compile: Compile) -> Any:
    class Scale(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x * 2

    def forward(self: Any, x: torch.Tensor) -> Any:
        return x * 3

    module = Scale()
    called = compile(module)
    out = [called(t())]
    setattr(Scale.forward, "__code__", forward.__code__)
    return out, called(t())


@story
def of_what_descriptors_hold(compile: Compile) -> Any:
    class Owner:
        size = property(lambda self: 1)
        static = staticmethod(lambda: 2)
        of_class = classmethod(lambda cls: 3)

    def another(*args: Any) -> int:
        return 10

    called = compile(lambda x, o: x * o.size + o.static() * 100 + Owner.static() * 1000 + o.of_class() * 10000)
    out = [called(t(), Owner())]
    held = vars(Owner)
    for function in (held["size"].fget, held["static"].__func__, held["of_class"].__func__):
        function.__code__ = another.__code__
        out.append(called(t(), Owner()))
    return out


@story
def code_of_a_generator_function_and_back(compile: Compile) -> Any:
    first, other = make()

    def generator(x: torch.Tensor, a: int = 1, *, k: int = 3) -> Any:
        yield x * k

    called = compile(first)
    out = [called(t())]
    first.__code__ = generator.__code__
    out.append(list(called(t())))
    first.__code__ = other.__code__
    return [*out, called(t())]


@pytest.mark.parametrize("args", [(), (1, 2, 3), (1, 2)])
def test_refused_calls_name_the_function(args: Any) -> None:
    def scenario(compile: Compile) -> Any:
        def fn(x: Any, *, k: int) -> Any:
            return x + k

        called = compile(fn)
        return called(1, k=2), outcome(called, *args)

    check_scenario(scenario)


def test_new_code_is_compiled() -> None:
    import jitney

    first, other = make()
    called = jitney.compile(first, backend="eager")
    called(t())
    first.__code__ = other.__code__
    with observe() as seen:
        called(t())
        called(t())
    assert len(seen.graphs) == 1
    assert not seen.skips
