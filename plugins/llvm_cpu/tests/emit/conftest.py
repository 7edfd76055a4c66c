"""Kernels by hand, compiled and run on tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch

from jitney_llvm_cpu.emit import Entry, Place, emit_module
from jitney_llvm_cpu.engine import Engine
from jitney_llvm_cpu.target import Target
from jitney_llvm_cpu.threads import threads
from jitney_llvm_cpu.vector_math import VectorMath
from jitney_lowering.index import Size, index
from jitney_lowering.ir import Kernel


@cache
def _target(vector_bytes: int) -> Target:
    return Target.host(vector_bytes)


@dataclass(frozen=True)
class Compiled:
    """A module's text and its entry."""

    text: str
    names: tuple[str, ...]
    entry: Callable[..., None]

    def __call__(self, buffers: Mapping[str, torch.Tensor], sizes: Sequence[int] = (), threads: int = 1) -> None:
        """Runs it; ``buffers`` may be views, the first element is where an index of 0 is."""
        pointers = (ctypes.c_void_p * max(1, len(self.names)))(*[buffers[name].data_ptr() for name in self.names])
        self.entry(pointers, (ctypes.c_int64 * max(1, len(sizes)))(*sizes), threads)


def compiled(
    *kernels: Kernel, sizes: Sequence[Size] = (), grain: int = 1, vector_bytes: int = 0, without: Sequence[str] = ()
) -> Compiled:
    """Compiles kernels, each buffer behind a pointer of its own; the small grain lets small loops use threads.

    ``without``: features of the CPU that are not to be used.
    """
    target = _target(vector_bytes)
    for feature in without:
        target = replace(target, features=target.features.replace(f"+{feature}", f"-{feature}"))
    names = tuple(sorted({name for kernel in kernels for name in kernel.buffers}))
    places = {name: Place(k, index(0)) for k, name in enumerate(names)}
    engine = Engine(target)
    parallel = threads(engine).ir
    entry = Entry("entry", kernels, places, sizes)
    text = emit_module([entry], target, grain=grain, math=VectorMath(target), parallel=parallel)
    library = engine.compile(text)
    function = library.function("entry", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return Compiled(text, names, function)


@pytest.fixture(name="compiled", scope="session")
def _compiled() -> Callable[..., Compiled]:
    return compiled
