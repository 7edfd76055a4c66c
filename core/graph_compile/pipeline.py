"""From a captured graph to the callable that emitted code calls: extensions, AOT for ATen backends, the backend."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import CodeType
from typing import Any

import torch
from torch import fx

from jitney import events
from jitney._util import callers
from jitney.aot.compiler import AotRequest, Freezing, Run, backward_of, compile_graph
from jitney.aot.form import Form
from jitney.aot.runtime.backward import Backward
from jitney.aot.runtime.backward_serialization import read_half
from jitney.aot.runtime.result_check import ANYTHING, difference
from jitney.aot.trace.joint import CANNOT_TRACE
from jitney.aot.trace.sizes import unknown
from jitney.backends import Argument, BoundBackend, CompileRequest, Kind
from jitney.backends.backend_fields import PartFailed, guarded_rules
from jitney.backends.extension_calls import graph_check
from jitney.backends.faults import Unwritten, error_text, raises_too
from jitney.backends.hookspecs import GraphCheck
from jitney.backends.registry import registry
from jitney.backends.undo import undoing
from jitney.capture.codegen.emit import Emitted
from jitney.capture.codegen.graph_runner import checked_once, keeping_state
from jitney.config import config
from jitney.errors import AotError, BackendFailed, JitneyError
from jitney.graph_compile.branches import over_compiled
from jitney.graph_compile.data_sizes import around_captured, is_eager, is_sized
from jitney.graph_compile.masked_writes import without_masked_writes
from jitney.graph_compile.sized_graphs import SizedGraph, unknown_dims
from jitney.graph_compile.sized_serialization import read_graph
from jitney.graph_compile.subgraphs import Piece, cut, in_turn, may_write, places_of
from jitney.guards.frozen import can_freeze
from jitney.torch_compat import markers, torch_private
from jitney.torch_compat.global_state import StateKeeper

# ``failed(error, blame, args, kwargs)``: a graph raised; ``blame`` is what to raise or say where the backend did it.
Failed = Callable[[Exception, BackendFailed | None, tuple[Any, ...], dict[str, Any]], Any]
# ``frozen(tensors)``: the numbers of these are in a graph, so they must stay as they are.
Frozen = Callable[[Sequence[torch.Tensor]], None]
BUFFER = re.compile(r"\._buffers\['[^']*'\]$")  # how a buffer of a module is called


def graph_function(
    backend: BoundBackend,
    emitted: Emitted,
    name: str,
    code: CodeType,
    failed: Failed,
    *,
    fullgraph: bool = False,
    whole: bool = False,
    ahead: bool = False,
) -> Callable[..., Sequence[Any]]:
    """Compile the graph of one captured frame.

    Args:
        backend: what the user chose.
        emitted: the capture; its namespace gets the bare callable once the first result has been checked, and what to
            call if the graph raises.
        name: the user's function, for messages.
        code: where that function is.
        failed: what the frame does when the graph has raised.
        fullgraph, whole, ahead: see ``CompileRequest``.

    Raises:
        BackendFailed: the backend or an extension raised.
    """
    assert emitted.graph is not None
    as_captured = emitted.graph.forward
    stack = next((n.meta["user_stack"] for n in emitted.graph.graph.nodes if "user_stack" in n.meta), ())
    kind: Kind = "forward" if torch.is_grad_enabled() else "inference"
    arguments = tuple(Argument(*origin) for origin in emitted.origins)
    request = backend.request(kind, name, stack)
    request = dataclasses.replace(request, fullgraph=fullgraph, whole=whole, arguments=arguments, ahead=ahead)

    def graph_failed(error: Exception, inputs: tuple[Any, ...], /, *args: Any, **kwargs: Any) -> Any:
        if isinstance(error, Unwritten):
            return failed(error.error, None, args, kwargs)
        if isinstance(error, torch_private.STOPS_RECOMPUTATION):
            raise error
        ours = isinstance(error, JitneyError) or raises_too(as_captured, inputs)
        return failed(error, None if ours else backend.failure(error, request), args, kwargs)

    emitted.namespace.update(_failed=graph_failed, _unwritten=Unwritten)
    if not emitted.op_count:
        return keeping_state(as_captured)
    place = (name, code.co_filename, code.co_firstlineno)
    events.emit(events.GraphCaptured(*place, emitted.graph, emitted.inputs))
    expected = promised(emitted.graph) if backend.transforms else None
    graph = backend.transform(emitted.graph, emitted.inputs, request)
    if events.detailed() and backend.transforms:
        events.emit(events.GraphCaptured(*place, graph, emitted.inputs, transformed=True))
    if backend.backend.level == "aten" and not registry.changes_graphs():
        graph = without_masked_writes(graph)
    at = backend.split(graph, emitted.inputs, request, places_of)
    if backend.backend.level == "aten" and any(is_eager(n) or unknown(n) for n in graph.graph.nodes):
        at = around_captured(graph, at, places_of(graph, emitted.inputs))
    if at:
        frozen = emitted.freeze if _may_freeze(backend, graph, emitted.inputs, request) else None
        compiled = _in_pieces(backend, cut(graph, emitted.inputs, arguments, at), request, code, frozen)
    else:
        compiled = _compiled(backend, graph, emitted.inputs, request, code, emitted.freeze, emitted)
    if emitted.undone and (at or backend.backend.level != "aten" or getattr(compiled, "__self__", None) is not None):
        compiled = undoing(compiled, emitted.undone)  # which runs as captured, or in pieces
    if kind == "inference" or not registry.changes_graphs():
        for _, reference in emitted.origins:
            if reference is not None:
                reference.forget()
    if emitted.changes_state:
        compiled = keeping_state(compiled)
    compiled = markers.marked(compiled, "run", name)
    namespace, count = emitted.namespace, emitted.outputs

    def check(outputs: Any) -> None:
        backend.reject_outputs(outputs, count, request)
        wrong = expected and difference(outputs, expected, count)
        if wrong:
            backend.reject_transformed(wrong, request)

    def settle(bare: Any) -> None:
        namespace["_graph"] = bare

    return checked_once(compiled, check, settle)


def promised(graph: fx.GraphModule) -> list[Any]:
    """FakeTensors and numbers: what a captured graph returns."""
    returned: Any = graph.graph.output_node().args[0]
    return [v.meta.get("example_value", ANYTHING) if isinstance(v, fx.Node) else v for v in returned]


def _compiled(
    backend: BoundBackend,
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    request: CompileRequest,
    code: CodeType,
    frozen: Frozen | None,
    emitted: Emitted | None = None,
) -> Callable[..., Sequence[Any]]:
    wanted = config.repro_after or backend.own.crosscheck
    check = graph_check(graph, inputs, backend, request) if wanted else None
    if backend.backend.level == "aten":
        if any(map(is_eager, graph.graph.nodes)):
            opaque = any("opaque" in node.meta for node in graph.graph.nodes)
            reason = f"{'an operator' if opaque else 'control flow'} that looks at the values of tensors"
            where = (request.frame, code.co_filename, code.co_firstlineno, backend.name, reason)
            events.emit(events.GraphKept(*where))
            if registry.changes_graphs():  # an extension was told of this graph, and not of others within
                return graph.forward
            return over_compiled(graph, functools.partial(_branch, backend, request, code)).forward
        make = functools.partial(_through_aot, graph, inputs, backend, request, code, check, frozen, emitted)
    else:
        make = functools.partial(backend.compile, graph, inputs, request)
    return make() if check is None else check.compiled(make)


def _branch(
    backend: BoundBackend, request: CompileRequest, code: CodeType, graph: fx.GraphModule, inputs: Sequence[Any]
) -> Callable[..., Sequence[Any]]:
    """A branch or body of a control flow operator, as a graph of its own."""
    kind: Kind = "forward" if torch.is_grad_enabled() else "inference"
    arguments = tuple(Argument(f"an input of a branch, {number}") for number in range(len(inputs)))
    frame = f"{request.frame}, branch"
    own = dataclasses.replace(request, kind=kind, frame=frame, whole=False, arguments=arguments)
    return _compiled(backend, graph, inputs, own, code, None)


def _through_aot(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    backend: BoundBackend,
    request: CompileRequest,
    code: CodeType,
    check: GraphCheck | None,
    frozen: Frozen | None,
    emitted: Emitted | None,
) -> Callable[..., Sequence[Any]]:
    """A graph through AOT; what goes wrong there but for the backend is a bug of ours, and said to be one."""
    as_given = graph.forward
    try:
        with events.step(2, "aot", request.frame):
            asked = aot_request(backend, request, code, check)
            if emitted is not None and check is None:
                asked = dataclasses.replace(asked, restarts=emitted.restarts, undone=emitted.undone)
            if backend.own.freeze and frozen is not None:
                asked = dataclasses.replace(asked, freezing=_freezing(request, frozen))
            return compile_graph(graph, inputs, asked)
    except PartFailed as error:
        fault: JitneyError = error
    except JitneyError:
        raise
    except Exception as error:
        fault = AotError(
            f"a bug of jitney's while splitting the graph of {request.frame}: {type(error).__name__}: {error}",
            user_stack=request.user_stack,
            hint="config.suppress_errors = True runs such graphs as captured; please report it",
            command=backend.minifying("capture"),
        )
        fault.__cause__ = error
    if not config.suppress_errors:
        raise fault
    callers.warn(f"{error_text(fault)}\n(the graph runs as captured: config.suppress_errors)")
    where = (code.co_filename, code.co_firstlineno)
    events.emit(events.GraphKept(request.frame, *where, backend.name, fault.reason))
    return as_given


def _may_freeze(backend: BoundBackend, graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> bool:
    """Do the pieces of a graph see the tensors as they are now, before the first one has run?"""
    if not backend.own.freeze or not may_write(graph, inputs):
        return True
    request.tell("freeze", ["not frozen: an extension cuts it into pieces, and it writes to tensors"])
    return False


def _freezing(request: CompileRequest, frozen: Frozen) -> Freezing:
    """Parameters and buffers of modules, as constants."""
    arguments = request.arguments

    def constants() -> dict[int, torch.Tensor]:
        known = ((i, argument.tensor, argument.name) for i, argument in enumerate(arguments))
        return {i: t for i, t, name in known if t is not None and can_freeze(t) and _is_state(t, name)}

    def done(used: Sequence[int], told: str) -> None:
        frozen([tensor for i in used if (tensor := arguments[i].tensor) is not None])
        request.tell("freeze", [told])

    return Freezing(constants, done)


def _is_state(tensor: torch.Tensor, name: str) -> bool:
    return isinstance(tensor, torch.nn.Parameter) or BUFFER.search(name) is not None


def _in_pieces(
    backend: BoundBackend, pieces: Sequence[Piece], request: CompileRequest, code: CodeType, frozen: Frozen | None
) -> Callable[..., Sequence[Any]]:
    """Each piece compiled on its own, in torch's global state as the pieces before it leave it."""
    made: list[Callable[..., Sequence[Any]]] = []
    keeper = StateKeeper()
    try:
        for number, piece in enumerate(pieces, 1):
            frame = f"{request.frame}, piece {number} of {len(pieces)}"
            kind: Kind = "forward" if torch.is_grad_enabled() else "inference"
            own = dataclasses.replace(request, kind=kind, frame=frame, whole=False, arguments=piece.arguments)
            if backend.backend.level == "aten" and is_sized(piece.module) and not registry.changes_graphs():
                late = functools.partial(_late, backend, own, code)
                made.append(SizedGraph(piece.module, unknown_dims(piece.module), late))
            else:
                made.append(_compiled(backend, piece.module, piece.inputs, own, code, frozen))
            piece.change_state()
    finally:
        keeper.restore()
    return in_turn(pieces, made, request.frame)


def _late(
    backend: BoundBackend, request: CompileRequest, code: CodeType, graph: fx.GraphModule, inputs: Sequence[Any]
) -> Callable[..., Sequence[Any]]:
    """A piece whose sizes are known now that it runs."""
    kind: Kind = "forward" if torch.is_grad_enabled() else "inference"
    return _compiled(backend, graph, inputs, dataclasses.replace(request, kind=kind), code, None)


def sized_again(backend: BoundBackend, text: str, blobs: Sequence[bytes], name: str, code: CodeType) -> SizedGraph:
    """What another process has kept of a piece that is compiled when it runs."""
    graph, dims = read_graph(text, blobs)
    return SizedGraph(graph, dims, functools.partial(_late, backend, backend.request("inference", name), code))


def aot_request(
    backend: BoundBackend, request: CompileRequest, code: CodeType, check: GraphCheck | None = None
) -> AotRequest:
    """What AOT is told of the backend and of the frame; ``check``: what looks at the whole graph."""
    transforms = backend.aten_transforms()

    def compile_half(
        module: fx.GraphModule,
        inputs: Sequence[Any],
        kind: Kind,
        updates: Mapping[int, int],
        gradients: tuple[int, ...] = (),
        variant: Hashable = None,
        seen: int | None = None,
    ) -> Callable[..., Any]:
        own = dataclasses.replace(request, kind=kind, updates=updates, gradients=gradients, variant=variant, seen=seen)
        if check is not None:  # who compares results with eager's wants no input to be written to
            own = dataclasses.replace(own, updates={})
        module = backend.transform(module, inputs, own, transforms)
        make = functools.partial(backend.compile, module, inputs, own)
        return make() if check is None else check.half(module, inputs, own, make)

    def watch(gradients: tuple[int, ...]) -> Callable[[], Run | None] | None:
        if check is not None:  # what another form of the backward does besides, eager's does not
            return None
        return backend.watch(dataclasses.replace(request, gradients=gradients))

    bound = backend.parts[0] if backend.parts else backend  # operators are taken apart as the first one asks
    names = ", ".join(implementation.plugin_name for implementation in transforms)
    rewritten = f"; extensions may have rewritten it: {names}" if names else ""
    return AotRequest(
        backend=backend.name,
        compile_half=compile_half,
        decompositions=guarded_rules(backend.decompositions(request), bound.backend, request, CANNOT_TRACE),
        frame=request.frame,
        location=(code.co_filename, code.co_firstlineno),
        reject=lambda reason: backend.reject(f"{reason}{rewritten}", request),
        failure=lambda error, kind: backend.failure(error, dataclasses.replace(request, kind=kind)),
        watch=watch,
        captured_pass=functools.partial(backend.captured_pass, request),
        joint_pass=functools.partial(backend.joint_pass, request),
        ahead=request.ahead,
    )


def backward_again(
    backend: BoundBackend,
    text: str,
    blobs: Sequence[bytes],
    places: Sequence[int | None],
    name: str,
    code: CodeType,
    form: Form,
) -> Backward:
    """The backward of a graph that another process has compiled, from what it has kept of it; see ``Backward``."""
    half, saved = read_half(text, blobs)
    request = aot_request(backend, backend.request("backward", name), code)
    return backward_of(half, saved, places, request, form=form)
