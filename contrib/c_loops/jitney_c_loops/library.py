"""C text to functions: the system's compiler makes a shared library, ctypes loads it."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMPILERS = ("cc", "gcc", "clang")  # the first that is there
PRELUDE = Path(__file__).with_name("prelude.h")

FLAGS = (
    "-std=gnu11",
    "-shared",
    "-fPIC",
    "-w",
    "-fwrapv",  # integers wrap around, as torch's do
    "-fno-strict-aliasing",  # a place of the arena holds one type first and another later
    "-ffp-contract=off",  # a product and a sum are rounded twice, as in eager
    "-fno-math-errno",
)


def compiler() -> str | None:
    """The path of the C compiler."""
    return next((path for name in COMPILERS if (path := shutil.which(name)) is not None), None)


def lacks() -> tuple[str, ...]:
    """What is missing on this machine; see ``Backend.lacks``."""
    return () if compiler() is not None else (f"there is no C compiler: none of {', '.join(COMPILERS)} is on the PATH",)


@functools.lru_cache(maxsize=256)
def load(text: str, optimize: int) -> ctypes.CDLL:
    """The library of a C program; equal texts are compiled once in a process.

    Raises:
        RuntimeError: there is no compiler, or it refuses the text, with what it says.
    """
    path = compiler()
    if path is None:
        raise RuntimeError(lacks()[0])
    with tempfile.TemporaryDirectory(prefix="jitney_c_loops") as folder:  # a library that is loaded needs no file
        source, shared = Path(folder, "kernels.c"), Path(folder, "kernels.so")
        source.write_text(text, encoding="utf-8")
        command = [path, *FLAGS, f"-O{optimize}", "-include", str(PRELUDE), str(source), "-o", str(shared), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{path} does not compile a kernel: {done.stderr.strip()}")
        return ctypes.CDLL(str(shared))


def function(library: ctypes.CDLL, name: str) -> Callable[[bytes, bytes], None]:
    """``void name(const int64_t *pointers, const int64_t *sizes)`` as a function of packed integers."""
    kernel: Any = getattr(library, name)
    kernel.argtypes, kernel.restype = (ctypes.c_char_p, ctypes.c_char_p), None
    typed: Callable[[bytes, bytes], None] = kernel
    return typed
