"""Operators on complex numbers, whose elements are pairs of real ones.

Those that only move elements, add them up or multiply them have the rules of real numbers (``LIKE_REAL``). Formulas
are those of eager's ``c10::complex`` and of C's ``cexp``, for infinities and nan too. What is neither here nor there
runs as a whole.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from jitney_lowering.aten.call import Call, Rule, registering
from jitney_lowering.aten.complex_memory import ComplexView, RealView
from jitney_lowering.aten.tensor import Shape, Tensor
from jitney_lowering.ir.scalar import Number, Scalar, absolute, eq, exp, is_nan, one, two, where
from jitney_lowering.ir.values import Pair, Value, constant, pair
from jitney_lowering.rules.creation import CREATION
from jitney_lowering.rules.joins import JOINS
from jitney_lowering.rules.pointwise import Pointwise
from jitney_lowering.rules.reductions import REDUCTIONS, amount, dimensions, mapped, reduced
from jitney_lowering.rules.slices import SLICES
from jitney_lowering.rules.views import COPIES, VIEWS, copies, view
from jitney_lowering.signals import NoRule

aten, prims = torch.ops.aten, torch.ops.prims
COMPLEX_RULES: dict[Any, Rule] = {}
complex_rule = registering(COMPLEX_RULES)


def complex_formula(*targets: Any, **settings: Any) -> Any:
    """Register a formula for these overloads; ``settings`` as in ``Pointwise``."""

    def register(formula: Any) -> Any:
        COMPLEX_RULES.update(dict.fromkeys(targets, Pointwise(formula, **settings)))
        return formula

    return register


def parts(z: Scalar) -> tuple[Scalar, Scalar]:
    """The real and the imaginary part."""
    if not isinstance(z.value, Pair):
        raise NoRule(f"{z.dtype} beside complex numbers")
    return Scalar(z.value.re), Scalar(z.value.im)


def number(re: Scalar, im: Scalar) -> Scalar:
    """A complex number of its parts."""
    return Scalar(pair(re.value, im.value))


# --- parts and complex numbers --------------------------------------------------------------------------------------


@view(aten.view_as_real.default)
def view_as_real(call: Call) -> Tensor:
    """Both parts, in a last dimension of two."""
    return RealView(call.builder, call.args[0])


@view(aten.view_as_complex.default)
def view_as_complex(call: Call) -> Tensor:
    """A last dimension of two as both parts."""
    return ComplexView(call.args[0], call.stride)


@complex_rule(aten._conj.default, aten.conj_physical.default, aten._conj_physical.default)
def conj(call: Call) -> Tensor:
    """The conjugate; a result of the graph that eager conjugates lazily is left to it."""
    lazy = call.node.target is aten._conj.default
    call.refuse_unless(not (lazy and call.node in call.builder.shown), "conjugated lazily")
    x = call.args[0]
    if not isinstance(x, Tensor):  # a number that autograd has made a tensor of
        conjugate = constant(complex(x).conjugate(), call.dtype)
        return call.result(lambda at: conjugate)

    def element(at: Shape) -> Value:
        re, im = parts(Scalar(x.load(at)))
        return number(re, -im).value

    return call.result(element)


@copies(aten._neg_view.default)
def neg_view(call: Call) -> Tensor:
    """The negative, such as the imaginary part of a conjugate is; a result of the graph is left to eager."""
    call.refuse_unless(call.node not in call.builder.shown, "negated lazily")
    x = call.args[0]
    return call.result(lambda at: (-Scalar(x.load(at))).value)


@complex_formula(aten.complex.default, mode="own")
def complex_(re: Scalar, im: Scalar) -> Scalar:
    """Of both parts."""
    return number(re, im)


@complex_formula(aten.polar.default, mode="own")
def polar(length: Scalar, angle: Scalar) -> Scalar:
    """Of length and angle."""
    return number(length * one("cos", angle), length * one("sin", angle))


@complex_formula(aten.abs.default, mode="own")
def abs_(z: Scalar) -> Scalar:
    """The length, without overflow on the way."""
    return two("hypot", *parts(z))


@complex_formula(aten.angle.default, mode="own")
def angle(z: Scalar) -> Scalar:
    """The angle, from -pi to pi."""
    re, im = parts(z)
    return two("atan2", im, re)


@complex_formula(aten.sgn.default)
def sgn(z: Scalar) -> Scalar:
    """Of the same angle and of length 1; 0 for 0."""
    re, im = parts(z)
    length = abs_(z)
    zero = eq(length, 0)
    return number(where(zero, 0, re / length), where(zero, 0, im / length))


@complex_formula(aten.isnan.default, mode="own")
def isnan(z: Scalar) -> Scalar:
    """Is one of the parts not a number?"""
    re, im = parts(z)
    return is_nan(re) | is_nan(im)


@complex_formula(aten.isinf.default, mode="own")
def isinf(z: Scalar) -> Scalar:
    """Is one of the parts infinite?"""
    re, im = parts(z)
    return eq(absolute(re), math.inf) | eq(absolute(im), math.inf)


# --- quotients, powers ----------------------------------------------------------------------------------------------


def quotient(x: Scalar, y: Scalar) -> Scalar:
    """``x / y`` by Smith's method: what is divided by is scaled by its greater part."""
    (a, b), (c, d) = parts(x), parts(y)
    zero = eq(c, 0) & eq(d, 0)
    if d.number == 0:  # whatever c is, its part is the greater one
        ratio = d / c
        scale = 1 / (c + d * ratio)
        re, im = (a + b * ratio) * scale, (b - a * ratio) * scale
    else:
        first = absolute(c) >= absolute(d)
        great, small = where(first, c, d), where(first, d, c)
        ratio = small / great
        scale = 1 / (great + small * ratio)
        re = where(first, a + b * ratio, a * ratio + b) * scale
        im = where(first, b - a * ratio, b * ratio - a) * scale
    return number(where(zero, a / absolute(c), re), where(zero, b / absolute(c), im))


def div_on_cuda(x: Scalar, y: Scalar | complex) -> Scalar:
    """``x / y`` as CUDA's kernel has it, which multiplies where it divides by a number."""
    return quotient(x, y) if isinstance(y, Scalar) else x * reciprocal(x.like(y))


@complex_formula(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor, cuda_formula=div_on_cuda)
def div(x: Scalar, y: Scalar | complex) -> Scalar:
    """``x / y``."""
    return quotient(x, y if isinstance(y, Scalar) else x.like(y))


@complex_formula(aten.reciprocal.default)
def reciprocal(z: Scalar) -> Scalar:
    """``1 / z``."""
    return quotient(z.like(1), z)


@complex_formula(aten.addcdiv.default)
def addcdiv(x: Scalar, a: Scalar, b: Scalar, value: Number) -> Scalar:
    """``x + value * a / b``."""
    return x + quotient(a if value == 1 else x.like(value) * a, b)


POWERS: dict[complex, Any] = {
    0: lambda z: z.like(1),
    1: lambda z: z,
    2: lambda z: z * z,
    3: lambda z: z * z * z,
    -1: reciprocal,
}


@complex_formula(aten.pow.Tensor_Scalar)
def power(z: Scalar, exponent: Number) -> Scalar:
    """``z ** exponent``, of small whole exponents."""
    if not isinstance(exponent, (int, float)) or exponent not in POWERS:
        raise NoRule(f"a complex number to the power {exponent}")
    return POWERS[exponent](z)


@complex_formula(aten.exp.default)
def exponential(z: Scalar) -> Scalar:
    """e to the power z, as ``cexp`` of C has it."""
    re, im = parts(z)
    # Beyond this e**re is infinite, though its products with a sine need not be.
    limit = math.floor(math.log(torch.finfo(re.dtype).max))
    large = re > limit
    length, rest = exp(where(large, re - limit, re)), where(large, math.exp(limit), re.like(1))
    straight = eq(im, 0)
    endless = is_nan(im - im)  # infinite or nan
    real = where(straight, 1, one("cos", im)) * length * rest
    imaginary = where(straight, im, one("sin", im) * length * rest)
    real = where(endless, where(eq(re, math.inf), math.inf, where(eq(re, -math.inf), 0, real)), real)
    return number(real, where(endless & eq(re, -math.inf), 0, imaginary))


# --- sums and lengths -----------------------------------------------------------------------------------------------


@complex_rule(aten.mean.default, aten.mean.dim)
def mean(call: Call) -> Tensor:
    """The sum through the number of elements."""
    x = call.args[0]
    dims = dimensions(call.args[1] if len(call.args) > 2 else None, len(x.size))
    total = reduced(call, "sum", mapped(call, x, call.dtype), dims)
    count = amount([x.size[d] for d in dims], call.dtype.to_real())

    def element(at: Shape) -> Value:
        re, im = parts(Scalar(total.load(at)))
        return number(re / count, im / count).value

    return call.result(element)


@complex_rule(aten.linalg_vector_norm.default)
def vector_norm(call: Call) -> Tensor:
    """The norm of the lengths."""
    x, *rest = call.args
    lengths = Tensor(
        x.size, x.dtype.to_real(), x.device, lambda at: abs_(Scalar(x.load(at))).value, wanted=x.wanted
    )  # fmt: skip
    return REDUCTIONS[aten.linalg_vector_norm.default](Call(call.builder, call.node, [lengths, *rest], call.val))


LIKE_REAL: frozenset[Any] = frozenset({
    *VIEWS, *COPIES, *JOINS, *SLICES, *CREATION,
    aten.gather.default, aten.index_select.default, aten.index.Tensor,
    aten.sum.default, aten.sum.dim_IntList,
    aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Tensor, aten.rsub.Scalar,
    aten.mul.Tensor, aten.mul.Scalar, aten.neg.default, aten.square.default, aten.addcmul.default,
    aten.eq.Tensor, aten.eq.Scalar, aten.ne.Tensor, aten.ne.Scalar,
    aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther,
    aten.masked_fill.Scalar, aten.masked_fill.Tensor,
    aten.clone.default, aten.lift_fresh_copy.default, aten._to_copy.default, prims.convert_element_type.default,
}) - {
    aten.view.dtype, aten.arange.default, aten.arange.start, aten.arange.start_step, aten.linspace.default,
}  # fmt: skip
"""Operators whose rules take pairs as they take numbers."""
