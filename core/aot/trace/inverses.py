"""Writes through views from which torch's functionalization computes the whole, instead of only moving elements."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from jitney.aot.signals import NotSplit
from jitney.aot.trace import functionalization

_aten = torch.ops.aten
_PASSED = {_aten.sum.dim_IntList, _aten.view.default, _aten.squeeze.dims, _aten.alias.default}


@contextlib.contextmanager
def only_moved(graph: fx.Graph, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Refuse what an operation writes through a view of which torch computes the whole, unless that is the same.

    Through an expanded view it is traced as ``base + sum(new - base)``, which is not the new value where that is
    infinite, and is rounded elsewhere. Through windows (``unfold``) it is the sum of the windows: zero where there is
    none, and several times the value where windows overlap.

    Args:
        graph: what the operation is traced into.
        args, kwargs: its arguments.

    Raises:
        NotSplit: it has done so.
    """
    given = [v for v in (*args, *kwargs.values()) for v in (v if isinstance(v, (list, tuple)) else [v])]
    before = [(v, functionalization.version(v)) for v in given if functionalization.is_wrapped(v)]
    end = next(iter(reversed(graph.nodes)), None)
    yield
    if all(functionalization.version(v) == count >= 0 for v, count in before):
        return
    for node in reversed(graph.nodes):
        if node is end:
            return
        if node.target is _aten.add.Tensor and _is_way_back(*node.args):
            raise NotSplit("a write through an expanded view")
        if node.target is _aten.unfold_backward.default and not _is_tiled(*node.args[1:]):
            raise NotSplit("a write through windows that overlap or leave something out")


def _is_way_back(base: Any, change: Any) -> bool:
    """Is it ``base + sum(new - base)``?"""
    while isinstance(change, fx.Node) and change.target in _PASSED:
        change = change.args[0]
    return isinstance(change, fx.Node) and change.target is _aten.sub.Tensor and change.args[1] is base


def _is_tiled(sizes: Any, dim: Any, size: Any, step: Any) -> bool:
    """Is each element in one window? Of sizes that change that is not known."""
    whole = sizes[dim] if sizes else 1
    return isinstance(whole, int) and size == step and whole % size == 0
