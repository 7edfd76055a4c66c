"""Tensors of subclasses while tracing: around functional tensors, with autograd on the outer one.

Their ``__torch_dispatch__`` runs, and what it calls on inner tensors is functionalized and recorded like anything else:
the graph has plain operators only. What cannot be said about the memory of such a tensor is ``NotSplit``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from jitney.aot.memory_overlap import overlaps_itself
from jitney.aot.signals import NotSplit
from jitney.aot.trace import functionalization
from jitney.aot.trace.sizes import is_symbolic
from jitney.aot.trace.subclass_layout import Layout, Template
from jitney.aot.trace.tracer import AtenTracer
from jitney.torch_compat import subclasses, torch_private
from jitney.torch_compat.subclasses import NotComparable, Wrapping


def is_outer(value: Any) -> bool:
    """Is it a tensor of a subclass that wraps tensors?"""
    return isinstance(value, torch.Tensor) and subclasses.wraps(type(value))


def take_apart(value: Any) -> Wrapping:
    """What such a tensor is made of."""
    try:
        return subclasses.take_apart(value)
    except NotComparable as what:
        raise NotSplit(f"the context of a {type(value).__qualname__}, {what}, cannot be compared") from None


class Entrance:
    """Brings tensors of subclasses into a trace, as inputs: their inner tensors are the graph's inputs."""

    def __init__(self, tracer: AtenTracer) -> None:
        self.tracer = tracer
        self.layout = Layout()
        self.nodes: list[fx.Node] = []  # the joint graph's inputs

    def plain(self, node: fx.Node) -> None:
        """An input that is no such tensor."""
        self.layout.paths.append(f"a{len(self.layout.inputs)}")
        self.layout.inputs.append(len(self.nodes))
        self.nodes.append(node)

    def outer(self, name: str, value: Any) -> Callable[[], Any]:
        """What makes an equal tensor around functional tensors."""
        base, first = f"a{len(self.layout.inputs)}", len(self.nodes)
        inner: list[Any] = []
        made = self._template(name, value, inner)
        self.layout.paths += [text for _, text in made.paths(base)]
        self._sizes(name, value, base)
        self.layout.inputs.append(made)
        assert first + len(inner) <= len(self.nodes) == len(self.layout.paths)
        return lambda: fill(made, value, dict(zip(made.positions(), inner, strict=True)))

    def _template(self, name: str, value: Any, inner: list[Any]) -> Template:
        parts = take_apart(value)
        places: list[int | Template] = []
        for key, part in zip(parts.names, parts.inner(value), strict=True):
            if is_outer(part):
                places.append(self._template(f"{name}_{key}", part, inner))
                continue
            with self.tracer.fake_mode, torch.no_grad():
                leaf = part.detach()
            node = self.tracer.placeholder(f"{name}_{key}", leaf)
            node.meta["parameter"] = value.requires_grad and value.is_leaf
            places.append(len(self.nodes))
            self.nodes.append(node)
            inner.append(leaf)
        return Template(parts, tuple(places))

    def _sizes(self, name: str, value: Any, base: str) -> None:
        """Symbolic sizes of the outer tensor that are not those of inner ones are inputs, too."""
        for which, sizes in (("size", value.size()), ("stride", value.stride())):
            for dim, size in enumerate(sizes):
                if is_symbolic(size) and size.node.expr.is_Symbol and not self.tracer.sizes.knows(size):
                    self.nodes.append(self.tracer.placeholder(f"{name}_{which}{dim}", size))
                    self.layout.paths.append(f"{base}.{which}({dim})")


def fill(made: Template, like: Any, leaves: dict[int, Any]) -> Any:
    """A tensor of the size of ``like``, around functional tensors over these stand-ins."""
    inner = []
    for place, part in zip(made.inner, made.wrapping.inner(like), strict=True):
        if isinstance(place, Template):
            inner.append(fill(place, part, leaves))
        else:
            inner.append(torch_private.functionalization.wrap(leaves[place]))
    value = made.wrapping.make(inner, like.size(), like.stride())
    if any(a is not b for a, b in zip(made.wrapping.inner(value), inner, strict=True)):
        raise NotSplit(f"the __tensor_unflatten__ of {made.wrapping.cls.__qualname__} takes other inner tensors")
    return value.requires_grad_(False) if value.requires_grad else value


def inner_of(value: Any) -> Sequence[Any]:
    """The innermost tensors of a tensor of a subclass; none of anything else."""
    return subclasses.leaves(value) if is_outer(value) else ()


@dataclass(frozen=True)
class Before:
    """An input before the program ran.

    Args:
        history: its ``grad_fn``.
        captured: its stand-in as it was before the program was captured.
        after: its stand-in on which the program was captured; None in a graph that an extension made.
        version: how often the functional tensor had been written to.
        inner: the innermost functional tensors of one of a subclass.
    """

    history: Any
    captured: Any
    after: Any
    version: int
    inner: Sequence[Any] = ()


def check_unwritten(value: Any, before: Before) -> None:
    """Refuse a program that has written to an input of a subclass."""
    leaves = subclasses.leaves(value)
    kept = len(leaves) == len(before.inner) and all(a is b for a, b in zip(leaves, before.inner, strict=True))
    same = kept and functionalization.version(value) == before.version
    same = same and value.requires_grad == before.captured.requires_grad and value.grad_fn is before.history
    if not same or any(map(_written, leaves)):
        raise NotSplit(f"an input of class {type(value).__qualname__} is written to")


def _written(leaf: Any) -> bool:
    written = functionalization.data_written(leaf) or functionalization.metadata_written(leaf)
    return written or functionalization.memory_replaced(leaf)


def check_memory(given: Iterable[Any], returned: Iterable[Any]) -> None:
    """Refuse results that share memory with others, or with inputs, where a tensor of a subclass is one of them."""
    owners: dict[int, Any] = {}
    for value in [*given, *returned]:
        if not isinstance(value, torch.Tensor):
            continue
        storages = set()
        leaves = subclasses.leaves(value)
        for leaf in leaves:
            if not functionalization.is_wrapped(leaf):
                raise NotSplit("a result that is no tensor of the graph")
            storages.add(functionalization.storage_of(leaf))
        others = [owners.setdefault(s, value) for s in storages]
        if any(o is not value and (is_outer(o) or is_outer(value)) for o in others):
            raise NotSplit("a tensor of a subclass shares memory with another one")
        if len(storages) < len(leaves):
            raise NotSplit("a tensor of a subclass holds one tensor twice")


def check_result(value: Any) -> None:
    """Refuse a result whose autograd history or context the caller could not make again."""
    name = type(value).__qualname__
    if value.requires_grad and value.is_leaf:
        raise NotSplit("a tensor that it makes requires grad by itself")
    if value._base is not None and value._base.requires_grad and not value.requires_grad:
        raise NotSplit(f"a {name} that is a view made where autograd does not look")
    if any(leaf.requires_grad for leaf in subclasses.leaves(value)):
        raise NotSplit(f"an inner tensor of a {name} requires grad by itself")
    numbers = [n for tensor in (value, *subclasses.leaves(value)) for n in (*tensor.size(), *tensor.stride())]
    if any(map(is_symbolic, numbers)):
        _check_context(take_apart(value))


def _check_context(parts: Wrapping) -> None:
    """With symbolic sizes, a context must be plain data without any of them."""
    todo = [parts.context, *(v for _, v in parts.fixed)]
    while todo:
        part = todo.pop()
        if isinstance(part, (tuple, list)):
            todo += part
        elif type(part) is dict:
            todo += part.values()
        elif type(part) not in subclasses.ATOMS and not isinstance(part, subclasses.FIXED):
            raise NotSplit(f"the context of a {parts.cls.__qualname__} may depend on sizes")


def template(value: Any, place: Callable[[Any], int], number: Callable[[Any], Any]) -> int | Template:
    """Of what a result is made: ``place(leaf)`` gives the position of an innermost tensor.

    ``number(size)`` gives what computes a size.
    """
    if not is_outer(value):
        return place(value)
    parts = take_apart(value)
    inner = tuple(template(part, place, number) for part in parts.inner(value))
    return Template(parts, inner, tuple(map(number, value.size())), tuple(map(number, value.stride())))


def outer_template(value: Any, place: Callable[[Any], int], number: Callable[[Any], Any]) -> Template:
    """``template`` of a tensor of a subclass."""
    made = template(value, place, number)
    assert isinstance(made, Template)
    return made


def expected_tangent(value: Any) -> Any:
    """A tensor like the gradient that is expected for a result: of the same class, in a context that it asks for."""
    coerce = getattr(value, "__coerce_tangent_metadata__", None)
    with torch.no_grad():
        found = (value if coerce is None else coerce()).detach()
        if any(
            overlaps_itself(t.size(), t.stride()) for t in (found, *subclasses.leaves(found))
        ):  # nobody could copy a gradient to such memory
            found = found.clone(memory_format=torch.contiguous_format)
        return found
