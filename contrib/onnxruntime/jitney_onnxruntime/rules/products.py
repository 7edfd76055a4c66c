"""Matrix products and attention."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from jitney_onnxruntime.dtypes import FULL, HALF
from jitney_onnxruntime.rules.normalization import unmasked
from jitney_onnxruntime.rules.operands import one
from jitney_onnxruntime.rules.views import swapped
from jitney_onnxruntime.table import Call, rule
from jitney_onnxruntime.writer import Refused, Value, Writer, number_of

aten = torch.ops.aten


def product(w: Writer, call: Call, one: str, other: str, bias: str = "") -> Value:
    """A matrix product of two arguments, and a sum. Transposed matrices are read as they are."""
    a, b = w.value(call[one]), w.value(call[other])
    if a.dtype in HALF or a.dtype is not b.dtype:
        raise Refused("half types, for which eager has kernels of its own")
    added = w.value(call[bias]) if bias else None
    if a.dtype in FULL and call.fake(one).dim() == call.fake(other).dim() == 2:
        (a, first), (b, second) = _untransposed(w, call[one], a), _untransposed(w, call[other], b)
        return w.op("Gemm", a, b, added, transA=first, transB=second)
    made = w.op("MatMul", a, b)
    return made if added is None else w.op("Add", made, added)


def _untransposed(w: Writer, node: fx.Node, value: Value) -> tuple[Value, int]:
    """The matrix that a node transposes, and 1; or what the node is, and 0."""
    if node.target is aten.t.default and isinstance(node.args[0], fx.Node) and node.args[0] in w.known:
        if node.meta["val"].dim() == 2:
            return w.value(node.args[0]), 1
    return value, 0


@rule(aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default)
def mm(w: Writer, call: Call) -> Value:
    """Matrices, batches of them, vectors."""
    second = next(name for name in ("mat2", "vec", "tensor") if name in call.arguments)
    return product(w, call, "self", second)


@rule(aten.addmm.default, aten.baddbmm.default)
def addmm(w: Writer, call: Call) -> Value:
    """A product and a sum, without factors."""
    if call["beta"] != 1 or call["alpha"] != 1:
        raise Refused("with factors")
    first, second = ("mat1", "mat2") if "mat1" in call.arguments else ("batch1", "batch2")
    if call.fake("self").dtype is not call.out.dtype:
        raise Refused("of several dtypes")
    return product(w, call, first, second, "self")


@rule(aten._scaled_dot_product_flash_attention_for_cpu.default)
def attention(w: Writer, call: Call) -> tuple[Value | None, ...]:
    """softmax(query @ key.T * scale + mask) @ value; without what a backward reads."""
    call.only(0)
    if call["dropout_p"] or call.out[0].dtype in HALF:
        raise Refused("dropout or half types")
    query, key, value = (w.value(call[name]) for name in ("query", "key", "value"))
    scale = call["scale"] if call["scale"] is not None else _default_scale(call)
    if not isinstance(scale, (int, float)):
        raise Refused("a symbolic scale")
    scores = w.op("MatMul", w.op("Mul", query, one(w, query, float(scale))), swapped(w, key, 4))
    masked = call["attn_mask"] is not None or call["is_causal"]
    if call["attn_mask"] is not None:
        mask = w.value(call["attn_mask"])
        if mask.dtype is not scores.dtype:
            raise Refused("a mask of another dtype")
        scores = w.op("Add", scores, mask)
    if call["is_causal"]:
        scores = _causal(w, scores, call.fake("query").shape[-2], call.fake("key").shape[-2])
    shares = w.op("Softmax", scores, axis=3)
    if masked:
        shares = unmasked(w, shares, scores, 3)
    made = w.op("MatMul", shares, value)
    return made, None


def _default_scale(call: Call) -> Any:
    size = number_of(call.fake("query").shape[-1])
    return 1 / math.sqrt(size) if type(size) is int else None


def _causal(w: Writer, scores: Value, rows: Any, columns: Any) -> Value:
    """-infinity above the diagonal."""
    ones = w.filled(w.constant(1, torch.int32), [rows, columns])
    seen = w.cast(w.op("Trilu", ones, w.constant(0, torch.int64), upper=0), torch.bool)
    return w.op("Where", w.op("Not", seen), one(w, scores, -math.inf), scores, on=1)
