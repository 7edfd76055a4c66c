"""Loop levels while a nest is being written, and integers and addresses at the outermost level where they are known.

Levels of a function, outermost first: the function itself; the iteration of the kernel's outer loops; the nest; one for
each of the nest's loops. What depends on no inner loop is written at the mark of its level, which lies before the code
that is being written now, and remembered there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from jitney_llvm_cpu.emit.builder import Function, Lines, Reg, literal, number
from jitney_llvm_cpu.emit.dtypes import MEMORY
from jitney_llvm_cpu.emit.scalars import Machine
from jitney_lowering.index import (
    Atom,
    Compound,
    FloorDiv,
    Index,
    Max,
    Min,
    Opaque,
    Size,
    Term,
    Var,
    from_terms,
    index,
)
from jitney_lowering.ir import Load, Position, Ref, Value

FUNCTION, ITERATION, NEST = 0, 1, 2


@dataclass
class Level:
    """What has been written at one level. ``mark``: where; None: at the end of what is written."""

    mark: Lines | None
    numbers: dict[Index, Reg] = field(default_factory=dict)
    values: dict[Value, Reg] = field(default_factory=dict)
    splats: dict[tuple[str, int], Reg] = field(default_factory=dict)
    addresses: dict[tuple[str, Index], Reg] = field(default_factory=dict)
    runs: dict[tuple[str, Index, int], Reg] = field(default_factory=dict)


@dataclass(frozen=True)
class Memory:
    """A buffer, scratch or partial: its dtype, how its address is found, and whether this kernel writes to it."""

    dtype: torch.dtype
    pointer: Callable[[], Reg]
    written: bool


class Scope:
    """The levels around the code that is being written, and what is known of loop variables and sizes.

    Args:
        f: the function.
        machine: for whom.
        memory: what loads and stores name.
        sizes: how a symbolic size is read, in the function's first lines.
    """

    def __init__(self, f: Function, machine: Machine, memory: dict[str, Memory], sizes: Callable[[Size], Reg]) -> None:
        self.f = f
        self.machine = machine
        self.memory = memory
        self.sizes = sizes
        self.levels = [Level(f.mark())]
        self.refs: dict[str, Reg] = {}
        self.running: set[str] = set()  # what scans are called: known in the innermost loop
        self.opaque: dict[Atom, Value] = {}
        self.share: tuple[Reg, Reg] | None = None  # the parts that are this thread's; see ``scattering.py``
        self.load_floor = FUNCTION
        self._vars: dict[Atom, tuple[int, Reg]] = {}
        self._index_levels: dict[Index, int] = {}
        self._value_levels: dict[Value, int] = {}

    # Levels

    @property
    def depth(self) -> int:
        """The innermost level's number."""
        return len(self.levels) - 1

    def enter(self, variables: Sequence[tuple[Var, Reg]], mark: bool = True) -> Level:
        """Begins a level inside the others; without a mark for the innermost loop, which is written in one go."""
        level = Level(self.f.mark() if mark else None)
        self.levels.append(level)
        for var, reg in variables:
            self._vars[var] = (self.depth, reg)
        return level

    def leave(self) -> None:
        """Ends the innermost level."""
        self.levels.pop()

    def begin_nest(self) -> None:
        """A nest begins here: what its loads need is loaded after the nests before it."""
        self.levels[ITERATION].mark = self.f.mark()
        self.forget_levels()
        self.enter([])

    def forget_levels(self) -> None:
        """Loops are about to begin in another order."""
        self._index_levels.clear()
        self._value_levels.clear()

    def level(self, x: Index) -> int:
        """The outermost level at which an index expression is known."""
        found = self._index_levels.get(x)
        if found is None:
            found = max((self._atom_level(a) for a in x.atoms), default=FUNCTION)
            self._index_levels[x] = found
        return found

    def _atom_level(self, atom: Atom) -> int:
        if isinstance(atom, Opaque):
            return self.value_level(self.opaque[atom])
        return self._vars[atom][0] if isinstance(atom, Var) else FUNCTION

    def value_level(self, value: Value) -> int:
        """The outermost level at which a value is known."""
        found = self._value_levels.get(value)
        if found is None:
            found = self._level_of_value(value)
            self._value_levels[value] = found
        return found

    def _level_of_value(self, value: Value) -> int:
        if isinstance(value, Ref):
            return self.depth if value.name in self.running else ITERATION
        if isinstance(value, Position):
            return self.level(value.index)
        if isinstance(value, Load):
            self.opaque.update(value.indirect)
            floor = max(NEST, self.load_floor) if self.memory[value.buffer].written else self.load_floor
            asked = FUNCTION if value.mask is None else self.value_level(value.mask)
            return max(floor, self.level(value.index), asked)
        return max((self.value_level(p) for p in value.parts), default=FUNCTION)

    # Integers

    def number(self, x: Index, scalar: Callable[[Value], Reg]) -> Reg:
        """An index expression as an ``i64``; ``scalar`` gives the register of a value, for run-time indices."""
        if x.value is not None:
            return number(x.value)
        depth = self.level(x)
        level = self.levels[depth]
        found = level.numbers.get(x)
        if found is None:
            if level.mark is None:
                found = self._compute(x, depth, scalar)
            else:
                with self.f.at(level.mark):
                    found = self._compute(x, depth, scalar)
            level.numbers[x] = found
        return found

    def _compute(self, x: Index, depth: int, scalar: Callable[[Value], Reg]) -> Reg:
        f = self.f
        match x:
            case Size():
                return self.sizes(x)
            case Var():
                return self._vars[x][1]
            case Opaque():
                value = self.opaque[x]
                return widened(f, scalar(value), value.dtype)
            case Compound():
                return compound(f, x, self.number(x.a, scalar), self.number(x.b, scalar))
        outer, inner = self.split(x, depth)
        total = self.number(outer, scalar)
        for coef, product in inner:
            term = number(1)
            for factor in product:
                term = multiply(f, term, self.number(factor, scalar))
            total = plus(f, total, multiply(f, term, number(coef)))
        return plus(f, total, number(x.constant))

    def split(self, x: Index, depth: int) -> tuple[Index, list[Term]]:
        """The terms known outside of a level as one expression, without the constant, and the other terms."""
        outer, inner = {}, []
        for coef, product in x.terms:
            if max(self.level(factor) for factor in product) < depth:
                outer[product] = coef
            else:
                inner.append((coef, product))
        return from_terms(outer, 0), inner

    # Addresses

    def address(self, buffer: str, x: Index, scalar: Callable[[Value], Reg]) -> Reg:
        """The address of ``buffer[x]``, built up level by level; ``x`` is known at some scalar level."""
        if x.constant:
            first = self.address(buffer, x - x.constant, scalar)
            return self.f.element(MEMORY[self.memory[buffer].dtype], first, number(x.constant))
        depth = self.level(x) if x.terms else FUNCTION
        level = self.levels[depth]
        found = level.addresses.get((buffer, x))
        if found is None:
            if level.mark is None:
                found = self._address(buffer, x, depth, scalar)
            else:
                with self.f.at(level.mark):
                    found = self._address(buffer, x, depth, scalar)
            level.addresses[buffer, x] = found
        return found

    def _address(self, buffer: str, x: Index, depth: int, scalar: Callable[[Value], Reg]) -> Reg:
        if not x.terms:
            return self.memory[buffer].pointer()
        outer, inner = self.split(x, depth)
        if not inner:  # known at the function's level: no outer one
            outer, inner = index(0), list(x.terms)
        rest = from_terms({product: coef for coef, product in inner}, 0)
        base = self.address(buffer, outer, scalar)
        return self.f.element(MEMORY[self.memory[buffer].dtype], base, self.number(rest, scalar))


def no_value(value: Value) -> Reg:
    """For expressions without run-time indices."""
    raise TypeError(f"a size depends on {value}")


def widened(f: Function, value: Reg, dtype: torch.dtype) -> Reg:
    """An integer as ``i64``."""
    return f.convert("zext" if dtype in (torch.uint8, torch.bool) else "sext", value, "i64")


def plus(f: Function, a: Reg, b: Reg) -> Reg:
    """``a + b`` of scalars, folded if both are known."""
    if a.known is not None and b.known is not None:
        return number(a.known + b.known)
    return b if a.known == 0 else a if b.known == 0 else f.binary("add", a, b)


def multiply(f: Function, a: Reg, b: Reg) -> Reg:
    """``a * b`` of scalars, folded if both are known."""
    if a.known is not None and b.known is not None:
        return number(a.known * b.known)
    return b if a.known == 1 else a if b.known == 1 else f.binary("mul", a, b)


def compound(f: Function, x: Compound, a: Reg, b: Reg) -> Reg:
    """``//``, ``%``, ``min`` or ``max`` of integers of one width; divisors are positive."""
    if isinstance(x, (Min, Max)):
        return f.intrinsic("smin" if isinstance(x, Min) else "smax", a, b)
    low = x.a.bounds()[0]
    if (x.b.bounds()[0] or 0) < 1:  # hoisted out of a loop that turns out to be empty, a divisor may be 0
        b = f.intrinsic("smax", b, literal(1, b.type))
    by = x.b.value
    if by is not None and by & (by - 1) == 0:
        if isinstance(x, FloorDiv):
            return f.binary("ashr", a, literal(by.bit_length() - 1, a.type))
        return f.binary("and", a, literal(by - 1, a.type))
    if low is not None and low >= 0:
        return f.binary("udiv" if isinstance(x, FloorDiv) else "urem", a, b)
    rest = f.binary("srem", a, b)
    below = f.compare("icmp slt", rest, literal(0, a.type))
    if isinstance(x, FloorDiv):
        return f.binary("add", f.binary("sdiv", a, b), f.convert("sext", below, a.type.scalar))
    return f.select(below, f.binary("add", rest, b), rest)
