"""Values in the notation of formulas: ``x / (1 + exp(-x))``. What the rules of pointwise operators are written in."""

from __future__ import annotations

import torch

from jitney_lowering.ir.operations import HALVES
from jitney_lowering.ir.values import Apply, Constant, Value, apply, constant
from jitney_lowering.signals import NoRule

Number = bool | int | float


class Scalar:
    """A value with Python's operators. A number beside it is taken as its dtype; two dtypes never mix by themselves."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    @property
    def dtype(self) -> torch.dtype:
        """Of the value."""
        return self.value.dtype

    @property
    def is_float(self) -> bool:
        """Is it a floating point number?"""
        return self.value.dtype.is_floating_point

    @property
    def is_widened(self) -> bool:
        """Is it a half, converted for the computation?"""
        value = self.value
        return isinstance(value, Apply) and value.op == "cast" and value.args[0].dtype in HALVES

    @property
    def number(self) -> Number | None:
        """What it is, if that is known now."""
        return self.value.value if isinstance(self.value, Constant) else None

    def like(self, number: Number | complex) -> Scalar:
        """A constant of the same dtype; ints wrap around, as they do in eager."""
        return Scalar(constant(wrapped(number, self.dtype), self.dtype))

    def to(self, dtype: torch.dtype) -> Scalar:
        """Converted."""
        return Scalar(apply("cast", self.value, dtype=dtype))

    def to_bool(self) -> Scalar:
        """Is it not zero?"""
        return self if self.dtype is torch.bool else ne(self, 0)

    def __add__(self, other: Scalar | Number) -> Scalar:
        return two("add", self, other)

    def __radd__(self, other: Number) -> Scalar:
        return two("add", self.like(other), self)

    def __sub__(self, other: Scalar | Number) -> Scalar:
        return two("sub", self, other)

    def __rsub__(self, other: Number) -> Scalar:
        return two("sub", self.like(other), self)

    def __mul__(self, other: Scalar | Number) -> Scalar:
        return two("mul", self, other)

    def __rmul__(self, other: Number) -> Scalar:
        return two("mul", self.like(other), self)

    def __truediv__(self, other: Scalar | Number) -> Scalar:
        return two("div", self, other)

    def __rtruediv__(self, other: Number) -> Scalar:
        return two("div", self.like(other), self)

    def __neg__(self) -> Scalar:
        return one("neg", self)

    def __lt__(self, other: Scalar | Number) -> Scalar:
        return two("lt", self, other)

    def __le__(self, other: Scalar | Number) -> Scalar:
        return two("le", self, other)

    def __gt__(self, other: Scalar | Number) -> Scalar:
        return two("gt", self, other)

    def __ge__(self, other: Scalar | Number) -> Scalar:
        return two("ge", self, other)

    def __and__(self, other: Scalar | Number) -> Scalar:
        return two("and", self, other)

    def __or__(self, other: Scalar | Number) -> Scalar:
        return two("or", self, other)

    def __xor__(self, other: Scalar | Number) -> Scalar:
        return two("xor", self, other)

    def __invert__(self) -> Scalar:
        return one("not", self)

    def __bool__(self) -> bool:
        raise NoRule("a formula that depends on a number which only the running graph knows")

    __float__ = __int__ = __index__ = __bool__


def wrapped(number: Number | complex, dtype: torch.dtype) -> Number | complex:
    """A number as ``dtype`` holds it, if it is an integer type; C's wrap around."""
    if dtype is torch.bool or dtype.is_floating_point or dtype.is_complex:
        return number
    if isinstance(number, complex):
        raise NoRule(f"{number} as {dtype}")
    limits = torch.iinfo(dtype)
    return (int(number) - limits.min) % (limits.max - limits.min + 1) + limits.min


def one(op: str, x: Scalar) -> Scalar:
    """An operation with one operand."""
    return Scalar(apply(op, x.value))


def two(op: str, a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """An operation with two operands, of which one may be a number."""
    if not isinstance(a, Scalar):
        assert isinstance(b, Scalar)
        a = b.like(a)
    if not isinstance(b, Scalar):
        b = a.like(b)
    return Scalar(apply(op, a.value, b.value))


def where(condition: Scalar, a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """One of two, of which one may be a number."""
    if not isinstance(a, Scalar):
        assert isinstance(b, Scalar)
        a = b.like(a)
    if not isinstance(b, Scalar):
        b = a.like(b)
    return Scalar(apply("where", condition.value, a.value, b.value))


def fma(a: Scalar, b: Scalar | Number, c: Scalar | Number) -> Scalar:
    """``a * b + c``, rounded once where the machine can."""
    b, c = (x if isinstance(x, Scalar) else a.like(x) for x in (b, c))
    return Scalar(apply("fma", a.value, b.value, c.value))


def eq(a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """``a == b``."""
    return two("eq", a, b)


def ne(a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """``a != b``."""
    return two("ne", a, b)


def maximum(a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """The greater; nan if one is nan."""
    return two("maximum", a, b)


def minimum(a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """The lesser; nan if one is nan."""
    return two("minimum", a, b)


def is_nan(x: Scalar) -> Scalar:
    """Is it not a number? Never so for integers."""
    return one("isnan", x) if x.is_float else Scalar(constant(False, torch.bool))


def exp(x: Scalar) -> Scalar:
    """e to the power x."""
    return one("exp", x)


def expm1(x: Scalar) -> Scalar:
    """``exp(x) - 1``, exact near 0."""
    return one("expm1", x)


def log(x: Scalar) -> Scalar:
    """The natural logarithm."""
    return one("log", x)


def log1p(x: Scalar) -> Scalar:
    """``log(1 + x)``, exact near 0."""
    return one("log1p", x)


def tanh(x: Scalar) -> Scalar:
    """The hyperbolic tangent."""
    return one("tanh", x)


def absolute(x: Scalar) -> Scalar:
    """``|x|``."""
    return one("abs", x) if x.dtype not in (torch.bool, torch.uint8) else x


def sqrt(x: Scalar) -> Scalar:
    """The square root."""
    return one("sqrt", x)


def sigmoid(x: Scalar) -> Scalar:
    """``1 / (1 + exp(-x))``."""
    return 1 / (1 + exp(-x))
