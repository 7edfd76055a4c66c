"""Searches of sets: what C code compares is looked at, a class of many objects once."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

import jitney
from jitney.capture.python import c_boundary


def visited(modules: list[torch.nn.Module], x: torch.Tensor) -> torch.Tensor:
    """As ``named_modules`` goes through modules."""
    memo: set[torch.nn.Module] = set()
    for module in modules:
        if module not in memo:
            memo.add(module)
            x = x + 1
    return x


def questions(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a class is asked whether it compares its objects, while so many modules are searched for."""
    # No function of this file: from Python 3.12 on, one that begins while capture runs is taken for C code's doing.
    counted = mock.Mock(side_effect=c_boundary.python_method)
    modules: list[torch.nn.Module] = []
    modules += [torch.nn.Identity() for _ in range(count)] * 2
    with monkeypatch.context() as patch:
        patch.setattr(c_boundary, "python_method", counted)
        x = torch.zeros(2)
        assert torch.equal(jitney.compile(visited, backend="eager", fullgraph=True)(modules, x), visited(modules, x))
    return sum(call.args[2] == "__eq__" and isinstance(call.args[1], torch.nn.Module) for call in counted.mock_calls)


def test_each_search_asks_a_class_once(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = questions(5, monkeypatch), questions(20, monkeypatch)
    assert many <= 4 * few + 4  # not 16 times
