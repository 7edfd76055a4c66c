"""Loads and stores of vectors: neighbours at once, those a few elements apart by shuffles, all others one by one.

What lies anywhere is gathered by one instruction where the machine has a fast one. In the last round of a loop only
some lanes are iterations; the others are neither read nor written. Masked instructions do that where the machine has
them, for neighbours of 32 and 64 bits; otherwise a loop over the lanes does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jitney_llvm_cpu.emit import interleaved
from jitney_llvm_cpu.emit.builder import I32, PTR, Reg, Type, literal, number, typed
from jitney_llvm_cpu.emit.dtypes import MEMORY
from jitney_llvm_cpu.emit.scope import FUNCTION, Scope, multiply
from jitney_llvm_cpu.emit.strides import Step, Strides, moved
from jitney_lowering.index import Index, Var, from_terms
from jitney_lowering.ir import Value


@dataclass
class Lanes:
    """Some iterations of the innermost loop at once.

    Args:
        width: how many.
        var: the loop's variable; None if there is no loop.
        first: its register; the first lane is ``offset`` further.
        mask: the lanes that are iterations at all; None: all of them. Lane 0 always is one.
        left: how many lanes are iterations, if there is a mask; those are the first.
    """

    width: int
    var: Var | None = None
    first: Reg | None = None
    offset: int = 0
    mask: Reg | None = None
    left: Reg | None = None
    values: dict[Value, Reg] = field(default_factory=dict)
    indices: dict[Index, Reg] = field(default_factory=dict)


class Accesses:
    """Writes loads and stores, as elements are in memory.

    Args:
        scope: the levels around.
        strides: what it knows of distances between lanes.
        scalar: the register of a value that is the same in all lanes.
        vector: an index expression in all lanes, as i32 or i64.
    """

    def __init__(
        self, scope: Scope, strides: Strides, scalar: Callable[[Value], Reg], vector: Callable[[Index, Lanes], Reg]
    ) -> None:
        self.scope = scope
        self.f = scope.f
        self.strides = strides
        self.scalar = scalar
        self.vector = vector

    def load(self, buffer: str, x: Index, at: Lanes, wanted: Reg | None = None) -> Reg:
        """``buffer[x]`` in the lanes that are iterations, anything in the others.

        ``wanted``: a truth value for each lane; where it is false nothing is read.
        """
        type_ = typed(self._scalar(buffer), at.width)
        if wanted is not None and wanted.known == 0:
            return literal(0, type_)
        if wanted is not None and wanted.known is None:
            return self._load_wanted(type_, buffer, x, at, wanted)
        if at.width == 1:
            return self.f.load(type_, self.scope.address(buffer, x, self.scalar), _bytes(type_))
        step = self._step(x, at)
        size = step.size if step is not None else None
        if step is not None and step.size == 0:
            pointer, offset = self._start(buffer, x, step, at)
            pointer = self.f.element(type_.scalar, pointer, number(offset))
            return self.f.splat(self.f.load(typed(type_.scalar), pointer, _bytes(type_)), at.width)
        if step is None and self.scope.machine.target.gathers(type_.bits):
            return self._gather(type_, buffer, x, at)
        if at.left is not None and at.left.known is None and not self._masked(size, type_):
            return self._load_each(type_, self._place(buffer, x, step, at), at.left)
        if step is not None and size == 1:
            return self._load_run(type_, self._run(buffer, x, step, at), at.mask)
        if step is not None and size == -1:
            return self._reversed(self._load_run(type_, self._run(buffer, x, step, at), self._reversed_mask(at)))
        if step is not None and 1 < step.size <= min(interleaved.MOST, at.width) and at.mask is None:
            return self._load_every(type_, *self._start(buffer, x, step, at), step.size)
        place = self._place(buffer, x, step, at)
        made: Reg | None = None
        for lane in range(self._count(at)):
            one = self.f.load(typed(type_.scalar), place(lane), _bytes(type_))
            made = self.f.insert(made, one, lane, at.width)
        assert made is not None
        return made

    def store(self, buffer: str, x: Index, value: Reg, at: Lanes) -> None:
        """``buffer[x] = value`` in the lanes that are iterations."""
        f, align = self.f, _bytes(value.type)
        if at.width == 1:
            f.store(value, self.scope.address(buffer, x, self.scalar), align)
            return
        step = self._step(x, at)
        size = step.size if step is not None else None
        # One element is no run: of a masked store of i8 or i16 that were i32, LLVM 22 makes one of all 32 bits if the
        # mask is a constant of one lane.
        one = at.left is not None and at.left.known == 1
        if at.left is not None and at.left.known is None and not self._masked(size, value.type):
            self._store_each(value, self._place(buffer, x, step, at), at.left)
        elif step is not None and size == 1 and not one:
            self._store_run(value, self._run(buffer, x, step, at), at.mask)
        elif step is not None and size == -1 and not one:
            self._store_run(self._reversed(value), self._run(buffer, x, step, at), self._reversed_mask(at))
        else:
            place = self._place(buffer, x, step, at)
            for lane in range(self._count(at)):
                f.store(f.extract(value, lane), place(lane), align)

    def _masked(self, size: int | None, type_: Type) -> bool:
        return size in (1, -1) and self.scope.machine.masks(type_.bits)

    # Where

    def _scalar(self, buffer: str) -> str:
        return MEMORY[self.scope.memory[buffer].dtype]

    def _count(self, at: Lanes) -> int:
        return at.width if at.left is None or at.left.known is None else at.left.known

    def _step(self, x: Index, at: Lanes) -> Step | None:
        assert at.var is not None
        return self.strides.step(x, at.var, at.width)

    def _start(self, buffer: str, x: Index, step: Step, at: Lanes) -> tuple[Reg, int]:
        """An address shared by all copies, and how many elements further the first lane is."""
        assert at.var is not None and at.first is not None
        if step.rest is None:
            place = moved(x, at.var, at.offset)
            return self.scope.address(buffer, place - place.constant, self.scalar), place.constant
        level = self.scope.levels[self.scope.depth]
        key = (buffer, step.rest, step.size)
        pointer = level.runs.get(key)
        if pointer is None:
            base = self.scope.address(buffer, step.rest, self.scalar)
            pointer = self.f.element(self._scalar(buffer), base, multiply(self.f, at.first, number(step.size)))
            level.runs[key] = pointer
        return pointer, x.constant + at.offset * step.size

    def _run(self, buffer: str, x: Index, step: Step, at: Lanes) -> Reg:
        """The lowest address of neighbouring elements."""
        pointer, offset = self._start(buffer, x, step, at)
        if step.size == -1:
            offset -= at.width - 1
        return self.f.element(self._scalar(buffer), pointer, number(offset))

    def _place(self, buffer: str, x: Index, step: Step | None, at: Lanes) -> Callable[[int | Reg], Reg]:
        """A function from a lane's number to its address."""
        f, scalar = self.f, self._scalar(buffer)
        if step is not None:
            pointer, offset = self._start(buffer, x, step, at)

            def along(lane: int | Reg) -> Reg:
                if isinstance(lane, int):
                    return f.element(scalar, pointer, number(offset + lane * step.size))
                first = f.element(scalar, pointer, number(offset))
                return f.element(scalar, first, multiply(f, lane, number(step.size)))

            return along
        base, places = self._anywhere(buffer, x, at)
        if at.left is not None and at.left.known is None:
            table = self._stack(places.type)
            f.store(places, table, _bytes(places.type))

        def anywhere(lane: int | Reg) -> Reg:
            if isinstance(lane, int):
                one = f.extract(places, lane)
            else:
                one = f.load(typed(places.type.scalar), f.element(places.type.scalar, table, lane), _bytes(places.type))
            return f.element(scalar, base, f.convert("sext", one, "i64"))

        return anywhere

    # Neighbours

    def _load_run(self, type_: Type, pointer: Reg, mask: Reg | None) -> Reg:
        if mask is None:
            return self.f.load(type_, pointer, _bytes(type_))
        symbol = f"llvm.masked.load.{type_.suffix}.p0"
        self.f.declare(symbol, type_.text, ["ptr", "i32", mask.type.text, type_.text])
        return self.f.invoke(symbol, type_, [pointer, literal(_bytes(type_), I32), mask, literal(0, type_)])

    def _store_run(self, value: Reg, pointer: Reg, mask: Reg | None) -> None:
        align = _bytes(value.type)
        if mask is None:
            self.f.store(value, pointer, align)
            return
        symbol = f"llvm.masked.store.{value.type.suffix}.p0"
        self.f.declare(symbol, "void", [value.type.text, "ptr", "i32", mask.type.text])
        self.f.run(symbol, value, pointer, literal(align, I32), mask)

    def _reversed(self, a: Reg) -> Reg:
        return self.f.shuffle(a, None, range(a.type.width - 1, -1, -1))

    def _reversed_mask(self, at: Lanes) -> Reg | None:
        return None if at.mask is None else self._reversed(at.mask)

    def _load_every(self, type_: Type, pointer: Reg, offset: int, step: int) -> Reg:
        """Elements that lie ``step`` apart."""

        def run(start: int) -> Reg:
            return self.f.load(type_, self.f.element(type_.scalar, pointer, number(offset + start)), _bytes(type_))

        return interleaved.picked(self.f, run, step, type_.width)

    def store_together(self, buffer: str, places: Sequence[Index], values: Sequence[Reg], at: Lanes) -> bool:
        """Store where the lanes of all values fill memory without gaps; False, with nothing stored, if they do not."""
        steps = [self._step(x, at) for x in places]
        first, count = steps[0], len(places)
        if at.mask is not None or first is None or first.rest is None or any(step != first for step in steps):
            return False
        if first.size != count or not 1 < count <= min(interleaved.MOST, at.width):
            return False
        ordered = sorted(zip(places, values, strict=True), key=lambda pair: pair[0].constant)
        least = ordered[0][0].constant
        if [x.constant - least for x, _ in ordered] != list(range(count)):
            return False
        pointer, offset = self._start(buffer, ordered[0][0], first, at)
        scalar = self._scalar(buffer)
        for number_, vector in enumerate(interleaved.woven(self.f, [value for _, value in ordered])):
            place = self.f.element(scalar, pointer, number(offset + number_ * at.width))
            self.f.store(vector, place, _bytes(vector.type))
        return True

    # Where it is wanted

    def _load_wanted(self, type_: Type, buffer: str, x: Index, at: Lanes, wanted: Reg) -> Reg:
        f = self.f
        if at.width == 1:
            return f.load(
                type_, self._place_if(wanted, self.scope.address(buffer, x, self.scalar), type_), _bytes(type_)
            )
        step = self._step(x, at)
        mask = wanted if at.mask is None else f.binary("and", wanted, at.mask)
        if step is not None and abs(step.size) == 1 and self.scope.machine.masks(type_.bits):
            run = self._run(buffer, x, step, at)
            if step.size == 1:
                return self._load_run(type_, run, mask)
            return self._reversed(self._load_run(type_, run, self._reversed(mask)))
        if self.scope.machine.target.gathers(type_.bits):
            return self._gather(type_, buffer, x, at, mask)
        place = self._place(buffer, x, step, at)
        made: Reg | None = None
        for lane in range(at.width):
            pointer = self._place_if(f.extract(mask, lane), place(lane), type_)
            made = f.insert(made, f.load(typed(type_.scalar), pointer, _bytes(type_)), lane, at.width)
        assert made is not None
        return made

    def _place_if(self, wanted: Reg, pointer: Reg, type_: Type) -> Reg:
        """The address, or one of a number that may be read and is not looked at."""
        other = self._stack(typed(type_.scalar))
        return self.f.value(PTR, f"select i1 {wanted.name}, ptr {pointer.name}, ptr {other.name}")

    # Anywhere

    def _gather(self, type_: Type, buffer: str, x: Index, at: Lanes, mask: Reg | None = None) -> Reg:
        f, scalar = self.f, self._scalar(buffer)
        base, places = self._anywhere(buffer, x, at)
        pointers = f.value(
            typed("ptr", at.width), f"getelementptr {scalar}, ptr {base.name}, {places.type.text} {places.name}"
        )
        mask = mask or at.mask or literal(1, typed("i1", at.width))
        symbol = f"llvm.masked.gather.{type_.suffix}.{pointers.type.suffix}"
        f.declare(symbol, type_.text, [pointers.type.text, "i32", mask.type.text, type_.text])
        return f.invoke(symbol, type_, [pointers, literal(_bytes(type_), I32), mask, literal(0, type_)])

    def _anywhere(self, buffer: str, x: Index, at: Lanes) -> tuple[Reg, Reg]:
        """An address, and how many elements further each lane is."""
        outer, inner = self.scope.split(x, self.scope.depth)
        base = self.scope.address(buffer, outer, self.scalar)
        terms = {product: coef for coef, product in inner}
        return base, self.vector(from_terms(terms, x.constant), at)

    # One lane after the other

    def _load_each(self, type_: Type, place: Callable[[Reg], Reg], left: Reg) -> Reg:
        f, one = self.f, typed(type_.scalar)
        table = self._stack(type_)
        f.store(literal(0, type_), table, _bytes(type_))

        def once(lane: Reg, inside: list[Reg]) -> list[Reg]:
            value = f.load(one, place(lane), _bytes(type_))
            f.store(value, f.element(type_.scalar, table, lane), _bytes(type_))
            return []

        f.loop(number(0), left, 1, [], once, nonempty=True)
        return f.load(type_, table, _bytes(type_))

    def _store_each(self, value: Reg, place: Callable[[Reg], Reg], left: Reg) -> None:
        f, one = self.f, typed(value.type.scalar)
        table = self._stack(value.type)
        f.store(value, table, _bytes(value.type))

        def once(lane: Reg, inside: list[Reg]) -> list[Reg]:
            item = f.load(one, f.element(one.scalar, table, lane), _bytes(one))
            f.store(item, place(lane), _bytes(one))
            return []

        f.loop(number(0), left, 1, [], once, nonempty=True)

    def _stack(self, type_: Type) -> Reg:
        """A place for one vector on the stack."""
        mark = self.scope.levels[FUNCTION].mark
        assert mark is not None
        with self.f.at(mark):
            return self.f.value(PTR, f"alloca {type_.text}, align {_bytes(type_) * type_.width}")


def _bytes(type_: Type) -> int:
    """Of one element."""
    return type_.bits // 8
