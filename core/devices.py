"""What backends need to know of accelerators, in names that stay."""

from __future__ import annotations

from collections.abc import Callable

import torch

from jitney import _torch

# The current stream of a CUDA device (its index) as CUDA's own handle.
raw_stream: Callable[[int], int] = _torch.current_raw_stream

# ``(size, stride, dtype)`` on the current CUDA device, without the parsing of arguments; None where torch lacks it.
fresh_cuda: Callable[..., torch.Tensor] | None = _torch.empty_strided_cuda
