"""Score and mask functions of ``flex_attention``, and what it computes, in plain operations with a gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks

B, H, M, D = 2, 4, 37, 16
BLOCK = 16

_seed = torch.Generator().manual_seed(3)
SLOPES = torch.rand(H, generator=_seed)
TABLE = torch.randn(H, 2 * M, generator=_seed)
BIAS = torch.randn(B, H, M, M, generator=_seed)
DOCUMENTS = torch.tensor([[0] * 20 + [1] * 17, [2] * 9 + [0] * 3 + [5] * 25])
WIDTH = torch.tensor(7)
DOUBLE = torch.tensor(0.3, dtype=torch.float64)
LOW = -float("inf")
Function = Callable[..., Any]


class Window:
    """A score function with state: a number, or a tensor."""

    def __init__(self, width: Any) -> None:
        self.width = width

    def __call__(self, s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return torch.where((i - j).abs() < self.width, s, LOW)


def scaled(factor: float, s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return s * factor


# Of scores; those of the second table need rows of tables, which only mapping one position at a time understands.
SCORES: dict[str, Function | None] = {
    "none": None,
    "alibi": lambda s, b, h, i, j: s + SLOPES[h] * (j - i),
    "table": lambda s, b, h, i, j: s + TABLE[h, i - j + M],
    "bias": lambda s, b, h, i, j: s + BIAS[b, h, i, j],
    "double": lambda s, b, h, i, j: s * DOUBLE + h,
    "cap": lambda s, b, h, i, j: 5 * torch.tanh(s / 5),
    "causal": lambda s, b, h, i, j: torch.where(i >= j, s, LOW),
    "documents": lambda s, b, h, i, j: torch.where(DOCUMENTS[b, i] == DOCUMENTS[b, j], s, LOW),
    "rows without keys": lambda s, b, h, i, j: torch.where(i > 5, s, LOW),
    "all low": lambda s, b, h, i, j: torch.where(i > j + 5, s, -1e30),
    "window": Window(9),
    "window of a tensor": Window(WIDTH),
    "partial": functools.partial(scaled, 0.5),
    "made like it": lambda s, b, h, i, j: torch.ones_like(s) * s.new_full((), 2.0) * s,
    "nan": lambda s, b, h, i, j: torch.where((i == 3) & (j == 4), float("nan"), s),
}  # fmt: skip
ROWS: dict[str, Function] = {
    "row": lambda s, b, h, i, j: s + TABLE[h][i - j + M],
    "numbers": lambda s, b, h, i, j: s + TABLE[0, i] + TABLE[-1][j] + SLOPES[1],
    "stacked": lambda s, b, h, i, j: torch.where(torch.stack([i >= j, i < j + 9]).all(), s, -1e9),
    "half": lambda s, b, h, i, j: s.to(torch.bfloat16),
    "inner": lambda s, b, h, i, j: s + (TABLE[h] * (torch.arange(2 * M) < j)).sum(),
}
MASKS: dict[str, Function] = {
    "noop": noop_mask,
    "causal": lambda b, h, i, j: i >= j,
    "window": and_masks(lambda b, h, i, j: i >= j, lambda b, h, i, j: i - j < 5),
    "prefix": or_masks(lambda b, h, i, j: i >= j, lambda b, h, i, j: j < 5),
    "documents": lambda b, h, i, j: DOCUMENTS[b, i] == DOCUMENTS[b, j],
    "rows without keys": lambda b, h, i, j: (i > 5) & (j < 9),
    "earlier": lambda b, h, i, j: i > j + 20,
    "heads": lambda b, h, i, j: h > 0,
}


def plain(
    q: Tensor, k: Tensor, v: Tensor, score: Function | None = None, mask: Function | None = None, scale: float = 0.25
) -> Tensor:
    """Attention with all positions at once. For float64, what is exact."""
    groups = q.size(1) // k.size(1)
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    wide = torch.promote_types(q.dtype, torch.float32)
    found = q.to(wide) @ k.to(wide).mT * scale
    b, h, i, j = (
        torch.arange(n, device=q.device).view(-1, *[1] * (3 - at)).expand(found.shape)
        for at, n in enumerate(found.shape)
    )
    scores = found if score is None else score(found, b, h, i, j)
    if mask is not None:
        scores = torch.where(mask(b, h, i, j), scores, LOW)
    nothing = (scores == LOW).all(-1, keepdim=True)
    weights = scores.masked_fill(nothing, 0.0).softmax(-1).masked_fill(nothing, 0.0)
    return weights.to(q.dtype) @ v


def tensors(sizes: Sequence[int] = (H, H, H), dtype: torch.dtype = torch.float32, **rest: Any) -> list[Tensor]:
    """Query, key and value with these numbers of heads."""
    return [torch.randn(B, n, M, D).to(dtype, **rest) for n in sizes]
