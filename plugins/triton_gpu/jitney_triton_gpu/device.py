"""Where kernels run: on CUDA devices, or, with TRITON_INTERPRET=1, on the CPU in Triton's interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney.backends.devices import fresh_cuda

# Triton reads it when a function is defined, so it holds for the whole process.
INTERPRETED = os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")

DEVICE_TYPES: tuple[str, ...] = ("cpu",) if INTERPRETED else ("cuda",)


def multiplies_in_tf32() -> bool:
    """May products of float32 matrices be rounded to TF32?"""
    return _in_tf32(lambda: torch.backends.cuda.matmul.allow_tf32, torch.backends.cuda.matmul)


def convolves_in_tf32() -> bool:
    """May convolutions of float32 be?"""
    return _in_tf32(lambda: torch.backends.cudnn.allow_tf32, torch.backends.cudnn.conv)  # type: ignore[attr-defined]


def _in_tf32(older: Callable[[], bool], newer: Any) -> bool:
    try:
        return older()
    except RuntimeError:  # the program has set it by ``fp32_precision``, which the older flag does not answer for
        return bool(newer.fp32_precision == "tf32")


class Memory:
    """Where memory comes from: torch's allocator."""

    empty = staticmethod(torch.empty)
    empty_strided = staticmethod(torch.empty_strided)
    if not INTERPRETED and fresh_cuda is not None:
        fresh = staticmethod(fresh_cuda)


def packed(numbers: Sequence[float], device: torch.device) -> torch.Tensor:
    """Floats as a tensor of a device, for which the host does not wait."""
    if device.type != "cuda":
        return torch.tensor(numbers, dtype=torch.float64, device=device)
    return torch.tensor(numbers, dtype=torch.float64, pin_memory=True).to(device, non_blocking=True)


def on_device(run: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """The function with ``device`` as the current one while it runs."""
    if device.type != "cuda" or torch.cuda.device_count() == 1:
        return run

    def guarded(*inputs: Any) -> Any:
        if torch.cuda.current_device() == device.index:
            return run(*inputs)
        with torch.cuda.device(device):
            return run(*inputs)

    def guarded_boxed(inputs: list[Any]) -> Any:
        with torch.cuda.device(device):
            return run.boxed(inputs)  # type: ignore[attr-defined]

    guarded.boxed = guarded_boxed  # type: ignore[attr-defined] # see Backend
    guarded.filled = run.filled  # type: ignore[attr-defined] # see CompileRequest.updates
    return guarded


def too_large() -> None:
    """Raise: the graph was compiled for any size, up to what 32 bits can count."""
    raise OverflowError(
        "more than 2**31 elements in a graph compiled for sizes that change; dynamic=False compiles for one"
    )
