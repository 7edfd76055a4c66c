"""Copies of arguments: equal values, strides and sharing of memory, nothing in common with the originals."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch


def copied(value: Any, grad: bool = True) -> Any:
    """``value`` with every tensor inside plain containers copied; tensors that share memory share the copy's.

    A tensor that requires grad becomes a leaf that does, unless ``grad`` is False. Other objects are the same ones.
    """
    return _copy(value, {}, {} if grad else {"detached": True})


def _copy(value: Any, done: dict[int, Any], memo: dict[Any, Any]) -> Any:
    if isinstance(value, torch.Tensor):
        if id(value) not in done:
            plain = value.layout is torch.strided and not value.is_nested
            made = copy.deepcopy(value.detach(), memo) if plain else value.detach().clone()
            done[id(value)] = made.requires_grad_() if value.requires_grad and "detached" not in memo else made
        return done[id(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_copy(item, done, memo) for item in value))
    if type(value) in (list, tuple):
        return type(value)(_copy(item, done, memo) for item in value)
    if isinstance(value, dict):
        return type(value)((key, _copy(item, done, memo)) for key, item in value.items())
    if isinstance(value, slice):
        return slice(*(_copy(item, done, memo) for item in (value.start, value.stop, value.step)))
    return value


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor inside plain containers, in order, each once."""
    seen: set[int] = set()
    for tensor in _tensors(value):
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield tensor


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, slice):
        yield from _tensors((value.start, value.stop, value.step))
