"""Blocks of networks: splines on edges, capsules, slots, random features, gated mixers, hypernetworks, memories."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class SplineLayer(nn.Module):
    """Liu et al., 2024: cubic B-splines by Cox and de Boor's recursion on every edge, beside a SiLU."""

    def __init__(self, inputs: int, outputs: int, grid: int = 8) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs)
        self.spline = nn.Parameter(0.1 * torch.randn(outputs, inputs, grid + 3))
        self.register_buffer("knots", torch.arange(-3, grid + 4) * (2 / grid) - 1)

    def forward(self, x: Tensor) -> Tensor:
        t, x3 = self.get_buffer("knots"), x[..., None]
        b = ((x3 >= t[:-1]) & (x3 < t[1:])).to(x.dtype)
        for k in range(1, 4):
            left = (x3 - t[: -k - 1]) / (t[k:-1] - t[: -k - 1])
            right = (t[k + 1 :] - x3) / (t[k + 1 :] - t[1:-k])
            b = left * b[..., :-1] + right * b[..., 1:]
        return self.base(F.silu(x)) + F.linear(b.flatten(1), self.spline.flatten(1))


def splines(place: Place) -> Made:
    b, d, width = place.size(256, 16_384), place.size(16, 64), place.size(32, 128)
    model = nn.Sequential(SplineLayer(d, width), SplineLayer(width, width), SplineLayer(width, 4))
    return model.to(place.device), (place.randn(b, d),)


class Capsules(nn.Module):
    """Sabour et al., 2017: votes of small capsules, routed by agreement in three rounds; margins as the loss."""

    def __init__(self, inputs: int, classes: int, d: int = 8, out: int = 16) -> None:
        super().__init__()
        self.votes = nn.Parameter(0.1 * torch.randn(inputs, classes, d, out))

    def forward(self, u: Tensor, y: Tensor) -> Tensor:
        def squash(s: Tensor) -> Tensor:
            square = s.square().sum(-1, keepdim=True)
            return square / (1 + square) * s * torch.rsqrt(square + 1e-6)

        votes = torch.einsum("bid,icde->bice", squash(u), self.votes)
        logits = torch.zeros_like(votes[..., 0])
        for _ in range(3):
            share = torch.softmax(logits, 2)
            v = squash((share[..., None] * votes).sum(1))
            logits = logits + (votes * v[:, None]).sum(-1)
        length = (v.square().sum(-1) + 1e-6).sqrt()
        hit = F.one_hot(y, v.size(1)).to(length.dtype)
        loss = hit * F.relu(0.9 - length) ** 2 + 0.5 * (1 - hit) * F.relu(length - 0.1) ** 2
        return loss.sum(1).mean()


def capsules(place: Place) -> Made:
    b, inputs, classes = place.size(8, 256), place.size(144, 576), 10
    return Capsules(inputs, classes).to(place.device), (place.randn(b, inputs, 8), place.randint(classes, b))


class SlotAttention(nn.Module):
    """Locatello et al., 2020: slots compete for inputs by softmax over slots, are updated by GRUs, and decode."""

    def __init__(self, d: int, slots: int) -> None:
        super().__init__()
        self.slots = nn.Parameter(torch.randn(slots, d))
        self.norm_in, self.norm_slot, self.norm_mlp = nn.LayerNorm(d), nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.kv, self.gru = nn.Linear(d, d, bias=False), nn.Linear(d, 2 * d, bias=False), nn.GRUCell(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.decode = nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        b, _, d = x.shape
        k, v = self.kv(self.norm_in(x)).chunk(2, -1)
        s = self.slots.expand(b, -1, -1)
        for _ in range(3):
            score = k @ self.q(self.norm_slot(s)).mT * d**-0.5
            share = score.softmax(-1) + 1e-6
            update = (share / share.sum(1, keepdim=True)).mT @ v
            s = self.gru(update.flatten(0, 1).to(s.dtype), s.flatten(0, 1)).view_as(s)
            s = s + self.mlp(self.norm_mlp(s))
        return F.mse_loss(share @ self.decode(s), x)


def slots(place: Place) -> Made:
    b, n, d = place.size(4, 128), place.size(128, 1024), place.size(32, 64)
    return SlotAttention(d, 7).to(place.device), (place.randn(b, n, d),)


class Performer(nn.Module):
    """Choromanski et al., 2021: positive random features of queries and keys, causal by cumulated sums of chunks."""

    def __init__(self, d: int, heads: int, features: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.register_buffer("directions", torch.randn(features, d // heads))

    def features(self, x: Tensor) -> Tensor:
        x = x * x.size(-1) ** -0.25
        w = x @ self.get_buffer("directions").T
        return torch.exp(w - 0.5 * x.square().sum(-1, keepdim=True) - w.detach().amax(-1, keepdim=True)) + 1e-3

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = (t.unflatten(2, (-1, 32)) for t in (self.features(q), self.features(k), v))
        v = torch.cat([v, torch.ones_like(v[..., :1])], -1)
        state = (k.mT @ v).cumsum(2)
        state = F.pad(state[:, :, :-1], (0, 0, 0, 0, 1, 0))
        total = q @ state + torch.tril(q @ k.mT) @ v
        mixed = (total[..., :-1] / (total[..., -1:] + 1e-4)).flatten(2, 3)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


def random_features(place: Place) -> Made:
    b, n, d = place.size(2, 16), place.size(256, 2048), place.size(64, 512)
    return Performer(d, place.size(4, 8), 64).to(place.device), (place.randn(b, n, d),)


class GatedMixer(nn.Module):
    """Liu et al., 2021 (gMLP): channels up, a gate that mixes positions, channels down; a classifier."""

    def __init__(self, d: int, length: int, depth: int = 3) -> None:
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(d, 4 * d) for _ in range(depth))
        self.norm = nn.ModuleList(nn.LayerNorm(2 * d) for _ in range(depth))
        self.space = nn.ModuleList(nn.Conv1d(length, length, 1) for _ in range(depth))
        self.down = nn.ModuleList(nn.Linear(2 * d, d) for _ in range(depth))
        self.head = nn.Linear(d, 10)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for up, norm, space, down in zip(self.up, self.norm, self.space, self.down, strict=True):
            h = F.layer_norm(x, x.shape[-1:])
            a, b = F.gelu(up(h)).chunk(2, -1)
            x = x + down(a * (1 + space(norm(b))))
        return F.cross_entropy(self.head(x.mean(1)), y)


def gated_mixer(place: Place) -> Made:
    b, n, d = place.size(4, 128), place.size(49, 196), place.size(32, 128)
    return GatedMixer(d, n).to(place.device), (place.randn(b, n, d), place.randint(10, b))


class HyperField(nn.Module):
    """A hypernetwork gives each scene the weights of its sine network (Sitzmann et al., 2020), by batched products."""

    def __init__(self, code: int, hidden: int) -> None:
        super().__init__()
        self.sizes = [(2, hidden), (hidden, hidden), (hidden, 3)]
        self.hyper = nn.Sequential(nn.Linear(code, 64), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(64, a * b + b) for a, b in self.sizes)

    def forward(self, code: Tensor, xy: Tensor, colour: Tensor) -> Tensor:
        h, x = self.hyper(code), xy
        for i, ((a, b), head) in enumerate(zip(self.sizes, self.heads, strict=True)):
            flat = head(h)
            weight, bias = flat[:, : a * b].view(-1, a, b) / a**0.5, flat[:, None, a * b :]
            x = torch.baddbmm(bias, x, weight)
            if i < 2:
                x = torch.sin(5 * x)
        return (x - colour).square().mean() + 1e-3 * code.square().mean()


def hyper_field(place: Place) -> Made:
    scenes, points, hidden = place.size(8, 64), place.size(256, 8192), place.size(32, 64)
    return HyperField(32, hidden).to(place.device), (
        place.randn(scenes, 32).requires_grad_(),
        2 * place.rand(scenes, points, 2) - 1,
        place.rand(scenes, points, 3),
    )


class RationalFlow(nn.Module):
    """Durkan et al., 2019: couplings by monotonic rational-quadratic splines, their log-determinants, a normal base."""

    def __init__(self, d: int, width: int, bins: int = 8, depth: int = 3) -> None:
        super().__init__()
        self.each, self.bins = d // 2, bins
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(self.each, width), nn.SiLU(), nn.Linear(width, self.each * (3 * bins + 1)))
            for _ in range(depth)
        )

    def spline(self, x: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        n, bound = self.bins, 3.0
        w, h, slope = p.split([n, n, n + 1], -1)
        w, h = (2 * bound * (0.02 + (1 - 0.02 * n) * t.softmax(-1)) for t in (w, h))
        slope = 0.05 + F.softplus(slope)
        left, bottom = F.pad(w.cumsum(-1), (1, 0)) - bound, F.pad(h.cumsum(-1), (1, 0)) - bound
        inside = x.abs() < bound - 1e-3
        z = x.clamp(-bound + 1e-3, bound - 1e-3)
        i = ((z[..., None] >= left).sum(-1, keepdim=True) - 1).clamp(0, n - 1)
        x0, y0, dx, dy, d0, d1 = (
            t.gather(-1, j)[..., 0] for t, j in ((left, i), (bottom, i), (w, i), (h, i), (slope, i), (slope, i + 1))
        )
        s, t = dy / dx, (z - x0) / dx
        u = t * (1 - t)
        bottom_line = s + (d1 + d0 - 2 * s) * u
        y = y0 + dy * (s * t**2 + d0 * u) / bottom_line
        log = 2 * s.log() + (d1 * t**2 + 2 * s * u + d0 * (1 - t) ** 2).log() - 2 * bottom_line.log()
        return torch.where(inside, y, x), torch.where(inside, log, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, 1)
        total = torch.zeros_like(x[:, 0])
        for net in self.nets:
            b, log = self.spline(b, net(a).unflatten(1, (self.each, -1)))
            total = total + log.sum(1)
            a, b = b, a
        return (0.5 * (a.square() + b.square()).sum(1) - total).mean()


def rational_flow(place: Place) -> Made:
    b, d, width = place.size(256, 16_384), place.size(8, 32), place.size(32, 128)
    return RationalFlow(d, width).to(place.device), (place.randn(b, d),)


class ProductKeys(nn.Module):
    """Lample et al., 2019: the best of two halves' keys, the best of their sums, a weighted bag of a large memory."""

    def __init__(self, d: int, keys: int, top: int = 8) -> None:
        super().__init__()
        self.keys, self.top = nn.Parameter(torch.randn(2, keys, d // 2) / d**0.25), top
        self.query = nn.Linear(d, d)
        self.memory = nn.EmbeddingBag(keys**2, d, mode="sum")

    def forward(self, x: Tensor) -> Tensor:
        q = F.layer_norm(self.query(x), x.shape[-1:]).unflatten(1, (2, -1))
        scores, index = torch.einsum("bhd,hkd->bhk", q, self.keys).topk(self.top, -1)
        both = (scores[:, 0, :, None] + scores[:, 1, None]).flatten(1)
        best, flat = both.topk(self.top, -1)
        row, column = index[:, 0].gather(1, flat // self.top), index[:, 1].gather(1, flat % self.top)
        return x + self.memory(row * self.keys.size(1) + column, per_sample_weights=best.softmax(-1))


def product_keys(place: Place) -> Made:
    b, d, keys = place.size(512, 32_768), place.size(64, 256), place.size(64, 512)
    return ProductKeys(d, keys).to(place.device), (place.randn(b, d),)


class LinearRecurrentUnit(nn.Module):
    """Orvieto et al., 2023: complex diagonal states by radii and angles, convolved by transforms; gated."""

    def __init__(self, d: int, states: int) -> None:
        super().__init__()
        self.radius, self.angle = nn.Parameter(torch.rand(states) + 1), nn.Parameter(torch.rand(states))
        self.b, self.c = nn.Linear(d, 2 * states, bias=False), nn.Linear(2 * states, d, bias=False)
        self.gate = nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        length = x.size(1)
        t = torch.arange(length, device=x.device, dtype=x.dtype)
        decay = torch.exp(-torch.exp(-self.radius) * t[:, None])
        kernel = torch.polar(decay, self.angle * t[:, None])
        drive = torch.view_as_complex(self.b(x).unflatten(-1, (-1, 2)).contiguous())
        f = torch.fft.fft(drive, n=2 * length, dim=1) * torch.fft.fft(kernel, n=2 * length, dim=0)
        state = torch.view_as_real(torch.fft.ifft(f, dim=1)[:, :length]).flatten(2)
        return self.c(state) * torch.sigmoid(self.gate(x)) + x


def ring_states(place: Place) -> Made:
    b, n, d = place.size(1, 8), place.size(256, 2048), place.size(32, 128)
    return LinearRecurrentUnit(d, d).to(place.device), (place.randn(b, n, d),)


ROWS: tuple[Row, ...] = (
    Row("program/spline_edge_network", splines, "training"),
    Row("program/capsule_routing", capsules, "training"),
    Row("program/slot_attention", slots, "training", autocast=torch.bfloat16),
    Row("program/performer_causal", random_features, "training"),
    Row("program/gated_position_mixer", gated_mixer, "training", autocast=torch.bfloat16),
    Row("program/hyper_sine_fields", hyper_field, "training"),
    Row("program/rational_quadratic_flow", rational_flow, "training"),
    Row("program/product_key_memory", product_keys, "training"),
    Row("program/linear_recurrent_unit", ring_states, "training"),
)
