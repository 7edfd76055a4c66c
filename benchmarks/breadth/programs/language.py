"""Language modelling, parsing and tagging: heads, mixers, and the losses of preference tuning."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class CRFTagger(nn.Module):
    """A linear-chain CRF on word features: the negative log-likelihood of tags, by the forward algorithm."""

    def __init__(self, d: int, tags: int) -> None:
        super().__init__()
        self.emit = nn.Linear(d, tags)
        self.transitions = nn.Parameter(torch.randn(tags, tags) * 0.1)
        self.start = nn.Parameter(torch.randn(tags) * 0.1)
        self.end = nn.Parameter(torch.randn(tags) * 0.1)

    def gold(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        weight = mask.to(emissions.dtype)
        emitted = emissions.gather(2, tags.unsqueeze(2)).squeeze(2)
        moved = self.transitions[tags[:, :-1], tags[:, 1:]]
        last = tags.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)
        score = self.start[tags[:, 0]] + (emitted * weight).sum(1) + (moved * weight[:, 1:]).sum(1)
        return score + self.end[last]

    def forward(self, x: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        emissions = self.emit(x)
        score = self.start + emissions[:, 0]
        for t in range(1, x.size(1)):
            paths = score.unsqueeze(2) + self.transitions + emissions[:, t].unsqueeze(1)
            score = torch.where(mask[:, t].unsqueeze(1), torch.logsumexp(paths, dim=1), score)
        partition = torch.logsumexp(score + self.end, dim=1)
        return (partition - self.gold(emissions, tags, mask)).mean()


def crf(place: Place) -> Made:
    batch, words, tags = place.size(32, 512), place.size(24, 28), place.size(20, 32)
    lengths = place.randint(words - 4, batch) + 4
    mask = torch.arange(words, device=place.device) < lengths[:, None]
    return CRFTagger(64, tags).to(place.device), (
        place.randn(batch, words, 64),
        place.randint(tags, batch, words),
        mask,
    )


class Biaffine(nn.Module):
    """Dozat and Manning, 2017: scores of heads and, for the best head of every word, of the relation's labels."""

    def __init__(self, d: int, arc: int, rel: int, labels: int) -> None:
        super().__init__()
        self.arc_head, self.arc_dep = nn.Linear(d, arc), nn.Linear(d, arc)
        self.rel_head, self.rel_dep = nn.Linear(d, rel), nn.Linear(d, rel)
        self.arc_weight = nn.Parameter(torch.randn(arc + 1, arc) / arc)
        self.rel_weight = nn.Parameter(torch.randn(labels, rel + 1, rel + 1) / rel)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        arc_h = F.leaky_relu(self.arc_head(x), 0.1)
        arc_d = F.leaky_relu(self.arc_dep(x), 0.1)
        rel_h = F.leaky_relu(self.rel_head(x), 0.1)
        rel_d = F.leaky_relu(self.rel_dep(x), 0.1)
        arc_d = torch.cat([arc_d, torch.ones_like(arc_d[..., :1])], dim=-1)
        arcs = arc_d @ self.arc_weight @ arc_h.transpose(1, 2)
        arcs = arcs.masked_fill(~mask.unsqueeze(1), -1e4)
        arcs.diagonal(dim1=1, dim2=2).fill_(-1e4)
        rel_h = F.pad(rel_h, (0, 1), value=1.0)
        rel_d = F.pad(rel_d, (0, 1), value=1.0)
        rels = torch.einsum("bxi,oij,byj->bxyo", rel_d, self.rel_weight, rel_h)
        heads = arcs.argmax(-1)
        index = heads[..., None, None].expand(-1, -1, 1, rels.size(-1))
        return arcs.log_softmax(-1), heads, rels.gather(2, index).squeeze(2)


def biaffine(place: Place) -> Made:
    batch, words, d = place.size(8, 32), place.size(48, 128), place.size(192, 512)
    mask = torch.arange(words, device=place.device) < (place.randint(words - 4, batch, 1) + 4)
    return Biaffine(d, d, d // 8, 40).to(place.device), (place.randn(batch, words, d), mask)


class PointerGenerator(nn.Module):
    """See et al., 2017: a mixture of the vocabulary and the copied source, with coverage along the target."""

    def __init__(self, d: int, vocabulary: int, extra: int) -> None:
        super().__init__()
        self.extra = extra
        self.source, self.target = nn.Linear(d, d, bias=False), nn.Linear(d, d)
        self.coverage = nn.Linear(1, d, bias=False)
        self.v = nn.Linear(d, 1, bias=False)
        self.gate = nn.Linear(2 * d, 1)
        self.out = nn.Sequential(nn.Linear(2 * d, d), nn.Linear(d, vocabulary))

    def forward(self, states: Tensor, encoded: Tensor, ids: Tensor, target: Tensor, padding: Tensor) -> Tensor:
        keys = self.source(encoded)
        coverage = torch.zeros_like(encoded[..., 0])
        losses = []
        for t in range(states.size(1)):
            state = states[:, t]
            features = keys + self.target(state).unsqueeze(1) + self.coverage(coverage.unsqueeze(-1))
            energy = self.v(torch.tanh(features)).squeeze(-1).masked_fill(padding, float("-inf"))
            attention = torch.softmax(energy, dim=-1)
            context = torch.bmm(attention.unsqueeze(1), encoded).squeeze(1)
            joint = torch.cat((state, context), dim=1)
            p_gen = torch.sigmoid(self.gate(joint))
            vocab = p_gen * torch.softmax(self.out(joint), dim=1)
            final = torch.cat([vocab, vocab.new_zeros(vocab.size(0), self.extra)], dim=1)
            final = final.scatter_add(1, ids, (1 - p_gen) * attention)
            nll = -torch.log(final.gather(1, target[:, t : t + 1]).squeeze(1) + 1e-9)
            losses.append(nll + torch.minimum(attention, coverage).sum(1))
            coverage = coverage + attention
        return torch.stack(losses, 1).mean(1)


def pointer_generator(place: Place) -> Made:
    batch, steps, words = place.size(4, 32), place.size(5, 4), place.size(40, 400)
    d, vocabulary = place.size(64, 256), place.size(1000, 16_000)
    padding = torch.arange(words, device=place.device) >= (place.randint(words - 8, batch, 1) + 8)
    return PointerGenerator(d, vocabulary, 50).to(place.device), (
        place.randn(batch, steps, d),
        place.randn(batch, words, d),
        place.randint(vocabulary + 50, batch, words),
        place.randint(vocabulary, batch, steps),
        padding,
    )


def contrastive_decoding(
    expert: Tensor, amateur: Tensor, previous: Tensor, alpha: float = 0.1, beta: float = 0.5, penalty: float = 1.2
) -> tuple[Tensor, Tensor]:
    """Li et al., 2023: what the expert likes more than the amateur does, among its plausible tokens."""
    seen = expert.gather(1, previous)
    expert = expert.scatter(1, previous, torch.where(seen < 0, seen * penalty, seen / penalty))
    cutoff = math.log(alpha) + expert.max(dim=-1, keepdim=True).values
    scores = (1 + beta) * expert.log_softmax(-1) - beta * amateur.log_softmax(-1)
    scores[expert < cutoff] = -float("inf")
    chosen = scores.argmax(dim=-1)
    return chosen, scores.gather(1, chosen.unsqueeze(1)).squeeze(1)


def contrastive(place: Place) -> Made:
    batch, vocabulary = place.size(16, 256), place.size(32_000, 128_000)
    logits = place.randn(batch, vocabulary)
    return contrastive_decoding, (
        2 * logits,
        logits + place.randn(batch, vocabulary),
        place.randint(vocabulary, batch, 64),
    )


def sequence_log_prob(logits: Tensor, labels: Tensor) -> Tensor:
    """The labels' log-probabilities, summed; -100 is ignored."""
    labels = labels[:, 1:].clone()
    mask = labels != -100
    labels[labels == -100] = 0
    per_token = torch.gather(logits[:, :-1].log_softmax(-1), dim=2, index=labels.unsqueeze(2)).squeeze(2)
    return (per_token * mask).sum(-1)


def dpo_loss(
    policy: Tensor, reference: Tensor, labels: Tensor, beta: float = 0.1, smoothing: float = 0.05
) -> tuple[Tensor, Tensor, Tensor]:
    """Rafailov et al., 2023: chosen answers are the first half of the batch, rejected ones the second."""
    chosen, rejected = sequence_log_prob(policy, labels).chunk(2)
    with torch.no_grad():
        reference_chosen, reference_rejected = sequence_log_prob(reference, labels).chunk(2)
    logits = (chosen - rejected) - (reference_chosen - reference_rejected)
    losses = -F.logsigmoid(beta * logits) * (1 - smoothing) - F.logsigmoid(-beta * logits) * smoothing
    chosen_reward = beta * (chosen - reference_chosen).detach()
    rejected_reward = beta * (rejected - reference_rejected).detach()
    return losses.mean(), chosen_reward, rejected_reward


def dpo(place: Place) -> Made:
    batch, words, vocabulary = place.size(4, 8), place.size(64, 256), place.size(4000, 16_000)
    labels = place.randint(vocabulary, batch, words)
    labels[:, : words // 4] = -100
    logits = place.randn(batch, words, vocabulary)
    reference = logits + 0.1 * place.randn(batch, words, vocabulary)
    return dpo_loss, (logits.requires_grad_(), reference, labels)


def rotate_half(x: Tensor) -> Tensor:
    """The second half, negated, before the first."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


def packed_attention(qkv: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """Documents packed in one row: positions count from each one's start, and attention stays inside it."""
    b, n, _, h, d = qkv.shape
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    index = torch.arange(n, device=qkv.device).expand(b, n)
    begin = torch.where(starts, index, 0).cummax(dim=1).values
    positions = index - begin
    document = starts.long().cumsum(1)
    inverse = 1.0 / 10_000 ** (torch.arange(0, d, 2, device=qkv.device, dtype=qkv.dtype) / d)
    angles = positions.to(qkv.dtype)[..., None] * inverse
    angles = torch.cat([angles, angles], dim=-1).unsqueeze(1)
    cos, sin = angles.cos(), angles.sin()
    q = q * cos + rotate_half(q) * sin
    k = k * cos + rotate_half(k) * sin
    allowed = (document[:, :, None] == document[:, None, :]) & (index[:, :, None] >= index[:, None, :])
    scores = q @ k.transpose(-1, -2) / math.sqrt(d)
    scores = scores + torch.zeros_like(scores).masked_fill(~allowed[:, None], torch.finfo(scores.dtype).min)
    out = scores.softmax(-1) @ v
    return out.transpose(1, 2).reshape(b, n, h * d), positions


def packed(place: Place) -> Made:
    b, n, h, d = place.size(1, 4), place.size(384, 1024), place.size(4, 8), place.size(32, 64)
    starts = place.rand(b, n) < 0.02
    starts[:, 0] = True
    return packed_attention, (place.randn(b, n, 3, h, d), starts)


class TiedHead(nn.Module):
    """Cross entropy with the tied embedding, chunk by chunk, with capped logits and a z-loss."""

    def __init__(self, vocabulary: int, d: int, chunks: int = 4) -> None:
        super().__init__()
        self.chunks = chunks
        self.embedding = nn.Embedding(vocabulary, d)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        hidden = F.rms_norm(self.embedding(ids), (self.embedding.embedding_dim,))
        total = hidden.new_zeros(())
        for h, y in zip(hidden.chunk(self.chunks), labels.chunk(self.chunks), strict=True):
            logits = F.linear(h, self.embedding.weight)
            logits = 30.0 * torch.tanh(logits / 30.0)
            loss = F.cross_entropy(logits, y, ignore_index=-100, reduction="sum")
            z = torch.logsumexp(logits, dim=-1)
            total = total + loss + 1e-4 * (z**2 * (y != -100)).sum()
        return total / (labels != -100).sum()


def tied_head(place: Place) -> Made:
    n, vocabulary, d = place.size(128, 4096), place.size(2000, 16_000), place.size(64, 512)
    labels = place.randint(vocabulary, n)
    labels[::7] = -100
    return TiedHead(vocabulary, d).to(place.device), (place.randint(vocabulary, n), labels)


class SLSTM(nn.Module):
    """xLSTM's scalar memory: exponential gates with a stabiliser and block-diagonal recurrence by head."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, d // heads
        self.inputs = nn.Linear(d, 4 * d)
        self.recurrent = nn.Parameter(torch.randn(heads, self.width, 4 * self.width) / self.width**0.5)
        self.norm = nn.GroupNorm(heads, d)

    def forward(self, x: Tensor) -> Tensor:
        b, steps, d = x.shape
        gates = self.inputs(x).view(b, steps, self.heads, 4 * self.width)
        h = c = n = m = x.new_zeros(b, self.heads, self.width)
        outputs = []
        for t in range(steps):
            g = gates[:, t] + torch.einsum("bhd,hde->bhe", h, self.recurrent)
            i, f, z, o = g.chunk(4, dim=-1)
            log_f = F.logsigmoid(f)
            m_new = torch.maximum(log_f + m, i)
            i_gate = torch.exp(i - m_new)
            f_gate = torch.exp(log_f + m - m_new)
            c = f_gate * c + i_gate * torch.tanh(z)
            n = f_gate * n + i_gate
            h = torch.sigmoid(o) * c / n.clamp(min=1e-6)
            m = m_new
            outputs.append(h.reshape(b, d))
        y = torch.stack(outputs, dim=1)
        return x + self.norm(y.view(b * steps, d)).view(b, steps, d)


def slstm(place: Place) -> Made:
    b, steps, d = place.size(8, 64), place.size(32, 32), place.size(128, 512)
    return SLSTM(d, 4).to(place.device), (place.randn(b, steps, d),)


def gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Tensor) -> Tensor:
    """Yang et al., 2024: a fast-weight memory that decays, forgets what it had at the key, and writes the value."""
    b, h, steps, dk = q.shape
    q = F.normalize(q, dim=-1) * dk**-0.5
    k = F.normalize(k, dim=-1)
    beta = beta.sigmoid()
    decay = F.logsigmoid(gate).exp()
    state = q.new_zeros(b, h, dk, v.size(-1))
    out = []
    for t in range(steps):
        k_t, v_t = k[:, :, t], v[:, :, t]
        state = state * decay[:, :, t, None, None]
        recalled = (state * k_t.unsqueeze(-1)).sum(-2)
        delta = (v_t - recalled) * beta[:, :, t, None]
        state = state + k_t.unsqueeze(-1) * delta.unsqueeze(-2)
        out.append((state * q[:, :, t].unsqueeze(-1)).sum(-2))
    return torch.stack(out, dim=2)


def delta_rule(place: Place) -> Made:
    b, h, steps, d = place.size(1, 4), place.size(4, 16), place.size(24, 14), place.size(32, 64)
    vectors = [place.randn(b, h, steps, d).requires_grad_() for _ in range(3)]
    return gated_delta_rule, (*vectors, place.randn(b, h, steps).requires_grad_(), 2 + place.randn(b, h, steps))


class DifferentialAttention(nn.Module):
    """Ye et al., 2024: the difference of two softmax maps, with a learnt weight, normalised by head."""

    def __init__(self, d: int, heads: int, depth: int = 3) -> None:
        super().__init__()
        self.heads, self.width = heads, d // heads // 2
        self.q, self.k, self.v = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.o = nn.Linear(d, d, bias=False)
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * depth)
        self.lq1, self.lk1, self.lq2, self.lk2 = (nn.Parameter(torch.randn(self.width) * 0.1) for _ in range(4))
        self.weight = nn.Parameter(torch.ones(2 * self.width))

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q = self.q(x).view(b, n, 2 * self.heads, self.width).transpose(1, 2)
        k = self.k(x).view(b, n, 2 * self.heads, self.width).transpose(1, 2)
        v = self.v(x).view(b, n, self.heads, 2 * self.width).transpose(1, 2)
        scores = (q * self.width**-0.5) @ k.transpose(-1, -2)
        causal = torch.triu(torch.full((n, n), float("-inf"), device=x.device, dtype=scores.dtype), 1)
        maps = F.softmax(scores + causal, dim=-1)
        one = torch.exp(torch.sum(self.lq1 * self.lk1, dim=-1))
        two = torch.exp(torch.sum(self.lq2 * self.lk2, dim=-1))
        maps = maps.view(b, self.heads, 2, n, n)
        y = (maps[:, :, 0] - (one - two + self.lambda_init) * maps[:, :, 1]) @ v
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight
        return self.o((y * (1 - self.lambda_init)).transpose(1, 2).reshape(b, n, d))


def differential(place: Place) -> Made:
    b, n, d = place.size(2, 4), place.size(256, 1024), place.size(256, 1024)
    return DifferentialAttention(d, place.size(4, 8)).to(place.device), (place.randn(b, n, d),)


def fft_conv(u: Tensor, k: Tensor, bias: Tensor) -> Tensor:
    """A causal convolution as long as its input, by padded transforms."""
    n = u.shape[-1]
    k_f = torch.fft.rfft(k, n=2 * n) / (2 * n)
    u_f = torch.fft.rfft(u, n=2 * n)
    y = torch.fft.irfft(u_f * k_f, n=2 * n, norm="forward")[..., :n]
    return y + u * bias.unsqueeze(-1)


class Hyena(nn.Module):
    """Poli et al., 2023: order two, implicit filters from sines of positions, a window of exponential decay."""

    t: Tensor
    z: Tensor

    def __init__(self, d: int, length: int, bands: int = 8, width: int = 32) -> None:
        super().__init__()
        self.inputs, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.short = nn.Conv1d(3 * d, 3 * d, 3, padding=2, groups=3 * d)
        t = torch.linspace(0, 1, length)[:, None]
        f = torch.linspace(1e-4, bands - 1, bands)[None]
        self.register_buffer("t", t)
        self.register_buffer("z", torch.cat([t, (2 * math.pi * f * t).cos(), (2 * math.pi * f * t).sin()], dim=-1))
        self.first, self.second, self.last = (
            nn.Linear(2 * bands + 1, width),
            nn.Linear(width, width),
            nn.Linear(width, d, bias=False),
        )
        self.frequency = nn.Parameter(10 * torch.ones(width))
        self.decay = nn.Parameter(torch.linspace(3, 15, d))
        self.bias = nn.Parameter(torch.randn(d))

    def forward(self, x: Tensor) -> Tensor:
        n = x.size(1)
        u = self.short(self.inputs(x).transpose(1, 2))[..., :n]
        x0, x1, v = u.split(u.size(1) // 3, dim=1)
        k = torch.sin(self.frequency * self.first(self.z[:n]))
        k = self.last(torch.sin(self.frequency * self.second(k)))
        k = (k * torch.exp(-self.t[:n] * self.decay.abs())).t()
        v = fft_conv(v * x1, k, self.bias)
        return self.out((v * x0).transpose(1, 2))


def hyena(place: Place) -> Made:
    b, n, d = place.size(1, 4), place.size(512, 4096), place.size(64, 256)
    return Hyena(d, n).to(place.device), (place.randn(b, n, d),)


ROWS: tuple[Row, ...] = (
    Row("program/crf_tagger", crf, "training"),
    Row("program/biaffine_parser", biaffine),
    Row("program/pointer_generator", pointer_generator, "training"),
    Row("program/contrastive_decoding", contrastive),
    Row("program/dpo_loss", dpo, "training"),
    Row("program/packed_documents", packed),
    Row("program/tied_chunked_cross_entropy", tied_head, "training", autocast=torch.bfloat16),
    Row("program/slstm", slstm),
    Row("program/gated_delta_rule", delta_rule, "training"),
    Row("program/differential_attention", differential, dtype=torch.bfloat16),
    Row("program/hyena_operator", hyena, "training"),
)
