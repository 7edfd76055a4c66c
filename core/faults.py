"""A compiled graph has raised: is it the program's fault, or the backend's? The graph as it was captured tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney.errors import JitneyError
from jitney.state import StateKeeper


def raises_too(graph: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    """Does this graph raise on these inputs? Random generators and torch's global state are put back.

    Args:
        graph: what does the same without a backend, and writes to none of its inputs.
        inputs: tensors and numbers.
    """
    keeper = StateKeeper()
    devices = sorted({t.device.index for t in inputs if isinstance(t, torch.Tensor) and t.is_cuda})
    try:
        with torch.random.fork_rng(devices):
            graph(*inputs)
    except Exception:
        return True
    finally:
        keeper.restore()
    return False


def blaming(
    compiled: Callable[..., Sequence[Any]], graph: Callable[..., Any], failure: Callable[[Exception], Exception]
) -> Callable[..., Sequence[Any]]:
    """``compiled``; what it raises and ``graph`` does not is raised as ``failure`` says, with the cause."""

    def run(*inputs: Any) -> Sequence[Any]:
        try:
            return compiled(*inputs)
        except Exception as error:
            if isinstance(error, JitneyError) or raises_too(graph, inputs):
                raise
            raise failure(error) from error

    return run
