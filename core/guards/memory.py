"""Do tensors on the CPU share memory?"""

from __future__ import annotations

import torch


def nothing_shared(written: tuple[bool, ...], *tensors: torch.Tensor) -> bool:
    """Does no tensor that is written to reach into the memory of another one? Said of whole spans of memory."""
    spans = sorted((*_span(t), w) for t, w in zip(tensors, written, strict=True) if t.numel())
    end = end_written = 0  # of all spans so far, and of those written to
    for begin, beyond, is_written in spans:
        if begin < end_written or (is_written and begin < end):
            return False
        end = max(end, beyond)
        if is_written:
            end_written = max(end_written, beyond)
    return True


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    begin = tensor.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * tensor.element_size()
