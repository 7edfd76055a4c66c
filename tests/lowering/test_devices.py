"""Operators that read tensors of two devices, as far as that can be seen without a GPU: stand-ins are on it."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from jitney.torch_compat.torch_private import FakeTensorMode
from jitney_lowering import lower
from jitney_lowering.ir import Computed, Extern, Program

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)


def lowered(*steps: tuple[Any, ...], constant: float | None = None) -> Program:
    """What becomes of operators over ``x``, of three elements on a GPU, and ``s``, a number of the CPU."""
    held = torch.tensor(constant or 0.0)
    graph, made = fx.Graph(), {}
    with FakeTensorMode() as mode:
        inputs = [torch.empty(3, device=CUDA)]
        made["x"] = graph.placeholder("x")
        made["x"].meta["val"] = inputs[0]
        if constant is None:
            made["s"] = graph.placeholder("s")
            inputs.append(torch.empty(()))
            made["s"].meta["val"] = inputs[1]
        else:
            made["s"] = graph.get_attr("held")
            made["s"].meta["val"] = mode.from_tensor(held)
        for number, (target, *names) in enumerate(steps):
            node = graph.call_function(target, tuple(made[n] for n in names))
            node.meta["val"] = target(*[made[n].meta["val"] for n in names])
            made[f"y{number}"] = node
        graph.output((node,))
    root = torch.nn.Module()
    root.register_buffer("held", held)
    program = lower(fx.GraphModule(root, graph), inputs)
    program.verify()
    return program


def moves(program: Program) -> list[Extern]:
    return [s for s in program.steps if isinstance(s, Extern) and s.target is aten._to_copy.default]


def test_a_number_of_the_cpu_is_moved_once_and_read_by_loops() -> None:
    program = lowered((aten.mul.Tensor, "x", "s"), (aten.sub.Tensor, "s", "y0"))
    (move,) = moves(program)
    assert move.kwargs == {"device": CUDA} and program.buffers[move.buffers[0]].device == CUDA
    assert [type(s) for s in program.steps] == [Extern, Computed]
    assert program.outputs[0].buffer in {s.buffer for s in program.steps if isinstance(s, Computed)}


def test_a_constant_of_the_cpu_is_written_into_the_code() -> None:
    program = lowered((aten.mul.Tensor, "x", "s"), constant=2.5)
    assert [type(s) for s in program.steps] == [Computed]
    assert "2.5" in str(program)
