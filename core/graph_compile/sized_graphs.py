"""Graphs whose sizes nobody knows before they run, for backends that take ATen graphs: compiled when they first run.

What follows an operation whose results' sizes depend on data (a mask) is such a graph: its inputs' sizes are symbols,
as those of a frame called with sizes that change. What is taken for granted of them is checked at each call. Sizes 0
and 1, inputs of more than a few kinds, and unusual states of torch run the graph as it was captured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from jitney import events
from jitney._util import generated_code
from jitney._util.forks import reentrant_lock
from jitney.cache.recipes import Recipe, Writer
from jitney.capture.torch.symbols import Symbols
from jitney.graph_compile.branches import KINDS, Compile, Run, state_now
from jitney.graph_compile.sized_serialization import write_graph
from jitney.graph_compile.subgraphs import operation_result
from jitney.guards import Pool, Source
from jitney.torch_compat import torch_private
from jitney.torch_compat.default_device import lifted
from jitney.torch_compat.global_state import TRACING

_counter = itertools.count()


class SizedGraph:
    """A part of a captured graph.

    Args:
        graph: as it was captured.
        dims: of each input, which of its sizes are not known; None for a number.
        compile_graph: makes a function of a graph and FakeTensors for its inputs; called when it runs.
    """

    def __init__(self, graph: fx.GraphModule, dims: Sequence[Any], compile_graph: Compile) -> None:
        self.graph = graph
        self.dims = dims
        self.compile_graph = compile_graph
        self.made: list[tuple[Callable[..., bool], Run]] = []
        self.lock = reentrant_lock()
        self.number = events.subject()

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        """The results."""
        state = state_now()
        for holds, run in self.made:
            if holds(state, *inputs):
                return run(*inputs)
        return self._grown(state, inputs)(*inputs)

    def _grown(self, state: Any, inputs: tuple[Any, ...]) -> Run:
        if state is None or len(self.made) >= KINDS or not all(map(_is_usual, inputs, self.dims)):
            return self.graph.forward
        with self.lock, TRACING, lifted(), events.compiling(self.number):
            made = _Compilation(self.graph, self.dims, inputs)
            run = self.compile_graph(made.graph, made.inputs) if made.traced() else self.graph.forward
            self.made.append((made.check(state), run))
            torch_private.forget_reals(made.symbols.fake_mode)
            return run

    def _jitney_recipe(self, writer: Writer) -> Recipe:
        return write_graph(writer, self.graph, self.dims)


def _is_usual(value: Any, dims: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return type(value) is int and value > 1
    plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
    sizes = [n for n, unknown in zip(value.shape, dims, strict=True) if unknown]
    return plain and min(sizes, default=2) > 1 and not (value.is_conj() or value.is_neg() or value.is_inference())


def unknown_dims(graph: fx.GraphModule) -> list[list[bool] | None]:
    """Of each input of a captured graph, which of its sizes are symbols; None for a number."""
    values = [node.meta["example_value"] for node in graph.graph.find_nodes(op="placeholder")]
    return [[type(n) is torch.SymInt for n in v.shape] if _is(v) else None for v in values]


class _Compilation:
    """The graph on stand-ins for inputs of one kind, and what it takes for granted of them."""

    def __init__(self, graph: fx.GraphModule, unknown: Sequence[Any], inputs: Sequence[Any]) -> None:
        dims = {id(t): known for t, known in zip(inputs, unknown, strict=True)}
        self.real = inputs
        self.pool = Pool()
        self.symbols = Symbols(lambda real, source: dims[id(real)])
        self.sources = [Source(None, "local", f"a{i}") for i in range(len(inputs))]
        made = {id(v): self._stand_in(v, s) for v, s in zip(inputs, self.sources, strict=True) if _is(v)}
        self.inputs = [
            made[id(v)] if _is(v) else self.symbols.scalar(v, s) for v, s in zip(inputs, self.sources, strict=True)
        ]
        self.graph = fx.GraphModule(graph, fx.Graph())
        self.graph.graph.output(self.graph.graph.graph_copy(graph.graph, {}))
        self.graph.recompile()

    def _stand_in(self, value: Any, source: Source) -> Any:
        with torch_private.without_modes():
            return self.symbols.fake(value, source)

    def traced(self) -> bool:
        """Run the graph on the stand-ins; False where it asks for more than their sizes, or writes to them."""
        placeholders = self.graph.graph.find_nodes(op="placeholder")
        before = [t._version for t in self.inputs if isinstance(t, torch.Tensor)]
        with self.symbols.fake_mode:
            try:
                for node, value in zip(placeholders, self.inputs, strict=True):
                    node.meta["example_value"] = value
                for node in self.graph.graph.nodes:
                    if node.op not in ("placeholder", "output"):
                        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda a: a.meta["example_value"])
                        node.meta["example_value"] = operation_result(node, args, kwargs)
            except Exception:
                return False
        return before == [t._version for t in self.inputs if isinstance(t, torch.Tensor)]

    def check(self, state: Any) -> Callable[..., bool]:
        """``holds(state, *inputs)``: may the compiled graph be called?"""
        terms = ["s == _state"]
        for i, (value, fake) in enumerate(zip(self.real, self.inputs, strict=True)):
            name = f"a{i}"
            if not _is(value):
                terms.append(f"type({name}) is _int")
                continue
            terms.append(f"type({name}) is _types[{i}] and {name}.dim() == {value.dim()}")
            terms.append(f"{name}.dtype is _dtypes[{i}] and {name}.device == _devices[{i}]")
            terms.append(f"{name}.requires_grad is {value.requires_grad} and {name}.is_leaf is {value.is_leaf}")
            terms += [f"{name}.shape[{d}] == {n}" for d, n in enumerate(fake.shape) if type(n) is int]
            strides = self.symbols.strides(fake, self._name) or str(tuple(fake.stride()))
            terms.append(f"{name}.stride() == {strides}")
            terms.append(f"not ({name}.is_conj() or {name}.is_neg() or {name}.is_inference())")
        terms += self.symbols.guards(self._name)
        names = ", ".join(f"a{i}" for i in range(len(self.real)))
        text = f"def holds(s, {names}):\n    return " + " and ".join(f"({term})" for term in terms) + "\n"
        space = {
            "_state": state, "_int": int, "_math": math, "_torch": torch, "_types": [type(v) for v in self.real],
            "_dtypes": [getattr(v, "dtype", None) for v in self.real],
            "_devices": [getattr(v, "device", None) for v in self.real], **self.pool.namespace,
        }  # fmt: skip
        return generated_code.build(text, f"<jitney sizes {next(_counter)}>", space, "holds")

    def _name(self, source: Source) -> str:
        return source.path(self.pool)


def _is(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
