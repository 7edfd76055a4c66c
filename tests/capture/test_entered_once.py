"""What C code enters of the program's by itself does nothing before capture starts over with a break there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import compile_fn


class Number:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __index__(self) -> int:
        self.log.append("index")
        return 2

    def __float__(self) -> float:
        self.log.append("float")
        return 2.5

    def __radd__(self, other: Any) -> Any:
        self.log.append("radd")
        return 1


USES: dict[str, Callable[[torch.Tensor, Number], Any]] = {
    "repetition": lambda x, n: "ab" * n,  # type: ignore[operator]
    "repeated list": lambda x, n: [1] * n,  # type: ignore[operator]
    "slice of a list": lambda x, n: [1, 2, 3][:n],
    "range": lambda x, n: list(range(n)),  # type: ignore[call-overload]
    "sum": lambda x, n: sum([1, n]),
    "text": lambda x, n: "%d" % n,
    "sizes": lambda x, n: x.view(n, -1).shape,
}


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="what sees the calls there does not know who makes them")
@pytest.mark.parametrize("name", USES)
def test_what_c_code_enters_is_done_once(name: str) -> None:
    def fn(x: torch.Tensor, log: list[str]) -> Any:
        y = x * 2
        log.append("before")
        found = USES[name](y, Number(log))
        log.append("after")
        return y + 1, found

    seen = []
    for run in (fn, compile_fn(fn)):
        log: list[str] = []
        results = []
        for _ in range(2):
            try:
                y, found = run(torch.ones(4), log)
                results.append((y.tolist(), found))
            except TypeError as error:
                results.append(type(error))
        seen.append((log, results))
    assert seen[0] == seen[1]
