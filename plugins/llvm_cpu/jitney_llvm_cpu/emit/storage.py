"""Where a kernel's memory is: buffers from outside, scratch, and the context that a body gets.

The context is an array of pointers: what the entry was given, results of reductions, scratch, the threads' flags and
their partials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jitney_llvm_cpu.emit.builder import I8, I64, PTR, Function, Module, Reg, literal, number, typed
from jitney_llvm_cpu.emit.partials import LINE, Partials, whole_lines
from jitney_llvm_cpu.emit.reductions import Reduction
from jitney_llvm_cpu.emit.scalars import Machine
from jitney_llvm_cpu.emit.scope import FUNCTION, Memory, Scope, multiply, no_value
from jitney_lowering.index import Index, Size, index
from jitney_lowering.ir import Accumulate, Kernel, Scatter, Store

_STACK = 64 * 1024  # bytes of scratch that a thread may have on its stack

POINTERS, SIZES, RESULTS, SCRATCH, FLAGS, PARTIALS = range(6)  # numbers in the context; a partial each from the last on


@dataclass(frozen=True)
class Place:
    """Where a buffer is: ``offset`` bytes from the pointer of this number.

    ``made``: the number is that of a result which the entry itself makes (``Entry.made``).
    """

    pointer: int
    offset: Index
    made: bool = False


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
        statements = [s for nest in (*kernel.body, *kernel.finish) for s in nest.statements]
        written = {s.buffer for s in statements if isinstance(s, (Store, Accumulate))}
        written |= {s.value.buffer for s in statements if isinstance(s, Scatter)}
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
            total = total + whole_lines(s.extent * s.dtype.itemsize)
        return total

    def own_scratch(self, thread: Reg) -> None:
        """In the body: this thread's scratch."""
        f, scope = self.f, self.scope
        if not self.kernel.scratch:
            return
        each = scope.number(self._scratch_bytes(), no_value)
        if self.scratch_on_stack:
            base = f.value(PTR, f"alloca i8, i64 {each}, align {LINE}")
        else:
            base = f.element("i8", self.entry(SCRATCH), multiply(f, thread, each))
        offset = index(0)
        for s in self.kernel.scratch:
            start = f.element("i8", base, scope.number(offset, no_value))
            self.memory[s.name] = Memory(s.dtype, _always(start), True)
            offset = offset + whole_lines(s.extent * s.dtype.itemsize)
        scope.levels[FUNCTION].mark = f.mark()

    # Partials

    def partials(self, runs: bool, parts: Callable[[int], Reg]) -> Partials:
        """The accumulators of threads; ``parts`` gives a part of the context."""
        bases = [parts(PARTIALS + k) for k in range(len(self.kernel.partials))]
        return Partials(self.scope, self.kernel, bases, parts(FLAGS), runs)

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

    def allocate(self, threads: Reg, reductions: Mapping[str, Reduction], runs: bool) -> dict[int, Reg]:
        """Memory for all threads, by number in the context; results and flags are initialised."""
        f, scope = self.f, self.scope
        made = {POINTERS: self.entry(POINTERS), SIZES: self.entry(SIZES)}
        if reductions:
            made[RESULTS] = self._result_cells(threads, reductions)
        if self.kernel.scratch and not self.scratch_on_stack:
            made[SCRATCH] = self._heap(multiply(f, threads, scope.number(self._scratch_bytes(), no_value)))
        if self.kernel.partials:
            made[FLAGS] = f.value(PTR, f"alloca i8, i64 {threads}, align {LINE}")
            f.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
            f.run("llvm.memset.p0.i64", made[FLAGS], literal(0, I8), threads, literal(0, typed("i1")))
        for k, p in enumerate(self.kernel.partials):
            each = scope.number(whole_lines(p.extent * p.dtype.itemsize), no_value)
            made[PARTIALS + k] = self._heap(multiply(f, Partials.slots(p, threads, f, runs), each))
        return made

    def release(self, parts: Mapping[int, Reg]) -> None:
        """Gives back what ``allocate`` took from the heap."""
        for which, pointer in parts.items():
            if which == SCRATCH or which >= PARTIALS:
                self.f.declare("free", "void", ["ptr"])
                self.f.run("free", pointer)

    def _heap(self, size: Reg) -> Reg:
        self.f.declare("aligned_alloc", "ptr", ["i64", "i64"])
        return self.f.invoke("aligned_alloc", PTR, [number(LINE), size])

    def _result_cells(self, threads: Reg, reductions: Mapping[str, Reduction]) -> Reg:
        f = self.f
        count = sum(len(r.begin(1)) for r in reductions.values())
        size = multiply(f, threads, number(8 * _result_words(count)))
        base = f.value(PTR, f"alloca i8, i64 {size}, align {LINE}")

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


def _result_words(count: int) -> int:
    return -(-count * 8 // LINE) * LINE // 8
