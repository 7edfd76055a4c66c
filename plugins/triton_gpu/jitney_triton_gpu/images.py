"""Machine code of kernels, and what launches it. Triton is not asked, but for addresses that nobody has seen yet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jitney_triton_gpu.code import Function
from jitney_triton_gpu.cuda import Loaded


@dataclass(frozen=True)
class Image:
    """One compiled function.

    Args:
        code: for the device.
        name: of the kernel in it.
        shared: bytes of shared memory.
        threads: of a program.
        parameters: how many the kernel has; the first ones are the function's.
    """

    code: bytes
    name: str
    shared: int
    threads: int
    parameters: int

    @property
    def facts(self) -> tuple[str, int, int, int]:
        """All but the code, in the order of the arguments."""
        return self.name, self.shared, self.threads, self.parameters


class Launcher:
    """Launches one function: ``launch(programs, stream, *arguments)`` with addresses for buffers.

    Args:
        function: what it is.
        image: compiled for addresses that are multiples of 16.
        device: the number of the device onto which it is loaded.
        again: compiles it for any addresses, when such come.
    """

    def __init__(self, function: Function, image: Image, device: int, again: Callable[[], Image]) -> None:
        self.described = function
        self.image = image
        self.device = device
        self._again = again
        self._lock = threading.Lock()
        self._any: Callable[..., None] | None = None
        self._loaded = self._load(image)

    def _load(self, image: Image) -> Loaded:
        given = len(self.described.parameters)
        return Loaded(self.device, image.code, image.name, image.shared, image.threads, given, image.parameters)

    def unaligned(self) -> Callable[..., None]:
        """For addresses that are no multiples of 16."""
        with self._lock:
            if self._any is None:
                self._any = self._load(self._again()).launcher(self.names)
            return self._any

    @property
    def names(self) -> list[str]:
        """Of the function's parameters."""
        return [p.name for p in self.described.parameters]

    def function(self) -> Callable[..., None]:
        """What generated code calls."""
        pointers = " | ".join(p.name for p in self.described.parameters if p.kind != "size") or "0"
        given = ", ".join(["programs", "stream", *self.names])
        first = f"    if ({pointers}) & 15: return unaligned()({given})\n"
        launch: Any = self._loaded.launcher(self.names, first, {"unaligned": self.unaligned})
        launch.image = self.image
        made: Callable[..., None] = launch
        return made
