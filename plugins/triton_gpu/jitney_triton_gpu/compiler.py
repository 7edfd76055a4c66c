"""From an ATen graph to the function that runs it: lower, schedule, emit, compile, wrap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import fx

from jitney.backends import CompileRequest
from jitney.lowering import GPU, NotLowered, Wrapper, decompositions, lower, schedule
from jitney.lowering.loops import Computed, Extern, Program
from jitney_triton_gpu.device import DEVICE_TYPES, Memory, on_device
from jitney_triton_gpu.launcher import Launcher
from jitney_triton_gpu.options import TritonGpuOptions


def compile_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest
) -> Callable[..., Sequence[Any]]:
    """The function of one graph; see ``Backend``."""
    options: TritonGpuOptions = request.options
    try:
        program = lower(graph, inputs, relaxed_math=options.relaxed_math, policy=GPU)
        numbers_on_device(program)
        made = schedule(program, request.updates, policy=GPU)
        launcher = Launcher(made, request.frame, options)
        wrapper = Wrapper(made, launcher, request.frame, Memory, launcher.device, launcher.refuse)
        run = wrapper.build()
    except NotLowered as refusal:
        request.lowered(0, [("the whole graph", str(refusal))])
        return graph.forward
    externs = [(str(item.target), item.reason) for item in made.items if isinstance(item, Extern)]
    request.lowered(len(made.items) - len(externs), externs)
    if options.dump:
        request.save("output_code", f"{program}\n\n{made}\n\n{launcher.source}\n\n{wrapper.source}\n")
    wrapper.namespace.update(launcher.link())
    return on_device(run, launcher.device)


def numbers_on_device(program: Program) -> None:
    """Numbers of Python's that the graph computes go where the rest is: kernels cannot reach the memory of the CPU."""
    devices = {b.device for b in program.buffers.values() if b.device.type in DEVICE_TYPES}
    if len(devices) != 1:
        return  # several are refused later
    (device,) = devices
    computed = {step.buffer for step in program.steps if isinstance(step, Computed)}
    computed |= {name for n in program.floats if isinstance(name := program.inputs[n], str)}
    for name in computed:
        buffer = program.buffers[name]
        if buffer.device.type not in DEVICE_TYPES:
            program.buffers[name] = replace(buffer, device=device)


def aten_decompositions(options: TritonGpuOptions) -> Mapping[Any, Callable[..., Any]]:
    """The operators that are taken apart."""
    return decompositions()
