"""From a captured graph to the function that stands for it: trace, cut, compile both halves, write the glue."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, Protocol

import torch
from torch import fx

from jitney import events
from jitney.aot.constants.host import fold_host_constants
from jitney.aot.constants.indices import slice_constant_indices
from jitney.aot.form import Form
from jitney.aot.freeze import freeze
from jitney.aot.functional import functional
from jitney.aot.partition.backward_forms import form_of, tangents_of
from jitney.aot.partition.cost import is_random, may_run_again
from jitney.aot.partition.cse import merge_equal
from jitney.aot.partition.min_cut import partition
from jitney.aot.partition.regions import compute_regions_again
from jitney.aot.partition.split import Half, Saved, backward_half, forward_half, keep_old_values
from jitney.aot.partition.undefined_gradients import without
from jitney.aot.runtime.backward import Backward, Tangent
from jitney.aot.runtime.backward_serialization import write_half
from jitney.aot.runtime.cut import Cut
from jitney.aot.runtime.glue import Glue
from jitney.aot.runtime.replay_safety import apart, of_graph
from jitney.aot.runtime.result_check import ANYTHING, checked
from jitney.aot.runtime.subclass_glue import WrappedGlue
from jitney.aot.signals import NotSplit
from jitney.aot.trace.joint import Joint, trace_joint
from jitney.backends.faults import captured_fallback, with_blame
from jitney.backends.undo import undoing
from jitney.config import config
from jitney.torch_compat.global_state import TRACING, without_anomaly_mode

HalfKind = Literal["inference", "forward", "backward"]


class CompileHalf(Protocol):
    """Hands one ATen graph to the backend."""

    def __call__(
        self,
        module: fx.GraphModule,
        inputs: Sequence[Any],
        kind: HalfKind,
        updates: Mapping[int, int],
        gradients: tuple[int, ...] = (),
        variant: Hashable = None,
        seen: int | None = None,
    ) -> Callable[..., Any]:
        """Returns a callable from the graph's inputs to its outputs.

        ``updates``: outputs that will be copied into an input; those that it fills itself are in its ``filled``.
        ``gradients``: of a backward, by output, the input of the captured graph whose gradient it is; empty where
        inputs are of subclasses. ``variant``: the form that an extension wants. ``seen``: a forward's plain outputs.
        """


class Run(Protocol):
    """One run of a training graph, as whoever watches it sees it."""

    @property
    def variant(self) -> Hashable:
        """Which form of the backward runs; None for the plain one."""

    def finished(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        """Told what a backward of another form computed, one per input of the captured graph; what autograd gets."""


class Watch(Protocol):
    """Asks whether somebody wants to be told of each run of a training graph."""

    def __call__(self, gradients: tuple[int, ...]) -> Callable[[], Run | None] | None:
        """``gradients``: the inputs of the captured graph that get one. What it returns is called at each forward."""


def _nobody(gradients: tuple[int, ...]) -> None:
    return None


@dataclass(frozen=True)
class Freezing:
    """What may be taken for constants.

    Args:
        constants: by input of the captured graph, the tensor.
        done: told the inputs whose numbers are in the graph now, and in a line what was done.
    """

    constants: Callable[[], Mapping[int, torch.Tensor]]
    done: Callable[[Sequence[int], str], None]


@dataclass(frozen=True)
class AotRequest:
    """What compiling a captured graph needs besides the graph.

    Args:
        backend: the backend's name, for messages.
        compile_half: hands a graph to the backend.
        decompositions: operators to be taken apart.
        frame: the user's function.
        location: its file and line.
        reject: ``reject(reason)`` raises what blames the backend.
        failure: ``failure(error, kind)`` is what blames the backend for what a compiled half raised.
        watch: see ``Watch``.
        freezing: what may be taken for constants, if the user wants that.
        captured_pass: gives the captured graph as the backend wishes it traced: of the module, its inputs, and what
            traces parts of it.
        joint_pass: changes the functional graph before it is cut.
        ahead: is the backward, for gradients of all results, compiled now rather than when it is first called?
        restarts: does the frame run eagerly where the graph raises ``faults.Unwritten``?
        undone: inputs whose writes are undone before that where the graph runs as it was captured.
    """

    backend: str
    compile_half: CompileHalf
    decompositions: Mapping[Any, Callable[..., Any]]
    frame: str
    location: tuple[str, int]
    reject: Callable[[str], None]
    failure: Callable[[Exception, HalfKind], Exception]
    watch: Watch = _nobody
    freezing: Freezing | None = None
    captured_pass: Callable[[fx.GraphModule, Sequence[Any], Callable[..., Any]], fx.GraphModule] | None = None
    joint_pass: Callable[[fx.Graph], None] | None = None
    ahead: bool = False
    restarts: bool = False
    undone: tuple[int, ...] = ()


def compile_graph(module: fx.GraphModule, inputs: Sequence[Any], request: AotRequest) -> Callable[..., Sequence[Any]]:
    """A function from the captured graph's inputs to its outputs, whose gradients are the compiled backward's.

    Args:
        module: operations as the user called them; one tuple as output.
        inputs: FakeTensors and symbols, with the arguments' metadata from before the call.
        request: see there.

    A graph that functional graphs cannot express runs as it was captured, and a ``GraphKept`` event says why.
    """
    try:
        with TRACING, without_anomaly_mode(), events.phase("aot joint", request.frame):
            traced = module
            if request.captured_pass is not None:
                trace = functools.partial(functional, decompositions=request.decompositions)
                traced = request.captured_pass(module, inputs, trace)
            joint = trace_joint(traced, inputs, request.decompositions)
            if not torch.is_inference_mode_enabled() and any(inputs[u.input].is_inference() for u in joint.updates):
                raise NotSplit("a tensor of inference mode is written to outside of it")
    except NotSplit as refusal:
        filename, line = request.location
        events.emit(events.GraphKept(request.frame, filename, line, request.backend, refusal.reason))
        return module.forward
    if config.verify:
        joint.verify()
    if joint.layout is None:
        joint.rewrite(lambda graph: slice_constant_indices(graph, joint.constants, request.decompositions))
        joint.rewrite(lambda graph: fold_host_constants(graph, joint.constants))
        if request.joint_pass is not None:
            joint.rewrite(request.joint_pass)
        if config.verify:
            joint.verify()
    _show("joint", joint.graph, request)
    return _trained(module, inputs, joint, request) if joint.trains else _inferred(module, inputs, joint, request)


def _inferred(
    module: fx.GraphModule, inputs: Sequence[Any], joint: Joint, request: AotRequest
) -> Callable[..., Sequence[Any]]:
    merge_equal(joint)
    compute_regions_again(joint)
    half, _ = forward_half(joint, ())
    if request.freezing is not None:
        _freeze(half, joint, request.freezing)
    updates = _plain_updates(joint, half)
    forward = _compiled(half, "inference", len(half.outputs), request, updates)
    glue = _glue(joint, inputs, (), request)
    glue.filled = frozenset(getattr(forward, "filled", ())) & updates.keys()
    return _glued(glue, joint, forward, None, module, request)


def _freeze(half: Half, joint: Joint, freezing: Freezing) -> None:
    if joint.layout is not None:
        freezing.done((), "not frozen: it has tensors of a subclass")
        return
    written = {u.input for u in joint.updates}
    folded = freeze(half, {i: t for i, t in freezing.constants().items() if i not in written})
    freezing.done(
        folded.used,
        f"{folded.computed} values computed from {len(folded.used)} parameters and buffers, "
        f"{folded.merged} operations merged into weights",
    )


def _plain_updates(joint: Joint, half: Half) -> dict[int, int]:
    """Outputs that are copied into inputs of their layout, and used for nothing else."""
    if joint.layout is not None:
        return {}
    found = {}
    for u in joint.updates:
        if u.at is None or u.silent or u.tracked or u.geometry is not None:
            continue
        new, old = half.outputs[u.at], half.inputs[u.input]
        if new.dtype is old.dtype and new.shape == old.shape and new.stride() == old.stride():
            found[u.at] = u.input
    return found


def _trained(
    module: fx.GraphModule, inputs: Sequence[Any], joint: Joint, request: AotRequest
) -> Callable[..., Sequence[Any]]:
    if request.freezing is not None:
        request.freezing.done((), "not frozen: it trains (torch.no_grad() and eval() make it an inference graph)")
    again = of_graph(module, joint)
    with events.phase("aot partition", request.frame):
        cut = partition(joint, config.activation_memory_budget)
        keep_old_values(joint, cut)
        cut.saved += [n for n in joint.symbols if n not in cut.saved]  # the sizes of tangents that do not come
        if config.verify:
            cut.verify(joint)
        first, saved = forward_half(joint, cut.saved)
        second = backward_half(joint, cut)
    forward = _compiled(first, "forward", len(joint.outputs), request)
    order = iter(range(len(joint.gradients)))
    places = [None if g is None else next(order) for g in joint.gradients]

    plain = joint.layout is None
    gradients = tuple(i for i, at in enumerate(places) if at is not None) if plain else ()
    backward = backward_of(second, len(cut.saved), places, request, gradients)
    glue = _glue(joint, inputs, saved, request)
    glue.again = again
    if joint.intermediates:
        glue.cut = Cut(joint, *_cut_backward(second, joint, backward, request, gradients), apart(again, module, joint))
    glue.started = request.watch(gradients) if plain else None
    if request.ahead:
        backward.compile()
    return _glued(glue, joint, forward, backward, module, request)


def backward_of(
    half: Half,
    saved: int,
    places: Sequence[int | None],
    request: AotRequest,
    gradients: tuple[int, ...] = (),
    form: Form = "whole",
) -> Backward:
    """What the engine calls for a backward graph, which is compiled when it does.

    Args:
        half: saved tensors, saved numbers and tangents in, gradients out; see ``backward_forms``.
        saved: how many of its inputs are saved values.
        places: see ``Backward``.
        request: the forward's.
        gradients: see ``CompileHalf``.
        form: of the graph.
    """

    @functools.cache
    def whole() -> Half:
        return form_of(half, saved, form)

    def reduced(absent: tuple[int, ...]) -> Half:
        return without(whole(), saved, absent) if absent else whole()

    def module(absent: tuple[int, ...]) -> fx.GraphModule:
        return reduced(absent).module

    if form == "between":  # much of which runs as it is
        module = functools.cache(module)

    number = events.subject()

    def compile_absent(absent: tuple[int, ...], variant: Hashable = None) -> Callable[..., Sequence[Any]]:
        part = reduced(absent)
        plain = part.module.forward
        compile_half = functools.partial(request.compile_half, gradients=gradients, variant=variant)
        if variant is not None:  # where there is no gradient, it may make one
            part = replace(part, outputs=[ANYTHING if value is None else value for value in part.outputs])
        with events.compiling(number):
            made = _compiled(part, "backward", len(part.outputs), replace(request, compile_half=compile_half))
        if variant is not None:  # what it does besides may fail, and the plain graph would not tell
            return made
        blamed = with_blame(made, plain, lambda error: request.failure(error, "backward"))
        blamed.boxed = made.boxed  # type: ignore[attr-defined] # what it read may be gone when it raises: nobody is blamed
        return blamed

    tangents = [Tangent.of(example) for example in tangents_of(half, saved, form)]
    return Backward(tangents, places, compile_absent, module, lambda: write_half(half, saved), request.frame, form)


def _cut_backward(
    half: Half, joint: Joint, backward: Backward, request: AotRequest, gradients: tuple[int, ...]
) -> tuple[Backward, Backward]:
    """The same backward below intermediates, and between them; the graph that is stored is written once for all."""
    backward.text = functools.cache(backward.text)
    saved = len(half.inputs) - len(joint.tangents)
    places = [*[None] * len(joint.gradients), *range(len(joint.intermediates))]
    below = backward_of(half, saved, backward.places, request, gradients, "below")
    between = backward_of(half, saved, places, request, form="between")
    below.text = between.text = backward.text
    return below, between


def _compiled(
    half: Half, kind: HalfKind, seen: int, request: AotRequest, updates: Mapping[int, int] = MappingProxyType({})
) -> Callable[..., Sequence[Any]]:
    _show(kind, half.module.graph, request)
    made = request.compile_half(half.module, half.inputs, kind, updates, seen=seen if kind == "forward" else None)
    return checked(made, half.outputs, seen, lambda reason: request.reject(f"{reason} (in its {kind} graph)"))


def _devices(node: fx.Node) -> set[torch.device]:
    """Where an operator computes: of its results, and of the tensors that it is given."""
    found = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    each = [v for value in found for v in (value if isinstance(value, (list, tuple)) else [value])]
    return {value.device for value in each if isinstance(value, torch.Tensor)}


def _glued(
    glue: Glue,
    joint: Joint,
    forward: Callable[..., Sequence[Any]],
    backward: Callable[..., Any] | None,
    module: fx.GraphModule,
    request: AotRequest,
) -> Callable[..., Sequence[Any]]:
    kind: HalfKind = "forward" if joint.trains else "inference"
    if joint.updates and all(map(may_run_again, joint.graph.nodes)):
        glue.draws = sorted({str(d) for n in joint.graph.nodes if is_random(n) for d in _devices(n)})
        glue.failed = captured_fallback(module.forward, lambda error: request.failure(error, kind), request.restarts)
    with events.phase("aot glue", request.frame):
        eagerly = undoing(module.forward, request.undone) if request.undone else module.forward
        run = glue.build(forward, backward, eagerly)
    events.emit(events.Artefact("aot_wrapper", request.frame, request.backend, glue.source))
    return run


def _glue(joint: Joint, inputs: Sequence[Any], saved: Sequence[Saved], request: AotRequest) -> Glue:
    kind = Glue if joint.layout is None else WrappedGlue
    return kind(joint, inputs, saved, request.frame, _autocast())


def _autocast() -> bool:
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    return any(torch.is_autocast_enabled(d) for d in devices)


def _show(name: str, graph: fx.Graph, request: AotRequest) -> None:
    events.emit(events.AtenGraph(name, request.frame, request.backend, graph))
