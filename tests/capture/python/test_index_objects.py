"""Tensors indexed by objects of the program's, whose methods torch calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import compile_fn

import jitney


class Sequence:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __len__(self) -> int:
        return 2

    def __getitem__(self, at: int) -> int:
        self.log.append(f"item {at}")
        if at > 1:
            raise IndexError(at)
        return at


class Number:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __index__(self) -> int:
        self.log.append("index")
        return 1


USES: dict[str, Callable[[torch.Tensor, list[str]], Any]] = {
    "sequence": lambda x, log: x[Sequence(log)],
    "number": lambda x, log: x[Number(log)],
    "end of a slice": lambda x, log: x[: Number(log)],
    "one of several": lambda x, log: x[..., Number(log), 1:],
}


@pytest.mark.parametrize("name", USES)
def test_methods_of_an_index_run_as_often_as_in_eager(name: str) -> None:
    def fn(x: torch.Tensor, log: list[str]) -> Any:
        y = x * 2
        log.append("before")
        return USES[name](y, log)

    seen = []
    for run in (fn, compile_fn(fn)):
        log: list[str] = []
        results: list[Any] = []
        for _ in range(2):
            try:
                results.append(run(torch.arange(12.0).reshape(3, 4), log))
            except (IndexError, TypeError, ValueError) as error:
                results.append(type(error))
        seen.append((log, [r.tolist() if isinstance(r, torch.Tensor) else r for r in results]))
    assert seen[0] == seen[1]
    jitney.reset()
