"""Convolutions whose bias is added apart."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import lowered, trained

from jitney_lowering.decomposition import convolutions


def test_a_bias_is_part_of_what_follows_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolutions, "DEVICE", "cpu")
    x, w, b = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
    program = lowered(lambda x, w, b: F.relu(F.conv2d(x, w, b)), x, w, b, whole=["convolution.default"]).program
    assert [step.args[2] for step in program.steps if hasattr(step, "args")] == [None] and len(program.steps) == 2
    trained(
        lambda *args: F.conv_transpose2d(*args).sin(),
        *(t.requires_grad_() for t in (x, torch.randn(3, 4, 3, 3), b)),
        whole=None,
    )


def test_a_bias_stays_inside_on_a_cpu_and_where_it_is_rounded_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, b = torch.randn(2, 4, 8, 8), torch.randn(4, 1, 3, 3), torch.randn(4)
    args = ([1, 1], [0, 0], [1, 1], False, [0, 0], 4)
    assert convolutions.convolution(x, w, b, *args) is NotImplemented
    monkeypatch.setattr(convolutions, "DEVICE", "cpu")
    assert convolutions.convolution(x.half(), w.half(), b.half(), *args) is NotImplemented
    torch.testing.assert_close(convolutions.convolution(x, w, b, *args), F.conv2d(x, w, b, groups=4))


def test_the_gradient_of_a_bias_is_a_sum_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    args = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    grad, x, w = torch.randn(2, 4, 6, 6), torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    assert convolutions.convolution_backward(grad, x, w, [4], *args, [True, True, True]) is NotImplemented
    monkeypatch.setattr(convolutions, "DEVICE", "cpu")
    for mask in ([True, True, True], [False, True, True], [True, False, True], [False, False, True]):
        found = convolutions.convolution_backward(grad, x, w, [4], *args, mask)
        wanted = torch.ops.aten.convolution_backward(grad, x, w, [4], *args, mask)
        assert [f is None for f in found] == [not asked for asked in mask]
        for ours, eagers, asked in zip(found, wanted, mask, strict=True):
            if asked:
                torch.testing.assert_close(ours, eagers)
    assert convolutions.convolution_backward(grad, x, w, [4], *args, [True, True, False]) is NotImplemented
    assert convolutions.convolution_backward(grad[:0], x[:0], w, [4], *args, [True, True, True]) is NotImplemented
