"""Trading desks and benches of biologists: exposures, orders, yields, risks; reads, trees, chains, contacts."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def counterparty_exposure(
    r0: Tensor, sigma: Tensor, spread: Tensor, draws: Tensor, fixed: Tensor, maturity: Tensor, notional: Tensor
) -> tuple[Tensor, Tensor]:
    """Credit value adjustment of a netted book of swaps under Vasicek's rates, by paths, with its sensitivities."""
    steps, kappa, theta, dt = len(draws), 0.3, 0.03, 0.5
    r, discount = r0.expand(draws.size(1)), torch.ones_like(draws[0])
    exposures, discounts = [], []

    def bond(rate: Tensor, tau: Tensor) -> Tensor:
        b = (1 - torch.exp(-kappa * tau)) / kappa
        a = (theta - sigma**2 / (2 * kappa**2)) * (b - tau) - sigma**2 * b**2 / (4 * kappa)
        return torch.exp(a - b * rate[:, None])

    for i in range(steps):
        now = (i + 1) * dt
        r = r + kappa * (theta - r) * dt + sigma * math.sqrt(dt) * draws[i]
        discount = discount * torch.exp(-r * dt)
        value = torch.zeros_like(r)
        left = maturity - now
        alive = left > 1e-6
        annuity = torch.zeros(r.numel(), maturity.numel(), dtype=r.dtype, device=r.device)
        for k in range(1, steps - i):
            annuity = annuity + torch.where(left >= k * dt - 1e-6, dt * bond(r, torch.full_like(left, k * dt)), 0.0)
        worth = notional * (1 - bond(r, left.clamp(min=0.0)) - fixed * annuity)
        value = torch.where(alive, worth, 0.0).sum(1)
        exposures.append(value.clamp(min=0))
        discounts.append(discount)
    exposure = (torch.stack(exposures) * torch.stack(discounts)).mean(1)
    times = dt * torch.arange(steps + 1, device=r.device, dtype=r.dtype)
    survival = torch.exp(-spread / 0.6 * times)
    return 0.6 * (exposure * (survival[:-1] - survival[1:])).sum(), exposure.detach()


def exposure(place: Place) -> Made:
    steps, paths, swaps = place.size(4, 6), place.size(200, 20_000), place.size(5, 40)
    rate, sigma, spread = (torch.tensor(v, device=place.device).requires_grad_() for v in (0.025, 0.01, 0.02))
    maturity = 0.5 * (1 + place.randint(2 * steps, swaps)).float()
    notional = place.randn(swaps)
    fixed = 0.02 + 0.02 * place.rand(swaps)
    return counterparty_exposure, (rate, sigma, spread, place.randn(steps, paths), fixed, maturity, notional)


def rough_paths(
    dw: Tensor, dz: Tensor, strikes: Tensor, a: float, eta: float, rho: float, maturity: float
) -> tuple[Tensor, Tensor]:
    """Rough Bergomi by a hybrid scheme (Bennedsen et al., 2017): a power kernel by FFT, implied volatilities."""
    n = dw.size(1)
    dt = maturity / n
    k = torch.arange(2, n + 1, device=dw.device, dtype=dw.dtype)
    b = ((k ** (a + 1) - (k - 1) ** (a + 1)) / (a + 1)) ** (1 / a)
    kernel = torch.zeros(n, dtype=dw.dtype, device=dw.device)
    kernel[1:] = (b * dt) ** a
    kernel[0] = dt**a / (a + 1)
    size = 2 * n
    y = torch.fft.irfft(torch.fft.rfft(kernel, n=size) * torch.fft.rfft(dw * math.sqrt(dt), n=size), n=size)[:, :n]
    y = math.sqrt(2 * a + 1) * y
    t = dt * torch.arange(1, n + 1, device=dw.device, dtype=dw.dtype)
    v = 0.04 * torch.exp(eta * y - 0.5 * eta**2 * t ** (2 * a + 1))
    v = torch.cat([torch.full_like(v[:, :1], 0.04), v[:, :-1]], dim=1)
    db = rho * dw + math.sqrt(1 - rho**2) * dz
    log_s = (torch.sqrt(v * dt) * db - 0.5 * v * dt).sum(1)
    s = torch.exp(log_s)
    s = s / s.mean()
    price = (s[:, None] - strikes).clamp(min=0).mean(0)
    low, high = torch.full_like(price, 1e-3), torch.full_like(price, 3.0)
    for _ in range(20):
        mid = 0.5 * (low + high)
        d1 = -torch.log(strikes) / (mid * math.sqrt(maturity)) + 0.5 * mid * math.sqrt(maturity)
        model = torch.special.ndtr(d1) - strikes * torch.special.ndtr(d1 - mid * math.sqrt(maturity))
        low, high = torch.where(model < price, mid, low), torch.where(model < price, high, mid)
    return price, 0.5 * (low + high)


def rough_volatility(place: Place) -> Made:
    paths, n = place.size(500, 30_000), place.size(32, 256)
    strikes = torch.linspace(0.8, 1.2, 21).to(place.device)
    return rough_paths, (place.randn(paths, n), place.randn(paths, n), strikes, -0.43, 1.9, -0.9, 1.0)


class OrderBook(nn.Module):
    """DeepLOB (Zhang et al., 2019): levels folded by strided kernels, an inception of times, an LSTM's last state."""

    def __init__(self, width: int) -> None:
        super().__init__()

        def block(inputs: int, size: tuple[int, int], stride: tuple[int, int], act: type[nn.Module]) -> nn.Module:
            layers: list[nn.Module] = [nn.Conv2d(inputs, width, size, stride=stride), act(), nn.BatchNorm2d(width)]
            for _ in range(2):
                layers += [nn.Conv2d(width, width, (4, 1)), act(), nn.BatchNorm2d(width)]
            return nn.Sequential(*layers)

        self.conv1 = block(1, (1, 2), (1, 2), nn.LeakyReLU)
        self.conv2 = block(width, (1, 2), (1, 2), nn.Tanh)
        self.conv3 = block(width, (1, 10), (1, 1), nn.LeakyReLU)
        self.inp1 = nn.Sequential(
            nn.Conv2d(width, 2 * width, 1), nn.Conv2d(2 * width, 2 * width, (3, 1), padding=(1, 0))
        )
        self.inp2 = nn.Sequential(
            nn.Conv2d(width, 2 * width, 1), nn.Conv2d(2 * width, 2 * width, (5, 1), padding=(2, 0))
        )
        self.inp3 = nn.Sequential(nn.MaxPool2d((3, 1), (1, 1), (1, 0)), nn.Conv2d(width, 2 * width, 1))
        self.lstm = nn.LSTM(6 * width, 64, batch_first=True)
        self.fc = nn.Linear(64, 3)

    def forward(self, book: Tensor, label: Tensor) -> Tensor:
        price, volume = book[..., 0::2], book[..., 1::2]
        mean = price.mean((1, 2), keepdim=True)
        price = (price - mean) / (price.std((1, 2), keepdim=True) + 1e-6)
        x = torch.stack([price, torch.log1p(volume)], dim=-1).flatten(2)[:, None]
        x = self.conv3(self.conv2(self.conv1(x)))
        x = torch.cat([F.leaky_relu(layer(x), 0.01) for layer in (self.inp1, self.inp2, self.inp3)], dim=1)
        x = x.permute(0, 2, 1, 3).reshape(x.size(0), x.size(2), -1)
        h0 = torch.zeros(1, x.size(0), 64, dtype=x.dtype, device=x.device)
        out, _ = self.lstm(x, (h0, torch.zeros_like(h0)))
        return F.cross_entropy(self.fc(out[:, -1, :]), label)


def order_book(place: Place) -> Made:
    b, t = place.size(2, 32), place.size(30, 100)
    level = (torch.arange(10) + 1).repeat_interleave(2) * torch.tensor([1, -1]).repeat(10)
    price = 100 + torch.randn(b, t, 1).cumsum(1) + level
    book = torch.stack([price, 100 * torch.rand(b, t, 20)], dim=-1).flatten(2)
    return OrderBook(place.size(8, 32)).to(place.device), (book.to(place.device), place.randint(3, b))


def bond_yields(
    clean: Tensor, coupon: Tensor, settle: Tensor, maturity: Tensor, frequency: Tensor, calls: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Yields of bonds by Newton's steps in brackets: accrued interest by day counts, cash flows masked by dates."""
    period = 365.25 / frequency
    remaining = maturity - settle
    count = torch.ceil(remaining / period)
    to_next = remaining - (count - 1) * period
    w = to_next / period
    accrued = coupon / frequency * (1 - w)
    dirty = clean + accrued
    k = torch.arange(calls, device=clean.device, dtype=clean.dtype)
    exists, final = k < count[:, None], k == count[:, None] - 1
    flows = torch.where(exists, (coupon / frequency)[:, None], 0.0) + torch.where(final, 100.0, 0.0)
    when = w[:, None] + k
    y, low, high = coupon / 100, torch.full_like(clean, -0.5), torch.full_like(clean, 2.0)
    for _ in range(8):
        base = 1 + y / frequency
        factor = base[:, None] ** -when
        price = (flows * factor).sum(1)
        slope = -(flows * when * factor).sum(1) / base / frequency
        difference = price - dirty
        high = torch.where(difference < 0, torch.minimum(high, y), high)
        low = torch.where(difference > 0, torch.maximum(low, y), low)
        newton = y - difference / slope
        y = torch.where((newton > low) & (newton < high), newton, 0.5 * (low + high))
    base = 1 + y / frequency
    factor = base[:, None] ** -when
    duration = (flows * when * factor).sum(1) / dirty / frequency / base
    convexity = (flows * when * (when + 1) * factor).sum(1) / dirty / (frequency * base) ** 2
    return y, duration, convexity


def yields(place: Place) -> Made:
    n, calls = place.size(500, 100_000), place.size(20, 60)
    frequency = 2.0 ** place.randint(2, n)
    settle = place.randint(300, n).float()
    maturity = settle + 40 + (calls * 180 - 400) * place.rand(n)
    return bond_yields, (80 + 40 * place.rand(n), 1 + 7 * place.rand(n), settle, maturity, frequency, calls)


def historical_risk(
    returns: Tensor, holdings: Tensor, decay: float, window: int, horizon: int, picks: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Filtered historical simulation: variances by decay, residuals drawn again, losses at a horizon, its backtest."""
    variance = returns[:window].var(0)
    variances = []
    for r in returns:
        variances.append(variance)
        variance = decay * variance + (1 - decay) * r * r
    residual = returns / torch.stack(variances).sqrt()
    v = variance.expand(picks.size(0), -1)
    total = torch.zeros_like(v)
    for day in range(horizon):
        shock = residual[picks[:, day]] * v.sqrt()
        total = total + shock
        v = decay * v + (1 - decay) * shock * shock
    pnl = (torch.exp(total) - 1) @ holdings.T
    ordered = pnl.sort(dim=0).values
    cut = int(0.01 * len(ordered))
    var, shortfall = -ordered[cut], -ordered[: cut + 1].mean(0)
    past = (torch.exp(returns) - 1) @ holdings.T
    rolling = past.unfold(0, window, 1)[:-1]
    limits = torch.quantile(rolling, 0.025, dim=-1)
    breaches = (past[window:] < limits).to(past.dtype)
    hits, n = breaches.sum(0).clamp(0.5, len(breaches) - 0.5), len(breaches)
    rate = hits / n
    ratio = -2 * (
        hits * math.log(0.025) + (n - hits) * math.log(0.975) - hits * rate.log() - (n - hits) * (1 - rate).log()
    )
    return var, shortfall, ratio


def filtered_risk(place: Place) -> Made:
    days, assets, books, paths = place.size(60, 250), place.size(6, 200), place.size(3, 64), place.size(200, 50_000)
    picks = place.randint(days, paths, place.size(3, 10))
    holdings = place.randn(books, assets) / assets
    return historical_risk, (
        0.01 * place.randn(days, assets),
        holdings,
        0.94,
        place.size(20, 125),
        picks.size(1),
        picks,
    )


def read_likelihoods(reads: Tensor, quality: Tensor, haplotypes: Tensor, opening: float, extending: float) -> Tensor:
    """GATK's pair hidden Markov model: three states by anti-diagonals, all reads against all haplotypes, scaled."""
    r, m = reads.shape
    h, n = haplotypes.shape
    error = 10 ** (-quality / 10)
    mm, mi, gm, gg = 1 - 2 * opening, opening, 1 - extending, extending
    big = 2.0**60
    zero = torch.zeros(r, h, m + 1, dtype=error.dtype, device=error.device)
    match2, insert2, delete2 = zero, zero, zero
    match1, insert1, delete1 = zero, zero, zero.clone()
    delete2 = zero.clone()
    delete2[..., 0] = big / n
    delete1[..., 0] = big / n
    total = torch.zeros(r, h, dtype=error.dtype, device=error.device)
    rows = torch.arange(1, m + 1, device=reads.device)
    for d in range(2, m + n + 1):
        cols = d - rows
        valid = (cols >= 1) & (cols <= n)
        base = haplotypes[:, (cols - 1).clamp(0, n - 1)]
        same = (reads[:, None] == base[None]) | (base[None] == 4)
        prior = torch.where(same, 1 - error[:, None], error[:, None] / 3)
        match, insert, delete = zero.clone(), zero.clone(), zero.clone()
        match[..., 1:] = prior * (mm * match2[..., :-1] + gm * (insert2[..., :-1] + delete2[..., :-1])) * valid
        insert[..., 1:] = (mi * match1[..., :-1] + gg * insert1[..., :-1]) * valid
        delete[..., 1:] = (mi * match1[..., 1:] + gg * delete1[..., 1:]) * valid
        if d <= n:
            delete[..., 0] = big / n
        if d > m:
            total = total + match[..., m] + insert[..., m]
        match2, insert2, delete2 = match1, insert1, delete1
        match1, insert1, delete1 = match, insert, delete
    return torch.log10(total) - math.log10(big)


def pair_reads(place: Place) -> Made:
    r, h, m, n = place.size(8, 256), place.size(3, 16), place.size(10, 14), place.size(14, 20)
    haplotypes = torch.randint(4, (1, n)).repeat(h, 1)
    haplotypes = torch.where(torch.rand(h, n) < 0.1, torch.randint(5, (h, n)), haplotypes)
    start = torch.randint(n - m + 1, (r, 1)) + torch.arange(m)
    reads = haplotypes[torch.randint(h, (r, 1)), start].clamp(max=3)
    quality = 10 + 30 * torch.rand(r, m)
    return read_likelihoods, (*(t.to(place.device) for t in (reads, quality, haplotypes)), 1e-3, 0.1)


def joined_neighbours(distance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Saitou and Nei's trees of many bootstraps at once: the pair of least criterion is joined until four are left."""
    b, n, _ = distance.shape
    d = distance.clone()
    alive = torch.ones(b, n, dtype=torch.bool, device=d.device)
    batch = torch.arange(b, device=d.device)
    eye = torch.eye(n, dtype=torch.bool, device=d.device)
    joins, lengths = [], []
    for left in range(n, 4, -1):
        pairs = alive[:, :, None] & alive[:, None, :] & ~eye
        row = torch.where(pairs, d, 0.0).sum(-1)
        q = (left - 2) * d - row[:, :, None] - row[:, None, :]
        q = q.masked_fill(~pairs, float("inf"))
        flat = q.flatten(1).argmin(1)
        i = torch.minimum(flat // n, flat % n)
        j = torch.maximum(flat // n, flat % n)
        dij = d[batch, i, j]
        li = 0.5 * dij + (row[batch, i] - row[batch, j]) / (2 * (left - 2))
        merged = 0.5 * (d[batch, i] + d[batch, j] - dij[:, None])
        d[batch, i] = merged
        d[batch, :, i] = merged
        d[batch, i, i] = 0.0
        alive[batch, j] = False
        joins.append(torch.stack([i, j], dim=1))
        lengths.append(torch.stack([li, dij - li], dim=1))
    last = torch.where(alive[:, :, None] & alive[:, None, :], d, 0.0).amax((1, 2))
    return torch.stack(joins, 1), torch.stack(lengths, 1), last


def neighbour_joining(place: Place) -> Made:
    b, n = place.size(4, 200), place.size(8, 32)
    points = place.rand(b, n, 6)
    noise = 0.05 * place.rand(b, n, n)
    return joined_neighbours, (torch.cdist(points, points) + noise + noise.transpose(1, 2),)


def backbone(
    torsions: Tensor, lengths: Tensor, angles: Tensor, contacts: Tensor, wanted: Tensor
) -> tuple[Tensor, Tensor]:
    """A protein's backbone from its torsions, atom after atom in frames of the last three; clashes and contacts."""
    b, n, _ = torsions.shape
    start = torsions.new_tensor([[0.0, 1.4, 0.0], [0.0, 0.0, 0.0], [1.5, 0.0, 0.0]])
    atoms = [start[i].expand(b, 3) for i in range(3)]
    for i in range(n):
        for k in range(3):
            a, bb, c = atoms[-3], atoms[-2], atoms[-1]
            bc = F.normalize(c - bb, dim=-1)
            normal = F.normalize(torch.cross(bb - a, bc, dim=-1), dim=-1)
            frame = torch.stack([bc, torch.cross(normal, bc, dim=-1), normal], dim=-1)
            theta, phi = angles[k], torsions[:, i, k]
            local = torch.stack(
                [
                    -torch.cos(theta).expand_as(phi),
                    torch.cos(phi) * torch.sin(theta),
                    torch.sin(phi) * torch.sin(theta),
                ],
                dim=-1,
            )
            atoms.append(c + lengths[k] * (frame @ local[..., None]).squeeze(-1))
    xyz = torch.stack(atoms[3:], dim=1).view(b, n, 3, 3)
    alpha = xyz[:, :, 1]
    difference = alpha[:, :, None] - alpha[:, None, :]
    distance = torch.sqrt(difference.square().sum(-1) + 1e-6)
    far = (torch.arange(n, device=alpha.device)[:, None] - torch.arange(n, device=alpha.device)).abs() > 2
    clash = (F.relu(3.8 - distance) ** 2 * far).sum((1, 2)) / 2
    pulled = distance[:, contacts[:, 0], contacts[:, 1]] - wanted
    restraint = torch.where(pulled.abs() < 2, pulled**2, 4 * pulled.abs() - 4).sum(1)
    return clash + 0.1 * restraint, alpha.detach()


def torsion_chains(place: Place) -> Made:
    b, n, k = place.size(4, 2048), place.size(5, 6), place.size(6, 24)
    torsions = (torch.tensor([-1.05, -0.78, 3.1]) + 0.2 * torch.randn(b, n, 3)).to(place.device).requires_grad_()
    lengths, angles = torch.tensor([1.46, 1.52, 1.33]), torch.tensor([2.12, 1.94, 2.03])
    contacts = place.randint(n, k, 2)
    return backbone, (torsions, lengths.to(place.device), angles.to(place.device), contacts, 6 + 6 * place.rand(k))


def balanced_contacts(counts: Tensor, rounds: int, window: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hi-C: iterative correction without empty bins, observed over expected by distance, insulation, compartments."""
    n = counts.size(0)
    m = counts.to(torch.get_default_dtype())
    i = torch.arange(n, device=m.device)
    apart = (i[:, None] - i).abs()
    m = m.masked_fill(apart < 2, 0.0)
    coverage = (m > 0).sum(0)
    keep = coverage > 0.3 * coverage.to(m.dtype).median()
    m = m * keep * keep[:, None]
    bias = torch.ones(n, dtype=m.dtype, device=m.device)
    for _ in range(rounds):
        s = (m * bias * bias[:, None]).sum(0)
        mean = s.sum() / keep.sum()
        step = torch.where(keep, s / mean, 1.0)
        bias = bias / step.clamp(min=1e-6).sqrt()
    balanced = m * bias * bias[:, None]
    sums = torch.zeros(n, dtype=m.dtype, device=m.device).scatter_add_(0, apart.flatten(), balanced.flatten())
    numbers = torch.zeros_like(sums).scatter_add_(0, apart.flatten(), (keep & keep[:, None]).to(m.dtype).flatten())
    expected = sums / numbers.clamp(min=1)
    ratio = balanced / expected[apart].clamp(min=1e-9)
    integral = F.pad(balanced, (1, 0, 1, 0)).cumsum(0).cumsum(1)
    at = i[window : n - window]
    low, high = at - window, at + window
    square = integral[at, high] - integral[low, high] - integral[at, at] + integral[low, at]
    insulation = torch.log2(square.clamp(min=1e-6) / square.mean())
    v = torch.sin(0.37 * i.to(m.dtype)) * keep
    centred = (ratio - ratio.mean(0)) * keep * keep[:, None]
    for _ in range(10):
        v = centred.T @ (centred @ v)
        v = v / v.norm()
    return bias, expected, insulation, v * torch.sign(v[v.abs().argmax()])


def contact_maps(place: Place) -> Made:
    n = place.size(96, 2000)
    i = torch.arange(n)
    compartment = torch.where((i // (n // 8)) % 2 == 0, 1.0, -1.0)
    rate = 200 / (1 + (i[:, None] - i).abs()) * (1 + 0.4 * compartment[:, None] * compartment) + 2.0
    counts = torch.poisson(rate * torch.rand(n).add(0.5) * torch.rand(n, 1).add(0.5)).triu()
    return balanced_contacts, (
        (counts + counts.triu(1).T).to(torch.int32).to(place.device),
        place.size(5, 25),
        place.size(4, 10),
    )


def plastic_spikes(
    v: Tensor, u: Tensor, weight: Tensor, kinds: Tensor, noise: Tensor, delay: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Izhikevich's network (2006): delays in a ring of spikes, traces of both sides, weights that learn from timing."""
    n, steps, longest = v.numel(), len(noise), 8
    a, b, c, d = kinds.unbind(0)
    ring = torch.zeros(longest, n, dtype=v.dtype, device=v.device)
    before, after = torch.zeros_like(v), torch.zeros_like(v)
    excitatory = (a < 0.05)[:, None]
    weight, columns = weight.clone(), torch.arange(n, device=v.device)[:, None]
    raster = torch.zeros(steps, n, dtype=torch.bool, device=v.device)
    for t in range(steps):
        arriving = ring[(t - delay) % longest, columns]
        current = noise[t] + (weight * arriving).sum(0)
        for _ in range(2):
            v = v + 0.5 * ((0.04 * v + 5) * v + 140 - u + current)
        u = u + a * (b * v - u)
        fired = v >= 30
        raster[t] = fired
        spikes = fired.to(v.dtype)
        v = torch.where(fired, c, v.clamp(-90, 30))
        u = torch.where(fired, u + d, u)
        ring[t % longest] = spikes
        change = 0.1 * before[:, None] * spikes - 0.12 * spikes[:, None] * after
        weight = torch.where(excitatory, (weight + change).clamp(0, 10), weight)
        before, after = 0.95 * before + spikes, 0.95 * after + spikes
    return raster, weight, v


def spiking_plasticity(place: Place) -> Made:
    n, steps = place.size(60, 1000), place.size(10, 24)
    slow = torch.rand(n) < 0.8
    r = torch.rand(n) ** 2
    rows = [torch.where(slow, x, y) for x, y in ((0.02, 0.1), (0.2, 0.25))]
    kinds = torch.stack([*rows, torch.where(slow, -65 + 15 * r, -65.0), torch.where(slow, 8 - 6 * r, 2.0)])
    weight = torch.where(slow[:, None], 6.0, -5.0) * (torch.rand(n, n) < 0.1)
    v = -65 + 5 * torch.randn(n)
    noise = 20.0 * (torch.rand(steps, n) < 0.3) + 2 * torch.randn(steps, n)
    delay = torch.randint(1, 8, (n, n))
    return plastic_spikes, tuple(t.to(place.device) for t in (v, kinds[1] * v, weight, kinds, noise, delay))


ROWS: tuple[Row, ...] = (
    Row("program/counterparty_exposure", exposure, "training"),
    Row("program/rough_volatility_paths", rough_volatility),
    Row("program/order_book_network", order_book, "training"),
    Row("program/bond_yields_by_newton", yields, dtype=torch.float64),
    Row("program/filtered_historical_risk", filtered_risk),
    Row("program/pair_hidden_markov_reads", pair_reads),
    Row("program/neighbour_joining_trees", neighbour_joining),
    Row("program/backbone_from_torsions", torsion_chains, "training"),
    Row("program/contact_map_balancing", contact_maps),
    Row("program/spike_timing_plasticity", spiking_plasticity),
)
