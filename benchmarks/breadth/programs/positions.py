"""Sequence models since 2024: where a token is, what it attends to, how bytes become patches, what neurons mean."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def rotate_half(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([-b, a], -1)


class MultimodalRotary(nn.Module):
    """Qwen2-VL's attention: the frequencies are shared out among time, height and width of pictures in the text."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * groups * self.size)
        self.out = nn.Linear(width, width, bias=False)
        half = self.size // 2
        self.sections = [half - 2 * (3 * half // 8), 3 * half // 8, 3 * half // 8]

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        b, t, _ = x.shape
        half = self.size // 2
        inverse = 1e6 ** (-torch.arange(half, device=x.device).float() / half)
        angles = positions[..., None].float() * inverse
        parts = angles.split(self.sections, dim=-1)
        angle = torch.cat([part[i] for i, part in enumerate(parts)], -1)
        angle = torch.cat([angle, angle], -1)[:, None]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        q = self.q(x).view(b, t, self.heads, -1).transpose(1, 2)
        k, v = self.kv(x).view(b, t, 2, self.groups, -1).permute(2, 0, 3, 1, 4)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        k, v = (y.repeat_interleave(self.heads // self.groups, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, -1))


def multimodal(place: Place) -> Made:
    b, side, text, width = place.size(1, 4), place.size(4, 24), place.size(9, 125), place.size(64, 1024)
    rows = torch.arange(side, device=place.device)
    grid = torch.stack([torch.zeros(side * side, device=place.device).long(), *(
        m.flatten() for m in torch.meshgrid(rows, rows, indexing="ij")
    )])  # fmt: skip
    after = side + torch.arange(text, device=place.device).expand(3, -1)
    positions = torch.cat([grid, after], 1)[:, None].expand(-1, b, -1)
    model = MultimodalRotary(width, place.size(4, 16), place.size(2, 4)).to(place.device)
    return model, (place.randn(b, side * side + text, width), positions)


class ContextualPositions(nn.Module):
    """Golovneva and others, 2024 (CoPE): positions count what a query's gates let through, between two embeddings."""

    def __init__(self, width: int, heads: int, longest: int) -> None:
        super().__init__()
        self.heads, self.longest = heads, longest
        self.qkv = nn.Linear(width, 3 * width)
        self.positions = nn.Parameter(torch.randn(width // heads, longest) / 8)

    def forward(self, x: Tensor) -> Tensor:
        b, t, width = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        logits = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
        future = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        logits = logits.masked_fill(future, float("-inf"))
        gates = torch.sigmoid(logits)
        place = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=self.longest - 1)
        above, below = place.ceil().long(), place.floor().long()
        table = q @ self.positions
        weight = place - below
        logits = logits + table.gather(-1, above) * weight + table.gather(-1, below) * (1 - weight)
        return (logits.softmax(-1) @ v).transpose(1, 2).reshape(b, t, width)


def contextual(place: Place) -> Made:
    b, t, width = place.size(2, 4), place.size(31, 511), place.size(32, 512)
    return ContextualPositions(width, 8, place.size(16, 64)).to(place.device), (place.randn(b, t, width),)


def stick_breaking(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Tan and others, 2025: a stick broken from the nearest key outwards in place of a softmax; what is left over."""
    t = q.size(-2)
    z = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
    causal = torch.ones(t, t, dtype=torch.bool, device=q.device).tril(-1)
    log_beta = F.logsigmoid(z).masked_fill(~causal, -1e4)
    log_rest = F.logsigmoid(-z).masked_fill(~causal, 0.0)
    after = log_rest.flip(-1).cumsum(-1).flip(-1) - log_rest
    weights = torch.exp(log_beta + after)
    remainder = 1 - weights.sum(-1, keepdim=True)
    return weights @ v + remainder * v, remainder


def sticks(place: Place) -> Made:
    shape = place.size(1, 4), place.size(2, 12), place.size(48, 640), place.size(16, 64)
    return stick_breaking, tuple(place.randn(*shape).requires_grad_() for _ in range(3))


class GatedQueries(nn.Module):
    """Qwen3-Next's attention: normed queries and keys, a rotation of a quarter, a sigmoid gate on what comes out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, size = heads, width // heads
        self.q = nn.Linear(width, 2 * width, bias=False)
        self.kv = nn.Linear(width, 2 * size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.q_scale, self.k_scale = nn.Parameter(torch.zeros(size)), nn.Parameter(torch.zeros(size))

    def norm(self, x: Tensor, scale: Tensor) -> Tensor:
        y = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (y * (1 + scale.float())).type_as(x)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, width = x.shape
        q, gate = self.q(x).view(b, t, self.heads, -1).chunk(2, -1)
        k, v = self.kv(x).view(b, t, 1, -1).chunk(2, -1)
        q, k, v = (
            self.norm(q, self.q_scale).transpose(1, 2),
            self.norm(k, self.k_scale).transpose(1, 2),
            v.transpose(1, 2),
        )
        turned = cos.size(-1)
        q, k = (
            torch.cat([y[..., :turned] * cos + rotate_half(y[..., :turned]) * sin, y[..., turned:]], -1) for y in (q, k)
        )
        shape = -1, self.heads, -1, -1
        y = F.scaled_dot_product_attention(q, k.expand(shape), v.expand(shape), is_causal=True)
        y = y.transpose(1, 2) * torch.sigmoid(gate)
        return x + self.out(y.reshape(b, t, width))


def gated_queries(place: Place) -> Made:
    b, t, width, heads = place.size(2, 8), place.size(40, 1000), place.size(64, 1024), place.size(4, 8)
    angle = place.rand(t, width // heads // 4)
    return GatedQueries(width, heads).to(place.device), (place.randn(b, t, width), angle.cos(), angle.sin())


class BytePatches(nn.Module):
    """Pagnoni and others, 2024 (BLT): hashes of byte n-grams; patches begin where a model is unsure; their largest."""

    def __init__(self, width: int, slots: int) -> None:
        super().__init__()
        self.bytes, self.hashes = nn.Embedding(256, width), nn.Embedding(slots, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, 256)
        self.slots = slots

    def forward(self, ids: Tensor, entropy: Tensor) -> tuple[Tensor, Tensor]:
        x = self.bytes(ids)
        rolling = torch.zeros_like(ids)
        for shift in range(4):
            rolling = (rolling * 1_000_003 + F.pad(ids, (shift, 0))[:, : ids.size(1)]) % self.slots
            x = x + 0.25 * self.hashes(rolling)
        starts = (entropy > 1.2) & (entropy - F.pad(entropy, (1, 0))[:, :-1] > 0)
        starts[:, 0] = True
        patch = starts.long().cumsum(1) - 1
        index = patch[..., None].expand_as(x)
        patches = torch.zeros_like(x).scatter_reduce(1, index, x, "amax", include_self=False)
        patches = F.gelu(self.up(patches))
        before = (index[..., :1] - 1).clamp(min=0).expand(-1, -1, patches.size(-1))
        logits = self.down(patches.gather(1, before))
        loss = F.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="none").view_as(entropy)
        return loss.mean() / math.log(2), starts.sum(1)


def byte_patches(place: Place) -> Made:
    b, t, width = place.size(2, 16), place.size(100, 2048), place.size(32, 384)
    model = BytePatches(width, place.size(997, 50_021)).to(place.device)
    return model, (place.randint(256, b, t), 2 * place.rand(b, t))


class SparseFeatures(nn.Module):
    """Gao and others, 2024: a top-k autoencoder of activations; units that died are taught what is left over."""

    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.encoder = nn.Linear(width, units)
        self.decoder = nn.Parameter(F.normalize(self.encoder.weight.detach().clone(), dim=1))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, idle: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        x = (x - mean) / (std + 1e-5)
        before = self.encoder(x - self.bias)
        values, index = before.topk(16, dim=-1)
        codes = torch.zeros_like(before).scatter_(-1, index, F.relu(values))
        rebuilt = codes @ self.decoder + self.bias
        error = x - rebuilt
        dead = idle > 500
        values, index = before.masked_fill(~dead, float("-inf")).topk(32, dim=-1)
        revived = torch.zeros_like(before).scatter_(-1, index, F.relu(values)) @ self.decoder
        unexplained = error.pow(2).mean() / x.pow(2).mean()
        auxiliary = (error.detach() - revived).pow(2).mean() / error.detach().pow(2).mean()
        used = (codes > 0).any(0)
        return unexplained + auxiliary / 32, torch.where(used, 0, idle + 1)


def sparse_features(place: Place) -> Made:
    n, width, units = place.size(32, 2048), place.size(48, 768), place.size(256, 8192)
    return SparseFeatures(width, units).to(place.device), (place.randn(n, width), place.randint(1000, units))


def neighbour_language_model(query: Tensor, keys: Tensor, values: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Khandelwal and others, 2020 (kNN-LM): a store's nearest contexts vote for words, mixed with a model's own."""
    distance = query.pow(2).sum(-1, keepdim=True) - 2 * query @ keys.t() + keys.pow(2).sum(-1)
    near, index = distance.topk(32, largest=False, dim=-1)
    weight = torch.softmax(-near / 10.0, -1)
    votes = torch.zeros_like(logits).scatter_add_(1, values[index], weight)
    sure = near[:, :1] < near.mean(-1, keepdim=True) * 0.9
    share = torch.where(sure, 0.4, 0.15)
    mixed = torch.logaddexp(logits.log_softmax(-1) + torch.log1p(-share), torch.log(share * votes + 1e-12))
    return mixed, mixed.argmax(-1)


def neighbours(place: Place) -> Made:
    n, store, width, v = place.size(16, 128), place.size(1000, 200_000), place.size(32, 256), place.size(500, 32_000)
    return neighbour_language_model, (
        place.randn(n, width),
        place.randn(store, width),
        place.randint(v, store),
        place.randn(n, v),
    )


ROWS: tuple[Row, ...] = (
    Row("program/multimodal_rotary_sections", multimodal, dtype=torch.bfloat16),
    Row("program/contextual_positions", contextual, "training"),
    Row("program/stick_breaking_attention", sticks, "training"),
    Row("program/gated_query_attention", gated_queries, "training", dtype=torch.bfloat16),
    Row("program/byte_patches", byte_patches, "training"),
    Row("program/sparse_feature_autoencoder", sparse_features, "training"),
    Row("program/neighbour_language_model", neighbours),
)
