"""Losses element by element, and their gradients, each step rounded as eager's kernels do."""

from __future__ import annotations

from typing import Any

import torch

from jitney_lowering.aten.call import Call
from jitney_lowering.aten.tensor import Shape, Tensor, count
from jitney_lowering.ir.scalar import Number, Scalar, absolute, log, maximum, where
from jitney_lowering.ir.values import Value
from jitney_lowering.rules.pointwise import POINTWISE, Pointwise
from jitney_lowering.rules.reductions import amount

aten = torch.ops.aten


def huber_loss(call: Call) -> Tensor:
    """Squared near 0, absolute elsewhere."""
    x, target, reduction, _ = call.args
    call.refuse_unless(reduction == 0 and x.dtype is target.dtype, "a loss that is reduced, or of two dtypes")

    def formula(x: Scalar, target: Scalar, _: Any, delta: float) -> Scalar:
        distance = absolute(x - target)
        return where(distance <= delta, 0.5 * (distance * distance), delta * (distance - 0.5 * delta))

    return call.result(Pointwise(formula, "stepwise").element(call))


def share(call: Call, x: Tensor, reduction: int, whole: float) -> Number | Scalar:
    """``whole``, or its share for each element where the loss is their mean."""
    if reduction != 1:
        return whole
    number = count(x.size).value
    if number is not None:
        return whole / number if number else whole
    return (whole / amount(x.size, torch.float32)).to(call.dtype)


def mse_loss_backward(call: Call) -> Tensor:
    """The gradient of the squared difference."""
    _, x, _, reduction = call.args
    factor = share(call, x, reduction, 2.0)

    def formula(grad: Scalar, x: Scalar, target: Scalar, _: Any) -> Scalar:
        return factor * (x - target) * grad

    return call.result(Pointwise(formula, "stepwise").element(call))


def huber_loss_backward(call: Call) -> Tensor:
    """The gradient of the Huber loss."""
    grad, x, target, reduction, _ = call.args
    call.refuse_unless(grad.dtype is x.dtype is target.dtype, "the gradient of a loss of two dtypes")
    factor = share(call, x, reduction, 1.0)

    def formula(grad: Scalar, x: Scalar, target: Scalar, _: Any, delta: float) -> Scalar:
        difference = x - target
        slope = factor * grad
        inside = factor * difference * grad
        return where(difference <= -delta, -slope * delta, where(difference >= delta, slope * delta, inside))

    return call.result(Pointwise(formula, "stepwise").element(call))


def binary_cross_entropy_backward(call: Call) -> Tensor:
    """The gradient of the cross entropy of two classes."""
    _, x, _, _, reduction = call.args
    number = None if reduction != 1 else count(x.size)

    def formula(grad: Scalar, x: Scalar, target: Scalar, weight: Scalar | None, _: Any) -> Scalar:
        slope = grad * (x - target) / maximum((1 - x) * x, 1e-12)
        slope = slope if weight is None else slope * weight
        if number is None:
            return slope
        return slope / (number.value if number.value is not None else amount([number], slope.dtype))

    return call.result(Pointwise(formula, "stepwise").element(call))


def binary_cross_entropy(call: Call) -> Tensor:
    """``-t log(x) - (1 - t) log(1 - x)``, logarithms not below -100."""
    x, _, _, reduction = call.args
    call.refuse_unless(reduction == 0, "a loss that is reduced")

    def wrong(at: Shape) -> Value:
        probability = Scalar(x.load(at))
        return (~((probability >= 0) & (probability <= 1))).value

    text = "all elements of input should be between 0 and 1"
    call.builder.refuse(Tensor(x.size, torch.bool, x.device, wrong), text, RuntimeError)

    def formula(x: Scalar, target: Scalar, weight: Scalar | None, _: Any) -> Scalar:
        loss = (target - 1) * maximum(log(1 - x), -100.0) - target * maximum(log(x), -100.0)
        return loss if weight is None else loss * weight

    return call.result(Pointwise(formula).element(call))


POINTWISE[aten.huber_loss.default] = huber_loss
POINTWISE[aten.mse_loss_backward.default] = mse_loss_backward
POINTWISE[aten.huber_loss_backward.default] = huber_loss_backward
POINTWISE[aten.binary_cross_entropy_backward.default] = binary_cross_entropy_backward
POINTWISE[aten.binary_cross_entropy.default] = binary_cross_entropy
