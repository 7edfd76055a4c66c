"""What directives mean in code that is being captured."""

from __future__ import annotations

from typing import Any

from jitney.capture.directives import (
    BREAKS,
    graph_break,
    is_compiling,
    is_dynamo_compiling,
    mark_dynamic,
    mark_static,
    maybe_mark_dynamic,
)
from jitney.capture.interpreter.signals import Break
from jitney.capture.python import attributes
from jitney.capture.tables import FunctionTable

special = FunctionTable()


@special(graph_break)
def _graph_break(vm: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    raise Break("graph_break() is called")


@special(is_compiling, is_dynamo_compiling)
def _is_compiling(vm: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    return True


@special(mark_dynamic, maybe_mark_dynamic, mark_static)
def _mark_inside(vm: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    raise Break("mark_dynamic or mark_static is called inside compiled code", "call it on the inputs, outside")


def breaks_are_errors(vm: Any) -> bool | None:
    """What ``error_on_graph_break`` says where capture is; None: nothing. Guarded."""
    found = attributes.load_attr(vm, BREAKS, "error")
    return None if found is None else bool(found)
