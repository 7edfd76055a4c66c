"""Writes over what is read are eager's errors where the program can catch them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney
from jitney.torch_compat.stand_ins.memory_overlap import check_memory

WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "shifted": lambda x: x[1:].add_(x[:-1]),
    "expanded": lambda x: x.expand(4, *x.shape).mul_(2),
    "expanded, alone": lambda x: x.expand(4, *x.shape).sin_(),
    "transposed": lambda x: x.t().add_(x),
    "apart": lambda x: x[:2].add_(x[2:]),
    "itself": lambda x: x.add_(x),
    "a view of all": lambda x: x.add_(x.view(-1).view(x.shape)),
    "interleaved": lambda x: x[::2].mul_(x[1::2]),
    "columns": lambda x: x[:, 0].mul_(x[:, 1]),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", WRITES)
def test_the_programs_own_try_gets_the_error(name: str, backend: str) -> None:
    def fn(x: torch.Tensor, seen: list[str]) -> torch.Tensor:
        seen.append("begun")
        try:
            WRITES[name](x)
        except RuntimeError as error:
            seen.append(str(error))
            x.mul_(3)
        return x + 1

    compiled = jitney.compile(fn, backend=backend)
    for make in (lambda: torch.arange(16.0).reshape(4, 4), lambda: torch.arange(36.0).reshape(6, 6)[1:5, 1:5]):
        outcomes = []
        for run in (fn, compiled):
            x, seen = make(), list[str]()
            outcomes.append((run(x, seen).tolist(), x.tolist(), seen))
        assert outcomes[0] == outcomes[1]


def test_it_says_what_eagers_kernels_say() -> None:
    rng = random.Random(0)
    refused = 0
    for _ in range(2000):
        memory = torch.ones(64)
        size = [rng.choice([0, 1, 2, 2, 3]) for _ in range(rng.randint(0, 3))]
        strides = ([rng.choice([0, 1, 1, 2, 3, 4, 6]) for _ in size] for _ in "xy")
        x, y = (memory.as_strided(size, stride, rng.randint(0, 6)) for stride in strides)
        said = []
        for run in (lambda x, y: x.add_(y), lambda x, y: check_memory(torch.ops.aten.add_.Tensor, x, y)):
            try:
                run(x, y)
                said.append("")
            except RuntimeError as error:
                said.append(str(error))
        assert said[0] == said[1], (x.shape, x.stride(), x.storage_offset(), y.stride(), y.storage_offset())
        refused += bool(said[0])
    assert 200 < refused < 1800
