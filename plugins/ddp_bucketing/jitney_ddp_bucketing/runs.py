"""One run of a training graph of a DDP module, from its forward to its backward."""

from __future__ import annotations

import torch

from jitney.backends import warn
from jitney_ddp_bucketing import private
from jitney_ddp_bucketing.in_graph import Variant
from jitney_ddp_bucketing.state import State
from jitney_ddp_bucketing.steps import NO_PASS, Step, reducer_waits


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
            warn(
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
