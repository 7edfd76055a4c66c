"""From a captured graph to the callable that emitted code calls: extensions, AOT for ATen backends, the backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import CodeType
from typing import Any

import torch
from torch import fx

from jitney import events, markers
from jitney.aot.backward import Backward
from jitney.aot.compiler import AotRequest, Run, backward_of, compile_graph
from jitney.aot.kept_half import read_half
from jitney.backends import Argument, BoundBackend, CompileRequest, Kind
from jitney.capture.emit import Emitted
from jitney.capture.graph_runner import checked_once, keeping_state
from jitney.errors import BackendFailed, JitneyError
from jitney.faults import raises_too
from jitney.pieces import Piece, cut, in_turn, places_of
from jitney.state import StateKeeper

# ``failed(error, blame, args, kwargs)``: a graph raised; ``blame`` is what to raise or say where the backend did it.
Failed = Callable[[Exception, BackendFailed | None, tuple[Any, ...], dict[str, Any]], Any]


def graph_function(
    backend: BoundBackend,
    emitted: Emitted,
    name: str,
    code: CodeType,
    failed: Failed,
    *,
    fullgraph: bool = False,
    whole: bool = False,
) -> Callable[..., Sequence[Any]]:
    """Compile the graph of one captured frame.

    Args:
        backend: what the user chose.
        emitted: the capture; its namespace gets the bare callable once the first result has been checked, and what to
            call if the graph raises.
        name: the user's function, for messages.
        code: where that function is.
        failed: what the frame does when the graph has raised.
        fullgraph, whole: see ``CompileRequest``.

    Raises:
        BackendFailed: the backend or an extension raised.
    """
    assert emitted.graph is not None
    as_captured = emitted.graph.forward
    stack = next((n.meta["user_stack"] for n in emitted.graph.graph.nodes if "user_stack" in n.meta), ())
    kind: Kind = "forward" if torch.is_grad_enabled() else "inference"
    arguments = tuple(Argument(*origin) for origin in emitted.origins)
    request = backend.request(kind, name, stack)
    request = dataclasses.replace(request, fullgraph=fullgraph, whole=whole, arguments=arguments)

    def graph_failed(error: Exception, inputs: tuple[Any, ...], /, *args: Any, **kwargs: Any) -> Any:
        ours = isinstance(error, JitneyError) or raises_too(as_captured, inputs)
        return failed(error, None if ours else backend.failure(error, request), args, kwargs)

    emitted.namespace["_failed"] = graph_failed
    if not emitted.op_count:
        return keeping_state(as_captured)
    place = (name, code.co_filename, code.co_firstlineno)
    events.emit(events.GraphCaptured(*place, emitted.graph, emitted.inputs))
    graph = backend.transform(emitted.graph, emitted.inputs, request)
    if events.detailed() and backend.transforms:
        events.emit(events.GraphCaptured(*place, graph, emitted.inputs, transformed=True))
    at = backend.split(graph, emitted.inputs, request, places_of)
    if at:
        compiled = _in_pieces(backend, cut(graph, emitted.inputs, arguments, at), request, code)
    else:
        compiled = _compiled(backend, graph, emitted.inputs, request, code)
    if emitted.changes_state:
        compiled = keeping_state(compiled)
    compiled = markers.marked(compiled, "run", name)
    namespace, count = emitted.namespace, emitted.outputs

    def check(outputs: Any) -> None:
        backend.reject_outputs(outputs, count, request)

    def settle(bare: Any) -> None:
        namespace["_graph"] = bare

    return checked_once(compiled, check, settle)


def _compiled(
    backend: BoundBackend, graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest, code: CodeType
) -> Callable[..., Sequence[Any]]:
    if backend.backend.level == "aten":
        return compile_graph(graph, inputs, aot_request(backend, request, code))
    return backend.compile(graph, inputs, request)


def _in_pieces(
    backend: BoundBackend, pieces: Sequence[Piece], request: CompileRequest, code: CodeType
) -> Callable[..., Sequence[Any]]:
    """Each piece compiled on its own, in torch's global state as the pieces before it leave it."""
    made = []
    keeper = StateKeeper()
    try:
        for number, piece in enumerate(pieces, 1):
            frame = f"{request.frame}, piece {number} of {len(pieces)}"
            kind: Kind = "forward" if torch.is_grad_enabled() else "inference"
            own = dataclasses.replace(request, kind=kind, frame=frame, whole=False, arguments=piece.arguments)
            made.append(_compiled(backend, piece.module, piece.inputs, own, code))
            piece.change_state()
    finally:
        keeper.restore()
    return in_turn(pieces, made, request.frame)


def aot_request(backend: BoundBackend, request: CompileRequest, code: CodeType) -> AotRequest:
    """What AOT is told of the backend and of the frame."""
    transforms = backend.aten_transforms()

    def compile_half(
        module: fx.GraphModule,
        inputs: Sequence[Any],
        kind: Kind,
        updates: Mapping[int, int],
        gradients: tuple[int, ...] = (),
        variant: Hashable = None,
    ) -> Callable[..., Any]:
        own = dataclasses.replace(request, kind=kind, updates=updates, gradients=gradients, variant=variant)
        return backend.compile(backend.transform(module, inputs, own, transforms), inputs, own)

    def watch(gradients: tuple[int, ...]) -> Callable[[], Run | None] | None:
        return backend.watch(dataclasses.replace(request, gradients=gradients))

    return AotRequest(
        backend=backend.name,
        compile_half=compile_half,
        decompositions=backend.decompositions(),
        frame=request.frame,
        location=(code.co_filename, code.co_firstlineno),
        reject=lambda reason: backend.reject(reason, request),
        failure=lambda error, kind: backend.failure(error, dataclasses.replace(request, kind=kind)),
        watch=watch,
    )


def backward_again(
    backend: BoundBackend,
    text: str,
    blobs: Sequence[bytes],
    places: Sequence[int | None],
    name: str,
    code: CodeType,
) -> Backward:
    """The backward of a graph that another process has compiled, from what it has kept of it; see ``Backward``."""
    half, saved = read_half(text, blobs)
    return backward_of(half, saved, places, aot_request(backend, backend.request("backward", name), code))
