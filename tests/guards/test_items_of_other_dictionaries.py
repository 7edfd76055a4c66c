"""Guards on items of dictionaries whose class makes what is missing: asking must not make it."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
from helpers import check_scenario, t


class Making(dict[str, Any]):
    def __missing__(self, key: str) -> int:
        self[key] = 0
        return 0


def defaults(**items: int) -> Any:
    return collections.defaultdict(int, items)


def by_get(x: torch.Tensor, counts: Any) -> Any:
    return x * counts.get("k", 7)


def by_in(x: torch.Tensor, counts: Any) -> Any:
    return x * (counts["k"] if "k" in counts else 7)


def written_first(x: torch.Tensor, counts: Any) -> Any:
    counts["first"] = 1
    return x * (counts["k"] + 1), list(counts)


@pytest.mark.parametrize("fn", [by_get, by_in, written_first])
@pytest.mark.parametrize("made", [defaults, Making, collections.Counter, dict])
def test_a_key_that_is_gone(fn: Any, made: Any) -> None:
    def scenario(compiled: Any) -> Any:
        called, results = compiled(fn), []
        for counts in (made(k=3), made(k=3, x=1), made(x=1), made(), collections.defaultdict(int), {"k": 3}):
            try:
                results.append((called(t(2), counts), called(t(2), counts)))
            except KeyError as error:
                results.append(repr(error))
            results.append(list(counts.items()))
        return results

    check_scenario(scenario)
