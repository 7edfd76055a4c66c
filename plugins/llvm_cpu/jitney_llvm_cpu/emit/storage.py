"""Where a kernel's memory is: buffers from outside, scratch, accumulators of threads, and the context that a body gets.

The context is an array of pointers: what the entry was given, results of reductions, scratch, flags, partials. Every
partial is an array of slots: slot 0 is the total, slot ``thread + 1`` is a thread's own, initialised by that thread
when it first has something to do, which its flag says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jitney.lowering.index import Index, Size, index
from jitney.lowering.kernel import Accumulate, Kernel, Partial, Store
from jitney_llvm_cpu.emit.dtypes import MEMORY, from_memory, to_memory
from jitney_llvm_cpu.emit.reductions import Reduction
from jitney_llvm_cpu.emit.scalars import Machine
from jitney_llvm_cpu.emit.scope import FUNCTION, Memory, Scope, multiply, no_value
from jitney_llvm_cpu.emit.text import I8, I64, PTR, Function, Module, Reg, literal, number, typed

_STACK = 64 * 1024  # bytes of scratch that a thread may have on its stack
_LINE = 64  # bytes of a cache line: what threads write is further apart

POINTERS, SIZES, RESULTS, SCRATCH, FLAGS, PARTIALS = range(6)  # numbers in the context; a partial each from the last on


@dataclass(frozen=True)
class Place:
    """Where a buffer is: ``offset`` bytes from the pointer of this number."""

    pointer: int
    offset: Index


@dataclass(frozen=True)
class Surroundings:
    """What all kernels of a module share."""

    module: Module
    machine: Machine
    places: Mapping[str, Place]
    sizes: Sequence[Size]
    grain: int
    parallel: bool


class Storage:
    """The memory of one kernel, as its body or the function around that sees it.

    Args:
        around: the module's.
        kernel: whose memory.
        f: the function.
        entry: how the function gets the entry's pointers and sizes, and other parts of the context, by number.
    """

    def __init__(self, around: Surroundings, kernel: Kernel, f: Function, entry: Callable[[int], Reg]) -> None:
        self.around = around
        self.kernel = kernel
        self.f = f
        self.entry = entry
        written = {
            s.buffer for n in (*kernel.body, *kernel.finish) for s in n.statements if isinstance(s, (Store, Accumulate))
        }
        self.memory = {
            name: Memory(dtype, self._outside(around.places[name]), name in written)
            for name, dtype in kernel.buffers.items()
        }
        self.scope = Scope(f, around.machine, self.memory, self._size)

    # Buffers from outside

    def _outside(self, place: Place) -> Callable[[], Reg]:
        def pointer() -> Reg:
            f = self.f
            base = f.load(PTR, f.element("ptr", self.entry(POINTERS), number(place.pointer)), 8)
            return f.element("i8", base, self.scope.number(place.offset, no_value))

        return pointer

    def _size(self, size: Size) -> Reg:
        return self.f.load(I64, self.f.element("i64", self.entry(SIZES), number(self.around.sizes.index(size))), 8)

    # Scratch

    @property
    def scratch_on_stack(self) -> bool:
        """Is a thread's scratch small, and its size known?"""
        size = self._scratch_bytes().value
        return size is not None and size <= _STACK

    def _scratch_bytes(self) -> Index:
        total = index(0)
        for s in self.kernel.scratch:
            total = total + _lines(s.extent * s.dtype.itemsize)
        return total

    def own_scratch(self, thread: Reg) -> None:
        """In the body: this thread's scratch."""
        f, scope = self.f, self.scope
        if not self.kernel.scratch:
            return
        each = scope.number(self._scratch_bytes(), no_value)
        if self.scratch_on_stack:
            base = f.value(PTR, f"alloca i8, i64 {each}, align {_LINE}")
        else:
            base = f.element("i8", self.entry(SCRATCH), multiply(f, thread, each))
        offset = index(0)
        for s in self.kernel.scratch:
            start = f.element("i8", base, scope.number(offset, no_value))
            self.memory[s.name] = Memory(s.dtype, _always(start), True)
            offset = offset + _lines(s.extent * s.dtype.itemsize)
        scope.levels[FUNCTION].mark = f.mark()

    # Partials

    def own_partials(self, thread: Reg) -> None:
        """In the body: this thread's accumulators, initialised if it is the first time."""
        if not self.kernel.partials:
            return
        f = self.f
        slots = []
        for k, p in enumerate(self.kernel.partials):
            slots.append(self._slot(self.entry(PARTIALS + k), p, f.binary("add", thread, number(1))))
            self.memory[p.name] = Memory(p.dtype, _always(slots[-1]), True)
        flag = f.element("i8", self.entry(FLAGS), thread)
        fresh = f.compare("icmp eq", f.load(I8, flag, 1), literal(0, I8))

        def begin() -> list[Reg]:
            f.store(literal(1, I8), flag, 1)
            for p, slot in zip(self.kernel.partials, slots, strict=True):
                self._fill(p, slot)
            return []

        f.when(fresh, [], begin)
        self.scope.levels[FUNCTION].mark = f.mark()

    def _slot(self, base: Reg, p: Partial, which: Reg) -> Reg:
        each = self.scope.number(_lines(p.extent * p.dtype.itemsize), no_value)
        return self.f.element("i8", base, multiply(self.f, which, each))

    def _fill(self, p: Partial, slot: Reg) -> None:
        """Every element of a slot is the identity of the partial's kind."""
        f = self.f
        scalar = MEMORY[p.dtype]
        first = to_memory(f, self._reduction(p).begin(1)[0], p.dtype)

        def once(i: Reg, inside: list[Reg]) -> list[Reg]:
            f.store(first, f.element(scalar, slot, i), p.dtype.itemsize)
            return []

        f.loop(number(0), self.scope.number(p.extent, no_value), 1, [], once)

    def _reduction(self, p: Partial) -> Reduction:
        return Reduction(p.kind, p.dtype, self.around.machine)

    def combine_partials(self, bases: Sequence[Reg], flags: Reg, threads: Reg) -> None:
        """After the body: slot 0 of each partial is the total over the threads, in their order."""
        f = self.f
        for p, base in zip(self.kernel.partials, bases, strict=True):
            self._fill(p, base)

            def add(thread: Reg, inside: list[Reg], p: Partial = p, base: Reg = base) -> list[Reg]:
                used = f.compare("icmp ne", f.load(I8, f.element("i8", flags, thread), 1), literal(0, I8))
                slot = self._slot(base, p, f.binary("add", thread, number(1)))
                f.when(used, [], lambda: self._merge(p, base, slot))
                return []

            f.loop(number(0), threads, 1, [], add)
            self.memory[p.name] = Memory(p.dtype, _always(base), True)

    def _merge(self, p: Partial, total: Reg, slot: Reg) -> list[Reg]:
        f = self.f
        type_, align = typed(MEMORY[p.dtype]), p.dtype.itemsize
        reduction = self._reduction(p)

        def once(i: Reg, inside: list[Reg]) -> list[Reg]:
            places = [f.element(type_.scalar, base, i) for base in (total, slot)]
            a, b = (from_memory(f, f.load(type_, place, align), p.dtype) for place in places)
            f.store(to_memory(f, reduction.result(f, reduction.merge(f, [a], [b])), p.dtype), places[0], align)
            return []

        f.loop(number(0), self.scope.number(p.extent, no_value), 1, [], once)
        return []

    # Results of reductions in kernels without outer loops

    def cells(self, base: Reg, thread: Reg, reductions: Mapping[str, Reduction]) -> list[list[tuple[Reg, str]]]:
        """Per reduction the addresses and types of a thread's accumulator."""
        f = self.f
        count = sum(len(r.begin(1)) for r in reductions.values())
        own = f.element("i64", base, multiply(f, thread, number(_result_words(count))))
        made, offset = [], 0
        for r in reductions.values():
            row = []
            for reg in r.begin(1):
                row.append((f.element("i64", own, number(offset)), reg.type.scalar))
                offset += 1
            made.append(row)
        return made

    # Around the body

    def allocate(self, threads: Reg, reductions: Mapping[str, Reduction]) -> dict[int, Reg]:
        """Memory for all threads, by number in the context; results and flags are initialised."""
        f, scope = self.f, self.scope
        made = {POINTERS: self.entry(POINTERS), SIZES: self.entry(SIZES)}
        if reductions:
            made[RESULTS] = self._result_cells(threads, reductions)
        if self.kernel.scratch and not self.scratch_on_stack:
            made[SCRATCH] = self._heap(multiply(f, threads, scope.number(self._scratch_bytes(), no_value)))
        if self.kernel.partials:
            made[FLAGS] = f.value(PTR, f"alloca i8, i64 {threads}, align {_LINE}")
            f.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
            f.run("llvm.memset.p0.i64", made[FLAGS], literal(0, I8), threads, literal(0, typed("i1")))
        for k, p in enumerate(self.kernel.partials):
            each = scope.number(_lines(p.extent * p.dtype.itemsize), no_value)
            made[PARTIALS + k] = self._heap(multiply(f, f.binary("add", threads, number(1)), each))
        return made

    def release(self, parts: Mapping[int, Reg]) -> None:
        """Gives back what ``allocate`` took from the heap."""
        for which, pointer in parts.items():
            if which == SCRATCH or which >= PARTIALS:
                self.f.declare("free", "void", ["ptr"])
                self.f.run("free", pointer)

    def _heap(self, size: Reg) -> Reg:
        self.f.declare("aligned_alloc", "ptr", ["i64", "i64"])
        return self.f.invoke("aligned_alloc", PTR, [number(_LINE), size])

    def _result_cells(self, threads: Reg, reductions: Mapping[str, Reduction]) -> Reg:
        f = self.f
        count = sum(len(r.begin(1)) for r in reductions.values())
        size = multiply(f, threads, number(8 * _result_words(count)))
        base = f.value(PTR, f"alloca i8, i64 {size}, align {_LINE}")

        def once(thread: Reg, inside: list[Reg]) -> list[Reg]:
            for r, row in zip(reductions.values(), self.cells(base, thread, reductions), strict=True):
                for reg, (cell, _) in zip(r.begin(1), row, strict=True):
                    f.store(reg, cell, 8)
            return []

        f.loop(number(0), threads, 1, [], once)
        return base

    def context(self, parts: Mapping[int, Reg]) -> Reg:
        """The array that the body gets."""
        f = self.f
        base = f.value(PTR, f"alloca ptr, i64 {PARTIALS + len(self.kernel.partials)}, align 8")
        for which, pointer in parts.items():
            f.store(pointer, f.element("ptr", base, number(which)), 8)
        return base


def _always(reg: Reg) -> Callable[[], Reg]:
    return lambda: reg


def _lines(size: Index) -> Index:
    return (size + (_LINE - 1)) // _LINE * _LINE


def _result_words(count: int) -> int:
    return -(-count * 8 // _LINE) * _LINE // 8
