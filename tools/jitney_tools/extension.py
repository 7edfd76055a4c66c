"""The tools' hooks, loaded at the first compile: what does the work is imported when a setting asks for it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from jitney import events
from jitney.backends import BisectReport, BoundBackend, CompileRequest, FailedFrame, GraphCheck, hookimpl, warn
from jitney.config import config

jitney_hook_api = 1


@hookimpl
def jitney_settings() -> Sequence[str]:
    """Those that are of no use without this extension."""
    return ("compile_debug", "repro_after", "replay_record_enabled", "watch")


@hookimpl
def jitney_observe(event: events.Event) -> None:
    """Write the event into the debug folder; tell who watches the process."""
    if config.compile_debug:
        _tool("debug_folder.folder").add(event)
    if config.watch:
        _tool("watch.publisher").note(event)


@hookimpl
def jitney_check_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], backend: BoundBackend, request: CompileRequest
) -> GraphCheck:
    """Look at the graph for the minifier, the cross-check or the bisection."""
    found: GraphCheck = _tool("graph_check").CheckedGraph(graph, inputs, backend, request)
    return found


@hookimpl
def jitney_capture_failed(frame: FailedFrame) -> None:
    """Write the frame down, if the user asks for records of such."""
    if not config.replay_record_enabled:
        return
    name = frame.code.co_name
    try:
        path = _tool("frame_record").write_record(frame)
    except Exception as problem:  # the program goes on as it would without a record
        warn(f"capture of {name} failed, and no record of it: {type(problem).__name__}: {problem}")
        return
    warn(f"capture of {name} failed; to capture it again elsewhere: jitney replay {path}")


@hookimpl
def jitney_bisect(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    backend: Any,
    options: Mapping[str, Any] | None,
) -> BisectReport:
    """Climb the ladder of backends."""
    found: BisectReport = _tool("bisect").bisect(function, args, kwargs, backend=backend, options=options)
    return found


def _tool(name: str) -> Any:
    return importlib.import_module(f"jitney_tools.{name}")
