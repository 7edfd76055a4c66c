"""Chemistry: kinetics, heats, phases, equations of state, fingerprints, columns, spectra, messages of bonds."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..row import Made, Place, Row


def inverse_by_cofactors(m: Tensor) -> Tensor:
    """Of 3 x 3 matrices, written out."""
    a, b, c = m[:, 0].unbind(-1)
    d, e, f = m[:, 1].unbind(-1)
    g, h, i = m[:, 2].unbind(-1)
    p, q, r = e * i - f * h, f * g - d * i, d * h - e * g
    rows = [p, c * h - b * i, b * f - c * e, q, a * i - c * g, c * d - a * f, r, b * g - a * h, a * e - b * d]
    return torch.stack(rows, -1).view(-1, 3, 3) / (a * p + b * q + c * r)[:, None, None]


def robertson(state: Tensor, rates: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Robertson, 1966, by Rosenbrock's second order, each cell of its own step; 3 x 3 systems by cofactors."""
    gamma = 1 + 1 / math.sqrt(2)
    eye = torch.eye(3, dtype=state.dtype, device=state.device)
    k1, k2, k3 = rates.unbind(-1)
    step = torch.full_like(k1, 1e-3)
    time, refused = torch.zeros_like(k1), torch.zeros_like(k1, dtype=torch.int64)

    def derivative(y: Tensor) -> Tensor:
        slow, fast, pair = k1 * y[:, 0], k2 * y[:, 1].square(), k3 * y[:, 1] * y[:, 2]
        return torch.stack([pair - slow, slow - pair - fast, fast], -1)

    for _ in range(steps):
        jacobian = torch.zeros_like(state)[:, :, None].repeat(1, 1, 3)
        jacobian[:, 0, 0], jacobian[:, 1, 0] = -k1, k1
        jacobian[:, 0, 1] = k3 * state[:, 2]
        jacobian[:, 2, 1] = 2 * k2 * state[:, 1]
        jacobian[:, 1, 1] = -jacobian[:, 0, 1] - jacobian[:, 2, 1]
        jacobian[:, 0, 2] = k3 * state[:, 1]
        jacobian[:, 1, 2] = -jacobian[:, 0, 2]
        solver = inverse_by_cofactors(eye - gamma * step[:, None, None] * jacobian)
        first = torch.einsum("bij,bj->bi", solver, derivative(state))
        second = derivative(state + step[:, None] * first) - 2 * first
        second = torch.einsum("bij,bj->bi", solver, second)
        new = state + step[:, None] * (1.5 * first + 0.5 * second)
        error = (0.5 * step[:, None] * (first + second) / (1e-6 + 1e-3 * new.abs())).square().mean(-1).sqrt()
        fine = error <= 1
        state = torch.where(fine[:, None], new, state)
        time = torch.where(fine, time + step, time)
        refused += ~fine
        step = step * (0.9 / error.clamp(min=1e-6).sqrt()).clamp(0.2, 4.0)
    return state, time, refused


def stiff_cells(place: Place) -> Made:
    n = place.size(300, 65_536)
    state = torch.tensor([1.0, 0.0, 0.0], device=place.device).repeat(n, 1)
    rates = torch.tensor([0.04, 3e7, 1e4], device=place.device) * (0.5 + place.rand(n, 3))
    return robertson, (state, rates, place.size(20, 16))


class Thermodynamics(nn.Module):
    """NASA's seven coefficients in two ranges of temperature: heats, entropies, and equilibrium of reactions."""

    def __init__(self, species: int, reactions: int) -> None:
        super().__init__()
        size = torch.tensor([1.0, 1e-3, 1e-6, 1e-9, 1e-13, 1e3, 1.0])
        self.register_buffer("size", size)
        self.low = nn.Parameter(torch.randn(species, 7))
        self.high = nn.Parameter(torch.randn(species, 7))
        self.register_buffer("orders", torch.randint(-1, 2, (reactions, species)).float())
        self.log_factor = nn.Parameter(torch.randn(reactions))
        self.energy = nn.Parameter(torch.rand(reactions))

    def forward(self, temperature: Tensor, fraction: Tensor) -> tuple[Tensor, Tensor]:
        t = temperature[:, None]
        a = self.size * torch.where((t > 1000.0)[..., None], self.high, self.low)
        a1, a2, a3, a4, a5, a6, a7 = a.unbind(-1)
        heat = a1 + t * (a2 + t * (a3 + t * (a4 + t * a5)))
        enthalpy = a1 + t * (a2 / 2 + t * (a3 / 3 + t * (a4 / 4 + t * a5 / 5))) + a6 / t
        entropy = a1 * t.log() + t * (a2 + t * (a3 / 2 + t * (a4 / 3 + t * a5 / 4))) + a7
        gibbs = (enthalpy - entropy) / 10
        log_k = -(gibbs @ self.orders.T).clamp(-20, 20)
        forward = self.log_factor - self.energy * 1000 / t
        log_c = fraction.clamp(min=1e-8).log()
        ahead = torch.exp((forward + log_c @ self.orders.clamp(max=0).neg().T).clamp(max=10))
        back = torch.exp((forward - log_k + log_c @ self.orders.clamp(min=0).T).clamp(max=10))
        made = (ahead - back) @ self.orders
        released = -(made * enthalpy).sum(-1) / (fraction * heat).sum(-1).abs().clamp(min=0.1)
        return torch.asinh(made), torch.asinh(released)


def flames(place: Place) -> Made:
    n, species, reactions = place.size(400, 32_768), place.size(20, 50), place.size(40, 200)
    temperature = 400 + 1600 * place.rand(n)
    return Thermodynamics(species, reactions).to(place.device), (temperature, place.rand(n, species).requires_grad_())


def rachford_rice(
    feed: Tensor, pressure: Tensor, temperature: Tensor, critical: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Flash of mixtures by Wilson's ratios: one phase or two, bisection inside Newton's steps; both phases' parts."""
    tc, pc, acentric = critical.unbind(-1)
    t, p = temperature[:, None], pressure[:, None]
    k = pc / p * torch.exp(5.37 * (1 + acentric) * (1 - tc / t))
    vapour_only = (feed / k).sum(-1) < 1
    liquid_only = (feed * k).sum(-1) < 1
    low, high = torch.zeros_like(temperature), torch.ones_like(temperature)
    v = torch.full_like(temperature, 0.5)
    for _ in range(12):
        down = 1 + v[:, None] * (k - 1)
        terms = feed * (k - 1) / down
        value, slope = terms.sum(-1), -(terms * (k - 1) / down).sum(-1)
        low, high = torch.where(value > 0, v, low), torch.where(value > 0, high, v)
        newton = v - value / slope.clamp(max=-1e-6)
        v = torch.where((newton >= low) & (newton <= high), newton, 0.5 * (low + high))
    v = torch.where(vapour_only, 1.0, torch.where(liquid_only, 0.0, v.clamp(0.0, 1.0)))
    liquid = feed / (1 + v[:, None] * (k - 1)).clamp(min=1e-6)
    liquid = liquid / liquid.sum(-1, keepdim=True)
    vapour = k * liquid
    return v, liquid, vapour / vapour.sum(-1, keepdim=True)


def flash(place: Place) -> Made:
    n, parts = place.size(2000, 262_144), 8
    feed = place.rand(n, parts)
    critical = torch.stack([200 + 300 * place.rand(parts), 20 + 30 * place.rand(parts), 0.3 * place.rand(parts)], -1)
    feed = feed / feed.sum(-1, keepdim=True)
    return rachford_rice, (feed, 5 + 20 * place.rand(n), 250 + 100 * place.rand(n), critical)


def peng_robinson(t: Tensor, p: Tensor, tc: Tensor, pc: Tensor, acentric: Tensor) -> tuple[Tensor, Tensor]:
    """Peng and Robinson, 1976: the cubic in closed form (Cardano's or the cosines'), the root of least free energy."""
    kappa = 0.37464 + acentric * (1.54226 - 0.26992 * acentric)
    alpha = (1 + kappa * (1 - (t / tc).sqrt())).square()
    a = 0.45724 * alpha * (p / pc) * (tc / t).square()
    b = 0.0778 * (p / pc) * (tc / t)
    c2, c1, c0 = b - 1, a - 3 * b * b - 2 * b, b * b * (1 + b) - a * b
    q = (3 * c1 - c2 * c2) / 9
    r = (9 * c2 * c1 - 27 * c0 - 2 * c2.pow(3)) / 54
    discriminant = q.pow(3) + r * r
    single = discriminant > 0
    root = torch.where(single, discriminant, torch.ones_like(r)).sqrt()

    def cube_root(x: Tensor) -> Tensor:
        return torch.sign(x) * x.abs().clamp(min=1e-12).pow(1 / 3)

    alone = cube_root(r + root) + cube_root(r - root) - c2 / 3
    depth = torch.where(single, torch.full_like(q, -1.0), q)
    angle = torch.acos((r / (-depth).pow(1.5)).clamp(-0.9999, 0.9999))
    most = 2 * (-depth).sqrt() * torch.cos(angle / 3) - c2 / 3
    least = 2 * (-depth).sqrt() * torch.cos((angle + 2 * math.pi) / 3) - c2 / 3

    def log_fugacity(z: Tensor) -> Tensor:
        z = torch.maximum(z, 1.01 * b)
        s = math.sqrt(2)
        return z - 1 - (z - b).log() - a / (2 * s * b) * torch.log((z + (1 + s) * b) / (z + (1 - s) * b))

    z = torch.where(single, alone, torch.where(log_fugacity(most) < log_fugacity(least), most, least))
    return log_fugacity(z), z * 8.314 * t / p


def fluids(place: Place) -> Made:
    n = place.size(4000, 400_000)
    t, p, tc, pc = 150 + 300 * place.rand(n), 1 + 60 * place.rand(n), 200 + 200 * place.rand(n), 30 + 20 * place.rand(n)
    return peng_robinson, tuple(x.requires_grad_() for x in (t, p, tc, pc, 0.4 * place.rand(n)))


def circular_fingerprints(atoms: Tensor, bonds: Tensor, neighbours: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rogers and Hahn, 2010: identifiers hashed with sorted neighbours', folded; molecules' likeness by popcounts."""
    mask = 0xFFFFFFFF
    batch = atoms.size(0)
    there = neighbours >= 0
    at = neighbours.clamp(min=0)
    row = torch.arange(batch, device=atoms.device)[:, None, None]

    def mix(h: Tensor, k: Tensor) -> Tensor:
        k = (k * 0xCC9E2D51) & mask
        k = ((k << 15) | (k >> 17)) & mask
        h = h ^ ((k * 0x1B873593) & mask)
        h = ((h << 13) | (h >> 19)) & mask
        return (h * 5 + 0xE6546B64) & mask

    identifier = mix(torch.zeros_like(atoms), atoms)
    found = torch.zeros(batch, bits, dtype=torch.bool, device=atoms.device)
    found.scatter_(1, identifier % bits, True)
    for radius in range(1, 4):
        near = torch.where(there, (bonds << 32) | identifier[row, at], 0).sort(-1).values
        h = mix(torch.full_like(identifier, radius), identifier)
        for k in near.unbind(-1):
            h = torch.where(k > 0, mix(mix(h, k >> 32), k & mask), h)
        identifier = h ^ (h >> 16)
        found.scatter_(1, identifier % bits, True)
    packed = (found.view(batch, -1, 32).long() << torch.arange(32, device=atoms.device)).sum(-1)
    both = packed[:64, None] & packed[None]
    both = both - ((both >> 1) & 0x55555555)
    both = (both & 0x33333333) + ((both >> 2) & 0x33333333)
    both = (((both + (both >> 4)) & 0x0F0F0F0F) * 0x01010101 & mask) >> 24
    common, own = both.sum(-1), found.sum(-1)
    tanimoto = common / (own[:64, None] + own - common)
    return packed, tanimoto, tanimoto.topk(5, dim=-1).indices[:, 0]


def fingerprints(place: Place) -> Made:
    batch, n = place.size(100, 8192), 32
    neighbours = place.randint(n + 12, batch, n, 4) - 12
    return circular_fingerprints, (place.randint(20, batch, n), 1 + place.randint(4, batch, n, 4), neighbours, 1024)


def chromatography(
    feed: Tensor, log_affinity: Tensor, log_capacity: Tensor, peak: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """A packed column: convection with a limiter, a linear driving force, Langmuir's competition between solutes."""
    cells, dt, speed = 12, 0.01, 0.6
    batch, solutes = log_affinity.shape
    affinity, capacity = log_affinity.exp()[..., None], log_capacity.exp()[..., None]
    c = feed.new_zeros(batch, solutes, cells)
    q = torch.zeros_like(c)
    out = []
    for t in range(steps):
        padded = torch.cat([feed[:, :, t : t + 1], c, c[:, :, -1:]], -1)
        left, right = padded[..., 1:-1] - padded[..., :-2], padded[..., 2:] - padded[..., 1:-1]
        limited = torch.where(left * right > 0, 2 * left * right / (left + right + 1e-6), 0.0)
        face = c + 0.5 * (1 - speed) * limited
        flux = torch.cat([feed[:, :, t : t + 1], face], -1)
        occupied = 1 + (affinity * c).sum(1, keepdim=True)
        driven = 20 * (capacity * affinity * c / occupied - q)
        q = q + dt * driven
        c = (c - speed * (flux[..., 1:] - flux[..., :-1]) - 1.5 * dt * driven).clamp(min=0)
        out.append(c[..., -1])
    eluted = torch.stack(out, -1)
    return (eluted - peak).square().mean((1, 2)), eluted


def column(place: Place) -> Made:
    b, solutes, steps = place.size(16, 8192), 3, place.size(30, 24)
    feed = (torch.arange(steps, device=place.device) < 15) * (0.5 + place.rand(b, solutes, 1))
    affinity, capacity = 0.3 * place.randn(b, solutes) - 1, 0.3 * place.randn(b, solutes)
    args = feed, affinity.requires_grad_(), capacity.requires_grad_(), 0.3 * place.rand(b, solutes, steps), steps
    return chromatography, args


def spectral_library(
    mz: Tensor, height: Tensor, library_mz: Tensor, library: Tensor, precursor: Tensor
) -> tuple[Tensor, Tensor]:
    """Mass spectra against a library: for each peak the nearest within a tolerance, shifted too; modified cosines."""
    height = height * (height > 0.02 * height.amax(-1, keepdim=True))
    height = (height.sqrt() * mz).clamp(min=0)
    height = height / height.norm(dim=-1, keepdim=True)
    scale = (library.sqrt() * library_mz).norm(dim=-1, keepdim=True)
    weight = library.sqrt() * library_mz / scale
    scores, matches = [], []
    last = library_mz.size(1) - 1
    for k in range(mz.size(0)):
        best = torch.zeros_like(library_mz[:, :1])
        count = torch.zeros_like(best, dtype=torch.int64)
        for shift in (torch.zeros_like(precursor), precursor):
            wanted = mz[k] - shift[:, None]
            right = torch.searchsorted(library_mz, wanted.contiguous()).clamp(max=last)
            left = (right - 1).clamp(min=0)
            nearer = (library_mz.gather(1, right) - wanted).abs() < (library_mz.gather(1, left) - wanted).abs()
            at = torch.where(nearer, right, left)
            close = (library_mz.gather(1, at) - wanted).abs() <= 0.5
            product = torch.where(close, weight.gather(1, at) * height[k], 0.0)
            if best.size(1) == 1:
                best, count = product, close.to(torch.int64)
            else:
                count = torch.where(product > best, 1, count)
                best = torch.maximum(best, product)
        scores.append(best.sum(-1))
        matches.append(count.sum(-1))
    score = torch.stack(scores)
    return score.topk(5, dim=-1).values, torch.stack(matches).gather(1, score.argmax(-1, keepdim=True))


def mass_spectra(place: Place) -> Made:
    queries, peaks, entries = place.size(4, 8), place.size(30, 60), place.size(500, 50_000)
    library_mz = (50 + 500 * place.rand(entries, 40)).sort(-1).values
    mz = (50 + 500 * place.rand(queries, peaks)).sort(-1).values
    args = mz, place.rand(queries, peaks), library_mz, place.rand(entries, 40), 30 * place.rand(entries) - 15
    return spectral_library, args


def whittaker_baseline(spectrum: Tensor, smooth: float, rounds: int) -> tuple[Tensor, Tensor]:
    """Eilers' asymmetric least squares: pentadiagonal systems by a banded LDL', weights by the side of the baseline."""
    n = spectrum.size(1)
    weight = torch.ones_like(spectrum)
    d0 = torch.full((n,), 6.0, dtype=spectrum.dtype, device=spectrum.device)
    d0[0] = d0[-1] = 1.0
    d0[1] = d0[-2] = 5.0
    baseline = spectrum
    for _ in range(rounds):
        diagonal = weight + smooth * d0
        right = weight * spectrum
        d, e, f, z = [], [], [], []
        for i in range(n):
            first = smooth * (-2.0 if i in (0, n - 2) else -4.0)
            pivot, edge, value = diagonal[:, i], torch.full_like(diagonal[:, 0], first), right[:, i]
            if i > 0:
                pivot = pivot - d[i - 1] * e[i - 1].square()
                edge = edge - d[i - 1] * e[i - 1] * f[i - 1]
                value = value - e[i - 1] * z[i - 1]
            if i > 1:
                pivot = pivot - d[i - 2] * f[i - 2].square()
                value = value - f[i - 2] * z[i - 2]
            d.append(pivot)
            e.append(edge / pivot)
            f.append(smooth / pivot)
            z.append(value)
        x = [z[-1] / d[-1]]
        x.append(z[-2] / d[-2] - e[-2] * x[0])
        for i in range(n - 3, -1, -1):
            x.append(z[i] / d[i] - e[i] * x[-1] - f[i] * x[-2])
        baseline = torch.stack(x[::-1], -1)
        weight = torch.where(spectrum > baseline, 0.01, 0.99)
    return baseline, (spectrum - baseline).clamp(min=0).sum(-1)


def raman(place: Place) -> Made:
    b, n = place.size(64, 65_536), place.size(80, 48)
    drift = 2 * torch.sin(torch.linspace(0, 3, n, device=place.device)) + 0.05 * place.randn(b, n)
    return whittaker_baseline, (drift + 3 * (place.rand(b, n) > 0.93), 50.0, 2)


def dispersion(
    position: Tensor, kind: Tensor, radius: Tensor, c6: Tensor, cn: Tensor, r2r4: Tensor
) -> tuple[Tensor, Tensor]:
    """Grimme's D3, damped as Becke and Johnson do: atoms' neighbours counted, C6 between references, energies."""
    n = position.size(1)
    away = position[:, :, None] - position[:, None]
    distance = (away.square().sum(-1) + 1e-4 + 100.0 * torch.eye(n, dtype=away.dtype, device=away.device)).sqrt()
    r = radius[kind]
    counted = torch.sigmoid(16 * (4 / 3 * (r[:, :, None] + r[:, None]) / distance - 1))
    coordination = counted.sum(-1) - counted.diagonal(dim1=1, dim2=2)
    gap = (coordination[..., None] - cn[kind]).square()
    gaussian = torch.softmax(-4 * gap, -1)
    pair = c6[kind[:, :, None], kind[:, None]]
    mixed = torch.einsum("bia,bijac,bjc->bij", gaussian, pair, gaussian)
    q = r2r4[kind]
    ratio = 3 * q[:, :, None] * q[:, None]
    damping = 0.4 * ratio.sqrt() + 4.4
    c8 = mixed * ratio
    energy = mixed / (distance.pow(6) + damping.pow(6)) + 0.8 * c8 / (distance.pow(8) + damping.pow(8))
    upper = torch.triu(torch.ones(n, n, dtype=torch.bool, device=position.device), 1)
    return -torch.where(upper, energy, 0.0).sum((1, 2)), coordination


def clusters(place: Place) -> Made:
    b, n, kinds = place.size(4, 128), place.size(24, 64), 6
    position = (4 * place.rand(b, n, 3) * n ** (1 / 3)).requires_grad_()
    c6 = 10 + 20 * place.rand(kinds, kinds, 3, 3)
    args = place.randint(kinds, b, n), 1 + place.rand(kinds), c6, 4 * place.rand(kinds, 3), 2 + place.rand(kinds)
    return dispersion, (position, *args)


class BondMessages(nn.Module):
    """Yang and others, 2019 (D-MPNN): messages live on directed bonds, each less that of its reverse; sums by atom."""

    def __init__(self, atom: int, bond: int, width: int, depth: int = 3) -> None:
        super().__init__()
        self.start = nn.Linear(atom + bond, width, bias=False)
        self.update = nn.Linear(width, width, bias=False)
        self.finish = nn.Linear(atom + width, width)
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.depth = depth

    def forward(
        self, atoms: Tensor, bonds: Tensor, origin: Tensor, target: Tensor, molecule: Tensor, count: int
    ) -> Tensor:
        first = self.start(torch.cat([atoms[origin], bonds], -1))
        message = torch.relu(first)
        reverse = torch.arange(origin.size(0), device=origin.device) ^ 1
        for _ in range(self.depth):
            gathered = torch.zeros(atoms.size(0), message.size(1), dtype=message.dtype, device=message.device)
            gathered.index_add_(0, target, message)
            message = torch.relu(first + self.update(gathered[origin] - message[reverse]))
        gathered = torch.zeros_like(gathered).index_add(0, target, message)
        hidden = torch.relu(self.finish(torch.cat([atoms, gathered], -1)))
        pooled = hidden.new_zeros(count, hidden.size(1)).index_add(0, molecule, hidden)
        size = torch.bincount(molecule, minlength=count).clamp(min=1)
        return self.head(pooled / size[:, None]).squeeze(-1)


def properties(place: Place) -> Made:
    count, n, edges, width = place.size(32, 2048), 20, 22, place.size(64, 300)
    total = count * n
    origin = torch.randint(n, (count, edges)) + n * torch.arange(count)[:, None]
    target = torch.randint(n, (count, edges)) + n * torch.arange(count)[:, None]
    both = torch.stack([origin, target], -1).flatten()
    there = torch.stack([target, origin], -1).flatten()
    molecule = torch.arange(total, device=place.device) // n
    args = place.randn(total, 40), place.randn(both.numel(), 10), both.to(place.device), there.to(place.device)
    return BondMessages(40, 10, width).to(place.device), (*args, molecule, count)


ROWS: tuple[Row, ...] = (
    Row("program/robertson_stiff_cells", stiff_cells, dtype=torch.float64),
    Row("program/nasa_polynomial_rates", flames, "training"),
    Row("program/rachford_rice_flash", flash),
    Row("program/peng_robinson_fluids", fluids, "training", dtype=torch.float64),
    Row("program/circular_fingerprints", fingerprints),
    Row("program/chromatography_column", column, "training"),
    Row("program/mass_spectral_library", mass_spectra),
    Row("program/whittaker_baselines", raman, dtype=torch.float64),
    Row("program/dispersion_of_clusters", clusters, "training"),
    Row("program/directed_bond_messages", properties, "training"),
)
