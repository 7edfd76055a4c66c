"""From an ATen graph to the function that runs it: lower, schedule, emit, compile, wrap."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from jitney.backends import CompileRequest, warn
from jitney_lowering import (
    VIEWS,
    HostNumbers,
    Kernel,
    NotLowered,
    Schedule,
    Wrapper,
    describe,
    host_numbers,
    joined_checks,
    lower,
    needed_bytes,
    schedule,
)
from jitney_lowering.ir import Computed, Extern, Program
from jitney_triton_gpu import tiles
from jitney_triton_gpu.attention.kernels import INSTEAD, called_instead
from jitney_triton_gpu.cuda_graphs.recorded import LEAST, Traits, not_recorded_text
from jitney_triton_gpu.cuda_graphs.trial import TRAINING
from jitney_triton_gpu.device import DEVICE_TYPES, INTERPRETED, Memory, packed
from jitney_triton_gpu.failures import KernelFailed, first_line
from jitney_triton_gpu.launcher import Launcher, tuner_of
from jitney_triton_gpu.options import TritonGpuOptions
from jitney_triton_gpu.policy import POLICY
from jitney_triton_gpu.product_tuning import takes
from jitney_triton_gpu.retries import Retries
from jitney_triton_gpu.serialization import Made, finished


def compile_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest
) -> Callable[..., Sequence[Any]]:
    """The function of one graph; see ``Backend``.

    A kernel that Triton refuses is tried with other block sizes. Where we have no code for a kernel, each of its steps
    becomes one. Operators whose kernel cannot be made even so run as they are.
    """
    whole: dict[fx.Node, str] = {}
    apart: set[fx.Node] = set()
    retries = Retries()
    as_given = graph.forward
    graph = joined_checks(graph, request.updates, DEVICE_TYPES)
    numbers = _numbers(graph, inputs)
    if numbers is not None:
        graph, inputs = numbers.graph, numbers.inputs
    while True:
        try:
            return _compile(graph, inputs, request, whole, apart, retries, numbers)
        except KernelFailed as failed:
            if retries.refused(failed.shapes):
                continue
            if failed.error is not None:
                _complain(failed, failed.error, request)
            elif not apart.issuperset(failed.nodes):
                apart.update(failed.nodes)
                continue
            more = next_operators(failed.nodes, whole)
            reason = None if more else failed.reason
            whole |= dict.fromkeys(more, failed.reason)
        except NotLowered as refusal:
            reason = refusal.reason
        if reason is not None:
            request.lowered(0, [("the whole graph", reason)])
            return as_given


def _numbers(graph: fx.GraphModule, inputs: Sequence[Any]) -> HostNumbers | None:
    """The graph without arithmetic of numbers that it is given, which Python does."""
    devices = {
        t.device for n in graph.graph.nodes for t in _tensors(n.meta.get("val")) if t.device.type in DEVICE_TYPES
    }
    if len(devices) != 1:
        return None  # several are refused later
    return host_numbers(graph, inputs, packed, devices.pop())


def _tensors(value: Any) -> list[torch.Tensor]:
    several = value if isinstance(value, (list, tuple)) else [value]
    return [v for v in several if isinstance(v, torch.Tensor)]


def next_operators(nodes: Collection[fx.Node], whole: Container[fx.Node]) -> list[fx.Node]:
    """Which operators to leave to torch for a kernel of these: themselves, or what they read, if they are already."""
    seen: set[fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        several = [n for n in dict.fromkeys(waiting) if n not in seen and n.op == "call_function"]
        found = [n for n in several if n not in whole and n.target not in VIEWS and n.target is not operator.getitem]
        if found:
            return found
        seen.update(several)
        waiting = [i for n in several for i in n.all_input_nodes]
    return []


def _complain(failed: KernelFailed, error: Exception, request: CompileRequest) -> None:
    """Say once that Triton failed; raise it under ``fullgraph``."""
    if request.fullgraph:
        raise error
    repro = failed.repro()
    shown = f"; python {repro} repeats it" if repro else ""
    names = ", ".join(dict.fromkeys(str(n.target) for n in failed.nodes))
    warn(
        f"triton_gpu: Triton does not compile a kernel of {request.frame} ({first_line(error)}), "
        f"so {names or 'the graph'} run as operators of torch{shown}"
    )


def _compile(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    request: CompileRequest,
    whole: Mapping[fx.Node, str],
    apart: Collection[fx.Node],
    retries: Retries,
    numbers: HostNumbers | None,
) -> Callable[..., Sequence[Any]]:
    options: TritonGpuOptions = request.options
    program = lower(
        graph, inputs, relaxed_math=options.relaxed_math, policy=POLICY, whole=whole, updates=request.updates
    )
    numbers_on_device(program)
    tuner = tuner_of(program, request.frame, options)
    with tuner or contextlib.nullcontext():
        wanted = takes(program, options, tuner, whole.keys())
        memory: dict[str, Any] = {"large": tiles.LARGE, "dying": residuals(graph) if request.kind == "backward" else ()}
        made = schedule(program, request.updates, policy=POLICY, takes=wanted, apart=apart, **memory)
        launcher = Launcher(made, request.frame, options, tuner, retries)
        around = (Memory, launcher.device, launcher.refuse)
        wrapper = Wrapper(
            made, launcher, request.frame, *around, separate=True, kind=request.kind, instead=called_instead
        )
        run = wrapper.build()
    linked = launcher.link()
    externs = [(str(item.target), item.reason) for item in made.items if isinstance(item, Extern)]
    request.lowered(len(made.items) - len(externs), externs)
    if request.detailed:
        found = describe(made, inputs)
        request.scheduled(found.launches, found.arena, found.before, found.after)
    if numbers is not None:
        wrapper.source += numbers.source
        wrapper.namespace.update(numbers.namespace)
        exec(numbers.source, wrapper.namespace)
    if options.dump or request.detailed:
        request.save("output_code", f"{program}\n\n{made}\n\n{launcher.source}\n\n{wrapper.source}\n")
    wrapper.namespace.update(linked)
    traits = None if INTERPRETED or options.records is False else traits_of(wrapper, request)
    given = (wrapper.source, wrapper.namespace, wrapper.allocation)
    code = (launcher.module, launcher.functions, launcher.device)
    places = () if numbers is None else numbers.places
    return finished(run, Made(*given, *code, options.relaxed_math, traits, places), request)


def residuals(graph: fx.GraphModule) -> list[int]:
    """Positions of a backward's inputs that nobody else has: what the forward has computed for it."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return [n for n, node in enumerate(inputs) if node.meta.get("phase") == "forward" and "parameter" not in node.meta]


def traits_of(wrapper: Wrapper, request: CompileRequest) -> Traits | None:
    """What a recording of the graph has to know; None if it cannot be recorded, which is told."""
    made, automatic = wrapper.schedule, request.options.records is None
    if automatic and (len(made.items) < LEAST or wrapper.apart):
        return None
    reason = "it waits for the device" if ".item()" in wrapper.source else not_recorded(made, automatic)
    if wrapper.device.type == "cpu":
        reason = "its operators are on several devices"
    if reason:
        request.save("cudagraphs", not_recorded_text(request, reason))
        return None
    trains = request.kind != "inference"
    if automatic and trains and needed_bytes(made) > TRAINING:
        return None
    dynamic, multiplies = bool(made.program.sizes), any(_multiplies(item) for item in made.items)
    facts = (automatic, request.seen, trains, multiplies, 0 if dynamic else needed_bytes(made))
    return Traits(written_inputs(made), dynamic, len(made.items), *facts)


def _multiplies(item: Kernel | Extern) -> bool:
    """Does cuBLAS run it?"""
    return isinstance(item, Extern) and any(word in str(item.target) for word in ("mm.", "mv.", "dot."))


def not_recorded(made: Schedule, automatic: bool) -> str:
    """Why a graph cannot be recorded, as far as can be seen; empty if it seems that it can.

    Unless that was asked for, only torch's own operators are: nobody knows what others do besides at each call. Nor are
    those of linear algebra, which wait for the device here and there.
    """
    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    for item in made.items:
        if isinstance(item, Extern) and tags.intersection(getattr(item.target, "tags", ())):
            return f"the results of {item.target} depend on values"
        if isinstance(item, Extern) and str(item.target).startswith("_c10d_functional."):
            return "it has collectives, which wait for other processes"
        if isinstance(item, Extern) and automatic and not _is_plain(item.target):
            return f"nobody knows whether {item.target} can be"
    if any(buffer.device.type == "cpu" for buffer in made.program.buffers.values()):
        return "it uses memory of the CPU"
    return ""


def _is_plain(target: Any) -> bool:
    """Does an operator do nothing but launch kernels, every time the same for the same sizes?"""
    if target in INSTEAD:
        return True
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    return not any(word in target._opname for word in ("linalg", "cholesky", "lu_", "triangular", "ctc_loss", "rnn"))


def written_inputs(made: Schedule) -> frozenset[int]:
    """Positions of the graph's inputs that it writes to."""
    written = set(made.filled.values())
    for item in made.items:
        written |= item.written if isinstance(item, Extern) else item.writes
    return frozenset(n for n, name in enumerate(made.program.inputs) if name in written)


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
