"""Counts what events tell, for a process that is watched."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from jitney import events
from jitney._util.forks import reentrant_lock
from jitney.errors import describe_frame
from jitney_tools.watch.activity import activity, users_line
from jitney_tools.watch.state import Break, Function, InFlight, Recompile, State

LAST = 20  # recompiles
SHOWN = 20  # functions and breaks that are written
KNOWN = 500  # that are counted
LONGEST = 300  # characters of a text


class Collector:
    """All that is known of this process."""

    def __init__(self) -> None:
        self.started = time.time()
        self.counts: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._steps: list[tuple[int, events.Step, float]] = []  # that have begun, with their threads
        self._recompiles: deque[Recompile] = deque(maxlen=LAST)
        self._breaks: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._functions: OrderedDict[tuple[str, str], Function] = OrderedDict()
        self._lock = reentrant_lock()  # a signal handler or a finalizer may compile while an event is noted

    def note(self, event: events.Event) -> None:
        """One more event, of the thread that calls."""
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            with self._lock:
                handler(self, event)

    def sample(self, seconds: float, own: int) -> None:
        """Look where each thread is but ``own``; they have been there for so long."""
        compiling = {thread for thread, _, _ in [*self._steps]}
        for thread, frame in sys._current_frames().items():
            at = "compiling" if thread in compiling else activity(frame) if thread != own else ""
            if at:
                self.seconds[at] += seconds

    def pause(self) -> None:
        """Events are not told from now on: of what is compiled now, nobody will say when it ends."""
        with self._lock:
            self._steps.clear()

    def state(self) -> State:
        """As it is now."""
        frames = sys._current_frames()
        with self._lock:
            flying = [
                InFlight(_short(step.frame), step.name, _short(users_line(frames.get(thread))), begin)
                for thread, step, begin in [*self._steps]
            ]
            breaks = [Break(line, reason, count) for (line, reason), count in [*self._breaks.items()]]
            return State(
                pid=os.getpid(),
                program=_short(" ".join(map(str, getattr(sys, "argv", ())))) or "python",
                started=self.started,
                updated=time.time(),
                counts=dict(self.counts),
                seconds=dict(self.seconds),
                in_flight=flying,
                recompiles=list(self._recompiles),
                breaks=sorted(breaks, key=lambda row: -row.count)[:SHOWN],
                functions=sorted([*self._functions.values()], key=lambda row: -row.seconds)[:SHOWN],
            )

    # ------------------------------------------------------------------ one method for each kind of event

    def _step(self, event: events.Step) -> None:
        thread = threading.get_ident()
        if event.seconds is None:
            self._steps.append((thread, event, time.time()))
            return
        for at in reversed(range(len(self._steps))):
            if self._steps[at][0] == thread and self._steps[at][1].number == event.number:
                del self._steps[at]
                return

    def _captured(self, event: events.FrameCaptured) -> None:
        self.counts["captured"] += 1
        self.counts["graphs"] += event.graph is not None
        function = self._function(event)
        function.captures += 1
        function.seconds += event.seconds

    def _loaded(self, event: events.FrameLoaded) -> None:
        self.counts["loaded"] += 1
        self._function(event).loaded += 1

    def _refused(self, event: events.FrameRefused) -> None:
        self.counts["refused"] += 1

    def _stored(self, event: events.FrameStored) -> None:
        self.counts["not stored" if event.reason else "stored"] += 1

    def _recompiled(self, event: events.Recompiled) -> None:
        self.counts["recompiles"] += 1
        self._recompiles.append(
            Recompile(_short(event.name), _short(event.guard), _short(event.user_line), time.time())
        )

    def _broke(self, event: events.GraphBreak) -> None:
        self.counts["breaks"] += 1
        line = describe_frame(event.user_stack[-1]) if event.user_stack else ""
        self._add_break(line, event.reason)

    def _skipped(self, event: events.FrameSkipped) -> None:
        self.counts["left eager"] += 1
        self._add_break(f"{event.filename}:{event.line}, in {event.name}", event.reason)

    def _failed(self, event: events.GraphFailed) -> None:
        self.counts["graphs failed"] += 1

    def _add_break(self, line: str, reason: str) -> None:
        key = (_short(line), _short(reason))
        self._breaks[key] = self._breaks.pop(key, 0) + 1
        if len(self._breaks) > KNOWN:
            self._breaks.popitem(last=False)

    def _function(self, event: events.FrameCaptured | events.FrameLoaded) -> Function:
        key = (_short(event.name), _short(f"{event.filename}:{event.line}"))
        found = self._functions.setdefault(key, Function(*key))
        self._functions.move_to_end(key)
        if len(self._functions) > KNOWN:
            self._functions.popitem(last=False)
        return found


_HANDLERS: dict[type, Callable[[Collector, Any], None]] = {
    events.Step: Collector._step,
    events.FrameCaptured: Collector._captured,
    events.FrameLoaded: Collector._loaded,
    events.FrameRefused: Collector._refused,
    events.FrameStored: Collector._stored,
    events.Recompiled: Collector._recompiled,
    events.GraphBreak: Collector._broke,
    events.FrameSkipped: Collector._skipped,
    events.GraphFailed: Collector._failed,
}


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
