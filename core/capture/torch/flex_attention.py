"""``flex_attention``, ``create_mask`` and ``create_block_mask``: products, a score, a softmax, products.

Torch's own code is interpreted up to the operator that it calls; here is what that operator computes in eager mode. The
program's functions of one score and its position are captured once, on numbers, and mapped over all positions as one
operation of the graph, by ``torch.vmap`` as torch does.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx.traceback
from torch import Tensor
from torch.nn.attention import flex_attention as flex

from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import is_stand_in
from jitney.capture.python.c_boundary import specialise
from jitney.capture.tables import Args, FunctionTable, Kwargs
from jitney.capture.torch.autograd import transforms
from jitney.torch_compat import torch_private, torch_private_symbolic

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

SCORE = torch_private_symbolic.FlexKinds.SCORE_MOD
# The innermost first: over which dimension each position is mapped; a score is over its first.
POSITIONS = ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None))


class OfOnePosition(transforms.Body):
    """The graph of a score or a mask function. Indexing by numbers of tensors reads elements, not numbers."""

    def __torch_function__(
        self, func: Any, classes: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Indices become tensors where all are such or integers, and one is a tensor; as in torch."""
        if not self.pause and getattr(func, "__name__", "") in ("__getitem__", "getitem"):
            table, index = args
            parts = index if type(index) is tuple else (index,)
            numbers = [p for p in parts if type(p) is int or type(p) is torch.SymInt]
            indices = [p for p in parts if is_stand_in(p)]
            if indices and len(numbers) + len(indices) == len(parts):
                with self:
                    filled = [p if is_stand_in(p) else indices[0].new_full((), p, dtype=torch.int64) for p in parts]
                    return torch.ops.aten.index.Tensor(table, filled)
        return super().__torch_function__(func, classes, args, kwargs)

    def _map(self, value: Any) -> Any:
        """Floats that change are constants."""
        return super()._map(specialise(value) if type(value) in (torch.SymFloat, torch.SymBool) else value)


def everywhere(function: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """A score or mask function for all positions: of (scores,) batch, head, query and key. Interpreted specially."""
    scores = (0,) * (len(given) - 4)
    for dims in POSITIONS:
        function = torch.vmap(function, in_dims=(*scores, *dims))
    return function(*given)


@special(everywhere)
def _everywhere(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    function, *given = args
    tracer = vm.tracer
    paused, tracer.pause = tracer.pause, True
    try:
        numbers = [tracer.run(_one, (tensor,), {}) for tensor in given]
    finally:
        tracer.pause = paused
    spec = torch_private.tree_flatten((tuple(given), {}))[1]
    what = "flex_attention's function"
    body = transforms.captured(vm, function, numbers, spec, [None] * len(given), what, kind=OfOnePosition)
    if len(transforms.results_of(body)) != 1 or transforms.results_of(body)[0].dim():
        raise Break(f"{what} gives something else than a number in a tensor", "return one score, or one condition")

    def run(function: Callable[..., Any], whole: tuple[Any, ...], named: dict[str, Any], more: Any) -> Any:
        return everywhere(function, *whole)

    return transforms.Application("everywhere", given, spec, body).record(vm, run)


def _one(tensor: Tensor) -> Tensor:
    return tensor[(0,) * tensor.dim()].detach()


def positions(sizes: Sequence[int], device: Any) -> list[Tensor]:
    """Of batch, heads, queries and keys. Interpreted."""
    return [torch.arange(0, size, device=device) for size in sizes]


def memory_order(query: Tensor) -> list[int]:
    """The dimensions of a result, from the slowest to the fastest in memory: as the query's. Interpreted."""
    strides = query.stride()
    found = sorted([0, 1, 2, 3], key=lambda dim: strides[dim], reverse=True)
    return [dim for dim in found if dim != 3] + [3]


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: Callable[..., Tensor],
    blocks: Any,
    scale: float,
    options: dict[str, Any],
) -> tuple[Any, Any, Any]:
    """The operator as torch computes it in eager mode: result, logarithms of sums, largest scores. Interpreted.

    Which blocks there are says nothing: the mask function does.
    """
    device, order = query.device, memory_order(query)
    if torch.is_autocast_enabled(device.type):
        dtype = torch.get_autocast_dtype(device.type)
        query, key, value = [x if x.dtype is torch.float64 else x.to(dtype) for x in (query, key, value)]
        with torch.autocast(device.type, enabled=False):
            return attention(query, key, value, score, blocks, scale, options)
    batch, heads, groups = query.size(0), query.size(1), key.size(1)
    if key.size(0) != batch:
        if key.size(0) != 1:
            raise RuntimeError(f"Bq and Bkv must broadcast. Got Bq={batch} and Bkv={key.size(0)}")
        key, value = key.expand(batch, -1, -1, -1), value.expand(batch, -1, -1, -1)
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    if heads == groups:
        scores = torch.matmul(query.to(wide), key.transpose(-2, -1).to(wide))
    else:  # heads that share keys and values
        shared = query.unflatten(1, (groups, heads // groups)), key.unsqueeze(2).transpose(-2, -1)
        scores = torch.matmul(shared[0].to(wide), shared[1].to(wide)).flatten(1, 2)
    places = positions(scores.shape, device)
    scores = (scores * scale).to(wide)
    seen = everywhere(blocks[-1], *places)
    scores = torch.where(seen, everywhere(score, scores, *places), -math.inf)
    sums = largest = None
    if options["OUTPUT_LOGSUMEXP"]:
        nothing = torch.all(scores == -math.inf, dim=-1)
        sums = torch.where(nothing, -math.inf, scores.logsumexp(dim=-1)) / math.log(2)
    if options["OUTPUT_MAX"]:
        largest = torch.max(scores.detach(), dim=-1)[0] / math.log(2)
    weights = torch_private.safe_softmax(scores, dim=-1).to(query.dtype)
    value = value.to(query.dtype)
    if heads == groups:
        result = torch.matmul(weights, value)
    else:
        result = torch.matmul(weights.unflatten(1, (groups, heads // groups)), value.unsqueeze(2)).flatten(1, 2)
    if order != [0, 1, 2, 3]:
        laid = result.permute(order).clone(memory_format=torch.contiguous_format)
        result = laid.permute([order.index(dim) for dim in range(4)])
    return result, sums, largest


@special(torch_private_symbolic.flex_operator)
def _attention(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 7 or kwargs:
        raise Break("torch's flex_attention operator of these arguments", "call torch.nn.attention.flex_attention")
    return vm.call(attention, *args)


def mask(function: Callable[..., Tensor], B: Any, H: Any, Q_LEN: int, KV_LEN: int, device: Any = None) -> Tensor:
    """``create_mask``. Interpreted."""
    if device is None:
        device = torch.accelerator.current_accelerator() or "cpu"
    sizes = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    places = positions(sizes, device)
    if torch_private_symbolic.flex_kind(function) is SCORE:
        return torch.where(
            torch.isneginf(everywhere(function, torch.zeros(*sizes, device=device), *places)), False, True
        )
    return everywhere(function, *places)


@special(flex.create_mask)
def _mask(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    named = {("function" if name == "mod_fn" else name): value for name, value in kwargs.items()}
    return vm.call(mask, *args, **named)


@special(torch_private_symbolic.flex_refuse_devices)
def _any_device(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    """Torch has no gradients on CPUs, as its kernel has none there. What is captured has."""


@special(torch.fx.traceback.annotate)
def _annotate(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """What torch.compile is told of nodes."""
    return vm.call(contextlib.nullcontext)
