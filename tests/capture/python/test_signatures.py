"""``inspect.signature`` in compiled code: constant while the function is what it was."""

from __future__ import annotations

import enum
import functools
import inspect
import typing
from typing import Any

import pytest
import torch
from helpers import Compiled, check, check_made, check_scenario, graph_break, t


class Reduction(str, enum.Enum):
    SUM = "sum"
    MEAN = "mean"


class Block:
    """Looks at its own method, as libraries do."""

    def chunk(self, x: torch.Tensor, scale: int = 2) -> torch.Tensor:
        """Two parameters."""
        return x * scale

    def run(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the method."""
        count = len(inspect.signature(self.chunk).parameters)
        return self.chunk(x) + count


def test_number_of_parameters_of_a_method() -> None:
    def fn(block: Block, x: torch.Tensor) -> torch.Tensor:
        return block.run(x)

    check(fn, Block(), t(), graphs=1, breaks=0)


def test_names_kinds_and_defaults() -> None:
    def target(a: int, /, b: str = "b", *rest: Any, c: Any = None, **more: Any) -> None:
        """Every kind."""

    def fn(x: torch.Tensor) -> Any:
        signature = inspect.signature(target)
        found = [(n, p.name, str(p.kind), p.default is p.empty or p.default) for n, p in signature.parameters.items()]
        return x + len(found), found, "b" in signature.parameters, list(signature.parameters)

    check(fn, t(), graphs=1)


def test_function_made_by_the_frame() -> None:
    def fn(x: torch.Tensor) -> Any:
        return x + len(inspect.signature(lambda a, b=3, *c: a).parameters)

    check(fn, t(), graphs=1, breaks=0)


def test_changed_between_calls() -> None:
    def target(a: int, b: Any = 1) -> None:
        """Changes."""

    def fn(x: torch.Tensor) -> Any:
        parameters = inspect.signature(target).parameters
        return x + len(parameters), parameters["b"].default, repr(parameters["b"].annotation)

    def other(a: int, b: Any = 1, c: int = 3) -> None:
        """Other code."""

    compiled = Compiled(fn)
    compiled(t())
    for change in (
        {"__defaults__": (True,)},
        {"__defaults__": (1.0,)},
        {"__defaults__": ([1],)},
        {"__defaults__": (1,)},
        {"__annotations__": {"a": int, "b": str}},
        {"__signature__": inspect.Signature([inspect.Parameter("b", inspect.Parameter.KEYWORD_ONLY, default=7)])},
        {"__code__": other.__code__, "__defaults__": (1, 2), "__signature__": None},
    ):
        for name, value in change.items():
            setattr(target, name, value)
        compiled(t())
        compiled(t())


def test_more_than_a_plain_function_is_a_break() -> None:
    @functools.wraps(Block.run)
    def wrapped(*args: Any) -> None:
        """Another's signature."""

    held = t()

    def with_tensor(a: torch.Tensor = held) -> None:
        """A default that is no plain value."""

    def fn(x: torch.Tensor, which: int) -> Any:
        target: Any = (wrapped, with_tensor, Block, functools.partial(wrapped, 1), len)[which]
        return x + len(inspect.signature(target).parameters)

    for which in range(5):
        check(fn, t(), which)


def test_alive_across_a_break() -> None:
    def target(a: int, b: int = 2) -> None:
        """Two."""

    def fn(x: torch.Tensor) -> Any:
        signature = inspect.signature(target)
        parameters = signature.parameters
        x = x + len(parameters)
        graph_break()
        bound = signature.bind(1)
        return x + len(parameters), bound.args, str(signature)

    check(fn, t(), skips=1)  # a mappingproxy cannot be made again: the frame runs eagerly


def bound_to(a: Any, b: int = 2, *rest: Any, c: int = 3, **more: Any) -> Any:
    return a


def test_arguments_bound() -> None:
    def fn(x: torch.Tensor) -> Any:
        x = x + 1
        bound = inspect.signature(bound_to).bind(x, b=5, d=7)
        bound.arguments["b"] *= 2
        bound.arguments["more"]["e"] = 8
        return bound.arguments["a"] * bound.arguments["b"], bound.args[1:], bound.kwargs, list(bound.arguments)

    check(fn, t(), breaks=0)


def test_defaults_applied() -> None:
    def fn(x: torch.Tensor) -> Any:
        bound = inspect.signature(bound_to).bind_partial()
        bound.apply_defaults()
        bound.arguments["a"] = x + 1
        bound.arguments["more"]["d"] = 4
        return (
            bound_to(*bound.args, **bound.kwargs) * bound.arguments["c"],
            bound.kwargs,
            bound.signature.parameters["b"].default,
        )

    check(fn, t(), breaks=0)


def test_arguments_that_do_not_fit() -> None:
    def fn(x: torch.Tensor) -> Any:
        try:
            inspect.signature(bound_to).bind(x, a=2)
        except TypeError as error:
            return x + 1, str(error)

    check(fn, t(), breaks=0)


def test_bound_arguments_alive_across_a_break() -> None:
    def fn(x: torch.Tensor) -> Any:
        bound = inspect.signature(bound_to).bind(x + 1, 4)
        graph_break()
        bound.apply_defaults()
        return bound.arguments["a"] * bound.arguments["c"], bound

    check(fn, t())


def test_arguments_written_as_other_classes() -> None:
    def fn(x: torch.Tensor) -> Any:
        bound = inspect.signature(bound_to).bind(x + 1)
        bound.arguments["rest"] = (i for i in range(3))
        return bound.args[0] * 2, bound.args[1:]

    check(fn, t())


def test_bound_outside() -> None:
    held = inspect.signature(bound_to).bind(1, 2, 3, d=4)

    def fn(x: torch.Tensor) -> Any:
        return x * held.arguments["b"], held.args, held.kwargs

    check(fn, t())


OUTSIDE = inspect.signature(lambda x, scale=2, *rest, **more: x)


def test_signature_from_outside() -> None:
    def fn(x: torch.Tensor, signature: inspect.Signature) -> Any:
        bound = signature.bind(x, extra=x + 1)
        bound.apply_defaults()
        first = OUTSIDE.bind_partial(x)
        first.apply_defaults()
        empty = signature.return_annotation is inspect.Signature.empty
        more = bound.arguments["more"]["extra"]
        return x * bound.arguments["scale"] + more, first.args, empty, list(OUTSIDE.parameters)

    check(fn, t(), OUTSIDE, graphs=1, breaks=0)
    compiled = Compiled(fn)
    for scale in (2, 3, 2):
        compiled(t(), inspect.signature(eval(f"lambda x, scale={scale}, *rest, **more: x")))


def test_signature_from_outside_that_holds_more_than_plain_values() -> None:
    held = torch.full((3,), 2.0)
    signature = inspect.Signature([inspect.Parameter("y", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=held)])

    def bound(x: torch.Tensor) -> Any:
        arguments = signature.bind()
        arguments.apply_defaults()
        return x[0] + arguments.arguments["y"]

    def read(x: torch.Tensor) -> Any:
        return x[0] + signature.parameters["y"].default

    for fn in (bound, read):
        compiled = Compiled(fn)
        compiled(t())
        held += 1
        compiled(t())


def test_full_arg_specs_are_new_lists_each_time() -> None:
    def target(self: Any, a: int, *rest: Any, b: int = 2, **more: Any) -> None:
        """Lightning asks this of hooks."""

    def fn(x: torch.Tensor) -> Any:
        spec = inspect.getfullargspec(target)
        spec.args.append("own")
        again = inspect.getfullargspec(target)
        found = (spec.args[1:], again.args, again.varargs, again.varkw, again.defaults, again.kwonlyargs)
        return x + len(again.args), found, again.kwonlydefaults, "a" in again.args, list(again.annotations)

    check(fn, t(), graphs=1, breaks=0)
    check(lambda block, x: x + len(inspect.getfullargspec(block.chunk).args), Block(), t(), graphs=1, breaks=0)
    compiled = Compiled(fn)
    compiled(t())
    target.__kwdefaults__ = {"b": 5}
    assert compiled(t())[2] == {"b": 5}


def test_full_arg_specs_of_what_may_say_something_else() -> None:
    @functools.wraps(Block.chunk)
    def wrapper(*args: Any) -> Any:
        return args

    def fn(x: torch.Tensor) -> Any:
        return inspect.getfullargspec(wrapper).varargs, x + 1

    check(fn, t(), breaks=1)


def reduced(x: torch.Tensor, how: Reduction = Reduction.SUM, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return (x.sum() if how is Reduction.SUM else x.mean()).to(dtype)


def test_defaults_that_are_constants() -> None:
    """As a decorator does that checks types."""

    @functools.wraps(reduced)
    def checked(*args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(reduced).bind(*args, **kwargs)
        bound.apply_defaults()
        hints = typing.get_type_hints(reduced)
        for name, value in bound.arguments.items():
            if not isinstance(value, hints[name]):
                raise TypeError(f"{name} is a {type(value).__name__}")
        return reduced(*bound.args, **bound.kwargs)

    def fn(x: torch.Tensor, *rest: Any) -> Any:
        return checked(x, *rest)

    check(fn, t(), graphs=1, breaks=0)
    check(fn, t(), Reduction.MEAN, graphs=1, breaks=0)
    check(fn, t(), "mean", raises=TypeError)


def test_defaults_that_are_no_constants() -> None:
    def make() -> Any:
        def grows(x: torch.Tensor, held: list[int] = []) -> torch.Tensor:  # noqa: B006
            return x * len(held)

        def fn(x: torch.Tensor) -> Any:
            bound = inspect.signature(grows).bind(x)
            bound.apply_defaults()
            bound.arguments["held"].append(1)
            return grows(*bound.args, **bound.kwargs)

        return fn

    check_made(make, t(), calls=3)


Number = int


def counted(x: torch.Tensor, n: Number = 2, more: typing.Optional[list[Number]] = None) -> torch.Tensor:  # noqa: UP045
    return x * n


def test_names_in_annotations_may_become_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(compile: Any) -> Any:
        called = compile(lambda x: (x + 1, typing.get_type_hints(counted), typing.get_type_hints(Block.chunk)["scale"]))
        out = [called(t()), called(t())]
        monkeypatch.setitem(globals(), "Number", float)
        out.append(called(t()))
        counted.__annotations__["n"] = "str"
        out.append(called(t()))
        counted.__annotations__["n"] = "Number"
        monkeypatch.setitem(globals(), "Number", int)
        return out

    check_scenario(scenario)
    check(lambda x: (x + 1, len(typing.get_type_hints(counted))), t(), graphs=1, breaks=0)


def annotated(
    a: Any, b: int = 3, *args: Any, c: torch.Tensor | None = None, d: tuple[int, ...] = (1, 2), **kw: Any
) -> float:
    return 0.0


def test_the_text_of_a_signature() -> None:
    def fn(x: torch.Tensor, function: Any) -> Any:
        signature = inspect.signature(function)
        return (
            x * len(str(signature)),
            f"{signature}",
            repr(signature),
            [(str(p), str(p.kind)) for p in signature.parameters.values()],
        )

    check(fn, t(), annotated, graphs=1, breaks=0)
    check(fn, t(), lambda a, c=1: a, graphs=1, breaks=0)


def test_a_signature_that_shows_objects_is_turned_into_text_outside_the_graph() -> None:
    def shown(x: Any = [torch.ones(1)]) -> None: ...  # noqa: B006

    def fn(x: torch.Tensor) -> Any:
        return x + 1, str(inspect.signature(shown))

    check(fn, t())
