"""Molecules and many particles: cell lists, long ranges, three bodies, thermostats, constraints, reaction paths."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def cell_list_forces(x: Tensor, box: float, cells: int, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
    """Forces within a cutoff: particles sorted into cells of a padded table, each cell against its nine neighbours."""
    n = x.size(0)
    width = box / cells
    cell = (x / width).long().clamp(0, cells - 1)
    key = cell[:, 0] * cells + cell[:, 1]
    order = torch.argsort(key, stable=True)
    counts = torch.bincount(key, minlength=cells * cells)
    start = counts.cumsum(0) - counts
    ordered_key = key[order]
    slot = torch.arange(n, device=x.device) - start[ordered_key]
    table = torch.full((cells * cells, capacity), n, dtype=torch.int64, device=x.device)
    inside = slot < capacity
    table[ordered_key[inside], slot[inside]] = order[inside]
    padded = torch.cat([x, x.new_full((1, 2), 1e3)])
    force, energy = torch.zeros_like(x), torch.zeros_like(x[:, 0])
    for dx, dy in itertools.product((-1, 0, 1), repeat=2):
        other = ((cell[:, 0] + dx) % cells) * cells + (cell[:, 1] + dy) % cells
        partner = table[other]
        d = x[:, None] - padded[partner]
        d = torch.where((partner == n)[..., None], d, d - box * torch.round(d / box))
        r2 = d.square().sum(-1)
        near = (r2 < width**2) & (partner != torch.arange(n, device=x.device)[:, None])
        s = 1 - r2 / width**2
        energy = energy + torch.where(near, s**2, 0.0).sum(1)
        force = force + (torch.where(near, s, 0.0)[..., None] * d).sum(1)
    return force, energy, counts


def cell_list(place: Place) -> Made:
    cells = place.size(16, 180)
    n = cells * cells * 5
    return cell_list_forces, (cells * place.rand(n, 2) * 0.999, float(cells), cells, 16)


def ewald(x: Tensor, charge: Tensor, box: float, reach: int = 5, alpha: float = 0.6) -> tuple[Tensor, Tensor]:
    """Ewald, 1921: structure factors of long waves, complementary error functions of pairs, the charges' own part."""
    m = torch.arange(-reach, reach + 1, device=x.device, dtype=x.dtype)
    k = 2 * math.pi / box * torch.cartesian_prod(m, m, m)
    k2 = k.square().sum(-1)
    weight = torch.where(k2 > 0, torch.exp(-k2 / (4 * alpha**2)) / k2.clamp(min=1e-6), 0.0)
    phase = x @ k.T
    real = torch.einsum("bn,bnk->bk", charge, torch.cos(phase))
    imaginary = torch.einsum("bn,bnk->bk", charge, torch.sin(phase))
    far = 2 * math.pi / box**3 * (weight * (real**2 + imaginary**2)).sum(-1)
    d = x[:, :, None] - x[:, None]
    d = d - box * torch.round(d / box)
    r = (d.square().sum(-1) + 1e-2).sqrt()
    pair = charge[:, :, None] * charge[:, None] * torch.erfc(alpha * r) / r
    near = 0.5 * (pair.sum(dim=(1, 2)) - pair.diagonal(dim1=1, dim2=2).sum(-1))
    own = alpha / math.pi**0.5 * charge.square().sum(-1)
    return far + near - own, near


def ewald_sum(place: Place) -> Made:
    b, n = place.size(1, 16), place.size(64, 384)
    charge = place.randn(b, n)
    x = (8 * place.rand(b, n, 3)).requires_grad_()
    return ewald, (x, (charge - charge.mean(1, keepdim=True)).requires_grad_(), 8.0)


def stillinger_weber(x: Tensor, neighbours: Tensor, strength: Tensor) -> Tensor:
    """Stillinger and Weber, 1985: silicon's pairs, and angles of all pairs of neighbours."""
    cut = 1.8
    d = x[neighbours] - x[:, None]
    r = (d.square().sum(-1) + 1e-3).sqrt()
    inside = r < cut - 0.02
    gap = torch.where(inside, r - cut, -1.0)
    pair = strength[0] * (0.6 / r**4 - 1) * torch.exp(1 / gap)
    cosine = torch.einsum("nad,nbd->nab", d, d) / (r[:, :, None] * r[:, None])
    decay = torch.exp(1.2 / gap) * inside
    triple = strength[1] * (cosine + 1 / 3) ** 2 * decay[:, :, None] * decay[:, None]
    upper = torch.triu(triple, diagonal=1)
    return 0.5 * (pair * inside).sum(1) + upper.sum(dim=(1, 2))


def silicon(place: Place) -> Made:
    side, k = place.size(9, 48), 12
    grid = torch.stack(torch.meshgrid(*[torch.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3)
    x = grid * 1.1 + 0.1 * torch.randn(len(grid), 3)
    shifts = [s for s in itertools.product((-1, 0, 1), repeat=3) if 0 < sum(map(abs, s)) <= 2][:k]
    near = (grid[:, None] + torch.tensor(shifts)).clamp(0, side - 1)
    index = (near[..., 0] * side + near[..., 1]) * side + near[..., 2]
    strength = torch.tensor([7.0, 21.0]).to(place.device)
    return stillinger_weber, (x.to(place.device).requires_grad_(), index.to(place.device), strength.requires_grad_())


def baoab(x: Tensor, v: Tensor, noise: Tensor, mass: Tensor, dt: float = 0.05) -> tuple[Tensor, Tensor, Tensor]:
    """Leimkuhler and Matthews, 2013: Langevin dynamics of polymer chains that resist bending, split in five."""

    def force(x: Tensor) -> Tensor:
        bond = x[:, 1:] - x[:, :-1]
        length = bond.norm(dim=-1, keepdim=True)
        tension = 20.0 * (length - 1) * bond / length
        pull = F.pad(tension, (0, 0, 0, 1)) - F.pad(tension, (0, 0, 1, 0))
        bend = x[:, 2:] - 2 * x[:, 1:-1] + x[:, :-2]
        lift = 2 * F.pad(bend, (0, 0, 1, 1)) - F.pad(bend, (0, 0, 0, 2)) - F.pad(bend, (0, 0, 2, 0))
        return pull + lift - 0.05 * x

    friction = math.exp(-0.5 * dt)
    kick = (1 - friction**2) ** 0.5
    work = torch.zeros_like(x[:, 0, 0])
    f = force(x)
    for step in range(noise.size(0)):
        v = v + 0.5 * dt * f / mass
        x = x + 0.5 * dt * v
        v = friction * v + kick * noise[step] / mass.sqrt()
        x = x + 0.5 * dt * v
        f = force(x)
        v = v + 0.5 * dt * f / mass
        work = work + (f * v).sum(dim=(1, 2)) * dt
    extent = (x - x.mean(1, keepdim=True)).square().sum(-1).mean(1).sqrt()
    return x, extent, work


def polymers(place: Place) -> Made:
    chains, beads, steps = place.size(32, 8192), place.size(64, 64), 8
    x = torch.cumsum(0.7 * place.randn(chains, beads, 3), 1)
    return baoab, (x, place.randn(chains, beads, 3), place.randn(steps, chains, beads, 3), 1 + place.rand(beads, 1))


def shake(x: Tensor, v: Tensor, force: Tensor, dt: float = 0.02, rounds: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """SHAKE and RATTLE on rigid water: bonds and the angle's side as distances kept by rounds of small corrections."""
    inverse = (1 / 16.0, 1.0, 1.0)
    pairs = ((0, 1, 1.0), (0, 2, 1.0), (1, 2, 1.633))
    atoms = list(x.unbind(1))
    weights = x.new_tensor(inverse)[:, None]
    new = list((x + dt * v + dt**2 * weights * force).unbind(1))
    for _ in range(rounds):
        for a, b, length in pairs:
            d, old = new[a] - new[b], atoms[a] - atoms[b]
            excess = d.square().sum(-1, keepdim=True) - length**2
            g = excess / (2 * (inverse[a] + inverse[b]) * (d * old).sum(-1, keepdim=True))
            new[a] = new[a] - inverse[a] * g * old
            new[b] = new[b] + inverse[b] * g * old
    moved = torch.stack(new, 1)
    speed = (moved - x) / dt
    lengths = torch.stack([(new[a] - new[b]).norm(dim=-1) for a, b, _ in pairs], -1)
    return moved, speed, lengths


def rigid_water(place: Place) -> Made:
    n = place.size(4000, 400_000)
    shape = torch.tensor([[0.0, 0.0, 0.0], [0.8165, 0.5774, 0.0], [-0.8165, 0.5774, 0.0]]).to(place.device)
    x = 4 * place.rand(n, 1, 3) + shape
    return shake, (x, 0.5 * place.randn(n, 3, 3), place.randn(n, 3, 3))


def nudged_elastic_band(path: Tensor, steps: int = 12, spring: float = 2.0) -> tuple[Tensor, Tensor]:
    """Henkelman and Jónsson, 2000: images between two minima of Müller and Brown's surface, with improved tangents."""
    height = path.new_tensor([-2.0, -1.0, -1.7, 0.15])
    a = path.new_tensor([-1.0, -1.0, -6.5, 0.7])
    b = path.new_tensor([0.0, 0.0, 11.0, 0.6])
    c = path.new_tensor([-10.0, -10.0, -6.5, 0.7])
    cx, cy = path.new_tensor([1.0, 0.0, -0.5, -1.0]), path.new_tensor([0.0, 0.5, 1.5, 1.0])

    def surface(p: Tensor) -> tuple[Tensor, Tensor]:
        dx, dy = p[..., :1] - cx, p[..., 1:] - cy
        part = height * torch.exp(a * dx**2 + b * dx * dy + c * dy**2)
        gx, gy = (part * (2 * a * dx + b * dy)).sum(-1), (part * (b * dx + 2 * c * dy)).sum(-1)
        return part.sum(-1), torch.stack([gx, gy], -1)

    for _ in range(steps):
        energy, gradient = surface(path)
        ahead, behind = path[:, 2:] - path[:, 1:-1], path[:, 1:-1] - path[:, :-2]
        up = torch.sigmoid(20 * (energy[:, 2:] - energy[:, :-2]))[..., None]
        tangent = F.normalize(up * ahead + (1 - up) * behind, dim=-1)
        true = gradient[:, 1:-1]
        across = true - (true * tangent).sum(-1, keepdim=True) * tangent
        along = spring * (ahead.norm(dim=-1, keepdim=True) - behind.norm(dim=-1, keepdim=True)) * tangent
        step = (0.01 * (along - across)).clamp(-0.05, 0.05)
        path = torch.cat([path[:, :1], path[:, 1:-1] + step, path[:, -1:]], dim=1)
    return path, surface(path)[0]


def reaction_paths(place: Place) -> Made:
    b, images = place.size(32, 8192), place.size(32, 48)
    t = torch.linspace(0, 1, images, device=place.device)[:, None]
    ends = torch.tensor([[-0.558, 1.442], [0.623, 0.028]], device=place.device)
    line = (1 - t) * ends[0] + t * ends[1]
    return nudged_elastic_band, (line + 0.05 * place.randn(b, images, 2) * (t * (1 - t)),)


class SymmetryFunctions(nn.Module):
    """Behler and Parrinello, 2007: radial and angular fingerprints of atoms, and a network for each of two elements."""

    def __init__(self, radial: int = 8, hidden: int = 24) -> None:
        super().__init__()
        self.register_buffer("centre", torch.linspace(0.5, 2.5, radial))
        self.width = nn.Parameter(torch.full((radial,), 2.0))
        self.networks = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * radial + 4, hidden), nn.Tanh(), nn.Linear(hidden, 1)) for _ in range(2)
        )

    def forward(self, x: Tensor, kind: Tensor) -> Tensor:
        d = x[:, :, None] - x[:, None]
        r = (d.square().sum(-1) + 1e-4).sqrt()
        n = x.size(1)
        other = ~torch.eye(n, dtype=torch.bool, device=x.device)
        cut = 0.5 * (torch.cos(math.pi * (r / 3).clamp(max=1)) + 1) * other
        bumps = torch.exp(-self.width * (r[..., None] - self.get_buffer("centre")) ** 2) * cut[..., None]
        radial = torch.cat([torch.einsum("bijf,bj->bif", bumps, (kind == k).to(x.dtype)) for k in (0, 1)], -1)
        cosine = torch.einsum("bijd,bikd->bijk", d / r[..., None], d / r[..., None])
        both = cut[:, :, :, None] * cut[:, :, None]
        angular = [
            (2 ** (1 - zeta) * (1 + sign * 0.99 * cosine) ** zeta * both).sum(dim=(2, 3))
            for zeta in (1, 4)
            for sign in (1, -1)
        ]
        features = torch.cat([radial, torch.stack(angular, -1)], -1)
        parts = torch.cat([network(features) for network in self.networks], -1)
        return parts.gather(-1, kind[..., None]).sum(dim=(1, 2))


def fingerprints(place: Place) -> Made:
    b, n = place.size(4, 64), place.size(24, 80)
    return SymmetryFunctions().to(place.device), ((2.5 * place.rand(b, n, 3)).requires_grad_(), place.randint(2, b, n))


def pair_correlation(x: Tensor, box: float, bins: int = 48) -> tuple[Tensor, Tensor]:
    """The radial distribution of frames with soft bins, and the structure factor by its sine transform."""
    n = x.size(1)
    d = x[:, :, None] - x[:, None]
    d = d - box * torch.round(d / box)
    r = d.square().sum(-1).sqrt()
    edge = torch.linspace(0, box / 2, bins + 1, device=x.device, dtype=x.dtype)
    step = box / 2 / bins
    position = r / step - 0.5
    low = position.floor()
    share = position - low
    low_index = low.long().clamp(0, bins)
    counts = torch.zeros(x.size(0), bins + 2, device=x.device, dtype=x.dtype)
    counts.scatter_add_(1, low_index.flatten(1), (1 - share).flatten(1))
    counts.scatter_add_(1, (low_index + 1).flatten(1), share.flatten(1))
    shell = 4 / 3 * math.pi * (edge[1:] ** 3 - edge[:-1] ** 3)
    density = n / box**3
    g = counts[:, 1:bins] / (n * density * shell[1:])
    middle = (edge[2:] + edge[1:-1]) / 2
    q = torch.linspace(0.5, 12, 64, device=x.device, dtype=x.dtype)
    wave = torch.sinc(q[:, None] * middle / math.pi)
    return g, 1 + 4 * math.pi * density * step * ((g - 1)[:, None] * middle**2 * wave).sum(-1)


def liquid_structure(place: Place) -> Made:
    frames, n = place.size(2, 16), place.size(220, 1536)
    return pair_correlation, (6 * place.rand(frames, n, 3), 6.0)


ROWS: tuple[Row, ...] = (
    Row("program/cell_list_forces", cell_list),
    Row("program/ewald_summation", ewald_sum, "training"),
    Row("program/stillinger_weber_silicon", silicon, "training"),
    Row("program/baoab_polymers", polymers),
    Row("program/shake_rigid_water", rigid_water),
    Row("program/nudged_elastic_band", reaction_paths),
    Row("program/behler_parrinello", fingerprints, "training"),
    Row("program/pair_correlation", liquid_structure),
)
