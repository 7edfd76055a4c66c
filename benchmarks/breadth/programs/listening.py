"""Signals and how they are heard: filter banks, cepstra, prediction, beams, packets, dynamics, alignments."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class Gammatone(nn.Module):
    """Patterson's ear: gammatone filters as long convolutions, hair cells, smoothed envelopes, a cochleagram."""

    def __init__(self, bands: int, taps: int = 256, rate: float = 16_000.0) -> None:
        super().__init__()
        erb = torch.linspace(math.log(80.0 + 228.8), math.log(6000.0 + 228.8), bands).exp() - 228.8
        t = torch.arange(taps) / rate
        width = 1.019 * 24.7 * (4.37 * erb / 1000 + 1)
        kernel = t**3 * torch.exp(-2 * math.pi * width[:, None] * t) * torch.cos(2 * math.pi * erb[:, None] * t)
        self.register_buffer("kernel", (kernel / kernel.abs().sum(1, keepdim=True)).flip(1)[:, None])
        self.compression = nn.Parameter(torch.full((bands, 1), 0.3))

    def forward(self, wave: Tensor) -> Tensor:
        kernel = self.get_buffer("kernel")
        heard = F.relu(F.conv1d(F.pad(wave[:, None], (kernel.size(-1) - 1, 0)), kernel))
        envelope = F.avg_pool1d(heard, 160, 80)
        loud = (envelope + 1e-3) ** self.compression
        masked = loud - 0.5 * F.avg_pool1d(loud.mT, 5, 1, 2).mT
        return F.relu(masked)


def cochleagram(place: Place) -> Made:
    b, length, bands = place.size(1, 8), place.size(8000, 64_000), place.size(24, 64)
    return Gammatone(bands).to(place.device), (place.randn(b, length).requires_grad_(),)


class Mfcc(nn.Module):
    """Kaldi's features: pre-emphasis, Povey's window, mel energies, cosines, liftering, two deltas, normalisation."""

    def __init__(self, mels: int = 40, kept: int = 13) -> None:
        super().__init__()
        window = torch.hann_window(400, periodic=False) ** 0.85
        self.register_buffer("window", window)
        edge = 700 * (torch.linspace(math.log1p(20 / 700), math.log1p(7800 / 700), mels + 2).exp() - 1)
        bins = torch.arange(257) * 16_000 / 512
        up = (bins[:, None] - edge[:-2]) / (edge[1:-1] - edge[:-2])
        down = (edge[2:] - bins[:, None]) / (edge[2:] - edge[1:-1])
        self.register_buffer("mel", torch.minimum(up, down).clamp(min=0))
        i = torch.arange(mels) + 0.5
        cosines = torch.cos(math.pi / mels * i[:, None] * torch.arange(kept)) * (2 / mels) ** 0.5
        lifter = 1 + 11 * torch.sin(math.pi * torch.arange(kept) / 22)
        self.register_buffer("cosines", cosines * lifter)

    def forward(self, wave: Tensor) -> Tensor:
        frames = wave.unfold(-1, 400, 160)
        frames = frames - frames.mean(-1, keepdim=True)
        energy = frames.square().sum(-1).clamp(min=1e-6).log()
        emphasised = torch.cat([0.03 * frames[..., :1], frames[..., 1:] - 0.97 * frames[..., :-1]], -1)
        power = torch.fft.rfft(emphasised * self.get_buffer("window"), n=512).abs().square()
        mel = (power @ self.get_buffer("mel")).clamp(min=1e-6).log()
        cepstra = mel @ self.get_buffer("cosines")
        cepstra[..., 0] = energy

        def delta(c: Tensor) -> Tensor:
            p = F.pad(c.mT, (2, 2), mode="replicate").mT
            return (p[:, 3:-1] - p[:, 1:-3] + 2 * (p[:, 4:] - p[:, :-4])) / 10

        first = delta(cepstra)
        stacked = torch.cat([cepstra, first, delta(first)], -1)
        return (stacked - stacked.mean(1, keepdim=True)) / (stacked.std(1, keepdim=True) + 1e-3)


def cepstra(place: Place) -> Made:
    b, length = place.size(2, 64), place.size(32_000, 160_000)
    return Mfcc().to(place.device), (place.randn(b, length),)


def levinson(frames: Tensor, window: Tensor, order: int = 16) -> tuple[Tensor, Tensor, Tensor]:
    """Linear prediction: autocorrelations by Fourier, Levinson's recursion, reflections, excitation, formants."""
    windowed = frames * window
    n = frames.size(-1)
    r = torch.fft.irfft(torch.fft.rfft(windowed, n=2 * n).abs().square())[..., : order + 1]
    r = r * torch.exp(-0.5 * (0.02 * torch.arange(order + 1, device=frames.device, dtype=frames.dtype)) ** 2)
    error = r[..., 0] + 1e-3
    a = [torch.ones_like(error)]
    reflections = []
    for m in range(1, order + 1):
        k = -sum(a[i] * r[..., m - i] for i in range(m)) / error
        padded = [*a, torch.zeros_like(k)]
        a = [padded[i] + k * padded[m - i] for i in range(m + 1)]
        error = error * (1 - k * k)
        reflections.append(k)
    filters = torch.stack(a, -1)
    excitation = torch.einsum("bfnk,bfk->bfn", frames.unfold(-1, order + 1, 1), filters.flip(-1))
    response = torch.fft.rfft(filters, n=256).abs().square()
    envelope = (error[..., None] / response.clamp(min=1e-6)).log()
    return torch.stack(reflections, -1), excitation, envelope


def prediction(place: Place) -> Made:
    b, length = place.size(1, 64), place.size(24_000, 80_000)
    wave = F.avg_pool1d(place.randn(b, 1, length + 4), 5, 1)[:, 0]
    return levinson, (wave.unfold(-1, 400, 160).contiguous(), torch.hamming_window(400).to(place.device))


def mask_beamformer(spectrum: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Souden's MVDR filter of a neural mask: covariances of speech and noise, a solve per frequency, post-filtered."""
    y = torch.view_as_complex(spectrum)
    channels = y.size(1)

    def covariance(m: Tensor) -> Tensor:
        share = m / m.sum(-1, keepdim=True)
        return torch.einsum("bcft,bdft,bft->bfcd", y, y.conj(), share.to(y.dtype))

    eye = torch.eye(channels, dtype=y.dtype, device=y.device)
    noise = covariance(1 - mask)
    load = 1e-2 * noise.diagonal(dim1=-2, dim2=-1).real.mean(-1)
    ratio = torch.linalg.solve(noise + load[..., None, None] * eye, covariance(mask))
    trace = ratio.diagonal(dim1=-2, dim2=-1).sum(-1)
    w = ratio[..., 0] / trace[..., None]
    beam = torch.einsum("bfc,bcft->bft", w.conj(), y)
    beam = beam * torch.maximum(mask, torch.full_like(mask, 0.1))
    wave = torch.fft.irfft(beam.transpose(1, 2), dim=-1)
    return (beam.abs() + 1e-2).log().mean(dim=(1, 2)), wave


def beamformer(place: Place) -> Made:
    b, c, f, t = place.size(1, 8), place.size(4, 6), place.size(65, 257), place.size(100, 400)
    logits = place.randn(b, f, t)
    return mask_beamformer, (place.randn(b, c, f, t, 2), torch.sigmoid(logits).requires_grad_())


def wavelet_packets(wave: Tensor, levels: int = 4) -> tuple[Tensor, Tensor]:
    """Coifman and Wickerhauser, 1992: the full tree with Daubechies' eight taps, and the best basis by entropies."""
    low = wave.new_tensor(
        [
            0.2303778133,
            0.7148465706,
            0.6308807679,
            -0.0279837694,
            -0.1870348117,
            0.0308413818,
            0.0328830117,
            -0.0105974018,
        ]
    )
    sign = wave.new_tensor([1.0, -1.0] * 4)
    bank = torch.stack([low, low.flip(0) * sign])[:, None]
    nodes = wave[:, None]
    costs = []
    energy = wave.square().sum(-1, keepdim=True)
    for _ in range(levels):
        b, k, n = nodes.shape
        padded = F.pad(nodes.reshape(b * k, 1, n), (6, 0), mode="circular")
        nodes = F.conv1d(padded, bank, stride=2).reshape(b, 2 * k, -1)
        p = (nodes.square() / energy[..., None]).clamp(min=1e-9)
        costs.append(-(p * p.log()).sum(-1))
    best = costs[-1]
    for cost in costs[-2::-1]:
        best = torch.minimum(cost, best.view(best.size(0), -1, 2).sum(-1))
    return nodes, best


def packets(place: Place) -> Made:
    b, n = place.size(8, 256), place.size(16_384, 65_536)
    return wavelet_packets, (place.randn(b, n),)


def ctc_lattice(log_probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Graves et al., 2006, by hand: forwards over labels with blanks between, skips from unlike ones."""
    b, frames, _ = log_probs.shape
    extended = torch.zeros(b, 2 * labels.size(1) + 1, dtype=torch.int64, device=labels.device)
    extended[:, 1::2] = labels
    emit = log_probs.log_softmax(-1).gather(2, extended[:, None].expand(-1, frames, -1))
    skip = F.pad((extended[:, 2:] != extended[:, :-2]) & (extended[:, 2:] != 0), (2, 0), value=False)
    floor = -1e4
    alpha = torch.full_like(emit[:, 0], floor)
    alpha[:, :2] = emit[:, 0, :2]
    for t in range(1, frames):
        one = F.pad(alpha[:, :-1], (1, 0), value=floor)
        two = F.pad(alpha[:, :-2], (2, 0), value=floor).masked_fill(~skip, floor)
        alpha = torch.logsumexp(torch.stack([alpha, one, two]), 0) + emit[:, t]
    loss = -torch.logsumexp(alpha[:, -2:], -1) / labels.size(1)
    return loss, alpha.detach().amax(-1)


def alignment(place: Place) -> Made:
    b, frames, classes, length = place.size(8, 256), place.size(30, 50), place.size(40, 1000), place.size(10, 20)
    return ctc_lattice, (place.randn(b, frames, classes).requires_grad_(), 1 + place.randint(classes - 1, b, length))


def compressor(wave: Tensor, threshold: Tensor, ratio: Tensor) -> tuple[Tensor, Tensor]:
    """Giannoulis et al., 2012: soft knees in decibels, attack and release as maxima over blocks, make-up gain."""
    blocks = wave.unfold(-1, 64, 64)
    level = 10 * torch.log10(blocks.square().mean(-1) + 1e-5)
    knee = 6.0
    over = level - threshold[:, None]
    bent = torch.where(over < knee / 2, (over + knee / 2) ** 2 / (2 * knee), over)
    bent = torch.where(over < -knee / 2, 0.0, bent)
    cut = (1 - 1 / ratio[:, None]) * bent
    lags = torch.arange(40, device=wave.device, dtype=wave.dtype)
    held = (F.pad(cut, (39, 0)).unfold(-1, 40, 1) * torch.exp(-0.1 * lags.flip(0))).amax(-1)
    smooth = F.avg_pool1d(F.pad(held[:, None], (4, 4), mode="replicate"), 9, 1)
    gain = F.interpolate(smooth, scale_factor=64, mode="linear", align_corners=False)[:, 0]
    out = wave[:, : gain.size(1)] * 10 ** (-gain / 20)
    out = torch.tanh(out * 10 ** (cut.mean(1, keepdim=True) / 40))
    return out, gain


def dynamics(place: Place) -> Made:
    b, n = place.size(4, 64), place.size(32_000, 480_000)
    t = torch.arange(n, device=place.device) / 16_000
    loud = 0.6 + 0.5 * torch.sin(3 * t)
    return compressor, (
        loud * place.randn(b, n),
        (-12 - 6 * place.rand(b)).requires_grad_(),
        (2 + 4 * place.rand(b)).requires_grad_(),
    )


def music_directions(snapshots: Tensor, sources: int = 3, angles: int = 361) -> tuple[Tensor, Tensor]:
    """Schmidt, 1986: the noise subspace of symmetrised covariances, a scan of directions; Bartlett's too."""
    x = torch.view_as_complex(snapshots)
    sensors = x.size(1)
    covariance = x @ x.mH / x.size(-1)
    covariance = 0.5 * (covariance + covariance.flip(1, 2).conj())
    vectors = torch.linalg.eigh(covariance)[1]
    noise = vectors[:, :, : sensors - sources]
    angle = torch.linspace(-math.pi / 2, math.pi / 2, angles, device=snapshots.device, dtype=snapshots.dtype)
    phase = math.pi * torch.arange(sensors, device=snapshots.device, dtype=snapshots.dtype)[:, None] * torch.sin(angle)
    steer = torch.polar(torch.ones_like(phase), phase)
    projected = (noise.mH @ steer).abs().square().sum(1)
    bartlett = torch.einsum("sa,bst,ta->ba", steer.conj(), covariance, steer).real / sensors**2
    return (sensors / (projected + 1e-2)).log(), bartlett


def directions(place: Place) -> Made:
    b, sensors, length = place.size(24, 256), 12, place.size(256, 1024)
    phase = math.pi * torch.arange(sensors)[:, None] * torch.sin(torch.tensor([-0.6, 0.1, 0.8]))
    mixing = torch.view_as_real(torch.polar(torch.ones_like(phase), phase)).to(place.device)
    signal = place.randn(b, 3, length, 2)
    real = torch.einsum("sk,bkt->bst", mixing[..., 0], signal[..., 0]) - torch.einsum(
        "sk,bkt->bst", mixing[..., 1], signal[..., 1]
    )
    imaginary = torch.einsum("sk,bkt->bst", mixing[..., 0], signal[..., 1]) + torch.einsum(
        "sk,bkt->bst", mixing[..., 1], signal[..., 0]
    )
    return music_directions, (torch.stack([real, imaginary], -1) + 0.3 * place.randn(b, sensors, length, 2),)


ROWS: tuple[Row, ...] = (
    Row("program/gammatone_cochleagram", cochleagram, "training"),
    Row("program/kaldi_mfcc", cepstra),
    Row("program/levinson_formants", prediction),
    Row("program/mask_mvdr_beamformer", beamformer, "training"),
    Row("program/wavelet_packet_best_basis", packets),
    Row("program/ctc_by_hand", alignment, "training"),
    Row("program/soft_knee_compressor", dynamics, "training"),
    Row("program/music_directions", directions),
)
