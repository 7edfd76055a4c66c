"""Memory formats around convolutions, in inference and in training."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from fork_server import run_python
from torch import nn
from torch._subclasses import FakeTensorMode

import jitney
from jitney_lowering import Convolution
from jitney_triton_gpu import joint_pass
from jitney_triton_gpu.device import DEVICE_TYPES

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
def test_depthwise_convolutions_have_the_channels_last(train: bool, dynamic: bool, device: torch.device) -> None:
    models = [inverted(4).train(train).to(device)]
    models.append(copy.deepcopy(models[0]))
    formats: dict[Any, list[bool]] = {aten.convolution.default: [], aten.convolution_backward.default: []}

    def look(event: Any) -> None:
        if isinstance(event, jitney.events.AtenGraph):
            for node in event.graph.nodes:
                if node.target in formats:
                    value = node.meta["val"]
                    value = value[0] if isinstance(value, (list, tuple)) else value
                    formats[node.target].append(value is not None and value.stride()[1] == 1)

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
    assert formats[aten.convolution.default] and all(formats[aten.convolution.default])
    assert bool(formats[aten.convolution_backward.default]) is train and all(formats[aten.convolution_backward.default])


def test_what_channels_last_are_worth() -> None:
    worth, single, half = joint_pass._worth, torch.float32, torch.bfloat16
    assert worth(Convolution(8, 8, 8, 9, single)) == worth(Convolution(8, 8, 8, 49, half)) > 1
    # No such kernels are there.
    assert worth(Convolution(8, 8, 16, 9, single)) < 0 < worth(Convolution(8, 8, 16, 9, half))
    assert worth(Convolution(8, 8, 8, 81, half)) < worth(Convolution(2, 8, 8, 9, single)) < 0
    wide = Convolution(8, 8, 8, 49, single)
    assert worth(wide) > 0 > worth(replace(wide, backward=True))
    assert worth(replace(wide, window=25, backward=True)) > 0 < worth(Convolution(8, 8, 8, 49, half, backward=True))
    assert worth(Convolution(1, 8, 8, 9, single)) == worth(Convolution(1, 8, 8, 9, half)) == 1
    assert worth(Convolution(1, 8, 8, 1, half)) > worth(Convolution(1, 8, 8, 1, single)) == 0
    assert worth(Convolution(8, 8, 8, 9, torch.float64)) == 0
    assert worth(Convolution(1, 3, 8, 9, single)) == 0 < worth(Convolution(1, 3, 8, 9, half))
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert worth(Convolution(1, 8, 8, 9, single)) == 0 < worth(Convolution(1, 8, 8, 9, half))
    few = Convolution(1, 64, 1, 9, single)
    assert worth(few) < -1 < worth(replace(few, backward=True)) == worth(replace(few, results=4)) == 1
    assert worth(Convolution(1, 48, 4, 9, single)) < -1 < worth(Convolution(1, 48, 4, 9, half))


class Branches(nn.Module):
    """What two convolutions give side by side, weighed."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(8, 8, 3, padding=1 + i, dilation=1 + i) for i in range(2))
        self.last = nn.Conv2d(8, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = torch.stack([self.first(x).relu(), self.second(x).relu()], 1)
        weights = both.mean((3, 4), keepdim=True).softmax(1)
        return self.last((both * weights).sum(1))


@pytest.mark.parametrize("train", [False, True])
def test_a_stack_reads_what_lies_with_the_channels_last(train: bool, device: torch.device) -> None:
    torch.manual_seed(0)
    model = Branches().to(device)
    x = torch.randn(2, 8, 9, 10, device=device).requires_grad_(train)
    strides: list[Any] = []

    def look(event: Any) -> None:
        if isinstance(event, jitney.events.AtenGraph) and event.kind in ("inference", "forward"):
            found = event.graph.find_nodes(op="call_function", target=aten.convolution.default)
            strides.extend(node.meta["val"].stride()[1] for node in found)

    with torch.set_grad_enabled(train), jitney.events.listen(look):
        found, expected = jitney.compile(model, backend="triton_gpu")(x), model(x)
    near = {"rtol": 1e-2, "atol": 1e-2} if x.is_cuda else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(found, expected, **near)
    assert strides[:2] == [1, 1]
    if train:
        sides = [torch.autograd.grad(y.square().mean(), [x, *model.parameters()]) for y in (found, expected)]
        torch.testing.assert_close(*sides, **near)


def test_tf32_is_asked_for_however_it_was_set() -> None:
    """torch refuses its older questions after its newer names have been used: a process of its own."""
    program = (
        "import torch; from jitney_triton_gpu.device import convolves_in_tf32, multiplies_in_tf32\n"
        "assert not multiplies_in_tf32() and convolves_in_tf32()\n"
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'; torch.backends.cudnn.conv.fp32_precision = 'ieee'\n"
        "assert multiplies_in_tf32() and not convolves_in_tf32()"
    )
    run_python("-c", program, check=True)


@pytest.mark.parametrize(
    ("rows", "length", "columns", "loses"),
    [(512, 1536, 384, True), (512, 768, 768, True), (6304, 384, 384, False), (16, 1536, 384, False)],
)
def test_products_that_lose_by_their_bias(rows: int, length: int, columns: int, loses: bool) -> None:
    graph = torch.fx.Graph()
    bias, left, right = (graph.placeholder(name) for name in ("bias", "left", "right"))
    product = graph.call_function(torch.ops.aten.addmm.default, (bias, left, right))
    device = torch.device(DEVICE_TYPES[0])
    with FakeTensorMode():
        left.meta["val"] = torch.empty(rows, length, device=device)
        product.meta["val"] = torch.empty(rows, columns, device=device)
    assert joint_pass._loses_by_bias(product) is loses
