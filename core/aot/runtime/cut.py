"""The backward of a graph with results that others are computed from, cut there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from jitney.aot.runtime.backward import Backward
from jitney.aot.runtime.double_backward import DoubleBackward, Found
from jitney.aot.runtime.handed_out import Link
from jitney.aot.trace.joint import Joint


@dataclass(frozen=True)
class Cut:
    """What the glue needs to cut the backward.

    Args:
        joint: what was traced.
        below: gradients of the graph's inputs, where nothing goes through an intermediate.
        between: what arrives at intermediates, after as many values as the graph has inputs.
        again: how the graph runs once more, given its intermediates; its ``inputs`` are not known yet.
    """

    joint: Joint
    below: Backward
    between: Backward
    again: DoubleBackward

    def again_below(self, again: DoubleBackward) -> DoubleBackward:
        """For derivatives of ``below``. ``again``: how the graph runs as a whole."""
        return self._again(again.inputs, grad=False)

    def _again(self, inputs: Sequence[Found], grad: bool) -> DoubleBackward:
        found = inputs if not grad else [dataclasses.replace(f, grad=False) for f in inputs]
        given = [Found("handed", at, grad) for at in range(len(self.joint.intermediates))]
        return dataclasses.replace(self.again, inputs=() if self.again.reason else (*found, *given))

    def links(self, again: DoubleBackward) -> list[tuple[list[int], Link]]:
        """For results that were computed from the same others: their positions among the outputs, and their link.

        Args:
            again: how the graph runs as a whole.
        """
        places = {at: place for place, at in enumerate(self.joint.tangents)}
        groups: dict[tuple[int, ...], list[int]] = {}
        for at in self.joint.tangents:
            sources = tuple(i for i, found in enumerate(self.joint.intermediates) if at in found.readers)
            if sources:
                groups.setdefault(sources, []).append(at)
        count, twice = len(self.joint.gradients), self._again(again.inputs, grad=True)
        return [
            (
                outputs,
                Link(
                    tuple(places[at] for at in outputs),
                    len(places),
                    tuple(count + i for i in sources),
                    self.between,
                    twice,
                ),
            )
            for sources, outputs in groups.items()
        ]
