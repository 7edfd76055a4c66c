"""Values, vectors of indices, loads and stores of one iteration, or of as many as a vector has lanes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from jitney_llvm_cpu.emit import casts, scalars
from jitney_llvm_cpu.emit.accesses import Accesses, Lanes
from jitney_llvm_cpu.emit.builder import Reg, lanes, literal, typed
from jitney_llvm_cpu.emit.dtypes import constant, from_memory, to_memory
from jitney_llvm_cpu.emit.scope import Scope, compound, widened
from jitney_llvm_cpu.emit.strides import Strides
from jitney_lowering.index import Compound, Index, Opaque, fits_int32
from jitney_lowering.ir import Apply, Constant, Load, Position, Ref, Value, walk


class Elements:
    """Writes values at the level where they belong, each once."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.f = scope.f
        self.strides = Strides(scope, self.scalar)
        self.accesses = Accesses(scope, self.strides, self.scalar, self.index)

    # Values

    def values(self, roots: Sequence[Value], at: Lanes) -> list[Reg]:
        """Values in all lanes; bool as i1, float16 and bfloat16 as float."""
        for part in walk(*roots):
            if at.width > 1 and self.scope.value_level(part) == self.scope.depth:
                self._value(part, at)
            else:
                self.scalar(part)
        return [self._value(root, at) for root in roots]

    def know(self, value: Value, register: Reg, at: Lanes) -> None:
        """This value of the innermost loop is in a register already."""
        if at.width > 1:
            at.values[value] = register
        else:
            self.scope.levels[self.scope.depth].values[value] = register

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
                wanted = None
                if value.mask is not None:
                    wanted = self._value(value.mask, at) if at.width > 1 else self.scalar(value.mask)
                return self.loaded(value.buffer, value.index, at, wanted)
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
        assert at.var is not None and at.first is not None
        step = self.strides.step(x, at.var, at.width)
        if step is not None:
            first = self.strides.first(x, step, at.var, at.first, at.offset)
            if first.known is not None:
                return lanes([first.known + k * step.size for k in range(at.width)], scalar)
            same = f.splat(f.convert("trunc", first, scalar), at.width)
            steps = lanes([k * step.size for k in range(at.width)], scalar)
            return f.binary("add", same, steps) if step.size else same
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

    def loaded(self, buffer: str, x: Index, at: Lanes, wanted: Reg | None = None) -> Reg:
        """What is at ``buffer[x]`` now, never remembered; anything where it is not ``wanted``."""
        return from_memory(self.f, self.accesses.load(buffer, x, at, wanted), self.scope.memory[buffer].dtype)

    def store(self, buffer: str, x: Index, value: Reg, at: Lanes) -> None:
        """``buffer[x] = value`` in the lanes that are iterations."""
        self.accesses.store(buffer, x, to_memory(self.f, value, self.scope.memory[buffer].dtype), at)

    def store_together(self, buffer: str, places: Sequence[Index], values: Sequence[Reg], at: Lanes) -> None:
        """Several stores to one buffer: together where they fill memory without gaps."""
        dtype = self.scope.memory[buffer].dtype
        held = [to_memory(self.f, value, dtype) for value in values]
        if not self.accesses.store_together(buffer, places, held, at):
            for x, value in zip(places, held, strict=True):
                self.accesses.store(buffer, x, value, at)
