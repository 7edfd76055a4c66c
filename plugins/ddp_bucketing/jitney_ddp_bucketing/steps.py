"""One step of mode ``in_graph``: from a forward to the end of its backward."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from jitney._util import callers
from jitney_ddp_bucketing import private
from jitney_ddp_bucketing.in_graph import Variant

if TYPE_CHECKING:
    from jitney_ddp_bucketing.state import State

NO_PASS = -1
# What may be in a module's output besides tensors.
PLAIN = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
# DDP modules whose reducer is ready for a backward that has not come.
reducer_waits: weakref.WeakSet[Any] = weakref.WeakSet()


class Step:
    """A forward in mode ``in_graph``, until its backward has ended.

    Args:
        late: are its gradients reduced after the backward instead of in it?
        synced: are they reduced at all? Not within ``no_sync``.
    """

    def __init__(self, late: bool, synced: bool) -> None:
        self.late = late
        self.synced = synced
        self.runs = 0  # training graphs that it ran
        self.ended = False


class Run:
    """One run of a training graph; see ``jitney.backends.TrainingRun``.

    Args:
        state: of the DDP module.
        step: of the forward; None for one whose gradients DDP's reducer reduces.
        reduces: the form of the backward that has the collectives; None if there is none.
    """

    def __init__(self, state: State, step: Step | None, reduces: Variant | None) -> None:
        self.state = state
        self.step = step
        self.reduces = reduces
        self.reduced_in = NO_PASS  # the backward in which DDP's reducer reduced

    @property
    def variant(self) -> Variant | None:
        """With collectives, if the step is clean and no gradient is there from before."""
        state, step = self.state, self.step
        if not state.accumulates():  # torch.autograd.grad: this rank's alone, as eager's; other ranks may do without
            return None
        if step is None:
            self._by_reducer()
            return None
        if not step.synced:
            state.ended(step)
            return None
        clean = not (step.late or step.ended or any(p.grad is not None for p in state.parameters))
        if clean and self.reduces is not None and not state.shares_backward():
            return self.reduces
        state.reduce_at_end(step)
        return None

    def _by_reducer(self) -> None:
        """DDP reduces a graph's gradients when they come, once: what the backward of another output adds, it does not
        see. In eager that is so only of parameters that had a gradient before.
        """
        reducer_waits.discard(self.state.ddp())
        now = private.backward_pass()
        if self.reduced_in not in (NO_PASS, now) and not self.state.warned:
            self.state.warned = True
            callers.warn(
                "a second backward of one forward of a DDP module: its gradients are this rank's alone, since DDP "
                "reduces in the first. Call backward once, of the sum of the losses; or compile with "
                'options={"ddp": "in_graph"}, which reduces in both'
            )
        self.reduced_in = now

    def finished(self, gradients: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
        """Remember what the parameters' gradients are to be. Autograd keeps a tensor that nobody else has: so it gets
        those that the graph made, or another one around the same memory where the process group may still hold it.
        """
        assert self.step is not None and self.reduces is not None
        self.state.ended(self.step)
        found: list[tuple[int, torch.Tensor, int]] = []
        given = [*gradients]
        for bucket, slots in zip(self.state.buckets, self.reduces.buckets, strict=True):
            for at, slot in zip(bucket, slots, strict=True):
                gradient = gradients[slot.input]
                assert gradient is not None
                with torch.no_grad():
                    found.append((at, gradient.detach(), gradient._version))
                    if len(bucket) == 1:
                        given[slot.input] = gradient.detach()
        self.state.expect(found)
        return tuple(given)


def has_hooks(parameter: Any) -> bool:
    """Does the program look at or change the gradient before or when it is accumulated? It is to see this rank's."""
    return bool(parameter._backward_hooks) or bool(parameter._post_accumulate_grad_hooks)


def leaves(value: Any) -> Iterator[Any]:
    """What a module's output is made of: tensors, and whatever is no container."""
    if isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, (tuple, list, set, frozenset)):
        for item in value:
            yield from leaves(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name))
    else:
        yield value
