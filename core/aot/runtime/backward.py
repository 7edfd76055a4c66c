"""The compiled backward of one graph: compiled when it is first called, once for each set of missing tangents."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import fx

from jitney._util.forks import reentrant_lock
from jitney.aot.form import Form
from jitney.aot.runtime.double_backward import DoubleBackward, connected, refusal, refusing
from jitney.cache.recipes import Recipe, Writer
from jitney.config import config
from jitney.errors import JitneyError
from jitney.torch_compat import torch_private
from jitney.torch_compat.default_device import lifted
from jitney.torch_compat.out_of_memory import advise
from jitney.torch_compat.stand_ins.tensor_iterator import hint
from jitney.torch_compat.subclasses import wraps

FEW_PARTS = 2  # for which those who look into a backward wait for a compiler; of many results, each has a small part
_NOTHING: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
# By position of the tangents that are missing: the backward graph without them.
Reduced = Callable[[tuple[int, ...]], fx.GraphModule]
# What results of operators without a derivative have as ``grad_fn``, by name: those that no graph holds, and all
# without any formula.
UNDERIVABLE = frozenset(
    {"NotImplemented", "UniqueBackward0", "Unique2Backward0", "UniqueDimBackward0", "UniqueConsecutiveBackward0",
     "UniqueDimConsecutiveBackward0"}
)  # fmt: skip


class CompileAbsent(Protocol):
    """By position of the tangents that are missing: the compiled backward without them."""

    def __call__(self, absent: tuple[int, ...], variant: Hashable = None) -> Callable[..., Sequence[Any]]:
        """``variant``: the form that an extension wants, None for the plain one."""


@dataclass(frozen=True)
class Tangent:
    """The layout with which a tangent was traced.

    Args:
        stride: in elements; None if it is symbolic.
        order: its dimensions, those of large strides first.
    """

    stride: tuple[int, ...] | None
    order: tuple[int, ...]

    @classmethod
    def of(cls, example: Any) -> Tangent:
        """From the FakeTensor that stood for it."""
        stride = tuple(example.stride())
        order = tuple(sorted(range(example.dim()), key=lambda d: hint(stride[d]), reverse=True))
        return cls(None if any(isinstance(s, torch.SymInt) for s in stride) else stride, order)

    def laid_out(self, tangent: torch.Tensor) -> torch.Tensor:
        """A tangent with the strides that the backward was traced with."""
        if self.stride is not None:
            if all(a == b or n < 2 for a, b, n in zip(tangent.stride(), self.stride, tangent.shape, strict=True)):
                return tangent
            made = torch.empty_strided(tangent.shape, self.stride, dtype=tangent.dtype, device=tangent.device)
            return made.copy_(tangent)
        return self.dense(tangent)

    def dense(self, tangent: torch.Tensor) -> torch.Tensor:
        """A tangent with dimensions in this order in memory, without gaps."""
        dense = tangent.permute(self.order).contiguous()
        return dense.permute([self.order.index(d) for d in range(tangent.dim())])


class Backward:
    """What the engine calls, as if the whole graph were one operator.

    Args:
        tangents: their layouts.
        places: by input of the captured graph: the position of its gradient among the outputs, None without one.
        compile_absent: compiles the backward graph (saved tensors, saved numbers, tangents in; gradients out) without
            some of its tangents.
        reduced: the same as it was traced.
        text: the graph as it is stored, as JSON with its bytes, for later processes.
        name: the user's function.
        form: of the graph; see ``backward_forms``.
    """

    def __init__(
        self,
        tangents: Sequence[Tangent],
        places: Sequence[int | None],
        compile_absent: CompileAbsent,
        reduced: Reduced,
        text: Callable[[], tuple[str, Sequence[bytes]]],
        name: str,
        form: Form = "whole",
    ) -> None:
        self.tangents = list(tangents)
        self.places = list(places)
        self.compile_absent = compile_absent
        self.reduced = reduced
        self.text = text
        self.name = name
        self.form: Form = form
        self.strides = [t.stride for t in self.tangents]
        self.compiled: dict[tuple[int, ...], Callable[..., Sequence[Any]]] = {}
        self.variants: dict[tuple[tuple[int, ...], Hashable], Callable[..., Sequence[Any]]] = {}
        self.proven: set[tuple[tuple[int, ...], Hashable]] = set()  # what has run once, its results looked at
        self.lock = reentrant_lock()
        self.grown: Callable[[], None] | None = None  # called when something more has been compiled, and has run

    def _jitney_recipe(self, writer: Writer) -> Recipe:
        text, blobs = self.text()
        writer.later.append(self)
        compiled = list(self.compiled.items())
        absent, runs = [key for key, _ in compiled], [run for _, run in compiled]
        layouts = [(t.stride, t.order) for t in self.tangents]
        facts = writer.refs((self.name, self.places, layouts, absent, runs, self.form))
        return ["backward", facts, [writer.blob(data) for data in (text.encode(), *blobs)]]

    def __call__(
        self,
        saved: list[torch.Tensor],
        numbers: Sequence[Any],
        tangents: Sequence[torch.Tensor | None],
        variant: Hashable = None,
    ) -> tuple[Any, ...]:
        """Gradients, one per input of the captured graph.

        ``saved`` may be empty afterwards: what is in it dies as soon as it has been read for the last time.
        ``variant`` is the form of the backward that an extension wants, None for the plain one.
        """
        absent = tuple([i for i, t in enumerate(tangents) if t is None])
        wrapped = any(type(t) is not torch.Tensor and wraps(type(t)) for t in tangents)
        if wrapped or torch_private.batched(tangents):
            if variant is not None:
                raise JitneyError(
                    f"the backward of {self.name} got a gradient "
                    f"{'of a tensor subclass' if wrapped else 'that is a batch'}, which its variant {variant!r} "
                    "cannot take",
                    phase="backward",
                )
            return self._as_traced(saved, numbers, tangents, absent)
        if self.form == "between" and absent not in self.compiled and len(self.compiled) >= FEW_PARTS:
            return self._as_traced(saved, numbers, tangents, absent)
        run = self.compiled.get(absent) if variant is None else self.variants.get((absent, variant))
        grown = run is None and variant is None
        if run is None:
            run = self._compile(absent, variant)
        given = [
            t if t.stride() == stride else layout.laid_out(t)
            for t, stride, layout in zip(tangents, self.strides, self.tangents, strict=True)
            if t is not None
        ]
        if any(t.is_conj() or t.is_neg() for t in given):  # the graph was traced with numbers as they are in memory
            given = [t.resolve_conj().resolve_neg() for t in given]
        autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
        try:
            with torch_private.DisableAutocast() if autocast else _NOTHING:
                proven = (absent, variant) in self.proven and not config.verify
                boxed = getattr(run, "boxed", None) if proven else None
                if boxed is not None:
                    values = [*saved, *numbers, *given]
                    saved.clear()
                    del given
                    found = boxed(values)
                else:
                    found = run(*saved, *numbers, *given)
                    self.proven.add((absent, variant))
        except Exception as error:
            advise(error, f"the backward of {self.name}")
            raise
        if grown and self.grown is not None:
            self.grown()
        return tuple([None if at is None else found[at] for at in self.places])

    def _as_traced(
        self,
        saved: Sequence[torch.Tensor],
        numbers: Sequence[Any],
        tangents: Sequence[torch.Tensor | None],
        absent: tuple[int, ...],
    ) -> tuple[Any, ...]:
        """With a tangent of a subclass, or vmap's: operators run one by one; gradients are such too, as in eager."""
        run = self.reduced(absent).forward
        given = [
            t if t.stride() == layout.stride else layout.dense(t)
            for t, layout in zip(tangents, self.tangents, strict=True)
            if t is not None
        ]
        with torch_private.DisableAutocast():
            found = run(*saved, *numbers, *given)
        return tuple([None if at is None else found[at] for at in self.places])

    def unread(self, absent: tuple[int, ...]) -> set[int]:
        """Positions of what is saved that the backward without these tangents does not read."""
        places = [n for n in self.reduced(absent).graph.nodes if n.op == "placeholder"]
        return {i for i, node in enumerate(places) if not node.users}

    def of_run(
        self, watched: Any, saved: list[torch.Tensor], numbers: Sequence[Any], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[Any, ...]:
        """The same in the form that an extension wants for this run (``Run``; None for a run that nobody watches)."""
        variant = None if watched is None else watched.variant
        found = self(saved, numbers, tangents, variant)
        if variant is not None:
            found = watched.finished(found)
        return found

    def compile(self) -> None:
        """Compile it for gradients of all results, rather than when such first come."""
        self._compile((), None)

    def _compile(self, absent: tuple[int, ...], variant: Hashable) -> Callable[..., Sequence[Any]]:
        with self.lock, lifted():
            if variant is not None:
                if (absent, variant) not in self.variants:
                    self.variants[absent, variant] = self.compile_absent(absent, variant)
                return self.variants[absent, variant]
            if absent not in self.compiled:
                self.compiled[absent] = self.compile_absent(absent)
            return self.compiled[absent]

    def once(
        self,
        ctx: Any,
        tangents: Sequence[torch.Tensor | None],
        again: DoubleBackward,
        saved: list[torch.Tensor] | None = None,
    ) -> tuple[Any, ...]:
        """``once`` of this backward."""
        watched = getattr(ctx, "watched", None)
        if watched is None:
            return once(self, self.name, ctx, tangents, again, saved)
        if watched.variant is not None:
            again = refusing(f"an extension has its backward run as {watched.variant!r}")
        return once(functools.partial(self.of_run, watched), self.name, ctx, tangents, again, saved)


def own(results: Sequence[Any]) -> list[Any]:
    """Results of which none is a view: of an autograd function, programs could not write to such."""
    return [r.detach() if isinstance(r, torch.Tensor) and r._is_view() else r for r in results]


def saved_of(
    ctx: Any, backward: Backward | None = None, tangents: Sequence[torch.Tensor | None] = (), last: bool = True
) -> list[torch.Tensor]:
    """What an autograd function has saved. Unless the graph is kept, the list is all that holds it after the last time.

    Where something of it has been written to since, eager complains if a gradient needs it: so the error goes on unless
    ``backward`` does not read it for these tangents.
    """
    try:
        saved = [*ctx.saved_tensors]
    except RuntimeError as error:
        absent = tuple([i for i, t in enumerate(tangents) if t is None])
        if backward is None or not absent:
            raise
        saved = _as_far_as_read(ctx, backward.unread(absent), error)
    if last:
        torch_private.clear_saved(ctx)
    return saved


def _as_far_as_read(ctx: Any, unread: Set[int], error: RuntimeError) -> list[torch.Tensor]:
    saved = []
    for number, entry in enumerate(torch_private.entries_saved(ctx)):
        if getattr(entry, "unpack_hook", ctx) is not None:  # its own matter, or of an older torch
            raise error
        tensor = entry.data
        if number not in unread and tensor._version:
            try:
                tensor = entry.unpack()
            except RuntimeError:  # it was written to, or it may have been: nobody knows the version of a result
                raise error from None
        saved.append(tensor)
    return saved


def saved_and_kept_of(ctx: Any, *given: Any) -> list[torch.Tensor]:
    """The same of one for which more is kept."""
    torch_private.clear_saved(ctx.kept.grad_fn)
    return saved_of(ctx, *given)


def once(
    backward: Any,
    name: str,
    ctx: Any,
    tangents: Sequence[torch.Tensor | None],
    again: DoubleBackward,
    saved: list[torch.Tensor] | None = None,
) -> tuple[Any, ...]:
    """Under ``create_graph=True``: the compiled backward's gradients, which can be differentiated again.

    Where they cannot, they hang on everything that they depend on, or the engine would find no way from them to an
    input, and say that their derivative is zero; differentiating them by anything raises.
    """
    saved = [*ctx.saved_tensors] if saved is None else saved
    values, reason = ([], again.reason) if again.reason else again.given(ctx, saved)
    with torch.no_grad():
        found = backward([*saved], ctx.numbers, tangents)
    if not reason:
        return connected(again, values, tangents, found)
    leaves = [node.variable for node, _ in ctx.next_functions if hasattr(node, "variable")]
    if again.inputs:  # all inputs that are no leaves are held
        inner = [*saved, *(t for t in (getattr(ctx, "kept", None),) if t is not None)]
    else:
        inner = [tensor for reference in getattr(ctx, "inner", ()) if (tensor := reference()) is not None]
    inner = [tensor for tensor in inner if tensor.grad_fn is not None]
    if not again.inputs and len(inner) + len(leaves) < sum(node is not None for node, _ in ctx.next_functions):
        raise refusal(name, reason)
    given = [t for t in tangents if t is not None and t.requires_grad]
    return tuple(None if g is None else _Refused.apply(name, reason, g, *leaves, *inner, *given) for g in found)


class _Refused(torch.autograd.Function):
    """A gradient that cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, name: str, reason: str, gradient: Any, *depends_on: Any) -> Any:
        ctx.name, ctx.reason = name, reason
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise refusal(ctx.name, ctx.reason)


def underivable(tensor: torch.Tensor) -> bool:
    """Is it the result of an operator without a derivative? That is ``torch.unique``, which runs before a graph.

    Such an operator raises when the engine reaches it, be it to say that there is no gradient. Eager does not reach it
    then; a compiled graph is one function, and would pass on that it has none. So these calls run the graph as
    captured. Hiding the operator from the engine would be wrong: ``torch.autograd.grad`` would no longer find the way
    to what is before it, and give what comes by other ways only.
    """
    node = tensor.grad_fn
    return node is not None and type(node).__name__ in UNDERIVABLE
