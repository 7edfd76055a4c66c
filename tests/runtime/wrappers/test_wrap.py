"""What ``jitney.compile`` returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from helpers import compile_fn, observe

import jitney
from jitney.runtime.wrappers import running_originals


def test_originals_run_until_the_outermost_block_ends() -> None:
    calls: list[int] = []

    def counting(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        def run(*values: Any) -> Any:
            calls.append(1)
            return graph.forward(*values)

        return run

    compiled = jitney.compile(lambda x: x + 1, backend=counting)
    compiled(torch.zeros(2))
    with running_originals():
        with running_originals():
            compiled(torch.zeros(2))
        assert torch.equal(compiled(torch.zeros(2)), torch.ones(2)) and len(calls) == 1
    assert torch.equal(compiled(torch.zeros(2)), torch.ones(2)) and len(calls) == 2


def test_run_of_a_plain_function_compiles_nothing_that_it_calls() -> None:
    step = compile_fn(lambda x: x * 2)

    @jitney.run
    def plain(x: torch.Tensor) -> torch.Tensor:
        """What it does."""
        return step(x) + 1

    with observe() as seen:
        assert torch.equal(plain(torch.ones(2)), torch.full((2,), 3.0)) and plain.__doc__ == "What it does."
        assert not seen.graphs
        step(torch.ones(2))
        assert torch.equal(plain(torch.ones(2)), torch.full((2,), 3.0))
        assert torch.equal(plain(torch.ones(2, 2)), torch.full((2, 2), 3.0))
    assert len(seen.graphs) == 1
    model = torch.nn.Linear(2, 2)
    assert torch.equal(jitney.run(model)(torch.ones(2)), model(torch.ones(2)))
    with pytest.raises(TypeError, match=r"jitney.run: a int is not callable"):
        jitney.run(3)
