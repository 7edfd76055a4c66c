"""Branches on numbers that are computed of the host's tensors: guarded, as in eager."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney
from jitney import events

State = dict[str, torch.Tensor]


def counted(x: torch.Tensor, state: State) -> torch.Tensor:
    state["step"] += 1
    return x * 2 if state["step"].item() > 3 else x - 1


def of_a_list(x: torch.Tensor, state: State) -> torch.Tensor:
    torch._foreach_add_([state["other"], state["step"]], [2, 1])
    return x * 2 if state["step"].item() * 2 - 1 >= 6 else x - state["other"]


def computed(x: torch.Tensor, state: State) -> torch.Tensor:
    state["step"].add_(1)
    left = 10 / (1 - 0.5 ** state["step"].item()) - 10
    return x * left if left < 1 else x - left


def before_and_after(x: torch.Tensor, state: State) -> torch.Tensor:
    before = state["step"].item()
    state["step"].mul_(2).add_(1)
    after = state["step"].item()
    return x + 1 if after > 3 * before else x - 1


def larger(x: torch.Tensor, state: State) -> torch.Tensor:
    state["step"] += 1
    return x / max(1, state["step"].item() - 3) + min(state["step"].item(), 2)


PROGRAMS: dict[str, Callable[[torch.Tensor, State], torch.Tensor]] = {
    f.__name__: f for f in (counted, of_a_list, computed, before_and_after, larger)
}


def fresh() -> State:
    return {"step": torch.tensor(0.0), "other": torch.tensor(0.5)}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_branch_is_eagers_at_each_call(name: str, backend: str) -> None:
    fn, captures = PROGRAMS[name], 0

    def count(event: Any) -> None:
        nonlocal captures
        captures += isinstance(event, events.FrameCaptured)

    compiled = jitney.compile(fn, backend=backend, fullgraph=True)
    mine, other, x = fresh(), fresh(), torch.rand(3)
    with events.listen(count):
        for _ in range(8):
            torch.testing.assert_close(compiled(x, mine), fn(x, other))
            assert {k: v.item() for k, v in mine.items()} == {k: v.item() for k, v in other.items()}
    assert captures <= 3


@pytest.mark.parametrize("value", [7.0, -2.0, math.nan, math.inf, 2.0])
def test_what_others_write_counts(value: float) -> None:
    compiled = jitney.compile(counted, backend="eager", fullgraph=True)
    mine, x = fresh(), torch.rand(3)
    for _ in range(3):
        compiled(x, mine)
    mine["step"].fill_(value)
    other = copy.deepcopy(mine)
    for _ in range(2):
        assert torch.equal(compiled(x, mine), counted(x, other))
        assert torch.equal(mine["step"], other["step"]) or math.isnan(value)


def test_memory_that_another_tensor_writes_to_is_left_to_the_graph() -> None:
    def fn(x: torch.Tensor, step: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
        view.add_(5)
        return x * 2 if step.item() > 3 else x - 1

    memory = torch.zeros(2)
    compiled = jitney.compile(fn, backend="eager")
    x = torch.rand(3)
    assert torch.equal(compiled(x, memory[0], memory[:1]), x * 2)
    memory.zero_()
    assert torch.equal(compiled(x, memory[0], memory[1:]), x - 1)


def test_numbers_of_the_graphs_own_are_a_graph_break() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum().item() > 1 else x - 1

    with pytest.raises(jitney.errors.Unsupported, match="comparison of a number"):
        jitney.compile(fn, backend="eager", fullgraph=True)(torch.rand(3))
