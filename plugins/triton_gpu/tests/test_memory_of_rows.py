"""Rows whose later nests store where earlier ones read: threads wait for each other in between."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

import jitney
from jitney_triton_gpu.code import Function


def pooled(x: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The first result takes the convolution's memory, of which the windows are read."""
    y = F.conv2d(x, first, padding=1) + 0.5
    pools = F.max_pool2d(F.relu(y), 2)
    return y * pools.amax((2, 3), keepdim=True), F.conv2d(pools, second)


def test_what_is_replaced_has_been_read_by_all_threads(
    device: torch.device, compiled_functions: list[Function]
) -> None:
    x = torch.randn(4, 3, 160, 160, device=device)
    weights = torch.randn(32, 3, 3, 3, device=device), torch.randn(1, 32, 1, 1, device=device)
    y, z = jitney.compile(pooled, backend="triton_gpu", dynamic=False)(x, *weights)
    expected = pooled(x, *weights)
    assert_close(y, expected[0])
    assert_close(z, expected[1])
    (body,) = [f.body for f in compiled_functions if f.body.count("tl.store") > 2]
    before, after = body.split("tl.debug_barrier()")
    assert "tl.load(b0" in before and "tl.load(b0" in after
