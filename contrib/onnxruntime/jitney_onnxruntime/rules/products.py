"""Matrix products."""

from __future__ import annotations

import torch
from torch import fx

from jitney_onnxruntime.dtypes import FULL, HALF
from jitney_onnxruntime.rules.reductions import summed
from jitney_onnxruntime.table import Call, rule
from jitney_onnxruntime.writer import Refused, Value, Writer

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


@rule(aten.mm.default, aten.bmm.default)
def mm(w: Writer, call: Call) -> Value:
    """Matrices, and batches of them."""
    return product(w, call, "self", "mat2")


@rule(aten.mv.default, aten.dot.default)
def mv(w: Writer, call: Call) -> Value:
    """Vectors as matrices: ONNX Runtime's fusion of a transposition into a product with a vector is wrong."""
    second = "vec" if "vec" in call.arguments else "tensor"
    a, b = w.value(call["self"]), w.value(call[second])
    if a.dtype in HALF or a.dtype is not b.dtype:
        raise Refused("half types, for which eager has kernels of its own")
    length = call.fake(second).shape[0]
    if not call.out.dim() and a.dtype in FULL:  # ONNX Runtime adds up one number after the other
        return summed(w, w.op("Mul", a, b), [length], [0], False)
    a = a if call.out.dim() else w.reshaped(a, [1, length])
    return w.reshaped(w.op("MatMul", a, w.reshaped(b, [length, 1])), call.out.shape)


@rule(aten.addmm.default, aten.baddbmm.default)
def addmm(w: Writer, call: Call) -> Value:
    """A product and a sum, without factors."""
    if call["beta"] != 1 or call["alpha"] != 1:
        raise Refused("with factors")
    first, second = ("mat1", "mat2") if "mat1" in call.arguments else ("batch1", "batch2")
    if call.fake("self").dtype is not call.out.dtype:
        raise Refused("of several dtypes")
    return product(w, call, first, second, "self")
