"""Attention and its gradient."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from jitney_onnxruntime.rules.operands import one
from jitney_onnxruntime.rules.reductions import reduced, summed
from jitney_onnxruntime.rules.views import swapped
from jitney_onnxruntime.table import Call, rule
from jitney_onnxruntime.writer import Refused, Value, Writer, number_of

aten = torch.ops.aten


@rule(aten._scaled_dot_product_flash_attention_for_cpu.default)
def attention(w: Writer, call: Call) -> tuple[Value | None, ...]:
    """softmax(query @ key.T * scale + mask) @ value, and for a backward the logarithm of each row's sum.

    A row of which all scores are -infinity has shares of 0, as in eager.
    """
    scores = _scores(w, call)
    largest = reduced(w, "ReduceMax", scores, [3], True)
    hidden = w.op("Equal", largest, one(w, scores, -math.inf), dtype=torch.bool)
    zero = one(w, scores, 0.0)
    value = w.value(call["value"])
    if all(user.target is operator.getitem and user.args[1] == 0 for user in call.node.users):
        shares = w.op("Where", hidden, zero, w.op("Softmax", scores, axis=3), on=1)
        return w.op("MatMul", shares, value), None
    parts = w.op("Exp", w.op("Sub", scores, w.op("Where", hidden, zero, largest, on=1)))
    rows, columns = (call.fake(name).shape[-2] for name in ("query", "key"))
    total = summed(w, parts, [*call.fake("query").shape[:2], rows, columns], [3], True)
    shares = w.op("Div", parts, w.op("Where", hidden, one(w, scores), total, on=1))
    level = w.op("Where", hidden, zero, w.op("Add", largest, w.op("Log", total)), on=1)
    return w.op("MatMul", shares, value), w.reshaped(level, call.out[1].shape)


@rule(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def attention_backward(w: Writer, call: Call) -> tuple[Value | None, ...]:
    """The gradients of query, key and value, from the logarithms that the forward has kept."""
    scores = _scores(w, call)
    query, key, value, grad, out = (w.value(call[name]) for name in ("query", "key", "value", "grad_out", "out"))
    scale = one(w, scores, _scale(call))
    level = w.reshaped(w.value(call["logsumexp"]), [*call.fake("logsumexp").shape, 1])
    shares = w.op("Exp", w.op("Sub", scores, level))
    of_shares = w.op("MatMul", grad, swapped(w, value, 4))
    mean = summed(w, w.op("Mul", grad, out), call.fake("out").shape, [3], True)
    of_scores = w.op("Mul", w.op("Mul", shares, w.op("Sub", of_shares, mean)), scale)
    made = w.op("MatMul", of_scores, key), w.op("MatMul", swapped(w, of_scores, 4), query)
    return *made, w.op("MatMul", swapped(w, shares, 4), grad)


def _scores(w: Writer, call: Call) -> Value:
    """query @ key.T * scale + mask."""
    if call["dropout_p"] or any(call.fake(n).dtype is not torch.float32 for n in ("query", "key", "value")):
        raise Refused("dropout, or not of float32")
    query, key = w.value(call["query"]), w.value(call["key"])
    scores = w.op("MatMul", w.op("Mul", query, one(w, query, _scale(call))), swapped(w, key, 4))
    if call["attn_mask"] is not None:
        mask = w.value(call["attn_mask"])
        if mask.dtype is not scores.dtype:
            raise Refused("a mask of another dtype")
        scores = w.op("Add", scores, mask)
    if call["is_causal"]:  # -infinity above the diagonal
        ones = w.filled(w.constant(1, torch.int32), [call.fake("query").shape[-2], call.fake("key").shape[-2]])
        seen = w.cast(w.op("Trilu", ones, w.constant(0, torch.int64), upper=0), torch.bool)
        scores = w.op("Where", w.op("Not", seen), one(w, scores, -math.inf), scores, on=1)
    return scores


def _scale(call: Call) -> float:
    given: Any = call["scale"]
    if given is None:
        size = number_of(call.fake("query").shape[-1])
        given = 1 / math.sqrt(size) if type(size) is int else None
    if not isinstance(given, (int, float)):
        raise Refused("a symbolic scale")
    return float(given)
