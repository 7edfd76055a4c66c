"""Water on land and in pipes: channels, soils, catchments, wells, glaciers, gauges, terrain."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row

GRAVITY = 9.81


def saint_venant(depth: Tensor, flow: Tensor, bed: Tensor, inflow: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """MacCormack's predictor and corrector for long channels, friction by Manning, boundaries set after each half."""
    dx, dt, n = 10.0, 0.4, 0.03
    slope = torch.zeros_like(bed)
    slope[:, 1:] = (bed[:, :-1] - bed[:, 1:]) / dx
    slope[:, 0] = slope[:, 1]
    h, q = depth.clone(), flow.clone()
    crest = h.clone()

    def sources(h: Tensor, q: Tensor) -> Tensor:
        friction = n**2 * q * q.abs() / h.pow(10 / 3)
        return GRAVITY * h * (slope - friction)

    for t in range(inflow.size(1)):
        momentum = q * q / h + 0.5 * GRAVITY * h * h
        hp, qp = h.clone(), q.clone()
        hp[:, :-1] -= dt / dx * (q[:, 1:] - q[:, :-1])
        qp[:, :-1] -= dt / dx * (momentum[:, 1:] - momentum[:, :-1])
        qp += dt * sources(h, q)
        qp[:, 0] = inflow[:, t]
        hp[:, -1] = hp[:, -2]
        hp.clamp_(min=0.05)
        momentum = qp * qp / hp + 0.5 * GRAVITY * hp * hp
        hc, qc = hp.clone(), qp.clone()
        hc[:, 1:] -= dt / dx * (qp[:, 1:] - qp[:, :-1])
        qc[:, 1:] -= dt / dx * (momentum[:, 1:] - momentum[:, :-1])
        qc += dt * sources(hp, qp)
        h, q = 0.5 * (h + hc), 0.5 * (q + qc)
        q[:, 0] = inflow[:, t]
        h[:, 0] = h[:, 1]
        h[:, -1], q[:, -1] = h[:, -2], q[:, -2]
        torch.maximum(crest, h, out=crest)
    return h, q, crest


def channels(place: Place) -> Made:
    b, n, steps = place.size(4, 1024), place.size(400, 1024), place.size(24, 24)
    bed = torch.linspace(2.0, 0.0, n, device=place.device).expand(b, n) + 0.01 * place.rand(b, n)
    depth, flow = 2.0 + 0.05 * place.rand(b, n), 1.5 + 0.05 * place.rand(b, n)
    return saint_venant, (depth, flow, bed, 1.5 + place.rand(b, steps))


def thomas(lower: Tensor, main: Tensor, upper: Tensor, right: Tensor) -> Tensor:
    """Tridiagonal systems, one elimination down and one substitution up; the last dimension is that of unknowns."""
    n = main.size(-1)
    c, d = [upper[..., 0] / main[..., 0]], [right[..., 0] / main[..., 0]]
    for i in range(1, n):
        pivot = main[..., i] - lower[..., i] * c[-1]
        c.append(upper[..., i] / pivot)
        d.append((right[..., i] - lower[..., i] * d[-1]) / pivot)
    x = [d[-1]]
    for i in range(n - 2, -1, -1):
        x.append(d[i] - c[i] * x[-1])
    return torch.stack(x[::-1], dim=-1)


class SoilColumn(nn.Module):
    """Celia, Bouloutas and Zarba, 1990: Richards' equation in its mixed form, Van Genuchten's soils, Picard rounds."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.linspace(-3.6, -3.2, layers))
        self.log_n = nn.Parameter(torch.linspace(0.6, 0.5, layers))
        self.log_conductivity = nn.Parameter(torch.linspace(-4.5, -5.0, layers))

    def content(self, head: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Water, its derivative and the conductivity at each head."""
        alpha, n = self.log_alpha.exp(), 1.0 + self.log_n.exp()
        m = 1.0 - 1.0 / n
        suction = (-head).clamp(min=1e-3) * alpha
        wet = head >= 0
        saturation = torch.where(wet, 1.0, (1.0 + suction.pow(n)).pow(-m))
        water = 0.08 + 0.36 * saturation
        capacity = 0.36 * alpha * m * n * suction.pow(n - 1.0) * (1.0 + suction.pow(n)).pow(-m - 1.0)
        capacity = torch.where(wet, 1e-6, capacity)
        film = 1.0 - (1.0 - saturation.clamp(max=0.9999).pow(1.0 / m)).pow(m)
        return water, capacity, self.log_conductivity.exp() * saturation.sqrt() * film * film

    def forward(self, head: Tensor, rain: Tensor) -> tuple[Tensor, Tensor]:
        dz, dt = 5.0, 60.0
        drained = []
        for t in range(rain.size(1)):
            before = self.content(head)[0]
            trial = head
            for _ in range(2):
                water, capacity, k = self.content(trial)
                between = 0.5 * (k[:, 1:] + k[:, :-1])
                lower, upper = F.pad(-between / dz**2, (1, 0)), F.pad(-between / dz**2, (0, 1))
                main = capacity / dt - lower - upper
                right = capacity / dt * trial - (water - before) / dt
                right = right + F.pad(between, (1, 0)) / dz - F.pad(between, (0, 1)) / dz
                right = torch.cat(
                    [right[:, :1] + rain[:, t : t + 1] / dz, right[:, 1:-1], right[:, -1:] - k[:, -1:] / dz], 1
                )
                trial = thomas(lower, main, upper, right)
            head = trial
            drained.append(self.content(head)[2][:, -1])
        return head, torch.stack(drained, 1)


def richards(place: Place) -> Made:
    b, layers, steps = place.size(32, 16_384), 12, place.size(2, 1)
    return SoilColumn(layers).to(place.device), (-80.0 - 40.0 * place.rand(b, layers), 1e-4 * place.rand(b, steps))


def muskingum(
    inflow: Tensor, storage: Tensor, weight: Tensor, downstream: Tensor, observed: Tensor
) -> tuple[Tensor, Tensor]:
    """Cunge's routing through a network of reaches: what each lets go is added to the one downstream an hour later."""
    k, x = 1.0 + F.softplus(storage), 0.5 * torch.sigmoid(weight)
    scale = 2 * k * (1 - x) + 1
    c0, c1, c2 = (1 - 2 * k * x) / scale, (1 + 2 * k * x) / scale, (2 * k * (1 - x) - 1) / scale
    out = inflow[:, 0]
    before = inflow[:, 0]
    outlets = []
    for t in range(1, inflow.size(1)):
        upstream = torch.zeros_like(out).index_add(1, downstream, out)
        now = inflow[:, t] + upstream
        now = torch.cat([inflow[:, t, :1], now[:, 1:]], dim=1)
        out = c0 * now + c1 * before + c2 * out
        before = now
        outlets.append(out[:, :4])
    series = torch.stack(outlets, 1)
    away = (series - observed).square().sum(1)
    return 1 - away / (observed - observed.mean(1, keepdim=True)).square().sum(1), out


def river_network(place: Place) -> Made:
    b, reaches, hours = place.size(8, 256), place.size(200, 4096), place.size(48, 48)
    downstream = (torch.rand(reaches) * torch.arange(reaches)).long().to(place.device)
    storage, weight = place.randn(reaches).requires_grad_(), place.randn(reaches).requires_grad_()
    return muskingum, (place.rand(b, hours, reaches), storage, weight, downstream, 3 * place.rand(b, hours - 1, 4))


class Catchment(nn.Module):
    """Bergström's HBV: snow by degree-days, a soil that fills, two boxes that drain, a triangular unit hydrograph."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.zeros(9))

    def forward(self, rain: Tensor, temperature: Tensor, evaporation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        low = self.raw.new_tensor([1.0, 1.0, 100.0, 0.3, 0.05, 0.01, 0.001, 10.0, 0.5])
        high = self.raw.new_tensor([6.0, 5.0, 500.0, 0.9, 0.5, 0.2, 0.05, 60.0, 3.0])
        melt_rate, beta, capacity, limit, k0, k1, k2, zone, percolation = torch.lerp(
            low, high, self.raw.sigmoid()
        ).unbind()
        snow, soil = torch.zeros_like(rain[0]), torch.full_like(rain[0], 50.0)
        upper, lower = torch.full_like(rain[0], 5.0), torch.full_like(rain[0], 10.0)
        flows = []
        for day in range(rain.size(0)):
            frozen = temperature[day] < 0.0
            fall = torch.where(frozen, rain[day], 0.0)
            melt = torch.minimum(torch.where(frozen, 0.0, melt_rate * temperature[day]), snow)
            snow = snow + fall - melt
            water = rain[day] - fall + melt
            recharge = water * (soil / capacity).clamp(1e-3, 1.0).pow(beta)
            soil = soil + water - recharge
            lost = evaporation[day] * (soil / (limit * capacity)).clamp(max=1.0)
            soil = (soil - lost).clamp(min=0.1)
            upper = upper + recharge
            down = torch.minimum(upper, percolation)
            upper = upper - down
            quick = k0 * (upper - zone).clamp(min=0.0)
            middle = k1 * upper
            upper = upper - quick - middle
            slow = k2 * (lower + down)
            lower = lower + down - slow
            flows.append(quick + middle + slow)
        hydrograph = torch.stack(flows, -1)
        kernel = self.raw.new_tensor([1.0, 2.0, 3.0, 2.0, 1.0]) / 9.0
        routed = F.conv1d(hydrograph[:, None], kernel[None, None], padding=4)[:, 0, : rain.size(0)]
        return routed, snow, soil


def hbv(place: Place) -> Made:
    days, b = place.size(30, 16), place.size(128, 131_072)
    return Catchment().to(place.device), (
        12 * place.rand(days, b),
        4 * place.randn(days, b) + 2,
        3 * place.rand(days, b),
    )


def penman_monteith(
    high: Tensor, low: Tensor, humid: Tensor, wind: Tensor, sun: Tensor, latitude: Tensor, height: Tensor, day: Tensor
) -> tuple[Tensor, Tensor]:
    """Allen and others, 1998 (FAO 56), formula after formula: a reference crop's evaporation, and vapour missing."""
    mean = 0.5 * (high + low)
    pressure = 101.3 * ((293.0 - 0.0065 * height) / 293.0) ** 5.26
    gamma = 0.000665 * pressure
    saturated = 0.5 * sum(0.6108 * torch.exp(17.27 * t / (t + 237.3)) for t in (high, low))
    actual = humid / 100 * saturated
    delta = 4098 * 0.6108 * torch.exp(17.27 * mean / (mean + 237.3)) / (mean + 237.3).square()
    angle = 2 * math.pi / 365 * day
    distance = 1 + 0.033 * torch.cos(angle)
    declination = 0.409 * torch.sin(angle - 1.39)
    sunset = torch.acos((-torch.tan(latitude) * torch.tan(declination)).clamp(-1.0, 1.0))
    above = sunset * torch.sin(latitude) * torch.sin(declination)
    above = (
        24
        * 60
        / math.pi
        * 0.082
        * distance
        * (above + torch.cos(latitude) * torch.cos(declination) * torch.sin(sunset))
    )
    hours = 24 / math.pi * sunset
    short = (0.25 + 0.5 * (sun / hours.clamp(min=1e-3)).clamp(max=1.0)) * above
    clear = (0.75 + 2e-5 * height) * above
    warmth = 4.903e-9 * 0.5 * ((high + 273.16).pow(4) + (low + 273.16).pow(4))
    long = warmth * (0.34 - 0.14 * actual.sqrt()) * (1.35 * (short / clear.clamp(min=1e-3)).clamp(max=1.0) - 0.35)
    net = 0.77 * short - long
    u2 = wind * 4.87 / math.log(67.8 * 10 - 5.42)
    above_zero = 0.408 * delta * net + gamma * 900 / (mean + 273) * u2 * (saturated - actual)
    reference = above_zero / (delta + gamma * (1 + 0.34 * u2))
    return reference.clamp(min=0.0), saturated - actual


def stations(place: Place) -> Made:
    days, n = place.size(90, 365), place.size(200, 20_000)
    low = 5 + 6 * place.randn(days, n)
    day = torch.arange(days, device=place.device, dtype=torch.float32)[:, None]
    return penman_monteith, (
        low + 3 + 8 * place.rand(days, n),
        low,
        30 + 60 * place.rand(days, n),
        6 * place.rand(days, n),
        8 * place.rand(days, n),
        2.2 * place.rand(n) - 1.1,
        1500 * place.rand(n),
        day,
    )


def depressions(ground: Tensor, rounds: int) -> tuple[Tensor, Tensor, Tensor]:
    """Planchon and Darboux, 2002: a flood that drains to the rim, and then the size of what stays under water."""
    water = torch.zeros_like(ground) + ground.amax() + 1.0
    water[:, 0], water[:, -1] = ground[:, 0], ground[:, -1]
    water[:, :, 0], water[:, :, -1] = ground[:, :, 0], ground[:, :, -1]
    for _ in range(rounds):
        inner = water[:, 1:-1, 1:-1]
        least = torch.minimum(water[:, :-2, 1:-1], water[:, 2:, 1:-1])
        least = torch.minimum(least, torch.minimum(water[:, 1:-1, :-2], water[:, 1:-1, 2:]))
        least = torch.minimum(least, torch.minimum(water[:, :-2, :-2], water[:, 2:, 2:]))
        least = torch.minimum(least, torch.minimum(water[:, :-2, 2:], water[:, 2:, :-2])) + 1e-3
        water[:, 1:-1, 1:-1] = torch.maximum(ground[:, 1:-1, 1:-1], torch.minimum(inner, least))
    lake = water - ground
    under = lake > 0.01
    return water, torch.where(under, lake, 0.0).sum(dim=(1, 2)), under.sum(dim=(1, 2))


def terrain(place: Place) -> Made:
    b, n = place.size(1, 4), place.size(128, 1024)
    rough = F.avg_pool2d(place.randn(b, 1, n + 8, n + 8), 9, stride=1)[:, 0]
    return depressions, (100 + 10 * rough + 0.05 * place.rand(b, n, n), place.size(40, 48))


def water_hammer(head: Tensor, flow: Tensor, closing: Tensor, friction: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Wylie and Streeter's characteristics in pipes between a lake and a valve that closes; extremes on the way."""
    area, celerity = 0.2, 1200.0
    b = celerity / (GRAVITY * area)
    h, q = head.clone(), flow.clone()
    lake = h[:, 0].clone()
    valve = q[:, -1].square() / h[:, -1]
    most, least = h.clone(), h.clone()
    for t in range(closing.size(0)):
        plus = h[:, :-1] + b * q[:, :-1] - friction * q[:, :-1] * q[:, :-1].abs()
        minus = h[:, 1:] - b * q[:, 1:] + friction * q[:, 1:] * q[:, 1:].abs()
        h[:, 1:-1] = 0.5 * (plus[:, :-1] + minus[:, 1:])
        q[:, 1:-1] = (plus[:, :-1] - minus[:, 1:]) / (2 * b)
        h[:, 0] = lake
        q[:, 0] = (lake - minus[:, 0]) / b
        opening = closing[t].square() * valve
        q[:, -1] = 0.5 * (-b * opening + torch.sqrt((b * opening).square() + 4 * opening * plus[:, -1].clamp(min=0)))
        h[:, -1] = plus[:, -1] - b * q[:, -1]
        most = torch.maximum(most, h)
        least = torch.minimum(least, h)
    return h, most, least


def pipes(place: Place) -> Made:
    b, n, steps = place.size(16, 4096), place.size(100, 200), place.size(80, 48)
    head = 100 + 20 * place.rand(b, 1) - torch.linspace(0, 2, n, device=place.device)
    flow = (0.2 + 0.2 * place.rand(b, 1)).expand(b, n).clone()
    closing = torch.linspace(1, 0, steps, device=place.device)[:, None] * torch.ones(b, device=place.device)
    return water_hammer, (head, flow, closing, 5.0 + 5 * place.rand(b, 1))


def theis(
    time: Tensor, radius: Tensor, rate: Tensor, drawdown: Tensor, log_t: Tensor, log_s: Tensor
) -> tuple[Tensor, Tensor]:
    """Theis, 1935: drawdown round wells, the well function by two approximations (Abramowitz and Stegun, 5.1)."""
    t, s = log_t.exp()[:, None, None], log_s.exp()[:, None, None]
    u = radius.square()[:, :, None] * s / (4 * t * time)
    small = u.clamp(max=1.0)
    series = small.new_tensor([0.00107857, -0.00976004, 0.05519968, -0.24991055, 0.99999193, -0.57721566])
    near = torch.zeros_like(u)
    for c in series.unbind():
        near = near * small + c
    near = near - small.log()
    large = u.clamp(min=1.0)
    above, below = torch.ones_like(u), torch.ones_like(u)
    for a, b in ((8.5733287, 9.5733223), (18.0590170, 25.6329561), (8.6347609, 21.0996531), (0.2677737, 3.9584969)):
        above = above * large + a
        below = below * large + b
    far = torch.exp(-large) / large * above / below
    well = torch.where(u <= 1.0, near, far)
    predicted = (rate[:, :, None] / (4 * math.pi * t) * well).sum(1)
    return (predicted - drawdown).square().mean(-1), predicted


def wells(place: Place) -> Made:
    fields, pumps, times = place.size(16, 512), place.size(8, 16), place.size(100, 400)
    log_t, log_s = place.randn(fields) - 2, 0.5 * place.randn(fields) - 6
    time = 0.5 + 50 * place.rand(times)
    tensors = time, 20 + 200 * place.rand(fields, pumps), place.rand(fields, pumps), place.rand(fields, times)
    return theis, (*tensors, log_t.requires_grad_(), log_s.requires_grad_())


def glacier(bed: Tensor, thickness: Tensor, balance: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Ice along flowlines (Hutter's shallow ice), fluxes half-way between points; nothing above the divide."""
    dx, dt = 200.0, 0.02
    rate = 2 * 2.4e-24 * 3.15e7 * (910 * GRAVITY) ** 3 / 5
    h = thickness
    fronts = []
    for _ in range(steps):
        surface = bed + h
        slope = (surface[:, 1:] - surface[:, :-1]) / dx
        middle = 0.5 * (h[:, 1:] + h[:, :-1])
        diffusivity = (rate * middle.pow(5) * slope.square()).clamp(max=2e5)
        flux = -diffusivity * slope
        new = h.clone()
        new[:, 1:-1] = h[:, 1:-1] + dt * (balance[:, 1:-1] - (flux[:, 1:] - flux[:, :-1]) / dx)
        new[:, 0] = new[:, 1]
        new[:, -1] = 0.0
        h = new.clamp(min=0.0)
        fronts.append(h.sum(1))
    return h, torch.stack(fronts, 1)


def flowlines(place: Place) -> Made:
    b, n, steps = place.size(8, 8192), place.size(150, 200), place.size(30, 20)
    bed = torch.linspace(3000, 1500, n, device=place.device) + 5 * place.randn(b, n)
    thickness = 50 + 100 * place.rand(b, n)
    balance = torch.linspace(2, -4, n, device=place.device) + 0.1 * place.randn(b, n)
    return glacier, (bed.requires_grad_(), thickness, balance.requires_grad_(), steps)


def shepard(
    points: Tensor, where: Tensor, rain: Tensor, nearest: int, power: float = 2.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Shepard, 1968: weights of the nearest gauges; each gauge's share of the land; how many points are dry."""
    square = (points[:, None, 0] - where[:, 0]).square() + (points[:, None, 1] - where[:, 1]).square()
    near, which = square.topk(nearest, dim=1, largest=False)
    weights = (near + 1e-6).pow(-power / 2)
    weights = weights / weights.sum(1, keepdim=True)
    field = (weights[..., None] * rain[which]).sum(1)
    share = torch.zeros(where.size(0), dtype=rain.dtype, device=rain.device)
    share.index_put_((which[:, 0],), torch.ones_like(share[which[:, 0]]), accumulate=True)
    share = share / points.size(0)
    mean = share @ rain
    return field, mean, (field < 0.1 * rain.max()).sum(0)


def rain_gauges(place: Place) -> Made:
    n, m, times = place.size(1500, 65_536), place.size(60, 300), place.size(24, 48)
    return shepard, (place.rand(n, 2), place.rand(m, 2), place.rand(m, times).square(), 5)


ROWS: tuple[Row, ...] = (
    Row("program/saint_venant_channels", channels),
    Row("program/richards_soil_columns", richards, "training"),
    Row("program/muskingum_river_network", river_network, "training"),
    Row("program/hbv_catchments", hbv, "training"),
    Row("program/penman_monteith_evaporation", stations),
    Row("program/terrain_depressions", terrain),
    Row("program/water_hammer_pipes", pipes, dtype=torch.float64),
    Row("program/theis_well_drawdown", wells, "training"),
    Row("program/glacier_flowlines", flowlines, "training"),
    Row("program/rain_gauge_weights", rain_gauges),
)
