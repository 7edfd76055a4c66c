"""Softmaxes over the last dimension in a captured graph: torch's, and those that a program writes out.

``e = exp(s - s.amax(-1, keepdim=True)); e / e.sum(-1, keepdim=True)``, with the maximum or without.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from jitney.torch_compat import torch_private

_SOFTMAX = {
    torch.nn.functional.softmax, torch.softmax, Tensor.softmax, "softmax", torch.special.softmax,
    torch_private.safe_softmax,
}  # fmt: skip
_DIVISIONS = {"truediv", "div", "divide", "true_divide"}
_DIFFERENCES = {"sub", "subtract"}


@dataclass(frozen=True)
class Softmax:
    """Weights of a captured graph.

    Args:
        node: what they are.
        scored: what they are taken of.
        dim: over which dimension, as it is written.
        dtype: theirs, if it was given.
        safe: are they zeros where all that they are taken of is minus infinity?
        parts: the operations between, in no order.
    """

    node: fx.Node
    scored: fx.Node
    dim: Any = -1
    dtype: torch.dtype | None = None
    safe: bool = False
    parts: frozenset[fx.Node] = field(default=frozenset())


def softmaxes(nodes: Sequence[fx.Node]) -> Iterator[Softmax]:
    """Those that end in one of these nodes."""
    for node in nodes:
        found = _written_out(node)
        if _is_softmax(node):
            scored = node.args[0] if node.args else node.kwargs["input"]
            if isinstance(scored, fx.Node):
                yield Softmax(node, scored, *_arguments(node), node.target is torch_private.safe_softmax)
        elif found is not None:
            yield found


def may_have_softmax(node: fx.Node) -> bool:
    """Is it a softmax, or a part of one?"""
    return _is_softmax(node) or _named(node, {"exp"})


def _is_softmax(node: fx.Node) -> bool:
    known = node.op in ("call_function", "call_method") and node.target in _SOFTMAX
    return known and bool(node.args or "input" in node.kwargs)


def _arguments(node: fx.Node) -> tuple[Any, Any]:
    """Its dimension and dtype."""
    rest = [a for a in node.args[1:] if not isinstance(a, torch.dtype)]
    dtypes = [a for a in (*node.args[1:], *node.kwargs.values()) if isinstance(a, torch.dtype)]
    dim = node.kwargs.get("dim", rest[0] if rest else None)
    return dim, dtypes[0] if dtypes else None


def _named(node: Any, names: set[str], count: int = 1) -> bool:
    """Does it call a function or method of torch's with one of these names, with so many arguments at least?"""
    if not isinstance(node, fx.Node) or node.op not in ("call_function", "call_method") or len(node.args) < count:
        return False
    if isinstance(node.target, str):
        return node.target in names or node.target in {f"__{name}__" for name in names}
    return any(node.target is getattr(room, name, None) for name in names for room in (torch, operator, Tensor))


def _written_out(node: fx.Node) -> Softmax | None:
    """The softmax that ends in this division; None if it is none."""
    if not _named(node, _DIVISIONS, 2) or len(node.args) > 2 or node.kwargs:
        return None
    exponentials, total = node.args
    if not isinstance(exponentials, fx.Node) or not _named(exponentials, {"exp"}) or exponentials.kwargs:
        return None
    summed = _of_rows(total, {"sum"})
    if summed is None or summed[0] is not exponentials:
        return None
    parts = {exponentials, *summed[1]}
    scored: Any = exponentials.args[0]
    if _named(scored, _DIFFERENCES, 2) and len(scored.args) == 2 and not scored.kwargs:
        largest, between = scored.args[1], []
        if _named(largest, {"detach"}):
            between = [largest]
            largest = largest.args[0]
        found = _of_rows(largest, {"amax", "max"})
        if found is not None and found[0] is scored.args[0]:
            parts |= {scored, *between, *found[1]}
            scored = scored.args[0]
    if not isinstance(scored, fx.Node) or any(
        user not in parts and user is not node for p in parts for user in p.users
    ):
        return None
    return Softmax(node, scored, parts=frozenset(parts))


def _of_rows(node: Any, names: set[str]) -> tuple[fx.Node, list[fx.Node]] | None:
    """What is reduced over its last dimension, which stays as one of size 1; and the operations that do it."""
    parts: list[fx.Node] = []
    kept = True
    if (_named(node, {"unsqueeze"}, 2) and node.args[1] == -1) or (
        _named(node, {"getitem"}, 2) and node.args[1] == (..., None)
    ):
        parts.append(node)
        node, kept = node.args[0], False
    if (
        _named(node, {"getitem"}, 2) and type(node.args[1]) is int and node.args[1] == 0 and "max" in names
    ):  # the first of values and indices
        parts.append(node)
        node = node.args[0]
        if not _named(node, {"max"}):
            return None
    elif _named(node, {"max"}):
        return None
    if not _named(node, names):
        return None
    parts.append(node)
    given: dict[str, Any] = dict(zip(("input", "dim", "keepdim"), node.args, strict=False)) | dict(node.kwargs)
    source, dim = given.pop("input", None), given.pop("dim", None)
    if isinstance(dim, (tuple, list)) and len(dim) == 1:
        (dim,) = dim
    value = source.meta.get("example_value") if isinstance(source, fx.Node) else None
    if not isinstance(value, Tensor) or type(dim) is not int or dim not in (-1, value.dim() - 1):
        return None
    if given.pop("keepdim", False) is not kept or given:
        return None
    assert isinstance(source, fx.Node)
    return source, parts
