"""Nests that read against the order in which they write: done in square tiles, turned on the stack.

A tile's rows are read along memory, transposed by shuffles of registers, and the nest's body then reads the transposed
tile along its innermost loop. So every cache line is read once, whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from jitney_llvm_cpu.emit.builder import PTR, Module, Reg, number, typed
from jitney_llvm_cpu.emit.dtypes import MEMORY
from jitney_llvm_cpu.emit.nests import NestWriter, Part, lanes_of
from jitney_llvm_cpu.emit.reductions import Reduction, State
from jitney_llvm_cpu.emit.scalars import Machine
from jitney_llvm_cpu.emit.scope import FUNCTION, Memory, Scope, no_value, plus
from jitney_lowering.index import Index, Var
from jitney_lowering.ir import Kernel, Load, Nest, Store, Value, load, rebuild, walk

_LEAST = 4  # a loop of fewer rounds is not worth tiles
_ITEMS = 16  # so many are enough for all threads to have something to do


@dataclass(frozen=True)
class Plan:
    """Loads whose neighbours in memory are neighbours in another loop than the innermost.

    Args:
        across: that loop.
        along: the innermost loop.
        loads: the loads.
        side: of a tile, in elements.
    """

    across: Var
    along: Var
    loads: tuple[Load, ...]
    side: int

    @property
    def order(self) -> tuple[Var, Var]:
        """The outer and the inner loop over tiles: the shorter one inside, so that lines of memory are used whole."""
        across, along = self.across.size.value, self.along.size.value
        if across is not None and along is not None and along > across:
            return self.along, self.across
        return self.across, self.along


def plan(nest: Nest, machine: Machine) -> Plan | None:
    """How to do a nest in tiles; None if it does not read that way, or if it reduces."""
    loops = [v for v in nest.loops if v.size.value != 1]
    if len(loops) < 2 or not all(isinstance(s, Store) for s in nest.statements):
        return None
    along = loops[-1]
    found: dict[Var, list[Load]] = {}
    for value in walk(*(s.value for s in nest.statements)):
        if not isinstance(value, Load) or value.indirect or value.mask is not None:
            continue
        stride = value.index.stride(along)
        if stride is None or stride.value in (-1, 0, 1):
            continue
        for var in loops[:-1]:
            if value.index.stride(var) == 1:
                found.setdefault(var, []).append(value)
    if not found:
        return None
    across = max(found, key=lambda var: len(found[var]))
    sizes = [v.size.bounds()[1] for v in (across, along)]
    side = min(16, 2 * lanes_of(nest, machine))
    if side < 2 * _LEAST or any(size is not None and size < _LEAST for size in sizes):
        return None
    return Plan(across, along, tuple(found[across]), side)


def with_tiles(kernel: Kernel, machine: Machine) -> Kernel:
    """The same kernel, with an outer loop moved into its only nest if that can then be done in tiles."""
    if len(kernel.body) != 1 or kernel.scratch or kernel.partials:
        return kernel
    nest = kernel.body[0]
    for var in kernel.outer:
        moved = Nest((var, *nest.loops), nest.statements)
        how = plan(moved, machine)
        if how is None or how.across is not var:
            continue
        others = tuple(v for v in kernel.outer if v is not var)
        items = 1
        for v in others:
            items *= v.size.bounds()[0] or 1
        if items >= _ITEMS:
            return replace(kernel, outer=others, body=(moved,))
        return replace(kernel, outer=(), body=(Nest((var, *others, *nest.loops), nest.statements),))
    return kernel


def write_nest(scope: Scope, nest: Nest, parts: Mapping[Var, Part] | None = None) -> dict[str, tuple[Reduction, State]]:
    """A nest's code, in the way that suits it; the scalar state of each of its reductions."""
    how = plan(nest, scope.machine)
    if how is None:
        return NestWriter(scope, nest, parts).write()
    TiledNest(scope, nest, how, parts or {}).write()
    return {}


class TiledNest:
    """Writes such a nest.

    Args:
        scope: the levels around it.
        nest: what to write.
        how: from ``plan``.
        parts: what is to run of a loop, where that is not all of it.
    """

    def __init__(self, scope: Scope, nest: Nest, how: Plan, parts: Mapping[Var, Part]) -> None:
        self.scope = scope
        self.f = scope.f
        self.nest = nest
        self.how = how
        self.parts = parts
        # A tile's first iteration, and the iteration in the tile.
        self.origins = {v: Var(f"{v.name}.tile", v.size) for v in (how.across, how.along)}
        self.within = {v: Var(f"{v.name}.in", how.side) for v in (how.across, how.along)}
        self.moved: dict[Var, Index] = {v: self.origins[v] + self.within[v] for v in self.origins}

    def write(self) -> None:
        """The nest's code."""
        if any(v.size.value == 0 for v in self.nest.loops):
            return
        scope = self.scope
        scope.begin_nest()
        before = scope.load_floor
        if any((v.size.bounds()[0] or 0) < 1 for v in self.nest.loops):
            scope.load_floor = scope.depth + len(self.nest.loops)
        tiles = self._tiles()
        others = [v for v in self.nest.loops if v not in self.origins and v.size.value != 1]
        first, last = self.how.order
        self._loops([first, *others, last], {}, tiles)
        scope.load_floor = before
        scope.leave()

    def _tiles(self) -> list[tuple[str, str]]:
        """Memory for each load's tile as it is read and as it is used."""
        made = []
        side = self.how.side
        for value in self.how.loads:
            names = (f"read {len(self.scope.memory)}", f"turned {len(self.scope.memory)}")
            for name in names:
                # At the function's beginning: a place on the stack for all rounds.
                mark = self.scope.levels[FUNCTION].mark
                assert mark is not None
                with self.f.at(mark):
                    size = side * side * value.dtype.itemsize
                    base = self.f.value(PTR, f"alloca i8, i64 {size}, align 64")
                self.scope.memory[name] = Memory(value.dtype, partial(_same, base), True)
            made.append(names)
        return made

    def _loops(self, loops: Sequence[Var], high: Mapping[Var, Reg], tiles: list[tuple[str, str]]) -> None:
        """The loops over tiles, and all others, around one tile."""
        if not loops:
            self._tile(high, tiles)
            return
        scope, f = self.scope, self.f
        var = loops[0]
        part = self.parts.get(var) or Part(number(0), scope.number(var.size, no_value))
        tiled = var in self.origins

        def once(i: Reg, inside: list[Reg]) -> list[Reg]:
            count = dict(high)
            scope.enter([(self.origins.get(var, var), i)])
            if tiled and ((var.size % self.how.side).value != 0 or not (part.whole or var not in self.parts)):
                left = f.binary("sub", part.high, i)
                count[var] = f.intrinsic("umin", left, number(self.how.side))
            self._loops(loops[1:], count, tiles)
            scope.leave()
            return []

        f.loop(part.low, part.high, self.how.side if tiled else 1, [], once)

    def _tile(self, high: Mapping[Var, Reg], tiles: list[tuple[str, str]]) -> None:
        across, along = self.how.across, self.how.along
        row, column = self.within[along], self.within[across]
        side = self.how.side
        reads = []
        replaced: dict[Value, Value] = {}
        for value, (read, turned) in zip(self.how.loads, tiles, strict=True):
            at = value.index.substitute(self.moved)
            reads.append(Store(read, row * side + column, load(value.buffer, at, value.dtype)))
            replaced[value] = load(turned, column * side + row, value.dtype)
        parts = {self.within[v]: Part(number(0), count) for v, count in high.items()}
        NestWriter(self.scope, Nest((row, column), tuple(reads)), parts).write_inside()
        for value, (read, turned) in zip(self.how.loads, tiles, strict=True):
            self._turn(MEMORY[value.dtype], read, turned)
        memo: dict[Value, Value] = {}
        stores = []
        for s in self.nest.statements:
            assert isinstance(s, Store)
            made = rebuild(s.value, replaced, lambda x: x.substitute(self.moved), memo=memo)
            stores.append(Store(s.buffer, s.index.substitute(self.moved), made))
        NestWriter(self.scope, Nest((column, row), tuple(stores)), parts).write_inside()

    def _turn(self, scalar: str, read: str, turned: str) -> None:
        side = self.how.side
        name = f"jitney.turn.{scalar}.{side}"
        if name not in self.f.module.names:
            _write_turn(self.f.module, name, scalar, side)
        self.f.run(name, self.scope.memory[read].pointer(), self.scope.memory[turned].pointer())


def _same(base: Reg) -> Reg:
    return base


def _write_turn(module: Module, name: str, scalar: str, side: int) -> None:
    """The function ``name(ptr from, ptr to)``, which transposes a square of elements."""
    source, target = Reg("%from", PTR), Reg("%to", PTR)
    f = module.function(name, [source, target])
    block = 4 if typed(scalar).bits == 64 else 8
    type_, align = typed(scalar, block), typed(scalar).bits // 8

    def place(base: Reg, first: Reg, row: int) -> Reg:
        return f.element(scalar, base, plus(f, first, number(row * side)))

    def rows(i: Reg, inside: list[Reg]) -> list[Reg]:
        def columns(j: Reg, inside: list[Reg]) -> list[Reg]:
            start = f.binary("add", f.binary("mul", i, number(side)), j)
            vectors = [f.load(type_, place(source, start, r), align) for r in range(block)]
            start = f.binary("add", f.binary("mul", j, number(side)), i)
            step = block // 2
            while step:
                for r in range(block):
                    if not r & step:
                        a, b = vectors[r], vectors[r + step]
                        low = [c if not c & step else block + c - step for c in range(block)]
                        high = [c + step if not c & step else block + c for c in range(block)]
                        vectors[r], vectors[r + step] = f.shuffle(a, b, low), f.shuffle(a, b, high)
                step //= 2
            for r, vector in enumerate(vectors):
                f.store(vector, place(target, start, r), align)
            return []

        f.loop(number(0), number(side), block, [], columns, nonempty=True)
        return []

    f.loop(number(0), number(side), block, [], rows, nonempty=True)
    f.finish()
