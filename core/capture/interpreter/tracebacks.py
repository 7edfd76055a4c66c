"""Tracebacks of what captured code raises: they name the program's frames, though none of these has run.

Python makes a traceback of frames, and frames of running code. So each entry gets a frame of code that looks like the
program's (file, function, line, columns) and was never started. Such a frame has no locals and no caller.
"""

from __future__ import annotations

import itertools
import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import bytecode
from bytecode.instr import InstrLocation

from jitney._util.callers import is_ours, is_users
from jitney._util.code_cache import cached_by_code
from jitney.capture.interpreter.signals import GiveUp

if TYPE_CHECKING:
    from jitney.guards.assumptions import Assumptions


# Its own getter and setter: a class of the program's may have special methods for attributes.
TRACEBACK: Any = vars(BaseException)["__traceback__"]


class Entry(NamedTuple):
    """One frame of a traceback: the program's own code, and the offset of the instruction at which it was."""

    code: types.CodeType
    offset: int


def passes(error: BaseException, code: types.CodeType, offset: int, names: dict[str, Any]) -> None:
    """The exception has come to a frame of this code, from where it was raised or from a callee: CPython notes it.

    Args:
        error: gets one more entry.
        code: the program's own.
        offset: of the instruction that the frame is at.
        names: the frame's globals.
    """
    made = TRACEBACK.__get__(error)
    if made is not None and not never_ran(made.tb_frame):
        found, made = _programs(made), None
        for entry in reversed(found):
            made = _with(made, *entry)
    TRACEBACK.__set__(error, made if is_ours(code.co_filename) else _with(made, code, offset, names))


def _with(rest: types.TracebackType | None, code: types.CodeType, offset: int, names: Any) -> types.TracebackType:
    return before(rest, stand_in(code, offset), _module(names))


def _module(names: dict[str, Any]) -> str | None:
    module = names.get("__name__")
    return module if type(module) is str else None


def before(rest: types.TracebackType | None, made: types.CodeType, module: str | None) -> types.TracebackType:
    """A traceback with one more frame, of this ``stand_in``, outside of the others."""
    line = next(iter(made.co_positions()))[0] or made.co_firstlineno
    return types.TracebackType(rest, frame_for(made, module), 0, line)


def let_go(error: BaseException) -> None:
    """Take the frames of capture itself out of a traceback: they hold what the program drops."""
    made = TRACEBACK.__get__(error)
    while made is not None and not never_ran(made.tb_frame):
        made = made.tb_next
    TRACEBACK.__set__(error, made)


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
PLACES = ("tb_lineno", "co_filename", "co_firstlineno")  # which change where a file is edited elsewhere


def refuse_read(
    value: types.TracebackType | types.FrameType | types.CodeType, name: str, assumptions: Assumptions
) -> None:
    """Give up where the program reads of a stand-in, or of its code, what is not the program's: locals, caller..."""
    frame = value.tb_frame if isinstance(value, types.TracebackType) else value
    code = frame if isinstance(frame, types.CodeType) else frame.f_code
    if not _is_stand_in(code):
        return
    if name not in KEPT[type(value)]:
        raise GiveUp(f"{name} of a frame in a traceback is read", "read it outside compiled code", plainly=True)
    if name in PLACES:
        assumptions.keep_private("the place of code is read from a traceback")


def refuse_comparison(*values: Any) -> None:
    """Give up where frames or their code are compared, and one is a stand-in: which frame it stands for is not kept."""
    kinds = {type(value) for value in values}
    if kinds in ({types.FrameType}, {types.CodeType}) and any(
        _is_stand_in(value if isinstance(value, types.CodeType) else value.f_code) for value in values
    ):
        hint = "compare names and lines, or outside compiled code"
        raise GiveUp("a frame in a traceback is compared", hint, plainly=True)


def _programs(traceback: types.TracebackType | None) -> list[tuple[types.CodeType, int, dict[str, Any]]]:
    """The program's part, outermost first: without the interpreter, and what torch does inside an operation."""
    found: list[tuple[types.CodeType, int, dict[str, Any]]] = []
    in_operation = False
    while traceback is not None:
        frame = traceback.tb_frame
        if never_ran(frame):
            found.append((*entry_of(frame), frame.f_globals))
        elif is_ours(frame.f_code.co_filename):
            in_operation = False
        elif in_operation or not is_users(frame.f_code.co_filename):
            in_operation = True
        else:  # called as it is, such as a function that gives constants
            found.append((frame.f_code, traceback.tb_lasti, frame.f_globals))
        traceback = traceback.tb_next
    return found


def frame_for(made: types.CodeType, module: str | None) -> types.FrameType:
    """The frame of a generator that is not started. Not kept, since it holds the globals of the program's module."""
    found = sys.modules.get(module or "")
    names = {"__name__": module} if found is None else vars(found)
    generator = types.FunctionType(made, names)()
    frame: types.FrameType = generator.gi_frame
    return frame


@cached_by_code(maxsize=1024)
def stand_in(code: types.CodeType, offset: int) -> types.CodeType:
    """A generator's code whose first instruction is where the one at ``offset`` of the program's code is."""
    constant: Any = Entry(code, offset)  # an Instr takes any constant that code may have
    line, *rest = next(itertools.islice(code.co_positions(), offset // 2, None))
    try:
        place = InstrLocation(line, *rest)
    except ValueError:  # code that was not written by Python's compiler may say anything
        place = InstrLocation(line or code.co_firstlineno, None, None, None)
    made = bytecode.Bytecode(
        [
            bytecode.Instr("RETURN_GENERATOR", location=place),
            bytecode.Instr("POP_TOP"),
            bytecode.Instr("LOAD_CONST", constant),
            bytecode.Instr("RETURN_VALUE"),
        ]
    )
    made.name, made.qualname, made.filename = code.co_name, code.co_qualname, code.co_filename
    made.first_lineno = code.co_firstlineno
    made.flags = bytecode.CompilerFlags.GENERATOR | bytecode.CompilerFlags.OPTIMIZED | bytecode.CompilerFlags.NEWLOCALS
    return made.to_code()
