"""What ``jitney.compile`` returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

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
