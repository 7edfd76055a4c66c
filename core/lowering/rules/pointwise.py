"""How pointwise operators are lowered: operands are broadcast and converted, a formula gives the element.

The formulas are in ``arithmetic.py`` and ``activations.py``. A formula takes the operator's arguments in the order of
its schema: tensors as ``Scalar``, everything else as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from jitney.lowering.call import Call, Rule, is_spread, projected
from jitney.lowering.index import Index
from jitney.lowering.notation import Scalar, wrapped
from jitney.lowering.rules.promotion import opmath, promoted
from jitney.lowering.tensor import Float, Shape, Tensor
from jitney.lowering.values import Value, constant, position

Mode = Literal["arithmetic", "stepwise", "compare", "own"]
"""What operands are converted to, and what in formulas compute.

``arithmetic``: the result's dtype, but float32 instead of a half, which is rounded to once, at the end, as in most of
eager's kernels. ``stepwise``: the result's dtype, a half too: every step is rounded. ``compare``: their common dtype.
``own``: nothing is converted.
"""
Formula = Callable[..., Any]
POINTWISE: dict[Any, Rule] = {}


@dataclass(frozen=True)
class Pointwise:
    """A rule made of a formula."""

    formula: Formula
    mode: Mode
    own: tuple[int, ...] = ()

    def __call__(self, call: Call) -> Tensor:
        """The result of one call."""
        return call.result(elementwise(call, self.formula, self.mode, self.own))


def pointwise(*targets: Any, mode: Mode = "arithmetic", own: tuple[int, ...] = ()) -> Callable[[Formula], Formula]:
    """Register a formula for these overloads; the operands at positions ``own`` keep their dtype in any mode."""

    def register(formula: Formula) -> Formula:
        for target in targets:
            POINTWISE[target] = Pointwise(formula, mode, own)
        return formula

    return register


def elementwise(
    call: Call, formula: Formula, mode: Mode, own: tuple[int, ...] = (), dtype: torch.dtype | None = None
) -> Callable[[Shape], Value]:
    """The function from an index to the element, of ``dtype`` or the call's."""
    dtype = dtype or call.dtype
    common = None if mode == "own" else promoted(call.args) if mode == "compare" else dtype
    compute = opmath(common) if common is not None and mode == "arithmetic" else common
    operands = [_operand(call, a, *((None, None) if n in own else (common, compute))) for n, a in enumerate(call.args)]

    def element(at: Shape) -> Value:
        made = formula(*[a(at) if callable(a) else a for a in operands])
        if not isinstance(made, Scalar):
            return constant(wrapped(made, dtype), dtype)
        return made.to(dtype).value

    return element


def _operand(call: Call, operand: Any, common: torch.dtype | None, compute: torch.dtype | None) -> Any:
    """A function from an index to a ``Scalar`` for tensors and symbolic sizes; everything else as it is."""
    size = call.size
    if isinstance(operand, Index):
        number = Scalar(position(operand))
        if compute is not None:
            number = number.to(compute)
        return lambda at: number
    if not isinstance(operand, Tensor):
        return _number(operand, common)
    if is_spread(operand, size):
        call.builder.spread(operand)
    project = projected(operand, size)
    # Eager takes a tensor without dimensions beside others as a number: not rounded to a half before it is used.
    exact = isinstance(operand, Float) or (not operand.size and bool(size))
    cast = call.builder.cast

    def scalar(at: Shape) -> Scalar:
        value = operand.load(project(at))
        if common is not None and compute is not None:
            value = cast(value if exact else cast(value, common), compute)
        return Scalar(value)

    return scalar


def _number(operand: Any, common: torch.dtype | None) -> Any:
    """Ints beside floats are floats from the start, so that formulas compute with them in double precision."""
    if common is not None and common.is_floating_point and type(operand) is int:
        return float(operand)
    return operand
