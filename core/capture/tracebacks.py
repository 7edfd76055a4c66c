"""Tracebacks of what captured code raises: they name the program's frames, though none of these has run.

Python makes a traceback of frames, and frames of running code. So each entry gets a frame of code that looks like the
program's (file, function, line, columns) and was never started. Such a frame has no locals and no caller.
"""

from __future__ import annotations

import functools
import itertools
import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import bytecode
from bytecode.instr import InstrLocation

from jitney.callers import is_ours, is_users
from jitney.capture.signals import GiveUp

if TYPE_CHECKING:
    from jitney.capture.frame import Frame


class Entry(NamedTuple):
    """One frame of a traceback, in values that can be written into code and kept on disk."""

    file: str
    module: str | None
    name: str
    qualname: str
    first_line: int
    line: int | None
    end_line: int | None
    column: int | None
    end_column: int | None


def passes(error: BaseException, frame: Frame) -> None:
    """The exception has come to this frame, from where it was raised or from a callee: as CPython notes it."""
    made = error.__traceback__
    if made is not None and not never_ran(made.tb_frame):
        found, made = _programs(made), None
        for entry in reversed(found):
            made = before(made, entry)
    code = frame.info.code
    if not is_ours(code.co_filename):
        made = before(made, _entry(code, frame.instrs[frame.at].offset, frame.globals))
    error.__traceback__ = made


def before(rest: types.TracebackType | None, entry: tuple[Any, ...]) -> types.TracebackType:
    """A traceback with one more frame, the values of an ``Entry``, outside of the others."""
    return types.TracebackType(rest, frame_for(entry), 0, Entry(*entry).line or Entry(*entry).first_line)


def never_ran(frame: types.FrameType) -> bool:
    """Is it a frame of ours, which has no locals?"""
    constants = frame.f_code.co_consts
    return bool(constants) and type(constants[0]) is Entry


def entry_of(frame: types.FrameType) -> Entry:
    """What a stand-in was made of."""
    entry: Entry = frame.f_code.co_consts[0]
    return entry


def refuse_locals(frame: types.FrameType, name: str) -> None:
    """Give up where the program reads of a stand-in what it does not have: locals, caller, last instruction."""
    if never_ran(frame) and name not in ("f_code", "f_globals", "f_builtins", "__class__"):
        raise GiveUp(f"{name} of a frame in a traceback is read", "read it outside compiled code")


def _programs(traceback: types.TracebackType | None) -> list[Entry]:
    """The program's part, outermost first: without the interpreter, and what torch does inside an operation."""
    found: list[Entry] = []
    in_operation = False
    while traceback is not None:
        frame = traceback.tb_frame
        if never_ran(frame):
            found.append(entry_of(frame))
        elif is_ours(frame.f_code.co_filename):
            in_operation = False
        elif in_operation or not is_users(frame.f_code.co_filename):
            in_operation = True
        else:  # called as it is, such as a function that gives constants
            found.append(_entry(frame.f_code, traceback.tb_lasti, frame.f_globals))
        traceback = traceback.tb_next
    return found


def _entry(code: types.CodeType, offset: int, names: dict[str, Any]) -> Entry:
    positions = next(itertools.islice(code.co_positions(), offset // 2, None))
    module = names.get("__name__")
    known = module if type(module) is str else None
    return Entry(code.co_filename, known, code.co_name, code.co_qualname, code.co_firstlineno, *positions)


@functools.lru_cache(maxsize=1024)
def frame_for(values: tuple[Any, ...]) -> types.FrameType:
    """The frame of a generator that is not started; its first instruction is where the entry's was."""
    entry = Entry(*values)
    constant: Any = entry  # an Instr takes any constant that code may have
    try:
        place = InstrLocation(entry.line, entry.end_line, entry.column, entry.end_column)
    except ValueError:  # code that was not written by Python's compiler may say anything
        place = InstrLocation(entry.line or entry.first_line, None, None, None)
    made = bytecode.Bytecode(
        [
            bytecode.Instr("RETURN_GENERATOR", location=place),
            bytecode.Instr("POP_TOP"),
            bytecode.Instr("LOAD_CONST", constant),
            bytecode.Instr("RETURN_VALUE"),
        ]
    )
    made.name, made.qualname, made.filename = entry.name, entry.qualname, entry.file
    made.first_lineno = entry.first_line
    made.flags = bytecode.CompilerFlags.GENERATOR | bytecode.CompilerFlags.OPTIMIZED | bytecode.CompilerFlags.NEWLOCALS
    module = sys.modules.get(entry.module or "")
    names = {"__name__": entry.module} if module is None else vars(module)
    generator = types.FunctionType(made.to_code(), names)()
    frame: types.FrameType = generator.gi_frame
    return frame
