"""Numbers at which kernels err, and programs that tell who ran them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import jitney
from jitney import events

INF, NAN = float("inf"), float("nan")


def odd(dtype: torch.dtype, count: int = 96) -> torch.Tensor:
    """Zeros of both signs, infinities, NaN, extremes, halves, and numbers of all sizes."""
    if dtype is torch.bool:
        return torch.arange(count) % 3 == 0
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        some = torch.tensor([limits.min, limits.max, 0, 1, 2, limits.max - 1, limits.min + 1, 3, 7], dtype=dtype)
        return torch.cat([some, (torch.arange(count - 9) * 37 % 101 - 50).to(dtype)])
    limits = torch.finfo(dtype)
    some = [0.0, -0.0, 1, -1, INF, -INF, NAN, 0.5, -0.5, 1.5, 2.5, -1.5, -2.5, limits.max, limits.min, limits.tiny]
    some += [-limits.tiny, 1e-5, 100, -100, 20, -20, 9, -9, 88.5, -88.5]
    rest = torch.linspace(-6, 6, count - len(some), dtype=torch.float64)
    return torch.cat([torch.tensor(some, dtype=dtype), rest.to(dtype)])


def run(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, dict[str, int]]:
    """What a function returns on the backend, and how many operators each side has run."""
    shares: dict[str, int] = {}

    def note(event: Any) -> None:
        if isinstance(event, events.Placed):
            for name, count in event.pieces:
                shares[name] = shares.get(name, 0) + count
        if isinstance(event, events.GraphFailed):
            raise event.error

    with events.listen(note):
        made = jitney.compile(function, backend="onnxruntime", fullgraph=True, **options)(*args)
    return made, shares


def same(found: Any, expected: Any, units: float = 0.0) -> None:
    """Assert equal NaN, infinities and signs of zero; other numbers within so many units in the last place."""
    if isinstance(expected, (tuple, list)):
        for a, b in zip(found, expected, strict=True):
            same(a, b, units)
        return
    assert (found.dtype, found.shape, found.stride()) == (expected.dtype, expected.shape, expected.stride())
    if not expected.is_floating_point():
        assert torch.equal(found, expected), (found, expected)
        return
    equal = (found == expected) & ((expected != 0) | (found.signbit() == expected.signbit()))
    equal |= found.isnan() & expected.isnan()
    if units:
        limits = torch.finfo(expected.dtype)
        step = expected.double().abs().clamp(min=max(limits.tiny, 1e-30)) * limits.eps
        equal |= (found.double() - expected.double()).abs() <= units * step
    assert bool(equal.all()), (found[~equal][:8], expected[~equal][:8])
