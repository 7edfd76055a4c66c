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

from jitney.cache.digest import NotStorable
from jitney.cache.recipes import GraphText, Recipe, Writer, call, graph_text
from jitney.errors import JitneyError
from jitney.torch_compat import default_device, torch_private
from jitney.torch_compat.global_state import StateKeeper
from jitney.torch_compat.rng_state import RandomStates

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
        how: ``number``; ``saved`` by the autograd function; a ``leaf`` that the engine holds; ``idle``: such a leaf, on
            whose numbers no gradient depends; ``kept`` by a function of its own; ``alive``: the program is believed to
            hold it; ``handed``: likewise, a result of the graph that it computes others from; ``unread``: no gradient
            depends on its numbers; ``written``: the graph writes to it, so that its numbers do not matter, or there
            would be a ``reason``.
        at: its position among those.
        grad: does it get a gradient?
        dtype, device: of what is unread.
    """

    how: str
    at: int
    grad: bool = False
    dtype: torch.dtype = torch.float32
    device: str = "cpu"

    def _jitney_recipe(self, writer: Writer) -> Recipe:
        facts = (self.how, self.at, self.grad, self.dtype, self.device)
        return call("jitney.aot.runtime.double_backward:Found", *writer.refs(facts))

    def like(self, reference: Callable[[], Any], size: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
        """What stands for something unread: itself if it is still there and has this size and stride."""
        value = reference()
        if value is not None and value.shape == size and value.stride() == stride:
            return torch.Tensor.detach(value)
        return torch.empty_strided(size, stride, dtype=self.dtype, device=self.device).zero_()


@dataclass(frozen=True)
class DoubleBackward:
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
        unread: inputs on whose numbers no gradient depends.
        handed: which of the results its last inputs stand for, where it runs given some of them.
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
    unread: frozenset[int] = frozenset()
    handed: tuple[int, ...] = ()

    def _jitney_recipe(self, writer: Writer) -> Recipe:
        facts = (self.tangents, self.strides, self.inputs, self.grad, self.autocast, self.dtype, self.handed)
        if self.reason:
            return call("jitney.aot.runtime.double_backward:refusing", writer.ref(self.reason))
        try:
            text = self.text or graph_text(self.run().__self__)  # type: ignore[attr-defined]
            return call("jitney.aot.runtime.double_backward:from_disk", *text.refs(writer), *writer.refs(facts))
        except NotStorable:
            return call("jitney.aot.runtime.double_backward:refusing", writer.ref(ON_DISK))

    # ------------------------------------------------------------------ when a backward runs

    def given(self, ctx: Any, saved: Sequence[torch.Tensor]) -> tuple[list[Any], str]:
        """The inputs of the run that ``ctx`` is of, or why they cannot be used.

        Args:
            ctx: of the autograd function.
            saved: what it has saved: ``torch.utils.checkpoint`` lets that be read once.
        """
        kept = getattr(ctx, "kept", None)
        written = "an input of it was written to meanwhile"
        try:
            others = () if kept is None else kept.grad_fn.saved_tensors
        except RuntimeError:
            return [], written
        leaves = [getattr(node, "variable", None) for node, _ in ctx.next_functions]
        places: dict[str, Sequence[Any]] = {
            "number": getattr(ctx, "given", ()),
            "saved": saved,
            "leaf": leaves,
            "idle": leaves,
            "kept": others,
            "alive": [reference() for reference in getattr(ctx, "alive", ())],
            "written": [reference() for reference in getattr(ctx, "written", ())],
        }
        handed = getattr(ctx, "handed", None)
        places["handed"] = () if handed is None else handed.tensors()
        unread = getattr(ctx, "unread", ())
        values = [
            found.like(*unread[found.at]) if found.how == "unread" else places[found.how][found.at]
            for found in self.inputs
        ]
        if any(value is None for value in values):
            return [], "an input of it is gone (keep a reference to it)"
        looked_at = [v for v, found in zip(values, self.inputs, strict=True) if found.how in ("leaf", "alive")]
        return values, "" if tuple(v._version for v in looked_at) == getattr(ctx, "versions", ()) else written

    def again(self, inputs: Sequence[Any], batched: bool = False) -> Sequence[Any]:
        """The captured graph's results.

        Args:
            inputs: its inputs.
            batched: are there batches among the gradients of its results? The inputs are none.

        Raises:
            JitneyError: torch's global state is another one, or random numbers were drawn, by an operator that does
                not say so: they are others than those of the forward.
        """
        transformed = torch_private.forward_ad_active() if batched else torch_private.transforms_active()
        if default_device.devices() is None or transformed or torch.get_default_dtype() is not self.dtype:
            raise refusal("the function", "a torch function mode, a transform or another default dtype is active")
        keeper = StateKeeper()
        try:
            torch.set_autocast_cache_enabled(False)
            for device, enabled, dtype in self.autocast:
                torch.set_autocast_enabled(device, enabled)
                torch.set_autocast_dtype(device, dtype)
            devices = {t.device for t in inputs if isinstance(t, torch.Tensor) and t.is_cuda}
            drawn = RandomStates([torch.device("cpu"), *devices])
            with torch.set_grad_enabled(self.grad):
                results = self.run()(*inputs)
            if drawn.changed():
                drawn.put_back()
                raise refusal("the function", "it draws random numbers")
            return results
        finally:
            keeper.restore()

    def first(
        self, values: Sequence[Any], tangents: Sequence[torch.Tensor | None], create: bool
    ) -> tuple[list[Any], list[torch.Tensor | None], list[torch.Tensor | None], Sequence[Any]]:
        """What stands for the graph's inputs and its tangents, gradients by input that has one, its results.

        Args:
            values: the graph's inputs.
            tangents: gradients of its results.
            create: will somebody differentiate what is made of these? Then they keep their history.
        """

        def fresh(value: torch.Tensor) -> torch.Tensor:
            return value.view_as(value) if create and value.requires_grad else value.detach().requires_grad_()

        def given(value: Any, found: Found) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            if found.how == "written":  # once more for each derivative
                return value.clone()
            return fresh(value) if found.grad or value.requires_grad else value.detach()

        inputs = [given(v, found) for v, found in zip(values, self.inputs, strict=True)]
        weights = [fresh(t) if t is not None and t.requires_grad else t for t in tangents]
        results = self.again(inputs, torch_private.batched(tangents))
        with torch_private.DisableAutocast():
            ends = [
                (results[at], weight)
                for of, stride, w in zip(self.tangents, self.strides, weights, strict=True)
                if w is not None
                for at, weight in _parts(of, stride, w)
            ]
            ends = [(end, weight) for end, weight in ends if end.requires_grad]
            begin = [v for v, found in zip(inputs, self.inputs, strict=True) if found.grad]
            found = _gradients([e for e, _ in ends], begin, [w for _, w in ends], True)
        return inputs, weights, list(found), results

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
        with torch.enable_grad():
            inputs, weights, first, results = self.first(values, tangents, create)
            pairs = [(f, a) for f, a in zip(first, above, strict=True) if f is not None and a is not None]
            pairs = [(f, a) for f, a in pairs if f.requires_grad]
            # Gradients may depend on what the results do not: an autograd function says so, or somebody asks later.
            given = [*inputs, *weights]
            by = [isinstance(v, torch.Tensor) and v.requires_grad for v in given]
            wanted = [v for v, asked in zip(given, by, strict=True) if asked]
            with torch_private.DisableAutocast(), _Arrivals([results[at] for at in self.handed]) as arrivals:
                found = iter(_gradients([f for f, _ in pairs], wanted, [a for _, a in pairs], create))
            answers = [next(found) if asked else None for asked in by]
            for at, arrived in enumerate(arrivals.gradients, len(values) - len(self.handed)):
                if arrived is not None:
                    other = answers[at]
                    answers[at] = arrived if other is None else other + arrived
        return answers


class _Arrivals:
    """Takes what arrives at results for which others stand: where an operator has kept its result, a part comes there.

    Args:
        results: made by the operators whose results the program has.
    """

    def __init__(self, results: Sequence[torch.Tensor]) -> None:
        self.results = results
        self.gradients: list[torch.Tensor | None] = [None] * len(results)
        self._hooks: list[Any] = []

    def __enter__(self) -> _Arrivals:
        for at, result in enumerate(self.results):
            if result.requires_grad:
                self._hooks.append(result.register_hook(functools.partial(self._arrived, at)))
        return self

    def _arrived(self, at: int, gradient: Any) -> Any:
        if gradient is None:
            return None
        self.gradients[at] = gradient
        return torch.zeros_like(gradient)

    def __exit__(self, *error: object) -> None:
        for hook in self._hooks:
            hook.remove()


def _parts(of: Ends, stride: tuple[int, ...] | None, tangent: torch.Tensor) -> list[tuple[int, torch.Tensor]]:
    """The gradient of some memory as gradients of the results that are views of it, each element in one place.

    Raises:
        JitneyError: an element of complex numbers is in several of these.
    """
    if not any(steps for _, steps in of):
        return [(at, tangent) for at, _ in of]
    if stride is None:
        if any(step[0] is torch.ops.aten.as_strided.default for _, steps in of for step in steps):
            raise refusal("the function", "a result of it has strides of its own in memory of symbolic size")
        tangent = tangent.contiguous()
    elif torch_private.batched((tangent,)):
        order = sorted(range(tangent.dim()), key=lambda d: stride[d], reverse=True)
        tangent = tangent.permute(order).contiguous().permute([order.index(d) for d in range(tangent.dim())])
    elif tangent.stride() != stride:
        tangent = torch.empty_strided(tangent.shape, stride, dtype=tangent.dtype, device=tangent.device).copy_(tangent)
    places = torch.empty_strided(tangent.shape, tangent.stride(), dtype=torch.int64, device="cpu")
    places.copy_(torch.arange(tangent.numel(), device="cpu").reshape(tangent.shape))
    if tangent.is_complex():  # its real and its imaginary part may be results of their own
        places = torch.complex(places * 2.0 + 1, places * 2.0 + 2)
    shown = [_view(places, steps) for _, steps in of]
    parts = [_view(tangent, steps) for _, steps in of]
    taken = torch.cat([_real(view).reshape(-1) for view in shown]).abs()
    unique, which = taken.unique(return_inverse=True)
    if unique.numel() != taken.numel():
        if tangent.is_complex():
            raise refusal("the function", "results of it share elements")
        first = torch.full_like(unique, taken.numel(), dtype=torch.int64)
        numbers = torch.arange(taken.numel(), device="cpu")
        first.scatter_reduce_(0, which, numbers, "amin")
        masks = first[which].eq(numbers).split([view.numel() for view in shown])
        parts = [
            torch.where(mask.reshape(part.shape).to(part.device), part, 0)
            for mask, part in zip(masks, parts, strict=True)
        ]
    return [(at, part) for (at, _), part in zip(of, parts, strict=True)]


def _real(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


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
    again: DoubleBackward, values: Sequence[Any], tangents: Sequence[torch.Tensor | None], gradients: Sequence[Any]
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
    if torch_private.batched(tangents):  # what an autograd function makes of batches has no history
        _, _, first, _ = again.first(values, tangents, True)
        of = dict(zip((at for at, found in enumerate(again.inputs) if found.grad), first, strict=True))
        return tuple(None if gradient is None else of[at] for at, gradient in enumerate(gradients))
    known = {id(t) for t in (*values, *tangents) if isinstance(t, torch.Tensor)}
    made: dict[int, torch.Tensor] = {}
    for at, gradient in enumerate(gradients):
        if again.inputs[at].grad and gradient is not None:
            # A view may be of a tangent or an input, and somebody may write to it.
            made[at] = gradient.clone() if id(gradient) in known or gradient._is_view() else gradient
            known.add(id(made[at]))
    if not made:
        return tuple(gradients)
    found: Any = _Differentiable.apply(again, made, len(values), *values, *tangents)
    results = dict(zip(made, found, strict=True))
    return tuple(results.get(at) for at in range(len(gradients)))


class _Differentiable(torch.autograd.Function):
    """The gradients of a graph, as a function of its inputs and of the gradients of its results."""

    @staticmethod
    def forward(ctx: Any, again: DoubleBackward, made: dict[int, torch.Tensor], count: int, *given: Any) -> Any:
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
    """Saves tensors with their history, with autograd's check of their versions.

    They are saved as results of this function: a tensor itself may get another history, by a write to it, that leads
    to the graph that holds it here, and neither would ever be freed.
    """

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        same = [t.detach() for t in tensors]
        ctx.save_for_backward(*same)
        ctx.set_materialize_grads(False)
        return (torch.empty(0, device="cpu"), *same)

    @staticmethod
    def backward(ctx: Any, _: None, *grads: Any) -> Any:
        return grads


def keep(*tensors: torch.Tensor) -> torch.Tensor:
    """What holds tensors until the graph that they are inputs of is freed."""
    found: torch.Tensor = _Kept.apply(*tensors)[0]
    return found


def refusal(name: str, reason: str = "") -> JitneyError:
    """What is raised where a gradient cannot be differentiated again."""
    return JitneyError(
        f"the backward of {name}, compiled, was differentiated again (double backward), which needs eager"
        + (f": {reason}" if reason else ""),
        phase="backward",
        hint="call the function inside jitney.disable, or compile it with backend='eager'",
    )


def refusing(reason: str) -> DoubleBackward:
    """That a graph cannot run once more, and why."""
    return DoubleBackward(_never, reason)


def _never() -> Callable[..., Sequence[Any]]:
    raise AssertionError("a graph that cannot run once more")


def from_disk(source: str, names: dict[str, Any], held: dict[str, Any], *facts: Any) -> DoubleBackward:
    """The same in a later process, where the graph is made of its text when it is needed."""
    text = GraphText(source, names, held)
    tangents, strides, inputs, grad, autocast, dtype, handed = facts
    run = functools.cache(text.forward)
    return DoubleBackward(run, "", tangents, strides, inputs, grad, autocast, dtype, text, handed=handed)
