"""Arrays whose numbers are on another device than the CPU.

They are where torch's default device is another one, as in ``with torch.device("cuda")``: an array from outside is
copied there when it is first met, everything is computed there, what was written to is copied back when the graph ends,
and results are arrays again. And in functions made by ``wrap_numpy`` that are called with such tensors, which stay
where they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from jitney.capture.interpreter.signals import Break, GiveUp
from jitney.capture.metadata import storage, version_of
from jitney.guards.tensors import nothing_shared
from jitney.torch_compat.default_device import innermost


@dataclass
class Elsewhere:
    """Of one capture.

    Args:
        wrapped: where the arrays of a function made by ``wrap_numpy`` are, while it is interpreted.
        copies: of memory on the CPU: that memory, what stands for it elsewhere, and its version then; None if it
            does not count writes, and may be written to.
        given: memory from which an array has been made in the emitted code.
    """

    wrapped: torch.device | None = None
    copies: list[tuple[Any, Any, int | None]] = field(default_factory=list)
    given: set[int] = field(default_factory=set)

    def place(self) -> torch.device:
        """Where arrays are computed now."""
        return self.wrapped or innermost()

    def enter(self, device: torch.device) -> None:
        """A function made by ``wrap_numpy`` gets a tensor on this device."""
        if self.wrapped not in (None, device):
            raise Break("a function made by wrap_numpy is called with tensors on several devices")
        self.wrapped = device

    def leave(self) -> None:
        """Such a function has returned."""
        self.wrapped = None

    @contextlib.contextmanager
    def factories(self) -> Iterator[None]:
        """What torch makes anew is where such a function's arrays are; the default device needs no help."""
        if self.wrapped is None:
            yield
            return
        with self.wrapped:
            yield

    def brought(self, tensor: Any, fixed: bool = False) -> Any:
        """What stands for the memory of an array from outside: itself, or a copy of it where arrays are computed.

        Args:
            fixed: may nobody write to it?
        """
        place = self.place()
        if place.type == "cpu":
            return tensor
        made = tensor.to(place)
        version = version_of(made)
        self.copies.append((tensor, made, None if version < 0 and not fixed else version))
        return made

    def settle(self) -> None:
        """Copy what was written to elsewhere to where it came from."""
        for tensor, made, version in self.copies:
            if version_of(made) != version:
                tensor.copy_(made)

    def apart(self, adopted: Sequence[tuple[Any, Any, bool]]) -> list[tuple[Any, bool]]:
        """What must share no memory, since a copy of it would not: sources, and whether it is written to.

        Args:
            adopted: real tensors from outside, their sources, and whether the graph writes to them.

        Raises:
            GiveUp: it does share memory.
        """
        here = [(real, source, written) for real, source, written in adopted if real.device.type == "cpu"]
        if not self.copies or len(here) < 2 or not any(written for _, _, written in here):
            return []
        flags = tuple([written for _, _, written in here])
        if not nothing_shared(flags, *[real for real, _, _ in here]):
            raise GiveUp("arrays that are computed on another device share memory", "give copies")
        return [(source, written) for _, source, written in here]

    def text(self, tensor: Any, text: str, outside: list[Any]) -> str:
        """Python text of an array with a tensor's numbers.

        Args:
            text: of the tensor.
            outside: the tensors that are older than the frame.

        Raises:
            Break: it would share memory with another one in NumPy.
        """
        if tensor.device.type == "cpu":
            return f"{text}.numpy()"
        memory = storage(tensor)
        if self.wrapped is not None or memory in map(storage, outside):
            return f"{text}.numpy()"  # which is torch's error, as in eager
        if memory in self.given or any(memory == storage(made) for _, made, _ in self.copies):
            raise Break("arrays on another device share memory", "leave the default device before NumPy code")
        self.given.add(memory)
        return f"{text}.cpu().numpy()"
