"""Bodies, spins, sheets and shapes: grains, plates, rays of black holes, features of clouds, relations."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def spin_torques(m: Tensor, field: Tensor, steps: int, dt: float, damping: float) -> tuple[Tensor, Tensor]:
    """Landau, Lifshitz and Gilbert on a film: exchange, chirality, anisotropy; Heun's steps at unit length."""
    easy = m.new_tensor([0.0, 0.0, 1.0])

    def effective(m: Tensor) -> Tensor:
        right, left = torch.roll(m, -1, 1), torch.roll(m, 1, 1)
        down, up = torch.roll(m, -1, 0), torch.roll(m, 1, 0)
        exchange = right + left + down + up - 4 * m
        dx, dy = (right - left) / 2, (down - up) / 2
        chiral = torch.stack([-dx[..., 2], -dy[..., 2], dx[..., 0] + dy[..., 1]], dim=-1)
        return exchange + 0.6 * chiral + 0.2 * (m @ easy)[..., None] * easy + field

    def torque(m: Tensor) -> Tensor:
        h = effective(m)
        cross = torch.linalg.cross(m, h)
        return -(cross + damping * torch.linalg.cross(m, cross)) / (1 + damping**2)

    for _ in range(steps):
        first = torque(m)
        second = torque(m + dt * first)
        m = F.normalize(m + 0.5 * dt * (first + second), dim=-1)
    dx, dy = torch.roll(m, -1, 1) - m, torch.roll(m, -1, 0) - m
    charge = (m * torch.linalg.cross(dx, dy)).sum() / (4 * math.pi)
    return m, charge


def spins(place: Place) -> Made:
    n = place.size(48, 1024)
    return spin_torques, (F.normalize(place.randn(n, n, 3), dim=-1), place.randn(n, n, 3) * 0.05, 6, 0.05, 0.3)


def vlasov_poisson(f: Tensor, v: Tensor, length: float, dt: float, steps: int) -> tuple[Tensor, Tensor]:
    """Landau damping: half steps in space by Fourier shifts, in velocity by cubic interpolation along E."""
    nx, nv = f.shape
    k = 2 * math.pi * torch.fft.rfftfreq(nx, length / nx, device=f.device, dtype=f.dtype)
    dv = v[1] - v[0]
    shift = torch.polar(torch.ones(nx // 2 + 1, nv, device=f.device, dtype=f.dtype), -k[:, None] * v * dt / 2)
    index = torch.arange(nv, device=f.device)
    energies = []
    for _ in range(steps):
        f = torch.fft.irfft(torch.fft.rfft(f, dim=0) * shift, n=nx, dim=0)
        density = f.sum(1) * dv
        spectrum = torch.fft.rfft(1 - density)
        field = torch.fft.irfft(torch.where(k > 0, spectrum / (1j * k.clamp(min=1e-3)), 0), n=nx)
        at = index + field[:, None] * dt / dv
        base = at.floor()
        t = at - base
        taps = [(base.long() + o).clamp(0, nv - 1) for o in (-1, 0, 1, 2)]
        weights = (-t * (t - 1) * (t - 2) / 6, (t**2 - 1) * (t - 2) / 2, -t * (t + 1) * (t - 2) / 2, t * (t**2 - 1) / 6)
        f = sum(w * f.gather(1, tap) for w, tap in zip(weights, taps, strict=True))
        f = torch.fft.irfft(torch.fft.rfft(f, dim=0) * shift, n=nx, dim=0)
        energies.append(0.5 * field.square().mean() * length)
    return f, torch.stack(energies)


def damping(place: Place) -> Made:
    nx, nv, length = place.size(32, 1024), place.size(64, 2048), 4 * math.pi
    v = torch.linspace(-6, 6, nv, device=place.device)
    x = torch.arange(nx, device=place.device) * length / nx
    f = (1 + 0.05 * torch.cos(0.5 * x))[:, None] * torch.exp(-(v**2) / 2) / math.sqrt(2 * math.pi)
    return vlasov_poisson, (f, v, length, 0.05, 4)


def grains(
    x: Tensor, v: Tensor, spin: Tensor, radius: Tensor, pairs: Tensor, dt: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Discrete elements (Cundall and Strack, 1979): springs, dashpots and friction of listed pairs, and a floor."""
    i, j = pairs
    offset = x[j] - x[i]
    distance = offset.norm(dim=-1).clamp(min=1e-6)
    normal = offset / distance[:, None]
    overlap = radius[i] + radius[j] - distance
    touching = overlap > 0
    relative = v[j] - v[i] - torch.linalg.cross(radius[i, None] * spin[i] + radius[j, None] * spin[j], normal)
    approach = (relative * normal).sum(-1)
    slip = relative - approach[:, None] * normal
    push = torch.where(touching, (500 * overlap.clamp(min=0) ** 1.5 - 2.0 * approach).clamp(min=0), 0.0)
    speed = slip.norm(dim=-1).clamp(min=1e-6)
    friction = torch.minimum(0.4 * push, 5.0 * speed)[:, None] * slip / speed[:, None]
    force = friction - push[:, None] * normal
    torque = torch.linalg.cross(normal, friction)
    total = torch.zeros_like(x).index_add_(0, i, force).index_add_(0, j, -force)
    turning = torch.zeros_like(x)
    turning = turning.index_add_(0, i, radius[i, None] * torque).index_add_(0, j, radius[j, None] * torque)
    mass = radius**3
    depth = (radius - x[:, 2]).clamp(min=0)
    total[:, 2] += 500 * depth**1.5 - 9.81 * mass
    v = v + dt * total / mass[:, None]
    spin = spin + dt * turning / (0.4 * mass * radius**2)[:, None]
    return x + dt * v, v, spin


def granular(place: Place) -> Made:
    n, p = place.size(500, 200_000), place.size(3000, 1_500_000)
    x = place.rand(n, 3) * (n ** (1 / 3)) * 1.2
    i = place.randint(n, p)
    pairs = torch.stack([i, (i + 1 + place.randint(n - 1, p)) % n])
    x[pairs[1, : n // 4]] = x[pairs[0, : n // 4]] + 0.6
    return grains, (x, place.randn(n, 3), place.randn(n, 3), 0.4 + 0.2 * place.rand(n), pairs, 1e-3)


def cracking_plate(u: Tensor, v: Tensor, intact: Tensor, reach: int, steps: int, dt: float) -> tuple[Tensor, Tensor]:
    """Bond-based peridynamics (Silling, 2000) on a grid: every offset is a bond that stretches and breaks for good."""
    offsets = [
        (a, b)
        for a in range(-reach, reach + 1)
        for b in range(-reach, reach + 1)
        if (a, b) != (0, 0) and a * a + b * b <= reach * reach
    ]
    for _ in range(steps):
        force = torch.zeros_like(u)
        alive = []
        for k, (a, b) in enumerate(offsets):
            rest = u.new_tensor([float(a), float(b)])
            length = math.hypot(a, b)
            eta = torch.roll(u, (-a, -b), dims=(0, 1)) - u + rest
            now = eta.norm(dim=-1)
            stretch = (now - length) / length
            bond = intact[k] & (stretch.abs() < 0.25)
            force = force + torch.where(bond[..., None], (stretch / length / now)[..., None] * eta, 0.0)
            alive.append(bond)
        intact = torch.stack(alive)
        v = 0.999 * v + dt * force
        u = u + dt * v
    return u, 1 - intact.to(u.dtype).mean(0)


def plates(place: Place) -> Made:
    n = place.size(32, 768)
    intact = torch.ones(28, n, n, dtype=torch.bool, device=place.device)
    return cracking_plate, (0.03 * place.randn(n, n, 2), 0.1 * place.randn(n, n, 2), intact, 3, 2, 0.05)


def excitable_sheet(v: Tensor, w: Tensor, diffusivity: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """FitzHugh and Nagumo in tissue with scars: divergence of fluxes with harmonic means on faces, Neumann edges."""

    def faces(d: Tensor, axis: int) -> Tensor:
        n = d.size(axis)
        a, b = d.narrow(axis, 0, n - 1), d.narrow(axis, 1, n - 1)
        return 2 * a * b / (a + b + 1e-9)

    fx, fy = faces(diffusivity, 1), faces(diffusivity, 0)
    peak = v
    for _ in range(steps):
        jx, jy = fx * torch.diff(v, dim=1), fy * torch.diff(v, dim=0)
        spread = F.pad(jx, (0, 1)) - F.pad(jx, (1, 0)) + F.pad(jy, (0, 0, 0, 1)) - F.pad(jy, (0, 0, 1, 0))
        dv = v * (1 - v) * (v - 0.1) * 8 - w + spread
        w = w + 0.1 * 0.05 * (v - 0.5 * w)
        v = v + 0.1 * dv
        peak = torch.maximum(peak, v)
    return v, peak


def tissue(place: Place) -> Made:
    n = place.size(64, 2048)
    return excitable_sheet, (place.rand(n, n), 0.1 * place.rand(n, n), (place.rand(n, n) < 0.95).float() * 0.8, 10)


def bent_rays(impact: Tensor, angle: Tensor, steps: int, h: float) -> tuple[Tensor, Tensor]:
    """Photons around Schwarzschild's hole: Binet's equation by Runge and Kutta, disc crossings, redshift's shading."""
    u, p = torch.full_like(impact, 1 / 20), torch.sqrt((1 / impact**2 - (1 / 400) * (1 - 2 / 20)).clamp(min=1e-8))
    phi = torch.zeros_like(impact)
    light = torch.zeros_like(impact)
    gone = torch.zeros_like(impact, dtype=torch.bool)

    def bend(u: Tensor) -> Tensor:
        return 3 * u * u - u

    for _ in range(steps):
        k1u, k1p = p, bend(u)
        k2u, k2p = p + 0.5 * h * k1p, bend(u + 0.5 * h * k1u)
        k3u, k3p = p + 0.5 * h * k2p, bend(u + 0.5 * h * k2u)
        k4u, k4p = p + h * k3p, bend(u + h * k3u)
        new_u = u + h / 6 * (k1u + 2 * k2u + 2 * k3u + k4u)
        new_p = p + h / 6 * (k1p + 2 * k2p + 2 * k3p + k4p)
        u, p = torch.where(gone, u, new_u), torch.where(gone, p, new_p)
        before = torch.floor((phi + angle) / math.pi)
        phi = torch.where(gone, phi, phi + h)
        crossed = (torch.floor((phi + angle) / math.pi) != before) & ~gone
        disc = crossed & (u > 1 / 15) & (u < 1 / 6)
        shift = torch.sqrt((1 - 3 * u).clamp(min=0.01)) / (1 + u**1.5 * impact * torch.sin(angle))
        light = light + torch.where(disc, shift**4 * u.clamp(min=1e-6) ** 1.5 * 50, 0.0)
        gone = gone | (u > 0.5) | (u < 1 / 40)
    return light, gone & (u > 0.5)


def black_hole(place: Place) -> Made:
    n = place.size(2000, 1_000_000)
    return bent_rays, (1 + 14 * place.rand(n), 6 * place.rand(n), 12, 0.2)


def rigid_motions(twist: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """SE(3)'s exponential and back: Rodrigues with series at small angles, the left Jacobian, and the points moved."""
    rho, omega = twist[:, :3], twist[:, 3:]
    theta2 = omega.square().sum(-1)
    small = theta2 < 1e-4
    theta = torch.where(small, torch.ones_like(theta2), theta2).sqrt()
    a = torch.where(small, 1 - theta2 / 6, torch.sin(theta) / theta)
    b = torch.where(small, 0.5 - theta2 / 24, (1 - torch.cos(theta)) / theta**2)
    c = torch.where(small, 1 / 6 - theta2 / 120, (theta - torch.sin(theta)) / theta**3)
    x, y, z = omega.unbind(-1)
    zero = torch.zeros_like(x)
    hat = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=-1).view(-1, 3, 3)
    square = hat @ hat
    eye = torch.eye(3, device=twist.device, dtype=twist.dtype)
    rotation = eye + a[:, None, None] * hat + b[:, None, None] * square
    jacobian = eye + b[:, None, None] * hat + c[:, None, None] * square
    translation = (jacobian @ rho[..., None]).squeeze(-1)
    moved = points @ rotation.transpose(1, 2) + translation[:, None]
    cosine = ((rotation.diagonal(dim1=1, dim2=2).sum(-1) - 1) / 2).clamp(-1 + 1e-6, 1 - 1e-6)
    axis = torch.stack([rotation[:, 2, 1] - rotation[:, 1, 2], rotation[:, 0, 2] - rotation[:, 2, 0]], dim=-1)
    return moved, torch.acos(cosine)[:, None] * axis


def twists(place: Place) -> Made:
    b, n = place.size(100, 20_000), place.size(16, 64)
    scale = torch.where(place.rand(b, 1) < 0.2, 1e-3, 1.0)
    return rigid_motions, ((scale * place.randn(b, 6)).requires_grad_(), place.randn(b, n, 3))


def point_feature_histograms(points: Tensor, normals: Tensor, near: Tensor, bins: int) -> Tensor:
    """Rusu et al., 2009 (FPFH): angles of Darboux frames to neighbours, three histograms, weighted by those nearby."""
    offset = points[near] - points[:, None]
    distance = offset.norm(dim=-1).clamp(min=1e-6)
    direction = offset / distance[..., None]
    u = normals[:, None].expand_as(direction)
    v = torch.linalg.cross(direction, u)
    v = v / v.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    w = torch.linalg.cross(u, v)
    other = normals[near]
    alpha, phi = (v * other).sum(-1), (u * direction).sum(-1)
    theta = torch.atan2((w * other).sum(-1), (u * other).sum(-1)) / math.pi
    parts = []
    for angle in (alpha, phi, theta):
        index = ((angle + 1) / 2 * bins).long().clamp(0, bins - 1)
        parts.append(F.one_hot(index, bins).to(points.dtype).mean(1))
    simple = torch.cat(parts, dim=1)
    weighted = (simple[near] / distance[..., None]).mean(1)
    return simple + weighted / distance.mean()


def features_of_points(place: Place) -> Made:
    n, k = place.size(500, 40_000), place.size(8, 32)
    points = place.rand(n, 3)
    return point_feature_histograms, (points, F.normalize(place.randn(n, 3), dim=-1), place.randint(n, n, k), 11)


def consensus_plane(points: Tensor, triples: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
    """RANSAC: planes through random triples, inliers counted at once, least squares of the best one's inliers."""
    a, b, c = points[triples].unbind(1)
    normal = torch.linalg.cross(b - a, c - a)
    size = normal.norm(dim=-1, keepdim=True)
    normal = normal / size.clamp(min=1e-9)
    d = -(normal * a).sum(-1)
    distance = (points @ normal.T + d).abs()
    inside = distance < tolerance
    score = (inside * (1 - distance / tolerance)).sum(0)
    best = score.masked_fill(size.squeeze(1) < 1e-6, -1).argmax()
    chosen = inside[:, best].to(points.dtype)
    mean = (points * chosen[:, None]).sum(0) / chosen.sum()
    centred = (points - mean) * chosen[:, None]
    values, vectors = torch.linalg.eigh(centred.T @ centred)
    final = vectors[:, 0] * torch.sign(vectors[2, 0])
    residual = (points - mean) @ final
    return final, residual.abs(), values / chosen.sum()


def planes(place: Place) -> Made:
    n, k = place.size(2000, 60_000), place.size(64, 512)
    points = place.randn(n, 3)
    points[: n // 2, 2] = 0.3 * points[: n // 2, 0] + 0.01 * points[: n // 2, 2]
    return consensus_plane, (points, place.randint(n // 2, k, 3), 0.05)


class RotatedRelations(nn.Module):
    """RotatE (Sun et al., 2019): relations are rotations in the complex plane; self-adversarial negatives; ranks."""

    def __init__(self, entities: int, relations: int, width: int) -> None:
        super().__init__()
        self.entity = nn.Parameter(torch.empty(entities, 2 * width).uniform_(-0.1, 0.1))
        self.relation = nn.Parameter(torch.empty(relations, width).uniform_(-0.1, 0.1))

    def forward(self, triple: Tensor, negative: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        head, relation, tail = triple.unbind(1)
        phase = self.relation[relation] / (0.1 / math.pi)
        re_r, im_r = torch.cos(phase), torch.sin(phase)
        re_h, im_h = self.entity[head].chunk(2, dim=-1)
        re, im = re_h * re_r - im_h * im_r, re_h * im_r + im_h * re_r

        def score(t: Tensor) -> Tensor:
            re_t, im_t = t.chunk(2, dim=-1)
            return 9.0 - torch.stack([re[:, None] - re_t, im[:, None] - im_t]).norm(dim=0).sum(-1)

        positive = score(self.entity[tail][:, None]).squeeze(1)
        negatives = score(self.entity[negative])
        adversarial = (F.softmax(negatives, dim=1).detach() * F.logsigmoid(-negatives)).sum(1)
        loss = -(weight * F.logsigmoid(positive)).sum() / weight.sum() - (weight * adversarial).sum() / weight.sum()
        return loss / 2, (negatives > positive[:, None]).sum(1) + 1


def relations(place: Place) -> Made:
    entities, width, b, k = place.size(300, 40_000), place.size(16, 256), place.size(32, 512), place.size(16, 128)
    triple = torch.stack([place.randint(entities, b), place.randint(11, b), place.randint(entities, b)], dim=1)
    return RotatedRelations(entities, 11, width).to(place.device), (
        triple,
        place.randint(entities, b, k),
        place.rand(b),
    )


def shortest_paths(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All pairs by repeated min-plus squaring; closeness, eccentricity and how many are within reach."""
    n = weight.size(0)
    distance = weight.clone()
    distance.fill_diagonal_(0)
    length = 1
    while length < n:
        distance = torch.minimum(distance, (distance[:, :, None] + distance[None]).amin(1))
        length *= 2
    finite = torch.isfinite(distance)
    reach = finite.sum(1) - 1
    total = torch.where(finite, distance, 0.0).sum(1)
    closeness = torch.where(total > 0, reach / total * reach / (n - 1), 0.0)
    return distance, closeness, torch.where(finite, distance, -torch.inf).amax(1)


def paths(place: Place) -> Made:
    n = place.size(48, 256)
    weight = place.rand(n, n)
    return shortest_paths, (weight.masked_fill(place.rand(n, n) > 4 / n, torch.inf),)


class RelationalBases(nn.Module):
    """R-GCN (Schlichtkrull et al., 2017): weights of relations from few bases, means by relation and target."""

    def __init__(self, relations: int, width: int, bases: int) -> None:
        super().__init__()
        self.relations = relations
        self.bases = nn.Parameter(torch.randn(bases, width, width) / math.sqrt(width))
        self.share = nn.Parameter(torch.randn(relations, bases))
        self.root = nn.Linear(width, width)

    def forward(self, x: Tensor, edge: Tensor, kind: Tensor) -> Tensor:
        source, target = edge
        weight = torch.einsum("rb,bij->rij", self.share, self.bases)
        slot = target * self.relations + kind
        count = torch.bincount(slot, minlength=x.size(0) * self.relations)
        scale = 1 / count[slot].to(x.dtype)
        out = self.root(x)
        for r in range(self.relations):
            factor = torch.where(kind == r, scale, torch.zeros_like(scale))
            message = (x @ weight[r])[source] * factor[:, None]
            out = out.index_add(0, target, message)
        return F.relu(out)


def relational(place: Place) -> Made:
    n, e, width = place.size(200, 20_000), place.size(1000, 200_000), place.size(16, 64)
    return RelationalBases(5, width, 3).to(place.device), (
        place.randn(n, width),
        place.randint(n, 2, e),
        place.randint(5, e),
    )


ROWS: tuple[Row, ...] = (
    Row("program/spin_torques", spins),
    Row("program/vlasov_landau_damping", damping),
    Row("program/rolling_grains", granular),
    Row("program/cracking_plate", plates),
    Row("program/excitable_sheet", tissue),
    Row("program/black_hole_rays", black_hole),
    Row("program/rigid_motion_twists", twists, "training"),
    Row("program/point_feature_histograms", features_of_points),
    Row("program/consensus_planes", planes),
    Row("program/rotated_relations", relations, "training"),
    Row("program/min_plus_paths", paths),
    Row("program/relational_bases", relational, "training"),
)
