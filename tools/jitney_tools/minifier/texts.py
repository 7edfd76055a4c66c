"""Inputs as Python text: data that a formula makes, or the numbers themselves."""

from __future__ import annotations

import math
from typing import Any

import torch

from jitney_tools.minifier.case import Given

LITERAL = 64  # elements: a tensor with more is kept as data


def alike(text: str) -> Given:
    """The input that a text makes."""
    return Given(eval(text, {"torch": torch, "inf": math.inf, "nan": math.nan}), text)


def simple_texts(value: Any) -> list[str]:
    """Texts for tensors with the facts of this one and data that is easy to write, the simplest first."""
    if not isinstance(value, torch.Tensor) or not _is_plain(value):
        return []
    shape, count = list(value.shape), value.numel()
    dtype = f"dtype={value.dtype}"
    if value.dtype is torch.bool:
        data = [f"torch.ones({shape}, {dtype})", f"{_shaped(f'(torch.arange({count}) % 2 == 0)', shape)}"]
    elif value.is_complex():
        data = [_shaped(f"torch.linspace(-1, 1, {count}, {dtype})", shape)]
    elif value.is_floating_point():
        ramp = f"torch.linspace(-1, 1, {count})" + ("" if value.dtype is torch.float32 else f".to({value.dtype})")
        data = [_shaped(ramp, shape), f"torch.ones({shape}, {dtype})"]
    else:
        data = [f"torch.zeros({shape}, {dtype})", _shaped(f"torch.arange({count}, {dtype})", shape)]
    return [_finished(text, value) for text in data]


def literal(value: Any) -> str:
    """Text that says each number; empty for a tensor with too many, or of a kind that no text makes."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    if not _is_plain(value) or value.numel() > LITERAL:
        return ""
    if not value.numel():
        return _finished(f"torch.empty({list(value.shape)}, dtype={value.dtype})", value)
    return _finished(f"torch.tensor({value.tolist()}, dtype={value.dtype})", value)


def _is_plain(value: torch.Tensor) -> bool:
    overlaps = any(stride == 0 and size > 1 for stride, size in zip(value.stride(), value.shape, strict=True))
    return value.layout is torch.strided and not value.is_nested and not value.is_quantized and not overlaps


def _shaped(text: str, shape: list[int]) -> str:
    return text if len(shape) == 1 else f"{text}.reshape({shape})"


def _finished(text: str, value: torch.Tensor) -> str:
    """The text with device, strides and ``requires_grad``."""
    if value.device.type != "cpu":
        text += f".to({str(value.device)!r})"
    if not value.is_contiguous():
        facts = f"{list(value.shape)}, {list(value.stride())}, dtype={value.dtype}, device={str(value.device)!r}"
        text = f"torch.empty_strided({facts}).copy_({text})"
    return text + (".requires_grad_()" if value.requires_grad else "")
