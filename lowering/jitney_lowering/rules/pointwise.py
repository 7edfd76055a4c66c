"""How pointwise operators are lowered: operands are broadcast and converted, a formula gives the element.

The formulas are in ``arithmetic.py``, ``quotients.py``, ``comparisons.py`` and ``activations.py``. A formula takes the
operator's arguments in the order of its schema: tensors as ``Scalar``, everything else as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from jitney_lowering.aten.call import Call, Rule, is_spread, projected
from jitney_lowering.aten.tensor import Float, Shape, Tensor
from jitney_lowering.index import Index
from jitney_lowering.ir.operations import INTEGERS
from jitney_lowering.ir.scalar import Scalar, wrapped
from jitney_lowering.ir.values import Value, constant, position
from jitney_lowering.rules.promotion import opmath, promoted
from jitney_lowering.signals import NoRule

Mode = Literal["arithmetic", "stepwise", "compare", "own"]
"""What operands are converted to, and what in formulas compute.

``arithmetic``: the result's dtype, but float32 instead of a half, which is rounded to once, at the end, as in most of
eager's kernels. ``stepwise``: the result's dtype, a half too: every step is rounded. ``compare``: their common dtype.
``own``: nothing is converted.
"""
Formula = Callable[..., Any]
BOOLS = frozenset({torch.bool})
EXACT = INTEGERS | BOOLS  # all that are no floats
POINTWISE: dict[Any, Rule] = {}


@dataclass(frozen=True)
class Pointwise:
    """A rule made of a formula.

    Args:
        formula: what to compute.
        mode: what operands are converted to.
        cuda: the same on CUDA devices, where eager's kernel rounds otherwise.
        cuda_formula: the formula there, where eager's kernel computes otherwise.
        own: positions of operands that keep their dtype in any mode.
        exact: positions where a tensor without dimensions, beside others, is not rounded to their half.
        rounded: positions of numbers that are rounded to the operands' half; others go into formulas as they are.
        refused: dtypes of operands for which eager raises: the operator runs as a whole, and says so.
    """

    formula: Formula
    mode: Mode = "arithmetic"
    cuda: Mode | None = None
    cuda_formula: Formula | None = None
    own: tuple[int, ...] = ()
    exact: tuple[int, ...] = ()
    rounded: tuple[int, ...] = ()
    refused: frozenset[torch.dtype] = frozenset()

    def __call__(self, call: Call) -> Tensor:
        """The result of one call."""
        for operand in call.args:
            if isinstance(operand, Tensor) and operand.dtype in self.refused:
                raise NoRule(f"{call.node.target} of {operand.dtype}")
        rule = self.on_cuda() if call.val.device.type == "cuda" else self
        return call.result(rule.element(call))

    def on_cuda(self) -> Pointwise:
        """The rule for CUDA devices."""
        if self.cuda is None and self.cuda_formula is None:
            return self
        return replace(self, mode=self.cuda or self.mode, formula=self.cuda_formula or self.formula)

    def element(self, call: Call) -> Callable[[Shape], Value]:
        """The function from an index to the element."""
        dtype = call.dtype
        common = None if self.mode == "own" else promoted(call.args) if self.mode == "compare" else dtype
        operands = [self._operand(call, n, None if n in self.own else common) for n in range(len(call.args))]

        def element(at: Shape) -> Value:
            given = [a(at) if callable(a) else a for a in operands]
            if isinstance(given[0], (int, float)):  # formulas take numbers beside a value, not in its place
                beside = next((a for a in given if isinstance(a, Scalar)), None)
                given[0] = beside.like(given[0]) if beside is not None else given[0]
            made = self.formula(*given)
            if not isinstance(made, Scalar):
                return constant(wrapped(made, dtype), dtype)
            return made.to(dtype).value

        return element

    def _operand(self, call: Call, n: int, common: torch.dtype | None) -> Any:
        """A function from an index to a ``Scalar`` for tensors and symbolic numbers; everything else as it is."""
        operand = call.args[n]
        if isinstance(operand, (bool, int, float)):
            return self._number(operand, n, common)
        if not isinstance(operand, (Tensor, Index)):
            return operand
        compute = opmath(common) if common is not None and self.mode == "arithmetic" else common
        steps: list[torch.dtype] = [] if compute is None or common is None else [common, compute]
        if isinstance(operand, (Float, Index)):
            number = position(operand) if isinstance(operand, Index) else call.builder.spread(operand).load(())
            made = Scalar(number)
            for dtype in steps if n in self.rounded else steps[1:]:
                made = made.to(dtype)
            return lambda at: made
        if n in self.exact and not operand.size and call.size:
            steps = steps[1:]
        if is_spread(operand, call.size):
            call.builder.spread(operand)
        project, cast = projected(operand, call.size), call.builder.cast

        def scalar(at: Shape) -> Scalar:
            value = operand.load(project(at))
            for dtype in steps:
                value = cast(value, dtype)
            return Scalar(value)

        return scalar

    def _number(self, number: bool | int | float, n: int, common: torch.dtype | None) -> bool | int | float:
        if common is None or not common.is_floating_point or isinstance(number, bool):
            return number
        if n in self.rounded and self.mode == "arithmetic":
            return float(torch.tensor(number, dtype=common))
        return float(number)  # ints too: formulas compute with numbers in double precision


def pointwise(*targets: Any, **settings: Any) -> Callable[[Formula], Formula]:
    """Register a formula for these overloads; ``settings`` as in ``Pointwise``."""

    def register(formula: Formula) -> Formula:
        rule = Pointwise(formula, **settings)
        POINTWISE.update(dict.fromkeys(targets, rule))
        return formula

    return register
