"""Signals: transforms, filters, banks, convolutions along time."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def low_pass(x: Tensor, cutoff: float = 0.1, order: int = 4) -> Tensor:
    """Butterworth's magnitude on the spectrum."""
    spectrum = torch.fft.rfft(x)
    frequency = torch.fft.rfftfreq(x.shape[-1], device=x.device, dtype=x.dtype)
    gain = 1 / torch.sqrt(1 + (frequency / cutoff) ** (2 * order))
    return torch.fft.irfft(spectrum * gain, n=x.shape[-1])


def butterworth(place: Place) -> Made:
    return low_pass, (place.randn(place.size(128, 1024), place.size(4096, 16_384)),)


class LogMel(nn.Module):
    """Whisper's front end: stft, a bank of mel filters, clamped decibels; normalised per channel."""

    window: Tensor
    filters: Tensor

    def __init__(self, n_fft: int = 400, mels: int = 80, rate: int = 16_000) -> None:
        super().__init__()
        self.n_fft = n_fft
        self.register_buffer("window", torch.hann_window(n_fft))
        top = 2595 * math.log10(1 + rate / 2 / 700)
        edges = 700 * (10 ** (torch.linspace(0, top, mels + 2) / 2595) - 1)
        bins = torch.linspace(0, rate / 2, n_fft // 2 + 1)
        up = (bins[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        down = (edges[2:, None] - bins[None]) / (edges[2:] - edges[1:-1])[:, None]
        self.register_buffer("filters", torch.minimum(up, down).clamp(min=0))

    def forward(self, audio: Tensor) -> Tensor:
        emphasised = torch.cat([audio[:, :1], audio[:, 1:] - 0.97 * audio[:, :-1]], dim=1)
        stft = torch.stft(emphasised, self.n_fft, self.n_fft * 2 // 5, window=self.window, return_complex=True)
        magnitudes = stft[..., :-1].abs() ** 2
        log_spec = torch.clamp(self.filters @ magnitudes, min=1e-10).log10()
        log_spec = torch.maximum(log_spec, log_spec.amax((1, 2), keepdim=True) - 8.0)
        log_spec = (log_spec + 4.0) / 4.0
        return (log_spec - log_spec.mean(-1, keepdim=True)) / (log_spec.std(-1, keepdim=True) + 1e-5)


def log_mel(place: Place) -> Made:
    return LogMel().to(place.device), (place.randn(place.size(4, 32), place.size(32_000, 480_000)),)


def envelope(x: Tensor) -> tuple[Tensor, Tensor]:
    """Hilbert's analytic signal: amplitude, and the frequency from products of neighbours."""
    n = x.shape[-1]
    spectrum = torch.fft.fft(x)
    h = torch.zeros(n, dtype=x.dtype, device=x.device)
    h[0] = h[n // 2] = 1
    h[1 : n // 2] = 2
    analytic = torch.fft.ifft(spectrum * h)
    re, im = analytic.real, analytic.imag
    cross = re[..., :-1] * im[..., 1:] - im[..., :-1] * re[..., 1:]
    return torch.sqrt(re * re + im * im), cross


def hilbert(place: Place) -> Made:
    return envelope, (place.randn(place.size(48, 512), place.size(4096, 16_384)),)


class WaveNetBlock(nn.Module):
    """Causal dilated convolutions with gates, residuals and skips; cross entropy over mu-law codes."""

    def __init__(self, c: int, layers: int = 4) -> None:
        super().__init__()
        self.front = nn.Conv1d(1, c, 1)
        self.dilated = nn.ModuleList([nn.Conv1d(c, 2 * c, 2, dilation=2**i) for i in range(layers)])
        self.mixing = nn.ModuleList([nn.Conv1d(c, 2 * c, 1) for _ in range(layers)])
        self.end = nn.Conv1d(c, 256, 1)

    def forward(self, wave: Tensor, codes: Tensor) -> Tensor:
        x = self.front(wave.unsqueeze(1))
        skips = torch.zeros_like(x)
        for i, (dilated, mixing) in enumerate(zip(self.dilated, self.mixing, strict=True)):
            a, b = dilated(F.pad(x, (2**i, 0))).chunk(2, dim=1)
            residual, skip = mixing(torch.tanh(a) * torch.sigmoid(b)).chunk(2, dim=1)
            x, skips = (x + residual) * 0.7071, skips + skip
        return F.cross_entropy(self.end(F.relu(skips)), codes)


def wavenet(place: Place) -> Made:
    n, t = place.size(2, 16), place.size(400, 8000)
    return WaveNetBlock(place.size(16, 64)).to(place.device), (place.randn(n, t), place.randint(256, n, t))


def spectral_subtraction(x: Tensor, frame: int = 256, hop: int = 64) -> Tensor:
    """Frames by unfold, the noise floor by a quantile, a gain with floor, overlap-add by fold."""
    n, length = x.shape
    t = torch.arange(frame, dtype=x.dtype, device=x.device)
    window = 0.5 - 0.5 * torch.cos(2 * torch.pi * t / frame)
    frames = x.unfold(-1, frame, hop) * window
    spectrum = torch.fft.rfft(frames)
    power = spectrum.real**2 + spectrum.imag**2
    noise = power.sort(dim=1).values[:, : power.shape[1] // 5].mean(1, keepdim=True)
    gain = torch.sqrt((1 - 2 * noise / power.clamp(min=1e-12)).clamp(min=0.01))
    clean = torch.fft.irfft(spectrum * gain, n=frame) * window
    out = F.fold(clean.transpose(1, 2), (1, length), (1, frame), stride=(1, hop)).view(n, length)
    weight = F.fold((window**2).expand_as(clean).transpose(1, 2), (1, length), (1, frame), stride=(1, hop))
    return out / weight.view(n, length).clamp(min=1e-3)


def overlap_add(place: Place) -> Made:
    return spectral_subtraction, (place.randn(place.size(4, 128), 64 * place.size(128, 2048)),)


class BiquadCascade(nn.Module):
    """Learnt second-order sections, direct form II transposed, sample by sample over a batch."""

    def __init__(self, sections: int) -> None:
        super().__init__()
        self.b = nn.Parameter(torch.tensor([0.2, 0.4, 0.2]).repeat(sections, 1))
        self.a = nn.Parameter(torch.tensor([-0.6, 0.3]).repeat(sections, 1))

    def forward(self, x: Tensor) -> Tensor:
        for (b0, b1, b2), (a1, a2) in zip(self.b.unbind(0), self.a.unbind(0), strict=True):
            z1 = z2 = torch.zeros_like(x[0])
            samples = []
            for sample in x.unbind(0):
                y = b0 * sample + z1
                z1, z2 = b1 * sample - a1 * y + z2, b2 * sample - a2 * y
                samples.append(y)
            x = torch.stack(samples)
        return x.square().mean(0)


def biquads(place: Place) -> Made:
    return BiquadCascade(2).to(place.device), (place.randn(24, place.size(2000, 1_000_000)),)


def discrete_cosine(x: Tensor, table: Tensor, side: int = 8) -> tuple[Tensor, Tensor]:
    """JPEG's blocks: cosine transform, soft quantisation (a differentiable rounding), inverse; rate beside error."""
    n, h, w = x.shape
    k = torch.arange(side, dtype=x.dtype, device=x.device)
    basis = torch.cos((2 * k[None, :] + 1) * k[:, None] * torch.pi / (2 * side)) * (2 / side) ** 0.5
    basis[0] *= 0.5**0.5
    blocks = x.view(n, h // side, side, w // side, side).transpose(2, 3) * 255 - 128
    coefficients = basis @ blocks @ basis.T / table
    soft = coefficients - torch.sin(2 * torch.pi * coefficients) / (2 * torch.pi)
    back = basis.T @ (soft * table) @ basis
    error = (back - blocks).square().mean()
    return error / 255, torch.log2(1 + soft.abs()).mean()


def jpeg(place: Place) -> Made:
    n, side = place.size(4, 64), place.size(128, 512)
    table = (16 + 8 * torch.arange(64).view(8, 8) / 8).to(place.device)
    return discrete_cosine, (place.rand(n, side, side), table.requires_grad_())


ROWS: tuple[Row, ...] = (
    Row("program/fft_low_pass", butterworth),
    Row("program/log_mel_spectrogram", log_mel),
    Row("program/hilbert_envelope", hilbert),
    Row("program/wavenet", wavenet, "training"),
    Row("program/spectral_subtraction", overlap_add),
    Row("program/biquad_cascade", biquads, "training"),
    Row("program/jpeg_rate_distortion", jpeg, "training"),
)
