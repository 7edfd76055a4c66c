"""From logits to tokens. Noise is an argument, so that every run draws the same."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def logits_of(place: Place) -> Tensor:
    """A batch of next-token logits."""
    return 3 * place.randn(place.size(16, 256), place.size(12_000, 128_000))


def top_k_logits(logits: Tensor, noise: Tensor, k: int = 50, temperature: float = 0.8) -> tuple[Tensor, Tensor]:
    """minGPT's: everything below the k-th is -inf; the draw is an exponential race."""
    logits = logits / temperature
    values, _ = torch.topk(logits, k)
    logits = torch.where(logits < values[:, [-1]], torch.full_like(logits, -float("inf")), logits)
    probs = F.softmax(logits, dim=-1)
    token = torch.argmax(probs / noise, dim=-1, keepdim=True)
    return token, probs.gather(-1, token).log()


def top_k(place: Place) -> Made:
    logits = logits_of(place)
    return top_k_logits, (logits, -torch.log(place.rand(*logits.shape).clamp(min=1e-9)))


def top_p_probabilities(logits: Tensor, threshold: Tensor) -> Tensor:
    """Nucleus sampling's distribution: sort, cumulate, drop the tail, scatter back."""
    ordered, order = torch.sort(logits, descending=True, dim=-1, stable=True)
    cumulative = torch.cumsum(torch.softmax(ordered, dim=-1), dim=-1)
    remove = cumulative > threshold[:, None]
    remove[..., 1:] = remove[..., :-1].clone()
    remove[..., 0] = False
    drop = torch.zeros_like(remove).scatter(1, order, remove)
    return logits.masked_fill(drop, float("-inf")).softmax(-1)


def top_p(place: Place) -> Made:
    logits = logits_of(place)
    return top_p_probabilities, (logits, 0.7 + 0.25 * place.rand(len(logits)))


class GumbelQuantizer(nn.Module):
    """A discrete bottleneck: straight-through Gumbel softmax over codes, KL to the uniform distribution."""

    def __init__(self, d: int, codes: int, d_code: int) -> None:
        super().__init__()
        self.proj = nn.Linear(d, codes)
        self.codebook = nn.Embedding(codes, d_code)
        self.codes = codes

    def forward(self, x: Tensor, uniform: Tensor, tau: float = 0.7) -> tuple[Tensor, Tensor]:
        logits = self.proj(x)
        gumbel = -torch.log(-torch.log(uniform.clamp(1e-6, 1 - 1e-6)))
        soft = ((logits + gumbel) / tau).softmax(-1)
        hard = torch.zeros_like(soft).scatter_(-1, soft.argmax(-1, keepdim=True), 1.0)
        one_hot = hard - soft.detach() + soft
        q = logits.softmax(-1)
        kl = (q * torch.log(q * self.codes + 1e-10)).sum(-1).mean()
        return (one_hot @ self.codebook.weight).square(), kl


def gumbel(place: Place) -> Made:
    n, codes = place.size(1024, 32_768), place.size(320, 1024)
    model = GumbelQuantizer(64, codes, 64).to(place.device)
    return model, (place.randn(n, 64), place.rand(n, codes))


def beam_step(logits: Tensor, scores: Tensor, tokens: Tensor, finished: Tensor, eos: int = 2) -> tuple[Tensor, ...]:
    """One step of beam search: a finished beam goes on with end-of-sentence only, at no cost."""
    batch, beams, vocabulary = logits.shape
    log_probs = F.log_softmax(logits, dim=-1)
    only_eos = torch.full_like(log_probs[0, 0], float("-inf"))
    only_eos[eos] = 0
    log_probs = torch.where(finished[..., None], only_eos, log_probs)
    total = (scores[..., None] + log_probs).view(batch, -1)
    best, flat = total.topk(beams, dim=-1)
    beam, token = flat // vocabulary, flat % vocabulary
    tokens = tokens.gather(1, beam[..., None].expand(-1, -1, tokens.size(-1)))
    tokens = torch.cat([tokens, token[..., None]], dim=-1)
    finished = finished.gather(1, beam) | (token == eos)
    length = (tokens != eos).sum(-1).to(best.dtype)
    return best, tokens, finished, best / ((5 + length) / 6) ** 0.6


def beam_search(place: Place) -> Made:
    batch, beams, vocabulary = place.size(8, 64), 4, place.size(8000, 64_000)
    tokens = place.randint(vocabulary, batch, beams, 20)
    finished = place.rand(batch, beams) < 0.2
    return beam_step, (2 * place.randn(batch, beams, vocabulary), place.randn(batch, beams), tokens, finished)


class LogitsProcessors(nn.Module):
    """Repetition, frequency and presence penalties, banned words, a bias, a floor: then log-probabilities."""

    banned: Tensor

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.register_buffer("banned", torch.arange(0, vocabulary, 977))
        self.bias = nn.Parameter(torch.randn(vocabulary) * 0.1)

    def forward(self, logits: Tensor, history: Tensor) -> Tensor:
        seen = logits.gather(1, history)
        seen = torch.where(seen < 0, seen * 1.2, seen / 1.2)
        logits = logits.scatter(1, history, seen)
        counts = torch.zeros_like(logits).scatter_add_(1, history, torch.ones_like(seen))
        logits = logits - 0.3 * counts - 0.2 * (counts > 0).to(logits.dtype) + self.bias
        logits[:, self.banned] = -1e4
        return torch.log_softmax(logits.clamp(min=-1e4), dim=-1)


def penalties(place: Place) -> Made:
    logits = logits_of(place)
    batch, vocabulary = logits.shape
    return LogitsProcessors(vocabulary).to(place.device), (logits, place.randint(vocabulary, batch, 200))


def typical_sampling(logits: Tensor, mass: float = 0.9) -> Tensor:
    """Meister et al., 2022: keep the tokens whose surprise is closest to the entropy."""
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    entropy = -(log_p * p).nansum(-1, keepdim=True)
    shift = (-log_p - entropy).abs()
    _, order = shift.sort(dim=-1)
    cumulative = p.gather(-1, order).cumsum(-1)
    last = (cumulative < mass).sum(dim=1).clamp(max=logits.size(-1) - 1)
    limit = shift.gather(1, order.gather(1, last[:, None]))
    return torch.where(shift <= limit, p, torch.zeros_like(p)).sum(-1)


def typical(place: Place) -> Made:
    return typical_sampling, (logits_of(place),)


def speculative_acceptance(draft: Tensor, target: Tensor, tokens: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Leviathan et al., 2023: how many draft tokens stay, and the distribution of the next one."""
    steps = tokens.shape[1]
    p, q = target.softmax(-1), draft.softmax(-1)
    chosen = tokens.unsqueeze(-1)
    ratio = (p[:, :steps].gather(-1, chosen) / q.gather(-1, chosen).clamp(min=1e-9)).squeeze(-1)
    accepted = (uniform < ratio).long().cumprod(dim=1).sum(1)
    at = accepted.clamp(max=steps - 1)[:, None, None].expand(-1, 1, p.shape[-1])
    residual = (p.gather(1, at) - q.gather(1, at)).clamp(min=0).squeeze(1)
    residual = residual / residual.sum(-1, keepdim=True).clamp(min=1e-9)
    following = torch.where((accepted == steps)[:, None], p[:, -1], residual)
    return accepted, following


def speculative_decoding(place: Place) -> Made:
    batch, steps, vocabulary = place.size(16, 64), 4, place.size(16_000, 64_000)
    draft = place.randn(batch, steps, vocabulary)
    target = torch.cat([draft + 0.5 * place.randn(batch, steps, vocabulary), place.randn(batch, 1, vocabulary)], 1)
    return speculative_acceptance, (draft, target, place.randint(vocabulary, batch, steps), place.rand(batch, steps))


ROWS: tuple[Row, ...] = (
    Row("program/top_k_sampling", top_k),
    Row("program/top_p_sampling", top_p),
    Row("program/gumbel_quantizer", gumbel, "training"),
    Row("program/beam_search_step", beam_search),
    Row("program/repetition_penalty", penalties),
    Row("program/typical_sampling", typical),
    Row("program/speculative_acceptance", speculative_decoding),
)
