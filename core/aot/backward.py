"""The compiled backward of one graph: compiled when it is first called, once for each set of missing tangents."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney import _torch
from jitney.aot.sizes import hint
from jitney.aot.split import Half
from jitney.aot.undefined import without
from jitney.errors import JitneyError
from jitney.wrapping import wraps

CompileHalf = Callable[[Half], Callable[..., Sequence[Any]]]


class Backward:
    """What the engine calls, as if the whole graph were one operator.

    Args:
        half: the backward graph: saved tensors, saved numbers, tangents in; gradients out.
        saved: how many tensors and numbers are saved.
        places: by input of the captured graph: the position of its gradient among the outputs, None without one.
        compile_half: hands a graph to the backend.
        name: the user's function.
    """

    def __init__(
        self, half: Half, saved: int, places: Sequence[int | None], compile_half: CompileHalf, name: str
    ) -> None:
        self.half = half
        self.saved = saved
        self.places = places
        self.compile_half = compile_half
        self.name = name
        self.strides = [_fixed_stride(v) for v in half.inputs[saved:]]
        self.examples = half.inputs[saved:]
        self.compiled: dict[tuple[int, ...], Callable[..., Sequence[Any]]] = {}
        self.lock = threading.Lock()

    def __call__(
        self, saved: Sequence[torch.Tensor], numbers: Sequence[Any], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[Any, ...]:
        """Gradients, one per input of the captured graph."""
        absent = tuple([i for i, t in enumerate(tangents) if t is None])
        if any(type(t) is not torch.Tensor and wraps(type(t)) for t in tangents):
            return self._as_traced(saved, numbers, tangents, absent)
        run = self.compiled.get(absent) or self._compile(absent)
        given = [
            t if t.stride() == stride else _laid_out(t, example, stride)
            for t, stride, example in zip(tangents, self.strides, self.examples, strict=True)
            if t is not None
        ]
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            with _torch.DisableAutocast():
                found = run(*saved, *numbers, *given)
        else:
            found = run(*saved, *numbers, *given)
        return tuple([None if at is None else found[at] for at in self.places])

    def _as_traced(
        self,
        saved: Sequence[torch.Tensor],
        numbers: Sequence[Any],
        tangents: Sequence[torch.Tensor | None],
        absent: tuple[int, ...],
    ) -> tuple[Any, ...]:
        """With a tangent of a subclass: operators run one by one, and gradients are of the subclass, as in eager."""
        half = without(self.half, self.saved, absent) if absent else self.half
        with _torch.DisableAutocast():
            found = half.module(*saved, *numbers, *[t for t in tangents if t is not None])
        return tuple([None if at is None else found[at] for at in self.places])

    def _compile(self, absent: tuple[int, ...]) -> Callable[..., Sequence[Any]]:
        with self.lock:
            if absent not in self.compiled:
                half = without(self.half, self.saved, absent) if absent else self.half
                self.compiled[absent] = self.compile_half(half)
            return self.compiled[absent]

    def once(self, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:
        """``once`` of this backward."""
        return once(self, self.name, ctx, tangents)


def once(backward: Any, name: str, ctx: Any, tangents: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:
    """Under ``create_graph=True``: the gradients are right, and differentiating them by anything raises.

    They hang on everything that they depend on, or the engine would find no way from them to an input, and say
    that their derivative is zero.
    """
    alive = [reference() for reference in getattr(ctx, "inner", ())]
    inner = [tensor for tensor in alive if tensor is not None and tensor.grad_fn is not None]
    leaves = [node.variable for node, _ in ctx.next_functions if hasattr(node, "variable")]
    if len(inner) + len(leaves) < sum(node is not None for node, _ in ctx.next_functions):
        raise _refusal(name)
    given = [t for t in tangents if t is not None and t.requires_grad]
    with torch.no_grad():
        found = backward(ctx.saved_tensors, ctx.numbers, tangents)
    return tuple(None if g is None else _Refused.apply(name, g, *leaves, *inner, *given) for g in found)


def _refusal(name: str) -> JitneyError:
    return JitneyError(
        f"the backward of {name}, compiled, was differentiated again (double backward), which needs eager",
        phase="backward",
        hint="call the function inside jitney.disable, or compile it with backend='eager'",
    )


class _Refused(torch.autograd.Function):
    """A gradient that cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, name: str, gradient: Any, *depends_on: Any) -> Any:
        ctx.name = name
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise _refusal(ctx.name)


def _fixed_stride(example: Any) -> tuple[int, ...] | None:
    stride = tuple(example.stride())
    return None if any(isinstance(s, torch.SymInt) for s in stride) else stride


def _laid_out(tangent: torch.Tensor, example: Any, stride: tuple[int, ...] | None) -> torch.Tensor:
    """The tangent with the strides that the backward was traced with."""
    if stride is not None:
        if all(a == b or n < 2 for a, b, n in zip(tangent.stride(), stride, tangent.shape, strict=True)):
            return tangent
        made = torch.empty_strided(tangent.shape, stride, dtype=tangent.dtype, device=tangent.device)
        return made.copy_(tangent)
    order = sorted(range(tangent.dim()), key=lambda d: hint(example.stride()[d]), reverse=True)
    dense = tangent.permute(order).contiguous()
    back = [order.index(d) for d in range(tangent.dim())]
    return dense.permute(back)
