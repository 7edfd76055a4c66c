"""Calls of torch's fused attention, written out: what is written out, a backend may take as one operator of its own.

It is asked for where few queries look at many keys, as in decoding.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from jitney.torch_compat import torch_private

ATTENTION = torch.nn.functional.scaled_dot_product_attention  # the original: programs may replace it
KEYS = 128  # fewest; of fewer nothing is won
_DEFAULTS: dict[str, Any] = {
    "query": None, "key": None, "value": None, "attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None,
    "enable_gqa": False,
}  # fmt: skip


def written_out(module: fx.GraphModule, most: int) -> tuple[fx.GraphModule, dict[fx.Node, fx.Node]]:
    """A copy of a captured graph with attention of few queries in inference written out beside each call.

    Args:
        module: operations as the program called them; not changed.
        most: queries of a matrix.

    Returns:
        the graph, and of each call the node that stands for its result now: whoever does not take what is written
        there puts the call back (``restore``).
    """
    calls = [node for node in module.graph.nodes if _Call.of(node, most) is not None]
    if not calls:
        return module, {}
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    made = graph.output(graph.graph_copy(module.graph, copies))
    for old in module.graph.find_nodes(op="output"):
        made.meta = dict(old.meta)
    results: dict[fx.Node, fx.Node] = {}
    for node in (copies[node] for node in calls):
        found = _Call.of(node, most)
        assert found is not None
        users = list(node.users)
        last = found.write(graph)
        for user in users:
            user.replace_input_with(node, last)
        results[node] = last
    return fx.GraphModule(module, graph), results


def restore(graph: fx.Graph, results: dict[fx.Node, fx.Node], taken: Set[fx.Node]) -> None:
    """Put back the calls of which nothing was taken; the others go.

    Args:
        graph: the one that ``written_out`` has made.
        results: what it has returned beside that.
        taken: operations that somebody else computes.
    """
    parts: dict[fx.Node, list[fx.Node]] = {call: [] for call in results}
    for node in graph.nodes:
        if node.meta.get(_OF) in parts:
            parts[node.meta[_OF]].append(node)
    for call, last in results.items():
        if not taken.isdisjoint(parts[call]):
            graph.erase_node(call)
            continue
        last.replace_all_uses_with(call)
        for node in reversed(parts[call]):
            graph.erase_node(node)


def is_call(node: fx.Node) -> bool:
    """Is it a part of a call that is written out?"""
    return _OF in node.meta


_OF = "attention_call"  # what a node is written out of


@dataclass(frozen=True)
class _Call:
    """A call, with stand-ins of what it is given."""

    node: fx.Node
    given: dict[str, Any]

    @staticmethod
    def of(node: fx.Node, most: int) -> _Call | None:
        """The call that a node is, if it may be written out."""
        if node.op != "call_function" or node.target is not ATTENTION or len(node.args) > len(_DEFAULTS):
            return None
        given = _DEFAULTS | dict(zip(_DEFAULTS, node.args, strict=False)) | dict(node.kwargs)
        result = node.meta.get("example_value")
        tensors = [_value(given[name]) for name in ("query", "key", "value")]
        if (
            len(given) > len(_DEFAULTS)
            or not isinstance(result, Tensor)
            or any(type(x) is not torch_private.FakeTensor for x in tensors)
        ):
            return None
        query, key, value = (x for x in tensors if x is not None)
        plain = type(given["scale"]) in (float, int, type(None)) and not given["is_causal"] and given["dropout_p"] == 0
        if not plain or result.requires_grad or any(x.dtype is not result.dtype for x in (query, key, value)):
            return None
        sizes = [n for x in (query, key, value) for n in (*x.shape, *x.stride())]
        if not all(isinstance(n, int) for n in sizes) or 0 in (*query.shape, *value.shape):
            return None
        if not 3 <= query.dim() == key.dim() == value.dim():
            return None
        if query.size(-2) > most or key.size(-2) < KEYS or query.shape[:-3] != key.shape[:-3]:
            return None
        heads, shared = query.size(-3), key.size(-3)
        grouped = bool(given["enable_gqa"]) and heads % shared == 0
        if key.shape[:-2] != value.shape[:-2] or (heads != shared and not grouped):
            return None
        mask = given["attn_mask"]
        if mask is None:
            return _Call(node, given)
        stand = _value(mask)
        if stand is None or not 2 <= stand.dim() <= query.dim() or stand.requires_grad:
            return None
        fits = all(n in (1, m) for n, m in zip(stand.shape, _scores(query, key)[-stand.dim() :], strict=True))
        return _Call(node, given) if fits and stand.dtype in (torch.bool, query.dtype) else None

    def write(self, graph: fx.Graph) -> fx.Node:
        """The same by two products and a softmax, after the call; the last node, which lies in memory as its result."""
        query, key, value = (self.given[name] for name in ("query", "key", "value"))
        heads, shared = _stand(query).size(-3), _stand(key).size(-3)
        rank, features = _stand(query).dim(), _stand(query).size(-1)
        mask = self.given["attn_mask"]
        writer = _Writer(graph, self.node)
        if heads != shared:
            query = writer.method("unflatten", query, -3, (shared, heads // shared))
            key, value = (writer.method("unsqueeze", x, -3) for x in (key, value))
            if mask is not None and _stand(mask).dim() > 2:
                each = _stand(mask).size(-3)
                parts = (1, 1) if each == 1 else (shared, heads // shared)
                mask = writer.method("unflatten", mask, -3, parts)
        products = writer.function(torch.matmul, query, writer.method("transpose", key, -2, -1))
        scale = self.given["scale"]
        scored = writer.function(torch.mul, products, features**-0.5 if scale is None else float(scale))
        if mask is not None and _stand(mask).dtype is torch.bool:
            scored = writer.function(torch.where, mask, scored, float("-inf"))
        elif mask is not None:
            scored = writer.function(torch.add, scored, mask)
        last = writer.function(torch.matmul, writer.function(torch_private.safe_softmax, scored, -1), value)
        if heads != shared:
            last = writer.method("flatten", last, rank - 3, rank - 2)
        return self._in_order(writer, last)

    def _in_order(self, writer: _Writer, last: fx.Node) -> fx.Node:
        """The result with the call's order in memory."""
        wanted = _stand(self.node)
        if _stand(last).stride() == wanted.stride():
            return last
        order = sorted(range(wanted.dim()), key=lambda n: (wanted.stride()[n], wanted.size()[n]), reverse=True)
        flat = writer.method("flatten", writer.method("permute", last, order))
        turned = writer.method("view", flat, [wanted.size()[n] for n in order])
        return writer.method("permute", turned, [order.index(n) for n in range(wanted.dim())])


class _Writer:
    """Writes nodes after one, with stand-ins."""

    def __init__(self, graph: fx.Graph, call: fx.Node) -> None:
        self.graph, self.call, self.last = graph, call, call
        self.mode = _stand(call).fake_mode  # type: ignore[attr-defined] # a stand-in

    def function(self, target: Any, *args: Any) -> fx.Node:
        return self._made("call_function", target, target, args)

    def method(self, name: str, *args: Any) -> fx.Node:
        return self._made("call_method", name, getattr(Tensor, name), args)

    def _made(self, op: str, target: Any, run: Any, args: tuple[Any, ...]) -> fx.Node:
        with self.graph.inserting_after(self.last):
            node = self.graph.create_node(op, target, args)
        stands = [_stand(a) if isinstance(a, fx.Node) else a for a in args]
        with torch.no_grad(), self.mode:
            node.meta = {**self.call.meta, "example_value": run(*stands), _OF: self.call}
        self.last = node
        return node


def _value(node: Any) -> Tensor | None:
    found = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return found if isinstance(found, Tensor) else None


def _stand(node: fx.Node) -> Tensor:
    found = _value(node)
    assert found is not None
    return found


def _scores(query: Tensor, key: Tensor) -> tuple[int, ...]:
    """The size of all products."""
    return (*query.shape[:-1], key.size(-2))
