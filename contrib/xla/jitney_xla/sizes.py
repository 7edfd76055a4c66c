"""Symbolic sizes: what they are at one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch


class NotHere(Exception):
    """XLA does not get the graph in these sizes; the message says why."""


def key_of(values: Sequence[Any]) -> tuple[Any, ...]:
    """The sizes and numbers of a call's arguments."""
    return tuple(tuple(v.shape) if isinstance(v, torch.Tensor) else v for v in values)


def is_symbolic(value: Any) -> bool:
    """Has it a size that may change, or is it one?"""
    if not isinstance(value, torch.Tensor):
        return isinstance(value, torch.SymInt)
    sizes: Sequence[Any] = (*value.shape, *value.stride())
    return any(isinstance(n, torch.SymInt) for n in sizes)


def numbers_of(fakes: Sequence[Any], values: Sequence[Any]) -> dict[Any, int]:
    """Each symbol that an argument is, or has as a size or stride: its number in this call."""
    found: dict[Any, int] = {}

    def tell(symbolic: Any, number: int) -> None:
        if isinstance(symbolic, torch.SymInt) and symbolic.node.expr.is_Symbol:
            found.setdefault(symbolic.node.expr, number)

    for fake, value in zip(fakes, values, strict=True):
        if isinstance(fake, torch.Tensor):
            for symbolic, number in zip(fake.shape, value.shape, strict=True):
                tell(symbolic, number)
            for symbolic, number in zip(fake.stride(), value.stride(), strict=True):
                tell(symbolic, number)
        else:
            tell(fake, value)
    return found


def resolver(numbers: Mapping[Any, int]) -> Callable[[Any], int]:
    """Sizes as they are in this call.

    Raises (the returned function): ``NotHere`` for a size made of symbols that no argument tells.
    """

    def resolve(size: Any) -> int:
        if not isinstance(size, torch.SymInt):
            return int(size)
        found = sympy.sympify(size.node.expr.xreplace(numbers))
        if not found.is_number:
            raise NotHere(f"no argument has the size {size}")
        return int(found)

    return resolve
