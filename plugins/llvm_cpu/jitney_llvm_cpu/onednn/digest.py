"""64 bits that depend on every byte of a tensor's memory: who keeps what was made of it asks at each call.

Versions do not say whether a tensor was written to: writes through ``.data``, NumPy or other views of the memory do not
count. So all of it is read, in blocks of 32 KiB that threads share (see ``digest_code.py``).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

from jitney_llvm_cpu.machine import engine, machine
from jitney_llvm_cpu.onednn.digest_code import aes_bytes, text


@functools.cache
def digest_function(vector_bytes: int = 0, aes: bool = True) -> Callable[[int, int, int], int]:
    """``digest(address, bytes, threads)`` on this machine; other threads run meanwhile.

    Args:
        vector_bytes: see ``Target``.
        aes: are rounds of AES used, where the processor has them?
    """
    own = machine(vector_bytes)
    library = engine(vector_bytes, True, "").compile(text(own.parallel, aes_bytes(own.target) if aes else 0))
    arguments = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return library.function("jitney_digest", *arguments, result=ctypes.c_int64)
