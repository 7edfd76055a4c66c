"""Kernels to the text of one module with one entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jitney.lowering.index import Size
from jitney.lowering.kernel import Kernel
from jitney_llvm_cpu.emit.kernels import THREADS, KernelWriter
from jitney_llvm_cpu.emit.scalars import Machine, Math
from jitney_llvm_cpu.emit.storage import Place, Surroundings
from jitney_llvm_cpu.emit.text import PTR, Module, Reg
from jitney_llvm_cpu.target import Target


def emit_module(
    kernels: Sequence[Kernel],
    places: Mapping[str, Place],
    sizes: Sequence[Size],
    target: Target,
    entry: str,
    *,
    grain: int,
    math: Math,
    parallel: str = "",
) -> str:
    """LLVM IR of the function ``void entry(ptr pointers, ptr sizes, i64 threads)``, which runs kernels in order.

    ``pointers`` is an array of addresses, ``sizes`` one of int64. The text depends on the arguments alone.

    Args:
        kernels: what to run.
        places: where each buffer from outside is.
        sizes: the symbolic sizes, in the order of the array.
        target: the machine.
        entry: the function's name.
        grain: elements of cheap work below which no thread is started.
        math: where vector functions come from.
        parallel: the text that defines ``jitney_parallel`` (see ``threads.py``); empty: everything runs serially.
    """
    module = Module()
    around = Surroundings(module, Machine(target, math), places, tuple(sizes), grain, bool(parallel))
    names = [f"{entry}.{number}" for number in range(len(kernels))]
    for kernel, name in zip(kernels, names, strict=True):
        KernelWriter(around, kernel, name).write()
    given = [Reg("%pointers", PTR), Reg("%sizes", PTR), THREADS]
    f = module.function(entry, given, internal=False)
    for name in names:
        f.run(name, *given)
    f.finish()
    return module.text(parallel)
