"""Operators whose results are indices: below what they lie, so that nobody need look whether they are in range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from jitney_lowering.aten.call import bound
from jitney_lowering.aten.torch_sizes import Sizes
from jitney_lowering.index import Index, at_most, index
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
Rule = Callable[[Sequence[Any], Sizes], Index | None]


def limit_of(node: fx.Node, sizes: Sizes) -> tuple[int, Index] | None:
    """Which result of an operator, and a number that its elements are below; none of them is negative."""
    if node.target not in LIMITS:
        return None
    number, rule = LIMITS[node.target]
    try:
        found = rule(bound(node.target, node.args, node.kwargs), sizes)
    except (NoRule, IndexError):  # of a dimension that is not there, which the operator will say
        return None
    return None if found is None else (number, found)


def _size(x: fx.Node, dim: int, sizes: Sizes) -> Index:
    shape = x.meta["val"].shape
    return sizes.index(shape[dim]) if shape else index(1)


def _of_dimension(at: int) -> Rule:
    """A dimension of the first argument, which is that of a number."""
    return lambda args, sizes: _size(args[0], args[at], sizes)


def _number(value: Any, sizes: Sizes) -> Index | None:
    value = value.meta["val"] if isinstance(value, fx.Node) else value
    return sizes.index(value) if isinstance(value, (int, torch.SymInt)) else None


def _drawn(args: Sequence[Any], sizes: Sizes) -> Index | None:
    """Numbers from a first one."""
    low = _number(args[0], sizes)
    return _number(args[1], sizes) if low is not None and at_most(0, low) else None


LIMITS: dict[Any, tuple[int, Rule]] = {
    aten.sort.default: (1, _of_dimension(1)),
    aten.sort.stable: (1, _of_dimension(2)),
    aten.argsort.default: (0, _of_dimension(1)),
    aten.argsort.stable: (0, _of_dimension(2)),
    aten.topk.default: (1, _of_dimension(2)),
    aten.max.dim: (1, _of_dimension(1)),
    aten.min.dim: (1, _of_dimension(1)),
    aten.multinomial.default: (0, lambda args, sizes: _size(args[0], -1, sizes)),
    aten.randperm.default: (0, lambda args, sizes: _number(args[0], sizes)),
    aten.randint.default: (0, lambda args, sizes: _number(args[0], sizes)),
    aten.randint.low: (0, _drawn),
}
