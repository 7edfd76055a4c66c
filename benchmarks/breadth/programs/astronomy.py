"""The sky: orbits, transits, calendars, pixels of the sphere, distances, lenses, stars, lines, detectors."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class RadialVelocities(nn.Module):
    """Kepler's equation by Halley's steps for several planets of a star; jitter of each instrument; a likelihood."""

    def __init__(self, planets: int, instruments: int) -> None:
        super().__init__()
        self.log_period = nn.Parameter(torch.linspace(1.5, 4.5, planets))
        self.h = nn.Parameter(torch.full((planets,), 0.2))
        self.k = nn.Parameter(torch.full((planets,), -0.15))
        self.log_amplitude = nn.Parameter(torch.linspace(2.0, 1.0, planets))
        self.phase = nn.Parameter(torch.linspace(0.0, 2.0, planets))
        self.offset = nn.Parameter(torch.zeros(instruments))
        self.log_jitter = nn.Parameter(torch.zeros(instruments))

    def forward(self, time: Tensor, velocity: Tensor, error: Tensor, instrument: Tensor) -> tuple[Tensor, Tensor]:
        eccentricity = (self.h.square() + self.k.square()).sqrt().clamp(max=0.9)
        omega = torch.atan2(self.h, self.k)
        mean = torch.remainder(2 * math.pi * time[:, None] / self.log_period.exp() + self.phase, 2 * math.pi)
        anomaly = mean + eccentricity * torch.sin(mean)
        for _ in range(4):
            s, c = eccentricity * torch.sin(anomaly), eccentricity * torch.cos(anomaly)
            f, slope = anomaly - s - mean, 1 - c
            anomaly = anomaly - f / (slope - 0.5 * f * s / slope)
        beta = torch.sqrt((1 + eccentricity) / (1 - eccentricity))
        true = 2 * torch.atan2(beta * torch.sin(anomaly / 2), torch.cos(anomaly / 2))
        pull = self.log_amplitude.exp() * (torch.cos(true + omega) + eccentricity * torch.cos(omega))
        residual = velocity - pull.sum(-1) - self.offset[instrument]
        variance = error.square() + (2 * self.log_jitter[instrument]).exp()
        return 0.5 * (residual.square() / variance + variance.log()), residual


def planets(place: Place) -> Made:
    n, instruments = place.size(2000, 500_000), 5
    args = 1000 * place.rand(n), 5 * place.randn(n), 0.5 + place.rand(n), place.randint(instruments, n)
    return RadialVelocities(4, instruments).to(place.device), args


def transits(
    time: Tensor, flux: Tensor, radius: Tensor, impact: Tensor, period: Tensor, limb: Tensor
) -> tuple[Tensor, Tensor]:
    """Mandel and Agol's discs: how two circles overlap, case by case, with a quadratic limb darkening as a weight."""
    p = radius.sigmoid()[:, None] * 0.3
    b = impact.sigmoid()[:, None]
    turn = 2 * math.pi * time / period[:, None]
    z = torch.sqrt((8 * torch.sin(turn)).square() + (b * torch.cos(turn)).square() + 1e-8)
    outside, inside = z >= 1 + p, z <= 1 - p
    z_edge = torch.where(outside | inside, torch.ones_like(z), z)
    k0 = torch.acos(((p * p + z_edge * z_edge - 1) / (2 * p * z_edge)).clamp(-0.9999, 0.9999))
    k1 = torch.acos(((1 - p * p + z_edge * z_edge) / (2 * z_edge)).clamp(-0.9999, 0.9999))
    kite = 4 * z_edge * z_edge - (1 + z_edge * z_edge - p * p).square()
    part = (p * p * k0 + k1 - 0.5 * torch.sqrt(kite.clamp(min=1e-6))) / math.pi
    covered = torch.where(outside, torch.zeros_like(z), torch.where(inside, p * p, part))
    mu = torch.sqrt((1 - z.clamp(max=0.999).square()).clamp(min=1e-3))
    u1, u2 = (2 * limb[:, 0].sigmoid()).sqrt() * 0.5, limb[:, 1].sigmoid() * 0.5
    bright = 1 - u1[:, None] * (1 - mu) - u2[:, None] * (1 - mu).square()
    model = 1 - covered * bright / (1 - u1 / 3 - u2 / 6)[:, None]
    away = flux - model
    robust = torch.where(away.abs() < 3e-3, 0.5 * away.square(), 3e-3 * away.abs() - 4.5e-6)
    return 1e4 * robust.mean(-1), model


def light_curves(place: Place) -> Made:
    stars, n = place.size(16, 2048), place.size(500, 2000)
    raw = [place.randn(stars), place.randn(stars), 3 + place.rand(stars), place.randn(stars, 2)]
    return transits, (place.rand(n) - 0.5, 1 + 1e-3 * place.randn(stars, n), *(t.requires_grad_() for t in raw))


def calendars(day: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Day numbers to dates and back in whole numbers: Gregorian, Julian, weekdays and ISO weeks, Easter, Islamic."""

    def civil(year: Tensor, month: Tensor, date: Tensor) -> Tensor:
        a = (14 - month) // 12
        y, m = year + 4800 - a, month + 12 * a - 3
        return date + (153 * m + 2) // 5 + 365 * y + y // 4 - y // 100 + y // 400 - 32045

    f = day + 1401 + (((4 * day + 274277) // 146097) * 3) // 4 - 38
    e = 4 * f + 3
    g = (e % 1461) // 4
    h = 5 * g + 2
    date, month = (h % 153) // 5 + 1, (h // 153 + 2) % 12 + 1
    year = e // 1461 - 4716 + (14 - month) // 12
    j = day + 1401
    je = 4 * j + 3
    jh = 5 * ((je % 1461) // 4) + 2
    old_month = (jh // 153 + 2) % 12 + 1
    julian = torch.stack([je // 1461 - 4716 + (14 - old_month) // 12, old_month, (jh % 153) // 5 + 1], -1)
    weekday = (day + 1) % 7
    thursday = day - (day % 7) + 3
    week = (thursday - civil(year, torch.ones_like(year), torch.ones_like(year))).div(7, rounding_mode="floor") + 1
    c, n = year // 100, year % 19
    k = (c - 17) // 25
    i = (c - c // 4 - (c - k) // 3 + 19 * n + 15) % 30
    i = i - (i // 28) * (1 - (i // 28) * (29 // (i + 1)) * ((21 - n) // 11))
    sunday = i - (year + year // 4 + i + 2 - c + c // 4) % 7
    easter = torch.stack([3 + (sunday + 40) // 44, sunday + 28 - 31 * ((3 + (sunday + 40) // 44) // 4)], -1)
    moon = day - 1948440 + 10632
    cycle = (moon - 1) // 10631
    rest = moon - 10631 * cycle + 354
    t = ((10985 - rest) // 5316) * ((50 * rest) // 17719) + (rest // 5670) * ((43 * rest) // 15238)
    back = civil(year, month, date)
    fine = back == day
    return torch.stack([year, month, date, weekday, week, 30 * cycle + t - 30], -1), julian, easter, fine


def day_numbers(place: Place) -> Made:
    return calendars, (2_400_000 + place.randint(100_000, place.size(4000, 1 << 20)),)


def nested_pixels(direction: Tensor, order: int) -> tuple[Tensor, Tensor, Tensor]:
    """Górski's HEALPix: directions to nested pixels by faces and interleaved bits, and how full each pixel is."""
    side = 1 << order
    z, phi = direction[:, 2], torch.atan2(direction[:, 1], direction[:, 0])
    tt = torch.remainder(phi * (2 / math.pi), 4.0)
    equator = z.abs() <= 2 / 3
    up, down = side * (0.5 + tt - 0.75 * z), side * (0.5 + tt + 0.75 * z)
    rising, falling = up.floor().long(), down.floor().long()
    f_up, f_down = rising >> order, falling >> order
    face = torch.where(f_up == f_down, (f_up & 3) | 4, torch.where(f_up < f_down, f_up & 3, (f_down & 3) + 8))
    x = falling & (side - 1)
    y = side - 1 - (rising & (side - 1))
    quarter = tt.floor().long().clamp(max=3)
    tp = tt - quarter
    from_pole = side * torch.sqrt(3 * (1 - z.abs()).clamp(min=0))
    jp = (tp * from_pole).floor().long().clamp(max=side - 1)
    jm = ((1 - tp) * from_pole).floor().long().clamp(max=side - 1)
    north = z >= 0
    polar_x, polar_y = torch.where(north, side - 1 - jm, jp), torch.where(north, side - 1 - jp, jm)
    face = torch.where(equator, face, torch.where(north, quarter, quarter + 8))
    x, y = torch.where(equator, x, polar_x), torch.where(equator, y, polar_y)

    def spread(v: Tensor) -> Tensor:
        v = (v | (v << 8)) & 0x00FF00FF
        v = (v | (v << 4)) & 0x0F0F0F0F
        v = (v | (v << 2)) & 0x33333333
        return (v | (v << 1)) & 0x55555555

    pixel = (face << (2 * order)) | spread(x) | (spread(y) << 1)
    counts = torch.bincount(pixel >> 4, minlength=12 << (2 * order - 4))
    return pixel, counts, torch.stack([face, x, y], -1)


def pixels(place: Place) -> Made:
    n = place.size(8000, 1_000_000)
    return nested_pixels, (F.normalize(place.randn(n, 3), dim=-1), place.size(5, 9))


class ExpandingUniverse(nn.Module):
    """Distances of supernovae: an integral by running trapezia on a grid, then looked up between its points."""

    def __init__(self, points: int) -> None:
        super().__init__()
        self.register_buffer("grid", torch.linspace(0.0, 2.5, points))
        self.raw = nn.Parameter(torch.tensor([0.3, 0.7, -1.0, 0.1, 70.0, 0.14, 3.1, -19.3]))

    def forward(self, z: Tensor, magnitude: Tensor, stretch: Tensor, colour: Tensor) -> tuple[Tensor, Tensor]:
        matter, dark, w0, wa, hubble, alpha, beta, absolute = self.raw.unbind()
        scale = 1 + self.grid
        energy = dark * scale.pow(3 * (1 + w0 + wa)) * torch.exp(-3 * wa * self.grid / scale)
        rate = torch.sqrt(matter * scale.pow(3) + (1 - matter - dark) * scale.square() + energy)
        inverse = 1 / rate
        step = self.grid[1] - self.grid[0]
        comoving = F.pad(torch.cumsum(0.5 * step * (inverse[1:] + inverse[:-1]), 0), (1, 0))
        right = torch.searchsorted(self.grid, z).clamp(1, self.grid.size(0) - 1)
        part = (z - self.grid[right - 1]) / step
        distance = torch.lerp(comoving[right - 1], comoving[right], part)
        curved = (1 - matter - dark).abs().clamp(min=1e-4).sqrt()
        angle = curved * distance
        bent = torch.where(matter + dark > 1, torch.sin(angle), torch.sinh(angle)) / curved
        modulus = 5 * torch.log10((1 + z) * bent * 299792.458 / hubble) + 25
        residual = magnitude - absolute + alpha * stretch - beta * colour - modulus
        good = torch.exp(-0.5 * (residual / 0.15).square()) / 0.15
        bad = torch.exp(-0.5 * (residual / 1.0).square())
        return -torch.log(0.95 * good + 0.05 * bad + 1e-12), modulus


def supernovae(place: Place) -> Made:
    n, points = place.size(3000, 500_000), place.size(1000, 100_000)
    z = 0.01 + 2 * place.rand(n)
    magnitude = 5 * torch.log10(4300 * z * (1 + 0.5 * z)) + 25 - 19.3 + 0.3 * place.randn(n)
    return ExpandingUniverse(points).to(place.device), (z, magnitude, place.randn(n), 0.1 * place.randn(n))


class LensedGalaxy(nn.Module):
    """A softened elliptical lens with shear: rays traced back to a source of pixels, then an image that is blurred."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.lens = nn.Parameter(torch.tensor([1.1, 0.05, -0.03, 0.8, 0.3, 0.04, -0.02, 0.05]))
        self.source = nn.Parameter(torch.randn(1, 1, side, side) * 0.3 - 2.0)
        t = torch.arange(-3.0, 4.0)
        bell = torch.exp(-t.square() / 3)
        self.register_buffer("blur", (bell[:, None] * bell / bell.sum().square())[None, None])

    def forward(self, x: Tensor, y: Tensor, observed: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        strength, x0, y0, axis, angle, shear1, shear2, core = self.lens.unbind()
        c, s = torch.cos(angle), torch.sin(angle)
        u, v = c * (x - x0) + s * (y - y0), c * (y - y0) - s * (x - x0)
        q = axis.clamp(0.3, 0.98)
        psi = torch.sqrt(q * q * (core * core + u * u) + v * v)
        root = torch.sqrt(1 - q * q)
        du = strength * q / root * torch.atan(root * u / (psi + core))
        dv = strength * q / root * torch.atanh((root * v / (psi + q * q * core)).clamp(-0.999, 0.999))
        bx = x - (c * du - s * dv) - shear1 * x - shear2 * y
        by = y - (s * du + c * dv) - shear2 * x + shear1 * y
        grid = torch.stack([bx, by], -1)[None] / 1.5
        image = F.grid_sample(F.softplus(self.source), grid, align_corners=False)
        image = F.conv2d(image, self.blur, padding=3)[0, 0]
        smooth = self.source.diff(dim=-1).square().mean() + self.source.diff(dim=-2).square().mean()
        return (weight * (image - observed).square()).mean() + 1e-2 * smooth, image


def lens(place: Place) -> Made:
    n, side = place.size(100, 1024), place.size(32, 256)
    axis = torch.linspace(-2, 2, n, device=place.device)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    return LensedGalaxy(side).to(place.device), (x, y, place.rand(n, n), 1 + place.rand(n, n))


def polytropes(index: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Lane and Emden: stars of many indices from the centre out by Runge and Kutta; where each one's surface is."""
    h = 8.0 / steps
    xi = torch.full_like(index, 1e-3)
    theta, phi = 1 - xi.square() / 6, -xi / 3
    surface, mass = torch.zeros_like(index), torch.zeros_like(index)

    def slope(xi: Tensor, theta: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        return phi, -theta.clamp(min=0).pow(index) - 2 / xi * phi

    for _ in range(steps):
        a1, b1 = slope(xi, theta, phi)
        a2, b2 = slope(xi + h / 2, theta + h / 2 * a1, phi + h / 2 * b1)
        a3, b3 = slope(xi + h / 2, theta + h / 2 * a2, phi + h / 2 * b2)
        a4, b4 = slope(xi + h, theta + h * a3, phi + h * b3)
        new = theta + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
        phi = phi + h / 6 * (b1 + 2 * b2 + 2 * b3 + b4)
        crossed = (theta > 0) & (new <= 0)
        at = xi + h * theta / (theta - new)
        surface = torch.where(crossed, at, surface)
        mass = torch.where(crossed, -at.square() * phi, mass)
        theta, xi = new, xi + h
    density = surface.pow(3) / (3 * mass.clamp(min=1e-12))
    return surface, mass, density


def stars(place: Place) -> Made:
    return polytropes, (0.5 + 3 * place.rand(place.size(500, 200_000)), place.size(60, 32))


def lambert(r1: Tensor, r2: Tensor, time: Tensor, rounds: int) -> tuple[Tensor, Tensor, Tensor]:
    """Lambert's problem by universal variables: Stumpff's functions by case, bisection; velocities at both ends."""
    n1, n2 = r1.norm(dim=-1), r2.norm(dim=-1)
    cosine = ((r1 * r2).sum(-1) / (n1 * n2)).clamp(-0.9999, 0.9999)
    short = r1[:, 0] * r2[:, 1] - r1[:, 1] * r2[:, 0] >= 0
    a = torch.where(short, 1.0, -1.0) * torch.sqrt(n1 * n2 * (1 + cosine))
    low, high = torch.full_like(time, -4 * math.pi), torch.full_like(time, 4 * math.pi**2 - 1e-3)

    def stumpff(psi: Tensor) -> tuple[Tensor, Tensor]:
        root = psi.abs().clamp(min=1e-6).sqrt()
        c2 = torch.where(psi > 0, 1 - torch.cos(root), torch.cosh(root) - 1) / root.square()
        c3 = torch.where(psi > 0, (root - torch.sin(root)) / root.pow(3), (torch.sinh(root) - root) / root.pow(3))
        series = psi.abs() < 1e-2
        c2 = torch.where(series, 1 / 2 - psi / 24 + psi * psi / 720, c2)
        return c2, torch.where(series, 1 / 6 - psi / 120 + psi * psi / 5040, c3)

    psi = 0.5 * (low + high)
    for _ in range(rounds):
        c2, c3 = stumpff(psi)
        y = n1 + n2 + a * (psi * c3 - 1) / c2.sqrt()
        chi = torch.sqrt(y.clamp(min=1e-9) / c2)
        taken = chi.pow(3) * c3 + a * y.clamp(min=0).sqrt()
        early = (taken <= time) | (y < 0)
        low, high = torch.where(early, psi, low), torch.where(early, high, psi)
        psi = 0.5 * (low + high)
    y = y.clamp(min=1e-6)
    f, g, dg = 1 - y / n1, a * y.sqrt(), 1 - y / n2
    v1 = (r2 - f[:, None] * r1) / g[:, None]
    v2 = (dg[:, None] * r2 - r1) / g[:, None]
    return v1, v2, 0.5 * v1.square().sum(-1) - 1 / n1


def transfers(place: Place) -> Made:
    n = place.size(500, 131_072)
    start, end = F.normalize(place.randn(n, 3), dim=-1), 1.5 * F.normalize(place.randn(n, 3), dim=-1)
    return lambert, (start, end, 2 + 2 * place.rand(n), 32)


def cosmic_rays(frame: Tensor, rounds: int, gain: float = 2.0, noise: float = 6.0) -> tuple[Tensor, Tensor, Tensor]:
    """Van Dokkum, 2001: edges by a Laplacian on halved pixels, over the noise; no stars; hits filled by medians."""

    def median(x: Tensor, side: int) -> Tensor:
        p = F.pad(x[:, None], [side // 2] * 4, mode="reflect")
        windows = p.unfold(2, side, 1).unfold(3, side, 1)
        return windows.reshape(*x.shape, side * side).median(dim=-1).values

    kernel = frame.new_tensor([[0.0, -1.0, 0.0], [-1.0, 4.0, -1.0], [0.0, -1.0, 0.0]])[None, None] / 4
    mask = torch.zeros(frame.shape, dtype=torch.bool, device=frame.device)
    clean = frame.clone()
    for _ in range(rounds):
        twice = clean.repeat_interleave(2, 1).repeat_interleave(2, 2)[:, None]
        edges = F.avg_pool2d(F.conv2d(twice, kernel, padding=1).clamp(min=0), 2)[:, 0]
        sky = median(clean, 5)
        level = torch.sqrt(gain * sky.clamp(min=1e-3) + noise**2) / gain
        significance = edges / (2 * level)
        significance = significance - median(significance, 5)
        third = median(clean, 3)
        fine = ((third - median(third, 5)) / level).clamp(min=0.01)
        hit = (significance > 4.5) & (edges / fine > 5 * level)
        grown = F.max_pool2d(hit.to(frame.dtype)[:, None], 3, 1, 1)[:, 0] > 0
        hit = hit | (grown & (significance > 2.0))
        mask = mask | hit
        clean[mask] = sky[mask]
    return clean, mask, mask.sum(dim=(1, 2))


def detector(place: Place) -> Made:
    b, n = place.size(1, 4), place.size(48, 512)
    frame = 200 + 12 * place.randn(b, n, n)
    return cosmic_rays, (frame + 3000 * (place.rand(b, n, n) > 0.995), 2)


def voigt(
    position: Tensor, depth: Tensor, doppler: Tensor, damping: Tensor, x: Tensor, flux: Tensor
) -> tuple[Tensor, Tensor]:
    """Humlíček, 1982: the Faddeeva function's real part by rational regions, in real and imaginary parts."""

    def mul(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]

    def real_of_quotient(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
        return (a[0] * b[0] + a[1] * b[1]) / (b[0].square() + b[1].square())

    def horner(coefficients: tuple[float, ...], t: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        total = torch.full_like(t[0], coefficients[0]), torch.zeros_like(t[0])
        for c in coefficients[1:]:
            real, imaginary = mul(total, t)
            total = real + c, imaginary
        return total

    width = doppler.exp()[:, None]
    u, y = (x - position[:, None]) / width, damping.exp()[:, None].expand(-1, x.size(0))
    t = y, -u
    square = mul(t, t)
    s = u.abs() + y
    far = real_of_quotient((0.5641896 * t[0], 0.5641896 * t[1]), (0.5 + square[0], square[1]))
    middle = real_of_quotient(mul(t, horner((0.5641896, 1.410474), square)), horner((1.0, 3.0, 0.75), square))
    top = horner((0.5642236, 3.778987, 11.96482, 20.20933, 16.4955), t)
    near = real_of_quotient(top, horner((1.0, 6.699398, 21.69274, 39.27121, 38.82363, 16.4955), t))
    h = torch.where(s >= 15, far, torch.where(s >= 5.5, middle, near))
    optical = (depth.exp()[:, None] * h).sum(0)
    model = torch.exp(-optical)
    return ((model - flux).square() / 0.01).mean(), model


def absorption_lines(place: Place) -> Made:
    lines, n = place.size(30, 400), place.size(800, 12_000)
    raw = [100 * place.rand(lines), place.randn(lines) - 1, 0.3 * place.randn(lines), 0.2 * place.randn(lines)]
    x = torch.linspace(0, 100, n, device=place.device)
    return voigt, (*(t.requires_grad_() for t in raw), x, 0.5 + 0.5 * place.rand(n))


ROWS: tuple[Row, ...] = (
    Row("program/kepler_radial_velocities", planets, "training"),
    Row("program/transit_light_curves", light_curves, "training"),
    Row("program/calendar_conversions", day_numbers),
    Row("program/nested_sphere_pixels", pixels),
    Row("program/supernova_distances", supernovae, "training"),
    Row("program/lensed_galaxy_source", lens, "training"),
    Row("program/polytrope_stars", stars, dtype=torch.float64),
    Row("program/lambert_transfers", transfers, dtype=torch.float64),
    Row("program/cosmic_ray_hits", detector),
    Row("program/voigt_absorption_lines", absorption_lines, "training"),
)
