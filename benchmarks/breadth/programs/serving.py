"""What a server of language models computes beside the layers: adapters, caches, positions, grammars, marks."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class ManyAdapters(nn.Module):
    """Sheng et al., 2023 (S-LoRA): each request's own low-rank update of one linear layer, some without any."""

    def __init__(self, d: int, adapters: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(d, 3 * d)
        self.down = nn.Parameter(torch.randn(adapters, rank, d) * d**-0.5)
        self.up = nn.Parameter(torch.randn(adapters, 3 * d, rank) * rank**-0.5)
        self.register_buffer("scale", 0.5 + torch.rand(adapters))

    def forward(self, x: Tensor, adapter: Tensor) -> tuple[Tensor, ...]:
        own = adapter.clamp(min=0)
        scale = torch.where(adapter >= 0, self.get_buffer("scale")[own], 0.0).to(x.dtype)
        h = torch.bmm(x, self.down[own].mT) * scale[:, None, None]
        return (self.base(x) + torch.bmm(h, self.up[own].mT)).chunk(3, -1)


def many_adapters(place: Place) -> Made:
    d, requests, adapters = place.size(64, 2048), place.size(16, 64), place.size(6, 48)
    model = ManyAdapters(d, adapters, 16).to(place.device)
    return model, (place.randn(requests, 4, d), place.randint(adapters + 1, requests) - 1)


def packed_cache_attention(
    q: Tensor, k: Tensor, k_scale: Tensor, k_zero: Tensor, v: Tensor, v_scale: Tensor, v_zero: Tensor, recent: Tensor
) -> Tensor:
    """Liu et al., 2024 (KIVI): two-bit keys by channel and values by token, the latest tokens at full precision."""
    shifts = torch.arange(0, 8, 2, device=k.device, dtype=torch.uint8)

    def unpack(x: Tensor) -> Tensor:
        return ((x[..., None] >> shifts) & 3).flatten(-2).to(q.dtype)

    group = k.size(-2) // k_scale.size(-2)
    keys = unpack(k).unflatten(-2, (-1, group)) * k_scale[..., None, :] + k_zero[..., None, :]
    values = unpack(v) * v_scale + v_zero
    keys = torch.cat([keys.flatten(-3, -2), recent[0]], -2)
    values = torch.cat([values, recent[1]], -2)
    return (q @ keys.mT * q.size(-1) ** -0.5).softmax(-1) @ values


def two_bit_cache(place: Place) -> Made:
    b, h, t, d, group = place.size(2, 16), place.size(4, 8), place.size(256, 4096), 64, 32
    k, v = (place.randint(256, b, h, t, d // 4).to(torch.uint8) for _ in range(2))
    scales = (0.5 + place.rand(b, h, t // group, d), -1 - place.rand(b, h, t // group, d))
    return packed_cache_attention, (
        place.randn(b, h, 4, d),
        k,
        *scales,
        v,
        0.5 + place.rand(b, h, t, 1),
        -1 - place.rand(b, h, t, 1),
        place.randn(2, b, h, 16, d),
    )


def yarn_positions(q: Tensor, k: Tensor, position: Tensor, factor: float = 8.0) -> tuple[Tensor, Tensor]:
    """Peng et al., 2023 (YaRN): slow rotations interpolated, fast ones kept, a ramp between, a temperature."""
    d, base, length = q.size(-1), 10_000.0, 2048
    i = torch.arange(0, d, 2, device=q.device).to(q.dtype)
    frequency = base ** (-i / d)

    def dimension(turns: float) -> float:
        return d * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = math.floor(dimension(32)), math.ceil(dimension(1))
    keep = 1 - ((i / 2 - low) / (high - low)).clamp(0, 1)
    frequency = frequency / factor * (1 - keep) + frequency * keep
    angle = position[:, None, :, None] * frequency
    temperature = 0.1 * math.log(factor) + 1
    cos, sin = angle.cos() * temperature, angle.sin() * temperature

    def turn(x: Tensor) -> Tensor:
        x = F.rms_norm(x, (d,))
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    return turn(q), turn(k)


def yarn(place: Place) -> Made:
    b, h, t, d = place.size(2, 8), place.size(8, 32), place.size(64, 2048), 64
    q = place.randn(b, t, h, d).transpose(1, 2)
    return yarn_positions, (q, place.randn(b, t, h // 4, d).transpose(1, 2), place.randint(64, b, t))


def heavy_hitters(q: Tensor, k: Tensor, v: Tensor, keep: int, recent: int) -> tuple[Tensor, ...]:
    """Zhang et al., 2023 (H2O): the tokens with most attention so far stay in the cache, with the latest ones."""
    b, h, t, d = k.shape
    i = torch.arange(t, device=k.device)
    query = torch.arange(t - q.size(2), t, device=k.device)
    scores = (q @ k.mT * d**-0.5).masked_fill(i > query[:, None], float("-inf")).softmax(-1)
    mass = scores.sum(2)
    old = mass[..., : t - recent].topk(keep, -1).indices.sort(-1).values
    index = torch.cat([old, i[t - recent :].expand(b, h, -1)], -1)[..., None].expand(-1, -1, -1, d)
    return scores @ v, k.gather(2, index), v.gather(2, index), mass.gather(2, index[..., 0])


def eviction(place: Place) -> Made:
    b, h, t, d = place.size(1, 4), place.size(2, 16), place.size(192, 2048), place.size(16, 64)
    q, k, v = place.randn(b, h, t // 2, d), place.randn(b, h, t, d), place.randn(b, h, t, d)
    return heavy_hitters, (q, k, v, t // 8, t // 8)


def grammar_decoding(logits: Tensor, allowed: Tensor, successor: Tensor, kind: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Dong et al., 2024 (XGrammar): an automaton's state picks a packed mask of tokens; the best goes on from there."""
    batch, steps, vocabulary = logits.shape
    state = torch.zeros(batch, dtype=torch.int64, device=logits.device)
    shifts = torch.arange(32, device=logits.device, dtype=torch.int32)
    total = torch.zeros_like(logits[:, 0, 0])
    tokens, states = [], []
    for t in range(steps):
        mask = ((allowed[state][:, :, None] >> shifts) & 1).flatten(1).to(torch.bool)[:, :vocabulary]
        masked = logits[:, t].masked_fill(~mask, float("-inf"))
        best, token = masked.max(-1)
        total = total + best - masked.logsumexp(-1)
        state = successor[state, kind[token]]
        tokens.append(token)
        states.append(state)
    return torch.stack(tokens, 1), torch.stack(states, 1), total


def grammar(place: Place) -> Made:
    batch, steps, vocabulary, states, kinds = place.size(8, 64), 8, place.size(4096, 64_000), 24, 12
    allowed = (place.randint(1 << 32, states, vocabulary // 32) - (1 << 31)).to(torch.int32)
    return grammar_decoding, (
        2 * place.randn(batch, steps, vocabulary),
        allowed,
        place.randint(states, states, kinds),
        place.randint(kinds, vocabulary),
    )


def mirostat(logits: Tensor, noise: Tensor, target: float = 5.0, rate: float = 0.1) -> tuple[Tensor, Tensor]:
    """Basu et al., 2021, second version: tokens more surprising than a limit go, the limit follows what was drawn."""
    limit = torch.full_like(logits[:, 0, 0], 2 * target)
    limits, tokens = [], []
    for t in range(logits.size(1)):
        log_p = logits[:, t].log_softmax(-1)
        surprise = -log_p / math.log(2)
        inside = (surprise <= limit[:, None]) | (surprise == surprise.amin(-1, keepdim=True))
        kept = log_p.masked_fill(~inside, float("-inf"))
        token = (kept + noise[:, t]).argmax(-1, keepdim=True)
        seen = (kept.logsumexp(-1) - kept.gather(-1, token)[:, 0]) / math.log(2)
        limit = limit - rate * (seen - target)
        limits.append(limit)
        tokens.append(token)
    return torch.cat(tokens, 1), torch.stack(limits, 1)


def surprise_limits(place: Place) -> Made:
    shape = place.size(4, 32), 10, place.size(3000, 32_000)
    return mirostat, (3 * place.randn(*shape), -torch.log(-torch.log(place.rand(*shape).clamp(1e-6, 1 - 1e-6))))


def repeated_sequences(logits: Tensor, history: Tensor, longest: int = 8) -> Tensor:
    """The DRY sampler: a token is dearer the longer the stretch that it would repeat from before."""
    n = history.size(1)
    match = torch.zeros_like(history)
    alive = torch.ones_like(history, dtype=torch.bool)
    for back in range(longest):
        shifted = F.pad(history[:, : n - 1 - back], (back + 1, 0), value=-1)
        alive = alive & (shifted == history[:, n - 1 - back, None])
        match = match + alive
    cost = torch.where(match >= 2, 0.8 * 1.75 ** (match - 2).to(logits.dtype), 0.0)
    penalty = torch.zeros_like(logits).scatter_reduce(1, history, cost, "amax")
    return (logits - penalty).log_softmax(-1)


def dry(place: Place) -> Made:
    batch, n, vocabulary = place.size(16, 256), place.size(512, 4096), place.size(4000, 64_000)
    return repeated_sequences, (3 * place.randn(batch, vocabulary), place.randint(3, batch, n))


def watermark_scores(tokens: Tensor, key: int = 15_485_863, share: float = 0.25) -> tuple[Tensor, Tensor, Tensor]:
    """Kirchenbauer et al., 2023: green tokens by a hash of their predecessors, each pair once, z-scores of windows."""
    n = tokens.size(1) - 1
    pair = tokens[:, :-1] * 1_000_003 + tokens[:, 1:]
    x = (pair * key) & 0xFFFFFFFF
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    green = ((x ^ (x >> 16)) & 0xFFFF) < int(share * 65536)
    ordered, order = pair.sort(dim=1, stable=True)
    fresh = torch.ones_like(green).scatter(1, order, F.pad(ordered[:, 1:] != ordered[:, :-1], (1, 0), value=True))
    hits = F.pad((green & fresh).cumsum(1), (1, 0))
    count = F.pad(fresh.cumsum(1), (1, 0))
    scores = []
    for width in (n // 8, n // 4, n // 2, n):
        h, c = hits[:, width:] - hits[:, :-width], (count[:, width:] - count[:, :-width]).clamp(min=1)
        scores.append(((h - share * c) / (share * (1 - share) * c).sqrt()).amax(1))
    return torch.stack(scores, 1), green.sum(1), fresh.sum(1)


def watermark(place: Place) -> Made:
    return watermark_scores, (place.randint(400, place.size(64, 4096), place.size(513, 2049)),)


ROWS: tuple[Row, ...] = (
    Row("program/many_adapters", many_adapters, dtype=torch.bfloat16),
    Row("program/two_bit_kv_cache", two_bit_cache),
    Row("program/yarn_positions", yarn),
    Row("program/heavy_hitter_eviction", eviction),
    Row("program/grammar_decoding", grammar),
    Row("program/mirostat_sampling", surprise_limits),
    Row("program/repeated_sequence_penalty", dry),
    Row("program/watermark_scores", watermark),
)
