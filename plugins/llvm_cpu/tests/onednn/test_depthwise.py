"""Gradients of depthwise convolutions beside eager's: windows, strides, borders, types, layouts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import jitney
from jitney import events

# Channels, size of images, and of windows, stride, padding, dilation.
CASES: dict[str, tuple[int, list[int], list[int], Any, Any, Any]] = {
    "wide": (20, [9, 10], [5, 5], 1, 2, 1),
    "of seven": (33, [8, 7], [7, 7], 1, 3, 1),
    "each second pixel": (16, [9, 12], [5, 5], 2, 2, 1),
    "some pixels are not read": (16, [10, 11], [4, 6], (3, 2), (1, 0), 1),
    "dilated": (8, [14, 13], [3, 5], (1, 2), (2, 4), 2),
    "flat": (24, [6, 15], [1, 11], 1, (0, 5), 1),
    "few channels": (3, [8, 8], [4, 4], 4, 0, 1),
    "wider borders than windows": (5, [4, 5], [3, 4], 1, 5, 1),
    "small": (16, [7, 9], [3, 3], 2, 1, 1),
    "sequences": (12, [17], [4], 1, 3, 1),
    "sequences, each third": (12, [17], [5], 3, 2, 1),
}


def gradients(case: str, dtype: torch.dtype, compiled: bool, last: bool, bias: bool) -> list[torch.Tensor]:
    channels, size, window, stride, padding, dilation = CASES[case]
    torch.manual_seed(0)
    x, weight = torch.randn(2, channels, *size).to(dtype), torch.randn(channels, 1, *window).to(dtype)
    if last and len(size) == 2:
        x = x.contiguous(memory_format=torch.channels_last)
    added = torch.randn(channels).to(dtype) if bias else None
    given = [t.requires_grad_() for t in (x, weight, added) if t is not None]

    def program(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        convolve = F.conv2d if len(size) == 2 else F.conv1d
        return convolve(x * 2, weight, bias, stride, padding, dilation, channels).sin()

    run = jitney.compile(program, backend="llvm_cpu", dynamic=False) if compiled else program
    made = run(*given)
    weights = torch.linspace(-1, 1, made.numel()).view(made.shape).to(dtype)
    return list(torch.autograd.grad((made * weights).sum(), given))


def layout(tensor: torch.Tensor) -> Any:
    """Its type, and strides where these matter."""
    return tensor.dtype, [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_gradients(case: str, dtype: torch.dtype) -> None:
    for last, bias in [(False, True), (True, False)]:
        found = gradients(case, dtype, True, last, bias)
        expected = gradients(case, dtype, False, last, bias)
        assert [*map(layout, found)] == [*map(layout, expected)]
        if dtype is torch.bfloat16:
            torch.testing.assert_close(found, expected, rtol=3e-2, atol=3e-1)
        else:
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def operators(case: str, dtype: torch.dtype) -> list[str]:
    """What runs as a whole in the backward."""
    whole: list[str] = []

    def listener(event: Any) -> None:
        if isinstance(event, events.Lowered) and event.kind == "backward":
            whole.extend(name for name, _ in event.whole)

    with events.listen(listener):
        gradients(case, dtype, True, True, False)
    return [name for name in whole if "convolution" in name]


def test_which_gradients_are_kernels() -> None:
    assert operators("small", torch.float32) == ["aten.convolution_backward.default"]
    assert operators("small", torch.float64) == ["aten.convolution_backward.default"]
    assert operators("wide", torch.float32) == ["aten.convolution_backward.default"]  # of images alone
    assert operators("each second pixel", torch.bfloat16) == ["aten.convolution.default"]


def test_sizes_that_change_are_onednns() -> None:
    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, weight, None, 1, 2, 1, 8).square()

    run = jitney.compile(program, backend="llvm_cpu", dynamic=True)
    for size in (6, 9):
        given = [torch.randn(2, 8, size, 7).requires_grad_(), torch.randn(8, 1, 5, 5).requires_grad_()]
        expected = torch.autograd.grad(program(*given).sum(), given)
        torch.testing.assert_close(torch.autograd.grad(run(*given).sum(), given), expected, rtol=1e-4, atol=1e-4)
