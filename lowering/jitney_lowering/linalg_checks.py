"""Checks of factorisations on a device: one for many, where the last of them was.

``torch.linalg`` asks after each factorisation whether it has failed, and the host waits for the device's answer each
time: a loop of small solves spends its time so. Here the host asks once, before anything happens that the caller could
see, and raises what eager raises, for the first that failed.
"""

from __future__ import annotations

import operator
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from jitney_lowering.aten.updates import writes
from jitney_lowering.graph_nodes import has_effect, is_random, live_nodes, made_of
from jitney_lowering.linalg_errors import CHECKS

aten = torch.ops.aten
CHECK = aten._linalg_check_errors.default

# What may fail, in a way of its own, for numbers that a failed factorisation has left.
SENSITIVE: frozenset[Any] = frozenset({
    aten._linalg_svd.default, aten._linalg_eigh.default, aten._linalg_eigvals.default, aten.linalg_eig.default,
    aten.linalg_lstsq.default, aten.multinomial.default, aten._local_scalar_dense.default,
    aten.index.Tensor, aten.index_select.default, aten.gather.default, aten.take.default, aten.embedding.default,
    aten.index_put.default, aten.index_add.default, aten.index_copy.default, aten.index_fill.int_Scalar,
    aten.index_reduce.default, aten.scatter.src, aten.scatter.value, aten.scatter_add.default,
    aten.scatter_reduce.two, aten.put.default, aten.bincount.default,
})  # fmt: skip


def joined_checks(graph: fx.GraphModule, updates: Mapping[int, int], device_types: Container[str]) -> fx.GraphModule:
    """The graph with checks joined that have only between them what nobody sees; the same one if there are none.

    Args:
        graph: of ATen operators; it stays as it is.
        updates: outputs that will be copied into an input: see ``CompileRequest``.
        device_types: of devices whose answers are waited for.
    """
    if not any(_device_type(node) in device_types for node in graph.graph.find_nodes(op="call_function", target=CHECK)):
        return graph
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph.graph, {}))
    writing = writes(copy, updates, live_nodes(copy))
    waiting = _Waiting(frozenset(copy.nodes))
    for node in list(copy.nodes):
        if node.target is CHECK and _device_type(node) in device_types:
            waiting.add(node)
        elif node.op == "output" or node in writing or waiting.must_precede(node):
            waiting.join()
    return fx.GraphModule(graph, copy)


def _device_type(check: fx.Node) -> str:
    info = check.args[0]
    assert isinstance(info, fx.Node)
    return str(info.meta["val"].device.type)


@dataclass
class _Waiting:
    """Checks that have not been made yet, and what is made of numbers that they have not looked at."""

    graph: frozenset[fx.Node]  # all its nodes
    checks: list[fx.Node] = field(default_factory=list)
    unchecked: set[fx.Node] = field(default_factory=set)

    def add(self, check: fx.Node) -> None:
        info = check.args[0]
        assert isinstance(info, fx.Node)
        self.checks.append(check)
        self.unchecked |= made_of({info, *info.all_input_nodes} - self.unchecked, self.graph - self.unchecked)

    def must_precede(self, node: fx.Node) -> bool:
        """Can the caller see what the operator does, or may it fail where a check would have?

        What a custom operator does besides, nobody knows.
        """
        if node.op != "call_function" or not self.checks or node.target is operator.getitem:
            return False
        torchs = getattr(node.target, "namespace", "") in ("aten", "prims", "jitney")
        if not torchs or (has_effect(node) and not is_random(node)):
            return True
        return node.target in SENSITIVE and node in self.unchecked

    def join(self) -> None:
        """One check in the place of the last: the host goes on while the device does what comes after."""
        if not self.checks:
            return
        graph = self.checks[-1].graph
        infos, names = [check.args[0] for check in self.checks], [check.args[1] for check in self.checks]
        matrices = [check.kwargs["is_matrix"] for check in self.checks]
        with graph.inserting_before(self.checks[-1]):
            joined = graph.call_function(CHECKS, (infos, names, matrices))
        joined.meta = dict(self.checks[0].meta)
        for check in self.checks:
            graph.erase_node(check)
        self.checks, self.unchecked = [], set()
