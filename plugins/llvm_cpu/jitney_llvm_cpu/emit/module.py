"""Kernels to the text of one module, with an entry for each run of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jitney_llvm_cpu.emit.builder import I64, PTR, Module, Reg, number
from jitney_llvm_cpu.emit.calls import Call, CallWriter, Make
from jitney_llvm_cpu.emit.kernels import THREADS, KernelWriter
from jitney_llvm_cpu.emit.scalars import Machine, Math
from jitney_llvm_cpu.emit.scope import Scope, no_value
from jitney_llvm_cpu.emit.storage import Place, Surroundings
from jitney_llvm_cpu.target import Target
from jitney_lowering.index import Size, index
from jitney_lowering.ir import Kernel, canonical

POINTERS, SIZES = Reg("%pointers", PTR), Reg("%sizes", PTR)


@dataclass(frozen=True)
class Entry:
    """A function ``i32 name(ptr pointers, ptr sizes, i64 threads)`` that runs kernels and calls in order.

    It returns 0, or 1 as soon as a call fails.

    Args:
        name: the function's.
        items: what to run.
        places: where each buffer is: ``pointers`` is an array of addresses.
        sizes: the symbolic sizes, in the order of the array ``sizes`` of int64.
        made: what calls make, in order.
        dropped: the number of an item -> what nobody reads after it.
        handed: what the caller gets: the handles of these are stored where the last pointer leads, in this order.
    """

    name: str
    items: Sequence[Kernel | Call | Make]
    places: Mapping[str, Place]
    sizes: Sequence[Size] = ()
    made: Sequence[str] = ()
    dropped: Mapping[int, Sequence[str]] = field(default_factory=dict)
    handed: tuple[Place, Sequence[str]] | None = None


def emit_module(
    entries: Sequence[Entry], target: Target, *, grain: int, math: Math, parallel: str = "", calls: str = ""
) -> str:
    """LLVM IR of the entries. The text depends on the arguments alone.

    Args:
        entries: the functions wanted.
        target: the machine.
        grain: elements of cheap work below which no thread is started.
        math: where vector functions come from.
        parallel: the text that defines ``jitney_parallel`` (see ``threads.py``); empty: everything runs serially.
        calls: the text that defines what ``Call`` names (see ``shims.py``).

    Raises:
        BackendFailed: a kernel is not well formed; see ``Kernel.verify``.
    """
    module = Module(converts_halves=target.has("f16c") or not target.is_x86)
    module.include(parallel)
    module.include(calls)
    writer = _Writer(module, Machine(target, math), grain, bool(parallel))
    for entry in entries:
        writer.write(entry)
    return str(module)


class _Writer:
    """Writes entries; kernels that differ in names only are one function, given a table of buffers at each call."""

    def __init__(self, module: Module, machine: Machine, grain: int, parallel: bool) -> None:
        self.module = module
        self.machine = machine
        self.grain = grain
        self.parallel = parallel
        self.functions: dict[tuple[Kernel, tuple[Size, ...]], str] = {}

    def write(self, entry: Entry) -> None:
        """An entry and the kernels that are new."""
        sizes = tuple(entry.sizes)
        items = [self._kernel(item, sizes) if isinstance(item, Kernel) else item for item in entry.items]
        f = self.module.function(entry.name, [POINTERS, SIZES, THREADS], internal=False, result="i32")
        scope = Scope(
            f, self.machine, {}, lambda size: f.load(I64, f.element("i64", SIZES, number(sizes.index(size))), 8)
        )
        most = max((len(item[1]) for item in items if isinstance(item, tuple)), default=0)
        table = f.value(PTR, f"alloca ptr, i64 {max(most, 1)}, align 8")
        calls = [item for item in items if not isinstance(item, tuple)]
        call_writer = CallWriter(f, scope, calls, len(entry.made))
        made = {name: n for n, name in enumerate(entry.made)}

        def given(place: Place) -> Reg:
            return f.load(PTR, f.element("ptr", POINTERS, number(place.pointer)), 8)

        def pointer(name: str) -> Reg:
            place = entry.places[name]
            base = call_writer.memory(place.pointer) if place.made else given(place)
            return f.element("i8", base, scope.number(place.offset, no_value))

        for n, item in enumerate(items):
            if isinstance(item, Call):
                call_writer.write(item, pointer)
            elif isinstance(item, Make):
                call_writer.make(item, made[item.result.buffer], pointer, THREADS)
            else:
                function, names = item
                for slot, name in enumerate(names):
                    f.store(pointer(name), f.element("ptr", table, number(slot)), 8)
                f.run(function, table, SIZES, THREADS)
            for name in entry.dropped.get(n, ()):
                call_writer.drop(made[name])
        if entry.handed is not None:
            base = given(entry.handed[0])
            for slot, name in enumerate(entry.handed[1]):
                call_writer.hand_over(made[name], f.element("ptr", base, number(slot)))
        call_writer.finish(bool(calls))

    def _kernel(self, kernel: Kernel, sizes: tuple[Size, ...]) -> tuple[str, tuple[str, ...]]:
        """The function of a kernel, and the buffers for its table."""
        kernel.verify()  # what is not well formed would become code that runs
        plain, names = canonical(kernel)
        known = self.functions.get((plain, sizes))
        if known is not None:
            return known, names
        function = f"kernel{len(self.functions)}"
        places = {name: Place(slot, index(0)) for slot, name in enumerate(plain.buffers)}
        around = Surroundings(self.module, self.machine, places, sizes, self.grain, self.parallel)
        KernelWriter(around, replace(plain, nodes=kernel.nodes), function).write()
        self.functions[plain, sizes] = function
        return function, names
