"""The part of CUDA's driver that launching needs, called directly: no compiler, no launcher of Triton's."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

_MOST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PLAIN_SHARED = 48 * 1024


class CudaError(RuntimeError):
    """A call of the driver failed."""


@functools.cache
def driver() -> Any:
    """The driver's library. The GIL is kept during calls, so no other thread fills the arguments in between."""
    library = ctypes.PyDLL("libcuda.so.1")
    library.cuLaunchKernel.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
    return library


def check(status: int) -> None:
    """Raises ``CudaError`` with the driver's own words, unless all is well."""
    if status:
        text = ctypes.c_char_p()
        driver().cuGetErrorString(status, ctypes.byref(text))
        raise CudaError((text.value or b"unknown error").decode())


class Loaded:
    """A kernel on the current device.

    Args:
        image: machine code.
        name: of the kernel in it.
        shared: bytes of shared memory.
        threads: of a program.
        arguments: how many parameters it has that somebody gives; others are null.
        parameters: how many it has at all.
    """

    def __init__(self, image: bytes, name: str, shared: int, threads: int, arguments: int, parameters: int) -> None:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        check(driver().cuModuleLoadData(ctypes.byref(module), image))
        check(driver().cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
        if shared > _PLAIN_SHARED:
            check(driver().cuFuncSetAttribute(function, _MOST_SHARED, shared))
        self._module = module
        self._function = function.value
        self._threads = threads
        self._shared = shared
        self._slots = (ctypes.c_int64 * parameters)()
        first = ctypes.addressof(self._slots)
        self._pointers = (ctypes.c_void_p * parameters)(*[first + 8 * n for n in range(parameters)])
        self._count = arguments
        self._launch: Callable[..., int] = driver().cuLaunchKernel

    def __call__(self, programs: int, stream: int, arguments: tuple[int, ...]) -> None:
        """Launch. The driver copies the arguments before it returns."""
        self._slots[: self._count] = arguments  # type: ignore[call-overload] # a tuple will do, and is here already
        status = self._launch(
            self._function, programs, 1, 1, self._threads, 1, 1, self._shared, stream, self._pointers, None
        )
        if status:
            check(status)
