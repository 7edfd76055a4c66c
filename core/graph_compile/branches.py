"""Branches and bodies of control flow operators, for backends that take ATen graphs: each is compiled on its own.

The operator chooses and repeats in Python. What it calls is compiled when it first runs
with tensors of some kind: all of a tensor's facts are fixed then, so what AOT learns about sizes needs no guards. With
others than a few kinds, and where torch's state is unusual, the graph runs as it was captured.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from jitney import events
from jitney._util.forks import reentrant_lock
from jitney.capture.codegen.graph_runner import OVER, runs_eagerly
from jitney.capture.torch.symbols import Inner
from jitney.torch_compat import torch_private
from jitney.torch_compat.default_device import lifted
from jitney.torch_compat.global_state import TRACING
from jitney.torch_compat.stand_ins.strides import StandInMode

FEWEST = 4  # operations, in a graph that is worth a call
KINDS = 4  # of inputs that one graph is compiled for

Run = Callable[..., Sequence[Any]]
Compile = Callable[[fx.GraphModule, Sequence[Any]], Run]


def over_compiled(graph: fx.GraphModule, compile_branch: Compile) -> fx.GraphModule:
    """The same graph, in which operators call compiled branches and bodies, where these are worth it.

    Args:
        graph: with operations that look at tensors' values.
        compile_branch: makes a function of a graph and FakeTensors for its inputs; called when it runs.
    """
    made = fx.GraphModule(graph, fx.Graph())
    output = made.graph.graph_copy(graph.graph, {})
    made.graph.output(output)
    for node in made.graph.nodes:
        over = getattr(node.target, "__dict__", {}).get(OVER) if node.op == "call_function" else None
        if over is not None:
            name = node.target.__name__
            node.target = over([_runs(g, f"{name}_{i}", compile_branch) for i, g in enumerate(node.target.graphs)])
            node.target.__name__ = node.target.__qualname__ = name
    made.recompile()
    return made


def _runs(graph: fx.GraphModule, name: str, compile_branch: Compile) -> Run:
    operations = [n for n in graph.graph.nodes if n.op not in ("placeholder", "output", "get_attr")]
    if any(runs_eagerly(n.target) for n in operations):  # an operator within
        return over_compiled(graph, compile_branch).forward
    if sum(n.target is not operator.getitem for n in operations) < FEWEST or not all(map(_gives_tensors, operations)):
        return graph.forward
    return Branch(graph, compile_branch)


def _gives_tensors(node: fx.Node) -> bool:
    value = node.meta.get("example_value")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return all(isinstance(v, torch.Tensor) for v in values)


class Branch:
    """A branch or body.

    Args:
        graph: as it was captured.
        compile_branch: see ``over_compiled``.
    """

    def __init__(self, graph: fx.GraphModule, compile_branch: Compile) -> None:
        self.graph = graph
        self.compile_branch = compile_branch
        self.made: dict[Any, Run] = {}
        self.lock = reentrant_lock()
        self.number = events.subject()

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        """The results."""
        kind = _kind(inputs)
        run = None if kind is None else self.made.get(kind)
        if run is None:
            run = self.graph.forward if kind is None else self._compiled(kind, inputs)
        return run(*inputs)

    def _compiled(self, kind: Any, inputs: Sequence[torch.Tensor]) -> Run:
        with self.lock:
            if kind not in self.made:
                if len(self.made) == KINDS:
                    return self.graph.forward
                with TRACING, lifted(), events.compiling(self.number):
                    stand_ins = _stand_ins(inputs)
                    graph = fx.GraphModule(self.graph, fx.Graph())
                    graph.graph.output(graph.graph.graph_copy(self.graph.graph, {}))
                    for node, fake in zip(graph.graph.find_nodes(op="placeholder"), stand_ins, strict=True):
                        node.meta["example_value"] = fake
                    graph.recompile()
                    self.made[kind] = self.compile_branch(graph, stand_ins)
                    torch_private.forget_reals(stand_ins[0].fake_mode)
            return self.made[kind]


def _kind(inputs: Sequence[Any]) -> Any:
    """What a graph is compiled for: facts of tensors, and of torch's state; None where it is not compiled."""
    state = state_now()
    if state is None or not inputs:
        return None
    facts: list[Any] = [*state]
    for t in inputs:
        plain = type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout is torch.strided
        if not plain or t.is_conj() or t.is_neg() or t.is_inference():
            return None
        facts.append((t.shape, t.stride(), t.dtype, t.device, t.requires_grad, t.is_leaf))
    return tuple(facts)


def state_now() -> tuple[Any, ...] | None:
    """What graphs depend on of torch's state; None where it is an unusual one."""
    unusual = torch.is_inference_mode_enabled() or torch_private.dispatch_mode_depth()
    if unusual or torch_private.transforms_active():
        return None
    autocast = [torch.is_autocast_enabled(d) and torch.get_autocast_dtype(d) for d in ("cpu", "cuda")]
    return (torch.is_grad_enabled(), *autocast)


def _stand_ins(inputs: Sequence[torch.Tensor]) -> list[Any]:
    mode = StandInMode(shape_env=None, allow_non_fake_inputs=False)
    made: list[Any] = []
    for t in inputs:
        fake = mode.from_tensor(t.detach(), static_shapes=True).requires_grad_(t.requires_grad)
        if not t.is_leaf:
            with mode, torch.enable_grad():
                fake = Inner.apply(fake)
        made.append(fake)
    return made
