"""Calls of torch's own functions from an entry: tensors are described on the stack (see ``shims.py``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jitney_llvm_cpu.emit.builder import I32, I64, PTR, Function, Reg, literal, number, typed
from jitney_llvm_cpu.emit.scope import Scope, no_value
from jitney_lowering.index import Index, Size

_BLOB = 40  # bytes of { ptr data, i64 rank, ptr sizes, ptr strides, i32 dtype }


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


class CallWriter:
    """Writes the calls of one entry.

    Args:
        f: the entry; it returns an i32.
        scope: of the entry.
        calls: all that will be written, for the room that they need on the stack.
    """

    def __init__(self, f: Function, scope: Scope, calls: Sequence[Call]) -> None:
        self.f = f
        self.scope = scope
        self.failed = f.fresh_label("failed")
        if calls:
            count = max(len(call.arguments) for call in calls)
            dims = max(sum(2 * len(a.size) for a in call.arguments) for call in calls)
            self.blobs = f.value(PTR, f"alloca [{count * _BLOB} x i8], align 8")
            self.dims = f.value(PTR, f"alloca i64, i64 {max(dims, 1)}, align 8")

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
        code = f.invoke(f"jitney_{call.name}", I32, [self.blobs, *numbers])
        following = f.fresh_label("next")
        f.branch_if(f.compare("icmp eq", code, literal(0, I32)), following, self.failed)
        f.place(following)

    def finish(self, used: bool) -> None:
        """The end of the entry."""
        self.f.line("ret i32 0")
        if used:
            self.f.place(self.failed)
            self.f.line("ret i32 1")

    def _number(self, x: Index) -> Reg:
        made = self.scope.number(x, no_value)
        assert made.type is I64
        return made
