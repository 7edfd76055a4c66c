"""Earthquakes and sounded ground: waves on staggered grids, picks, migration, layers, sources, catalogues."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def virieux(
    density: Tensor, lam: Tensor, mu: Tensor, wavelet: Tensor, sponge: Tensor, row: int
) -> tuple[Tensor, Tensor]:
    """Virieux, 1986: velocities and stresses half a cell apart, updated in place, an edge that swallows waves."""
    m = density.size(1)
    dt, dx = 0.0004, 5.0
    vx, vz, xx, zz, xz = (torch.zeros_like(density) for _ in range(5))
    stiff = lam + 2 * mu
    buoyancy = dt / (dx * density)
    traces = []
    for t in range(wavelet.size(0)):
        vx[1:, 1:] += buoyancy[1:, 1:] * (xx[1:, 1:] - xx[1:, :-1] + xz[1:, 1:] - xz[:-1, 1:])
        vz[:-1, :-1] += buoyancy[:-1, :-1] * (xz[:-1, 1:] - xz[:-1, :-1] + zz[1:, :-1] - zz[:-1, :-1])
        vx *= sponge
        vz *= sponge
        ex = (vx[1:, 1:] - vx[1:, :-1]) / dx
        ez = (vz[1:, :-1] - vz[:-1, :-1]) / dx
        xx[1:, :-1] += dt * (stiff[1:, :-1] * ex + lam[1:, :-1] * ez)
        zz[1:, :-1] += dt * (stiff[1:, :-1] * ez + lam[1:, :-1] * ex)
        xz[:-1, 1:] += dt * mu[:-1, 1:] / dx * (vx[1:, 1:] - vx[:-1, 1:] + vz[:-1, 1:] - vz[:-1, :-1])
        xx[row, m // 2] += wavelet[t]
        zz[row, m // 2] += wavelet[t]
        zz[0] = 0.0
        xz[0] = -xz[1]
        xx *= sponge
        traces.append(vz[2].clone())
    return torch.stack(traces), torch.stack([vx, vz, xx])


def elastic(place: Place) -> Made:
    n, m, steps = place.size(100, 1024), place.size(120, 1024), place.size(40, 24)
    density = 2000 + 100 * place.rand(n, m)
    mu = 4e9 + 1e9 * place.rand(n, m)
    edge = torch.minimum(torch.arange(m), torch.arange(m).flip(0)).clamp(max=20).to(place.device)
    sponge = torch.exp(-(0.015 * (20 - edge)).square()).expand(n, m).clone()
    t = torch.arange(steps, device=place.device) / steps - 0.4
    wavelet = 1e6 * (1 - 2 * (8 * t).square()) * torch.exp(-(8 * t).square())
    return virieux, (density, 1.2 * mu, mu, wavelet, sponge, 5)


def recursive_picker(trace: Tensor, short: int, long: int, on: float, off: float) -> tuple[Tensor, Tensor, Tensor]:
    """Short over long averages from running sums; a trigger that stays on until the ratio is below a second level."""
    energy = trace.square()
    total = F.pad(energy.double().cumsum(-1), (1, 0))
    n = trace.size(-1)
    at = torch.arange(long, n, device=trace.device)
    sta = (total[:, at + 1] - total[:, at + 1 - short]) / short
    lta = (total[:, at + 1 - short] - total[:, at - long + 1 - short + short - 1]) / (long - short)
    ratio = (sta / lta.clamp(min=1e-12)).to(trace.dtype)
    index = torch.arange(ratio.size(1), device=trace.device)
    last_on = torch.where(ratio > on, index, -1).cummax(-1).values
    last_off = torch.where(ratio < off, index, -1).cummax(-1).values
    active = last_on > last_off
    starts = active & ~F.pad(active[:, :-1], (1, 0))
    first = torch.where(starts, index, n).amin(-1)
    peak = torch.where(active, ratio, 0.0).amax(-1)
    return torch.stack([first, starts.sum(-1), active.sum(-1)], 1), peak, ratio[:, ::16]


def picker(place: Place) -> Made:
    b, n = place.size(16, 512), place.size(4000, 20_000)
    trace = place.randn(b, n)
    onset = n // 2 + 37 * torch.arange(b, device=place.device)[:, None] % 500
    later = (torch.arange(n, device=place.device) - onset).clamp(min=0)
    return recursive_picker, (trace * (1 + 8 * (later > 0) * torch.exp(-later / 200)), 40, 400, 4.0, 1.2)


class AngleReflectivity(nn.Module):
    """Aki and Richards, 1980, linearised: three logs to reflections at many angles, each with its own wavelet."""

    def __init__(self, angles: int, taps: int = 31) -> None:
        super().__init__()
        self.register_buffer("angle", torch.linspace(0.05, 0.6, angles))
        t = torch.arange(taps) - taps // 2
        ricker = (1 - 2 * (0.3 * t).square()) * torch.exp(-(0.3 * t).square())
        self.wavelet = nn.Parameter(ricker.repeat(angles, 1) * torch.linspace(1, 0.7, angles)[:, None])

    def forward(self, log_p: Tensor, log_s: Tensor, log_d: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        dp, ds, dd = (torch.diff(t, dim=-1) for t in (log_p, log_s, log_d))
        ratio = torch.exp(2 * (0.5 * (log_s[:, 1:] + log_s[:, :-1]) - 0.5 * (log_p[:, 1:] + log_p[:, :-1])))[:, None]
        sine = torch.sin(self.angle).square()[:, None]
        a = 0.5 / torch.cos(self.angle).square()[:, None]
        reflection = a * dp[:, None] - 4 * ratio * sine * ds[:, None] + 0.5 * (1 - 4 * ratio * sine) * dd[:, None]
        synthetic = F.conv1d(
            reflection, self.wavelet[:, None], padding=self.wavelet.size(1) // 2, groups=reflection.size(1)
        )
        misfit = F.smooth_l1_loss(synthetic, observed, beta=0.05)
        background = sum(torch.diff(t, n=2, dim=-1).square().mean() for t in (log_p, log_s, log_d))
        rock = (log_d - 0.25 * log_p).var(dim=-1).mean()
        return misfit + 0.1 * background + 0.01 * rock, synthetic


def amplitudes_by_angle(place: Place) -> Made:
    b, n, angles = place.size(8, 512), place.size(300, 1000), place.size(10, 24)
    logs = [base + 0.1 * place.randn(b, n).cumsum(-1) / n**0.5 for base in (8.0, 7.4, 7.7)]
    args = (*(t.requires_grad_() for t in logs), 0.02 * place.randn(b, angles, n - 1))
    return AngleReflectivity(angles).to(place.device), args


def kirchhoff(
    data: Tensor, source: Tensor, receiver: Tensor, velocity: Tensor, nx: int, nz: int
) -> tuple[Tensor, Tensor]:
    """Every sample smeared along its isochrone: times from roots, samples between two, obliquity, shots one by one."""
    shots, _, samples = data.shape
    dt, dx = 0.004, 10.0
    x = dx * torch.arange(nx, device=data.device, dtype=data.dtype)[:, None]
    z = dx * (1 + torch.arange(nz, device=data.device, dtype=data.dtype))
    image, fold = data.new_zeros(nx, nz), torch.zeros(nx, nz, dtype=torch.int32, device=data.device)
    for s in range(shots):
        down = torch.sqrt((x - source[s]).square() + z.square())
        up = torch.sqrt((x - receiver[:, None, None]).square() + z.square())
        time = (down + up) / (velocity * dt)
        index = time.floor().long()
        part = time - index
        inside = index < samples - 1
        index = index.clamp(max=samples - 2).flatten(1)
        value = torch.lerp(data[s].gather(1, index), data[s].gather(1, index + 1), part.flatten(1)).view_as(time)
        weight = z / torch.sqrt(down * up)
        image += torch.where(inside, weight * value, 0.0).sum(0)
        fold += inside.sum(0, dtype=torch.int32)
    image = image / fold.clamp(min=1)
    laplacian = image.clone()
    laplacian[1:-1, 1:-1] = (
        image[2:, 1:-1] + image[:-2, 1:-1] + image[1:-1, 2:] + image[1:-1, :-2] - 4 * image[1:-1, 1:-1]
    )
    return laplacian, fold


def migration(place: Place) -> Made:
    shots, stations, samples = place.size(3, 16), place.size(16, 64), place.size(400, 1000)
    nx, nz = place.size(64, 384), place.size(48, 256)
    data = place.randn(shots, stations, samples)
    source, receiver = 10.0 * nx * place.rand(shots), torch.linspace(0, 10.0 * nx, stations, device=place.device)
    return kirchhoff, (data, source, receiver, 1800 + 2 * torch.arange(nz, device=place.device), nx, nz)


def iterative_deconvolution(radial: Tensor, vertical: Tensor, spikes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ligorría and Ammon, 1999: spikes one by one where the correlation is largest; then a Gaussian's width."""
    n = radial.size(-1)
    spectrum = torch.fft.rfft(vertical, 2 * n)
    power = vertical.square().sum(-1)
    residual, rf = radial, radial.new_zeros(radial.size(0), 2 * n)
    row = torch.arange(radial.size(0), device=radial.device)
    misfits = []
    for _ in range(spikes):
        correlation = torch.fft.irfft(torch.fft.rfft(residual, 2 * n) * spectrum.conj(), 2 * n) / power[:, None]
        lag = correlation[:, : n // 2].abs().argmax(-1)
        rf = rf.index_put((row, lag), correlation[row, lag], accumulate=True)
        predicted = torch.fft.irfft(torch.fft.rfft(rf) * spectrum, 2 * n)[:, :n]
        residual = radial - predicted
        misfits.append(residual.square().sum(-1) / radial.square().sum(-1))
    frequency = 2 * math.pi * torch.fft.rfftfreq(2 * n, 0.05, dtype=radial.dtype, device=radial.device)
    smooth = torch.fft.irfft(torch.fft.rfft(rf) * torch.exp(-frequency.square() / (4 * 2.5**2)), 2 * n)
    return smooth[:, :n], torch.stack(misfits, -1), (rf != 0).sum(-1)


def receivers(place: Place) -> Made:
    b, n = place.size(8, 1024), place.size(512, 2048)
    vertical = torch.exp(-torch.arange(n, device=place.device) / 20) * place.randn(b, n)
    radial = 0.5 * vertical + 0.3 * vertical.roll(37, -1) - 0.2 * vertical.roll(80, -1)
    return iterative_deconvolution, (radial + 0.1 * place.randn(b, n), vertical, place.size(10, 20))


class LayeredSite(nn.Module):
    """Haskell, 1953: SH waves up through layers on a half-space, real and imaginary parts by hand; fitted to ratios."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.log_velocity = nn.Parameter(torch.linspace(5.0, 6.5, layers + 1))
        self.log_thickness = nn.Parameter(torch.full((layers,), 2.0))
        self.log_quality = nn.Parameter(torch.full((layers + 1,), 3.0))

    def forward(self, frequency: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        omega = 2 * math.pi * frequency
        velocity, thickness = self.log_velocity.exp(), self.log_thickness.exp()
        damping = 0.5 / self.log_quality.exp()
        density = 1600 + 0.5 * velocity
        ar, ai = torch.ones_like(omega), torch.zeros_like(omega)
        br, bi = torch.ones_like(omega), torch.zeros_like(omega)
        impedance = density * velocity
        for k in range(thickness.size(0)):
            alpha = impedance[k] / impedance[k + 1]
            phase = omega * thickness[k] / velocity[k]
            grow = torch.exp(phase * damping[k])
            c, s = torch.cos(phase), torch.sin(phase)
            xr, xi = grow * (ar * c - ai * s), grow * (ar * s + ai * c)
            yr, yi = (br * c + bi * s) / grow, (bi * c - br * s) / grow
            ar, ai = 0.5 * ((1 + alpha) * xr + (1 - alpha) * yr), 0.5 * ((1 + alpha) * xi + (1 - alpha) * yi)
            br, bi = 0.5 * ((1 - alpha) * xr + (1 + alpha) * yr), 0.5 * ((1 - alpha) * xi + (1 + alpha) * yi)
        amplification = torch.rsqrt(ar.square() + ai.square() + 1e-9)
        return (amplification.log() - observed).square().mean(), amplification


def site(place: Place) -> Made:
    n, layers = place.size(4000, 1_000_000), place.size(12, 6)
    return LayeredSite(layers).to(place.device), (0.1 + 20 * place.rand(n), 0.3 * place.randn(n))


def moment_tensors(
    strike: Tensor, dip: Tensor, rake: Tensor, rays: Tensor, first: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Double couples by their angles, far-field radiation of three phases along rays, polarities as logits."""
    ss, cs, sd, cd = torch.sin(strike), torch.cos(strike), torch.sin(dip), torch.cos(dip)
    sr, cr = torch.sin(rake), torch.cos(rake)
    s2, c2, sd2, cd2 = torch.sin(2 * strike), torch.cos(2 * strike), torch.sin(2 * dip), torch.cos(2 * dip)
    moment = torch.zeros(strike.size(0), 3, 3, dtype=strike.dtype, device=strike.device)
    moment[:, 0, 0] = -(sd * cr * s2 + sd2 * sr * ss * ss)
    moment[:, 1, 1] = sd * cr * s2 - sd2 * sr * cs * cs
    moment[:, 2, 2] = sd2 * sr
    moment[:, 0, 1] = moment[:, 1, 0] = sd * cr * c2 + 0.5 * sd2 * sr * s2
    moment[:, 0, 2] = moment[:, 2, 0] = -(cd * cr * cs + cd2 * sr * ss)
    moment[:, 1, 2] = moment[:, 2, 1] = -(cd * cr * ss - cd2 * sr * cs)
    pushed = torch.einsum("eij,erj->eri", moment, rays)
    p = (pushed * rays).sum(-1)
    horizontal = torch.stack([-rays[..., 1], rays[..., 0], torch.zeros_like(p)], -1)
    horizontal = horizontal / horizontal.norm(dim=-1, keepdim=True).clamp(min=1e-3)
    sh = (pushed * horizontal).sum(-1)
    sv = (pushed * torch.linalg.cross(rays, horizontal)).sum(-1)
    loss = F.binary_cross_entropy_with_logits(10 * p, first, reduction="none").mean(-1)
    return loss, torch.log10((sh.square() + sv.square() + 1e-4).sqrt() / (p.abs() + 1e-2)).mean(-1), p


def sources(place: Place) -> Made:
    events, rays = place.size(64, 8192), place.size(60, 100)
    direction = place.randn(events, rays, 3)
    angles = [scale * place.rand(events) for scale in (6.28, 1.5, 3.1)]
    first = place.randint(2, events, rays).float()
    return moment_tensors, (*(a.requires_grad_() for a in angles), F.normalize(direction, dim=-1), first)


def geiger(
    arrivals: Tensor, station: Tensor, start: Tensor, speed: float, rounds: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Geiger, 1912: hypocentres by Gauss and Newton, weights by residuals, 4 x 4 equations eliminated by hand."""
    place = start
    for _ in range(rounds):
        away = place[:, None, :3] - station
        distance = away.square().sum(-1).add(1e-6).sqrt()
        residual = arrivals - place[:, 3:] - distance / speed
        scale = residual.abs().median(dim=1, keepdim=True).values.clamp(min=0.05)
        weight = torch.where(residual.abs() < 3 * scale, 1.0, 3 * scale / residual.abs().clamp(min=1e-3))
        jacobian = torch.cat([away / (speed * distance[..., None]), torch.ones_like(away[..., :1])], -1)
        normal = torch.einsum("esi,es,esj->eij", jacobian, weight, jacobian)
        normal = normal + 0.05 * torch.eye(4, dtype=normal.dtype, device=normal.device)
        table = torch.cat([normal, torch.einsum("esi,es->ei", jacobian, weight * residual)[..., None]], -1)
        for k in range(4):
            table[:, k] = table[:, k] / table[:, k, k : k + 1]
            for i in range(4):
                if i != k:
                    table[:, i] -= table[:, i, k : k + 1] * table[:, k]
        place = place + table[:, :, 4].clamp(-5.0, 5.0)
        place[:, 2].clamp_(min=0.0)
    gaps = torch.atan2(station[:, 1] - place[:, 1:2], station[:, 0] - place[:, :1]).sort(-1).values
    gaps = torch.cat([gaps, gaps[:, :1] + 2 * math.pi], 1).diff(dim=1).amax(1)
    return place, residual.square().mean(1).sqrt(), torch.rad2deg(gaps)


def hypocentres(place: Place) -> Made:
    events, stations = place.size(64, 16_384), place.size(20, 30)
    station = torch.cat([100 * place.rand(stations, 2), torch.zeros(stations, 1, device=place.device)], 1)
    true = torch.cat([20 + 60 * place.rand(events, 2), 5 + 10 * place.rand(events, 1)], 1)
    arrivals = (true[:, None] - station).norm(dim=-1) / 6.0 + 0.05 * place.randn(events, stations)
    start = place.rand(events, 4) + torch.tensor([50.0, 50.0, 8.0, 0.0], device=place.device)
    return geiger, (arrivals, station, start, 6.0, 5)


def completeness(magnitude: Tensor, cell: Tensor, cells: int, bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """Catalogues by cell: histograms, their peak, Aki's slope above it (Utsu's bin), Shi and Bolt's error."""
    width = 0.1
    edges = width * torch.arange(1, bins, dtype=magnitude.dtype, device=magnitude.device)
    bin_of = torch.bucketize(magnitude, edges)
    counts = torch.zeros(cells * bins, dtype=torch.int64, device=cell.device)
    counts.scatter_add_(0, cell * bins + bin_of, torch.ones_like(cell))
    counts = counts.view(cells, bins)
    complete = counts.argmax(1) + 2
    above = bin_of >= complete[cell]
    weight = above.to(magnitude.dtype)
    number = torch.zeros(cells, dtype=magnitude.dtype, device=cell.device).index_add_(0, cell, weight)
    mean = torch.zeros_like(number).index_add_(0, cell, weight * magnitude) / number.clamp(min=1)
    off = torch.where(above, magnitude - mean[cell], 0.0).square()
    spread = torch.zeros_like(number).index_add_(0, cell, off)
    slope = math.log10(math.e) / (mean - (complete * width - width / 2)).clamp(min=0.05)
    error = 2.3 * slope.square() * torch.sqrt(spread / (number * (number - 1)).clamp(min=1))
    cumulative = counts.flip(1).cumsum(1).flip(1)
    return torch.stack([slope, error]), complete, cumulative


def catalogue(place: Place) -> Made:
    n, cells = place.size(40_000, 4_000_000), place.size(50, 2000)
    magnitude = (0.4 - torch.log(place.rand(n) + 1e-6) / 2.3).clamp(0, 6.9)
    return completeness, (magnitude, place.randint(cells, n), cells, 70)


def phase_weighted(traces: Tensor, moveout: Tensor, power: float = 2.0) -> tuple[Tensor, Tensor]:
    """Schimmel and Paulssen, 1997: slant stacks by shifts of phases, weighted by how well phases agree."""
    n = traces.size(-1)
    spectrum = torch.fft.rfft(traces)
    frequency = torch.fft.rfftfreq(n, dtype=traces.dtype, device=traces.device)
    shift = torch.exp(2j * math.pi * frequency * moveout[..., None])
    moved = torch.fft.irfft(spectrum * shift, n)
    full = torch.fft.fft(moved)
    keep = torch.zeros(n, dtype=traces.dtype, device=traces.device)
    keep[0] = 1.0
    keep[1 : n // 2] = 2.0
    keep[n // 2] = 1.0
    analytic = torch.fft.ifft(full * keep)
    phasor = analytic / analytic.abs().clamp(min=1e-6)
    coherence = phasor.mean(1).abs()
    stack = moved.mean(1) * coherence.pow(power)
    return stack, coherence.amax(-1)


def slant_stack(place: Place) -> Made:
    slownesses, stations, n = place.size(12, 64), place.size(16, 64), place.size(512, 2048)
    slowness = torch.linspace(-2, 2, slownesses, device=place.device)[:, None]
    return phase_weighted, (place.randn(stations, n), slowness * (torch.arange(stations, device=place.device) - 8))


def standard_linear_solid(
    modulus: Tensor, quality: Tensor, wavelet: Tensor, recorded: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """Carcione's memory variables: waves on a line in a solid that relaxes, long in time; the misfit at a receiver."""
    dt, tau = 0.12, 4.0
    batch, n = modulus.shape
    gap = 2.0 / (quality.square() + 1.0)
    velocity = [modulus.new_zeros(batch, n)]
    stress, memory = modulus.new_zeros(batch, n - 1), modulus.new_zeros(batch, n - 1)
    stiff, relaxed = modulus[:, 1:] * (1 + gap[:, 1:]), modulus[:, 1:] * gap[:, 1:] / tau
    traces = []
    for t in range(steps):
        v = velocity[-1].clone()
        v[:, 1:-1] += dt * (stress[:, 1:] - stress[:, :-1])
        v[:, n // 4] += wavelet[t]
        v[:, 0] = 0.9 * v[:, 1]
        v[:, -1] = 0.9 * v[:, -2]
        rate = v[:, 1:] - v[:, :-1]
        memory = (memory * (1 - 0.5 * dt / tau) - dt * relaxed * rate) / (1 + 0.5 * dt / tau)
        stress = stress + dt * (stiff * rate + memory)
        velocity = [v]
        traces.append(v[:, n // 4 + 6])
    trace = torch.stack(traces, -1)
    return (trace - recorded).square().sum(-1), velocity[-1]


def viscoelastic(place: Place) -> Made:
    b, n, steps = place.size(8, 4096), place.size(100, 200), place.size(30, 24)
    wavelet = torch.sin(torch.arange(steps, device=place.device) * 0.3)
    modulus, quality = 1.0 + place.rand(b, n), 2.0 + place.rand(b, n)
    args = modulus.requires_grad_(), quality.requires_grad_(), wavelet, 0.1 * place.randn(b, steps), steps
    return standard_linear_solid, args


ROWS: tuple[Row, ...] = (
    Row("program/staggered_elastic_waves", elastic),
    Row("program/short_long_average_picker", picker),
    Row("program/amplitudes_by_angle", amplitudes_by_angle, "training"),
    Row("program/kirchhoff_migration", migration),
    Row("program/receiver_functions", receivers),
    Row("program/haskell_site_response", site, "training"),
    Row("program/moment_tensor_polarities", sources, "training"),
    Row("program/geiger_hypocentres", hypocentres),
    Row("program/catalogue_completeness", catalogue),
    Row("program/phase_weighted_stack", slant_stack),
    Row("program/relaxing_solid_waves", viscoelastic, "training"),
)
