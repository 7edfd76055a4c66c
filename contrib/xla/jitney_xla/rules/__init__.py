"""ATen operators as JAX functions: a table, entered by topic."""

from __future__ import annotations

from jitney_xla.rules import (
    activations,
    arithmetic,
    convolutions,
    creation,
    indexing,
    joins,
    norms,
    pointwise,
    pools,
    products,
    reductions,
    views,
)
from jitney_xla.rules.call import RULES, Call, Rule

__all__ = [
    "RULES",
    "Call",
    "Rule",
    "activations",
    "arithmetic",
    "convolutions",
    "creation",
    "indexing",
    "joins",
    "norms",
    "pointwise",
    "pools",
    "products",
    "reductions",
    "views",
]
