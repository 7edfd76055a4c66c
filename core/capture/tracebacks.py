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


# Its own getter and setter: a class of the program's may have special methods for attributes.
TRACEBACK: Any = vars(BaseException)["__traceback__"]


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
    made = TRACEBACK.__get__(error)
    if made is not None and not never_ran(made.tb_frame):
        found, made = _programs(made), None
        for entry in reversed(found):
            made = before(made, entry)
    code = frame.info.code
    if not is_ours(code.co_filename):
        made = before(made, _entry(code, frame.instrs[frame.at].offset, frame.globals))
    TRACEBACK.__set__(error, made)


def before_it_ran(error: BaseException, frame: Frame) -> None:
    """The exception is thrown into a generator that has not started: CPython notes its first line."""
    code = frame.info.code
    entry = _entry(code, 0, frame.globals)
    TRACEBACK.__set__(error, before(TRACEBACK.__get__(error), entry))


def before(rest: types.TracebackType | None, entry: tuple[Any, ...]) -> types.TracebackType:
    """A traceback with one more frame, the values of an ``Entry``, outside of the others."""
    return types.TracebackType(rest, frame_for(entry), 0, Entry(*entry).line or Entry(*entry).first_line)


def never_ran(frame: types.FrameType) -> bool:
    """Is it a frame of ours, which has no locals?"""
    return _is_stand_in(frame.f_code)


def _is_stand_in(code: types.CodeType) -> bool:
    return bool(code.co_consts) and type(code.co_consts[0]) is Entry


def entry_of(frame: types.FrameType) -> Entry:
    """What a stand-in was made of."""
    entry: Entry = frame.f_code.co_consts[0]
    return entry


KEPT = {
    types.FrameType: ("f_code", "__class__"),
    types.TracebackType: ("tb_frame", "tb_lineno", "tb_next", "__class__"),
    types.CodeType: ("co_filename", "co_name", "co_qualname", "co_firstlineno", "__class__"),
}


def refuse_read(value: types.TracebackType | types.FrameType | types.CodeType, name: str) -> None:
    """Give up where the program reads of a stand-in, or of its code, what is not the program's: locals, caller..."""
    frame = value.tb_frame if isinstance(value, types.TracebackType) else value
    code = frame if isinstance(frame, types.CodeType) else frame.f_code
    if _is_stand_in(code) and name not in KEPT[type(value)]:
        raise GiveUp(f"{name} of a frame in a traceback is read", "read it outside compiled code")


def refuse_comparison(*values: Any) -> None:
    """Give up where frames or their code are compared, and one is a stand-in: which frame it stands for is not kept."""
    kinds = {type(value) for value in values}
    if kinds in ({types.FrameType}, {types.CodeType}) and any(
        _is_stand_in(value if isinstance(value, types.CodeType) else value.f_code) for value in values
    ):
        raise GiveUp("a frame in a traceback is compared", "compare names and lines, or outside compiled code")


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


def frame_for(values: tuple[Any, ...]) -> types.FrameType:
    """The frame of a generator that is not started. Not kept, since it holds the globals of the program's module."""
    entry = Entry(*values)
    module = sys.modules.get(entry.module or "")
    names = {"__name__": entry.module} if module is None else vars(module)
    generator = types.FunctionType(_code_for(entry), names)()
    frame: types.FrameType = generator.gi_frame
    return frame


@functools.lru_cache(maxsize=1024)
def _code_for(entry: Entry) -> types.CodeType:
    """The code of a generator whose first instruction is where the entry's was."""
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
    return made.to_code()
