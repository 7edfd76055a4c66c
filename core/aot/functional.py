"""torch's functionalization, as far as it is used here: wrap stand-ins, run, ask what was written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from jitney import _torch


@contextlib.contextmanager
def functionalizing() -> Iterator[None]:
    """In-place operators and views on wrapped tensors become functional operators; views stay view operators."""
    _torch.functionalization.enable(reapply_views=True)
    try:
        with torch.autograd.set_multithreading_enabled(False):  # modes are of this thread
            yield
    finally:
        _torch.functionalization.disable()


def empty_like(fake_mode: Any, inner: Any) -> Any:
    """A new stand-in of the same metadata, seen by no mode, while functionalizing."""
    _torch.functionalization.disable()
    try:
        with _torch.without_modes(), fake_mode:
            return torch.empty_strided(inner.shape, inner.stride(), dtype=inner.dtype, device=inner.device)
    finally:
        _torch.functionalization.enable(reapply_views=True)


class _Enter(torch.autograd.Function):
    """An inner node of the user's autograd graph: gradients arrive at ``leaf``, in-place operators are allowed."""

    @staticmethod
    def forward(ctx: Any, leaf: Any, box: list[Any]) -> Any:
        return _torch.functionalization.wrap(box[0])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0], None


def wrapped(inner: Any, requires_grad: bool, is_leaf: bool) -> tuple[Any, Any]:
    """(what the program gets, the leaf whose gradient is the input's) for a stand-in."""
    leaf = _torch.functionalization.wrap(inner)
    if not requires_grad:
        return leaf, None
    leaf.requires_grad_(True)
    if is_leaf:
        return leaf, leaf
    with torch.enable_grad():
        return _Enter.apply(leaf, [inner]), leaf


def is_wrapped(value: Any) -> bool:
    """Is it a functional tensor?"""
    return isinstance(value, torch.Tensor) and _torch.functionalization.is_wrapped(value)


def unwrapped(value: Any) -> Any:
    """The stand-in that holds a functional tensor's current value."""
    if not is_wrapped(value):
        return value
    _torch.functionalization.sync(value)
    return _torch.functionalization.unwrap(value)


def storage_of(value: Any) -> int:
    """Equal for functional tensors that are views of one another."""
    return int(value.untyped_storage()._cdata)


def data_written(value: Any) -> bool:
    """Has its data been written to?"""
    return bool(_torch.functionalization.has_data_mutation(value))


def metadata_written(value: Any) -> bool:
    """Has its shape been changed in place?"""
    return bool(_torch.functionalization.has_metadata_mutation(value))


def hidden_from_autograd(value: Any) -> bool:
    """Was everything written where autograd does not look?"""
    f = _torch.functionalization
    return bool(f.all_under_no_grad(value) or f.all_hidden_from_autograd(value))


def memory_replaced(value: Any) -> bool:
    """Has ``set_`` or a resize replaced its memory?"""
    return bool(_torch.functionalization.storage_changed(value))
