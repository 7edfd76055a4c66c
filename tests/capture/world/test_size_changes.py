"""A frame that leaves a tensor of another size where it found one is compiled for any size at once."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import observe

import jitney
from jitney.guards import Source
from jitney.guards.dynamic import ObservedValues


class Layer(torch.nn.Module):
    """Attention's cache: made by the first call, longer by one entry with each one after it."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A sum over all entries so far."""
        self.keys = x if self.keys is None else torch.cat([self.keys, x], dim=1)
        return self.keys.sum(1) * self.keys.shape[1]


class Slotted:
    """A cache in a slot."""

    __slots__ = ("keys",)

    def __init__(self) -> None:
        self.keys = torch.ones(2, 5, 3)


def in_attribute() -> Callable[[torch.Tensor], Any]:
    """A cache that is an attribute."""
    state = types.SimpleNamespace(keys=torch.ones(2, 5, 3))

    def step(x: torch.Tensor) -> torch.Tensor:
        state.keys = torch.cat([state.keys, x], dim=1)
        return state.keys.cumsum(1)

    return step


def in_slot() -> Callable[[torch.Tensor], Any]:
    """A cache in a slot."""
    state = Slotted()

    def step(x: torch.Tensor) -> torch.Tensor:
        state.keys = torch.cat([state.keys, x], dim=1)
        return state.keys.cumsum(1)

    return step


def in_cell() -> Callable[[torch.Tensor], Any]:
    """A cache that the function closes over."""
    keys = torch.ones(2, 5, 3)

    def step(x: torch.Tensor) -> torch.Tensor:
        nonlocal keys
        keys = torch.cat([keys, x], dim=1)
        return keys.cumsum(1)

    return step


def in_list() -> Callable[[torch.Tensor], Any]:
    """Caches of two layers in a list."""
    keys = [torch.ones(2, 5, 3), torch.zeros(2, 5, 3)]

    def step(x: torch.Tensor) -> torch.Tensor:
        for i, held in enumerate(keys):
            keys[i] = torch.cat([held, x], dim=1)
        return keys[0].cumsum(1) + keys[1]

    return step


def in_dictionary() -> Callable[[torch.Tensor], Any]:
    """Caches of two layers in a dictionary, all of whose items are looked at."""
    keys = {"a": torch.ones(2, 5, 3), "b": torch.zeros(2, 5, 3)}

    def step(x: torch.Tensor) -> torch.Tensor:
        for name, held in list(keys.items()):
            keys[name] = torch.cat([held, x], dim=1)
        return keys["a"].cumsum(1) + keys["b"]

    return step


def in_deque() -> Callable[[torch.Tensor], Any]:
    """A cache in a deque, and a graph break after it has grown."""
    held = collections.deque([torch.ones(2, 5, 3)])

    def step(x: torch.Tensor) -> torch.Tensor:
        held[0] = torch.cat([held[0], x], dim=1)
        jitney.graph_break()
        return held[0].cumsum(1)

    return step


@pytest.mark.parametrize("make", [in_attribute, in_slot, in_cell, in_list, in_dictionary, in_deque])
def test_what_grows_with_each_call_is_compiled_once(make: Callable[[], Callable[[torch.Tensor], Any]]) -> None:
    plain, compiled = make(), jitney.compile(make(), backend="eager")
    found = []
    for call in range(4):
        x = torch.full((2, 1, 3), float(call))
        with observe() as seen:
            torch.testing.assert_close(compiled(x), plain(x), rtol=0, atol=0)
        found.append((len(seen.graphs), len(seen.recompiles)))
    # What comes after a break is a frame of its own, whose first call has nothing to go by.
    assert [r for _, r in found] == ([0, 1, 0, 0] if make is in_deque else [0, 0, 0, 0])
    assert not any(graphs for graphs, _ in found[2 if make is in_deque else 1 :])


@pytest.mark.parametrize("prompt", [2, 7])
def test_a_cache_that_the_first_call_makes_is_compiled_twice(prompt: int) -> None:
    plain, compiled = Layer(), jitney.compile(Layer(), backend="aot_eager")
    for call in range(5):
        x = torch.randn(2, prompt if call == 0 else 1, 3)
        with observe() as seen:
            torch.testing.assert_close(compiled(x), plain(x))
        assert len(seen.graphs) == (call < 2), call


def test_sizes_that_stay_or_are_fixed_stay_constants() -> None:
    state = types.SimpleNamespace(hidden=torch.zeros(2, 3), log=torch.zeros(3, 4))

    def step(x: torch.Tensor) -> torch.Tensor:
        state.hidden = torch.tanh(state.hidden + x)
        state.log = torch.cat([state.log, state.log])
        return state.hidden

    compiled = jitney.compile(step, backend="eager", dynamic=False)
    with observe() as seen:
        compiled(torch.ones(2, 3))
        compiled(torch.ones(2, 3))
    assert len(seen.graphs) == 2
    for graph in seen.graphs:
        assert not any(
            isinstance(n.meta["example_value"], torch.SymInt) for n in graph.graph.find_nodes(op="placeholder")
        )


def test_a_foreseen_size_is_as_if_it_had_been_seen() -> None:
    real, source = torch.zeros(2, 5, 3), Source(None, "local", "x")
    observed = ObservedValues(None)
    assert observed.dynamic_dims(real, source) == [False] * 3
    assert not observed.foresee(real, source, (2, 5, 3))
    assert observed.foresee(real, source, (2, 6, 3))
    assert not observed.foresee(real, source, (2, 7, 3))
    assert observed.foresee(real, source, (2, 7, None))
    assert observed.dynamic_dims(real, source) == [False, True, True]
    assert not ObservedValues(False).foresee(real, source, (2, 6, 3))
