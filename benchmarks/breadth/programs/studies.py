"""Statistics of studies and series: survival, monotone fits, permutations, motifs, random kernels, events, breaks."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..row import Made, Place, Row


def product_limit(time: Tensor, event: Tensor, group: Tensor) -> tuple[Tensor, ...]:
    """Kaplan and Meier, 1958, with Greenwood's errors; Mantel's log-rank test of two groups, for many studies."""
    time, order = time.sort(dim=1, stable=True)
    event, group = event.gather(1, order), group.gather(1, order)
    n = time.size(1)
    first = torch.searchsorted(time, time)
    at_risk = n - first
    risk_one = group.flip(1).cumsum(1).flip(1).gather(1, first)
    d = event.to(torch.get_default_dtype())
    hazard = d / at_risk
    survival = torch.exp(torch.log1p(-hazard.clamp(max=0.999)).cumsum(1))
    greenwood = survival * (d / (at_risk * (at_risk - d).clamp(min=1))).cumsum(1).sqrt()
    share = risk_one / at_risk
    observed, expected = (d * group).sum(1), (d * share).sum(1)
    z = (observed - expected) / ((d * share * (1 - share)).sum(1) + 1e-3).sqrt()
    median = (survival > 0.5).sum(1, keepdim=True).clamp(max=n - 1)
    return survival, greenwood, torch.erfc(z.abs() / math.sqrt(2)), time.gather(1, median)


def survival(place: Place) -> Made:
    b, n = place.size(64, 2048), place.size(200, 2000)
    return product_limit, (place.randint(1000, b, n), place.rand(b, n) < 0.7, place.randint(2, b, n))


def isotonic(y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Monotone fits by the least of the largest means: all intervals' means from sums, scanned both ways."""
    sums = F.pad((y * w).cumsum(1), (1, 0))
    mass = F.pad(w.cumsum(1), (1, 0))
    n = y.size(1)
    upper = torch.ones(n, n, dtype=torch.bool, device=y.device).triu()
    means = (sums[:, None, 1:] - sums[:, :-1, None]) / torch.where(upper, mass[:, None, 1:] - mass[:, :-1, None], 1.0)
    lowest = means.masked_fill(~upper, math.inf).flip(2).cummin(2).values.flip(2)
    fit = lowest.masked_fill(~upper, -math.inf).amax(1)
    return fit, (w * (y - fit) ** 2).sum(1)


def monotone(place: Place) -> Made:
    b, n = place.size(16, 512), place.size(100, 400)
    return isotonic, (place.randn(b, n) + torch.linspace(0, 4, n).to(place.device), 0.5 + place.rand(b, n))


def permutation_test(x: Tensor, label: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Studentised differences of every feature under shuffled labels; Westfall and Young's p-values, stepped down."""
    order = keys.argsort(dim=1, stable=True)
    labels = torch.cat([label[None], label[order]]).to(x.dtype)
    n1 = labels.sum(1, keepdim=True)
    n0 = labels.size(1) - n1
    total, squares = x.sum(0), x.square().sum(0)
    s1, q1 = labels @ x, labels @ x.square()
    m1, m0 = s1 / n1, (total - s1) / n0
    v1, v0 = q1 / n1 - m1**2, (squares - q1) / n0 - m0**2
    t = ((m1 - m0) / (v1 / n1 + v0 / n0).sqrt()).abs()
    rank = t[0].argsort(descending=True)
    largest = t[1:, rank].flip(1).cummax(1).values.flip(1)
    exceed = torch.sigmoid(50 * (largest - t[0, rank])).mean(0)
    return t[0], exceed.cummax(0).values


def shuffles(place: Place) -> Made:
    n, features, rounds = place.size(60, 200), place.size(200, 4000), place.size(200, 8000)
    label = torch.arange(n).to(place.device) % 2
    return permutation_test, (place.randn(n, features), label, place.rand(rounds, n))


def matrix_profile(series: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Zhu et al., 2016 (STOMP): normalised distances of all windows to each other, neighbours left out; motifs."""
    windows = series.unfold(1, width, 1)
    mean, deviation = windows.mean(-1), windows.std(-1, unbiased=False)
    n = windows.size(1)
    product = windows @ windows.mT
    correlation = (product - width * mean[:, :, None] * mean[:, None]) / (
        width * deviation[:, :, None] * deviation[:, None]
    )
    i = torch.arange(n, device=series.device)
    near = (i[:, None] - i).abs() < width // 2
    correlation = correlation.masked_fill(near, -1.0)
    profile = (2 * width * (1 - correlation.amax(-1))).clamp(min=0.01).sqrt()
    return profile, correlation.tril().amax(-1), torch.stack([profile.amin(1), profile.amax(1)], 1)


def motifs(place: Place) -> Made:
    b, n = place.size(2, 32), place.size(256, 2048)
    return matrix_profile, (place.randn(b, n) + torch.sin(torch.arange(n) / 5).to(place.device), 32)


def random_kernels(series: Tensor, weights: list[Tensor], bias: list[Tensor]) -> Tensor:
    """Dempster et al., 2020 (ROCKET): dilated random kernels; shares of positive outputs and maxima as features."""
    features = []
    for scale, (weight, shift) in enumerate(zip(weights, bias, strict=True)):
        dilation = 2**scale
        y = F.conv1d(series[:, None], weight, shift, dilation=dilation, padding=4 * dilation)
        positive = torch.sigmoid(40 * y).mean(-1)
        run = F.avg_pool1d(F.relu(y), 5, 1, 2).amax(-1)
        features += [positive, y.amax(-1), run, (F.relu(y)).sum(-1) / (0.1 + torch.sigmoid(40 * y).sum(-1))]
    x = torch.cat(features, 1)
    return (x - x.mean(0)) / (x.std(0) + 0.1)


def rocket(place: Place) -> Made:
    b, n, kernels = place.size(32, 256), place.size(128, 1024), place.size(32, 100)
    weights = [place.randn(kernels, 1, 9) for _ in range(5)]
    weights = [w - w.mean(-1, keepdim=True) for w in weights]
    return random_kernels, (place.randn(b, n), weights, [2 * place.rand(kernels) - 1 for _ in range(5)])


def self_exciting(gap: Tensor, kind: Tensor, base: Tensor, excite: Tensor, decay: Tensor) -> Tensor:
    """Hawkes, 1971, of several kinds with exponential kernels: Ozaki's recursion for the likelihood of sequences."""
    b, n = gap.shape
    kinds = base.size(0)
    mu, alpha, beta = F.softplus(base), F.softplus(excite), F.softplus(decay)
    marks = F.one_hot(kind, kinds).to(gap.dtype)
    state = torch.zeros(b, kinds, dtype=gap.dtype, device=gap.device)
    logs, integral = [], torch.zeros(b, dtype=gap.dtype, device=gap.device)
    for i in range(n):
        fade = torch.exp(-beta * gap[:, i, None])
        integral = integral + mu.sum() * gap[:, i] + ((1 - fade) / beta * (state @ alpha)).sum(-1)
        state = state * torch.exp(-beta.mean() * gap[:, i, None])
        intensity = mu + state @ alpha
        logs.append((intensity * marks[:, i]).sum(-1).log())
        state = state + marks[:, i]
    return (integral - torch.stack(logs).sum(0)) / n


def excitement(place: Place) -> Made:
    b, n, kinds = place.size(64, 16_384), 24, 5
    return self_exciting, (
        -torch.log(place.rand(b, n).clamp(min=1e-3)),
        place.randint(kinds, b, n),
        place.randn(kinds).requires_grad_(),
        (place.randn(kinds, kinds) - 2).requires_grad_(),
        place.randn(kinds).requires_grad_(),
    )


def change_points(series: Tensor, breaks: int, shortest: int = 4) -> tuple[Tensor, Tensor]:
    """Jackson et al., 2005: best segmentations for every number of breaks, by sums of squares and a table of minima."""
    n = series.size(1)
    s, q = F.pad(series.cumsum(1), (1, 0)), F.pad(series.square().cumsum(1), (1, 0))
    i = torch.arange(n + 1, device=series.device)
    length = i - i[:, None]
    total, squares = s[:, None] - s[:, :, None], q[:, None] - q[:, :, None]
    cost = (squares - total**2 / length.clamp(min=1)).masked_fill(length < shortest, 1e9)
    best = cost[:, 0]
    table, choices = [best[:, -1]], []
    for _ in range(breaks):
        best, choice = (best[:, :, None] + cost).min(1)
        table.append(best[:, -1])
        choices.append(choice)
    at = torch.full_like(choices[0][:, :1], n)
    path = []
    for choice in reversed(choices):
        at = choice.gather(1, at)
        path.append(at)
    ends = torch.cat([torch.zeros_like(at), *path[::-1], torch.full_like(at, n)], 1)
    batch = torch.arange(len(series), device=series.device)[:, None]
    return torch.stack(table, 1), cost[batch, ends[:, :-1], ends[:, 1:]].sum(1)


def segments(place: Place) -> Made:
    b, n = place.size(8, 128), place.size(80, 320)
    level = place.randint(4, b, n // 20).repeat_interleave(20, 1)
    return change_points, ((level + place.randint(4, b, n)).float(), 5)


def symbolic_words(series: Tensor, word: int, letters: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Lin et al., 2007 (SAX): windows normalised, averaged in pieces, cut into letters; words, distances."""
    windows = series.unfold(1, 32, 4)
    pieces = windows.unflatten(-1, (word, -1)).mean(-1)
    pieces = (pieces - windows.mean(-1, keepdim=True)) / windows.std(-1, keepdim=True)
    share = torch.arange(1, letters, device=series.device).to(series.dtype) / letters
    cuts = math.sqrt(2) * torch.erfinv(2 * share - 1)
    letter = torch.bucketize(pieces, cuts)
    code = (letter * letters ** torch.arange(word, device=series.device)).sum(-1)
    fresh = F.pad(code[:, 1:] != code[:, :-1], (1, 0), value=True)
    counts = torch.zeros(len(series), letters**word, dtype=torch.int64, device=series.device)
    counts.scatter_add_(1, code, fresh.long())
    gap = (cuts[:, None] - cuts).abs()
    table = F.pad(gap, (1, 0, 0, 1)).triu(2)
    table = table + table.mT
    lower = table[letter[:, :-8], letter[:, 8:]].square().sum(-1).sqrt()
    return code, counts, lower


def words(place: Place) -> Made:
    b, n = place.size(16, 2048), place.size(512, 4096)
    return symbolic_words, ((place.randint(5, b, n) - 2).cumsum(1).float(), 4)


def lomb_scargle(time: Tensor, value: Tensor, error: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Zechmeister and Kuerster, 2009: periodograms of uneven samples, weighted, with a floating mean; false alarms."""
    w = error**-2 / (error**-2).sum(1, keepdim=True)
    y = value - (w * value).sum(1, keepdim=True)
    angle = 2 * math.pi * time[:, None] * frequencies[:, None]
    cos, sin = angle.cos(), angle.sin()
    c, s = (cos * w[:, None]).sum(-1), (sin * w[:, None]).sum(-1)
    yc, ys = (cos * (w * y)[:, None]).sum(-1), (sin * (w * y)[:, None]).sum(-1)
    cc = (cos**2 * w[:, None]).sum(-1) - c**2
    ss = 1 - (cos**2 * w[:, None]).sum(-1) - s**2
    cs = (cos * sin * w[:, None]).sum(-1) - c * s
    power = (ss * yc**2 + cc * ys**2 - 2 * cs * yc * ys) / ((cc * ss - cs**2) * (w * y**2).sum(1, keepdim=True))
    single = (1 - power.amax(1)) ** ((time.size(1) - 3) / 2)
    return power, -torch.expm1(frequencies.numel() * torch.log1p(-single))


def periodogram(place: Place) -> Made:
    b, n, m = place.size(4, 64), place.size(100, 500), place.size(300, 3000)
    time = 5 * place.rand(b, n)
    value = torch.sin(7 * time) + place.randn(b, n)
    return lomb_scargle, (time, value, 0.5 + place.rand(b, n), torch.linspace(0.2, 3, m).to(place.device))


ROWS: tuple[Row, ...] = (
    Row("program/product_limit_log_rank", survival),
    Row("program/isotonic_min_max", monotone),
    Row("program/permutation_step_down", shuffles),
    Row("program/matrix_profile", motifs),
    Row("program/random_convolution_kernels", rocket),
    Row("program/hawkes_likelihood", excitement, "training"),
    Row("program/change_point_table", segments),
    Row("program/symbolic_aggregate_words", words),
    Row("program/lomb_scargle_periodogram", periodogram),
)
