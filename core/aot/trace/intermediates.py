"""Results that other results are computed from.

For autograd a compiled graph is one function of its inputs. In eager a result ``y`` of which ``z`` is computed has a
place on the way from ``z`` to the inputs: its hooks see what ``z`` contributes, and somebody may ask for ``z``'s
gradient by it. So the joint graph says where that place is: the whole gradient of each such result, its own tangent
and what the others contribute, goes through a node of its own, an ``alias``. Cut there, the backward of the graph is a
backward of each part.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import fx

from jitney.aot.partition.cost import late_effects
from jitney.aot.signals import NotSplit
from jitney.aot.trace import functionalization
from jitney.aot.trace.results import Visible, ancestors
from jitney.aot.trace.tracer import AtenTracer
from jitney.backends.backend import INTERMEDIATE
from jitney.torch_compat import torch_private


@dataclass
class Intermediate:
    """A result that others are computed from.

    Args:
        gradient: its whole gradient; an ``alias``, through which all of it goes.
        at: the output that it is; None for a view, whose gradient arrives at what it is a view of.
        result: its position among the results; None for an input that is written to.
        input: the position of that input.
        readers: outputs from whose tangents there is a way to it that leads through no other intermediate.
        written: does the graph write to its memory?
    """

    gradient: fx.Node
    at: int | None
    result: int | None
    input: int | None
    readers: frozenset[int] = frozenset()
    written: bool = False


class Stops:
    """While autograd's engine runs backward: stops it at each tensor that the program sees, and notes what arrives.

    Args:
        tracer: what records the operators.
        visible: the tensors.
    """

    def __init__(self, tracer: AtenTracer, visible: Sequence[Visible]) -> None:
        self.tracer = tracer
        self.visible = visible if len(visible) > 1 else ()
        self.gradients: dict[int, fx.Node] = {}  # by position in ``visible``
        self._hooks: list[dict[int, Any]] = []

    def __enter__(self) -> None:
        for at, visible in enumerate(self.visible):
            value: Any = visible.value
            hooks = {0: functools.partial(self._arrived, at)}
            value._backward_hooks = hooks  # ``register_hook`` would count its handles, which programs see
            if value.grad_fn is not None:
                getattr(value.grad_fn, torch_private.HOOKS_OF_TENSOR)(value)
            self._hooks.append(hooks)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for hooks in self._hooks:
            hooks.clear()

    def _arrived(self, at: int, gradient: Any) -> Any:
        if gradient is None:
            return None
        inner = functionalization.unwrapped(gradient)
        with functionalization.paused(), torch_private.without_modes(), torch.no_grad():
            same = inner.detach()
        self.gradients[at] = self.tracer.record(torch.ops.aten.alias.default, (inner,), {}, same)
        self.gradients[at].meta[INTERMEDIATE] = at
        return torch_private.functionalization.wrap(same)

    def found(self, tangents: Mapping[int, fx.Node]) -> tuple[list[Intermediate], dict[fx.Node, fx.Node]]:
        """The intermediates; and by what arrived elsewhere, nothing but a tensor's own tangent, that tangent.

        Args:
            tangents: by output.
        """
        plain: dict[fx.Node, fx.Node] = {}
        found: list[Intermediate] = []
        for at, node in self.gradients.items():
            v = self.visible[at]
            if v.at is not None and node.args[0] is tangents[v.at]:
                plain[node] = tangents[v.at]
            else:
                written = functionalization.data_written(v.value)
                found.append(Intermediate(node, v.at, v.result, v.input, written=written))
        _find_readers(found, tangents)
        if not any(f.readers for f in found):  # views of one another: the program makes them itself
            plain.update((f.gradient, f.gradient.all_input_nodes[0]) for f in found)
            return [], _resolved(plain)
        return found, _resolved(plain)


def refuse_intermediates(visible: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
    """Raise ``NotSplit`` if one of these results was computed from another tensor that the program sees.

    The backward of a graph with tensors of subclasses cannot be cut there.
    """
    places = [(tensor.grad_fn, tensor.output_nr) for tensor in visible]
    todo: list[Any] = [tensor.grad_fn for tensor in results]
    seen = set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if any(edge in places for edge in node.next_functions if edge[0] is not None):
            raise NotSplit("a result is computed from another one, beside tensors of a subclass")
        todo += [above for above, _ in node.next_functions]


def repeats_effects(graph: fx.Graph, gradients: Iterable[Any], intermediates: Sequence[Intermediate]) -> bool:
    """Would an effect of the backward come twice, or not at all, if it were cut at intermediates?"""
    stops = {i.gradient for i in intermediates}
    if not stops:
        return False
    below = ancestors([g for g in gradients if g not in stops], stops)
    between = ancestors([a for stop in stops for a in stop.all_input_nodes], stops)
    return any((n in below) == (n in between) for n in late_effects(graph))


def _resolved(plain: Mapping[fx.Node, fx.Node]) -> dict[fx.Node, fx.Node]:
    found = {}
    for node in plain:
        target = node
        while target in plain:
            target = plain[target]
        found[node] = target
    return found


def _find_readers(found: Iterable[Intermediate], tangents: Mapping[int, fx.Node]) -> None:
    output_of = {node: at for at, node in tangents.items()}
    gradients = {f.gradient: f for f in found}
    for intermediate in found:
        seen: set[fx.Node] = set()
        readers: set[int | None] = set()
        todo = list(intermediate.gradient.all_input_nodes)
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            if node in gradients:
                readers.add(gradients[node].at)
            elif node in output_of:
                readers.add(output_of[node])
            else:
                todo += node.all_input_nodes
        intermediate.readers = frozenset(at for at in readers if at is not None and at != intermediate.at)
