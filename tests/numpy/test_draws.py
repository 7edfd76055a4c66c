"""Numbers of NumPy's random generators: drawn by the compiled frame as eager draws them, and part of its graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import check, check_scenario, compile_fn, observe, outcome

from jitney import config

X = torch.linspace(0, 2, 24).reshape(4, 6)
LEGACY, MODERN = np.random.RandomState(3), np.random.default_rng(4)


def mixed(x: torch.Tensor) -> Any:
    part = np.random.beta(0.4, 0.4)
    return part * x + (1 - part) * x[torch.randperm(x.size(0))], part


def jittered(x: torch.Tensor) -> Any:
    return x * np.random.uniform(0.5, 1.5) + np.random.rand(), np.random.normal(loc=1.0), np.random.randint(3)


def of_own(x: torch.Tensor) -> Any:
    return x * LEGACY.randn() + LEGACY.random_sample() + MODERN.random(), MODERN.normal(0, 2)


@pytest.mark.parametrize("fn", [mixed, jittered, of_own])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_draws_are_part_of_the_graph(fn: Callable[..., Any], backend: str) -> None:
    def scenario(compiled: Any) -> Any:
        LEGACY.seed(3)
        MODERN.bit_generator.state = np.random.default_rng(4).bit_generator.state
        called = compiled(fn) if compiled is not compile_fn else compile_fn(fn, backend=backend)
        return [called(X) for _ in range(3)], LEGACY.rand(), MODERN.random(), np.random.rand()

    with observe() as seen:
        check_scenario(scenario)
    assert len(seen.graphs) == 1 and seen.breaks == []


def in_numbers(x: torch.Tensor) -> Any:
    return (
        x * float(np.random.rand(3)[0]),
        np.random.permutation(3),
        np.random.choice([1, 2]),
        np.random.randint(5, size=2),
    )


def deciding(x: torch.Tensor) -> Any:
    return x if np.random.rand() < 0.5 else -x * np.random.randn()


def refused(x: torch.Tensor) -> Any:
    return x + 1, outcome(np.random.randint, 3, 1), np.random.rand()


@pytest.mark.parametrize("fn", [in_numbers, deciding, refused])
def test_other_draws_break(fn: Callable[..., Any]) -> None:
    check(fn, X, calls=4)


def test_a_graph_that_fails_draws_nothing() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> Any:
        first = np.random.rand()
        try:
            return x[i] * first
        except IndexError:
            return x * first * LEGACY.randn() * MODERN.random()

    def scenario(compiled: Any) -> Any:
        np.random.seed(1)
        LEGACY.seed(2)
        MODERN.bit_generator.state = np.random.default_rng(4).bit_generator.state
        called = compiled(fn)
        found = [outcome(called, X, torch.tensor([i])) for i in (0, 9, 1, 9)]
        return found, np.random.rand(), LEGACY.randn(), MODERN.random()

    check_scenario(scenario)


def test_without_numpy_draws_stay_numpys() -> None:
    with config.patch(trace_numpy=False):
        check(mixed, X, breaks=1)
