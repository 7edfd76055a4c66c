"""Prices, filters, likelihoods and samplers, as quantitative analysts and statisticians write them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class Heston(nn.Module):
    """Calls under stochastic volatility by full truncation; the parameters' sensitivities are pathwise."""

    strikes: Tensor

    def __init__(self, maturity: float = 1.0) -> None:
        super().__init__()
        self.maturity = maturity
        self.spot, self.v0 = nn.Parameter(torch.tensor(100.0)), nn.Parameter(torch.tensor(0.04))
        self.kappa, self.theta = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.tensor(0.04))
        self.xi, self.rho = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.tensor(-0.7))
        self.register_buffer("strikes", torch.linspace(80, 120, 9))

    def forward(self, normals: Tensor) -> Tensor:
        steps, _, paths = normals.shape
        dt, r = self.maturity / steps, 0.02
        log_s = torch.log(self.spot).expand(paths)
        v = self.v0.expand(paths)
        for z1, z2 in normals:
            z_v = self.rho * z1 + torch.sqrt(1 - self.rho**2) * z2
            positive = v.clamp(min=1e-8)
            root = torch.sqrt(positive * dt)
            log_s = log_s + (r - 0.5 * positive) * dt + root * z1
            v = v + self.kappa * (self.theta - positive) * dt + self.xi * root * z_v
        payoff = F.relu(log_s.exp().unsqueeze(-1) - self.strikes)
        return math.exp(-r * self.maturity) * payoff.mean(0)


def heston(place: Place) -> Made:
    steps, paths = place.size(16, 12), place.size(8192, 500_000)
    return Heston().to(place.device), (place.randn(steps, 2, paths),)


def longstaff_schwartz(
    normals: Tensor, strike: float = 1.0, r: float = 0.06, vol: float = 0.3
) -> tuple[Tensor, Tensor]:
    """An American put: going back in time, regress what continuing pays and exercise where that is less."""
    steps, _ = normals.shape
    dt = 1.0 / steps
    paths = torch.exp(torch.cumsum((r - 0.5 * vol**2) * dt + vol * math.sqrt(dt) * normals, dim=0))
    discount = math.exp(-r * dt)
    cash = (strike - paths[-1]).clamp(min=0)
    for t in range(steps - 2, -1, -1):
        cash = cash * discount
        s = paths[t]
        exercise = torch.clamp(strike - s, min=0)
        itm = exercise > 0
        x = 4 * (s - 0.9)
        basis = torch.stack([torch.ones_like(x), x, x**2, x**3], dim=1) * itm[:, None]
        gram = basis.T @ basis + 1e-3 * torch.eye(4, dtype=s.dtype, device=s.device)
        coefficients = torch.linalg.solve(gram, basis.T @ cash)
        continuation = basis @ coefficients
        cash = torch.where(itm & (exercise > continuation), exercise, cash)
    cash = cash * discount
    return cash.mean(), cash.std() / math.sqrt(cash.numel())


def american_put(place: Place) -> Made:
    return longstaff_schwartz, (place.randn(12, place.size(16_384, 1_000_000)),)


class KalmanFilter(nn.Module):
    """A constant-velocity tracker, many tracks at once; the likelihood of the measurements, some of them missing."""

    transition: Tensor
    observe: Tensor

    def __init__(self) -> None:
        super().__init__()
        f = torch.eye(4)
        f[0, 2] = f[1, 3] = 1.0
        self.register_buffer("transition", f)
        self.register_buffer("observe", torch.eye(2, 4))
        self.log_q, self.log_r = nn.Parameter(-2 * torch.ones(4)), nn.Parameter(-1 * torch.ones(2))

    def forward(self, measured: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        b, steps, _ = measured.shape
        f, h = self.transition, self.observe
        q, r = torch.diag_embed(self.log_q.exp()), torch.diag_embed(self.log_r.exp())
        eye = torch.eye(4, dtype=measured.dtype, device=measured.device)
        mean, cov = measured.new_zeros(b, 4), 10 * eye.expand(b, 4, 4)
        log_likelihood = measured.new_zeros(b)
        means = []
        for t in range(steps):
            mean, cov = mean @ f.T, f @ cov @ f.T + q
            innovation = measured[:, t] - mean @ h.T
            s = h @ cov @ h.T + r
            chol = torch.linalg.cholesky(s)
            gain = torch.cholesky_solve(h @ cov, chol).transpose(-1, -2)
            white = torch.linalg.solve_triangular(chol, innovation.unsqueeze(-1), upper=False).squeeze(-1)
            log_det = chol.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            log_p = -0.5 * white.pow(2).sum(-1) - log_det - math.log(2 * math.pi)
            seen = present[:, t]
            mean = torch.where(seen[:, None], mean + torch.einsum("bij,bj->bi", gain, innovation), mean)
            cov = torch.where(seen[:, None, None], (eye - gain @ h) @ cov, cov)
            log_likelihood = log_likelihood + torch.where(seen, log_p, torch.zeros_like(log_p))
            means.append(mean)
        return -log_likelihood.mean(), torch.stack(means, dim=1)


def kalman(place: Place) -> Made:
    b, steps = place.size(64, 4096), place.size(10, 4)
    measured = place.randn(b, steps, 2).cumsum(1)
    return KalmanFilter().to(place.device), (measured, place.rand(b, steps) > 0.2)


def particle_filter(returns: Tensor, noise: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Stochastic volatility: log-variances drift, are weighed by the returns and resampled systematically."""
    mu, phi, sigma = -1.0, 0.95, 0.25
    steps, filters, count = noise.shape
    h = mu + sigma / math.sqrt(1 - phi**2) * noise[0]
    evidence = returns.new_zeros(filters)
    estimates, effective = [], []
    comb = torch.arange(count, device=returns.device, dtype=returns.dtype)
    for t in range(1, steps):
        h = mu + phi * (h - mu) + sigma * noise[t]
        log_w = -0.5 * (h + returns[:, t, None] ** 2 * torch.exp(-h) + math.log(2 * math.pi))
        evidence += torch.logsumexp(log_w, dim=1) - math.log(count)
        w = torch.softmax(log_w, dim=1)
        estimates.append((w * h).sum(1).mean())
        effective.append(1 / (w**2).sum(1).mean())
        positions = (comb + uniforms[t, :, None]) / count
        ancestors = torch.searchsorted(w.cumsum(1), positions).clamp_(max=count - 1)
        h = torch.gather(h, 1, ancestors)
    return evidence.mean(), torch.stack(estimates), torch.stack(effective)


def particles(place: Place) -> Made:
    steps, filters, count = place.size(6, 10), place.size(32, 2048), place.size(512, 1024)
    noise = place.randn(steps, filters, count)
    return particle_filter, (0.6 * place.randn(filters, steps), noise, place.rand(steps, filters))


class HiddenMarkov(nn.Module):
    """Gaussian emissions; the forward algorithm in log space over sequences of different lengths."""

    def __init__(self, states: int, d: int) -> None:
        super().__init__()
        self.initial = nn.Parameter(torch.zeros(states))
        self.transition = nn.Parameter(torch.randn(states, states))
        self.means, self.log_std = nn.Parameter(torch.randn(states, d)), nn.Parameter(torch.zeros(states, d))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        z = (x.unsqueeze(2) - self.means) * torch.exp(-self.log_std)
        emission = (-0.5 * z**2 - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
        log_a = F.log_softmax(self.transition, dim=-1)
        alpha = F.log_softmax(self.initial, dim=0) + emission[:, 0]
        history = [alpha]
        for t in range(1, x.size(1)):
            alpha = torch.logsumexp(alpha.unsqueeze(2) + log_a, dim=1) + emission[:, t]
            history.append(alpha)
        alphas = torch.stack(history, dim=1)
        last = alphas[torch.arange(len(x), device=x.device), lengths - 1]
        return -(torch.logsumexp(last, dim=-1) / lengths).mean()


def hidden_markov(place: Place) -> Made:
    b, t, states = place.size(32, 128), place.size(14, 24), place.size(40, 128)
    return HiddenMarkov(states, 4).to(place.device), (place.randn(b, t, 4), place.randint(t, b) + 1)


class GaussianProcess(nn.Module):
    """Regression with a length scale per dimension; the negative log marginal likelihood and a prediction."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(d))
        self.log_variance, self.log_noise = nn.Parameter(torch.tensor(0.0)), nn.Parameter(torch.tensor(-1.0))

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        a, b = a / self.log_scale.exp(), b / self.log_scale.exp()
        squared = (a**2).sum(-1)[:, None] + (b**2).sum(-1)[None, :] - 2 * a @ b.T
        r = torch.sqrt(squared.clamp(min=1e-10)) * math.sqrt(3)
        return self.log_variance.exp() * (1 + r) * torch.exp(-r)

    def forward(self, x: Tensor, y: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        n = x.size(0)
        k = self.kernel(x, x) + (self.log_noise.exp() + 1e-4) * torch.eye(n, dtype=x.dtype, device=x.device)
        chol = torch.linalg.cholesky(k)
        alpha = torch.cholesky_solve(y.unsqueeze(-1), chol).squeeze(-1)
        nll = 0.5 * y @ alpha + torch.log(torch.diagonal(chol)).sum() + 0.5 * n * math.log(2 * math.pi)
        return nll / n, self.kernel(new, x) @ alpha


def gaussian_process(place: Place) -> Made:
    n, d = place.size(256, 2048), 6
    return GaussianProcess(d).to(place.device), (place.randn(n, d), place.randn(n), place.randn(n // 2, d))


def gjr_garch(returns: Tensor, omega: Tensor, alpha: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """The likelihood of a panel of returns: variances answer to shocks, more so to bad news; Student's t errors."""
    omega, alpha, gamma = F.softplus(omega), 0.2 * torch.sigmoid(alpha), 0.2 * torch.sigmoid(gamma)
    beta = (1 - alpha - gamma / 2) * torch.sigmoid(beta)
    variance = returns.var(dim=0)
    variances = []
    for r in returns.unbind(0):
        variances.append(variance)
        shock = r * r
        variance = omega + (alpha + gamma * (r < 0)) * shock + beta * variance
    h = torch.stack(variances)
    nu = 6.0
    constant = math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(math.pi * (nu - 2))
    log_p = constant - 0.5 * torch.log(h) - (nu + 1) / 2 * torch.log1p(returns**2 / (h * (nu - 2)))
    return -log_p.mean(0), torch.sqrt(variance.detach())


def garch(place: Place) -> Made:
    days, assets = place.size(60, 40), place.size(512, 131_072)
    raw = [(0.5 * place.randn(assets) - 1).requires_grad_() for _ in range(4)]
    return gjr_garch, (place.randn(days, assets), *raw)


class DeepSurv(nn.Module):
    """Katzman et al., 2018: a network's log risks, Cox's partial likelihood by Breslow, in strata."""

    def __init__(self, d: int, hidden: int = 32) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, hidden), nn.SELU(), nn.Linear(hidden, hidden), nn.SELU())
        self.risk = nn.Linear(hidden, 1, bias=False)

    def forward(self, x: Tensor, duration: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
        risk = self.risk(self.net(x)).squeeze(-1)
        order = torch.argsort(duration, dim=1, descending=True)
        risk, event = risk.gather(1, order), event.gather(1, order)
        log_set = torch.logcumsumexp(risk, dim=1)
        loss = -((risk - log_set) * event).sum(1) / event.sum(1).clamp(min=1)
        penalty = 1e-3 * sum(p.pow(2).sum() for p in self.parameters())
        return loss.mean() + penalty, risk.detach().std(dim=1)


def cox(place: Place) -> Made:
    strata, n, d = place.size(4, 64), place.size(1024, 8192), 16
    duration = -torch.log(place.rand(strata, n) + 1e-3)
    event = (place.rand(strata, n) < 0.6).to(torch.float32)
    return DeepSurv(d).to(place.device), (place.randn(strata, n, d), duration, event)


def dirichlet_expectation(alpha: Tensor) -> Tensor:
    """Of the logarithm, along the last dimension."""
    return torch.digamma(alpha) - torch.digamma(alpha.sum(-1, keepdim=True))


def lda_step(counts: Tensor, gamma: Tensor, lam: Tensor, rho: float = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    """Hoffman et al., 2010: online variational Bayes for topics; a minibatch's E step, then the M step."""
    documents, topics = counts.size(0), lam.size(0)
    alpha, eta = 1 / topics, 1 / topics
    beta = torch.exp(dirichlet_expectation(lam))
    theta = torch.exp(dirichlet_expectation(gamma))
    norm = theta @ beta + 1e-10
    for _ in range(6):
        gamma = alpha + theta * ((counts / norm) @ beta.T)
        theta = torch.exp(dirichlet_expectation(gamma))
        norm = theta @ beta + 1e-10
    statistics = beta * (theta.T @ (counts / norm))
    lam = (1 - rho) * lam + rho * (eta + 1000 / documents * statistics)
    bound = (counts * torch.log(norm)).sum() / counts.sum()
    return gamma, lam, torch.exp(-bound)


def lda(place: Place) -> Made:
    documents, words, topics = place.size(160, 2048), place.size(1500, 8192), place.size(20, 64)
    counts = (place.rand(documents, words) ** 12 * 6).floor()
    return lda_step, (counts, 1 + place.rand(documents, topics), 0.5 + place.rand(topics, words))


def hmc_step(
    w: Tensor, momentum: Tensor, log_u: Tensor, x: Tensor, y: Tensor, step: float = 0.02, leapfrogs: int = 8
) -> tuple[Tensor, Tensor, Tensor]:
    """Hamiltonian Monte Carlo for logistic regression, chains side by side, the gradient written out."""

    def potential(w: Tensor) -> Tensor:
        logits = w @ x.T
        return -(y * logits - F.softplus(logits)).sum(-1) + 0.5 * w.pow(2).sum(-1)

    def gradient(w: Tensor) -> Tensor:
        return (torch.sigmoid(w @ x.T) - y) @ x + w

    start = potential(w) + 0.5 * (momentum**2).sum(-1)
    position, p = w, momentum - 0.5 * step * gradient(w)
    for i in range(leapfrogs):
        position = position + step * p
        p = p - (step if i < leapfrogs - 1 else 0.5 * step) * gradient(position)
    difference = start - potential(position) - 0.5 * (p**2).sum(-1)
    accept = log_u < difference
    return torch.where(accept[:, None], position, w), accept, difference.clamp(max=0).exp().mean()


def hmc(place: Place) -> Made:
    chains, n, d = place.size(256, 4096), place.size(500, 1000), 24
    x = place.randn(n, d)
    y = (place.rand(n) < torch.sigmoid(x[:, 0])).to(torch.float32)
    return hmc_step, (0.1 * place.randn(chains, d), place.randn(chains, d), torch.log(0.8 * place.rand(chains)), x, y)


def rolling_signals(price: Tensor, window: int = 20) -> dict[str, Tensor]:
    """Of a panel of prices: Bollinger scores, rolling betas, relative strength, drawdowns, and ranks across assets."""
    returns = price.log().diff(dim=1)
    windows = price.unfold(1, window, 1)
    mean, std = windows.mean(-1), windows.std(-1)
    bollinger = (price[:, window - 1 :] - mean) / (2 * std + 1e-8)

    market = returns.mean(0, keepdim=True)
    r, m = returns.unfold(1, window, 1), market.unfold(1, window, 1)
    m = m - m.mean(-1, keepdim=True)
    beta = ((r - r.mean(-1, keepdim=True)) * m).sum(-1) / m.pow(2).sum(-1).clamp(min=1e-8)

    gain = F.avg_pool1d(returns.clamp(min=0).unsqueeze(1), 14, stride=1).squeeze(1)
    loss = F.avg_pool1d((-returns).clamp(min=0).unsqueeze(1), 14, stride=1).squeeze(1)
    rsi = 100 - 100 / (1 + gain / (loss + 1e-8))
    drawdown = price / price.cummax(dim=1).values - 1
    momentum = price[:, -1] / price[:, -window] - 1
    rank = momentum.argsort().argsort().to(price.dtype) / (len(momentum) - 1) - 0.5
    return {
        "bollinger": torch.nan_to_num(bollinger).clamp(-3, 3),
        "beta": beta,
        "rsi": rsi,
        "drawdown": drawdown.amin(1),
        "rank": rank,
    }


def rolling(place: Place) -> Made:
    assets, days = place.size(64, 4096), place.size(400, 1260)
    return rolling_signals, (100 * torch.exp(0.02 * place.randn(assets, days).cumsum(1)),)


ROWS: tuple[Row, ...] = (
    Row("program/heston_monte_carlo", heston, "training"),
    Row("program/longstaff_schwartz", american_put),
    Row("program/kalman_filter", kalman, "training"),
    Row("program/particle_filter", particles),
    Row("program/hmm_forward", hidden_markov, "training"),
    Row("program/gaussian_process", gaussian_process, "training"),
    Row("program/gjr_garch", garch, "training"),
    Row("program/cox_partial_likelihood", cox, "training"),
    Row("program/lda_variational_bayes", lda),
    Row("program/hmc_step", hmc),
    Row("program/rolling_signals", rolling),
)
