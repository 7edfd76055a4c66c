"""Numbers of Python's random generators: drawn by the compiled frame as eager draws them, and part of its graph."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from helpers import check, check_scenario, outcome
from torch import nn

import jitney

OWN = random.Random(7)
X = torch.linspace(0, 2, 24).reshape(4, 6)


def scaled(x: torch.Tensor) -> Any:
    return x * random.uniform(0.5, 1.5) + random.random(), random.gauss(0, 1)


class Own:
    def __init__(self) -> None:
        self.generator = random.Random(7)

    def __call__(self, x: torch.Tensor) -> Any:
        return x * self.generator.random() + self.generator.randint(1, 4), self.generator.getrandbits(8)


def rotated(x: torch.Tensor) -> Any:
    angle = random.uniform(-math.pi, math.pi)
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return x[:, :2] @ turn, angle, -angle * 2 + 1


def mixed(x: torch.Tensor) -> Any:
    part = random.betavariate(0.4, 0.4)
    return part * x + (1 - part) * x[torch.randperm(x.size(0))], int(part * 10), torch.full((2,), part)


def among(x: torch.Tensor) -> Any:
    order, picked = list(range(4)), random.sample(range(x.shape[0]), 2)
    random.shuffle(order)
    scale = random.choice([0.5, 1.0, 2.0]) * random.choice((1, 2))
    return x[order] * scale, x[picked], x[random.randint(0, 3)] + 1, order, picked, scale, random.random()


class Bag:
    def __init__(self) -> None:
        self.places = [3, 1, 2, 0]
        self.generator = random.Random(7)

    def __call__(self, x: torch.Tensor) -> Any:
        self.generator.shuffle(self.places)
        return x[self.places] * self.generator.choice(self.places)


@pytest.mark.parametrize("fn", [scaled, Own(), rotated, mixed, among, Bag()])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_draws_are_part_of_the_graph(fn: Any, backend: str) -> None:
    check(fn, X, calls=3, graphs=1, breaks=0, compile_options={"backend": backend})


def flipped(x: torch.Tensor) -> Any:
    return (x.flip(1) if random.random() > 0.5 else x) * random.uniform(1, 2)


def repeated(x: torch.Tensor) -> Any:
    for _ in range(random.randint(1, 3)):
        x = x + random.random()
    return x, f"{random.random()}"


def chosen(x: torch.Tensor) -> Any:
    names = ["a", "b", "c"]
    random.shuffle(names)
    return x[random.randint(0, 2)], names, random.choice(names), random.sample(range(9), 2), random.random()


def refused(x: torch.Tensor) -> Any:
    return x + 1, outcome(random.randint, 3, 1), random.random()


def seeded(x: torch.Tensor) -> Any:
    first = random.random()
    random.seed(3)
    return x * random.random(), first


def decided(x: torch.Tensor) -> Any:
    order = [2, 0, 1]
    random.shuffle(order)
    for i in order:
        x = x + X[i] if i else x * random.choice([1, 2.5])
    return x, outcome(random.choice, []), outcome(random.sample, [1], 2), random.choices([1, 2], k=2), order


@pytest.mark.parametrize("fn", [flipped, repeated, chosen, refused, seeded, decided])
def test_draws_that_decide_something(fn: Any) -> None:
    check(fn, X, calls=4)


def test_layers_that_are_left_out_at_random() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
            self.history: list[float] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.history.append(random.random())
            for layer in self.layers:
                if random.random() < 0.5:
                    x = layer(x)
            return x

    check(Model(), X, calls=4)


def test_a_graph_that_fails_draws_nothing() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> Any:
        first = random.random()
        try:
            return x[i] * first
        except IndexError:
            return x * first * OWN.random()

    def scenario(compile: Any) -> Any:
        random.seed(1)
        OWN.seed(2)
        called = compile(fn)
        found = [outcome(called, X, torch.tensor([i])) for i in (0, 9, 1, 9)]
        return found, random.random(), OWN.random()

    check_scenario(scenario)


def test_a_generator_with_its_own_random() -> None:
    class Half(random.Random):
        def random(self) -> float:
            return 0.5

    half = Half()
    check(lambda x: x * half.random() + half.uniform(0, 1), X, skips=None)


def seeded(x: torch.Tensor, number: int) -> Any:
    random.seed(number)
    first = random.random()
    random.seed("text")
    order = [1, 2, 3]
    random.shuffle(order)
    np.random.seed(number + 1)
    return x * first + np.random.rand(), order, np.random.randint(9), random.random()


OWN_NUMPY = np.random.RandomState(3)


def own_seeded(x: torch.Tensor, number: int) -> Any:
    OWN.seed(number)
    OWN_NUMPY.seed(number)
    return x * OWN.random() + OWN_NUMPY.normal()


@pytest.mark.parametrize("fn", [seeded, own_seeded])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_generators_are_seeded_in_the_graph(fn: Any, backend: str) -> None:
    compiled = jitney.compile(fn, backend=backend, fullgraph=True)
    for number in (1, 2, 3, 2):
        results = []
        for run in (fn, compiled):
            for generator in (random, np.random, OWN, OWN_NUMPY):
                generator.seed(0)  # type: ignore[attr-defined]
            results.append((*run(X, number), random.random(), np.random.rand(), OWN.random(), OWN_NUMPY.rand()))
        torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)


def test_a_seed_that_is_refused_raises_as_eager_does() -> None:
    def fn(x: torch.Tensor, number: int) -> Any:
        np.random.seed(number)
        return x * np.random.rand()

    compiled = jitney.compile(fn, backend="eager")
    for number in (1, 2, -1, 3):
        np.random.seed(5)
        assert str(outcome(compiled, X, number)) == str(outcome(fn, X, number))
