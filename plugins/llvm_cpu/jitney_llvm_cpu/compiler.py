"""From an ATen graph to the function that runs it: lower, schedule, emit, compile, wrap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from jitney.backends import CompileRequest
from jitney_llvm_cpu.attention import operators as attention
from jitney_llvm_cpu.launch import Native
from jitney_llvm_cpu.memory_pool import memory
from jitney_llvm_cpu.onednn import linear
from jitney_llvm_cpu.onednn.calls import is_called
from jitney_llvm_cpu.onednn.convolutions import called_instead, with_packed_weights
from jitney_llvm_cpu.onednn.matrices import with_products
from jitney_llvm_cpu.options import LlvmCpuOptions
from jitney_llvm_cpu.policy import POLICY
from jitney_llvm_cpu.products import NATIVE, native_call
from jitney_llvm_cpu.serialization import entries_of, keepable
from jitney_lowering import NotLowered, NotRepeated, Schedule, Wrapper, decompositions, describe, lower, schedule
from jitney_lowering.ir import Extern, Program

FLOAT = 32  # bits


def compile_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest
) -> Callable[..., Sequence[Any]]:
    """The function of one graph; see ``Backend``."""
    options: LlvmCpuOptions = request.options
    if request.kind == "inference":
        graph = with_products(graph)
        graph = with_packed_weights(graph) if options.packed_weights else graph
    native = Native(options)
    policy = replace(POLICY, lone_images=native.machine.target.gathers(FLOAT))
    names = native.machine.shims

    into, multiplies = native_call(names), native.multiplies

    def by_onednn(extern: Extern, program: Program) -> bool:
        return multiplies and linear.is_called(extern, program)

    def given(extern: Extern, program: Program) -> bool:
        return into(extern, program) and not by_onednn(extern, program)

    def fresh(extern: Extern, program: Program) -> bool:
        return is_called(extern, program, names) or by_onednn(extern, program)

    def scheduled(once: bool) -> tuple[Program, Schedule]:
        program = lower(
            graph, inputs, relaxed_math=options.relaxed_math, policy=policy, updates=request.updates, once=once
        )
        return program, schedule(program, request.updates, given, fresh, policy=policy)

    try:
        try:
            program, made = scheduled(options.layers_once)
        except NotRepeated:
            program, made = scheduled(False)
    except NotLowered as refusal:
        request.lowered(0, [("the whole graph", str(refusal))])
        return graph.forward
    located = [n for n, v in enumerate(inputs) if isinstance(v, torch.Tensor)] if request.updates else []
    wrapper = Wrapper(made, native, request.frame, memory, kind=request.kind, located=located, instead=_instead)
    run = wrapper.build()
    externs = [item for item in made.items if isinstance(item, Extern)]
    whole = [(str(item.target), NATIVE if item.launched else item.reason) for item in externs]
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
    entries = [entry.name for entry in native.entries]
    if library is not None:
        wrapper.namespace.update(entries_of(library, entries))
    return run if options.dump else keepable(run, wrapper.source, wrapper.allocation, entries, library, options)


def _instead(extern: Extern) -> Any:
    return called_instead(extern) or attention.called_instead(extern)


def aten_decompositions(options: LlvmCpuOptions) -> Mapping[Any, Callable[..., Any]]:
    """The operators that are taken apart."""
    return decompositions(fallback_random=options.fallback_random, relaxed_math=options.relaxed_math)
