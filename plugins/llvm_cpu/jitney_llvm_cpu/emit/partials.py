"""Accumulators of threads: their memory, how they begin, and how they become one.

Every partial is an array of slots, each of whole cache lines. Slot 0 is the total over all threads. Each thread has its
own, which it initialises when it first has something to do; its flag says that it did. For a sum of floats it is two:
what the thread has added up, and its current run, which is added to the former and cleared every so often. So errors
grow with the length of a run and with the number of runs, instead of with all that a thread adds.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from jitney_llvm_cpu.emit.builder import I8, I64, PTR, Function, Module, Reg, literal, number, typed
from jitney_llvm_cpu.emit.dtypes import MEMORY, constant, from_memory, to_memory
from jitney_llvm_cpu.emit.nests import RUN
from jitney_llvm_cpu.emit.reductions import Reduction, identity
from jitney_llvm_cpu.emit.scalars import Machine
from jitney_llvm_cpu.emit.scope import FUNCTION, Memory, Scope, multiply, no_value
from jitney_lowering.index import Index
from jitney_lowering.ir import Accumulate, Kernel, Partial

LINE = 64  # bytes of a cache line: what threads write is further apart


def whole_lines(size: Index) -> Index:
    """Bytes rounded up to cache lines."""
    return (size + (LINE - 1)) // LINE * LINE


def run_length(kernel: Kernel) -> int:
    """After how many items the runs are added up; 0: never, there are too few items."""
    if not any(_loses(p) for p in kernel.partials):
        return 0
    longest = 1  # additions to one place in one item, at most
    for nest in kernel.body:
        for s in nest.statements:
            if isinstance(s, Accumulate):
                chain = 1
                for var in nest.loops[:-1]:
                    if var not in s.index.atoms:
                        chain *= var.size.bounds()[1] or RUN
                longest = max(longest, chain)
    items: int | None = 1
    for var in kernel.outer:
        size = var.size.bounds()[1]
        items = None if items is None or size is None else items * size
    if items is not None and items * longest <= 2 * RUN:
        return 0
    return max(1, RUN // longest)


def _loses(p: Partial) -> bool:
    return p.kind == "sum" and p.dtype.is_floating_point


class Partials:
    """The partials of one kernel, seen from one of its functions.

    Args:
        scope: the function's; its memory gets the partials' names.
        kernel: whose.
        bases: the addresses of the slots, per partial.
        flags: the address of the threads' flags.
        runs: are sums added up in runs?
    """

    def __init__(self, scope: Scope, kernel: Kernel, bases: Sequence[Reg], flags: Reg, runs: bool) -> None:
        self.scope = scope
        self.f = scope.f
        self.all = list(zip(kernel.partials, bases, strict=True))
        self.flags = flags
        self.runs = runs

    @staticmethod
    def slots(p: Partial, threads: Reg, f: Function, runs: bool) -> Reg:
        """How many slots there are."""
        own = 2 if runs and _loses(p) else 1
        return f.binary("add", multiply(f, threads, number(own)), number(1))

    def begin(self, thread: Reg) -> None:
        """In the body: this thread's slots, initialised if it is the first time."""
        f = self.f
        slots = []
        for p, base in self.all:
            own = self._own(p, base, thread)
            slots += [(p, slot) for slot in own]
            self._name(p, own[-1])
        flag = f.element("i8", self.flags, thread)
        fresh = f.compare("icmp eq", f.load(I8, flag, 1), literal(0, I8))
        sizes = [self._elements(p) for p, _ in slots]

        def fill() -> list[Reg]:
            f.store(literal(1, I8), flag, 1)
            for (p, slot), size in zip(slots, sizes, strict=True):
                f.run(_filler(f.module, p), slot, size)
            return []

        f.when(fresh, [], fill)
        self.scope.levels[FUNCTION].mark = f.mark()

    def end_run(self, thread: Reg) -> None:
        """In the body: adds the runs to what was added up before."""
        for p, base in self.all:
            if _loses(p):
                total, run = self._own(p, base, thread)
                self.f.run(_merger(self.f.module, p, self.scope.machine, True), total, run, self._elements(p))

    def combine(self, threads: Reg) -> None:
        """After the body: the total over the threads, in their order."""
        f = self.f
        for p, base in self.all:
            size = self._elements(p)
            merger = _merger(f.module, p, self.scope.machine, False)
            f.run(_filler(f.module, p), base, size)

            def add(thread: Reg, inside: list[Reg], p: Partial = p, base: Reg = base, size: Reg = size,
                    merger: str = merger) -> list[Reg]:  # fmt: skip
                used = f.compare("icmp ne", f.load(I8, f.element("i8", self.flags, thread), 1), literal(0, I8))
                slot = self._own(p, base, thread)[0]

                def merge() -> list[Reg]:
                    f.run(merger, base, slot, size)
                    return []

                f.when(used, [], merge)
                return []

            f.loop(number(0), threads, 1, [], add)
            self._name(p, base)

    def _name(self, p: Partial, slot: Reg) -> None:
        self.scope.memory[p.name] = Memory(p.dtype, lambda: slot, True)

    def _own(self, p: Partial, base: Reg, thread: Reg) -> list[Reg]:
        """A thread's slots: what it has added up, and its run if there are any."""
        f, own = self.f, 2 if self.runs and _loses(p) else 1
        each = self.scope.number(whole_lines(p.extent * p.dtype.itemsize), no_value)
        first = f.binary("add", multiply(f, thread, number(own)), number(1))
        start = f.element("i8", base, f.binary("mul", first, each))
        return [start, f.element("i8", start, each)][:own]

    def _elements(self, p: Partial) -> Reg:
        """Of a slot, with those that fill up its last line."""
        return self.scope.number(whole_lines(p.extent * p.dtype.itemsize) // p.dtype.itemsize, no_value)


def _vectors(p: Partial, module: Module, name: str, pointers: Sequence[Reg]) -> tuple[Function, int]:
    f = module.function(name, [*pointers, Reg("%count", I64)])
    return f, LINE // p.dtype.itemsize


def _filler(module: Module, p: Partial) -> str:
    """The function that sets all elements to the identity."""
    name = f"jitney.fill.{p.kind}.{_text(p.dtype)}"
    if name in module.names:
        return name
    place = Reg("%place", PTR)
    f, width = _vectors(p, module, name, [place])
    scalar, align = MEMORY[p.dtype], p.dtype.itemsize

    def once(i: Reg, inside: list[Reg]) -> list[Reg]:
        f.store(_identity(f, p, width), f.element(scalar, place, i), align)
        return []

    f.loop(number(0), Reg("%count", I64), width, [], once)
    f.finish()
    return name


def _merger(module: Module, p: Partial, machine: Machine, clears: bool) -> str:
    """The function that merges a slot into another, and perhaps sets it to the identity."""
    name = f"jitney.{'flush' if clears else 'merge'}.{p.kind}.{_text(p.dtype)}"
    if name in module.names:
        return name
    total, part = Reg("%total", PTR), Reg("%part", PTR)
    f, width = _vectors(p, module, name, [total, part])
    reduction = Reduction(p.kind, p.dtype, machine)
    type_, align = typed(MEMORY[p.dtype], width), p.dtype.itemsize

    def once(i: Reg, inside: list[Reg]) -> list[Reg]:
        places = [f.element(type_.scalar, base, i) for base in (total, part)]
        a, b = (from_memory(f, f.load(type_, place, align), p.dtype) for place in places)
        merged = reduction.result(f, reduction.merge(f, [a], [b]))
        f.store(to_memory(f, merged, p.dtype), places[0], align)
        if clears:
            f.store(_identity(f, p, width), places[1], align)
        return []

    f.loop(number(0), Reg("%count", I64), width, [], once)
    f.finish()
    return name


def _identity(f: Function, p: Partial, width: int) -> Reg:
    return to_memory(f, constant(identity(p.kind, p.dtype), p.dtype, width), p.dtype)


def _text(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
