"""What the backend found on this machine, and what it goes without: for a doctor, and for bug reports."""

from __future__ import annotations

import os
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
import torch

from jitney.cache.store import DiskCache, cache_folder
from jitney_llvm_cpu import math_trial
from jitney_llvm_cpu.engine import Engine
from jitney_llvm_cpu.shims import shims
from jitney_llvm_cpu.target import Target
from jitney_llvm_cpu.threads import threads
from jitney_llvm_cpu.vector_math import BYTES, FUNCTIONS, VectorMath


def report(cache_dir: str = "") -> dict[str, str]:
    """One line for each thing; what is wrong begins with ``no`` and says why.

    Runs every trial of which the folder has no verdict yet: some tenths of a second.

    Args:
        cache_dir: the option of this name.
    """
    target = Target.host()
    folder = cache_folder("llvm_cpu", cache_dir)
    engine = Engine(target, DiskCache(folder) if folder is not None else None)
    return {
        "llvm": f"{'.'.join(map(str, llvm.llvm_version_info))}, llvmlite {llvmlite.__version__}",
        "target": f"{target.triple}, {target.cpu}",
        "vectors": f"{target.vector_bytes} bytes" + (", fused multiply-add" if target.has_fma else ""),
        "threads": _threads(engine),
        "vector functions": _functions(engine),
        "matrix products": _products(engine),
        "cache": _cache(folder),
    }


def _threads(engine: Engine) -> str:
    found = threads(engine)
    if not found.parallel:
        return f"no parallel loops: {found.problem}"
    return f"{torch.get_num_threads()} of torch's own pool, {found.library or found.interface}"


def _functions(engine: Engine) -> str:
    math = VectorMath(engine.target, engine)
    sources: dict[str, list[str]] = {}
    for element, size in BYTES.items():
        for name in FUNCTIONS:
            source = math.call(name, element, engine.target.lanes(size)).source
            sources.setdefault(source, []).append(f"{name} of {element}")
    counts = ", ".join(f"{len(names)} from {source}" for source, names in sources.items())
    slow = f"; no vectors for {', '.join(sources['libm'])}" if "libm" in sources else ""
    failed = "".join(f"; no {symbol}: {problem}" for symbol, problem in math_trial.problems().items())
    return counts + slow + failed


def _products(engine: Engine) -> str:
    found = shims(engine)
    names = ", ".join(sorted(found.names))
    return (
        f"{names} from compiled code" + (f", {found.problem}" if found.problem else "")
        if names
        else (f"no calls from compiled code: {found.problem}")
    )


def _cache(folder: Path | None) -> str:
    if folder is None:
        return "no folder: the user has no home, and no cache_dir is set"
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return f"no writing to {folder}"
    try:
        entries = [entry.stat().st_size for entry in os.scandir(folder)]
    except FileNotFoundError:
        entries = []
    return f"{folder}: {len(entries)} files, {sum(entries) / 1e6:.1f} MB"
