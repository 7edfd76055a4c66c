"""What attention does to the product of a query and a key before the softmax, as text: an argument of operators.

A score is a graph of ATen operators that compute element by element: scale, bias, mask, soft cap. Its text is JSON, of
which nothing is ever executed: names are looked up among torch's own operators.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from jitney.torch_compat import torch_private
from jitney.torch_compat.stand_ins.strides import StandInMode

NAMESPACES = ("aten", "prims")
_KINDS: dict[str, type] = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}


class NotSaid(Exception):
    """The text cannot say it; the reason."""


@dataclass(frozen=True)
class Score:
    """A graph over all queries and keys.

    Args:
        graph: placeholders are the products, float32 of size (..., M, N), then other tensors, then, if there is a
            gradient, that of the result. It returns what the softmax is taken of, and the gradient of the products if
            there is one, and of others.
        gradient: is there one?
        size, dtype: of what the softmax is taken of.
        safe: are weights zeros where all that it is taken of is minus infinity, and not nan?
        learned: which of the other tensors have a gradient, in the order of the graph's results.
    """

    graph: fx.Graph
    gradient: bool
    size: tuple[int, ...]
    dtype: torch.dtype
    safe: bool = False
    learned: tuple[int, ...] = ()

    def text(self) -> str:
        """The score as an operator's argument.

        Raises:
            NotSaid: an operator that is not torch's, or an argument that JSON has no words for.
        """
        numbers: dict[fx.Node, int] = {}
        calls = []
        results: list[Any] = []
        for node in self.graph.nodes:
            numbers[node] = len(numbers)
            if node.op == "call_function":
                calls.append([_name(node.target), _said(node.args, numbers), _said(dict(node.kwargs), numbers)])
            elif node.op == "output":
                results = [numbers[n] for n in node.args[0]]
            elif node.op != "placeholder":
                raise NotSaid(f"a {node.op}")
        inputs = len(self.graph.find_nodes(op="placeholder"))
        facts = (self.gradient, self.size, _said(self.dtype, numbers), self.safe, self.learned)
        return json.dumps([inputs, calls, results, *facts])

    @staticmethod
    def of(text: str) -> Score:
        """The score that has this text; ``ValueError`` if none has."""
        try:
            inputs, calls, results, gradient, size, dtype, safe, learned = json.loads(text)
            graph = fx.Graph()
            nodes = [graph.placeholder(f"given{n}") for n in range(inputs)]
            for name, args, kwargs in calls:
                nodes.append(graph.call_function(_operator(name), tuple(_meant(args, nodes)), _meant(kwargs, nodes)))
            graph.output(tuple(nodes[n] for n in results))
            facts = (tuple(map(int, size)), _meant(dtype, nodes), bool(safe), tuple(map(int, learned)))
            return Score(graph, bool(gradient), *facts)
        except (TypeError, LookupError, AttributeError, ValueError) as error:
            raise ValueError(f"no score: {text[:100]!r}") from error

    @property
    def result(self) -> torch.Tensor:
        """A tensor such as the softmax is taken of, without memory."""
        return torch.empty(self.size, dtype=self.dtype, device="meta")

    def filled(self, inputs: Sequence[torch.Tensor], device: torch.device) -> fx.GraphModule:
        """The graph as backends take it, without gradients of others: with a stand-in in ``meta["val"]`` of each node.

        Args:
            inputs: tensors such as its own, of any device.
            device: of all stand-ins.
        """
        graph = self._part(0, 1 + self.gradient, device)
        given = iter(inputs)
        with StandInMode(allow_non_fake_inputs=False), torch.no_grad():
            for node in graph.nodes:
                if node.op == "placeholder":
                    like = next(given)
                    node.meta["val"] = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device)
                elif node.op == "call_function":
                    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
                    node.meta["val"] = node.target(*args, **kwargs)
        return fx.GraphModule(torch.nn.Module(), graph)

    def of_learned(self, device: torch.device) -> fx.GraphModule:
        """From the same inputs, of this device, to the gradients of those that have one."""
        return fx.GraphModule(torch.nn.Module(), self._part(1 + self.gradient, None, device))

    def _part(self, begin: int, end: int | None, device: torch.device) -> fx.Graph:
        """Some of its results, on a device."""
        (output,) = self.graph.find_nodes(op="output")
        results = output.args[0][begin:end]
        needed, waiting = set(results), list(results)
        while waiting:
            sources = [n for n in waiting.pop().all_input_nodes if n not in needed]
            needed.update(sources)
            waiting += sources
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in self.graph.nodes:
            if node.op == "placeholder" or node in needed:
                copy = copies[node] = graph.node_copy(node, copies.__getitem__)
                if "device" in copy.kwargs:
                    copy.kwargs = {**copy.kwargs, "device": device}
        graph.output(tuple(copies[n] for n in results))
        return graph


def _name(target: Any) -> str:
    if not _is_overload(target):
        raise NotSaid(str(target))
    return f"{target.namespace}.{target._opname}.{target._overloadname}"


def _operator(name: str) -> Any:
    namespace, packet, overload = name.split(".")
    found = getattr(getattr(getattr(torch.ops, namespace), packet), overload) if namespace in NAMESPACES else None
    if not _is_overload(found):
        raise LookupError(name)
    return found


def _is_overload(target: Any) -> bool:
    """Is it one of torch's operators, with its types?"""
    known = isinstance(target, torch_private.OPERATOR_CLASSES) and hasattr(target, "_overloadname")
    return known and target.namespace in NAMESPACES


def _said(value: Any, numbers: dict[fx.Node, int]) -> Any:
    if isinstance(value, fx.Node):
        return {"is": "node", "value": numbers[value]}
    if isinstance(value, (list, tuple)):
        return [_said(v, numbers) for v in value]
    if isinstance(value, dict):
        return {name: _said(v, numbers) for name, v in value.items()}
    for kind, cls in _KINDS.items():
        if isinstance(value, cls):
            return {"is": kind, "value": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"is": "device", "value": None}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise NotSaid(f"a {type(value).__name__}")


def _meant(value: Any, nodes: Sequence[fx.Node]) -> Any:
    if isinstance(value, list):
        return [_meant(v, nodes) for v in value]
    if not isinstance(value, dict):
        return value
    if "is" not in value:
        return {name: _meant(v, nodes) for name, v in value.items()}
    kind, said = value["is"], value["value"]
    if kind == "node":
        return nodes[said]
    if kind == "device":
        return torch.device("meta")
    found = getattr(torch, said)
    if not isinstance(found, _KINDS[kind]):
        raise LookupError(said)
    return found
