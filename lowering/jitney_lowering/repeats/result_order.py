"""Results that nobody else reads are computed together with what they are computed of, not after all else."""

from __future__ import annotations

from collections.abc import Sequence

from jitney_lowering.ir.loops import Computed, Step


def in_order(steps: Sequence[Step], first: int) -> list[Step]:
    """The steps, with those from ``first`` on, if they are loops, right after the last one that they need.

    Of a program that writes nothing in place. Fusion looks for neighbours, and finds them in each layer of a model so.
    """
    makers: dict[str, int] = {}
    places: list[int] = []
    for number, step in enumerate(steps):
        place = number
        if number >= first and isinstance(step, Computed) and not step.apart and not step.late:
            place = max((makers[name] for name in step.reads if name in makers), default=number)
        places.append(place)
        makers.update(dict.fromkeys(step.writes, place))
    return [steps[number] for number in sorted(range(len(steps)), key=places.__getitem__)]
