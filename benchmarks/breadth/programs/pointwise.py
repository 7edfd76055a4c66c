"""Long chains of pointwise arithmetic."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..row import Made, Place, Row


def black_scholes(S: Tensor, K: Tensor, T: Tensor, r: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Call and put; training's gradients are the greeks."""

    def cdf(x: Tensor) -> Tensor:
        return 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    d1 = (torch.log(S / K) + (r + sigma**2 / 2) * T) / (sigma * torch.sqrt(T))
    d2 = d1 - sigma * torch.sqrt(T)
    discount = torch.exp(-r * T)
    call = S * cdf(d1) - K * discount * cdf(d2)
    put = K * discount * cdf(-d2) - S * cdf(-d1)
    return call, put


def greeks(place: Place) -> Made:
    n = place.size(100_000, 10_000_000)
    S, K, T = 80 + 40 * place.rand(n), 80 + 40 * place.rand(n), 0.2 + place.rand(n)
    r, sigma = torch.full((n,), 0.03, device=place.device), 0.1 + 0.3 * place.rand(n)
    return black_scholes, (S.requires_grad_(), K, T.requires_grad_(), r, sigma.requires_grad_())


def mandelbrot(cx: Tensor, cy: Tensor, steps: int = 20) -> tuple[Tensor, Tensor]:
    """How often each point was inside, and the last |z|^2, held to where it left."""
    x, y = torch.zeros_like(cx), torch.zeros_like(cy)
    count = torch.zeros_like(cx, dtype=torch.int32)
    for _ in range(steps):
        x2, y2 = x * x, y * y
        inside = x2 + y2 <= 4
        count += inside
        y = torch.where(inside, 2 * x * y + cy, y)
        x = torch.where(inside, x2 - y2 + cx, x)
    return count.to(cx.dtype).mean(1), torch.log1p(x * x + y * y).mean(1)


def mandelbrot_set(place: Place) -> Made:
    h, w = place.size(160, 2160), place.size(200, 3840)
    y, x = torch.meshgrid(torch.linspace(-1.25, 1.25, h), torch.linspace(-2, 0.5, w), indexing="ij")
    return mandelbrot, (x.to(place.device), y.to(place.device))


def julia(re: Tensor, im: Tensor) -> Tensor:
    """Smooth colouring by a trap: an inner orbit's least distance to a cross, in complex arithmetic by hand."""
    trap = torch.full_like(re, 10.0)
    for _ in range(20):
        re, im = re.square() - im.square() - 0.1, 2 * re * im + 0.2
        trap = torch.minimum(trap, torch.minimum(re.abs(), im.abs()))
    phase = 6.2831853 * trap
    return torch.stack([0.5 + 0.5 * torch.cos(phase + k) for k in (0.0, 0.6, 1.0)], dim=-1)


def julia_set(place: Place) -> Made:
    n = place.size(256, 2048)
    t = torch.linspace(-0.46, 0.46, n).to(place.device)
    return julia, (t.expand(n, n).contiguous(), t.unsqueeze(1).expand(n, n).contiguous())


class VanDerPol(nn.Module):
    """Runge-Kutta's fourth order over a batch of oscillators with learnt stiffness."""

    def __init__(self) -> None:
        super().__init__()
        self.mu = nn.Parameter(torch.tensor(1.5))
        self.drive = nn.Parameter(torch.tensor([0.5, 2.0]))

    def field(self, t: float, state: Tensor) -> Tensor:
        x, v = state[..., 0], state[..., 1]
        force = self.drive[0] * torch.sin(self.drive[1] * t)
        return torch.stack([v, self.mu * (1 - x * x) * v - x + force], dim=-1)

    def forward(self, state: Tensor) -> Tensor:
        h = 0.05
        for i in range(4):
            t = i * h
            k1 = self.field(t, state)
            k2 = self.field(t + h / 2, state + h / 2 * k1)
            k3 = self.field(t + h / 2, state + h / 2 * k2)
            k4 = self.field(t + h, state + h * k3)
            state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return state


def runge_kutta(place: Place) -> Made:
    return VanDerPol().to(place.device), (place.randn(place.size(10_000, 2_000_000), 2).requires_grad_(),)


def lorenz(x: Tensor, y: Tensor, z: Tensor, dt: float = 0.005) -> tuple[Tensor, Tensor, Tensor]:
    """An ensemble under Heun's method, 12 steps, in place on copies."""
    x, y, z = x.clone(), y.clone(), z.clone()
    for _ in range(12):
        dx, dy, dz = 10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z
        px, py, pz = x + dt * dx, y + dt * dy, z + dt * dz
        x.add_(dx + 10 * (py - px), alpha=dt / 2)
        y.add_(dy + px * (28 - pz) - py, alpha=dt / 2)
        z.add_(dz + px * py - 8 / 3 * pz, alpha=dt / 2)
    return x, y, z


def lorenz_ensemble(place: Place) -> Made:
    n = place.size(60_000, 8_000_000)
    return lorenz, (place.randn(n), place.randn(n), 20 + place.randn(n))


def aces_tone_map(hdr: Tensor, exposure: Tensor) -> Tensor:
    """Narkowicz's fit of ACES with exposure, vignette and sRGB's curve."""
    h, w = hdr.shape[1:3]
    y = torch.linspace(-1, 1, h, device=hdr.device, dtype=hdr.dtype)[:, None]
    x = torch.linspace(-1, 1, w, device=hdr.device, dtype=hdr.dtype)[None, :]
    vignette = 1 / (1 + 0.3 * (x**2 + y**2)) ** 2
    v = hdr * torch.exp2(exposure)[:, None, None, None] * vignette[None, :, :, None]
    luminance = 0.2126 * v[..., 0] + 0.7152 * v[..., 1] + 0.0722 * v[..., 2]
    v = torch.lerp(luminance[..., None].expand_as(v), v, 0.9)
    v = ((v * (2.51 * v + 0.03)) / (v * (2.43 * v + 0.59) + 0.14)).clamp(0.0, 1.0)
    return torch.where(v <= 0.0031308, 12.92 * v, 1.055 * v.clamp(min=1e-8).pow(1 / 2.4) - 0.055)


def tone_mapping(place: Place) -> Made:
    n, h, w = place.size(1, 4), place.size(180, 2160), place.size(320, 3840)
    return aces_tone_map, (place.randn(n, h, w, 3).exp(), place.randn(n))


def student_t_log_prob(x: Tensor, df: Tensor, loc: Tensor, log_scale: Tensor) -> tuple[Tensor, Tensor]:
    """Log-density and the reparametrised Gamma-Poisson mix beside it: lgamma and digamma, log1p, softplus."""
    z = (x - loc) * torch.exp(-log_scale)
    half = 0.5 * df
    log_z = log_scale + 0.5 * torch.log(df * torch.pi) + torch.lgamma(half) - torch.lgamma(half + 0.5)
    log_t = -(half + 0.5) * torch.log1p(z * z / df) - log_z
    counts = torch.nn.functional.softplus(x).round()
    rate = torch.nn.functional.softplus(loc) + 1e-3
    negative_binomial = (
        torch.lgamma(counts + df)
        - torch.lgamma(df)
        - torch.lgamma(counts + 1)
        + df * torch.log(df / (df + rate))
        + counts * torch.log(rate / (df + rate))
    )
    return log_t, negative_binomial


def student_t(place: Place) -> Made:
    n = place.size(30_000, 4_000_000)
    df, loc, scale = 3 + 4 * place.rand(n), place.randn(n), 0.3 * place.randn(n)
    return student_t_log_prob, (3 * place.randn(n), df.requires_grad_(), loc.requires_grad_(), scale.requires_grad_())


def great_circle(latitude: Tensor, longitude: Tensor) -> tuple[Tensor, Tensor]:
    """Haversine distances and bearings between the successive points of tracks."""
    phi, lam = torch.deg2rad(latitude), torch.deg2rad(longitude)
    d_phi, d_lam = phi.diff(dim=1), lam.diff(dim=1)
    a = torch.sin(d_phi / 2) ** 2 + torch.cos(phi[:, :-1]) * torch.cos(phi[:, 1:]) * torch.sin(d_lam / 2) ** 2
    distance = 2 * 6371.0 * torch.atan2(a.sqrt(), (1 - a).sqrt())
    along = torch.sin(d_lam) * torch.cos(phi[:, 1:])
    across = torch.cos(phi[:, :-1]) * torch.sin(phi[:, 1:])
    across = across - torch.sin(phi[:, :-1]) * torch.cos(phi[:, 1:]) * torch.cos(d_lam)
    return distance.cumsum(1), torch.atan2(along, across)


def tracks(place: Place) -> Made:
    n, points = place.size(200, 20_000), 256
    return great_circle, (60 * place.rand(n, points), 150 * place.rand(n, points))


ROWS: tuple[Row, ...] = (
    Row("program/black_scholes_greeks", greeks, "training"),
    Row("program/mandelbrot", mandelbrot_set),
    Row("program/julia", julia_set),
    Row("program/runge_kutta", runge_kutta, "training"),
    Row("program/lorenz_ensemble", lorenz_ensemble),
    Row("program/aces_tone_mapping", tone_mapping),
    Row("program/student_t_likelihood", student_t, "training"),
    Row("program/great_circle", tracks),
)
