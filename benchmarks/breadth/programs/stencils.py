"""Finite differences on grids: slices, rolls, shifted paddings, convolutions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def heat(u: Tensor, steps: int = 10, alpha: float = 0.2) -> Tensor:
    """The heat equation with fixed borders; the interior is updated in place."""
    u = u.clone()
    for _ in range(steps):
        laplacian = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
        u[1:-1, 1:-1] += alpha * laplacian
    return u


def heat_2d(place: Place) -> Made:
    n = place.size(384, 2048)
    return heat, (place.rand(n, n),)


def laplacian(u: Tensor) -> Tensor:
    """Five points, periodic."""
    return u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1) - 4 * u


def wave(u: Tensor, previous: Tensor, speed: Tensor) -> tuple[Tensor, Tensor]:
    """Five leapfrog steps of the wave equation in a medium, with a sponge at the border."""
    n = u.size(0)
    x = torch.linspace(-1, 1, n, dtype=u.dtype, device=u.device)
    distance = torch.maximum(x[:, None].abs(), x[None, :].abs())
    damping = 1 - 0.1 * ((distance - 0.8).clamp(min=0) / 0.2) ** 2
    for _ in range(5):
        u, previous = damping * (2 * u - previous + (speed * 0.5) ** 2 * laplacian(u)), u
    return u, previous


def wave_2d(place: Place) -> Made:
    n = place.size(256, 2048)
    return wave, (place.randn(n, n), place.randn(n, n), 0.5 + 0.5 * place.rand(n, n))


def jacobi(p: Tensor, b: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Poisson's equation: ten sweeps and the residual's norm."""
    for _ in range(10):
        neighbours = p.roll(1, dims=0) + p.roll(-1, dims=0) + p.roll(1, dims=1) + p.roll(-1, dims=1)
        p = torch.where(mask, (neighbours - b) / 4, p)
    residual = (laplacian(p) - b)[mask]
    return p, residual.norm()


def poisson_jacobi(place: Place) -> Made:
    n = place.size(256, 2048)
    mask = torch.zeros(n, n, dtype=torch.bool, device=place.device)
    mask[1:-1, 1:-1] = True
    return jacobi, (place.randn(n, n), place.randn(n, n), mask)


def advect(field: Tensor, velocity: Tensor, dt: float) -> Tensor:
    """Semi-Lagrangian: where the flow came from, interpolated by four gathers."""
    c, h, w = field.shape
    y, x = torch.meshgrid(
        torch.arange(h, device=field.device, dtype=field.dtype),
        torch.arange(w, device=field.device, dtype=field.dtype),
        indexing="ij",
    )
    px = (x - dt * velocity[0]).clamp(0, w - 1.001)
    py = (y - dt * velocity[1]).clamp(0, h - 1.001)
    x0, y0 = px.floor().long(), py.floor().long()
    fx, fy = px - x0, py - y0
    flat = field.reshape(c, -1)

    def at(row: Tensor, column: Tensor) -> Tensor:
        return flat[:, (row * w + column).flatten()].view(c, h, w)

    top = at(y0, x0) * (1 - fx) + at(y0, x0 + 1) * fx
    bottom = at(y0 + 1, x0) * (1 - fx) + at(y0 + 1, x0 + 1) * fx
    return top * (1 - fy) + bottom * fy


def fluid(velocity: Tensor, dye: Tensor) -> tuple[Tensor, Tensor]:
    """A step of stable fluids: advection, divergence, pressure by Jacobi, projection."""
    velocity = advect(velocity, velocity, 1.5)
    vx, vy = velocity
    div = 0.5 * (vx.roll(-1, 1) - vx.roll(1, 1) + vy.roll(-1, 0) - vy.roll(1, 0))
    p = torch.zeros_like(div)
    for _ in range(8):
        p = 0.25 * (p.roll(1, 0) + p.roll(-1, 0) + p.roll(1, 1) + p.roll(-1, 1) - div)
    gradient = torch.stack([p.roll(-1, 1) - p.roll(1, 1), p.roll(-1, 0) - p.roll(1, 0)]) * 0.5
    velocity = velocity - gradient
    return velocity, advect(dye, velocity, 1.5) * 0.995


def navier_stokes(place: Place) -> Made:
    n = place.size(160, 1024)
    return fluid, (place.randn(2, n, n), place.rand(3, n, n))


class GrayScott(nn.Module):
    """Reaction and diffusion of two chemicals; the nine-point Laplacian is a depthwise convolution."""

    kernel: Tensor

    def __init__(self, feed: float = 0.055, kill: float = 0.062) -> None:
        super().__init__()
        self.feed, self.kill = nn.Parameter(torch.tensor(feed)), nn.Parameter(torch.tensor(kill))
        stencil = torch.tensor([[0.05, 0.2, 0.05], [0.2, -1.0, 0.2], [0.05, 0.2, 0.05]])
        self.register_buffer("kernel", stencil.expand(2, 1, 3, 3).contiguous())

    def forward(self, state: Tensor) -> Tensor:
        rate = state.new_tensor([1.0, 0.5]).view(1, 2, 1, 1)
        for _ in range(4):
            diffusion = F.conv2d(F.pad(state, (1, 1, 1, 1), mode="circular"), self.kernel, groups=2)
            a, b = state.unbind(1)
            reaction = a * b * b
            change = torch.stack((-reaction + self.feed * (1 - a), reaction - (self.feed + self.kill) * b), dim=1)
            state = state + rate * diffusion + change
        return state


def gray_scott(place: Place) -> Made:
    n = place.size(128, 1024)
    return GrayScott().to(place.device), (place.rand(1, 2, n, n),)


def burgers(u: Tensor, viscosity: Tensor, dx: float = 0.02, dt: float = 1e-3) -> Tensor:
    """Upwind Burgers in one dimension over a batch, differentiated through the steps."""
    for _ in range(8):
        padded = F.pad(u, (1, 1), mode="replicate")
        left, right = padded[..., :-2], padded[..., 2:]
        upwind = torch.where(u > 0, (u - left) / dx, (right - u) / dx)
        u = u - dt * u * upwind + viscosity * dt / dx**2 * (left - 2 * u + right)
    return (u**2).mean(-1)


def burgers_inverse(place: Place) -> Made:
    n = place.size(128, 4096)
    return burgers, (place.randn(n, 512).requires_grad_(), (0.01 * place.rand(n, 1)).requires_grad_())


ROWS: tuple[Row, ...] = (
    Row("program/heat_2d", heat_2d),
    Row("program/wave_2d", wave_2d),
    Row("program/poisson_jacobi", poisson_jacobi),
    Row("program/navier_stokes_step", navier_stokes),
    Row("program/gray_scott", gray_scott, "training"),
    Row("program/burgers_inverse", burgers_inverse, "training"),
)
