"""Tensors out of nothing but numbers and sizes."""

from __future__ import annotations

import torch

from jitney_onnxruntime.table import Call, rule
from jitney_onnxruntime.writer import Refused, Value, Writer, number_of

aten = torch.ops.aten


def _filled(w: Writer, call: Call, number: object) -> Value:
    dtype = call.out.dtype
    if dtype is torch.bfloat16:
        return w.cast(w.filled(w.number(number, torch.float32, dtype), call.out.shape), dtype)
    return w.filled(w.number(number, dtype), call.out.shape)


def _plain(call: Call) -> None:
    """Refuse what is not dense memory of the CPU."""
    if call.arguments.get("pin_memory") or call.arguments.get("layout") not in (None, torch.strided):
        raise Refused("another layout, or pinned memory")


@rule(aten.full.default, aten.full_like.default, aten.new_full.default)
def full(w: Writer, call: Call) -> Value:
    """One number everywhere."""
    _plain(call)
    return _whole(w, _filled(w, call, call["fill_value"]))


@rule(aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)
def zeros(w: Writer, call: Call) -> Value:
    """Zeros."""
    _plain(call)
    return _whole(w, _filled(w, call, 0))


@rule(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def ones(w: Writer, call: Call) -> Value:
    """Ones."""
    _plain(call)
    return _whole(w, _filled(w, call, 1))


@rule(aten.fill.Scalar)
def fill(w: Writer, call: Call) -> Value:
    """Another tensor's sizes, one number."""
    return _whole(w, _filled(w, call, call["value"]))


@rule(aten.scalar_tensor.default)
def scalar_tensor(w: Writer, call: Call) -> Value:
    """A number without dimensions."""
    _plain(call)
    return _whole(w, _filled(w, call, call["s"]))


def _whole(w: Writer, value: Value) -> Value:
    """Constants become results of a node, so that they may be outputs."""
    return w.op("Identity", value)


@rule(aten.arange.default, aten.arange.start, aten.arange.start_step)
def arange(w: Writer, call: Call) -> Value:
    """Of integers; eager's floats are rounded in a way of their own."""
    _plain(call)
    given = [call.arguments.get("start", 0), call["end"], call.arguments.get("step", 1)]
    if any(not isinstance(number_of(n), (int, torch.SymInt)) for n in given):
        raise Refused("from floats")
    start, end, step = (w.number(n, torch.int64) for n in given)
    return w.cast(w.op("Range", start, end, step), call.out.dtype)
