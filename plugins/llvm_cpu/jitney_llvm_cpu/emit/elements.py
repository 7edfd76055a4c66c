"""Values, vectors of indices, loads and stores of one iteration, or of as many as a vector has lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from jitney.lowering.index import Compound, Index, Opaque, Var, fits_int32, from_terms
from jitney.lowering.values import Apply, Constant, Load, Position, Ref, Value, walk
from jitney_llvm_cpu.emit import casts, scalars
from jitney_llvm_cpu.emit.dtypes import MEMORY, constant, from_memory, to_memory
from jitney_llvm_cpu.emit.scope import Scope, compound, multiply, plus, widened
from jitney_llvm_cpu.emit.text import I32, Reg, Type, lanes, literal, number, typed


@dataclass
class Lanes:
    """Some iterations of the innermost loop at once.

    Args:
        width: how many.
        var: the loop's variable; None if there is no loop.
        first: its register; the first lane is ``offset`` further.
        mask: the lanes that are iterations at all; None: all of them. Lane 0 always is one.
    """

    width: int
    var: Var | None = None
    first: Reg | None = None
    offset: int = 0
    mask: Reg | None = None
    values: dict[Value, Reg] = field(default_factory=dict)
    indices: dict[Index, Reg] = field(default_factory=dict)


class Elements:
    """Writes values at the level where they belong, each once."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.f = scope.f

    # Values

    def values(self, roots: Sequence[Value], at: Lanes) -> list[Reg]:
        """Values in all lanes; bool as i1, float16 and bfloat16 as float."""
        for part in walk(*roots):
            if at.width > 1 and self.scope.value_level(part) == self.scope.depth:
                self._value(part, at)
            else:
                self.scalar(part)
        return [self._value(root, at) for root in roots]

    def _value(self, value: Value, at: Lanes) -> Reg:
        found = at.values.get(value)
        if found is None:
            depth = self.scope.value_level(value)
            if depth == self.scope.depth and at.width > 1:
                found = self._write(value, at)
            else:
                found = self.splat(self.scalar(value), depth, at.width)
            at.values[value] = found
        return found

    def scalar(self, value: Value) -> Reg:
        """A value that is known outside of the vector loop, or in a loop without vectors."""
        if isinstance(value, Constant):
            return constant(value.value, value.dtype, 1)
        level = self.scope.levels[self.scope.value_level(value)]
        found = level.values.get(value)
        if found is None:
            if level.mark is None:
                found = self._write(value, Lanes(1))
            else:
                with self.f.at(level.mark):
                    found = self._write(value, Lanes(1))
            level.values[value] = found
        return found

    def splat(self, one: Reg, depth: int, width: int) -> Reg:
        """A scalar of some level in all lanes."""
        if width == 1 or not one.name.startswith("%"):
            return self.f.splat(one, width)
        level = self.scope.levels[depth]
        found = level.splats.get((one.name, width))
        if found is None:
            if level.mark is None:
                found = self.f.splat(one, width)
            else:
                with self.f.at(level.mark):
                    found = self.f.splat(one, width)
            level.splats[one.name, width] = found
        return found

    def _write(self, value: Value, at: Lanes) -> Reg:
        match value:
            case Constant():
                return constant(value.value, value.dtype, at.width)
            case Ref():
                return self.scope.refs[value.name]
            case Position():
                made = self.index(value.index, at)
                source = torch.int64 if made.type.scalar == "i64" else torch.int32
                return casts.cast(self.f, made, source, value.dtype)
            case Load():
                return self._load(value, at)
            case Apply():
                args = [self._value(a, at) if at.width > 1 else self.scalar(a) for a in value.args]
                sources = [a.dtype for a in value.args]
                return scalars.apply(self.f, self.scope.machine, value.op, args, sources, value.dtype)
        raise TypeError(f"unknown value {value!r}")

    # Vectors of indices

    def index(self, x: Index, at: Lanes) -> Reg:
        """An index expression in all lanes: i32 if that is enough, or i64."""
        if at.width == 1 or self.scope.level(x) < self.scope.depth:
            return self.splat(self.scope.number(x, self.scalar), self.scope.level(x), at.width)
        scalar = "i32" if fits_int32(x) else "i64"
        return self._vector(x, at, scalar)

    def index64(self, x: Index, at: Lanes) -> Reg:
        """The same as i64."""
        return self.f.convert("sext", self.index(x, at), "i64")

    def _vector(self, x: Index, at: Lanes, scalar: str) -> Reg:
        if self.scope.level(x) < self.scope.depth:
            one = self.scope.number(x, self.scalar)
            if one.known is not None:
                return literal(one.known, typed(scalar, at.width))
            return self.f.splat(self.f.convert("trunc", one, scalar), at.width)
        found = at.indices.get(x)
        if found is None or found.type.scalar != scalar:
            found = self._write_vector(x, at, scalar)
            at.indices[x] = found
        return found

    def _write_vector(self, x: Index, at: Lanes, scalar: str) -> Reg:
        f = self.f
        type_ = typed(scalar, at.width)
        if x is at.var:
            assert at.first is not None
            first = plus(f, at.first, number(at.offset))
            first = (
                literal(first.known, typed(scalar)) if first.known is not None else f.convert("trunc", first, scalar)
            )
            return f.binary("add", f.splat(first, at.width), lanes(range(at.width), scalar))
        if isinstance(x, Opaque):
            value = self.scope.opaque[x]
            return f.convert("trunc", widened(f, self._value(value, at), value.dtype), scalar)
        if isinstance(x, Compound):
            return compound(f, x, self._vector(x.a, at, scalar), self._vector(x.b, at, scalar))
        outer, inner = self.scope.split(x, self.scope.depth)
        total = self._vector(outer + x.constant, at, scalar)
        for coef, product in inner:
            term = self._vector(product[0], at, scalar)
            for factor in product[1:]:
                term = f.binary("mul", term, self._vector(factor, at, scalar))
            if coef != 1:
                term = f.binary("mul", term, literal(coef, type_))
            total = term if total.known == 0 else f.binary("add", total, term)
        return total

    # Memory

    def _load(self, value: Load, at: Lanes) -> Reg:
        dtype = value.dtype
        type_ = typed(MEMORY[dtype], at.width)
        if at.width == 1:
            pointer = self.scope.address(value.buffer, value.index, self.scalar)
            return from_memory(self.f, self.f.load(type_, pointer, dtype.itemsize), dtype)
        return from_memory(self.f, self._load_lanes(value.buffer, value.index, type_, at), dtype)

    def _load_lanes(self, buffer: str, x: Index, type_: Type, at: Lanes) -> Reg:
        step = self._step(x, at)
        if step in (1, -1):
            pointer = self._run(buffer, x, step, at)
            if step == 1:
                return self._load_run(type_, pointer, at.mask)
            return self._reversed(self._load_run(type_, pointer, self._reversed_mask(at)))
        if at.mask is not None:
            return self._gather(buffer, x, type_, at)
        places = self._places(buffer, x, step, at)
        made: Reg | None = None
        for lane, pointer in enumerate(places):
            one = self.f.load(typed(type_.scalar), pointer, self._align(buffer))
            made = self.f.insert(made, one, lane, at.width)
        assert made is not None
        return made

    def store(self, buffer: str, x: Index, value: Reg, at: Lanes) -> None:
        """``buffer[x] = value`` in the lanes that are iterations."""
        f = self.f
        value = to_memory(f, value, self.scope.memory[buffer].dtype)
        if at.width == 1:
            f.store(value, self.scope.address(buffer, x, self.scalar), self._align(buffer))
            return
        step = self._step(x, at)
        if step in (1, -1):
            pointer = self._run(buffer, x, step, at)
            if step == -1:
                value = self._reversed(value)
            self._store_run(value, pointer, self._reversed_mask(at) if step == -1 else at.mask, self._align(buffer))
        elif at.mask is not None:
            self._scatter(value, buffer, x, at)
        else:
            for lane, pointer in enumerate(self._places(buffer, x, step, at)):
                f.store(f.extract(value, lane), pointer, self._align(buffer))

    def loaded(self, buffer: str, x: Index, at: Lanes) -> Reg:
        """What is at ``buffer[x]`` now, never remembered."""
        dtype = self.scope.memory[buffer].dtype
        type_ = typed(MEMORY[dtype], at.width)
        if at.width == 1:
            pointer = self.scope.address(buffer, x, self.scalar)
            return from_memory(self.f, self.f.load(type_, pointer, dtype.itemsize), dtype)
        return from_memory(self.f, self._load_lanes(buffer, x, type_, at), dtype)

    def _align(self, buffer: str) -> int:
        return self.scope.memory[buffer].dtype.itemsize

    def _step(self, x: Index, at: Lanes) -> int | None:
        """The constant distance between neighbouring lanes, if all else in the index is the same in all lanes."""
        assert at.var is not None
        stride = x.stride(at.var)
        if stride is None or stride.value is None or self.scope.level(x - stride * at.var) >= self.scope.depth:
            return None
        return stride.value

    def _start(self, buffer: str, x: Index, step: int, at: Lanes) -> tuple[Reg, int]:
        """The address of the first lane as a register shared by all copies, and how many elements further it is."""
        assert at.var is not None and at.first is not None
        level = self.scope.levels[self.scope.depth]
        moving = x - x.constant
        base = self.scope.address(buffer, moving - at.var * step, self.scalar)
        pointer = level.addresses.get((buffer, moving))
        if pointer is None:
            pointer = self.f.element(self._scalar(buffer), base, multiply(self.f, at.first, number(step)))
            level.addresses[buffer, moving] = pointer
        return pointer, x.constant + at.offset * step

    def _scalar(self, buffer: str) -> str:
        return MEMORY[self.scope.memory[buffer].dtype]

    def _run(self, buffer: str, x: Index, step: int, at: Lanes) -> Reg:
        """The lowest address of neighbouring elements."""
        pointer, offset = self._start(buffer, x, step, at)
        if step == -1:
            offset -= at.width - 1
        return self.f.element(self._scalar(buffer), pointer, number(offset))

    def _places(self, buffer: str, x: Index, step: int | None, at: Lanes) -> list[Reg]:
        """The address of each lane; every lane is an iteration."""
        f = self.f
        if step is not None:
            pointer, offset = self._start(buffer, x, step, at)
            return [f.element(self._scalar(buffer), pointer, number(offset + k * step)) for k in range(at.width)]
        base, places = self._base_and_lanes(buffer, x, at)
        found = []
        for lane in range(at.width):
            place = f.convert("sext", f.extract(places, lane), "i64")
            found.append(f.element(self._scalar(buffer), base, place))
        return found

    def _base_and_lanes(self, buffer: str, x: Index, at: Lanes) -> tuple[Reg, Reg]:
        """``x`` as an address for what is the same in all lanes, and a vector for the rest."""
        outer, inner = self.scope.split(x, self.scope.depth)
        base = self.scope.address(buffer, outer, self.scalar)
        terms = {product: coef for coef, product in inner}
        return base, self.index(from_terms(terms, x.constant), at)  # type: ignore[arg-type]

    def _pointers(self, buffer: str, x: Index, at: Lanes) -> Reg:
        base, places = self._base_and_lanes(buffer, x, at)
        text = f"getelementptr {self._scalar(buffer)}, ptr {base}, {places.type} {places}"
        return self.f.value(typed("ptr", at.width), text)

    # Masks and orders

    def _load_run(self, type_: Type, pointer: Reg, mask: Reg | None) -> Reg:
        align = self._bytes(type_)
        if mask is None:
            return self.f.load(type_, pointer, align)
        symbol = f"llvm.masked.load.{type_.suffix}.p0"
        self.f.declare(symbol, type_.text, ["ptr", "i32", mask.type.text, type_.text])
        return self.f.invoke(symbol, type_, [pointer, literal(align, I32), mask, literal(0, type_)])

    def _store_run(self, value: Reg, pointer: Reg, mask: Reg | None, align: int) -> None:
        if mask is None:
            self.f.store(value, pointer, align)
            return
        symbol = f"llvm.masked.store.{value.type.suffix}.p0"
        self.f.declare(symbol, "void", [value.type.text, "ptr", "i32", mask.type.text])
        self.f.run(symbol, value, pointer, literal(align, I32), mask)

    def _gather(self, buffer: str, x: Index, type_: Type, at: Lanes) -> Reg:
        assert at.mask is not None
        pointers = self._pointers(buffer, x, at)
        symbol = f"llvm.masked.gather.{type_.suffix}.{pointers.type.suffix}"
        self.f.declare(symbol, type_.text, [pointers.type.text, "i32", at.mask.type.text, type_.text])
        align = literal(self._align(buffer), I32)
        return self.f.invoke(symbol, type_, [pointers, align, at.mask, literal(0, type_)])

    def _scatter(self, value: Reg, buffer: str, x: Index, at: Lanes) -> None:
        assert at.mask is not None
        pointers = self._pointers(buffer, x, at)
        symbol = f"llvm.masked.scatter.{value.type.suffix}.{pointers.type.suffix}"
        self.f.declare(symbol, "void", [value.type.text, pointers.type.text, "i32", at.mask.type.text])
        self.f.run(symbol, value, pointers, literal(self._align(buffer), I32), at.mask)

    def _reversed(self, a: Reg) -> Reg:
        return self.f.shuffle(a, None, range(a.type.width - 1, -1, -1))

    def _reversed_mask(self, at: Lanes) -> Reg | None:
        return None if at.mask is None else self._reversed(at.mask)

    def _bytes(self, type_: Type) -> int:
        return type_.bits // 8
