"""Pooling, padding and repeating beside eager: edges, ties, nan, memory formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import jitney

CL = torch.channels_last
PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "max": lambda x: F.max_pool2d(x, 2),
    "max with places": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "max with holes": lambda x: F.max_pool2d(x, (2, 3), 1, (1, 1), dilation=2, return_indices=True),
    "max of what is computed": lambda x: F.max_pool2d(x.sigmoid() + x, 3, 1, 1) * 2,
    "max over the edge": lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True),
    "mean": lambda x: F.avg_pool2d(x, 3, 1, 1) + 1,
    "mean with a divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "mean without the padding": lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "mean of a big window": lambda x: F.avg_pool2d(x, 6),
    "mean of big windows that overlap": lambda x: F.avg_pool2d(x.exp(), (5, 7), (2, 1), (2, 3)).relu(),
    "mean of big windows without the padding": lambda x: F.avg_pool2d(x, 7, 1, 3, count_include_pad=False),
    "mean of long rows": lambda x: F.avg_pool1d(x.flatten(1, 2), 13, 4, 6) * 2,
    "mean of the longest rows": lambda x: F.avg_pool1d(x.flatten(1).repeat(1, 2), 70, 3, 20),
    "repeated twice": lambda x: F.interpolate(x, scale_factor=2) * 2,
    "repeated three times": lambda x: F.interpolate(x.exp(), scale_factor=(3, 1)),
    "to a size": lambda x: F.interpolate(x, size=(x.shape[2] * 5, 26)),
    "to any size": lambda x: F.interpolate(x, size=(7, 20)),
    "made larger by a half": lambda x: F.interpolate(x, scale_factor=1.5),
    "padded": lambda x: F.pad(x, (1, 2, 3, 0)).sigmoid(),
    "padded with a number": lambda x: (F.pad(x * 2, (0, 1), value=3.0), x.relu()),
    "padded by its own size": lambda x: F.pad(x[:, :1, :1, :1], (1, 1, 1, 1, 1, 0)),
    "cut": lambda x: F.pad(x, (-1, 2, 0, -2)) + 1,
    "only cut": lambda x: F.pad(x, (-1, 0, -2, -1)),
    "cut and padded on each side": lambda x: F.pad(x, (3, -2, -1, 1), value=2.0).relu(),
    "in a mirror": lambda x: F.pad(x, (2, 1, 0, 3), "reflect") * 2,
    "rows in a mirror": lambda x: F.pad(x.flatten(1, 2), (2, 1), "reflect"),
    "in a mirror on three sides": lambda x: F.pad(x[:, None], (2, 1, 0, 3, 1, 1), "reflect"),
    "repeated at the edge": lambda x: F.pad(x.relu(), (2, 1, 0, 3), "replicate") * 2,
    "rows repeated at the edge": lambda x: F.pad(x.flatten(1, 2), (20, 0), "replicate"),
    "repeated on three sides": lambda x: F.pad(x[:, None], (2, 1, 0, 3, 1, 5), "replicate"),
    "padded twice": lambda x: F.pad(F.pad(x, (1, 1)), (0, 0, 2, 2), value=-1.0).sum(2),
    "padded and joined": lambda x: torch.cat([F.pad(x, (1, 1)), F.pad(x.exp(), (2, 0))], 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, CL])
@pytest.mark.parametrize("name", PROGRAMS)
def test_pools_and_edges_as_in_eager(name: str, layout: torch.memory_format, dtype: torch.dtype) -> None:
    for dynamic in (False, True):
        compiled = jitney.compile(PROGRAMS[name], backend="llvm_cpu", dynamic=dynamic)
        for batch, high in ((2, 9), (3, 12)):
            torch.manual_seed(high)
            x = torch.randn(batch, 4, high, 13).mul(2).round().to(dtype).to(memory_format=layout)
            x[0, 0, 2, 3] = x[0, 0, 3, 3] = float("nan")
            x[1, 2] = -float("inf")
            wanted, got = PROGRAMS[name](x), compiled(x)
            torch.testing.assert_close(got, wanted, equal_nan=True)
            for one, other in zip(*(torch.utils._pytree.tree_leaves(r) for r in (wanted, got)), strict=True):
                assert one.stride() == other.stride()


@pytest.mark.parametrize(
    "name", ["max of what is computed", "mean", "mean of big windows that overlap", "padded", "padded and joined"]
)
def test_gradients(name: str) -> None:
    found = []
    for call in (PROGRAMS[name], jitney.compile(PROGRAMS[name], backend="llvm_cpu")):
        torch.manual_seed(0)
        x = torch.randn(2, 4, 9, 13, dtype=torch.float64, requires_grad=True)
        call(x).square().sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0])


def test_a_batch_is_not_needed() -> None:
    x = torch.randn(3, 8, 8)
    for name in ("max with places", "mean"):
        torch.testing.assert_close(jitney.compile(PROGRAMS[name], backend="llvm_cpu")(x), PROGRAMS[name](x))


def test_small_windows_are_kernels() -> None:
    for name in ("max", "mean", "padded", "repeated twice", "repeated three times"):
        report = str(jitney.explain(PROGRAMS[name], backend="llvm_cpu")(torch.randn(2, 4, 9, 13)))
        assert "as a whole: nothing" in report
