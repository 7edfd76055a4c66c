"""Arrays whose numbers are on another device than the CPU.

They are where torch's default device is another one, as in ``with torch.device("cuda")``: an array from outside is
copied there when it is first met, everything is computed there, what was written to is copied back when the graph ends,
and results are arrays again. And in functions made by ``wrap_numpy`` that are called with such tensors, which stay
where they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from jitney.capture.arrays.calls import storage
from jitney.capture.signals import Break
from jitney.capture.tensors import version_of
from jitney.default_device import innermost


@dataclass
class Elsewhere:
    """Of one capture.

    Args:
        wrapped: where the arrays of a function made by ``wrap_numpy`` are, while it is interpreted.
        copies: of memory on the CPU: that memory, what stands for it elsewhere, and its version then.
        given: memory from which an array has been made in the emitted code.
    """

    wrapped: torch.device | None = None
    copies: list[tuple[Any, Any, int]] = field(default_factory=list)
    given: set[int] = field(default_factory=set)

    def place(self) -> torch.device:
        """Where arrays are computed now."""
        return self.wrapped or innermost()

    def enter(self, device: torch.device) -> None:
        """A function made by ``wrap_numpy`` gets a tensor on this device."""
        if device.type == "cpu":
            return
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

    def brought(self, tensor: Any) -> Any:
        """What stands for the memory of an array from outside: itself, or a copy of it where arrays are computed."""
        place = self.place()
        if place.type == "cpu":
            return tensor
        made = tensor.to(place)
        self.copies.append((tensor, made, version_of(made)))
        return made

    def settle(self) -> None:
        """Copy what was written to elsewhere to where it came from."""
        for tensor, made, version in self.copies:
            if version_of(made) != version:
                tensor.copy_(made)

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
