"""Arithmetic of Python floats that only the running graph knows: loops over no dimensions, in float64.

What Python refuses, or makes a complex number of, is an error when the graph has run, never a wrong number.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from jitney_lowering.aten.builder import Builder
from jitney_lowering.aten.tensor import Float, Tensor
from jitney_lowering.index import Index
from jitney_lowering.ir.scalar import Scalar, absolute, eq, one, two, where
from jitney_lowering.ir.values import constant, position
from jitney_lowering.rules.quotients import floor_div
from jitney_lowering.signals import NotLowered

Formula = Callable[..., Scalar]


def computed(builder: Builder, target: Any, args: Sequence[Any]) -> Float:
    """The result of one of Python's operations.

    Raises:
        NotLowered: there is no such operation here.
    """
    row = OPERATIONS.get(target) or BY_NAME.get(getattr(target, "__name__", ""))
    if row is None:
        raise NotLowered(f"{getattr(target, '__name__', target)} of a symbolic float")
    formula, check = row
    operands = [_operand(a) for a in args]
    result = formula(*operands)
    if check is not None:  # computed once, for all who read it and for the check
        result = Scalar(builder.kept_number(result.value, torch.device("cpu")))
        exception, message, wrong = check
        builder.refuse_number(wrong(*operands, result).value, message, exception)
    return Float(lambda at: result.value)


def _operand(value: Any) -> Scalar:
    if isinstance(value, Tensor):
        return Scalar(value.load(()))
    if isinstance(value, Index):
        return Scalar(position(value)).to(torch.float64)
    if not isinstance(value, (int, float)):
        raise NotLowered(f"a {type(value).__name__} beside a symbolic float")
    return Scalar(constant(float(value), torch.float64))


def _is_finite(x: Scalar) -> Scalar:
    return absolute(x) < math.inf


def _left_the_floats(*operands_and_result: Scalar) -> Scalar:
    """Is the result infinite or none, though the operands are numbers? There Python raises, or leaves the reals."""
    *operands, result = operands_and_result
    wrong = ~_is_finite(result)
    for x in operands:
        if x.number is None:  # those that are known are finite
            wrong = wrong & _is_finite(x)
    return wrong


def _of_infinity(a: Scalar, result: Scalar) -> Scalar:
    return eq(absolute(a), math.inf)


def _by_zero(a: Scalar, b: Scalar, result: Scalar) -> Scalar:
    return eq(b, 0)


Check = tuple[type[Exception], str, Formula] | None
DIVISION: Check = (ZeroDivisionError, "division by zero", _by_zero)
CIRCULAR: Check = (ValueError, "math domain error", _of_infinity)
DOMAIN: Check = (ValueError, "math domain error", _left_the_floats)
RANGE: Check = (OverflowError, "math range error", _left_the_floats)
POWER: Check = (ArithmeticError, "a power that is no finite float", _left_the_floats)

OPERATIONS: dict[Any, tuple[Formula, Check]] = {
    operator.add: (lambda a, b: a + b, None),
    operator.sub: (lambda a, b: a - b, None),
    operator.mul: (lambda a, b: a * b, None),
    operator.truediv: (lambda a, b: a / b, DIVISION),
    operator.floordiv: (floor_div, DIVISION),
    operator.mod: (lambda a, b: two("remainder", a, b), DIVISION),
    operator.pow: (lambda a, b: two("pow", a, b), POWER),
    pow: (lambda a, b: two("pow", a, b), POWER),
    operator.neg: (lambda a: -a, None),
    operator.pos: (lambda a: a, None),
    abs: (absolute, None),
    max: (lambda a, b: where(b > a, b, a), None),
    min: (lambda a, b: where(b < a, b, a), None),
    math.pow: (lambda a, b: two("pow", a, b), POWER),
    math.sqrt: (lambda a: one("sqrt", a), DOMAIN),
    math.log: (lambda a: one("log", a), DOMAIN),
    math.exp: (lambda a: one("exp", a), RANGE),
    math.sin: (lambda a: one("sin", a), CIRCULAR),
    math.cos: (lambda a: one("cos", a), CIRCULAR),
    math.tanh: (lambda a: one("tanh", a), None),
    torch.sym_float: (lambda a: a, None),
}
# What torch calls its own, private ones, which arithmetic on sizes leads to.
BY_NAME: dict[str, tuple[Formula, Check]] = {"_sym_sqrt": OPERATIONS[math.sqrt]}
