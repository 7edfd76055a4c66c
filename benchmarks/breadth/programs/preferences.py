"""What language models are trained on after pre-training, and what is done with logits before a token is drawn."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class StabilisedCrossEntropy(nn.Module):
    """A capped head, cross-entropy with ignored labels, and the square of the log-normaliser (PaLM's z-loss)."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(self.norm(hidden)).float()
        logits = 30.0 * torch.tanh(logits / 30.0)
        shifted, targets = logits[:, :-1], labels[:, 1:]
        keep = targets != -100
        log_z = torch.logsumexp(shifted, dim=-1)
        picked = shifted.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        count = keep.sum().clamp(min=1)
        loss = ((log_z - picked) * keep).sum() / count
        z_loss = 1e-4 * (log_z.square() * keep).sum() / count
        accuracy = ((shifted.argmax(-1) == targets) & keep).sum() / count
        return loss + z_loss, accuracy.detach()


def z_loss(place: Place) -> Made:
    b, t, width, vocabulary = place.size(2, 4), place.size(33, 513), place.size(48, 512), place.size(501, 32_001)
    labels = place.randint(vocabulary, b, t)
    labels[:, : t // 5] = -100
    return StabilisedCrossEntropy(width, vocabulary).to(place.device), (place.randn(b, t, width), labels)


def token_log_probabilities(logits: Tensor, labels: Tensor) -> Tensor:
    logits = logits[:, :-1]
    return torch.gather(logits.log_softmax(-1), 2, labels[:, 1:, None]).squeeze(2)


def kahneman_tversky(
    logits: Tensor, reference: Tensor, kl_logits: Tensor, labels: Tensor, mask: Tensor, good: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Ethayarajh and others, 2024 (KTO): good and bad answers without pairs, round a running divergence."""
    beta, desirable, undesirable = 0.1, 1.0, 1.33
    mask = mask[:, 1:]
    own = (token_log_probabilities(logits, labels) * mask).sum(-1)
    theirs = (token_log_probabilities(reference, labels) * mask).sum(-1)
    other = (token_log_probabilities(kl_logits, labels.roll(1, 0)) * mask).sum(-1)
    kl = (other - theirs).mean().clamp(min=0).detach()
    ratio = own - theirs
    chosen = 1 - torch.sigmoid(beta * (ratio - kl))
    rejected = 1 - torch.sigmoid(beta * (kl - ratio))
    losses = torch.where(good, desirable * chosen, undesirable * rejected)
    return losses.mean(), (beta * ratio).detach(), kl


def kto(place: Place) -> Made:
    b, t, v = place.size(4, 8), place.size(24, 256), place.size(301, 16_001)
    mask = (torch.arange(t, device=place.device)[None] > t // 4).float().expand(b, t)
    logits = place.randn(b, t, v).requires_grad_()
    good = torch.arange(b, device=place.device) % 2 == 0
    return kahneman_tversky, (logits, place.randn(b, t, v), place.randn(b, t, v), place.randint(v, b, t), mask, good)


def sequence_ratios(
    logps: Tensor, old: Tensor, reference: Tensor, rewards: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Zheng and others, 2025 (GSPO), with DAPO's unequal clips, overlong penalty and a k3 estimate of divergence."""
    length = logps.size(-1)
    lengths = mask.sum(-1)
    penalty = ((lengths - 0.8 * length) / (0.2 * length)).clamp(0, 1)
    rewards = rewards - penalty
    spread = rewards.std(dim=1, keepdim=True)
    advantages = (rewards - rewards.mean(dim=1, keepdim=True)) / (spread + 1e-4)
    advantages = torch.where(spread > 1e-3, advantages, torch.zeros_like(advantages))
    log_ratio = ((logps - old) * mask).sum(-1) / lengths.clamp(min=1)
    ratio = (logps - logps.detach() + log_ratio.detach().unsqueeze(-1)).exp()
    clipped = ratio.clamp(1 - 0.2, 1 + 0.28)
    objective = torch.minimum(ratio * advantages[..., None], clipped * advantages[..., None])
    difference = reference - logps
    k3 = difference.exp() - difference - 1
    loss = ((-objective + 0.02 * k3) * mask).sum() / mask.sum()
    share = (((ratio != clipped) * mask).sum() / mask.sum()).detach()
    return loss, share


def gspo(place: Place) -> Made:
    g, n, t = place.size(4, 64), 8, place.size(50, 4096)
    base = -2 * place.rand(g, n, t)
    lengths = 1 + place.randint(t - 1, g, n)
    mask = (torch.arange(t, device=place.device) < lengths[..., None]).float()
    logps = (base + 0.3 * place.randn(g, n, 1) + 0.1 * place.randn(g, n, t)).requires_grad_()
    return sequence_ratios, (logps, base, base + 0.1 * place.randn(g, n, t), place.rand(g, n).round(), mask)


class RewardHead(nn.Module):
    """Pairs of answers scored at their last token: Bradley and Terry with a margin, rewards kept near zero."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, hidden: Tensor, ids: Tensor, margin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores = self.score(F.gelu(self.mix(hidden), approximate="tanh")).squeeze(-1)
        last = (ids != 0).long().cumsum(1).argmax(1)
        rewards = scores[torch.arange(len(ids), device=ids.device), last]
        chosen, rejected = rewards.chunk(2)
        loss = -F.logsigmoid(chosen - rejected - margin).mean()
        loss = loss + 0.01 * (chosen + rejected).square().mean()
        return loss, rewards, (chosen > rejected).float().mean()


def reward_head(place: Place) -> Made:
    b, t, width = place.size(4, 32), place.size(30, 511), place.size(64, 1024)
    ids = 1 + place.randint(1000, b, t)
    lengths = t // 2 + place.randint(t // 2, b)
    ids = ids * (torch.arange(t, device=place.device)[None] < lengths[:, None])
    return RewardHead(width).to(place.device), (place.randn(b, t, width), ids, place.rand(b // 2))


class FutureTokens(nn.Module):
    """Gloeckle and others, 2024: a head for each of the next tokens, all through one unembedding."""

    def __init__(self, width: int, vocabulary: int, ahead: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.merge = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(ahead)])
        self.norms = nn.ModuleList([nn.RMSNorm(width) for _ in range(ahead)])

    def forward(self, hidden: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        losses = []
        for k, (merge, norm) in enumerate(zip(self.merge, self.norms, strict=True), 1):
            hidden = hidden[:, :-1]
            known = self.embed(ids[:, k : k + hidden.size(1)])
            hidden = hidden + F.silu(merge(torch.cat([norm(hidden), known], -1)))
            logits = F.linear(hidden[:, :-1], self.embed.weight)
            target = ids[:, k + 1 : k + 1 + logits.size(1)]
            losses.append(F.cross_entropy(logits.flatten(0, 1).float(), target.flatten()))
        return torch.stack(losses) @ hidden.new_tensor([1.0, 0.5, 0.25]).float(), hidden


def future_tokens(place: Place) -> Made:
    b, t, width, v = place.size(2, 4), place.size(25, 385), place.size(32, 512), place.size(203, 16_003)
    return FutureTokens(width, v, 3).to(place.device), (place.randn(b, t, width), place.randint(v, b, t))


def eta_cutoff(logits: Tensor, uniform: Tensor, bias_ids: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Hewitt and others, 2022: what is below a threshold that follows the entropy is left out; an inverse draw."""
    logits = logits.clone()
    logits.scatter_add_(1, bias_ids, bias)
    probabilities = torch.softmax(logits, -1)
    entropy = -(probabilities * torch.log(probabilities + 1e-10)).sum(-1, keepdim=True)
    epsilon = torch.full_like(entropy, 3e-4)
    eta = torch.minimum(epsilon, epsilon.sqrt() * torch.exp(-entropy))
    best = torch.topk(logits, 5, dim=-1).values[:, -1:]
    remove = (probabilities < eta) & (logits < best)
    kept = torch.softmax(logits.masked_fill(remove, float("-inf")), -1)
    cumulative = kept.cumsum(-1)
    token = (cumulative < uniform * cumulative[:, -1:]).sum(-1)
    return token.clamp(max=logits.size(-1) - 1), (~remove).sum(-1)


def eta(place: Place) -> Made:
    b, v = place.size(8, 128), place.size(2001, 50_257)
    return eta_cutoff, (6 * place.randn(b, v), place.rand(b, 1), place.randint(v, b, 20), place.randn(b, 20))


def sigma_and_entropy(logits: Tensor, gumbel: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Top-n-sigma's cut, then a temperature from the entropy (EDT), an argmax under Gumbel noise."""
    x = logits
    threshold = x.amax(-1, keepdim=True) - 1.5 * x.std(-1, keepdim=True)
    x = torch.where(x < threshold, torch.finfo(x.dtype).min, x)
    logp = F.log_softmax(x, -1)
    entropy = -(logp.exp() * logp.clamp(min=-1e4)).sum(-1, keepdim=True)
    temperature = 0.8 * torch.pow(torch.tensor(0.9, device=x.device), 0.6 / entropy.clamp(min=0.05))
    scaled = F.log_softmax(x / temperature, -1)
    token = (scaled.clamp(min=-1e9) + gumbel).argmax(-1)
    return token, logp.gather(-1, token[:, None]).squeeze(-1), temperature.squeeze(-1)


def sigma_entropy(place: Place) -> Made:
    b, v = place.size(8, 256), place.size(3001, 50_304)
    noise = -torch.log(-torch.log(place.rand(b, v).clamp(1e-6, 1 - 1e-6)))
    return sigma_and_entropy, (2 * place.randn(b, v), noise)


def contrast_of_layers(hidden: Tensor, norm: Tensor, head: Tensor) -> tuple[Tensor, Tensor]:
    """Chuang and others, 2024 (DoLa): the early layer furthest from the last one is subtracted from it."""
    hidden = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6) * norm
    logits = hidden @ head.t()
    final, early = logits[-1], logits[:-1]
    p, q = final.softmax(-1)[None], early.softmax(-1)
    middle = 0.5 * (p + q)
    left = F.kl_div(middle.log(), p.expand_as(q), reduction="none").sum(-1)
    right = F.kl_div(middle.log(), q, reduction="none").sum(-1)
    layer = (0.5 * (left + right)).mean(-1).argmax()
    contrast = final.log_softmax(-1) - early[layer].log_softmax(-1)
    floor = final.log_softmax(-1).amax(-1, keepdim=True) + torch.log(torch.tensor(0.1, device=final.device))
    return torch.where(final.log_softmax(-1) < floor, -1000.0, contrast), layer


def layers_contrast(place: Place) -> Made:
    layers, b, width, v = 9, place.size(4, 64), place.size(48, 1024), place.size(503, 32_000)
    return contrast_of_layers, (place.randn(layers, b, width), place.rand(width) + 0.5, place.randn(v, width) / 10)


def diverse_beams(logits: Tensor, scores: Tensor, sequences: Tensor, cache: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Vijayakumar and others, 2018: groups of beams, each punished for words of those before it; caches follow."""
    batch, groups, beams, vocabulary = logits.shape
    logp = logits.log_softmax(-1)
    counts = torch.zeros(batch, vocabulary, device=logits.device)
    new_scores, origins, words = [], [], []
    for g in range(groups):
        total = scores[:, g, :, None] + logp[:, g] - 0.6 * counts[:, None]
        best, index = total.view(batch, -1).topk(beams, dim=-1)
        word = index % vocabulary
        counts.scatter_add_(1, word, torch.ones_like(best))
        new_scores.append(best)
        origins.append(index // vocabulary + g * beams)
        words.append(word)
    origin = torch.cat(origins, 1)
    sequences = sequences.gather(1, origin[..., None].expand(-1, -1, sequences.size(-1)))
    sequences = torch.cat([sequences, torch.cat(words, 1)[..., None]], -1)
    rows = origin + torch.arange(batch, device=origin.device)[:, None] * (groups * beams)
    return torch.stack(new_scores, 1), sequences, cache.index_select(0, rows.flatten())


def beams(place: Place) -> Made:
    b, g, n, v, t = place.size(2, 16), 3, 4, place.size(500, 32_000), place.size(9, 127)
    cache = place.randn(b * g * n, place.size(2, 8), t, place.size(8, 64))
    return diverse_beams, (place.randn(b, g, n, v), place.randn(b, g, n), place.randint(v, b, g * n, t), cache)


ROWS: tuple[Row, ...] = (
    Row("program/stabilised_cross_entropy", z_loss, "training", autocast=torch.bfloat16),
    Row("program/kahneman_tversky_answers", kto, "training"),
    Row("program/sequence_policy_ratios", gspo, "training"),
    Row("program/reward_margin_pairs", reward_head, "training", dtype=torch.bfloat16),
    Row("program/future_token_heads", future_tokens, "training", autocast=torch.bfloat16),
    Row("program/eta_cutoff_sampling", eta),
    Row("program/sigma_entropy_temperature", sigma_entropy),
    Row("program/layer_contrast_logits", layers_contrast),
    Row("program/diverse_beam_groups", beams),
)
