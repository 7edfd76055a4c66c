"""Arithmetic of Python floats that a graph is given: Python does it, and a device gets all results in one tensor.

A learning rate that changes, or what an optimizer makes of its step counters, is a number on the host. Kernels of
another device cannot read it there, and a copy for each would wait for the device each time. What Python computes is
eager's number to the bit, raises what eager raises, and nothing of it is part of a recording of the device's work.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from jitney.torch_compat import torch_private
from jitney_lowering.aten.python_floats import BY_NAME, OPERATIONS
from jitney_lowering.host_calls import PREPARE, power
from jitney_lowering.rules import RULES

aten = torch.ops.aten
SIGNS: dict[Any, str] = {operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/"}


@dataclass(frozen=True)
class HostNumbers:
    """A graph whose numbers come in one tensor.

    Args:
        graph: without the arithmetic. Its last inputs are the tensor, and the numbers that operators get as they are.
        inputs: of that graph.
        source: Python text of ``prepare(inputs)``, which makes a list of the old graph's inputs one of the new
            graph's, and returns the numbers that are results.
        namespace: what the text needs.
        places: of these results, which the new graph leaves out.
    """

    graph: fx.GraphModule
    inputs: list[Any]
    source: str
    namespace: dict[str, Any]
    places: tuple[int, ...]


def host_numbers(
    graph: fx.GraphModule, inputs: Sequence[Any], pack: Callable[..., torch.Tensor], device: torch.device
) -> HostNumbers | None:
    """The graph with arithmetic of its float inputs taken out; None if there is nothing to take.

    Args:
        graph: see ``lower``; it stays as it is.
        inputs: see there.
        pack: ``pack(numbers, device)`` gives a tensor of float64.
        device: where the graph's kernels run.
    """
    placeholders = graph.graph.find_nodes(op="placeholder")
    pairs = enumerate(zip(placeholders, inputs, strict=True))
    given = {node: n for n, (node, value) in pairs if isinstance(value, torch.SymFloat)}
    mode = next((v.fake_mode for v in inputs if isinstance(v, torch_private.FakeTensor)), None)
    if not given or mode is None:
        return None
    split = _Split(given, {"_pack": pack, "_device": device})
    return split.made(graph, list(inputs), functools.partial(_packed, mode, device))


def _packed(mode: Any, device: torch.device, count: int) -> torch.Tensor:
    with mode:
        return torch.empty(count, dtype=torch.float64, device=device)


class _Split:
    def __init__(self, given: dict[fx.Node, int], namespace: dict[str, Any]) -> None:
        self.given = given
        self.namespace = namespace
        self.names = {node: f"a{n}" for node, n in given.items()}  # what Python computes, and its variable
        self.lines = [f"a{n} = inputs[{n}]" for n in given.values()]

    def made(
        self, module: fx.GraphModule, inputs: list[Any], packed_like: Callable[[int], torch.Tensor]
    ) -> HostNumbers:
        for node in module.graph.nodes:
            if self._is_computed(node):
                self._compute(node)
        users = {n: [user for user in n.users if user not in self.names] for n in self.names}
        packed = [n for n, each in users.items() if any(map(_reads_in_kernels, each))]
        plain = [n for n, each in users.items() if any(map(_takes_a_float, each))]
        self.lines.append(f"{' = '.join(f'inputs[{n}]' for n in self.given.values())} = 0.0")
        graph = fx.Graph()
        copies = {n: graph.node_copy(n) for n in module.graph.find_nodes(op="placeholder")}
        numbers: Any = None
        if packed:
            numbers = graph.placeholder("host_numbers")
            numbers.meta["val"] = packed_like(len(packed))
            inputs.append(numbers.meta["val"])
            self.lines.append(f"inputs.append(_pack([{', '.join(self.names[n] for n in packed)}], _device))")
        given = {n: graph.placeholder(f"host_{n.name}") for n in plain}
        for n, made in given.items():
            made.meta = dict(n.meta)
            inputs.append(n.meta["val"])
            self.lines.append(f"inputs.append({self.names[n]})")
        loaded = {n: _load(graph, numbers, at, n) for at, n in enumerate(packed)}
        for node in module.graph.nodes:
            if node.op in ("placeholder", "output") or node in self.names:
                continue
            own = given if _takes_a_float(node) else loaded
            copies[node] = graph.node_copy(node, lambda n, own=own: own.get(n) or copies[n])  # type: ignore[misc]
        return self._finished(module, graph, copies, inputs)

    def _is_computed(self, node: fx.Node) -> bool:
        """Can Python compute it?"""
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.SymFloat) or node.kwargs:
            return False
        if node.target not in OPERATIONS and getattr(node.target, "__name__", "") not in BY_NAME:
            return False
        return bool(node.args) and all(
            a in self.names if isinstance(a, fx.Node) else type(a) in (int, float) for a in node.args
        )

    def _compute(self, node: fx.Node) -> None:
        name = self.names[node] = f"h{len(self.names)}"
        if node.target in SIGNS:
            a, b = (self.names[n] if isinstance(n, fx.Node) else self._constant(n) for n in node.args)
            self.lines.append(f"{name} = {a} {SIGNS[node.target]} {b}")
            return
        target = power if node.target in (operator.pow, pow) else node.target
        function = f"_{getattr(target, '__name__', 'call')}"
        self.namespace[function] = target
        arguments = [self.names[a] if isinstance(a, fx.Node) else self._constant(a) for a in node.args]
        self.lines.append(f"{name} = {function}({', '.join(arguments)})")

    def _constant(self, number: Any) -> str:
        return f"({number!r})" if math.isfinite(number) else f"float('{number}')"

    def _finished(
        self, module: fx.GraphModule, graph: fx.Graph, copies: dict[fx.Node, fx.Node], inputs: list[Any]
    ) -> HostNumbers:
        """With results: those that Python knows are not the graph's."""
        results: Any = module.graph.output_node().args[0]
        own = {at: self.names[r] for at, r in enumerate(results) if isinstance(r, fx.Node) and r in self.names}
        graph.output(tuple([None if at in own else copies.get(r, r) for at, r in enumerate(results)]))
        self.lines.append(f"return ({''.join(f'{name}, ' for name in own.values())})")
        body = "".join(f"    {line}\n" for line in self.lines)
        return HostNumbers(
            fx.GraphModule(module, graph), inputs, f"def {PREPARE}(inputs):\n{body}", self.namespace, tuple(own)
        )


def _reads_in_kernels(user: fx.Node) -> bool:
    return user.op != "output" and not _takes_a_float(user)


def _takes_a_float(user: fx.Node) -> bool:
    """Does it run as a whole, with the number as it is?"""
    computes = user.target in RULES or isinstance(user.meta.get("val"), torch.SymFloat)
    return user.op == "call_function" and not computes


def _load(graph: fx.Graph, numbers: fx.Node, at: int, node: fx.Node) -> fx.Node:
    element = graph.call_function(aten.select.int, (numbers, 0, at))
    element.meta["val"] = numbers.meta["val"].select(0, at)
    made = graph.call_function(aten._local_scalar_dense.default, (element,))
    made.meta = dict(node.meta)
    return made
