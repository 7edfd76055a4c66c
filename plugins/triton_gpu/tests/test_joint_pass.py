"""Memory formats around convolutions, in inference and in training."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import jitney
from jitney_lowering import Convolution
from jitney_triton_gpu import joint_pass

aten = torch.ops.aten


def inverted(channels: int) -> nn.Module:
    """A block of a network for phones: wide, depthwise, narrow."""
    return nn.Sequential(
        nn.Conv2d(channels, 4 * channels, 1, bias=False),
        nn.BatchNorm2d(4 * channels),
        nn.SiLU(),
        nn.Conv2d(4 * channels, 4 * channels, 3, padding=1, groups=4 * channels, bias=False),
        nn.BatchNorm2d(4 * channels),
        nn.SiLU(),
        nn.Conv2d(4 * channels, channels, 1),
    )


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_depthwise_convolutions_with_gradients(train: bool, dynamic: bool, device: torch.device) -> None:
    models = [inverted(4).train(train).to(device)]
    models.append(copy.deepcopy(models[0]))
    formats: dict[Any, list[bool]] = {aten.convolution.default: [], aten.convolution_backward.default: []}

    def look(event: Any) -> None:
        if isinstance(event, jitney.events.AtenGraph):
            for node in event.graph.nodes:
                if node.target in formats:
                    value = node.meta["val"]
                    value = value[0] if isinstance(value, (list, tuple)) else value
                    formats[node.target].append(value is not None and str(value.stride()[1]) == "1")

    x = torch.randn(2, 4, 6, 5, device=device)
    near = {"rtol": 1e-2, "atol": 1e-3} if x.is_cuda else {"rtol": 1e-3, "atol": 1e-5}  # cuDNN rounds to TF32
    run = jitney.compile(models[0], backend="triton_gpu", dynamic=dynamic)
    given = [x.clone().requires_grad_(train) for _ in models]
    with torch.set_grad_enabled(train), jitney.events.listen(look):
        results = [run(given[0]), models[1](given[1])]
        if train:
            for y in results:
                y.square().mean().backward()
    torch.testing.assert_close(results[0], results[1], **near)
    assert results[0].stride() == results[1].stride()
    if train:
        for ours, eagers in zip(models[0].parameters(), models[1].parameters(), strict=True):
            assert ours.grad is not None and eagers.grad is not None
            torch.testing.assert_close(ours.grad, eagers.grad, **near)
            assert ours.grad.stride() == eagers.grad.stride()
        torch.testing.assert_close(given[0].grad, given[1].grad, **near)
    assert formats[aten.convolution.default] and set(formats[aten.convolution.default]) == {train}
    assert bool(formats[aten.convolution_backward.default]) is train and all(formats[aten.convolution_backward.default])


def test_what_channels_last_are_worth() -> None:
    worth, single, half = joint_pass._worth, torch.float32, torch.bfloat16
    assert worth(Convolution(8, 8, 9, single)) == worth(Convolution(8, 8, 25, single)) == 0  # kernels of our own
    assert (
        worth(Convolution(8, 8, 9, half))
        == 0
        < worth(Convolution(8, 8, 25, half))
        == worth(Convolution(8, 8, 49, half))
    )
    assert worth(Convolution(8, 8, 81, half)) < worth(Convolution(2, 8, 9, single)) < 0  # no such kernels are there
    assert worth(Convolution(8, 8, 49, single, backward=True)) < 0
    assert worth(Convolution(8, 8, 25, single, backward=True)) > 0 < worth(Convolution(8, 8, 49, half, backward=True))
    assert worth(Convolution(1, 8, 9, single)) == worth(Convolution(1, 8, 9, half)) == 1
    assert worth(Convolution(1, 8, 1, half)) > worth(Convolution(1, 8, 1, single)) == 0
    assert worth(Convolution(8, 8, 9, torch.float64)) == 0
    assert worth(Convolution(1, 3, 9, single)) == 0 < worth(Convolution(1, 3, 9, half))
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert worth(Convolution(1, 8, 9, single)) == 0 < worth(Convolution(1, 8, 9, half))
