"""``except*``: groups are split among handlers, and what nobody has taken goes on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import check, check_scenario, t


def picture(error: BaseException | None) -> Any:
    """An exception as plain values: its class, text, parts and context."""
    if isinstance(error, BaseExceptionGroup):
        return type(error).__name__, error.message, [picture(part) for part in error.exceptions]
    return None if error is None else (type(error).__name__, str(error), picture(error.__context__))


def fails(kind: str) -> None:
    if kind == "deep":
        inner = ExceptionGroup("inner", [ValueError("c"), TypeError("d")])
        raise ExceptionGroup("outer", [ValueError("a"), KeyError("b"), inner])
    if kind == "naked":
        raise ValueError("alone")
    if kind == "whole":
        raise ExceptionGroup("outer", [ValueError("a"), ExceptionGroup("inner", [ValueError("b")])])
    if kind == "none":
        raise ExceptionGroup("outer", [OSError("e"), ArithmeticError("f")])
    if kind == "other":
        raise ArithmeticError("g")


KINDS = ("fine", "deep", "naked", "whole", "none", "other")


@pytest.mark.parametrize("kind", KINDS)
def test_groups_are_split(kind: str) -> None:
    def fn(x: torch.Tensor, log: list[Any]) -> torch.Tensor:
        try:
            fails(kind)
        except* ValueError as group:
            log.append(len(group.exceptions))
            x = x * 2
        except* (KeyError, TypeError) as group:
            log.append([type(part).__name__ for part in group.exceptions])
            x = x + 3
        else:
            log.append("else")
        finally:
            log.append("finally")
        return x - 1

    check(fn, t(), [], raises=BaseException)
    if kind not in ("none", "other"):
        check(fn, t(), [], graphs=1, breaks=0)


@pytest.mark.parametrize("how", ["again", "new", "group", "both", "caught"])
def test_what_handlers_raise(how: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            raise ExceptionGroup("outer", [ValueError("a"), KeyError("b"), OSError("c")])
        except* ValueError as group:
            if how == "again":
                raise
            if how in ("new", "both"):
                raise RuntimeError("new")
            if how == "group":
                raise group
            x = x * 2
        except* KeyError as group:
            if how == "both":
                raise IndexError("another") from group
        return x

    def scenario(compile: Any) -> Any:
        called = compile(fn)
        found = []
        for _ in range(2):
            try:
                found.append(called(t()))
            except BaseException as error:
                found.append(picture(error))
        return found

    check_scenario(scenario)


def test_handlers_within_handlers() -> None:
    def fn(x: torch.Tensor) -> Any:
        try:
            try:
                raise ExceptionGroup("outer", [ValueError("a"), KeyError("b"), OSError("c")])
            except* ValueError:
                x = x + 1
            except* OSError:
                x = x * 3
        except* KeyError as group:
            x = x * 2 + len(group.exceptions) + len(group.message)
        return x

    check(fn, t(), graphs=1, breaks=0)


class Own(ExceptionGroup[Exception]):
    def derive(self, parts: Any) -> Any:
        return Own(f"{self.message}!", parts)


def test_what_is_left_to_python() -> None:
    def own(x: torch.Tensor) -> torch.Tensor:
        try:
            raise Own("m", [ValueError("a"), KeyError("b")])
        except* ValueError as group:
            x = x + len(group.message)
        except* KeyError as group:
            x = x * len(group.message)
        return x

    def outside(x: torch.Tensor, error: BaseException) -> torch.Tensor:
        try:
            raise error
        except* ValueError:
            x = x * 2
        return x

    def broken(x: torch.Tensor) -> torch.Tensor:
        try:
            raise ExceptionGroup("outer", [ValueError("a"), KeyError("b")])
        except* ValueError:
            print("a value")
            x = x + 1
        except* KeyError:
            print("a key")
            x = x * 2
        return x

    check(own, t(), skips=None)
    check(outside, t(), ExceptionGroup("outer", [ValueError("a")]), skips=None)
    check(broken, t(), skips=None)
