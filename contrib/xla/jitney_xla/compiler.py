"""From an ATen graph to what runs it."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from jitney.backends import CompileRequest
from jitney_xla import engine
from jitney_xla.form import Form
from jitney_xla.options import XlaOptions
from jitney_xla.rules.views import VIEWS
from jitney_xla.sizes import NotHere, is_symbolic, key_of
from jitney_xla.supported import is_size


def compile_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest
) -> Callable[..., Sequence[Any]]:
    """XLA's code for the graph; see ``Backend``. One that only takes views runs as it is: XLA would copy."""
    if all(_is_free(node) for node in graph.graph.nodes):
        request.lowered(0, [("the whole graph", "it computes nothing")])
        return graph.forward
    if engine.forked():
        request.lowered(0, [("the whole graph", "this is a forked process, without XLA's threads")])
        return graph.forward
    return Runner(graph, inputs, request)


def _is_free(node: fx.Node) -> bool:
    return node.op != "call_function" or node.target in VIEWS or node.target is operator.getitem or is_size(node)


class Runner:
    """Runs a graph, in one form or in as many as sizes come.

    Args:
        graph: whose nodes ``supports`` has taken.
        inputs: FakeTensors and symbolic sizes.
        request: the options, and whom to tell.
    """

    def __init__(self, graph: fx.GraphModule, inputs: Sequence[Any], request: CompileRequest) -> None:
        options: XlaOptions = request.options
        self.graph, self.limit = graph, options.max_sizes
        self.forms: dict[tuple[Any, ...], Form | None] = {}
        self.lock = threading.Lock()
        self.reason = ""
        self.dynamic = any(is_symbolic(i) for i in inputs)
        if self.dynamic:
            return
        made = self._form((), inputs)
        if made is None:
            request.lowered(0, [("the whole graph", self.reason)])
            return
        request.lowered(1, [])
        if request.detailed and made.code is not None:
            request.save("output_code", made.code.as_text())

    def __call__(self, *values: Any) -> Sequence[Any]:
        """The graph's outputs."""
        if not engine.forked():
            key = key_of(values) if self.dynamic else ()
            form = self.forms[key] if key in self.forms else self._form(key, values)
            results = form(values) if form is not None else None
            if results is not None:
                return results
        made: Sequence[Any] = self.graph.forward(*values)
        return made

    def _form(self, key: tuple[Any, ...], values: Sequence[Any]) -> Form | None:
        """The graph for these sizes; None where it runs operator by operator."""
        with self.lock:
            if key not in self.forms:
                if self.dynamic and len(self.forms) >= self.limit:
                    return None
                try:
                    self.forms[key] = Form(self.graph, values)
                except NotHere as refusal:
                    self.forms[key], self.reason = None, str(refusal)
            return self.forms[key]
