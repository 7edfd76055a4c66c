"""CUDA graphs: all that a graph launches, recorded once, and launched again as one.

A recording holds addresses. Inputs that come from the same memory each time, as parameters do, are recorded where they
are; others are copied to memory of the recording before it runs. Its results stay in its memory: while somebody still
holds one of an earlier call, there is another recording, or kernels are launched one by one. So nothing that is
held changes, and nothing large is copied.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from jitney.backends import CompileRequest
from jitney.backends.devices import storage_of, storage_users

WARM_UP = 2  # calls before the first recording, which show where inputs come from
MOST = 4  # recordings of a graph
MOST_KINDS = 64  # of sizes and numbers that are remembered
SMALL = 1 << 20  # bytes of an input that is copied, or of results that are handed out as copies, without a thought
LEAST = 8  # launches that a recording is worth
WORTH = 4 << 20  # bytes that are copied in the time of one launch

Run = Callable[..., Sequence[Any]]
Addresses = list[int]


class Recorder(Protocol):
    """What records: a device."""

    device_type: str

    def is_busy(self) -> bool:
        """Is something being recorded already, by the user for instance?"""

    def record(self, run: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], Callable[[], None]]:
        """Where results will be, and what computes them. Raises ``RuntimeError`` for what cannot be recorded."""


@dataclass(frozen=True)
class Traits:
    """What is known of a graph.

    Args:
        written: positions of inputs that it writes to: never copies.
        dynamic: do its sizes come from its inputs?
        launches: how many there are about.
    """

    written: frozenset[int]
    dynamic: bool
    launches: int


@dataclass(frozen=True)
class Result:
    """One result: memory of the recording (``held``), a plain value, or an input or an earlier result or a view of it.

    Two results that share memory must be seen to: autograd would take both for its own.
    """

    held: torch.Tensor | None = None
    input: int | None = None
    earlier: int | None = None
    geometry: tuple[Any, Any, Any] | None = None
    value: Any = None
    bytes: int = 0  # of the recording's memory

    def __call__(self, inputs: Sequence[Any], results: Sequence[Any]) -> Any:
        """What the caller gets; ``results``: the earlier ones."""
        if self.held is not None:
            return self.held.detach()
        if self.input is None and self.earlier is None:
            return self.value
        tensor: torch.Tensor = inputs[self.input] if self.input is not None else results[self.earlier or 0]
        if self.geometry is None:
            return tensor
        size, stride, after = self.geometry
        return tensor.as_strided(size, stride, tensor.storage_offset() + after)


class Recording:
    """A graph's launches for inputs at certain addresses.

    Args:
        recorder: the device.
        run: the graph.
        inputs: of this call.
        fixed: positions of the tensors that are taken where they are.
        moving: positions of those that are copied.
        copied: positions of results that are handed out as copies.
    """

    def __init__(
        self,
        recorder: Recorder,
        run: Run,
        inputs: Sequence[Any],
        fixed: Sequence[int],
        moving: Sequence[int],
        copied: frozenset[int],
    ) -> None:
        self.moving = [(n, _room_for(inputs[n])) for n in moving]
        self.fixed = [(n, inputs[n].data_ptr()) for n in fixed]
        self.copied = copied
        given = list(inputs)
        for n, room in self.moving:
            given[n] = room
        made, self.replay = recorder.record(functools.partial(run, *given))
        self.results = [_result(r, given, made[:n]) for n, r in enumerate(made)]
        self.names = [storage_of(r) if isinstance(r, torch.Tensor) else 0 for r in made]
        held = [n for n, r in enumerate(self.results) if r.held is not None]
        del made
        self.storages = list(dict.fromkeys(self.names[n] for n in held))
        self.unused = [storage_users(s) for s in self.storages]

    def fits(self, addresses: dict[int, int]) -> bool:
        """Are the inputs where they were?"""
        return all(addresses[n] == address for n, address in self.fixed)

    def is_free(self) -> bool:
        """Does nobody hold a result?"""
        return list(map(storage_users, self.storages)) == self.unused

    def held_results(self) -> list[int]:
        """Positions of results that somebody holds."""
        held = {s for s, unused in zip(self.storages, self.unused, strict=True) if storage_users(s) != unused}
        return [n for n, name in enumerate(self.names) if name in held]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The results for inputs that fit."""
        for n, room in self.moving:
            room.copy_(inputs[n].detach())
        self.replay()
        given: list[Any] = []
        for result in self.results:
            given.append(result(inputs, given))
        for n in self.copied:
            given[n] = given[n].clone()
        return given


def _room_for(tensor: torch.Tensor) -> torch.Tensor:
    room = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return room.copy_(tensor.detach())


def _result(made: Any, given: Sequence[Any], earlier: Sequence[Any]) -> Result:
    if not isinstance(made, torch.Tensor):
        return Result(value=made)
    same = [n for n, x in enumerate(given) if x is made]
    if same:
        return Result(input=same[0])
    place = storage_of(made)
    shared = [n for n, x in enumerate(given) if isinstance(x, torch.Tensor) and storage_of(x) == place]
    if len(shared) > 1:  # the next time they may have memory of their own
        raise RuntimeError("a result is a view of inputs that share their memory")
    if shared:
        return Result(input=shared[0], geometry=_geometry(made, given[shared[0]]))
    size = _bytes(made)
    for n, other in enumerate(earlier):
        if other is made:
            return Result(earlier=n, bytes=size)
        if isinstance(other, torch.Tensor) and storage_of(other) == place:
            return Result(earlier=n, geometry=_geometry(made, other), bytes=size)
    return Result(held=made.detach(), bytes=size)


def _geometry(view: torch.Tensor, base: torch.Tensor) -> tuple[Any, Any, Any]:
    """Size, stride, and how many elements the view begins after the base."""
    return view.shape, view.stride(), view.storage_offset() - base.storage_offset()


@dataclass
class Inputs:
    """Calls that have the same plain values and sizes.

    Args:
        calls: how many there were.
        addresses: of the last one's tensors.
        moving: positions of tensors that come from elsewhere each time.
        copied: positions of results that callers keep for long, and that are small.
        recordings: what there is.
    """

    calls: int = 0
    addresses: dict[int, int] = field(default_factory=dict)
    moving: set[int] = field(default_factory=set)
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
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        """The graph's results."""
        if self.stopped or self.recorder.is_busy():
            return self.run(*inputs)
        with self._lock:
            recording = self._recording(inputs)
            if recording is not None:
                return recording(inputs)
        return self.run(*inputs)

    def _recording(self, inputs: Sequence[Any]) -> Recording | None:
        """One for these inputs, that is free."""
        addresses = {n: x.data_ptr() for n, x in enumerate(inputs) if isinstance(x, torch.Tensor)}
        alike = self._alike(inputs, addresses)
        for recording in alike.recordings:
            if recording.fits(addresses) and recording.is_free():
                return recording
        if alike.calls < WARM_UP:
            if alike.calls:
                alike.moving |= {n for n, address in addresses.items() if alike.addresses[n] != address}
            alike.calls += 1
            alike.addresses = addresses
            return None
        if sum(len(one.recordings) for one in self.known.values()) >= MOST:
            return None
        return self._record(alike, inputs, addresses)

    def _alike(self, inputs: Sequence[Any], tensors: Iterable[int]) -> Inputs:
        plain: list[Any] = [(type(x), x) for x in inputs if not isinstance(x, torch.Tensor)]
        if self.traits.dynamic:
            plain += [(inputs[n].shape, inputs[n].stride()) for n in tensors]
        if len(self.known) >= MOST_KINDS:
            self.known = {key: one for key, one in self.known.items() if one.recordings}
        return self.known.setdefault(tuple(plain), Inputs())

    def _record(self, alike: Inputs, inputs: Sequence[Any], addresses: dict[int, int]) -> Recording | None:
        self._learn(alike, inputs, addresses)
        moving, fixed = sorted(alike.moving), [n for n in addresses if n not in alike.moving]
        reason = self._why_not(inputs, moving, fixed)
        if reason:
            self._stop(reason)
            return None
        try:
            made = Recording(self.recorder, self.run, inputs, fixed, moving, alike.copied)
        except RuntimeError as error:
            self._stop(f"{type(error).__name__}: {error}")
            return None
        alike.recordings.append(made)
        return made

    def _learn(self, alike: Inputs, inputs: Sequence[Any], addresses: dict[int, int]) -> None:
        """From what did not fit: small inputs that moved are copied from now on, and small results that are kept."""
        for recording in alike.recordings:
            if recording.fits(addresses):
                held = recording.held_results()
                if sum(recording.results[n].bytes for n in held) <= SMALL:
                    alike.copied |= set(held)
            else:
                moved = {n for n, address in recording.fixed if addresses[n] != address}
                small = {n for n in moved if _bytes(inputs[n]) <= SMALL and n not in self.traits.written}
                if moved == small:
                    alike.moving |= small
        alike.recordings = [r for r in alike.recordings if all(n not in alike.moving for n, _ in r.fixed)]

    def _why_not(self, inputs: Sequence[Any], moving: Sequence[int], fixed: Sequence[int]) -> str:
        if self.traits.launches < LEAST:
            return "it launches too little for a recording to be faster"
        if any(inputs[n].device.type != self.recorder.device_type for n in (*moving, *fixed)):
            return "a tensor of the CPU is among its inputs"
        if self.traits.written.intersection(moving):
            return "what it writes to comes from elsewhere each time"
        if sum(_bytes(inputs[n]) for n in moving) > WORTH * max(self.traits.launches, 1):
            return "copying its inputs takes longer than its launches do"
        return ""

    def _stop(self, reason: str) -> None:
        self.stopped = True
        self.known.clear()
        self.tell(reason)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def not_recorded_text(request: CompileRequest, reason: str) -> str:
    """Why a graph is not recorded, for the logs."""
    return f"the {request.kind} graph of {request.frame} is not recorded: {reason}"


def replayed(run: Run, device: torch.device, traits: Traits, request: CompileRequest) -> Run:
    """The function, recorded in CUDA graphs."""
    from jitney_triton_gpu.cudagraphs import recorder

    def refused(reason: str) -> None:
        request.save("cudagraphs", not_recorded_text(request, reason))

    calls = Recorded(run, recorder(device), traits, refused)

    def replay(*inputs: Any) -> Any:
        return calls(*inputs)

    replay.filled = run.filled  # type: ignore[attr-defined] # see CompileRequest.updates
    return replay
