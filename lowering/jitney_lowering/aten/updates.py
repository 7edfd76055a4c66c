"""Inputs that get a new value of which only a part is new: which operators may write to the input itself.

In a functional graph a cache with one more entry is another tensor, which the caller copies over the old one. Where
nobody reads the old one any more, the operator that makes the new one writes that part, and nothing is copied.

What comes before in the graph runs before the write, as in eager: an error leaves the input as eager would. If an
operator fails after it, the call is done again by eager, with that input: see ``Write.repeatable``.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from jitney_lowering.aten.call import axis, bound
from jitney_lowering.aten.tensor import Tensor
from jitney_lowering.rules.views import VIEWS, position_of, selected, slice_start, sliced
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
END = 2**63 - 1

# Operators that replace elements of their first argument -> the same in place; what else they take is theirs.
IN_PLACE: dict[Any, Any] = {
    aten.index_put.default: aten.index_put_.default,
    aten.index_copy.default: aten.index_copy_.default,
    aten.index_add.default: aten.index_add_.default,
    aten.index_fill.int_Scalar: aten.index_fill_.int_Scalar,
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.scatter_reduce.two: aten.scatter_reduce_.two,
}
# Operators that replace a part of their first argument by the second -> the view that this part is.
PARTS: dict[Any, Any] = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
}


SUMS = {aten.index_add.default, aten.scatter_add.default, aten.scatter_reduce.two}


@dataclass(frozen=True)
class Write:
    """One write to an input, or to what an earlier write left there.

    Args:
        input: the placeholder.
        parts: ``PARTS`` from the outside in: each one's part is what the next replaces a part of.
        last: what is done in the innermost part: one of ``IN_PLACE``, or None for a copy of the last part's source.
        output: the output of the graph for which it is done.
        repeatable: does the whole call give the same if it is done again after this write? Then nobody has read what
            was there, and nothing is added to it.
    """

    input: fx.Node
    parts: tuple[fx.Node, ...]
    last: fx.Node | None
    output: int = 0
    repeatable: bool = False

    @property
    def source(self) -> fx.Node:
        """What the last part is replaced by."""
        node = self.parts[-1].args[1]
        assert isinstance(node, fx.Node)
        return node

    @property
    def adds(self) -> bool:
        """Does it add to what is there?"""
        return self.last is not None and (self.last.target in SUMS or _accumulates(self.last))

    @property
    def made(self) -> tuple[fx.Node, ...]:
        """The operators that it stands for."""
        return self.parts if self.last is None else (*self.parts, self.last)


def writes(graph: fx.Graph, updates: Mapping[int, int], live: Collection[fx.Node]) -> dict[fx.Node, Write]:
    """Operators that write to an input instead of making another tensor.

    Args:
        graph: functional.
        updates: output -> the input that gets its value; see ``CompileRequest``.
        live: nodes that somebody reads.
    """
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    (results,) = graph.output_node().args
    order = {node: number for number, node in enumerate(graph.nodes)}
    found: dict[fx.Node, Write] = {}
    for output, argument in updates.items():
        last, first = results[output], inputs[argument]  # type: ignore[index]
        chain = _chain(last, first) if isinstance(last, fx.Node) else ()
        if not chain or list(results).count(last) > 1:  # type: ignore[arg-type]
            continue
        before = (first, *chain[:-1])
        if all(_unread(old, new, order, live) for old, new in zip(before, chain, strict=True)):
            found |= {node: replace(_write(first, node), output=output) for node in chain}
    changed = {write.input for write in found.values()}  # all others change after what can fail
    own = {node for write in found.values() for node in write.made}
    return {n: replace(w, repeatable=_is_repeatable(w, own, changed, live)) for n, w in found.items()}


def _chain(last: fx.Node, first: fx.Node) -> tuple[fx.Node, ...]:
    """Replacements of parts from one value of an input to another, in order; empty if there is more between them."""
    found: list[fx.Node] = []
    node: Any = last
    while node is not first:
        if not isinstance(node, fx.Node) or node.target not in IN_PLACE.keys() | PARTS.keys():
            return ()
        found.append(node)
        node = node.args[0]
    return tuple(reversed(found))


def _unread(old: fx.Node, new: fx.Node, order: Mapping[fx.Node, int], live: Collection[fx.Node]) -> bool:
    """Does nobody read what was there, in whatever view, when the new value is made?"""
    seen, waiting = {old}, [old]
    while waiting:
        for user in waiting.pop().users:
            if user in seen or user is new or user not in live:
                continue
            seen.add(user)
            if user.target in VIEWS or user.target is operator.getitem:
                waiting.append(user)
            elif order[user] > order[new]:
                return False
    return True


def _is_repeatable(
    write: Write, own: Collection[fx.Node], changed: Collection[fx.Node], live: Collection[fx.Node]
) -> bool:
    """See ``Write.repeatable``; ``own``: what writes stand for, ``changed``: inputs that are written to."""
    if write.adds:
        return False
    seen, waiting = set(changed), list(changed)  # what the changed inputs go into
    while waiting:
        for user in waiting.pop().users:
            if user in live and user not in seen and user not in own:
                seen.add(user)
                waiting.append(user)
    reads = {node for node in seen - set(changed) if node.target not in VIEWS}
    return not reads


def _accumulates(node: fx.Node) -> bool:
    """Does ``index_put`` add?"""
    return node.target is aten.index_put.default and bool(bound(node.target, node.args, node.kwargs)[3])


def _write(first: fx.Node, node: fx.Node) -> Write:
    parts: list[fx.Node] = []
    while node.target in PARTS:
        parts.append(node)
        inner = node.args[1]
        replaces = isinstance(inner, fx.Node) and inner.target in IN_PLACE.keys() | PARTS.keys()
        if not replaces or not _is_part(inner.args[0], node):  # type: ignore[union-attr]
            return Write(first, tuple(parts), None)
        node = inner  # type: ignore[assignment]
    return Write(first, tuple(parts), node)


def _is_part(node: Any, scatter: fx.Node) -> bool:
    """Is it the part of the same tensor that the operator replaces?"""
    if not isinstance(node, fx.Node) or node.target is not PARTS[scatter.target]:
        return False
    base, _, *replaced = bound(scatter.target, scatter.args, scatter.kwargs)
    source, *shown = bound(node.target, node.args, node.kwargs)
    return source is base and [*map(_plain, shown)] == [*map(_plain, replaced)]


def _plain(bound_of_slice: Any) -> Any:
    """The end of a slice that goes on to the end is given as such, or left out."""
    return None if bound_of_slice == END else bound_of_slice


def part_of(tensor: Tensor, source: Tensor, scatter: Any, where: Sequence[Any]) -> Tensor:
    """The part of a tensor that one of ``PARTS`` replaces by ``source``; ``where``: its further arguments.

    Raises:
        NoRule: nobody knows which part it is.
    """
    dim = axis(where[0], len(tensor.size))
    if scatter is aten.select_scatter.default:
        return selected(tensor, dim, position_of(where[1], tensor.size[dim]))
    _, start, _, step = where
    if not isinstance(step, int):
        raise NoRule("a slice with a symbolic step")
    return sliced(tensor, dim, slice_start(start, tensor.size[dim]), source.size[dim], step)
