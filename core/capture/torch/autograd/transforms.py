"""``torch.func``'s transforms and ``torch.vmap``: one operation of the graph, around a graph of the function.

The function is interpreted once, on stand-ins of what it will be given (of one example, for ``vmap``), into a graph of
its own. Tensors that it closes over become further inputs of that. The operation gives this graph to torch's own
transform, when stand-ins run, when AOT traces, and in backends that run the captured graph; so the numbers are torch's,
and ATen graphs hold plain operators. What a graph cannot say (writes, changes of global state, results that are no
tensors) is a graph break. Sizes that change are inputs of the function's graph like tensors that it closes over.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from jitney.capture.codegen.graph_runner import RUNS_EAGERLY, runs_eagerly
from jitney.capture.interpreter.binding import closure_cells
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import is_stand_in
from jitney.capture.metadata import version_of
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.torch.autograd.tape import Tape
from jitney.capture.torch.autograd.unused_results import ABUNDANT, drop_unused_results
from jitney.capture.torch.symbols import SYMBOLIC
from jitney.capture.torch.tensors import Tracer
from jitney.capture.world.cells import cell_get
from jitney.capture.world.writes import writes
from jitney.torch_compat import torch_private
from jitney.torch_compat.default_device import asked_after_devices

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

HINT = "call it outside the compiled function"
_counter = itertools.count()


# ------------------------------------------------------------------ the function's graph


class Body(Tracer):
    """The graph of a transformed function; tensors of what is around it become its inputs when they are used."""

    def __init__(self, outer: Tracer) -> None:
        dense, witness = outer.dense_gradients, outer.witness
        super().__init__(outer.symbols, outer.guards, outer.origin, dense_gradients=dense, witness=witness)
        self.outer = outer
        self.tape = Tape(toggles=False)
        self.adopted, self.versions = outer.adopted, outer.versions  # what is outside is outside here, too
        self.lifted: list[Any] = []
        self.numbers: dict[Any, fx.Node] = {}  # by expression
        self._last: fx.Node | None = None

    def argument(self, leaf: Any, dim: int | None, itself: bool = False) -> Any:
        """A stand-in for an argument: for one example, if it is mapped over a dimension; or that argument itself."""
        if itself:
            self.outer.node_of(leaf)  # breaks for what nobody knows
            self._add(leaf)
            return leaf
        made = leaf.detach() if dim is None else leaf.select(dim, 0).detach()
        self._add(made)
        return made

    def results(self) -> list[Any]:
        """Every tensor that the graph has computed."""
        computed = {key for key, node in self.nodes.items() if node.op != "placeholder"}
        return [fake for fake in {id(fake): fake for fake in self.kept}.values() if id(fake) in computed]

    def known(self) -> list[Any]:
        """Those of what is around it, too."""
        return [*super().known(), *self.outer.known()]

    def node_of(self, fake: Any) -> fx.Node:
        """The node of a stand-in; one from around it is an input from now on."""
        found = self.nodes.get(id(fake))
        if found is None:
            self.outer.node_of(fake)  # breaks for what nobody knows
            self.lifted.append(fake)
            found = self._add(fake)
        return found

    def _add(self, fake: Any) -> fx.Node:
        first = next(iter(self.graph.nodes), None)
        before = self._last.next if self._last is not None else first
        with self.graph.inserting_before(before):
            node = self.graph.placeholder(f"input{len(self.kept)}_{len(self.nodes)}")
        node.meta["example_value"] = fake
        self._last = node
        self.nodes[id(fake)] = node
        self.kept.append(fake)
        return node

    def _map(self, value: Any) -> Any:
        """A symbolic number of the graph around is an input from now on, too."""
        if type(value) not in SYMBOLIC:
            return super()._map(value)
        if type(value) is not torch.SymInt:
            raise Break("a function transform over a float or a condition that changes", "give it as a tensor")
        expression = value.node.expr
        found = self.numbers.get(expression)
        if found is None:
            if not expression.free_symbols:
                return int(expression)
            self.outer._map(value)  # breaks for what nobody knows
            self.lifted.append(value)
            found = self.numbers[expression] = self._add(value)
        return found


@dataclass(frozen=True)
class Captured:
    """A function as a graph.

    Args:
        graph: from the tensors among its arguments, then those that it closes over, to the tensors of its result.
        lifted: what it closes over.
        result: how the result is built of its tensors; None where the graph gives them all, for ``value``.
        value: what the function returned, if its tensors are to be those that the graph gives.
    """

    graph: fx.GraphModule
    lifted: tuple[Any, ...]
    result: Any
    value: Any = None

    def function(self, lifted: Sequence[torch.Tensor]) -> Callable[..., Any]:
        """The function again, for torch's transform."""

        def transformed(*args: Any, **kwargs: Any) -> Any:
            given = [leaf for leaf in torch_private.tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
            made = self.graph(*given, *lifted)
            return made if self.result is None else torch_private.tree_unflatten(list(made), self.result)

        return transformed


def taken_apart(tree: Any) -> tuple[Any, list[Any]]:
    """A skeleton of plain containers with a 0 for each leaf, and the leaves. Interpreted: what is read is guarded."""
    leaves: list[Any] = []
    return _part(tree, leaves), leaves


def _part(tree: Any, leaves: list[Any]) -> Any:
    kind = type(tree)
    if kind is tuple:
        return tuple([_part(item, leaves) for item in tree])
    if kind is list:
        return [_part(item, leaves) for item in tree]
    if kind is dict:
        return {key: _part(item, leaves) for key, item in tree.items()}
    leaves.append(tree)
    return 0


def flat(vm: Interpreter, tree: Any) -> tuple[list[Any], Any]:
    """The leaves of plain containers, read under guards, and torch's description of the rest."""
    skeleton, leaves = vm.call(taken_apart, tree)
    found, spec = torch_private.tree_flatten(skeleton)
    if len(found) != len(leaves):
        raise Break("a function transform of containers that torch does not know", HINT)
    return list(leaves), spec


def fresh(vm: Interpreter, tree: Any) -> Any:
    """Containers that were made here belong to the frame."""
    if type(tree) in (list, tuple):
        for item in tree:
            fresh(vm, item)
    elif type(tree) is dict:
        for item in tree.values():
            fresh(vm, item)
    return vm.world.mark_fresh(tree) if type(tree) in (list, dict) else tree


def captured(
    vm: Interpreter,
    fn: Any,
    leaves: Sequence[Any],
    spec: Any,
    dims: Sequence[int | None],
    what: str = "a function transform",
    itself: bool = False,
    kind: type[Body] = Body,
    whole: bool = False,
) -> Captured:
    """The graph of ``fn`` for arguments like these, or for these; ``what`` it is for, for messages.

    With ``whole``, its tensors are known outside as they are within, so its result may be anything.
    """
    outer, before = vm.tracer, writes(vm)
    of_data = outer.symbols.data_dependent()
    tensors = outer.snapshot()
    paused, outer.pause = outer.pause, True
    body = kind(outer)
    try:
        given = [
            body.argument(leaf, dim, itself) if is_stand_in(leaf) else leaf
            for leaf, dim in zip(leaves, dims, strict=True)
        ]
        args, kwargs = torch_private.tree_unflatten(given, spec)
        vm.tracer = body
        with asked_after_devices(body):
            result = vm.call(fn, *fresh(vm, args), **fresh(vm, kwargs))
            whole = whole and outer.symbols.data_dependent() == of_data  # of such sizes only the graph within knows
            made, form = (body.results(), None) if whole else flat(vm, result)
    finally:
        outer.pause, vm.tracer = paused, outer
    wrote = writes(vm) != before or any(version_of(t) != version for t, version in tensors)
    wrote = wrote or any(version_of(t) for t in given if is_stand_in(t) and not itself)
    outer.grad_questions += body.grad_questions
    if wrote or body.changes_state:
        raise Break(f"{what} of a function that changes something", "return what it computes")
    if not all(map(is_stand_in, made)):
        raise Break(f"{what} of a function that returns more than tensors", "return tensors alone")
    body.graph.output(tuple(body.node_of(leaf) for leaf in made))
    if not whole:
        drop_unused_results(body.graph)
    graph = fx.GraphModule({}, body.graph)
    if whole:
        outer.attributes.update(body.attributes)
        outer.rules.classes.update(body.rules.classes)
    return Captured(graph, tuple(body.lifted), form, result if whole else None)


# ------------------------------------------------------------------ the operation


def results_of(body: Captured) -> list[Any]:
    """Stand-ins for what a function returned."""
    output = next(iter(reversed(body.graph.graph.nodes)))
    return [node.meta["example_value"] for node in output.args[0]]


Run = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any], Any]


@dataclass(frozen=True)
class Application:
    """A function and what a transform of it is called with, captured: operations are made of it.

    Args:
        name: the transform's, for graphs.
        leaves, spec: the arguments, taken apart.
        body: the function.
    """

    name: str
    leaves: list[Any]
    spec: Any
    body: Captured

    @property
    def inputs(self) -> tuple[Any, ...]:
        """All that the function computes from: arguments, and what it closes over."""
        return (*filter(is_stand_in, self.leaves), *self.body.lifted)

    @property
    def tensors(self) -> list[Any]:
        """The tensors among these."""
        return [value for value in self.inputs if is_stand_in(value)]

    def record(self, vm: Interpreter, run: Run, more: Any = ()) -> Any:
        """Record a transform, and its result on stand-ins.

        Args:
            vm: what interprets.
            run: ``run(function, args, kwargs, more)``: torch's own transform.
            more: tensors in plain containers that the transform needs besides.
        """
        beside, beside_spec = flat(vm, more)
        if not all(map(is_stand_in, beside)):
            raise Break(f"{self.name} with something else than tensors", HINT)
        places = [n for n, leaf in enumerate(self.leaves) if is_stand_in(leaf)]
        plain = [None if is_stand_in(leaf) or type(leaf) in SYMBOLIC else leaf for leaf in self.leaves]
        spec, body = self.spec, self.body

        def operation(*flat: Any) -> Any:
            given = list(plain)
            for place, tensor in zip(places, flat, strict=False):
                given[place] = tensor
            whole, named = torch_private.tree_unflatten(given, spec)
            rest = flat[len(places) :]
            lifted, last = rest[: len(body.lifted)], rest[len(body.lifted) :]
            return run(body.function(lifted), whole, named, torch_private.tree_unflatten(list(last), beside_spec))

        if body.result is not None:
            return recorded(vm, self.name, operation, (*self.inputs, *beside), (body,))
        named(self.name, operation, (body,))
        made = tuple(results_of(body))
        node = vm.tracer.record(operation, (*self.inputs, *beside), {}, made)
        if node is not None:
            node.meta[ABUNDANT] = body.graph
        return body.value


def named(name: str, operation: Callable[..., Any], bodies: Sequence[Captured], late: bool = False) -> None:
    """Give an operation around graphs a name of its own, and say of it which graphs; see ``recorded``."""
    operation.__name__ = operation.__qualname__ = f"{name}_{next(_counter)}"
    within = (node.target for body in bodies for node in body.graph.graph.nodes)
    facts = {"graphs": tuple(body.graph for body in bodies), RUNS_EAGERLY: late or any(map(runs_eagerly, within))}
    operation.__dict__.update(facts)


def recorded(
    vm: Interpreter,
    name: str,
    operation: Callable[..., Any],
    flat: tuple[Any, ...],
    bodies: Sequence[Captured],
    late: bool = False,
) -> Any:
    """Record an operation around graphs of the program's functions; its result.

    Args:
        vm: what interprets.
        name: for graphs.
        operation: from ``flat`` to tensors in plain containers.
        flat: stand-ins.
        bodies: what it runs: ``node.target.graphs`` of the node.
        late: it looks at tensors' values, so ATen graphs cannot hold it.
    """
    named(name, operation, bodies, late)
    tracer = vm.tracer
    paused, tracer.pause = tracer.pause, True
    try:
        with torch_private.dispatch_kept():
            result = tracer.run(operation, flat, {})
    finally:
        tracer.pause = paused
    tracer.record(operation, flat, {}, result)
    return fresh(vm, result)


def application(
    vm: Interpreter,
    name: str,
    fn: Any,
    args: Any,
    kwargs: Any,
    dims: Sequence[int | None] | None = None,
    what: str = "a function transform",
    itself: bool = False,
    whole: bool = False,
) -> Application:
    """Capture ``fn`` for a transform that is called with these arguments.

    Args:
        vm: what interprets.
        name: the transform's, for graphs.
        fn: the program's function.
        args, kwargs: what the transformed function is called with.
        dims: for each leaf of the arguments, over which dimension it is mapped; by default none is.
        what: it is, for messages.
        itself: is it called with the arguments themselves, as autograd knows them?
        whole: are its tensors those of its result, as autograd knows them?
    """
    leaves, spec = flat(vm, (tuple(args), dict(kwargs)))
    body = captured(vm, fn, leaves, spec, [None] * len(leaves) if dims is None else dims, what, itself, whole=whole)
    return Application(name, leaves, spec, body)


# ------------------------------------------------------------------ the transforms


@dataclass(frozen=True)
class Transform:
    """One of torch's, with its settings: plain values."""

    name: str
    settings: tuple[tuple[str, Any], ...]

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The transformed function."""
        made: Callable[..., Any] = getattr(torch.func, self.name)(fn, **dict(self.settings))
        return made


def applied(
    name: str, settings: tuple[tuple[str, Any], ...], fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """A transformed function, called. Capture interprets it specially."""
    return Transform(name, settings)(fn)(*args, **kwargs)


@special(applied)
def _applied(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    name, settings, fn, *given = args
    transform = Transform(name, settings)
    return _record(vm, transform, fn, given, kwargs)


def _record(vm: Interpreter, transform: Transform, fn: Any, given: list[Any], kwargs: Kwargs) -> Any:
    dims = _dims(vm, dict(transform.settings)["in_dims"], given, kwargs) if transform.name == "vmap" else None

    def run(function: Callable[..., Any], whole: tuple[Any, ...], named: dict[str, Any], more: Any) -> Any:
        return transform(function)(*whole, **named)

    return application(vm, transform.name, fn, given, kwargs, dims).record(vm, run)


def _dims(vm: Interpreter, in_dims: Any, args: list[Any], kwargs: Kwargs) -> list[int | None]:
    """Over which dimension each leaf is mapped; keyword arguments are not."""
    leaves, spec = flat(vm, tuple(args))
    found = torch_private.broadcast_to_and_flatten(in_dims, spec)
    fits = found is not None and all(
        dim is None or (type(dim) is int and is_stand_in(leaf) and -leaf.dim() <= dim < leaf.dim() and leaf.shape[dim])
        for dim, leaf in zip(found, leaves, strict=True)
    )
    if not fits:  # torch says what is wrong
        raise Break("torch.vmap over these arguments", "")
    assert found is not None
    return [*found, *([None] * len(flat(vm, dict(kwargs))[0]))]


def setting(vm: Interpreter, value: Any) -> Any:
    """A setting that is plain, read under guards."""
    leaves, spec = flat(vm, value)
    if not all(leaf is None or type(leaf) in (int, bool, str) for leaf in leaves):
        raise Break("a function transform with settings that are not plain", HINT)
    return torch_private.tree_unflatten(leaves, spec)


def _transforming(name: str) -> Callable[[Interpreter, Args, Kwargs], Any]:
    signature = inspect.signature(getattr(torch.func, name))

    def make(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            raise Break(f"torch.func.{name} of these arguments", "") from None
        given = dict(bound.arguments)
        fn = given.pop("func")
        if name == "vmap":
            given.setdefault("in_dims", 0)
        settings = tuple((key, setting(vm, value)) for key, value in given.items())
        return vm.world.mark_fresh(functools.partial(applied, name, settings, fn))

    return make


NAMES = ("grad", "grad_and_value", "jacrev", "jacfwd", "hessian")
for _name in NAMES:
    special(getattr(torch.func, _name))(_transforming(_name))
mapped = _transforming("vmap")  # ``capture/torch/sequences/scans.py`` hands its calls on


# What functions call that a transform has made outside of compiled code.


def _grad_impl(name: str) -> Callable[[Interpreter, Args, Kwargs], Any]:
    def call(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        fn, argnums, has_aux, given, named = args
        settings = (("argnums", setting(vm, argnums)), ("has_aux", setting(vm, has_aux)))
        return _record(vm, Transform(name, settings), fn, vm.call(_listed, given), vm.call(_copied, named))

    return call


special(torch_private.grad_impl)(_grad_impl("grad"))
special(torch_private.grad_and_value_impl)(_grad_impl("grad_and_value"))


@special(torch_private.vmap_impl)
def _vmap_impl(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    fn, *rest = args
    names = ("in_dims", "out_dims", "randomness", "chunk_size")
    settings = tuple((key, setting(vm, value)) for key, value in zip(names, rest, strict=False))
    return _record(vm, Transform("vmap", settings), fn, rest[len(names) :], kwargs)


def _jacobian(name: str, code: types.CodeType) -> Callable[[Interpreter, types.FunctionType, Args, Kwargs], Any]:
    def call(vm: Interpreter, fn: types.FunctionType, args: Args, kwargs: Kwargs) -> Any:
        if kwargs:
            raise Break(f"what torch.func.{name} has made is called with keyword arguments", "")
        cells = zip(code.co_freevars, closure_cells(vm, fn), strict=True)
        found = {key: cell_get(vm, cell, key) for key, cell in cells}
        inner = found.pop("func")
        settings = tuple((key, setting(vm, value)) for key, value in found.items())
        return _record(vm, Transform(name, settings), inner, args, kwargs)

    return call


for _name, _code in torch_private.jacobians().items():
    special.codes[id(_code)] = _jacobian(_name, _code)


def _copied(named: Any) -> dict[str, Any]:
    """Interpreted, as ``_listed``."""
    return {**named}


@special(torch.func.jvp)
def _jvp(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 3 or not set(kwargs) <= {"has_aux", "strict"}:
        raise Break("torch.func.jvp of these arguments", HINT)
    fn, primals, tangents = args
    settings = {key: setting(vm, value) for key, value in kwargs.items()}

    def run(function: Callable[..., Any], whole: tuple[Any, ...], named: dict[str, Any], more: Any) -> Any:
        return torch.func.jvp(function, whole, more, **settings)

    made = application(vm, "jvp", fn, vm.call(_listed, primals), {})
    return made.record(vm, run, tuple(vm.call(_listed, tangents)))


def _listed(items: Any) -> list[Any]:
    """Interpreted: what is read is guarded."""
    return [item for item in items]  # noqa: C416


@special(torch.autograd.forward_ad.unpack_dual)
def _unpack_dual(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """A tensor without a tangent: compiled code runs in no level of forward-mode AD. Of a transform nobody knows."""
    if vm.tracer is not vm.world.tracer or len(args) + len(kwargs) != 1 or "level" in kwargs:
        raise Break("torch.autograd.forward_ad.unpack_dual in a function transform, or of a level", HINT)
    (tensor,) = (*args, *kwargs.values())
    return vm.call(torch.autograd.forward_ad.UnpackedDualTensor, tensor, None)


@special(torch_private.functorch_active)
def _functorch_active(vm: Interpreter, args: Args, kwargs: Kwargs) -> bool:
    """No: compiled code runs in no transform. Libraries ask before they call kernels that transforms do not know."""
    if vm.tracer is not vm.world.tracer or args or kwargs:
        raise Break("a function within a transform asks whether there is one", HINT)
    return False
