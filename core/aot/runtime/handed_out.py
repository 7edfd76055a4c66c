"""What a run of a compiled graph has handed out of results that it computed others from.

For autograd the graph is one function, and its results know nothing of each other. A result ``z`` that was computed
from another one, ``y``, goes through a function of its own, which has a way to ``y`` too. As long as nobody looks at
what arrives at ``y``, nothing goes that way: the tangent of ``z`` is given to the compiled graph, whose backward
computes all of it at once. If ``y`` has hooks or retains its gradient, or may be what somebody asks a gradient by, the
backward is cut there: ``y`` gets its part, and the graph the rest. Somebody may also hold nothing but its place in
autograd's graph (``torch.autograd.graph.get_gradient_edge``), after ``y`` was written to or dropped: its node tells.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jitney.aot.runtime.backward import Backward, once, saved_of
from jitney.aot.runtime.double_backward import DoubleBackward
from jitney.cache.recipes import Recipe, Writer, call
from jitney.torch_compat import torch_private
from jitney.torch_compat.autograd_engine import asked_for

Tangents = Sequence[torch.Tensor | None]
_MARK = "jitney: the run of which a result has this node"
_PASSES = 32  # of the engine, about which something is remembered: some are nested, some are in other threads


class HandedOut:
    """The results of one run that others were computed from, as long as they live.

    Args:
        count: how many there are.
    """

    def __init__(self, count: int) -> None:
        self.hooked = False  # has somebody put a hook on the node of a result?
        self._given: list[_Given] = [_NOTHING] * count
        self._decided: dict[int, bool] = {}  # by pass of the engine
        self._unpacked: dict[int, list[torch.Tensor]] = {}

    def add(self, at: int, tensor: torch.Tensor) -> None:
        """The program gets this one."""
        node: Any = tensor.grad_fn
        if getattr(node, "handed", None) is not self:  # an operator's, which knows nothing of the run
            node.metadata[_MARK] = self
        self._given[at] = _Given(weakref.ref(tensor), tensor._version, type(node), tensor.output_nr)

    def has(self, node: Any, number: int) -> bool:
        """Is this the place of a result in autograd's graph? It remains one when the result is gone."""
        own = getattr(node, "handed", None) is self or node.metadata.get(_MARK) is self
        return own and any(type(node) is given.node and number == given.number for given in self._given)

    def tensors(self) -> list[torch.Tensor | None]:
        """Those that live, and are as they were handed out."""
        return [given.tensor() for given in self._given]

    def decide(self) -> bool:
        """Is the backward cut in this pass of the engine?"""
        number = torch_private.current_pass()
        found = self._decided.get(number)
        if found is None:
            found = self.hooked or self._is_watched() or self._may_be_asked() or self._may_be_asked_later()
            _remember(self._decided, number, found)
        return found

    def _is_watched(self) -> bool:
        """Does somebody look at what arrives at a result, as far as it tells?"""
        for given in self._given:
            tensor = given.reference()
            if tensor is not None and (tensor.retains_grad or tensor._backward_hooks):
                return True
        return False

    def _may_be_asked(self) -> bool:
        """Are there certain gradients that the pass is asked for, those by what was handed out perhaps among them?"""
        if torch_private.will_run(_probe()[1]):
            return False
        asked = asked_for()
        return asked is None or any(node is not None and self.has(node, number) for node, number in asked)

    def cut(self) -> bool:
        """Is the backward of the graph itself cut in this pass, which ends with it?"""
        found = self._decided.pop(torch_private.current_pass(), None) if self._decided else None
        return self._may_be_asked_later() if found is None else found

    def _may_be_asked_later(self) -> bool:
        """Will what arrives have derivatives, by all that was handed out too?"""
        return torch.is_grad_enabled() and all(t is not None for t in self.tensors())

    def saved_of(self, graph: Any, backward: Backward, tangents: Tangents) -> list[torch.Tensor]:
        """What the graph's autograd function has saved, which it may need once more."""
        number = torch_private.current_pass()
        if number in self._unpacked:
            return [*self._unpacked[number]]
        saved = saved_of(graph, backward, tangents, last=False)
        if torch_private.will_run(graph):
            _remember(self._unpacked, number, [*saved])
        return saved

    def take(self, read: Callable[..., list[torch.Tensor]], graph: Any, *given: Any) -> list[torch.Tensor]:
        """The same for the last time."""
        saved = self._unpacked.pop(torch_private.current_pass(), None)
        if saved is None:
            return read(graph, *given)
        torch_private.clear_saved(graph)
        kept = getattr(graph, "kept", None)
        if kept is not None:
            torch_private.clear_saved(kept.grad_fn)
        return saved


def _remember(table: dict[int, Any], number: int, what: Any) -> None:
    """Of passes that have ended nobody tells; the oldest is forgotten."""
    table[number] = what
    if len(table) > _PASSES:
        table.pop(next(iter(table)), None)


@dataclass(frozen=True)
class _Given:
    """A result as it was handed out."""

    reference: Callable[[], torch.Tensor | None]
    version: int
    node: type
    number: int

    def tensor(self) -> torch.Tensor | None:
        """The result, unless it is gone, was written to, or was given another history."""
        found = self.reference()
        if found is None or found._version != self.version:
            return None
        return found if type(found.grad_fn) is self.node and found.output_nr == self.number else None


def _gone() -> None:
    return None


_NOTHING = _Given(_gone, 0, type(None), 0)


def note_hooks(function: Any) -> None:
    """Let the nodes of an autograd function, each of which has ``handed``, tell it of hooks that are put on them."""
    node = torch_private.node_class(function)
    for name in ("register_hook", "register_prehook", torch_private.HOOKS_OF_TENSOR):
        setattr(node, name, _noting(getattr(node, name), name == torch_private.HOOKS_OF_TENSOR))


def _noting(register: Any, of_tensor: bool) -> Any:
    @functools.wraps(register)
    def noting(node: Any, given: Any) -> Any:
        if not of_tensor or any(given is other.reference() for other in node.handed._given):
            node.handed.hooked = True
        return register(node, given)

    return noting


@functools.cache
def _probe() -> tuple[torch.Tensor, Any]:
    """A leaf and its node, which runs in each pass of the engine that is not asked for certain gradients only."""
    with torch_private.without_modes(), torch.inference_mode(False), torch.enable_grad():
        leaf = torch.empty(0, device="cpu", requires_grad=True)
        made: Any = leaf.view_as(leaf).grad_fn
        return leaf, made.next_functions[0][0]


class _Linked(torch.autograd.Function):
    """Results of a graph as tensors that know from which other results they were computed."""

    @staticmethod
    def forward(ctx: Any, link: Link, handed: HandedOut, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.link, ctx.handed = link, handed
        ctx.set_materialize_grads(False)
        return tuple([t.detach() for t in tensors[: len(link.tangents)]])

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        return (None, None, *ctx.link.backward(ctx, tangents))


note_hooks(_Linked)
_linked = super(torch.autograd.Function, _Linked).apply  # without functorch's look at each argument


@dataclass(frozen=True)
class Link:
    """From some results of a graph to those that they were computed from.

    Args:
        tangents: their positions among the graph's tangents.
        count: how many tangents that has.
        intermediates: positions of what they were computed from, among what ``between`` gives.
        between: computes what arrives there.
        again: how the graph runs once more, for derivatives of that.
    """

    tangents: tuple[int, ...]
    count: int
    intermediates: tuple[int, ...]
    between: Backward
    again: DoubleBackward

    def _jitney_recipe(self, writer: Writer) -> Recipe:
        facts = (self.tangents, self.count, self.intermediates, self.between, self.again)
        return call("jitney.aot.runtime.handed_out:Link", *writer.refs(facts))

    def __call__(
        self, handed: HandedOut, results: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """The results, linked with what they were computed from."""
        found: tuple[torch.Tensor, ...] = _linked(self, handed, *results, *sources, _probe()[0])
        return found

    def backward(self, ctx: Any, tangents: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
        """What goes to the graph, to what the results were computed from, and to the probe."""
        if all(t is None for t in tangents) or not ctx.handed.decide():
            return tangents + (None,) * (len(self.intermediates) + 1)
        graph = ctx.next_functions[0][0]
        given: list[torch.Tensor | None] = [None] * self.count
        for at, tangent in zip(self.tangents, tangents, strict=True):
            given[at] = tangent
        saved = ctx.handed.saved_of(graph, self.between, given)
        if torch.is_grad_enabled():
            found = once(self.between, self.between.name, graph, given, self.again, saved)
        else:
            found = self.between(saved, graph.numbers, given)
        return (*tangents, *(found[at] for at in self.intermediates), None)
