"""Codes of large machines in tensors: lattices of quarks, fluids, neutrons, photons, waves, films and spheres."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..row import Made, Place, Row


def wilson_dirac(psi: Tensor, links: Tensor, gamma: Tensor, kappa: float, applications: int) -> Tensor:
    """Wilson's fermion operator in four dimensions, and its hermitian square by gamma5: spin 4, colour 3."""
    eye = torch.eye(4, dtype=psi.dtype, device=psi.device)
    gamma5 = gamma[0] @ gamma[1] @ gamma[2] @ gamma[3]

    def hop(v: Tensor) -> Tensor:
        total = torch.zeros_like(v)
        for mu in range(4):
            forward = torch.einsum("txyzab,txyzsb->txyzsa", links[mu], v.roll(-1, dims=mu))
            total = total + torch.einsum("rs,txyzsa->txyzra", eye - gamma[mu], forward)
            back = torch.einsum("txyzba,txyzsb->txyzsa", links[mu].conj(), v).roll(1, dims=mu)
            total = total + torch.einsum("rs,txyzsa->txyzra", eye + gamma[mu], back)
        return v - kappa * total

    for _ in range(applications):
        for _ in range(2):
            psi = torch.einsum("rs,txyzsa->txyzra", gamma5, hop(psi))
        psi = psi / psi.abs().square().sum().sqrt()
    return psi


def dirac_operator(place: Place) -> Made:
    t, n = place.size(4, 16), place.size(4, 12)
    x = torch.tensor([[0, 1], [1, 0]], dtype=torch.complex64)
    y = torch.tensor([[0, -1j], [1j, 0]], dtype=torch.complex64)
    z = torch.tensor([[1, 0], [0, -1]], dtype=torch.complex64)
    one = torch.eye(2, dtype=torch.complex64)
    gamma = torch.stack([torch.kron(x, one), *(torch.kron(y, s) for s in (x, y, z))])
    a = torch.complex(torch.randn(4, t, n, n, n, 3, 3), torch.randn(4, t, n, n, n, 3, 3))
    links = torch.linalg.qr(a).Q
    psi = torch.complex(place.randn(t, n, n, n, 4, 3), place.randn(t, n, n, n, 4, 3))
    return wilson_dirac, (psi, links.to(place.device), gamma.to(place.device), 0.12, place.size(1, 3))


def remapped_hydrodynamics(density: Tensor, energy: Tensor, xv: Tensor, yv: Tensor, dx: float, steps: int) -> Tensor:
    """CloverLeaf's cycle: ideal gas, viscosity, accelerated nodes, compressed cells, a donor-cell remap; in place."""
    gamma, dt = 1.4, 0.04 * dx
    density, energy, xv, yv = density.clone(), energy.clone(), xv.clone(), yv.clone()
    for _ in range(steps):
        pressure = (gamma - 1.0) * density * energy
        soundspeed = torch.sqrt(gamma * pressure / density)
        ugrad = (xv[1:, :-1] + xv[1:, 1:]) - (xv[:-1, :-1] + xv[:-1, 1:])
        vgrad = (yv[:-1, 1:] + yv[1:, 1:]) - (yv[:-1, :-1] + yv[1:, :-1])
        div = 0.5 * (ugrad + vgrad)
        viscosity = torch.zeros_like(density)
        squeezed = div < 0
        viscosity[squeezed] = (2.0 * density * div * div + 0.1 * density * soundspeed * div.abs())[squeezed]
        total = pressure + viscosity
        mass = 0.25 * (density[1:, 1:] + density[:-1, 1:] + density[1:, :-1] + density[:-1, :-1])
        ax = (total[1:, 1:] + total[1:, :-1] - total[:-1, 1:] - total[:-1, :-1]) / (2 * dx)
        ay = (total[1:, 1:] - total[1:, :-1] + total[:-1, 1:] - total[:-1, :-1]) / (2 * dx)
        xv[1:-1, 1:-1] -= dt * ax / mass
        yv[1:-1, 1:-1] -= dt * ay / mass
        energy -= dt * total * div / (density * dx)
        face_x = 0.5 * (xv[1:-1, :-1] + xv[1:-1, 1:])
        face_y = 0.5 * (yv[:-1, 1:-1] + yv[1:, 1:-1])
        flux_x = dt / dx * torch.where(face_x > 0, face_x * density[:-1], face_x * density[1:])
        flux_y = dt / dx * torch.where(face_y > 0, face_y * density[:, :-1], face_y * density[:, 1:])
        heat_x = flux_x * torch.where(face_x > 0, energy[:-1], energy[1:])
        heat_y = flux_y * torch.where(face_y > 0, energy[:, :-1], energy[:, 1:])
        heat = density * energy
        density[:-1] -= flux_x
        density[1:] += flux_x
        density[:, :-1] -= flux_y
        density[:, 1:] += flux_y
        heat[:-1] -= heat_x
        heat[1:] += heat_x
        heat[:, :-1] -= heat_y
        heat[:, 1:] += heat_y
        energy = heat / density
    return torch.stack([density, energy])


def clover_leaf(place: Place) -> Made:
    n = place.size(48, 1536)
    density, energy = torch.full((n, n), 0.2), torch.ones(n, n)
    density[: n // 2, : n // 5], energy[: n // 2, : n // 5] = 1.0, 2.5
    density = density + 0.01 * torch.rand(n, n)
    speeds = (0.05 * place.randn(n + 1, n + 1), 0.05 * place.randn(n + 1, n + 1))
    return remapped_hydrodynamics, (
        density.to(place.device),
        energy.to(place.device),
        *speeds,
        10.0 / n,
        place.size(2, 4),
    )


def spectral_elements(u: Tensor, d: Tensor, g: Tensor, glo: Tensor, mult: Tensor, iterations: int) -> Tensor:
    """Nekbone: conjugate gradients with a stiffness applied element by element, and sums over shared points."""

    def ax(w: Tensor) -> Tensor:
        ur = torch.einsum("ij,ekmj->ekmi", d, w)
        us = torch.einsum("ij,ekjm->ekim", d, w)
        ut = torch.einsum("ij,ejkm->eikm", d, w)
        wr = g[0] * ur + g[1] * us + g[2] * ut
        ws = g[1] * ur + g[3] * us + g[4] * ut
        wt = g[2] * ur + g[4] * us + g[5] * ut
        out = torch.einsum("ji,ekmj->ekmi", d, wr)
        out += torch.einsum("ji,ekjm->ekim", d, ws)
        out += torch.einsum("ji,ejkm->eikm", d, wt)
        return gather_scatter(out) + 0.1 * w

    def gather_scatter(w: Tensor) -> Tensor:
        shared = torch.zeros(mult.numel(), dtype=w.dtype, device=w.device)
        shared.index_add_(0, glo.flatten(), w.flatten())
        return shared[glo]

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b / mult[glo]).sum()

    x = torch.zeros_like(u)
    r = gather_scatter(u)
    p = r.clone()
    rr = dot(r, r)
    for _ in range(iterations):
        w = ax(p)
        alpha = rr / dot(w, p)
        x = x + alpha * p
        r = r - alpha * w
        rr, old = dot(r, r), rr
        p = r + rr / old * p
    return x


def nekbone(place: Place) -> Made:
    n, e = place.size(4, 8), place.size(3, 10)
    index = torch.arange(e)[:, None] * (n - 1) + torch.arange(n)
    side = e * (n - 1) + 1
    z, y, x = (index.view(*s) for s in ((e, 1, 1, n, 1, 1), (1, e, 1, 1, n, 1), (1, 1, e, 1, 1, n)))
    glo = ((z * side + y) * side + x).reshape(e**3, n, n, n)
    mult = torch.bincount(glo.flatten(), minlength=side**3).float()
    nodes = -torch.cos(math.pi * torch.arange(n, dtype=torch.float64) / (n - 1))
    difference = nodes[:, None] - nodes + torch.eye(n)
    weight = 1.0 / difference.prod(1)
    d = weight / weight[:, None] / difference
    d = d - torch.diag(d.sum(1))
    g = 0.1 * torch.rand(6, e**3, n, n, n)
    g[[0, 3, 5]] += 1.0
    return spectral_elements, (
        place.randn(e**3, n, n, n),
        d.float().to(place.device),
        g.to(place.device),
        glo.to(place.device),
        mult.to(place.device),
        place.size(3, 12),
    )


def cross_sections(
    energy: Tensor, material: Tensor, grid: Tensor, index: Tensor, nuclides: Tensor, densities: Tensor, xs: Tensor
) -> tuple[Tensor, Tensor]:
    """XSBench: searches in a unionised grid, interpolates five reactions of each nuclide, sums by material."""
    idx = torch.searchsorted(grid, energy).clamp(1, grid.numel() - 1) - 1
    macro = torch.zeros(energy.numel(), 5, dtype=xs.dtype, device=xs.device)
    for slot in range(nuclides.size(1)):
        nuc = nuclides[material, slot]
        conc = densities[material, slot]
        low = index[idx, nuc].clamp(max=xs.size(1) - 2)
        e0, e1 = xs[nuc, low, 0], xs[nuc, low + 1, 0]
        f = ((e1 - energy) / (e1 - e0)).clamp(0, 1).unsqueeze(1)
        micro = xs[nuc, low + 1, 1:] - f * (xs[nuc, low + 1, 1:] - xs[nuc, low, 1:])
        macro = macro + conc.unsqueeze(1) * micro
    return macro, macro.argmax(1).bincount(minlength=5)


def neutron_lookups(place: Place) -> Made:
    lookups, count, points = place.size(3000, 500_000), place.size(10, 68), place.size(50, 800)
    materials, slots = 12, place.size(4, 20)
    own = torch.rand(count, points).sort(1).values
    grid = own.flatten().sort().values
    index = torch.stack([torch.searchsorted(own[i], grid, right=True).sub(1).clamp(min=0) for i in range(count)], 1)
    xs = torch.cat([own[..., None], torch.rand(count, points, 5)], dim=-1)
    return cross_sections, (
        place.rand(lookups),
        place.randint(materials, lookups),
        grid.to(place.device),
        index.to(place.device),
        place.randint(count, materials, slots),
        place.rand(materials, slots),
        xs.to(place.device),
    )


def ordinates_sweep(sigma: Tensor, source: Tensor, mu: Tensor, eta: Tensor, weight: Tensor, inner: int) -> Tensor:
    """Discrete ordinates in a plane: diamond differences swept by diagonals, each quadrant from its own corner."""
    ny, nx = sigma.shape
    flux = torch.zeros_like(sigma)
    for _ in range(inner):
        emission = source + 0.5 * sigma * flux
        flux = torch.zeros_like(sigma)
        for flip in ((), (0,), (1,), (0, 1)):
            s, q = sigma.flip(flip), emission.flip(flip)
            inflow_x = torch.zeros(mu.numel(), ny, dtype=s.dtype, device=s.device)
            inflow_y = torch.zeros(mu.numel(), nx, dtype=s.dtype, device=s.device)
            phi = torch.zeros_like(s)
            for d in range(nx + ny - 1):
                j = torch.arange(max(0, d - nx + 1), min(ny, d + 1), device=s.device)
                i = d - j
                psi = (q[j, i] + 2 * mu[:, None] * inflow_x[:, j] + 2 * eta[:, None] * inflow_y[:, i]) / (
                    s[j, i] + 2 * mu[:, None] + 2 * eta[:, None]
                )
                inflow_x[:, j] = (2 * psi - inflow_x[:, j]).clamp(min=0)
                inflow_y[:, i] = (2 * psi - inflow_y[:, i]).clamp(min=0)
                phi[j, i] = (weight[:, None] * psi).sum(0)
            flux = flux + phi.flip(flip)
    return flux


def sweeps(place: Place) -> Made:
    n, angles = place.size(6, 7), place.size(4, 4000)
    mu = 0.1 + 0.9 * place.rand(angles)
    eta = (1.05 - mu * mu).sqrt()
    return ordinates_sweep, (
        0.5 + place.rand(n, n),
        place.rand(n, n),
        mu,
        eta,
        torch.full((angles,), 0.25 / angles, device=place.device),
        1,
    )


def photon_walk(draws: Tensor, albedo: float, g: float, depth: float, bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """Photons in a turbid slab (MCML): steps, absorbed weight by depth, Henyey-Greenstein turns, all rays masked."""
    n, events = draws.size(1), draws.size(0)
    z = torch.zeros_like(draws[0, :, 0])
    ux, uy, uz = torch.zeros_like(z), torch.zeros_like(z), torch.ones_like(z)
    w = torch.ones_like(z)
    alive = torch.ones(n, dtype=torch.bool, device=z.device)
    absorbed = torch.zeros(bins, dtype=z.dtype, device=z.device)
    reflected, transmitted = torch.zeros_like(w), torch.zeros_like(w)
    for e in range(events):
        r1, r2, r3 = draws[e].unbind(1)
        z = torch.where(alive, z - uz * torch.log(r1), z)
        up, down = alive & (z < 0), alive & (z > depth)
        reflected[up] += w[up]
        transmitted[down] += w[down]
        alive = alive & ~up & ~down
        dw = torch.where(alive, w * (1 - albedo), 0.0)
        cell = (z / depth * bins).long().clamp(0, bins - 1)
        absorbed.scatter_add_(0, cell, dw)
        w = w - dw
        part = (1 - g * g) / (1 - g + 2 * g * r2)
        cost = ((1 + g * g - part * part) / (2 * g)).clamp(-1, 1)
        sint = torch.sqrt(1 - cost * cost)
        cosp, sinp = torch.cos(2 * math.pi * r3), torch.sin(2 * math.pi * r3)
        temp = torch.sqrt((1 - uz * uz).clamp(min=1e-6))
        steep = uz.abs() > 0.999
        nx = torch.where(steep, sint * cosp, sint * (ux * uz * cosp - uy * sinp) / temp + ux * cost)
        ny = torch.where(steep, sint * sinp, sint * (uy * uz * cosp + ux * sinp) / temp + uy * cost)
        nz = torch.where(steep, cost * uz.sign(), -sint * cosp * temp + uz * cost)
        norm = torch.rsqrt(nx * nx + ny * ny + nz * nz)
        ux, uy, uz = nx * norm, ny * norm, nz * norm
    return absorbed / n, reflected.mean(), transmitted.mean()


def photons(place: Place) -> Made:
    draws = 1e-4 + 0.9998 * place.rand(place.size(5, 16), place.size(2000, 400_000), 3)
    return photon_walk, (draws, 0.9, 0.75, 2.0, 50)


def red_black(u: Tensor, f: Tensor, coefficient: Tensor, omega: float, sweeps: int) -> tuple[Tensor, Tensor]:
    """Over-relaxed Gauss-Seidel in three dimensions: eight strided colours, written in place."""
    u = u.clone()
    corners = [(i, j, k) for i in (1, 2) for j in (1, 2) for k in (1, 2)]
    corners.sort(key=lambda c: sum(c) % 2)

    def part(t: Tensor, i: int, j: int, k: int) -> Tensor:
        n = t.size(0) - 2
        return t[i : i + n : 2, j : j + n : 2, k : k + n : 2]

    for _ in range(sweeps):
        for i, j, k in corners:
            total = part(u, i - 1, j, k) + part(u, i + 1, j, k)
            total = total + part(u, i, j - 1, k) + part(u, i, j + 1, k)
            total = total + part(u, i, j, k - 1) + part(u, i, j, k + 1)
            own = part(u, i, j, k)[: total.size(0), : total.size(1), : total.size(2)]
            a = part(coefficient, i, j, k)
            own += omega * ((total - part(f, i, j, k)) / (6.0 + a) - own)
    c = u[1:-1, 1:-1, 1:-1]
    laplace = u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] + u[1:-1, 2:, 1:-1] + u[1:-1, :-2, 1:-1]
    laplace = laplace + u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2]
    inner = (slice(1, -1),) * 3
    return u, (laplace - (6.0 + coefficient[inner]) * c - f[inner]).square().mean().sqrt()


def relaxation(place: Place) -> Made:
    n = place.size(18, 162)
    return red_black, (place.randn(n, n, n), place.randn(n, n, n), place.rand(n, n, n), 1.4, place.size(1, 2))


def magnetised_vortex(u: Tensor, bx: Tensor, by: Tensor, dx: float, steps: int) -> tuple[Tensor, Tensor]:
    """Orszag and Tang's vortex: rotated Lax-Friedrichs fluxes, and fields at faces moved by fields at corners."""
    gamma, dt = 5 / 3, 0.1 * dx

    def flux(state: Tensor, b: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        rho, m, e = state[0], state[1:3], state[3]
        v = m / rho
        magnetic = 0.5 * (b * b).sum(0)
        p = ((gamma - 1) * (e - 0.5 * rho * (v * v).sum(0) - magnetic)).clamp(min=1e-3)
        momentum = m * v[axis] - b * b[axis]
        momentum[axis] += p + magnetic
        energy = (e + p + magnetic) * v[axis] - b[axis] * (b * v).sum(0)
        fast = v[axis].abs() + torch.sqrt((gamma * p + 2 * magnetic) / rho)
        return torch.stack([m[axis], *momentum, energy]), fast

    for _ in range(steps):
        b = torch.stack([0.5 * (bx + bx.roll(1, 0)), 0.5 * (by + by.roll(1, 1))])
        change = torch.zeros_like(u)
        for axis in range(2):
            f, fast = flux(u, b, axis)
            right = [t.roll(-1, axis - 2) for t in (f, u, fast)]
            face = 0.5 * (f + right[0]) - 0.5 * torch.maximum(fast, right[2]) * (right[1] - u)
            change = change - (face - face.roll(1, axis - 2)) / dx
        v = u[1:3] / u[0]
        ez = v[1] * b[0] - v[0] * b[1]
        corner = 0.25 * (ez + ez.roll(-1, 0) + ez.roll(-1, 1) + ez.roll((-1, -1), (0, 1)))
        corner = corner + 0.1 * ((by.roll(-1, 0) - by) - (bx.roll(-1, 1) - bx))
        bx = bx + dt / dx * (corner - corner.roll(1, 1))
        by = by - dt / dx * (corner - corner.roll(1, 0))
        u = u + dt * change
    return u, torch.stack([bx, by])


def orszag_tang(place: Place) -> Made:
    n = place.size(32, 768)
    at = 2 * math.pi * (torch.arange(n) + 0.5) / n
    y, x = at[None, :].expand(n, n), at[:, None].expand(n, n)
    bx, by = -torch.sin(y) / math.sqrt(4 * math.pi), torch.sin(2 * x) / math.sqrt(4 * math.pi)
    rho = torch.full((n, n), 25 / (36 * math.pi))
    vx, vy, p = -torch.sin(y), torch.sin(x), 5 / (12 * math.pi)
    e = p / (5 / 3 - 1) + 0.5 * rho * (vx**2 + vy**2) + 0.5 * (bx**2 + by**2)
    u = torch.stack([rho, rho * vx, rho * vy, e])
    return magnetised_vortex, (
        u.to(place.device),
        bx.contiguous().to(place.device),
        by.contiguous().to(place.device),
        1.0 / n,
        place.size(2, 4),
    )


RK4A = (0.0, -567301805773 / 1357537059087, -2404267990393 / 2016746695238)
RK4A = (*RK4A, -3550918686646 / 2091501179385, -1275806237668 / 842570457699)
RK4B = (1432997174477 / 9575080441755, 5161836677717 / 13612068292357, 1720146321549 / 2090206949498)
RK4B = (*RK4B, 3134564353537 / 4481467310338, 2277821191437 / 14882151754819)


def galerkin_waves(u: Tensor, d: Tensor, lift: Tensor, speed: Tensor, h: float, dt: float, steps: int) -> Tensor:
    """Nodal discontinuous Galerkin for pressure and velocity of sound on a line; low-storage Runge-Kutta."""
    residual = torch.zeros_like(u)
    for _ in range(steps):
        for a, b in zip(RK4A, RK4B, strict=True):
            p, v = u
            left = torch.roll(u[:, :, -1], 1, dims=-1)
            right = torch.roll(u[:, :, 0], -1, dims=-1)
            jump_l, jump_r = u[:, :, 0] - left, u[:, :, -1] - right
            flux_p = torch.stack([0.5 * (-jump_l[1] - jump_l[0]), 0.5 * (jump_r[1] - jump_r[0])], dim=1)
            flux_v = torch.stack([0.5 * (-jump_l[0] - jump_l[1]), 0.5 * (jump_r[0] - jump_r[1])], dim=1)
            rhs_p = -(2 / h) * speed**2 * torch.einsum("ij,bje->bie", d, v)
            rhs_v = -(2 / h) * torch.einsum("ij,bje->bie", d, p)
            rhs_p = rhs_p + (2 / h) * speed * torch.einsum("if,bfe->bie", lift, flux_p)
            rhs_v = rhs_v + (2 / h) * speed * torch.einsum("if,bfe->bie", lift, flux_v)
            residual = a * residual + dt * torch.stack([rhs_p, rhs_v])
            u = u + b * residual
    return u


def discontinuous_waves(place: Place) -> Made:
    n, elements, b = place.size(5, 8), place.size(40, 4096), place.size(2, 24)
    nodes = -torch.cos(math.pi * torch.arange(n, dtype=torch.float64) / (n - 1))
    legendre = [torch.ones_like(nodes), nodes]
    slopes = [torch.zeros_like(nodes), torch.ones_like(nodes)]
    for k in range(1, n - 1):
        legendre.append(((2 * k + 1) * nodes * legendre[k] - k * legendre[k - 1]) / (k + 1))
        slopes.append(slopes[k - 1] + (2 * k + 1) * legendre[k])
    scale = torch.sqrt(torch.arange(n, dtype=torch.float64) + 0.5)
    v, dv = torch.stack(legendre, 1) * scale, torch.stack(slopes, 1) * scale
    d, ends = dv @ torch.linalg.inv(v), torch.zeros(n, 2, dtype=torch.float64)
    ends[0, 0] = ends[-1, 1] = 1.0
    lift = v @ (v.T @ ends)
    speed = torch.ones(elements, device=place.device)
    u = place.randn(2, b, 1, elements).expand(-1, -1, n, -1) * torch.linspace(0.8, 1.2, n, device=place.device)[:, None]
    operators = (d.float().to(place.device), lift.float().to(place.device))
    h = 2.0 / elements
    return galerkin_waves, (u.contiguous(), *operators, speed, h, 0.02 * h, place.size(1, 3))


def elastic_ring(
    points: Tensor, velocity: Tensor, wave: Tensor, k2: Tensor, h: float, dt: float, steps: int
) -> tuple[Tensor, Tensor]:
    """Peskin's immersed boundary: a ring's forces spread by a four-point delta, a spectral flow moves it."""
    b, n = points.size(0), velocity.size(-1)
    offsets = torch.arange(-1, 3, device=points.device)

    def delta(r: Tensor) -> Tensor:
        r = r.abs()
        near = (3 - 2 * r + torch.sqrt((1 + 4 * r - 4 * r * r).clamp(min=0))) / 8
        far = (5 - 2 * r - torch.sqrt((-7 + 12 * r - 4 * r * r).clamp(min=0))) / 8
        return torch.where(r < 1, near, torch.where(r < 2, far, 0.0))

    for _ in range(steps):
        force = points.roll(-1, 1) - 2 * points + points.roll(1, 1)
        scaled = points / h
        base = scaled.floor().long()
        cells = base[..., None] + offsets
        weight = delta(scaled[..., None] - cells)
        w = weight[:, :, 0, :, None] * weight[:, :, 1, None, :]
        cells = cells % n
        flat = (cells[:, :, 0, :, None] * n + cells[:, :, 1, None, :]).flatten(1)
        spread = torch.zeros(b, 2, n * n, dtype=points.dtype, device=points.device)
        values = (force[..., None, None] * w[:, :, None]).permute(0, 2, 1, 3, 4).flatten(2)
        spread.scatter_add_(2, flat[:, None].expand(-1, 2, -1), values)
        hat = torch.fft.rfft2(velocity + 50.0 * dt * spread.view(b, 2, n, n))
        divergence = (hat * wave).sum(1, keepdim=True)
        hat = (hat - wave * divergence / k2) / (1 + 0.01 * dt * k2)
        velocity = torch.fft.irfft2(hat, s=(n, n))
        sampled = velocity.flatten(2).gather(2, flat[:, None].expand(-1, 2, -1)).view(b, 2, -1, 4, 4)
        points = points + dt * (sampled * w[:, None]).sum((-2, -1)).transpose(1, 2)
    return points, velocity


def immersed_ring(place: Place) -> Made:
    b, n, ring = place.size(2, 8), place.size(32, 256), place.size(64, 1024)
    angle = 2 * math.pi * torch.arange(ring) / ring
    points = 0.5 + torch.stack([0.3 * torch.cos(angle), 0.2 * torch.sin(angle)], -1) + 0.0013
    kx = 2 * math.pi * torch.fft.fftfreq(n, 1 / n)[:, None].expand(n, n // 2 + 1)
    ky = 2 * math.pi * torch.fft.rfftfreq(n, 1 / n)[None, :].expand(n, n // 2 + 1)
    k2 = (kx**2 + ky**2).contiguous()
    k2[0, 0] = 1.0
    velocity = 0.1 * place.randn(b, 2, n, n)
    return elastic_ring, (
        points.repeat(b, 1, 1).to(place.device),
        velocity,
        torch.stack([kx, ky]).to(place.device),
        k2.to(place.device),
        1.0 / n,
        0.01,
        place.size(1, 4),
    )


def mie_spheres(x: Tensor, n_real: Tensor, n_imag: Tensor, mu: Tensor, terms: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mie's series (Bohren and Huffman): logarithmic derivatives downwards, Bessel functions upwards, amplitudes."""
    m = torch.complex(n_real, n_imag)
    y = x * m
    dlog = torch.zeros(terms + 16, *y.shape, dtype=y.dtype, device=y.device)
    for n in range(terms + 14, 0, -1):
        rn = (n + 1) / y
        dlog[n - 1] = rn - 1 / (dlog[n] + rn)
    psi0, psi1 = torch.cos(x), torch.sin(x)
    chi0, chi1 = -torch.sin(x), torch.cos(x)
    pi0, pi1 = torch.zeros_like(mu), torch.ones_like(mu)
    scattered, extinct = torch.zeros_like(x), torch.zeros_like(x)
    s1 = torch.zeros(*x.shape, mu.numel(), dtype=y.dtype, device=y.device)
    s2 = torch.zeros_like(s1)
    for n in range(1, terms + 1):
        psi = (2 * n - 1) * psi1 / x - psi0
        chi = (2 * n - 1) * chi1 / x - chi0
        xi, xi1 = torch.complex(psi, -chi), torch.complex(psi1, -chi1)
        da = dlog[n - 1] / m + n / x
        db = dlog[n - 1] * m + n / x
        a = (da * psi - psi1) / (da * xi - xi1)
        b = (db * psi - psi1) / (db * xi - xi1)
        a, b = torch.where(n > x + 10, 0, a), torch.where(n > x + 10, 0, b)
        scattered = scattered + (2 * n + 1) * (a.abs() ** 2 + b.abs() ** 2)
        extinct = extinct + (2 * n + 1) * (a + b).real
        tau = n * mu * pi1 - (n + 1) * pi0
        factor = (2 * n + 1) / (n * (n + 1))
        s1 = s1 + factor * (a[:, None] * pi1 + b[:, None] * tau)
        s2 = s2 + factor * (a[:, None] * tau + b[:, None] * pi1)
        pi0, pi1 = pi1, ((2 * n + 1) * mu * pi1 - (n + 1) * pi0) / n
        psi0, psi1, chi0, chi1 = psi1, psi, chi1, chi
    return 2 / x**2 * scattered, 2 / x**2 * extinct, 0.5 * (s1.abs() ** 2 + s2.abs() ** 2)


def mie(place: Place) -> Made:
    n, terms = place.size(40, 20_000), place.size(8, 18)
    x = 0.5 + (place.size(4, 8) - 0.5) * place.rand(n)
    mu = torch.cos(torch.linspace(0, math.pi, place.size(9, 37))).to(place.device)
    return mie_spheres, (
        x.double(),
        1.2 + 0.4 * place.rand(n).double(),
        0.02 * place.rand(n).double(),
        mu.double(),
        terms,
    )


def film_stack(thickness: Tensor, index: Tensor, k0: Tensor, cos0: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Reflectance of stacked films by two-by-two characteristic matrices, both polarisations, fitted to a wish."""
    total = torch.zeros((), device=k0.device, dtype=k0.dtype)
    spectra = []
    sin2 = 1 - cos0**2
    for polarised in ("s", "p"):
        m11 = torch.ones(cos0.numel(), k0.numel(), dtype=index.dtype, device=k0.device)
        m12, m21, m22 = torch.zeros_like(m11), torch.zeros_like(m11), torch.ones_like(m11)
        for layer in range(thickness.numel()):
            n = index[layer]
            cosine = torch.sqrt(1 - sin2[:, None] / n**2)
            eta = n * cosine if polarised == "s" else n / cosine
            phase = k0 * thickness[layer] * n * cosine
            c, s = torch.cos(phase), 1j * torch.sin(phase)
            a11, a12, a21 = c, s / eta, s * eta
            m11, m12, m21, m22 = (
                m11 * a11 + m12 * a21,
                m11 * a12 + m12 * a11,
                m21 * a11 + m22 * a21,
                m21 * a12 + m22 * a11,
            )
        eta0 = cos0 if polarised == "s" else 1 / cos0
        glass = torch.sqrt(1 - sin2 / 1.52**2)
        eta_s = 1.52 * glass if polarised == "s" else 1.52 / glass
        bb, cc = m11 + m12 * eta_s[:, None], m21 + m22 * eta_s[:, None]
        r = (eta0[:, None] * bb - cc) / (eta0[:, None] * bb + cc)
        reflectance = r.real.square() + r.imag.square()
        spectra.append(reflectance)
        total = total + (reflectance - wanted).square().mean()
    return total, torch.stack(spectra).detach()


def films(place: Place) -> Made:
    layers, waves, angles = place.size(4, 7), place.size(40, 6000), place.size(3, 32)
    wavelength = torch.linspace(0.4, 0.8, waves)
    real = torch.where(torch.arange(layers)[:, None] % 2 == 0, 2.3 + 0.02 / wavelength**2, 1.45 + 0.004 / wavelength**2)
    index = torch.complex(real, torch.full_like(real, 1e-3))
    thickness = 0.05 + 0.1 * place.rand(layers)
    wanted = ((wavelength > 0.5) & (wavelength < 0.6)).float()
    return film_stack, (
        thickness.requires_grad_(),
        index.to(place.device),
        (2 * math.pi / wavelength).to(place.device),
        torch.cos(torch.linspace(0.0, 1.0, angles)).to(place.device),
        F.avg_pool1d(wanted[None, None], 5, 1, 2)[0, 0].to(place.device),
    )


ROWS: tuple[Row, ...] = (
    Row("program/wilson_dirac_operator", dirac_operator),
    Row("program/remapped_hydrodynamics", clover_leaf),
    Row("program/spectral_element_solve", nekbone, dtype=torch.float64),
    Row("program/neutron_cross_sections", neutron_lookups),
    Row("program/discrete_ordinates_sweep", sweeps),
    Row("program/photon_slab_walk", photons),
    Row("program/red_black_relaxation", relaxation),
    Row("program/magnetised_vortex", orszag_tang),
    Row("program/discontinuous_galerkin_waves", discontinuous_waves),
    Row("program/immersed_elastic_ring", immersed_ring),
    Row("program/mie_spheres", mie),
    Row("program/thin_film_design", films, "training"),
)
