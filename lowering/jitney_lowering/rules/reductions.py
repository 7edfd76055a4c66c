"""Reductions: sums, products, extremes and where they are, any and all. Half-precision sums add up in float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, axis, registering
from jitney_lowering.aten.tensor import ZERO, Shape, Tensor, count
from jitney_lowering.index import Index, fits_int32
from jitney_lowering.ir.scalar import Scalar, absolute, ne, one, two
from jitney_lowering.ir.values import Value, apply, position
from jitney_lowering.rules.promotion import opmath
from jitney_lowering.rules.views import reshaped
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
_SIDE_BY_SIDE = 16
REDUCTIONS: dict[Any, Rule] = {}


reduction = registering(REDUCTIONS)


# --- parts that rules are made of -----------------------------------------------------------------------------------


def dimensions(dims: Any, rank: int) -> list[int]:
    """The dimensions named, all if none are, in ascending order."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(rank))
    return sorted({axis(d, rank) for d in ([dims] if isinstance(dims, int) else dims) if rank})


def mapped(call: Call, x: Tensor, dtype: torch.dtype, formula: Callable[[Scalar], Scalar] | None = None) -> Tensor:
    """Each element converted to ``dtype``, then through a formula, which may give another dtype."""
    if formula is None and x.dtype is dtype:
        return x

    def element(at: Shape) -> Value:
        made = Scalar(call.builder.cast(x.load(at), dtype))
        return made.value if formula is None else formula(made).value

    result = element(tuple([ZERO] * len(x.size))).dtype
    return Tensor(x.size, result, x.device, element, wanted=_order_of(x))


def _same(x: Scalar) -> Scalar:
    return x


def _order_of(x: Tensor) -> Shape | None:
    return x.strided.stride if x.strided is not None else x.wanted


def reduced(call: Call, kind: str, source: Tensor, dims: Sequence[int], val: Any = None) -> Tensor:
    """The reduction, converted to the result's dtype, in its shape (which may keep the dimensions, as size 1)."""
    if kind in ("max", "min", "argmax", "argmin") and any(source.size[d].value == 0 for d in dims):
        raise NoRule("an extreme of no elements")  # which eager refuses
    val = call.val if val is None else val
    size = call.builder.sizes.shape(val.shape)
    stride = call.builder.sizes.shape(val.stride())
    kept = [d for d in range(len(source.size)) if d not in dims]
    keeps = len(size) == len(source.size) and bool(dims)
    wanted = tuple(stride[d] for d in kept) if keeps else stride
    if len(wanted) != len(kept):
        wanted = None  # type: ignore[assignment]
    bare = call.builder.reduce(kind, source, dims, wanted)
    result = bare if bare.dtype is val.dtype else Tensor(
        bare.size, val.dtype, bare.device, lambda at: apply("cast", bare.load(at), dtype=val.dtype), wanted=wanted
    )  # fmt: skip
    return result if len(result.size) == len(size) else reshaped(result, size)


# --- sums -----------------------------------------------------------------------------------------------------------


@reduction(aten.sum.default, aten.sum.dim_IntList)
def sum_(call: Call) -> Tensor:
    """The sum; of integers and truth values in int64."""
    return _fold(call, "sum", call.args[1] if len(call.args) > 2 else None)


@reduction(aten.prod.default, aten.prod.dim_int)
def prod(call: Call) -> Tensor:
    """The product."""
    return _fold(call, "prod", call.args[1] if len(call.args) > 2 else None)


def _fold(call: Call, kind: str, dims: Any) -> Tensor:
    x = call.args[0]
    if call.dtype is torch.bool:
        raise NoRule(f"a {kind} of truth values")
    return reduced(call, kind, mapped(call, x, opmath(call.dtype)), dimensions(dims, len(x.size)))


@reduction(aten.mean.default, aten.mean.dim)
def mean(call: Call) -> Tensor:
    """The sum through the number of elements."""
    x = call.args[0]
    dims = dimensions(call.args[1] if len(call.args) > 2 else None, len(x.size))
    total = reduced(call, "sum", mapped(call, x, opmath(call.dtype)), dims, Typed(call.val, opmath(call.dtype)))
    number = amount([x.size[d] for d in dims], opmath(call.dtype))

    def element(at: Shape) -> Value:
        return apply("cast", (Scalar(total.load(at)) / number).value, dtype=call.dtype)

    return call.result(element)


def amount(sizes: Sequence[Index], dtype: torch.dtype) -> Scalar:
    """The number of elements of a shape, as ``dtype``."""
    return Scalar(position(count(sizes))).to(dtype)


class Typed:
    """A stand-in's shape with another dtype."""

    def __init__(self, val: Any, dtype: torch.dtype) -> None:
        self.shape, self.stride, self.dtype = val.shape, val.stride, dtype


# --- extremes -------------------------------------------------------------------------------------------------------


@reduction(aten.amax.default, aten.max.default)
def amax(call: Call) -> Tensor:
    """The greatest; nan if there is one."""
    return _extreme(call, "max")


@reduction(aten.amin.default, aten.min.default)
def amin(call: Call) -> Tensor:
    """The least; nan if there is one."""
    return _extreme(call, "min")


def _extreme(call: Call, kind: str) -> Tensor:
    x = call.args[0]
    kind, x = _of_truth(kind, x)
    return reduced(call, kind, x, dimensions(call.args[1] if len(call.args) > 1 else None, len(x.size)))


def _of_truth(kind: str, x: Tensor) -> tuple[str, Tensor]:
    """The greatest of truth values is any."""
    return ({"max": "any", "min": "all"}[kind] if x.dtype is torch.bool else kind), x


@reduction(aten.max.dim)
def max_dim(call: Call) -> list[Tensor]:
    """The greatest, and the first place where it is."""
    return _extreme_and_place(call, "max")


@reduction(aten.min.dim)
def min_dim(call: Call) -> list[Tensor]:
    """The least, and the first place where it is."""
    return _extreme_and_place(call, "min")


def _extreme_and_place(call: Call, kind: str) -> list[Tensor]:
    x, dim, _ = call.args
    dims = dimensions(dim, len(x.size))
    best, source = _of_truth(kind, x)
    places = x if x.dtype is not torch.bool else mapped(call, x, torch.uint8)
    values, indices = call.val
    return [reduced(call, best, source, dims, values), _first_place(call, kind, places, dims, indices)]


@reduction(aten.argmax.default)
def argmax(call: Call) -> Tensor:
    """The first place of the greatest."""
    return _place(call, "max")


@reduction(aten.argmin.default)
def argmin(call: Call) -> Tensor:
    """The first place of the least."""
    return _place(call, "min")


def _place(call: Call, kind: str) -> Tensor:
    x, dim, _ = call.args
    call.refuse_unless(x.dtype is not torch.bool, "the place of a truth value, which eager refuses")
    return _first_place(call, kind, x, dimensions(dim, len(x.size)), call.val)


def _first_place(call: Call, kind: str, x: Tensor, dims: Sequence[int], val: Any) -> Tensor:
    """Where the extreme is. Rows that lie side by side are read together: the least number of one with the extreme."""
    order = _order_of(x)
    hint = call.builder.sizes.hint
    if (
        call.builder.is_unrolled(x.size, dims)
        or len(dims) != 1
        or order is None
        or not _beside(x.size, order, dims[0], hint)
    ):
        return reduced(call, f"arg{kind}", x, dims, val)
    (dim,) = dims
    if any(size.value == 0 for size in x.size):
        raise NoRule("an extreme of no elements")  # which eager refuses
    best = call.builder.reduce(kind, x, dims)
    number = torch.int32 if fits_int32(x.size[dim]) else torch.int64

    def element(at: Shape) -> Value:
        value = Scalar(x.load(at))
        top = Scalar(best.load(at[:dim] + at[dim + 1 :]))
        found = apply("eq", value.value, top.value)
        if value.is_float:  # the extreme is nan if one is
            found = apply("or", found, apply("ne", value.value, value.value))
        return apply("where", found, position(at[dim], number), position(x.size[dim], number))

    return reduced(call, "min", Tensor(x.size, number, x.device, element, wanted=order), dims, val)


def _beside(size: Shape, stride: Shape, dim: int, hint: Callable[[Index], int]) -> bool:
    """Do many elements of other rows lie between two of one along this dimension?"""
    nearest = min((d for d in range(len(size)) if hint(size[d]) != 1), key=lambda d: hint(stride[d]), default=dim)
    return nearest != dim and hint(size[nearest]) >= _SIDE_BY_SIDE


@reduction(aten.aminmax.default)
def aminmax(call: Call) -> list[Tensor]:
    """The least and the greatest."""
    x, dim, _ = call.args
    dims = dimensions(dim, len(x.size))
    made = []
    for kind, val in zip(("min", "max"), call.val, strict=True):
        kind, source = _of_truth(kind, x)
        made.append(reduced(call, kind, source, dims, val))
    return made


# --- truth ----------------------------------------------------------------------------------------------------------


@reduction(aten.any.default, aten.any.dim, aten.any.dims)
def any_(call: Call) -> Tensor:
    """Is one not zero?"""
    return _truth(call, "any")


@reduction(aten.all.default, aten.all.dim, aten.all.dims)
def all_(call: Call) -> Tensor:
    """Is none zero?"""
    return _truth(call, "all")


def _truth(call: Call, kind: str) -> Tensor:
    x, *more = call.args
    dims = more[0] if more else None
    listed = isinstance(dims, (list, tuple))
    wanted = [] if listed and not dims else dimensions(dims, len(x.size))
    return reduced(call, kind, mapped(call, x, x.dtype, Scalar.to_bool), wanted)


@reduction(aten.count_nonzero.dim_IntList, aten.count_nonzero.default)
def count_nonzero(call: Call) -> Tensor:
    """How many are not zero."""
    x, dims = call.args
    truth = mapped(call, x, x.dtype, lambda v: v.to_bool().to(torch.int64))
    return reduced(call, "sum", truth, dimensions(dims, len(x.size)))


# --- norms ----------------------------------------------------------------------------------------------------------


Formula = Callable[[Scalar], Scalar]
NORMS: dict[float, tuple[str, Formula, Formula]] = {  # order -> reduction, of what, and what is made of it
    0.0: ("sum", lambda x: ne(x, 0).to(x.dtype), _same),
    1.0: ("sum", absolute, _same),
    2.0: ("sum", lambda x: x * x, lambda x: one("sqrt", x)),
    math.inf: ("max", absolute, _same),
    -math.inf: ("min", absolute, _same),
}


def _powers(order: float) -> tuple[Formula, Formula]:
    return lambda x: two("pow", absolute(x), order), lambda x: two("pow", x, 1.0 / order)


@reduction(aten.linalg_vector_norm.default)
def vector_norm(call: Call) -> Tensor:
    """The norm of a given order."""
    x, order, dims, *_ = call.args
    call.refuse_unless(isinstance(order, (int, float)), "a norm of a symbolic order")
    compute = opmath(call.dtype)
    dims = dimensions(dims, len(x.size))
    kind, inner, outer = NORMS.get(float(order)) or ("sum", *_powers(float(order)))
    total = reduced(call, kind, mapped(call, x, compute, inner), dims, Typed(call.val, compute))

    def element(at: Shape) -> Value:
        return outer(Scalar(total.load(at))).to(call.dtype).value

    return call.result(element)
