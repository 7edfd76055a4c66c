"""How long the cache is to keep what a kernel loads: hints to the GPU, which change no result.

Measured on an H200: sines and cosines that all heads are turned by stay in the cache while the heads go through it
(78 us for 89), and a sum of columns that leaves what else is in the cache alone takes 42.7 us for 46.0. What is read
once beside much that is written is better left to the cache (Adam: 441 us, with a hint 460).
"""

from __future__ import annotations

from collections.abc import Sequence

from jitney_lowering.index import Opaque, Var
from jitney_lowering.ir import Kernel, Load, walk
from jitney_triton_gpu import tiles

AGAIN, ONCE = "evict_last", "evict_first"


def policies(kernel: Kernel, *, streams: bool = False) -> dict[Load, str]:
    """Loads that have a hint.

    Args:
        kernel: whose.
        streams: does it write next to nothing?
    """
    found: dict[Load, str] = {}
    for nest in (*kernel.body, *kernel.finish):
        loops = (*kernel.outer, *nest.loops) if nest in kernel.body else nest.loops
        for s in nest.statements:
            for v in walk(s.value):
                if isinstance(v, Load) and v not in found:
                    hint = _policy(v, loops, streams)
                    if hint:
                        found[v] = hint
    return found


def _policy(v: Load, loops: Sequence[Var], streams: bool) -> str:
    extent = _bytes(v, loops)
    if extent is None:
        return ""
    if _is_read_again(v, loops):
        return AGAIN if extent <= tiles.CACHE else ""
    return ONCE if streams and extent > tiles.CACHE else ""


def _bytes(v: Load, loops: Sequence[Var]) -> int | None:
    """How much is loaded by all iterations, each element once; None if nobody knows."""
    extent = v.dtype.itemsize
    for atom in v.index.atoms:
        if isinstance(atom, Opaque):
            return None
    for loop in loops:
        if loop in v.index.atoms:
            if loop.size.value is None:
                return None
            extent *= loop.size.value
    return extent


def _is_read_again(v: Load, loops: Sequence[Var]) -> bool:
    """Is some of it loaded anew by each iteration of a loop further out?"""
    own = [n for n, loop in enumerate(loops) if loop in v.index.atoms]
    return any(loop.size.value != 1 for loop in loops[: max(own, default=0)] if loop not in v.index.atoms)
