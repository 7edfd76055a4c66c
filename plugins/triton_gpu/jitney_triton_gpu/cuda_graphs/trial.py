"""Is a recording worth it, where nobody asked for one? A few calls tell, for each of which the host waits once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from jitney_triton_gpu.cuda_graphs.recording import Recorder, Recording

BEHIND = 1.25  # so many times as long as launching takes a call at most, for a recording to be tried
LAG = 50e-6  # seconds in which a device that has nothing to do answers
TRIES = 3  # calls of each kind, of which the fastest counts
GAIN = 0.9  # of the time of a call that is launched, at most, for a recording to stay
COPIED = 32 << 20  # bytes that are copied at each call, at most
TRAINING = 32 << 20  # bytes of memory that a half of a training graph takes, at most: it stays when others need it
SPARE = 32 << 20  # bytes that a recording may take whatever launched calls need: torch takes memory by 20 MiB
MORE = 1.25  # times as much as a launched call needs is what a larger one may take


class Trial:
    """The times of some calls: launched one by one, then replayed.

    Large graphs, where the device takes longer than the host, are not even recorded: it would cost memory for nothing.

    Args:
        recorder: the device.
        trains: is it for a half of a training graph?
        needed: bytes that a launched call takes at a time, about; 0 if nobody knows.
    """

    def __init__(self, recorder: Recorder, trains: bool = False, needed: int = 0) -> None:
        self.recorder = recorder
        self.trains = trains
        self.needed = needed
        self.launches = self.replays = 0  # that were measured
        self.launched = self.replayed = math.inf  # seconds of the fastest
        self._host = math.inf  # of these, until it was launched
        self._room = 0
        self._taken = 0

    def launch(self, run: Callable[..., Sequence[Any]], inputs: Sequence[Any]) -> tuple[Sequence[Any], str]:
        """The results of a call that is launched, and what speaks against a recording."""
        made, host, seconds = self._timed(lambda: run(*inputs))
        self.launches += 1
        if seconds < self.launched:
            self.launched, self._host = seconds, host
        if self.launches < TRIES or self.launched < BEHIND * self._host + LAG:
            return made, ""
        return made, "the device takes longer than launching does"

    @property
    def decided(self) -> bool:
        """Is all measured?"""
        return self.replays == TRIES

    def begin(self) -> None:
        """A recording is made now."""
        self._room, self._taken = self.recorder.room(), self.recorder.taken()
        if self.trains:
            self._room = min(self._room, TRAINING)
        if self.needed:
            self._room = min(self._room, max(SPARE, int(MORE * self.needed)))

    def refusal(self, copied: int) -> str:
        """What speaks against a recording that copies so many bytes of inputs, before there is memory for them."""
        return f"{copied >> 20} MiB would be copied at each call" if copied > COPIED else ""

    def objection(self, recording: Recording) -> str:
        """What speaks against a recording that has been made."""
        memory = self.recorder.taken() - self._taken
        if memory > self._room:
            return f"its {memory >> 20} MiB of memory are more than is taken for it unless it is asked for"
        if refused := self.refusal(recording.copied_bytes):
            return refused
        self.recorder.keep(recording, memory)
        return ""

    def replay(self, recording: Recording, inputs: Sequence[Any]) -> tuple[Sequence[Any], str]:
        """The results of a call that is replayed, and what speaks against going on so."""
        if not recording.replays:  # the first one takes longer
            return recording(inputs), ""
        made, _, seconds = self._timed(lambda: recording(inputs))
        self.replays += 1
        self.replayed = min(self.replayed, seconds)
        slow = self.decided and self.replayed > GAIN * self.launched
        return made, "a replay is no faster than launching is" if slow else ""

    def _timed(self, call: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], float, float]:
        """Its results, and the seconds until the host and the device are done."""
        self.recorder.wait()
        begin = perf_counter()
        made = call()
        host = perf_counter()
        self.recorder.wait()
        return made, host - begin, perf_counter() - begin
