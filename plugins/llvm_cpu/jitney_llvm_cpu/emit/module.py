"""Kernels to the text of one module, with an entry for each run of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jitney_llvm_cpu.emit.builder import I64, PTR, Function, Module, Reg, number
from jitney_llvm_cpu.emit.calls import DEFINED, DROP, HAND_OVER, Call, Make, tensors_of, unnamed, write_call
from jitney_llvm_cpu.emit.kernels import THREADS, KernelWriter
from jitney_llvm_cpu.emit.scalars import Machine, Math
from jitney_llvm_cpu.emit.scope import Scope
from jitney_llvm_cpu.emit.steps import Address, Base, Steps
from jitney_llvm_cpu.emit.storage import Place, Surroundings
from jitney_llvm_cpu.target import Target
from jitney_lowering.index import Index, Size, index
from jitney_lowering.ir import Kernel, canonical

POINTERS, SIZES = Reg("%pointers", PTR), Reg("%sizes", PTR)
ZERO = index(0)


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
    """Writes entries; kernels and calls that differ in names only are one function, given a table at each step."""

    def __init__(self, module: Module, machine: Machine, grain: int, parallel: bool) -> None:
        self.module = module
        self.machine = machine
        self.grain = grain
        self.parallel = parallel
        self.functions: dict[tuple[Kernel | Call | Make, tuple[Size, ...]], str] = {}

    def write(self, entry: Entry) -> None:
        """An entry, and the kernels and calls that are new."""
        sizes = tuple(entry.sizes)
        made = {name: n for n, name in enumerate(entry.made)}
        steps = Steps()

        def address(name: str, offset: Index = ZERO) -> Address:
            place = entry.places[name]
            base = Base.MEMORY if place.made else Base.GIVEN
            return Address(base, place.pointer, place.offset + offset)

        for n, item in enumerate(entry.items):
            if isinstance(item, Kernel):
                function, names = self._kernel(item, sizes)
                steps.add(function, [address(name) for name in names])
            else:
                places = [address(a.buffer, a.offset) for a in tensors_of(item)]
                if isinstance(item, Make):
                    places += [Address(Base.HANDLE, made[item.result.buffer])]
                    places += [address(item.state)] if item.state else []
                steps.add(self._call(item, sizes), places)
            for name in entry.dropped.get(n, ()):
                steps.add(self._once(DROP), [Address(Base.HANDLE, made[name])])
        if entry.handed is not None:
            room, handles = entry.handed
            for slot, name in enumerate(handles):
                to = Address(Base.GIVEN, room.pointer, room.offset + 8 * slot)
                steps.add(self._once(HAND_OVER), [Address(Base.HANDLE, made[name]), to])
        f = self.module.function(entry.name, [POINTERS, SIZES, THREADS], internal=False, result="i32")
        steps.write(f, self._scope(f, sizes), POINTERS, SIZES, THREADS, len(made))

    def _scope(self, f: Function, sizes: tuple[Size, ...]) -> Scope:
        def read(size: Size) -> Reg:
            return f.load(I64, f.element("i64", SIZES, number(sizes.index(size))), 8)

        return Scope(f, self.machine, {}, read)

    def _once(self, text: str) -> str:
        """The function that a text defines."""
        self.module.include(text)
        return DEFINED[text]

    def _call(self, call: Call | Make, sizes: tuple[Size, ...]) -> str:
        """The function of a call."""
        plain = unnamed(call)
        known = self.functions.get((plain, sizes))
        if known is not None:
            return known
        name = f"call{len(self.functions)}"
        f = self.module.function(name, [POINTERS, SIZES, THREADS], result="i32")
        write_call(f, self._scope(f, sizes), plain, POINTERS, THREADS)
        self.functions[plain, sizes] = name
        return name

    def _kernel(self, kernel: Kernel, sizes: tuple[Size, ...]) -> tuple[str, tuple[str, ...]]:
        """The function of a kernel, and the buffers for its table."""
        kernel.verify()  # what is not well formed would become code that runs
        plain, names = canonical(kernel)
        known = self.functions.get((plain, sizes))
        if known is not None:
            return known, names
        function = f"kernel{len(self.functions)}"
        places = {name: Place(slot, ZERO) for slot, name in enumerate(plain.buffers)}
        around = Surroundings(self.module, self.machine, places, sizes, self.grain, self.parallel)
        KernelWriter(around, replace(plain, nodes=kernel.nodes), function).write()
        self.functions[plain, sizes] = function
        return function, names
