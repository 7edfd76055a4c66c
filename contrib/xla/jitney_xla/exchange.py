"""Tensors as arrays, without copying what lies in order, and back."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import torch

DTYPES: dict[torch.dtype, Any] = {
    torch.bool: jnp.bool_,
    torch.uint8: jnp.uint8,
    torch.int8: jnp.int8,
    torch.int16: jnp.int16,
    torch.int32: jnp.int32,
    torch.int64: jnp.int64,
    torch.float16: jnp.float16,
    torch.bfloat16: jnp.bfloat16,
    torch.float32: jnp.float32,
    torch.float64: jnp.float64,
}


def array_of(tensor: torch.Tensor) -> Any:
    """The tensor as a NumPy array of the same memory; JAX reads such arrays where they lie."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype is torch.bfloat16:  # NumPy has none of its own
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def tensor_of(array: Any) -> torch.Tensor:
    """The array's numbers in memory of torch's own: a program may make its results larger (``resize_``)."""
    return torch.utils.dlpack.from_dlpack(array.__dlpack__()).clone()
