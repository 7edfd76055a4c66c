"""Nodes in the place of another one, in a graph whose nodes have FakeTensors in ``meta["val"]``."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


class Writer:
    """Writes nodes before another one, such as that which they replace.

    Args:
        graph: is changed.
        before: the node.
        like: what this one, of a tensor at least, has in ``meta`` the new ones get; else ``before``.
    """

    def __init__(self, graph: fx.Graph, before: fx.Node, like: fx.Node | None = None) -> None:
        self.graph = graph
        self.before = before
        like = before if like is None else like
        self.meta = {name: value for name, value in like.meta.items() if name != "val"}
        values = [node.meta["val"] for node in (like, *like.all_input_nodes)]
        self.mode: Any = next(value.fake_mode for value in values if isinstance(value, torch.Tensor))  # type: ignore[attr-defined]

    def __call__(self, target: Any, *args: Any, **options: Any) -> fx.Node:
        """The node of one more operator."""
        with self.graph.inserting_before(self.before):
            node = self.graph.call_function(target, args, options)
        node.meta = dict(self.meta)
        with self.mode:
            node.meta["val"] = target(*fx.map_arg(args, lambda a: a.meta["val"]), **options)
        return node
