"""Attention by hand."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class CausalSelfAttention(nn.Module):
    """nanoGPT's before flash attention: a buffer of the mask, masked_fill, softmax."""

    bias: Tensor

    def __init__(self, d: int, heads: int, block: int) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.n_head, self.n_embd = heads, d
        self.register_buffer("bias", torch.tril(torch.ones(block, block)).view(1, 1, block, block))

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


def causal(place: Place) -> Made:
    d, length = place.size(128, 1024), place.size(128, 1024)
    return CausalSelfAttention(d, 4, length).to(place.device), (place.randn(place.size(4, 8), length, d),)


def alibi_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Press et al., 2022: a slope per head times the distance."""
    heads, length = q.shape[1], q.shape[2]
    slopes = torch.pow(2.0, -8.0 / heads * torch.arange(1, heads + 1, device=q.device, dtype=q.dtype))
    at = torch.arange(length, device=q.device)
    distance = (at[None, :] - at[:, None]).to(q.dtype)
    bias = slopes.view(-1, 1, 1) * distance
    bias = bias.masked_fill(distance > 0, float("-inf"))
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5 + bias
    return torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), v)


def alibi(place: Place) -> Made:
    shape = place.size(2, 8), 8, place.size(192, 1024), place.size(32, 64)
    return alibi_attention, tuple(place.randn(*shape) for _ in range(3))


def soft_capped_window(q: Tensor, k: Tensor, v: Tensor, window: int = 64, cap: float = 30.0) -> Tensor:
    """Gemma 2's local layers: grouped queries, tanh of the scores, a causal window."""
    b, heads, t, d = q.shape
    kv_heads = k.shape[1]
    q = q.view(b, kv_heads, heads // kv_heads, t, d)
    scores = torch.matmul(q, k.unsqueeze(2).transpose(-1, -2)) / d**0.5
    scores = cap * torch.tanh(scores / cap)
    row = torch.arange(t, device=q.device).unsqueeze(1)
    column = torch.arange(t, device=q.device).unsqueeze(0)
    visible = (column <= row) & (row - column < window)
    scores = torch.where(visible, scores, torch.tensor(torch.finfo(q.dtype).min, dtype=q.dtype, device=q.device))
    weights = torch.softmax(scores, -1)
    return torch.matmul(weights, v.unsqueeze(2)).flatten(1, 2)


def sliding_window(place: Place) -> Made:
    b, t, d = place.size(2, 8), place.size(192, 1024), place.size(32, 128)
    return soft_capped_window, (place.randn(b, 8, t, d), place.randn(b, 2, t, d), place.randn(b, 2, t, d))


class WindowAttention(nn.Module):
    """Swin's: windows of a map, a table of relative positions, cosine similarity."""

    index: Tensor

    def __init__(self, d: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.02)
        self.logit_scale = nn.Parameter(torch.log(10 * torch.ones(heads, 1, 1)))
        grid = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        relative = (grid[:, :, None] - grid[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", relative[..., 0] * (2 * window - 1) + relative[..., 1])

    def forward(self, x: Tensor) -> Tensor:
        b, h, w, c = x.shape
        m = self.window
        x = torch.roll(x, shifts=(-m // 2, -m // 2), dims=(1, 2))
        windows = x.view(b, h // m, m, w // m, m, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, m * m, c)
        q, k, v = self.qkv(windows).reshape(-1, m * m, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        scores = scores * self.logit_scale.clamp(max=4.6).exp()
        bias = self.table[self.index.view(-1)].view(m * m, m * m, -1).permute(2, 0, 1)
        y = ((scores + bias.unsqueeze(0)).softmax(-1) @ v).transpose(1, 2).reshape(-1, m * m, c)
        y = self.proj(y).view(b, h // m, w // m, m, m, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return torch.roll(y, shifts=(m // 2, m // 2), dims=(1, 2))


def relative_position(place: Place) -> Made:
    d, side = place.size(64, 256), place.size(28, 112)
    return WindowAttention(d, 4, 7).to(place.device), (place.randn(place.size(2, 16), side, side, d),)


class CrossAttention(nn.Module):
    """A decoder's look at a padded source: pre-norm, masks from lengths, dropped attention at rate 0."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_q, self.norm_kv = nn.LayerNorm(d), nn.LayerNorm(d)
        self.to_q, self.to_kv = nn.Linear(d, d, bias=False), nn.Linear(d, 2 * d, bias=False)
        self.to_out = nn.Sequential(nn.Linear(d, d), nn.Dropout(0.0))

    def forward(self, x: Tensor, source: Tensor, lengths: Tensor) -> Tensor:
        def split(t: Tensor) -> Tensor:
            return t.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        context = self.norm_kv(source)
        q = split(self.to_q(self.norm_q(x)))
        k, v = map(split, self.to_kv(context).chunk(2, dim=-1))
        sim = torch.einsum("bhid,bhjd->bhij", q, k) * q.size(-1) ** -0.5
        padding = torch.arange(source.size(1), device=x.device)[None, :] >= lengths[:, None]
        sim = sim.masked_fill(padding[:, None, None, :], -torch.finfo(sim.dtype).max)
        sim = sim - sim.amax(dim=-1, keepdim=True).detach()
        attn = sim.softmax(dim=-1)
        out = torch.einsum("bhij,bhjd->bhid", attn, v).transpose(1, 2).flatten(2)
        return x + self.to_out(out)


def cross(place: Place) -> Made:
    b, d, length = place.size(4, 16), place.size(128, 1024), place.size(160, 1500)
    args = place.randn(b, length // 2, d), place.randn(b, length, d), place.randint(length - 1, b) + 1
    return CrossAttention(d, 4).to(place.device), args


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """GPT-NeoX's halves."""
    x1, x2 = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-x2, x1), dim=-1) * sin


class RotaryAttention(nn.Module):
    """Llama's attention with query-key norms and scaled_dot_product_attention."""

    inv_freq: Tensor

    def __init__(self, d: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.hd = heads, kv_heads, d // heads
        self.wq, self.wk = nn.Linear(d, d, bias=False), nn.Linear(d, kv_heads * self.hd, bias=False)
        self.wv, self.wo = nn.Linear(d, kv_heads * self.hd, bias=False), nn.Linear(d, d, bias=False)
        self.q_norm, self.k_norm = nn.RMSNorm(self.hd), nn.RMSNorm(self.hd)
        self.register_buffer("inv_freq", 1e4 ** (-torch.arange(0, self.hd, 2).float() / self.hd))

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        angles = torch.outer(torch.arange(t, device=x.device).to(self.inv_freq.dtype), self.inv_freq)
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos(), angles.sin()
        q = self.q_norm(self.wq(x).view(b, t, self.heads, self.hd)).transpose(1, 2)
        k = self.k_norm(self.wk(x).view(b, t, self.kv_heads, self.hd)).transpose(1, 2)
        v = self.wv(x).view(b, t, self.kv_heads, self.hd).transpose(1, 2)
        q, k = rotary(q, cos, sin), rotary(k, cos, sin)
        repeats = self.heads // self.kv_heads
        k, v = (s[:, :, None].expand(-1, -1, repeats, -1, -1).flatten(1, 2) for s in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, t, d))


def rotary_attention(place: Place) -> Made:
    d, t = place.size(256, 2048), place.size(128, 1024)
    return RotaryAttention(d, 8, 2).to(place.device), (place.randn(place.size(2, 4), t, d),)


class PositionalEncoder(nn.Module):
    """Vaswani et al.'s first lines: scaled embeddings, sines and cosines, a feed-forward layer with post-norm."""

    pe: Tensor

    def __init__(self, vocabulary: int, d: int, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d, padding_idx=0)
        pe = torch.zeros(length, d)
        position = torch.arange(0, length, dtype=torch.float).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, 20)
        self.d = d

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = self.embedding(tokens) * math.sqrt(self.d) + self.pe[: tokens.size(1)]
        x = self.norm(x + self.ff(x))
        keep = (tokens != 0).unsqueeze(-1)
        pooled = (x * keep).sum(1) / keep.sum(1).clamp(min=1)
        return F.cross_entropy(self.head(pooled), labels)


def sinusoidal(place: Place) -> Made:
    d, length = place.size(128, 768), place.size(64, 512)
    model = PositionalEncoder(place.size(5000, 50_000), d, length).to(place.device)
    batch = place.size(16, 64)
    return model, (place.randint(5000, batch, length), place.randint(20, batch))


def blockwise_attention(q: Tensor, k: Tensor, v: Tensor, block: int = 32) -> Tensor:
    """Flash attention's online softmax in plain Python: a running maximum and a running sum over blocks."""
    scale = q.shape[-1] ** -0.5
    out = torch.zeros_like(q)
    largest = torch.full_like(q[..., :1], float("-inf"))
    total = torch.zeros_like(largest)
    for start in range(0, k.shape[-2], block):
        s = (q * scale) @ k[..., start : start + block, :].transpose(-1, -2)
        m = torch.maximum(largest, s.amax(-1, keepdim=True))
        p = torch.exp(s - m)
        shrink = torch.exp(largest - m)
        total = total * shrink + p.sum(-1, keepdim=True)
        out = out * shrink + p @ v[..., start : start + block, :]
        largest = m
    return out / total


def online_softmax(place: Place) -> Made:
    shape = place.size(2, 8), 4, place.size(192, 512), place.size(32, 64)
    return blockwise_attention, tuple(place.randn(*shape).requires_grad_() for _ in range(3))


ROWS: tuple[Row, ...] = (
    Row("program/causal_attention", causal, "training"),
    Row("program/alibi_attention", alibi),
    Row("program/soft_capped_window", sliding_window),
    Row("program/swin_window_attention", relative_position, "training"),
    Row("program/padded_cross_attention", cross, "training"),
    Row("program/rotary_attention", rotary_attention),
    Row("program/sinusoidal_encoder", sinusoidal, "training"),
    Row("program/blockwise_attention", online_softmax, "training"),
)
