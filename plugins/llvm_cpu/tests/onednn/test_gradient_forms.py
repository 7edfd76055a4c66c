"""Convolutions that are computed in other forms, and their gradients, beside eager's: strides, layouts, types."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import jitney
from jitney import events
from jitney_llvm_cpu.onednn import filter_order, subsampling


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_order, "LEAST", 1)
    monkeypatch.setattr(subsampling, "LEAST", 1)


def told(model: nn.Module, x: torch.Tensor, compiled: bool) -> list[torch.Tensor]:
    """Result and gradients, of inputs too."""
    run = jitney.compile(model, backend="llvm_cpu", dynamic=False) if compiled else model
    given = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    made = run(given)
    scale = torch.linspace(-1, 1, made.numel()).view(made.shape).to(made.dtype)
    return [made, *torch.autograd.grad((made * scale).sum(), [given, *model.parameters()])]


def alike(model: nn.Module, x: torch.Tensor) -> None:
    for one in (x, x.contiguous(memory_format=torch.channels_last)):
        found, expected = told(model, one, True), told(model, one, False)
        assert [t.stride() for t in found[1:]] == [t.stride() for t in expected[1:]]
        exact = x.dtype is torch.float32
        torch.testing.assert_close(found, expected, rtol=1e-4 if exact else 5e-2, atol=1e-4 if exact else 0.3)
    with torch.no_grad():
        compiled = jitney.compile(model, backend="llvm_cpu", dynamic=False)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4 if exact else 5e-2, atol=1e-4 if exact else 0.3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("stride", "size"), [(2, (6, 7)), ((2, 3), (9, 9)), ((1, 4), (5, 6)), (3, (1, 2))])
def test_windows_of_one_pixel_that_skip_some(stride: Any, size: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    inner = nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 1, stride), nn.Tanh()
    alike(nn.Sequential(*inner).to(dtype), torch.randn(2, 4, *size).to(dtype))
    alike(nn.Sequential(nn.Conv2d(4, 6, 1, stride, bias=False, groups=2)).to(dtype), torch.randn(2, 4, *size).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("groups", [1, 2])
def test_filters_of_several_pixels(groups: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, (2, 3), 2, dilation=(1, 2), groups=groups)]
    alike(nn.Sequential(*layers, nn.Tanh()).to(dtype), torch.randn(2, 4, 7, 9).to(dtype))
    layers[2].weight.requires_grad_(False)
    model = nn.Sequential(*layers).to(dtype)
    x = torch.randn(1, 4, 8, 8).to(dtype)
    wanted = [layers[0].weight, layers[2].bias]
    found = torch.autograd.grad(jitney.compile(model, backend="llvm_cpu")(x).square().sum(), wanted)
    expected = torch.autograd.grad(model(x).square().sum(), wanted)
    exact = dtype is torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-3 if exact else 5e-2, atol=1e-3 if exact else 1.0)


def test_no_weights_are_copied_by_torch() -> None:
    """What the backward runs as a whole: nothing but the convolutions' gradients."""
    whole: list[str] = []

    def listener(event: Any) -> None:
        if isinstance(event, events.Lowered) and event.kind == "backward":
            whole.extend(name for name, _ in event.whole)

    def program(x: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(F.conv2d(x, v, padding=1).relu(), w, stride=2).square()

    given = [torch.randn(*s).requires_grad_() for s in ((2, 4, 8, 8), (8, 4, 3, 3), (16, 8, 1, 1))]
    with events.listen(listener):
        jitney.compile(program, backend="llvm_cpu")(*given).sum().backward()
    assert {*whole} == {"aten.convolution_backward.default"}


class OneForAll(nn.Module):
    """A convolution that is given one number for all dimensions."""

    def __init__(self, window: int, groups: int, padding: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6 // groups, window, window))
        self.groups, self.padding = groups, padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.convolution(x, self.weight, None, (2,), (self.padding,), (1,), False, (0,), self.groups)


@pytest.mark.parametrize(("window", "groups", "padding"), [(1, 1, 0), (5, 6, 1), (3, 1, 1), (3, 6, 1)])
def test_one_number_stands_for_all_dimensions(window: int, groups: int, padding: int) -> None:
    torch.manual_seed(0)
    alike(OneForAll(window, groups, padding), torch.randn(2, 6, 9, 7))
