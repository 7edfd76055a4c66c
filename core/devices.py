"""What backends need to know of accelerators, in names that stay."""

from __future__ import annotations

from collections.abc import Callable

from jitney import _torch

# The current stream of a CUDA device (its index) as CUDA's own handle.
raw_stream: Callable[[int], int] = _torch.current_raw_stream
