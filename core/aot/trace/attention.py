"""Masks of constants, written by libraries that are compiled, for which attention would be products in float32."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import fx

from jitney.aot.constants import values as constant_values
from jitney.aot.partition.cost import has_effect
from jitney.aot.trace.functionalization import unwrapped
from jitney.aot.trace.tracer import AtenTracer

ATTENTION = torch.nn.functional.scaled_dot_product_attention  # the original: programs may replace it
LARGEST = 1 << 26  # elements of constants that are looked at
_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def with_plain_mask(tracer: AtenTracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call of attention, by name: with a mask that fused kernels take, if any is needed."""
    given = dict(zip(_PARAMETERS, args, strict=False)) | kwargs
    mask: Any = given.get("attn_mask")
    if not isinstance(mask, torch.Tensor) or mask.dim() < 2 or given.get("is_causal"):
        return given
    alike = zip(reversed(mask.shape[:-2]), reversed(given["query"].shape[:-2]), strict=False)
    fits = mask.dim() <= given["query"].dim() and all(n == 1 or n == m for n, m in alike)
    if fits and not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        with ThreadPoolExecutor(1) as plain:  # a thread has no modes: there are no stand-ins
            found = plain.submit(_hides_later, tracer.nodes.get(id(unwrapped(mask))), tracer.constants)
            later = None if isinstance(found.exception(), RuntimeError) else found.result()  # no memory, say
        if later is not None:
            return given | {"attn_mask": None, "is_causal": later}
    if mask.device.type == "cuda" and mask.stride(-1) == 0:
        once = mask[tuple(slice(None) if s or n == mask.dim() - 1 else slice(1) for n, s in enumerate(mask.stride()))]
        given["attn_mask"] = once.contiguous().expand_as(mask)
    return given


@torch.no_grad()
def _hides_later(mask: fx.Node | None, constants: dict[str, torch.Tensor]) -> bool | None:
    """Does a mask hide nothing (False), or what comes later (True)? None if it hides else, or is no constant."""
    if mask is None:
        return None
    needed = constant_values.ancestors(mask)
    if any(n.op == "placeholder" or has_effect(n) or not isinstance(n.meta["val"], torch.Tensor) for n in needed):
        return None
    if sum(n.meta["val"].numel() for n in needed) > LARGEST:
        return None
    values: dict[fx.Node, Any] = {}
    constant_values.compute(needed, constants, values)
    found = values[mask]
    seen = found if found.dtype is torch.bool else found == 0
    if found.dtype is not torch.bool:  # the least float16 is not far from everything
        least = float("-inf") if found.dtype is torch.float16 else torch.finfo(found.dtype).min
        if not (seen | (found <= least)).all():
            return None
    causal = seen.size(-1) == seen.size(-2) and bool((seen == torch.ones_like(seen).tril()).all())
    return False if seen.all() else True if causal else None
