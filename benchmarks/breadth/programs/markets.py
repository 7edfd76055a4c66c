"""Markets: trees, copulas, curves, rates, volatility surfaces, local volatility, portfolios, order books, backtests."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def american_tree(spot: Tensor, strike: Tensor, sigma: Tensor, steps: int = 56) -> tuple[Tensor, Tensor]:
    """Cox, Ross and Rubinstein, 1979: American puts by a binomial tree, levels as one shrinking row; deltas."""
    rate, dt = 0.03, 1.0 / steps
    up = torch.exp(sigma * dt**0.5)[:, None]
    p = (math.exp(rate * dt) - 1 / up) / (up - 1 / up)
    discount = math.exp(-rate * dt)
    j = torch.arange(steps + 1, device=spot.device, dtype=spot.dtype)
    value = (strike[:, None] - spot[:, None] * up ** (2 * j - steps)).clamp(min=0)
    first = value
    for level in range(steps - 1, -1, -1):
        held = discount * (p * value[:, 1:] + (1 - p) * value[:, :-1])
        exercise = strike[:, None] - spot[:, None] * up ** (2 * j[: level + 1] - level)
        value = torch.maximum(held, exercise)
        if level == 1:
            first = value
    delta = (first[:, 1] - first[:, 0]) / (spot * (up - 1 / up)[:, 0])
    return value[:, 0], delta


def binomial(place: Place) -> Made:
    n = place.size(256, 65_536)
    return american_tree, (80 + 40 * place.rand(n), 100 + 5 * place.rand(n), 0.15 + 0.3 * place.rand(n))


def copula_tranches(common: Tensor, own: Tensor, spread: Tensor, loading: Tensor) -> tuple[Tensor, Tensor]:
    """Li, 2000: default times under a one-factor Gaussian copula, smoothed; expected losses of a pool's tranches."""
    latent = loading * common[:, None] + (1 - loading**2).sqrt() * own
    uniform = 0.5 * torch.erfc(-latent / math.sqrt(2))
    time = -torch.log(uniform.clamp(1e-6, 1 - 1e-6)) / spread
    years = torch.arange(1, 6, device=common.device, dtype=common.dtype)
    lost = torch.stack([torch.sigmoid((t - time) / 0.1).mean(1) * 0.6 for t in years], 1)
    edges = [0.0, 0.03, 0.06, 0.09, 0.12, 0.22]
    tranche = torch.stack(
        [(lost.clamp(max=high) - low).clamp(min=0) / (high - low) for low, high in itertools.pairwise(edges)],
        -1,
    )
    expected = tranche.mean(0)
    discount = torch.exp(-0.02 * years)[:, None]
    protection = (discount * expected.diff(dim=0, prepend=torch.zeros_like(expected[:1]))).sum(0)
    annuity = (discount * (1 - expected)).sum(0)
    return protection / annuity, expected


def tranches(place: Place) -> Made:
    paths, names = place.size(1500, 100_000), place.size(50, 125)
    spread = (0.005 + 0.03 * place.rand(names)).requires_grad_()
    loading = (0.3 + 0.4 * place.rand(names)).requires_grad_()
    return copula_tranches, (place.randn(paths), place.randn(paths, names), spread, loading)


def nelson_siegel(maturity: Tensor, yields: Tensor, rounds: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """Nelson and Siegel's curves of many days: decay by golden sections, the factors by least squares each time."""

    def fit(tau: Tensor) -> tuple[Tensor, Tensor]:
        x = maturity / tau[:, None]
        slope = (1 - torch.exp(-x)) / x
        design = torch.stack([torch.ones_like(slope), slope, slope - torch.exp(-x)], -1)
        gram = design.mT @ design + 1e-3 * torch.eye(3, dtype=x.dtype, device=x.device)
        beta = torch.linalg.solve(gram, torch.einsum("bmi,bm->bi", design, yields))
        error = yields - torch.einsum("bmi,bi->bm", design, beta)
        return beta, error.square().mean(-1)

    golden = (5**0.5 - 1) / 2
    low, high = torch.full_like(yields[:, 0], 0.5), torch.full_like(yields[:, 0], 6.0)
    for _ in range(rounds):
        a, b = high - golden * (high - low), low + golden * (high - low)
        left = torch.sigmoid(200 * (fit(b)[1] - fit(a)[1]))
        high, low = left * b + (1 - left) * high, left * low + (1 - left) * a
    tau = (low + high) / 2
    return fit(tau)[0], tau, fit(tau)[1]


def yield_curves(place: Place) -> Made:
    days = place.size(400, 100_000)
    maturity = torch.tensor([0.25, 0.5, 1, 2, 3, 5, 7, 10, 20, 30]).to(place.device)
    level, slope = 3 + place.rand(days, 1), -2 * place.rand(days, 1)
    shape = torch.exp(-maturity / (1 + 3 * place.rand(days, 1)))
    return nelson_siegel, (maturity, level + slope * shape + 0.5 * place.randn(days, 10))


def hull_white_swaptions(noise: Tensor, reversion: Tensor, sigma: Tensor, dt: float = 0.25) -> tuple[Tensor, Tensor]:
    """Hull and White's short rate by exact steps, antithetic; bonds in closed form make the swap's value at expiry."""
    steps = noise.size(0)
    z = torch.cat([noise, -noise], 1)
    decay = torch.exp(-reversion * dt)
    spread = sigma * ((1 - decay**2) / (2 * reversion)).sqrt()
    x = torch.zeros_like(z[0])
    account = torch.zeros_like(z[0])
    for t in range(steps):
        account = account + dt * (0.02 + 0.002 * math.sqrt(t * dt) + x)
        x = decay * x + spread * z[t]
    swap = torch.zeros_like(x)
    for year in range(1, 11):
        reach = (1 - torch.exp(-reversion * year)) / reversion
        bond = torch.exp(-0.025 * year - reach * x - 0.25 * sigma**2 / reversion * reach**2)
        swap = swap + 0.025 * bond
        if year == 10:
            swap = swap + bond
    strikes = torch.linspace(-0.05, 0.05, 9, device=x.device, dtype=x.dtype)
    payoff = F.softplus(200 * (1 - swap[:, None] + strikes)) / 200
    price = (torch.exp(-account)[:, None] * payoff).mean(0)
    return price, torch.exp(-account).mean()


def swaptions(place: Place) -> Made:
    paths, steps = place.size(3000, 400_000), 20
    parameters = torch.tensor(0.1).to(place.device), torch.tensor(0.01).to(place.device)
    return hull_white_swaptions, (place.randn(steps, paths), *(p.requires_grad_() for p in parameters))


class SabrSurface(nn.Module):
    """Hagan et al., 2002: implied volatilities of expiries and strikes; weighted squares, a smooth term."""

    def __init__(self, expiries: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((expiries,), -1.5))
        self.rho = nn.Parameter(torch.full((expiries,), -0.3))
        self.nu = nn.Parameter(torch.full((expiries,), -0.7))

    def forward(self, forward: Tensor, strike: Tensor, time: Tensor, quote: Tensor) -> tuple[Tensor, Tensor]:
        beta = 0.6
        alpha, rho, nu = self.alpha.exp()[:, None], torch.tanh(self.rho)[:, None], self.nu.exp()[:, None]
        log = torch.log(forward / strike)
        middle = (forward * strike) ** ((1 - beta) / 2)
        z = nu / alpha * middle * log
        root = (1 - 2 * rho * z + z**2).sqrt()
        chi = torch.log((root + z - rho) / (1 - rho))
        ratio = torch.where(z.abs() < 1e-3, 1 - 0.5 * rho * z, z / torch.where(z.abs() < 1e-3, 1.0, chi))
        bottom = middle * (1 + (1 - beta) ** 2 / 24 * log**2 + (1 - beta) ** 4 / 1920 * log**4)
        correction = (1 - beta) ** 2 / 24 * alpha**2 / middle**2 + 0.25 * rho * beta * nu * alpha / middle
        correction = correction + (2 - 3 * rho**2) / 24 * nu**2
        vol = alpha / bottom * ratio * (1 + correction * time[:, None])
        d1 = log / (vol * time[:, None].sqrt()) + 0.5 * vol * time[:, None].sqrt()
        vega = torch.exp(-0.5 * d1**2).detach()
        misfit = (vega * (vol - quote) ** 2).sum(1) / vega.sum(1)
        rough = sum(p.diff(n=2).square().mean() for p in (self.alpha, self.rho, self.nu))
        return misfit.mean() + 0.01 * rough, vol.detach().amax(1)


def sabr(place: Place) -> Made:
    expiries, strikes = place.size(64, 4096), place.size(256, 1024)
    time = 0.1 + 4 * place.rand(expiries)
    strike = 0.6 + 0.8 * place.rand(expiries, strikes)
    return SabrSurface(expiries).to(place.device), (
        1 + 0.02 * place.randn(expiries, 1),
        strike,
        time,
        0.2 + 0.05 * place.rand(expiries, strikes),
    )


def local_volatility(surface: Tensor, strikes: Tensor, steps: int = 10) -> tuple[Tensor, Tensor]:
    """Crank and Nicolson with Rannacher's start on a log grid: down-and-out calls, one matrix for all."""
    _, n = surface.shape
    x = torch.linspace(-1.0, 1.0, n, device=surface.device, dtype=surface.dtype)
    dx, rate = 2.0 / (n - 1), 0.02
    value = (x.exp() - strikes[:, None]).clamp(min=0)
    dt = 1.0 / steps
    for step in range(steps):
        theta = 1.0 if step < 2 else 0.5
        variance = 0.5 * surface[step] ** 2 / dx**2
        drift = (rate - 0.5 * surface[step] ** 2) / (2 * dx)
        low, main, high = variance - drift, -2 * variance - rate, variance + drift
        explicit = main * value
        explicit[:, 1:] += low[1:] * value[:, :-1]
        explicit[:, :-1] += high[:-1] * value[:, 1:]
        right = value + (1 - theta) * dt * explicit
        right[:, 0] = 0.0
        a, b, c = -theta * dt * low, 1 - theta * dt * main, -theta * dt * high
        matrix = torch.diag(b) + torch.diag(a[1:], -1) + torch.diag(c[:-1], 1)
        matrix[0] = 0.0
        matrix[0, 0] = 1.0
        value = torch.linalg.solve(matrix, right.T).T
    delta = (value[:, 2:] - value[:, :-2]) / (2 * dx) * torch.exp(-x[1:-1])
    return value[:, n // 2], delta[:, n // 2 - 1]


def barrier_options(place: Place) -> Made:
    contracts, n = place.size(64, 16_384), place.size(96, 512)
    return local_volatility, (0.2 + 0.1 * place.rand(10, n), 0.7 + 0.6 * place.rand(contracts))


def shortfall_portfolio(returns: Tensor, steps: int = 25) -> tuple[Tensor, Tensor]:
    """Rockafellar and Uryasev, 2000: expected shortfall by subgradients on a simplex, kept there by exponents."""
    assets = returns.size(1)
    weight = torch.full((assets,), 1 / assets, dtype=returns.dtype, device=returns.device)
    path = []
    for step in range(steps):
        loss = -returns @ weight
        threshold = torch.quantile(loss, 0.95)
        tail = torch.sigmoid((loss - threshold) / 0.002)
        gradient = -(tail[:, None] * returns).mean(0) / 0.05
        gradient = gradient - 0.2 * returns.mean(0)
        weight = torch.softmax(weight.log() - 3 / (1 + 0.1 * step) * gradient, 0)
        path.append(threshold + (loss - threshold).clamp(min=0).mean() / 0.05)
    return weight, torch.stack(path)


def portfolio(place: Place) -> Made:
    scenarios, assets = place.size(2000, 250_000), place.size(40, 100)
    market = 0.01 * place.randn(scenarios, 1)
    return shortfall_portfolio, (market + 0.02 * place.randn(scenarios, assets) + 0.0005 * place.randn(assets),)


def moving_average_backtest(price: Tensor, fast: Tensor, slow: Tensor, cost: float = 5e-4) -> tuple[Tensor, ...]:
    """A grid of crossings of exponential averages over many assets: costs, drawdowns, ratios."""
    change = price.log().diff(dim=-1)
    signals = []
    for span in (fast, slow):
        kernel = (1 - 2 / (span[:, None] + 1)) ** torch.arange(96, device=price.device, dtype=price.dtype)
        kernel = kernel / kernel.sum(1, keepdim=True)
        padded = F.pad(price[:, None], (95, 0), mode="replicate")
        signals.append(F.conv1d(padded, kernel.flip(1)[:, None]))
    gap = signals[0] / signals[1] - 1
    position = torch.tanh(200 * gap)[..., :-1]
    traded = position.diff(dim=-1, prepend=torch.zeros_like(position[..., :1])).abs()
    profit = position * change[:, None] - cost * traded
    equity = profit.cumsum(-1)
    drawdown = (equity.cummax(-1).values - equity).amax(-1)
    ratio = profit.mean(-1) / (profit.std(-1) + 1e-6) * 252**0.5
    return ratio, drawdown, equity[..., -1], traded.mean(-1)


def backtest(place: Place) -> Made:
    assets, days = place.size(16, 256), place.size(600, 2500)
    price = torch.exp(0.01 * place.randn(assets, days).cumsum(1))
    fast, slow = torch.arange(4.0, 20.0, 2.0), torch.arange(30.0, 62.0, 4.0)
    return moving_average_backtest, (price, fast.to(place.device), slow.to(place.device))


ROWS: tuple[Row, ...] = (
    Row("program/american_binomial_tree", binomial),
    Row("program/gaussian_copula_tranches", tranches, "training"),
    Row("program/nelson_siegel_curves", yield_curves),
    Row("program/hull_white_swaptions", swaptions, "training"),
    Row("program/sabr_calibration", sabr, "training"),
    Row("program/local_volatility_barriers", barrier_options),
    Row("program/expected_shortfall_portfolio", portfolio),
    Row("program/moving_average_backtest", backtest),
)
