"""One kernel as two functions: the body, which each thread runs for its share of the items, and what goes around it."""

from __future__ import annotations

from jitney_llvm_cpu.emit.builder import I64, PTR, Function, Reg, number, typed
from jitney_llvm_cpu.emit.nests import Part, cost, lanes_of
from jitney_llvm_cpu.emit.partials import Partials, run_length
from jitney_llvm_cpu.emit.reductions import Reduction
from jitney_llvm_cpu.emit.scattering import PARTS, is_shared, scatters
from jitney_llvm_cpu.emit.scope import no_value
from jitney_llvm_cpu.emit.storage import POINTERS, RESULTS, SIZES, Storage, Surroundings
from jitney_llvm_cpu.emit.tiles import plan, with_tiles, write_nest
from jitney_lowering.index import Index, index, product
from jitney_lowering.ir import Kernel, Nest

THREADS = Reg("%threads", I64)
_GIVEN = {POINTERS: Reg("%pointers", PTR), SIZES: Reg("%sizes", PTR)}
_CONTEXT, _BEGIN, _END, _THREAD = Reg("%context", PTR), Reg("%begin", I64), Reg("%end", I64), Reg("%thread", I64)
_VECTORS = 8  # of the innermost loop, if that is the one that is shared out, are an item


class KernelWriter:
    """Writes one kernel as the function ``i32 name(ptr pointers, ptr sizes, i64 threads)``, which returns 0."""

    def __init__(self, around: Surroundings, kernel: Kernel, name: str) -> None:
        self.around = around
        self.kernel = kernel = with_tiles(kernel, around.machine)
        self.name = name
        # What the threads reduce, known once the body is written.
        self.reductions: dict[str, Reduction] = {}
        self.scatters = scatters(kernel)
        self.chunk = self._chunk()
        self.run_length = run_length(kernel)

    def write(self) -> None:
        """Both functions."""
        self._write_body()
        f = self.around.module.function(self.name, [*_GIVEN.values(), THREADS], result="i32")
        storage = Storage(self.around, self.kernel, f, _GIVEN.__getitem__)
        scope = storage.scope
        items, work = (scope.number(x, no_value) for x in self._items())
        parts = storage.allocate(THREADS, self.reductions, bool(self.run_length))
        context = storage.context(parts)
        if self.around.parallel:
            grain = f.intrinsic("umax", f.binary("udiv", number(self.around.grain), work), number(1))
            f.run("jitney_parallel", Reg(f"@{self.name}.body", PTR), context, items, grain, THREADS)
        else:
            f.when(f.compare("icmp ne", items, number(0)), [], lambda: self._run_serially(f, context, items))
        scope.enter([])
        if self.kernel.partials:
            storage.partials(bool(self.run_length), parts.__getitem__).combine(THREADS)
        if self.reductions:
            self._combine_results(storage, parts[RESULTS])
        for nest in self.kernel.finish:
            self._nest(storage, nest)
        storage.release(parts)
        f.line("ret i32 0")

    def _run_serially(self, f: Function, context: Reg, items: Reg) -> list[Reg]:
        f.run(f"{self.name}.body", context, number(0), items, number(0))
        return []

    def _items(self) -> tuple[Index, Index]:
        """How many items there are, and the work of each, in elements of cheap work."""
        kernel = self.kernel
        items, work = index(1), index(0)
        for var in kernel.outer:
            items = items * var.size
        for nest in kernel.body:
            loops = nest.loops
            each = index(-(-cost(nest.statements) // 4))
            if not kernel.outer and loops:
                items = (loops[0].size + (self.chunk - 1)) // self.chunk
                each = each * self.chunk
                loops = loops[1:]
            for var in loops:
                each = each * var.size
            work = work + each
        if self.scatters:
            return index(PARTS if is_shared(kernel) else 1), items * work // PARTS + 1
        return items, work + 1

    def _chunk(self) -> int:
        """How many rounds of the first loop are an item: what is done together."""
        nest = self.kernel.body[0]
        if self.kernel.outer or not nest.loops or self.scatters:
            return 1
        tiles = plan(nest, self.around.machine)
        if tiles is not None and nest.loops[0] in (tiles.across, tiles.along):
            return tiles.side
        return _VECTORS * lanes_of(nest, self.around.machine) if len(nest.loops) == 1 else 1

    # The body

    def _write_body(self) -> None:
        f = self.around.module.function(f"{self.name}.body", [_CONTEXT, _BEGIN, _END, _THREAD])
        f.comment("\n".join([f"kernel {self.kernel.name}", *self._source_lines()]))
        given = {which: _from_context(f, which) for which in (POINTERS, SIZES)}
        storage = Storage(self.around, self.kernel, f, lambda which: given.get(which) or _from_context(f, which))
        if any((v.size.bounds()[0] or 0) < 1 for v in (*self.kernel.outer, *self.kernel.body[0].loops[:1])):
            storage.scope.load_floor = 1
        storage.own_scratch(_THREAD)
        partials = None
        if self.kernel.partials:
            partials = storage.partials(bool(self.run_length), lambda which: _from_context(f, which))
            partials.begin(_THREAD)
        if self.scatters and is_shared(self.kernel):
            storage.scope.share = (_BEGIN, _END)
        if self.kernel.outer:
            self._outer_loops(storage, partials)
        else:
            self._share(storage)
            if partials is not None and self.run_length:
                partials.end_run(_THREAD)
        f.finish()

    def _source_lines(self) -> list[str]:
        """The user's lines that the nodes come from, each once."""
        traces = [str(node.meta.get("stack_trace") or "").rstrip() for node in self.kernel.nodes]
        return list(dict.fromkeys(t.splitlines()[-1].strip() for t in traces if t))

    def _outer_loops(self, storage: Storage, partials: Partials | None) -> None:
        """The outer loops, flattened: counters with a carry, begun by division."""
        f, scope, outer = storage.f, storage.scope, self.kernel.outer
        sizes = [scope.number(v.size, no_value) for v in outer]
        counters: list[Reg] = []
        first, end = (number(0), scope.number(product(outer), no_value)) if self.scatters else (_BEGIN, _END)
        left = first
        for size in reversed(sizes[1:]):
            counters.insert(0, f.binary("urem", left, size))
            left = f.binary("udiv", left, size)
        counters.insert(0, left)

        def once(item: Reg, at: list[Reg]) -> list[Reg]:
            scope.enter(list(zip(outer, at or [item], strict=True)))
            for nest in self.kernel.body:
                self._nest(storage, nest)
            scope.leave()
            return _following(f, at, sizes)

        carried = counters if len(outer) > 1 else []
        if partials is None or not self.run_length:
            f.loop(first, end, 1, carried, once)
            return

        def run(start: Reg, at: list[Reg]) -> list[Reg]:
            stop = f.intrinsic("umin", f.binary("add", start, number(self.run_length)), _END)
            inner = f.loop(start, stop, 1, at, once, nonempty=True)
            partials.end_run(_THREAD)
            return inner

        f.loop(_BEGIN, _END, self.run_length, carried, run)

    def _nest(self, storage: Storage, nest: Nest) -> None:
        scope = storage.scope
        for name, (reduction, state) in write_nest(scope, nest).items():
            scope.refs[name] = reduction.result(scope.f, state)

    def _share(self, storage: Storage) -> None:
        """The only nest of a kernel without outer loops, its first loop from begin to end."""
        f, scope, nest = storage.f, storage.scope, self.kernel.body[0]
        scope.enter([])
        parts = {}
        if nest.loops and not self.scatters and not self._is_one_item(nest.loops[0].size):
            first = nest.loops[0]
            parts[first] = self._part(f, scope.number(first.size, no_value))
        results = write_nest(scope, nest, parts)
        self.reductions = {name: reduction for name, (reduction, _) in results.items()}
        if results:
            cells = storage.cells(_from_context(f, RESULTS), _THREAD, self.reductions)
            for row, (reduction, state) in zip(cells, results.values(), strict=True):
                before = [f.load(typed(scalar), cell, 8) for cell, scalar in row]
                for reg, (cell, _) in zip(reduction.merge(f, before, state), row, strict=True):
                    f.store(reg, cell, 8)
        scope.leave()

    def _is_one_item(self, size: Index) -> bool:
        return size.value is not None and 0 < size.value <= self.chunk

    def _part(self, f: Function, size: Reg) -> Part:
        if self.chunk == 1:
            return Part(_BEGIN, _END, True)
        chunk = number(self.chunk)
        end = f.intrinsic("umin", f.binary("mul", _END, chunk), size)
        return Part(f.binary("mul", _BEGIN, chunk), end, True)

    def _combine_results(self, storage: Storage, base: Reg) -> None:
        """The threads' accumulators, in their order, as what ``finish`` knows."""
        f = storage.f
        shapes = {name: r.begin(1) for name, r in self.reductions.items()}

        def once(thread: Reg, inside: list[Reg]) -> list[Reg]:
            made: list[Reg] = []
            states = iter(inside)
            for row, r in zip(storage.cells(base, thread, self.reductions), self.reductions.values(), strict=True):
                new = [f.load(typed(scalar), cell, 8) for cell, scalar in row]
                made += r.merge(f, [next(states) for _ in new], new)
            return made

        total = iter(f.loop(number(0), THREADS, 1, [reg for state in shapes.values() for reg in state], once))
        for name, r in self.reductions.items():
            storage.scope.refs[name] = r.result(f, [next(total) for _ in shapes[name]])


def _from_context(f: Function, which: int) -> Reg:
    return f.load(PTR, f.element("ptr", _CONTEXT, number(which)), 8)


def _following(f: Function, at: list[Reg], sizes: list[Reg]) -> list[Reg]:
    """The next item's counters."""
    if not at:
        return []
    made: list[Reg] = []
    carry = number(1)
    for value, size in zip(reversed(at[1:]), reversed(sizes[1:]), strict=True):
        more = f.binary("add", value, carry)
        full = f.compare("icmp eq", more, size)
        made.insert(0, f.select(full, number(0), more))
        carry = f.convert("zext", full, "i64")
    return [f.binary("add", at[0], carry), *made]
