"""The part of CUDA's driver that launching needs, called directly: no compiler, no launcher of Triton's."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any

_MOST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
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


@functools.cache
def _context(device: int) -> Any:
    """The context that all of the process uses on a device."""
    context = ctypes.c_void_p()
    check(driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    return context


def enter(device: int) -> None:
    """Make the device's context this thread's, as the threads in which autograd runs may have none yet."""
    check(driver().cuCtxSetCurrent(_context(device)))


class Loaded:
    """A kernel on a device.

    Args:
        device: its number.
        image: machine code.
        name: of the kernel in it.
        shared: bytes of shared memory.
        threads: of a program.
        arguments: how many parameters it has that somebody gives; others are null.
        parameters: how many it has at all.
    """

    def __init__(
        self, device: int, image: bytes, name: str, shared: int, threads: int, arguments: int, parameters: int
    ) -> None:
        enter(device)
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        check(driver().cuModuleLoadData(ctypes.byref(module), image))
        check(driver().cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
        if shared > _PLAIN_SHARED:
            check(driver().cuFuncSetAttribute(function, _MOST_SHARED, shared))
        self.device = device
        self._module = module
        slots = ctypes.create_string_buffer(8 * max(parameters, 1))
        first = ctypes.addressof(slots)
        pointers = (ctypes.c_void_p * parameters)(*[first + 8 * n for n in range(parameters)])
        self.fill = functools.partial(struct.Struct(f"{arguments}q").pack_into, slots, 0)
        self._launch: Callable[..., int] = driver().cuLaunchKernel
        self._before = (ctypes.c_void_p(function.value),)
        self._after = tuple(map(ctypes.c_uint, (1, 1, threads, 1, 1, shared)))
        self._pointers = pointers

    def __call__(self, programs: int, stream: int, *arguments: int) -> None:
        """Launch. The driver copies the arguments before it returns."""
        self.fill(*arguments)
        status = self._launch(*self._before, programs, *self._after, stream, self._pointers, None)
        if status:
            self._again(status, programs, stream, arguments)

    def _again(self, status: int, programs: int, stream: int, arguments: tuple[int, ...]) -> None:
        if status != _NO_CONTEXT:
            check(status)
        enter(self.device)
        self.fill(*arguments)
        check(self._launch(*self._before, programs, *self._after, stream, self._pointers, None))
