"""Addresses of native functions by name: what compiled code may call outside of itself.

They are looked up in the libraries that torch has loaded, in the order in which the loader searches those, so that code
made here calls the very OpenMP, math and C libraries that torch calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from pathlib import Path

import torch

from jitney.backends import reentrant_lock

_NAMES = {"linux": "libtorch_cpu.so", "darwin": "libtorch_cpu.dylib", "win32": "torch_cpu.dll"}
_registered: dict[str, int] = {}
_lock = reentrant_lock()


def find(name: str) -> int | None:
    """The address of the C function or variable ``name``, or None if no library that is loaded has it."""
    address = _registered.get(name)
    return address if address is not None else _look_up(name)


def register(name: str, address: int) -> None:
    """Let compiled code reach ``address`` as ``name``; whatever is there must live as long as the process.

    Raises:
        ValueError: the name is registered with another address.
    """
    with _lock:
        if _registered.setdefault(name, address) != address:
            raise ValueError(f"symbol {name!r} is registered with another address")


def torch_library() -> Path | None:
    """The file of torch's CPU library, or None if torch was built otherwise (static, or one library)."""
    path = Path(torch.__file__).parent / "lib" / _NAMES.get(sys.platform, "libtorch_cpu.so")
    return path if path.is_file() else None


def torch_identity() -> str:
    """Equal as long as torch's CPU library is the same file: what a verdict on its functions holds for."""
    path = torch_library()
    status = path.stat() if path is not None else None
    return f"{torch.__version__} {path} {status and (status.st_size, status.st_mtime_ns)}"


@functools.cache
def libraries() -> tuple[ctypes.CDLL, ...]:
    """Where functions are looked up, in order: torch's CPU library with all that it depends on, then the process."""
    found = []
    path = torch_library()
    if path is not None:
        # NOLOAD: only the library that runs torch here is of use, never a second copy.
        mode = getattr(os, "RTLD_NOLOAD", 0) | getattr(os, "RTLD_LAZY", 0)
        with contextlib.suppress(OSError):  # loaded from another place
            found.append(ctypes.CDLL(str(path), mode=mode))
    if sys.platform == "win32":
        found.append(ctypes.CDLL("ucrtbase"))
    else:
        found.append(ctypes.CDLL(None))
    return tuple(found)


@functools.cache
def _look_up(name: str) -> int | None:
    for library in libraries():
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError:  # ctypes: symbol not found
            continue
    return None
