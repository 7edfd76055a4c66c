"""What a run of a compiled graph has handed out of results that it computed others from.

For autograd the graph is one function, and its results know nothing of each other. A result ``z`` that was computed
from another one, ``y``, goes through a function of its own, which has a way to ``y`` too. As long as nobody looks at
what arrives at ``y``, nothing goes that way: the tangent of ``z`` is given to the compiled graph, whose backward
computes all of it at once. If ``y`` has hooks or retains its gradient, or may be what somebody asks a gradient by, the
backward is cut there: ``y`` gets its part, and the graph the rest.
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

Tangents = Sequence[torch.Tensor | None]


class HandedOut:
    """The results of one run that others were computed from, as long as they live.

    Args:
        count: how many there are.
    """

    def __init__(self, count: int) -> None:
        self.hooked = False  # has somebody put a hook on the node of a result?
        self._given: list[tuple[Any, int]] = [(_gone, 0)] * count
        self._decided = (-1, False)  # in which pass of the engine, and how
        self._unpacked: tuple[int, list[torch.Tensor]] = (-1, [])

    def add(self, at: int, tensor: torch.Tensor) -> None:
        """The program gets this one."""
        self._given[at] = weakref.ref(tensor), tensor._version

    def tensors(self) -> list[torch.Tensor | None]:
        """Those that live."""
        return [reference() for reference, _ in self._given]

    def written(self) -> bool:
        """Has somebody written to one that lives?"""
        pairs = [(reference(), version) for reference, version in self._given]
        return any(tensor is not None and tensor._version != version for tensor, version in pairs)

    def decide(self, probe: Any) -> bool:
        """Is the backward cut in this pass of the engine?

        Args:
            probe: a node that runs unless the pass is asked for certain gradients only.
        """
        number = torch_private.current_pass()
        if self._decided[0] != number:
            asked = not torch_private.will_run(probe)
            self._decided = number, asked or self.hooked or any(map(_watched, self.tensors()))
        return self._decided[1]

    def cut(self) -> bool:
        """Was it decided in this pass that the backward is cut?"""
        return self._decided == (torch_private.current_pass(), True)

    def saved_of(self, graph: Any, backward: Backward, tangents: Tangents) -> list[torch.Tensor]:
        """What the graph's autograd function has saved, which needs it once more."""
        number = torch_private.current_pass()
        if self._unpacked[0] != number:
            self._unpacked = number, saved_of(graph, backward, tangents, last=False)
        return [*self._unpacked[1]]

    def take(self, read: Callable[..., list[torch.Tensor]], graph: Any, *given: Any) -> list[torch.Tensor]:
        """The same for the last time."""
        number, saved = self._unpacked
        self._unpacked = -1, []
        if number != torch_private.current_pass():
            return read(graph, *given)
        torch_private.clear_saved(graph)
        return saved


def _gone() -> None:
    return None


def _watched(tensor: torch.Tensor | None) -> bool:
    """Does somebody look at what arrives at a result, as far as it tells?"""
    return tensor is not None and bool(tensor.retains_grad or tensor._backward_hooks)


def note_hooks(function: Any) -> None:
    """Let the nodes of an autograd function, each of which has ``handed``, tell it of hooks that are put on them."""
    node = function._backward_cls
    for name in ("register_hook", "register_prehook", "_register_hook_dict"):
        setattr(node, name, _noting(getattr(node, name), name == "_register_hook_dict"))


def _noting(register: Any, of_tensor: bool) -> Any:
    @functools.wraps(register)
    def noting(node: Any, given: Any) -> Any:
        if not of_tensor or any(given is tensor for tensor in node.handed.tensors()):
            node.handed.hooked = True
        return register(node, given)

    return noting


@functools.cache
def _probe() -> torch.Tensor:
    """A leaf whose node runs in each pass of the engine that is not asked for certain gradients only."""
    with torch_private.without_modes(), torch.inference_mode(False):
        return torch.empty(0, device="cpu", requires_grad=True)


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
        found: tuple[torch.Tensor, ...] = _linked(self, handed, *results, *sources, _probe())
        return found

    def backward(self, ctx: Any, tangents: Tangents) -> tuple[torch.Tensor | None, ...]:
        """What goes to the graph, to what the results were computed from, and to the probe."""
        nothing = (None,) * (len(self.intermediates) + 1)
        if all(t is None for t in tangents) or not ctx.handed.decide(ctx.next_functions[-1][0]):
            return (*tangents, *nothing)
        graph = ctx.next_functions[0][0]
        given: list[torch.Tensor | None] = [None] * self.count
        for at, tangent in zip(self.tangents, tangents, strict=True):
            given[at] = tangent
        if torch.is_grad_enabled():
            found = once(self.between, self.between.name, graph, given, self.again)
        else:
            found = self.between(ctx.handed.saved_of(graph, self.between, given), graph.numbers, given)
        return (*tangents, *(found[at] for at in self.intermediates), None)
