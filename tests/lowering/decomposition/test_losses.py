"""Losses taken apart have eager's values and strides, whatever is expanded and in whatever order memory lies."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import jitney


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("backend", ["llvm_cpu", "triton_gpu"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("loss", [F.smooth_l1_loss, F.l1_loss, F.mse_loss, F.huber_loss])
def test_losses_of_broadcast_inputs_have_eagers_strides(
    loss: Callable[..., torch.Tensor], dtype: torch.dtype, backend: str
) -> None:
    def each(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return loss(x, y, reduction="none")

    compiled = jitney.compile(each, backend=backend)
    x = torch.rand(2).to(dtype)
    for order in itertools.permutations(range(3)):
        y = torch.rand([(2, 3, 2)[d] for d in order]).permute([order.index(d) for d in range(3)]).to(dtype)
        assert compiled(x, y).stride() == each(x, y).stride(), order
        torch.testing.assert_close(compiled(x, y), each(x, y))
