"""Optimisation as such: splitting, transport, interior points, games, evolution, factors, layers that optimise."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def fused_lasso(a: Tensor, b: Tensor, rounds: int = 25, rho: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """ADMM with two penalties, sparse and piecewise constant: one factor for all rounds, residuals of both kinds."""
    n = a.size(-1)
    eye = torch.eye(n, dtype=a.dtype, device=a.device)
    difference = eye[1:] - eye[:-1]
    factor = torch.linalg.cholesky(a.mT @ a + rho * (eye + difference.T @ difference))
    right = torch.einsum("bmn,bm->bn", a, b)
    z, u = torch.zeros_like(right), torch.zeros_like(right)
    w, v = z[:, 1:], u[:, 1:]
    residuals = []
    for _ in range(rounds):
        target = right + rho * (z - u) + rho * (w - v) @ difference
        x = torch.cholesky_solve(target[..., None], factor)[..., 0]
        z = F.softshrink(x + u, 0.1 / rho)
        u = u + x - z
        slope = x[:, 1:] - x[:, :-1]
        w = F.softshrink(slope + v, 0.3 / rho)
        v = v + slope - w
        residuals.append((x - z).square().sum(1) + (slope - w).square().sum(1))
    return z, w, torch.stack(residuals, -1).sqrt()


def splitting(place: Place) -> Made:
    b, m, n = place.size(4, 64), place.size(60, 512), place.size(96, 512)
    return fused_lasso, (place.randn(b, m, n) / m**0.5, place.randn(b, m))


def unbalanced_transport(
    x: Tensor, y: Tensor, mass: Tensor, rounds: int = 15, eps: float = 0.1
) -> tuple[Tensor, Tensor]:
    """Chizat et al., 2018: Sinkhorn's rounds in logarithms with relaxed marginals, less its own biases."""

    def cost(a: Tensor, b: Tensor) -> Tensor:
        return 0.5 * (a[:, :, None] - b[:, None]).square().sum(-1)

    def dual(c: Tensor, log_a: Tensor, log_b: Tensor) -> Tensor:
        f, g = torch.zeros_like(log_a), torch.zeros_like(log_b)
        damp = 1 / (1 + eps / 1.0)
        for _ in range(rounds):
            f = -damp * eps * torch.logsumexp(log_b[:, None] + (g[:, None] - c) / eps, 2)
            g = -damp * eps * torch.logsumexp(log_a[:, :, None] + (f[:, :, None] - c) / eps, 1)
        return ((1 - torch.exp(-f)) * log_a.exp()).sum(1) + ((1 - torch.exp(-g)) * log_b.exp()).sum(1)

    log_a = torch.log_softmax(mass, 1)
    log_b = torch.full_like(y[..., 0], -math.log(y.size(1)))
    between = dual(cost(x, y), log_a, log_b)
    own = dual(cost(x, x), log_a, log_a)
    return between - 0.5 * own, own


def transport(place: Place) -> Made:
    b, n = place.size(2, 16), place.size(80, 512)
    return unbalanced_transport, (
        place.randn(b, n, 2).requires_grad_(),
        0.5 + place.randn(b, n, 2),
        place.randn(b, n).requires_grad_(),
    )


def gromov_wasserstein(
    c1: Tensor, c2: Tensor, outer: int = 4, inner: int = 10, eps: float = 0.05
) -> tuple[Tensor, Tensor]:
    """Peyré et al., 2016: couplings of two metric spaces by linearised costs, with Sinkhorn's scalings between."""
    b, n, m = c1.size(0), c1.size(1), c2.size(1)
    p, q = c1.new_full((b, n), 1 / n), c1.new_full((b, m), 1 / m)
    plan = p[:, :, None] * q[:, None]
    constant = (c1**2).mean(2)[:, :, None] + (c2**2).mean(2)[:, None]
    for _ in range(outer):
        tensor = constant - 2 * c1 @ plan @ c2.mT
        kernel = torch.exp(-(tensor - tensor.amin(dim=(1, 2), keepdim=True)) / eps)
        v = torch.ones_like(q)
        for _ in range(inner):
            u = p / torch.einsum("bnm,bm->bn", kernel, v)
            v = q / torch.einsum("bnm,bn->bm", kernel, u)
        plan = u[:, :, None] * kernel * v[:, None]
    distance = ((constant - 2 * c1 @ plan @ c2.mT) * plan).sum(dim=(1, 2))
    return plan, distance


def metric_spaces(place: Place) -> Made:
    b, n = place.size(2, 16), place.size(96, 768)
    x, y = place.rand(b, n, 3), place.rand(b, n, 2)
    c1, c2 = ((t[:, :, None] - t[:, None]).square().sum(-1) + 1e-6 for t in (x, y))
    return gromov_wasserstein, (c1.sqrt(), c2.sqrt())


def interior_point(a: Tensor, x: Tensor, c: Tensor, rounds: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Mehrotra, 1992: linear programs side by side, normal equations, predictors, correctors, steps to the wall."""
    b = torch.einsum("bmn,bn->bm", a, x)
    y = torch.zeros_like(b)
    s = c.clone()
    n = x.size(1)
    eye = torch.eye(a.size(1), dtype=a.dtype, device=a.device)
    gaps = []
    for _ in range(rounds):
        dual = c - s - torch.einsum("bmn,bm->bn", a, y)
        primal = b - torch.einsum("bmn,bn->bm", a, x)
        normal = (a * (x / s)[:, None]) @ a.mT
        load = 1e-4 * normal.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
        factor = torch.linalg.cholesky(normal + load * eye)

        def direction(target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            right = primal + torch.einsum("bmn,bn->bm", a, (x * dual - target) / s)  # noqa: B023
            dy = torch.cholesky_solve(right[..., None], factor)[..., 0]  # noqa: B023
            ds = dual - torch.einsum("bmn,bm->bn", a, dy)  # noqa: B023
            return (target - x * ds) / s, dy, ds  # noqa: B023

        def step(v: Tensor, dv: Tensor) -> Tensor:
            return torch.where(dv < 0, -v / dv.clamp(max=-1e-9), 1.0).amin(1, keepdim=True).clamp(max=1.0)

        mu = (x * s).mean(1, keepdim=True)
        dx, _, ds = direction(-x * s)
        affine = ((x + step(x, dx) * dx) * (s + step(s, ds) * ds)).mean(1, keepdim=True)
        sigma = ((affine / mu) ** 3).clamp(0.01, 1.0)
        dx, dy, ds = direction(sigma * mu - x * s - dx * ds)
        alpha, beta = 0.9 * step(x, dx), 0.9 * step(s, ds)
        x, y, s = x + alpha * dx, y + beta * dy, s + beta * ds
        gaps.append(mu[:, 0] * n)
    return (c * x).sum(1), torch.stack(gaps, -1), x


def linear_programs(place: Place) -> Made:
    batch, m, n = place.size(8, 256), place.size(16, 64), place.size(40, 192)
    return interior_point, (place.randn(batch, m, n), 0.5 + place.rand(batch, n), 0.5 + place.rand(batch, n))


def regret_matching(payoff: Tensor, rounds: int = 30) -> tuple[Tensor, Tensor, Tensor]:
    """Tammelin's regrets above zero on zero-sum games, averages weighted by time, and how exploitable they are."""
    b, n, m = payoff.shape
    regret_row, regret_column = payoff.new_zeros(b, n), payoff.new_zeros(b, m)
    sum_row, sum_column = torch.zeros_like(regret_row), torch.zeros_like(regret_column)

    def strategy(regret: Tensor) -> Tensor:
        return (regret + 1e-3) / (regret + 1e-3).sum(1, keepdim=True)

    for t in range(rounds):
        row, column = strategy(regret_row), strategy(regret_column)
        value_row = torch.einsum("bnm,bm->bn", payoff, column)
        value_column = -torch.einsum("bnm,bn->bm", payoff, row)
        regret_row = (regret_row + value_row - (row * value_row).sum(1, keepdim=True)).clamp(min=0)
        regret_column = (regret_column + value_column - (column * value_column).sum(1, keepdim=True)).clamp(min=0)
        sum_row += (t + 1) * row
        sum_column += (t + 1) * column
    row, column = sum_row / sum_row.sum(1, keepdim=True), sum_column / sum_column.sum(1, keepdim=True)
    best = torch.einsum("bnm,bm->bn", payoff, column).amax(1) - torch.einsum("bnm,bn->bm", payoff, row).amin(1)
    return row, column, best


def games(place: Place) -> Made:
    b, n = place.size(16, 256), place.size(64, 256)
    return regret_matching, (place.randn(b, n, n),)


def differential_evolution(
    population: Tensor, index: Tensor, uniforms: Tensor, generations: int = 12
) -> tuple[Tensor, Tensor]:
    """Storn and Price, 1997: differences of others added to each, crossed over, kept if better; Griewank's function."""

    def cost(x: Tensor) -> Tensor:
        scale = torch.arange(1, x.size(-1) + 1, device=x.device, dtype=x.dtype).sqrt()
        return 1 + x.square().sum(-1) / 4000 - torch.cos(x / scale).prod(-1) + 0.1 * (x.abs().sum(-1) + 1e-3).sqrt()

    value = cost(population)
    best = []
    for g in range(generations):
        a, b, c = (population.gather(1, index[g, k][..., None].expand_as(population)) for k in range(3))
        mutant = (a + 0.6 * (b - c)).clamp(-10, 10)
        trial = torch.where(uniforms[g] < 0.8, mutant, population)
        found = cost(trial)
        better = found < value
        population = torch.where(better[..., None], trial, population)
        value = torch.where(better, found, value)
        best.append(value.amin(1))
    return value.sort(dim=1).values, torch.stack(best)


def evolution(place: Place) -> Made:
    islands, members, d, generations = place.size(4, 128), place.size(64, 512), place.size(16, 32), 12
    index = place.randint(members, generations, 3, islands, members)
    return differential_evolution, (5 * place.randn(islands, members, d), index, place.rand(generations, 1, members, d))


def nonnegative_factors(v: Tensor, w: Tensor, h: Tensor, rounds: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """Févotte and Idier, 2011: Kullback and Leibler's multiplicative updates with sparse activations; in place."""
    fits = []
    for _ in range(rounds):
        ratio = v / (w @ h + 1e-4)
        h.mul_((w.mT @ ratio) / (w.sum(1)[..., None] + 0.1))
        ratio = v / (w @ h + 1e-4)
        w.mul_((ratio @ h.mT) / (h.sum(2)[:, None] + 1e-4))
        size = w.sum(1, keepdim=True)
        w.div_(size)
        h.mul_(size.mT)
        model = w @ h + 1e-4
        fits.append((v * (v + 1e-4).log() - v * model.log() - v + model).mean(dim=(1, 2)))
    mask = (w[..., :2] @ h[:, :2]) / model
    return mask * v, torch.stack(fits, -1), h.sum(2)


def factorisation(place: Place) -> Made:
    b, rows, columns, rank = place.size(1, 8), place.size(160, 1025), place.size(200, 2048), 16
    return nonnegative_factors, (
        place.rand(b, rows, columns),
        0.1 + place.rand(b, rows, rank),
        0.1 + place.rand(b, rank, columns),
    )


class ProjectionLayer(nn.Module):
    """OptNet's idea: a layer projects on constraints by unrolled Dykstra's rounds, inside a network that allocates."""

    def __init__(self, inputs: int, assets: int, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.LayerNorm(width), nn.Linear(width, assets))
        self.cap = nn.Parameter(torch.tensor(-2.0))
        self.register_buffer("sector", F.one_hot(torch.arange(assets) % 4, 4).to(torch.get_default_dtype()))

    def forward(self, x: Tensor, returns: Tensor) -> tuple[Tensor, Tensor]:
        sector = self.get_buffer("sector")
        w = self.net(x)
        cap = torch.sigmoid(self.cap)
        p, q, r = torch.zeros_like(w), torch.zeros_like(w), torch.zeros_like(w)
        for _ in range(8):
            y = torch.minimum((w + p).clamp(min=0), cap)
            p = w + p - y
            z = y + q
            z = z - (z.sum(1, keepdim=True) - 1) / z.size(1)
            q = y + q - z
            load = (z + r) @ sector
            w = z + r - ((load - 0.4).clamp(min=0) / sector.sum(0)) @ sector.T
            r = z + r - w
        gain = (w * returns).sum(1)
        loss = -(gain.mean() - 2 * gain.var()) + 0.01 * w.diff(dim=0).abs().mean()
        return loss, w.detach().amax(1)


def allocation(place: Place) -> Made:
    b, inputs, assets, width = place.size(256, 16_384), place.size(32, 128), place.size(40, 128), place.size(64, 256)
    return ProjectionLayer(inputs, assets, width).to(place.device), (
        place.randn(b, inputs),
        0.1 * place.randn(b, assets),
    )


ROWS: tuple[Row, ...] = (
    Row("program/fused_lasso_admm", splitting),
    Row("program/unbalanced_transport", transport, "training"),
    Row("program/gromov_wasserstein", metric_spaces),
    Row("program/mehrotra_interior_point", linear_programs),
    Row("program/regret_matching_games", games),
    Row("program/differential_evolution", evolution),
    Row("program/nonnegative_factorisation", factorisation, writes=True),
    Row("program/dykstra_allocation_layer", allocation, "training"),
)
