"""Particles: forces between all pairs, neighbours in a cut-off, flocks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..row import Made, Place, Row


def gravity(position: Tensor, mass: Tensor, softening: float = 0.05) -> Tensor:
    r = position.unsqueeze(0) - position.unsqueeze(1)
    inverse = (r.pow(2).sum(-1) + softening**2).rsqrt()
    return torch.einsum("ijk,ij->ik", r, mass * inverse**3)


def nbody(position: Tensor, velocity: Tensor, mass: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Two kick-drift-kick steps, and the kinetic energy."""
    dt = 1e-2
    acceleration = gravity(position, mass)
    for _ in range(2):
        velocity = velocity + 0.5 * dt * acceleration
        position = position + dt * velocity
        acceleration = gravity(position, mass)
        velocity = velocity + 0.5 * dt * acceleration
    return position, velocity, 0.5 * (mass * velocity.square().sum(1)).sum()


def nbody_leapfrog(place: Place) -> Made:
    n = place.size(320, 3000)
    return nbody, (place.randn(n, 3), place.randn(n, 3), place.rand(n) / n)


def lennard_jones(position: Tensor, box: float, cutoff: float) -> Tensor:
    """The energy in a periodic box; training's gradient is the force."""
    delta = position[:, None, :] - position[None, :, :]
    delta = delta - box * torch.round(delta / box)
    r2 = (delta * delta).sum(dim=-1)
    off_diagonal = ~torch.eye(len(position), dtype=torch.bool, device=position.device)
    near = (r2 < cutoff**2) & off_diagonal
    s6 = torch.where(near, r2, torch.ones_like(r2)).clamp(min=0.5).pow(-3)
    return torch.where(near, 4 * (s6 * s6 - s6), torch.zeros_like(s6)).sum() / 2


def lennard_jones_forces(place: Place) -> Made:
    n = place.size(256, 3000)
    box = float(n) ** (1 / 3) * 1.2
    return lennard_jones, ((box * place.rand(n, 3)).requires_grad_(), box, 2.5)


def sph_density(position: Tensor, velocity: Tensor, h: float = 0.3) -> tuple[Tensor, Tensor]:
    """Smoothed particle hydrodynamics: densities by the cubic spline, pressure forces, artificial viscosity."""
    d = torch.cdist(position, position, compute_mode="donot_use_mm_for_euclid_dist")
    q = d / h
    inner = 1 - 1.5 * q**2 + 0.75 * q**3
    outer = 0.25 * (2 - q).clamp(min=0) ** 3
    kernel = torch.where(q < 1, inner, outer) / (torch.pi * h**3)
    density = kernel.sum(1)
    pressure = 100 * (density - density.mean())
    slope = torch.where(q < 1, -3 * q + 2.25 * q**2, -0.75 * (2 - q).clamp(min=0) ** 2)
    strength = slope * (pressure / density**2 + (pressure / density**2)[:, None])
    direction = (position[:, None] - position[None]) / (d + 1e-6)[..., None]
    force = -(strength[..., None] * direction).sum(1)
    drag = (kernel[..., None] * (velocity[None] - velocity[:, None])).mean(1)
    return density, force + drag


def sph(place: Place) -> Made:
    n = place.size(256, 2500)
    return sph_density, (place.rand(n, 3), place.randn(n, 3))


class Boids(nn.Module):
    """Reynolds' flock: separation, alignment, cohesion; speeds between two limits."""

    def __init__(self, radius: float = 0.2) -> None:
        super().__init__()
        self.radius = radius

    def forward(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        delta = x[None] - x[:, None]
        distance = torch.linalg.vector_norm(delta, dim=-1)
        neighbour = (distance < self.radius) & (distance > 0)
        weight = neighbour.to(x.dtype)
        count = weight.sum(1, keepdim=True).clamp(min=1)
        cohesion = weight @ x / count - x
        alignment = weight @ v / count - v
        close = neighbour & (distance < self.radius / 3)
        separation = -(delta * close[..., None]).sum(1)
        v = v + 0.01 * cohesion + 0.05 * alignment + 0.1 * separation
        speed = v.norm(dim=1, keepdim=True)
        v = v / speed.clamp(min=1e-6) * speed.clamp(0.02, 0.08)
        return (x + v) % 1.0, v


def flock(place: Place) -> Made:
    n = place.size(512, 4096)
    return Boids(), (place.rand(n, 2), 0.1 * place.randn(n, 2))


def spring_mesh(x: Tensor, v: Tensor, stiffness: Tensor, edges: Tensor, rest: Tensor) -> Tensor:
    """Cloth of springs, index_add'ed: how fast it is, differentiated with regard to the stiffness."""
    i, j = edges
    for _ in range(3):
        d = x[j] - x[i]
        length = d.norm(dim=1)
        f = (stiffness * (length - rest) / length.clamp(min=1e-6))[:, None] * d
        force = torch.zeros_like(x).index_add(0, i, f).index_add(0, j, -f)
        force[:, 2] -= 9.8
        v = 0.99 * (v + 5e-3 * force)
        x = x + 5e-3 * v
    return v.square().sum(-1)


def cloth(place: Place) -> Made:
    side = place.size(64, 768)
    index = torch.arange(side * side, device=place.device).view(side, side)
    across = torch.stack([index[:, :-1].flatten(), index[:, 1:].flatten()])
    down = torch.stack([index[:-1].flatten(), index[1:].flatten()])
    edges = torch.cat([across, down], 1)
    m = edges.shape[1]
    grid = torch.stack([index // side, index % side], -1).view(-1, 2).float()
    x = torch.cat([grid, 0.7 * place.randn(side * side, 1)], 1)
    stiffness = (1 + place.rand(m)).requires_grad_()
    return spring_mesh, (x, 0.1 * place.randn(side * side, 3), stiffness, edges, torch.ones(m, device=place.device))


ROWS: tuple[Row, ...] = (
    Row("program/nbody_leapfrog", nbody_leapfrog),
    Row("program/lennard_jones_forces", lennard_jones_forces, "training"),
    Row("program/sph_density", sph),
    Row("program/boids", flock),
    Row("program/spring_cloth", cloth, "training"),
)
