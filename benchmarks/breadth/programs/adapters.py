"""Language models, 2023 to 2026: adapters, preferences, caches that shrink, drafts, gates, optimisers, weights."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class DirectionAndMagnitude(nn.Module):
    """Liu and others, 2024 (DoRA): a frozen weight's columns get a learnt length, their direction a low-rank change."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs)
        self.base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)
        self.up = nn.Parameter(0.02 * torch.randn(outputs, rank))
        self.magnitude = nn.Parameter(self.base.weight.norm(dim=1))
        self.scale = 2.0

    def forward(self, x: Tensor) -> Tensor:
        norm = (self.base.weight + self.scale * self.up @ self.down).norm(dim=1).detach()
        share = (self.magnitude / norm).to(x.dtype)
        plain = F.linear(x, self.base.weight)
        change = F.linear(F.linear(x, self.down), self.up) * self.scale
        return (share - 1) * plain + share * change + plain + self.base.bias


class DoraFeedForward(nn.Module):
    def __init__(self, width: int, hidden: int, rank: int) -> None:
        super().__init__()
        self.gate = DirectionAndMagnitude(width, hidden, rank)
        self.up = DirectionAndMagnitude(width, hidden, rank)
        self.down = DirectionAndMagnitude(hidden, width, rank)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


def dora(place: Place) -> Made:
    width, hidden, tokens = place.size(128, 2048), place.size(256, 5632), place.size(64, 4096)
    return DoraFeedForward(width, hidden, 16).to(place.device), (place.randn(1, tokens, width).requires_grad_(),)


class VectorAdapters(nn.Module):
    """Kopiczko and others, 2024 (VeRA): all layers share two random matrices; each learns what to let through."""

    def __init__(self, width: int, layers: int, rank: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers)).requires_grad_(False)
        self.register_buffer("a", torch.randn(rank, width) / width**0.5)
        self.register_buffer("b", torch.randn(width, rank) / rank**0.5)
        self.d = nn.ParameterList(nn.Parameter(torch.full((rank,), 0.1)) for _ in range(layers))
        self.v = nn.ParameterList(nn.Parameter(0.01 * torch.randn(width)) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer, d, v in zip(self.layers, self.d, self.v, strict=True):
            change = v * F.linear(d * F.linear(x, self.a), self.b)
            x = x + F.gelu(layer(F.layer_norm(x, x.shape[-1:])) + change)
        return x


def vera(place: Place) -> Made:
    width, tokens = place.size(128, 2048), place.size(48, 2048)
    return VectorAdapters(width, 6, place.size(32, 256)).to(place.device), (place.randn(2, tokens, width),)


def preferences(logits: Tensor, labels: Tensor, chosen: Tensor, beta: float = 2.0) -> tuple[Tensor, Tensor, Tensor]:
    """Losses without a reference: SimPO (Meng, 2024), ORPO (Hong, 2024) and CPO (Xu, 2024), answers in one batch."""
    logp = F.log_softmax(logits.float() if logits.dtype is torch.bfloat16 else logits, -1)[:, :-1]
    target = labels[:, 1:]
    mask = target != -100
    token = logp.gather(2, target.clamp(min=0)[..., None]).squeeze(-1)
    length = mask.sum(-1)
    total = (token * mask).sum(-1)
    mean = total / length.clamp(min=1)
    good, bad = mean[chosen], mean[~chosen]
    simple = -F.logsigmoid(beta * (good - bad) - 1.0)
    odds = good - bad - (torch.log1p(-good.exp().clamp(max=0.999)) - torch.log1p(-bad.exp().clamp(max=0.999)))
    ratio = -0.1 * F.logsigmoid(odds) - good
    contrast = -F.logsigmoid(0.1 * (total[chosen] - total[~chosen])) - total[chosen] / length[chosen].sum()
    return simple, ratio, contrast


def preferred_answers(place: Place) -> Made:
    pairs, length, words = place.size(4, 6), place.size(48, 512), place.size(500, 32_000)
    labels = place.randint(words, 2 * pairs, length)
    start = place.randint(length // 2, 2 * pairs, 1)
    labels = torch.where(torch.arange(length, device=place.device) < start, -100, labels)
    chosen = torch.arange(2 * pairs, device=place.device) % 2 == 0
    return preferences, (place.randn(2 * pairs, length, words).requires_grad_(), labels, chosen)


def snapped_cache(q: Tensor, k: Tensor, v: Tensor, keep: int, window: int) -> tuple[Tensor, Tensor, Tensor]:
    """Li and others, 2024 (SnapKV): the last queries vote, votes are pooled, each head keeps positions of its own."""
    batch, heads, length, width = k.shape
    group = q.size(1) // heads
    recent = q[:, :, -window:]
    score = recent @ k.repeat_interleave(group, 1).mT / math.sqrt(width)
    row = torch.arange(window, device=q.device)[:, None] + length - window
    score = score.masked_fill(torch.arange(length, device=q.device) > row, float("-inf"))
    vote = score.float().softmax(-1)[..., :-window].sum(-2)
    vote = vote.view(batch, heads, group, -1).sum(2)
    vote = F.max_pool1d(vote, 7, padding=3, stride=1)
    index = vote.topk(keep - window, dim=-1).indices.sort(-1).values
    index = torch.cat([index, torch.arange(length - window, length, device=q.device).expand(batch, heads, -1)], -1)
    k = k.gather(2, index[..., None].expand(-1, -1, -1, width))
    v = v.gather(2, index[..., None].expand(-1, -1, -1, width))
    attention = (q[:, :, -1:] @ k.repeat_interleave(group, 1).mT / math.sqrt(width)).softmax(-1)
    return attention @ v.repeat_interleave(group, 1), k.mean(2), index.sum(-1)


def snap_kv(place: Place) -> Made:
    b, heads, length, width = place.size(1, 4), place.size(2, 8), place.size(512, 8192), place.size(32, 128)
    q = place.randn(b, 4 * heads, length, width)
    return snapped_cache, (
        q,
        place.randn(b, heads, length, width),
        place.randn(b, heads, length, width),
        length // 4,
        32,
    )


def merged_tokens(x: Tensor, size: Tensor, weight: Tensor, layers: int, merge: int) -> tuple[Tensor, Tensor]:
    """Bolya and others, 2023 (ToMe): every layer pairs even tokens with odd ones and merges the most alike of them."""
    for layer in range(layers):
        q, k, v = F.linear(F.layer_norm(x, x.shape[-1:]), weight[layer]).chunk(3, -1)
        score = q @ k.mT / math.sqrt(k.size(-1)) + size.log()[:, None]
        x = x + score.softmax(-1) @ v
        metric = F.normalize(k, dim=-1)
        a, b = metric[:, ::2], metric[:, 1::2]
        best, partner = (a @ b.mT).max(-1)
        order = best.sort(dim=-1, descending=True, stable=True).indices
        gone, kept = order[:, :merge], order[:, merge:].sort(-1).values
        to = partner.gather(1, gone)
        width = x.size(-1)
        weighted = x * size[..., None]
        even, odd = weighted[:, ::2], weighted[:, 1::2]
        moved = even.gather(1, gone[..., None].expand(-1, -1, width))
        odd = odd.scatter_reduce(1, to[..., None].expand(-1, -1, width), moved, "sum")
        size_odd = size[:, 1::2].scatter_add(1, to, size[:, ::2].gather(1, gone))
        even = even.gather(1, kept[..., None].expand(-1, -1, width))
        size = torch.cat([size[:, ::2].gather(1, kept), size_odd], 1)
        x = torch.cat([even, odd], 1) / size[..., None]
    return x, size


def token_merging(place: Place) -> Made:
    b, n, width = place.size(2, 64), place.size(128, 576), place.size(64, 768)
    weight = place.randn(4, 3 * width, width) / width**0.5
    return merged_tokens, (place.randn(b, n, width), torch.ones(b, n, device=place.device), weight, 4, n // 16)


class ForgettingAttention(nn.Module):
    """Lin and others, 2025: softmax attention whose logits decay by the running sum of a gate; norms by head."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.forget = nn.Linear(width, heads)
        self.out_gate = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm = nn.Parameter(torch.ones(3, width // heads))

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)

        def normed(t: Tensor, scale: Tensor) -> Tensor:
            return t * torch.rsqrt(t.square().mean(-1, keepdim=True) + 1e-6) * scale

        q, k = normed(q, self.norm[0]), normed(k, self.norm[1])
        shifted = torch.cat([k[:, :, :1], k[:, :, :-1]], 2)
        k = 0.8 * k + 0.2 * shifted
        log_forget = F.logsigmoid(self.forget(x).mT + 3.0).cumsum(-1)
        bias = log_forget[..., :, None] - log_forget[..., None, :]
        score = q @ k.mT / math.sqrt(q.size(-1)) + bias
        mask = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        attention = score.masked_fill(mask, float("-inf")).softmax(-1).to(v.dtype)
        mixed = normed(attention @ v, self.norm[2]).transpose(1, 2).reshape(b, n, -1)
        return x + self.out(mixed * torch.sigmoid(self.out_gate(x)))


def forgetting(place: Place) -> Made:
    b, n, width = place.size(1, 4), place.size(128, 1024), place.size(128, 1024)
    return ForgettingAttention(width, place.size(4, 16)).to(place.device), (place.randn(b, n, width).requires_grad_(),)


class HyperConnections(nn.Module):
    """Zhu and others, 2024: several residual streams; each layer reads a mixture of them and writes to all."""

    def __init__(self, width: int, streams: int, layers: int) -> None:
        super().__init__()
        self.streams = streams
        self.mixers = nn.ModuleList(nn.Linear(width, streams + 2, bias=False) for _ in range(layers))
        self.read = nn.Parameter(torch.eye(streams)[torch.arange(layers) % streams][..., None].repeat(1, 1, 1))
        self.keep = nn.Parameter(torch.eye(streams).repeat(layers, 1, 1))
        self.write = nn.Parameter(torch.ones(layers, streams))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)) for _ in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        h = x[..., None, :].repeat(1, 1, self.streams, 1)
        for i, (mixer, block) in enumerate(zip(self.mixers, self.blocks, strict=True)):
            normed = F.layer_norm(h, h.shape[-1:])
            dynamic = 0.1 * torch.tanh(mixer(normed))
            read = self.read[i, :, 0] + dynamic[..., 0]
            write = self.write[i] + dynamic[..., 1]
            keep = self.keep[i] + dynamic[..., 2:]
            out = block(torch.einsum("bns,bnsd->bnd", read, h))
            h = torch.einsum("bnst,bnsd->bntd", keep, h) + write[..., None] * out[:, :, None]
        return h.sum(-2)


def hyper_connections(place: Place) -> Made:
    b, n, width = place.size(1, 4), place.size(64, 1024), place.size(64, 768)
    return HyperConnections(width, 4, 4).to(place.device), (place.randn(b, n, width),)


class HypersphereBlock(nn.Module):
    """Loshchilov and others, 2024 (nGPT): weights and states of norm one, steps along the sphere, learnt rates."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, 1 / width**0.5
        self.q, self.k, self.v, self.o = (nn.Parameter(torch.randn(width, width)) for _ in range(4))
        self.uv = nn.Parameter(torch.randn(8 * width, width))
        self.down = nn.Parameter(torch.randn(width, 4 * width))
        self.rate_a, self.rate_m = (nn.Parameter(torch.full((width,), self.scale)) for _ in range(2))
        self.s_qk = nn.Parameter(torch.full((width,), self.scale))
        self.s_uv = nn.Parameter(torch.ones(8 * width))

    @staticmethod
    def unit(t: Tensor, dim: int = -1) -> Tensor:
        return t / t.norm(p=2, dim=dim, keepdim=True)

    def forward(self, h: Tensor) -> Tensor:
        b, n, width = h.shape
        q, k, v = (
            F.linear(h, self.unit(w)).view(b, n, self.heads, -1).transpose(1, 2) for w in (self.q, self.k, self.v)
        )
        s = (self.s_qk / self.scale).view(1, self.heads, 1, -1)
        q, k = s * self.unit(q), s * self.unit(k)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=math.sqrt(width // self.heads))
        out = self.unit(F.linear(mixed.transpose(1, 2).reshape(b, n, width), self.unit(self.o, 0)))
        h = self.unit(torch.lerp(h, out, (0.05 / self.scale * self.rate_a).abs()))
        u, g = (F.linear(h, self.unit(self.uv)) * self.s_uv * math.sqrt(width)).chunk(2, -1)
        out = self.unit(F.linear(u * F.silu(g), self.unit(self.down, 0)))
        return self.unit(torch.lerp(h, out, (0.05 / self.scale * self.rate_m).abs()))


def hypersphere(place: Place) -> Made:
    b, n, width = place.size(1, 4), place.size(64, 1024), place.size(64, 1024)
    h = F.normalize(place.randn(b, n, width), dim=-1)
    return HypersphereBlock(width, place.size(4, 16)).to(place.device), (h.requires_grad_(),)


def prodigy(
    params: list[Tensor],
    grads: list[Tensor],
    m: list[Tensor],
    v: list[Tensor],
    s: list[Tensor],
    start: list[Tensor],
    d: Tensor,
) -> Tensor:
    """Mishchenko and Defazio, 2024: Adam whose step size is an estimate of the distance to what is best; in place."""
    beta1, beta2 = 0.9, 0.999
    root = beta2**0.5
    along, size = torch.zeros_like(d), torch.zeros_like(d)
    for p, g, p0, a, b, c in zip(params, grads, start, m, v, s, strict=True):
        along += d * d * torch.dot(g.flatten(), (p0 - p).flatten())
        a.mul_(beta1).add_(g * (d * (1 - beta1)))
        b.mul_(beta2).add_(g * g * (d * d * (1 - beta2)))
        c.mul_(root).add_(g * (d * d * (1 - root)))
        size += c.abs().sum()
    estimate = torch.where(size > 0, along / size.clamp(min=1e-12), d)
    d.copy_(torch.maximum(d, torch.minimum(estimate, 2 * d)))
    for p, a, b in zip(params, m, v, strict=True):
        p.mul_(1 - 0.01 * d)
        p.sub_(d * a / (b.sqrt() + d * 1e-8))
    return estimate


def distance_adaptation(place: Place) -> Made:
    n, width = 12, place.size(96, 2048)
    shapes = [(width, width) if i % 2 else (width,) for i in range(n)]
    groups = [[0.1 * place.randn(*shape) for shape in shapes] for _ in range(5)]
    groups[3] = [t.square() for t in groups[3]]
    start = [t + 0.1 for t in groups[0]]
    return prodigy, (*groups, start, groups[0][0].new_tensor(0.01))


def optimal_brain(weight: Tensor, inputs: Tensor, bits: int, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Frantar and others, 2023 (GPTQ): columns rounded one by one, errors spread over the rest by Cholesky's factor."""
    columns = weight.size(1)
    hessian = 2 * inputs.T @ inputs / inputs.size(0)
    damp = 0.1 * hessian.diagonal().mean()
    hessian = hessian + damp * torch.eye(columns, dtype=weight.dtype, device=weight.device)
    factor = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(hessian)), upper=True)
    top = 2**bits - 1
    low, high = weight.amin(1).clamp(max=0), weight.amax(1).clamp(min=0)
    scale = (high - low) / top
    zero = (-low / scale).round()
    w, q, loss = weight.clone(), torch.zeros_like(weight), torch.zeros_like(low)
    for start in range(0, columns, block):
        end = min(start + block, columns)
        part, errors = w[:, start:end].clone(), torch.zeros_like(w[:, start:end])
        for i in range(end - start):
            column, pivot = part[:, i], factor[start + i, start + i]
            level = ((column / scale).round() + zero).clamp(0, top)
            rounded = scale * (level - zero)
            q[:, start + i] = rounded
            error = (column - rounded) / pivot
            part[:, i:] -= error[:, None] * factor[start + i, start + i : end]
            errors[:, i] = error
            loss += 0.5 * error.square()
        w[:, end:] -= errors @ factor[start:end, end:]
    miss = ((inputs @ (q - weight).T).square().mean(), (inputs @ weight.T).square().mean())
    return scale, loss.mean(), miss[0] / miss[1]


def gptq(place: Place) -> Made:
    rows, columns = place.size(128, 4096), place.size(64, 96)
    return optimal_brain, (place.randn(rows, columns), place.randn(512, columns), 4, 16)


def tree_of_heads(
    hidden: Tensor, heads: Tensor, embed: Tensor, paths: Tensor, logits: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Cai and others, 2024 (Medusa): guesses of several heads laid out as a tree; the longest path that is typical."""
    batch = hidden.size(0)
    residual = hidden[:, None] + F.silu(torch.einsum("bd,hde->bhe", hidden, heads))
    guesses = (residual @ embed.T).topk(4, dim=-1).indices
    depth = torch.arange(paths.size(1), device=paths.device)
    tokens = guesses[:, depth, paths.clamp(min=0)]
    valid = paths >= 0
    p = (logits / 0.7).softmax(-1)
    entropy = -(p * (p + 1e-5).log()).sum(-1)
    threshold = torch.minimum(torch.exp(-entropy) * 0.3, torch.full_like(entropy, 0.09))
    chance = p.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    taken = ((chance > threshold) & valid).to(torch.int64).cumprod(-1)
    length = taken.sum(-1)
    likelihood = (chance.clamp(min=1e-9).log() * taken).sum(-1)
    longest = length == length.amax(1, keepdim=True)
    best = likelihood.masked_fill(~longest, -torch.inf).argmax(1)
    row = torch.arange(batch, device=hidden.device)
    accepted = torch.where(depth < length[row, best, None], tokens[row, best], -1)
    return accepted, length[row, best], likelihood[row, best]


def medusa(place: Place) -> Made:
    b, width, words, count = place.size(4, 16), place.size(64, 1024), place.size(500, 8000), place.size(16, 32)
    paths = torch.randint(4, (count, 4)).masked_fill(torch.arange(4) >= torch.randint(1, 5, (count, 1)), -1)
    heads, embed = place.randn(4, width, width) / width, place.randn(words, width) / width**0.5
    hidden, logits, paths = place.randn(b, width), 2 * place.randn(b, count, 4, words), paths.to(place.device)
    likely = ((hidden[:, None] + F.silu(torch.einsum("bd,hde->bhe", hidden, heads))) @ embed.T).topk(4, dim=-1).indices
    likely = likely[:, torch.arange(4, device=place.device), paths.clamp(min=0)][..., None]
    logits.scatter_add_(-1, likely, 16 * place.rand(b, count, 4, 1))
    return tree_of_heads, (hidden, heads, embed, paths, logits)


class BiasBalancedExperts(nn.Module):
    """DeepSeek, 2024: sigmoid gates, experts in groups, a bias for the choice alone that follows the load."""

    def __init__(self, width: int, experts: int, groups: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.randn(experts, width) / width**0.5)
        self.up = nn.Parameter(torch.randn(experts, width, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, width, width) / width**0.5)
        self.groups = groups

    def forward(self, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        score = torch.sigmoid(x @ self.gate.T)
        biased = (score + bias).view(x.size(0), self.groups, -1)
        best_groups = biased.topk(2, -1).values.sum(-1).topk(self.groups // 2, -1).indices
        allowed = torch.zeros_like(biased[..., 0], dtype=torch.bool).scatter_(1, best_groups, True)
        biased = biased.masked_fill(~allowed[..., None], float("-inf")).flatten(1)
        chosen = biased.topk(2, -1).indices
        weight = score.gather(1, chosen)
        weight = 2.5 * weight / weight.sum(-1, keepdim=True)
        load = torch.zeros_like(bias).index_put_(
            (chosen.flatten(),), torch.ones_like(weight.flatten()), accumulate=True
        )
        with torch.no_grad():
            bias.add_(1e-3 * torch.sign(load.mean() - load))
        dense = torch.zeros_like(score).scatter(1, chosen, weight)
        hidden = F.silu(torch.einsum("td,edh->eth", x, self.up))
        return torch.einsum("eth,ehd,te->td", hidden, self.down, dense), load


def balanced_experts(place: Place) -> Made:
    tokens, width, experts = place.size(64, 1024), place.size(64, 512), 16
    return BiasBalancedExperts(width, experts, 4).to(place.device), (
        place.randn(tokens, width),
        0.1 * place.randn(experts),
    )


ROWS: tuple[Row, ...] = (
    Row("program/direction_magnitude_adapters", dora, "training", autocast=torch.bfloat16),
    Row("program/shared_vector_adapters", vera, "training"),
    Row("program/reference_free_preferences", preferred_answers, "training"),
    Row("program/snapped_kv_cache", snap_kv),
    Row("program/token_merging", token_merging),
    Row("program/forgetting_attention", forgetting, "training", autocast=torch.bfloat16),
    Row("program/hyper_connections", hyper_connections, "training", dtype=torch.bfloat16),
    Row("program/hypersphere_block", hypersphere, "training", dtype=torch.bfloat16),
    Row("program/prodigy_step", distance_adaptation, writes=True),
    Row("program/optimal_brain_rounding", gptq),
    Row("program/medusa_tree_acceptance", medusa),
    Row("program/bias_balanced_experts", balanced_experts, "training", writes=True),
)
