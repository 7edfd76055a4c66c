"""A line on the terminal while compiling takes long: what is compiled, and since when; gone once it is done.

``JITNEY_PROGRESS=0`` does without. Where stderr is no terminal there is none. A thread writes it, after two seconds.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from jitney import events
from jitney.config import config

AFTER = 2.0  # seconds
PAUSE = 0.5  # seconds between steps that are still one compilation, for who waits
LABELS = {"capture": "capturing", "aot": "tracing forward and backward"}


@dataclass
class Progress:
    """The compilation that is in flight in this process."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    steps: list[events.Step] = field(default_factory=list)  # that have begun, of all threads
    begin: float = 0.0
    end: float = -PAUSE
    timer: threading.Timer | None = None
    line: Any = None  # a rich.live.Live, once it is shown

    def collect(self, event: events.Event) -> None:
        """Note that a step begins or ends."""
        if type(event) is events.Step:
            with self.lock:
                if event.seconds is None:
                    self._enter(event)
                elif self.steps:
                    self._leave(event)

    def _enter(self, step: events.Step) -> None:
        if not self.steps:
            if not config.progress or not _is_terminal():
                return
            now = time.monotonic()
            if now - self.end > PAUSE:
                self.begin = now
            self.timer = threading.Timer(max(0.0, self.begin + AFTER - now), self._show)
            self.timer.daemon = True
            self.timer.start()
        self.steps.append(step)

    def _leave(self, step: events.Step) -> None:
        at = next((i for i in range(len(self.steps))[::-1] if self.steps[i].frame == step.frame), -1)
        self.steps.pop(at)
        if not self.steps:
            self.end = time.monotonic()
            if self.timer is not None:
                self.timer.cancel()
            line, self.timer, self.line = self.line, None, None
            if line is not None:
                line.stop()

    def _show(self) -> None:
        from rich.console import Console  # only for who waits
        from rich.live import Live
        from rich.text import Text

        with self.lock:
            if self.steps and self.line is None:
                self.line = Live(
                    get_renderable=lambda: Text(self.text()),
                    console=Console(stderr=True),
                    transient=True,
                    refresh_per_second=2,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
                self.line.start(refresh=True)

    def forget(self) -> None:
        """In a process that another has forked: what that compiles is not this one's."""
        self.lock, self.steps, self.timer, self.line = threading.Lock(), [], None, None

    def text(self) -> str:
        """The line."""
        steps = list(self.steps)
        seconds = time.monotonic() - self.begin
        if not steps:
            return ""
        step = steps[-1]
        return f"jitney compiles {step.frame}, {seconds:.0f} s: {LABELS.get(step.name, step.name)}"


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


progress = Progress()
os.register_at_fork(after_in_child=progress.forget)
events.subscribe(progress.collect)
