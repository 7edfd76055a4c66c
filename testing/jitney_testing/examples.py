"""Small tensors for programs: readable calls, numbers that every floating point dtype has exactly."""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator, Sequence

import torch

_device: contextvars.ContextVar[str] = contextvars.ContextVar("device of examples", default="cpu")
SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0)


@contextlib.contextmanager
def examples_on(device: str) -> Iterator[None]:
    """Where ``example`` makes its tensors, while the block runs."""
    token = _device.set(device)
    try:
        yield
    finally:
        _device.reset(token)


def device_of_examples() -> str:
    """Where ``example`` makes its tensors."""
    return _device.get()


def example(
    shape: Sequence[int],
    dtype: str = "float32",
    *,
    seed: int = 0,
    layout: str = "contiguous",
    grad: bool = False,
    special: bool = False,
) -> torch.Tensor:
    """A tensor whose numbers follow from ``seed``: multiples of 1/8 around zero, small integers, or both booleans.

    Args:
        shape: its sizes.
        dtype: a name in ``torch``.
        seed: other numbers for another one.
        layout: how it lies in memory, a key of ``LAYOUTS``.
        grad: make it a leaf that requires grad.
        special: begin with NaN, both infinities and both zeros; floating point only.
    """
    kind = getattr(torch, dtype)
    count = math.prod(shape)
    steps = (torch.arange(count, device=_device.get()) * 37 + seed * 11 + 5) % 64
    if kind is torch.bool:
        made = (steps % 3 > 0).reshape(tuple(shape))
    elif kind.is_floating_point or kind.is_complex:
        made = ((steps - 32) / 8).to(kind).reshape(tuple(shape))
        if special:
            flat = made.view(-1)
            for at, number in enumerate(SPECIAL[:count]):
                flat[at] = number
    else:
        made = (steps % 9 - (4 if kind.is_signed else 0)).to(kind).reshape(tuple(shape))
    return LAYOUTS[layout](made).detach().requires_grad_(grad)


def _transposed(x: torch.Tensor) -> torch.Tensor:
    back = tuple(reversed(range(x.dim())))
    return x.permute(back).contiguous().permute(back)


def _gaps(x: torch.Tensor) -> torch.Tensor:
    if not x.dim():
        return x
    room = x.new_zeros((*x.shape[:-1], x.shape[-1] * 2))
    room[..., ::2] = x
    return room[..., ::2]


def _offset(x: torch.Tensor) -> torch.Tensor:
    room = x.new_zeros(x.numel() + 3)
    room[3:] = x.reshape(-1)
    return room[3:].view(x.shape)


def _expanded(x: torch.Tensor) -> torch.Tensor:
    return x[:1].expand(x.shape) if x.dim() else x


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": _transposed,  # the strides in the other order
    "gaps": _gaps,  # every other element of a row
    "offset": _offset,  # begins behind the begin of its memory
    "expanded": _expanded,  # stride 0: all rows are one
    "channels_last": _channels_last,
}
