"""Does a backend return what its graph says? Asked at the first call, and at every one under ``config.verify``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney.cache.recipes import RECIPE
from jitney.config import config

ANYTHING: Any = object()  # an output that is not looked at


def checked(
    compiled: Callable[..., Sequence[Any]], expected: Sequence[Any], seen: int, reject: Callable[[str], None]
) -> Callable[..., Sequence[Any]]:
    """``compiled``, its first result compared with ``expected`` (FakeTensors, symbols, None, numbers).

    Args:
        compiled: what the backend made.
        expected: the graph's outputs as traced: number, dtypes, devices and fixed sizes count.
        seen: how many of them the program sees; the others are saved for the backward.
        reject: called with what is wrong; raises.
    """
    looked = False

    def run(*inputs: Any) -> Sequence[Any]:
        nonlocal looked
        outputs = compiled(*inputs)
        if not looked or config.verify:
            reason = difference(outputs, expected, seen)
            if reason:
                reject(reason)
            looked = True
        return outputs

    run.boxed = getattr(compiled, "boxed", None)  # type: ignore[attr-defined] # see Backend
    run.filled = getattr(compiled, "filled", frozenset())  # type: ignore[attr-defined] # see CompileRequest.updates
    run.__dict__[RECIPE] = lambda writer: writer.ref(compiled)
    return run


def difference(outputs: Any, expected: Sequence[Any], seen: int) -> str:
    """What is wrong with a graph's outputs; empty if nothing is.

    The dtypes and devices of saved values do not count: torch's stand-ins are wrong about some, such as layer norm's
    statistics of half-precision tensors, or the seed that attention's dropout keeps on the CPU.
    """
    if not isinstance(outputs, (list, tuple)):
        return f"returned a {type(outputs).__name__}; its {len(expected)} outputs were expected as a list or tuple"
    if len(outputs) != len(expected):
        return f"returned {len(outputs)} outputs, {len(expected)} were expected"
    for i, (got, want) in enumerate(zip(outputs, expected, strict=True)):
        if want is ANYTHING:
            continue
        if isinstance(want, torch.Tensor) != isinstance(got, torch.Tensor):
            return f"output {i} is a {type(got).__name__}, {_facts(want)} was expected"
        if not isinstance(want, torch.Tensor):
            continue
        if (
            (i < seen and (got.dtype, got.device.type) != (want.dtype, want.device.type))
            or got.dim() != want.dim()
            or any(type(w) is int and g != w for g, w in zip(got.shape, want.shape, strict=True))
        ):
            return f"output {i} is {_facts(got)}, {_facts(want)} was expected"
    return ""


def _facts(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    return f"{value.dtype}{list(value.shape)} on {value.device.type}"
