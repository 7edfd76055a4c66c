"""One activation of a code object inside the interpreter."""

from __future__ import annotations

import contextlib
import enum
import types
from dataclasses import dataclass, field
from typing import Any

from jitney._util.ownership import trusted, trusted_file
from jitney.capture.interpreter.code import CodeInfo, Instr, decode


class After(enum.Enum):
    """What the caller does with a frame's return value."""

    PUSH = "push it"
    DISCARD = "drop it"
    INSTANCE = "drop it and push the instance that __init__ was called on"


class ExcInfo:
    """Stack marker of an exception being handled, and of the one that was being handled before it."""

    __slots__ = ("current", "previous")

    def __init__(self, current: BaseException | None, previous: BaseException | None) -> None:
        self.current = current
        self.previous = previous


class Null:
    """Stack marker for CPython's NULL."""

    def __repr__(self) -> str:
        return "NULL"


NULL = Null()


@dataclass(slots=True, eq=False)
class Frame:
    """Locals, cells and stack of one call. ``saved`` is the stack as it was before the instruction at ``at``.

    ``variables``: the dictionary that ``locals()`` has given.
    """

    info: CodeInfo
    globals: dict[str, Any]
    locals: dict[str, Any]
    cells: dict[str, types.CellType]
    func: types.FunctionType | None = None
    stack: list[Any] = field(default_factory=list)
    ip: int = 0
    at: int = 0
    step: int = 0
    saved: list[Any] = field(default_factory=list)
    kwnames: tuple[str, ...] = ()
    after: After = After.PUSH
    instance: Any = None
    namespace: Any = None
    variables: Any = None
    generator: Any = None
    instrs: list[Instr] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.instrs = self.info.instrs

    @property
    def name(self) -> str:
        """The name of the code, for messages."""
        return self.info.code.co_name

    def pop_many(self, count: int) -> list[Any]:
        """The topmost ``count`` values, deepest first."""
        if not count:
            return []
        values = self.stack[-count:]
        del self.stack[-count:]
        return values


def make_frame(func: types.FunctionType, local_values: dict[str, Any]) -> Frame:
    """A frame at the start of a function; arguments that closures share move into cells by ``MAKE_CELL``."""
    info = decode(func.__code__)
    return Frame(info, func.__globals__, local_values, {}, func)


# Of the standard library's managers those that suppress exceptions, or do what the program has told them.
_OF_PROGRAMS = (contextlib.suppress, contextlib.ExitStack)


def may_handle(frame: Frame) -> bool:
    """Is the frame, one of the program's, at a place where what is raised comes to something of the program's?"""
    if trusted_file(frame.info.code.co_filename):
        return False
    return any(not of_with or not _hands_on(frame, at) for of_with, at in frame.info.blocks(frame.at))


def _hands_on(frame: Frame, at: int) -> bool:
    """Does a ``with`` block's manager hand on what is raised, and write to nothing of the program's?"""
    leave: Any = frame.stack[at] if at < len(frame.stack) else None
    manager: Any = leave.__self__ if type(leave) in (types.MethodType, types.BuiltinMethodType) else None
    kind = type(manager)
    if kind is contextlib._GeneratorContextManager:
        function = vars(manager).get("func")
        return type(function) is types.FunctionType and trusted_file(function.__code__.co_filename)
    return manager is not None and trusted(kind) and not issubclass(kind, _OF_PROGRAMS)
