"""Boards and the networks that judge them; searches that evolve; labels and memories that spread on graphs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def four_in_a_row(own: Tensor, other: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Connect four on bits of int64: stones fall, lines by shifts, free threes counted; games end one by one."""

    def line(stones: Tensor) -> Tensor:
        found = torch.zeros_like(stones, dtype=torch.bool)
        for shift in (1, 6, 7, 8):
            pairs = stones & (stones >> shift)
            found |= (pairs & (pairs >> (2 * shift))) != 0
        return found

    winner = torch.zeros_like(own, dtype=torch.int8)
    length = torch.zeros_like(own)
    for ply in range(columns.size(1)):
        going = winner == 0
        column = columns[:, ply]
        taken = own | other
        cell = (taken + (torch.ones_like(own) << (column * 7))) & (torch.full_like(own, 63) << (column * 7))
        cell = torch.where(going, cell & ~taken, 0)
        own = own | cell
        won = line(own) & going & (cell != 0)
        winner = torch.where(won, 1 if ply % 2 == 0 else -1, winner.int()).to(torch.int8)
        length += going & (cell != 0)
        own, other = other, own
    empty = ~(own | other) & 0x0FDFBF7EFDFBF
    threats = torch.zeros_like(own)
    for shift in (6, 7, 8):
        three = own & (own >> shift) & (own >> (2 * shift))
        spots = ((three << (3 * shift)) | (three >> shift)) & empty
        for bit in range(0, 49, 7):
            threats += ((spots >> bit) & 0x3F).ne(0)
    return winner, length, threats


def connect_four(place: Place) -> Made:
    n = place.size(4096, 2_097_152)
    zero = torch.zeros(n, dtype=torch.int64, device=place.device)
    return four_in_a_row, (zero, zero.clone(), place.randint(7, n, 24))


class ChessAccumulator(nn.Module):
    """Stockfish's NNUE in training: bags of features of both sides, the mover first, clipped squares, buckets."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(features + 1, width + 8, padding_idx=features)
        self.bias = nn.Parameter(torch.full((width + 8,), 0.25))
        self.first = nn.Linear(width, 8 * 16)
        self.second = nn.Linear(30, 8 * 32)
        self.last = nn.Linear(32, 8)

    def pick(self, x: Tensor, bucket: Tensor) -> Tensor:
        grouped = x.view(len(x), 8, -1)
        return grouped.gather(1, bucket.view(-1, 1, 1).expand(-1, 1, grouped.size(2))).squeeze(1)

    def forward(
        self, white: Tensor, black: Tensor, turn: Tensor, bucket: Tensor, score: Tensor, result: Tensor
    ) -> Tensor:
        w, b = self.embed(white).sum(1) + self.bias, self.embed(black).sum(1) + self.bias
        (w, w_material), (b, b_material) = (x.split([x.size(1) - 8, 8], 1) for x in (w, b))
        own, other = torch.where(turn[:, None], w, b), torch.where(turn[:, None], b, w)
        halves = [y for x in (own, other) for y in x.clamp(0, 1).chunk(2, 1)]
        h = torch.cat([halves[0] * halves[1], halves[2] * halves[3]], 1) * (127 / 128)
        h = self.pick(self.first(h), bucket)
        h, skip = h[:, :15], h[:, 15]
        h = torch.cat([(h * h * (127 / 128)).clamp(0, 1), h.clamp(0, 1)], 1)
        h = self.pick(self.second(h), bucket).clamp(0, 1)
        material = (w_material - b_material).gather(1, bucket[:, None])[:, 0]
        value = self.pick(self.last(h), bucket)[:, 0] + skip + 0.5 * material * torch.where(turn, 1.0, -1.0)
        guess, wanted = torch.sigmoid(value * 600 / 340), torch.sigmoid(score / 340)
        return (guess - (0.7 * wanted + 0.3 * result)).abs().pow(2.5)


def chess(place: Place) -> Made:
    n, features, width = place.size(256, 8192), place.size(2000, 22_528), place.size(64, 512)
    white, black = place.randint(features + 1, n, 32), place.randint(features + 1, n, 32)
    white[:, 24:], black[:, 24:] = features, features
    return ChessAccumulator(features, width).to(place.device), (
        white,
        black,
        place.rand(n) > 0.5,
        place.randint(8, n),
        300 * place.randn(n),
        place.randint(3, n) / 2,
    )


def adapted_covariance(mean: Tensor, sigma: Tensor, c: Tensor, path: Tensor, pulse: Tensor, noise: Tensor) -> Tensor:
    """Hansen's CMA-ES on Rastrigin's hills: rank-one and rank-mu changes, two paths, written in place."""
    n, population = len(mean), noise.size(1)
    mu = population // 2
    weights = torch.log(torch.tensor(mu + 0.5, device=mean.device)) - torch.arange(1, mu + 1, device=mean.device).log()
    weights = weights / weights.sum()
    effective = 1 / weights.square().sum()
    cs, cc = (effective + 2) / (n + effective + 5), (4 + effective / n) / (n + 4 + 2 * effective / n)
    c1, cmu = 2 / ((n + 1.3) ** 2 + effective), 2 * (effective - 2 + 1 / effective) / ((n + 2) ** 2 + effective)
    best = []
    for z in noise.unbind(0):
        factor = torch.linalg.cholesky(c + 1e-6 * torch.eye(n, device=c.device))
        y = z @ factor.t()
        x = mean + sigma * y
        value = 10 * n + (x * x - 10 * torch.cos(2 * torch.pi * x)).sum(1)
        order = value.argsort()[:mu]
        chosen = y[order]
        step = weights @ chosen
        mean.add_(sigma * step)
        pulse.mul_(1 - cs).add_((cs * (2 - cs) * effective).sqrt() * (weights @ z[order]))
        slow = pulse.norm() < 1.5 * n**0.5
        path.mul_(1 - cc).add_(torch.where(slow, (cc * (2 - cc) * effective).sqrt(), 0.0) * step)
        rank_mu = (chosen * weights[:, None]).t() @ chosen
        c.mul_(1 - c1 - cmu).add_(c1 * torch.outer(path, path) + cmu * rank_mu)
        sigma.mul_(torch.exp(cs / 2 * (pulse.norm() / n**0.5 - 1)))
        best.append(value[order[0]])
    return torch.stack(best)


def covariance(place: Place) -> Made:
    n, population = place.size(16, 256), place.size(24, 4096)
    zeros = torch.zeros(n, device=place.device)
    sigma = torch.full((1,), 0.5, device=place.device)
    noise = place.randn(5, population, n)
    return adapted_covariance, (
        3 * place.randn(n),
        sigma,
        torch.eye(n, device=place.device),
        zeros,
        zeros.clone(),
        noise,
    )


def spread_labels(labels: Tensor, known: Tensor, edges: Tensor, kinds: int) -> tuple[Tensor, Tensor]:
    """Zhu and Ghahramani, 2002, on a sparse graph: sums over edges by degrees, what is known is set back; smoothing."""
    source, target = edges
    n = known.size(0)
    degree = torch.zeros(n, device=known.device).index_add_(0, target, torch.ones(len(target), device=known.device))
    weight = (degree[source] * degree[target]).clamp(min=1).rsqrt()[:, None]
    start = F.one_hot(labels, kinds).to(weight.dtype) * known[:, None]
    y = start
    change = []
    for _ in range(10):
        spread = torch.zeros_like(y).index_add_(0, target, y[source] * weight)
        new = 0.9 * spread + 0.1 * start
        new = torch.where(known[:, None], start, new.clamp(0, 1))
        change.append((new - y).abs().sum())
        y = new
    share = y / y.sum(1, keepdim=True).clamp(min=1e-8)
    margin = share.topk(2, dim=1).values
    return margin[:, 0] - margin[:, 1], torch.stack(change)


def labels_spread(place: Place) -> Made:
    n, e, kinds = place.size(1000, 100_000), place.size(6000, 1_000_000), place.size(5, 40)
    return spread_labels, (place.randint(kinds, n), place.rand(n) < 0.1, place.randint(n, 2, e), kinds)


class PersonalisedPropagation(nn.Module):
    """Gasteiger and others, 2019 (APPNP): a network first, then its answers walk a sparse matrix and go home."""

    def __init__(self, width: int, hidden: int, kinds: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, hidden), nn.Linear(hidden, kinds)

    def forward(self, x: Tensor, edges: Tensor, labels: Tensor, train: Tensor) -> tuple[Tensor, Tensor]:
        source, target = edges
        degree = torch.bincount(target, minlength=len(x)).to(x.dtype) + 1
        weight = degree.rsqrt()
        home = self.second(F.relu(self.first(x)))
        h = home
        for _ in range(8):
            message = (h * weight[:, None])[source]
            around = torch.zeros_like(h).scatter_add(0, target[:, None].expand_as(message), message)
            h = 0.9 * weight[:, None] * (around + h * weight[:, None]) + 0.1 * home
        logp = h.log_softmax(1)
        loss = -(logp.gather(1, labels[:, None])[:, 0] * train).sum() / train.sum()
        return loss + 5e-3 * self.first.weight.square().sum() / 2, logp.detach().amax(1)


def propagation(place: Place) -> Made:
    n, e, width, kinds = place.size(800, 60_000), place.size(5000, 600_000), place.size(32, 256), place.size(5, 41)
    model = PersonalisedPropagation(width, 64, kinds).to(place.device)
    return model, (
        place.randn(n, width),
        place.randint(n, 2, e),
        place.randint(kinds, n),
        (place.rand(n) < 0.3).float(),
    )


class TemporalMemory(nn.Module):
    """Rossi and others, 2020 (TGN): the last message of each node moves its memory; links of the next events."""

    def __init__(self, memory: int, features: int) -> None:
        super().__init__()
        self.frequency, self.phase = nn.Parameter(torch.rand(16)), nn.Parameter(torch.zeros(16))
        self.cell = nn.GRUCell(2 * memory + features + 16, memory)
        self.mix, self.score = nn.Linear(2 * memory, memory), nn.Linear(memory, 1)

    def forward(
        self, memory: Tensor, last: Tensor, events: Tensor, times: Tensor, edge: Tensor, other: Tensor
    ) -> tuple[Tensor, Tensor]:
        source, target = events
        nodes = torch.cat([source, target])
        partner, when = torch.cat([target, source]), times.repeat(2)
        gap = torch.cos((when - last[nodes])[:, None] * self.frequency + self.phase)
        messages = torch.cat([memory[nodes], memory[partner], edge.repeat(2, 1), gap], 1)
        position = torch.arange(len(nodes), device=nodes.device) % len(source)
        latest = torch.full((len(memory),), -1, device=nodes.device)
        latest = latest.scatter_reduce(0, nodes, position, "amax")
        keep = (latest[nodes] == position)[:, None]
        moved = self.cell(messages, memory[nodes])
        total = torch.zeros_like(memory).index_add(0, nodes, torch.where(keep, moved, 0))
        count = torch.zeros_like(memory[:, :1]).index_add(0, nodes, keep.to(memory.dtype))
        new = torch.where(count > 0, total / count.clamp(min=1), memory)

        def logit(a: Tensor, b: Tensor) -> Tensor:
            return self.score(F.relu(self.mix(torch.cat([new[a], new[b]], 1)))).squeeze(1)

        loss = F.softplus(-logit(source, target)).mean() + F.softplus(logit(source, other)).mean()
        return loss, torch.maximum(last, torch.full_like(last, -1).scatter_reduce(0, nodes, when, "amax"))


def memories(place: Place) -> Made:
    n, e, width, features = place.size(500, 50_000), place.size(200, 20_000), place.size(32, 172), place.size(16, 172)
    events, times = place.randint(n, 2, e), place.rand(e).sort().values * 100
    model = TemporalMemory(width, features).to(place.device)
    inputs = place.randn(n, width), torch.zeros(n, device=place.device), events, times, place.randn(e, features)
    return model, (*inputs, place.randint(n, e))


ROWS: tuple[Row, ...] = (
    Row("program/connect_four_bit_boards", connect_four),
    Row("program/chess_accumulator_network", chess, "training"),
    Row("program/adapted_covariance_search", covariance, writes=True),
    Row("program/label_propagation", labels_spread),
    Row("program/personalised_propagation", propagation, "training"),
    Row("program/temporal_graph_memory", memories, "training"),
)
