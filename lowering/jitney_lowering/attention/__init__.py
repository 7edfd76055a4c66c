"""Attention as one operator: found in captured graphs, said as text, lowered to what a kernel computes of a tile."""

from jitney_lowering.attention.calls import KEYS
from jitney_lowering.attention.fused import by_torch
from jitney_lowering.attention.mask import FAR, Bound, Mask, masks, seen, without
from jitney_lowering.attention.operators import (
    BACKWARD,
    FORWARD,
    SCORES_BACKWARD,
    Given,
    attention_results,
    backward_results,
    scores_backward_results,
)
from jitney_lowering.attention.recent import Recent
from jitney_lowering.attention.rewriting import Candidate, Compute, by_operator, with_attention
from jitney_lowering.attention.score import NotSaid, Score
from jitney_lowering.attention.tile import GRADIENT, PRODUCTS, Tile

__all__ = [
    "BACKWARD",
    "FAR",
    "FORWARD",
    "GRADIENT",
    "KEYS",
    "PRODUCTS",
    "SCORES_BACKWARD",
    "Bound",
    "Candidate",
    "Compute",
    "Given",
    "Mask",
    "NotSaid",
    "Recent",
    "Score",
    "Tile",
    "attention_results",
    "backward_results",
    "by_operator",
    "by_torch",
    "masks",
    "scores_backward_results",
    "seen",
    "with_attention",
    "without",
]
