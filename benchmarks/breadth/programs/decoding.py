"""State that a call writes in place: caches of keys and values, replay buffers, averages of weights."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class CachedAttention(nn.Module):
    """A decode step whose caches are arguments: this token's key and value go into a slice."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)

    def forward(self, x: Tensor, k_cache: Tensor, v_cache: Tensor, position: int) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        k_cache[:, :, position : position + t] = k
        v_cache[:, :, position : position + t] = v
        keys, values = k_cache[:, :, : position + t], v_cache[:, :, : position + t]
        scores = q @ keys.transpose(-2, -1) / math.sqrt(d // self.heads)
        y = scores.softmax(-1) @ values
        return self.out(y.transpose(1, 2).reshape(b, t, d))


def slice_cache(place: Place) -> Made:
    b, heads, length, d = place.size(8, 32), 8, place.size(512, 4096), place.size(256, 1024)
    cache = place.randn(b, heads, length, d // heads), place.randn(b, heads, length, d // heads)
    return CachedAttention(d, heads).to(place.device), (place.randn(b, 1, d), *cache, length - 100)


class StaticCacheDecoder(nn.Module):
    """Gemma's way: index_copy_ into a cache of the full length, a mask for what is not yet there."""

    def __init__(self, d: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.d_head = heads, kv_heads, d // heads
        self.q = nn.Linear(d, d, bias=False)
        self.kv = nn.Linear(d, 2 * kv_heads * self.d_head, bias=False)
        self.o = nn.Linear(d, d, bias=False)
        self.up, self.gate = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False)
        self.down = nn.Linear(2 * d, d, bias=False)

    def forward(self, x: Tensor, position: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        b = x.shape[0]
        h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        q = self.q(h).view(b, 1, self.heads, self.d_head)
        k, v = self.kv(h).view(b, 1, 2, self.kv_heads, self.d_head).unbind(2)
        k_cache.index_copy_(1, position, k)
        v_cache.index_copy_(1, position, v)
        groups = self.heads // self.kv_heads
        keys = torch.repeat_interleave(k_cache, groups, dim=2).transpose(1, 2)
        values = torch.repeat_interleave(v_cache, groups, dim=2).transpose(1, 2)
        seen = torch.arange(k_cache.shape[1], device=x.device) <= position
        scores = torch.matmul(q.transpose(1, 2), keys.transpose(2, 3)) * self.d_head**-0.5
        scores = torch.where(seen, scores, torch.finfo(scores.dtype).min)
        y = torch.matmul(F.softmax(scores, dim=-1), values).transpose(1, 2).reshape(b, 1, -1)
        x = x + self.o(y)
        return x + self.down(F.gelu(self.gate(x), approximate="tanh") * self.up(x))


def index_copy_cache(place: Place) -> Made:
    b, length, d = place.size(4, 32), place.size(256, 4096), place.size(256, 2048)
    cache = place.randn(b, length, 2, d // 8), place.randn(b, length, 2, d // 8)
    position = torch.tensor([length - 50], device=place.device)
    return StaticCacheDecoder(d, 8, 2).to(place.device), (place.randn(b, 1, d), position, *cache)


def paged_attention(q: Tensor, k: Tensor, v: Tensor, pages: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    """vLLM's layout: pages (2, n, page, heads, d); index_put_ writes, the block table gathers."""
    b, heads, d = q.shape
    size = pages.shape[2]
    page = table.gather(1, (lengths // size)[:, None]).squeeze(1)
    slot = lengths % size
    pages[0].index_put_((page, slot), k)
    pages[1].index_put_((page, slot), v)
    keys = pages[0][table].reshape(b, -1, heads, d)
    values = pages[1][table].reshape(b, -1, heads, d)
    scores = torch.einsum("bhd,bthd->bht", q, keys) / d**0.5
    beyond = torch.arange(keys.size(1), device=q.device)[None, :] > lengths[:, None]
    weights = scores.masked_fill(beyond[:, None, :], float("-inf")).softmax(dim=-1)
    return torch.einsum("bht,bthd->bhd", weights, values)


def paged_cache(place: Place) -> Made:
    b, blocks, size, heads, d = place.size(8, 64), place.size(12, 128), 16, place.size(4, 8), place.size(32, 128)
    table = torch.randperm(b * blocks).view(b, blocks).to(place.device)
    pages = place.randn(2, b * blocks, size, heads, d)
    q, k, v = (place.randn(b, heads, d) for _ in range(3))
    return paged_attention, (q, k, v, pages, table, place.randint(blocks * size, b))


class RollingCache(nn.Module):
    """A sliding window: the caches roll by one, the newest goes to the end; they are arguments in a dict."""

    def __init__(self, heads: int, d: int) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.randn(heads))
        self.scale = d**-0.5

    def forward(self, q: Tensor, k: Tensor, v: Tensor, cache: dict[str, Tensor]) -> Tensor:
        cache["k"].copy_(torch.cat([cache["k"][:, :, 1:], k], dim=2))
        cache["v"].copy_(torch.cat([cache["v"][:, :, 1:], v], dim=2))
        scores = (q * self.scale) @ cache["k"].mT
        sink = self.sink.view(1, -1, 1, 1).expand(scores.size(0), -1, 1, 1)
        weights = torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
        return weights @ cache["v"]


def rolling_cache(place: Place) -> Made:
    b, h, w, d = place.size(8, 64), 8, place.size(512, 1024), place.size(32, 128)
    cache = {"k": place.randn(b, h, w, d), "v": place.randn(b, h, w, d)}
    return RollingCache(h, d).to(place.device), (*(place.randn(b, h, 1, d) for _ in range(3)), cache)


def replay_insert(
    storage: dict[str, Tensor], cursor: Tensor, state: Tensor, action: Tensor, reward: Tensor, sample: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """A ring buffer: insert a batch at the cursor, move the cursor, give a batch of three-step returns."""
    capacity = storage["state"].shape[0]
    n = state.shape[0]
    index = (cursor + torch.arange(n, device=state.device)) % capacity
    storage["state"][index] = state
    storage["action"][index] = action
    storage["reward"][index] = reward
    cursor += n
    steps = (sample[:, None] + torch.arange(3, device=state.device)) % capacity
    discount = 0.99 ** torch.arange(3, device=state.device, dtype=reward.dtype)
    returns = (storage["reward"][steps] * discount).sum(1)
    return storage["state"][sample], storage["action"][sample], returns


def replay(place: Place) -> Made:
    capacity, n, d = place.size(100_000, 1_000_000), place.size(16_384, 32_768), 32
    storage = {
        "state": place.randn(capacity, d),
        "action": place.randint(6, capacity),
        "reward": place.randn(capacity),
    }
    cursor = torch.tensor(capacity - 100, device=place.device)
    new = place.randn(n, d), place.randint(6, n), place.randn(n)
    return replay_insert, (storage, cursor, *new, place.randint(capacity, n))


def ema_weights(average: list[Tensor], weights: list[Tensor], step: Tensor) -> Tensor:
    """The moving average of diffusers' EMAModel, with its warm-up; written in place. Gives the distance."""
    step.add_(1)
    decay = torch.clamp(1 - (1 + step) ** -0.75, max=0.9999)
    distance = torch.zeros((), dtype=weights[0].dtype, device=weights[0].device)
    for a, w in zip(average, weights, strict=True):
        a.sub_((1 - decay) * (a - w))
        distance += (a - w).square().sum()
    return distance.sqrt()


def ema(place: Place) -> Made:
    d = place.size(96, 1024)
    shapes = [(d, d), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)] * 6
    average, weights = [place.randn(*s) for s in shapes], [place.randn(*s) for s in shapes]
    return ema_weights, (average, weights, torch.tensor(100.0, device=place.device))


class QuantisedCache(nn.Module):
    """Keys and values kept as int8 with a scale per token (KIVI's simplest): write one, attend over all."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, codes: Tensor, scales: Tensor, position: Tensor) -> Tensor:
        new = torch.stack([k, v])
        scale = new.abs().amax(-1, keepdim=True).clamp(min=1e-6) / 127
        codes.index_copy_(3, position, torch.round(new / scale).clamp(-127, 127).to(torch.int8))
        scales.index_copy_(3, position, scale)
        keys, values = (codes.to(q.dtype) * scales).unbind(0)
        late = torch.arange(keys.size(-2), device=q.device) > position
        scores = q @ keys.mT * q.size(-1) ** -0.5
        return scores.masked_fill(late, -1e9).softmax(-1) @ values


def int8_cache(place: Place) -> Made:
    b, h, t, d = place.size(8, 32), 8, place.size(512, 2048), place.size(32, 128)
    codes = (place.randint(255, 2, b, h, t, d) - 127).to(torch.int8)
    scales = 0.01 + 0.01 * place.rand(2, b, h, t, 1)
    q, k, v = (place.randn(b, h, 1, d) for _ in range(3))
    return QuantisedCache(), (q, k, v, codes, scales, torch.tensor([t - 20], device=place.device))


ROWS: tuple[Row, ...] = (
    Row("program/slice_kv_cache", slice_cache, writes=True),
    Row("program/index_copy_kv_cache", index_copy_cache, writes=True),
    Row("program/paged_attention", paged_cache, writes=True),
    Row("program/rolling_kv_cache", rolling_cache, writes=True),
    Row("program/replay_buffer", replay, writes=True),
    Row("program/ema_weights", ema, writes=True),
    Row("program/int8_kv_cache", int8_cache, writes=True),
)
