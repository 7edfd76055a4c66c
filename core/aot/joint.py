"""From a torch-level graph to the joint graph: its forward and its backward, functional, on ATen operators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from jitney import _torch
from jitney.aot import functional
from jitney.aot.cost import has_effect
from jitney.aot.results import Before, Result, Results, Update, root_of
from jitney.aot.signals import NotSplit
from jitney.aot.sizes import is_symbolic
from jitney.aot.trace import BACKWARD, FORWARD, AtenTracer
from jitney.state import StateKeeper, enter_inference_mode


@dataclass
class Joint:
    """One graph that computes results, then gradients.

    Args:
        graph: functional; placeholders are ``inputs`` then ``tangents``; it has no output node.
        inputs: a placeholder for each input of the captured graph, in order.
        outputs: nodes (or numbers) that the forward computes: fresh results, then new values of inputs.
        results: what the caller gets, in terms of ``outputs`` and of its own arguments.
        updates: which inputs are written to.
        tangents: the placeholder of the gradient of an output, by position in ``outputs``; empty for inference.
        gradients: by input: the node of its gradient, None without one.
        symbols: nodes of the symbols that the tangents' sizes are made of.
        constants: the graph's attributes.
        final_state: the calls that leave torch's global state as the program left it.
    """

    graph: fx.Graph
    inputs: list[fx.Node]
    outputs: list[Any]
    results: list[Result]
    updates: list[Update]
    tangents: dict[int, fx.Node] = field(default_factory=dict)
    gradients: list[Any] = field(default_factory=list)
    symbols: list[fx.Node] = field(default_factory=list)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    final_state: list[tuple[Callable[..., Any], tuple[Any, ...]]] = field(default_factory=list)
    ambient_grad: bool = True  # was grad mode on where the graph begins?

    @property
    def trains(self) -> bool:
        """Is there a backward?"""
        return bool(self.tangents)

    def verify(self) -> None:
        """Raise ``AssertionError`` unless the graph is functional, in order, and every node has a value."""
        self.graph.lint()
        known = set(self.graph.nodes)
        for node in self.graph.nodes:
            assert "val" in node.meta, f"{node} has no value"
            schema = getattr(node.target, "_schema", None)
            assert schema is None or not schema.is_mutable, f"{node.target} writes in place"
        for node in [*self.inputs, *self.outputs, *self.tangents.values(), *self.gradients]:
            assert not isinstance(node, fx.Node) or node in known, f"{node} is of another graph"
        assert all(0 <= at < len(self.outputs) for at in self.tangents)
        assert len(self.gradients) in (0, len(self.inputs))


def trace_joint(
    module: fx.GraphModule, inputs: Sequence[Any], decompositions: Mapping[Any, Callable[..., Any]]
) -> Joint:
    """Trace a captured graph, and its backward if a result requires grad.

    Args:
        module: operations as the user called them; placeholders as ``inputs``, one tuple as output.
        inputs: FakeTensors and symbols, with the arguments' metadata from before the call.
        decompositions: operators to be taken apart.

    Raises:
        NotSplit: the graph does something that a functional graph cannot say; the reason is for the log.
    """
    keeper = StateKeeper()
    tracer = AtenTracer(_fake_mode(inputs), decompositions)
    try:
        given = _inputs(module, inputs, tracer)
        with _torch.without_saved_tensor_hooks(), tracer.fake_mode, tracer, functional.functionalizing():
            return _trace(module, given, inputs, tracer, keeper)
    except RuntimeError as error:  # it ran when it was captured: something that functionalization does not know
        raise NotSplit(f"it cannot be traced: {str(error).strip().splitlines()[0]}") from error
    finally:
        keeper.restore()


def _fake_mode(inputs: Sequence[Any]) -> Any:
    for value in inputs:
        if isinstance(value, _torch.FakeTensor):
            return value.fake_mode
    shapes = next((v.node.shape_env for v in inputs if is_symbolic(v)), None)
    return _torch.FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=False)


@dataclass
class _Given:
    """One input: its placeholder, what the program gets, and the leaf that its gradient arrives at."""

    node: fx.Node
    value: Any
    leaf: Any = None


def _inputs(module: fx.GraphModule, inputs: Sequence[Any], tracer: AtenTracer) -> list[_Given]:
    given: list[_Given] = []
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    for node, value in zip(placeholders, inputs, strict=True):
        if not isinstance(value, torch.Tensor):
            given.append(_Given(tracer.placeholder(node.name, value), value))
            continue
        if value.is_conj() or value.is_neg():
            raise NotSplit("an input that is a lazily conjugated or negated view")
        with tracer.fake_mode, torch.no_grad():
            inner = value.detach()
        made = tracer.placeholder(node.name, inner)
        made.meta["parameter"] = value.requires_grad and value.is_leaf
        wrapper, leaf = functional.wrapped(inner, value.requires_grad, value.is_leaf)
        given.append(_Given(made, wrapper, leaf))
    return given


def _trace(
    module: fx.GraphModule, given: list[_Given], inputs: Sequence[Any], tracer: AtenTracer, keeper: StateKeeper
) -> Joint:
    ambient_grad = torch.is_grad_enabled()
    values, nodes = [g.value for g in given], [g.node for g in given]
    afters = [n.meta.get("example_value") for n in module.graph.nodes if n.op == "placeholder"]
    before = [
        Before(getattr(v, "grad_fn", None), captured, after, functional.version(v))
        for v, captured, after in zip(values, inputs, afters, strict=True)
    ]
    returned, final_state = _run(module, values, tracer)
    results = Results(tracer, values, nodes, before, returned, ambient_grad, _writes_many(module))
    joint = Joint(
        tracer.graph,
        nodes,
        results.outputs,
        results.results,
        results.updates,
        constants=tracer.constants,
        final_state=final_state if keeper.changed() else [],
        ambient_grad=ambient_grad,
    )
    wanted = results.differentiable()
    if any(value.is_leaf for value in wanted.values()) or (wanted and all(g.leaf is None for g in given)):
        raise NotSplit("a tensor that it makes requires grad by itself")
    if wanted:
        _backward(joint, tracer, wanted, [g.leaf for g in given])
    _separate(joint, results.fresh if joint.trains else set())
    _drop_unused(joint)
    return joint


def _separate(joint: Joint, fresh: set[int]) -> None:
    """Outputs that are the very value of an input, or of another output, become copies.

    So do those at positions ``fresh`` if they are views: autograd forbids in-place operators on views that an autograd
    function returns.
    """
    roots = set(joint.inputs)
    for at, node in enumerate(joint.outputs):
        if not isinstance(node, fx.Node) or not isinstance(node.meta["val"], torch.Tensor):
            continue
        root = root_of(node)
        if root not in roots and (root is node or at not in fresh):
            roots.add(root)
            continue
        with joint.graph.inserting_after(node):
            copy = joint.graph.call_function(torch.ops.aten.clone.default, (node,))
        copy.meta.update(node.meta, phase=FORWARD)
        joint.outputs[at] = copy


def _run(module: fx.GraphModule, given: list[Any], tracer: AtenTracer) -> tuple[tuple[Any, ...], list[Any]]:
    """Call the captured operations, in order; the graph's outputs, and the calls that changed torch's state."""
    values: dict[fx.Node, Any] = {}
    state: list[Any] = []
    arguments = iter(given)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(arguments)
            continue
        args = fx.node.map_arg(node.args, values.__getitem__)
        if node.op == "output":
            return tuple(args[0]), state
        kwargs = fx.node.map_arg(node.kwargs, values.__getitem__)
        if node.target is enter_inference_mode:
            raise NotSplit("a part of it runs in inference mode")
        if "out" in kwargs and getattr(node.target, "__name__", "") in MIXES_UP_OUT:
            raise NotSplit(f"functionalization mixes up what {node.target.__name__} writes to")
        with _described(tracer, node), functional.layouts_kept(node, (*args, *kwargs.values())):
            if "scalar" in node.meta:
                values[node] = tracer.scalar(node.target, args, node.meta["example_value"])
            elif node.op == "call_method":
                values[node] = getattr(args[0], node.target)(*args[1:], **kwargs)
            else:
                assert node.op == "call_function"
                if "changes_state" in node.meta:
                    state.append((node.target, args))
                values[node] = node.target(*args, **kwargs)
    raise AssertionError("a graph without an output")


@contextlib.contextmanager
def _described(tracer: AtenTracer, node: fx.Node) -> Iterator[None]:
    """Operators of this captured operation, and of its backward, carry its user stack."""
    tracer.stack = node.meta.get("user_stack", ())
    tracer.region = node.meta.get("checkpoint")
    before = _torch.next_sequence_number()
    try:
        yield
    except (RuntimeError, *_torch.NEEDS_DATA) as error:  # of functionalization: the stand-ins have been through it
        reason = str(error).strip().partition("\n")[0]
        raise NotSplit(f"{node.target} cannot be traced: {reason}") from error
    finally:
        for number in range(before, _torch.next_sequence_number()):
            tracer.stacks[number] = (tracer.stack, tracer.region)
        tracer.stack, tracer.region = (), None


def _backward(joint: Joint, tracer: AtenTracer, wanted: dict[int, Any], leaves: list[Any]) -> None:
    """Run the engine on the wrapped tensors: the operators of the backward are recorded as they are called."""
    if any(node.target in LOOKS_AT_GRAD_MODE for node in tracer.graph.nodes):
        raise NotSplit("an LSTM's kernel on this device keeps what its backward needs only where autograd sees it")
    tracer.phase = BACKWARD
    tangents = []
    for at, value in wanted.items():
        tangent = functional.empty_like(tracer.fake_mode, functional.unwrapped(value))
        joint.tangents[at] = tracer.placeholder(f"tangent{at}", tangent)
        tangents.append(_torch.functionalization.wrap(tangent))
    sizes = [s for node in joint.tangents.values() for s in node.meta["val"].shape if is_symbolic(s)]
    joint.symbols = list(dict.fromkeys(n for size in sizes for n in tracer.sizes.symbols(size)))
    leaf_at = [i for i, leaf in enumerate(leaves) if leaf is not None]
    joint.gradients = [None] * len(leaves)
    with torch.no_grad(), _torch.DisableAutocast():
        sources = [leaves[i] for i in leaf_at]
        try:
            found = torch.autograd.grad(list(wanted.values()), sources, tangents, allow_unused=True)
        except RuntimeError as error:  # as it will when the user calls backward
            raise NotSplit(f"its backward fails: {str(error).splitlines()[0]}") from error
    for i, gradient in zip(leaf_at, found, strict=True):
        if gradient is not None:
            joint.gradients[i] = tracer.nodes[id(functional.unwrapped(gradient))]


# Operators with ``out=`` and other arguments that they write to: torch assigns the new values in the wrong order.
MIXES_UP_OUT = ("_native_batch_norm_legit", "_batch_norm_with_update")
# Kernels that look at grad mode when they run: below an autograd function it is off.
LOOKS_AT_GRAD_MODE = (torch.ops.aten.mkldnn_rnn_layer.default,)


def _writes_many(module: fx.GraphModule) -> bool:
    names = (str(getattr(n.target, "__name__", n.target)) for n in module.graph.nodes)
    return any(name.startswith("_foreach_") and name.endswith("_") for name in names)


def _drop_unused(joint: Joint) -> None:
    """Erase what no output needs; random operators stay, since they move the generator as eager does."""
    needed = {n for n in [*joint.outputs, *joint.gradients, *joint.symbols] if isinstance(n, fx.Node)}
    for node in reversed(joint.graph.nodes):
        if node.op == "placeholder":
            continue
        if node not in needed and not node.users and not has_effect(node):
            joint.graph.erase_node(node)
