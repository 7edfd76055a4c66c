"""Tensors made of numbers, and of positions: filled ones, ranges, triangles."""

from __future__ import annotations

from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, registering
from jitney_lowering.aten.tensor import Shape, Tensor, dense
from jitney_lowering.index import Index
from jitney_lowering.ir.operations import FLOAT8
from jitney_lowering.ir.scalar import Scalar, where, wrapped
from jitney_lowering.ir.values import Value, apply, constant, position
from jitney_lowering.rules.promotion import opmath
from jitney_lowering.signals import NoRule

aten = torch.ops.aten
CREATION: dict[Any, Rule] = {}


creation = registering(CREATION)


def number(value: Any, dtype: torch.dtype) -> Scalar:
    """A number or symbolic size as an element."""
    if isinstance(value, Index):
        return Scalar(position(value)).to(dtype)
    if not isinstance(value, (bool, int, float)) and not (isinstance(value, complex) and dtype.is_complex):
        raise NoRule(f"a {type(value).__name__} as an element")
    if dtype in FLOAT8 and not abs(value) <= torch.finfo(dtype).max:
        raise NoRule(f"{value} in {dtype}")  # some are errors
    return Scalar(constant(wrapped(value, dtype), dtype))


def _filled(call: Call, value: Any) -> Tensor:
    element = number(value, call.dtype).value
    return call.result(lambda at: element)


@creation(aten.full.default, aten.full_like.default)
def full(call: Call) -> Tensor:
    """One number everywhere."""
    return _filled(call, call.args[1])


@creation(aten.new_full.default)
def new_full(call: Call) -> Tensor:
    """One number everywhere."""
    return _filled(call, call.args[2])


@creation(aten.scalar_tensor.default)
def scalar_tensor(call: Call) -> Tensor:
    """A single number."""
    return _filled(call, call.args[0])


@creation(aten.fill.Scalar)
def fill(call: Call) -> Tensor:
    """One number everywhere."""
    return _filled(call, call.args[1])


@creation(aten.fill.Tensor, aten.copy.default)
def copy(call: Call) -> Tensor:
    """Another tensor's elements, broadcast and converted; that tensor itself where nobody outside has both."""
    from jitney_lowering.rules.views import broadcast

    given = call.args[1]
    inside = call.node not in call.builder.shown
    if inside and given.dtype is call.dtype and call.builder.is_own(given, call.size, call.stride):
        return given
    source = broadcast(call, given, call.size)
    return call.result(lambda at: apply("cast", source.load(at), dtype=call.dtype))


@creation(aten.empty.memory_format, aten.empty_like.default, aten.new_empty.default, aten.empty_strided.default,
          aten.new_empty_strided.default, aten.empty_permuted.default)  # fmt: skip
def empty(call: Call) -> Tensor:
    """Anything: zeros cost nothing, since whoever reads them reads a constant."""
    filled = dense(call.size, call.stride, call.builder.sizes.hint) is not None
    call.refuse_unless(filled, "memory with holes or overlaps")
    return _filled(call, 0)


@creation(aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default, aten.zero.default,
          aten._efficientzerotensor.default)  # fmt: skip
def zeros(call: Call) -> Tensor:
    """0 everywhere."""
    return _filled(call, 0)


@creation(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def ones(call: Call) -> Tensor:
    """1 everywhere."""
    return _filled(call, 1)


@creation(aten.arange.default, aten.arange.start, aten.arange.start_step)
def arange(call: Call) -> Tensor:
    """Equal steps."""
    names = [a.name for a in call.node.target._schema.arguments]  # type: ignore[union-attr]
    given = dict(zip(names, call.args, strict=True))
    start, step = given.get("start", 0), given.get("step", 1)
    dtype = call.dtype
    if dtype.is_floating_point:
        # Eager adds up in double precision for float64 and float32 alike (its accumulate type on the CPU).
        if isinstance(start, Index) or isinstance(step, Index):
            raise NoRule("a range of floats with symbolic ends")
        return _spaced(call, float(start), float(step))
    return call.result(lambda at: position(at[0] * _whole(step) + _whole(start), dtype))


# Whole numbers from which on, and in steps of which, 2**32 steps are exact in double precision.
FARTHEST, LONGEST = 2.0**52, 2.0**20


def _whole(value: Any) -> Any:
    return value if isinstance(value, Index) else int(value)


def _spaced(call: Call, start: float, step: float) -> Tensor:
    if start.is_integer() and step.is_integer() and abs(start) <= FARTHEST and abs(step) <= LONGEST:
        # Double precision would be exact, and integers are cheaper.
        first, each = int(start), int(step)
        return call.result(lambda at: Scalar(position(at[0] * each + first)).to(call.dtype).value)

    def element(at: Shape) -> Value:
        place = Scalar(position(at[0])).to(torch.float64)
        return (start + place * step).to(call.dtype).value

    return call.result(element)


@creation(aten.linspace.default)
def linspace(call: Call) -> Tensor:
    """Equal steps between two ends; the upper half counts from its end, as eager does."""
    start, end, steps = call.args[:3]
    if not isinstance(steps, int) or not call.dtype.is_floating_point or steps < 2:
        raise NoRule("a linspace of integers or of a symbolic number of steps")
    if not all(type(n) in (int, float) for n in (start, end)):
        raise NoRule("a linspace between numbers that change")
    compute = opmath(call.dtype)
    step = (end - start) / (steps - 1)

    def element(at: Shape) -> Value:
        up = Scalar(position(at[0])).to(compute) * step + start
        down = end - Scalar(position(steps - 1 - at[0])).to(compute) * step
        first = Scalar(position(at[0])) < steps // 2
        return where(first, up, down).to(call.dtype).value

    return call.result(element)


@creation(aten.eye.default, aten.eye.m)
def eye(call: Call) -> Tensor:
    """1 where both indices are equal."""

    def element(at: Shape) -> Value:
        same = apply("eq", position(at[0]), position(at[1]))
        return Scalar(same).to(call.dtype).value

    return call.result(element)


@creation(aten.tril.default)
def tril(call: Call) -> Tensor:
    """The lower triangle; 0 elsewhere."""
    return _triangle(call, "le")


@creation(aten.triu.default)
def triu(call: Call) -> Tensor:
    """The upper triangle; 0 elsewhere."""
    return _triangle(call, "ge")


def _triangle(call: Call, keeps: str) -> Tensor:
    x, diagonal = call.args
    if not isinstance(diagonal, int):
        raise NoRule("a triangle from a symbolic diagonal")

    def element(at: Shape) -> Value:
        inside = apply(keeps, position(at[-1]), position(at[-2] + diagonal))
        return apply("where", inside, x.load(at), constant(0, x.dtype))

    return call.result(element)
