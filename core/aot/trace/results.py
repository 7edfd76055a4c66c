"""What a functional graph's caller must do with its outputs, so that the program sees what it would have seen.

A functional graph only makes new tensors. Results that were inputs, or views of inputs, or views of one another, are
made again from the real tensors by the caller; inputs that were written to get their new values.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from jitney.aot.memory_overlap import overlaps_itself
from jitney.aot.signals import NotSplit
from jitney.aot.trace import functionalization, subclass_tracing
from jitney.aot.trace.sizes import is_symbolic
from jitney.aot.trace.subclass_tracing import Before
from jitney.aot.trace.tracer import AtenTracer
from jitney.torch_compat.views import has_lost_history, made_by_function, made_without_grad

GRADIENT_TYPES = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
)


@dataclass(frozen=True)
class Constant:
    """The same plain value in each call."""

    value: Any


@dataclass(frozen=True)
class Output:
    """The graph's output at this position; ``tensor`` is False for a symbolic number."""

    at: int
    tensor: bool = True


@dataclass(frozen=True)
class Outer:
    """A tensor of a subclass, around outputs of the graph: the one at this position in ``Layout.results``."""

    at: int


@dataclass(frozen=True)
class Argument:
    """The caller's own argument at this position."""

    at: int


@dataclass(frozen=True)
class Shown:
    """Another result that is a view, at this position among the results."""

    at: int


@dataclass(frozen=True)
class Step:
    """One view operator. ``args`` follow the tensor; ``item`` picks one of several results."""

    target: Any
    args: tuple[Any, ...]  # numbers, and Output for symbolic ones
    kwargs: tuple[tuple[str, Any], ...] = ()
    item: int | None = None


@dataclass(frozen=True)
class View:
    """A view of an argument or of another output, made by ``steps``.

    Args:
        detached: autograd shall not see it.
        attached: autograd shall see it, though grad mode is off where the graph begins.
        writes: how often its version counter sees a write, where that is its own.
    """

    base: Argument | Output | Shown
    steps: tuple[Step, ...]
    detached: bool = False
    attached: bool = False
    writes: int = 0


Result = Constant | Output | Outer | Argument | View


@dataclass(frozen=True)
class Visible:
    """A tensor with a history that the program gets to see.

    Args:
        value: the functional tensor.
        at: the output that it is; None for a view, whose gradient arrives at what it is a view of.
        result: its position among the results; None for an input that is written to.
        input: the position of that input.
    """

    value: Any
    at: int | None
    result: int | None = None
    input: int | None = None


@dataclass(frozen=True)
class Update:
    """An input that the program writes to.

    Args:
        input: its position.
        at: the output that is its new value; None if only its shape changes.
        tracked: does autograd see the write?
        silent: does not even the version counter see it (``.data``)?
        writes: how often the version counter sees it.
        geometry: its new (size, stride), if its shape changes; numbers, and Output for symbolic ones.
    """

    input: int
    at: int | None
    tracked: bool
    silent: bool = False
    writes: int = 1
    geometry: tuple[Any, Any] | None = None


@dataclass
class Results:
    """Sorts what a traced program returned and did to its inputs.

    Args:
        tracer: what recorded it.
        given: its inputs: functional tensors, symbols, numbers.
        entrance: their placeholders.
        before: what is needed of each input from before the program ran.
        returned: its results.
        ambient_grad: was grad mode on where the program began?
        uncounted: how often memory is written to by operations on lists, of which functionalization loses count.
    """

    tracer: AtenTracer
    given: list[Any]
    entrance: subclass_tracing.Entrance
    before: list[Before]
    returned: tuple[Any, ...]
    ambient_grad: bool
    uncounted: Mapping[int, int]
    outputs: list[Any] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    fresh: set[int] = field(default_factory=set)  # positions of outputs that are results, or what results are views of
    # Outputs in the memory of an argument whose history an autograd.Function has made: what they are views of.
    aliases: dict[int, View] = field(default_factory=dict)
    restricted: set[int] = field(default_factory=set)  # outputs to which autograd forbids to write, as to views

    def __post_init__(self) -> None:
        self._values: dict[int, Any] = {}  # position in outputs -> functional tensor
        self._at: dict[Any, int] = {}  # id of functional tensor, or node -> position
        self._outer: list[Any] = []  # results of subclasses
        self._inputs = {
            functionalization.storage_of(v): i for i, v in enumerate(self.given) if functionalization.is_wrapped(v)
        }
        if self.tracer.has_subclasses:
            subclass_tracing.check_memory(self.given, self.returned)
        self._groups: dict[int, list[Any]] = {}
        for value in self.returned:
            if functionalization.is_wrapped(value):
                group = self._groups.setdefault(functionalization.storage_of(value), [])
                if not any(value is v for v in group):
                    group.append(value)
        self.results = [self._result(value) for value in self.returned]
        self._nest_views()
        self._find_updates()

    def differentiable(self) -> dict[int, Any]:
        """Outputs that need a gradient, by position."""
        hidden = {u.at for u in self.updates if u.at is not None and not u.tracked}
        return {
            at: value
            for at, value in self._values.items()
            if value.requires_grad and value.dtype in GRADIENT_TYPES and at not in hidden
        }

    def differentiable_outer(self) -> dict[int, Any]:
        """Results of subclasses that need a gradient, by position in ``Layout.results``."""
        return {i: v for i, v in enumerate(self._outer) if v.requires_grad and v.dtype in GRADIENT_TYPES}

    def visible(self) -> list[Visible]:
        """What has a history and is seen by the program, each tensor once."""
        wanted = self.differentiable()
        found = {id(self.given[u.input]): Visible(self.given[u.input], u.at, input=u.input)
                 for u in self.updates if u.at in wanted}  # fmt: skip
        for i, (result, value) in enumerate(zip(self.results, self.returned, strict=True)):
            if isinstance(result, Output) and result.at in wanted:
                found.setdefault(id(value), Visible(value, result.at, i))
            elif isinstance(result, View) and self._has_history(result, value):
                found.setdefault(id(value), Visible(value, None, i))
        return list(found.values())

    @staticmethod
    def _has_history(view: View, value: Any) -> bool:
        return value.requires_grad and not view.detached and not is_hidden(value) and value.dtype in GRADIENT_TYPES

    # ------------------------------------------------------------------ results

    def _outer_result(self, value: Any) -> Result:
        for i, given in enumerate(self.given):
            if value is given:
                return Argument(i)
        for i, other in enumerate(self._outer):
            if value is other:
                return Outer(i)
        subclass_tracing.check_result(value)
        made = subclass_tracing.outer_template(
            value, lambda leaf: self._append(self._node(leaf), leaf), lambda size: self._plain(self.tracer.map(size))
        )
        self._outer.append(value)
        self.entrance.layout.results.append(made)
        return Outer(len(self._outer) - 1)

    def _result(self, value: Any) -> Result:
        if is_symbolic(value):
            node = self.tracer.sizes.node(value)
            return Output(self._append(node, None), tensor=False) if isinstance(node, fx.Node) else Constant(node)
        if not isinstance(value, torch.Tensor):
            return Constant(value)
        if subclass_tracing.is_outer(value):
            return self._outer_result(value)
        if not functionalization.is_wrapped(value):
            raise NotSplit("a result that is no tensor of the graph")
        storage = functionalization.storage_of(value)
        if storage in self._inputs:
            at = self._inputs[storage]
            if value is self.given[at]:
                return Argument(at)
            return self._view(value, Argument(at), self.given[at])
        base = self._base(self._groups[storage], value)
        if value.requires_grad and value.is_leaf and not is_hidden(value):
            raise NotSplit("a tensor that it makes requires grad by itself")
        if base is value:
            return Output(self._fresh(value))
        return self._view(value, Output(self._fresh(base)), base)

    def _fresh(self, value: Any) -> int:
        at = self._at.get(id(value))
        if at is None:
            at = self._append(self._node(value), value)
            self._at[id(value)] = at
            if made_by_function(value):
                self.restricted.add(at)
            if value._base is None:
                self.fresh.add(at)
        return at

    def _append(self, node: Any, value: Any) -> int:
        if value is None and node in self._at:
            return self._at[node]
        self.outputs.append(node)
        if value is None:
            self._at[node] = len(self.outputs) - 1
        else:
            self._values[len(self.outputs) - 1] = value
        return len(self.outputs) - 1

    def _node(self, value: Any) -> fx.Node:
        return self.tracer.nodes[id(functionalization.unwrapped(value))]

    def _base(self, group: list[Any], value: Any) -> Any:
        """Of results that share memory, the one that the others are views of; it may be no result itself.

        The caller makes the views, so that autograd knows them as views, as it does in eager.
        """
        roots: list[Any] = []
        for member in group:
            root = _family(member)
            if not any(root is r for r in roots):
                roots.append(root)
        if len(group) == 1 and (not self._sees_grad() or self._alone(value)):
            return value
        for base in sorted(roots, key=lambda root: not root.requires_grad):
            if all(self._steps(self._node(v), self._node(base)) is not None for v in [*roots, *group]):
                if any(v.requires_grad and not is_hidden(v) for v in group) and not base.requires_grad:
                    raise NotSplit("a view that requires grad of a tensor that does not")
                return base
        raise NotSplit("results that are views of different tensors in the same memory")

    def _alone(self, value: Any) -> bool:
        """A view with a history, by operators whose results may be written to, of memory of which nothing else is seen.

        It may be a result as any other; then autograd's node of it is the graph's, which knows of its hooks.
        """
        if value._base is None or not value.requires_grad or is_hidden(value):
            return False
        if overlaps_itself(value.shape, value.stride()):
            return False
        steps = self._steps(self._node(value), self._node(value._base))
        return steps is not None and all(step.item is None for step in steps)

    def _sees_grad(self) -> bool:
        return self.ambient_grad and any(isinstance(v, torch.Tensor) and v.requires_grad for v in self.given)

    # ------------------------------------------------------------------ views

    def _view(self, value: Any, reference: Argument | Output, base: Any) -> View | Output:
        if has_lost_history(value):
            raise NotSplit("a view that autograd does not know, of a tensor that was written to since")
        steps = self._steps(self._node(value), self._node(base))
        if steps is None:
            raise NotSplit("a result that shares memory with another tensor and is no view of it")
        cut_off = any(step.target is torch.ops.aten.detach.default for step in steps)
        hidden = is_hidden(value)
        seen = value.requires_grad and not hidden
        if seen and (cut_off or not base.requires_grad):
            raise NotSplit("a tensor that it makes requires grad by itself")
        data = not cut_off and not value.requires_grad and _family(value) is not _family(base)
        if data:  # of which there is no node
            steps, cut_off = (Step(torch.ops.aten.data.default, ()), *steps), True
        if not steps:  # the same elements, another tensor, such as the data of what requires grad later on
            steps = (Step((torch.ops.aten.alias if value.requires_grad else torch.ops.aten.detach).default, ()),)
        if seen and _is_of_function(value, base, len(steps)):
            return self._alias(value, View(reference, steps))
        several = any(step.item is not None for step in steps)  # autograd forbids to write to such by itself
        quiet = made_without_grad(value) or (not seen and not several and made_by_function(value))
        unseen = self.ambient_grad and quiet  # the caller may want its base's gradient
        detached = bool(not cut_off and (unseen or (base.requires_grad and not seen)))
        attached = bool(seen and not self.ambient_grad and not quiet)
        return View(reference, steps, detached, attached, self._writes(value) if data else 0)

    def _alias(self, value: Any, view: View) -> Output:
        """A result of an autograd.Function that gives back its argument, or a view of it: its backward is the graph's.

        So it is a result of the graph's own autograd function, as it is one of the program's in eager.
        """
        if not isinstance(view.base, Argument) or self.tracer.has_subclasses:
            raise NotSplit("an autograd.Function gives back its argument, and both are results")
        several = len(self._groups[functionalization.storage_of(value)]) > 1
        if several and not isinstance(value.grad_fn, torch.autograd.function.BackwardCFunction):
            raise NotSplit("an autograd.Function gives back its argument, of which views are results, too")
        at = self._fresh(value)
        self.aliases[at] = view
        return Output(at)

    def _nest_views(self) -> None:
        """Views of results that are views themselves are made of these, so that autograd finds the way as in eager."""
        views = [
            (i, result, self._node(value))
            for i, (result, value) in enumerate(zip(self.results, self.returned, strict=True))
            if isinstance(result, View) and self._has_history(result, value)
        ]
        shown: dict[fx.Node, int] = {}
        for i, _, node in views:
            shown.setdefault(node, i)
        for i, result, node in views:
            between = node
            for count in range(1, len(result.steps)):
                between = _source(between)
                at = shown.get(between)
                if at is not None:
                    self.results[i] = View(Shown(at), result.steps[-count:])
                    break

    def _steps(self, node: fx.Node, base: fx.Node) -> tuple[Step, ...] | None:
        """The view operators between two nodes; None if there is another operator between them."""
        steps: list[Step] = []
        while node is not base:
            item: Any = None
            if node.target is operator.getitem:
                item = node.args[1]
                assert isinstance(node.args[0], fx.Node)
                node = node.args[0]
            if not is_view(node) or not isinstance(node.args[0], fx.Node):
                return None
            args = tuple(self._plain(a) for a in node.args[1:])
            kwargs = tuple((k, self._plain(v)) for k, v in node.kwargs.items())
            steps.append(Step(node.target, args, kwargs, item))
            node = node.args[0]
        return tuple(reversed(steps))

    def _geometry(self, before: Before) -> tuple[Any, Any]:
        """Size and stride that eager gave to an input; those of the functional graph are of fresh memory."""
        after = before.after
        if after.storage_offset() != before.captured.storage_offset():
            raise NotSplit("an input begins elsewhere in its memory")
        size, stride = (self._plain(self.tracer.map(tuple(p))) for p in (after.shape, after.stride()))
        return size, stride

    def _plain(self, value: Any) -> Any:
        """Sizes that are nodes become outputs of the graph."""
        if isinstance(value, fx.Node):
            return Output(self._append(value, None), tensor=False)
        if isinstance(value, (list, tuple)):
            return tuple(map(self._plain, value))
        return value

    # ------------------------------------------------------------------ inputs that were written to

    def _find_updates(self) -> None:
        for i, value in enumerate(self.given):
            if subclass_tracing.is_outer(value):
                subclass_tracing.check_unwritten(value, self.before[i])
            if not functionalization.is_wrapped(value):
                continue
            captured = self.before[i].captured
            if captured.requires_grad and (not value.requires_grad or (captured.is_leaf and value.grad_fn is not None)):
                raise NotSplit("an input is detached in place")
            if functionalization.memory_replaced(value):
                raise NotSplit("an input's memory is replaced")
            shaped, written = functionalization.metadata_written(value), functionalization.data_written(value)
            if not shaped and not (written and self._node(value) is not self._input(i)):
                continue
            if written and overlaps_itself(captured.shape, captured.stride()):
                raise NotSplit("a write to an input some of whose elements share memory")
            before = self.before[i]
            tracked = value.grad_fn is not before.history
            if shaped and not tracked and value.requires_grad:
                raise NotSplit("the shape of an input that requires grad changes where autograd does not look")
            if before.after is None:
                raise NotSplit("an extension's graph writes to its inputs")
            if any(view.base == Argument(i) for view in self.aliases.values()):
                raise NotSplit("an autograd.Function gives back an argument that is written to")
            writes = self._writes(value, before.version)
            self.updates.append(
                Update(
                    i,
                    self._append_update(value) if written else None,
                    tracked=tracked,
                    silent=not writes and before.version >= 0,
                    writes=writes,
                    geometry=self._geometry(before) if shaped else None,
                )
            )

    def _writes(self, value: Any, before: int = 0) -> int:
        """How often it has been written to, as its version counter sees it, since that was ``before``."""
        return functionalization.version(value) - before + self.uncounted.get(functionalization.storage_of(value), 0)

    def versions(self) -> dict[int, int]:
        """How often what it gives back has been written to, by the position of the output; not where never."""
        made = {at: self._writes(value) for at, value in self._values.items() if self._at.get(id(value)) == at}
        return {at: count for at, count in made.items() if count > 0 and at not in self.aliases}

    def _input(self, at: int) -> fx.Node:
        place = self.entrance.layout.inputs[at]
        assert isinstance(place, int)
        return self.entrance.nodes[place]

    def _append_update(self, value: Any) -> int:
        self.outputs.append(self._node(value))
        self._values[len(self.outputs) - 1] = value
        return len(self.outputs) - 1


def is_hidden(value: Any) -> bool:
    """Is it a view, made where autograd does not look, of a tensor that requires grad?"""
    if value._base is None or not value._base.requires_grad:
        return False
    return has_lost_history(value) or value.grad_fn is None


def _family(value: Any) -> Any:
    """The tensor whose views autograd knows as such, this one or a view of it; ``x.data`` is of none but its own."""
    return value if value._base is None else value._base


def _is_of_function(value: Any, base: Any, steps: int) -> bool:
    """Is an autograd.Function among the operators, no more than so many, that made a view? Its backward is its own."""
    node = value.grad_fn
    for _ in range(steps + 1):
        if node is None or node is base.grad_fn:
            return False
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return True
        node = node.next_functions[0][0] if node.next_functions else None
    return False


def is_view(node: fx.Node) -> bool:
    """Does the operator return a view of its first argument?"""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.arguments:
        return False
    alias = schema.arguments[0].alias_info
    return alias is not None and not alias.is_write and bool(schema.returns)


def _source(view: fx.Node) -> fx.Node:
    """What a view operator's result, or the result of one with several, is a view of."""
    maker = view.args[0] if view.target is operator.getitem else view
    assert isinstance(maker, fx.Node) and isinstance(maker.args[0], fx.Node)
    return maker.args[0]


def root_of(node: fx.Node) -> fx.Node:
    """The node whose memory this one is a view of; itself if it is no view."""
    while True:
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or not is_view(source if node.target is operator.getitem else node):
            return node
        node = source


def ancestors(roots: Iterable[Any], given: Set[fx.Node] = frozenset()) -> set[fx.Node]:
    """The nodes that these need, themselves included; not those that only ``given`` nodes need."""
    found: set[fx.Node] = set()
    todo = [n for n in roots if isinstance(n, fx.Node)]
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            if node not in given:
                todo.extend(node.all_input_nodes)
    return found
