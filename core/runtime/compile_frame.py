"""What a miss comes to: the frame is captured, the backend compiles its graph, and the emitted function is built."""

from __future__ import annotations

import functools
from typing import Any

from jitney import events
from jitney.capture import marks
from jitney.capture.codegen.call_through import CallThrough
from jitney.capture.codegen.emit import build_function
from jitney.capture.convert import Captured, Settings, capture
from jitney.capture.handlers import compile_inside, handlers
from jitney.capture.interpreter.signals import GiveUp
from jitney.capture.torch import lazy_modules
from jitney.config import config
from jitney.errors import JitneyError, Unsupported
from jitney.graph_compile.data_sizes import takes_data_sizes
from jitney.graph_compile.pipeline import graph_function
from jitney.guards.reentry import watch_reentry
from jitney.runtime.continuation import run_continuations
from jitney.runtime.entry import CaptureFault, CodeEntries, Entry
from jitney.torch_compat import markers, torch_private
from jitney.torch_compat.default_device import lifted
from jitney.torch_compat.global_state import TRACING

for _function in marks.compile_functions:
    compile_inside(_function)

__all__ = ["CallThrough", "compile_frame"]


def compile_frame(
    owner: CodeEntries, arguments: dict[str, Any], cells: tuple[Any, ...], forms: int = 0, ahead: bool = False
) -> Entry:
    """One more entry, for a call with these arguments; for the same modules there are so many already (``forms``).

    ``ahead``: the call itself is yet to come.

    Raises:
        GiveUp: the frame must run eagerly.
        Unsupported: it breaks, under ``fullgraph``.
        BackendFailed: the backend or an extension raised.
        CaptureFault: a bug of ours.
    """
    session, target = owner.session, owner.target
    settings = Settings(
        dynamic_dims=owner.observed.dynamic_dims,
        foresee_sizes=owner.observed.foresee,
        dynamic_number=owner.observed.is_dynamic,
        steady=owner.observed.is_steady,
        make_point=owner.point,
        drive=run_continuations,
        through=owner.call_through(),
        handlers=handlers(),
        max_steps=config.max_trace_steps,
        has_regions=session.backend.backend.level == "aten",
        drops_gradients=session.backend.own.drop_grads,
        whole=session.fullgraph,
        foresees=session.fullgraph or forms < config.cache_size_limit // 2,
        takes_data_sizes=functools.partial(takes_data_sizes, session.backend),
    )
    try:
        with (
            events.step(1, "capture", target.name),
            TRACING,
            torch_private.without_saved_tensor_hooks(),
            events.phase("capture", target.name),
            watch_reentry(settings.handlers.modules) as watch,
        ):
            captured = capture(target, arguments, cells, settings)
    except (GiveUp, JitneyError):
        raise
    except Exception as error:
        raise CaptureFault(error, settings.fault_stack) from error
    try:
        return _compiled(owner, captured, watch.entered, ahead)
    except BaseException:
        lazy_modules.undo(captured.initialised)
        raise


def _compiled(owner: CodeEntries, captured: Captured, entered: str, ahead: bool) -> Entry:
    """What was captured as an entry, if it may break where it does."""
    session = owner.session
    if entered:
        captured.emitted.assumptions.keep_private(entered)
    refused = session.fullgraph if captured.error is None else captured.error
    if captured.graph_break is not None and refused:
        stop = captured.graph_break
        raise Unsupported(f"graph break: {stop.reason}", user_stack=stop.user_stack, hint=stop.hint)
    with lifted():
        entry = _finish(owner, captured, ahead)
    for mode in {v.fake_mode for v in captured.emitted.inputs if isinstance(v, torch_private.FakeTensor)}:
        torch_private.forget_reals(mode)
    captured.emitted.inputs.clear()
    return entry


def _finish(owner: CodeEntries, captured: Captured, ahead: bool) -> Entry:
    """Hand the graph to the backend and build the function."""
    emitted, target, code = captured.emitted, owner.target, owner.shown
    name = target.name
    if markers.wanted():
        emitted.namespace["_entered"] = markers.Marker("frame", name).instant
    if emitted.graph is not None:
        backend, fullgraph = owner.session.backend, owner.session.fullgraph
        whole = captured.graph_break is None and target.function is not None
        how = {"fullgraph": fullgraph, "whole": whole, "ahead": ahead}
        made = graph_function(backend, emitted, name, code, owner.failed, **how)
        emitted.namespace["_graph"] = made
    with events.phase("emit", name):
        emitted.add_size_guards()
        function = build_function(emitted, name)
        target.lend(function)
    events.emit(
        events.FrameCaptured(
            name=name,
            filename=code.co_filename,
            line=code.co_firstlineno,
            graph=emitted.graph if emitted.op_count else None,
            op_count=emitted.op_count,
            guards=(*(g.text for g in emitted.guards), *emitted.extra_guards),
            graph_break=captured.graph_break,
            seconds=captured.seconds,
            source=emitted.source,
            resumed=target.function is None,
        )
    )
    if captured.graph_break is not None:
        events.emit(captured.graph_break)
    return Entry(function, emitted, name)
