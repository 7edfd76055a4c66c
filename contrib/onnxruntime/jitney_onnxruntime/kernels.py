"""Which dtypes ONNX Runtime's CPU kernels have, less those in which their numbers are worse than eager's."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from jitney_onnxruntime.dtypes import ELEMENT, FULL, INTEGERS

_F32 = frozenset({torch.float32})
_WORDS = frozenset({torch.int32, torch.int64})
_BOOL = frozenset({torch.bool})
_ARITHMETIC = FULL | INTEGERS
_NO_SHORT = _ARITHMETIC - {torch.int16}
_ALL = frozenset(ELEMENT)
_NO_BFLOAT = _ALL - {torch.bfloat16}

# Node -> dtypes of what it computes with. Left out with intent: Sin and Cos in float64 (off by hundreds of units in the
# last place), LogSoftmax in float64 (NaN does not spread), ReduceSum and ReduceProd of integers (they saturate),
# Sigmoid (off below -18), Mod of floats (as eager, but for denormals), Sign of floats (NaN).
KERNELS: Mapping[str, frozenset[torch.dtype]] = {
    **dict.fromkeys(("Neg",), _ARITHMETIC - {torch.uint8}),
    **dict.fromkeys(
        ("Abs", "Add", "Sub", "Mul", "Div", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), _ARITHMETIC
    ),
    **dict.fromkeys(("Exp", "Log", "Sqrt", "Reciprocal", "Tanh", "Ceil", "Floor", "Round", "Pow"), FULL),
    **dict.fromkeys(("Sin", "Cos", "Tan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Erf", "Gelu"), _F32),
    **dict.fromkeys(("IsNaN", "IsInf", "Softmax", "ReduceSum", "Gemm"), FULL),
    **dict.fromkeys(("LogSoftmax", "LayerNormalization", "Conv", "AveragePool"), _F32),
    **dict.fromkeys(("And", "Or", "Xor", "Not"), _BOOL),
    **dict.fromkeys(("BitwiseNot", "BitwiseAnd", "BitwiseOr", "BitwiseXor"), INTEGERS),
    **dict.fromkeys(("Max", "Min", "Where", "ArgMax", "ArgMin"), _NO_SHORT),
    **dict.fromkeys(("ReduceMax", "ReduceMin", "Pad"), _NO_SHORT | _BOOL),
    **dict.fromkeys(("Expand", "Tile"), _NO_BFLOAT),
    "Relu": FULL | {torch.int32, torch.int8},
    "Equal": _ARITHMETIC | _BOOL,
    "Mod": INTEGERS,
    "Sign": INTEGERS,
    "MatMul": FULL | _WORDS,
    "CumSum": _WORDS,
    "Range": _WORDS,
    "MaxPool": FULL,
    "Trilu": FULL | _WORDS | _BOOL,
    **dict.fromkeys(("Cast", "Identity", "Reshape", "Transpose", "Slice", "Concat"), _ALL),
    **dict.fromkeys(("Gather", "GatherElements", "GatherND"), _ALL),
}
# ReduceSum goes through float64 for integers: exact as long as no sum reaches 2**53.
EXACT_SUMS = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32})
