"""Soundings of the earth, of bodies, of satellites and of markets; codes along a trellis, mortality, a board."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def acquired_codes(signal: Tensor, codes: Tensor, doppler: Tensor, rate: float) -> tuple[Tensor, Tensor, Tensor]:
    """GPS: Gold codes sought in parallel by FFT over phases and Doppler shifts, powers summed over milliseconds."""
    n = signal.size(1)
    t = torch.arange(n, device=signal.device) / rate
    carrier = torch.polar(torch.ones_like(doppler[:, None] * t), -2 * math.pi * doppler[:, None] * t)
    baseband = torch.fft.fft(signal[:, None] * carrier)
    replica = torch.fft.fft(codes.to(signal.dtype)).conj()
    correlation = torch.fft.ifft(baseband[None] * replica[:, None, None]).abs().square().sum(1)
    peak, at = correlation.flatten(1).max(1)
    shift, phase = at // n, at % n
    own = correlation[torch.arange(len(codes), device=signal.device), shift]
    apart = (torch.arange(n, device=signal.device) - phase[:, None] + n // 2) % n - n // 2
    second = own.masked_fill(apart.abs() < 4, 0).amax(1)
    return peak / second, doppler[shift], phase


def satellites(place: Place) -> Made:
    n, blocks = 1023, place.size(2, 10)

    def register(taps: list[int]) -> list[int]:
        state, out = [1] * 10, []
        for _ in range(n):
            out.append(state[-1])
            state = [sum(state[i - 1] for i in taps) % 2, *state[:-1]]
        return out

    g1, g2 = torch.tensor(register([3, 10])), torch.tensor(register([2, 3, 6, 8, 9, 10]))
    codes = torch.stack([1.0 - 2.0 * (g1 ^ g2.roll(d)) for d in range(5, 5 + place.size(4, 32))])
    signal = codes[1].roll(300) * torch.polar(torch.ones(n), 2 * math.pi * 1500 / 1.023e6 * torch.arange(n))
    signal = signal + torch.complex(torch.randn(blocks, n), torch.randn(blocks, n))
    doppler = torch.linspace(-4000, 4000, place.size(9, 41))
    return acquired_codes, (signal.to(place.device), codes.to(place.device), doppler.to(place.device), 1.023e6)


def trellis_bits(soft: Tensor, following: Tensor, output: Tensor, previous: Tensor) -> tuple[Tensor, Tensor]:
    """The convolutional code (171, 133) by Viterbi's algorithm with soft decisions: metrics forward, decisions back."""
    b, steps, _ = soft.shape
    states = previous.size(0)
    metric = torch.full((b, states), -1e4, device=soft.device, dtype=soft.dtype)
    metric[:, 0] = 0
    decisions = []
    signs = 1.0 - 2.0 * output
    for t in range(steps):
        branch = torch.einsum("bo,sko->bsk", soft[:, t], signs)
        candidate = metric[:, previous] + branch
        metric, decision = candidate.max(-1)
        metric = metric - metric.amax(1, keepdim=True)
        decisions.append(decision)
    state = metric.argmax(1)
    bits = []
    for decision in reversed(decisions):
        bits.append(following[state])
        state = previous[state, decision.gather(1, state[:, None]).squeeze(1)]
    return torch.stack(bits[::-1], dim=1), metric


def convolutional_code(place: Place) -> Made:
    b, steps, memory = place.size(100, 20_000), place.size(16, 40), 6
    states = 1 << memory
    previous = torch.tensor([[(s << 1) & (states - 1), ((s << 1) | 1) & (states - 1)] for s in range(states)])
    bit = torch.arange(states) >> (memory - 1)
    register = (bit[:, None] << memory) | previous
    output = torch.stack(
        [torch.tensor([[bin(int(r) & g).count("1") % 2 for r in row] for row in register]) for g in (0o171, 0o133)],
        dim=-1,
    ).float()
    return trellis_bits, (
        place.randn(b, steps, 2),
        bit.to(place.device),
        output.to(place.device),
        previous.to(place.device),
    )


class LayeredEarth(nn.Module):
    """Magnetotellurics: impedances of layers from the bottom up, apparent resistivity and phase, rough models pay."""

    def __init__(self, stations: int, layers: int) -> None:
        super().__init__()
        self.log_resistivity = nn.Parameter(2 + 0.3 * torch.randn(stations, layers))
        self.register_buffer("thickness", 50.0 * 1.3 ** torch.arange(layers - 1))

    def forward(self, period: Tensor, resistivity: Tensor, phase: Tensor) -> tuple[Tensor, Tensor]:
        omega_mu = 2 * math.pi / period * 4e-7 * math.pi
        rho = 10 ** self.log_resistivity[..., None]
        intrinsic = torch.sqrt(omega_mu * rho / 2)
        eta = torch.complex(intrinsic, intrinsic)
        wavenumber = torch.sqrt(omega_mu / (2 * rho))
        k = torch.complex(wavenumber, wavenumber)
        z = eta[:, -1]
        for layer in range(eta.size(1) - 2, -1, -1):
            own = eta[:, layer]
            reflection = (own - z) / (own + z) * torch.exp(-2 * k[:, layer] * self.thickness[layer])
            z = own * (1 - reflection) / (1 + reflection)
        apparent = torch.log10(z.abs().square() / omega_mu)
        angle = torch.rad2deg(torch.atan2(z.imag, z.real))
        misfit = ((apparent - resistivity) / 0.05).square().mean() + ((angle - phase) / 2).square().mean()
        neighbours = self.log_resistivity.diff(dim=0).square().mean()
        return misfit, 10 * self.log_resistivity.diff(dim=1).square().mean() + neighbours


def magnetotellurics(place: Place) -> Made:
    stations, layers, periods = place.size(50, 4000), place.size(8, 20), place.size(24, 64)
    return LayeredEarth(stations, layers).to(place.device), (
        torch.logspace(-3, 3, periods, device=place.device),
        2 + 0.3 * place.randn(stations, periods),
        45 + 5 * place.randn(stations, periods),
    )


class Compartments(nn.Module):
    """Population pharmacokinetics: two compartments with absorption, solved by eigenvalues, doses superposed; effects
    of patients about typical values, a proportional and an additive error."""

    def __init__(self, patients: int) -> None:
        super().__init__()
        self.typical = nn.Parameter(torch.tensor([1.0, 3.0, 1.5, 4.0, 0.2]))
        self.allometry = nn.Parameter(torch.tensor([0.75, 1.0]))
        self.effect = nn.Parameter(0.1 * torch.randn(patients, 5))
        self.log_omega, self.log_sigma = nn.Parameter(torch.full((5,), -1.0)), nn.Parameter(torch.tensor([-1.0, -2.0]))

    def forward(self, weight: Tensor, dose: Tensor, at: Tensor, time: Tensor, seen: Tensor, mask: Tensor) -> Tensor:
        cl, v1, q, v2, ka = (self.typical + self.effect).exp().unbind(1)
        size = weight / 70
        cl, q = cl * size ** self.allometry[0], q * size ** self.allometry[0]
        v1, v2 = v1 * size ** self.allometry[1], v2 * size ** self.allometry[1]
        k10, k12, k21 = cl / v1, q / v1, q / v2
        total = k10 + k12 + k21
        root = torch.sqrt(total**2 - 4 * k10 * k21)
        fast, slow = (total + root) / 2, (total - root) / 2
        ka = ka + fast
        a = ka / v1 * (k21 - fast) / ((ka - fast) * (slow - fast))
        b = ka / v1 * (k21 - slow) / ((ka - slow) * (fast - slow))
        since = time[:, :, None] - at[:, None]
        given = torch.where(since > 0, dose[:, None], 0)
        since = since.clamp(min=0)
        wave = sum(
            c[:, None, None] * torch.exp(-r[:, None, None] * since) for c, r in ((a, fast), (b, slow), (-a - b, ka))
        )
        concentration = (given * wave).sum(-1)
        proportional, additive = self.log_sigma.exp()
        variance = (proportional * concentration) ** 2 + additive**2
        misfit = (0.5 * ((seen - concentration) ** 2 / variance + variance.log()) * mask).sum()
        prior = 0.5 * (self.effect / self.log_omega.exp()).square().sum() + len(weight) * self.log_omega.sum()
        return (misfit + prior) / len(weight)


def doses(place: Place) -> Made:
    patients, n, given = place.size(200, 20_000), place.size(10, 16), place.size(4, 8)
    return Compartments(patients).to(place.device), (
        50 + 40 * place.rand(patients),
        100 + 50 * place.rand(patients, given),
        (12.0 * torch.arange(given, device=place.device)).expand(patients, given),
        (48 * place.rand(patients, n)).sort(1).values,
        2 * place.rand(patients, n),
        (place.rand(patients, n) < 0.9).float(),
    )


class DeathsByAge(nn.Module):
    """Lee and Carter, 1992, as a Poisson model with cohorts: ages' levels and slopes, a period's index, identified."""

    def __init__(self, countries: int, ages: int, years: int) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.linspace(-8, -1, ages).repeat(countries, 1))
        self.slope = nn.Parameter(torch.full((countries, ages), 1 / ages))
        self.period = nn.Parameter(0.1 * torch.randn(countries, years))
        self.cohort = nn.Parameter(0.01 * torch.randn(countries, ages + years - 1))

    def forward(self, deaths: Tensor, exposure: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ages, years = deaths.shape[1:]
        slope = self.slope / self.slope.sum(1, keepdim=True)
        period = self.period - self.period.mean(1, keepdim=True)
        x, t = torch.arange(ages, device=deaths.device), torch.arange(years, device=deaths.device)
        cohort = self.cohort[:, t - x[:, None] + ages - 1]
        rate = self.level[..., None] + slope[..., None] * period[:, None] + cohort
        deviance = exposure * rate.exp() - deaths * rate
        drift = (period[:, -1] - period[:, 0]) / (years - 1)
        innovation = period.diff(dim=1) - drift[:, None]
        with torch.no_grad():
            ahead = (self.level + slope * (period[:, -1:] + 10 * drift[:, None])).exp().clamp(max=1)
            survival = torch.cumprod(1 - ahead / (1 + ahead / 2), dim=1)
        return deviance.mean(), innovation.square().mean() + self.cohort.diff(dim=1).square().mean(), survival.sum(1)


def mortality(place: Place) -> Made:
    countries, ages, years = place.size(8, 256), place.size(50, 100), place.size(30, 60)
    exposure = 1000 * (0.5 + place.rand(countries, ages, years))
    level = torch.linspace(-8, -1, ages, device=place.device)[:, None]
    return DeathsByAge(countries, ages, years).to(place.device), ((exposure * level.exp()).round(), exposure)


class CosineCalibration(nn.Module):
    """Heston's model with jumps calibrated by the COS method (Fang and Oosterlee, 2008): characteristic functions,
    payoffs' cosine coefficients in closed form, prices against quotes weighted by vega."""

    def __init__(self, terms: int) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.tensor([0.5, -2.0, -0.5, -0.7, -2.0, -1.0, -1.5]))
        self.terms = terms

    def forward(self, strike: Tensor, maturity: Tensor, price: Tensor, vega: Tensor) -> tuple[Tensor, Tensor]:
        kappa, theta, sigma, v0, jumps, spread = F.softplus(self.raw[[0, 1, 2, 4, 5, 6]])
        rho = torch.tanh(self.raw[3])
        n = torch.arange(self.terms, device=strike.device)
        low, high = -6 * torch.sqrt(0.5 * maturity) - 0.2, 6 * torch.sqrt(0.5 * maturity) + 0.2
        u = n * math.pi / (high - low)[:, None]
        t = maturity[:, None]
        one = torch.zeros_like(u)
        iu = torch.complex(one, u)
        d = torch.sqrt((rho * sigma * iu - kappa) ** 2 + sigma**2 * (iu + u**2))
        g = (kappa - rho * sigma * iu - d) / (kappa - rho * sigma * iu + d)
        e = torch.exp(-d * t)
        c = kappa * theta / sigma**2 * ((kappa - rho * sigma * iu - d) * t - 2 * torch.log((1 - g * e) / (1 - g)))
        variance = v0 / sigma**2 * (kappa - rho * sigma * iu - d) * (1 - e) / (1 - g * e)
        compensator = torch.expm1(spread**2 / 2)
        jump = jumps * t * (torch.exp(-0.5 * spread**2 * u**2) - 1 - iu * compensator)
        phi = torch.exp(c + variance + jump)
        a, b = low[:, None], high[:, None]
        chi = (torch.exp(b) * torch.cos(n * math.pi) - torch.cos(u * a) + u * torch.sin(u * a)) / (1 + u**2)
        psi = torch.where(n == 0, b, torch.sin(u * a) / u.clamp(min=1e-6))
        coefficient = 2 / (high - low)[:, None] * (chi - psi)
        coefficient = torch.where(n == 0, 0.5 * coefficient, coefficient)
        shifted = torch.log(1 / strike)[:, None] - a
        terms = torch.complex(torch.cos(u * shifted), torch.sin(u * shifted)) * phi
        call = strike * (terms.real * coefficient).sum(1)
        feller = F.relu(sigma**2 - 2 * kappa * theta)
        return ((call - price) / vega).square().mean(), feller.square()


def option_prices(place: Place) -> Made:
    n, terms = place.size(200, 20_000), place.size(64, 256)
    strike = torch.exp(0.4 * (place.rand(n) - 0.5))
    maturity = 0.1 + 2 * place.rand(n)
    return CosineCalibration(terms).to(place.device), (
        strike,
        maturity,
        (1 - strike).clamp(min=0) + 0.08 * maturity.sqrt(),
        0.2 + place.rand(n),
    )


class LearntApodisation(nn.Module):
    """Plane-wave ultrasound: delays and sums over elements, a network weighs them, compounded angles, log compression
    compared with a finer picture."""

    def __init__(self, elements: int, width: int) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(elements, width), nn.LeakyReLU(0.1), nn.Linear(width, elements))

    def forward(self, echoes: Tensor, angle: Tensor, element: Tensor, x: Tensor, z: Tensor, wanted: Tensor) -> Tensor:
        samples = echoes.size(-1)
        px, pz = torch.meshgrid(x, z, indexing="ij")
        there = pz * angle.cos()[:, None, None] + px * angle.sin()[:, None, None]
        back = torch.sqrt((px[..., None] - element) ** 2 + pz[..., None] ** 2)
        delay = (there[..., None] + back) * 0.45 * samples
        first = delay.floor().clamp(0, samples - 2)
        fraction = (delay - first).clamp(0, 1)
        index = first.long().permute(0, 3, 1, 2).flatten(2)
        early, late = echoes.gather(2, index), echoes.gather(2, index + 1)
        aligned = torch.lerp(early, late, fraction.permute(0, 3, 1, 2).flatten(2)).transpose(1, 2)
        weight = self.encode(F.normalize(aligned, dim=-1)).softmax(-1)
        seen = (back / pz[..., None].clamp(min=1e-3) < 1.8).flatten(0, 1)
        image = (aligned * weight * seen).sum(-1).mean(0).view_as(px)
        decibels = 20 * torch.log10(image.abs() + 1e-3)
        return F.l1_loss((decibels - decibels.amax().detach()).clamp(min=-60), wanted)


def plane_waves(place: Place) -> Made:
    angles, elements, samples, n = place.size(3, 15), place.size(16, 128), place.size(256, 2048), place.size(16, 128)
    return LearntApodisation(elements, place.size(16, 128)).to(place.device), (
        place.randn(angles, elements, samples),
        torch.linspace(-0.3, 0.3, angles, device=place.device),
        torch.linspace(-0.5, 0.5, elements, device=place.device),
        torch.linspace(-0.4, 0.4, n, device=place.device),
        torch.linspace(0.1, 1.0, n, device=place.device),
        -60 * place.rand(n, n),
    )


def reversible_discs(own: Tensor, other: Tensor, choice: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Reversi on 8 x 8: legal moves by runs in eight directions, one played, discs turned, mobility after it."""

    def moved(board: Tensor, dy: int, dx: int) -> Tensor:
        padded = F.pad(board, (1, 1, 1, 1))
        return padded[:, 1 - dy : 9 - dy, 1 - dx : 9 - dx]

    directions = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]

    def legal(mine: Tensor, theirs: Tensor) -> Tensor:
        empty, moves = ~(mine | theirs), torch.zeros_like(mine)
        for dy, dx in directions:
            run = moved(mine, dy, dx) & theirs
            for _ in range(5):
                run = run | (moved(run, dy, dx) & theirs)
            moves = moves | (moved(run, dy, dx) & empty)
        return moves

    moves = legal(own, other)
    score = torch.where(moves.flatten(1), choice, -1)
    place = F.one_hot(score.argmax(1), 64).bool().view_as(own) & moves
    turned = torch.zeros_like(own)
    for dy, dx in directions:
        run = moved(place, dy, dx) & other
        for _ in range(5):
            run = run | (moved(run, dy, dx) & other)
        closed = (moved(run, dy, dx) & own).flatten(1).any(1)
        turned = turned | (run & closed[:, None, None])
    own, other = own | place | turned, other & ~turned
    mobility = legal(own, other).sum((1, 2)) - legal(other, own).sum((1, 2))
    return own, other, mobility, turned.sum((1, 2))


def reversi(place: Place) -> Made:
    n = place.size(200, 100_000)
    colour = place.rand(n, 8, 8)
    return reversible_discs, (colour < 0.3, colour > 0.65, place.rand(n, 64))


ROWS: tuple[Row, ...] = (
    Row("program/acquired_gold_codes", satellites),
    Row("program/convolutional_code_trellis", convolutional_code),
    Row("program/magnetotelluric_layers", magnetotellurics, "training"),
    Row("program/dosed_compartments", doses, "training"),
    Row("program/deaths_by_age", mortality, "training"),
    Row("program/cosine_option_prices", option_prices, "training"),
    Row("program/plane_wave_apodisation", plane_waves, "training"),
    Row("program/reversible_discs", reversi),
)
