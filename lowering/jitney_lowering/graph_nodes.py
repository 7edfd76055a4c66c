"""What is asked of the nodes of a graph: who reads them, what must run, what somebody else sees."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import fx

from jitney.torch_compat import operator_effects, torch_private
from jitney_lowering.rules import VIEWS


def is_strided(value: Any) -> bool:
    """Is it a tensor whose strides say where its elements are?"""
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_quantized


def shown_nodes(graph: fx.Graph, updates: Mapping[int, int]) -> frozenset[fx.Node]:
    """The results that are not copied into an input, and all that they are views of."""
    (results,) = graph.output_node().args
    waiting = [node for n, node in enumerate(results) if n not in updates and isinstance(node, fx.Node)]  # type: ignore[arg-type]
    seen: set[fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            if node.target in VIEWS or node.target is operator.getitem:
                waiting += node.all_input_nodes
    return frozenset(seen)


def is_random(node: fx.Node) -> bool:
    """Does it draw random numbers?"""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def is_mutable(node: fx.Node) -> bool:
    """May it write to an argument?"""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def why_not(node: fx.Node) -> str:
    """Why an operator without a rule runs as a whole."""
    return "random" if is_random(node) else "no rule"


def has_effect(node: fx.Node) -> bool:
    """Must it run though nobody reads its result?"""
    if node.op != "call_function" or not isinstance(node.target, torch_private.OPERATOR_CLASSES):
        return False
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.is_mutable or not schema.returns:
        return True
    return is_random(node) or bool(operator_effects.hidden_writes(node))


def ordered_nodes(graph: fx.Graph) -> frozenset[fx.Node]:
    """Nodes whose order matters though none reads another: they have effects, or read memory to which one writes."""
    ordered = {node for node in graph.nodes if has_effect(node)}
    written = {_home(a) for node in ordered for a in operator_effects.hidden_writes(node)}
    written |= {_home(a) for node in ordered if is_mutable(node) for a in node.all_input_nodes}
    waiting = [*written]
    while waiting:
        for user in waiting.pop().users:
            if _is_view(user):
                waiting.append(user)
            elif user.op == "call_function":
                ordered.add(user)
    return frozenset(ordered)


def _home(node: fx.Node) -> fx.Node:
    """What this is a view of."""
    while _is_view(node):
        node = node.all_input_nodes[0]
    return node


def _is_view(node: fx.Node) -> bool:
    return node.target in VIEWS or node.target is operator.getitem


def live_nodes(graph: fx.Graph) -> frozenset[fx.Node]:
    """Nodes whose results somebody reads, or that have effects."""
    live: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in live or has_effect(node):
            live.add(node)
            live.update(node.all_input_nodes)
    return frozenset(live)


def made_of(roots: Collection[fx.Node], among: Collection[fx.Node]) -> set[fx.Node]:
    """These nodes, and all that are made of them, directly or not."""
    seen, waiting = set(roots), list(roots)
    while waiting:
        for user in waiting.pop().users:
            if user in among and user not in seen:
                seen.add(user)
                waiting.append(user)
    return seen


def read_results(node: fx.Node, live: frozenset[fx.Node]) -> set[int]:
    """Which of several results are read."""
    read: set[int] = set()
    for user in node.users:
        if user in live:
            if user.target is not operator.getitem:  # the list as a whole
                return set(range(len(node.meta["val"])))
            read.add(user.args[1])  # type: ignore[arg-type]
    return read


def uses(node: fx.Node, number: int | None, live: frozenset[fx.Node]) -> int:
    """How many operators read the value, views counting as what reads them; ``number`` of several results."""
    total = 0
    for user in node.users:
        if user not in live:
            continue
        if number is not None and user.target is operator.getitem and user.args[1] != number:
            continue
        if user.target is operator.getitem or user.target in VIEWS:
            total += uses(user, None, live)
        else:
            total += 1
    return total
