"""Bayesian and classical inference: Gibbs, tempering, expectations, bootstraps, kernels, linear models."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def probit_gibbs(x: Tensor, y: Tensor, uniforms: Tensor, normals: Tensor) -> tuple[Tensor, Tensor]:
    """Albert and Chib, 1993: truncated normals by inverse distributions, coefficients from a Cholesky factor."""
    features = x.size(1)
    precision = x.T @ x + torch.eye(features, dtype=x.dtype, device=x.device)
    factor = torch.linalg.cholesky(precision)
    beta = torch.zeros_like(normals[0])
    total = torch.zeros_like(beta)
    for sweep in range(uniforms.size(0)):
        mean = beta @ x.T
        below = 0.5 * torch.erfc(mean / math.sqrt(2))
        u = torch.where(y, below + uniforms[sweep] * (1 - below), uniforms[sweep] * below)
        latent = mean + math.sqrt(2) * torch.erfinv((2 * u - 1).clamp(-0.9999, 0.9999))
        centre = torch.cholesky_solve(x.T @ latent.T, factor)
        spread = torch.linalg.solve_triangular(factor.T, normals[sweep].T, upper=True)
        beta = (centre + spread).T
        total = total + beta
    return total / uniforms.size(0), (mean * torch.where(y, 1.0, -1.0)).mean(1)


def gibbs(place: Place) -> Made:
    chains, rows, features, sweeps = place.size(8, 64), place.size(1500, 16_384), place.size(12, 32), 6
    return probit_gibbs, (
        0.3 * place.randn(rows, features),
        place.rand(rows) < 0.5,
        place.rand(sweeps, chains, rows),
        place.randn(sweeps, chains, features),
    )


def tempered_particles(theta: Tensor, noise: Tensor, uniforms: Tensor, data: Tensor) -> tuple[Tensor, Tensor]:
    """Del Moral et al., 2006: particles from prior to posterior by powers of a likelihood, resampled, moved softly."""

    def log_likelihood(t: Tensor) -> Tensor:
        curve = t[:, :1] * torch.tanh(t[:, 1:2] * data[0]) + t[:, 2:3] * data[0]
        return -2 * (data[1] - curve).square().mean(1)

    evidence = theta.new_zeros(())
    n = theta.size(0)
    powers = torch.linspace(0, 1, noise.size(0) + 1, dtype=theta.dtype, device=theta.device)
    for step in range(noise.size(0)):
        gain = (powers[step + 1] - powers[step]) * log_likelihood(theta)
        evidence = evidence + torch.logsumexp(gain, 0) - math.log(n)
        weight = torch.softmax(gain, 0)
        mean = (weight[:, None] * theta).sum(0)
        covariance = torch.einsum("n,ni,nj->ij", weight, theta - mean, theta - mean)
        factor = torch.linalg.cholesky(
            covariance + 1e-4 * torch.eye(theta.size(1), dtype=theta.dtype, device=theta.device)
        )
        proposal = theta + 0.5 * noise[step] @ factor.T
        change = powers[step + 1] * (log_likelihood(proposal) - log_likelihood(theta))
        change = change - 0.5 * (proposal.square() - theta.square()).sum(1)
        accept = torch.sigmoid(10 * (change - uniforms[step].log()))[:, None]
        theta = theta + accept * (proposal - theta) * (n * weight).clamp(max=1)[:, None]
    return torch.stack([theta.mean(0), theta.std(0)]), evidence


def tempering(place: Place) -> Made:
    n, points, steps = place.size(800, 50_000), place.size(40, 100), 6
    x = 2 * place.randn(points)
    data = torch.stack([x, torch.tanh(x) + 0.1 * place.randn(points)])
    return tempered_particles, (place.randn(n, 3), place.randn(steps, n, 3), 0.02 + 0.97 * place.rand(steps, n), data)


def factor_analysis(x: Tensor, loading: Tensor, rounds: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Rubin and Thayer, 1982: expectations of factors by Woodbury's identity, maximisation in closed form."""
    n, d = x.shape
    k = loading.size(1)
    x = x - x.mean(0)
    second = x.square().mean(0)
    noise = torch.ones_like(second)
    covariance = x.T @ x / n
    eye = torch.eye(k, dtype=x.dtype, device=x.device)
    history = []
    for _ in range(rounds):
        scaled = loading / noise[:, None]
        inner = eye + loading.T @ scaled
        project = torch.linalg.solve(inner, scaled.T)
        moment = project @ covariance
        latent = torch.linalg.inv(inner) + moment @ project.T
        quadratic = (second / noise).sum() - (moment.T * scaled).sum()
        history.append(-0.5 * (noise.log().sum() + torch.logdet(inner) + quadratic + d * math.log(2 * math.pi)))
        loading = torch.linalg.solve(latent, moment).T
        noise = (second - (loading * moment.T).sum(1)).clamp(min=1e-3)
    return loading, noise, torch.stack(history)


def factors(place: Place) -> Made:
    n, d, k = place.size(4000, 60_000), place.size(96, 512), place.size(6, 24)
    x = place.randn(n, k) @ place.randn(k, d) + place.randn(n, d)
    return factor_analysis, (x, place.randn(d, k))


def bootstrap_intervals(x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Efron, 1987: resampled correlations, accelerated and bias-corrected quantiles with jackknifed acceleration."""

    def correlation(a: Tensor, b: Tensor) -> Tensor:
        a, b = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
        return (a * b).sum(-1) / (a.square().sum(-1) * b.square().sum(-1)).sqrt()

    n = x.size(0)
    whole = correlation(x, y)
    draws = correlation(x[index], y[index])
    ordered = draws.sort().values
    below = torch.sigmoid((whole - draws) / 0.02).mean()
    sx, sy, sxx, syy, sxy = (
        x.sum() - x,
        y.sum() - y,
        (x * x).sum() - x * x,
        (y * y).sum() - y * y,
        (x * y).sum() - x * y,
    )
    m = n - 1
    left_out = (sxy - sx * sy / m) / ((sxx - sx**2 / m) * (syy - sy**2 / m)).sqrt()
    spread = left_out.mean() - left_out
    acceleration = (spread**3).sum() / (6 * (spread**2).sum() ** 1.5)
    bias = math.sqrt(2) * torch.erfinv(2 * below - 1)
    z = bias + x.new_tensor([-1.96, 0.0, 1.96])
    level = 0.5 * torch.erfc(-(bias + z / (1 - acceleration * z)) / math.sqrt(2))
    position = level * (len(draws) - 1)
    low = position.floor().long().clamp(0, len(draws) - 2)
    share = position - low
    return (1 - share) * ordered[low] + share * ordered[low + 1], draws.std(), acceleration


def bootstrap(place: Place) -> Made:
    n, draws = place.size(400, 4096), place.size(500, 10_000)
    x = place.randn(n).exp()
    return bootstrap_intervals, (x, 0.6 * x + 0.4 * place.randn(n).exp(), place.randint(n, draws, n))


class TwoSampleWitness(nn.Module):
    """Liu et al., 2020: a deep kernel chosen so that the test of two samples by mean discrepancies has power."""

    def __init__(self, d: int, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d, width), nn.Softplus(), nn.Linear(width, width), nn.Softplus(), nn.Linear(width, 16, bias=False)
        )
        self.log_scales = nn.Parameter(torch.tensor([0.5, 2.0]))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        n = x.size(0)
        both = torch.cat([x, y])
        deep = self.net(both)
        near = self.squares(deep)
        scale = self.log_scales.exp()
        kernel = (0.9 * torch.exp(-near / scale[0]) + 0.1) * torch.exp(-self.squares(both) / (scale[1] * both.size(1)))
        xx, yy, xy = kernel[:n, :n], kernel[n:, n:], kernel[:n, n:]
        h = xx + yy - xy - xy.T
        off = 1 - torch.eye(n, dtype=x.dtype, device=x.device)
        discrepancy = (h * off).sum() / (n * (n - 1))
        variance = 4 * (h.mean(1).square().mean() - h.mean() ** 2) + 1e-3
        return -discrepancy / variance.sqrt(), discrepancy.detach()

    @staticmethod
    def squares(x: Tensor) -> Tensor:
        norm = x.square().sum(1)
        return (norm[:, None] + norm - 2 * x @ x.T).clamp(min=0)


def two_samples(place: Place) -> Made:
    n, d, width = place.size(160, 4096), place.size(10, 32), place.size(32, 256)
    return TwoSampleWitness(d, width).to(place.device), (place.randn(n, d), 1.2 * place.randn(n, d) + 0.1)


def reweighted_glm(x: Tensor, counts: Tensor, exposure: Tensor, rounds: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Poisson regressions of many groups by reweighted least squares: offsets, standard errors, deviance, leverages."""
    beta = torch.zeros_like(x[:, 0])
    eye = 1e-2 * torch.eye(x.size(-1), dtype=x.dtype, device=x.device)
    for _ in range(rounds):
        eta = (torch.einsum("gni,gi->gn", x, beta) + exposure).clamp(-6, 6)
        mu = eta.exp()
        working = eta - exposure + (counts - mu) / mu
        weighted = x * mu[..., None]
        factor = torch.linalg.cholesky(weighted.mT @ x + eye)
        beta = torch.cholesky_solve(torch.einsum("gni,gn->gi", weighted, working)[..., None], factor)[..., 0]
    inverse = torch.cholesky_inverse(factor)
    error = inverse.diagonal(dim1=1, dim2=2).sqrt()
    leverage = (weighted @ inverse * x).sum(-1)
    deviance = 2 * (torch.xlogy(counts, counts / mu) - (counts - mu))
    return beta / error, deviance.sum(1), (leverage * deviance.clamp(min=0).sqrt()).amax(1)


def poisson_regression(place: Place) -> Made:
    groups, n, features = place.size(64, 512), place.size(200, 1024), place.size(6, 12)
    x = 0.4 * place.randn(groups, n, features)
    return reweighted_glm, (x, 1.0 * place.randint(5, groups, n), 0.3 * place.randn(groups, n))


def stick_breaking(x: Tensor, weight: Tensor, centre: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """A truncated Dirichlet process of Student's clusters: sticks by cumulated logarithms, repulsion of the centres."""
    log_left = F.logsigmoid(-weight).cumsum(0)
    log_share = F.logsigmoid(weight) + F.pad(log_left[:-1], (1, 0))
    log_share = torch.cat([log_share[:-1], log_left[-2:-1]])
    d = x.size(1)
    gap = x[:, None] - centre
    root = F.softplus(precision)
    shape = root @ root.mT / d + 0.1 * torch.eye(d, dtype=x.dtype, device=x.device)
    distance = torch.einsum("nkd,kde,nke->nk", gap, shape, gap)
    log_density = -0.5 * (5 + d) * torch.log1p(distance / 5)
    log_density = log_density + 0.5 * torch.logdet(shape)
    joint = log_share + log_density
    evidence = torch.logsumexp(joint, 1)
    away = (centre[:, None] - centre).square().sum(-1) + torch.eye(len(centre), dtype=x.dtype, device=x.device)
    prior = -0.01 * (1 / away).sum() - 0.05 * centre.square().sum()
    return -(evidence.mean() + prior / 100), torch.softmax(joint.detach(), 1).mean(0)


def dirichlet_process(place: Place) -> Made:
    n, clusters, d = place.size(500, 60_000), place.size(16, 32), 8
    return stick_breaking, (
        place.randn(n, d),
        place.randn(clusters).requires_grad_(),
        place.randn(clusters, d).requires_grad_(),
        place.randn(clusters, d, d).requires_grad_(),
    )


ROWS: tuple[Row, ...] = (
    Row("program/probit_gibbs", gibbs),
    Row("program/tempered_particles", tempering),
    Row("program/factor_analysis_em", factors),
    Row("program/accelerated_bootstrap", bootstrap),
    Row("program/deep_kernel_two_samples", two_samples, "training"),
    Row("program/reweighted_poisson_regression", poisson_regression),
    Row("program/dirichlet_process_mixture", dirichlet_process, "training"),
)
