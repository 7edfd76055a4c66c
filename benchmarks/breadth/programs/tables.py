"""Tables of numbers and categories: forests, anomalies, additive and attention models, explanations, imputation."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def forest(x: Tensor, feature: Tensor, threshold: Tensor, children: Tensor, value: Tensor, depth: int) -> Tensor:
    """A boosted ensemble's prediction (Hummingbird's traversal): every tree walked level by level; missing go right."""
    rows, trees = x.size(0), feature.size(0)
    tree = torch.arange(trees, device=x.device)
    node = torch.zeros(rows, trees, dtype=torch.int64, device=x.device)
    for _ in range(depth):
        asked = feature[tree, node]
        left = x.gather(1, asked) <= threshold[tree, node]
        node = torch.where(left, children[tree, node, 0], children[tree, node, 1])
    margin = value[tree, node].view(rows, -1, 3).sum(1)
    return torch.softmax(margin, dim=-1)


def random_trees(place: Place, trees: int, depth: int, features: int) -> tuple[Tensor, Tensor, Tensor]:
    """Trees whose nodes are in no particular order: features, thresholds, children; leaves are their own children."""
    nodes = 2 ** (depth + 1) - 1
    inner = 2**depth - 1
    feature = torch.randint(features, (trees, nodes))
    threshold = torch.randint(-64, 64, (trees, nodes)) / 64 + 1 / 128
    index = torch.arange(nodes)
    children = torch.stack([2 * index + 1, 2 * index + 2], dim=-1)
    children[inner:] = index[inner:, None]
    stops = torch.rand(trees, nodes) < 0.1
    children = torch.where(stops[..., None], index[:, None], children.expand(trees, nodes, 2))
    return feature.to(place.device), threshold.to(place.device), children.to(place.device)


def boosted(place: Place) -> Made:
    rows, trees, depth, features = place.size(500, 16_384), place.size(60, 300), 6, 28
    feature, threshold, children = random_trees(place, trees, depth, features)
    x = place.randint(512, rows, features) / 128 - 2
    x = x.masked_fill(place.rand(rows, features) < 0.05, torch.nan)
    return forest, (x, feature, threshold, children, 0.1 * place.randn(*feature.shape), depth)


def isolation_scores(
    x: Tensor, feature: Tensor, threshold: Tensor, counts: Tensor, depth: int
) -> tuple[Tensor, Tensor]:
    """Liu et al., 2008: path lengths in random trees, corrected by what is left in the leaf; a quantile's outliers."""
    rows, trees = x.size(0), feature.size(0)
    node = torch.zeros(trees, rows, dtype=torch.int64, device=x.device)
    length = torch.zeros(trees, rows, dtype=x.dtype, device=x.device)
    alive = torch.ones(trees, rows, dtype=torch.bool, device=x.device)
    columns = x.T
    row = torch.arange(rows, device=x.device)
    for _ in range(depth):
        alive = alive & (counts.gather(1, node) > 1)
        value = columns[feature.gather(1, node), row]
        child = 2 * node + 1 + (value >= threshold.gather(1, node)).long()
        node = torch.where(alive, child, node)
        length = length + alive
    left = counts.gather(1, node).to(x.dtype)

    def average(n: Tensor) -> Tensor:
        safe = n.clamp(min=2)
        path = 2 * (torch.log(safe - 1) + 0.5772156649) - 2 * (safe - 1) / safe
        return torch.where(n > 2, path, (n == 2).to(n.dtype))

    whole = average(x.new_tensor([256.0]))
    score = 2 ** (-(length + average(left)).mean(0) / whole)
    cut = torch.quantile(score, 0.95)
    return score, score > cut


def isolation(place: Place) -> Made:
    rows, trees, depth, features = place.size(1000, 40_000), place.size(50, 100), 8, 12
    feature, threshold, _ = random_trees(place, trees, depth, features)
    level = torch.log2(torch.arange(feature.size(1)) + 1.0).floor()
    counts = (256 / 2**level * 2 * torch.rand(feature.shape)).long().clamp(min=1)
    counts[:, 0] = 256
    return isolation_scores, (
        place.randint(512, rows, features) / 128 - 2,
        feature,
        threshold,
        counts.to(place.device),
        depth,
    )


def entmax(scores: Tensor, steps: int = 20) -> Tensor:
    """1.5-entmax by bisection, differentiable through its last step."""
    z = scores / 2
    high = z.amax(-1, keepdim=True)
    low = high - 1
    high = high - (1 / z.size(-1)) ** 0.5
    with torch.no_grad():
        for _ in range(steps):
            middle = (low + high) / 2
            excess = (z - middle).clamp(min=0).square().sum(-1, keepdim=True) - 1
            low = torch.where(excess >= 0, middle, low)
            high = torch.where(excess >= 0, high, middle)
    p = (z - low).clamp(min=0).square()
    return p / p.sum(-1, keepdim=True)


class FeatureTokens(nn.Module):
    """FT-Transformer with periodic embeddings of numbers, sparse attention by entmax, and a reading token."""

    def __init__(self, numbers: int, categories: list[int], d: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.frequency = nn.Parameter(0.3 * torch.randn(numbers, 8))
        self.number = nn.Parameter(0.2 * torch.randn(numbers, 16, d))
        self.number_bias = nn.Parameter(torch.zeros(numbers, d))
        self.tables = nn.ModuleList(nn.Embedding(size, d) for size in categories)
        self.reader = nn.Parameter(0.1 * torch.randn(d))
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(2 * d, d)
        self.head = nn.Linear(d, 1)

    def forward(self, x: Tensor, categories: Tensor, y: Tensor) -> Tensor:
        waves = 2 * math.pi * self.frequency * x[..., None]
        periodic = torch.cat([waves.cos(), waves.sin()], dim=-1)
        tokens = F.relu(torch.einsum("bnf,nfd->bnd", periodic, self.number) + self.number_bias)
        looked_up = torch.stack([table(categories[:, i]) for i, table in enumerate(self.tables)], dim=1)
        h = torch.cat([self.reader.expand(x.size(0), 1, -1), tokens, looked_up], dim=1)
        b, n, _ = h.shape
        q, k, v = self.qkv(self.norm1(h)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = entmax(q @ k.mT / q.size(-1) ** 0.5)
        h = h + self.out((weights @ v).transpose(1, 2).flatten(2))
        a, g = self.up(self.norm2(h)).chunk(2, dim=-1)
        h = h + self.down(a * F.relu(g))
        return F.mse_loss(self.head(F.relu(h[:, 0])).squeeze(-1), y)


def feature_tokens(place: Place) -> Made:
    b, numbers, d = place.size(64, 4096), place.size(8, 20), place.size(32, 96)
    sizes = [5, 12, 30, 7]
    categories = torch.stack([place.randint(size, b) for size in sizes], dim=1)
    return FeatureTokens(numbers, sizes, d).to(place.device), (place.randn(b, numbers), categories, place.randn(b))


class AdditiveModel(nn.Module):
    """Agarwal et al., 2021: a network with ExU units for each feature, all at once by batched products; penalties."""

    def __init__(self, features: int, width: int, hidden: int = 32) -> None:
        super().__init__()
        self.scale = nn.Parameter(0.5 * torch.randn(features, width))
        self.shift = nn.Parameter(torch.randn(features, width))
        sizes = [width, hidden, hidden, 1]
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(features, a, b) / a**0.5) for a, b in itertools.pairwise(sizes)
        )
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(features, 1, b)) for b in sizes[1:])
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        h = (x.T[:, :, None] - self.shift[:, None]) * self.scale.exp()[:, None]
        h = h.clamp(0, 1)
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(b, h, w)
            if i < 2:
                h = F.relu(h)
        parts = h.squeeze(-1)
        logit = parts.sum(0) + self.bias
        penalty = 0.001 * parts.square().mean() + 1e-5 * sum(w.square().sum() for w in self.weights)
        return F.binary_cross_entropy_with_logits(logit, y) + penalty, parts.detach().var(1)


def additive(place: Place) -> Made:
    b, features, width = place.size(256, 4096), place.size(12, 32), place.size(64, 256)
    return AdditiveModel(features, width).to(place.device), (place.randn(b, features), 1.0 * place.randint(2, b))


class KernelShap(nn.Module):
    """Lundberg and Lee, 2017: coalitions of features against a background, a weighted regression per explained row."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(features, width), nn.Tanh(), nn.Linear(width, 1), nn.Sigmoid())

    def forward(self, x: Tensor, background: Tensor, coalition: Tensor) -> tuple[Tensor, Tensor]:
        rows, features = x.shape
        mixed = torch.where(coalition[None, :, None], x[:, None, None], background[None, None])
        value = self.model(mixed.flatten(0, 2)).view(rows, coalition.size(0), -1).mean(-1)
        base, full = self.model(background).mean(), self.model(x).squeeze(-1)
        size = coalition.sum(1).to(x.dtype)
        m = float(features)
        log_binomial = math.lgamma(m + 1) - torch.lgamma(size + 1) - torch.lgamma(m - size + 1)
        weight = (m - 1) / (log_binomial.exp() * size * (m - size))
        z = coalition.to(x.dtype)
        reduced = z[:, :-1] - z[:, -1:]
        target = value - base - z[:, -1] * (full - base)[:, None]
        gram = torch.einsum("ci,c,cj->ij", reduced, weight, reduced)
        right = torch.einsum("ci,c,rc->ir", reduced, weight, target)
        phi = torch.linalg.solve(gram, right).T
        last = full - base - phi.sum(1)
        return torch.cat([phi, last[:, None]], dim=1), base


def explanations(place: Place) -> Made:
    rows, features, coalitions, background = place.size(8, 64), 12, place.size(100, 512), place.size(10, 50)
    picked = place.rand(coalitions, features) < 0.5
    picked[:, 0], picked[:, 1] = True, False
    order = place.rand(coalitions, features).argsort(1)
    coalition = picked.gather(1, order)
    return KernelShap(features, 64).to(place.device), (
        place.randn(rows, features),
        place.randn(background, features),
        coalition,
    )


def chained_imputation(x: Tensor, missing: Tensor, rounds: int = 2, ridge: float = 1.0) -> tuple[Tensor, Tensor]:
    """MICE: every column in turn is regressed on the others where it is known, and filled in where it is not."""
    known = ~missing
    count = known.sum(0)
    mean = torch.where(known, x, 0.0).sum(0) / count
    filled = torch.where(known, x, mean)
    d = x.size(1)
    eye = ridge * torch.eye(d, dtype=x.dtype, device=x.device)
    changes = []
    for _ in range(rounds):
        before = filled
        for j in range(d):
            design = torch.cat([filled[:, :j], filled[:, j + 1 :], torch.ones_like(filled[:, :1])], dim=1)
            weight = known[:, j, None].to(x.dtype)
            gram = (design * weight).T @ design + eye
            beta = torch.linalg.solve(gram, (design * weight).T @ filled[:, j])
            column = torch.where(missing[:, j], design @ beta, filled[:, j])
            filled = torch.cat([filled[:, :j], column[:, None], filled[:, j + 1 :]], dim=1)
        changes.append((filled - before).square().mean())
    return filled, torch.stack(changes)


def imputation(place: Place) -> Made:
    rows, d = place.size(2000, 50_000), place.size(8, 16)
    x = place.randn(rows, 3) @ place.randn(3, d) + 0.2 * place.randn(rows, d)
    missing = place.rand(rows, d) < 0.2
    return chained_imputation, (x.masked_fill(missing, torch.nan), missing)


ROWS: tuple[Row, ...] = (
    Row("program/boosted_forest_traversal", boosted),
    Row("program/isolation_forest", isolation),
    Row("program/entmax_feature_tokens", feature_tokens, "training"),
    Row("program/neural_additive_model", additive, "training"),
    Row("program/kernel_shap", explanations),
    Row("program/chained_imputation", imputation),
)
