"""Calls of torch's own functions, each distinct one a function of the module (see ``steps.py``).

A ``Call`` is given memory for its result, its tensors are described on the stack (see ``shims.py``). A ``Make`` is
not: its result is a handle, which the entry gives back when nobody reads it any more, or hands over (``makers.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jitney_llvm_cpu.emit.builder import I32, I64, PTR, Function, Reg, literal, number, typed
from jitney_llvm_cpu.emit.scope import Scope, no_value
from jitney_llvm_cpu.makers import ABSENT
from jitney_lowering.index import Index, Size, index

_BLOB = 40  # bytes of { ptr data, i64 rank, ptr sizes, ptr strides, i32 dtype }
_NULL = Reg("null", PTR)

# Nobody reads the result with the handle at table[0] any more.
DROP = """
declare void @jitney_delete(ptr, i64, i64)
define internal i32 @jitney.drop(ptr %table, ptr %sizes, i64 %threads) nounwind {
  %handle = load ptr, ptr %table, align 8
  call void @jitney_delete(ptr %handle, i64 1, i64 1)
  ret i32 0
}
"""
# The handle at table[0] is somebody else's from now on: it is stored where table[1] leads.
HAND_OVER = """
define internal i32 @jitney.hand_over(ptr %table, ptr %sizes, i64 %threads) nounwind {
  %handle.p = load ptr, ptr %table, align 8
  %room.p = getelementptr ptr, ptr %table, i64 1
  %room = load ptr, ptr %room.p, align 8
  %handle = load ptr, ptr %handle.p, align 8
  store ptr %handle, ptr %room, align 8
  ret i32 0
}
"""
DEFINED = {DROP: "jitney.drop", HAND_OVER: "jitney.hand_over"}


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


def tensors_of(call: Call | Make) -> list[Argument]:
    """The tensors whose addresses a call's function finds in its table, in order."""
    return [argument for argument in call.arguments if argument is not None]


def unnamed(call: Call | Make) -> Call | Make:
    """The call without names of buffers, and places in them: equal for calls that one function does."""
    arguments = tuple(None if a is None else replace(a, buffer="", offset=index(0)) for a in call.arguments)
    if isinstance(call, Make):
        result = replace(call.result, buffer="", offset=index(0))
        return replace(call, arguments=arguments, result=result, state="state" if call.state else "")
    return Call(call.name, tuple(a for a in arguments if a is not None), call.numbers)


def write_call(f: Function, scope: Scope, call: Call | Make, table: Reg, threads: Reg) -> None:
    """The body of a call's function, which returns 0, or a code if the call fails.

    Args:
        f: the function.
        scope: of it.
        call: what it does.
        table: addresses: of the call's tensors; of the result's handle and of the state, if it makes its result.
        threads: how many there are.
    """
    code = _make(f, scope, call, table, threads) if isinstance(call, Make) else _write(f, scope, call, table)
    f.line(f"ret i32 {code.name}")


def _address(f: Function, table: Reg, slot: int) -> Reg:
    return f.load(PTR, f.element("ptr", table, number(slot)), 8)


def _make(f: Function, scope: Scope, call: Make, table: Reg, threads: Reg) -> Reg:
    desc = call.table
    count = len(tensors_of(call))
    data = table  # its first addresses are those of the tensors, if none is absent
    if count != len(call.arguments):
        data = f.value(PTR, f"alloca ptr, i64 {len(call.arguments)}, align 8")
        slots = iter(range(count))
        for k, argument in enumerate(call.arguments):
            address = _NULL if argument is None else _address(f, table, next(slots))
            f.store(address, f.element("ptr", data, number(k)), 8)
    if all(value.value is not None for value in desc):
        where = f.module.constant([value.value or 0 for value in desc])
    else:
        where = f.value(PTR, f"alloca i64, i64 {len(desc)}, align 8")
        for at, value in enumerate(desc):
            f.store(_number(scope, value), f.element("i64", where, number(at)), 8)
    state = [_address(f, table, count + 1)] if call.state else []
    parts = [*state, threads, data, where, _address(f, table, count)]
    f.declare(call.function, "i32", [part.type.text for part in parts])
    return f.invoke(call.function, I32, parts)


def _write(f: Function, scope: Scope, call: Call, table: Reg) -> Reg:
    blobs = f.value(PTR, f"alloca [{len(call.arguments) * _BLOB} x i8], align 8")
    room = f.value(PTR, f"alloca i64, i64 {max(sum(2 * len(a.size) for a in call.arguments), 1)}, align 8")
    dims = 0
    for k, argument in enumerate(call.arguments):
        rank = len(argument.size)
        sizes, strides = (f.element("i64", room, number(dims + part)) for part in (0, rank))
        for at, value in enumerate((*argument.size, *argument.stride)):
            f.store(_number(scope, value), f.element("i64", room, number(dims + at)), 8)
        dims += 2 * rank
        fields = (_address(f, table, k), number(rank), sizes, strides, literal(argument.dtype, I32))
        for at, field in enumerate(fields):
            f.store(field, f.element("i8", blobs, number(k * _BLOB + 8 * at)), 8)
    numbers = [literal(n, typed("double")) for n in call.numbers]
    return f.invoke(f"jitney_{call.name}", I32, [blobs, *numbers])


def _number(scope: Scope, x: Index) -> Reg:
    made = scope.number(x, no_value)
    assert made.type is I64
    return made
