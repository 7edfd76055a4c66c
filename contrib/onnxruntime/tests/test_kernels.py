"""The table of kernels beside what ONNX Runtime has."""

from __future__ import annotations

import pytest
import torch

from jitney_onnxruntime import OnnxruntimeOptions
from jitney_onnxruntime.kernels import KERNELS
from jitney_onnxruntime.model import model_of
from jitney_onnxruntime.sessions import Session
from jitney_onnxruntime.writer import Value, Writer

COMPARE = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsNaN", "IsInf")
PAIRS = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mod", "MatMul", "Gemm", "And", "Or", "Xor", *COMPARE[:5])
# The inputs after the first ("." of its dtype, "i" int64), and attributes.
SHAPES = {
    **dict.fromkeys((*PAIRS, "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Conv"), (".", {})),
    **dict.fromkeys(("Reshape", "Expand", "Tile", "CumSum", "Trilu", "ReduceSum", "ReduceMax", "ReduceMin"), ("i", {})),
    **dict.fromkeys(("Gather", "GatherElements", "GatherND"), ("i", {})),
    **dict.fromkeys(("MaxPool", "AveragePool"), ("", {"kernel_shape": [2, 2]})),
    "Slice": ("ii", {}), "Pad": ("i.", {}), "Range": ("..", {}), "LayerNormalization": (".", {}),
    "Concat": (".", {"axis": 0}), "Cast": ("", {"to": 7}),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(KERNELS))
def test_there_is_a_kernel_for_each_dtype(kind):
    others, attributes = SHAPES.get(kind, ("", {}))
    writer, inputs, results = Writer(), [], []
    for number, dtype in enumerate(sorted(KERNELS[kind], key=str)):
        kinds = [dtype, *({".": dtype, "i": torch.int64}[c] for c in others)]
        if kind == "Where":
            kinds = [torch.bool, dtype, dtype]
        given = [Value(f"i{number}_{place}", each) for place, each in enumerate(kinds)]
        inputs += [(value, ["a", "b"] if "Pool" not in kind and kind != "Conv" else list("abcd")) for value in given]
        made = torch.bool if kind in COMPARE else torch.int64 if kind in ("ArgMax", "ArgMin", "Cast") else dtype
        if kind == "Range":
            inputs = [(value, []) for value, _ in inputs]
        elif kind in ("Reshape", "Expand", "Tile", "ReduceSum", "ReduceMax", "ReduceMin", "Slice", "Pad"):
            inputs = [(v, s if v.dtype is not torch.int64 or v.name.endswith("_0") else ["k"]) for v, s in inputs]
            if kind == "Pad":
                inputs[-1] = (inputs[-1][0], [])
        elif kind in ("CumSum", "Trilu"):
            inputs[-1] = (inputs[-1][0], [])
        results.append(writer.op(kind, *given, dtype=made, on=int(kind == "Where"), **attributes))
    model, _ = model_of(writer, inputs, results)
    Session(model.SerializeToString(), OnnxruntimeOptions(threads=1))
