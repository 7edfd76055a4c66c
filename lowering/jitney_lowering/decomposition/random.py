"""Random operators as a seed and arithmetic, for backends whose user does not ask for eager's numbers.

The seed comes from torch's generator of the device, so ``torch.manual_seed`` makes a program repeatable, and each call
draws other numbers. They are not eager's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from jitney_lowering.decomposition.table import aten, is_empty
from jitney_lowering.philox import UNIFORM

RANDOM: dict[Any, Callable[..., Any]] = {}
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
HALF_BITS = {torch.float16: 11, torch.bfloat16: 8}  # of their mantissas: numbers below 1 stay there
OTHER = 1 << 40  # counters of a second draw from the same seed begin here


def _random(*operators: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        RANDOM.update(dict.fromkeys(operators, rule))
        return rule

    return register


class _Draws:
    """Draws from one seed, an element of ``shape`` each."""

    def __init__(self, shape: Sequence[Any], device: torch.device) -> None:
        self.seed = aten.randint.low(-(2**63), 2**63 - 1, [1], dtype=torch.int64, device=device)
        self.counter = torch.arange(math.prod(shape), device=device).view(list(shape))

    def uniform(self, draw: int = 0) -> Tensor:
        """From 0 up to 1, float32."""
        made: Tensor = UNIFORM(self.seed, self.counter + draw * OTHER)
        return made

    def normal(self) -> Tensor:
        """By Box and Muller, float32."""
        radius = (-2 * (1 - self.uniform()).log()).sqrt()
        return radius * (2 * math.pi * self.uniform(1)).cos()


def _in_dtype(uniform: Tensor, dtype: torch.dtype) -> Tensor:
    bits = HALF_BITS.get(dtype)
    return (uniform * 2.0**bits).floor().mul(2.0**-bits).to(dtype) if bits else uniform.to(dtype)


def _like(made: Tensor, x: Tensor) -> Any:
    """With the strides that a result which is like ``x`` has; ``NotImplemented`` for unusual ones."""
    if x.is_contiguous():
        return made
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if x.dim() in formats and x.is_contiguous(memory_format=formats[x.dim()]):
        return made.contiguous(memory_format=formats[x.dim()])
    return NotImplemented


def _takes(shape: Sequence[Any], dtype: torch.dtype | None, generator: Any = None) -> bool:
    empty = any(isinstance(s, int) and s == 0 for s in shape)
    return generator is None and not empty and (dtype or torch.get_default_dtype()) in FLOATS


@_random(aten.rand.default)
def rand(
    size: Sequence[Any], *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    """From 0 up to 1."""
    if not _takes(size, dtype) or layout not in (None, torch.strided) or pin_memory:
        return NotImplemented
    draws = _Draws(size, device or torch.get_default_device())
    return _in_dtype(draws.uniform(), dtype or torch.get_default_dtype())


@_random(aten.randn.default)
def randn(
    size: Sequence[Any], *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    """Normal numbers."""
    if not _takes(size, dtype) or layout not in (None, torch.strided) or pin_memory:
        return NotImplemented
    draws = _Draws(size, device or torch.get_default_device())
    return draws.normal().to(dtype or torch.get_default_dtype())


@_random(aten.rand_like.default)
def rand_like(x: Tensor, *, dtype: Any = None, memory_format: Any = None, **others: Any) -> Any:
    """From 0 up to 1, in the shape of another."""
    return _made_like(x, dtype, memory_format, others, lambda d, to: _in_dtype(d.uniform(), to))


@_random(aten.randn_like.default)
def randn_like(x: Tensor, *, dtype: Any = None, memory_format: Any = None, **others: Any) -> Any:
    """Normal numbers in the shape of another."""
    return _made_like(x, dtype, memory_format, others, lambda d, to: d.normal().to(to))


def _made_like(
    x: Tensor, dtype: Any, memory_format: Any, others: dict[str, Any], make: Callable[[_Draws, torch.dtype], Tensor]
) -> Any:
    plain = memory_format in (None, torch.preserve_format) and all(v is None or v is False for v in others.values())
    dtype = dtype or x.dtype
    if not plain or not _takes(x.shape, dtype) or _like(x, x) is NotImplemented:
        return NotImplemented
    return _like(make(_Draws(x.shape, x.device), dtype), x)


@_random(aten.bernoulli.p)
def bernoulli(x: Tensor, p: float = 0.5, generator: Any = None) -> Any:
    """1 with probability ``p``, else 0."""
    if generator is not None or is_empty(x) or _like(x, x) is NotImplemented:
        return NotImplemented
    return _like((_Draws(x.shape, x.device).uniform() < p).to(x.dtype), x)


@_random(aten.bernoulli.default)
def bernoulli_of(x: Tensor, generator: Any = None) -> Any:
    """1 with the probability that each element says."""
    if not _takes(x.shape, x.dtype, generator) or _like(x, x) is NotImplemented:
        return NotImplemented
    return _like((_Draws(x.shape, x.device).uniform() < x).to(x.dtype), x)


@_random(aten.native_dropout.default)
def native_dropout(x: Tensor, p: float, train: bool | None) -> Any:
    """Result and mask."""
    if train is False or p in (0, 1) or not _takes(x.shape, x.dtype) or _like(x, x) is NotImplemented:
        return NotImplemented
    mask = _like(_Draws(x.shape, x.device).uniform() < 1 - p, x)
    return (x * mask).mul(1 / (1 - p)), mask


@_random(aten.uniform.default)
def uniform(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Any:
    """From ``low`` up to ``high``."""
    if not _takes(x.shape, x.dtype, generator) or _like(x, x) is NotImplemented:
        return NotImplemented
    made = _Draws(x.shape, x.device).uniform() * (high - low) + low
    return _like(made.clamp(max=math.nextafter(high, low)).to(x.dtype), x)


@_random(aten.normal_functional.default)
def normal(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Any:
    """Normal numbers of this mean and deviation."""
    if not _takes(x.shape, x.dtype, generator) or _like(x, x) is NotImplemented:
        return NotImplemented
    return _like((_Draws(x.shape, x.device).normal() * std + mean).to(x.dtype), x)
