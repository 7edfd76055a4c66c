"""Which calls of a graph are launched, which are recorded, and which replayed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from jitney.backends import CompileRequest
from jitney.backends.devices import library_settings, saved_tensors_hooks, storage_of
from jitney_triton_gpu.cuda_graphs.recording import Recorder, Recording, Run, bytes_of
from jitney_triton_gpu.cuda_graphs.trial import COPIED, TRIES, Trial

WARM_UP = 2  # calls before the first recording, which show where inputs come from
MOST = 4  # recordings of a graph
MOST_KINDS = 64  # of sizes and numbers that are remembered
SMALL = 1 << 20  # bytes of an input that is copied, or of results that are handed out as copies, without a thought
LEAST = 8  # launches that a recording is worth
WORTH = 4 << 20  # bytes that are copied in the time of one launch
PATIENCE = 32  # calls in a row that no recording fits, after which it is given up, unless recordings were asked for


_RECORDINGS: weakref.WeakSet[Recording] = weakref.WeakSet()  # all that there are


@dataclass(frozen=True)
class Traits:
    """What is known of a graph.

    Args:
        written: positions of inputs that it writes to: never copies.
        dynamic: do its sizes come from its inputs?
        launches: how many there are about.
        automatic: did nobody ask for recordings? Then nobody must notice them: results that the program sees are
            copies, which it may let go of while another stream reads them; and what is gained is measured.
        seen: how many of the results the program sees; None for all. The others are residuals.
        trains: is it a half of a training graph?
        multiplies: does it call a library's matrix products?
        needed: about how many bytes a launched call takes at a time; 0 if its sizes change.
    """

    written: frozenset[int]
    dynamic: bool
    launches: int
    automatic: bool = False
    seen: int | None = None
    trains: bool = False
    multiplies: bool = False
    needed: int = 0


@dataclass
class Inputs:
    """Calls that have the same plain values, sizes and settings.

    Args:
        calls: how many there were.
        addresses: of the last one's tensors.
        moving: positions of tensors that come from elsewhere each time.
        tried: has there been a recording?
        copied: positions of results that callers keep for long, and that are small.
        recordings: what there is.
    """

    calls: int = 0
    addresses: dict[int, int] = field(default_factory=dict)
    moving: set[int] = field(default_factory=set)
    tried: bool = False
    copied: frozenset[int] = frozenset()
    recordings: list[Recording] = field(default_factory=list)


class Recorded:
    """A graph that is recorded once it has been called some times.

    Args:
        run: launches one by one.
        recorder: the device.
        traits: of the graph.
        tell: is told why nothing is recorded any more.
    """

    def __init__(self, run: Run, recorder: Recorder, traits: Traits, tell: Callable[[str], None]) -> None:
        self.run = run
        self.recorder = recorder
        self.traits = traits
        self.tell = tell
        self.known: dict[Any, Inputs] = {}
        self.stopped = False
        self.missed = 0
        self.trial = Trial(recorder, traits.trains, traits.needed) if traits.automatic else None
        self.tensors: list[int] | None = None  # positions of inputs
        self.others: list[int] = []
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        """The graph's results."""
        made = self.replayed(inputs)
        return self.run(*inputs) if made is None else made

    def replayed(self, inputs: Sequence[Any]) -> Sequence[Any] | None:
        """The results if they are computed here; else the caller launches one by one."""
        if self.stopped or self.recorder.is_busy():
            return None
        if self.trial is not None and self.traits.seen is not None and saved_tensors_hooks(True):
            return None  # the program sees residuals, too
        with self._lock:
            recording = self._recording(inputs)
            if recording is None:
                return self._missed(inputs)
            self.missed = 0
            if self.trial is None or self.trial.decided:
                return recording(inputs)
            made, against = self.trial.replay(recording, inputs)
            if against:
                self._stop(against)
            return made

    def _missed(self, inputs: Sequence[Any]) -> Sequence[Any] | None:
        """No recording fits: the results if the call is one of those that are measured."""
        self.missed += 1
        if self.trial is None or self.stopped or self.missed < WARM_UP:
            return None
        if self.recorder.room() <= 0:
            made, against = None, "there is no memory for recordings that nobody asked for"
        elif self.trial.launches < TRIES:
            if self.traits.multiplies:
                self.recorder.prepare()
            made, against = self.trial.launch(self.run, inputs)
        else:
            made, against = None, "no recording fits what it is called with" if self.missed > PATIENCE else ""
        if against:
            self._stop(against)
        return made

    def _recording(self, inputs: Sequence[Any]) -> Recording | None:
        """One for these inputs, that is free."""
        alike = self._alike(inputs)
        for recording in alike.recordings:
            if recording.fits(inputs) and recording.is_free():
                return recording
        addresses = {n: x.data_ptr() for n, x in enumerate(inputs) if isinstance(x, torch.Tensor)}
        if alike.calls < WARM_UP or (self.trial is not None and self.trial.launches < TRIES):
            if alike.calls:
                alike.moving |= {n for n, address in addresses.items() if alike.addresses[n] != address}
            alike.calls += 1
            alike.addresses = addresses
            return None
        if sum(len(one.recordings) for one in self.known.values()) >= MOST:
            return None
        return self._record(alike, inputs, addresses)

    def _alike(self, inputs: Sequence[Any]) -> Inputs:
        if self.tensors is None:  # a graph has them in the same places at each call
            self.tensors = [n for n, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
            self.others = [n for n, x in enumerate(inputs) if not isinstance(x, torch.Tensor)]
        plain: list[Any] = [library_settings(), *(_named(inputs[n]) for n in self.others)]
        if self.traits.dynamic:
            plain += [(inputs[n].shape, inputs[n].stride()) for n in self.tensors]
        if len(self.known) >= MOST_KINDS:
            self.known = {key: one for key, one in self.known.items() if one.recordings}
        return self.known.setdefault(tuple(plain), Inputs())

    def _record(self, alike: Inputs, inputs: Sequence[Any], addresses: dict[int, int]) -> Recording | None:
        self._learn(alike, inputs)
        if not alike.tried:  # a forward that is recorded itself by now leaves its residuals in one place
            alike.moving -= {n for n in alike.moving if _is_recorded(inputs[n])}
            alike.tried = True
        moving, fixed = sorted(alike.moving), [n for n in addresses if n not in alike.moving]
        reason = self._why_not(inputs, moving, fixed)
        if reason:
            self._stop(reason)
            return None
        if self.traits.multiplies:
            self.recorder.prepare()
        if self.trial is not None:
            self.trial.begin()
        kept = alike.copied

        def copied(n: int) -> bool:
            return n in kept or (self.traits.automatic and (self.traits.seen is None or n < self.traits.seen))

        try:
            made = Recording(self.recorder, self.run, inputs, fixed, moving, copied)
        except RuntimeError as error:
            self._stop(f"{type(error).__name__}: {error}")
            return None
        if self.trial is not None and (reason := self.trial.objection(made)):
            self._stop(reason)
            return None
        alike.recordings.append(made)
        _RECORDINGS.add(made)
        return made

    def _learn(self, alike: Inputs, inputs: Sequence[Any]) -> None:
        """From what did not fit: small inputs that moved are copied from now on, and small results that are kept."""
        for recording in alike.recordings:
            if recording.fits(inputs):
                held = recording.held_results()
                if sum(recording.results[n].bytes for n in held) <= SMALL:
                    alike.copied |= set(held)
            else:
                moved = recording.moved(inputs)
                most = COPIED if self.traits.automatic else SMALL
                small = {n for n in moved if bytes_of(inputs[n]) <= most and n not in self.traits.written}
                if moved == small:
                    alike.moving |= small
        alike.recordings = [r for r in alike.recordings if alike.moving.isdisjoint(r.fixed)]

    def _why_not(self, inputs: Sequence[Any], moving: Sequence[int], fixed: Sequence[int]) -> str:
        if self.traits.launches < LEAST:
            return "it launches too little for a recording to be faster"
        if any(inputs[n].device.type != self.recorder.device_type for n in (*moving, *fixed)):
            return "a tensor of the CPU is among its inputs"
        if self.traits.written.intersection(moving):
            return "what it writes to comes from elsewhere each time"
        moved = sum(bytes_of(inputs[n]) for n in moving)
        if moved > WORTH * max(self.traits.launches, 1):
            return "copying its inputs takes longer than its launches do"
        return self.trial.refusal(moved) if self.trial is not None else ""

    def _stop(self, reason: str) -> None:
        self.stopped = True
        self.known.clear()
        self.tell(reason)


def _is_recorded(tensor: torch.Tensor) -> bool:
    """Is it a result of a recording, in the memory of that?"""
    place = storage_of(tensor)
    return any(place in recording.storages for recording in list(_RECORDINGS))


def _named(number: Any) -> Any:
    """What tells a plain input from others: 0.0 is not -0.0, and nan is nan."""
    return number.hex() if type(number) is float else (type(number), repr(number))


def replayed(run: Run, device: torch.device, traits: Traits, request: CompileRequest) -> Run:
    """The function, recorded in CUDA graphs."""
    from jitney_triton_gpu.cuda_graphs.device import recorder

    def refused(reason: str) -> None:
        request.save("cudagraphs", not_recorded_text(request, reason))

    calls = Recorded(run, recorder(device), traits, refused)
    one_by_one: Callable[[list[Any]], Sequence[Any]] | None = getattr(run, "boxed", None)

    def replay(*inputs: Any) -> Any:
        return calls(*inputs)

    def boxed(inputs: list[Any]) -> Any:
        made = calls.replayed(inputs)
        if made is None and one_by_one is not None:
            return one_by_one(inputs)
        inputs.clear()
        return made

    if one_by_one is not None:
        replay.boxed = boxed  # type: ignore[attr-defined] # see Backend
    replay.filled = run.filled  # type: ignore[attr-defined] # see CompileRequest.updates
    return replay


def not_recorded_text(request: CompileRequest, reason: str) -> str:
    """Why a graph is not recorded, for the logs."""
    return f"the {request.kind} graph of {request.frame} is not recorded: {reason}"
