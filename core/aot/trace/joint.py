"""From a torch-level graph to the joint graph: its forward and its backward, functional, on ATen operators."""

from __future__ import annotations

import contextlib
import functools
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from jitney._util import interrupts
from jitney.aot.partition.cost import has_effect, is_random, late_effects
from jitney.aot.signals import NotSplit
from jitney.aot.trace import attention, functionalization, subclass_tracing
from jitney.aot.trace.backward_code import BackwardCode, refuse_partly_called
from jitney.aot.trace.intermediates import Intermediate, Stops, refuse_intermediates, repeats_effects
from jitney.aot.trace.inverses import only_moved
from jitney.aot.trace.results import GRADIENT_TYPES, Output, Result, Results, Update, View, ancestors, root_of
from jitney.aot.trace.sizes import is_symbolic, refuse_unknown
from jitney.aot.trace.subclass_layout import Layout
from jitney.aot.trace.subclass_tracing import Before
from jitney.aot.trace.traceable_variants import REWRITTEN, without_symbols
from jitney.aot.trace.tracer import BACKWARD, FORWARD, AtenTracer
from jitney.errors import JitneyError
from jitney.torch_compat import subclasses, torch_private
from jitney.torch_compat.autograd_engine import gradients_of
from jitney.torch_compat.default_device import DEVICE_CALLS
from jitney.torch_compat.global_state import StateKeeper, enter_inference_mode
from jitney.torch_compat.stand_ins.strides import StandInMode

# What operators raise on stand-ins; some formulas of torch's divide by a size, which may be 0.
FAILS: tuple[type[Exception], ...] = (RuntimeError, ArithmeticError)
# With what else a graph is not traced any further, but runs as it was captured.
CANNOT_TRACE: tuple[type[Exception], ...] = (*FAILS, *torch_private.NEEDS_DATA, NotSplit)


@dataclass
class Joint:
    """One graph that computes results, then gradients.

    Args:
        graph: functional; placeholders are ``inputs`` then ``tangents``; it has no output node.
        inputs: a placeholder for each input of the captured graph, in order.
        outputs: nodes (or numbers) that the forward computes: fresh results, then new values of inputs.
        results: what the caller gets, in terms of ``outputs`` and of its own arguments.
        updates: which inputs are written to.
        versions: how often outputs, by position, have been written to while they were computed; not where never.
        aliases: of outputs, by position, that autograd is to see as such in the memory of an argument: what they are.
        restricted: outputs, by position, to which autograd forbids to write: views that an autograd.Function gives.
        tangents: the placeholder of the gradient of an output, by position in ``outputs``; empty for inference.
        gradients: by input: the node of its gradient, None without one.
        intermediates: results that other results are computed from.
        symbols: nodes of the symbols that the tangents' sizes are made of.
        constants: the graph's attributes.
        final_state: the calls that leave torch's global state as the program left it.
    """

    graph: fx.Graph
    inputs: list[fx.Node]
    outputs: list[Any]
    results: list[Result]
    updates: list[Update]
    versions: dict[int, int] = field(default_factory=dict)
    aliases: dict[int, View] = field(default_factory=dict)
    restricted: set[int] = field(default_factory=set)
    tangents: dict[int, fx.Node] = field(default_factory=dict)
    gradients: list[Any] = field(default_factory=list)
    intermediates: list[Intermediate] = field(default_factory=list)
    symbols: list[fx.Node] = field(default_factory=list)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    final_state: list[tuple[Callable[..., Any], tuple[Any, ...]]] = field(default_factory=list)
    ambient_grad: bool = True  # was grad mode on where the graph begins?
    layout: Layout | None = None  # where tensors of subclasses are; then ``inputs`` and ``gradients`` are of inner ones

    @property
    def trains(self) -> bool:
        """Is there a backward?"""
        return bool(self.tangents)

    @property
    def late(self) -> list[Any]:
        """What the backward may be asked for: the gradients of inputs, None without one, and of intermediates."""
        return [*self.gradients, *(i.gradient for i in self.intermediates)]

    def input_node(self, at: int) -> fx.Node:
        """The placeholder of an input of the captured graph that is no tensor of a subclass."""
        if self.layout is None:
            return self.inputs[at]
        place = self.layout.inputs[at]
        assert isinstance(place, int)
        return self.inputs[place]

    def rewrite(self, joint_pass: Callable[[fx.Graph], None]) -> None:
        """Let a pass change how values are computed and how they lie in memory; what comes out stays what it was."""
        unread = [i.gradient for i in self.intermediates if not i.gradient.users]  # a pass may erase such
        output = self.graph.output((*self.outputs, *self.gradients, *unread))
        joint_pass(self.graph)
        rewritten: Any = output.args[0]
        self.graph.erase_node(output)
        count = len(self.outputs)
        self.outputs, self.gradients = list(rewritten[:count]), list(rewritten[count : count + len(self.gradients)])

    def verify(self) -> None:
        """Raise ``AssertionError`` unless the graph is functional, in order, and every node has a value."""
        self.graph.lint()
        known = set(self.graph.nodes)
        for node in self.graph.nodes:
            assert "val" in node.meta, f"{node} has no value"
            schema = getattr(node.target, "_schema", None)
            assert schema is None or not schema.is_mutable, f"{node.target} writes in place"
        for node in [*self.inputs, *self.outputs, *self.tangents.values(), *self.late]:
            assert not isinstance(node, fx.Node) or node in known, f"{node} is of another graph"
        assert all(0 <= at < len(self.outputs) for at in self.tangents)
        assert self.layout is not None or len(self.gradients) in (0, len(self.inputs))
        assert self.layout is None or len(self.layout.paths) == len(self.inputs)


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
    if torch.is_inference_mode_enabled():  # where operators that may give back their argument arrive whole
        with torch.inference_mode(False), torch.no_grad():
            return trace_joint(module, inputs, decompositions)
    keeper = StateKeeper()
    tracer = AtenTracer(_fake_mode(inputs), decompositions)
    tracer.has_subclasses = any(map(subclass_tracing.is_outer, inputs))
    scope = functionalization.below_subclasses() if tracer.has_subclasses else functionalization.functionalizing()
    # It ran when it was captured: something that functionalization does not know, or a __torch_dispatch__.
    errors: tuple[type[Exception], ...] = (Exception,) if tracer.has_subclasses else FAILS
    try:
        given, layout = _inputs(module, inputs, tracer)
        with torch_private.without_saved_tensor_hooks(), tracer.fake_mode, tracer, scope:
            return _trace(module, given, layout, inputs, tracer, keeper)
    except (NotSplit, JitneyError):
        raise
    except errors as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise NotSplit(f"it cannot be traced: {reason}") from error
    finally:
        keeper.restore()


def _fake_mode(inputs: Sequence[Any]) -> Any:
    for value in inputs:
        if isinstance(value, torch.Tensor):
            return next(leaf.fake_mode for leaf in subclasses.leaves(value))
    shapes = next((v.node.shape_env for v in inputs if is_symbolic(v)), None)
    return StandInMode(shape_env=shapes, allow_non_fake_inputs=False)


@dataclass
class _Given:
    """One input: what the program gets, and the leaf that its gradient arrives at."""

    value: Any
    leaf: Any = None


def _inputs(
    module: fx.GraphModule, inputs: Sequence[Any], tracer: AtenTracer
) -> tuple[list[_Given], subclass_tracing.Entrance]:
    given: list[_Given] = []
    entrance = subclass_tracing.Entrance(tracer)
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    for node, value in zip(placeholders, inputs, strict=True):
        if not isinstance(value, torch.Tensor):
            entrance.plain(tracer.placeholder(node.name, value))
            given.append(_Given(value))
            continue
        if subclass_tracing.is_outer(value):
            make = entrance.outer(node.name, value)
            given.append(_Given(*functionalization.wrapped(make, value.requires_grad, value.is_leaf)))
            continue
        if value.is_conj() or value.is_neg():
            raise NotSplit("an input that is a lazily conjugated or negated view")
        with tracer.fake_mode, torch.no_grad():
            strided = value.layout is torch.strided
            inner = _outside_inference(value) if value.is_inference() and strided else value.detach()
        made = tracer.placeholder(node.name, inner)
        made.meta["parameter"] = value.requires_grad and value.is_leaf
        make = functools.partial(torch_private.functionalization.wrap, inner)
        entrance.plain(made)
        given.append(_Given(*functionalization.wrapped(make, value.requires_grad, value.is_leaf)))
    return given, entrance


def _outside_inference(value: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor that autograd knows: of others, operators arrive whole (see ``trace_joint``)."""
    made: Any = torch.empty(0, dtype=value.dtype, device=value.device)
    env = made.fake_mode.shape_env
    with contextlib.nullcontext() if env is None else env.suppress_guards():  # it fits into the memory that it is in
        return made.set_(value.untyped_storage(), value.storage_offset(), value.shape, value.stride())


def _trace(
    module: fx.GraphModule,
    given: list[_Given],
    entrance: subclass_tracing.Entrance,
    inputs: Sequence[Any],
    tracer: AtenTracer,
    keeper: StateKeeper,
) -> Joint:
    refuse_unknown(module.graph)
    ambient_grad = torch.is_grad_enabled()
    values = [g.value for g in given]
    afters = [n.meta.get("example_value") for n in module.graph.nodes if n.op == "placeholder"]
    before = [
        Before(getattr(v, "grad_fn", None), captured, after, functionalization.version(v), subclass_tracing.inner_of(v))
        for v, captured, after in zip(values, inputs, afters, strict=True)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # capture has given them, from the lines that they name
        returned, final_state, uncounted = _run(module, values, tracer)
    _check_random(tracer.graph, inputs)
    results = Results(tracer, values, entrance, before, returned, ambient_grad, uncounted)
    joint = Joint(
        tracer.graph,
        entrance.nodes,
        results.outputs,
        results.results,
        results.updates,
        {} if tracer.has_subclasses else results.versions(),
        results.aliases,
        set() if tracer.has_subclasses else results.restricted - results.aliases.keys(),
        constants=tracer.constants,
        final_state=final_state if keeper.changed() or any(f in DEVICE_CALLS for f, _ in final_state) else [],
        ambient_grad=ambient_grad,
        layout=entrance.layout if tracer.has_subclasses else None,
    )
    wanted, outer = results.differentiable(), results.differentiable_outer()
    if any(v.is_leaf for v in wanted.values()) or ((wanted or outer) and all(g.leaf is None for g in given)):
        raise NotSplit("a tensor that it makes requires grad by itself")
    if wanted or outer:
        visible = results.visible()
        if any(v.value._backward_hooks for v in visible):
            raise NotSplit("a result has a hook, which comes before those that the program may put on it")
        if joint.layout is not None:
            refuse_intermediates([*(v.value for v in visible), *outer.values()], [*wanted.values(), *outer.values()])
            visible = []
        _backward(joint, tracer, wanted, outer, [g.leaf for g in given], Stops(tracer, visible))
    _separate(joint, results.fresh if joint.trains else set())
    _drop_unused(joint)
    return joint


def _check_random(graph: fx.Graph, inputs: Sequence[Any]) -> None:
    """Refuse random operators on DTensors: these also run on tensors without data, to find sizes out."""
    distributed = any(type(v).__module__.startswith("torch.distributed") for v in inputs)
    if distributed and any(is_random(node) for node in graph.nodes):
        raise NotSplit("a random operator beside a DTensor")


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


def _run(
    module: fx.GraphModule, given: list[Any], tracer: AtenTracer
) -> tuple[tuple[Any, ...], list[Any], Counter[int]]:
    """Call the captured operations, in order.

    Returns the graph's outputs, the calls that changed torch's state, and how often memory was written to uncounted.
    """
    values: dict[fx.Node, Any] = {}
    state: list[Any] = []
    uncounted: Counter[int] = Counter()
    arguments = iter(given)
    storages = {functionalization.storage_of(v) for v in given if functionalization.is_wrapped(v)}
    for node in module.graph.nodes:
        if interrupts.waiting:
            interrupts.postponement.deliver()
        if node.op == "placeholder":
            values[node] = next(arguments)
            continue
        args = _mutable(fx.node.map_arg(node.args, values.__getitem__))
        if node.op == "output":
            return tuple(args[0]), state, uncounted
        kwargs = _mutable(fx.node.map_arg(node.kwargs, values.__getitem__))
        args, kwargs = without_symbols(node.target, args), without_symbols(node.target, kwargs)
        uncounted.update(_written_in_lists(node, args, kwargs))
        if node.target is enter_inference_mode:
            raise NotSplit("a part of it runs in inference mode")
        if "out" in kwargs and getattr(node.target, "__name__", "") in MIXES_UP_OUT:
            raise NotSplit(f"functionalization mixes up what {node.target.__name__} writes to")
        with (
            _described(tracer, node),
            functionalization.layouts_kept(node, (*args, *kwargs.values())),
            functionalization.writes_checked(node, args, kwargs, storages),
            only_moved(tracer.graph, args, kwargs),
        ):
            if "scalar" in node.meta:
                values[node] = tracer.scalar(node.target, args, node.meta["example_value"])
            elif node.op == "call_method":
                values[node] = torch_private.run_on_stand_ins(getattr(args[0], node.target), args[1:], kwargs)
            else:
                assert node.op == "call_function"
                if "changes_state" in node.meta:
                    state.append((node.target, args))
                    if node.target in DEVICE_CALLS:
                        values[node] = None
                        continue
                if node.target is attention.ATTENTION:
                    args, kwargs = (), attention.with_plain_mask(tracer, args, kwargs)
                values[node] = torch_private.run_on_stand_ins(REWRITTEN.get(node.target, node.target), args, kwargs)
    raise AssertionError("a graph without an output")


def _mutable(value: Any) -> Any:
    """Arguments as generated code gives them: FX keeps lists and dictionaries that refuse writes."""
    if isinstance(value, fx.immutable_collections.immutable_dict):
        return {k: _mutable(v) for k, v in value.items()}
    if isinstance(value, fx.immutable_collections.immutable_list):
        return list(map(_mutable, value))
    return tuple(map(_mutable, value)) if type(value) is tuple else value


@contextlib.contextmanager
def _described(tracer: AtenTracer, node: fx.Node) -> Iterator[None]:
    """Operators of this captured operation, and of its backward, carry its user stack."""
    tracer.stack = node.meta.get("user_stack", ())
    tracer.region = node.meta.get("checkpoint")
    tracer.draws_in_place = getattr(node.target, "__name__", node.target) != "bernoulli"
    before = torch_private.next_sequence_number()
    try:
        yield
    except JitneyError:  # of a backend's own decomposition
        raise
    except FAILS + torch_private.NEEDS_DATA as error:  # of functionalization: the stand-ins have been through it
        reason = str(error).strip().partition("\n")[0]
        raise NotSplit(f"{node.target} cannot be traced: {reason}") from error
    finally:
        for number in range(before, torch_private.next_sequence_number()):
            tracer.stacks[number] = (tracer.stack, tracer.region)
        tracer.stack, tracer.region = (), None


def _backward(
    joint: Joint,
    tracer: AtenTracer,
    wanted: dict[int, Any],
    outer: dict[int, Any],
    leaves: list[Any],
    stops: Stops,
) -> None:
    """Run the engine on the wrapped tensors: the operators of the backward are recorded as they are called."""
    tracer.phase = BACKWARD
    tangents = []
    for at, value in wanted.items():
        tangent = functionalization.tangent_like(tracer.fake_mode, functionalization.unwrapped(value))
        joint.tangents[at] = tracer.placeholder(f"tangent{at}", tangent)
        tangents.append(torch_private.functionalization.wrap(tangent))
    tangents += [_outer_tangent(joint, tracer, at, value) for at, value in outer.items()]
    sizes = [s for node in joint.tangents.values() for s in node.meta["val"].shape if is_symbolic(s)]
    joint.symbols = list(dict.fromkeys(n for size in sizes for n in tracer.sizes.symbols(size)))
    leaf_at = [i for i, leaf in enumerate(leaves) if leaf is not None]
    code = BackwardCode(tracer)
    with torch.no_grad(), torch_private.DisableAutocast(), stops:
        sources = [leaves[i] for i in leaf_at]
        try:
            with code:
                found = gradients_of([*wanted.values(), *outer.values()], sources, tangents)
        except JitneyError:
            raise
        except Exception as error:  # as it will when the user calls backward, or only on stand-ins
            if not isinstance(error, FAILS) and _raised_here(error):
                raise
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise NotSplit(f"its backward fails: {reason}") from error
    code.refuse()
    made = [tracer.nodes[id(functionalization.unwrapped(g))] for g in found if functionalization.is_wrapped(g)]
    refuse_partly_called(joint.graph, [*wanted.values(), *outer.values()], joint.tangents.values(), made)
    if len(joint.tangents) > 1:
        ends = set(joint.tangents.values())
        if any(ends.isdisjoint(ancestors([effect])) for effect in late_effects(joint.graph)):
            raise NotSplit("which numbers its backward draws depends on which results have a gradient")
    gradients: list[Any] = [None] * len(leaves)
    for i, gradient in zip(leaf_at, found, strict=True):
        gradients[i] = gradient
    if joint.layout is None:
        joint.gradients = [None if g is None else tracer.nodes[id(functionalization.unwrapped(g))] for g in gradients]
        joint.intermediates, plain = stops.found(joint.tangents)
        if repeats_effects(joint.graph, joint.gradients, joint.intermediates):
            raise NotSplit("its backward has effects, and results are computed from other results")
        _without_stops(joint, plain)
    else:
        same = [type(g) is type(leaf) for g, leaf in zip(gradients, leaves, strict=True) if g is not None]
        if len(tangents) > 1 and not all(same):
            raise NotSplit("the class of a gradient depends on which results have one")
        _outer_gradients(joint, joint.layout, tracer, gradients)


def _without_stops(joint: Joint, plain: Mapping[fx.Node, fx.Node]) -> None:
    """Where the engine stopped for nothing, what came goes on."""
    joint.gradients = [plain.get(g, g) for g in joint.gradients]
    for node, source in plain.items():
        node.replace_all_uses_with(source)
    for node in plain:
        joint.graph.erase_node(node)


def _raised_here(error: Exception) -> bool:
    """Is it of our own code, not of torch's or of an autograd function of the program's?"""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return str(frames[-1].f_globals.get("__name__")).partition(".")[0] == "jitney"


def _outer_tangent(joint: Joint, tracer: AtenTracer, at: int, value: Any) -> Any:
    """The gradient of a result of a subclass: around new inputs of the graph."""
    assert joint.layout is not None
    expected = subclass_tracing.expected_tangent(value)
    places = iter(joint.layout.results[at].positions())

    def tangent(leaf: Any) -> Any:
        place = next(places, None)
        if place is None or leaf.dtype not in GRADIENT_TYPES:
            raise NotSplit(f"gradients of a {type(value).__qualname__} are not known")
        made = functionalization.tangent_like(tracer.fake_mode, functionalization.unwrapped(leaf))
        joint.tangents[place] = tracer.placeholder(f"tangent{place}", made)
        return torch_private.functionalization.wrap(made)

    found = subclasses.rebuilt(expected, tangent)
    again = iter(joint.layout.results[at].positions())
    joint.layout.tangents[at] = subclass_tracing.outer_template(found, lambda leaf: next(again), lambda size: 0)
    if next(places, None) is not None:
        raise NotSplit(f"gradients of a {type(value).__qualname__} are not known")
    return found


def _outer_gradients(joint: Joint, layout: Layout, tracer: AtenTracer, gradients: list[Any]) -> None:
    """Gradients, some of subclasses, as nodes. Those within a subclass have memory of their own.

    The engine keeps a gradient that nobody else refers to, and adds to it later; it does not see who has inner ones.
    """

    def node_of(leaf: Any) -> fx.Node:
        return tracer.nodes[id(functionalization.unwrapped(leaf))]

    def place(leaf: Any) -> int:
        joint.gradients.append(node_of(leaf))
        return len(joint.gradients) - 1

    taken = {root_of(node_of(g)) for g in gradients if functionalization.is_wrapped(g)}

    def own(leaf: Any) -> int:
        root = root_of(node_of(leaf))
        if root in taken or root.op != "call_function" or root.meta["phase"] is not BACKWARD:
            return place(torch.ops.aten.clone.default(leaf))
        taken.add(root)
        return place(leaf)

    def number(size: Any) -> Any:
        node = tracer.map(size)
        if not isinstance(node, fx.Node):
            return node
        joint.gradients.append(node)
        return Output(len(joint.gradients) - 1, tensor=False)

    for gradient in gradients:
        if gradient is None:
            layout.gradients.append(None)
        else:
            layout.gradients.append(
                subclass_tracing.template(gradient, own if subclass_tracing.is_outer(gradient) else place, number)
            )


# Operators with ``out=`` and other arguments that they write to: torch assigns the new values in the wrong order.
MIXES_UP_OUT = ("_native_batch_norm_legit", "_batch_norm_with_update")


def _written_in_lists(node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> list[int]:
    """The memory of what a ``_foreach`` operation writes to, of whose versions functionalization loses count."""
    name = str(getattr(node.target, "__name__", node.target))
    if not name.startswith("_foreach_") or not name.endswith("_"):
        return []
    written = args[0] if args else kwargs["self"]
    return [functionalization.storage_of(v) for v in written if functionalization.is_wrapped(v)]


def _drop_unused(joint: Joint) -> None:
    """Erase what no output needs; random operators stay, since they move the generator as eager does."""
    needed = {n for n in [*joint.outputs, *joint.late, *joint.symbols] if isinstance(n, fx.Node)}
    for node in reversed(joint.graph.nodes):
        if node.op == "placeholder":
            continue
        if node not in needed and not node.users and not has_effect(node):
            joint.graph.erase_node(node)
