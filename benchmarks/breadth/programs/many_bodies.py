"""Quantum mechanics of many bodies: circuits, channels, tensor networks, Monte Carlo, self-consistent fields."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def fourier_circuit(real: Tensor, imaginary: Tensor, qubits: int) -> tuple[Tensor, Tensor]:
    """The quantum Fourier transform, gate by gate: Hadamards, controlled phases, bits reversed at the end."""
    psi = torch.complex(real, imaginary)
    psi = psi / psi.abs().square().sum(-1, keepdim=True).sqrt()
    batch = psi.size(0)
    for i in range(qubits):
        psi = psi.view(batch, 2**i, 2, -1)
        zero, one = psi[:, :, 0], psi[:, :, 1]
        h = math.sqrt(0.5)
        rest = torch.arange(one.size(-1), device=real.device, dtype=real.dtype) / one.size(-1)
        twist = torch.polar(torch.ones_like(rest), math.pi * rest)
        psi = torch.stack([h * (zero + one), h * (zero - one) * twist], dim=2)
    psi = psi.reshape(batch, *[2] * qubits)
    psi = psi.permute(0, *range(qubits, 0, -1)).reshape(batch, -1)
    chance = psi.abs().square()
    return torch.view_as_real(psi), -(chance * (chance + 1e-12).log()).sum(-1)


def fourier(place: Place) -> Made:
    batch, qubits = place.size(4, 8), place.size(13, 19)
    return fourier_circuit, (place.randn(batch, 2**qubits), place.randn(batch, 2**qubits), qubits)


def noisy_channel(rho: Tensor, angle: Tensor, qubits: int) -> tuple[Tensor, Tensor]:
    """A density matrix through rotations, controlled gates, amplitude damping by its Kraus operators, depolarising."""
    n = 2**qubits
    state = torch.complex(rho @ rho.mT, rho - rho.mT)
    state = state / state.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    gamma, p = 0.05, 0.02
    index = torch.arange(n, device=rho.device)
    for layer in range(angle.size(0)):
        for q in range(qubits):
            c, s = torch.cos(angle[layer, q] / 2), torch.sin(angle[layer, q] / 2)
            turn = torch.stack([torch.stack([c, -s]), torch.stack([s, c])]).to(state.dtype)
            left = 2**q
            split = state.view(-1, left, 2, n // left // 2, left, 2, n // left // 2)
            split = torch.einsum("ab,xibjkdl,cd->xiajkcl", turn, split, turn)
            a, d = split[:, :, 0, :, :, 0], split[:, :, 1, :, :, 1]
            b, c2 = split[:, :, 0, :, :, 1], split[:, :, 1, :, :, 0]
            fade = math.sqrt(1 - gamma)
            top = torch.stack([a + gamma * d, fade * b], dim=4)
            bottom = torch.stack([fade * c2, (1 - gamma) * d], dim=4)
            state = torch.stack([top, bottom], dim=2).reshape(-1, n, n)
        for q in range(qubits - 1):
            control = (index >> (qubits - 1 - q)) & 1
            swapped = index ^ (control << (qubits - 2 - q))
            state = state[:, swapped][:, :, swapped]
        trace = state.diagonal(dim1=-2, dim2=-1).sum(-1)
        state = (1 - p) * state + p * trace[:, None, None] * torch.eye(n, device=rho.device, dtype=rho.dtype) / n
    purity = torch.einsum("bij,bji->b", state, state).real
    return state.diagonal(dim1=-2, dim2=-1).real, purity


def channels(place: Place) -> Made:
    b, qubits = place.size(2, 8), place.size(5, 9)
    return noisy_channel, (place.randn(b, 2**qubits, 2**qubits), 3 * place.randn(2, qubits), qubits)


def trotter_chain(psi: Tensor, field: Tensor, sites: int, dt: float = 0.1) -> tuple[Tensor, Tensor]:
    """Heisenberg's chain by Trotter's steps: even bonds, odd bonds, a field; magnetisation and correlations in time."""
    state = torch.view_as_complex(F.normalize(psi, dim=0))
    phase = torch.polar(torch.ones_like(field[:1]), 0.25 * dt * torch.ones_like(field[:1]))
    c, s = math.cos(dt / 2), math.sin(dt / 2)
    seen = []
    bits = (
        torch.arange(2**sites, device=psi.device)[:, None] >> torch.arange(sites - 1, -1, -1, device=psi.device)
    ) & 1
    spin = 1 - 2 * bits.to(field.dtype)
    energy = (spin * field).sum(1)
    for _ in range(3):
        for parity in (0, 1):
            for bond in range(parity, sites - 1, 2):
                v = state.view(2**bond, 4, -1)
                up, a, b, down = v.unbind(1)
                left, right = c * a - 1j * s * b, c * b - 1j * s * a
                state = torch.stack([up / phase, phase * left, phase * right, down / phase], 1).flatten()
        state = state * torch.polar(torch.ones_like(energy), -dt * energy)
        seen.append(state.abs().square() @ spin)
    pairs = (spin[:, 1:] * spin[:, :-1]).T @ state.abs().square()
    return torch.stack(seen), pairs


def heisenberg(place: Place) -> Made:
    sites = place.size(12, 20)
    return trotter_chain, (place.randn(2**sites, 2), 0.5 * place.randn(sites), sites)


def neural_quantum_energy(spins: Tensor, a: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Carleo and Troyer, 2017: a restricted Boltzmann machine's local energies in a transverse field."""

    def log_psi(theta: Tensor, spins: Tensor) -> Tensor:
        return (spins * a).sum(-1) + (theta.abs() + F.softplus(-2 * theta.abs()) - math.log(2)).sum(-1)

    theta = spins @ w + b
    base = log_psi(theta, spins)
    flipped_theta = theta[:, None] - 2 * spins[..., None] * w
    change = log_psi(flipped_theta, spins[:, None] * (1 - 2 * torch.eye(spins.size(1), device=w.device, dtype=w.dtype)))
    ratio = torch.exp((change - base[:, None]).clamp(max=8))
    local = -(spins * spins.roll(1, 1)).sum(1) - 0.8 * ratio.sum(1)
    centred = (local - local.mean()).detach()
    return 2 * (centred * base).mean(), local.detach().var()


def neural_states(place: Place) -> Made:
    samples, sites, hidden = place.size(128, 2048), place.size(32, 64), place.size(64, 192)
    weights = [0.1 * place.randn(sites), 0.1 * place.randn(hidden), 0.1 * place.randn(sites, hidden)]
    spins = 2.0 * place.randint(2, samples, sites) - 1
    return neural_quantum_energy, (spins, *(t.requires_grad_() for t in weights))


def hartree_fock(core: Tensor, two: Tensor, overlap: Tensor, electrons: int, rounds: int = 5) -> tuple[Tensor, Tensor]:
    """Roothaan's equations: an orthogonal basis by the overlap's root, Coulomb and exchange, mixed densities."""
    value, vector = torch.linalg.eigh(overlap)
    x = vector * value.rsqrt()[..., None, :] @ vector.mT
    density = torch.zeros_like(core)
    energies = []
    for _ in range(rounds):
        coulomb = torch.einsum("bprqs,bqs->bpr", two, density)
        exchange = torch.einsum("bprqs,brq->bps", two, density)
        fock = core + coulomb - 0.5 * exchange
        fock = 0.5 * (fock + fock.mT)
        energies.append(0.5 * (density * (core + fock)).sum(dim=(-2, -1)))
        orbitals = x @ torch.linalg.eigh(x.mT @ fock @ x)[1]
        occupied = orbitals[..., : electrons // 2]
        density = 0.6 * 2 * occupied @ occupied.mT + 0.4 * density
    return density, torch.stack(energies, -1)


def self_consistent(place: Place) -> Made:
    b, n, electrons = place.size(4, 16), place.size(20, 48), 8
    factor = 0.3 * place.randn(b, 6, n, n) / n**0.5
    factor = factor + factor.mT
    two = torch.einsum("bkpr,bkqs->bprqs", factor, factor)
    core = place.randn(b, n, n) / n**0.5
    overlap = 0.2 * place.randn(b, n, n) / n**0.5
    levels = torch.diag(torch.linspace(-4, 4, n)).to(place.device)
    return hartree_fock, (
        core + core.mT + levels,
        two,
        overlap @ overlap.mT + torch.eye(n, device=place.device),
        electrons,
    )


class SlaterNetwork(nn.Module):
    """Pfau et al., 2020, in small: orbitals from pooled electron streams, determinants of both spins, envelopes."""

    def __init__(self, electrons: int, width: int, determinants: int) -> None:
        super().__init__()
        self.each, self.determinants = electrons // 2, determinants
        self.first = nn.Linear(4, width)
        self.mixed = nn.ModuleList(nn.Linear(3 * width, width) for _ in range(2))
        self.orbital = nn.Linear(width, 2 * determinants * self.each)
        self.decay = nn.Parameter(torch.ones(2, determinants, self.each))

    def forward(self, x: Tensor) -> Tensor:
        r = (x.square().sum(-1, keepdim=True) + 1e-2).sqrt()
        h = torch.tanh(self.first(torch.cat([x, r], -1)))
        for layer in self.mixed:
            up, down = h[:, : self.each].mean(1, keepdim=True), h[:, self.each :].mean(1, keepdim=True)
            h = h + torch.tanh(layer(torch.cat([h, up.expand_as(h), down.expand_as(h)], -1)))
        phi = self.orbital(h).unflatten(-1, (2, self.determinants, self.each))
        phi = phi * torch.exp(-self.decay.abs() * r[..., None, None])
        signs, logs = [], []
        for spin, part in enumerate(phi.split(self.each, dim=1)):
            matrix = part[:, :, spin].permute(0, 2, 1, 3)
            sign, log = torch.linalg.slogdet(matrix + 0.5 * torch.eye(self.each, dtype=x.dtype, device=x.device))
            signs.append(sign)
            logs.append(log)
        log = logs[0] + logs[1]
        top = log.detach().amax(1, keepdim=True)
        total = (signs[0] * signs[1] * torch.exp(log - top)).sum(1)
        return 0.5 * (total.square() + 1e-3).log() + top.squeeze(1)


def wave_function(place: Place) -> Made:
    b, electrons, width = place.size(128, 4096), 8, place.size(48, 256)
    return SlaterNetwork(electrons, width, 8).to(place.device), (place.randn(b, electrons, 3).requires_grad_(),)


def kohn_sham(external: Tensor, steps: int = 30, dt: float = 0.02) -> tuple[Tensor, Tensor]:
    """A density functional on a line: orbitals in imaginary time, orthogonal by Cholesky, local exchange."""
    b, n = external.shape
    x = torch.linspace(-6, 6, n, device=external.device, dtype=external.dtype)
    h = 12 / (n - 1)
    kernel = 1 / (1 + (x[:, None] - x) ** 2).sqrt()
    phi = torch.stack([x**k * torch.exp(-0.3 * x**2) for k in range(4)], 0).expand(b, 4, n)
    limit = dt * min(1.0, 20 * h * h)

    def orthogonal(phi: Tensor) -> Tensor:
        factor = torch.linalg.cholesky(h * phi @ phi.mT)
        return torch.linalg.solve_triangular(factor, phi, upper=False)

    phi = orthogonal(phi)
    for _ in range(steps):
        density = 2 * phi.square().sum(1)
        potential = external + h * density @ kernel - (3 / math.pi * density.clamp(min=1e-12)) ** (1 / 3)
        padded = F.pad(phi, (1, 1))
        kinetic = (2 * phi - padded[..., 2:] - padded[..., :-2]) / (2 * h * h)
        phi = orthogonal(phi - limit * (kinetic + potential[:, None] * phi))
    return 2 * phi.square().sum(1), potential


def functionals(place: Place) -> Made:
    b, n = place.size(4, 512), place.size(128, 512)
    x = torch.linspace(-6, 6, n, device=place.device)
    return kohn_sham, (0.3 * x**2 + 0.2 * place.randn(b, n),)


ROWS: tuple[Row, ...] = (
    Row("program/quantum_fourier_circuit", fourier),
    Row("program/noisy_density_matrix", channels),
    Row("program/trotter_heisenberg", heisenberg),
    Row("program/boltzmann_machine_states", neural_states, "training"),
    Row("program/hartree_fock", self_consistent),
    Row("program/slater_network", wave_function, "training"),
    Row("program/kohn_sham_line", functionals),
)
