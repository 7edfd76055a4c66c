"""Deliberately wrong compilers: ``check`` must catch each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import helpers
import pytest
import torch
from helpers import check, t


class Box:
    """An object with attributes."""

    def __init__(self) -> None:
        self.n = 0


def program(x: torch.Tensor, items: list[Any], box: Box, fail: bool) -> tuple[Any, ...]:
    """Does a little of everything that can go wrong."""
    print("hello")
    items.append(x)
    box.n += 1
    y = x + torch.rand(3)
    x.add_(1)
    if fail:
        raise ValueError("failed")
    return y, y, x, items, x[1:]


def _after(change: Callable[[Any, tuple[Any, ...]], Any]) -> Callable[[Any], Any]:
    return lambda fn: lambda *args: change(fn(*args), args)


def _different_message(fn: Any) -> Any:
    def compiled(*args: Any) -> Any:
        try:
            return fn(*args)
        except ValueError as e:
            raise ValueError("other") from e

    return compiled


def _twice(fn: Any) -> Any:
    def compiled(*args: Any) -> Any:
        fn(*copy.deepcopy(args))
        return fn(*args)

    return compiled


WRONG: dict[str, Callable[[Any], Any]] = {
    "value": _after(lambda r, a: (r[0] + 1e-6, *r[1:])),
    "dtype": _after(lambda r, a: (r[0].double(), *r[1:])),
    "same object lost": _after(lambda r, a: (r[0], r[0].clone(), *r[2:])),
    "argument replaced": _after(lambda r, a: (*r[:2], r[2].clone(), *r[3:])),
    "storage not shared": _after(lambda r, a: (*r[:4], r[4].clone())),
    "container type": _after(lambda r, a: list(r)),
    "requires_grad": _after(lambda r, a: (*r[:4], r[4].detach().clone().requires_grad_())),
    "list write dropped": _after(lambda r, a: (a[1].pop(), r)[1]),
    "attribute write dropped": _after(lambda r, a: (setattr(a[2], "n", 0), r)[1]),
    "attribute added": _after(lambda r, a: (setattr(a[2], "_hidden", 0), r)[1]),
    "printed more": _after(lambda r, a: (print("more"), r)[1]),
    "random numbers used": _after(lambda r, a: (torch.rand(1), r)[1]),
    "mode leaked": _after(lambda r, a: (torch.set_grad_enabled(False), r)[1]),
    "ran twice": _twice,
    "raises": _after(lambda r, a: 1 // 0),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_compiler_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "compile_fn", lambda fn, **options: WRONG[name](fn))
    with pytest.raises(AssertionError, match="compiled differs from eager"):
        check(program, t(), [], Box(), False)


def test_wrong_exception_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "compile_fn", lambda fn, **options: _different_message(fn))
    with pytest.raises(AssertionError, match="message"):
        check(program, t(), [], Box(), True, raises=ValueError)


def test_right_compiler_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "compile_fn", lambda fn, **options: fn)
    check(program, t(), [], Box(), False)
    check(program, t(), [], Box(), True, raises=ValueError)


def test_test_that_fails_in_eager_is_refused() -> None:
    with pytest.raises(AssertionError, match="the test itself"):
        check(program, t(), [], Box(), True)
