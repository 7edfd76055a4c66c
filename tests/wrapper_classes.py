"""Tensor subclasses that wrap tensors, as users write them, and pictures of them for comparison."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing


class Pair(torch.Tensor):
    """Two tensors of one shape; every operator is called on each."""

    a: torch.Tensor
    b: torch.Tensor

    @staticmethod
    def __new__(cls, a: torch.Tensor, b: torch.Tensor) -> Pair:
        return torch.Tensor._make_wrapper_subclass(
            cls, a.size(), strides=a.stride(), dtype=a.dtype, device=a.device, requires_grad=False
        )

    def __init__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.a = a
        self.b = b

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Pair({self.a!r}, {self.b!r})"

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Pair:
        return Pair(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        first = func(*pytree.tree_map_only(Pair, lambda x: x.a, args), **pytree.tree_map_only(Pair, _a, kwargs))
        second = func(*pytree.tree_map_only(Pair, lambda x: x.b, args), **pytree.tree_map_only(Pair, _b, kwargs))
        flat, spec = pytree.tree_flatten(first)
        both = zip(flat, pytree.tree_leaves(second), strict=True)
        made = pytree.tree_unflatten([Pair(x, y) if isinstance(x, torch.Tensor) else x for x, y in both], spec)
        return return_and_correct_aliasing(func, args, kwargs, made)


def _a(pair: Pair) -> torch.Tensor:
    return pair.a


def _b(pair: Pair) -> torch.Tensor:
    return pair.b


class Scaled(torch.Tensor):
    """A tensor whose products are multiplied with a number once more: the number is its context."""

    inner: torch.Tensor
    factor: Any

    @staticmethod
    def __new__(cls, inner: torch.Tensor, factor: Any) -> Scaled:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device=inner.device, requires_grad=False
        )

    def __init__(self, inner: torch.Tensor, factor: Any) -> None:
        self.inner = inner
        self.factor = factor

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Scaled({self.inner!r}, {self.factor!r})"

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["inner"], {"factor": self.factor}

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Scaled:
        return Scaled(inner["inner"], context["factor"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        factor = next(x.factor for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Scaled))
        plain = pytree.tree_map_only(Scaled, lambda x: x.inner, args)
        made = func(*plain, **pytree.tree_map_only(Scaled, lambda x: x.inner, kwargs))
        if func is torch.ops.aten.mul.Tensor:
            made = made * float(factor)
        return return_and_correct_aliasing(
            func, args, kwargs, pytree.tree_map_only(torch.Tensor, lambda x: Scaled(x, factor), made)
        )


def picture(value: Any) -> Any:
    """Everything that a program may see of a value: class, context, metadata, and the bits of innermost tensors."""
    if isinstance(value, torch.Tensor):
        facts = [type(value), tuple(value.shape), value.stride(), value.dtype, value.requires_grad, value.is_leaf]
        if hasattr(value, "__tensor_flatten__"):
            names, context = value.__tensor_flatten__()
            return (*facts, repr(context), *(picture(getattr(value, n)) for n in names))
        return (*facts[:5], value.tolist())
    if isinstance(value, (tuple, list)):
        return type(value), [picture(v) for v in value]
    if isinstance(value, dict):
        return [(k, picture(v)) for k, v in value.items()]
    return value
