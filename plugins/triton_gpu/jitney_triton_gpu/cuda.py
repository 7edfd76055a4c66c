"""The part of CUDA's driver that launching needs, called directly: no compiler, no launcher of Triton's."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jitney.backends import build_function

_MOST_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
_PLAIN_SHARED = 48 * 1024
_CONFIGURATION = "=7I4xQQI4x"  # CUlaunchConfig: grid, block, shared memory, stream, attributes and their number
_BEFORE = struct.calcsize(_CONFIGURATION)

_counter = itertools.count()
Room = tuple[Callable[..., None], Any, Any]  # fills configuration and arguments; where these are; pointers to each


class CudaError(RuntimeError):
    """A call of the driver failed."""


@functools.cache
def driver() -> Any:
    """The driver's library. The GIL is kept during calls, which are short."""
    return ctypes.PyDLL("libcuda.so.1")


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


@contextlib.contextmanager
def within(device: int) -> Iterator[None]:
    """The device's context as this thread's, and then the one that it had: torch's current device stays what it is."""
    check(driver().cuCtxPushCurrent_v2(_context(device)))
    try:
        yield
    finally:
        check(driver().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())))


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
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        with within(device):
            check(driver().cuModuleLoadData(ctypes.byref(module), image))
            check(driver().cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
            if shared > _PLAIN_SHARED:
                check(driver().cuFuncSetAttribute(function, _MOST_SHARED, shared))
        self.device = device
        self.shape = f"1, 1, {threads}, 1, 1, {shared}"  # of a launch, after its programs
        self._module = module
        self._function = function
        self._format = struct.Struct(f"{_CONFIGURATION}{arguments}q")
        self._parameters = parameters

    def room(self) -> Room:
        """For one more launch at the same time as others."""
        size = _BEFORE + 8 * max(self._parameters, 1)
        memory = ctypes.create_string_buffer(size)
        first = ctypes.addressof(memory)
        places = range(first + _BEFORE, first + size, 8)
        pointers = (ctypes.c_void_p * len(places))(*places)
        return functools.partial(self._format.pack_into, memory, 0), ctypes.c_void_p(first), pointers

    def launcher(self, names: Sequence[str], first: str = "", others: Mapping[str, Any] | None = None) -> Any:
        """The Python function ``launch(programs, stream, *names)``; the driver copies the arguments before it returns.

        A room is for one thread at a time: another may come between its filling and the launch.

        Args:
            names: of the arguments.
            first: lines that it begins with, indented.
            others: what these lines need.
        """
        given = ", ".join(names)
        source = (
            f"def launch({', '.join(['programs', 'stream', *names])}):\n"
            f"    if not programs: return\n"
            f"{first}"
            f"    try: room = take()\n"
            f"    except IndexError: room = more()\n"
            f"    fill, configuration, pointers = room\n"
            f"    fill(programs, {self.shape}, stream, 0, 0, {given})\n"
            f"    status = start(configuration, function, pointers, None)\n"
            f"    if status == {_NO_CONTEXT}:\n"
            f"        enter({self.device})\n"
            f"        status = start(configuration, function, pointers, None)\n"
            f"    put(room)\n"
            f"    if status: check(status)\n"
        )
        rooms = [self.room()]
        namespace: dict[str, Any] = {
            "take": rooms.pop, "more": self.room, "put": rooms.append, "start": driver().cuLaunchKernelEx,
            "function": self._function, "enter": enter, "check": check, **(others or {}),
        }  # fmt: skip
        return build_function(source, f"<launch {next(_counter)}>", namespace, "launch")
