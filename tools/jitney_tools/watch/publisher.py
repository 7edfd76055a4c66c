"""The thread of a watched process that writes its state."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from pathlib import Path

from jitney import events
from jitney.backends import warn
from jitney.config import config
from jitney.errors import JitneyError
from jitney_tools.watch.collector import Collector
from jitney_tools.watch.folder import folder, write

SAMPLED = 0.02  # seconds between two looks at the threads
WRITTEN = 0.5  # seconds between two states in the file


class Publisher:
    """Writes what a collector knows, until the setting is off or the process ends."""

    def __init__(self) -> None:
        self.collector = Collector()
        self.path: Path | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._given_up = False

    def note(self, event: events.Event) -> None:
        """One more event; the first one begins it all."""
        self.collector.note(event)
        if self._thread is None and not self._given_up:
            with self._lock:
                if self._thread is None and not self._given_up:
                    self._begin()

    def _begin(self) -> None:
        try:
            own = folder(make=True)
        except (JitneyError, OSError) as error:
            self._given_up = True
            warn(f"JITNEY_WATCH: this process cannot be watched: {error}")
            return
        assert own is not None
        self.path = own / f"{os.getpid()}.json"
        self._thread = threading.Thread(target=self._run, name="jitney watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        own, before, written = threading.get_ident(), time.monotonic(), 0.0
        while config.watch:
            now = time.monotonic()
            self.collector.sample(now - before, own)
            before = now
            if now - written >= WRITTEN:
                written = now
                self.write()
            time.sleep(SAMPLED)
        self.close()
        self._thread = None

    def write(self) -> None:
        """Write the state as it is now; a full disk loses it, not the program."""
        if self.path is not None:
            with contextlib.suppress(OSError):
                write(self.path, self.collector.state().text())

    def close(self) -> None:
        """Nothing is told any more."""
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()


_publisher = Publisher()


def note(event: events.Event) -> None:
    """Tell who watches of an event."""
    _publisher.note(event)


def _forked() -> None:
    """What another process has compiled is not this one's, nor is its file."""
    global _publisher
    _publisher = Publisher()


os.register_at_fork(after_in_child=_forked)
atexit.register(lambda: _publisher.close())
