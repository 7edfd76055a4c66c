"""Language models since 2023: pages and prefixes of caches, drafts, samplers; losses, pupils, optimizers, codebooks."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def queried_pages(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, page: int, keep: int) -> tuple[Tensor, Tensor]:
    """Quest (Tang et al., 2024): pages scored by their keys' extremes, attention over the best pages alone."""
    b, h, n, d = k.shape
    pages = k.view(b, h, n // page, page, d)
    low, high = pages.amin(3), pages.amax(3)
    bound = torch.maximum(q[:, :, None] * low, q[:, :, None] * high).sum(-1)
    used = torch.arange(n // page, device=q.device) * page < lengths[:, None]
    chosen = bound.masked_fill(~used[:, None], -torch.inf).topk(keep, dim=-1).indices
    index = chosen[..., None, None].expand(-1, -1, -1, page, d)
    keys = pages.gather(2, index).flatten(2, 3)
    values = v.view_as(pages).gather(2, index).flatten(2, 3)
    position = (chosen[..., None] * page + torch.arange(page, device=q.device)).flatten(2)
    score = (keys @ q[..., None]).squeeze(-1) * d**-0.5
    score = score.masked_fill(position >= lengths[:, None, None], -torch.inf)
    return (score.softmax(-1)[:, :, None] @ values).squeeze(2), chosen


def sparse_pages(place: Place) -> Made:
    b, h, n, d = place.size(2, 16), place.size(4, 16), place.size(512, 8192), place.size(32, 128)
    lengths = n // 2 + place.randint(n // 2, b)
    return queried_pages, (place.randn(b, h, d), place.randn(b, h, n, d), place.randn(b, h, n, d), lengths, 16, 8)


class KeyIndexer(nn.Module):
    """DeepSeek's sparse attention (2025): a light indexer picks keys for each query; trained towards attention."""

    def __init__(self, width: int, heads: int, keep: int) -> None:
        super().__init__()
        self.heads, self.keep = heads, keep
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.index_q, self.index_k = nn.Linear(width, 4 * 16, bias=False), nn.Linear(width, 16, bias=False)
        self.index_weight = nn.Linear(width, 4, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        iq = self.index_q(x.detach()).view(b, n, 4, 16)
        dots = torch.einsum("bihd,bjd->bhij", iq, self.index_k(x.detach())).relu()
        logits = torch.einsum("bhij,bih->bij", dots, self.index_weight(x.detach()))
        causal = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
        logits = logits.masked_fill(~causal, -1e9)
        kept = torch.zeros_like(logits, dtype=torch.bool)
        kept.scatter_(-1, logits.detach().topk(self.keep, dim=-1).indices, True)
        score = (q @ k.transpose(-1, -2)) / math.sqrt(q.size(-1))
        probability = score.masked_fill(~(kept & causal)[:, None], -torch.inf).softmax(-1)
        target = probability.detach().mean(1)
        divergence = F.kl_div(logits.log_softmax(-1), target, reduction="sum") / (b * n)
        return self.out((probability @ v).transpose(1, 2).reshape(b, n, c)), divergence


def indexed_keys(place: Place) -> Made:
    b, n, width = place.size(2, 8), place.size(96, 1024), place.size(48, 512)
    return KeyIndexer(width, place.size(4, 8), place.size(16, 128)).to(place.device), (place.randn(b, n, width),)


def merged_prefix(q: Tensor, shared: Tensor, own: Tensor, lengths: Tensor) -> Tensor:
    """Cascade inference: a prefix all requests share as one matmul, their own suffixes apart, merged by logsumexp."""
    scale = q.size(-1) ** -0.5
    before = torch.einsum("bhd,nhd->bhn", q, shared[0]) * scale
    after = torch.einsum("bhd,bnhd->bhn", q, own[:, 0]) * scale
    after = after.masked_fill(torch.arange(own.size(2), device=q.device) >= lengths[:, None, None], float("-inf"))
    lse = torch.stack([before.logsumexp(-1), after.logsumexp(-1)])
    states = torch.stack(
        [
            torch.einsum("bhn,nhd->bhd", before.softmax(-1), shared[1]),
            torch.einsum("bhn,bnhd->bhd", after.softmax(-1), own[:, 1]),
        ]
    )
    weight = (lse - lse.amax(0)).exp()
    return (weight[..., None] * states).sum(0) / weight.sum(0)[..., None]


def shared_prefix(place: Place) -> Made:
    b, h, d, n, m = (
        place.size(16, 256),
        place.size(4, 16),
        place.size(32, 128),
        place.size(256, 8192),
        place.size(32, 256),
    )
    lengths = 1 + place.randint(m - 1, b)
    return merged_prefix, (place.randn(b, h, d), place.randn(2, n, h, d), place.randn(b, 2, m, h, d), lengths)


def prefix_hashes(tokens: Tensor, cached: Tensor, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Prefix caching: blocks hashed in a chain, found in a sorted table, the leading run of hits, tokens to compute."""
    b, n = tokens.shape
    blocks = tokens.view(b, n // block, block)
    power = torch.ones(block, dtype=torch.int64, device=tokens.device)
    for i in range(1, block):
        power[i] = power[i - 1] * 1_000_003 % 2_147_483_647
    own = (blocks * power % 2_147_483_647).sum(-1) % 2_147_483_647
    chain, last = [], torch.full_like(own[:, 0], 17)
    for i in range(own.size(1)):
        last = (last * 31 + own[:, i] * 1_000_003) % 2_147_483_647
        chain.append(last)
    hashes = torch.stack(chain, dim=1)
    slot = torch.searchsorted(cached, hashes).clamp(max=cached.numel() - 1)
    hit = (cached[slot] == hashes).long().cumprod(1)
    return hashes, torch.where(hit.bool(), slot, -1), n - block * hit.sum(1)


def prefix_cache(place: Place) -> Made:
    b, n, block = place.size(64, 4096), place.size(128, 1024), 16
    tokens = place.randint(1000, 1, n).expand(b, n).clone()
    fresh = torch.arange(n, device=place.device) >= block * place.randint(n // block + 1, b, 1)
    tokens = torch.where(fresh, place.randint(1000, b, n), tokens)
    cached = prefix_hashes(tokens[::2], torch.zeros(1, dtype=torch.int64, device=place.device), block)[0]
    return prefix_hashes, (tokens, cached.flatten().unique(), block)


def looked_up_drafts(tokens: Tensor, lengths: Tensor, ngram: int, draft: int) -> tuple[Tensor, Tensor]:
    """Drafts from the prompt: the latest earlier place with the same last tokens, and what followed it there."""
    b, n = tokens.shape
    position = torch.arange(n, device=tokens.device)
    best_length = torch.zeros(b, dtype=torch.int64, device=tokens.device)
    start = torch.zeros_like(best_length)
    for size in range(1, ngram + 1):
        suffix_at = (lengths[:, None] - size + torch.arange(size, device=tokens.device)).clamp(min=0)
        suffix = tokens.gather(1, suffix_at)
        windows = tokens.unfold(1, size, 1)
        match = (windows == suffix[:, None]).all(-1)
        end = position[: windows.size(1)] + size
        match = match & (end < lengths[:, None])
        found = match.any(1)
        latest = torch.where(match, end, 0).amax(1)
        best_length = torch.where(found, size, best_length)
        start = torch.where(found, latest, start)
    at = start[:, None] + torch.arange(draft, device=tokens.device)
    valid = (at < lengths[:, None]) & (best_length > 0)[:, None]
    return torch.where(valid, tokens.gather(1, at.clamp(max=n - 1)), -1), best_length


def prompt_drafts(place: Place) -> Made:
    b, n = place.size(32, 4096), place.size(256, 2048)
    return looked_up_drafts, (place.randint(20, b, n), n // 2 + place.randint(n // 2, b), 4, 8)


def excluded_choices(
    logits: Tensor, draw: Tensor, noise: Tensor, threshold: float, chance: float
) -> tuple[Tensor, Tensor]:
    """XTC and tail-free sampling in a row: a tail cut by second differences, top choices excluded but the last one."""
    sorted_logits, order = logits.sort(dim=-1, descending=True)
    p = sorted_logits.softmax(-1)
    curvature = p.diff(dim=-1).diff(dim=-1).abs()
    share = curvature / curvature.sum(-1, keepdim=True).clamp(min=1e-10)
    tail = F.pad(share.cumsum(-1) > 0.95, (1, 1), value=False)
    tail[:, -1] = tail[:, -2]
    p = p.masked_fill(tail, 0)
    p = p / p.sum(-1, keepdim=True)
    above = p >= threshold
    last = above.long().sum(-1, keepdim=True) - 1
    index = torch.arange(p.size(-1), device=p.device)
    exclude = above & (index < last) & (draw[:, None] < chance)
    p = p.masked_fill(exclude, 0)
    p = p / p.sum(-1, keepdim=True)
    token = (p / noise).argmax(-1)
    return order.gather(-1, token[:, None]).squeeze(-1), p.amax(-1)


def choices(place: Place) -> Made:
    b, v = place.size(16, 512), place.size(4000, 128_000)
    noise = -torch.log(place.rand(b, v).clamp(1e-9, 1 - 1e-6))
    return excluded_choices, (3 * place.randn(b, v), place.rand(b), noise, 0.02, 0.5)


class ConvolvedScores(nn.Module):
    """Multi-token attention (Golovneva et al., 2025): scores convolved over keys, queries and groups of heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.over_keys = nn.Conv2d(heads, heads, (3, 5), groups=heads, bias=False)
        self.over_heads = nn.Conv2d(heads, heads, 1, groups=heads // 2, bias=False)
        self.norm = nn.GroupNorm(heads, width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        score = (q @ k.transpose(-1, -2)) / math.sqrt(q.size(-1))
        future = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        score = score.masked_fill(future, 0)
        score = self.over_keys(F.pad(score, (2, 2, 2, 0))).masked_fill(future, -torch.inf)
        out = self.over_heads(score.softmax(-1)) @ v
        out = self.norm(out.transpose(1, 2).reshape(b * n, c)).view(b, n, c)
        return x + self.out(out)


def convolved_scores(place: Place) -> Made:
    b, n, width = place.size(2, 8), place.size(64, 512), place.size(32, 512)
    return ConvolvedScores(width, place.size(4, 8)).to(place.device), (place.randn(b, n, width).requires_grad_(),)


class ZRouter(nn.Module):
    """ST-MoE (Zoph et al., 2022): two experts a token within capacity, a z-loss and a balance loss, jitter given."""

    def __init__(self, width: int, experts: int, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.router = nn.Linear(width, experts, bias=False)
        self.w1 = nn.Parameter(torch.randn(experts, width, 2 * width) / math.sqrt(width))
        self.w2 = nn.Parameter(torch.randn(experts, 2 * width, width) / math.sqrt(2 * width))

    def forward(self, x: Tensor, jitter: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        e = self.w1.size(0)
        logits = self.router(x * jitter)
        probability = logits.softmax(-1)
        gate, expert = probability.topk(2, dim=-1)
        gate = gate / gate.sum(-1, keepdim=True)
        onehot = F.one_hot(expert, e)
        flat = onehot.transpose(0, 1).reshape(-1, e)
        position = ((flat.cumsum(0) - 1) * flat).sum(-1).view(2, -1).T
        fits = position < self.capacity
        slot = torch.where(fits, expert * self.capacity + position, e * self.capacity)
        buffer = x.new_zeros(e * self.capacity + 1, x.size(1))
        buffer = buffer.index_add(0, slot.flatten(), x.repeat_interleave(2, dim=0))
        hidden = F.gelu(torch.bmm(buffer[:-1].view(e, self.capacity, -1), self.w1))
        done = F.pad(torch.bmm(hidden, self.w2).flatten(0, 1), (0, 0, 0, 1))
        out = (done[slot] * (gate * fits)[..., None]).sum(1)
        z = logits.logsumexp(-1).square().mean()
        balance = e * (onehot[:, 0].to(x.dtype).mean(0) * probability.mean(0)).sum()
        return out, 1e-3 * z, 1e-2 * balance


def routed_within_capacity(place: Place) -> Made:
    n, width, experts = place.size(256, 8192), place.size(32, 512), place.size(8, 32)
    return ZRouter(width, experts, 5 * n // (2 * experts)).to(place.device), (
        place.randn(n, width).requires_grad_(),
        1 + 0.02 * (place.rand(n, width) - 0.5),
    )


def pupils_own_words(
    pupil: Tensor, teacher: Tensor, mask: Tensor, beta: float, temperature: float
) -> tuple[Tensor, Tensor]:
    """Distillation on the pupil's own words (Agarwal et al., 2023): a generalised Jensen-Shannon divergence, skewed."""
    p, t = F.log_softmax(pupil / temperature, dim=-1), F.log_softmax(teacher / temperature, dim=-1)
    mixture = torch.logsumexp(torch.stack([p + math.log(1 - beta), t + math.log(beta)]), dim=0)
    to_teacher = F.kl_div(mixture, t, reduction="none", log_target=True).sum(-1)
    to_pupil = F.kl_div(mixture, p, reduction="none", log_target=True).sum(-1)
    divergence = beta * to_teacher + (1 - beta) * to_pupil
    entropy = -(p.exp() * p).sum(-1).detach()
    return (divergence * mask).sum() / mask.sum(), entropy[mask.bool()].mean()


def distillation(place: Place) -> Made:
    b, n, v = place.size(2, 8), place.size(32, 256), place.size(2000, 32_000)
    mask = (torch.arange(n, device=place.device) < 8 + place.randint(n - 8, b, 1)).float()
    return pupils_own_words, (place.randn(b, n, v).requires_grad_(), place.randn(b, n, v), mask, 0.4, 0.9)


def unlikely_repetitions(logits: Tensor, target: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Unlikelihood (Welleck et al., 2019): words said before that are not the target are pushed down."""
    n = target.size(1)
    log_prob = logits.log_softmax(-1)
    nll = F.nll_loss(log_prob.flatten(0, 1), target.flatten())
    earlier = torch.ones(n, n, device=target.device, dtype=torch.bool).tril(-1)
    candidates = torch.where(earlier & (target[:, None] != target[..., None]), target[:, None], 0)
    negatives = torch.zeros_like(logits).scatter_(2, candidates, 1.0)
    negatives[..., 0] = 0
    unlikely = -torch.log1p(-log_prob.exp().clamp(max=1 - 1e-5)) * negatives
    return nll, alpha * unlikely.sum(-1).mean()


def repetition(place: Place) -> Made:
    b, n, v = place.size(2, 8), place.size(48, 256), place.size(1000, 32_000)
    return unlikely_repetitions, (place.randn(b, n, v).requires_grad_(), 1 + place.randint(v - 1, b, n), 1.0)


def asymmetric_clips(
    log_prob: Tensor, old: Tensor, reward: Tensor, length: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """DAPO (Yu et al., 2025): groups that all agree are dropped, overlong answers pay, a high clip, means by token."""
    over = ((length - 0.8 * mask.size(-1)) / (0.2 * mask.size(-1))).clamp(0, 1)
    shaped = reward - over
    spread = shaped.std(1, keepdim=True)
    informative = (reward.sum(1) > 0) & (reward.sum(1) < reward.size(1))
    advantage = ((shaped - shaped.mean(1, keepdim=True)) / (spread + 1e-6))[..., None]
    ratio = torch.exp(log_prob - old)
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - 0.2, 1 + 0.28) * advantage)
    surrogate = torch.where(advantage < 0, torch.maximum(surrogate, 3.0 * advantage), surrogate)
    weight = mask * informative[:, None, None]
    loss = -(surrogate * weight).sum() / weight.sum().clamp(min=1)
    clipped = ((ratio > 1.28) & (advantage > 0)) | ((ratio < 0.8) & (advantage < 0))
    return loss, (clipped * weight).sum() / weight.sum().clamp(min=1), informative.sum()


def group_clips(place: Place) -> Made:
    prompts, group, n = place.size(16, 256), place.size(8, 16), place.size(128, 2048)
    length = 1 + place.randint(n - 1, prompts, group)
    mask = (torch.arange(n, device=place.device) < length[..., None]).float()
    old = -place.rand(prompts, group, n)
    log_prob = (old + 0.2 * place.randn(prompts, group, n)).requires_grad_()
    return asymmetric_clips, (log_prob, old, (place.rand(prompts, group) < 0.4).float(), length, mask)


class SymlogTwoHot(nn.Module):
    """DreamerV3 (Hafner et al., 2023): symlog regressions, two-hot rewards and values, balanced divergences with
    free bits, one per cent of uniform in the categories."""

    def __init__(self, width: int, classes: int, bins: int) -> None:
        super().__init__()
        self.classes = classes
        self.prior, self.posterior = nn.Linear(width, 8 * classes), nn.Linear(2 * width, 8 * classes)
        self.reward, self.decoder = nn.Linear(8 * classes + width, bins), nn.Linear(8 * classes + width, width)
        self.register_buffer("bins", torch.linspace(-20, 20, bins))

    def forward(self, h: Tensor, obs: Tensor, reward: Tensor, draw: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        def smoothed(logits: Tensor) -> Tensor:
            probability = logits.view(-1, 8, self.classes).softmax(-1)
            return torch.log(0.99 * probability + 0.01 / self.classes)

        squeezed = torch.sign(obs) * torch.log1p(obs.abs())
        prior, post = smoothed(self.prior(h)), smoothed(self.posterior(torch.cat([h, squeezed], -1)))
        sample = F.one_hot((post - torch.log(-torch.log(draw))).argmax(-1), self.classes).to(h.dtype)
        sample = sample + post.exp() - post.exp().detach()
        z = torch.cat([sample.flatten(1), h], dim=-1)
        target = torch.sign(reward) * torch.log1p(reward.abs())
        above = torch.bucketize(target, self.bins).clamp(1, self.bins.numel() - 1)
        low, high = self.bins[above - 1], self.bins[above]
        w = (target - low) / (high - low)
        two_hot = torch.zeros(len(h), self.bins.numel(), device=h.device, dtype=h.dtype)
        two_hot = two_hot.scatter(1, above[:, None] - 1, 1 - w[:, None]).scatter(1, above[:, None], w[:, None])
        reward_loss = -(two_hot * self.reward(z).log_softmax(-1)).sum(-1).mean()

        def divergence(p: Tensor, q: Tensor) -> Tensor:
            return (p.exp() * (p - q)).sum((-1, -2)).clamp(min=1.0).mean()

        dynamics, representation = divergence(post.detach(), prior), divergence(post, prior.detach())
        return F.mse_loss(self.decoder(z), squeezed), reward_loss, 0.5 * dynamics, 0.1 * representation


def symlog_worlds(place: Place) -> Made:
    n, width, classes = place.size(128, 8192), place.size(32, 512), place.size(8, 32)
    return SymlogTwoHot(width, classes, 63).to(place.device), (
        place.randn(n, width),
        10 * place.randn(n, width),
        5 * place.randn(n),
        place.rand(n, 8, classes).clamp(1e-6, 1 - 1e-6),
    )


class SigmoidPairs(nn.Module):
    """SigLIP (Zhai et al., 2023): every pair of picture and text is a binary question; chunks as if from devices."""

    def __init__(self, image: int, text: int, width: int, chunks: int) -> None:
        super().__init__()
        self.chunks = chunks
        self.image, self.text = nn.Linear(image, width, bias=False), nn.Linear(text, width, bias=False)
        self.scale, self.bias = nn.Parameter(torch.tensor(math.log(10.0))), nn.Parameter(torch.tensor(-10.0))

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        i, t = F.normalize(self.image(image), dim=-1), F.normalize(self.text(text), dim=-1)
        loss = image.new_zeros(())
        for k, chunk in enumerate(t.chunk(self.chunks)):
            logits = i @ chunk.T * self.scale.exp() + self.bias
            labels = 2 * torch.eye(len(i), device=i.device)[:, k * len(chunk) : (k + 1) * len(chunk)] - 1
            loss = loss - F.logsigmoid(labels * logits).sum()
        return loss / len(i)


def sigmoid_pairs(place: Place) -> Made:
    n, width = place.size(256, 8192), place.size(64, 512)
    return SigmoidPairs(96, 64, width, 4).to(place.device), (place.randn(n, 96), place.randn(n, 64))


class SwappedPrototypes(nn.Module):
    """SwAV (Caron et al., 2020): views predict each other's codes, which Sinkhorn's rounds spread over prototypes."""

    def __init__(self, width: int, shared: int, prototypes: int) -> None:
        super().__init__()
        self.head = nn.Sequential(
            nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, shared)
        )
        self.prototypes = nn.Linear(shared, prototypes, bias=False)

    @torch.no_grad()
    def codes(self, scores: Tensor) -> Tensor:
        q = torch.exp((scores - scores.max()) / 0.05).T
        q = q / q.sum()
        for _ in range(3):
            q = q / q.sum(1, keepdim=True).clamp(min=1e-12) / q.size(0)
            q = q / q.sum(0, keepdim=True).clamp(min=1e-12) / q.size(1)
        return (q * q.size(1)).T

    def forward(self, crops: Tensor) -> Tensor:
        n, b, _ = crops.shape
        weight = F.normalize(self.prototypes.weight, dim=1)
        scores = (F.normalize(self.head(crops.flatten(0, 1)), dim=1) @ weight.T).view(n, b, -1)
        losses = []
        for i in range(2):
            q = self.codes(scores[i].detach())
            for j in range(n):
                if i != j:
                    losses.append(-(q * F.log_softmax(scores[j] / 0.1, dim=1)).sum(1).mean())
        return torch.stack(losses).mean()


def swapped(place: Place) -> Made:
    b, width = place.size(64, 2048), place.size(64, 1024)
    return SwappedPrototypes(width, place.size(32, 128), place.size(100, 3000)).to(place.device), (
        place.randn(4, b, width),
    )


class NestedWidths(nn.Module):
    """Matryoshka embeddings (Kusupati et al., 2022) with SPLADE's words: prefixes that each classify, sparse terms."""

    def __init__(self, width: int, vocabulary: int, classes: int, prefixes: tuple[int, ...]) -> None:
        super().__init__()
        self.prefixes = prefixes
        self.heads = nn.ModuleList(nn.Linear(p, classes) for p in prefixes)
        self.words = nn.Linear(width, vocabulary)

    def forward(self, hidden: Tensor, mask: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        loss = sum(
            F.cross_entropy(h(F.normalize(pooled[:, :p], dim=-1)), label)
            for p, h in zip(self.prefixes, self.heads, strict=True)
        )
        terms = torch.log1p(F.relu(self.words(hidden))) * mask[..., None]
        sparse = terms.amax(1)
        half = len(sparse) // 2
        ranking = F.cross_entropy(sparse[:half] @ sparse[half:].T, torch.arange(half, device=hidden.device))
        return loss, ranking, 1e-3 * sparse.mean(0).square().sum()


def nested_widths(place: Place) -> Made:
    b, n, width = place.size(8, 128), place.size(24, 128), place.size(64, 768)
    mask = (torch.arange(n, device=place.device) < 4 + place.randint(n - 4, b, 1)).float()
    prefixes = (width // 8, width // 4, width // 2, width)
    return NestedWidths(width, place.size(2000, 30_000), 20, prefixes).to(place.device), (
        place.randn(b, n, width),
        mask,
        place.randint(20, b),
    )


def rotated_moments(
    w: Tensor, g: Tensor, m: Tensor, v: Tensor, left: Tensor, right: Tensor, ql: Tensor, qr: Tensor
) -> None:
    """SOAP (Vyas et al., 2024): Adam in the eigenbasis of Shampoo's factors, refreshed by one QR of a power step."""
    left.lerp_(g @ g.T, 0.05)
    right.lerp_(g.T @ g, 0.05)
    projected = ql.T @ g @ qr
    m.lerp_(g, 0.05)
    v.lerp_(projected.square(), 0.05)
    step = (ql.T @ m @ qr) / (v.sqrt() + 1e-8)
    w.add_(ql @ step @ qr.T, alpha=-3e-3)
    ql.copy_(torch.linalg.qr(left @ ql).Q)
    qr.copy_(torch.linalg.qr(right @ qr).Q)


def soap(place: Place) -> Made:
    n, k = place.size(64, 1024), place.size(96, 1024)
    left, right = place.randn(n, n), place.randn(k, k)
    ql, qr = (torch.linalg.qr(torch.randn(s, s)).Q.to(place.device) for s in (n, k))
    moments = (place.randn(n, k), place.rand(n, k))
    return rotated_moments, (place.randn(n, k), place.randn(n, k), *moments, left @ left.T, right @ right.T, ql, qr)


def two_averages(
    params: list[Tensor], grads: list[Tensor], fast: list[Tensor], slow: list[Tensor], v: list[Tensor]
) -> Tensor:
    """AdEMAMix (Pagliardini et al., 2024) with a trust ratio of layers (LARS) and the norm of all updates."""
    total = torch.zeros((), device=params[0].device, dtype=params[0].dtype)
    torch._foreach_mul_(v, 0.999)
    torch._foreach_addcmul_(v, grads, grads, 0.001)
    torch._foreach_lerp_(fast, grads, 0.1)
    torch._foreach_lerp_(slow, grads, 0.0001)
    for p, m1, m2, s in zip(params, fast, slow, v, strict=True):
        update = (m1 / 0.19 + 5.0 * m2) / (s.div(0.02).sqrt() + 1e-8) + 0.1 * p
        ratio = torch.where(p.norm() > 0, (p.norm() / update.norm().clamp(min=1e-9)).clamp(max=10), 1.0)
        p.sub_(1e-3 * ratio * update)
        total = total + (ratio * update).square().sum()
    return total.sqrt()


def ademamix(place: Place) -> Made:
    n = place.size(64, 1024)
    shapes = [(n, n), (n,), (4 * n, n), (n, 4 * n)]

    def tensors() -> list[Tensor]:
        return [0.1 * place.randn(*s) for s in shapes]

    return two_averages, (tensors(), tensors(), tensors(), tensors(), [t.square() for t in tensors()])


def super_blocks(packed: Tensor, scales: Tensor, high: Tensor, x: Tensor) -> Tensor:
    """GGUF's Q4_K: super-blocks of 256 weights, 6-bit scales and minima packed in 12 bytes, products with a vector."""
    rows, blocks, _ = packed.shape
    s = scales.long()
    low_scale, low_min = s[..., 0:4] & 63, s[..., 4:8] & 63
    high_scale = (s[..., 8:12] & 15) | ((s[..., 0:4] >> 6) << 4)
    high_min = (s[..., 8:12] >> 4) | ((s[..., 4:8] >> 6) << 4)
    scale = torch.cat([low_scale, high_scale], -1).to(x.dtype) * high[..., :1]
    minimum = torch.cat([low_min, high_min], -1).to(x.dtype) * high[..., 1:]
    halves = packed.view(rows, blocks, 4, 32)
    nibbles = torch.stack([halves & 15, halves >> 4], dim=3).view(rows, blocks, 8, 32)
    weight = nibbles.to(x.dtype) * scale[..., None] - minimum[..., None]
    return weight.reshape(rows, -1) @ x


def packed_weights(place: Place) -> Made:
    rows, blocks, tokens = place.size(256, 8192), place.size(4, 16), place.size(2, 4)
    packed = place.randint(256, rows, blocks, 128).to(torch.uint8)
    scales = place.randint(256, rows, blocks, 12).to(torch.uint8)
    return super_blocks, (packed, scales, 0.01 * place.rand(rows, blocks, 2), place.randn(256 * blocks, tokens))


ROWS: tuple[Row, ...] = (
    Row("program/queried_pages", sparse_pages),
    Row("program/light_key_indexer", indexed_keys, "training"),
    Row("program/merged_shared_prefix", shared_prefix),
    Row("program/prefix_block_hashes", prefix_cache),
    Row("program/drafts_from_the_prompt", prompt_drafts),
    Row("program/excluded_top_choices", choices),
    Row("program/convolved_attention_scores", convolved_scores, "training"),
    Row("program/routed_within_capacity", routed_within_capacity, "training"),
    Row("program/distilled_own_words", distillation, "training"),
    Row("program/unlikely_repetitions", repetition, "training"),
    Row("program/asymmetric_token_clips", group_clips, "training"),
    Row("program/symlog_two_hot_worlds", symlog_worlds, "training"),
    Row("program/sigmoid_image_text_pairs", sigmoid_pairs, "training"),
    Row("program/swapped_prototypes", swapped, "training"),
    Row("program/nested_embedding_widths", nested_widths, "training"),
    Row("program/rotated_moments_step", soap, writes=True),
    Row("program/two_averages_step", ademamix, writes=True),
    Row("program/packed_super_blocks", packed_weights),
)
