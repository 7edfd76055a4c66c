"""One activation of a code object inside the interpreter."""

from __future__ import annotations

import enum
import types
from dataclasses import dataclass, field
from typing import Any

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
    """Locals, cells and stack of one call. ``saved`` is the stack as it was before the instruction at ``at``."""

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
