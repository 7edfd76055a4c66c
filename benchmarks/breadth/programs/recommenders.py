"""Recommenders and tables."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class WideAndDeep(nn.Module):
    """Cheng et al., 2016: bags of categories, weighted, and a linear part over crossed hashes."""

    def __init__(self, rows: int, d: int) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(rows, d, mode="sum")
        self.wide = nn.Embedding(rows, 1)
        self.deep = nn.Sequential(nn.Linear(d + 13, 64), nn.ReLU(), nn.Linear(64, 1))
        self.rows = rows

    def forward(self, ids: Tensor, weights: Tensor, dense: Tensor, clicked: Tensor) -> Tensor:
        pooled = self.bag(ids, per_sample_weights=weights)
        crossed = (ids[:, :-1] * 31 + ids[:, 1:]) % self.rows
        wide = self.wide(crossed).sum((1, 2))
        logit = wide + self.deep(torch.cat([pooled, torch.log1p(dense.abs())], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(logit, clicked)


def wide_and_deep(place: Place) -> Made:
    n, rows = place.size(2048, 65_536), place.size(5000, 1_000_000)
    model = WideAndDeep(rows, 32).to(place.device)
    return model, (place.randint(rows, n, 10), place.rand(n, 10), place.randn(n, 13), (place.rand(n) < 0.2).float())


class DeepFM(nn.Module):
    """Guo et al., 2017: square of sums less sum of squares, beside an MLP over the same embeddings."""

    offsets: Tensor

    def __init__(self, fields: int, rows: int, d: int) -> None:
        super().__init__()
        self.first, self.second = nn.Embedding(fields * rows, 1), nn.Embedding(fields * rows, d)
        self.mlp = nn.Sequential(nn.Linear(fields * d, 128), nn.ReLU(), nn.Linear(128, 1))
        self.bias = nn.Parameter(torch.zeros(1))
        self.register_buffer("offsets", torch.arange(fields) * rows)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x = x + self.offsets
        e = self.second(x)
        square_of_sum = e.sum(dim=1) ** 2
        sum_of_square = (e**2).sum(dim=1)
        fm = 0.5 * (square_of_sum - sum_of_square).sum(dim=1, keepdim=True)
        logit = self.bias + self.first(x).sum(1) + 0.01 * fm + self.mlp(e.flatten(1))
        return F.binary_cross_entropy(torch.sigmoid(logit.squeeze(1)).clamp(1e-6, 1 - 1e-6), y)


def deep_fm(place: Place) -> Made:
    n, fields, rows = place.size(1024, 32_768), 20, place.size(500, 50_000)
    return DeepFM(fields, rows, 16).to(place.device), (place.randint(rows, n, fields), place.rand(n))


class DLRM(nn.Module):
    """Naumov et al., 2019: the lower triangle of the products of all pairs of features."""

    pairs: Tensor

    def __init__(self, tables: int, rows: int, d: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(rows, d, mode="mean") for _ in range(tables)])
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, d), nn.ReLU())
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, offset=-1))
        self.top = nn.Sequential(nn.Linear(d + tables * (tables + 1) // 2, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: Tensor, *sparse: Tensor) -> Tensor:
        x = self.bottom(dense)
        features = torch.stack([x] + [table(ids) for table, ids in zip(self.tables, sparse, strict=True)], dim=1)
        z = torch.bmm(features, features.transpose(1, 2))
        interactions = z[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat([x, interactions], dim=1)))


def dlrm(place: Place) -> Made:
    n, tables, rows = place.size(1024, 32_768), 8, place.size(1000, 500_000)
    sparse = (place.randint(rows, n, 4) for _ in range(tables))
    return DLRM(tables, rows, 16).to(place.device), (place.randn(n, 13), *sparse)


class BPR(nn.Module):
    """Bayesian personalised ranking with biases and regularisation of the rows in use."""

    def __init__(self, users: int, items: int, d: int) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(users, d), nn.Embedding(items, d)
        self.item_bias = nn.Embedding(items, 1)

    def forward(self, u: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        pu, qi, qj = self.user(u)[:, None], self.item(i)[:, None], self.item(j)
        positive = (pu * qi).sum(-1) + self.item_bias(i)
        negative = torch.matmul(pu, qj.mT).squeeze(1) + self.item_bias(j).squeeze(-1)
        loss = -F.logsigmoid(positive - negative).mean() + 1e-4 * (pu.pow(2).mean() + qj.pow(2).mean())
        return loss, (positive > negative).to(loss.dtype).mean()


def matrix_factorisation(place: Place) -> Made:
    n, items = place.size(1024, 65_536), place.size(4000, 500_000)
    args = place.randint(items, n), place.randint(items, n), place.randint(items, n, 4)
    return BPR(items, items, 32).to(place.device), args


class SoftTrees(nn.Module):
    """An ensemble of oblivious decision trees (NODE's): sigmoid splits, leaves by products of bits."""

    bits: Tensor

    def __init__(self, features: int, trees: int, depth: int) -> None:
        super().__init__()
        self.choice = nn.Parameter(torch.randn(features, trees, depth))
        self.threshold = nn.Parameter(torch.randn(trees, depth) * 0.5)
        self.leaves = nn.Parameter(torch.randn(trees, 2**depth))
        codes = torch.arange(2**depth)
        self.register_buffer("bits", ((codes[:, None] >> torch.arange(depth)) & 1).bool())

    def forward(self, x: Tensor) -> Tensor:
        value = torch.einsum("bf,ftd->btd", x, self.choice.softmax(0))
        right = torch.sigmoid(4 * (value - self.threshold)).unsqueeze(2)
        reached = torch.where(self.bits, right, 1 - right).prod(dim=-1)
        return torch.einsum("btl,tl->b", reached, self.leaves) / len(self.leaves)


def soft_trees(place: Place) -> Made:
    n, trees = place.size(256, 16_384), place.size(32, 256)
    return SoftTrees(32, trees, 4).to(place.device), (place.randn(n, 32),)


ROWS: tuple[Row, ...] = (
    Row("program/wide_and_deep", wide_and_deep, "training"),
    Row("program/deep_fm", deep_fm, "training"),
    Row("program/dlrm", dlrm),
    Row("program/bpr", matrix_factorisation, "training"),
    Row("program/soft_decision_trees", soft_trees, "training"),
)
