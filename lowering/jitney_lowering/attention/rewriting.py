"""Attention of a captured graph as one operation, where a backend has a kernel for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from jitney.torch_compat.stand_ins.strides import StandInMode
from jitney_lowering.attention.calls import is_call, restore, written_out
from jitney_lowering.attention.operators import FORWARD
from jitney_lowering.attention.regions import Product, Region, draws, product, regions, value, writes
from jitney_lowering.attention.score import NotSaid, Score

GROWS = 2  # times its operands' elements: what a score computes by itself rather than reads
MOST_CARRIED = 40
CALLS = ("call_function", "call_method")


@dataclass(frozen=True)
class Candidate:
    """Attention that a backend is asked about.

    Args:
        query, key, value: stand-ins, as the operator gets them.
        products: the stand-in of the score's first input.
        others: stand-ins of what it reads besides.
        score: what is done to the products.
        trains: will a gradient be asked for?
        lies: are keys and values in memory, whoever reads them? Else products of one query take them as they are
            computed, dequantised, say.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    products: Tensor
    others: tuple[Tensor, ...]
    score: Score
    trains: bool
    lies: bool = True


Compute = Callable[[Tensor, Tensor, Tensor, Sequence[Tensor]], Tensor]
"""From query, key, value and what the score reads besides to the result, in words that torch can trace."""
Takes = Callable[[Candidate], Compute | None]
Trace = Callable[[fx.GraphModule, Sequence[Any]], Any]
"""What a graph computes, as ATen operators; see ``Backend.captured_pass``."""


def by_operator(candidate: Candidate) -> Compute:
    """Attention by the operator."""
    score = candidate.score.text()
    return lambda query, key, value, others: FORWARD(query, key, value, list(others), score)[0]


class Attention:
    """One place in a captured graph: what is called there with the operands of both products."""

    def __init__(
        self, first: Product, second: Product, compute: Compute, weights: Sequence[int], *, copied: bool
    ) -> None:
        self.first, self.second, self.compute, self.weights = first, second, compute, tuple(weights)
        self.copied = copied  # the backward reads the result, to which the program may write
        self.__name__ = "attention"

    def __call__(self, left: Tensor, right: Tensor, values: Tensor, *others: Tensor) -> Tensor:
        """The second product's result."""
        query, key = _operands(self.first, left, right)
        finished = _values(self.second, values, self.weights)
        result = self.compute(query, key, finished, others)
        return self.second.finish(result.clone() if self.copied else result)


def _operands(first: Product, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    query, key = first.prepare(left, right)
    return query, key.mT


def _values(second: Product, values: Tensor, weights: Sequence[int]) -> Tensor:
    """The values with the batch of the weights (as the second product is given them)."""
    like = values.new_empty(()).expand(*weights)
    return second.prepare(like, values)[1]


def with_attention(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    trace: Trace,
    takes: Takes,
    device_types: Iterable[str],
    few: int = 0,
) -> fx.GraphModule:
    """The captured graph with attention as an operator, wherever the backend takes it.

    Args:
        module: operations as the program called them; not changed.
        inputs: stand-ins.
        trace: see there.
        takes: how the backend computes one; None if it has nothing better than what is written there.
        device_types: of the backend.
        few: it may take torch's fused attention, too, of at most so many queries in inference.
    """
    if any(node.kwargs.get("create_graph") for node in module.graph.nodes):
        return module  # gradients of the operator have none themselves
    written, module = module, _without_unread(module)
    module, calls = written_out(module, few)
    found = []
    taken: set[fx.Node] = set()
    for region in regions(module.graph):
        if taken.isdisjoint((*region.between, region.second.node)):
            made = _made(region, trace, takes, device_types)
            if made is not None and taken.isdisjoint(made[1]):
                found.append((region, made))
                taken |= {*region.between, region.second.node}
    if not found:
        return written
    restore(module.graph, calls, taken)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    output = graph.graph_copy(module.graph, copies)
    made_output = graph.output(output)
    for old in module.graph.find_nodes(op="output"):
        made_output.meta = dict(old.meta)
    for region, (call, others) in found:
        second = copies[region.second.node]
        given = (region.first.left, region.first.right, region.second.right, *others)
        with graph.inserting_before(second):
            node = graph.call_function(call, tuple(copies[n] for n in given))
        node.meta = dict(second.meta)
        second.replace_all_uses_with(node)
        graph.erase_node(second)
        copies[region.second.node] = node
        for dead in reversed(region.between):
            graph.erase_node(copies[dead])
    return fx.GraphModule(module, graph)


def _without_unread(module: fx.GraphModule) -> fx.GraphModule:
    """The graph without what nobody reads: it would be somebody else who reads scores."""
    if not any(node.op in CALLS and not node.users for node in module.graph.nodes):
        return module
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    output = graph.output(graph.graph_copy(module.graph, copies))
    for old in module.graph.find_nodes(op="output"):
        output.meta = dict(old.meta)
    for node in reversed(list(graph.nodes)):
        if node.op in CALLS and not node.users and not draws(node) and not writes(node):
            if "changes_state" not in node.meta and value(node) is not None:
                graph.erase_node(node)
    return fx.GraphModule(module, graph)


def _made(
    region: Region, trace: Trace, takes: Takes, device_types: Iterable[str]
) -> tuple[Attention, list[fx.Node]] | None:
    """What computes this attention, and what it is given besides query, key and value; None if nothing does."""
    stands = [value(n) for n in (region.first.left, region.first.right, region.second.left, region.second.right)]
    if any(x is None or not _is_plain(x, device_types) for x in stands):
        return None
    left, right, weights, values = stands
    assert left is not None and right is not None and weights is not None and values is not None
    results = [value(region.first.node), value(region.second.node)]
    wide = region.first.left not in region.first.node.all_input_nodes
    types = [torch.float32 if wide else left.dtype, left.dtype]
    if any(x is None or x.dtype is not left.dtype for x in (right, values)):
        return None
    if any(x is None or x.dtype is not dtype for x, dtype in zip(results, types, strict=True)):
        return None  # of several types, or such as autocast changes
    with torch.no_grad(), left.fake_mode:  # type: ignore[attr-defined] # a stand-in
        query, key = (x.detach() for x in _operands(region.first, left, right))
        finished = _values(region.second, values, weights.shape).detach()
        scored = value(region.softmax.node)
        assert scored is not None
        if (
            query.shape[:-2].numel() != scored.shape[:-2].numel()
            or finished.shape[:-2].numel() != query.shape[:-2].numel()
        ):
            return None
    result = value(region.second.node)
    assert result is not None
    plain_result = torch.empty((*finished.shape[:-2], query.size(-2), finished.size(-1)), device="meta")
    if region.second.finish(plain_result).stride() != result.stride():
        return None
    trains = result.requires_grad
    for carried in _carried(region):
        others = _others(region, carried)
        read = [value(n) for n in others]
        if any(x is None or not _is_plain(x, device_types) for x in read):
            continue
        score = _score(region, carried, others, trains, trace)
        if score is None:
            continue
        plain = tuple(x for x in read if x is not None)
        products = value(region.first.node)
        assert products is not None
        lies = is_call(region.second.node) or (_lies(region.first.right) and _lies(region.second.right))
        compute = takes(Candidate(query, key, finished, products, plain, score, trains, lies))
        if compute is not None:
            copied = trains and _may_be_written(region.second.node)
            return Attention(region.first, region.second, compute, weights.shape, copied=copied), others
    return None


def _is_plain(x: Tensor, device_types: Iterable[str]) -> bool:
    """Is it a tensor of known size of the backend's device, which nobody has made lazy?"""
    known = all(isinstance(s, int) for s in (*x.shape, *x.stride()))
    plain = x.layout is torch.strided and not x.is_complex() and type(x).__name__ == "FakeTensor"
    return known and plain and x.device.type in device_types and not x.is_neg() and 0 not in x.shape


def _carried(region: Region) -> Iterator[list[fx.Node]]:
    """What the score reads that is so much larger than what it is made of that it is computed where it is needed.

    In the order of the graph: first as much of it as there is; then what is large beside its operands; then nothing.
    """
    made: list[fx.Node] | None = None
    for depth in (MOST_CARRIED, 1, 0):
        carried = _large(region, depth)
        if len(carried) <= MOST_CARRIED:
            found = [node for node in region.first.node.graph.nodes if node in carried]
            if found != made:
                yield found
            made = found


def _large(region: Region, depth: int) -> set[fx.Node]:
    """What is large beside what it is made of, so many operations before it."""
    carried: set[fx.Node] = set()
    waiting = region.others if depth else []
    written = _written(region)
    known: dict[tuple[fx.Node, int], int] = {}
    while waiting:
        node = waiting.pop()
        own = value(node)
        if node in carried or own is None or node.op not in ("call_function", "call_method") or product(node):
            continue
        sources = [value(n) for n in node.all_input_nodes]
        if any(x is None or x.requires_grad for x in sources) or not written.isdisjoint(_made_of([node])):
            continue
        if own.numel() >= GROWS * sum(_least_read(n, depth - 1, known) for n in node.all_input_nodes):
            carried.add(node)
            waiting += node.all_input_nodes
    return carried


def _least_read(node: fx.Node, depth: int, known: dict[tuple[fx.Node, int], int]) -> int:
    """How many elements are read for a value: its own, or those that it is made of."""
    if (node, depth) not in known:
        own = value(node)
        count = own.numel() if own is not None and not _is_made_of_nothing(node) else 0
        if count and depth and node.op in ("call_function", "call_method"):
            count = min(count, sum(_least_read(n, depth - 1, known) for n in node.all_input_nodes))
        known[node, depth] = count
    return known[node, depth]


_VIEWS = {
    "transpose", "permute", "view", "reshape", "flatten", "contiguous", "squeeze", "unsqueeze", "unflatten", "expand",
    "movedim", "swapaxes", "chunk", "split", "unbind", "narrow", "select", "to", "float", "type_as", "getitem",
    "getattr", "view_as", "reshape_as", "expand_as", "diagonal", "unfold", "detach", "real", "adjoint", "swapdims",
    "moveaxis",
}  # fmt: skip
"""What may give the same memory again, by name."""


_SEEN = _VIEWS - {"to", "float", "type_as", "real", "diagonal", "unfold"}
_MADE = {"linear", "cat", "concat", "concatenate"}
"""What is put into memory, by name."""


def _lies(node: fx.Node) -> bool:
    """Are its elements in memory as they are?"""
    while node.op in CALLS and product(node) is None and not writes(node):
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if name in _MADE:
            return True
        if name not in _SEEN or not isinstance(node.args[0], fx.Node):
            return False
        node = node.args[0]
    return True


def _may_be_written(node: fx.Node) -> bool:
    """May somebody write to a value, in the graph or after it? Else something new is made of it first."""
    seen, waiting = {node}, [node]
    while waiting:
        for user in waiting.pop().users:
            if user.op == "output" or writes(user):
                return True
            name = user.target if user.op == "call_method" else getattr(user.target, "__name__", "")
            if name in _VIEWS and user not in seen:
                seen.add(user)
                waiting.append(user)
    return False


def _written(region: Region) -> set[fx.Node]:
    """What somebody else writes to before the attention's end, and what that is made of: it may be a view."""
    found = []
    for node in region.second.node.graph.nodes:
        if node is region.second.node:
            break
        if writes(node):
            found += _targets(node)
    return _made_of(found)


def _targets(node: fx.Node) -> list[fx.Node]:
    """To which of its arguments an operation may write: a method in place writes to the first one alone."""
    first = node.args[0] if node.args else None
    in_place = node.op == "call_method" and str(node.target).endswith("_") and not str(node.target).endswith("__")
    if in_place and "out" not in node.kwargs and isinstance(first, fx.Node):
        return [first]
    return list(node.all_input_nodes)


def _made_of(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """These and all that they are computed from."""
    seen, waiting = set(nodes), list(nodes)
    while waiting:
        sources = [n for n in waiting.pop().all_input_nodes if n not in seen]
        seen.update(sources)
        waiting += sources
    return seen


def _is_made_of_nothing(node: fx.Node) -> bool:
    """Is it made of numbers, such as a range of them?"""
    seen, waiting = {node}, [node]
    while waiting:
        at = waiting.pop()
        if at.op not in ("call_function", "call_method") or len(seen) > MOST_CARRIED:
            return False
        waiting += [n for n in at.all_input_nodes if n not in seen]
        seen.update(at.all_input_nodes)
    return True


def _others(region: Region, carried: Sequence[fx.Node]) -> list[fx.Node]:
    """What the score is given, if it computes by itself what is carried."""
    own = {region.first.node, *region.score, *carried}
    return list(dict.fromkeys(n for node in (*carried, *region.score) for n in node.all_input_nodes if n not in own))


def _score(
    region: Region,
    carried: Sequence[fx.Node],
    others: Sequence[fx.Node],
    trains: bool,
    trace: Trace,
) -> Score | None:
    """What is done to the products; None if that cannot be said element by element."""
    first = value(region.first.node)
    assert first is not None
    graph = fx.Graph()
    given_products = graph.placeholder("products")
    copies: dict[fx.Node, fx.Node] = {}
    for node in others:
        copies[node] = graph.placeholder(f"other_{node.name}")
    copies[region.first.node] = graph.call_method("clone", (given_products,))  # what follows may write to it
    order = {node: number for number, node in enumerate(region.first.node.graph.nodes)}
    for node in sorted((*carried, *region.score), key=order.__getitem__):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    result = copies[region.softmax.scored]
    if region.softmax.dtype is not None:
        result = graph.call_method("to", (result, region.softmax.dtype))
    # Of a view the graph's output would be what it is a view of.
    result = graph.call_method("clone", (result,), {"memory_format": torch.contiguous_format})
    graph.output((result,))
    module = fx.GraphModule(torch.nn.Module(), graph)
    with StandInMode(allow_non_fake_inputs=False), torch.enable_grad():
        # Products are added up in float32, and nobody rounds them here.
        products = torch.empty(first.shape, dtype=torch.float32, device=first.device, requires_grad=trains)
        given = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device,
                                     requires_grad=trains and x.requires_grad)
                 for x in map(value, others) if x is not None]  # fmt: skip
    traced = trace(module, [products, *given])
    if traced is None or len(traced.results) != 1 or not _without_constants(traced.graph, traced.constants):
        return None
    if trains and not traced.gradients:
        return None  # weights that learn nothing
    learned = tuple(n for n, x in enumerate(given) if x.requires_grad)
    results = [*traced.results, *(traced.gradients[n] for n in ((0, *(1 + n for n in learned)) if trains else ()))]
    if len(results) != 1 + trains + len(learned) or any(not isinstance(r, fx.Node) for r in results):
        return None
    traced.graph.output(tuple(results))
    _without_dead(traced.graph)
    made = results[0].meta["val"]
    score = Score(traced.graph, trains, tuple(made.shape), made.dtype, region.softmax.safe, learned)
    try:
        score.text()
    except NotSaid:
        return None
    return score


def _without_constants(graph: fx.Graph, constants: Mapping[str, Tensor]) -> bool:
    """Say numbers that the program has made tensors of, such as what a mask is filled with. Were there no others?"""
    for node in graph.find_nodes(op="get_attr"):
        constant = constants[str(node.target)]
        if constant.dim():
            return False
        with graph.inserting_before(node):
            facts: dict[str, Any] = {"dtype": constant.dtype, "device": constant.device}
            number = graph.call_function(torch.ops.aten.scalar_tensor.default, (constant.item(),), facts)
        node.replace_all_uses_with(number)
        graph.erase_node(node)
    return True


def _without_dead(graph: fx.Graph) -> None:
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users:
            graph.erase_node(node)
