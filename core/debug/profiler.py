"""Why is it compiled again and again? ``CompileProfiler`` counts what is compiled, and for what causes."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule

from jitney import events
from jitney.errors import describe_frame

MOST = 10  # rows of one kind in a report


@dataclass
class FrameCounts:
    """What happened to one function, its rests after breaks included."""

    captures: int = 0
    graphs: int = 0
    operations: int = 0
    loaded: int = 0  # from disk
    seconds: float = 0.0
    recompiles: collections.Counter[str] = field(default_factory=collections.Counter)
    breaks: collections.Counter[str] = field(default_factory=collections.Counter)
    skipped: collections.Counter[str] = field(default_factory=collections.Counter)
    at_limit: str = ""  # the guard that kept failing


class CompileProfiler:
    """Collects every capture, break and recompile of the process while its ``with`` block runs.

    It may also be given as ``backend=``: then graphs run as they were captured. But any backend will do:

        with jitney.CompileProfiler() as prof:
            model = jitney.compile(model)
            train(model)
        print(prof.report())
    """

    def __init__(self) -> None:
        self.frames: dict[tuple[str, str, int], FrameCounts] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> CompileProfiler:
        self._stack.enter_context(events.listen(self._collect))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def __call__(self, graph: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """As a backend: the graph runs as it is."""
        return graph.forward

    # ------------------------------------------------------------------ numbers

    @property
    def captures(self) -> int:
        """Frames captured, the rest of a frame after a break counted by itself."""
        return sum(f.captures for f in self.frames.values())

    @property
    def graphs(self) -> int:
        """Graphs compiled."""
        return sum(f.graphs for f in self.frames.values())

    @property
    def recompiles(self) -> int:
        """Captures for calls that no form fitted which was there."""
        return sum(f.recompiles.total() for f in self.frames.values())

    @property
    def graph_breaks(self) -> int:
        """Graph breaks met while capturing."""
        return sum(f.breaks.total() for f in self.frames.values())

    def causes(self) -> list[tuple[str, int]]:
        """The guards that made something be compiled again, with how often, the most frequent first."""
        counts: collections.Counter[str] = collections.Counter()
        for frame in self.frames.values():
            counts += frame.recompiles
        return counts.most_common()

    def report(self) -> str:
        """Text for people: what was compiled how often, and why; what to do about it."""
        if not self.frames:
            return "nothing was compiled"
        lines = [
            f"{self.captures} frames captured, {self.graphs} graphs, "
            f"{self.recompiles} recompiles, {self.graph_breaks} graph breaks"
        ]
        for title, pick in _SECTIONS.items():
            rows = pick(self)
            if rows:
                more = len(rows) - MOST
                lines += ["", f"{title}:", *rows[:MOST], *([f"  and {more} more"] if more > 0 else [])]
        return "\n".join(lines)

    # ------------------------------------------------------------------ collecting

    def _collect(self, event: events.Event) -> None:
        handle = _HANDLERS.get(type(event))
        if handle is not None:
            handle(self._frame(event), event)

    def _frame(self, event: Any) -> FrameCounts:
        return self.frames.setdefault((event.name, event.filename, event.line), FrameCounts())


def _captured(frame: FrameCounts, event: events.FrameCaptured) -> None:
    frame.captures += 1
    frame.graphs += event.graph is not None
    frame.operations += event.op_count
    frame.seconds += event.seconds
    if event.graph_break is not None:
        stack = event.graph_break.user_stack
        at = f"{describe_frame(stack[-1])}: " if stack else ""
        frame.breaks[f"{at}{event.graph_break.reason}"] += 1


def _loaded(frame: FrameCounts, event: events.FrameLoaded) -> None:
    frame.loaded += 1
    frame.seconds += event.seconds


def _recompiled(frame: FrameCounts, event: events.Recompiled) -> None:
    frame.recompiles[f"{event.expected or event.guard} (read at {event.user_line})"] += 1


def _skipped(frame: FrameCounts, event: events.FrameSkipped) -> None:
    frame.skipped[event.reason] += 1


def _limit(frame: FrameCounts, event: events.LimitReached) -> None:
    frame.at_limit = event.guard


_HANDLERS: dict[type, Callable[[FrameCounts, Any], None]] = {
    events.FrameCaptured: _captured,
    events.FrameLoaded: _loaded,
    events.FrameSkipped: _skipped,
    events.Recompiled: _recompiled,
    events.LimitReached: _limit,
}


def _by_function(profiler: CompileProfiler) -> list[str]:
    rows = sorted(profiler.frames.items(), key=lambda row: -row[1].captures)
    return [
        f"  {name} ({filename}:{line}): {f.captures} captures, {f.graphs} graphs, {f.operations} operations, "
        f"{f.seconds:.2f} s" + (f", {f.loaded} from disk" if f.loaded else "")
        for (name, filename, line), f in rows
    ]


def _causes(profiler: CompileProfiler) -> list[str]:
    return [f"  {count} times: {text}" for text, count in profiler.causes()]


def _limits(profiler: CompileProfiler) -> list[str]:
    advice = "mark what changes as dynamic, pass it as a tensor, or raise config.cache_size_limit"
    return [
        f"  {name} ({filename}:{line}) runs eagerly from now on where no form fits: {frame.at_limit}\n    try: {advice}"
        for (name, filename, line), frame in profiler.frames.items()
        if frame.at_limit
    ]


def _counted(profiler: CompileProfiler, kind: str) -> list[str]:
    counts: collections.Counter[str] = collections.Counter()
    for frame in profiler.frames.values():
        counts += getattr(frame, kind)
    return [f"  {count} times: {text}" for text, count in counts.most_common()]


_SECTIONS: dict[str, Callable[[CompileProfiler], list[str]]] = {
    "By function": _by_function,
    "Compiled again because this guard failed": _causes,
    "At the limit of forms": _limits,
    "Graph breaks": lambda profiler: _counted(profiler, "breaks"),
    "Left eager": lambda profiler: _counted(profiler, "skipped"),
}
