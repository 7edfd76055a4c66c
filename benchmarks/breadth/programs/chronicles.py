"""What unfolds in time or in letters: neurons, genes, seasons, residuals, n-grams, codes, packed weights."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def hodgkin_huxley(
    v: Tensor, gates: Tensor, current: Tensor, steps: int = 25, dt: float = 0.02
) -> tuple[Tensor, Tensor]:
    """Hodgkin and Huxley, 1952: three gates by exponential Euler steps, a cable's diffusion between compartments."""
    m, h, n = gates.unbind(0)

    def opening(z: Tensor) -> Tensor:
        small = z.abs() < 1e-2
        return torch.where(small, 1 + z / 2, z / (1 - torch.exp(-torch.where(small, 1.0, z))))

    for _ in range(steps):
        am = opening((v + 40) / 10)
        bm, ah, bh = 4 * torch.exp(-(v + 65) / 18), 0.07 * torch.exp(-(v + 65) / 20), torch.sigmoid((v + 35) / 10)
        an = 0.1 * opening((v + 55) / 10)
        bn = 0.125 * torch.exp(-(v + 65) / 80)
        m = am / (am + bm) + (m - am / (am + bm)) * torch.exp(-dt * (am + bm))
        h = ah / (ah + bh) + (h - ah / (ah + bh)) * torch.exp(-dt * (ah + bh))
        n = an / (an + bn) + (n - an / (an + bn)) * torch.exp(-dt * (an + bn))
        p = F.pad(v[:, None], (1, 1), mode="replicate")[:, 0]
        ions = 120 * m**3 * h * (v - 50) + 36 * n**4 * (v + 77) + 0.3 * (v + 54.4)
        v = v + dt * (current - ions + 2 * (p[:, 2:] - 2 * v + p[:, :-2]))
    return v, torch.stack([m, h, n])


def neurons(place: Place) -> Made:
    b, n = place.size(64, 8192), place.size(100, 256)
    return hodgkin_huxley, (-65 + place.randn(b, n), 0.3 + 0.2 * place.rand(3, b, n), 10 * place.rand(b, n))


def tau_leaping(counts: Tensor, noise: Tensor, rates: Tensor, dt: float = 0.05) -> tuple[Tensor, Tensor]:
    """Gillespie, 2000: gene expression with feedback by Langevin leaps of many cells, a histogram's moments in time."""
    change = counts.new_tensor([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, -2, 1], [0, 2, -1]])
    moments = []
    for t in range(noise.size(0)):
        m, p, d = counts.unbind(1)
        speed = torch.stack([60 / (1 + (d / 40) ** 2), 2 * m, 5 * m, p, 0.01 * p * (p - 1).clamp(min=0), d], 1) * rates
        leaps = (speed * dt + (speed * dt + 1e-3).sqrt() * noise[t]).clamp(min=0)
        counts = (counts + leaps @ change).clamp(min=0)
        centred = counts - counts.mean(0)
        moments.append(torch.stack([counts.mean(0), centred.square().mean(0) / (counts.mean(0) + 1)]))
    return counts, torch.stack(moments)


def cells(place: Place) -> Made:
    n, steps = place.size(3000, 400_000), 16
    return tau_leaping, (20 + 20 * place.rand(n, 3), place.randn(steps, n, 6), 0.8 + 0.4 * place.rand(n, 6))


def seasonal_trend(series: Tensor, period: int = 24, rounds: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Cleveland et al., 1990, in moving averages: detrended cycles smoothed, weights against outliers by bisquares."""
    b, n = series.shape
    trend, weight = torch.zeros_like(series), torch.ones_like(series)

    def smooth(x: Tensor, w: Tensor, span: int) -> Tensor:
        both = F.pad(torch.stack([x * w, w], 1), (span // 2, span // 2), mode="replicate")
        top, bottom = F.avg_pool1d(both, span, 1).unbind(1)
        return top / (bottom + 1e-4)

    for _ in range(rounds):
        cycles = (series - trend).view(b, -1, period).mT.reshape(b * period, -1)
        mass = weight.view(b, -1, period).mT.reshape(b * period, -1)
        season = smooth(cycles, mass, 7).view(b, period, -1).mT.reshape(b, n)
        season = season - smooth(season, torch.ones_like(season), period + 1)
        trend = smooth(series - season, weight, 2 * period + 1)
        rest = (series - trend - season).abs()
        scale = 6 * rest.median(1, keepdim=True).values
        weight = (1 - (rest / scale).clamp(max=1) ** 2) ** 2
    return trend, season, weight


def seasons(place: Place) -> Made:
    b, n = place.size(32, 4096), 24 * place.size(40, 64)
    t = torch.arange(n, device=place.device)
    wave = torch.sin(2 * math.pi * t / 24) + 0.01 * t
    return seasonal_trend, (wave + 0.5 * place.randn(b, n),)


class ConditionalArma(nn.Module):
    """Box and Jenkins: residuals of an ARMA model with a seasonal lag, recursively, and a conditional likelihood."""

    def __init__(self, p: int = 3, q: int = 2) -> None:
        super().__init__()
        self.ar, self.ma = nn.Parameter(0.2 * torch.rand(p)), nn.Parameter(0.2 * torch.rand(q))
        self.seasonal, self.level = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.tensor(0.1))

    def forward(self, y: Tensor) -> tuple[Tensor, Tensor]:
        change = y.diff(dim=1)
        lagged = change[:, 12:] - self.seasonal * change[:, :-12] - self.level
        p, q = self.ar.numel(), self.ma.numel()
        residuals = [torch.zeros_like(lagged[:, 0])] * q
        ahead = lagged[:, p:] - lagged.unfold(1, p, 1)[:, :-1] @ self.ar.flip(0)
        for t in range(ahead.size(1)):
            residuals.append(ahead[:, t] - sum(self.ma[k] * residuals[-1 - k] for k in range(q)))
        e = torch.stack(residuals[q:], 1)
        variance = e.square().mean(1)
        return 0.5 * variance.log() + 0.5, (e[:, 1:] * e[:, :-1]).mean(1) / variance


def residuals(place: Place) -> Made:
    b, n = place.size(256, 65_536), 64
    return ConditionalArma().to(place.device), (place.randn(b, n).cumsum(1),)


def kneser_ney(tokens: Tensor, vocabulary: int, discount: float = 0.75) -> tuple[Tensor, Tensor]:
    """Kneser and Ney, 1995: trigrams counted as sorted keys, continuations as distinct pairs, a text's perplexity."""
    a, b, c = tokens[:, :-2].flatten(), tokens[:, 1:-1].flatten(), tokens[:, 2:].flatten()
    pairs = torch.bincount(b * vocabulary + c, minlength=vocabulary**2).view(vocabulary, vocabulary)
    into = (pairs > 0).sum(0)
    follow = (pairs > 0).sum(1)
    total = pairs.sum(1)
    unigram = (into + 0.5) / (into.sum() + 0.5 * vocabulary)
    backed = (pairs - discount).clamp(min=0) / total.clamp(min=1)[:, None]
    backed = backed + (discount * follow / total.clamp(min=1))[:, None] * unigram
    key = (a * vocabulary + b) * vocabulary + c
    ordered = key.sort().values
    count = torch.searchsorted(ordered, key, right=True) - torch.searchsorted(ordered, key)
    context = (a * vocabulary + b).sort().values
    mass = torch.searchsorted(context, key // vocabulary, right=True) - torch.searchsorted(context, key // vocabulary)
    probability = (count - discount) / mass + discount * (1 - count / mass + 1 / mass) * backed[b, c]
    return probability.clamp(1e-6, 1).log().view(tokens.size(0), -1).mean(1).neg().exp(), unigram


def trigrams(place: Place) -> Made:
    b, n, vocabulary = place.size(16, 1024), place.size(300, 1024), place.size(96, 1024)
    return kneser_ney, ((place.rand(b, n) ** 2 * vocabulary * 0.999).long(), vocabulary)


def adaptive_model(symbols: Tensor, classes: int, block: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    """An adaptive arithmetic coder's model: counts before each symbol by sums, intervals, bits in blocks."""
    one_hot = F.one_hot(symbols, classes)
    seen = one_hot.cumsum(1) - one_hot + 1
    start = seen.cumsum(2) - seen
    total = seen.sum(2)
    frequency = seen.gather(2, symbols[..., None])[..., 0]
    low = start.gather(2, symbols[..., None])[..., 0]
    quantised_low = low * 65_536 // total
    quantised_high = (low + frequency) * 65_536 // total
    bits = 16 - torch.log2((quantised_high - quantised_low).clamp(min=1).to(torch.get_default_dtype()))
    return bits.unflatten(1, (-1, block)).sum(2), quantised_low, quantised_high


def coder(place: Place) -> Made:
    b, n, classes = place.size(8, 512), place.size(512, 2048), 32
    return adaptive_model, ((place.rand(b, n) ** 2 * classes * 0.999).long(), classes)


def hadamard_quantised(x: Tensor, weight: Tensor, signs: Tensor, group: int = 32) -> tuple[Tensor, Tensor]:
    """QuaRot's idea: fast Walsh and Hadamard rotations flatten outliers, groups of four bits in bytes."""

    def rotate(t: Tensor) -> Tensor:
        d = t.size(-1)
        t = t * signs
        step = 1
        while step < d:
            t = t.unflatten(-1, (-1, 2, step))
            t = torch.stack([t[..., 0, :] + t[..., 1, :], t[..., 0, :] - t[..., 1, :]], -2).flatten(-3)
            step *= 2
        return t / d**0.5

    w = rotate(weight).unflatten(1, (-1, group))
    scale = w.abs().amax(-1, keepdim=True) / 7
    codes = (torch.round(w / scale).clamp(-8, 7) + 8).to(torch.uint8).flatten(1)
    packed = codes[:, ::2] | (codes[:, 1::2] << 4)
    unpacked = torch.stack([packed & 15, packed >> 4], -1).flatten(1).to(x.dtype) - 8
    restored = (unpacked.unflatten(1, (-1, group)) * scale).flatten(1)
    y = rotate(x) @ restored.T
    return y, (y - x @ weight.T).square().mean(1)


def rotated_weights(place: Place) -> Made:
    b, d, out = place.size(64, 2048), place.size(512, 4096), place.size(256, 4096)
    x = place.randn(b, d)
    x[:, :4] *= 20
    signs = 2.0 * place.randint(2, d) - 1
    return hadamard_quantised, (x, place.randn(out, d) / d**0.5, signs)


ROWS: tuple[Row, ...] = (
    Row("program/hodgkin_huxley_cables", neurons),
    Row("program/tau_leaping_genes", cells),
    Row("program/seasonal_trend_bisquare", seasons),
    Row("program/conditional_arma", residuals, "training"),
    Row("program/kneser_ney_trigrams", trigrams),
    Row("program/adaptive_coder_model", coder),
    Row("program/hadamard_four_bits", rotated_weights),
)
