"""Filters of pictures and of sound: edge-preserving, segmenting, restoring; loudness, rhythm, operators, voices."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..row import Made, Place, Row


def kuwahara(image: Tensor, radius: int) -> Tensor:
    """The mean of the calmest of four quadrants around each pixel, by luminance."""
    k = radius + 1
    luma = (image * image.new_tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
    padded = F.pad(torch.cat([image, luma, luma**2], dim=1), (radius,) * 4, mode="reflect")
    means = F.avg_pool2d(padded, k, stride=1)
    h, w = image.shape[-2:]
    quadrants = [means[..., y : y + h, x : x + w] for y in (0, radius) for x in (0, radius)]
    stacked = torch.stack(quadrants)
    variance = stacked[:, :, 4] - stacked[:, :, 3] ** 2
    best = variance.argmin(dim=0, keepdim=True)
    return stacked[:, :, :3].gather(0, best[:, :, None].expand(-1, -1, 3, -1, -1)).squeeze(0)


def painted(place: Place) -> Made:
    b, n = place.size(1, 4), place.size(64, 1024)
    return kuwahara, (place.rand(b, 3, n, n), place.size(2, 5))


def superpixels(image: Tensor, grid: int, rounds: int, compactness: float) -> tuple[Tensor, Tensor]:
    """SLIC (Achanta et al., 2012): pixels choose among nine nearby centres of colour and place; means anew."""
    c, h, w = image.shape
    sy, sx = h // grid, w // grid
    yy, xx = torch.meshgrid(torch.arange(h, device=image.device), torch.arange(w, device=image.device), indexing="ij")
    features = torch.cat([image, compactness * yy[None] / sy, compactness * xx[None] / sx]).flatten(1).T
    centres = F.adaptive_avg_pool2d(features.T.view(c + 2, h, w), grid).flatten(1).T
    cell_y, cell_x = (yy // sy).clamp(max=grid - 1).flatten(), (xx // sx).clamp(max=grid - 1).flatten()
    offsets = torch.tensor([(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)], device=image.device)
    near_y, near_x = cell_y[:, None] + offsets[:, 0], cell_x[:, None] + offsets[:, 1]
    valid = (near_y >= 0) & (near_y < grid) & (near_x >= 0) & (near_x < grid)
    near = near_y.clamp(0, grid - 1) * grid + near_x.clamp(0, grid - 1)
    for _ in range(rounds):
        distance = (features[:, None] - centres[near]).square().sum(-1).masked_fill(~valid, torch.inf)
        label = near.gather(1, distance.argmin(1, keepdim=True)).squeeze(1)
        count = torch.zeros(grid * grid, device=image.device, dtype=image.dtype).index_add_(
            0, label, torch.ones_like(features[:, 0])
        )
        total = torch.zeros_like(centres).index_add_(0, label, features)
        centres = torch.where(count[:, None] > 0, total / count.clamp(min=1)[:, None], centres)
    return label.view(h, w), centres[label, :c].T.view(c, h, w)


def segmented(place: Place) -> Made:
    n = place.size(64, 1024)
    coarse = F.interpolate(torch.rand(1, 3, n // 16, n // 16), size=(n, n), mode="bilinear")[0].to(place.device)
    return superpixels, (coarse + 0.02 * place.randn(3, n, n), place.size(6, 32), 4, 0.3)


def gabor_energy(image: Tensor, size: int, orientations: int, wavelengths: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Even and odd Gabor filters made on the spot; energy, the strongest orientation, texture statistics."""
    half = size // 2
    y, x = torch.meshgrid(
        torch.arange(-half, half + 1, device=image.device, dtype=image.dtype),
        torch.arange(-half, half + 1, device=image.device, dtype=image.dtype),
        indexing="ij",
    )
    theta = torch.arange(orientations, device=image.device, dtype=image.dtype) * math.pi / orientations
    kernels = []
    for wavelength in wavelengths:
        sigma = 0.56 * wavelength
        xr = x * torch.cos(theta)[:, None, None] + y * torch.sin(theta)[:, None, None]
        yr = -x * torch.sin(theta)[:, None, None] + y * torch.cos(theta)[:, None, None]
        envelope = torch.exp(-(xr**2 + 0.25 * yr**2) / (2 * sigma**2))
        even = envelope * torch.cos(2 * math.pi * xr / wavelength)
        even = even - even.mean(dim=(1, 2), keepdim=True)
        kernels += [even, envelope * torch.sin(2 * math.pi * xr / wavelength)]
    bank = torch.stack(kernels).view(len(wavelengths), 2, orientations, size, size)
    response = F.conv2d(F.pad(image, (half,) * 4, mode="replicate"), bank.flatten(0, 2)[:, None])
    response = response.view(image.size(0), len(wavelengths), 2, orientations, *image.shape[-2:])
    energy = torch.hypot(response[:, :, 0], response[:, :, 1])
    strongest = energy.sum(1).argmax(1)
    return torch.cat([energy.mean((-1, -2)), energy.std((-1, -2))], dim=-1).flatten(1), strongest


def textures(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(48, 384)
    return gabor_energy, (place.rand(b, 1, n, n), place.size(9, 15), place.size(4, 8), (4.0, 8.0))


def calm_diffusion(image: Tensor, rounds: int, kappa: float) -> Tensor:
    """Perona and Malik, 1990: fluxes to four neighbours, each stopped by its own edge."""
    for _ in range(rounds):
        padded = F.pad(image, (1, 1, 1, 1), mode="replicate")
        flux = torch.zeros_like(image)
        for dy, dx in ((0, 1), (2, 1), (1, 0), (1, 2)):
            h, w = image.shape[-2:]
            difference = padded[..., dy : dy + h, dx : dx + w] - image
            flux += torch.exp(-((difference / kappa) ** 2)) * difference
        image = image + 0.2 * flux
    return image


def calmed(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(64, 1024)
    return calm_diffusion, (place.rand(b, 1, n, n), place.size(4, 6), 0.15)


def wiener(blurred: Tensor, kernel: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """Deconvolution of a known blur in the frequency domain after tapering edges; noise from the Laplacian's median."""
    h, w = blurred.shape[-2:]
    k = kernel.size(-1)
    taper = torch.hann_window(2 * k, periodic=False, device=blurred.device, dtype=blurred.dtype)
    edge_y = torch.ones(h, device=blurred.device, dtype=blurred.dtype)
    edge_x = torch.ones(w, device=blurred.device, dtype=blurred.dtype)
    edge_y[:k], edge_y[-k:] = taper[:k], taper[k:]
    edge_x[:k], edge_x[-k:] = taper[:k], taper[k:]
    alpha = edge_y[:, None] * edge_x[None]
    soft = F.conv2d(F.pad(blurred.flatten(0, 1)[:, None], (k // 2,) * 4, mode="circular"), kernel[None, None])
    tapered = alpha * blurred + (1 - alpha) * soft.view_as(blurred)
    padded = torch.zeros(h, w, device=blurred.device, dtype=blurred.dtype)
    padded[:k, :k] = kernel
    transfer = torch.fft.rfft2(torch.roll(padded, (-(k // 2), -(k // 2)), dims=(0, 1)))
    spectrum = torch.fft.rfft2(tapered)
    restored = torch.fft.irfft2(spectrum * transfer.conj() / (transfer.abs() ** 2 + noise), s=(h, w))
    lap = blurred[..., 1:-1, 1:-1] * 4 - blurred[..., :-2, 1:-1] - blurred[..., 2:, 1:-1]
    lap = lap - blurred[..., 1:-1, :-2] - blurred[..., 1:-1, 2:]
    sigma = lap.abs().flatten(2).median(-1).values / (0.6745 * math.sqrt(20))
    return restored.clamp(0, 1), sigma


def deblurred(place: Place) -> Made:
    b, n, k = place.size(1, 6), place.size(64, 1024), place.size(7, 21)
    kernel = torch.eye(k, device=place.device) + 0.1
    return wiener, (place.rand(b, 3, n, n), kernel / kernel.sum(), 0.01)


CIRCLE = ((0, -3), (1, -3), (2, -2), (3, -1), (3, 0), (3, 1), (2, 2), (1, 3))
CIRCLE = CIRCLE + tuple((-x, -y) for x, y in CIRCLE)


def segment_corners(image: Tensor, threshold: float, arc: int, keep: int) -> tuple[Tensor, Tensor]:
    """FAST (Rosten and Drummond, 2006): an arc of the circle all brighter or all darker; suppressed; the best kept."""
    h, w = image.shape[-2:]
    padded = F.pad(image, (3, 3, 3, 3), mode="replicate")
    ring = torch.stack([padded[..., 3 + y : 3 + y + h, 3 + x : 3 + x + w] for x, y in CIRCLE], dim=-1)
    difference = ring - image[..., None]
    score = torch.zeros_like(image)
    for sign in (1, -1):
        over = sign * difference - threshold
        wrapped = torch.cat([over, over[..., : arc - 1]], dim=-1)
        weakest = wrapped.unfold(-1, arc, 1).amin(-1)
        score = torch.maximum(score, weakest.amax(-1).clamp(min=0))
    peak = (score == F.max_pool2d(score, 3, stride=1, padding=1)) & (score > 0)
    values, index = (score * peak).flatten(1).topk(keep, dim=1)
    return values, torch.stack([index // w, index % w], dim=-1)


def corners(place: Place) -> Made:
    b, n = place.size(1, 4), place.size(64, 768)
    return segment_corners, (place.rand(b, 1, n, n), 0.1, 9, place.size(32, 1000))


def guided(guide: Tensor, p: Tensor, radius: int, eps: float) -> Tensor:
    """He et al., 2010, with a guide in colour: box means by cumulative sums, 3 x 3 covariances inverted by hand."""

    def box(x: Tensor) -> Tensor:
        x = F.pad(x, (radius + 1, radius, radius + 1, radius))
        x = x.cumsum(-1)
        x = x[..., 2 * radius + 1 :] - x[..., : -2 * radius - 1]
        x = x.cumsum(-2)
        return x[..., 2 * radius + 1 :, :] - x[..., : -2 * radius - 1, :]

    n = box(torch.ones_like(p))
    mean_i, mean_p = box(guide) / n, box(p) / n
    cov = box(guide * p) / n - mean_i * mean_p
    pairs = {(i, j): box(guide[:, i : i + 1] * guide[:, j : j + 1]) / n for i in range(3) for j in range(i, 3)}
    rr, rg, rb, gg, gb, bb = (
        pairs[i, j] - mean_i[:, i : i + 1] * mean_i[:, j : j + 1] + (eps if i == j else 0) for i, j in pairs
    )
    inv = (
        gg * bb - gb * gb,
        gb * rb - rg * bb,
        rg * gb - gg * rb,
        rr * bb - rb * rb,
        rb * rg - rr * gb,
        rr * gg - rg * rg,
    )
    det = inv[0] * rr + inv[1] * rg + inv[2] * rb
    cr, cg, cb = cov.chunk(3, dim=1)
    ar = (inv[0] * cr + inv[1] * cg + inv[2] * cb) / det
    ag = (inv[1] * cr + inv[3] * cg + inv[4] * cb) / det
    ab = (inv[2] * cr + inv[4] * cg + inv[5] * cb) / det
    a = torch.cat([ar, ag, ab], dim=1)
    b = mean_p - (a * mean_i).sum(1, keepdim=True)
    return (box(a) / n * guide).sum(1, keepdim=True) + box(b) / n


def matting(place: Place) -> Made:
    b, n = place.size(1, 4), place.size(64, 768)
    return guided, (place.rand(b, 3, n, n), (place.rand(b, 1, n, n) < 0.5).float(), place.size(3, 12), 0.01)


def energy_normalised(mel: Tensor, s: float, alpha: float, delta: float, r: float) -> Tensor:
    """PCEN (Wang et al., 2017): a first-order smoother as a triangular matrix, gain and root."""
    index = torch.arange(mel.size(-1), device=mel.device, dtype=mel.dtype)
    lag = index[None] - index[:, None]
    kernel = s * (1 - s) ** lag.clamp(min=0) * (lag >= 0)
    kernel[0] = (1 - s) ** index
    smooth = mel @ kernel
    gain = torch.exp(-alpha * (math.log(1e-6) + torch.log1p(smooth / 1e-6)))
    return (mel * gain + delta) ** r - delta**r


def normalised_mel(place: Place) -> Made:
    b, bands, n = place.size(2, 64), place.size(24, 128), place.size(100, 1000)
    return energy_normalised, (place.rand(b, bands, n) ** 4 * 100, 0.025, 0.98, 2.0, 0.5)


def tempogram(signal: Tensor, window: Tensor, hop: int, span: int) -> tuple[Tensor, Tensor, Tensor]:
    """Onsets by spectral flux with a local maximum over bands, their autocorrelation in windows, a prior on tempo."""
    spectrum = torch.stft(signal, window.numel(), hop, window=window, return_complex=True).abs()
    power = 10 * torch.log10(spectrum.square().clamp(min=1e-10))
    power = torch.maximum(power, power.amax((1, 2), keepdim=True) - 80)
    reference = F.max_pool2d(power[:, None], (3, 1), stride=1, padding=(1, 0))[:, 0]
    onset = F.relu(power[:, :, 1:] - reference[:, :, :-1]).mean(1)
    onset = onset - onset.mean(1, keepdim=True)
    frames = F.pad(onset, (span // 2, span // 2)).unfold(-1, span, 1)
    frames = frames * torch.hann_window(span, device=signal.device, dtype=signal.dtype)
    spectrum = torch.fft.rfft(frames, n=2 * span)
    correlation = torch.fft.irfft(spectrum.abs() ** 2, n=2 * span)[..., :span]
    correlation = correlation / correlation.amax(-1, keepdim=True).clamp(min=1e-8)
    lags = torch.arange(1, span, device=signal.device, dtype=signal.dtype)
    bpm = 60 * 22_050 / hop / lags
    prior = -0.5 * (torch.log2(bpm) - math.log2(120)) ** 2
    average = correlation.mean(1)[:, 1:]
    best = (torch.log1p(1e6 * average.clamp(min=0)) + prior).argmax(-1)
    return correlation, bpm[best], onset


def rhythms(place: Place) -> Made:
    b, n, window, span = place.size(1, 8), place.size(16_000, 330_000), place.size(512, 2048), place.size(32, 384)
    click = (torch.arange(n, device=place.device) % 11_025 < 200).float()
    signal = place.randn(b, n) * (0.05 + click)
    return tempogram, (signal, torch.hann_window(window, device=place.device), 256 if n < 20_000 else 512, span)


def gated_loudness(signal: Tensor, weighting: Tensor) -> tuple[Tensor, Tensor]:
    """BS.1770: K-weighting by convolution, blocks of 400 ms, an absolute and then a relative gate; true peak."""
    channels, n = signal.shape[1:]
    size = n + weighting.numel()
    weighted = torch.fft.irfft(torch.fft.rfft(signal, n=size) * torch.fft.rfft(weighting, n=size), n=size)[..., :n]
    blocks = weighted.unfold(-1, 1600, 400).square().mean(-1)
    gains = signal.new_tensor([1.0, 1.0, 1.0, 1.41, 1.41])[:channels]
    power = (blocks * gains[:, None]).sum(1)
    loudness = -0.691 + 10 * torch.log10(power.clamp(min=1e-12))
    loud = loudness > -70
    gated = (power * loud).sum(-1) / loud.sum(-1).clamp(min=1)
    relative = -0.691 + 10 * torch.log10(gated.clamp(min=1e-12)) - 10
    both = loud & (loudness > relative[:, None])
    integrated = -0.691 + 10 * torch.log10(((power * both).sum(-1) / both.sum(-1).clamp(min=1)).clamp(min=1e-12))
    oversampled = F.interpolate(signal, scale_factor=4, mode="linear")
    return integrated, 20 * torch.log10(oversampled.abs().amax((1, 2)).clamp(min=1e-9))


def programme_loudness(place: Place) -> Made:
    b, n, taps = place.size(2, 12), place.size(8000, 480_000), place.size(64, 512)
    decay = torch.exp(-torch.arange(taps, device=place.device) / 20)
    weighting = decay * place.randn(taps)
    level = (place.rand(b, 1, n // 1000) ** 4).repeat_interleave(1000, dim=-1)
    return gated_loudness, (level * place.randn(b, 2, n), weighting)


def operators(pitch: Tensor, ratio: Tensor, index: Tensor, attack: Tensor, decay: Tensor, n: int) -> Tensor:
    """Frequency modulation as in a DX7: four operators in a chain with envelopes, then a chorus of delays."""
    t = torch.arange(n, device=pitch.device, dtype=pitch.dtype) / 16_000
    modulation = torch.zeros(pitch.size(0), n, device=pitch.device, dtype=pitch.dtype)
    for i in range(ratio.size(1)):
        rise = (t / attack[:, i, None]).clamp(max=1)
        envelope = rise * torch.exp(-t / decay[:, i, None])
        phase = 2 * math.pi * pitch[:, None] * ratio[:, i, None] * t
        modulation = envelope * torch.sin(phase + index[:, i, None] * modulation)
    out = modulation
    position = torch.arange(n, device=pitch.device, dtype=pitch.dtype)
    for rate, phase in ((0.8, 0.0), (1.1, 2.1)):
        delay = 160 + 60 * torch.sin(2 * math.pi * rate * t + phase)
        at = (position - delay).clamp(min=0)
        low = at.floor().long()
        part = at - low
        high = (low + 1).clamp(max=n - 1)
        out = out + 0.4 * ((1 - part) * modulation[:, low] + part * modulation[:, high])
    return torch.tanh(out)


def electric_pianos(place: Place) -> Made:
    voices, n = place.size(4, 128), place.size(4000, 64_000)
    ratio = torch.tensor([1.0, 2.0, 3.0, 1.0], device=place.device).expand(voices, 4)
    return operators, (
        100 + 400 * place.rand(voices),
        ratio,
        0.5 + 2 * place.rand(voices, 4),
        0.005 + 0.02 * place.rand(voices, 4),
        0.2 + place.rand(voices, 4),
        n,
    )


def spectral_contrast(signal: Tensor, window: Tensor, hop: int, bands: int) -> Tensor:
    """Jiang et al., 2002: peaks less valleys by the sorted magnitudes of octave bands; flatness, roll-off, centroid."""
    magnitude = torch.stft(signal, window.numel(), hop, window=window, return_complex=True).abs() + 1e-6
    n = magnitude.size(1)
    edges = [0] + [max(2, n >> (bands - i - 1)) for i in range(bands)]
    rows = []
    for low, high in itertools.pairwise(edges):
        part = magnitude[:, low:high].sort(dim=1).values
        k = max(1, round(0.2 * (high - low)))
        rows.append(torch.log10(part[:, -k:].mean(1)) - torch.log10(part[:, :k].mean(1)))
    frequency = torch.linspace(0, 8000, n, device=signal.device, dtype=signal.dtype)[:, None]
    total = magnitude.sum(1)
    centroid = (magnitude * frequency).sum(1) / total
    spread = torch.sqrt((magnitude * (frequency - centroid[:, None]) ** 2).sum(1) / total)
    below = magnitude.cumsum(1) < 0.85 * total[:, None]
    rolloff = torch.where(below, 0.0, frequency.expand_as(magnitude)).masked_fill(below, 8001.0).amin(1)
    flatness = torch.exp(magnitude.square().log().mean(1)) / magnitude.square().mean(1)
    return torch.stack([*rows, centroid / 8000, spread / 8000, rolloff / 8000, flatness], dim=1)


def timbres(place: Place) -> Made:
    b, n, window = place.size(1, 16), place.size(8000, 240_000), place.size(256, 1024)
    return spectral_contrast, (place.randn(b, n), torch.hann_window(window, device=place.device), window // 4, 6)


ROWS: tuple[Row, ...] = (
    Row("program/kuwahara_quadrants", painted),
    Row("program/superpixel_rounds", segmented),
    Row("program/gabor_energies", textures),
    Row("program/edge_stopped_diffusion", calmed),
    Row("program/wiener_deconvolution", deblurred),
    Row("program/segment_test_corners", corners),
    Row("program/colour_guided_matting", matting),
    Row("program/channel_energy_normalisation", normalised_mel),
    Row("program/onset_tempogram", rhythms),
    Row("program/gated_loudness", programme_loudness),
    Row("program/modulated_operators", electric_pianos),
    Row("program/octave_contrast", timbres),
)
