"""A failing program with fewer lines: what is left out is whatever does not matter."""

from __future__ import annotations

import time
from collections.abc import Callable

from jitney_testing.program import Program


def smaller(program: Program, fails: Callable[[Program], bool], seconds: float = 10.0) -> Program:
    """The program with as few lines as were found in time, still failing.

    Runs of lines are left out, long ones first (delta debugging, Zeller 1999).

    Args:
        program: fails.
        fails: does a program fail in the same way?
        seconds: after which no further try begins.
    """
    begin = time.monotonic()
    lines = program.source.splitlines()
    size = max(len(lines) // 2, 1)
    while size:
        at, found = len(lines) - size, False
        while at >= 0:
            if time.monotonic() - begin > seconds:
                return _made(lines)
            tried = lines[:at] + lines[at + size :]
            if _is_python(tried) and fails(_made(tried)):
                lines, found = tried, True
            at -= size
        size = size if found and size == 1 else size // 2
    return _made(lines)


def _made(lines: list[str]) -> Program:
    return Program("\n".join(lines) + "\n")


def _is_python(lines: list[str]) -> bool:
    try:
        compile("\n".join(lines), "<smaller>", "exec")
    except SyntaxError:
        return False
    return True
