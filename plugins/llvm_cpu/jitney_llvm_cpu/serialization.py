"""A compiled graph on its way to another process: the wrapper's text, what it names, and its object code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jitney.backends import CompileRequest, SerializedGraph, build_function
from jitney.cache.digest import NotStorable
from jitney.cache.recipes import Reader, Stale, Writer
from jitney_llvm_cpu.engine import Library
from jitney_llvm_cpu.failures import raise_failed
from jitney_llvm_cpu.machine import engine, machine
from jitney_llvm_cpu.memory_pool import memory
from jitney_llvm_cpu.options import LlvmCpuOptions

ARGUMENTS = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64)


def entries_of(library: Library, names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """The runs of kernels in a library, as functions by name."""
    return {name: library.function(name, *ARGUMENTS, result=ctypes.c_int32) for name in names}


def keep(
    source: str,
    namespace: Mapping[str, Any],
    allocation: Mapping[str, str],
    entries: Sequence[str],
    library: Library | None,
    options: LlvmCpuOptions,
) -> SerializedGraph:
    """What ``load`` makes the function again of.

    Args:
        source: the wrapper's text, which defines ``run``.
        namespace: its globals, after the first call.
        allocation: what it calls the functions of ``memory``, by name.
        entries: names of runs of kernels among them.
        library: where these are.
        options: what the user asked for.
    """
    cache = engine(options.vector_bytes, options.cache, options.cache_dir).cache
    image = cache.load(library.key) if cache is not None and library is not None else None
    if library is not None and image is None:
        raise NotStorable("llvm_cpu's object code, which is not on disk")
    known = {name: namespace[name] for name in (*allocation, *entries)}
    writer = Writer(known={**known, "raise_failed": raise_failed})
    space = writer.space(source, namespace)
    data = {
        "machine": machine(options.vector_bytes).text,
        "source": source,
        "space": space,
        "objects": writer.objects,
        "allocation": dict(allocation),
        "entries": list(entries),
        "key": library.key if library is not None else "",
    }
    return SerializedGraph(data, (image or b"", *writer.blobs))


def load(serialized: SerializedGraph, request: CompileRequest) -> Callable[..., Any]:
    """The function again; see ``Backend.load``."""
    options: LlvmCpuOptions = request.options
    data = serialized.data
    if data["machine"] != machine(options.vector_bytes).text:
        raise Stale("the machine has other vectors, threads or functions")
    image, *blobs = serialized.blobs
    known: dict[str, Any] = {name: getattr(memory, function) for name, function in data["allocation"].items()}
    library = None
    if image:
        library = engine(options.vector_bytes, options.cache, options.cache_dir).link(image, data["key"])
        known |= entries_of(library, data["entries"])
    namespace = Reader(data["objects"], blobs, {**known, "raise_failed": raise_failed}).space(data["space"])
    filename = f"<jitney kernels of {request.frame} {id(namespace):x}>"
    run = build_function(data["source"], filename, namespace, "run")
    return keepable(run, data["source"], data["allocation"], data["entries"], library, options)


def keepable(
    run: Any,
    source: str,
    allocation: Mapping[str, str],
    entries: Sequence[str],
    library: Library | None,
    options: LlvmCpuOptions,
) -> Callable[..., Any]:
    """The function of a wrapper, which knows how to be kept."""
    if "located" in run.__globals__:
        run.located = run.__globals__["located"]
    run.serialize = lambda: keep(source, run.__globals__, allocation, entries, library, options)
    made: Callable[..., Any] = run
    return made
