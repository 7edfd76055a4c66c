"""Blocks and losses of language models since 2023: latent attention, skipped layers, chunked recurrences, policies."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def rms(x: Tensor) -> Tensor:
    """Root-mean-square norm without weights."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def yarn(position: Tensor, d: int, like: Tensor, base: float = 10_000.0, factor: float = 4.0) -> tuple[Tensor, Tensor]:
    """Peng et al., 2023: cosines and sines whose low frequencies are stretched, high ones left, a ramp between."""
    i = torch.arange(0, d, 2, dtype=like.dtype, device=like.device)
    frequency = base ** (-i / d)
    low = d * math.log(2048 / (32 * 2 * math.pi)) / (2 * math.log(base))
    high = d * math.log(2048 / (1 * 2 * math.pi)) / (2 * math.log(base))
    ramp = ((i / 2 - low) / (high - low)).clamp(0, 1)
    frequency = frequency / factor * ramp + frequency * (1 - ramp)
    angle = position.to(like.dtype)[:, None] * frequency
    scale = 0.1 * math.log(factor) + 1.0
    return angle.cos() * scale, angle.sin() * scale


def interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of neighbouring pairs."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


class LatentAttention(nn.Module):
    """DeepSeek-V2's: keys and values from a small latent, a shared rotary key beside them."""

    def __init__(self, d: int, heads: int, latent: int, nope: int = 32, rope: int = 16) -> None:
        super().__init__()
        self.heads, self.latent, self.nope, self.rope = heads, latent, nope, rope
        self.q_down, self.q_up = nn.Linear(d, 2 * latent, bias=False), nn.Linear(2 * latent, heads * (nope + rope))
        self.kv_down = nn.Linear(d, latent + rope, bias=False)
        self.kv_up = nn.Linear(latent, heads * 2 * nope, bias=False)
        self.q_norm, self.kv_norm = nn.RMSNorm(2 * latent), nn.RMSNorm(latent)
        self.out = nn.Linear(heads * nope, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        cos, sin = yarn(torch.arange(n, device=x.device), self.rope, x)
        q = self.q_up(self.q_norm(self.q_down(x))).view(b, n, self.heads, -1).transpose(1, 2)
        q_nope, q_rope = q.split([self.nope, self.rope], dim=-1)
        latent, k_rope = self.kv_down(x).split([self.latent, self.rope], dim=-1)
        k_nope, v = self.kv_up(self.kv_norm(latent)).view(b, n, self.heads, -1).transpose(1, 2).chunk(2, dim=-1)
        k_rope = interleaved(k_rope[:, None], cos, sin).expand(-1, self.heads, -1, -1)
        q = torch.cat([q_nope, interleaved(q_rope, cos, sin)], dim=-1)
        k = torch.cat([k_nope, k_rope], dim=-1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).flatten(2))


def latent_attention(place: Place) -> Made:
    batch, n, d = place.size(2, 4), place.size(64, 1024), place.size(96, 512)
    model = LatentAttention(d, place.size(4, 8), place.size(32, 128), place.size(16, 64), place.size(8, 32))
    return model.to(place.device), (place.randn(batch, n, d).requires_grad_(),)


class AbsorbedDecoding(nn.Module):
    """The same attention's decode step in latent space: the up-projections are absorbed, the cache is written."""

    def __init__(self, d: int, heads: int, latent: int, nope: int, rope: int) -> None:
        super().__init__()
        self.heads, self.latent, self.rope = heads, latent, rope
        self.q_nope = nn.Parameter(torch.randn(heads, nope, d) / d**0.5)
        self.q_rope = nn.Parameter(torch.randn(heads, rope, d) / d**0.5)
        self.k_up = nn.Parameter(torch.randn(heads, nope, latent) / latent**0.5)
        self.v_up = nn.Parameter(torch.randn(heads, nope, latent) / latent**0.5)
        self.down = nn.Linear(d, latent + rope, bias=False)
        self.out = nn.Linear(heads * nope, d, bias=False)

    def forward(self, x: Tensor, cache: Tensor, lengths: Tensor) -> Tensor:
        b = x.size(0)
        cos, sin = yarn(lengths, self.rope, x)
        latent, key = self.down(x).split([self.latent, self.rope], dim=-1)
        cache[torch.arange(b, device=x.device), lengths] = torch.cat([rms(latent), interleaved(key, cos, sin)], dim=-1)
        q = torch.einsum("bd,hnd,hnl->bhl", x, self.q_nope, self.k_up)
        rotated = interleaved(torch.einsum("bd,hrd->bhr", x, self.q_rope), cos[:, None], sin[:, None])
        scores = torch.einsum("bhl,btl->bht", torch.cat([q, rotated], dim=-1), cache) * (self.q_nope.size(1) ** -0.5)
        seen = torch.arange(cache.size(1), device=x.device) <= lengths[:, None]
        p = scores.masked_fill(~seen[:, None], -torch.inf).softmax(-1)
        mixed = torch.einsum("bht,btl->bhl", p, cache[..., : self.latent])
        return self.out(torch.einsum("bhl,hnl->bhn", mixed, self.v_up).flatten(1))


def absorbed(place: Place) -> Made:
    b, t, d, heads, latent, rope = place.size(16, 64), place.size(512, 8192), place.size(128, 1024), 8, 64, 16
    model = AbsorbedDecoding(d, heads, latent, 32, rope).to(place.device)
    return model, (place.randn(b, d), place.randn(b, t, latent + rope), t // 2 + place.randint(t // 2, b))


class MixtureOfDepths(nn.Module):
    """Raposo et al., 2024: a router picks the tokens that go through a block; the others pass by."""

    def __init__(self, d: int, heads: int, capacity: float = 0.25) -> None:
        super().__init__()
        self.heads, self.capacity = heads, capacity
        self.router, self.auxiliary = nn.Linear(d, 1, bias=False), nn.Linear(d, 1)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.gate, self.down = nn.Linear(d, 2 * d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        b, n, d = x.shape
        weight = self.router(x).squeeze(-1)
        k = int(n * self.capacity)
        chosen = weight.topk(k, dim=1, sorted=False).indices.sort(dim=1).values
        index = chosen[..., None].expand(-1, -1, d)
        picked = x.gather(1, index)
        q, key, v = self.qkv(rms(picked)).view(b, k, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        h = picked + self.out(F.scaled_dot_product_attention(q, key, v, is_causal=True).transpose(1, 2).flatten(2))
        z = rms(h)
        h = h + self.down(F.silu(self.gate(z)) * self.up(z))
        scaled = (h - picked) * torch.sigmoid(weight.gather(1, chosen))[..., None]
        y = x.scatter_add(1, index, scaled)
        target = torch.zeros_like(weight).scatter(1, chosen, 1.0)
        return y, F.binary_cross_entropy_with_logits(self.auxiliary(x.detach()).squeeze(-1), target)


def mixture_of_depths(place: Place) -> Made:
    b, n, d = place.size(2, 8), place.size(128, 1024), place.size(64, 512)
    return MixtureOfDepths(d, 4).to(place.device), (place.randn(b, n, d).requires_grad_(),)


def segment_sums(x: Tensor) -> Tensor:
    """Mamba-2's segsum: sums over (j, i] below the diagonal, -inf above."""
    n = x.size(-1)
    x = x[..., None].expand(*x.shape, n)
    strict = torch.tril(torch.ones(n, n, dtype=torch.bool, device=x.device), diagonal=-1)
    sums = torch.cumsum(x.masked_fill(~strict, 0), dim=-2)
    lower = torch.tril(torch.ones(n, n, dtype=torch.bool, device=x.device))
    return sums.masked_fill(~lower, -torch.inf)


def state_space_dual(x: Tensor, a: Tensor, b: Tensor, c: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """Dao and Gu, 2024: the minimal chunked form; inside chunks quadratic, between them a recurrence."""
    x, a, b, c = (t.unflatten(1, (-1, chunk)) for t in (x, -F.softplus(a), b, c))
    a = a.permute(0, 3, 1, 2)
    total = torch.cumsum(a, dim=-1)
    inside = torch.exp(segment_sums(a))
    y_diagonal = torch.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", c, b, inside, x)
    decay = torch.exp(total[..., -1:] - total)
    states = torch.einsum("bclhn,bhcl,bclhp->bchpn", b, decay, x)
    states = torch.cat([torch.zeros_like(states[:, :1]), states], dim=1)
    between = torch.exp(segment_sums(F.pad(total[..., -1], (1, 0))))
    states = torch.einsum("bhzc,bchpn->bzhpn", between, states)
    states, final = states[:, :-1], states[:, -1]
    y_off = torch.einsum("bclhn,bchpn,bhcl->bclhp", c, states, torch.exp(total))
    return (y_diagonal + y_off).flatten(1, 2), final


def mamba2(place: Place) -> Made:
    b, n, h, chunk = place.size(1, 2), place.size(128, 1024), place.size(4, 16), place.size(16, 64)
    x = (0.5 * place.randn(b, n, h, 16)).requires_grad_()
    a = (place.randn(b, n, h) - 2).requires_grad_()
    bc = [(0.5 * place.randn(b, n, h, 16)).requires_grad_() for _ in range(2)]
    return state_space_dual, (x, a, *bc, chunk)


class Rwkv7(nn.Module):
    """Peng et al., 2025: token shift, low-rank decays, a delta rule with vector gates, step by step in PyTorch."""

    def __init__(self, d: int, head: int) -> None:
        super().__init__()
        self.head = head
        self.mix = nn.Parameter(torch.rand(5, d))
        self.r, self.k, self.v, self.out = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.w0, self.w1, self.w2 = nn.Parameter(torch.zeros(d)), nn.Linear(d, 16, bias=False), nn.Linear(16, d)
        self.a1, self.a2 = nn.Linear(d, 16, bias=False), nn.Linear(16, d)
        self.k_k, self.k_a = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        self.norm = nn.GroupNorm(d // head, d, eps=64e-5)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        shifted = F.pad(x, (0, 0, 1, -1)) - x
        xr, xw, xk, xv, xa = (x + shifted * m for m in self.mix)
        r, k, v = self.r(xr), self.k(xk), self.v(xv)
        w = torch.exp(-0.606531 * torch.sigmoid(self.w0 + self.w2(torch.tanh(self.w1(xw)))))
        a = torch.sigmoid(self.a2(self.a1(xa)))
        kk = F.normalize((k * self.k_k).unflatten(-1, (-1, self.head)), dim=-1)
        k = k * (1 + (a - 1) * self.k_a)
        r, w, k, v, a = (t.unflatten(-1, (-1, self.head)) for t in (r, w, k, v, a))
        state = x.new_zeros(b, d // self.head, self.head, self.head)
        ys = []
        for t in range(n):
            old = torch.einsum("bhij,bhj->bhi", state, kk[:, t])
            state = (
                state * w[:, t, :, None, :]
                - old[..., None] * (kk[:, t] * a[:, t])[:, :, None, :]
                + v[:, t, :, :, None] * k[:, t, :, None, :]
            )
            ys.append(torch.einsum("bhij,bhj->bhi", state, r[:, t]))
        y = torch.stack(ys, dim=1).flatten(0, 1).flatten(1)
        return x + self.out(self.norm(y).view(b, n, d))


def rwkv7(place: Place) -> Made:
    b, n, d = place.size(2, 16), place.size(20, 32), place.size(64, 512)
    return Rwkv7(d, place.size(16, 64)).to(place.device), (place.randn(b, n, d).requires_grad_(),)


class SpeedrunBlock(nn.Module):
    """The nanoGPT speedrun's: half rotary, normed queries and keys, values mixed with the first layer's, ReLU²."""

    def __init__(self, vocabulary: int, d: int, heads: int, layers: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(vocabulary, d)
        self.qkv = nn.ParameterList(nn.Parameter(torch.randn(3, d, d) / d**0.5) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(d, 4 * d, bias=False) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(4 * d, d, bias=False) for _ in range(layers))
        self.lambdas = nn.Parameter(torch.tensor([[1.0, 0.1, 0.5, 0.5]] * layers))
        self.head = nn.Linear(d, vocabulary, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        b, n = tokens.shape
        x = x0 = rms(self.embed(tokens))
        size = x.size(-1) // self.heads
        live = (1 / 1024) ** torch.linspace(0, 1, size // 4, dtype=x.dtype, device=x.device)
        frequency = torch.cat([live, torch.zeros_like(live)])
        theta = torch.arange(n, device=x.device)[:, None] * frequency
        cos, sin = theta.cos()[:, None], theta.sin()[:, None]
        first: Tensor | None = None
        for i, weight in enumerate(self.qkv):
            keep, skip, own, old = self.lambdas[i]
            x = keep * x + skip * x0
            q, k, v = F.linear(rms(x), weight.flatten(0, 1)).view(b, n, 3, self.heads, size).unbind(2)
            first = v if first is None else first
            v = own * v + old * first
            q, k = rms(q), rms(k)
            q1, q2 = q.chunk(2, dim=-1)
            k1, k2 = k.chunk(2, dim=-1)
            q = torch.cat([q1 * cos + q2 * sin, -q1 * sin + q2 * cos], dim=-1)
            k = torch.cat([k1 * cos + k2 * sin, -k1 * sin + k2 * cos], dim=-1)
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.12)
            x = x + self.out[i](y.transpose(1, 2).reshape(b, n, -1))
            x = x + self.down[i](F.relu(self.up[i](rms(x))).square())
        logits = self.head(rms(x))
        logits = 30 * torch.sigmoid(logits / 7.5)
        z = torch.logsumexp(logits, dim=-1)
        picked = logits.gather(-1, targets[..., None]).squeeze(-1)
        return (z - picked).mean(), 1e-4 * z.square().mean()


def speedrun(place: Place) -> Made:
    b, n, d, vocabulary = place.size(2, 4), place.size(48, 512), place.size(64, 384), place.size(500, 8192)
    tokens, targets = place.randint(vocabulary, b, n), place.randint(vocabulary, b, n)
    return SpeedrunBlock(vocabulary, d, 4).to(place.device), (tokens, targets)


def lightning(q: Tensor, k: Tensor, v: Tensor, slope: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Linear attention with a decay by head, in blocks: masked products inside, a decayed state between (MiniMax's)."""
    b, h, n, d = q.shape
    i = torch.arange(block, device=q.device, dtype=q.dtype)
    difference = i[:, None] - i
    inside = torch.where(difference >= 0, torch.exp(-slope * difference.clamp(min=0)), 0.0)
    from_start = torch.exp(-slope * (i[:, None] + 1))
    to_end = torch.exp(-slope * (block - 1 - i[:, None]))
    whole = torch.exp(-slope * block)
    state = q.new_zeros(b, h, d, d)
    out = torch.empty_like(v)
    for start in range(0, n, block):
        part = slice(start, start + block)
        qi, ki, vi = q[:, :, part], k[:, :, part], v[:, :, part]
        near = (qi @ ki.mT * inside) @ vi
        far = (qi * from_start) @ state
        out[:, :, part] = near + far
        state = whole * state + (ki * to_end).mT @ vi
    return rms(out), state


def lightning_attention(place: Place) -> Made:
    b, h, n, d = place.size(1, 4), place.size(4, 16), place.size(256, 2048), place.size(16, 64)
    slope = (2.0 ** -(8 * (torch.arange(h, device=place.device) + 1) / h)).view(h, 1, 1)
    q, k, v = (place.randn(b, h, n, d).requires_grad_() for _ in range(3))
    return lightning, (q, k, v, slope, place.size(32, 128))


class TestTimeTraining(nn.Module):
    """Sun et al., 2024: TTT-Linear; the state is a linear model that takes a gradient step for each mini-batch."""

    def __init__(self, d: int, heads: int, batch: int = 8) -> None:
        super().__init__()
        self.heads, self.batch = heads, batch
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        size = d // heads
        self.w0 = nn.Parameter(0.02 * torch.randn(heads, size, size))
        self.b0 = nn.Parameter(torch.zeros(heads, 1, size))
        self.rate = nn.Linear(d, heads)
        self.gain, self.shift = nn.Parameter(torch.ones(heads, 1, size)), nn.Parameter(torch.zeros(heads, 1, size))

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        eta = torch.sigmoid(self.rate(x)).transpose(1, 2)[..., None] / k.size(-1)
        w, bias = self.w0.expand(b, -1, -1, -1), self.b0.expand(b, -1, -1, -1)
        out = []
        for start in range(0, n, self.batch):
            part = slice(start, start + self.batch)
            qi, ki, vi, ei = q[:, :, part], k[:, :, part], v[:, :, part], eta[:, :, part]
            z = ki @ w + bias
            mean, var = z.mean(-1, keepdim=True), z.var(-1, keepdim=True, unbiased=False)
            inverse = torch.rsqrt(var + 1e-6)
            normal = (z - mean) * inverse
            grad = 2 * (self.gain * normal + self.shift + ki - vi) * self.gain
            grad = inverse * (grad - grad.mean(-1, keepdim=True) - normal * (grad * normal).mean(-1, keepdim=True))
            scores = torch.tril(qi @ ki.mT)
            new_bias = bias - torch.cumsum(ei * grad, dim=2)
            y = qi @ w - scores @ (ei * grad) + new_bias
            out.append(qi + F.layer_norm(y, y.shape[-1:]) * self.gain + self.shift)
            w = w - (ei * ki).mT @ grad
            bias = new_bias[:, :, -1:]
        return self.out(torch.cat(out, dim=2).transpose(1, 2).reshape(b, n, d))


def test_time(place: Place) -> Made:
    b, n, d = place.size(2, 16), place.size(64, 128), place.size(64, 512)
    return TestTimeTraining(d, 4, place.size(8, 16)).to(place.device), (place.randn(b, n, d).requires_grad_(),)


def sparse_blocks(q: Tensor, k: Tensor, v: Tensor, gate: Tensor, block: int, top: int) -> Tensor:
    """DeepSeek's native sparse attention in outline: compressed blocks, the best blocks in full, a window; gated."""
    b, _, n, d = q.shape
    blocks = n // block
    i = torch.arange(n, device=q.device)
    compressed_k = k.unflatten(2, (blocks, block)).mean(3)
    compressed_v = v.unflatten(2, (blocks, block)).mean(3)
    score = q @ compressed_k.mT * d**-0.5
    past = (torch.arange(blocks, device=q.device) + 1) * block <= i[:, None] + 1
    p = torch.where(past, score, -1e9).softmax(-1) * past
    coarse = p @ compressed_v
    importance = p.detach().sum(1) + 2.0 * (i[:, None] // block == torch.arange(blocks, device=q.device))
    chosen = importance.topk(top, dim=-1).indices
    allowed = torch.zeros(b, n, blocks, dtype=torch.bool, device=q.device).scatter_(2, chosen, True)
    causal = i <= i[:, None]
    mask = allowed.repeat_interleave(block, dim=-1) & causal
    fine = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None])
    window = causal & (i > i[:, None] - 2 * block)
    local = F.scaled_dot_product_attention(q, k, v, attn_mask=window)
    g = torch.sigmoid(gate)
    return g[..., 0:1] * coarse + g[..., 1:2] * fine + g[..., 2:3] * local


def native_sparse(place: Place) -> Made:
    b, h, n, d = place.size(1, 2), place.size(4, 16), place.size(128, 1024), place.size(16, 64)
    q, k, v = (place.randn(b, h, n, d).requires_grad_() for _ in range(3))
    return sparse_blocks, (q, k, v, place.randn(b, h, n, 3), 16, 4)


def group_relative(
    logits: Tensor, tokens: Tensor, old: Tensor, reference: Tensor, reward: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """GRPO with DAPO's unequal clips: advantages within groups, the k3 estimate of KL, entropy, clipped share."""
    n = tokens.size(1)
    scaled = logits / 0.9
    log_p = torch.gather(scaled, -1, tokens[..., None]).squeeze(-1) - scaled.logsumexp(-1)
    with torch.no_grad():
        probability = scaled.softmax(-1)
        entropy = scaled.logsumexp(-1) - (probability * scaled).sum(-1)
    advantage = ((reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)).flatten()
    mask = (torch.arange(n, device=tokens.device) < lengths[:, None]).to(logits.dtype)
    ratio = torch.exp(log_p - old)
    clipped = ratio.clamp(1 - 0.2, 1 + 0.28)
    loss = -torch.min(ratio * advantage[:, None], clipped * advantage[:, None])
    away = reference - log_p
    loss = loss + 0.04 * (torch.exp(away) - away - 1)
    share = ((ratio > 1.28) & (advantage[:, None] > 0)) | ((ratio < 0.8) & (advantage[:, None] < 0))
    total = mask.sum()
    return (loss * mask).sum() / total, (entropy * mask).sum() / total, (share * mask).sum() / total


def grpo(place: Place) -> Made:
    prompts, group, n, vocabulary = place.size(2, 4), 4, place.size(32, 192), place.size(1000, 16_000)
    b = prompts * group
    base = -math.log(vocabulary) + 0.3 * place.randn(b, n)
    return group_relative, (
        (0.5 * place.randn(b, n, vocabulary)).requires_grad_(),
        place.randint(vocabulary, b, n),
        base,
        base + 0.1 * place.randn(b, n),
        1.0 * place.randint(3, prompts, group),
        n // 2 + place.randint(n // 2, b),
    )


def sink_attention(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, step: Tensor, sinks: int = 4
) -> Tensor:
    """StreamingLLM: a ring buffer behind attention sinks, rotary positions given by place in the cache; in place."""
    size, d = keys.size(2), keys.size(3)
    slot = torch.where(step < size, step, sinks + (step - sinks) % (size - sinks))
    keys.index_copy_(2, slot, k)
    values.index_copy_(2, slot, v)
    index = torch.arange(size, device=q.device)
    oldest = (step - sinks + 1) % (size - sinks)
    place = torch.where(index < sinks, index, sinks + (index - sinks - oldest) % (size - sinks))
    place = torch.where(step < size, index, place)
    frequency = 10_000.0 ** (-torch.arange(0, d, 2, device=q.device, dtype=q.dtype) / d)

    def rotated(x: Tensor, position: Tensor) -> Tensor:
        angle = position[:, None] * frequency
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1)

    here = step.clamp(max=size - 1)
    groups = q.size(1) // keys.size(1)
    k_all = rotated(keys, place).repeat_interleave(groups, dim=1)
    scores = rotated(q, here) @ k_all.mT * d**-0.5
    scores = scores.masked_fill(place > here, -torch.inf)
    return scores.softmax(-1) @ values.repeat_interleave(groups, dim=1)


def streaming(place: Place) -> Made:
    b, h, kv, size, d = place.size(8, 32), 8, 2, place.size(1024, 4096), place.size(32, 64)
    step = torch.tensor([3 * size + 17], device=place.device)
    new = place.randn(b, h, 1, d), place.randn(b, kv, 1, d), place.randn(b, kv, 1, d)
    return sink_attention, (*new, place.randn(b, kv, size, d), place.randn(b, kv, size, d), step)


ROWS: tuple[Row, ...] = (
    Row("program/latent_attention", latent_attention, "training"),
    Row("program/absorbed_latent_decoding", absorbed, writes=True),
    Row("program/mixture_of_depths", mixture_of_depths, "training"),
    Row("program/state_space_duality", mamba2, "training"),
    Row("program/rwkv7_delta_rule", rwkv7, "training"),
    Row("program/speedrun_value_residual", speedrun, "training"),
    Row("program/lightning_attention", lightning_attention, "training"),
    Row("program/test_time_training", test_time, "training"),
    Row("program/native_sparse_attention", native_sparse, "training"),
    Row("program/group_relative_policy", grpo, "training"),
    Row("program/attention_sinks", streaming, writes=True),
)
