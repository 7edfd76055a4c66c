"""Code made of the user's, in the words in which another process makes it again: what it is made of, as JSON.

Nothing of the made code is kept. Its recipe leads to the user's own code, which is found in the process that reads it
and compared with what it was; step functions, generators and the rests of frames are then assembled of that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from jitney.cache.digest import digest, of_code
from jitney.cache.recipes import Reader, Recipe, Stale, Writer
from jitney.capture.interpreter.code import decode
from jitney.capture.interpreter.resume import (
    Exit,
    Layout,
    exits,
    generator_code,
    pops,
    resume_code,
    step_code,
)
from jitney.capture.interpreter.signals import GiveUp
from jitney.capture.interpreter.target import Target
from jitney.capture.interpreter.tracebacks import stand_in
from jitney.errors import CaptureError


@dataclass(frozen=True, slots=True)
class Made:
    """How a code object was made.

    Args:
        kind: of ``MAKERS``.
        code: the user's code.
        facts: the further arguments of what made it.
    """

    kind: str
    code: CodeType
    facts: tuple[Any, ...]

    def recipe(self, writer: Writer) -> Recipe:
        """For another process. Raises ``NotStorable`` where nothing leads to the user's code."""
        return [self.kind, writer.ref(self.code), of_code(self.code), plain(self.facts)]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a frame goes on: before which instruction of the user's code, in what shape, over which globals."""

    code: CodeType
    index: int
    layout: Layout
    namespace: dict[str, Any]

    def target(self) -> Target:
        """The rest of the frame, as something to capture."""
        rest = resume_code(self.code, self.index, self.layout)
        return Target(rest, self.namespace, None)

    def label(self) -> str:
        """A name that is the same in every process in which the code is."""
        name = str(self.namespace.get("__name__"))
        return digest(of_code(self.code), self.index, plain(self.layout), name)

    @property
    def line(self) -> int:
        """The user's line."""
        return decode(self.code).instrs[self.index].line

    def recipe(self, writer: Writer) -> Recipe:
        """For another process; its reader needs a maker for ``point``. Raises ``NotStorable``, as ``Made`` does."""
        facts = [self.index, plain(self.layout)]
        return ["point", writer.ref(self.code), of_code(self.code), facts, writer.ref(self.namespace)]


def plain(value: Any) -> Any:
    """Layouts, exits, tuples of such and what they hold, as JSON has it."""
    if isinstance(value, Layout):
        return [list(value.cells), list(value.locals), list(value.stack)]
    if isinstance(value, Exit):
        return [value.index, list(value.stack), value.jumped]
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def _layout(found: Any) -> Layout:
    cells, names, stack = found
    return Layout(tuple(cells), tuple(names), tuple(stack))


def _step(code: CodeType, index: int, layout: Any, leave: Any, how: str, kwnames: Any) -> CodeType:
    before = _checked(code, index, layout)
    if how not in HOWS or (how == "native" and len(before.stack) < pops(decode(code).instrs[index])[0]):
        raise Stale(f"no instruction is run so: {how!s:.80}")
    leads = exits(decode(code).instrs[index], before.stack)
    found = []
    for (to, stack, jumped), there, point in leave:
        way = Exit(to, tuple(stack), jumped)
        if way not in leads if how == "native" else jumped is not False:
            raise Stale(f"an instruction does not lead to instruction {to!s:.80}")
        found.append((way, _checked(code, to, there), point))
    return step_code(code, index, before, tuple(found), how, tuple(kwnames))


def _generator(code: CodeType, index: int, layout: Any, waiting: bool) -> CodeType:
    return generator_code(code, index, _checked(code, index, layout, waiting), waiting)


def _stand_in(code: CodeType, offset: int) -> CodeType:
    if offset not in {instr.offset for instr in decode(code).instrs}:
        raise Stale(f"no instruction is at {offset!s:.80}")
    return stand_in(code, offset)


def _checked(code: CodeType, index: int, found: Any, waiting: bool = False) -> Layout:
    layout = _layout(found)
    layout.verify(code, index, waiting)
    return layout


HOWS = {"native", "push", "drop", "instance"}  # see ``step_code``
MAKERS: dict[str, Callable[..., CodeType]] = {"step": _step, "generator": _generator, "stand_in": _stand_in}


def made_again(kind: str, reader: Reader, code: int, expected: str, facts: Any) -> CodeType:
    """The code of a recipe by ``Made``.

    Raises:
        Stale: the user's code is another one here, or no such thing can be made of it.
    """
    own = _own(reader, code, expected)
    try:
        return MAKERS[kind](own, *facts)
    except (CaptureError, GiveUp) as error:
        raise Stale(str(error)) from None


def place_again(reader: Reader, code: int, expected: str, facts: Any, namespace: int) -> Place:
    """The place of a recipe by ``Place``; raises ``Stale``, as ``made_again`` does."""
    own = _own(reader, code, expected)
    index, layout = facts
    try:
        return Place(own, index, _checked(own, index, layout), reader.make(namespace))
    except CaptureError as error:
        raise Stale(str(error)) from None


def _own(reader: Reader, code: int, expected: str) -> CodeType:
    own = reader.make(code)
    if not isinstance(own, CodeType) or of_code(own) != expected:
        raise Stale(f"{getattr(own, 'co_qualname', own)!s:.80} is not what it was")
    return own
