"""Is there room on Python's stack to capture and compile?

Capture takes many more calls than the program that it captures. Where the program is close to its recursion limit (or
has lowered it) a frame runs as it is, so that its own ``try`` sees the ``RecursionError`` that is due there.
"""

from __future__ import annotations

import sys

NEEDED = 300  # calls, one in another: capture, stand-ins, symbolic arithmetic, a backend


def shortage() -> str:
    """Why nothing is compiled here: fewer calls are left to the recursion limit than it takes; empty if it may be."""
    spare = sys.getrecursionlimit() - NEEDED
    frame = sys._getframe()
    while spare > 0:
        if frame.f_back is None:
            return ""
        frame = frame.f_back
        spare -= 1
    return f"fewer than {NEEDED} calls are left to Python's recursion limit"
