"""What keeps a program from being fast, as far as events tell: one sentence each, with what to do about it."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from jitney import events
from jitney.errors import describe_frame

SMALL = 3  # operations: a graph of so few costs more to enter than it saves
MANY_GUARDS = 3000
FINE = ("random", "called from native code")  # reasons that cost nothing, or are asked for
# Parts of the names of operators whose library code nobody beats: that they run as a whole is no loss.
LIBRARY = ("mm", "convolution", "attention", "_fft", "linalg_", "_cudnn", "lstm", "gru", "copy_")


def hints(event: events.Event) -> list[str]:
    """What this event says about speed; mostly nothing."""
    find = _FINDERS.get(type(event))
    return find(event) if find is not None else []


def _captured(event: events.FrameCaptured) -> list[str]:
    found = []
    where = f"{event.filename}:{event.line}, in {event.name}"
    stop = event.graph_break
    if stop is not None:
        at = describe_frame(stop.user_stack[-1]) if stop.user_stack else where
        advice = f"; try: {stop.hint}" if stop.hint else ""
        found.append(f"{at}: a graph ends here, nothing fuses across: {stop.reason}{advice}")
    if 0 < event.op_count <= SMALL and (stop is not None or event.resumed):
        found.append(f"{where}: a graph of {event.op_count} operations, between breaks, costs more than it saves")
    if len(event.guards) > MANY_GUARDS:
        found.append(f"{where}: {len(event.guards)} guards at each call; compile a larger region, called less often")
    return found


def _skipped(event: events.FrameSkipped) -> list[str]:
    return [f"{event.filename}:{event.line}, in {event.name}: runs eagerly: {event.reason}"]


def _kept(event: events.GraphKept) -> list[str]:
    where = f"{event.filename}:{event.line}, in {event.name}"
    return [f"{where}: a graph runs operator by operator, without {event.backend}: {event.reason}"]


def _recompiled(event: events.Recompiled) -> list[str]:
    advice = "; mark_dynamic or dynamic=True, if it is a size" if "Tensor" in event.guard else ""
    return [f"{event.user_line}: {event.name} is compiled again, this guard failed: {event.guard}{advice}"]


def _limit(event: events.LimitReached) -> list[str]:
    where = f"{event.filename}:{event.line}, in {event.name}"
    return [f"{where}: {event.entries} forms are compiled, all other calls run eagerly; failing: {event.guard}"]


def _placed(event: events.Placed) -> list[str]:
    eager = sum(count for owner, count in event.pieces if owner == "eagerly")
    if not eager:
        return []
    parts = "1 part" if len(event.pieces) == 1 else f"{len(event.pieces)} parts"
    return [f"the {event.kind} graph of {event.frame}: {eager} operators run eagerly, which cuts it into {parts}"]


def _lowered(event: events.Lowered) -> list[str]:
    counts = collections.Counter(
        (name, why) for name, why in event.whole if why not in FINE and not any(part in name for part in LIBRARY)
    )
    graph = f"the {event.kind} graph of {event.frame}"
    return [
        f"{graph}: {event.backend} makes no kernel of {name} ({'once' if count == 1 else f'{count} times'}): {why}"
        for (name, why), count in counts.most_common()
    ]


_FINDERS: dict[type, Callable[[Any], list[str]]] = {
    events.FrameCaptured: _captured,
    events.FrameSkipped: _skipped,
    events.GraphKept: _kept,
    events.Recompiled: _recompiled,
    events.LimitReached: _limit,
    events.Placed: _placed,
    events.Lowered: _lowered,
}
