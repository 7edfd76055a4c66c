"""What autograd notes of a view: how it was made, and whether it may still be used."""

from __future__ import annotations

import torch

from jitney.torch_compat.torch_private import Creation, creation_of


def made_without_grad(tensor: torch.Tensor) -> bool:
    """Is it a view that was made in ``no_grad``, of which autograd takes note even where nothing requires grad?"""
    return tensor._is_view() and creation_of(tensor) == Creation.NO_GRAD_MODE


def made_by_function(tensor: torch.Tensor) -> bool:
    """Is it a view that an ``autograd.Function`` has made, or an operator with several results?"""
    return tensor._is_view() and creation_of(tensor) in (Creation.IN_CUSTOM_FUNCTION, Creation.MULTI_OUTPUT_NODE)


def is_restricted(tensor: torch.Tensor, tracked: bool) -> bool:
    """Is it a view that autograd forbids to write to, or to use then? ``tracked``: does it see the write?"""
    base = tensor._base
    if base is None:
        return False
    return creation_of(tensor) != Creation.DEFAULT or (tracked and base.is_leaf and base.requires_grad)


def has_lost_history(tensor: torch.Tensor) -> bool:
    """Is it a view, made where autograd does not look, whose base was written to since? Eager forbids to use it."""
    try:
        tensor.grad_fn  # noqa: B018
    except RuntimeError:
        return True
    return False
