"""Tensors with the layout that somebody counts on."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def restride(tensor: torch.Tensor, stride: Sequence[int], dtype: torch.dtype, conjugated: bool = False) -> torch.Tensor:
    """The tensor with these strides and this dtype: the same memory, where only dimensions of one element differ.

    ``conjugated``: is it a conjugate whose memory holds the numbers before?
    """
    if conjugated:
        return restride(tensor.conj(), stride, dtype).conj()
    same = all(n < 2 or a == b for n, a, b in zip(tensor.shape, tensor.stride(), stride, strict=True))
    if same and tensor.dtype is dtype and not tensor.is_conj():
        return tensor.as_strided(tensor.shape, stride).detach()  # a result, as operators give it, is no view
    made = torch.empty_strided(tensor.shape, stride, dtype=dtype, device=tensor.device)
    return made.copy_(tensor)


def numbers_in(tensor: torch.Tensor) -> torch.Tensor:
    """The real numbers in a complex tensor's memory, which may stand for the conjugates."""
    return torch.view_as_real(tensor.conj() if tensor.is_conj() else tensor)


def conjugated(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in other memory: lazily conjugated if ``tensor`` is not, and the other way round."""
    return tensor.resolve_conj() if tensor.is_conj() else torch.conj_physical(tensor).conj()
