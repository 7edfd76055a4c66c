"""The hooks that extensions implement. They grow by optional arguments; a removal raises ``HOOK_API_VERSION``.

An extension is a module or object named by an entry point of the group ``jitney.extensions``. It says which version it
was written for, and implements what it likes, with the arguments it likes:

    from jitney.backends import hookimpl

    jitney_hook_api = 1

    @hookimpl
    def jitney_observe(event):
        print(event)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pluggy
from torch import fx

from jitney import events
from jitney.backends.backend import CompileRequest

PROJECT = "jitney"
HOOK_API_VERSION = 1

_hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Hooks:
    """Every hook there is."""

    @_hookspec
    def jitney_observe(self, event: events.Event) -> None:
        """Called with each event of compiling (see ``jitney.events``), in the thread that compiles.

        An observer that raises is reported once and not called again.
        """

    @_hookspec
    def jitney_transform_graph(
        self, graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest
    ) -> fx.GraphModule | None:
        """Called before the backend; may return another graph of the same inputs and outputs, or None to leave it.

        Extensions run one after the other, each with the graph of the one before; the order is pluggy's
        (last registered first, ``tryfirst`` and ``trylast``). What it raises is raised as ``BackendFailed``.
        """
