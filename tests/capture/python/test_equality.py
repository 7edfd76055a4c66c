"""What C code of containers compares: an object is equal to itself, writes that wait count, errors are Python's."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.checkpoint

import jitney


class Number:
    def __init__(self, value: float) -> None:
        self.value = value

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and self.value == other.value


def first(d: dict[Any, int]) -> Any:
    return next(iter(d))


QUESTIONS: dict[str, Callable[..., Any]] = {
    "get": lambda x, d, k: x * d.get(k, 9),
    "in a dict": lambda x, d, k: x * (3 if k in d else 9),
    "a set": lambda x, d, k: x * len({k, first(d)}),
    "tuples": lambda x, d, k: x * ((k, 1) == (first(d), 1)),
    "lists": lambda x, d, k: x * ([k] == [first(d)]),
    "in a list": lambda x, d, k: x * (k in [first(d)]),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_is_not_equal_to_itself(name: str) -> None:
    fn, x = QUESTIONS[name], torch.ones(2)
    one, other = Number(math.nan), Number(math.nan)
    compiled = jitney.compile(fn, backend="eager")
    for key in (one, other, one):
        torch.testing.assert_close(compiled(x, {one: 3}, key), fn(x, {one: 3}, key))


def test_keys_that_wait_to_be_written_to() -> None:
    def fn(x: torch.Tensor, d: dict[Number, int], key: Number) -> torch.Tensor:
        key.value += 1
        return x * d.get(key, 9)

    x = torch.ones(2)
    assert jitney.compile(fn, backend="eager")(x, {Number(1): 2}, Number(0)).tolist() == [2.0, 2.0]


class Refusing(Number):
    __hash__ = Number.__hash__

    def __eq__(self, other: object) -> bool:
        raise KeyError("never asked")


def test_no_more_is_compared_than_c_code_does() -> None:
    def fn(x: torch.Tensor, d: dict[Number, int], key: Number) -> torch.Tensor:
        try:
            return x * d[key]
        except KeyError:
            return x * 0

    key, x = Refusing(1), torch.ones(2)
    for d in ({key: 2}, {key: 2, 3: 1}):
        torch.testing.assert_close(jitney.compile(fn, backend="eager")(x, d, key), fn(x, d, key))


class Hashed:
    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        return self.value


@pytest.mark.parametrize("value", [5, -1, 2**70])
def test_hash_is_what_c_code_holds(value: int) -> None:
    def fn(x: torch.Tensor, key: Hashed) -> torch.Tensor:
        return x * (hash(key) % 1000)

    x = torch.ones(2)
    torch.testing.assert_close(jitney.compile(fn, backend="eager")(x, Hashed(value)), fn(x, Hashed(value)))


def test_a_module_that_draws_when_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late_module.py").write_text("import torch\ntorch.manual_seed(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def fn(x: torch.Tensor) -> torch.Tensor:
        before = torch.rand(2)
        import late_module  # type: ignore[import-not-found]  # noqa: F401

        return x + before + torch.rand(2)

    found = []
    for run in (fn, jitney.compile(fn, backend="eager")):
        sys.modules.pop("late_module", None)
        torch.manual_seed(0)
        found.append(run(torch.ones(2)))
    sys.modules.pop("late_module", None)
    torch.testing.assert_close(found[1], found[0])


def test_a_copied_tensor_has_the_attributes_of_the_first() -> None:
    def fn(p: torch.Tensor) -> tuple[Any, torch.Tensor]:
        return getattr(copy.deepcopy(p), "tag", None), p + 1

    compiled, p = jitney.compile(fn, backend="eager"), torch.ones(2)
    assert compiled(p)[0] is None
    p.tag = 5  # type: ignore[attr-defined]
    assert compiled(p)[0] == 5


def test_a_checkpoint_that_asks_whether_results_are_leaves() -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y.sin() if y.is_leaf else y.cos()

    def fn(x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = torch.utils.checkpoint.checkpoint(body, x, use_reentrant=True)
        return made

    x = torch.ones(2, requires_grad=True)
    torch.testing.assert_close(jitney.compile(fn, backend="eager")(x), fn(x))
