"""An opcode's rows beside its handler: what of them this Python's ``dis`` can tell."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from typing import Any

import pytest

from jitney.capture.interpreter import code, resume
from jitney.capture.interpreter.opcodes import HANDLERS

CODE, RESUME = "core/capture/interpreter/code.py", "core/capture/interpreter/resume.py"
REAL = {name: number for name, number in dis.opmap.items() if number < 256}  # others never reach a code object
FAST = [name for name, number in REAL.items() if number in dis.haslocal]
# ``del`` of a variable that a closure shares is another opcode.
WITHOUT_PARTS = {"DELETE_FAST"}
# What begins an inlined comprehension: it cannot fail, and a frame's rest with a loop is worth compiling.
BEGINS_COMPREHENSION = {"LOAD_FAST_AND_CLEAR"}
# What it pushes besides, ``resume.exits`` adds.
WITH_NULL = {"LOAD_METHOD": 1}


def missing() -> Iterator[str]:
    """A line for each row that opcodes for fast locals lack."""
    for op in FAST:
        if op not in HANDLERS:
            yield f"{op} has no handler in core/capture/interpreter/opcodes/"
        if op not in code._USES:
            yield f"{op} has no row in _USES of {CODE}: which variables does it read and write?"
        if op not in WITHOUT_PARTS and len(resume.FAST_PARTS.get(op, ())) != op.count("_FAST"):
            yield f"{op} has no row in FAST_PARTS of {RESUME}: what does it come to where a cell is in the slot?"
        if op not in {*resume.QUIET, *resume.POPS, *BEGINS_COMPREHENSION}:
            yield f"{op} is neither in QUIET nor in POPS of {RESUME}: moves it values only, or may a break fall there?"


def test_opcodes_for_fast_locals_have_their_rows() -> None:
    assert FAST and [*missing()] == []


@pytest.mark.parametrize("table", ["_USES of code.py", "FAST_PARTS of resume.py", "POPS of resume.py"])
def test_a_row_that_is_missing_is_named(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _, file = table.split()
    tables: dict[str, Any] = {"_USES": code._USES, "FAST_PARTS": resume.FAST_PARTS, "POPS": resume.POPS}
    op = "DELETE_FAST" if name == "POPS" else "STORE_FAST"
    monkeypatch.delitem(tables[name], op)
    (line,) = missing()
    assert line.startswith(f"{op} ") and f"{name} of core/capture/interpreter/{file}" in line


def test_what_instructions_take_and_leave_is_what_dis_says() -> None:
    for op, (taken, left) in resume.POPS.items():
        if op in REAL:
            argument = 0 if REAL[op] >= dis.HAVE_ARGUMENT else None
            effect = dis.stack_effect(REAL[op], argument, jump=False) - WITH_NULL.get(op, 0)
            assert left - taken == effect, f"POPS of {RESUME} has ({taken}, {left}) for {op}, dis {effect:+}"
