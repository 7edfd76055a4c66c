"""Names of the program's that text cannot say, or says of another one; tests/faults/hostile_names.py has many more."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney


def compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    made: Callable[..., Any] = jitney.compile(fn, backend="eager")
    return made


def renamed(fn: Any, **names: str) -> Any:
    """The function with other names of variables, as code that is made of a syntax tree may have them."""
    code = fn.__code__
    return types.FunctionType(
        code.replace(co_varnames=tuple(names.get(name, name) for name in code.co_varnames)),
        fn.__globals__,
        fn.__name__,
        fn.__defaults__,
        fn.__closure__,
    )


def test_an_attribute_is_not_the_one_that_the_parser_makes_of_its_name() -> None:
    fn = compiled(lambda x: x * getattr(x, "ﬁ"))  # noqa: B009
    x = torch.ones(2)
    x.__dict__.update({"ﬁ": 2.0, "fi": 2.0})
    assert fn(x).tolist() == [2, 2]
    x.__dict__["ﬁ"] = 7.0
    assert fn(x).tolist() == [7, 7]


@pytest.mark.parametrize("name", ["class", "None", "__debug__", "a b", "", "\ud800"])
def test_an_attribute_may_have_any_name(name: str) -> None:
    fn = compiled(lambda x: x * getattr(x, name))
    x = torch.ones(2)
    x.__dict__[name] = 2.0
    assert fn(x).tolist() == [2, 2]


@pytest.mark.parametrize("name", ["@py_assert1", "class", "ﬁ", "y=print()", "\n", "\ud800"])
def test_a_variable_over_a_break_may_have_any_name(name: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        held = x + 1
        print(end="")
        return held * 2

    assert compiled(renamed(fn, held=name))(torch.ones(2)).tolist() == [4, 4]


@pytest.mark.parametrize("name", ["@py_assert1", "class", "ﬁ", "y=print()", "\n", "\ud800"])
def test_a_parameter_may_have_any_name(name: str) -> None:
    def fn(x: torch.Tensor, k: float = 2.0) -> Any:
        return [x * k, (lambda: k)()]

    made = compiled(renamed(fn, k=name))
    assert made(torch.ones(2))[0].tolist() == [2, 2]
    assert made(torch.ones(2), **{name: 3.0})[0].tolist() == [3, 3]
    with pytest.raises(TypeError, match="multiple values"):
        made(torch.ones(2), 3.0, **{name: 3.0})


def test_what_pytest_makes_of_assert_goes_over_a_break() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        assert y.shape[0] == 2
        print(end="")
        assert len(y) == 2
        return y * 2

    assert any(name.startswith("@py_assert") for name in fn.__code__.co_varnames)
    assert compiled(fn)(torch.ones(2)).tolist() == [4, 4]


def test_a_function_may_have_a_name_that_no_file_can() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    fn.__code__ = fn.__code__.replace(co_name="\0")
    assert compiled(fn)(torch.ones(2)).tolist() == [2, 2]
