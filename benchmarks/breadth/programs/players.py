"""Players and pupils: ratings, goals, control of a pitch and worth of its zones; answers, mastery, forgetting."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class EloSeason(nn.Module):
    """Elo's ratings through a season, as FiveThirtyEight keeps them: home ground, margins, a learnt speed."""

    def __init__(self, teams: int) -> None:
        super().__init__()
        self.start = nn.Parameter(0.1 * torch.randn(teams))
        self.speed = nn.Parameter(torch.tensor(-2.5))
        self.home = nn.Parameter(torch.tensor(0.15))
        self.margin = nn.Parameter(torch.tensor(0.5))

    def forward(self, home: Tensor, away: Tensor, margin: Tensor) -> tuple[Tensor, Tensor]:
        rating = self.start.expand(home.size(0), -1)
        speed = F.softplus(self.speed)
        losses = []
        for day in range(home.size(1)):
            i, j = home[:, day], away[:, day]
            gap = rating.gather(1, i) - rating.gather(1, j) + self.home
            m = margin[:, day]
            won = (torch.sign(m) + 1) / 2
            losses.append(F.binary_cross_entropy_with_logits(2.3 * gap, won, reduction="none").mean(1))
            surprise = won - torch.sigmoid(2.3 * gap)
            times = torch.log1p(m.abs()) * self.margin / (1 + 0.4 * gap * torch.sign(m)).clamp(min=0.3)
            change = speed * times * surprise
            rating = rating.scatter_add(1, i, change).scatter_add(1, j, -change)
            rating = rating - 0.01 * (rating - rating.mean(1, keepdim=True))
        return torch.stack(losses, 1), rating.std(1)


def elo_season(place: Place) -> Made:
    leagues, teams, days = place.size(40, 4096), place.size(20, 64), place.size(24, 24)
    pairs = torch.rand(leagues, days, teams).argsort(2).to(place.device)
    margin = place.randint(9, leagues, days, teams // 2).float() - 4
    return EloSeason(teams).to(place.device), (pairs[..., : teams // 2], pairs[..., teams // 2 :], margin)


def glicko_period(rating: Tensor, deviation: Tensor, volatility: Tensor, opponent: Tensor, score: Tensor) -> tuple:
    """Glickman, 2013 (Glicko-2): a period's games of everybody, volatilities by Newton's method on logarithms."""
    played = opponent >= 0
    other = opponent.clamp(min=0)
    mu, phi = (rating - 1500) / 173.7178, deviation / 173.7178
    g = 1 / torch.sqrt(1 + 3 * phi[other].square() / math.pi**2)
    expected = torch.sigmoid(g * (mu[:, None] - mu[other]))
    v = 1 / (played * g * g * expected * (1 - expected)).sum(1).clamp(min=1e-4)
    gain = (played * g * (score - expected)).sum(1)
    delta = v * gain
    a = volatility.square().log()
    x = a.clone()
    for _ in range(6):
        e = x.exp()
        d = phi.square() + v + e
        top = delta.square() - d
        f = e * top / (2 * d.square()) - (x - a) / 0.25
        slope = e * (top - e) / (2 * d.square()) - e * e * top / d.pow(3) - 4
        x = x - (f / slope).clamp(-1, 1)
    sigma = torch.where(played.any(1), (x / 2).exp(), volatility)
    wide = phi.square() + sigma.square()
    phi = torch.where(played.any(1), 1 / torch.sqrt(1 / wide + 1 / v), wide.sqrt())
    mu = mu + phi.square() * gain
    return 173.7178 * mu + 1500, (173.7178 * phi).clamp(max=350), sigma


def glicko(place: Place) -> Made:
    n, games = place.size(4000, 300_000), 12
    opponent = place.randint(n, n, games)
    opponent[place.rand(n, games) < 0.3] = -1
    state = (1500 + 200 * place.randn(n), 50 + 200 * place.rand(n), 0.04 + 0.04 * place.rand(n))
    return glicko_period, (*state, opponent, place.randint(3, n, games) / 2)


def true_skill(mean: Tensor, variance: Tensor, teams: Tensor, drawn: Tensor, beta: float, margin: float) -> tuple:
    """Herbrich et al., 2006 (TrueSkill): games of two teams one after the other, truncated normals matched."""
    rows = torch.arange(mean.size(0), device=mean.device)[:, None, None]
    size = teams.size(-1)
    mean, variance = mean.clone(), variance.clone()
    evidence = torch.zeros_like(mean[:, 0])

    def cdf(x: Tensor) -> Tensor:
        return 0.5 * torch.erfc(-x / math.sqrt(2))

    def pdf(x: Tensor) -> Tensor:
        return torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)

    for game in range(teams.size(1)):
        who = teams[:, game]
        variance += 0.0005
        m, s = mean[rows, who], variance[rows, who]
        c2 = s.sum((1, 2)) + 2 * size * beta**2
        c = c2.sqrt()
        t, e = (m[:, 0].sum(1) - m[:, 1].sum(1)) / c, margin / c
        won = cdf(t - e).clamp(min=1e-5)
        v_win = pdf(t - e) / won
        w_win = v_win * (v_win + t - e)
        even = (cdf(e - t) - cdf(-e - t)).clamp(min=1e-4)
        v_draw = (pdf(-e - t) - pdf(e - t)) / even
        w_draw = v_draw.square() + ((e - t) * pdf(e - t) + (e + t) * pdf(e + t)) / even
        v, w = torch.where(drawn[:, game], v_draw, v_win), torch.where(drawn[:, game], w_draw, w_win)
        sign = torch.tensor([1.0, -1.0], dtype=m.dtype, device=m.device)[:, None]
        mean[rows, who] = m + sign * (s * (v / c)[:, None, None])
        variance[rows, who] = s * (1 - s * (w.clamp(0, 1) / c2)[:, None, None]).clamp(min=0.01)
        evidence += torch.where(drawn[:, game], even, won).log()
    return mean, variance.sqrt(), evidence, (mean - 3 * variance.sqrt()).argmax(1)


def skills(place: Place) -> Made:
    leagues, players, games = place.size(64, 16_384), place.size(32, 64), place.size(40, 24)
    teams = torch.rand(leagues, games, players).argsort(2)[..., :8].reshape(leagues, games, 2, 4).to(place.device)
    prior = (1 + 0.3 * place.randn(leagues, players), 0.1 + 0.1 * place.rand(leagues, players))
    return true_skill, (*prior, teams, place.rand(leagues, games) < 0.2, 0.5, 0.2)


class GoalModel(nn.Module):
    """Dixon and Coles, 1997: attack and defence, few goals corrected, old matches fade; tables of final scores."""

    def __init__(self, teams: int) -> None:
        super().__init__()
        self.attack, self.defence = nn.Parameter(0.1 * torch.randn(teams)), nn.Parameter(0.1 * torch.randn(teams))
        self.home, self.rho = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.tensor(-0.1))

    def forward(self, home: Tensor, away: Tensor, goals: Tensor, age: Tensor) -> tuple[Tensor, Tensor]:
        attack = self.attack - self.attack.mean()
        a = torch.exp(self.home + attack[home] - self.defence[away])
        b = torch.exp(attack[away] - self.defence[home])
        k = torch.arange(9, dtype=a.dtype, device=a.device)
        log_a = k * a.log()[:, None] - a[:, None] - torch.lgamma(k + 1)
        log_b = k * b.log()[:, None] - b[:, None] - torch.lgamma(k + 1)
        table = (log_a[:, :, None] + log_b[:, None]).exp()
        tau = torch.ones_like(table)
        tau[:, 0, 0] = 1 - a * b * self.rho
        tau[:, 0, 1] = 1 + a * self.rho
        tau[:, 1, 0] = 1 + b * self.rho
        tau[:, 1, 1] = 1 - self.rho
        table = table * tau.clamp(min=1e-3)
        table = table / table.sum((1, 2), keepdim=True)
        seen = table[torch.arange(len(home), device=home.device), goals[:, 0], goals[:, 1]]
        outcome = torch.stack([table.tril(-1).sum((1, 2)), table.triu(1).sum((1, 2))], 1)
        result = torch.stack([goals[:, 0] > goals[:, 1], goals[:, 0] < goals[:, 1]], 1)
        return -torch.exp(-0.0065 * age) * seen.log(), (outcome - result.to(outcome.dtype)).square().sum(1)


def goals(place: Place) -> Made:
    n, teams = place.size(1200, 60_000), place.size(60, 2000)
    scores = (place.rand(n, 2).square() * 6).long()
    return GoalModel(teams).to(place.device), (
        place.randint(teams, n),
        place.randint(teams, n),
        scores,
        400 * place.rand(n),
    )


def pitch_control(place_of: Tensor, speed: Tensor, ball: Tensor, targets: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Spearman, 2018: who would get to a ball played anywhere: arrival times, then control gained step by step."""
    reaction, top = 0.7, 5.0
    after = place_of + reaction * speed
    arrival = reaction + torch.linalg.vector_norm(targets[:, None] - after[:, :, None], dim=-1) / top
    flight = torch.linalg.vector_norm(targets - ball[:, None], dim=-1) / 15
    own = torch.zeros_like(arrival)
    players = arrival.size(1)
    home = torch.arange(players, device=ball.device) < players // 2
    strength = torch.where(home, 4.3, 4.3 * 1.72)[:, None].to(arrival.dtype)
    dt = 0.08
    for step in range(steps):
        t = flight + step * dt
        free = 1 - own.sum(1)
        near = torch.sigmoid(math.pi / math.sqrt(3) / 0.45 * (t[:, None] - arrival))
        own = own + free.clamp(min=0)[:, None] * near * strength * dt * (1 - 0.5 * strength * dt * near)
        own = own / own.sum(1, keepdim=True).clamp(min=1)
    ours = own[:, home].sum(1)
    worth = ours * torch.exp(-0.02 * torch.linalg.vector_norm(targets - targets.amax(1, keepdim=True), dim=-1))
    return ours, torch.cat([own.mean(2), worth.amax(1, keepdim=True)], 1)


def control(place: Place) -> Made:
    frames, x, y = place.size(2, 48), place.size(26, 52), place.size(17, 34)
    field = torch.tensor([105.0, 68.0], device=place.device)
    grid = torch.cartesian_prod(torch.linspace(0, 105, x), torch.linspace(0, 68, y)).to(place.device)
    players = (place.rand(frames, 22, 2) * field, 2 * place.randn(frames, 22, 2), place.rand(frames, 2) * field)
    return pitch_control, (*players, grid.expand(frames, -1, -1).contiguous(), place.size(24, 30))


def expected_threat(
    start: Tensor, end: Tensor, kind: Tensor, done: Tensor, shape: tuple[int, int], rounds: int
) -> tuple:
    """Singh, 2019: worth of zones by what is done from them: events counted to chances, then value iteration."""
    zones = shape[0] * shape[1]
    size = start.new_tensor(shape)

    def zone(p: Tensor) -> Tensor:
        cell = (p * size).long().clamp(min=0)
        return cell[..., 0].clamp(max=shape[0] - 1) * shape[1] + cell[..., 1].clamp(max=shape[1] - 1)

    teams = start.size(0)
    a, b = zone(start), zone(end)
    one = torch.ones_like(start[..., 0])
    shots = one.new_zeros(teams, zones).scatter_add_(1, a, one * (kind == 1))
    scored = one.new_zeros(teams, zones).scatter_add_(1, a, one * ((kind == 1) & done))
    moves = one.new_zeros(teams, zones).scatter_add_(1, a, one * (kind == 0))
    passed = one.new_zeros(teams, zones * zones)
    passed.scatter_add_(1, a * zones + b, one * ((kind == 0) & done))
    transition = passed.view(teams, zones, zones) / moves.clamp(min=1)[..., None]
    total = (shots + moves).clamp(min=1)
    goal = (scored + 0.5) / (shots + 5)
    threat = torch.zeros_like(shots)
    for _ in range(rounds):
        threat = shots / total * goal + moves / total * torch.bmm(transition, threat[..., None])[..., 0]
    added = (threat.gather(1, b) - threat.gather(1, a)) * (done & (kind == 0))
    return threat.unflatten(1, shape), added, added.clamp(min=0).sum(1)


def threat(place: Place) -> Made:
    teams, events, shape = place.size(8, 64), place.size(6000, 60_000), (place.size(16, 32), place.size(8, 16))
    start, end = place.rand(teams, events, 2), place.rand(teams, events, 2)
    kind = (place.rand(teams, events) < 0.1 * start[..., 0]).long()
    return expected_threat, (start, end, kind, place.rand(teams, events) < 0.8 - 0.3 * end[..., 0], shape, 6)


class KnowledgeMemory(nn.Module):
    """Zhang et al., 2017 (DKVMN): exercises address concepts, whose values are erased and added to by answers."""

    def __init__(self, exercises: int, concepts: int, width: int) -> None:
        super().__init__()
        self.exercise, self.answer = nn.Embedding(exercises, width), nn.Embedding(2 * exercises, width)
        self.keys = nn.Parameter(torch.randn(concepts, width))
        self.values = nn.Parameter(0.1 * torch.randn(concepts, width))
        self.erase, self.add = nn.Linear(width, width), nn.Linear(width, width)
        self.read, self.out = nn.Linear(2 * width, width), nn.Linear(width, 1)

    def forward(self, exercise: Tensor, right: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        q = self.exercise(exercise)
        v = self.answer(exercise + right.long() * self.exercise.num_embeddings)
        weight = (q @ self.keys.t() * q.size(-1) ** -0.5).softmax(-1)
        erase, add = torch.sigmoid(self.erase(v)), torch.tanh(self.add(v))
        memory = self.values.expand(len(q), -1, -1)
        reads = []
        for t in range(q.size(1)):
            w = weight[:, t, :, None]
            reads.append((w * memory).sum(1))
            memory = memory * (1 - w * erase[:, t, None]) + w * add[:, t, None]
        h = torch.tanh(self.read(torch.cat([torch.stack(reads, 1), q], -1)))
        logit = self.out(h).squeeze(-1)
        inside = torch.arange(q.size(1), device=q.device) < length[:, None]
        loss = F.binary_cross_entropy_with_logits(logit, right, reduction="none") * inside
        return loss.sum(1) / length, torch.sigmoid(logit.detach())


def knowledge_memory(place: Place) -> Made:
    b, t, width = place.size(16, 256), place.size(24, 48), place.size(32, 128)
    model = KnowledgeMemory(place.size(200, 10_000), place.size(12, 24), width).to(place.device)
    n = model.exercise.num_embeddings
    return model, (place.randint(n, b, t), place.randint(2, b, t).float(), 1 + place.randint(t, b))


class MasteryTracing(nn.Module):
    """Corbett and Anderson, 1994 (BKT): known or not, guesses and slips, chances of learning by skill; each forward."""

    def __init__(self, skills: int, students: int) -> None:
        super().__init__()
        self.skill = nn.Parameter(torch.tensor([-1.0, -2.0, -1.5, -2.0, -4.0]) + 0.3 * torch.randn(skills, 5))
        self.student = nn.Parameter(0.1 * torch.randn(students))

    def forward(self, skill: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows = torch.arange(len(skill), device=skill.device)
        shift = self.student.new_tensor([1.0, 1.0, 0.0, 0.0, 0.0])
        chance = torch.sigmoid(self.skill[None] + self.student[:, None, None] * shift)
        known, learn, guess, slip, forget = chance.unbind(-1)
        steps, after = [], known
        for t in range(skill.size(1)):
            s = skill[:, t]
            k = after[rows, s]
            g, e = 0.5 * guess[rows, s], 0.5 * slip[rows, s]
            p = k * (1 - e) + (1 - k) * g
            steps.append(p)
            posterior = torch.where(right[:, t] > 0, k * (1 - e) / p, k * e / (1 - p))
            moved = posterior * (1 - forget[rows, s]) + (1 - posterior) * learn[rows, s]
            after = after.scatter(1, s[:, None], moved[:, None])
        p = torch.stack(steps, 1).clamp(1e-4, 1 - 1e-4)
        return -(right * p.log() + (1 - right) * (1 - p).log()), after.detach(), (after > 0.95).sum(1)


def mastery(place: Place) -> Made:
    students, skills, t = place.size(400, 60_000), 8, place.size(30, 24)
    model = MasteryTracing(skills, students).to(place.device)
    return model, (place.randint(skills, students, t), (place.rand(students, t) < 0.6).float())


class GradedResponses(nn.Module):
    """Samejima, 1969: graded answers, abilities integrated by Gauss and Hermite's nodes (Bock and Aitkin, 1981)."""

    def __init__(self, items: int, grades: int, nodes: Tensor, weights: Tensor) -> None:
        super().__init__()
        self.slope = nn.Parameter(0.2 * torch.randn(items))
        self.first = nn.Parameter(-1 + 0.3 * torch.randn(items))
        self.gaps = nn.Parameter(0.3 * torch.randn(items, grades - 2))
        self.register_buffer("nodes", nodes)
        self.register_buffer("log_weights", weights.log())

    def forward(self, answers: Tensor) -> tuple[Tensor, Tensor]:
        nodes = self.get_buffer("nodes")
        cuts = torch.cat([self.first[:, None], F.softplus(self.gaps)], 1).cumsum(1)
        at_least = torch.sigmoid(self.slope.exp()[:, None, None] * (nodes[:, None] - cuts[:, None]))
        at_least = F.pad(F.pad(at_least, (1, 0), value=1.0), (0, 1), value=0.0)
        log_p = (at_least[..., :-1] - at_least[..., 1:]).clamp(min=1e-6).log()
        items = torch.arange(answers.size(1), device=answers.device)
        missing = answers < 0
        chosen = log_p.transpose(1, 2)[items, answers.clamp(min=0)].masked_fill(missing[..., None], 0.0)
        joint = chosen.sum(1) + self.get_buffer("log_weights")
        ability = (joint.softmax(1) * nodes).sum(1)
        return -torch.logsumexp(joint, 1), ability.detach()


def graded_responses(place: Place) -> Made:
    people, items = place.size(400, 20_000), place.size(20, 60)
    nodes = torch.linspace(-4, 4, 21)
    weights = torch.exp(-nodes.square() / 2)
    answers = place.randint(6, people, items) - 1
    return GradedResponses(items, 5, nodes, weights / weights.sum()).to(place.device), (answers,)


class SpacedRepetition(nn.Module):
    """Ye, 2023 (FSRS): difficulty and stability of cards through reviews, forgetting by a power of the time gone."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.tensor([0.4, 1.2, 3.1, 15.0]))
        start = [7.2, 0.53, 1.06, 0.023, 1.62, 0.15, 1.0, 1.9, 0.11, 0.29, 2.27, 0.23, 2.9]
        self.w = nn.Parameter(torch.tensor(start))

    def forward(self, gap: Tensor, grade: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        w = self.w
        s = self.first[grade[:, 0]].clamp(min=0.1)
        d = (w[0] - torch.exp(w[1] * grade[:, 0]) + 1).clamp(1, 10)
        easiest = w[0] - torch.exp(w[1] * 3) + 1
        losses = []
        for t in range(1, gap.size(1)):
            g = grade[:, t].to(s.dtype)
            r = (1 + 19 / 81 * gap[:, t] / s).pow(-0.5)
            recalled = (grade[:, t] > 0).to(s.dtype)
            loss = F.binary_cross_entropy(r.clamp(1e-4, 1 - 1e-4), recalled, reduction="none")
            losses.append(loss * (t < length))
            hard, easy = torch.where(g == 1, w[11], 1.0), torch.where(g == 3, w[12], 1.0)
            growth = torch.exp(w[4]) * (11 - d) * s.pow(-w[5]) * (torch.exp(w[6] * (1 - r)) - 1) * hard * easy
            lapse = w[7] * d.pow(-w[8]) * ((s + 1).pow(w[9]) - 1) * torch.exp(w[10] * (1 - r))
            s = torch.where(recalled > 0, s * (1 + growth), torch.minimum(lapse, s)).clamp(0.01, 3650)
            change = -w[2] * (g - 2) * (10 - d) / 9
            d = (w[3] * easiest + (1 - w[3]) * (d + change)).clamp(1, 10)
        due = s.detach() * 81 / 19 * (0.9**-2 - 1)
        return torch.stack(losses, 1).sum(1) / (length - 1), due


def spaced_repetition(place: Place) -> Made:
    cards, reviews = place.size(2000, 500_000), place.size(12, 12)
    grade = place.randint(4, cards, reviews)
    gaps = 1 + place.randint(30, cards, reviews).float()
    return SpacedRepetition().to(place.device), (gaps, grade, 2 + place.randint(reviews - 1, cards))


ROWS: tuple[Row, ...] = (
    Row("program/elo_season", elo_season, "training"),
    Row("program/glicko_rating_period", glicko),
    Row("program/true_skill_leagues", skills),
    Row("program/dixon_coles_goals", goals, "training"),
    Row("program/pitch_control", control),
    Row("program/expected_threat", threat),
    Row("program/knowledge_value_memory", knowledge_memory, "training"),
    Row("program/bayesian_knowledge_tracing", mastery, "training"),
    Row("program/graded_responses", graded_responses, "training"),
    Row("program/spaced_repetition", spaced_repetition, "training"),
)
