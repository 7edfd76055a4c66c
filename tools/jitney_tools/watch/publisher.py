"""The thread of a watched process that writes its state."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from pathlib import Path

from jitney import events
from jitney._util.forks import reentrant_lock
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
        self._lock = reentrant_lock()  # of the thread that writes, and of the file
        self._thread: threading.Thread | None = None
        self._ended = False  # it could not begin, or the process ends

    def note(self, event: events.Event) -> None:
        """One more event; the first one begins it all."""
        self.collector.note(event)
        if self._thread is None and not self._ended:
            with self._lock:
                if self._thread is None and not self._ended:
                    self._begin()

    def _begin(self) -> None:
        thread = self._thread = threading.Thread(target=self._run, name="jitney watch", daemon=True)
        try:
            own = folder(make=True)
            assert own is not None
            self.path = own / f"{os.getpid()}.json"
            thread.start()
        except (JitneyError, OSError, RuntimeError) as error:  # RuntimeError: there can be no more threads
            self._ended, self._thread = True, None
            warn(f"JITNEY_WATCH: this process cannot be watched: {error}")

    def _run(self) -> None:
        own, before, written = threading.get_ident(), time.monotonic(), 0.0
        while not self._is_over():
            now = time.monotonic()
            self.collector.sample(now - before, own)
            before = now
            if now - written >= WRITTEN:
                written = now
                self.write()
            time.sleep(SAMPLED)

    def _is_over(self) -> bool:
        """Is the setting off? Then the file is gone, and the next event with the setting on begins anew."""
        if config.watch and not self._ended:
            return False
        with self._lock:
            if config.watch and not self._ended:
                return False
            self._remove()
            self.collector.pause()
            self._thread = None
            return True

    def write(self) -> None:
        """Write the state as it is now; a full disk loses it, not the program."""
        text = self.collector.state().text()
        with self._lock, contextlib.suppress(OSError):
            if self.path is not None and not self._ended:
                write(self.path, text)

    def close(self) -> None:
        """The process ends: nothing is told any more."""
        with self._lock:
            self._ended = True
            self._remove()

    def _remove(self) -> None:
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
