"""Kernels to the text of one module, with an entry for each run of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jitney.lowering.index import Size
from jitney.lowering.kernel import Kernel
from jitney_llvm_cpu.emit.kernels import THREADS, KernelWriter
from jitney_llvm_cpu.emit.scalars import Machine, Math
from jitney_llvm_cpu.emit.storage import Place, Surroundings
from jitney_llvm_cpu.emit.text import PTR, Module, Reg
from jitney_llvm_cpu.target import Target


@dataclass(frozen=True)
class Entry:
    """A function ``void name(ptr pointers, ptr sizes, i64 threads)`` that runs kernels in order.

    Args:
        name: the function's.
        kernels: what to run.
        places: where each buffer from outside is: ``pointers`` is an array of addresses.
        sizes: the symbolic sizes, in the order of the array ``sizes`` of int64.
    """

    name: str
    kernels: Sequence[Kernel]
    places: Mapping[str, Place]
    sizes: Sequence[Size] = ()


def emit_module(entries: Sequence[Entry], target: Target, *, grain: int, math: Math, parallel: str = "") -> str:
    """LLVM IR of the entries. The text depends on the arguments alone.

    Args:
        entries: the functions wanted.
        target: the machine.
        grain: elements of cheap work below which no thread is started.
        math: where vector functions come from.
        parallel: the text that defines ``jitney_parallel`` (see ``threads.py``); empty: everything runs serially.
    """
    module = Module()
    module.include(parallel)
    machine = Machine(target, math)
    for entry in entries:
        around = Surroundings(module, machine, entry.places, tuple(entry.sizes), grain, bool(parallel))
        names = [f"{entry.name}.{number}" for number in range(len(entry.kernels))]
        for kernel, name in zip(entry.kernels, names, strict=True):
            KernelWriter(around, kernel, name).write()
        given = [Reg("%pointers", PTR), Reg("%sizes", PTR), THREADS]
        f = module.function(entry.name, given, internal=False)
        for name in names:
            f.run(name, *given)
        f.finish()
    return str(module)
