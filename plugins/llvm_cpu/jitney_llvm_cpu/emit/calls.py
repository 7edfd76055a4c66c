"""Calls of torch's own functions from an entry.

A ``Call`` is given memory for its result, its tensors are described on the stack (see ``shims.py``). A ``Make`` is
not: its result is a handle, which the entry gives back when nobody reads it any more, or hands over (``makers.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jitney_llvm_cpu.emit.builder import I32, I64, PTR, Function, Reg, literal, number, typed
from jitney_llvm_cpu.emit.scope import Scope, no_value
from jitney_llvm_cpu.makers import ABSENT
from jitney_lowering.index import Index, Size, index

_BLOB = 40  # bytes of { ptr data, i64 rank, ptr sizes, ptr strides, i32 dtype }
_MADE = 2  # pointers of { ptr handle, ptr data }
_NULL = Reg("null", PTR)
_FUNCTIONS = {"jitney_delete": ("void", ("ptr", "i64", "i64"))}


@dataclass(frozen=True)
class Argument:
    """A tensor: a strided view of a buffer, ``offset`` bytes into it; ``dtype`` is torch's number of it."""

    buffer: str
    offset: Index
    size: tuple[Index, ...]
    stride: tuple[Index, ...]
    dtype: int


@dataclass(frozen=True)
class Call:
    """A call of ``i32 @jitney_<name>(ptr blobs, double...)``.

    Args:
        name: which.
        arguments: the result first.
        numbers: the doubles.
    """

    name: str
    arguments: tuple[Argument, ...]
    numbers: tuple[float, ...] = ()

    @property
    def buffers(self) -> frozenset[str]:
        """What it reads and writes."""
        return frozenset(argument.buffer for argument in self.arguments)

    @property
    def sizes(self) -> frozenset[Size]:
        """The symbolic sizes that appear anywhere."""
        parts = [i for a in self.arguments for i in (a.offset, *a.size, *a.stride)]
        return frozenset(atom for i in parts for atom in i.atoms if isinstance(atom, Size))


@dataclass(frozen=True)
class Make:
    """A call of ``i32 @<function>(i64 threads, ptr data, ptr desc, ptr made)``; see ``makers.ir``.

    Args:
        function: the symbol.
        arguments: tensors; None for those that are absent.
        numbers: the other arguments, in order: integers and lists of them.
        result: the buffer that it makes, with the strides and dtype that this must have.
        state: the name under which the entry has a pointer that the function is given before all else.
    """

    function: str
    arguments: tuple[Argument | None, ...]
    numbers: tuple[tuple[Index, ...] | Index, ...]
    result: Argument
    state: str = ""

    @property
    def buffers(self) -> frozenset[str]:
        """What it reads and makes."""
        return frozenset(argument.buffer for argument in (*self.arguments, self.result) if argument is not None)

    @property
    def sizes(self) -> frozenset[Size]:
        """The symbolic sizes that appear anywhere."""
        offsets = [argument.offset for argument in self.arguments if argument is not None]
        return frozenset(atom for i in (*self.table, *offsets) for atom in i.atoms if isinstance(atom, Size))

    @property
    def table(self) -> list[Index]:
        """What ``desc`` points to."""
        made: list[Index] = []
        for value in self.numbers:
            made += [index(len(value)), *value] if isinstance(value, tuple) else [value]
        for a in self.arguments:
            made += [index(ABSENT), index(0)] if a is None else [index(a.dtype), index(len(a.size)), *a.size, *a.stride]
        return [*made, index(self.result.dtype), index(len(self.result.stride)), *self.result.stride]


class CallWriter:
    """Writes the calls of one entry.

    Args:
        f: the entry; it returns an i32.
        scope: of the entry.
        calls: all that will be written, for the room that they need on the stack.
        made: how many results the entry makes.
    """

    def __init__(self, f: Function, scope: Scope, calls: Sequence[Call | Make], made: int) -> None:
        self.f = f
        self.scope = scope
        self.failed = f.fresh_label("failed")
        self.count = made
        given = [call for call in calls if isinstance(call, Call)]
        if given:
            count = max(len(call.arguments) for call in given)
            dims = max(sum(2 * len(a.size) for a in call.arguments) for call in given)
            self.blobs = f.value(PTR, f"alloca [{count * _BLOB} x i8], align 8")
            self.dims = f.value(PTR, f"alloca i64, i64 {max(dims, 1)}, align 8")
        makes = [call for call in calls if isinstance(call, Make)]
        if makes:
            for name, text in _FUNCTIONS.items():
                f.declare(name, *text)
            tables = [call.table for call in makes]
            room = max((len(table) for table in tables if not _known(table)), default=1)
            self.data = f.value(PTR, f"alloca ptr, i64 {max(len(call.arguments) for call in makes)}, align 8")
            self.table = f.value(PTR, f"alloca i64, i64 {room}, align 8")
            self.made = f.value(PTR, f"alloca ptr, i64 {_MADE * made}, align 8")
            for number_ in range(made):
                f.store(_NULL, self.handle(number_), 8)

    def handle(self, made: int) -> Reg:
        """The address of a result's handle."""
        return self.f.element("ptr", self.made, number(_MADE * made))

    def memory(self, made: int) -> Reg:
        """The address of a result's elements."""
        return self.f.load(PTR, self.f.element("ptr", self.made, number(_MADE * made + 1)), 8)

    def make(self, call: Make, result: int, pointer: Callable[[str], Reg], threads: Reg) -> None:
        """A call that makes the result of this number; the entry ends with 1 if it fails."""
        f = self.f
        for k, argument in enumerate(call.arguments):
            data = _NULL
            if argument is not None:
                data = f.element("i8", pointer(argument.buffer), self._number(argument.offset))
            f.store(data, f.element("ptr", self.data, number(k)), 8)
        table = call.table
        if _known(table):
            where = f.module.constant([value.value or 0 for value in table])
        else:
            where = self.table
            for at, value in enumerate(table):
                f.store(self._number(value), f.element("i64", where, number(at)), 8)
        parts = [*([pointer(call.state)] if call.state else []), threads, self.data, where, self.handle(result)]
        f.declare(call.function, "i32", [part.type.text for part in parts])
        self._succeed(f.invoke(call.function, I32, parts))

    def drop(self, made: int) -> None:
        """Nobody reads this result any more."""
        self.f.run("jitney_delete", self.handle(made), number(1), number(_MADE))

    def hand_over(self, made: int, place: Reg) -> None:
        """The handle of this result is somebody else's from now on."""
        self.f.store(self.f.load(PTR, self.handle(made), 8), place, 8)

    def write(self, call: Call, pointer: Callable[[str], Reg]) -> None:
        """One call; the entry ends with 1 if it fails."""
        f = self.f
        dims = 0
        for k, argument in enumerate(call.arguments):
            data = f.element("i8", pointer(argument.buffer), self._number(argument.offset))
            rank = len(argument.size)
            sizes, strides = (f.element("i64", self.dims, number(dims + part)) for part in (0, rank))
            for at, value in enumerate((*argument.size, *argument.stride)):
                f.store(self._number(value), f.element("i64", self.dims, number(dims + at)), 8)
            dims += 2 * rank
            fields = (data, number(rank), sizes, strides, literal(argument.dtype, I32))
            for at, field in enumerate(fields):
                f.store(field, f.element("i8", self.blobs, number(k * _BLOB + 8 * at)), 8)
        numbers = [literal(n, typed("double")) for n in call.numbers]
        self._succeed(f.invoke(f"jitney_{call.name}", I32, [self.blobs, *numbers]))

    def _succeed(self, code: Reg) -> None:
        f = self.f
        following = f.fresh_label("next")
        f.branch_if(f.compare("icmp eq", code, literal(0, I32)), following, self.failed)
        f.place(following)

    def finish(self, used: bool) -> None:
        """The end of the entry."""
        self.f.line("ret i32 0")
        if used:
            self.f.place(self.failed)
            if self.count:
                self.f.run("jitney_delete", self.made, number(self.count), number(_MADE))
            self.f.line("ret i32 1")

    def _number(self, x: Index) -> Reg:
        made = self.scope.number(x, no_value)
        assert made.type is I64
        return made


def _known(table: Sequence[Index]) -> bool:
    return all(value.value is not None for value in table)
