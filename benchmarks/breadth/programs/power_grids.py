"""Electricity: feeders, generators that swing, dispatch, commitment, batteries; sun, wind, meters, buildings."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def feeder_sweeps(parent: Tensor, levels: list[Tensor], load: Tensor, line: Tensor, rounds: int) -> tuple[Tensor, ...]:
    """Shirmohammadi et al., 1988: feeders by sweeps: currents summed to the root, voltages back to the leaves."""
    p, q = load.unbind(-1)
    r, x = line.unbind(-1)
    vr, vi = torch.ones_like(p), torch.zeros_like(p)
    for _ in range(rounds):
        square = vr.square() + vi.square()
        scale = torch.where(square < 0.81, square / 0.81, 1.0)  # weak voltages draw as impedances
        ir, ii = scale * (p * vr + q * vi) / square, scale * (p * vi - q * vr) / square
        for level in reversed(levels):
            ir.index_add_(1, parent[level], ir[:, level])
            ii.index_add_(1, parent[level], ii[:, level])
        for level in levels:
            up = parent[level]
            a, b = ir[:, level], ii[:, level]
            vr[:, level] = vr[:, up] - r[level] * a + x[level] * b
            vi[:, level] = vi[:, up] - r[level] * b - x[level] * a
    loss = (r * (ir.square() + ii.square()))[:, 1:].sum(1)
    magnitude = torch.hypot(vr, vi)
    return magnitude, loss, (magnitude < 0.95).sum(1), torch.hypot(ir, ii).amax(0)


def feeders(place: Place) -> Made:
    cases, depth = place.size(64, 2048), place.size(6, 9)
    nodes = 2**depth - 1
    parent = (torch.arange(nodes, device=place.device) - 1).clamp(min=0) // 2
    levels = [torch.arange(2**d - 1, 2 ** (d + 1) - 1, device=place.device) for d in range(1, depth)]
    load = place.rand(cases, nodes, 2) * (2.4 / nodes)
    return feeder_sweeps, (parent, levels, load, 0.02 + 0.04 * place.rand(nodes, 2), 3)


def swing_after_fault(
    angle: Tensor, power: Tensor, inertia: Tensor, healthy: Tensor, faulted: Tensor, clearing: Tensor, steps: int
) -> tuple[Tensor, ...]:
    """Classical generators after a short circuit, by Runge and Kutta: which times of clearing keep them together."""
    dt, damping = 0.01, 0.05

    def change(d: Tensor, w: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        flow = (k * torch.sin(d[:, :, None] - d[:, None, :])).sum(2)
        return 2 * math.pi * 50 * w, (power - flow - damping * w) / (2 * inertia)

    d, w = angle.clone(), torch.zeros_like(angle)
    widest = torch.zeros_like(clearing)
    energy = []
    for step in range(steps):
        on = torch.sigmoid((clearing - step * dt) / (0.1 * dt))[:, None, None]
        k = on * faulted + (1 - on) * healthy
        a1, b1 = change(d, w, k)
        a2, b2 = change(d + dt / 2 * a1, w + dt / 2 * b1, k)
        a3, b3 = change(d + dt / 2 * a2, w + dt / 2 * b2, k)
        a4, b4 = change(d + dt * a3, w + dt * b3, k)
        d = d + dt / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
        w = w + dt / 6 * (b1 + 2 * b2 + 2 * b3 + b4)
        centre = (inertia * d).sum(1, keepdim=True) / inertia.sum()
        widest = torch.maximum(widest, (d - centre).abs().amax(1))
        energy.append((inertia * w.square()).sum(1))
    return d - centre, w, widest, torch.stack(energy, 1)


def swings(place: Place) -> Made:
    cases, n = place.size(40, 4096), place.size(10, 24)
    healthy = 4 * place.rand(n, n) / n
    healthy = healthy + healthy.t()
    power = 0.3 * place.randn(n)
    state = (0.1 * place.randn(cases, n), power - power.mean(), 3 + 4 * place.rand(n))
    return swing_after_fault, (*state, healthy, 0.3 * healthy, 0.05 + 0.2 * place.rand(cases), 20)


def economic_dispatch(demand: Tensor, cost: Tensor, limits: Tensor, loss: Tensor, rounds: int) -> tuple[Tensor, ...]:
    """Equal incremental costs: the price by bisection on what clamped units give, losses by penalty factors."""
    a, b = cost.unbind(-1)
    low, high = limits.unbind(-1)
    given = torch.zeros_like(demand[:, None] + a)
    for _ in range(2):
        penalty = 1 / (1 - 2 * loss * given).clamp(min=0.5)
        lost = (loss * given.square()).sum(1)
        under, over = torch.zeros_like(demand), torch.full_like(demand, 200.0)
        for _ in range(rounds):
            price = 0.5 * (under + over)
            given = ((price[:, None] / penalty - b) / (2 * a)).clamp(low, high)
            short = given.sum(1) < demand + lost
            under = torch.where(short, price, under)
            over = torch.where(short, over, price)
    spare = (high - given).clamp(max=0.2 * high).sum(1)
    paid = (a * given.square() + b * given).sum(1)
    return price, given, paid, spare, lost


def dispatch(place: Place) -> Made:
    hours, units = place.size(300, 50_000), place.size(24, 48)
    cost = torch.stack([0.02 + 0.1 * place.rand(units), 10 + 20 * place.rand(units)], 1)
    limits = torch.stack([10 * place.rand(units), 50 + 100 * place.rand(units)], 1)
    demand = units * (30 + 30 * place.rand(hours))
    return economic_dispatch, (demand, cost, limits, 2e-4 * place.rand(units), 22)


def unit_commitment(
    price: Tensor, cost: Tensor, most: Tensor, least: Tensor, start: Tensor, demand: Tensor, up: int, down: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Lagrangian relaxation: each unit's hours on or off by dynamic programming over how long it has been so."""
    hours = price.size(1)
    states = up + down
    on = torch.arange(states, device=price.device) < up
    for _ in range(2):
        profit = (price[:, None] - cost[None, :, None]).clamp(min=0) * most[:, None]
        profit = torch.maximum(profit, (price[:, None] - cost[None, :, None]) * least[:, None])
        value = torch.zeros(*profit.shape[:2], states, dtype=price.dtype, device=price.device)
        turns = []
        for hour in reversed(range(hours)):
            gain = torch.where(on, profit[:, :, hour, None], 0.0) + value
            stay = torch.cat([gain[..., 1:up], gain[..., up - 1 : up], gain[..., up + 1 :], gain[..., -1:]], -1)
            turn = torch.full_like(stay, -1e9)
            turn[..., up - 1] = gain[..., up]
            turn[..., -1] = gain[..., 0] - start
            turns.append(turn > stay)
            value = torch.maximum(stay, turn)
        state = torch.full_like(value[..., 0], states - 1, dtype=torch.int64)
        running = []
        for switch in reversed(turns):
            go = switch.gather(2, state[..., None])[..., 0]
            ahead = torch.where(state == up - 1, state, torch.where(state == states - 1, state, state + 1))
            state = torch.where(go, torch.where(state < up, up, 0), ahead)
            running.append(state < up)
        runs = torch.stack(running, 2)
        supply = (runs * torch.where(price[:, None] > cost[:, None], most[:, None], least[:, None])).sum(1)
        price = (64 * (price + 0.02 * (demand - supply) / most.mean())).round().clamp(0, 6400) / 64
    return runs, value[..., -1], price


def commitment(place: Place) -> Made:
    days, units, hours = place.size(12, 512), place.size(20, 64), 24
    wave = torch.sin(torch.arange(hours, device=place.device) / 4)
    price = (64 * (30 + 8 * wave + 5 * place.rand(days, hours))).round() / 64
    most = 50 + 5.0 * place.randint(20, units)
    demand = ((0.5 + 0.2 * place.rand(days, hours)) * most.sum()).round()
    cost, start = 20 + place.randint(160, units) / 8, 500.0 + place.randint(1000, units)
    return unit_commitment, (price, cost, most, 2 * (most / 5), start, demand, 5, 4)


def battery_arbitrage(price: Tensor, rate: Tensor, levels: int, moves: int) -> tuple[Tensor, Tensor, Tensor]:
    """Dynamic programming over states of charge between which values are interpolated; then the best day forward."""
    sites, hours = price.shape
    charge = torch.linspace(0, 1, levels, dtype=price.dtype, device=price.device)
    action = torch.linspace(-1, 1, moves, dtype=price.dtype, device=price.device) * rate[:, None]
    target = charge[None, :, None] + action[:, None]
    allowed = (target >= -1e-4) & (target <= 1 + 1e-4)
    position = (target.clamp(0, 1) * (levels - 1)).flatten(1)
    low = position.floor().clamp(max=levels - 2)
    part, index = (position - low), low.long()
    bought = torch.where(action > 0, action / 0.95, action * 0.95)
    wear = 2.0 * action.square()
    value = (20.0 * charge).expand(sites, -1)
    values = []
    for hour in reversed(range(hours)):
        ahead = torch.lerp(value.gather(1, index), value.gather(1, index + 1), part).view_as(target)
        gain = ahead - (price[:, hour, None] * bought + wear)[:, None]
        value = gain.masked_fill(~allowed, float("-inf")).amax(2)
        values.append(value)
    soft = torch.softmax(gain.masked_fill(~allowed, float("-inf")) / 0.5, 2)
    first = (soft * action[:, None]).sum(2)
    table = torch.stack(values[::-1], 1)
    return table, first, (table[:, :, 1:] - table[:, :, :-1]).mean(2) * (levels - 1)


def batteries(place: Place) -> Made:
    sites, hours, levels, moves = place.size(8, 512), place.size(36, 36), place.size(33, 97), place.size(11, 25)
    wave = torch.sin(torch.arange(hours, device=place.device) / 4)
    return battery_arbitrage, (
        40 + 20 * wave + 15 * place.randn(sites, hours),
        0.1 + 0.2 * place.rand(sites),
        levels,
        moves,
    )


class SolarPanel(nn.Module):
    """The single-diode model fitted to measured curves: currents by Newton's method, cells that warm with the light."""

    def __init__(self, panels: int) -> None:
        super().__init__()
        self.photo = nn.Parameter(8 + 0.2 * torch.randn(panels))
        self.saturation = nn.Parameter(-16 + 0.2 * torch.randn(panels))
        self.series = nn.Parameter(torch.full((panels,), -1.2))
        self.shunt = nn.Parameter(torch.full((panels,), 5.0))
        self.ideality = nn.Parameter(torch.full((panels,), 1.2))

    def forward(self, voltage: Tensor, light: Tensor, air: Tensor, current: Tensor) -> tuple[Tensor, Tensor]:
        kelvin = 273.15 + air + 0.03 * light * 1000 / 800
        thermal = 60 * self.ideality * 8.617e-5 * kelvin
        photo = self.photo * light * (1 + 5e-4 * (kelvin - 298))
        dark = torch.exp(self.saturation + 3 * torch.log(kelvin / 298.15))
        series, shunt = self.series.exp()[:, None], self.shunt.exp()[:, None]
        thermal, photo, dark = thermal[:, None], photo[:, None], dark[:, None]
        i = photo.expand_as(voltage)
        for _ in range(6):
            inner = voltage + i * series
            grown = dark * torch.exp((inner / thermal).clamp(max=30))
            f = photo - grown + dark - inner / shunt - i
            slope = -grown * series / thermal - series / shunt - 1
            i = i - f / slope
        power = i * voltage
        peak = torch.logsumexp(4 * power / 100, 1) * 25
        return (i - current).square().mean(1), 1e-3 * peak


def solar_panels(place: Place) -> Made:
    panels, points = place.size(100, 16_384), place.size(32, 48)
    voltage = torch.linspace(0, 30, points, device=place.device).expand(panels, -1).contiguous()
    light = 0.6 + 0.5 * place.rand(panels)
    measured = 8 * light[:, None] * (1 - torch.exp((voltage - 38) / 3)) + 0.02 * place.randn(panels, points)
    return SolarPanel(panels).to(place.device), (voltage, light, 25 + 10 * place.rand(panels), measured)


class WindFarm(nn.Module):
    """Bastankhah and Porté-Agel, 2014: wakes as bells behind turbines, deficits added, places moved for the energy."""

    def __init__(self, turbines: int, side: float) -> None:
        super().__init__()
        self.position = nn.Parameter(side * torch.rand(turbines, 2))
        self.yaw = nn.Parameter(0.05 * torch.randn(turbines))
        self.side = side

    def forward(self, direction: Tensor, speed: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
        c, s = direction.cos()[:, None], direction.sin()[:, None]
        x, y = self.position.unbind(1)
        along, across = c * x + s * y, c * y - s * x
        dx = along[:, :, None] - along[:, None]
        thrust = 0.8 * self.yaw.cos().square()
        behind = torch.sigmoid(4 * (dx - 1))
        width = 0.03 * dx.clamp(min=0) + 0.25 * torch.sqrt((1 + 1 / torch.sqrt(1 - thrust)) / 2)
        bent = 0.3 * self.yaw * torch.log1p(dx.clamp(min=0))
        dy = across[:, :, None] - across[:, None] - bent
        core = 1 - torch.sqrt((1 - thrust / (8 * width.square())).clamp(min=1e-3))
        deficit = behind * core * torch.exp(-dy.square() / (2 * width.square()))
        wind = speed[:, None] * (1 - deficit.square().sum(2).clamp(min=1e-9).sqrt()).clamp(min=0.1)
        power = torch.sigmoid((wind - 9) * 0.8) * self.yaw.cos().pow(1.88)
        square = (x[:, None] - x).square() + (y[:, None] - y).square()
        gap = torch.sqrt(square + 1e3 * torch.eye(len(x), device=x.device))
        close = F.relu(4 - gap).square().sum(1)
        outside = F.relu(self.position.abs() - self.side).square().sum(1)
        return -(chance[:, None] * power) * len(chance), close + outside


def wind_farm(place: Place) -> Made:
    turbines, cases = place.size(32, 128), place.size(36, 360)
    chance = place.rand(cases)
    directions = torch.arange(cases, device=place.device) * (2 * math.pi / cases)
    model = WindFarm(turbines, 50.0).to(place.device)
    return model, (directions, 6 + 6 * place.rand(cases), chance / chance.sum())


class FlowProxy(nn.Module):
    """Learnt optimal power flow: a network proposes outputs, the grid's equations and limits are penalties."""

    def __init__(self, buses: int, units: int, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(buses, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.share, self.dual = nn.Linear(width, units), nn.Linear(width, 1)

    def forward(
        self, load: Tensor, where: Tensor, ends: Tensor, factors: Tensor, limit: Tensor, most: Tensor, cost: Tensor
    ) -> tuple[Tensor, Tensor]:
        h = self.body(load - load.mean(1, keepdim=True))
        given = most * torch.sigmoid(self.share(h))
        missing = load.sum(1, keepdim=True) - given.sum(1, keepdim=True)
        room = torch.where(missing > 0, most - given, given)
        given = given + missing * room / room.sum(1, keepdim=True).clamp(min=1e-3)
        net = (-load).index_add(1, where, given)
        flow = net @ factors.t()
        over = F.relu(flow.abs() - limit)
        price = F.softplus(self.dual(h)) - (torch.sign(flow) * over) @ factors
        spread = (price[:, ends[0]] - price[:, ends[1]]).abs().mean(1)
        paid = (cost[0] * given.square() + cost[1] * given).sum(1)
        return paid + 10 * over.square().sum(1), 0.1 * spread


def power_flow_proxy(place: Place) -> Made:
    b, buses, units = place.size(128, 2048), place.size(60, 600), place.size(12, 120)
    lines, width = 2 * buses, place.size(64, 512)
    grid = (place.randint(buses, units), place.randint(buses, 2, lines), 0.2 * place.randn(lines, buses))
    model = FlowProxy(buses, units, width).to(place.device)
    limits = (0.3 + 0.5 * place.rand(lines), buses / units * (0.8 + 0.8 * place.rand(units)))
    return model, (place.rand(b, buses), *grid, *limits, 0.1 + place.rand(2, units))


class ApplianceWindows(nn.Module):
    """Zhang et al., 2018: a house's meter to one appliance: windows, convolutions, gates, energy of days."""

    def __init__(self, window: int, width: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 9, padding=4)
        self.body = nn.Sequential(
            nn.Conv1d(width, width, 7, padding=3), nn.ReLU(), nn.Conv1d(width, 2 * width, 5, stride=2)
        )
        self.power, self.gate = nn.Linear(2 * width, 1), nn.Linear(2 * width, 1)
        self.window = window

    def forward(self, total: Tensor, appliance: Tensor) -> tuple[Tensor, Tensor]:
        mean, deviation = total.mean(1, keepdim=True), total.std(1, keepdim=True)
        x = ((total - mean) / (deviation + 1e-3)).unfold(1, self.window, 4)
        batch, count, _ = x.shape
        h = F.relu(self.first(x.reshape(batch * count, 1, -1)))
        h = F.relu(self.body(h)).amax(2).view(batch, count, -1)
        gate = self.gate(h).squeeze(2)
        watts = F.softplus(self.power(h).squeeze(2)) * torch.sigmoid(gate)
        target = appliance.unfold(1, self.window, 4)[..., self.window // 2]
        on = (target > 0.5).to(gate.dtype)
        point = F.smooth_l1_loss(watts, target, reduction="none")
        crossed = F.binary_cross_entropy_with_logits(gate, on, reduction="none", pos_weight=gate.new_tensor(3.0))
        daily = (watts.unflatten(1, (-1, 8)).sum(2) - target.unflatten(1, (-1, 8)).sum(2)).abs()
        return point + 0.3 * crossed, 0.05 * daily


def appliances(place: Place) -> Made:
    b, window, count, width = place.size(4, 64), place.size(32, 64), place.size(32, 128), place.size(8, 24)
    length = window + 4 * (count - 1)
    appliance = 2 * (F.avg_pool1d(place.randn(b, 1, length + 20), 21, 1)[:, 0] > 0.15).float() * place.rand(b, length)
    return ApplianceWindows(window, width).to(place.device), (appliance + place.rand(b, length), appliance)


class WarmHouses(nn.Module):
    """Grey-box buildings: walls and rooms as resistors and stores, a soft thermostat, heat pumps by weather."""

    def __init__(self, houses: int) -> None:
        super().__init__()
        self.conductance = nn.Parameter(torch.tensor([-1.5, -0.7, -2.5]) + 0.1 * torch.randn(houses, 3))
        self.store = nn.Parameter(torch.tensor([0.3, 2.0]) + 0.1 * torch.randn(houses, 2))
        self.window = nn.Parameter(0.1 * torch.randn(houses))
        self.heater = nn.Parameter(torch.full((houses,), 1.6))

    def forward(self, outside: Tensor, sun: Tensor, setting: Tensor, measured: Tensor) -> tuple[Tensor, Tensor]:
        to_wall, to_air, leak = self.conductance.exp().unbind(1)
        room_store, wall_store = self.store.exp().unbind(1)
        room, wall = measured[:, 0], 0.5 * (measured[:, 0] + outside[:, 0])
        rooms, used = [], []
        on = torch.zeros_like(room)
        for t in range(outside.size(1)):
            out = outside[:, t]
            on = 0.3 * on + 0.7 * torch.sigmoid(3 * (setting[:, t] - room))
            performance = (2.5 + 0.08 * out).clamp(1.2, 4.5)
            heat = self.heater.exp() * on
            gain = F.softplus(self.window) * sun[:, t]
            room = room + 0.25 / room_store * (to_wall * (wall - room) + leak * (out - room) + heat + gain)
            wall = wall + 0.25 / wall_store * (to_wall * (room - wall) + to_air * (out - wall) + 0.5 * gain)
            rooms.append(room)
            used.append(heat / performance)
        off = torch.stack(rooms, 1) - measured
        return F.huber_loss(off, torch.zeros_like(off), reduction="none"), 0.01 * torch.stack(used, 1)


def warm_houses(place: Place) -> Made:
    houses, t = place.size(200, 200_000), place.size(48, 24)
    outside = 5 + 4 * torch.sin(torch.arange(t, device=place.device) / 8) + place.randn(houses, t)
    setting = 18 + 3.0 * place.randint(2, houses, t)
    return WarmHouses(houses).to(place.device), (outside, place.rand(houses, t), setting, 19 + place.randn(houses, t))


ROWS: tuple[Row, ...] = (
    Row("program/feeder_sweeps", feeders),
    Row("program/swing_after_fault", swings),
    Row("program/economic_dispatch", dispatch),
    Row("program/unit_commitment", commitment),
    Row("program/battery_arbitrage", batteries),
    Row("program/solar_panel_curves", solar_panels, "training"),
    Row("program/wind_farm_wakes", wind_farm, "training"),
    Row("program/power_flow_proxy", power_flow_proxy, "training"),
    Row("program/appliance_windows", appliances, "training"),
    Row("program/warm_houses", warm_houses, "training"),
)
