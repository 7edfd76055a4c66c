"""From an ATen graph to the function that runs it: lower, schedule, emit, compile, wrap."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from jitney.backends import CompileRequest
from jitney_llvm_cpu import shims
from jitney_llvm_cpu.emit import Entry, Place, emit_module
from jitney_llvm_cpu.engine import Dump, Engine, Library
from jitney_llvm_cpu.machine import Machine, engine, machine
from jitney_llvm_cpu.memory_pool import memory
from jitney_llvm_cpu.onednn.convolutions import called_instead, with_packed_weights
from jitney_llvm_cpu.options import LlvmCpuOptions
from jitney_llvm_cpu.products import NATIVE, call_of, native_call, shims_of
from jitney_llvm_cpu.serialization import entries_of, keepable, raise_failed
from jitney_lowering import CPU, NotLowered, Wrapper, decompositions, describe, lower, schedule, sizes_in
from jitney_lowering.ir import Extern, Kernel

POLICY = replace(CPU, scatters_in_order=True)
FLOAT = 32  # bits


def compile_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest
) -> Callable[..., Sequence[Any]]:
    """The function of one graph; see ``Backend``."""
    options: LlvmCpuOptions = request.options
    if request.kind == "inference" and options.packed_weights:
        graph = with_packed_weights(graph)
    native = Native(options)
    policy = replace(POLICY, lone_images=native.machine.target.gathers(FLOAT))
    try:
        program = lower(graph, inputs, relaxed_math=options.relaxed_math, policy=policy, updates=request.updates)
    except NotLowered as refusal:
        request.lowered(0, [("the whole graph", str(refusal))])
        return graph.forward
    made = schedule(program, request.updates, native_call(native.machine.shims), policy=policy)
    wrapper = Wrapper(made, native, request.frame, memory, kind=request.kind, instead=called_instead)
    run = wrapper.build()
    externs = [item for item in made.items if isinstance(item, Extern)]
    whole = [(str(item.target), NATIVE if item.into else item.reason) for item in externs]
    request.lowered(len(made.items) - len(whole), whole)
    text = native.text()
    if options.dump or request.detailed:
        request.save("output_code", f"{program}\n\n{made}\n\n{wrapper.source}\n")
    if request.detailed:
        found = describe(made, inputs)
        request.scheduled(found.launches, found.arena, found.before, found.after)
        if not options.dump:
            request.save("llvm_ir", text)
    library = native.link(text, request.save if options.dump else None)
    names = [entry.name for entry in native.entries]
    if library is not None:
        wrapper.namespace.update(entries_of(library, names))
    return run if options.dump else keepable(run, wrapper.source, wrapper.allocation, names, library, options)


def aten_decompositions(options: LlvmCpuOptions) -> Mapping[Any, Callable[..., Any]]:
    """The operators that are taken apart."""
    return decompositions(fallback_random=options.fallback_random)


class Native:
    """Launches runs of kernels and matrix products as one native call each (a ``Launch``); code is made at the end."""

    def __init__(self, options: LlvmCpuOptions) -> None:
        self.options = options
        self.entries: list[Entry] = []

    @property
    def machine(self) -> Machine:
        """What this machine offers."""
        return machine(self.options.vector_bytes)

    def __call__(self, items: Sequence[Kernel | Extern], wrapper: Wrapper) -> list[str]:
        """Python lines that call the entry of these items."""
        run = [call_of(item, wrapper.program) if isinstance(item, Extern) else item for item in items]
        pointers: dict[str, int] = {}
        places: dict[str, Place] = {}
        for name in sorted({name for item in run for name in item.buffers}):
            address, offset = wrapper.place(name)
            places[name] = Place(pointers.setdefault(address, len(pointers)), offset)
        sizes = sizes_in(run, [place.offset for place in places.values()])
        entry = f"e{len(self.entries)}"
        self.entries.append(Entry(entry, run, places, sizes))
        pack = wrapper.constant(struct.Struct(f"{len(pointers)}q").pack)
        given = "b''"
        if sizes:
            given = f"{wrapper.constant(struct.Struct(f'{len(sizes)}q').pack)}({', '.join(map(wrapper.size, sizes))})"
        threads = wrapper.constant(torch.get_num_threads)
        text = f"{entry}({pack}({', '.join(pointers)}), {given}, {threads}())"
        return [f"if {text}: {wrapper.constant(raise_failed)}()" if shims_of(run) else text]

    def text(self) -> str:
        """LLVM IR of all entries."""
        here = self.machine
        calls = shims.ir(shims_of([item for entry in self.entries for item in entry.items]))
        return emit_module(
            self.entries,
            here.target,
            grain=self.options.grain,
            math=here.math,
            parallel=here.parallel,
            calls=calls,
        )

    def link(self, text: str, dump: Dump | None) -> Library | None:
        """The code of all entries; None without any."""
        if not self.entries:
            return None
        own = engine(self.options.vector_bytes, self.options.cache, self.options.cache_dir)
        if dump is not None:
            own = Engine(own.target, None, dump=dump)
        return own.compile(text)
