"""Ranking of advertisements and items: interests, crosses, towers, tasks, hashed bags, lists."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class Dice(nn.Module):
    """DIN's activation: batch statistics decide how much of the negative side passes."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(d, affine=False, track_running_stats=False)
        self.alpha = nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        p = torch.sigmoid(self.norm(x))
        return p * x + self.alpha * (1 - p) * x


class DeepInterest(nn.Module):
    """Zhou et al., 2018: the history is weighed against the candidate by a small network, without softmax."""

    def __init__(self, items: int, categories: int, d: int) -> None:
        super().__init__()
        self.item, self.category = nn.Embedding(items, d), nn.Embedding(categories, d)
        self.attend = nn.Sequential(
            nn.Linear(8 * d, 80), nn.Sigmoid(), nn.Linear(80, 40), nn.Sigmoid(), nn.Linear(40, 1)
        )
        self.first, self.dice1 = nn.Linear(6 * d, 128), Dice(128)
        self.second, self.dice2 = nn.Linear(128, 64), Dice(64)
        self.last = nn.Linear(64, 1)

    def forward(
        self, item: Tensor, category: Tensor, history: Tensor, kinds: Tensor, length: Tensor, click: Tensor
    ) -> Tensor:
        target = torch.cat([self.item(item), self.category(category)], dim=-1)
        past = torch.cat([self.item(history), self.category(kinds)], dim=-1)
        query = target[:, None].expand_as(past)
        score = self.attend(torch.cat([query, past, query - past, query * past], dim=-1)).squeeze(-1)
        mask = torch.arange(history.size(1), device=history.device) < length[:, None]
        score = score.masked_fill(~mask, 0.0)
        interest = (score[:, None] @ past).squeeze(1)
        x = torch.cat([target, interest, target * interest], dim=-1)
        x = self.dice2(self.second(self.dice1(self.first(x))))
        return F.binary_cross_entropy_with_logits(self.last(x).squeeze(-1), click)


def deep_interest(place: Place) -> Made:
    batch, length, items, d = place.size(64, 2048), place.size(24, 64), place.size(2000, 100_000), place.size(16, 32)
    return DeepInterest(items, 200, d).to(place.device), (
        place.randint(items, batch),
        place.randint(200, batch),
        place.randint(items, batch, length),
        place.randint(200, batch, length),
        place.randint(length, batch),
        1.0 * place.randint(2, batch),
    )


class CrossNetwork(nn.Module):
    """Wang et al., 2021: DCN-v2 with crosses of low rank, mixed over experts, beside a deep part."""

    def __init__(self, fields: int, d: int, rows: int, rank: int = 16, experts: int = 3, layers: int = 2) -> None:
        super().__init__()
        width = fields * d
        self.embed = nn.Embedding(rows, d)
        self.register_buffer("offset", torch.arange(fields) * (rows // fields))
        self.u = nn.Parameter(0.1 * torch.randn(layers, experts, width, rank))
        self.v = nn.Parameter(0.1 * torch.randn(layers, experts, rank, width))
        self.c = nn.Parameter(0.1 * torch.randn(layers, experts, rank, rank))
        self.bias = nn.Parameter(torch.zeros(layers, width))
        self.gates = nn.ModuleList(nn.Linear(width, 1) for _ in range(experts))
        self.deep = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.head = nn.Linear(width + 64, 1)

    def forward(self, features: Tensor, click: Tensor) -> Tensor:
        x0 = self.embed(features + self.offset).flatten(1)
        x = x0
        for layer in range(self.u.size(0)):
            outputs, scores = [], []
            for expert, gate in enumerate(self.gates):
                scores.append(gate(x))
                low = torch.tanh(x @ self.v[layer, expert].T)
                low = torch.tanh(low @ self.c[layer, expert])
                outputs.append(x0 * (low @ self.u[layer, expert].T + self.bias[layer]))
            weights = torch.stack(scores, 1).softmax(1)
            x = (weights * torch.stack(outputs, 1)).sum(1) + x
        logit = self.head(torch.cat([x, self.deep(x0)], dim=-1)).squeeze(-1)
        return F.binary_cross_entropy_with_logits(logit, click)


def deep_and_cross(place: Place) -> Made:
    batch, fields, d, each = place.size(256, 8192), place.size(12, 26), place.size(8, 16), place.size(100, 4000)
    model = CrossNetwork(fields, d, fields * each).to(place.device)
    return model, (place.randint(each, batch, fields), 1.0 * place.randint(2, batch))


class TwoTowers(nn.Module):
    """Yi et al., 2019: in-batch negatives with the logarithm of their frequency taken off, same items masked."""

    def __init__(self, users: int, items: int, d: int) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(users, d), nn.Embedding(items, d)
        self.up = nn.Sequential(nn.Linear(2 * d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.down = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))

    def forward(self, user: Tensor, recent: Tensor, item: Tensor, frequency: Tensor, reward: Tensor) -> Tensor:
        seen = (recent > 0).unsqueeze(-1)
        context = (self.item(recent) * seen).sum(1) / seen.sum(1).clamp(min=1)
        query = F.normalize(self.up(torch.cat([self.user(user), context], dim=-1)), dim=-1)
        key = F.normalize(self.down(self.item(item)), dim=-1)
        logits = query @ key.T / 0.05 - frequency.log()
        same = item[:, None] == item[None]
        same.fill_diagonal_(False)
        logits = logits.masked_fill(same, torch.finfo(logits.dtype).min)
        target = torch.arange(item.numel(), device=item.device)
        loss = F.cross_entropy(logits, target, reduction="none")
        return (reward * loss).sum() / reward.sum()


def two_towers(place: Place) -> Made:
    batch, users, items, d = (
        place.size(256, 4096),
        place.size(1000, 50_000),
        place.size(1000, 50_000),
        place.size(32, 64),
    )
    return TwoTowers(users, items, d).to(place.device), (
        place.randint(users, batch),
        place.randint(items, batch, 20),
        place.randint(items // 4, batch),
        (1 + place.randint(100, batch)) / 1000,
        place.rand(batch),
    )


class MultiGate(nn.Module):
    """MMoE with ESMM's chain of tasks: impression to click to conversion, over experts that the tasks share."""

    def __init__(self, d: int, experts: int = 4, width: int = 64) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, width), nn.ReLU()) for _ in range(experts))
        self.gates = nn.ModuleList(nn.Linear(d, experts) for _ in range(3))
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 32, bias=False), nn.BatchNorm1d(32), nn.PReLU(), nn.Linear(32, 1))
            for _ in range(3)
        )
        self.log_variance = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor, click: Tensor, conversion: Tensor, dwell: Tensor) -> dict[str, Tensor]:
        shared = torch.stack([expert(x) for expert in self.experts], dim=1)
        out = []
        for gate, tower in zip(self.gates, self.towers, strict=True):
            weight = F.softmax(gate(x), dim=1).unsqueeze(-1)
            out.append(tower((weight * shared).sum(1)).squeeze(-1))
        p_click = torch.sigmoid(out[0])
        p_both = p_click * torch.sigmoid(out[1])
        losses = torch.stack(
            [
                F.binary_cross_entropy(p_click, click),
                F.binary_cross_entropy(p_both, conversion * click),
                (click * (out[2] - torch.log1p(dwell)) ** 2).sum() / click.sum(),
            ]
        )
        total = (torch.exp(-self.log_variance) * losses + self.log_variance).sum()
        return {"loss": total, "click": p_click.detach(), "both": p_both.detach()}


def multi_gate(place: Place) -> Made:
    batch, d = place.size(512, 32_768), place.size(64, 256)
    return MultiGate(d).to(place.device), (
        place.randn(batch, d),
        1.0 * place.randint(2, batch),
        1.0 * place.randint(2, batch),
        20 * place.rand(batch),
    )


class HashedBags(nn.Module):
    """Bags of features of unequal size: quotient and remainder embeddings, and a multi-hash one; summed by offsets."""

    def __init__(self, buckets: int, d: int) -> None:
        super().__init__()
        self.buckets = buckets
        self.quotient = nn.EmbeddingBag(buckets, d, mode="sum", include_last_offset=True)
        self.remainder = nn.EmbeddingBag(buckets, d, mode="sum", include_last_offset=True)
        self.pool = nn.Parameter(0.1 * torch.randn(buckets, d))
        self.importance = nn.Embedding(buckets, 2)
        self.head = nn.Linear(3 * d, 1)

    def forward(self, feature: Tensor, weight: Tensor, offsets: Tensor, label: Tensor) -> Tensor:
        q = torch.div(feature, self.buckets, rounding_mode="floor") % self.buckets
        r = feature % self.buckets
        one = self.quotient(q, offsets, per_sample_weights=weight)
        two = self.remainder(r, offsets, per_sample_weights=weight)
        hashed = torch.stack([(feature * 2654435761 + 97) % self.buckets, (feature * 40503 + 13) % self.buckets], -1)
        mixed = (self.pool[hashed] * self.importance(r).softmax(-1)[..., None]).sum(1)
        bags = offsets.numel() - 1
        bag = torch.repeat_interleave(torch.arange(bags, device=feature.device), offsets.diff(), output_size=r.numel())
        three = mixed.new_zeros(bags, mixed.size(-1)).index_add(0, bag, mixed * weight[:, None])
        x = torch.cat([one * two, one + two, three], dim=-1)
        return F.binary_cross_entropy_with_logits(self.head(x).squeeze(-1), label)


def hashed_bags(place: Place) -> Made:
    bags, total, buckets, d = (
        place.size(512, 16_384),
        place.size(8192, 262_144),
        place.size(500, 8192),
        place.size(16, 64),
    )
    cuts = torch.randint(total, (bags - 1,)).sort().values
    offsets = torch.cat([torch.tensor([0]), cuts, torch.tensor([total])]).to(place.device)
    return HashedBags(buckets, d).to(place.device), (
        place.randint(buckets * buckets, total),
        place.rand(total),
        offsets,
        1.0 * place.randint(2, bags),
    )


class FieldAware(nn.Module):
    """Juan et al., 2016: every feature has an embedding for each other field; FwFM's field weights beside it."""

    def __init__(self, fields: int, rows: int, d: int = 4) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, fields * d)
        self.linear = nn.Embedding(rows, 1)
        self.field_weight = nn.Parameter(torch.randn(fields, fields))
        self.fields, self.d = fields, d
        self.register_buffer("pairs", torch.triu_indices(fields, fields, offset=1))

    def forward(self, features: Tensor, value: Tensor) -> Tensor:
        e = self.table(features).unflatten(-1, (self.fields, self.d)) * value[..., None, None]
        i, j = self.pairs
        interaction = (e[:, i, j] * e[:, j, i]).sum(-1)
        strength = self.field_weight[i, j]
        first = (self.linear(features).squeeze(-1) * value).sum(-1)
        return torch.sigmoid(first + (interaction * strength).sum(-1))


def field_aware(place: Place) -> Made:
    batch, fields, rows = place.size(256, 16_384), place.size(16, 24), place.size(4000, 200_000)
    return FieldAware(fields, rows).to(place.device), (place.randint(rows, batch, fields), place.rand(batch, fields))


def lambda_rank(scores: Tensor, relevance: Tensor, length: Tensor, k: int = 10) -> tuple[Tensor, Tensor]:
    """LambdaLoss with NDCG weights at k over padded lists, and the metric itself."""
    n = scores.size(1)
    index = torch.arange(n, device=scores.device)
    valid = index < length[:, None]
    masked = scores.masked_fill(~valid, -torch.inf)
    order = masked.detach().argsort(dim=1, descending=True, stable=True)
    ranked = masked.gather(1, order)
    gains = (2.0**relevance - 1).masked_fill(~valid, 0.0)
    discount = torch.log2(index + 2.0).to(scores.dtype)
    ideal = gains.sort(1, descending=True).values[:, :k] / discount[:k]
    best = ideal.sum(1, keepdim=True).clamp(min=1e-6)
    g = gains.gather(1, order) / best
    inverse = (1 / discount).masked_fill(index >= k, 0.0)
    weight = (g[:, :, None] - g[:, None]).abs() * (inverse[:, None] - inverse[None]).abs()
    real = valid.gather(1, order)
    pairs = real[:, :, None] & real[:, None] & (g[:, :, None] > g[:, None])
    difference = (ranked[:, :, None] - ranked[:, None]).clamp(-50, 50).masked_fill(~pairs, 0.0)
    loss = torch.where(pairs, weight * F.softplus(-difference), 0.0).sum((1, 2))
    ndcg = (g[:, :k] * inverse[:k]).sum(1)
    return loss.mean(), ndcg.detach()


def listwise(place: Place) -> Made:
    batch, n = place.size(32, 512), place.size(60, 160)
    lengths = n // 2 + place.randint(n // 2, batch)
    return lambda_rank, (place.randn(batch, n).requires_grad_(), 1.0 * place.randint(5, batch, n), lengths)


ROWS: tuple[Row, ...] = (
    Row("program/deep_interest_network", deep_interest, "training"),
    Row("program/cross_network_mixture", deep_and_cross, "training"),
    Row("program/two_tower_retrieval", two_towers, "training"),
    Row("program/multi_gate_conversion", multi_gate, "training"),
    Row("program/hashed_embedding_bags", hashed_bags, "training"),
    Row("program/field_aware_factorisation", field_aware),
    Row("program/lambda_rank", listwise, "training"),
)
