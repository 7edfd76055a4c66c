"""May native code call oneDNN's product of matrices, and is it faster than torch's? Timed once; see ``linear.py``."""

from __future__ import annotations

import ctypes
import functools
import math
from time import perf_counter
from typing import Any

import torch

from jitney.backends import reentrant_lock
from jitney_llvm_cpu import makers, symbols
from jitney_llvm_cpu.engine import Engine, Library
from jitney_llvm_cpu.makers import Description
from jitney_llvm_cpu.shims import kept

_ROUNDS = 7
_GAIN = 0.96  # of MKL's time, at most
_TIMED = ((192, 256, 1024), (96, 1024, 512))  # rows, and what a row becomes of what

_TEXT = """
define i32 @jitney_linear(i64 %threads, ptr %data, ptr %desc, ptr %made) {
  %code = call i32 @jitney_make_linear(ptr %data, ptr %desc, ptr %made)
  ret i32 %code
}
"""

_libraries: list[Library | None] = []  # one for the process, never unmapped: code of others is linked to it
_lock = reentrant_lock()


def available(own: Engine) -> frozenset[str]:
    """``linear``, if native code may call oneDNN's product; then it can be linked to."""
    with _lock:
        if not _libraries:
            _libraries.append(_link(own))
        return frozenset({"linear"} if _libraries[0] is not None else ())


def _link(own: Engine) -> Library | None:
    usable = torch.backends.mkldnn.is_available() and "linear" in makers.makers(own).names
    if not usable:
        return None
    library = own.compile(makers.ir(frozenset({"linear"})) + _TEXT)
    symbols.register("jitney_linear", library.address("jitney_linear"))
    return library


@functools.cache
def is_faster(own: Engine, threads: int) -> bool:
    """Does oneDNN multiply large matrices in less time than torch's own operator, in so many threads?"""
    with _lock:
        library = _libraries[0] if _libraries else None
    if library is None:
        return False

    def verdict() -> tuple[str, bool]:
        return ("" if all(_ratio(library, *size) < _GAIN for size in _TIMED) else "slower"), True

    return not kept(own, _TEXT, f"time of products in {threads} threads", verdict)


def _ratio(library: Library, rows: int, inner: int, columns: int) -> float:
    """The least time of oneDNN's product, as a part of that of torch's."""
    x, weight = torch.ones(rows, inner), torch.ones(columns, inner)
    result, t = torch.empty(rows, columns), weight.t()
    call = Description((x, weight, None), (), [(result.stride(), x.dtype)])
    function = library.function("jitney_make_linear", *[ctypes.c_void_p] * 3, result=ctypes.c_int32)
    delete = library.function("jitney_delete", ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

    def others() -> None:
        function(call.data, call.desc, call.made)
        delete(call.made, 1, 1)

    times: dict[Any, float] = {others: math.inf, lambda: torch.mm(x, t, out=result): math.inf}
    with torch.no_grad():
        for _ in range(_ROUNDS):
            for way in times:
                begin = perf_counter()
                way()
                times[way] = min(times[way], perf_counter() - begin)
    ours, torchs = times.values()
    return ours / torchs
