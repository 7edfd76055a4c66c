"""May a captured graph run once more for derivatives of its gradients, and where are its inputs then?"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from jitney.aot.partition.cost import is_random
from jitney.aot.runtime.double_backward import DoubleBackward, Ends, Found, refusing
from jitney.aot.trace.joint import Joint
from jitney.aot.trace.results import Output, View, root_of
from jitney.aot.trace.sizes import is_symbolic
from jitney.torch_compat import operator_effects, torch_private
from jitney.torch_compat.global_state import StateKeeper


def of_graph(module: fx.GraphModule, joint: Joint) -> DoubleBackward:
    """How a graph runs once more; ``inputs`` are the glue's to say.

    Args:
        module: as captured.
        joint: what was traced of it, before the cut.
    """
    reason = _why_not(joint) or _once(module)
    if reason:
        return refusing(reason)
    tangents = tuple(_ends(joint, at) for at in joint.tangents)
    if not all(tangents):
        return refusing("a result of it is a view whose form is known only when it runs")
    read = _read(joint)
    strides = [node.meta["val"].stride() for node in joint.tangents.values()]
    forward, keeper = module.forward, StateKeeper()
    return DoubleBackward(
        lambda: forward,
        tangents=tangents,
        strides=tuple(None if any(map(is_symbolic, stride)) else tuple(stride) for stride in strides),
        grad=joint.ambient_grad,
        autocast=tuple(keeper.autocast),
        dtype=torch.get_default_dtype(),
        unread=frozenset(i for i, node in enumerate(joint.inputs) if node not in read),
    )


def apart(again: DoubleBackward, module: fx.GraphModule, joint: Joint) -> DoubleBackward:
    """How a graph runs once more if its intermediates are given to it: what it computes from them has no other history.

    Args:
        again: how it runs as a whole.
        module: as captured.
        joint: what was traced of it.
    """
    results = [i.result for i in joint.intermediates if i.result is not None]
    if again.reason:
        return again
    if any(i.written for i in joint.intermediates) or len(results) < len(joint.intermediates):
        return refusing("it writes to the memory of a result from which it computes others")
    run = functools.cache(lambda: _given_results(module, results).forward)
    return replace(again, run=run, handed=tuple(results))


def _given_results(module: fx.GraphModule, results: Sequence[int]) -> fx.GraphModule:
    """A graph with further inputs, which stand for these of its results wherever it reads them."""
    graph = fx.Graph()
    returned: Any = graph.graph_copy(module.graph, {})
    *_, last = graph.find_nodes(op="placeholder")
    for at in reversed(results):
        with graph.inserting_after(last):
            given = graph.placeholder(f"result{at}")
        returned[at].replace_all_uses_with(given)
    graph.output(returned)
    return fx.GraphModule(module, graph)


def _ends(joint: Joint, at: int) -> Ends:
    """The results that are this output, or views of it; none if what that means is not plain."""
    for i, result in enumerate(joint.results):
        if isinstance(result, Output) and result.at == at:
            return ((i, ()),)
    # A view of another result shows nothing that this one does not show.
    views = [(i, r) for i, r in enumerate(joint.results) if isinstance(r, View) and r.base == Output(at)]
    steps = [step for _, view in views for step in view.steps]
    if any(
        isinstance(leaf, Output) for step in steps for leaf in torch_private.tree_flatten((step.args, step.kwargs))[0]
    ):
        return ()
    return tuple(
        (i, tuple((step.target, step.args, step.kwargs, step.item) for step in view.steps))
        for i, view in views
        if not view.detached
    )


def _once(module: fx.GraphModule) -> str:
    marked = any(getattr(node.target, "once_differentiable", False) for node in module.graph.nodes)
    return "it calls a function that is marked with once_differentiable" if marked else ""


def _why_not(joint: Joint) -> str:
    if joint.layout is not None:
        return "it has tensors of a subclass"
    if torch_private.function_mode_depth():
        return "it was compiled in a torch function mode"
    if any(map(is_random, joint.graph.nodes)):
        return "it draws random numbers"
    if any(u.tracked or u.silent or u.geometry is not None for u in joint.updates):
        return "it writes to an input, which autograd sees"
    if not written_inputs(joint).isdisjoint(_read(joint)):
        return "its gradients depend on an input that it writes to"
    return ""


def written_inputs(joint: Joint) -> set[fx.Node]:
    """Inputs that the graph writes to, whether a schema says so or not."""
    hidden = {root_of(a) for node in joint.graph.nodes for a in operator_effects.hidden_writes(node)}
    return {joint.input_node(u.input) for u in joint.updates} | (hidden & set(joint.inputs))


def _read(joint: Joint) -> set[fx.Node]:
    """Everything that the gradients are made of. A batch norm in training does not read what it writes to."""
    todo = [g for g in joint.gradients if isinstance(g, fx.Node)]
    seen = set(todo)
    while todo:
        node = todo.pop()
        hidden = [*operator_effects.hidden_writes(node), *_unread(node)]
        new = [a for a in node.all_input_nodes if a not in seen and not any(a is h for h in hidden)]
        seen.update(new)
        todo += new
    return seen


_aten = torch.ops.aten
# Where the backward of a batch norm has running statistics, and whether it is that of training, which reads none.
STATISTICS: dict[Any, tuple[int, int, int | None]] = {
    _aten.native_batch_norm_backward.default: (3, 4, 7),
    _aten.cudnn_batch_norm_backward.default: (3, 4, None),
    _aten.miopen_batch_norm_backward.default: (3, 4, None),
}


def _unread(node: fx.Node) -> list[Any]:
    mean, variance, training = STATISTICS.get(node.target, (0, 0, 0))
    return [node.args[mean], node.args[variance]] if mean and (training is None or node.args[training]) else []


def plan(
    joint: Joint, inputs: Sequence[Any], saved: dict[int, int], unread: frozenset[int], unreached: Callable[[int], bool]
) -> tuple[Found, ...]:
    """Where each input of a graph will be found.

    Args:
        joint: what was traced.
        inputs: FakeTensors and symbols.
        saved: by input that the autograd function saves, its position among what it saves.
        unread: inputs on whose numbers no gradient depends.
        unreached: does an input require grad and get none?
    """
    counts: dict[str, int] = {}
    written = written_inputs(joint)
    found, tensors = [], 0
    for i, value in enumerate(inputs):
        tensor = isinstance(value, torch.Tensor)
        grad = tensor and joint.gradients[i] is not None
        reached = tensor and value.requires_grad and not unreached(i)
        if not tensor:
            how = "number"
        elif joint.inputs[i] in written:
            how = "written"
        elif i in unread and not (reached and isinstance(value, torch.nn.Parameter)):
            how = "unread"
        elif unreached(i):  # the autograd function gets it without its history
            how = "kept"
        elif i in saved:
            how = "saved"
        elif reached and isinstance(value, torch.nn.Parameter):
            how = "idle" if i in unread else "leaf"
        elif reached:
            how = "kept"
        else:
            how = "alive"
        at = saved[i] if how == "saved" else tensors if how in ("leaf", "idle") else counts.get(how, 0)
        counts[how] = counts.get(how, 0) + 1
        kind = (value.dtype, str(value.device)) if how == "unread" else ()
        found.append(Found(how, at, grad, *kind))
        tensors += tensor
    return tuple(found)
