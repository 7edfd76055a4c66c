"""Windows and samples of images, beside eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from backend_images import *  # noqa: F403

import jitney
from jitney import events
from jitney_llvm_cpu.target import Target


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "how",
    [
        {"mode": "bilinear", "scale_factor": 2},
        {"mode": "bilinear", "size": (50, 31)},
        {"mode": "bilinear", "size": (50, 31), "align_corners": True},
        {"mode": "nearest", "size": (37, 90)},
    ],
    ids=str,
)
def test_larger_images_for_themselves_are_kernels_where_gathers_are_fast(
    how: dict[str, Any], dtype: torch.dtype
) -> None:
    found: list[events.Lowered] = []
    x = torch.randn(2, 3, 20, 21).to(dtype)
    with events.listen(lambda e: found.append(e) if isinstance(e, events.Lowered) else None):
        made = jitney.compile(lambda x: F.interpolate(x, **how), backend="llvm_cpu")(x)
    torch.testing.assert_close(made, F.interpolate(x, **how))
    assert bool(found[0].whole) is not Target.host().gathers(32)
