"""Modules that write their code late are FX's in all else."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from jitney._util.lazy_graph_module import LazyGraphModule


def made() -> LazyGraphModule:
    graph = fx.Graph()
    x = graph.placeholder("x")
    weight = graph.get_attr("weight")
    graph.output(graph.call_function(torch.add, (graph.call_function(torch.relu, (x,)), weight)))
    root = torch.nn.Module()
    root.register_buffer("weight", torch.ones(2))
    return LazyGraphModule(root, graph)


def is_written(module: LazyGraphModule) -> bool:
    return "_code" in module.__dict__


def test_nothing_is_written_before_it_is_wanted() -> None:
    module = made()
    assert [node.op for node in module.graph.nodes][0] == "placeholder"
    assert module.weight.tolist() == [1, 1] and not is_written(module)


USES: dict[str, Callable[[LazyGraphModule], Any]] = {
    "forward": lambda module: module.forward,
    "call": lambda module: module,
    "copy": lambda module: copy.deepcopy(module),
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "recompile": lambda module: module.recompile() and module,
    "another graph": lambda module: setattr(module, "graph", module.graph) or module,
    "a module of it": lambda module: LazyGraphModule(module, module.graph),
    "its class": lambda module: lambda x: type(module).forward(module, x),
    "traced": lambda module: fx.symbolic_trace(module),
}


@pytest.mark.parametrize("name", [*USES])
def test_it_computes(name: str) -> None:
    run = USES[name](made())
    assert run(torch.tensor([-1.0, 2.0])).tolist() == [1, 3]
    assert run(torch.tensor([-1.0, 2.0])).tolist() == [1, 3]


def test_forward_is_the_generated_function() -> None:
    """Whoever keeps it pays for nothing more at each call."""
    module = made()
    first = module.forward
    assert (
        first == module.forward and first.__func__.__code__.co_filename != LazyGraphModule.__init__.__code__.co_filename
    )
    assert is_written(module)


@pytest.mark.parametrize("text", [lambda module: module.code, str], ids=["code", "str"])
def test_its_text(text: Callable[[Any], str]) -> None:
    assert "relu" in text(made())
