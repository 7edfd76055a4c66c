"""Programs that read at computed indices, for the lowering's tests and those of backends that make kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

Program = tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]


def drawn(high: int, *size: int, low: int = 0, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Random indices."""
    return torch.randint(low, high, size, generator=torch.Generator().manual_seed(1), dtype=dtype)


def normal(*size: int) -> torch.Tensor:
    """Random numbers."""
    return torch.randn(size, generator=torch.Generator().manual_seed(2))


READS: dict[str, Program] = {
    "rows": (lambda x, i: x[i].relu(), lambda: (normal(6, 5), drawn(6, 7))),
    "short rows": (
        lambda x, y, i: x[i[0]] * y[i[1]] + i[0][:, None],
        lambda: (normal(6, 16), normal(7, 16), drawn(6, 2, 71)),
    ),
    "short rows with room": (lambda x, i: x.exp()[i % 6].cos(), lambda: (normal(6, 15), drawn(99, 300, low=-99))),
    "sums of rows": (lambda w, i: (F.embedding(i, w) * 2).sum(1), lambda: (normal(9, 16), drawn(9, 5, 7))),
    "negative indices": (lambda x, i: x[i] + 1, lambda: (normal(6, 5), drawn(6, 7, low=-6))),
    "narrow indices": (lambda x, i: x[i] * 2, lambda: (normal(6, 5), drawn(6, 7, dtype=torch.int32))),
    "columns": (lambda x, i: x[:, i].exp(), lambda: (normal(6, 5), drawn(5, 3, low=-5))),
    "broadcast indices": (lambda x, i, j: x[i[:, None], j] - 1, lambda: (normal(6, 5), drawn(6, 4), drawn(5, 3))),
    "side by side in the middle": (
        lambda x, i, j: x[:, i, j].cos(),
        lambda: (normal(2, 6, 5, 3), drawn(6, 4), drawn(5, 4, low=-5)),
    ),
    "apart": (lambda x, i, j: x[i, :, j].cos(), lambda: (normal(6, 2, 5), drawn(6, 3, 4), drawn(5, 4))),
    "apart and at the end": (lambda x, i, j: x[:, i, :, j] + 1, lambda: (normal(2, 6, 3, 5), drawn(6, 4), drawn(5, 4))),
    "an index without dimensions": (
        lambda x, i, j: torch.ops.aten.index(x, [i, j]).exp(),
        lambda: (normal(6, 5), drawn(6), drawn(5, 4)),
    ),
    "of a transposed tensor": (lambda x, i: x[i] * 3, lambda: (normal(5, 6).t(), drawn(6, 7))),
    "of what is computed": (lambda x, i: x.exp()[i].sum(-1), lambda: (normal(6, 5), drawn(6, 3))),
    "of what is computed, more than there is": (lambda x, i: x.exp().sin()[i], lambda: (normal(6, 5), drawn(6, 30))),
    "of what depends on its place": (lambda x, i: x.triu()[i], lambda: (normal(6, 5), drawn(6, 3))),
    "of joined parts": (lambda x, i: torch.cat([x, x.exp()])[i].relu(), lambda: (normal(6, 5), drawn(12, 9))),
    "of what was picked": (lambda x, i, j: x[i][j] + 1, lambda: (normal(6, 5), drawn(6, 8), drawn(8, 4))),
    "index_select": (lambda x, i: x.index_select(1, i).relu(), lambda: (normal(6, 5, 2), drawn(5, 4))),
    "index_select of one": (lambda x, i: x.index_select(0, i).relu(), lambda: (normal(6, 5), drawn(6))),
    "gather": (lambda x, i: x.gather(1, i).relu(), lambda: (normal(6, 5), drawn(5, 4, 7))),
    "take_along_dim": (lambda x, i: x.take_along_dim(i, 0).relu(), lambda: (normal(6, 5), drawn(6, 3, 1))),
    "take": (lambda x, i: x.t().take(i).relu(), lambda: (normal(6, 5), drawn(30, 3, 4, low=-30))),
    "embedding": (lambda w, i: F.embedding(i, w).sum(-1), lambda: (normal(9, 5), drawn(9, 3, 4))),
    "embedding of halves": (lambda w, i: F.embedding(i, w) * 3, lambda: (normal(9, 5).bfloat16(), drawn(9, 3, 4))),
    "embedding and norm": (
        lambda w, p, i: F.layer_norm(F.embedding(i, w) + p, (8,)),
        lambda: (normal(9, 8), normal(4, 8), drawn(9, 3, 4)),
    ),
    "messages along edges": (
        lambda x, e: (x[e[0]] * x[e[1]]).sum(-1).sigmoid(),
        lambda: (normal(6, 5), drawn(6, 2, 11)),
    ),
    "a permutation": (
        lambda x, i: 0.3 * x.tanh() + 0.7 * x.tanh()[i],
        lambda: (normal(6, 5), torch.randperm(6, generator=torch.Generator().manual_seed(0))),
    ),
    "the greatest": (lambda x: x.gather(1, x.argmax(1, keepdim=True)) + 1, lambda: (normal(6, 5),)),
    "sorted": (lambda x, y: y.gather(1, x.sort(1)[1]) + 1, lambda: (normal(6, 5), normal(6, 5))),
    "remainders": (lambda x, i: x[i % 6] + x[i.clamp(0, 5)], lambda: (normal(6, 5), drawn(99, 7, low=-99))),
    "remainders of a size": (lambda x, i: x[i % x.shape[0]], lambda: (normal(6, 5), drawn(99, 7, low=-99))),
    "a range": (lambda x: x[torch.arange(4, device=x.device)] + 1, lambda: (normal(6, 5),)),
    "in a part": (
        lambda x, i: torch.cat([x[i], x.exp()[:2]], 0).relu(),
        lambda: (normal(6, 5), drawn(6, 3)),
    ),
    "in a slice": (
        lambda x, i, y: torch.slice_scatter(y, x[i].cos(), 0, 1, 4),
        lambda: (normal(6, 5), drawn(6, 3), normal(7, 5)),
    ),
    "no index": (lambda x, i: x[i].relu(), lambda: (normal(6, 5), drawn(6, 0))),
    "truth values picked": (lambda x, i: (x > 0)[i] & (x > 1)[i], lambda: (normal(6, 5), drawn(6, 7))),
    "integers picked": (lambda x, i: (x * 9).to(torch.int8)[i] + 1, lambda: (normal(6, 5), drawn(6, 7))),
    "doubles": (lambda x, i: x[i].exp(), lambda: (normal(6, 5).double(), drawn(6, 7))),
}
# These have operators that run as a whole; None: it does not matter.
WHOLE: dict[str, list[str] | None] = {"sorted": ["sort.default"], "remainders of a size": None}

WRONG: dict[str, tuple[Callable[..., Any], type[Exception] | tuple[type[Exception], ...]]] = {
    "index": (lambda x, i: x[i].relu(), IndexError),
    "indices": (lambda x, i: x[:, i % 5, i].relu(), IndexError),
    "of what is computed": (lambda x, i: x.exp()[i].relu(), IndexError),
    "index_select": (lambda x, i: x.index_select(0, i).relu(), (IndexError, RuntimeError)),
    "gather": (lambda x, i: x.gather(0, i[:, None, None]).relu(), RuntimeError),
    "embedding": (lambda x, i: F.embedding(i, x[:, :, 0]).relu(), IndexError),
    "take": (lambda x, i: x[:, 0, 0].take(i).relu(), IndexError),
    "in a part": (lambda x, i: torch.cat([x[i], x.exp()[:2]], 0).relu(), IndexError),
}
