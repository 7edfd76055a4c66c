"""Simulations of physics: fluids, waves, spins, particles on grids, and networks that obey equations."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row

OPPOSITE = [0, 3, 4, 1, 2, 7, 8, 5, 6]


class LatticeBoltzmann(nn.Module):
    """D2Q9 with a single relaxation time, flow from the left, bounce-back at obstacles."""

    c: Tensor
    w: Tensor

    def __init__(self, tau: float = 0.6, steps: int = 4) -> None:
        super().__init__()
        self.tau, self.steps = tau, steps
        self.shifts = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
        self.register_buffer("c", torch.tensor(self.shifts, dtype=torch.float32))
        self.register_buffer("w", torch.tensor([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4))

    def equilibrium(self, rho: Tensor, u: Tensor) -> Tensor:
        cu = 3 * torch.einsum("qd,dyx->qyx", self.c, u)
        usq = 1.5 * (u**2).sum(0)
        return self.w[:, None, None] * rho * (1 + cu + 0.5 * cu**2 - usq)

    def forward(self, f: Tensor, obstacle: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        for _ in range(self.steps):
            f[[3, 6, 7], :, -1] = f[[3, 6, 7], :, -2]
            rho = f.sum(0)
            u = torch.einsum("qd,qyx->dyx", self.c, f) / rho
            u[0, :, 0] = 0.04
            u[1, :, 0] = 0.0
            collided = f - (f - self.equilibrium(rho, u)) / self.tau
            collided = torch.where(obstacle, f[OPPOSITE], collided)
            f = torch.stack([collided[q].roll((dy, dx), dims=(0, 1)) for q, (dx, dy) in enumerate(self.shifts)])
        rho = f.sum(0)
        u = (torch.einsum("qd,qyx->dyx", self.c, f) / rho).masked_fill(obstacle, 0.0)
        vorticity = (u[1].roll(-1, 1) - u[1].roll(1, 1)) - (u[0].roll(-1, 0) - u[0].roll(1, 0))
        return f, rho, vorticity


def lattice_boltzmann(place: Place) -> Made:
    n = place.size(96, 1024)
    model = LatticeBoltzmann().to(place.device)
    f = model.w[:, None, None] * (1 + 0.02 * place.randn(9, n, n))
    y, x = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    obstacle = ((y - n / 2) ** 2 + (x - n / 4) ** 2 < (n / 10) ** 2).to(place.device)
    return model, (f, obstacle)


def metropolis(spins: Tensor, uniforms: Tensor, beta: float = 0.44) -> tuple[Tensor, Tensor, Tensor]:
    """Checkerboard sweeps of the Ising model: black squares, then white ones."""
    n = spins.size(-1)
    i = torch.arange(n, device=spins.device)
    parity = (i[:, None] + i[None, :]) % 2
    for sweep in uniforms:
        for colour in (0, 1):
            neighbours = spins.roll(1, 0) + spins.roll(-1, 0) + spins.roll(1, 1) + spins.roll(-1, 1)
            delta = 2 * spins * neighbours
            accept = (sweep[colour] < torch.exp(-beta * delta)) & (parity == colour)
            spins = torch.where(accept, -spins, spins)
    energy = -(spins * (spins.roll(1, 0) + spins.roll(1, 1))).mean()
    return spins, energy, spins.mean().abs()


def ising(place: Place) -> Made:
    n = place.size(192, 2048)
    spins = 2.0 * place.randint(2, n, n) - 1
    uniforms = (place.randint(1024, 4, 2, n, n) + 0.5) / 1024
    return metropolis, (spins, uniforms)


def shallow_water(eta: Tensor, u: Tensor, v: Tensor, depth: Tensor, dt: float = 0.02) -> tuple[Tensor, Tensor, Tensor]:
    """Ten steps on a staggered grid within walls: momentum first, then upwind continuity."""
    g, coriolis = 9.81, 0.1
    eta, u, v = eta.clone(), u.clone(), v.clone()
    for _ in range(10):
        v_at_u = 0.25 * (v[:-1, 1:] + v[1:, 1:] + v[:-1, :-1] + v[1:, :-1])
        u_at_v = 0.25 * (u[1:, :-1] + u[1:, 1:] + u[:-1, :-1] + u[:-1, 1:])
        u[:, 1:-1] += dt * (coriolis * v_at_u - g * (eta[:, 1:] - eta[:, :-1]))
        v[1:-1, :] += dt * (-coriolis * u_at_v - g * (eta[1:, :] - eta[:-1, :]))
        h = depth + eta
        flux_x, flux_y = torch.zeros_like(u), torch.zeros_like(v)
        ux, vy = u[:, 1:-1], v[1:-1, :]
        flux_x[:, 1:-1] = ux.clamp(min=0) * h[:, :-1] + ux.clamp(max=0) * h[:, 1:]
        flux_y[1:-1, :] = vy.clamp(min=0) * h[:-1, :] + vy.clamp(max=0) * h[1:, :]
        eta -= dt * (flux_x[:, 1:] - flux_x[:, :-1] + flux_y[1:, :] - flux_y[:-1, :])
    return eta, u, v


def shallow(place: Place) -> Made:
    n = place.size(160, 2048)
    eta, u, v = 0.1 * place.randn(n, n), torch.zeros(n, n + 1), torch.zeros(n + 1, n)
    return shallow_water, (eta, u.to(place.device), v.to(place.device), 1 + place.rand(n, n))


class Fdtd(nn.Module):
    """Yee's scheme for the transverse magnetic mode, with an absorbing layer and an oscillating source."""

    absorb: Tensor

    def __init__(self, n: int, layer: int = 12, courant: float = 0.5) -> None:
        super().__init__()
        self.n, self.courant = n, courant
        profile = torch.zeros(n)
        ramp = 0.1 * (torch.arange(layer, 0, -1) / layer) ** 3
        profile[:layer] = ramp
        profile[-layer:] = ramp.flip(0)
        self.register_buffer("absorb", torch.exp(-(profile[:, None] + profile[None, :])))

    def forward(self, ez: Tensor, hx: Tensor, hy: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor]:
        ez, hx, hy = ez.clone(), hx.clone(), hy.clone()
        middle = self.n // 2
        intensity = torch.zeros_like(ez)
        for t in range(12):
            hx[:, :-1].sub_(self.courant * (ez[:, 1:] - ez[:, :-1]))
            hy[:-1, :].add_(self.courant * (ez[1:, :] - ez[:-1, :]))
            curl = hy[1:, 1:] - hy[:-1, 1:] - hx[1:, 1:] + hx[1:, :-1]
            ez[1:, 1:] += self.courant * curl / epsilon[1:, 1:]
            ez[middle, middle] += math.sin(0.3 * t)
            ez *= self.absorb
            hx.mul_(self.absorb)
            hy.mul_(self.absorb)
            intensity += ez**2
        return ez, intensity.sqrt()


def fdtd(place: Place) -> Made:
    n = place.size(256, 2048)
    epsilon = 1 + 2 * (place.rand(n, n) > 0.7).to(torch.float32)
    fields = 0.1 * place.randn(n, n), 0.1 * place.randn(n, n), 0.1 * place.randn(n, n)
    return Fdtd(n).to(place.device), (*fields, epsilon)


def spectral_poisson(density: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Gravity's potential by Fourier transform; its field and how far that is from the observed one."""
    n = density.size(-1)
    k = 2 * math.pi * torch.fft.fftfreq(n, device=density.device, dtype=density.dtype)
    kr = 2 * math.pi * torch.fft.rfftfreq(n, device=density.device, dtype=density.dtype)
    k2 = k[:, None] ** 2 + kr[None, :] ** 2
    k2[0, 0] = 1.0
    contrast = density / density.mean(dim=(-2, -1), keepdim=True) - 1
    phi_k = -torch.fft.rfft2(contrast) / k2
    phi_k = phi_k * (k2 < 4.0)
    gx = torch.fft.irfft2(-1j * k[:, None] * phi_k, s=(n, n))
    gy = torch.fft.irfft2(-1j * kr[None, :] * phi_k, s=(n, n))
    field = torch.stack((gx, gy), dim=1)
    loss = F.mse_loss(field, target)
    energy = 0.5 * field.square().sum(dim=(1, 2, 3))
    return loss, energy / n**2


def poisson(place: Place) -> Made:
    batch, n = place.size(1, 4), place.size(256, 1024)
    return spectral_poisson, ((1 + place.rand(batch, n, n)).requires_grad_(), place.randn(batch, 2, n, n))


class ForceField(nn.Module):
    """Bonds, angles and dihedrals of a molecule; the energy of every conformation."""

    bonds: Tensor
    angles: Tensor
    torsions: Tensor

    def __init__(self, atoms: int) -> None:
        super().__init__()
        i = torch.arange(atoms)
        self.register_buffer("bonds", torch.stack((i[:-1], i[1:])))
        self.register_buffer("angles", torch.stack((i[:-2], i[1:-1], i[2:])))
        self.register_buffer("torsions", torch.stack((i[:-3], i[1:-2], i[2:-1], i[3:])))
        self.length = nn.Parameter(torch.full((atoms - 1,), 1.5))
        self.stiffness = nn.Parameter(torch.full((atoms - 1,), 10.0))
        self.angle = nn.Parameter(torch.full((atoms - 2,), 1.9))
        self.barrier = nn.Parameter(0.3 * torch.randn(atoms - 3, 3))
        self.phase = nn.Parameter(torch.zeros(atoms - 3, 3))

    def forward(self, xyz: Tensor) -> Tensor:
        a, b = xyz[:, self.bonds[0]], xyz[:, self.bonds[1]]
        energy = (self.stiffness * ((a - b).norm(dim=-1) - self.length) ** 2).sum(-1)

        p, q, r = (xyz.index_select(1, index) for index in self.angles)
        cosine = F.cosine_similarity(p - q, r - q, dim=-1).clamp(-0.9999, 0.9999)
        energy = energy + 4 * ((torch.acos(cosine) - self.angle) ** 2).sum(-1)

        i, j, k, m = (xyz.index_select(1, index) for index in self.torsions)
        b1, b2, b3 = j - i, k - j, m - k
        n1, n2 = torch.linalg.cross(b1, b2), torch.linalg.cross(b2, b3)
        y = (torch.linalg.cross(n1, n2) * F.normalize(b2, dim=-1)).sum(-1)
        dihedral = torch.atan2(y, (n1 * n2).sum(-1))
        order = torch.arange(1, 4, device=xyz.device)
        waves = self.barrier * (1 + torch.cos(order * dihedral.unsqueeze(-1) - self.phase))
        return energy + waves.sum(dim=(1, 2))


def torsions(place: Place) -> Made:
    batch, atoms = place.size(32, 1024), place.size(128, 512)
    xyz = torch.stack((torch.arange(atoms) * 1.2, torch.arange(atoms) % 2, torch.arange(atoms) // 2 % 2), dim=-1)
    positions = xyz.to(place.device) + 0.15 * place.randn(batch, atoms, 3)
    return ForceField(atoms).to(place.device), (positions.requires_grad_(),)


def mpm_step(
    x: Tensor, v: Tensor, affine: Tensor, deformation: Tensor, n: int, dt: float = 2e-5
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A step of the moving-least-squares material point method in two dimensions, with an elastic solid."""
    dx, mu, lam = 1 / n, 400.0, 300.0
    volume = (0.5 * dx) ** 2
    eye = torch.eye(2, dtype=x.dtype, device=x.device)
    deformation = (eye + dt * affine) @ deformation

    # The polar decomposition's rotation, in closed form.
    c = deformation[:, 0, 0] + deformation[:, 1, 1]
    s = deformation[:, 1, 0] - deformation[:, 0, 1]
    scale = torch.rsqrt(c * c + s * s)
    c, s = c * scale, s * scale
    rotation = torch.stack((torch.stack((c, -s), -1), torch.stack((s, c), -1)), dim=-2)
    j = torch.linalg.det(deformation)[:, None, None]
    stress = 2 * mu * (deformation - rotation) @ deformation.mT + lam * j * (j - 1) * eye
    momentum = volume * affine - dt * volume * 4 / dx**2 * stress

    base = (x / dx - 0.5).long()
    fx = x / dx - base
    w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
    grid_v, grid_m = x.new_zeros(n * n, 2), x.new_zeros(n * n)
    for a in range(3):
        for b in range(3):
            distance = (x.new_tensor([a, b]) - fx) * dx
            weight = w[a][:, 0] * w[b][:, 1]
            cell = (base[:, 0] + a) * n + base[:, 1] + b
            grid_v.index_add_(0, cell, weight[:, None] * (volume * v + torch.einsum("pij,pj->pi", momentum, distance)))
            grid_m.index_add_(0, cell, weight * volume)

    grid_v = torch.where(grid_m[:, None] > 0, grid_v / grid_m[:, None].clamp(min=1e-12), grid_v).view(n, n, 2)
    grid_v[..., 1] -= dt * 50
    grid_v[:3, :, 0].clamp_(min=0)
    grid_v[-3:, :, 0].clamp_(max=0)
    grid_v[:, :3, 1].clamp_(min=0)
    grid_v[:, -3:, 1].clamp_(max=0)

    new_v, new_affine = torch.zeros_like(v), torch.zeros_like(affine)
    for a in range(3):
        for b in range(3):
            distance = x.new_tensor([a, b]) - fx
            g = grid_v[base[:, 0] + a, base[:, 1] + b]
            weight = (w[a][:, 0] * w[b][:, 1]).unsqueeze(-1)
            new_v += weight * g
            new_affine += 4 / dx * weight.unsqueeze(-1) * g[:, :, None] * distance[:, None, :]
    return x + dt * new_v, new_v, new_affine, deformation


def material_points(place: Place) -> Made:
    count, n = place.size(8192, 400_000), place.size(64, 384)
    x, v = 0.2 + 0.6 * place.rand(count, 2), place.randn(count, 2)
    deformation = torch.eye(2).to(place.device) + 0.02 * place.randn(count, 2, 2)
    return mpm_step, (x, v, place.randn(count, 2, 2), deformation, n)


def split_step(psi: Tensor, potential: Tensor, dt: float = 0.01, steps: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Gross and Pitaevskii's equation: half a step in the potential, one in momentum space, another half."""
    wave = torch.view_as_complex(psi)
    n = wave.size(-1)
    k = 2 * math.pi * torch.fft.fftfreq(n, d=0.1, device=psi.device, dtype=psi.dtype)
    kinetic = 0.5 * (k[:, None] ** 2 + k[None, :] ** 2)
    propagator = torch.exp(-1j * dt * kinetic)
    for _ in range(steps):
        v = potential + wave.abs() ** 2
        wave = wave * torch.polar(torch.ones_like(v), -0.5 * dt * v)
        wave = torch.fft.ifft2(torch.fft.fft2(wave) * propagator)
        v = potential + wave.real**2 + wave.imag**2
        wave = wave * torch.polar(torch.ones_like(v), -0.5 * dt * v)
    density = (wave.conj() * wave).real
    flow = (wave.conj() * (wave.roll(-1, 0) - wave.roll(1, 0))).imag / 0.2
    return torch.view_as_real(wave), density, flow


def schroedinger(place: Place) -> Made:
    n = place.size(192, 2048)
    x = torch.linspace(-4, 4, n, device=place.device)
    return split_step, (place.randn(n, n, 2), 0.5 * (x[:, None] ** 2 + x[None, :] ** 2))


def kuramoto(theta: Tensor, coupling: Tensor, omega: Tensor, dt: float = 0.05) -> tuple[Tensor, Tensor]:
    """Coupled oscillators by Heun's method; the order parameter, through which the couplings are learnt."""
    k = (coupling + coupling.T) / 2

    def velocity(phase: Tensor) -> Tensor:
        difference = phase[:, None, :] - phase[:, :, None]
        return omega + (k * torch.sin(difference)).mean(-1)

    order = []
    for _ in range(4):
        slope = velocity(theta)
        theta = theta + 0.5 * dt * (slope + velocity(theta + dt * slope))
        order.append(torch.hypot(theta.cos().mean(-1), theta.sin().mean(-1)))
    return torch.stack(order, dim=-1), torch.remainder(theta, 2 * math.pi)


def oscillators(place: Place) -> Made:
    batch, n = place.size(4, 32), place.size(112, 512)
    coupling = (2 + place.randn(n, n)).requires_grad_()
    return kuramoto, (6.28 * place.rand(batch, n), coupling, place.randn(n).requires_grad_())


class HamiltonianNet(nn.Module):
    """Greydanus et al., 2019: a network's symplectic gradient is the dynamics."""

    def __init__(self, d: int, hidden: int = 200) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.last = nn.Linear(hidden, 1, bias=False)

    def forward(self, x: Tensor, dxdt: Tensor) -> Tensor:
        energy = self.last(self.net(x))
        (gradient,) = torch.autograd.grad(energy.sum(), x, create_graph=True)
        dq, dp = gradient.chunk(2, dim=-1)
        return F.mse_loss(torch.cat([dp, -dq], dim=-1), dxdt)


def hamiltonian(place: Place) -> Made:
    n = place.size(512, 65_536)
    return HamiltonianNet(8).to(place.device), (place.randn(n, 8).requires_grad_(), place.randn(n, 8))


class Pinn(nn.Module):
    """Raissi et al., 2019: Burgers' equation as a loss, with derivatives by autograd and a learnt viscosity."""

    def __init__(self, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        sizes = [2] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.head = nn.Linear(width, 1)
        self.viscosity = nn.Parameter(torch.tensor(0.01))

    def solution(self, x: Tensor, t: Tensor) -> Tensor:
        h = torch.cat([x, t], dim=1)
        for layer in self.layers:
            h = torch.tanh(layer(h))
        return self.head(h)

    def forward(self, x: Tensor, t: Tensor, x0: Tensor) -> Tensor:
        u = self.solution(x, t)
        ones = torch.ones_like(u)
        u_x, u_t = torch.autograd.grad(u, (x, t), ones, create_graph=True)
        u_xx = torch.autograd.grad(u_x, x, torch.ones_like(u_x), create_graph=True)[0]
        residual = u_t + u * u_x - self.viscosity * u_xx
        initial = self.solution(x0, torch.zeros_like(x0)) + torch.sin(math.pi * x0)
        return residual.pow(2).mean() + initial.pow(2).mean()


def pinn(place: Place) -> Made:
    n = place.size(512, 65_536)
    x, t = 2 * place.rand(n, 1) - 1, place.rand(n, 1)
    return Pinn().to(place.device), (x.requires_grad_(), t.requires_grad_(), 2 * place.rand(n // 4, 1) - 1)


ROWS: tuple[Row, ...] = (
    Row("program/lattice_boltzmann", lattice_boltzmann, writes=True),
    Row("program/ising_metropolis", ising),
    Row("program/shallow_water", shallow),
    Row("program/fdtd_maxwell", fdtd),
    Row("program/spectral_poisson", poisson, "training"),
    Row("program/molecular_torsions", torsions, "training"),
    Row("program/material_points", material_points),
    Row("program/split_step_schroedinger", schroedinger),
    Row("program/kuramoto", oscillators, "training"),
    Row("program/hamiltonian_net", hamiltonian, "training"),
    Row("program/burgers_pinn", pinn, "training"),
)
