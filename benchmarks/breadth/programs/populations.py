"""Epidemics, ecology, traffic, evolution: agents and populations that are stepped through time."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class MetapopulationSeir(nn.Module):
    """SEIR by region and age with commuting and contact matrices, Runge-Kutta steps, fitted to reported cases."""

    def __init__(self, regions: int, ages: int) -> None:
        super().__init__()
        self.log_beta = nn.Parameter(torch.full((regions,), -1.5))
        self.contact = nn.Parameter(torch.randn(ages, ages) * 0.1)
        self.travel = nn.Parameter(torch.randn(regions, regions) * 0.1)
        self.reporting = nn.Parameter(torch.zeros(ages))
        self.dispersion = nn.Parameter(torch.tensor(1.0))

    def rates(self, state: Tensor, mixing: Tensor, contacts: Tensor, season: float) -> Tensor:
        s, e, i, _ = state.unbind(0)
        population = state.sum(0)
        prevalence = mixing @ (i / population)
        force = season * self.log_beta.exp()[:, None] * (prevalence @ contacts)
        infection, onset, recovery = force * s, e / 3.0, i / 5.0
        return torch.stack([-infection, infection - onset, onset - recovery, recovery])

    def forward(self, state: Tensor, cases: Tensor) -> tuple[Tensor, Tensor]:
        mixing = (self.travel + 3 * torch.eye(self.travel.size(0), device=state.device)).softmax(-1)
        contacts = F.softplus(self.contact + self.contact.T)
        expected = []
        for day in range(cases.size(0)):
            season = 1 + 0.2 * math.cos(2 * math.pi * day / 365)
            k1 = self.rates(state, mixing, contacts, season)
            k2 = self.rates(state + 0.5 * k1, mixing, contacts, season)
            k3 = self.rates(state + 0.5 * k2, mixing, contacts, season)
            k4 = self.rates(state + k3, mixing, contacts, season)
            new = state + (k1 + 2 * k2 + 2 * k3 + k4) / 6
            expected.append((new[2:].sum(0) - state[2:].sum(0)).clamp(min=1e-3) * torch.sigmoid(self.reporting))
            state = new
        mu, r = torch.stack(expected), F.softplus(self.dispersion)
        log_p = torch.lgamma(cases + r) - torch.lgamma(r) - torch.lgamma(cases + 1)
        log_p = log_p + r * torch.log(r / (r + mu)) + cases * torch.log(mu / (r + mu))
        return -log_p.mean(), mu.sum((1, 2))


def epidemic(place: Place) -> Made:
    regions, ages, days = place.size(64, 1024), 8, 6
    people = 1000 + 500 * place.rand(regions, ages)
    infected = 10 * place.rand(regions, ages)
    zero = torch.zeros_like(people)
    state = torch.stack([people, infected, infected, zero])
    return MetapopulationSeir(regions, ages).to(place.device), (state, 1.0 * place.randint(20, days, regions, ages))


def agents(
    at: Tensor, status: Tensor, timer: Tensor, walk: Tensor, uniforms: Tensor, side: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Agents that wander over a torus and infect who shares their cell; counts by status on each day."""
    counts = []
    for t in range(walk.size(0)):
        at = (at + walk[t] - 1) % side
        cell = at[:, 0] * side + at[:, 1]
        infectious = status == 1
        load = torch.zeros(side * side, dtype=torch.int64, device=at.device)
        load = load.scatter_add(0, cell, infectious.long())
        escape = 0.75 ** load[cell].to(uniforms.dtype)
        caught = (status == 0) & (uniforms[t] > escape)
        timer = torch.where(caught, 4, torch.where(infectious, timer - 1, timer))
        recovered = infectious & (timer <= 0)
        status = torch.where(caught, 1, torch.where(recovered, 2, status))
        counts.append(torch.bincount(status, minlength=3))
    return status, timer, torch.stack(counts)


def wandering(place: Place) -> Made:
    n, side, days = place.size(20_000, 1 << 20), place.size(80, 600), 8
    status = (place.rand(n) < 0.05).long()
    uniforms = (place.randint(997, days, n) + 0.25) / 997
    return agents, (place.randint(side, n, 2), status, 4 * status, place.randint(3, days, n, 2), uniforms, side)


def slime_mould(
    position: Tensor, heading: Tensor, trail: Tensor, turns: Tensor, steps: int = 6
) -> tuple[Tensor, Tensor, Tensor]:
    """Jones' Physarum: sense ahead, left and right, turn, move, deposit; the trail diffuses and decays."""
    side = trail.size(-1)

    def sense(offset: float) -> Tensor:
        angle = heading + offset
        ahead = position + 5.0 * torch.stack([angle.sin(), angle.cos()], dim=-1)
        y, x = (ahead.floor().long() % side).unbind(-1)
        return trail[y, x]

    for step in range(steps):
        left, centre, right = sense(-0.6), sense(0.0), sense(0.6)
        turn = torch.where(right > left, 0.4, -0.4)
        turn = torch.where((centre >= left) & (centre >= right), 0.0, turn)
        lost = (centre < left) & (centre < right)
        heading = heading + torch.where(lost, 0.4 * turns[step], turn)
        position = (position + torch.stack([heading.sin(), heading.cos()], dim=-1)) % side
        y, x = position.long().clamp(max=side - 1).unbind(-1)
        trail = trail.index_put((y, x), torch.ones_like(heading), accumulate=True)
        blurred = F.avg_pool2d(F.pad(trail[None, None], (1, 1, 1, 1), mode="circular"), 3, 1)[0, 0]
        trail = 0.9 * blurred
    return position, heading, trail


def physarum(place: Place) -> Made:
    n, side = place.size(8000, 500_000), place.size(128, 1024)
    position = side * (place.randint(4096, n, 2) + 0.5) / 4096
    turns = (2 * place.randint(2, 6, n) - 1).float()
    return slime_mould, (position, 6.28 * place.rand(n), place.rand(side, side), turns)


def traffic(speed: Tensor, occupied: Tensor, dawdle: Tensor, limit: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Nagel and Schreckenberg's cellular automaton on ring roads: accelerate, brake, dawdle, drive; the flow."""
    roads, length = speed.shape
    flow = torch.zeros(roads, dtype=torch.int64, device=speed.device)
    index = torch.arange(length, device=speed.device).expand(roads, length)
    for t in range(dawdle.size(0)):
        gap = torch.full_like(speed, limit)
        for distance in range(limit, 0, -1):
            gap = torch.where(occupied.roll(-distance, dims=1), distance - 1, gap)
        speed = torch.minimum((speed + 1).clamp(max=limit), gap)
        speed = torch.where(dawdle[t], (speed - 1).clamp(min=0), speed)
        speed = torch.where(occupied, speed, 0)
        target = (index + speed) % length
        moved = torch.zeros_like(speed).scatter_add(1, target, torch.where(occupied, speed + 1, 0))
        flow += speed.sum(1)
        occupied = moved > 0
        speed = (moved - 1).clamp(min=0)
    return speed, occupied, flow


def ring_roads(place: Place) -> Made:
    roads, length, steps = place.size(32, 1024), place.size(400, 1000), 10
    return traffic, (
        torch.zeros(roads, length, dtype=torch.int64, device=place.device),
        place.rand(roads, length) < 0.2,
        place.rand(steps, roads, length) < 0.25,
    )


def rastrigin(x: Tensor) -> Tensor:
    """Many local minima; zero at the origin."""
    return 10 * x.size(-1) + (x**2 - 10 * torch.cos(2 * math.pi * x)).sum(-1)


def genetic_search(
    genes: Tensor, contests: Tensor, mix: Tensor, mutate: Tensor, noise: Tensor, elite: int = 4
) -> tuple[Tensor, Tensor]:
    """A genetic algorithm on islands: tournaments, uniform crossover, mutation, elitism, and migration in a ring."""
    islands = genes.size(0)
    history = []
    island = torch.arange(islands, device=genes.device)[:, None]
    for g in range(contests.size(0)):
        fitness = rastrigin(genes)
        best, order = fitness.topk(elite, dim=1, largest=False)
        history.append(best[:, 0])
        survivors = genes[island, order]
        drawn = fitness[island[:, :, None, None], contests[g]]
        winner = contests[g].gather(-1, drawn.argmin(-1, keepdim=True)).squeeze(-1)
        mother, father = genes[island, winner[..., 0]], genes[island, winner[..., 1]]
        children = torch.where(mix[g], mother, father)
        children = children + torch.where(mutate[g], 0.3 * noise[g], 0.0)
        genes = torch.cat([survivors, children[:, elite:].clamp(-5.12, 5.12)], dim=1)
        genes = torch.cat([genes[:, :-1], survivors[:, :1].roll(1, dims=0)], dim=1)
    return genes, torch.stack(history, dim=1)


def islands(place: Place) -> Made:
    count, size, d, generations = place.size(8, 64), place.size(128, 512), place.size(16, 32), 6
    return genetic_search, (
        10 * place.rand(count, size, d) - 5,
        place.randint(size, generations, count, size, 2, 3),
        place.rand(generations, count, size, d) < 0.5,
        place.rand(generations, count, size, d) < 0.1,
        place.randn(generations, count, size, d),
    )


class FoodWeb(nn.Module):
    """Generalised Lotka and Volterra with saturating predation, adaptive Dormand-Prince-like steps of fixed number."""

    def __init__(self, species: int) -> None:
        super().__init__()
        self.growth = nn.Parameter(0.5 * torch.randn(species))
        self.eats = nn.Parameter(torch.randn(species, species))
        self.handling = nn.Parameter(torch.zeros(species))

    def slope(self, log_n: Tensor) -> Tensor:
        n = log_n.exp()
        attack = F.softplus(self.eats - 1).tril(-1)
        appetite = n @ attack.T
        saturation = 1 + F.softplus(self.handling) * appetite
        eaten = (n / saturation) @ attack
        return self.growth + 0.5 * appetite / saturation - eaten - n

    def forward(self, log_n: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.full_like(log_n[:, :1], 0.1)
        path = []
        for _ in range(observed.size(0)):
            k1 = self.slope(log_n)
            k2 = self.slope(log_n + 0.5 * h * k1)
            k3 = self.slope(log_n + 0.75 * h * k2)
            new = log_n + h * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
            k4 = self.slope(new)
            error = h * (-5 / 72 * k1 + 1 / 12 * k2 + 1 / 9 * k3 - 1 / 8 * k4)
            size = error.detach().abs().amax(-1, keepdim=True).clamp(min=1e-8)
            h = (h * (0.9 * (1e-3 / size) ** (1 / 3)).clamp(0.5, 2.0)).clamp(max=0.3)
            log_n = new
            path.append(new)
        found = torch.stack(path)
        return F.smooth_l1_loss(found, observed), found[-1]


def food_web(place: Place) -> Made:
    batch, species, steps = place.size(64, 4096), place.size(12, 32), 7
    return FoodWeb(species).to(place.device), (0.3 * place.randn(batch, species), place.randn(steps, batch, species))


ROWS: tuple[Row, ...] = (
    Row("program/metapopulation_seir", epidemic, "training"),
    Row("program/wandering_agents", wandering),
    Row("program/slime_mould", physarum),
    Row("program/traffic_automaton", ring_roads),
    Row("program/genetic_islands", islands),
    Row("program/adaptive_food_web", food_web, "training"),
)
