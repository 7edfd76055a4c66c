"""Fields on lattices: two-phase flow, metals under light, gauge fields, crystals, shocks, seismic inversion."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row

D2Q9 = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
WEIGHTS = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4


def shan_chen(f: Tensor, attraction: float = -5.0, steps: int = 3) -> tuple[Tensor, Tensor]:
    """Shan and Chen, 1993: populations that attract themselves by a pseudo-potential, and so part into phases."""
    for _ in range(steps):
        rho = f.sum(0)
        psi = 1 - torch.exp(-rho)
        force_x, force_y = torch.zeros_like(rho), torch.zeros_like(rho)
        for w, (cx, cy) in zip(WEIGHTS[1:], D2Q9[1:], strict=True):
            near = w * torch.roll(psi, (-cy, -cx), (0, 1))
            force_x = force_x + cx * near
            force_y = force_y + cy * near
        jx = sum(cx * f[q] for q, (cx, _) in enumerate(D2Q9))
        jy = sum(cy * f[q] for q, (_, cy) in enumerate(D2Q9))
        ux = (jx - attraction * psi * force_x) / rho
        uy = (jy - attraction * psi * force_y) / rho
        speed = 1.5 * (ux**2 + uy**2)
        streamed = []
        for q, (cx, cy) in enumerate(D2Q9):
            cu = 3 * (cx * ux + cy * uy)
            equilibrium = WEIGHTS[q] * rho * (1 + cu + 0.5 * cu**2 - speed)
            streamed.append(torch.roll(f[q] + (equilibrium - f[q]), (cy, cx), (0, 1)))
        f = torch.stack(streamed)
    return f, 1 - torch.exp(-f.sum(0))


def droplets(place: Place) -> Made:
    n = place.size(112, 1280)
    rho = 0.7 + 0.1 * place.rand(n, n)
    w = torch.tensor(WEIGHTS).to(place.device)
    return shan_chen, (w[:, None, None] * rho,)


def drude_metal(e: Tensor, h: Tensor, current: Tensor, plasma: Tensor, steps: int = 12) -> tuple[Tensor, Tensor]:
    """Yee's scheme for the transverse electric mode, with the current of a Drude metal as an equation of its own."""
    ex, ey = e.unbind(0)
    jx, jy = current.unbind(0)
    damping, c = 0.05, 0.5
    keep = (1 - damping / 2) / (1 + damping / 2)
    drive = plasma / (1 + damping / 2)
    for t in range(steps):
        curl = (ey.roll(-1, 1) - ey) - (ex.roll(-1, 0) - ex)
        h = h - c * curl
        h[..., 4] += math.exp(-(((t - 6) / 3) ** 2))
        jx = keep * jx + drive * ex
        jy = keep * jy + drive * ey
        ex = ex + c * (h - h.roll(1, 0)) - c * jx
        ey = ey - c * (h - h.roll(1, 1)) - c * jy
    absorbed = (jx * ex + jy * ey) * plasma.sign()
    return torch.stack([ex, ey, h]), absorbed


def plasmons(place: Place) -> Made:
    n = place.size(160, 2048)
    plasma = 0.2 * (place.rand(n, n) > 0.8)
    return drude_metal, (
        0.1 * place.randn(2, n, n),
        0.1 * place.randn(n, n),
        torch.zeros_like(plasma).repeat(2, 1, 1),
        plasma,
    )


def potts_heat_bath(spins: Tensor, noise: Tensor, beta: float = 0.9, q: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """The four-state Potts model by heat baths: cumulated probabilities of all states, on squares of a chessboard."""
    n = spins.size(-1)
    i = torch.arange(n, device=spins.device)
    black = (i[:, None] + i) % 2 == 0
    for sweep in range(noise.size(0)):
        for half in (0, 1):
            one_hot = F.one_hot(spins, q).to(noise.dtype)
            agree = one_hot.roll(1, -3) + one_hot.roll(-1, -3) + one_hot.roll(1, -2) + one_hot.roll(-1, -2)
            weight = torch.exp(beta * agree)
            cumulated = weight.cumsum(-1)
            draw = noise[sweep, half, ..., None] * cumulated[..., -1:]
            new = (cumulated < draw).sum(-1)
            spins = torch.where(black if half == 0 else ~black, new, spins)
    one_hot = F.one_hot(spins, q).to(noise.dtype)
    share = one_hot.mean(dim=(-3, -2))
    energy = -(one_hot * (one_hot.roll(1, -3) + one_hot.roll(1, -2))).sum(-1).mean(dim=(-2, -1))
    return spins, energy, (q * share.amax(-1) - 1) / (q - 1)


def potts(place: Place) -> Made:
    b, n = place.size(1, 4), place.size(96, 512)
    noise = (place.randint(4096, 2, 2, b, n, n) + 0.5) / 4096 * 0.999 + 0.00037
    return potts_heat_bath, (place.randint(4, b, n, n), noise)


def wilson_action(phase: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Compact electrodynamics in two dimensions: plaquettes, Wilson loops of two sizes, a few steps of the flow."""
    for _ in range(3):
        x, y = phase[:, 0], phase[:, 1]
        plaquette = x + y.roll(-1, 1) - x.roll(-1, 2) - y
        s = torch.sin(plaquette)
        force = torch.stack([s - s.roll(1, 2), s.roll(1, 1) - s], dim=1)
        phase = phase - 0.1 * force
    x, y = phase[:, 0], phase[:, 1]
    plaquette = x + y.roll(-1, 1) - x.roll(-1, 2) - y
    action = beta * (1 - torch.cos(plaquette)).sum(dim=(1, 2))
    wide = x + x.roll(-1, 1)
    tall = y + y.roll(-1, 2)
    loop = wide + tall.roll(-2, 1) - wide.roll(-2, 2) - tall
    return action / plaquette[0].numel(), torch.cos(loop).mean(dim=(1, 2))


def gauge_flow(place: Place) -> Made:
    b, n = place.size(4, 64), place.size(64, 512)
    return wilson_action, (place.randn(b, 2, n, n).requires_grad_(), (1 + place.rand(b)).requires_grad_())


def dendrite(phi: Tensor, heat: Tensor, steps: int = 5) -> tuple[Tensor, Tensor]:
    """Kobayashi, 1993: a snowflake as a phase field whose interface energy depends on direction, and latent heat."""
    dx, dt, mean_eps, delta, mode = 0.03, 1e-4, 0.01, 0.04, 6.0

    def slopes(a: Tensor) -> tuple[Tensor, Tensor]:
        return (a.roll(-1, 1) - a.roll(1, 1)) / (2 * dx), (a.roll(-1, 0) - a.roll(1, 0)) / (2 * dx)

    def laplacian(a: Tensor) -> Tensor:
        return (a.roll(1, 0) + a.roll(-1, 0) + a.roll(1, 1) + a.roll(-1, 1) - 4 * a) / dx**2

    for _ in range(steps):
        px, py = slopes(phi)
        angle = torch.atan2(py, px + 1e-3)
        eps = mean_eps * (1 + delta * torch.cos(mode * (angle - 0.2)))
        eps_angle = -mean_eps * mode * delta * torch.sin(mode * (angle - 0.2))
        cross_y, _ = slopes(eps * eps_angle * py)
        _, cross_x = slopes(eps * eps_angle * px)
        m = 0.9 / math.pi * torch.atan(10.0 * (1 - heat))
        change = cross_x - cross_y + eps**2 * laplacian(phi) + phi * (1 - phi) * (phi - 0.5 + m)
        rate = change / 3e-4
        phi = phi + dt * rate
        heat = heat + dt * (laplacian(heat) + 1.6 * rate)
    return phi, heat


def snowflake(place: Place) -> Made:
    n = place.size(128, 2048)
    i = torch.arange(n) - n / 2
    seed = torch.sigmoid((n / 6 - (i[:, None] ** 2 + i**2).sqrt()) / 3).to(place.device)
    return dendrite, (seed + 0.02 * place.rand(n, n), 0.05 * place.rand(n, n))


class WaveformInversion(nn.Module):
    """Tarantola, 1984: receivers' records of sources through a velocity model, whose gradient is the update."""

    def __init__(self, n: int, steps: int) -> None:
        super().__init__()
        i = torch.arange(n)
        self.velocity = nn.Parameter(1.5 + 0.01 * i[:, None] + 0.2 * torch.rand(n, n))
        ramp = (1 - i / 12).clamp(min=0)
        self.register_buffer("sponge", torch.exp(-0.05 * ((ramp + ramp.flip(0))[:, None] + ramp + ramp.flip(0)) ** 2))
        t = torch.arange(steps) * 0.3 - 2.0
        self.register_buffer("wavelet", (1 - 2 * t**2) * torch.exp(-(t**2)))

    def forward(self, source: Tensor, records: Tensor) -> Tensor:
        wavelet: Tensor = self.get_buffer("wavelet")
        sponge = self.get_buffer("sponge")
        now = torch.zeros_like(source)
        before = torch.zeros_like(source)
        factor = (0.25 * self.velocity) ** 2
        seen = []
        for t in range(wavelet.numel()):
            edge = F.pad(now[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
            around = edge[:, 2:, 1:-1] + edge[:, :-2, 1:-1] + edge[:, 1:-1, 2:] + edge[:, 1:-1, :-2]
            after = 2 * now - before + factor * (around - 4 * now + wavelet[t] * source)
            before, now = now * sponge, after * sponge
            seen.append(now[:, 2])
        misfit = torch.stack(seen, dim=1) - records
        return 0.5 * misfit.square().sum(dim=(1, 2)).mean()


def inversion(place: Place) -> Made:
    shots, n, steps = place.size(1, 16), place.size(64, 384), 24
    source = torch.zeros(shots, n, n)
    source[torch.arange(shots), 4, (torch.arange(shots) * 20 + 20) % n] = 1.0
    model = WaveformInversion(n, steps).to(place.device)
    return model, (source.to(place.device), 0.01 * place.randn(shots, steps, n))


def euler_hll(state: Tensor, steps: int = 2, dt: float = 0.1) -> tuple[Tensor, Tensor]:
    """Gas dynamics by finite volumes: limited slopes, fluxes of Harten, Lax and van Leer, one axis after another."""
    gamma = 1.4

    def primitive(u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rho, mx, my, energy = u.unbind(0)
        vx, vy = mx / rho, my / rho
        return rho, vx, vy, (gamma - 1) * (energy - 0.5 * rho * (vx**2 + vy**2))

    def flux(u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rho, vx, vy, p = primitive(u)
        return torch.stack([rho * vx, rho * vx**2 + p, rho * vx * vy, (u[3] + p) * vx]), vx, (gamma * p / rho).sqrt()

    def sweep(u: Tensor) -> Tensor:
        left, right = u - u.roll(1, -1), u.roll(-1, -1) - u
        slope = torch.where(left * right > 0, torch.where(left.abs() < right.abs(), left, right), 0.0)
        a, b = u + 0.5 * slope, (u - 0.5 * slope).roll(-1, -1)
        fa, va, ca = flux(a)
        fb, vb, cb = flux(b)
        low, high = torch.minimum(va - ca, vb - cb).clamp(max=0), torch.maximum(va + ca, vb + cb).clamp(min=0)
        f = (high * fa - low * fb + low * high * (b - a)) / (high - low)
        return u - dt * (f - f.roll(1, -1))

    swap = [0, 2, 1, 3]
    for _ in range(steps):
        state = sweep(state)
        state = sweep(state[swap].mT)[swap].mT
    return state, primitive(state)[3]


def gas(place: Place) -> Made:
    n = place.size(112, 1536)
    rho, p = 1 + 0.5 * place.rand(n, n), 1 + 0.5 * place.rand(n, n)
    v = 0.3 * place.randn(2, n, n)
    return euler_hll, (torch.stack([rho, rho * v[0], rho * v[1], p / 0.4 + 0.5 * rho * v.square().sum(0)]),)


def cahn_hilliard(c: Tensor, steps: int = 6, dt: float = 0.05) -> tuple[Tensor, Tensor]:
    """Two metals part: the fourth-order equation, implicit in Fourier space but for the cube; the free energy."""
    n = c.size(-1)
    k = 2 * math.pi * torch.fft.fftfreq(n, dtype=c.dtype, device=c.device)
    kr = 2 * math.pi * torch.fft.rfftfreq(n, dtype=c.dtype, device=c.device)
    k2 = k[:, None] ** 2 + kr**2
    denominator = 1 + dt * (2 * k2 + 0.5 * k2**2)
    for _ in range(steps):
        bulk = torch.fft.rfft2(c**3 - 3 * c)
        c = torch.fft.irfft2((torch.fft.rfft2(c) - dt * k2 * bulk) / denominator, s=(n, n))
    slope_x, slope_y = c.roll(-1, -1) - c, c.roll(-1, -2) - c
    energy = 0.25 * (c**2 - 1) ** 2 + 0.25 * (slope_x**2 + slope_y**2)
    return c, energy.mean(dim=(-2, -1))


def alloy(place: Place) -> Made:
    b, n = place.size(1, 4), place.size(224, 1024)
    return cahn_hilliard, (0.2 * place.randn(b, n, n),)


def weno(u: Tensor, speed: Tensor, steps: int = 2, courant: float = 0.4) -> Tensor:
    """Jiang and Shu, 1996: fifth-order weighted stencils, upwind both ways, and Runge and Kutta's third order."""

    def edge(a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor) -> Tensor:
        p0 = (2 * a - 7 * b + 11 * c) / 6
        p1 = (-b + 5 * c + 2 * d) / 6
        p2 = (2 * c + 5 * d - e) / 6
        s0 = 13 / 12 * (a - 2 * b + c) ** 2 + 0.25 * (a - 4 * b + 3 * c) ** 2
        s1 = 13 / 12 * (b - 2 * c + d) ** 2 + 0.25 * (b - d) ** 2
        s2 = 13 / 12 * (c - 2 * d + e) ** 2 + 0.25 * (3 * c - 4 * d + e) ** 2
        w0, w1, w2 = 0.1 / (1e-4 + s0) ** 2, 0.6 / (1e-4 + s1) ** 2, 0.3 / (1e-4 + s2) ** 2
        return (w0 * p0 + w1 * p1 + w2 * p2) / (w0 + w1 + w2)

    def rate(u: Tensor) -> Tensor:
        m2, m1, p1, p2, p3 = (u.roll(s, -1) for s in (2, 1, -1, -2, -3))
        plus, minus = edge(m2, m1, u, p1, p2), edge(p3, p2, p1, u, m1)
        flux = speed.clamp(min=0) * plus + speed.clamp(max=0) * minus
        return flux.roll(1, -1) - flux

    for _ in range(steps):
        first = u + courant * rate(u)
        second = 0.75 * u + 0.25 * (first + courant * rate(first))
        u = u / 3 + 2 / 3 * (second + courant * rate(second))
    return u


def advection(place: Place) -> Made:
    rows, n = place.size(24, 2048), place.size(512, 4096)
    return weno, (place.randn(rows, n), torch.where(place.rand(rows, 1) < 0.5, -1.0, 1.0))


def multigrid(u: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """A V-cycle for Poisson's equation: red and black smoothing, full weighting down, bilinear corrections up."""

    def residual(u: Tensor, f: Tensor) -> Tensor:
        p = F.pad(u, (1, 1, 1, 1))
        return f - (4 * u - p[..., 2:, 1:-1] - p[..., :-2, 1:-1] - p[..., 1:-1, 2:] - p[..., 1:-1, :-2])

    def smooth(u: Tensor, f: Tensor) -> Tensor:
        n = u.size(-1)
        i = torch.arange(n, device=u.device)
        for colour in (0, 1):
            u = torch.where((i[:, None] + i) % 2 == colour, u + 0.25 * residual(u, f), u)
        return u

    def cycle(u: Tensor, f: Tensor) -> Tensor:
        u = smooth(u, f)
        if u.size(-1) > 8:
            coarse = 4 * F.avg_pool2d(residual(u, f), 2)
            correction = cycle(torch.zeros_like(coarse), coarse)
            u = u + F.interpolate(correction, scale_factor=2, mode="bilinear", align_corners=False)
        return smooth(u, f)

    solved = cycle(u, f)
    return solved, residual(solved, f).square().mean(dim=(1, 2, 3)).sqrt()


def v_cycle(place: Place) -> Made:
    b, n = place.size(2, 8), place.size(128, 1024)
    return multigrid, (torch.zeros(b, 1, n, n).to(place.device), place.randn(b, 1, n, n))


ROWS: tuple[Row, ...] = (
    Row("program/shan_chen_droplets", droplets),
    Row("program/drude_metal_fdtd", plasmons),
    Row("program/potts_heat_bath", potts),
    Row("program/wilson_gauge_flow", gauge_flow, "training"),
    Row("program/kobayashi_dendrite", snowflake),
    Row("program/full_waveform_inversion", inversion, "training"),
    Row("program/euler_hll_gas", gas),
    Row("program/cahn_hilliard_spectral", alloy),
    Row("program/weno_advection", advection),
    Row("program/multigrid_v_cycle", v_cycle),
)
