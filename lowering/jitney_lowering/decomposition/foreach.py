"""Operators on lists of tensors, as torch's optimizers call them: each becomes a call for each tensor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from jitney_lowering.decomposition.table import aten

SAME_NAME = """
add sub mul div maximum minimum clamp_max clamp_min pow addcmul addcdiv lerp neg abs sqrt rsqrt exp expm1 log log10
log1p log2 sin cos tan tanh sinh cosh asin acos atan erf erfc lgamma ceil floor round trunc frac reciprocal sigmoid
sign zero norm copy
""".split()


def _norm(x: torch.Tensor, order: Any = 2, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.linalg.vector_norm(x, order, dtype=dtype)


# What an operator on one tensor is called where the name differs from the list's.
ONE: Mapping[str, Any] = {"zero": torch.zeros_like, "norm": _norm, "copy": aten.copy.default}


@functools.cache
def foreach() -> dict[Any, Callable[..., Any]]:
    """A row for each functional overload."""
    table: dict[Any, Callable[..., Any]] = {}
    for name in SAME_NAME:
        packet = getattr(aten, f"_foreach_{name}", None)
        if packet is None:
            continue
        for overload in map(functools.partial(getattr, packet), packet.overloads()):
            if not overload._schema.is_mutable:
                table[overload] = functools.partial(_each, overload, ONE.get(name) or getattr(torch, name))
    return table


def _each(overload: Any, one: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call ``one`` for each tensor of the lists; what is no list goes to all."""
    schema = overload._schema
    if any(a.name == "scalars" and "List" not in str(a.type) for a in schema.arguments):
        return NotImplemented  # a tensor that holds the numbers
    number = len(next(a for a in args if isinstance(a, (list, tuple))))
    given = dict(zip([a.name for a in schema.arguments], args, strict=False)) | kwargs
    results = []
    for i in range(number):
        own = {k: (v[i] if isinstance(v, (list, tuple)) else v) for k, v in given.items()}
        results.append(_called(one, own))
    return results


def _called(one: Callable[..., Any], given: dict[str, Any]) -> Any:
    """What follows ``tensor1`` and ``tensor2``, and ``alpha``, goes by name to operators on one tensor."""
    first, *more = given.values()
    if "tensor2" in given:
        value = given.get("value", given.get("scalars", 1))
        return one(first, given["tensor1"], given["tensor2"], value=value)
    if "alpha" in given:
        return one(first, more[0], alpha=given["alpha"])
    if one in (torch.maximum, torch.minimum) and not isinstance(more[0], torch.Tensor):
        return (torch.clamp_min if one is torch.maximum else torch.clamp_max)(first, more[0])
    return one(first, *more)
