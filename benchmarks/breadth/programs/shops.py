"""Shops, exchanges, polls: lists ranked or shown, logs, sets without doubles, hedges, sure sets of labels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class DeepHedge(nn.Module):
    """Buehler and others, 2019: a network trades against an option step by step, costs paid, entropic risk."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.enter, self.middle, self.leave = nn.Linear(4, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)

    def forward(self, normal: Tensor) -> tuple[Tensor, Tensor]:
        paths, steps = normal.shape
        dt, volatility = 1 / 252, 0.2
        returns = volatility * dt**0.5 * normal - 0.5 * volatility**2 * dt
        price = torch.cat([torch.ones_like(normal[:, :1]), returns.cumsum(1).exp()], 1)
        position, wealth = torch.zeros_like(price[:, 0]), torch.zeros_like(price[:, 0])
        highest = price[:, 0]
        for k in range(steps):
            now = price[:, k]
            highest = torch.maximum(highest, now)
            left = torch.full_like(now, (steps - k) * dt)
            x = torch.stack([now.log() * 20, left * 10, position, (highest / now).log() * 20], 1)
            wanted = torch.sigmoid(self.leave(F.relu(self.middle(F.relu(self.enter(x)))))).squeeze(1)
            wealth = wealth - 1e-3 * (wanted - position).abs() * now + wanted * (price[:, k + 1] - now)
            position = wanted
        wealth = wealth - 1e-3 * position * price[:, -1]
        payoff = (price[:, -1] - 1).clamp(min=0) + 0.5 * (highest - 1.05).clamp(min=0)
        loss = payoff - wealth
        entropic = (torch.logsumexp(20 * loss, 0) - torch.log(loss.new_tensor(float(paths)))) / 20
        return entropic, loss.detach()


def hedge(place: Place) -> Made:
    return DeepHedge(place.size(24, 64)).to(place.device), (place.randn(place.size(512, 65_536), place.size(10, 21)),)


def sure_sets(calibration: Tensor, labels: Tensor, logits: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Angelopoulos and others, 2021 (RAPS): sets of labels that hold the truth nine times of ten, by group."""
    temperature = 1.3

    def scores(x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        p, order = (x / temperature).softmax(1).sort(1, descending=True)
        total = p.cumsum(1)
        rank = torch.arange(1, p.size(1) + 1, device=p.device)
        return total - p * (1 - u[:, None]) + 0.01 * (rank - 5).clamp(min=0), order

    half = len(uniform) // 2
    own, order = scores(calibration, uniform[:half])
    found = (order == labels[:, None]).to(own.dtype)
    score = (own * found).sum(1)
    group = labels % 4
    level = min(1.0, 0.9 * (1 + 1 / half))
    thresholds = torch.stack([
        torch.nanquantile(torch.where(group == g, score, float("nan")), level) for g in range(4)
    ])  # fmt: skip
    value, order = scores(logits, uniform[half:])
    inside = value <= thresholds[order % 4]
    inside[:, 0] = True
    member = torch.zeros_like(inside).scatter_(1, order, inside)
    return member, torch.cat([thresholds, inside.sum(1).to(value.dtype).mean()[None]])


def sets(place: Place) -> Made:
    n, kinds = place.size(200, 16_384), place.size(40, 1000)
    logits = place.randn(2, n, kinds) * 6
    chance = -torch.log(-torch.log(place.rand(n, kinds).clamp(1e-6, 1 - 1e-6)))
    return sure_sets, (logits[0], (logits[0] / 2 + chance).argmax(1), logits[1], place.rand(2 * n))


def listed_choices(scores: Tensor, relevance: Tensor, valid: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Plackett and Luce's likelihood of an order, ties broken by chance; the gain of lists drawn, by its gradient."""
    scores = scores.masked_fill(~valid, -1e4)
    order = (relevance + 0.9 * noise[0].sigmoid()).masked_fill(~valid, -1).argsort(1, descending=True)
    ordered, kept = scores.gather(1, order), valid.gather(1, order)
    rest = ordered.flip(1).logcumsumexp(1).flip(1)
    likelihood = -((ordered - rest) * kept).sum(1) / kept.sum(1)
    discount = 1 / torch.log2(torch.arange(2, scores.size(1) + 2, device=scores.device, dtype=scores.dtype))
    gain = (2**relevance - 1) * valid
    drawn = (scores.detach() + noise[1]).argsort(1, descending=True)
    picked = scores.gather(1, drawn)
    logp = ((picked - picked.flip(1).logcumsumexp(1).flip(1)) * valid.gather(1, drawn))[:, :10].sum(1)
    ideal = (gain.sort(1, descending=True).values * discount)[:, :10].sum(1).clamp(min=1e-6)
    ndcg = (gain.gather(1, drawn) * discount)[:, :10].sum(1) / ideal
    return likelihood - 0.1 * (ndcg - ndcg.mean()) * logp, ndcg


def lists(place: Place) -> Made:
    b, n = place.size(64, 4096), place.size(30, 200)
    relevance = place.randint(5, b, n).float()
    noise = -torch.log(-torch.log(place.rand(2, b, n).clamp(1e-6, 1 - 1e-6)))
    valid = torch.arange(n, device=place.device)[None] < (n // 3 + place.randint(n // 2, b))[:, None]
    return listed_choices, (place.randn(b, n).requires_grad_(), relevance, valid, noise)


class LoggedPolicy(nn.Module):
    """Learning from a log of what was shown: clicks by rank's look, clipped weights, a doubly robust value."""

    def __init__(self, width: int, actions: int, ranks: int) -> None:
        super().__init__()
        self.trunk = nn.Linear(width, 128)
        self.policy, self.reward = nn.Linear(128, actions), nn.Linear(128, actions)
        self.looks = nn.Parameter(torch.linspace(2, -2, ranks))

    def forward(
        self, x: Tensor, action: Tensor, propensity: Tensor, rank: Tensor, click: Tensor
    ) -> tuple[Tensor, Tensor]:
        h = F.elu(self.trunk(x))
        logp, guess = self.policy(h).log_softmax(1), torch.sigmoid(self.reward(h))
        look = torch.sigmoid(self.looks)[rank]
        own = guess.gather(1, action[:, None])[:, 0]
        fit = F.binary_cross_entropy((look * own).clamp(1e-6, 1 - 1e-6), click)
        weight = (logp.gather(1, action[:, None])[:, 0].exp() / propensity).clamp(max=10)
        normalised = weight / weight.mean()
        direct = (logp.exp() * guess.detach()).sum(1)
        robust = direct + normalised * (click / look.detach().clamp(min=0.1) - own.detach())
        entropy = -(logp.exp() * logp).sum(1).mean()
        size = weight.sum().square() / weight.square().sum()
        return fit - robust.mean() - 0.01 * entropy, size.detach()


def logged(place: Place) -> Made:
    n, width, actions = place.size(512, 65_536), place.size(16, 96), place.size(20, 500)
    click = (place.rand(n) < 0.2).float()
    model = LoggedPolicy(width, actions, 10).to(place.device)
    inputs = place.randn(n, width), place.randint(actions, n), 0.02 + place.rand(n), place.randint(10, n), click
    return model, inputs


def arena_strengths(first: Tensor, second: Tensor, outcome: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Bradley and Terry for a poll of chat models: counts of wins, minorise and maximise, a bootstrap by weights."""
    models = 64
    cell = first * models + second
    share = torch.where(outcome == 0, 1.0, torch.where(outcome == 1, 0.0, 0.5)).to(weight.dtype)
    wins = torch.zeros(len(weight), models * models, device=weight.device)
    wins.index_add_(1, cell, weight * share)
    reverse = second * models + first
    wins.index_add_(1, reverse, weight * (1 - share))
    wins = wins.view(-1, models, models)
    games = wins + wins.mT
    p = torch.ones(len(weight), models, device=weight.device)
    for _ in range(30):
        total = (games / (p[:, :, None] + p[:, None, :])).sum(2)
        p = (wins.sum(2) + 0.1) / (total + 0.1)
        p = p / p.log().mean(1, keepdim=True).exp()
    rating = 400 * torch.log10(p) + 1000
    low, high = rating.quantile(torch.tensor([0.025, 0.975], device=p.device, dtype=p.dtype), dim=0)
    rank = 1 + (low[None] > high[:, None]).sum(1)
    return torch.stack([rating.median(0).values, low, high]), rank


def arena(place: Place) -> Made:
    n, resamples = place.size(2000, 200_000), place.size(6, 100)
    first = place.randint(64, n)
    second = (first + 1 + place.randint(63, n)) % 64
    weight = -torch.log(place.rand(resamples, n).clamp(min=1e-6))
    return arena_strengths, (first, second, place.randint(3, n), weight)


def determinantal_slates(relevance: Tensor, items: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Chen and others, 2018: slates of good and unlike items, greedily, Cholesky's rows grown one by one."""
    items = F.normalize(items, dim=-1)
    quality = torch.exp(2 * relevance)
    left = quality * quality
    b, n = relevance.shape
    user = torch.arange(b, device=relevance.device)
    rows = torch.zeros(b, size, n, device=relevance.device)
    chosen, gains = [], []
    for k in range(size):
        gain, j = left.max(1)
        chosen.append(j)
        gains.append(gain.clamp(min=1e-10).log())
        likeness = torch.einsum("bnd,bd->bn", items, items[user, j])
        kernel = quality * quality[user, j][:, None] * likeness
        seen = torch.einsum("bkn,bk->bn", rows[:, :k], rows[user, :k, j])
        row = (kernel - seen) / gain.clamp(min=1e-10).sqrt()[:, None]
        rows[:, k] = row
        left = left - row.square()
        left[user, j] = float("-inf")
    return torch.stack(chosen, 1), torch.stack(gains, 1)


def slates(place: Place) -> Made:
    b, n, width = place.size(8, 64), place.size(150, 1000), place.size(16, 64)
    return determinantal_slates, (place.rand(b, n), place.randn(b, n, width), place.size(8, 20))


ROWS: tuple[Row, ...] = (
    Row("program/deep_hedging", hedge, "training"),
    Row("program/conformal_label_sets", sets),
    Row("program/listed_choices", lists, "training"),
    Row("program/logged_bandit_policy", logged, "training"),
    Row("program/arena_strengths", arena),
    Row("program/determinantal_slates", slates),
)
