"""Attention of other papers, written out: positions shifted and disentangled, hashes, blocks, halos, channels."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class ShiftedPositions(nn.Module):
    """Transformer-XL's (Dai et al., 2019): memory, two biases, relative positions by pad and reshape."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.r, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.u, self.v = (nn.Parameter(0.1 * torch.randn(heads, width // heads)) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    @staticmethod
    def shift(x: Tensor) -> Tensor:
        b, h, q, k = x.shape
        padded = torch.cat([x.new_zeros(b, h, q, 1), x], dim=3).view(b, h, k + 1, q)
        return padded[:, :, 1:].view_as(x)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        b, n, width = x.shape
        whole = torch.cat([memory, x], dim=1)
        m, d = whole.size(1), width // self.heads
        position = torch.arange(m - 1, -1, -1.0, device=x.device, dtype=x.dtype)
        inverse = 1 / (10_000 ** (torch.arange(0.0, width, 2.0, device=x.device, dtype=x.dtype) / width))
        angle = torch.outer(position, inverse)
        r = self.r(torch.cat([angle.sin(), angle.cos()], dim=-1)).view(m, self.heads, d)
        q = self.q(x).view(b, n, self.heads, d)
        k, v = self.kv(whole).view(b, m, 2, self.heads, d).unbind(2)
        content = torch.einsum("bihd,bjhd->bhij", q + self.u, k)
        relative = self.shift(torch.einsum("bihd,jhd->bhij", q + self.v, r))
        score = (content + relative) / math.sqrt(d)
        hidden = torch.triu(torch.ones(n, m, device=x.device), diagonal=1 + m - n).bool()
        prob = F.softmax(score.masked_fill(hidden, float("-inf")), dim=-1)
        out = torch.einsum("bhij,bjhd->bihd", prob, v).reshape(b, n, width)
        return self.norm(x + self.o(out))


def shifted(place: Place) -> Made:
    b, n, width, heads = place.size(2, 8), place.size(24, 512), place.size(32, 512), place.size(2, 8)
    return ShiftedPositions(width, heads).to(place.device), (place.randn(b, n, width), place.randn(b, n, width))


class Disentangled(nn.Module):
    """DeBERTa's (He et al., 2020): content to position and position to content, gathered by bucketed distance."""

    def __init__(self, width: int, heads: int, span: int) -> None:
        super().__init__()
        self.heads, self.span = heads, span
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.embeddings = nn.Parameter(0.02 * torch.randn(2 * span, width))

    def bucket(self, distance: Tensor) -> Tensor:
        mid = self.span // 2
        sign = torch.sign(distance)
        size = torch.where((distance < mid) & (distance > -mid), mid - 1, distance.abs())
        log = torch.ceil(torch.log(size / mid) / math.log((512 - 1) / mid) * (mid - 1)) + mid
        return torch.where(size <= mid, distance, (log * sign).long())

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, n, width = x.shape
        d = width // self.heads

        def split(t: Tensor) -> Tensor:
            return t.view(*t.shape[:-1], self.heads, d).transpose(-2, -3)

        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        pk, pq = split(self.k(self.embeddings)), split(self.q(self.embeddings))
        ids = torch.arange(n, device=x.device)
        relative = self.bucket(ids[:, None] - ids[None])
        scale = math.sqrt(d * 3)
        score = q @ k.transpose(-1, -2) / scale
        at = torch.clamp(relative + self.span, 0, 2 * self.span - 1).expand(b, self.heads, n, n)
        score = score + torch.gather(q @ pk.transpose(-1, -2), -1, at) / scale
        at = torch.clamp(-relative + self.span, 0, 2 * self.span - 1).expand(b, self.heads, n, n)
        score = score + torch.gather(k @ pq.transpose(-1, -2), -1, at).transpose(-1, -2) / scale
        both = mask[:, None, None] & mask[:, None, :, None]
        prob = torch.softmax(score.masked_fill(~both, torch.finfo(x.dtype).min), dim=-1).masked_fill(~both, 0)
        return (prob @ v).transpose(1, 2).reshape(b, n, width)


def disentangled(place: Place) -> Made:
    b, n, width, heads = place.size(2, 8), place.size(40, 512), place.size(32, 512), place.size(2, 8)
    mask = torch.arange(n, device=place.device)[None] < n - place.randint(n // 4, b, 1)
    return Disentangled(width, heads, place.size(16, 256)).to(place.device), (place.randn(b, n, width), mask)


class TalkingHeads(nn.Module):
    """Shazeer et al., 2020: heads are mixed before and after the softmax; CaiT's with layer scale."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.before, self.after = nn.Linear(heads, heads), nn.Linear(heads, heads)
        self.gamma = nn.Parameter(1e-1 * torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        qkv = self.qkv(self.norm(x)).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0] * (c // self.heads) ** -0.5, qkv[1], qkv[2]
        attention = q @ k.transpose(-2, -1)
        attention = self.before(attention.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        attention = attention.softmax(dim=-1)
        attention = self.after(attention.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x + self.gamma * self.out((attention @ v).transpose(1, 2).reshape(b, n, c))


def talking(place: Place) -> Made:
    b, n, width, heads = place.size(2, 32), place.size(36, 576), place.size(32, 192), 4
    return TalkingHeads(width, heads).to(place.device), (place.randn(b, n, width).requires_grad_(),)


class AdditiveTokens(nn.Module):
    """Fastformer (Wu et al., 2021): a global query and a global key by additive attention, in linear time."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.d = heads, width // heads
        self.query, self.key, self.transform = (nn.Linear(width, width) for _ in range(3))
        self.query_score, self.key_score = nn.Linear(width, heads), nn.Linear(width, heads)

    def pooled(self, x: Tensor, score: Tensor, mask: Tensor) -> Tensor:
        b, n, width = x.shape
        weight = torch.softmax((score / self.d**0.5).transpose(1, 2) + mask, dim=-1).unsqueeze(2)
        heads = x.view(b, n, self.heads, self.d).transpose(1, 2)
        return torch.matmul(weight, heads).transpose(1, 2).reshape(b, 1, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        mask = ((1.0 - mask.to(x.dtype)) * -10_000.0).unsqueeze(1)
        q, k = self.query(x), self.key(x)
        g = self.pooled(q, self.query_score(q), mask)
        p = k * g.expand_as(k)
        g = self.pooled(p, self.key_score(p), mask)
        return self.transform(g * q) + q


def additive(place: Place) -> Made:
    b, n, width = place.size(2, 32), place.size(64, 1024), place.size(32, 256)
    return AdditiveTokens(width, place.size(4, 16)).to(place.device), (place.randn(b, n, width), place.rand(b, n) < 0.9)


class CrossCovariance(nn.Module):
    """XCiT's (El-Nouby et al., 2021): attention between channels of normalised queries, and local patch mixing."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.bn = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, groups=width)

    def forward(self, x: Tensor, h: int, w: int) -> Tensor:
        b, n, c = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 4, 1)
        q, k, v = qkv.unbind(0)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        attention = ((q @ k.transpose(-2, -1)) * self.temperature).softmax(dim=-1)
        x = x + self.out((attention @ v).permute(0, 3, 1, 2).reshape(b, n, c))
        grid = self.norm2(x).transpose(1, 2).reshape(b, c, h, w)
        grid = self.conv2(self.bn(F.gelu(self.conv1(grid))))
        return x + grid.flatten(2).transpose(1, 2)


def cross_covariance(place: Place) -> Made:
    b, side, width = place.size(2, 32), place.size(8, 28), place.size(32, 384)
    return CrossCovariance(width, place.size(4, 8)).to(place.device), (
        place.randn(b, side * side, width).requires_grad_(),
        side,
        side,
    )


class HaloBlocks(nn.Module):
    """Vaswani et al., 2021: blocks of queries attend to their block with a rim, unfolded; padding is masked."""

    def __init__(self, width: int, heads: int, block: int, halo: int) -> None:
        super().__init__()
        self.heads, self.block, self.halo = heads, block, halo
        self.q, self.kv = nn.Conv2d(width, width, 1, bias=False), nn.Conv2d(width, 2 * width, 1, bias=False)
        self.height = nn.Parameter(0.1 * torch.randn(block + 2 * halo, width // heads))
        self.width = nn.Parameter(0.1 * torch.randn(block + 2 * halo, width // heads))

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        s, r, d = self.block, self.block + 2 * self.halo, c // self.heads
        q = self.q(x).view(b, self.heads, d, h // s, s, w // s, s).permute(0, 1, 3, 5, 4, 6, 2)
        q = q.reshape(b, self.heads, -1, s * s, d) * d**-0.5
        kv = F.unfold(self.kv(x), r, stride=s, padding=self.halo)
        kv = kv.view(b, 2, self.heads, d, r * r, -1).permute(1, 0, 2, 5, 4, 3)
        k, v = kv[0], kv[1]
        position = (self.height[:, None] + self.width[None]).view(r * r, d)
        inside = F.unfold(torch.ones_like(x[:1, :1]), r, stride=s, padding=self.halo).squeeze(0).T
        score = q @ (k + position).transpose(-1, -2)
        score = score.masked_fill(inside[None, None, :, None] == 0, -torch.finfo(x.dtype).max)
        out = score.softmax(-1) @ v
        out = out.view(b, self.heads, h // s, w // s, s, s, d).permute(0, 1, 6, 2, 4, 3, 5)
        return out.reshape(b, c, h, w)


def halos(place: Place) -> Made:
    b, width, side = place.size(1, 8), place.size(16, 128), place.size(16, 64)
    return HaloBlocks(width, place.size(2, 4), place.size(4, 8), place.size(1, 3)).to(place.device), (
        place.randn(b, width, side, side),
    )


class RowsAndColumns(nn.Module):
    """Axial-DeepLab's (Wang et al., 2020): one axis, then the other, with positions in queries, keys and values."""

    def __init__(self, width: int, heads: int, span: int) -> None:
        super().__init__()
        self.heads, self.span = heads, span
        d = width // heads
        self.projections = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.relative = nn.ParameterList(nn.Parameter(0.1 * torch.randn(3, 2 * span - 1, d)) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    def along(self, x: Tensor, axis: int) -> Tensor:
        n, length, c = x.shape
        d = c // self.heads
        q, k, v = self.projections[axis](x).view(n, length, 3, self.heads, d).permute(2, 0, 3, 1, 4)
        index = torch.arange(length, device=x.device)
        table = self.relative[axis][:, index[:, None] - index[None] + self.span - 1]
        rq, rk, rv = table.unbind(0)
        score = q @ k.transpose(-1, -2)
        score = score + torch.einsum("nhid,ijd->nhij", q, rq) + torch.einsum("nhjd,ijd->nhij", k, rk)
        prob = (score * d**-0.5).softmax(-1)
        out = prob @ v + torch.einsum("nhij,ijd->nhid", prob, rv)
        return out.transpose(1, 2).reshape(n, length, c)

    def forward(self, x: Tensor) -> Tensor:
        b, h, w, c = x.shape
        y = self.norm(x)
        y = self.along(y.transpose(1, 2).reshape(b * w, h, c), 0).view(b, w, h, c).transpose(1, 2)
        y = self.along(y.reshape(b * h, w, c), 1).view(b, h, w, c)
        return x + y


def axial(place: Place) -> Made:
    b, side, width = place.size(1, 4), place.size(12, 64), place.size(16, 128)
    return RowsAndColumns(width, place.size(2, 8), side).to(place.device), (
        place.randn(b, side, side, width).requires_grad_(),
    )


def hashed_buckets(qk: Tensor, v: Tensor, rotations: Tensor, bucket: int) -> Tensor:
    """Reformer's (Kitaev et al., 2020): random rotations, sorting by bucket, chunks that look back, rounds joined."""
    b, n, d = qk.shape
    rounds, halves = rotations.shape[1:]
    rotated = torch.einsum("btf,fhi->bhti", qk, rotations)
    hashes = torch.argmax(torch.cat([rotated, -rotated], dim=-1), dim=-1)
    hashes = (hashes + (torch.arange(rounds, device=qk.device) * 2 * halves)[:, None]).reshape(b, -1)
    ticker = torch.arange(rounds * n, device=qk.device).expand(b, -1)
    order = (n * hashes + ticker % n).argsort(dim=-1)
    undo = order.argsort(dim=-1)
    at = order % n
    index = at[..., None].expand(-1, -1, d)
    sq, sv = qk.gather(1, index).view(b, -1, bucket, d), v.gather(1, index).view(b, -1, bucket, d)
    sk, st = F.normalize(sq, dim=-1), at.view(b, -1, bucket)

    def look_back(x: Tensor) -> Tensor:
        return torch.cat([x, torch.cat([x[:, -1:], x[:, :-1]], dim=1)], dim=2)

    k, value, kt = look_back(sk), look_back(sv), look_back(st)
    dots = torch.einsum("bhie,bhje->bhij", sq, k) * d**-0.5
    dots = dots.masked_fill(st[..., None] < kt[:, :, None], -1e9)
    dots = dots.masked_fill(st[..., None] == kt[:, :, None], -5e4)
    lse = torch.logsumexp(dots, dim=-1, keepdim=True)
    out = torch.einsum("buij,buje->buie", (dots - lse).exp(), value).reshape(b, -1, d)
    out = out.gather(1, undo[..., None].expand(-1, -1, d)).view(b, rounds, n, d)
    logits = lse.reshape(b, -1).gather(1, undo).view(b, rounds, n, 1)
    return (out * torch.softmax(logits, dim=1)).sum(1)


def hashed(place: Place) -> Made:
    b, n, d, bucket, rounds = place.size(2, 32), place.size(128, 2048), place.size(16, 64), place.size(16, 64), 2
    rotations = place.randn(d, rounds, n // bucket // 2)
    return hashed_buckets, (place.randn(b, n, d), place.randn(b, n, d), rotations, bucket)


def random_blocks(q: Tensor, k: Tensor, v: Tensor, chosen: Tensor, size: int) -> Tensor:
    """BigBird's (Zaheer et al., 2020): first and last block are global, each sees neighbours and some random blocks."""
    b, h, n, d = q.shape
    blocks = n // size
    bq, bk, bv = (t.view(b, h, blocks, size, d) for t in (q, k, v))
    scale = d**-0.5

    def gathered(t: Tensor) -> Tensor:
        middle = t[:, :, 1:-1]
        window = torch.cat([t[:, :, :-2], middle, t[:, :, 2:]], dim=3)
        ends = torch.cat([t[:, :, 0], t[:, :, -1]], dim=2)[:, :, None].expand(-1, -1, blocks - 2, -1, -1)
        random = t[:, :, chosen].flatten(3, 4)
        return torch.cat([window, ends, random], dim=3)

    keys, values = gathered(bk), gathered(bv)
    score = torch.einsum("bhnid,bhnjd->bhnij", bq[:, :, 1:-1], keys) * scale
    middle = score.softmax(-1) @ values
    ends = [torch.softmax(bq[:, :, i] @ k.transpose(-1, -2) * scale, dim=-1) @ v for i in (0, -1)]
    return torch.cat([ends[0][:, :, None], middle, ends[1][:, :, None]], dim=2).reshape(b, h, n, d)


def block_sparse(place: Place) -> Made:
    b, h, n, d, size = place.size(1, 2), place.size(2, 12), place.size(128, 4096), place.size(8, 64), place.size(16, 64)
    chosen = place.randint(n // size, n // size - 2, 3)
    return random_blocks, (*(place.randn(b, h, n, d) for _ in range(3)), chosen, size)


class ProjectedKeys(nn.Module):
    """Linformer (Wang et al., 2020): keys and values projected along the sequence, in a block that trains."""

    def __init__(self, n: int, width: int, heads: int, k: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.e, self.f = (nn.Parameter(torch.randn(n, k) / math.sqrt(k)) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        y = self.norm(x)
        keys, values = self.kv(y).chunk(2, dim=-1)
        keys, values = torch.einsum("bnd,nk->bkd", keys, self.e), torch.einsum("bnd,nk->bkd", values, self.f)
        q, k, v = (t.reshape(b, -1, self.heads, c // self.heads).transpose(1, 2) for t in (self.q(y), keys, values))
        prob = torch.einsum("bhnd,bhkd->bhnk", q, k).mul((c // self.heads) ** -0.5).softmax(dim=-1)
        return x + self.out(torch.einsum("bhnk,bhkd->bhnd", prob, v).transpose(1, 2).reshape(b, n, c))


def projected(place: Place) -> Made:
    b, n, width, k = place.size(2, 16), place.size(64, 2048), place.size(32, 256), place.size(16, 128)
    return ProjectedKeys(n, width, place.size(2, 8), k).to(place.device), (place.randn(b, n, width),)


class AttentionFree(nn.Module):
    """Zhai et al., 2021 (AFT-local): no dot products, exponentials of keys and of a banded position bias, causal."""

    def __init__(self, n: int, width: int, window: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.u, self.w = nn.Parameter(0.1 * torch.randn(n, 64)), nn.Parameter(0.1 * torch.randn(n, 64))
        distance = torch.arange(n)[:, None] - torch.arange(n)[None]
        self.register_buffer("local", distance.abs() < window)
        self.register_buffer("seen", distance >= 0)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        bias = (self.u @ self.w.T) * self.local
        weight = torch.exp(bias) * self.seen
        key = torch.exp(k - k.amax(dim=1, keepdim=True))
        numerator = torch.einsum("ij,bjd->bid", weight, key * v)
        denominator = torch.einsum("ij,bjd->bid", weight, key)
        return self.out(torch.sigmoid(q) * numerator / (denominator + 1e-9))


def attention_free(place: Place) -> Made:
    b, n, width = place.size(2, 16), place.size(64, 1024), place.size(32, 512)
    return AttentionFree(n, width, place.size(8, 128)).to(place.device), (place.randn(b, n, width),)


def probable_queries(q: Tensor, k: Tensor, v: Tensor, sampled: Tensor, top: int) -> Tensor:
    """Informer's (Zhou et al., 2021): queries far from uniform attend, the others get a running mean."""
    b, h, n, d = q.shape
    keys = k[:, :, sampled]
    scores = torch.matmul(q.unsqueeze(-2), keys.transpose(-2, -1)).squeeze(-2)
    sparsity = scores.max(-1)[0] - torch.div(scores.sum(-1), n)
    chosen = sparsity.topk(top, sorted=False)[1]
    rows, heads = torch.arange(b, device=q.device)[:, None, None], torch.arange(h, device=q.device)[None, :, None]
    score = torch.matmul(q[rows, heads, chosen], k.transpose(-2, -1)) / math.sqrt(d)
    future = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    score = score.masked_fill(future[None, None].expand(b, h, n, n)[rows, heads, chosen], float("-inf"))
    context = v.cumsum(dim=-2) / torch.arange(1, n + 1, device=q.device)[:, None]
    context[rows, heads, chosen] = torch.matmul(torch.softmax(score, dim=-1), v)
    return context


def probable(place: Place) -> Made:
    b, h, n, d, top = place.size(2, 8), place.size(2, 8), place.size(64, 720), place.size(8, 64), place.size(10, 35)
    sampled = place.randint(n, n, top)
    return probable_queries, (*(place.randn(b, h, n, d) for _ in range(3)), sampled, top)


class WhereToListen(nn.Module):
    """Tacotron 2's attention (Shen et al., 2017): energies from query, memory and past weights, step by step."""

    def __init__(self, width: int, memory: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(memory + width, width)
        self.query, self.memory = nn.Linear(width, 64, bias=False), nn.Linear(memory, 64, bias=False)
        self.conv, self.location = nn.Conv1d(2, 16, 15, padding=7, bias=False), nn.Linear(16, 64, bias=False)
        self.energy = nn.Linear(64, 1, bias=False)

    def forward(self, memory: Tensor, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        b, n, _ = memory.shape
        processed = self.memory(memory)
        mask = torch.arange(n, device=memory.device)[None] >= lengths[:, None]
        weights = cumulative = torch.zeros(b, n, device=memory.device, dtype=memory.dtype)
        context, h = torch.zeros_like(memory[:, 0]), torch.zeros_like(frames[:, 0])
        contexts, alignments = [], []
        for frame in frames.unbind(1):
            h = self.cell(torch.cat([frame, context], dim=-1), h)
            past = self.location(self.conv(torch.stack([weights, cumulative], dim=1)).transpose(1, 2))
            energies = self.energy(torch.tanh(self.query(h.unsqueeze(1)) + past + processed)).squeeze(-1)
            weights = F.softmax(energies.masked_fill(mask, -float("inf")), dim=1)
            cumulative = cumulative + weights
            context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            contexts.append(context)
            alignments.append(weights)
        return torch.stack(contexts, dim=1), torch.stack(alignments, dim=1)


def listening(place: Place) -> Made:
    b, n, steps = place.size(2, 64), place.size(20, 200), place.size(6, 24)
    width, memory = place.size(32, 512), place.size(24, 512)
    lengths = n - place.randint(n // 3, b)
    return WhereToListen(width, memory).to(place.device), (
        place.randn(b, n, memory),
        place.randn(b, steps, width),
        lengths,
    )


ROWS: tuple[Row, ...] = (
    Row("program/shifted_memory_positions", shifted, "training"),
    Row("program/disentangled_positions", disentangled),
    Row("program/talking_heads", talking, "training"),
    Row("program/additive_global_tokens", additive, "training"),
    Row("program/cross_covariance_channels", cross_covariance, "training"),
    Row("program/halo_blocks", halos, "training"),
    Row("program/rows_and_columns_attention", axial, "training"),
    Row("program/hashed_bucket_attention", hashed),
    Row("program/random_block_attention", block_sparse),
    Row("program/projected_keys", projected, "training"),
    Row("program/attention_free_window", attention_free, "training"),
    Row("program/probable_queries", probable),
    Row("program/location_aware_listening", listening, "training"),
)
