"""Programs that read and write at computed indices, for the tests of the lowering and of backends that make kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from jitney_lowering import GPU

POLICY = replace(GPU, asserts=True, scatters=True)  # of an emitter that writes all there is
Program = tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]


def drawn(high: int, *size: int, low: int = 0, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Random indices."""
    return torch.randint(low, high, size, generator=torch.Generator().manual_seed(1), dtype=dtype)


def different(high: int, *size: int) -> torch.Tensor:
    """Random indices, no two of which are equal in a row."""
    rows = torch.rand((*size[:-1], high), generator=torch.Generator().manual_seed(3))
    return rows.argsort(-1)[..., : size[-1]].contiguous()


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
    "places in a sorted row": (
        lambda row, x: (torch.searchsorted(row, x), torch.bucketize(x * 2, row, right=True, out_int32=True) + 1),
        lambda: (normal(5).sort()[0], torch.cat([normal(3, 5)[:, :4], torch.full((3, 1), float("nan"))], 1)),
    ),
    "places in sorted rows": (
        lambda rows, x: torch.searchsorted(rows, x, side="right") * 2,
        lambda: (drawn(9, 3, 5).sort()[0], drawn(9, 3, 7)),
    ),
    "cross products": (
        lambda a, b: torch.linalg.cross(a, b) + torch.linalg.cross(a[:1], b, dim=1),
        lambda: (normal(4, 3, 3), normal(4, 3, 3)),
    ),
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
WHOLE: dict[str, list[str] | None] = {"sorted": None, "remainders of a size": None, "no index": None,
         "a cache": ["mm.default"] * 2, "into a product": ["mm.default"],
         "places in a sorted row": None, "places in sorted rows": None}  # fmt: skip


def cached(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As of attention: rows go into a cache, of which all is read."""
    x.index_copy_(0, i, y)
    return (y @ x.t()).softmax(-1) @ x


def twice(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """An input is added to, read, and added to again."""
    x.index_add_(0, i, y)
    z = x.exp()
    x.index_add_(0, i.flip(0), z[: len(i)])
    return z


def before(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What was there is read, too, at the same time and later."""
    old, rows = x[i], x.sum(-1)
    x[i] = old * 0.5 + y
    return old + rows[i][:, None] + x.mean()


def part(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A part of an input is written to."""
    x[1:].index_add_(0, i, y)
    return x * 2


WRITES: dict[str, Program] = {
    "a cache": (cached, lambda: (normal(9, 5), different(9, 3), normal(3, 5))),
    "an input twice": (twice, lambda: (normal(9, 5), drawn(9, 4), normal(4, 5))),
    "an input that was read": (before, lambda: (normal(9, 5), different(9, 4), normal(4, 5))),
    "a part of an input": (part, lambda: (normal(9, 5), drawn(8, 4), normal(4, 5))),
    "into a product": (
        lambda x, i, y: (x @ y.t()).index_add(1, i, x[:, :4]) + 1,
        lambda: (normal(9, 5), drawn(6, 4), normal(6, 5)),
    ),
    "into what is stored": (
        lambda x, i, y: ((x.exp() * y).index_add(0, i, y), (x * 2 + y).sum()),
        lambda: (normal(4, 5), drawn(4, 4), normal(4, 5)),
    ),
    "an exclusive sum": (
        lambda x, i, y: x.softmax(0).index_add(0, i, y.softmax(1)).sum(1),
        lambda: (normal(9, 5), drawn(9, 4), normal(4, 5)),
    ),
    "scatter": (
        lambda x, i, y: x.exp().scatter(1, i, y.cos()) * 2,
        lambda: (normal(5, 7), different(7, 5, 3), normal(5, 4)),
    ),
    "scatter of a number": (lambda x, i: x.scatter(0, i, 2.5) + 1, lambda: (normal(5, 7), drawn(5, 3, 6))),
    "scatter_add": (
        lambda x, i, y: x.scatter_add(0, i, y.cos()).relu(),
        lambda: (normal(5, 7), drawn(5, 30, 6), normal(40, 7)),
    ),
    "scatter_add of halves": (
        lambda x, i, y: x.scatter_add(0, i, y) + 1,
        # CUDA's eager rounds each sum: these need no rounding.
        lambda: (drawn(8, 5, 7).bfloat16(), drawn(5, 6, 7), drawn(8, 6, 7).bfloat16()),
    ),
    "scatter_add of bytes": (
        lambda x, i, y: x.scatter_add(0, i, y),
        lambda: (drawn(100, 5, 7, dtype=torch.int8), drawn(5, 30, 7), drawn(100, 30, 7, dtype=torch.int8)),
    ),
    "scatter_reduce": (
        lambda x, i, y: (
            x.scatter_reduce(0, i, y, "sum"),
            x.long().scatter_reduce(0, i, y.long(), "amax"),
            x.int().scatter_reduce(0, i, y.int(), "amin"),
        ),
        lambda: (normal(5, 7) * 9, drawn(5, 30, 7), normal(30, 7) * 9),
    ),
    "index_add": (
        lambda x, i, y: x.index_add(0, i, y.exp(), alpha=0.5) * 3,
        lambda: (normal(5, 7), drawn(5, 40), normal(40, 7)),
    ),
    "index_add of columns": (
        lambda x, i, y: x.index_add(-1, i, y) * 3,
        lambda: (normal(5, 7), drawn(7, 40), normal(5, 40)),
    ),
    "index_add of integers": (
        lambda x, i, y: x.index_add(0, i, y) * 3,
        lambda: (drawn(9, 5, 7), drawn(5, 40), drawn(9, 40, 7)),
    ),
    "index_add of short rows": (
        lambda x, e, y: torch.zeros_like(x).index_add(0, e[1], x[e[0]] * y[:, None]),
        lambda: (normal(5, 16), drawn(5, 2, 70), normal(70)),
    ),
    "index_copy": (lambda x, i, y: x.index_copy(1, i, y) + 1, lambda: (normal(5, 7), different(7, 3), normal(5, 3))),
    "index_fill": (lambda x, i: x.index_fill(1, i, 3.0) + 1, lambda: (normal(5, 7), drawn(7, 3, low=-7))),
    "index_put": (
        lambda x, i, y: x.index_put((i,), y.cos()) + 1,
        lambda: (normal(5, 7), different(5, 3) - 5, normal(3, 7)),
    ),
    "index_put of one row": (
        lambda x, i, y: x.index_put((i,), y.cos()) + 1,
        lambda: (normal(5, 7), different(5, 3), normal(7)),
    ),
    "index_put of a number": (
        lambda x, i, y: x.index_put((i,), y) + 1,
        lambda: (normal(5, 7), different(5, 3), normal(1).sum()),
    ),
    "index_put at pairs": (
        lambda x, i, j, y: x.index_put((i[:, None], j), y.cos()) + 1,
        lambda: (normal(5, 7), different(5, 3), different(7, 4), normal(3, 4)),
    ),
    "index_put adds": (
        lambda x, i, j, y: x.index_put((i, j), y.cos(), accumulate=True) + 1,
        lambda: (normal(5, 7), drawn(5, 40, low=-5), drawn(7, 40), normal(40)),
    ),
    "index_put in the middle": (
        lambda x, i, j, y: torch.ops.aten.index_put(x, [None, i, j], y, True) + 1,
        lambda: (normal(2, 5, 7, 3), drawn(5, 40), drawn(7, 40), normal(2, 40, 3)),
    ),
    "index_put apart": (
        lambda x, i, j, y: torch.ops.aten.index_put(x, [i, None, j], y, True) + 1,
        lambda: (normal(5, 2, 7), drawn(5, 40), drawn(7, 40), normal(40, 2)),
    ),
    "index_put of truth values": (
        lambda x, i, y: (x > 0).index_put((i,), y > 0),
        lambda: (normal(5, 7), different(5, 3), normal(3, 7)),
    ),
    "of a transposed tensor": (
        lambda x, i, y: x.index_add(0, i, y) * 3,
        lambda: (normal(7, 5).t(), drawn(5, 40), normal(40, 7)),
    ),
    "one after the other": (
        lambda x, i, y: x.index_add(0, i, y).index_add(0, i.flip(0), y) * 3,
        lambda: (normal(5, 7), drawn(5, 40), normal(40, 7)),
    ),
    "the result itself": (lambda x, i, y: x.index_add(0, i, y), lambda: (normal(5, 7), drawn(5, 40), normal(40, 7))),
    "of one element": (lambda x, i, y: x.index_add(0, i, y), lambda: (normal(3), drawn(3, 1), normal(1))),
    "means of neighbours": (
        lambda x, e: (
            torch.zeros_like(x).index_add(0, e[1], x[e[0]])
            / torch.zeros_like(x[:, 0]).index_add(0, e[1], torch.ones_like(x[e[0], 0])).clamp(min=1)[:, None]
        ),
        lambda: (normal(6, 5), drawn(6, 2, 31)),
    ),
    "no index": (lambda x, i, y: x.index_add(0, i, y) + 1, lambda: (normal(5, 7), drawn(5, 0), normal(0, 7))),
}
GRADIENTS: dict[str, Program] = {
    "embedding": (lambda w, i: F.embedding(i, w).cos(), lambda: (normal(9, 5), drawn(9, 30, 4))),
    "embedding with padding": (
        lambda w, i: F.embedding(i, w, padding_idx=3).cos(),
        lambda: (normal(9, 5), drawn(9, 30, 4)),
    ),
    "short rows with padding": (
        lambda w, i: F.embedding(i, w, padding_idx=3).cos(),
        lambda: (normal(9, 16), drawn(9, 30, 4)),
    ),
    "embedding of halves": (lambda w, i: F.embedding(i, w), lambda: (normal(9, 16).bfloat16(), drawn(9, 3, 4))),
    "index": (lambda x, i: x[i, i[:3][:, None]].exp(), lambda: (normal(6, 6), drawn(6, 30, low=-6))),
    "index_select": (lambda x, i: x.index_select(1, i).exp(), lambda: (normal(6, 5), drawn(5, 30))),
    "gather": (lambda x, i: x.gather(1, i).exp(), lambda: (normal(6, 5), drawn(5, 4, 7))),
    "messages along edges": (READS["messages along edges"][0], lambda: (normal(6, 5), drawn(6, 2, 31))),
    "index_add": (
        lambda x, i, y: x.index_add(0, i, y.exp()).sin(),
        lambda: (normal(5, 7), drawn(5, 40), normal(40, 7)),
    ),
    "sums of bags": (
        lambda w, i: F.embedding_bag(i, w * 2, mode="sum").cos(),
        lambda: (normal(9, 5), drawn(9, 30, 4)),
    ),
    "means of bags": (
        lambda w, i: F.embedding_bag(i, w, mode="mean", padding_idx=3).cos(),
        lambda: (normal(9, 5), drawn(9, 30, 4)),
    ),
    "means of bags of padding": (
        lambda w, i: F.embedding_bag(i * 0, w, mode="mean", padding_idx=0).cos(),
        lambda: (normal(9, 5), drawn(9, 30, 4)),
    ),
    "means of bags of halves": (
        lambda w, i: F.embedding_bag(i, w, mode="mean") * 3,
        lambda: (normal(9, 16).bfloat16(), drawn(9, 3, 4)),
    ),
    "shares of bags": (
        lambda s, w, i: F.embedding_bag(i, w, mode="sum", per_sample_weights=s, padding_idx=3).cos(),
        lambda: (normal(30, 4), normal(9, 5), drawn(9, 30, 4)),
    ),
    "bags of what depends on its place": (
        lambda w, i, s: (
            F.embedding_bag(i, w.tril(), mode="mean") + F.embedding_bag(i, w.triu(), mode="sum", per_sample_weights=s)
        ),
        lambda: (normal(9, 5), drawn(9, 30, 4), normal(30, 4)),
    ),
    "shares of bags of what depends on its place": (
        lambda s, w, i: F.embedding_bag(i, w.tril(), mode="sum", per_sample_weights=s).tril(),
        lambda: (normal(30, 4), normal(9, 5), drawn(9, 30, 4)),
    ),
    "classes weighted by their number": (
        lambda x, t: F.cross_entropy(
            x, t, torch.arange(1.0, 6.0, device=x.device), label_smoothing=0.2, reduction="none"
        ),
        lambda: (normal(3, 5, 2), drawn(5, 3, 2)),
    ),
}

WRONG: dict[str, tuple[Callable[..., Any], type[Exception] | tuple[type[Exception], ...]]] = {
    "index": (lambda x, i: x[i].relu(), IndexError),
    "indices": (lambda x, i: x[:, i % 5, i].relu(), IndexError),
    "of what is computed": (lambda x, i: x.exp()[i].relu(), IndexError),
    "index_select": (lambda x, i: x.index_select(0, i).relu(), (IndexError, RuntimeError)),
    "gather": (lambda x, i: x.gather(0, i[:, None, None]).relu(), RuntimeError),
    "embedding": (lambda x, i: F.embedding(i, x[:, :, 0]).relu(), IndexError),
    "take": (lambda x, i: x[:, 0, 0].take(i).relu(), IndexError),
    "bags": (lambda x, i: F.embedding_bag(i[:, None], x[:, 0], mode="sum").relu(), RuntimeError),
    "in a part": (lambda x, i: torch.cat([x[i], x.exp()[:2]], 0).relu(), IndexError),
    "scatter_add": (lambda x, i: x[:, 0].scatter_add(0, i[:, None], x[:4, 0]), RuntimeError),
    "index_add": (lambda x, i: x.index_add(0, i, x[:4]), (IndexError, RuntimeError)),
    "index_put": (lambda x, i: x.index_put((i,), x[:4]), IndexError),
    "index_copy": (lambda x, i: x.index_copy(0, i, x[:4]), (IndexError, RuntimeError)),
    "the same for all": (lambda x, i: x[:1].expand(6, 5, 6)[i].relu(), IndexError),
    "a constant": (lambda x, i: torch.full((6,), 2.0, device=x.device)[i] + x[0, 0, 0], IndexError),
    "a constant's rows": (lambda x, i: x.new_ones(6, 2).index_select(0, i) + x[0, 0, 0], (IndexError, RuntimeError)),
}


def refuses(compiled: Callable[..., Any], name: str, place: int) -> None:
    """A compiled program of ``WRONG`` takes indices that are right, and raises as eager does for one that is not."""
    x, right = normal(6, 5, 6), drawn(6, 4)
    wrong = right.clone()
    wrong[2] = place
    fn, exception = WRONG[name]
    with pytest.raises(exception):
        fn(x, wrong)
    compiled(x, right)
    with pytest.raises(exception):
        compiled(x, wrong)
