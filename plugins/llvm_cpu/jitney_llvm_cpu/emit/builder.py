"""A tiny builder of LLVM IR text: types, registers, functions made of blocks.

Names come from counters of the function, so that the same kernels give the same text, whose hash is the cache key.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

Lines = list["str | Lines"]
_DECLARED = re.compile(r"declare\b[^@]*@([\w.$-]+)\s*\(")


@dataclass(frozen=True, slots=True)
class Type:
    """``scalar`` ("float", "i64", "ptr"), or a vector of ``width`` of them if that is not 1."""

    scalar: str
    width: int
    text: str
    bits: int

    def __str__(self) -> str:
        return self.text

    @property
    def floating(self) -> bool:
        """Is it "half", "float" or "double"?"""
        return self.scalar in ("half", "float", "double")

    @property
    def suffix(self) -> str:
        """As in the names of overloaded intrinsics: ``v8f32``."""
        one = "p0" if self.scalar == "ptr" else f"f{self.bits}" if self.floating else self.scalar
        return one if self.width == 1 else f"v{self.width}{one}"


_BITS = {"half": 16, "float": 32, "double": 64, "ptr": 64}


@cache
def typed(scalar: str, width: int = 1) -> Type:
    """The type of ``width`` values of ``scalar``; equal types are one object."""
    text = scalar if width == 1 else f"<{width} x {scalar}>"
    bits = _BITS[scalar] if scalar in _BITS else int(scalar[1:])
    return Type(scalar, width, text, bits)


I1, I8, I32, I64, PTR = (typed(name) for name in ("i1", "i8", "i32", "i64", "ptr"))


@dataclass(frozen=True, slots=True)
class Reg:
    """A value of a function: a name or a literal, and its type. ``known`` is the number, for integer literals."""

    name: str
    type: Type
    known: int | None = None

    def __str__(self) -> str:
        return self.name


def literal(value: float, type_: Type) -> Reg:
    """A number, the same in all lanes."""
    known = None
    if type_.floating:
        one = float_text(float(value))
    else:
        known = int(value)
        one = ("true" if known else "false") if type_.bits == 1 else str(known)
    return Reg(one if type_.width == 1 else f"splat ({type_.scalar} {one})", type_, known)


def float_text(value: float) -> str:
    """LLVM's exact spelling: the bits of the number as a double, for float and double alike."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def lanes(values: Sequence[int], scalar: str) -> Reg:
    """A vector constant of integers; a scalar if there is one."""
    if len(values) == 1:
        return literal(values[0], typed(scalar))
    return Reg(f"<{', '.join(f'{scalar} {v}' for v in values)}>", typed(scalar, len(values)))


def number(value: int) -> Reg:
    """An ``i64`` literal."""
    return Reg(str(value), I64, value)


@dataclass
class Module:
    """Functions, and what they call.

    Args:
        converts_halves: the machine has instructions between float16 and float32; if not, LLVM would call functions.
    """

    converts_halves: bool = True
    functions: list[Function] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, None] = field(default_factory=dict)
    tables: dict[tuple[int, ...], str] = field(default_factory=dict)
    function_tables: dict[tuple[str, ...], str] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """The functions that it has so far."""
        return {f.name for f in self.functions}

    def function(self, name: str, parameters: Sequence[Reg], internal: bool = True, result: str = "void") -> Function:
        """A new function."""
        made = Function(self, name, parameters, internal, result)
        self.functions.append(made)
        return made

    def constant(self, values: Sequence[int]) -> Reg:
        """The address of constant integers of 64 bits; equal ones are at one address."""
        name = self.tables.setdefault(tuple(values), f"@table{len(self.tables)}")
        return Reg(name, PTR)

    def addresses(self, functions: Sequence[str]) -> Reg:
        """The address of the constant addresses of these functions; equal ones are at one address."""
        name = self.function_tables.setdefault(tuple(functions), f"@functions{len(self.function_tables)}")
        return Reg(name, PTR)

    def include(self, text: str) -> None:
        """Functions from elsewhere: what they declare is declared once, what they define is defined once."""
        rest = []
        for line in text.splitlines():
            declared = _DECLARED.match(line)
            if declared:
                self.declarations.setdefault(declared[1], line)
            else:
                rest.append(line)
        if any(rest):
            self.definitions.setdefault("\n".join(rest), None)

    def __str__(self) -> str:
        tables = [
            f"{name} = private constant [{len(row)} x i64] [{', '.join(f'i64 {n}' for n in row)}], align 8"
            for row, name in self.tables.items()
        ]
        tables += [
            f"{name} = private constant [{len(row)} x ptr] [{', '.join(f'ptr @{n}' for n in row)}], align 8"
            for row, name in self.function_tables.items()
        ]
        return "\n".join([*self.declarations.values(), *self.definitions, *tables, *map(str, self.functions)]) + "\n"


class Function:
    """A function being written, at the end of its current block or at a mark made earlier."""

    def __init__(
        self, module: Module, name: str, parameters: Sequence[Reg], internal: bool, result: str = "void"
    ) -> None:
        self.module = module
        self.name = name
        self.parameters = parameters
        self.internal = internal
        self.result = result
        self.label = "entry"
        self._lines: Lines = ["entry:"]
        self._all = self._lines
        self._registers = 0
        self._labels = 0

    def __str__(self) -> str:
        linkage = "internal " if self.internal else ""
        parameters = ", ".join(f"{p.type} {p}" for p in self.parameters)
        body = "\n".join(_flat(self._all))
        return f"define {linkage}{self.result} @{self.name}({parameters}) nounwind {{\n{body}\n}}"

    # Where text goes

    def line(self, text: str) -> None:
        """An instruction without result."""
        self._lines.append("  " + text)

    def comment(self, text: str) -> None:
        """A comment, on lines of its own."""
        self._lines.extend("  ; " + line for line in text.splitlines())

    def mark(self) -> Lines:
        """This place, for code that is written later and runs here."""
        hole: Lines = []
        rest: Lines = []
        self._lines.append(hole)
        self._lines.append(rest)
        self._lines = rest
        return hole

    @contextmanager
    def at(self, mark: Lines) -> Iterator[None]:
        """Writes to the end of a mark; only instructions that do not branch."""
        before, self._lines = self._lines, mark
        try:
            yield
        finally:
            self._lines = before

    # Instructions

    def value(self, type_: Type, text: str) -> Reg:
        """An instruction with a result of this type."""
        self._registers += 1
        name = f"%r{self._registers}"
        self._lines.append(f"  {name} = {text}")
        return Reg(name, type_)

    def binary(self, opcode: str, a: Reg, b: Reg) -> Reg:
        """``opcode a, b``, of a's type."""
        return self.value(a.type, f"{opcode} {a.type.text} {a.name}, {b.name}")

    def compare(self, opcode: str, a: Reg, b: Reg) -> Reg:
        """``opcode`` is such as ``fcmp oeq``; the result is a vector of i1."""
        return self.value(typed("i1", a.type.width), f"{opcode} {a.type.text} {a.name}, {b.name}")

    def unary(self, opcode: str, a: Reg) -> Reg:
        """``opcode a``, of a's type."""
        return self.value(a.type, f"{opcode} {a.type.text} {a.name}")

    def convert(self, opcode: str, a: Reg, scalar: str) -> Reg:
        """``opcode a to <scalar>``, as wide as a; a itself if the type is the same."""
        if a.type.scalar == scalar:
            return a
        type_ = typed(scalar, a.type.width)
        return self.value(type_, f"{opcode} {a.type.text} {a.name} to {type_.text}")

    def select(self, condition: Reg, a: Reg, b: Reg) -> Reg:
        """``condition ? a : b``; the condition is i1 of the same width, or one i1."""
        return self.value(
            a.type, f"select {condition.type.text} {condition.name}, {a.type.text} {a.name}, {b.type.text} {b.name}"
        )

    def invoke(self, symbol: str, result: Type, args: Sequence[Reg]) -> Reg:
        """A call of a function that the module declares or defines."""
        return self.value(result, f"call {result.text} @{symbol}({_arguments(args)})")

    def run(self, symbol: str, *args: Reg) -> None:
        """A call of a function without result."""
        self.line(f"call void @{symbol}({_arguments(args)})")

    def intrinsic(self, name: str, *args: Reg, extra: str = "") -> Reg:
        """``llvm.<name>`` overloaded over the first operand's type, which is the result's."""
        type_ = args[0].type
        symbol = f"llvm.{name}.{type_.suffix}"
        self.declare(symbol, type_.text, [a.type.text for a in args] + (["i1"] if extra else []))
        return self.value(type_, f"call {type_.text} @{symbol}({_arguments(args)}{extra})")

    def declare(self, symbol: str, result: str, parameters: Sequence[str]) -> None:
        """Makes a function of another module known."""
        if symbol not in self.module.declarations:
            self.module.declarations[symbol] = f"declare {result} @{symbol}({', '.join(parameters)})"

    def shuffle(self, a: Reg, b: Reg | None, order: Sequence[int]) -> Reg:
        """Lanes of a and b in a new order; -1 for any."""
        result = typed(a.type.scalar, len(order))
        mask = ", ".join("i32 poison" if i < 0 else f"i32 {i}" for i in order)
        other = b.name if b is not None else "poison"
        return self.value(
            result,
            f"shufflevector {a.type.text} {a.name}, {a.type.text} {other}, <{len(order)} x i32> <{mask}>",
        )

    def extract(self, a: Reg, lane: int) -> Reg:
        """One lane."""
        return self.value(typed(a.type.scalar), f"extractelement {a.type.text} {a.name}, i32 {lane}")

    def insert(self, a: Reg | None, one: Reg, lane: int, width: int) -> Reg:
        """A vector with one lane replaced; a new vector if there is none."""
        type_ = typed(one.type.scalar, width)
        into = a.name if a is not None else "poison"
        return self.value(type_, f"insertelement {type_.text} {into}, {one.type.text} {one.name}, i32 {lane}")

    def splat(self, a: Reg, width: int) -> Reg:
        """The same number in all lanes."""
        if width == 1:
            return a
        if not a.name.startswith("%"):
            return Reg(f"splat ({a.type.text} {a.name})", typed(a.type.scalar, width), a.known)
        return self.shuffle(self.insert(None, a, 0, width), None, [0] * width)

    # Memory

    def element(self, scalar: str, base: Reg, index: Reg) -> Reg:
        """The address of ``base[index]``."""
        if index.known == 0:
            return base
        return self.value(PTR, f"getelementptr {scalar}, ptr {base.name}, i64 {index.name}")

    def load(self, type_: Type, pointer: Reg, align: int) -> Reg:
        """What is at an address."""
        return self.value(type_, f"load {type_.text}, ptr {pointer.name}, align {align}")

    def store(self, value: Reg, pointer: Reg, align: int) -> None:
        """Writes to an address."""
        self.line(f"store {value.type.text} {value.name}, ptr {pointer.name}, align {align}")

    # Control flow

    def fresh_label(self, hint: str) -> str:
        """A name for a block, not yet placed."""
        self._labels += 1
        return f"{hint}{self._labels}"

    def place(self, label: str) -> None:
        """Begins a block."""
        self._lines.append(f"{label}:")
        self.label = label

    def branch(self, label: str) -> None:
        """Goes on there."""
        self.line(f"br label %{label}")

    def branch_if(self, condition: Reg, then: str, otherwise: str) -> None:
        """Goes on at one of two blocks."""
        self.line(f"br i1 {condition.name}, label %{then}, label %{otherwise}")

    def loop(
        self,
        start: Reg,
        stop: Reg,
        step: int,
        carried: Sequence[Reg],
        body: Callable[[Reg, list[Reg]], Sequence[Reg]],
        *,
        nonempty: bool = False,
    ) -> list[Reg]:
        """``for i in range(start, stop, step)``: what the body returns goes into its next round, and out at the end.

        Args:
            body: writes one round; gets i and what is carried.
            nonempty: it is known that there is a first round.
        """
        head, end = self.fresh_label("loop"), self.fresh_label("end")
        before = self.label
        if nonempty:
            self.branch(head)
        else:
            self.branch_if(self.compare("icmp ult", start, stop), head, end)
        self.place(head)
        phis: Lines = []
        self._lines.append(phis)
        i = self._name(I64)
        inside = [self._name(c.type) for c in carried]
        results = list(body(i, inside))
        following = self.binary("add nuw nsw", i, number(step))
        again = self.compare("icmp ult", following, stop)
        latch = self.label
        self.branch_if(again, head, end)
        for name, first, later in zip([i, *inside], [start, *carried], [following, *results], strict=True):
            phis.append(f"  {name} = phi {name.type} [ {first}, %{before} ], [ {later}, %{latch} ]")
        self.place(end)
        if nonempty:
            return results
        out = [self._name(c.type) for c in carried]
        for name, first, later in zip(out, carried, results, strict=True):
            self._lines.append(f"  {name} = phi {name.type} [ {first}, %{before} ], [ {later}, %{latch} ]")
        return out

    def when(self, condition: Reg, carried: Sequence[Reg], then: Callable[[], Sequence[Reg]]) -> list[Reg]:
        """Runs the code that ``then`` writes if the condition holds; what it returns replaces what is carried."""
        before = self.label
        yes, after = self.fresh_label("then"), self.fresh_label("after")
        self.branch_if(condition, yes, after)
        self.place(yes)
        made = then()
        last = self.label
        self.branch(after)
        self.place(after)
        out = [self._name(c.type) for c in carried]
        for name, first, later in zip(out, carried, made, strict=True):
            self._lines.append(f"  {name} = phi {name.type} [ {first}, %{before} ], [ {later}, %{last} ]")
        return out

    def finish(self) -> None:
        """The end of a function without result."""
        self.line("ret void")

    def _name(self, type_: Type) -> Reg:
        self._registers += 1
        return Reg(f"%r{self._registers}", type_)


def _arguments(args: Sequence[Reg]) -> str:
    return ", ".join(f"{a.type.text} {a.name}" for a in args)


def _flat(lines: Lines) -> Iterator[str]:
    for line in lines:
        if isinstance(line, str):
            yield line
        else:
            yield from _flat(line)
