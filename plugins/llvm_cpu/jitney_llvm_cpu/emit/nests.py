"""One nest: its loops, the innermost with vectors, and what its reductions come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jitney_llvm_cpu.emit.accesses import Lanes
from jitney_llvm_cpu.emit.builder import Reg, lanes, number, typed
from jitney_llvm_cpu.emit.dtypes import REGISTER, rounded
from jitney_llvm_cpu.emit.elements import Elements
from jitney_llvm_cpu.emit.reductions import Reduction, State
from jitney_llvm_cpu.emit.scalars import Machine
from jitney_llvm_cpu.emit.scans import Running
from jitney_llvm_cpu.emit.scattering import Scattering, along_rows, operand
from jitney_llvm_cpu.emit.scope import Scope, no_value, plus
from jitney_lowering.index import Index, Var, fits_int32, index
from jitney_lowering.ir import (
    HALVES,
    OPERATIONS,
    Accumulate,
    Apply,
    Load,
    Nest,
    Reduce,
    Ref,
    Scan,
    Scatter,
    Statement,
    Store,
    Value,
    ref,
    walk,
)

# A float sum is added up in runs of this many additions, then the runs: errors grow with the length of either only.
RUN = 128
# A loop is written out if that is at most so much work.
_UNROLLED = 16

Copies = list[State]  # one state per copy of the loop's body
Round = Callable[[Reg, list[Copies]], list[Copies]]


@dataclass(frozen=True)
class Shape:
    """How the innermost loop is done: ``width`` iterations in a vector, ``copies`` vectors at a time."""

    width: int
    copies: int


@dataclass(frozen=True)
class Part:
    """The part of a loop that is to run; ``whole``: it ends at a multiple of the vectors, or where the loop does."""

    low: Reg
    high: Reg
    whole: bool = False


def shape(
    nest: Nest, loops: Sequence[Var], sums: Sequence[Reduce | Accumulate], machine: Machine, parts: Mapping[Var, Part]
) -> Shape:
    """Vectors as wide as the machine's for the widest float, or integer if there are none; narrower for short loops.

    ``sums`` are what the loop keeps in registers. A loop of which a part is to run is not written out: where the part
    ends, its vectors need not.
    """
    if not loops:
        return Shape(1, 1)
    scatters = [s for s in nest.statements if isinstance(s, Scatter)]
    width = lanes_of(nest, machine) if all(along_rows(s.value, loops[-1]) for s in scatters) else 1
    trips = loops[-1].size.bounds()[1]
    if trips is not None:
        width = min(width, 1 << (trips - 1).bit_length())
    if width == 1:
        return Shape(1, 1)
    whole_row = trips is not None and nest.loops[-1].size.value == trips and loops[-1] not in parts
    if not sums and trips is not None and whole_row and trips % width == 0:
        whole = trips // width
        if whole * cost(nest.statements) <= _UNROLLED:
            return Shape(width, whole)
    copies = _copies(nest, sums, trips)
    while copies > 1 and trips is not None and trips < copies * width:
        copies //= 2
    return Shape(width, copies)


def lanes_of(nest: Nest, machine: Machine) -> int:
    """How many iterations fill a vector."""
    running = {s.name for s in nest.statements if isinstance(s, Scan)}
    values = [v for s in nest.statements for v in walk(_wide(s)) if not (isinstance(v, Ref) and v.name in running)]
    bits = {typed(REGISTER[v.dtype]).bits for v in values if v.dtype.is_floating_point}
    if not bits:
        bits = {max(8, typed(REGISTER[v.dtype]).bits) for v in values}
    return machine.native(max(bits))


def _wide(statement: Statement) -> Value:
    """What the vectors' width is for: what a scan adds up may fill several, if it was made in less."""
    value = statement.value
    wider = isinstance(statement, Scan) and isinstance(value, Apply) and value.op == "cast"
    return value.args[0] if wider and isinstance(value, Apply) else value


def _copies(nest: Nest, sums: Sequence[Reduce | Accumulate], trips: int | None) -> int:
    """Accumulators enough to hide the time of one addition, unless the rest of the body takes longer anyway."""
    if not sums:
        return 1
    work = cost(nest.statements)
    wanted = 4 if work <= 8 else 2 if work <= 16 else 1
    if work <= 2 and trips is not None and trips >= 256:
        wanted = 8
    registers = sum(3 if s.kind.startswith("arg") else 1 for s in sums)
    while wanted > 1 and registers * wanted > 8:
        wanted //= 2
    return wanted


def cost(statements: Sequence[Statement]) -> int:
    """Rough time of one iteration, in additions."""
    total = sum(isinstance(s, Store) + 2 * isinstance(s, Accumulate) + 6 * isinstance(s, Scan) for s in statements)
    for value in walk(*(s.value for s in statements)):
        if isinstance(value, Apply):
            total += OPERATIONS[value.op].cost
        elif isinstance(value, Load):
            total += 1
    return total


class NestWriter:
    """Writes one nest where the function is.

    Args:
        scope: the levels around it; the nest begins and ends its own.
        nest: what to write.
        parts: what is to run of a loop, where that is not all of it.
    """

    def __init__(self, scope: Scope, nest: Nest, parts: Mapping[Var, Part] | None = None) -> None:
        self.scope = scope
        self.f = scope.f
        self.elements = Elements(scope)
        self.nest = nest
        self.parts = parts or {}
        self.loops = [v for v in nest.loops if v.size.value != 1 or v in self.parts]
        self.reduces = [s for s in nest.statements if isinstance(s, Reduce)]
        self.kept = [s for s in nest.statements if isinstance(s, Accumulate) and self._is_kept(s)]
        sums: list[Reduce | Accumulate] = [*self.reduces, *self.kept]
        self.scans = [s for s in nest.statements if isinstance(s, Scan)]
        self.scattering = Scattering(self.elements, nest, self.loops)
        scope.running |= {s.name for s in self.scans}
        self.shape = shape(nest, self.loops, sums, scope.machine, self.parts)
        running: list[Reduction] = [Running(s.kind, s.value.dtype, scope.machine) for s in self.scans]
        lasting = [self._reduction(s) for s in self.reduces]
        self.reductions = [*lasting, *running, *(self._reduction(s) for s in self.kept)]
        self.lasting = len(lasting) + len(running)  # those that go on through all loops
        self.run_depth, self.run_length = self._runs()

    def write(self) -> dict[str, tuple[Reduction, State]]:
        """The nest's code; the scalar state of each of its reductions."""
        self.scope.begin_nest()
        results = self.write_inside()
        self.scope.leave()
        return results

    def write_inside(self) -> dict[str, tuple[Reduction, State]]:
        """The same as a part of a nest that has begun."""
        scope = self.scope
        scope.forget_levels()
        before, inner = scope.load_floor, scope.depth + 1
        maybe_empty = [k for k, v in enumerate(self.loops) if (v.size.bounds()[0] or 0) < 1]
        scope.load_floor = max([before] + [inner + k for k in maybe_empty])
        states = self._begin(self.reductions[: self.lasting])
        if all(v.size.value != 0 for v in self.loops):
            states = self._loops(0, states)
        results = {}
        for statement, reduction, copies in zip(self.reduces, self.reductions, states, strict=False):
            results[statement.name] = (reduction, reduction.across(self.f, copies))
        scope.load_floor = before
        return results

    # Which sums are kept in registers, and how

    def _reduction(self, s: Reduce | Accumulate) -> Reduction:
        if isinstance(s, Accumulate) or s.position is None:
            return Reduction(s.kind, s.value.dtype, self.scope.machine)
        counted = index(0)
        for var in self.nest.loops:
            counted = counted * var.size + var
        return Reduction(
            s.kind, s.value.dtype, self.scope.machine, narrow=fits_int32(s.position), rising=s.position is counted
        )

    def _is_kept(self, s: Accumulate) -> bool:
        """Does the innermost loop add to one place?"""
        return bool(self.loops) and self.loops[-1] not in s.index.atoms

    def _begin(self, reductions: Sequence[Reduction]) -> list[Copies]:
        return [[r.begin(self.shape.width) for _ in range(self.shape.copies)] for r in reductions]

    def _runs(self) -> tuple[int, int]:
        """Which loop is cut into runs, and the length of a run in that loop's rounds; (-1, 0): none."""
        if not any(r.loses for r in self.reductions):
            return -1, 0
        chain, step = 1, self.shape.width * self.shape.copies
        for depth in reversed(range(len(self.loops))):
            length = max(1, RUN // max(chain, 1))  # no rounds at all: any length
            trips = self.loops[depth].size.bounds()[1]
            if trips is None or chain * -(-trips // step) > 2 * RUN:
                return depth, length
            chain *= -(-trips // step)
            step = 1
        return -1, 0

    # Loops

    def _loops(self, depth: int, states: list[Copies]) -> list[Copies]:
        if not self.loops:
            return self._round(number(0), 1, None, states)
        var = self.loops[depth]
        part = self.parts.get(var) or Part(number(0), self.scope.number(var.size, no_value))
        low, high = part.low, part.high
        if depth == len(self.loops) - 1:
            return self._innermost(depth, low, high, states)

        def once(i: Reg, inside: list[Copies]) -> list[Copies]:
            self.scope.enter([(var, i)])
            made = self._loops(depth + 1, inside)
            self.scope.leave()
            return made

        return self._loop(depth, low, high, 1, states, once)

    def _innermost(self, depth: int, low: Reg, high: Reg, states: list[Copies]) -> list[Copies]:
        """The innermost loop; of a scatter, if the row is this thread's."""
        condition = self.scattering.row()
        if condition is None:
            return self._row(depth, low, high, states)
        return self._maybe(condition, states, lambda s: self._row(depth, low, high, s))

    def _row(self, depth: int, low: Reg, high: Reg, states: list[Copies]) -> list[Copies]:
        """Whole vectors, then what remains with a mask; then what was kept in registers goes to memory."""
        first_kept = self.lasting
        states = [*states, *self._begin(self.reductions[first_kept:])]
        width, copies = self.shape.width, self.shape.copies
        step = width * copies
        middle = self._last_whole(low, high, step)
        if middle.known is None or low.known is None or middle.known > low.known:
            states = self._loop(depth, low, middle, step, states, lambda i, s: self._round(i, copies, None, s))
        if step > 1 and (high.known is None or high.known != middle.known) and not self._divides(depth, step):
            states = self._rest(middle, high, states)
        for statement, reduction, kept in zip(
            self.kept, self.reductions[first_kept:], states[first_kept:], strict=True
        ):
            self._add_to(statement, reduction, reduction.result(self.f, reduction.across(self.f, kept)))
        return states[:first_kept]

    def _divides(self, depth: int, step: int) -> bool:
        """Does the loop always end with a whole step?"""
        part = self.parts.get(self.loops[depth])
        return (self.loops[depth].size % step).value == 0 and (part is None or part.whole)

    def _last_whole(self, low: Reg, high: Reg, step: int) -> Reg:
        if low.known is not None and high.known is not None:
            return number(high.known - (high.known - low.known) % step)
        if step == 1:
            return high
        assert step & (step - 1) == 0, f"steps of {step} iterations where only the run tells how many there are"
        span = high if low.known == 0 else self.f.binary("sub", high, low)
        return plus(self.f, low, self.f.binary("and", span, number(-step)))

    def _rest(self, low: Reg, high: Reg, states: list[Copies]) -> list[Copies]:
        width = self.shape.width

        def once(i: Reg, inside: list[Copies]) -> list[Copies]:
            return self._round(i, 1, self._left(i, high), inside)

        if low.known is not None and high.known is not None and high.known - low.known <= width:
            return once(low, states)
        if self.shape.copies == 1:  # at most one round
            return self._maybe(self.f.compare("icmp ult", low, high), states, lambda s: once(low, s))
        return self._loop(-1, low, high, width, states, once)

    def _left(self, first: Reg, high: Reg) -> Reg:
        """How many iterations there are from ``first`` on, at most as many as a vector has lanes."""
        width = self.shape.width
        if first.known is not None and high.known is not None:
            return number(min(high.known - first.known, width))
        left = self.f.binary("sub", high, first)
        return left if self.shape.copies == 1 else self.f.intrinsic("umin", left, number(width))

    def _mask(self, left: Reg) -> Reg:
        width = self.shape.width
        if left.known is not None:
            return lanes([int(k < left.known) for k in range(width)], "i1")
        return self.f.compare(
            "icmp sgt", self.f.splat(self.f.convert("trunc", left, "i32"), width), lanes(range(width), "i32")
        )

    def _loop(self, depth: int, low: Reg, high: Reg, step: int, states: list[Copies], once: Round) -> list[Copies]:
        """One loop; the one that is cut into runs becomes two."""
        nonempty = low.known is not None and high.known is not None and low.known < high.known
        if low.known == 0 and depth >= 0 and not nonempty:
            least = self.loops[depth].size.bounds()[0] or 0
            nonempty = least >= step and self.loops[depth] not in self.parts
        if depth != self.run_depth or depth < 0:
            return self._plain_loop(low, high, step, states, once, nonempty)
        reductions = self._of(states)

        def run(start: Reg, totals: list[Copies]) -> list[Copies]:
            stop = self.f.intrinsic("umin", plus(self.f, start, number(step * self.run_length)), high)
            fresh = [self._begin([r])[0] if r.loses else total for r, total in zip(reductions, totals, strict=True)]
            inner = self._plain_loop(start, stop, step, fresh, once, True)
            return [
                [r.merge(self.f, a, b) for a, b in zip(total, new, strict=True)] if r.loses else new
                for r, total, new in zip(reductions, totals, inner, strict=True)
            ]

        return self._plain_loop(low, high, step * self.run_length, states, run, nonempty)

    def _plain_loop(
        self, low: Reg, high: Reg, step: int, states: list[Copies], once: Round, nonempty: bool
    ) -> list[Copies]:
        if low.known is not None and high.known is not None and high.known - low.known == step:
            return once(low, states)
        flat = self.f.loop(
            low,
            high,
            step,
            _flat(states),
            lambda i, inside: _flat(once(i, _like(states, inside))),
            nonempty=nonempty,
        )
        return _like(states, flat)

    def _maybe(
        self, condition: Reg, states: list[Copies], then: Callable[[list[Copies]], list[Copies]]
    ) -> list[Copies]:
        made = self.f.when(condition, _flat(states), lambda: _flat(then(states)))
        return _like(states, made)

    def _of(self, states: list[Copies]) -> list[Reduction]:
        return self.reductions[: len(states)]

    # The innermost body

    def _round(self, first: Reg, copies: int, left: Reg | None, states: list[Copies]) -> list[Copies]:
        """``copies`` vectors of iterations, from ``first`` on; or one of which only some lanes are ``left``."""
        var = self.loops[-1] if self.loops else None
        self.scope.enter([(var, first)] if var is not None else [], mark=False)
        width = self.shape.width
        mask = None if left is None else self._mask(left)
        everywhere = [Lanes(width, var, first, u * width, mask, left) for u in range(copies)]
        states = [list(c) for c in states]
        made = [self._values(at, states) for at in everywhere]
        for u, at in enumerate(everywhere):
            self._store(made[u], at)
            for s, value in zip(self.nest.statements, made[u], strict=True):
                if isinstance(s, Store):
                    continue
                if isinstance(s, Scatter):
                    self.scattering.put(s.value, value, at)
                elif isinstance(s, Accumulate) and s not in self.kept:
                    self._add_lanes(s, value, at)
                elif not isinstance(s, Scan):
                    which = self._number_of(s)
                    position = self._position(s, self.reductions[which], at)
                    states[which][u] = self.reductions[which].step(self.f, states[which][u], value, position, mask)
        self.scope.leave()
        return states

    def _store(self, values: Sequence[Reg], at: Lanes) -> None:
        """What all stores write, in their order; those to several elements of a row of a buffer together."""
        several: dict[str, list[tuple[Index, Reg]]] = {}
        for s, value in zip(self.nest.statements, values, strict=True):
            if isinstance(s, Store) and at.width > 1:
                several.setdefault(s.buffer, []).append((s.index, value))
            elif isinstance(s, Store):
                self.elements.store(s.buffer, s.index, value, at)
        for buffer, stores in several.items():
            self.elements.store_together(buffer, [x for x, _ in stores], [value for _, value in stores], at)

    def _values(self, at: Lanes, states: list[Copies]) -> list[Reg]:
        """The values of all statements; what scans have come to is in ``states``, and changes."""
        if not self.scans:
            return self.elements.values([operand(s) for s in self.nest.statements], at)
        made: list[Reg] = []
        for s in self.nest.statements:
            made += self.elements.values([s.value], at)
            if isinstance(s, Scan):
                self._scan(s, made[-1], at, states[self._number_of(s)])
        return made

    def _scan(self, s: Scan, value: Reg, at: Lanes, copies: Copies) -> None:
        """One vector of running results; the first copy has the state, the others go unused."""
        running = self.reductions[self._number_of(s)]
        assert isinstance(running, Running)
        found, copies[0] = running.results(self.f, copies[0], value, at.mask)
        made = rounded(self.f, found, s.value.dtype) if s.value.dtype in HALVES else found
        self.elements.know(ref(s.name, s.value.dtype), made, at)

    def _number_of(self, s: Statement) -> int:
        every: list[Statement] = [*self.reduces, *self.scans, *self.kept]
        return next(k for k, other in enumerate(every) if other is s)

    def _position(self, s: Statement, reduction: Reduction, at: Lanes) -> Reg | None:
        if not isinstance(s, Reduce) or s.position is None:
            return None
        place = self.elements.index(s.position, at)
        # A position that fits may still have been made with 64 bits, as all scalars are.
        return self.f.convert("trunc" if reduction.narrow else "sext", place, reduction.position)

    def _add_lanes(self, s: Accumulate, value: Reg, at: Lanes) -> None:
        reduction = Reduction(s.kind, s.value.dtype, self.scope.machine)
        before = self.elements.loaded(s.buffer, s.index, at)
        after = reduction.merge(self.f, [before], [value])
        self.elements.store(s.buffer, s.index, reduction.result(self.f, after), at)

    def _add_to(self, s: Accumulate, reduction: Reduction, value: Reg) -> None:
        """What a whole inner loop came to, outside of that loop."""
        self._add_lanes(s, value, Lanes(1))


def _flat(states: list[Copies]) -> list[Reg]:
    return [reg for copies in states for state in copies for reg in state]


def _like(states: list[Copies], flat: Sequence[Reg]) -> list[Copies]:
    registers = iter(flat)
    return [[[next(registers) for _ in state] for state in copies] for copies in states]
