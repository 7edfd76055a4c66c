"""Double backward: what ``create_graph=True`` asks of a compiled backward.

The gradients are the compiled backward's. Whoever differentiates them gets what eager would: the captured graph runs
once more, op by op, on the same inputs under autograd, its gradients are computed with ``create_graph=True``, and those
are differentiated. Derivatives of any order come of it, since all of that is differentiable itself.

This is right only while the graph does the same once more: it draws nothing, and its gradients do not depend on what it
writes to. Else differentiating is an error that says why (``reason``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jitney import _torch
from jitney.cache.digest import NotStorable
from jitney.cache.recipes import GraphText, Recipe, Writer, call, graph_text
from jitney.errors import JitneyError
from jitney.state import StateKeeper

Steps = tuple[
    tuple[Any, ...], ...
]  # of a view: operator, its arguments after the tensor, by name, which of its results
Ends = tuple[tuple[int, Steps], ...]
Autocast = tuple[tuple[str, bool, torch.dtype], ...]
ON_DISK = "its graph was kept on disk without what it was captured as"


@dataclass(frozen=True)
class Found:
    """Where a backward finds one input of its graph.

    Args:
        how: ``number``; ``saved`` by the autograd function; a ``leaf`` that the engine holds; ``kept`` by a function of
            its own; ``alive``: the program is believed to hold it; ``written``: the graph writes to it, so that its
            numbers do not matter, or there would be a ``reason``.
        at: its position among those.
        grad: does it get a gradient?
    """

    how: str
    at: int
    grad: bool = False

    def _jitney_recipe(self, writer: Writer) -> Recipe:
        return call("jitney.aot.again:Found", *writer.refs((self.how, self.at, self.grad)))


@dataclass(frozen=True)
class Again:
    """How a graph runs once more.

    Args:
        run: the captured graph, made when it is first needed.
        reason: why it cannot; empty if it can.
        tangents: by tangent of the backward: of which of the graph's results it is the gradient, or of what memory
            these are views, which no two of them share.
        strides: of tangents; None if they are symbolic.
        inputs: where they are, in order.
        grad, autocast, dtype: torch's state where the graph begins.
        text: of the graph, if an earlier process has captured it.
    """

    run: Callable[[], Callable[..., Sequence[Any]]]
    reason: str = ""
    tangents: tuple[Ends, ...] = ()
    strides: tuple[tuple[int, ...] | None, ...] = ()
    inputs: tuple[Found, ...] = ()
    grad: bool = True
    autocast: Autocast = ()
    dtype: torch.dtype = torch.float32
    text: GraphText | None = None

    def _jitney_recipe(self, writer: Writer) -> Recipe:
        facts = (self.tangents, self.strides, self.inputs, self.grad, self.autocast, self.dtype)
        if self.reason:
            return call("jitney.aot.again:refusing", writer.ref(self.reason))
        try:
            text = self.text or graph_text(self.run().__self__)  # type: ignore[attr-defined]
            return call("jitney.aot.again:kept", *text.refs(writer), *writer.refs(facts))
        except NotStorable:
            return call("jitney.aot.again:refusing", writer.ref(ON_DISK))

    # ------------------------------------------------------------------ when a backward runs

    def given(self, ctx: Any) -> tuple[list[Any], str]:
        """The inputs of the run that ``ctx`` is of, or why they cannot be used.

        Raises:
            RuntimeError: something that the backward itself needs was written to.
        """
        saved, kept = ctx.saved_tensors, getattr(ctx, "kept", None)
        written = "an input of it was written to meanwhile"
        try:
            others = () if kept is None else kept.grad_fn.saved_tensors
        except RuntimeError:
            return [], written
        places: dict[str, Sequence[Any]] = {
            "number": getattr(ctx, "given", ()),
            "saved": saved,
            "leaf": [getattr(node, "variable", None) for node, _ in ctx.next_functions],
            "kept": others,
            "alive": [reference() for reference in getattr(ctx, "alive", ())],
            "written": [reference() for reference in getattr(ctx, "written", ())],
        }
        values = [places[found.how][found.at] for found in self.inputs]
        if any(value is None for value in values):
            return [], "an input of it is gone (keep a reference to it)"
        looked_at = [v for v, found in zip(values, self.inputs, strict=True) if found.how in ("leaf", "alive")]
        return values, "" if tuple(v._version for v in looked_at) == getattr(ctx, "versions", ()) else written

    def again(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The captured graph's results.

        Raises:
            JitneyError: torch's global state is another one.
        """
        if _torch.function_mode_depth() or _torch.transforms_active() or torch.get_default_dtype() is not self.dtype:
            raise refusal("the function", "a torch function mode, a transform or another default dtype is active")
        keeper = StateKeeper()
        try:
            torch.set_autocast_cache_enabled(False)
            for device, enabled, dtype in self.autocast:
                torch.set_autocast_enabled(device, enabled)
                torch.set_autocast_dtype(device, dtype)
            with torch.set_grad_enabled(self.grad):
                return self.run()(*inputs)
        finally:
            keeper.restore()

    def second(
        self, values: Sequence[Any], tangents: Sequence[torch.Tensor | None], above: Sequence[torch.Tensor | None]
    ) -> list[torch.Tensor | None]:
        """Gradients of ``values``, then of ``tangents``.

        Args:
            values: the graph's inputs.
            tangents: gradients of its results.
            above: gradients of its gradients, by input that has one.
        """
        create = torch.is_grad_enabled()

        def fresh(value: torch.Tensor) -> torch.Tensor:
            return value.view_as(value) if create else value.detach().requires_grad_()

        with torch.enable_grad():
            inputs = [
                (fresh(v) if found.grad else v.detach()) if isinstance(v, torch.Tensor) else v
                for v, found in zip(values, self.inputs, strict=True)
            ]
            weights = [fresh(t) if t is not None and t.requires_grad else t for t in tangents]
            results = self.again(inputs)
            with _torch.DisableAutocast():
                ends = [
                    (results[at], weight)
                    for of, stride, w in zip(self.tangents, self.strides, weights, strict=True)
                    if w is not None
                    for at, weight in _parts(of, stride, w)
                ]
                ends = [(end, weight) for end, weight in ends if end.requires_grad]
                begin = [v for v, found in zip(inputs, self.inputs, strict=True) if found.grad]
                first = _gradients([e for e, _ in ends], begin, [w for _, w in ends], True)
                pairs = [(f, a) for f, a in zip(first, above, strict=True) if f is not None and a is not None]
                pairs = [(f, a) for f, a in pairs if f.requires_grad]
                wanted = [*begin, *(w for w in weights if w is not None and w.requires_grad)]
                found = iter(_gradients([f for f, _ in pairs], wanted, [a for _, a in pairs], create))
        of_inputs = [next(found) if place.grad else None for place in self.inputs]
        return [*of_inputs, *(next(found) if w is not None and w.requires_grad else None for w in weights)]


def _parts(of: Ends, stride: tuple[int, ...] | None, tangent: torch.Tensor) -> list[tuple[int, torch.Tensor]]:
    """The gradient of some memory as gradients of the results that are views of it.

    Raises:
        JitneyError: an element is in several of these.
    """
    if not any(steps for _, steps in of):
        return [(at, tangent) for at, _ in of]
    if stride is None:
        tangent = tangent.contiguous()
    elif tangent.stride() != stride:
        tangent = torch.empty_strided(tangent.shape, stride, dtype=tangent.dtype, device=tangent.device).copy_(tangent)
    places = torch.empty_strided(tangent.shape, tangent.stride(), dtype=torch.int64)
    places.copy_(torch.arange(tangent.numel()).reshape(tangent.shape))
    taken = torch.cat([_view(places, steps).reshape(-1) for _, steps in of])
    if taken.unique().numel() != taken.numel():
        raise refusal("the function", "results of it share elements")
    return [(at, _view(tangent, steps)) for at, steps in of]


def _view(value: Any, steps: Steps) -> Any:
    for target, args, kwargs, item in steps:
        value = target(value, *args, **dict(kwargs))
        value = value if item is None else value[item]
    return value


def _gradients(
    ends: list[torch.Tensor], begin: list[torch.Tensor], weights: list[torch.Tensor], create: bool
) -> Sequence[torch.Tensor | None]:
    if not ends or not begin:
        return [None] * len(begin)
    return torch.autograd.grad(ends, begin, weights, create_graph=create, allow_unused=True)


def connected(
    again: Again, values: Sequence[Any], tangents: Sequence[torch.Tensor | None], gradients: Sequence[Any]
) -> tuple[Any, ...]:
    """The gradients, by input, as something that can be differentiated by inputs and tangents.

    Args:
        again: of the graph.
        values: its inputs, with their history.
        tangents: gradients of its results.
        gradients: what the compiled backward has made of these; None without one.
    """
    places = zip(values, again.inputs, strict=True)
    values = [v.detach().clone() if found.how == "written" else v for v, found in places]
    known = {id(t) for t in (*values, *tangents) if isinstance(t, torch.Tensor)}
    made: dict[int, torch.Tensor] = {}
    for at, gradient in enumerate(gradients):
        if again.inputs[at].grad and gradient is not None:
            made[at] = gradient.clone() if id(gradient) in known else gradient
            known.add(id(made[at]))
    if not made:
        return tuple(gradients)
    found: Any = _Differentiable.apply(again, made, len(values), *values, *tangents)
    results = dict(zip(made, found, strict=True))
    return tuple(results.get(at) for at in range(len(gradients)))


class _Differentiable(torch.autograd.Function):
    """The gradients of a graph, as a function of its inputs and of the gradients of its results."""

    @staticmethod
    def forward(ctx: Any, again: Again, made: dict[int, torch.Tensor], count: int, *given: Any) -> Any:
        ctx.again, ctx.count, ctx.order = again, count, list(made)
        ctx.plain = [None if isinstance(v, torch.Tensor) else v for v in given]
        ctx.save_for_backward(*(v if isinstance(v, torch.Tensor) else None for v in given))
        ctx.set_materialize_grads(False)
        return tuple(made.values())

    @staticmethod
    def backward(ctx: Any, *above: Any) -> Any:
        if all(a is None for a in above):
            return (None,) * (3 + len(ctx.plain))
        given = [p if t is None else t for t, p in zip(ctx.saved_tensors, ctx.plain, strict=True)]
        by_input = dict(zip(ctx.order, above, strict=True))
        wanted = [by_input.get(at) for at, found in enumerate(ctx.again.inputs) if found.grad]
        return (None, None, None, *ctx.again.second(given[: ctx.count], given[ctx.count :], wanted))


class _Kept(torch.autograd.Function):
    """Saves tensors, with autograd's check of their versions, and does nothing else."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*tensors)
        return torch.empty(0)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise AssertionError("nobody has its result")


def keep(*tensors: torch.Tensor) -> Any:
    """What holds tensors until the graph that they are inputs of is freed."""
    return _Kept.apply(*tensors)


def refusal(name: str, reason: str = "") -> JitneyError:
    """What is raised where a gradient cannot be differentiated again."""
    return JitneyError(
        f"the backward of {name}, compiled, was differentiated again (double backward), which needs eager"
        + (f": {reason}" if reason else ""),
        phase="backward",
        hint="call the function inside jitney.disable, or compile it with backend='eager'",
    )


def refusing(reason: str) -> Again:
    """That a graph cannot run once more, and why."""
    return Again(_never, reason)


def _never() -> Callable[..., Sequence[Any]]:
    raise AssertionError("a graph that cannot run once more")


def kept(source: str, names: dict[str, Any], held: dict[str, Any], *facts: Any) -> Again:
    """The same in a later process, where the graph is made of its text when it is needed."""
    text = GraphText(source, names, held)
    tangents, strides, inputs, grad, autocast, dtype = facts
    return Again(functools.cache(text.forward), "", tangents, strides, inputs, grad, autocast, dtype, text)
