"""What a function has at hand: its owner, its closure, the globals that it names; and what those hold."""

from __future__ import annotations

import collections
import inspect
import itertools
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch

DEPTH = 2  # of containers and objects that hold others
MOST = 1000  # items of one container


def reached(function: Any, values: Sequence[Any] = ()) -> Iterator[Any]:
    """Everything at hand to a function and in ``values``, each once: also what lists, dictionaries and objects hold.

    Modules are not looked into.
    """
    begin = (function, getattr(function, "__self__", None), *values, *_named(function))
    todo = collections.deque((value, 0) for value in begin)
    seen: set[int] = set()
    while todo:
        value, depth = todo.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if depth < DEPTH:
            todo += [(held, depth + 1) for held in _held(value)]


def _named(function: Any) -> list[Any]:
    """What is in the closure of a function, and the globals that its code names."""
    inner = inspect.unwrap(getattr(function, "__func__", function)) if callable(function) else None
    if not isinstance(inner, types.FunctionType):
        return []
    names = _names(inner.__code__)
    found = [value for name, value in inner.__globals__.items() if name in names]
    for cell in inner.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # nothing is in it yet
            continue
    return found


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*inner)


def _held(value: Any) -> list[Any]:
    kind = type(value)
    if kind in (list, tuple):
        return list(value[:MOST])
    if kind is dict:
        return list(itertools.islice(value.values(), MOST))
    plain = not isinstance(value, (torch.nn.Module, torch.Tensor, type, types.ModuleType)) and not callable(value)
    return list(vars(value).values()) if plain and isinstance(getattr(value, "__dict__", None), dict) else []
