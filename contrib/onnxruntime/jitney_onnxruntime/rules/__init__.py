"""ATen operators as ONNX nodes, a file for each topic; rules refuse what ONNX Runtime computes otherwise than eager."""

from __future__ import annotations

from jitney_onnxruntime.rules import (
    arithmetic,
    attention,
    casts,
    comparisons,
    convolutions,
    creation,
    gradients,
    indexing,
    joining,
    normalization,
    pointwise,
    products,
    reductions,
    views,
)
from jitney_onnxruntime.table import RULES

__all__ = [
    "RULES",
    "arithmetic",
    "attention",
    "casts",
    "comparisons",
    "convolutions",
    "creation",
    "gradients",
    "indexing",
    "joining",
    "normalization",
    "pointwise",
    "products",
    "reductions",
    "views",
]
