"""What this machine offers, tried once in the process."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from jitney.cache.digest import digest
from jitney.cache.store import DiskCache, cache_folder
from jitney_llvm_cpu import shims
from jitney_llvm_cpu.engine import Engine
from jitney_llvm_cpu.onednn import linear_trial, native
from jitney_llvm_cpu.target import Target
from jitney_llvm_cpu.threads import threads
from jitney_llvm_cpu.vector_math import VectorMath


@dataclass(frozen=True)
class Machine:
    """The processor, functions of mathematics, how loops run in parallel (LLVM IR), and which operators C may call."""

    target: Target
    math: VectorMath
    parallel: str
    shims: frozenset[str]

    @property
    def text(self) -> str:
        """Equal for machines on which the same code was made."""
        return digest(self.target, self.parallel, sorted(self.shims))


@functools.cache
def machine(vector_bytes: int) -> Machine:
    """This one, with vectors of that many bytes; 0 for the best."""
    target = Target.host(vector_bytes)
    own = engine(vector_bytes, True, "")
    parallel = threads(own).ir
    callable_names = shims.shims(own).names | native.available(own, parallel) | linear_trial.available(own)
    return Machine(target, VectorMath(target, own), parallel, callable_names)


@functools.cache
def engine(vector_bytes: int, cache: bool, cache_dir: str) -> Engine:
    """What compiles and links for it."""
    folder = cache_folder("llvm_cpu", cache_dir) if cache else None
    return Engine(Target.host(vector_bytes), DiskCache(folder) if folder is not None else None)
