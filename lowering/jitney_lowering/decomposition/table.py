"""The table of decompositions, and what they share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from jitney.torch_compat import torch_private
from jitney_lowering.ir.operations import HALVES

aten = torch.ops.aten
TABLE: dict[Any, Callable[..., Any]] = {}

# Taken apart as torch does it: less common operators whose parts have rules.
FROM_TORCH = """
_chunk_cat.default _safe_softmax.default _weight_norm_interface.default affine_grid_generator.default
binary_cross_entropy_with_logits.default celu.default
cudnn_batch_norm_backward.default diag_embed.default
isin.Scalar_Tensor isin.Tensor_Scalar mvlgamma.default nansum.default
pixel_shuffle.default pixel_unshuffle.default renorm.default rot90.default soft_margin_loss.default
soft_margin_loss_backward.default std_mean.correction trace.default
""".split()
OF_ONE_DTYPE = (aten.soft_margin_loss.default, aten.soft_margin_loss_backward.default)


def from_torch() -> dict[Any, Callable[..., Any]]:
    """Rows of torch's own table."""
    known = {str(op).removeprefix("aten."): (op, rule) for op, rule in torch_private.core_decompositions().items()}
    found = dict(known[name] for name in FROM_TORCH if name in known)
    return found | {op: of_one_dtype(found[op]) for op in OF_ONE_DTYPE if op in found}


def of_one_dtype(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule, where all tensors are of one dtype: eager has the input's, the parts have the widest."""

    @functools.wraps(rule)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        dtypes = {a.dtype for a in args if isinstance(a, Tensor)}
        return rule(*args, **kwargs) if len(dtypes) < 2 else NotImplemented

    return decomposed


def of_floats(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule, where the first tensor is of floats: eager's kernels refuse others, whose parts know integers, too."""

    @functools.wraps(rule)
    def decomposed(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return rule(x, *args, **kwargs) if x.dtype.is_floating_point else NotImplemented

    return decomposed


def decomposes(*operators: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function for these overloads."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for op in operators:
            TABLE[op] = rule
        return rule

    return register


def laid_out_as(operator: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule, with results whose strides are the operator's, of which programs see those of size one as well.

    How the parts lay out such dimensions depends on which they are: ``x < 0`` does it otherwise than ``-x``.
    """

    @functools.wraps(rule)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        made = rule(*args, **kwargs)
        results = made if isinstance(made, tuple) else (made,)
        if not any(isinstance(r, Tensor) and any(type(n) is int and n == 1 for n in r.shape) for r in results):
            return made
        with torch_private.without_modes():
            like = operator(*args, **kwargs)
        wanted = like if isinstance(like, (tuple, list)) else (like,)
        results = tuple(_laid_out(r, w) for r, w in zip(results, wanted, strict=True))
        return results if isinstance(made, tuple) else results[0]

    return decomposed


def _laid_out(x: Any, like: Any) -> Any:
    """A copy with these strides, if they leave no gaps: of what nobody has written yet, it costs nothing."""
    if not isinstance(x, Tensor) or not isinstance(like, Tensor) or x.dim() != like.dim():
        return x
    numbers = (*like.stride(), *like.shape, *x.stride(), *x.shape)
    if any(type(n) is not int for n in numbers) or x.shape != like.shape or x.stride() == like.stride():
        return x
    order = sorted(range(x.dim()), key=lambda d: (like.stride(d), like.shape[d]), reverse=True)
    made = x.permute(order).clone(memory_format=torch.contiguous_format)
    made = made.permute([order.index(d) for d in range(x.dim())])
    return made if made.stride() == like.stride() else x


def wide(x: Tensor) -> Tensor:
    """Halves as float32. What is expanded stays so: results are laid out by the strides of operands."""
    if x.dtype not in HALVES:
        return x
    narrow = x
    for dim, stride in enumerate(x.stride()):
        if isinstance(stride, int) and stride == 0:
            narrow = narrow.narrow(dim, 0, 1) if not is_empty(x) else narrow
    made = narrow.to(torch.float32)
    return made if narrow is x else made.expand(x.shape)


def wide_or_none(x: Tensor | None) -> Tensor | None:
    """Halves as float32."""
    return None if x is None else wide(x)


def count(x: Tensor, dims: Sequence[int]) -> Any:
    """How many elements these dimensions have together."""
    return math.prod([x.shape[d] for d in dims])


def is_empty(x: Tensor) -> bool:
    """Is a size known to be 0? Symbolic sizes never are."""
    return any(isinstance(s, int) and s == 0 for s in x.shape)


def reduced(x: Tensor, reduction: int) -> Tensor:
    """A loss for each element, their mean, or their sum."""
    return x.mean() if reduction == 1 else x.sum() if reduction == 2 else x
