"""Pooling and edges beside eager: what is outside is never read, whatever windows reach there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import jitney
from jitney import events

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "max": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "max over the edge": lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True, return_indices=True),
    "max with holes over the edge": lambda x: F.max_pool2d(x, 2, 3, 1, 3, ceil_mode=True, return_indices=True),
    "mean": lambda x: F.avg_pool2d(x, 3, 1, 1) + 1,
    "mean without the padding": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "mean over the edge": lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
    "mean over the padded edge": lambda x: F.avg_pool2d(x, (3, 4), (2, 3), 1, ceil_mode=True),
    "mean of what is there": lambda x: F.avg_pool2d(x, 4, 3, 2, ceil_mode=True, count_include_pad=False),
    "mean over the edge with a divisor": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=5),
    "mean of big windows": lambda x: F.avg_pool2d(x, (6, 5), (2, 3), (3, 2), ceil_mode=True, count_include_pad=False),
    "mean of big windows, padded": lambda x: F.avg_pool2d(x.sigmoid(), 7, 1, 3),
    "mean of big windows side by side": lambda x: F.avg_pool2d(x.sigmoid(), (6, 5), divisor_override=7) + 1,
    "padded": lambda x: (F.pad(x, (1, 2, 3, 0)).sigmoid(), F.pad(x * 2, (0, 1), value=3.0)),
    "cut": lambda x: (F.pad(x, (-1, 2, 0, -2)) + 1, F.pad(x, (-1, 0, -2, -1)), F.pad(x, (3, -2, -1, 1), value=2.0)),
    "padded twice": lambda x: F.pad(F.pad(x, (1, 1)), (0, 0, 2, 2), value=-1.0).sum(2),
    "in a mirror": lambda x: (
        F.pad(x, (2, 1, 0, 3), "reflect") * 2,
        F.pad(x.flatten(1, 2), (2, 1), "reflect"),
        F.pad(x[:, None], (2, 1, 0, 3, 1, 1), "reflect"),
    ),
    "repeated at the edge": lambda x: (
        F.pad(x.relu(), (2, 1, 0, 3), "replicate") * 2,
        F.pad(x.flatten(1, 2), (20, 0), "replicate"),
        F.pad(x[:, None], (2, 1, 0, 3, 1, 5), "replicate"),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_pools_and_edges_as_in_eager(name: str, dynamic: bool, dtype: torch.dtype, device: torch.device) -> None:
    compiled = jitney.compile(PROGRAMS[name], backend="triton_gpu", dynamic=False)
    whole: list[Any] = []
    with events.listen(lambda e: whole.extend(e.whole) if isinstance(e, events.Lowered) else None):
        for batch, high in ((2, 9), (2, 12)) if dynamic else ((2, 9),):
            torch.manual_seed(high)
            x = torch.randn(batch, 4, high, 7, device=device).mul(2).round().to(dtype)
            x[0, 0, 2, 3] = x[0, 0, 3, 3] = float("nan")
            x[1, 2] = -float("inf")
            if dynamic:
                jitney.maybe_mark_dynamic(x, 2)
            torch.testing.assert_close(compiled(x), PROGRAMS[name](x), equal_nan=True)
    assert whole == []


TRAINED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "max": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max, windows apart": lambda x: F.max_pool2d(x, 2, 3),
    "max over the edge": lambda x: F.max_pool2d(x, 2, ceil_mode=True),
    "mean": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "mean side by side": lambda x: F.avg_pool2d(x, 2),
    "mean of big windows side by side": lambda x: F.avg_pool2d(x, (6, 7)),
    "mean without the padding": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "mean of what is there": lambda x: F.avg_pool2d(x, (4, 3), 3, 1, ceil_mode=True, count_include_pad=False),
    "mean over the padded edge": lambda x: F.avg_pool2d(x, (3, 4), (2, 3), 1, ceil_mode=True),
    "mean with a divisor": lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
    "parts": lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
    "parts of two": lambda x: F.adaptive_avg_pool2d(x, (6, 4)),
    "parts of one": lambda x: F.adaptive_avg_pool2d(x, (12, 8)),
    "parts that overlap": lambda x: F.adaptive_avg_pool2d(x, (7, 5)),
}


def trained(name: str, dtype: torch.dtype, device: torch.device, *, dynamic: bool) -> list[Any]:
    """Compares with eager; gives the operators that ran as a whole."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, 12, 8, device=device).mul(2).round().to(dtype)
    compiled = jitney.compile(TRAINED[name], backend="triton_gpu", dynamic=False)
    whole: list[Any] = []
    results = []
    with events.listen(lambda e: whole.extend(e.whole) if isinstance(e, events.Lowered) else None):
        for fn in (compiled, TRAINED[name]):
            own = x.clone().requires_grad_()
            if dynamic:
                jitney.maybe_mark_dynamic(own, 2)
                jitney.maybe_mark_dynamic(own, 3)
            result = fn(own)
            result.backward(torch.linspace(-1, 2, result.numel(), device=device).view(result.shape).to(dtype))
            results.append((result.detach(), own.grad))
    torch.testing.assert_close(results[0], results[1])
    return whole


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", TRAINED)
def test_gradients_of_pools_as_in_eager(name: str, dtype: torch.dtype, device: torch.device) -> None:
    assert trained(name, dtype, device, dynamic=False) == []


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_of_pools_of_any_size(name: str, device: torch.device) -> None:
    whole = trained(name, torch.float32, device, dynamic=True)
    assert whole == [] or name.startswith("parts")
