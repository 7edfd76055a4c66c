"""One recording: inputs in, replay, results out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from jitney.backends.devices import foreach_copy, same_addresses, storage_of, storage_users

Run = Callable[..., Sequence[Any]]


class Recorder(Protocol):
    """What records: a device."""

    device_type: str

    def is_busy(self) -> bool:
        """Is something being recorded already, by the user for instance?"""

    def prepare(self) -> None:
        """Before each recording of a graph that multiplies matrices: what all such have in common is there."""

    def record(self, run: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], Callable[[], None]]:
        """Where results will be, and what computes them. Raises ``RuntimeError`` for what cannot be recorded."""

    def turn(self) -> AbstractContextManager[None]:
        """While inputs are copied, a recording runs and results are copied: after all that ran so on other streams."""

    def wait(self) -> None:
        """Until what the current stream was given is done."""

    def taken(self) -> int:
        """Bytes of memory that torch has taken from the device."""

    def room(self) -> int:
        """Bytes of memory that a recording which nobody asked for may take now."""

    def keep(self, recording: Recording, taken: int) -> None:
        """Such a recording has taken so many bytes, as long as it lives."""


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
        copied: is the result at this position handed out as a copy, and with it whatever shares its memory?
    """

    def __init__(
        self,
        recorder: Recorder,
        run: Run,
        inputs: Sequence[Any],
        fixed: Sequence[int],
        moving: Sequence[int],
        copied: Callable[[int], bool],
    ) -> None:
        self.recorder = recorder
        with torch.inference_mode(False), torch.no_grad():
            self.moving = [(n, _room_for(inputs[n])) for n in moving]
        self.fixed = list(fixed)
        self.addresses = [x.data_ptr() if isinstance(x, torch.Tensor) else 0 for x in inputs]
        given = list(inputs)
        for n, room in self.moving:
            given[n] = room
        made, self.replay = recorder.record(functools.partial(run, *given))
        self.results = [_result(r, given, made[:n]) for n, r in enumerate(made)]
        self.names = [storage_of(r) if isinstance(r, torch.Tensor) else 0 for r in made]
        held = [n for n, r in enumerate(self.results) if r.held is not None]
        shared = {r.earlier for r in self.results}
        self.copied = {n: _span(made[n], n in shared) for n in held if copied(n)}
        self.replays = 0
        del made
        self.places = [r.held.data_ptr() if r.held is not None else 0 for r in self.results]
        self.storages = list(dict.fromkeys(self.names[n] for n in held))
        self.unused = [storage_users(s) for s in self.storages]

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Are the inputs where they were?"""
        return same_addresses(inputs, self.addresses, self.fixed)

    def moved(self, inputs: Sequence[Any]) -> set[int]:
        """Positions of those that are elsewhere, of those that are taken where they are."""
        return {n for n in self.fixed if inputs[n].data_ptr() != self.addresses[n]}

    def is_free(self) -> bool:
        """Does nobody hold a result?"""
        return list(map(storage_users, self.storages)) == self.unused and self.is_whole()

    def is_whole(self) -> bool:
        """Is the memory of its results still there? Whoever held one may have let go of that."""
        return all(
            r.held is None or r.held.data_ptr() == place for r, place in zip(self.results, self.places, strict=True)
        )

    def held_results(self) -> list[int]:
        """Positions of results that somebody holds."""
        held = {s for s, unused in zip(self.storages, self.unused, strict=True) if storage_users(s) != unused}
        return [n for n, name in enumerate(self.names) if name in held]

    @property
    def copied_bytes(self) -> int:
        """That are copied at each call: inputs that move, and results."""
        copied = [*(room for _, room in self.moving), *self.copied.values()]
        return sum(map(bytes_of, copied))

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The results for inputs that fit."""
        with self.recorder.turn():
            if self.moving:
                self._take(inputs)
            self.replay()
            copies = self._copies()
        self.replays += 1
        given: list[Any] = []
        for n, result in enumerate(self.results):
            given.append(copies[n] if n in copies else result(inputs, given))
        return given

    def _take(self, inputs: Sequence[Any]) -> None:
        """Copy those that move, in whatever mode the program is."""
        with torch.inference_mode(False), torch.no_grad():
            for n, room in self.moving:
                room.copy_(inputs[n].detach())

    def _copies(self) -> dict[int, torch.Tensor]:
        """Of the results that are handed out as such, of the same strides."""
        if not self.copied:
            return {}
        made = [torch.empty_like(span) for span in self.copied.values()]
        foreach_copy(made, list(self.copied.values()))
        copies = {}
        for new, (n, span) in zip(made, self.copied.items(), strict=True):
            held = self.results[n].held
            assert held is not None
            first = held.storage_offset() - span.storage_offset()
            plain = new.shape == held.shape and new.stride() == held.stride() and not first
            copies[n] = new if plain else new.as_strided(held.shape, held.stride(), first).detach()
        return copies


def _span(tensor: torch.Tensor, shared: bool) -> torch.Tensor:
    """The memory of a result from its first element to its last; all of it if others share it."""
    tensor = tensor.detach()
    if shared:
        return tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
    if tensor.is_contiguous():
        return tensor
    size = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((size,), (1,))


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
    others = [given[n] for n in shared] or [
        x for x in earlier if isinstance(x, torch.Tensor) and storage_of(x) == place
    ]
    if any(x.dtype is not made.dtype for x in others):
        raise RuntimeError("a result is another tensor's memory as another dtype")
    if shared:
        return Result(input=shared[0], geometry=_geometry(made, given[shared[0]]))
    size = bytes_of(made)
    for n, other in enumerate(earlier):
        if other is made:
            return Result(earlier=n, bytes=size)
        if isinstance(other, torch.Tensor) and storage_of(other) == place:
            return Result(earlier=n, geometry=_geometry(made, other), bytes=size)
    return Result(held=made.detach(), bytes=size)


def _geometry(view: torch.Tensor, base: torch.Tensor) -> tuple[Any, Any, Any]:
    """Size, stride, and how many elements the view begins after the base."""
    return view.shape, view.stride(), view.storage_offset() - base.storage_offset()


def bytes_of(tensor: torch.Tensor) -> int:
    """Of its elements."""
    return tensor.numel() * tensor.element_size()
