"""Batch norm in training: the one operator whose schema hides that it writes to its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from jitney_lowering.aten.call import Call, Rule, registering
from jitney_lowering.aten.tensor import Shape, Tensor
from jitney_lowering.index import Index
from jitney_lowering.ir.scalar import Scalar
from jitney_lowering.ir.values import Value, apply, constant
from jitney_lowering.rules.promotion import opmath
from jitney_lowering.rules.reductions import amount, mapped

aten = torch.ops.aten
NORMS: dict[Any, Rule] = {}
Column = Callable[[Index], Scalar]  # from a channel to a number


norm = registering(NORMS)


@norm(aten.native_batch_norm.default)
def batch_norm(call: Call) -> list[Tensor]:
    """Result, mean and ``1 / sqrt(var + eps)`` of each channel; the running statistics are written to."""
    x, weight, bias, mean, variance, training, momentum, eps = call.args
    call.refuse_unless(bool(training) and len(x.size) > 1, "batch norm of a vector")
    builder, compute, channels = call.builder, opmath(x.dtype), x.size[1]
    dims = [d for d in range(len(x.size)) if d != 1]
    summed = torch.float64 if x.device.type == "cpu" else compute  # as eager's kernels add up
    number = amount([x.size[d] for d in dims], summed)
    wide = mapped(call, x, compute)
    total = builder.reduce("sum", mapped(call, x, summed), dims)

    def batch_mean(c: Index) -> Scalar:
        return (Scalar(total.load((c,))) / number).to(compute)

    def square(at: Shape) -> Value:
        centred = Scalar(wide.load(at)) - batch_mean(at[1])
        return (centred * centred).to(summed).value

    squares = builder.reduce("sum", Tensor(x.size, summed, x.device, square, wanted=x.wanted), dims)

    def column(formula: Column, dtype: torch.dtype = compute) -> Tensor:
        return Tensor((channels,), dtype, x.device, lambda at: formula(at[0]).to(dtype).value)

    exact = column(lambda c: Scalar(apply("rsqrt", (Scalar(squares.load((c,))) / number + eps).to(compute).value)))
    builder.realise(exact)
    kept = next((p.dtype for p in (weight, bias, mean, variance) if p is not None), x.dtype)
    if x.device.type != "cpu":  # which keeps statistics as exact as they were computed
        kept = compute
    rstd = column(lambda c: Scalar(exact.load((c,))).to(kept))  # as eager keeps it, and uses it
    factor = column(lambda c: _column(weight, c, compute, 1.0) * Scalar(rstd.load((c,))))
    summand = column(
        lambda c: _column(bias, c, compute, 0.0) - batch_mean(c).to(kept).to(compute) * Scalar(factor.load((c,)))
    )
    builder.realise(factor)
    builder.realise(summand)

    def result(at: Shape) -> Value:
        made = Scalar(wide.load(at)) * Scalar(factor.load((at[1],))) + Scalar(summand.load((at[1],)))
        return made.to(x.dtype).value

    _write(call, mean, momentum, batch_mean)
    _write(call, variance, momentum, lambda c: Scalar(squares.load((c,))) / (number - 1))
    return [
        Tensor(x.size, x.dtype, x.device, result),
        column(batch_mean, kept),
        column(lambda c: Scalar(rstd.load((c,))), kept),
    ]


def _column(parameter: Tensor | None, c: Index, dtype: torch.dtype, default: float) -> Scalar:
    value = constant(default, dtype) if parameter is None else apply("cast", parameter.load((c,)), dtype=dtype)
    return Scalar(value)


def _write(call: Call, running: Tensor | None, momentum: float, batch: Column) -> None:
    """Move a running statistic, in place, towards the batch's."""
    if running is None:
        return

    def moved(at: Shape) -> Value:
        new = batch(at[0])
        old = Scalar(running.load(at)).to(new.dtype)
        return (momentum * new + (1 - momentum) * old).to(running.dtype).value

    last = all(_is_of_one(given, call.node) for given in call.node.args[3:5])
    call.builder.assign(running, Tensor(running.size, running.dtype, running.device, moved), last=last)


def _is_of_one(given: Any, node: fx.Node) -> bool:
    """Is it an input that only this operator looks at, or nothing?"""
    return given is None or (given.op == "placeholder" and given.users.keys() == {node})
