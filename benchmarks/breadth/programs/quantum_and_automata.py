"""Qubits, spins and cellular automata: state vectors, matrix product states, replicas, rules on grids."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class VariationalCircuit(nn.Module):
    """A hardware-efficient ansatz on a state vector, and the energy of a transverse-field Ising chain."""

    def __init__(self, qubits: int, layers: int) -> None:
        super().__init__()
        self.qubits = qubits
        self.angles = nn.Parameter(0.5 * torch.randn(layers, qubits, 3))

    def rotation(self, a: Tensor) -> Tensor:
        """Z, Y and Z again."""
        half = a / 2
        cos, sin = torch.cos(half[1]), torch.sin(half[1])
        plus, minus = half[0] + half[2], half[0] - half[2]
        one = torch.ones_like(cos)
        row0 = torch.stack([torch.polar(one, -plus) * cos, -torch.polar(one, minus) * sin])
        row1 = torch.stack([torch.polar(one, -minus) * sin, torch.polar(one, plus) * cos])
        return torch.stack([row0, row1])

    def apply(self, state: Tensor, gate: Tensor, qubit: int) -> Tensor:  # type: ignore[override]
        state = state.view(2**qubit, 2, -1)
        return torch.einsum("ij,ajb->aib", gate, state).reshape(-1)

    def controlled_z(self, state: Tensor, a: int, b: int) -> Tensor:
        index = torch.arange(state.numel(), device=state.device)
        both = (index >> (self.qubits - 1 - a)) & (index >> (self.qubits - 1 - b)) & 1
        return torch.where(both == 1, -state, state)

    def forward(self, field: Tensor) -> tuple[Tensor, Tensor]:
        n = self.qubits
        state = torch.zeros(2**n, dtype=torch.complex(field, field).dtype, device=field.device)
        state[0] = 1
        for layer in self.angles:
            for qubit in range(n):
                state = self.apply(state, self.rotation(layer[qubit]), qubit)
            for qubit in range(n):
                state = self.controlled_z(state, qubit, (qubit + 1) % n)
        probability = state.abs().square()
        index = torch.arange(2**n, device=field.device)
        spins = 1 - 2 * ((index[:, None] >> torch.arange(n, device=field.device)) & 1)
        couple = -(spins * spins.roll(1, dims=1)).sum(1)
        energy = (probability * couple).sum()
        for qubit in range(n):
            flipped = state[index ^ (1 << qubit)]
            energy = energy - field * (state.conj() * flipped).real.sum()
        return energy / n, probability


def circuit(place: Place) -> Made:
    model = VariationalCircuit(place.size(8, 14), place.size(2, 1)).to(place.device)
    return model, (torch.tensor(0.7, device=place.device),)


class MatrixProductState(nn.Module):
    """A Born machine: amplitudes of bit strings by contracting a chain of tensors; the negative log-likelihood."""

    def __init__(self, sites: int, bond: int) -> None:
        super().__init__()
        eye = torch.eye(bond).expand(sites, 2, bond, bond)
        self.tensors = nn.Parameter(0.5 * eye + 0.1 * torch.randn(sites, 2, bond, bond))

    def forward(self, bits: Tensor) -> Tensor:
        sites, _, bond, _ = self.tensors.shape
        left = self.tensors.new_zeros(bits.size(0), bond)
        left[:, 0] = 1
        log_scale = self.tensors.new_zeros(bits.size(0))
        norm = torch.zeros_like(self.tensors[0, 0])
        norm[0, 0] = 1
        log_norm = self.tensors.new_zeros(())
        for site in range(sites):
            tensor = self.tensors[site]
            left = torch.einsum("bi,bij->bj", left, tensor[bits[:, site]])
            scale = left.abs().amax(-1, keepdim=True)
            left, log_scale = left / scale, log_scale + scale.squeeze(-1).log()
            norm = torch.einsum("ij,sik,sjl->kl", norm, tensor, tensor)
            trace = norm.diagonal().sum()
            norm, log_norm = norm / trace, log_norm + trace.log()
        log_p = 2 * (left[:, 0].abs().clamp(min=1e-6).log() + log_scale) - log_norm - norm[0, 0].log()
        return -log_p.mean()


def born_machine(place: Place) -> Made:
    batch, sites, bond = place.size(64, 2048), place.size(16, 24), place.size(8, 24)
    return MatrixProductState(sites, bond).to(place.device), (place.randint(2, batch, sites),)


def parallel_tempering(theta: Tensor, beta: Tensor, proposals: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Replicas of the XY model at several temperatures: checkerboard moves, and exchanges of neighbouring replicas."""
    replicas, n, _ = theta.shape
    i = torch.arange(n, device=theta.device)
    parity = (i[:, None] + i) % 2
    order = torch.arange(replicas, device=theta.device)
    sweeps = proposals.size(0)

    def local(angle: Tensor, around: Tensor) -> Tensor:
        total = torch.zeros_like(angle)
        for shift, dim in ((1, 1), (-1, 1), (1, 2), (-1, 2)):
            total = total - torch.cos(angle - around.roll(shift, dim))
        return total

    energy = theta.new_zeros(replicas)
    for sweep in range(sweeps):
        for colour in range(2):
            trial = theta + proposals[sweep, colour]
            change = local(trial, theta) - local(theta, theta)
            accept = (uniforms[sweep, colour] < torch.exp(-beta[:, None, None] * change)) & (parity == colour)
            theta = torch.where(accept, trial, theta)
        energy = 0.5 * local(theta, theta).sum((1, 2))
        partner = torch.where((order + sweep) % 2 == 0, order + 1, order - 1).clamp(0, replicas - 1)
        gain = (beta - beta[partner]) * (energy - energy[partner])
        chance = uniforms[sweep, 0, torch.minimum(order, partner), 0, 0]
        swap = chance < torch.exp(gain.clamp(max=0))
        theta = theta[torch.where(swap, partner, order)]
    x, y = theta.cos().mean((1, 2)), theta.sin().mean((1, 2))
    return energy / n**2, torch.hypot(x, y)


def replicas(place: Place) -> Made:
    count, n, sweeps = place.size(6, 32), place.size(24, 128), 3
    return parallel_tempering, (
        6.28 * place.rand(count, n, n),
        torch.linspace(0.5, 2.0, count, device=place.device),
        place.randn(sweeps, 2, count, n, n),
        (place.randint(4096, sweeps, 2, count, n, n) + 0.5) / 4096,
    )


def game_of_life(cells: Tensor, generations: int = 10) -> tuple[Tensor, Tensor, Tensor]:
    """Conway's rule on a torus of bytes; the age of every cell and the population on the way."""
    age = torch.zeros(cells.shape, dtype=torch.int32, device=cells.device)
    population = []
    for _ in range(generations):
        neighbours = torch.zeros_like(cells)
        for dy in (-1, 0, 1):
            for dx in (-1, 0, 1):
                if dy or dx:
                    neighbours += cells.roll((dy, dx), dims=(-2, -1))
        alive = cells == 1
        cells = ((neighbours == 3) | (alive & (neighbours == 2))).to(torch.uint8)
        age = (age + 1) * cells
        population.append(cells.sum(dim=(-2, -1)))
    return cells, age, torch.stack(population, -1)


def life(place: Place) -> Made:
    batch, n = place.size(4, 16), place.size(128, 1024)
    return game_of_life, (place.randint(2, batch, n, n).to(torch.uint8),)


def rule_table(state: Tensor, rules: Tensor, steps: int = 40) -> tuple[Tensor, Tensor]:
    """Wolfram's elementary automata, each row with a rule of its own; histories and the entropy of their blocks."""
    table = (rules[:, None] >> torch.arange(8, device=state.device)) & 1
    history = torch.empty(steps, *state.shape, dtype=torch.int64, device=state.device)
    for t in range(steps):
        history[t] = state
        code = 4 * state.roll(1, -1) + 2 * state + state.roll(-1, -1)
        state = table.gather(1, code)
    blocks = history[steps // 2 :]
    word = 8 * blocks + 4 * blocks.roll(-1, -1) + 2 * blocks.roll(-2, -1) + blocks.roll(-3, -1)
    counts = torch.stack([(word == i).sum(dim=(0, 2)) for i in range(16)], dim=-1)
    p = counts / counts.sum(-1, keepdim=True)
    entropy = -(p * torch.log2(p.clamp(min=1e-12))).sum(-1)
    return history, entropy


def elementary(place: Place) -> Made:
    batch, width = place.size(32, 128), place.size(256, 4096)
    return rule_table, (place.randint(2, batch, width), torch.arange(batch, device=place.device) * 7 % 256)


class GrowingAutomaton(nn.Module):
    """Mordvintsev et al., 2020: Sobel perception, a small network for each cell, stochastic updates, living masks."""

    def __init__(self, channels: int = 16, hidden: int = 64) -> None:
        super().__init__()
        self.channels = channels
        sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 8
        identity = torch.zeros(3, 3)
        identity[1, 1] = 1
        kernel = torch.stack([identity, sobel, sobel.T]).repeat(channels, 1, 1)[:, None]
        self.register_buffer("kernel", kernel)
        self.first = nn.Conv2d(3 * channels, hidden, 1)
        self.second = nn.Conv2d(hidden, channels, 1, bias=False)

    @staticmethod
    def living(x: Tensor) -> Tensor:
        return F.max_pool2d(x[:, 3:4], 3, stride=1, padding=1) > 0.1

    def forward(self, x: Tensor, target: Tensor, fire: Tensor) -> Tensor:
        for t in range(fire.size(0)):
            before = self.living(x)
            seen = F.conv2d(x, self.kernel, padding=1, groups=self.channels)
            x = x + 0.1 * self.second(F.relu(self.first(seen))) * fire[t]
            x = x * (before & self.living(x)).to(x.dtype)
        return F.mse_loss(x[:, :4], target)


def growing(place: Place) -> Made:
    batch, n, steps = place.size(2, 16), place.size(24, 72), place.size(6, 12)
    fire = (place.rand(steps, batch, 1, n, n) > 0.5).float()
    x = place.rand(batch, 16, n, n)
    return GrowingAutomaton().to(place.device), (x, place.rand(batch, 4, n, n), fire)


def sandpile(grains: Tensor, rounds: int = 24) -> tuple[Tensor, Tensor]:
    """Abelian sandpiles: every unstable place topples at once, grains fall off the edges; how often each toppled."""
    toppled = torch.zeros_like(grains)
    for _ in range(rounds):
        times = torch.div(grains, 4, rounding_mode="floor")
        toppled += times
        grains = grains - 4 * times
        grains[:, 1:] += times[:, :-1]
        grains[:, :-1] += times[:, 1:]
        grains[:, :, 1:] += times[:, :, :-1]
        grains[:, :, :-1] += times[:, :, 1:]
    return grains, toppled


def avalanches(place: Place) -> Made:
    batch, n = place.size(4, 16), place.size(96, 512)
    return sandpile, (place.randint(12, batch, n, n).to(torch.int32),)


ROWS: tuple[Row, ...] = (
    Row("program/variational_circuit", circuit, "training"),
    Row("program/matrix_product_state", born_machine, "training"),
    Row("program/xy_parallel_tempering", replicas),
    Row("program/game_of_life", life),
    Row("program/elementary_automata", elementary),
    Row("program/growing_automaton", growing, "training"),
    Row("program/abelian_sandpile", avalanches),
)
