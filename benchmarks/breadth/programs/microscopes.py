"""Crystals and microscopes: structure factors, phases, scanned probes, slices, resolutions, single molecules."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class CrystalRefinement(nn.Module):
    """Structure factors of atoms under symmetry, thermal motion, a solvent's scale; the R-factor that refines them."""

    def __init__(self, atoms: int, kinds: int) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.rand(atoms, 3))
        self.thermal = nn.Parameter(torch.full((atoms,), 2.0) + 0.1 * torch.randn(atoms))
        self.occupied = nn.Parameter(torch.full((atoms,), 3.0))
        self.solvent = nn.Parameter(torch.tensor([0.3, 3.0]))
        self.register_buffer("height", 1 + 4 * torch.rand(kinds, 4))
        self.register_buffer("width", 1 + 20 * torch.rand(kinds, 4))

    def forward(self, hkl: Tensor, turns: Tensor, shifts: Tensor, kind: Tensor, cell: Tensor, seen: Tensor) -> tuple:
        s2 = (hkl / cell).square().sum(1) / 4
        form = (self.get_buffer("height") * torch.exp(-self.get_buffer("width") * s2[:, None, None])).sum(2)
        weight = form[:, kind] * torch.exp(-self.thermal.exp() * s2[:, None]) * torch.sigmoid(self.occupied)
        real, imaginary = torch.zeros_like(s2), torch.zeros_like(s2)
        for turn, shift in zip(turns.unbind(0), shifts.unbind(0), strict=True):
            phase = 2 * math.pi * (hkl @ (self.place @ turn.t() + shift).t())
            real = real + (weight * phase.cos()).sum(1)
            imaginary = imaginary + (weight * phase.sin()).sum(1)
        size = torch.sqrt(real.square() + imaginary.square() + 1e-4)
        bulk = 1 - self.solvent[0] * torch.exp(-self.solvent[1].exp() * s2)
        calculated = size * bulk
        scale = (seen * calculated).sum() / calculated.square().sum()
        off = (seen - scale * calculated).abs()
        distance = self.place[:, None] - self.place
        distance = (distance - distance.detach().round()).square().sum(2)
        close = F.relu(0.01 - distance).triu(1).sum(1)
        return off / seen.mean(), close, size.detach()


def crystal(place: Place) -> Made:
    atoms, reflections = place.size(60, 512), place.size(800, 6000)
    turns = torch.tensor([[1, 1, 1], [-1, -1, 1], [-1, 1, -1], [1, -1, -1]]).float()
    shifts = torch.tensor([[0, 0, 0], [0.5, 0, 0.5], [0, 0.5, 0.5], [0.5, 0.5, 0]])
    hkl = (place.randint(13, reflections, 3) - 6).float()
    return CrystalRefinement(atoms, 5).to(place.device), (
        hkl,
        torch.diag_embed(turns).to(place.device),
        shifts.to(place.device),
        place.randint(5, atoms),
        torch.tensor([12.0, 15.0, 18.0], device=place.device),
        20 + 80 * place.rand(reflections),
    )


def relaxed_reflections(magnitude: Tensor, support: Tensor, start: Tensor, rounds: int, beta: float) -> tuple:
    """Luke, 2005 (RAAR): phases from magnitudes: averaged reflections at what was measured and at a support."""

    def measured(x: Tensor) -> Tensor:
        f = torch.fft.rfft2(x)
        size = torch.sqrt(f.real.square() + f.imag.square() + 0.1)
        return torch.fft.irfft2(f * (magnitude / size), s=x.shape[-2:])

    def inside(x: Tensor) -> Tensor:
        return torch.where(support, x.clamp(min=0), 0.0)

    x = start
    errors = []
    for _ in range(rounds):
        m = measured(x)
        r = 2 * m - x
        s = inside(r)
        x = beta * 0.5 * (2 * s - r + x) + (1 - beta) * m
        outside = torch.where(support, (-m).clamp(min=0), m).square().sum((1, 2))
        errors.append(torch.sqrt(outside / m.square().sum((1, 2))))
    out = inside(measured(x))
    mass = out.sum((1, 2)).clamp(min=1e-6)
    row = torch.arange(out.size(1), dtype=out.dtype, device=out.device)
    centre = torch.stack([(out.sum(2) * row).sum(1), (out.sum(1) * row[: out.size(2)]).sum(1)], 1) / mass[:, None]
    return out, torch.stack(errors, 1), centre


def phases(place: Place) -> Made:
    b, n = place.size(4, 32), place.size(64, 256)
    disc = torch.linspace(-1, 1, n, device=place.device).square()
    support = disc[:, None] + disc < 0.3
    truth = support * place.rand(b, n, n)
    spectrum = torch.fft.rfft2(truth).abs()
    return relaxed_reflections, (spectrum, support, place.rand(b, n, n), 6, 0.85)


class ScannedProbe(nn.Module):
    """Ptychography: an object's patches under a probe of several modes, their far fields beside what was counted."""

    def __init__(self, size: int, probe: int, modes: int) -> None:
        super().__init__()
        self.object = nn.Parameter(
            torch.cat([torch.ones(1, size, size), torch.zeros(1, size, size)]) + 0.05 * torch.randn(2, size, size)
        )
        axis = torch.linspace(-2, 2, probe)
        bell = torch.exp(-axis.square()[:, None] - axis.square())
        self.probe = nn.Parameter(
            bell * (0.3 + 0.2 * torch.randn(2, modes, 1, 1)) + 0.01 * torch.randn(2, modes, probe, probe)
        )

    def forward(self, corner: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        n, size = self.probe.size(-1), self.object.size(-1)
        i = torch.arange(n, device=corner.device)
        rows, columns = corner[:, 0, None] + i, corner[:, 1, None] + i
        patch = self.object.flatten(1)[:, rows[:, :, None] * size + columns[:, None]]
        real, imaginary = patch[0][:, None], patch[1][:, None]
        a, b = self.probe[0], self.probe[1]
        exit_wave = torch.complex(real * a - imaginary * b, real * b + imaginary * a)
        far = torch.fft.fft2(exit_wave, norm="ortho")
        intensity = (far.real.square() + far.imag.square()).sum(1) + 1e-3
        amplitude = (intensity.sqrt() - (counts + 1e-3).sqrt()).square()
        flat = (self.object[:, 1:] - self.object[:, :-1]).square().mean() + (
            self.object[:, :, 1:] - self.object[:, :, :-1]
        ).square().mean()
        return amplitude.sum((1, 2)), 0.01 * flat


def scanned_probe(place: Place) -> Made:
    size, probe, views = place.size(96, 512), place.size(32, 96), place.size(16, 256)
    counts = place.rand(views, probe, probe).square()
    return ScannedProbe(size, probe, 2).to(place.device), (place.randint(size - probe, views, 2), counts)


def multislice(potential: Tensor, tilt: Tensor, voltage: float, sampling: float) -> tuple[Tensor, Tensor, Tensor]:
    """Cowley and Moodie, 1957: electrons through slices: phase gratings, steps of Fresnel, an aperture, a lens."""
    n = potential.size(-1)
    wavelength = 12.2643 / math.sqrt(voltage * (1 + 0.978476e-6 * voltage))
    sigma = 0.0065
    k = torch.fft.fftfreq(n, sampling, device=potential.device).to(potential.dtype)
    kx, ky = k[:, None], k[None]
    square = kx.square() + ky.square()
    cut = (square < (1 / (3 * sampling)) ** 2).to(potential.dtype)
    thickness = 2.0
    bend = tilt[:, 0, None, None] * kx + tilt[:, 1, None, None] * ky
    chi = -math.pi * wavelength * thickness * square + 2 * math.pi * thickness * bend
    propagator = torch.polar(cut.expand_as(chi), chi)
    wave = torch.ones(len(tilt), n, n, dtype=propagator.dtype, device=potential.device)
    kept = []
    for slice_ in potential.unbind(0):
        wave = wave * torch.polar(torch.ones_like(slice_), sigma * slice_)
        wave = torch.fft.ifft2(torch.fft.fft2(wave) * propagator)
        kept.append((wave.real.square() + wave.imag.square()).mean((1, 2)))
    defocus, spherical = -60.0, 1e4
    lens = math.pi * wavelength * square * (defocus + 0.5 * spherical * wavelength**2 * square)
    image = torch.fft.ifft2(torch.fft.fft2(wave) * torch.polar(torch.exp(-2 * square), -lens))
    intensity = image.real.square() + image.imag.square()
    spots = torch.fft.fft2(wave, norm="ortho")[:, :8, :8]
    return intensity, spots.real.square() + spots.imag.square(), torch.stack(kept, 1)


def slices(place: Place) -> Made:
    n, count, tilts = place.size(48, 512), place.size(6, 12), place.size(3, 8)
    rough = F.avg_pool2d(place.rand(count, 1, n + 4, n + 4), 5, stride=1)[:, 0]
    return multislice, (60 * rough, 0.01 * place.randn(tilts, 2), 2e5, 0.2)


def shell_correlation(first: Tensor, second: Tensor, mask: Tensor, shells: int) -> tuple[Tensor, ...]:
    """Two half maps: correlation by shells of frequency, where it falls below 0.143, Wiener's weights, sharpening."""
    n = first.size(-1)
    k = torch.fft.fftfreq(n, device=first.device)
    radius = torch.sqrt(
        k[:, None, None].square() + k[:, None].square() + torch.fft.rfftfreq(n, device=first.device).square()
    )
    shell = (radius * 2 * shells).round().long().clamp(max=shells).flatten()
    a, b = torch.fft.rfftn(first * mask, dim=(-3, -2, -1)), torch.fft.rfftn(second * mask, dim=(-3, -2, -1))

    def by_shell(x: Tensor) -> Tensor:
        return x.new_zeros(len(x), shells + 1).index_add_(1, shell, x.flatten(1))

    cross = by_shell(a.real * b.real + a.imag * b.imag)
    left, right = by_shell(a.real.square() + a.imag.square()), by_shell(b.real.square() + b.imag.square())
    fsc = cross / torch.sqrt(left * right + 1e-6)
    below = fsc[:, 1:shells] < 0.143
    index = torch.arange(1, shells, device=first.device)
    limit = torch.where(below, index, shells).amin(1)
    c = fsc.clamp(min=0)
    weight = torch.sqrt(2 * c / (1 + c))
    power = (left + right) / by_shell(torch.ones_like(a.real)).clamp(min=1)
    curve = torch.log(power + 1e-3)
    sharp = torch.exp(0.25 * (curve[:, 2:3] - curve)).clamp(max=20)
    gain = (weight * sharp * (torch.arange(shells + 1, device=first.device) <= limit[:, None]))[:, shell]
    merged = torch.fft.irfftn(0.5 * (a + b) * gain.view_as(a.real), s=first.shape[-3:], dim=(-3, -2, -1))
    return fsc, limit, merged, (merged * mask).square().sum((1, 2, 3)).sqrt()


def half_maps(place: Place) -> Made:
    b, n = place.size(2, 4), place.size(32, 128)
    axis = torch.linspace(-1, 1, n, device=place.device).square()
    mask = torch.sigmoid(20 * (0.7 - torch.sqrt(axis[:, None, None] + axis[:, None] + axis)))
    truth = F.avg_pool3d(place.randn(b, 1, n + 6, n + 6, n + 6), 7, stride=1)[:, 0] * 8
    return shell_correlation, (
        truth + 0.5 * place.randn(b, n, n, n),
        truth + 0.5 * place.randn(b, n, n, n),
        mask,
        n // 2,
    )


def fitted_molecules(box: Tensor, gain: Tensor, offset: Tensor, rounds: int) -> tuple[Tensor, Tensor, Tensor]:
    """Smith et al., 2010: spots of single molecules: integrated bells, Newton's steps on Poisson's likelihood."""
    data = ((box - offset) / gain).clamp(min=0.05)
    n = box.size(-1)
    pixel = torch.arange(n, dtype=box.dtype, device=box.device)
    total = data.sum((1, 2))
    background = data.flatten(1).kthvalue(n, 1).values.clamp(min=0.2)
    above = (data - background[:, None, None]).clamp(min=0)
    mass = above.sum((1, 2)).clamp(min=1)
    x, y = (above.sum(1) * pixel).sum(1) / mass, (above.sum(2) * pixel).sum(1) / mass
    theta = torch.stack([x, y, (total - n * n * background).clamp(min=10), background], 1)
    sigma = 1.3
    for _ in range(rounds):
        x, y, photons, background = theta[:, :, None].unbind(1)
        parts = []
        for centre in (x, y):
            high, low = (pixel + 0.5 - centre) / sigma, (pixel - 0.5 - centre) / sigma
            e = 0.5 * (torch.erf(high / math.sqrt(2)) - torch.erf(low / math.sqrt(2)))
            g_high, g_low = torch.exp(-0.5 * high * high), torch.exp(-0.5 * low * low)
            d = (g_low - g_high) / (math.sqrt(2 * math.pi) * sigma)
            parts += [e, d]
        ex, dx, ey, dy = parts
        spot = ey[:, :, None] * ex[:, None]
        model = photons[:, :, None] * spot + background[:, :, None]
        slopes = [
            photons[:, :, None] * ey[:, :, None] * dx[:, None],
            photons[:, :, None] * dy[:, :, None] * ex[:, None],
        ]
        jacobian = torch.stack([*slopes, spot, torch.ones_like(spot)], 1).flatten(2)
        ratio, weight = (data / model - 1).flatten(1), (1 / model).flatten(1)
        gradient = (jacobian * ratio[:, None]).sum(2)
        fisher = (jacobian.square() * weight[:, None]).sum(2)
        step = gradient / fisher
        bound = torch.stack([0.5 + 0 * total, 0.5 + 0 * total, 0.3 * theta[:, 2], 0.3 * theta[:, 3]], 1)
        theta = theta + torch.maximum(torch.minimum(step, bound), -bound)
        theta = torch.cat([theta[:, :2].clamp(0, n - 1), theta[:, 2:].clamp(min=0.1)], 1)
    likelihood = (data * model.log() - model - torch.lgamma(data + 1)).sum((1, 2))
    return theta, 1 / fisher.sqrt(), likelihood


def molecules(place: Place) -> Made:
    spots, n = place.size(500, 50_000), 9
    centre = 3 + 2 * place.rand(spots, 2)
    axis = torch.arange(n, device=place.device)
    bell = torch.exp(
        -(axis - centre[:, :1]).square()[:, :, None] / 3.4 - (axis - centre[:, 1:]).square()[:, None] / 3.4
    )
    light = 2 + (40 + 100 * place.rand(spots, 1, 1)) * bell
    return fitted_molecules, (
        (light + light.sqrt() * place.randn(spots, n, n)) * 2 + 100,
        torch.tensor(2.0, device=place.device),
        torch.tensor(100.0, device=place.device),
        5,
    )


class SoftClasses(nn.Module):
    """Scheres, 2012: images of particles over all turns and shifts of the classes, a marginal likelihood in Fourier."""

    def __init__(self, classes: int, size: int, turns: int, shifts: Tensor) -> None:
        super().__init__()
        self.classes = nn.Parameter(0.5 * torch.randn(classes, size, size))
        self.share = nn.Parameter(torch.zeros(classes))
        self.noise = nn.Parameter(torch.zeros(size // 2 + 1))
        angle = torch.arange(turns) * (2 * math.pi / turns)
        rows = [
            torch.stack([angle.cos(), -angle.sin(), 0 * angle], 1),
            torch.stack([angle.sin(), angle.cos(), 0 * angle], 1),
        ]
        self.register_buffer("turn", torch.stack(rows, 1))
        k = (
            torch.fft.fftfreq(size)[:, None] * shifts[:, 0, None, None]
            + torch.fft.rfftfreq(size) * shifts[:, 1, None, None]
        )
        self.register_buffer("cos", torch.cos(2 * math.pi * k))
        self.register_buffer("sin", torch.sin(2 * math.pi * k))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        turn, (classes, n, _) = self.get_buffer("turn"), self.classes.shape
        grid = F.affine_grid(turn, [len(turn), 1, n, n], align_corners=False)
        views = F.grid_sample(self.classes.expand(len(turn), -1, -1, -1), grid, align_corners=False)
        f = torch.fft.rfft2(views.flatten(0, 1), norm="ortho")
        g = torch.fft.rfft2(images, norm="ortho")
        precision = torch.exp(-self.noise).expand(n, -1)
        c, s = self.get_buffer("cos"), self.get_buffer("sin")
        a, b = g.real[:, None] * c - g.imag[:, None] * s, g.real[:, None] * s + g.imag[:, None] * c
        shifted = torch.cat([a.flatten(2), b.flatten(2)], 2)
        weighted = torch.cat([(f.real * precision).flatten(1), (f.imag * precision).flatten(1)], 1)
        cross = shifted @ weighted.t()
        own = (precision * (f.real.square() + f.imag.square())).sum((1, 2))
        power = (precision * (g.real.square() + g.imag.square())).sum((1, 2))
        prior = self.share.log_softmax(0).repeat(len(turn)) - math.log(len(turn))
        score = cross - 0.5 * own + prior
        likelihood = torch.logsumexp(score.flatten(1), 1) - 0.5 * power - 0.5 * n * self.noise.sum()
        chance = (score.flatten(1) - torch.logsumexp(score.flatten(1), 1, keepdim=True)).exp()
        return -likelihood / n**2, chance.view(*score.shape[:2], len(turn), classes).sum((1, 2)).detach()


def soft_classes(place: Place) -> Made:
    images, n, turns = place.size(12, 256), place.size(24, 64), place.size(12, 36)
    shifts = torch.cartesian_prod(torch.arange(-1, 2), torch.arange(-1, 2)).float()
    return SoftClasses(place.size(2, 8), n, turns, shifts).to(place.device), (place.randn(images, n, n),)


class PhaseDiversity(nn.Module):
    """Gonsalves, 1982: aberrations as Zernike's polynomials, from images at several foci through point spreads."""

    def __init__(self, fields: int, size: int, orders: int) -> None:
        super().__init__()
        axis = torch.linspace(-1.5, 1.5, size)
        y, x = axis[:, None], axis[None]
        rho2, theta = x.square() + y.square(), torch.atan2(y.expand(size, size), x.expand(size, size))
        rho, basis = rho2.sqrt(), []
        for n in range(1, orders + 1):
            for m in range(n % 2, n + 1, 2):
                radial = torch.zeros_like(rho)
                for k in range((n - m) // 2 + 1):
                    bottom = math.factorial(k) * math.factorial((n + m) // 2 - k) * math.factorial((n - m) // 2 - k)
                    radial = radial + (-1) ** k * math.factorial(n - k) / bottom * rho ** (n - 2 * k)
                basis += [radial * torch.cos(m * theta), radial * torch.sin(m * theta)] if m else [radial]
        pupil = torch.sigmoid(20 * (1 - rho))
        self.register_buffer("pupil", pupil)
        self.register_buffer("defocus", (2 * rho2 - 1) * pupil)
        self.register_buffer("basis", torch.stack(basis) * pupil)
        self.aberration = nn.Parameter(0.1 * torch.randn(fields, len(basis)))

    def forward(self, images: Tensor, foci: Tensor) -> tuple[Tensor, Tensor]:
        pupil = self.get_buffer("pupil")
        phase = torch.einsum("fk,kxy->fxy", self.aberration, self.get_buffer("basis"))
        phase = phase[:, None] + foci[:, None, None] * self.get_buffer("defocus")
        wave = torch.fft.fft2(torch.complex(pupil * phase.cos(), pupil * phase.sin()), norm="ortho")
        spread = wave.real.square() + wave.imag.square()
        transfer = torch.fft.rfft2(spread / spread.sum((2, 3), keepdim=True))
        seen = torch.fft.rfft2(images, norm="ortho")
        top = (transfer.conj() * seen).sum(1)
        bottom = (transfer.real.square() + transfer.imag.square()).sum(1) + 0.05
        off = seen - transfer * (top / bottom)[:, None]
        error = (off.real.square() + off.imag.square()).mean((1, 2, 3))
        return error + 1e-3 * self.aberration.square().sum(1), spread.detach().amax((2, 3))


def phase_diversity(place: Place) -> Made:
    fields, n = place.size(3, 64), place.size(32, 128)
    foci = torch.tensor([-1.5, 0.0, 1.5], device=place.device)
    return PhaseDiversity(fields, n, 5).to(place.device), (place.rand(fields, 3, n, n), foci)


class ProteinBells(nn.Module):
    """Chen and Ludtke, 2021: a molecule as bells that a latent code moves, seen through a contrast transfer."""

    def __init__(self, bells: int, latent: int, size: int) -> None:
        super().__init__()
        self.centre = nn.Parameter(0.25 * torch.randn(bells, 3))
        self.height, self.width = nn.Parameter(torch.ones(bells)), nn.Parameter(torch.full((bells,), -2.6))
        self.encode = nn.Sequential(nn.Linear(size * size, 64), nn.ReLU(), nn.Linear(64, latent))
        self.decode = nn.Sequential(nn.Linear(latent, 64), nn.ReLU(), nn.Linear(64, 3 * bells))
        k2 = torch.fft.fftfreq(size).square()[:, None] + torch.fft.rfftfreq(size).square()
        self.register_buffer("k2", k2)
        self.size = size

    def forward(self, images: Tensor, turns: Tensor, defocus: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        code = torch.tanh(self.encode(images.flatten(1)))
        move = 0.05 * torch.tanh(self.decode(code)).unflatten(1, (-1, 3))
        at = torch.einsum("bij,bnj->bni", turns, self.centre + move)
        axis = torch.linspace(-1, 1, self.size, dtype=images.dtype, device=images.device)
        sharp = 0.5 * torch.exp(-2 * self.width)[:, None]
        x = torch.exp(-(axis - at[..., :1]).square() * sharp)
        y = torch.exp(-(axis - at[..., 1:2]).square() * sharp)
        projection = torch.einsum("n,bny,bnx->byx", F.softplus(self.height), y, x)
        k2 = self.get_buffer("k2")
        transfer = -torch.sin(20 * defocus[:, None, None] * k2 + 0.1) * torch.exp(-4 * k2)
        f, g = torch.fft.rfft2(projection) * transfer, torch.fft.rfft2(images)
        cross = (f.real * g.real + f.imag * g.imag).sum((1, 2))
        norms = (f.real.square() + f.imag.square()).sum((1, 2)) * (g.real.square() + g.imag.square()).sum((1, 2))
        return 1 - cross / (norms + 1e-3).sqrt(), move.square().sum(2).mean(1), code


def protein_bells(place: Place) -> Made:
    b, bells, n = place.size(8, 256), place.size(64, 512), place.size(24, 64)
    turns = torch.linalg.qr(torch.randn(b, 3, 3)).Q.to(place.device)
    return ProteinBells(bells, 4, n).to(place.device), (place.randn(b, n, n), turns, 1 + 2 * place.rand(b))


def drift_of_frames(frames: Tensor, edge: Tensor, rounds: int) -> tuple[Tensor, Tensor, Tensor]:
    """Films of exposures: each frame against the sum of the others, centroids of peaks, then summed by their dose."""
    b, count, n, m = frames.shape
    f = torch.fft.rfft2((frames - frames.mean((2, 3), keepdim=True)) * edge)
    ky = torch.fft.fftfreq(n, device=frames.device)[:, None]
    kx = torch.fft.rfftfreq(m, device=frames.device)
    low = torch.exp(-40 * (ky.square() + kx.square()))
    shift = frames.new_zeros(b, count, 2)
    r = 3
    near = torch.arange(-r, r + 1, device=frames.device)
    for _ in range(rounds):
        angle = 2 * math.pi * (ky * shift[..., 0, None, None] + kx * shift[..., 1, None, None])
        moved = f * torch.polar(torch.ones_like(angle), angle)
        rest = moved.sum(1, keepdim=True) - moved
        peak = torch.fft.irfft2(moved.conj() * rest * low, s=(n, m))
        window = peak[:, :, near % n][..., near % m]
        window = (window - window.amin((2, 3), keepdim=True)).pow(4)
        mass = window.sum((2, 3)).clamp(min=1e-12)
        step = torch.stack([(window.sum(3) * near).sum(2), (window.sum(2) * near).sum(2)], 2) / mass[..., None]
        shift = shift - step
        shift = shift - shift.mean(1, keepdim=True)
    dose = torch.arange(1, count + 1, device=frames.device)[:, None, None]
    decay = torch.exp(-dose * (0.2 + 3 * (ky.square() + kx.square())) / 4)
    angle = 2 * math.pi * (ky * shift[..., 0, None, None] + kx * shift[..., 1, None, None])
    moved = f * torch.polar(decay / decay.square().sum(0).sqrt(), angle)
    path = (shift[:, 1:] - shift[:, :-1]).square().sum(2).sqrt().sum(1)
    return torch.fft.irfft2(moved.sum(1), s=(n, m)), shift, path


def drifting_frames(place: Place) -> Made:
    b, count, n = place.size(1, 8), place.size(6, 16), place.size(64, 256)
    scene = F.avg_pool2d(place.randn(b, 1, n + 8, n + 8), 9, stride=1) * 5
    shifted = torch.cat([scene.roll(k // 2, 2) for k in range(count)], 1)
    edge = torch.hann_window(n, periodic=False, device=place.device).sqrt()
    return drift_of_frames, (shifted + 0.3 * place.randn(b, count, n, n), edge[:, None] * edge, 3)


ROWS: tuple[Row, ...] = (
    Row("program/crystal_refinement", crystal, "training"),
    Row("program/averaged_reflections_phasing", phases),
    Row("program/scanned_probe_ptychography", scanned_probe, "training"),
    Row("program/electron_multislice", slices),
    Row("program/fourier_shell_correlation", half_maps),
    Row("program/fitted_single_molecules", molecules),
    Row("program/soft_particle_classes", soft_classes, "training"),
    Row("program/phase_diversity", phase_diversity, "training"),
    Row("program/protein_bells", protein_bells, "training"),
    Row("program/drift_of_exposures", drifting_frames),
)
