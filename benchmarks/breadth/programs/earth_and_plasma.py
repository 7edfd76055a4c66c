"""Plasmas, air, water and patterns: charges in cells, radiation, clouds, rivers, travel times, waves of many kinds."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..row import Made, Place, Row


def particles_in_cells(x: Tensor, v: Tensor, cells: int, steps: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Birdsall and Langdon, 1985: charges shared between cells, the field by FFT, a leapfrog; two streams."""
    dt = 0.1
    length = 4 * math.pi
    dx = length / cells
    k = 2 * math.pi * torch.fft.rfftfreq(cells, d=dx, device=x.device).to(x.dtype)
    green = torch.where(k > 0, 1 / k.clamp(min=1e-6), 0.0)
    energies = []
    for _ in range(steps):
        at = x / dx
        cell = at.floor()
        part = at - cell
        left = cell.long() % cells
        right = (left + 1) % cells
        density = torch.zeros(cells, dtype=x.dtype, device=x.device)
        density = density.index_add(0, left, 1 - part).index_add(0, right, part) * (cells / len(x))
        field = torch.fft.irfft(1j * green * torch.fft.rfft(density - 1), n=cells)
        v = v + dt * (field[left] * (1 - part) + field[right] * part)
        x = torch.remainder(x + dt * v, length)
        energies.append(torch.stack([field.square().mean(), v.square().mean()]))
    return torch.stack(energies), v, density


def two_streams(place: Place) -> Made:
    n = place.size(20_000, 4_000_000)
    v = 0.3 * place.randn(n) + torch.where(torch.arange(n) % 2 == 0, 1.0, -1.0).to(place.device)
    return particles_in_cells, (4 * math.pi * (place.randint(1 << 20, n) + 0.5) / (1 << 20), v, 64)


def layered_radiation(tau: Tensor, albedo: Tensor, temperature: Tensor, sun: Tensor) -> tuple[Tensor, Tensor]:
    """Two streams by adding: reflection and transmission of layers, merged upwards, fluxes down again, heating."""
    g = 0.8
    gamma1, gamma2 = 2 - albedo * (1.25 + 0.75 * g), 0.75 * albedo * (1 - g)
    k = (gamma1**2 - gamma2**2).sqrt()
    e = torch.exp(-2 * k * tau)
    below = k + gamma1 + (k - gamma1) * e
    reflect, transmit = gamma2 * (1 - e) / below, 2 * k * torch.exp(-k * tau) / below
    emit = (1 - reflect - transmit) * (temperature / 300) ** 4
    up_albedo, up_source = [torch.full_like(sun, 0.2)], [torch.ones_like(sun)]
    for layer in range(tau.size(1) - 1, -1, -1):
        r, t, s = reflect[:, layer], transmit[:, layer], emit[:, layer]
        many = 1 / (1 - r * up_albedo[-1])
        up_source.append(s + t * many * (up_source[-1] + up_albedo[-1] * s))
        up_albedo.append(r + t**2 * up_albedo[-1] * many)
    down, net = sun, []
    for layer in range(tau.size(1)):
        a, source = up_albedo[-1 - layer], up_source[-1 - layer]
        net.append(down - a * down - source)
        r, t, s = reflect[:, layer], transmit[:, layer], emit[:, layer]
        a, source = up_albedo[-2 - layer], up_source[-2 - layer]
        down = (t * down + r * source + s) / (1 - r * a)
    net.append(down - a * down - source)
    fluxes = torch.stack(net, 1)
    return fluxes, fluxes[:, :-1] - fluxes[:, 1:]


def radiation(place: Place) -> Made:
    columns, layers = place.size(2000, 400_000), 20
    return layered_radiation, (
        0.05 + place.rand(columns, layers),
        0.5 + 0.4 * place.rand(columns, layers),
        220 + 80 * place.rand(columns, layers),
        1 + place.rand(columns),
    )


def warm_rain(theta: Tensor, vapour: Tensor, cloud: Tensor, rain: Tensor, steps: int = 5) -> tuple[Tensor, ...]:
    """Kessler, 1969: condensation, autoconversion, collection, evaporation, rain that falls from level to level."""
    levels = theta.size(0)
    exner = torch.linspace(1.0, 0.8, levels, device=theta.device, dtype=theta.dtype)[:, None, None]
    pressure, density = 1000 * exner**3.5, 1.2 * exner**2.5
    total = torch.zeros_like(theta[0])
    for _ in range(steps):
        t = theta * exner
        saturated = 3.8 / pressure * torch.exp(17.27 * (t - 273) / (t - 36))
        excess = (vapour - saturated) / (1 + saturated * 4097.6 * 2490 / (t - 36) ** 2)
        condensed = torch.maximum(excess, -cloud)
        cloud = cloud + condensed
        converted = (1e-3 * (cloud - 5e-4)).clamp(min=0) * 20
        collected = 2.2 * cloud * (rain + 1e-8) ** 0.875 * 20
        moved = torch.minimum(converted + collected, cloud)
        dry = (saturated - vapour).clamp(min=0) / saturated
        evaporated = torch.minimum(0.05 * dry * (density * rain + 1e-8) ** 0.525, rain)
        vapour = vapour - condensed + evaporated
        cloud = cloud - moved
        theta = theta + 2.49 / exner * (condensed - evaporated)
        rain = rain + moved - evaporated
        flux = density * rain * 14.3 * (density * rain + 1e-8) ** 0.1364 * 0.02
        rain = (rain + (F.pad(flux[1:], (0, 0, 0, 0, 0, 1)) - flux) / density).clamp(min=0)
        total = total + flux[0]
    return theta, vapour, cloud, rain, total


def rain(place: Place) -> Made:
    shape = place.size(20, 40), place.size(32, 512), place.size(32, 512)
    theta = 290 + 8 * place.rand(*shape)
    return warm_rain, (theta, 0.004 + 0.014 * place.rand(*shape), 2e-3 * place.rand(*shape), 1e-3 * place.rand(*shape))


def flow_accumulation(height: Tensor, rounds: int = 20) -> tuple[Tensor, Tensor, Tensor]:
    """O'Callaghan and Mark, 1984 (D8): every cell drains to its steepest neighbour; areas passed on, paths doubled."""
    h, w = height.shape
    padded = F.pad(height, (1, 1, 1, 1), value=1 << 30)
    around = [(y, x) for y in range(3) for x in range(3)]
    drops = [
        (height - padded[y : y + h, x : x + w]) * (5 if (y + x) % 2 == 0 and (y, x) != (1, 1) else 7) for y, x in around
    ]
    steepest, direction = torch.stack(drops).max(0)
    direction = torch.where(steepest > 0, direction, 4)
    row, column = torch.meshgrid(
        torch.arange(h, device=height.device), torch.arange(w, device=height.device), indexing="ij"
    )
    target = ((row + direction // 3 - 1).clamp(0, h - 1) * w + (column + direction % 3 - 1).clamp(0, w - 1)).flatten()
    pit = (direction == 4).flatten()
    wave = torch.ones_like(target)
    area = wave
    for _ in range(rounds):
        wave = torch.zeros_like(wave).index_add(0, target, torch.where(pit, 0, wave))
        area = area + wave
    outlet = target
    for _ in range(5):
        outlet = outlet[outlet]
    return area.view(h, w), torch.bincount(outlet, minlength=h * w), direction


def rivers(place: Place) -> Made:
    n = place.size(128, 1536)
    return flow_accumulation, (F.avg_pool2d(place.randint(1 << 12, 1, 1, n, n).float() * 49, 7, 1, 3)[0, 0].long(),)


def travel_times(slowness: Tensor, rounds: int = 30) -> tuple[Tensor, Tensor]:
    """The eikonal equation upwind (Zhao, 2004, as Jacobi sweeps): times from a source, and their slopes."""
    h, w = slowness.shape[-2:]
    time = torch.full_like(slowness, 1e3)
    time[:, h // 2, w // 2] = 0
    for _ in range(rounds):
        p = F.pad(time, (1, 1, 1, 1), value=1e3)
        across = torch.minimum(p[:, 1:-1, :-2], p[:, 1:-1, 2:])
        along = torch.minimum(p[:, :-2, 1:-1], p[:, 2:, 1:-1])
        gap = across - along
        both = 0.5 * (across + along + (2 * slowness**2 - gap**2).clamp(min=1e-6).sqrt())
        one = torch.minimum(across, along) + slowness
        time = torch.minimum(time, torch.where(gap.abs() >= slowness, one, both))
    reached = time < 1e2
    gradient = torch.stack([time[:, 1:, 1:] - time[:, 1:, :-1], time[:, 1:, 1:] - time[:, :-1, 1:]], 1)
    return time, (gradient.square().sum(1) * reached[:, 1:, 1:]).clamp(max=10.0)


def eikonal(place: Place) -> Made:
    b, n = place.size(4, 64), place.size(64, 512)
    return travel_times, (1 + place.rand(b, n, n),)


def lenia(world: Tensor, kernel: Tensor, mu: Tensor, sigma: Tensor, steps: int = 10) -> tuple[Tensor, Tensor]:
    """Chan, 2019: a continuous game of life, several rings convolved by FFT, growth by bells, clipped."""
    masses = []
    spectrum = torch.fft.rfft2(kernel)
    for _ in range(steps):
        around = torch.fft.irfft2(torch.fft.rfft2(world)[:, None] * spectrum, s=world.shape[-2:])
        growth = 2 * torch.exp(-0.5 * ((around - mu[:, None, None]) / sigma[:, None, None]) ** 2) - 1
        world = (world + 0.1 * growth.mean(1)).clamp(0, 1)
        masses.append(world.mean((-2, -1)))
    return world, torch.stack(masses)


def living(place: Place) -> Made:
    b, n, rings = place.size(2, 8), place.size(64, 512), 3
    i = torch.fft.fftfreq(n) * n
    r = torch.hypot(i[:, None], i) / 13
    shells = torch.stack([torch.exp(-0.5 * ((r - c) / 0.15) ** 2) * (r < 1) for c in (0.25, 0.5, 0.75)])
    kernel = (shells / shells.sum((-2, -1), keepdim=True)).to(place.device)
    mu, sigma = torch.linspace(0.3, 0.6, rings).to(place.device), torch.full((rings,), 0.15).to(place.device)
    return lenia, (place.rand(b, n, n), kernel, mu, sigma)


def exponential_steps(u: Tensor, dt: float = 0.05, steps: int = 8) -> tuple[Tensor, Tensor]:
    """Kassam and Trefethen, 2005 (ETDRK4): Kuramoto and Sivashinsky's equation, coefficients by contour integrals."""
    n = u.size(-1)
    k = torch.fft.rfftfreq(n, device=u.device).to(u.dtype) * n / 16
    linear = k**2 - k**4
    roots = torch.exp(1j * math.pi * (torch.arange(16, device=u.device).to(u.dtype) + 0.5) / 16)
    z = dt * linear[:, None] + roots
    q = dt * (((z / 2).exp() - 1) / z).mean(-1).real
    f1 = dt * ((-4 - z + z.exp() * (4 - 3 * z + z**2)) / z**3).mean(-1).real
    f2 = dt * ((2 + z + z.exp() * (-2 + z)) / z**3).mean(-1).real
    f3 = dt * ((-4 - 3 * z - z**2 + z.exp() * (4 - z)) / z**3).mean(-1).real
    whole, half = torch.exp(dt * linear), torch.exp(dt * linear / 2)

    def advect(v: Tensor) -> Tensor:
        return -0.5j * k * torch.fft.rfft(torch.fft.irfft(v, n=n) ** 2)

    v = torch.fft.rfft(u)
    energy = []
    for _ in range(steps):
        nv = advect(v)
        a = half * v + q * nv
        na = advect(a)
        nb = advect(half * v + q * na)
        nc = advect(half * a + q * (2 * nb - nv))
        v = whole * v + f1 * nv + 2 * f2 * (na + nb) + f3 * nc
        energy.append((v.abs() ** 2).sum(-1) / n**2)
    return torch.fft.irfft(v, n=n), torch.stack(energy, -1)


def flames(place: Place) -> Made:
    b, n = place.size(16, 2048), place.size(128, 1024)
    x = torch.arange(n) * 2 * math.pi / n
    phase = torch.rand(b, 1) * 6
    return exponential_steps, ((torch.cos(x + phase) * (1 + torch.sin(2 * x + phase))).to(place.device),)


def two_layer_flow(q: Tensor, steps: int = 5, dt: float = 0.02) -> tuple[Tensor, Tensor]:
    """Phillips' two layers of quasi-geostrophic flow, pseudo-spectral: inversion, Jacobians, two-thirds rule, Heun."""
    n = q.size(-1)
    ky = (torch.fft.fftfreq(n, device=q.device).to(q.dtype) * n)[:, None]
    kx = torch.fft.rfftfreq(n, device=q.device).to(q.dtype) * n
    k2 = kx**2 + ky**2
    keep = ((kx.abs() < n / 3) & (ky.abs() < n / 3)).to(q.dtype)
    damp = torch.exp(-dt * 30 * (k2 / (n / 3) ** 2) ** 4) * keep
    inverse = 1 / (k2 * (k2 + 8)).clamp(min=1e-3)

    def stream(s: Tensor) -> Tensor:
        top, bottom = s.unbind(1)
        return -inverse[None, None] * torch.stack([(k2 + 4) * top + 4 * bottom, (k2 + 4) * bottom + 4 * top], 1)

    def tendency(s: Tensor) -> Tensor:
        psi = stream(s)
        u, v = torch.fft.irfft2(-1j * ky * psi, s=(n, n)), torch.fft.irfft2(1j * kx * psi, s=(n, n))
        sx, sy = torch.fft.irfft2(1j * kx * s, s=(n, n)), torch.fft.irfft2(1j * ky * s, s=(n, n))
        drag = F.pad(0.1 * k2 * psi[:, 1:], (0, 0, 0, 0, 1, 0))
        return -torch.fft.rfft2(u * sx + v * sy) - 1.5j * kx * psi + drag

    s = torch.fft.rfft2(q) * keep
    for _ in range(steps):
        first = tendency(s)
        second = tendency((s + dt * first) * damp)
        s = (s + 0.5 * dt * (first + second)) * damp
    psi = stream(s)
    return torch.fft.irfft2(s, s=(n, n)), (k2 * psi.abs() ** 2).sum((-2, -1)) / n**4


def geostrophic(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(48, 384)
    rough = F.avg_pool2d(place.randn(b, 2, n + 6, n + 6), 7, 1)
    return two_layer_flow, (rough,)


ROWS: tuple[Row, ...] = (
    Row("program/particles_in_cells", two_streams),
    Row("program/layered_radiation", radiation),
    Row("program/kessler_warm_rain", rain),
    Row("program/flow_accumulation", rivers),
    Row("program/eikonal_travel_times", eikonal),
    Row("program/lenia", living),
    Row("program/exponential_time_differencing", flames),
    Row("program/quasi_geostrophic_layers", geostrophic),
)
