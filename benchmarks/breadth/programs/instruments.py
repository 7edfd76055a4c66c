"""Music and speech: tables of waves, constant-Q bins, long rooms, a vocoder of phases, texts laid along sounds."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class Wavetables(nn.Module):
    """Shan and others, 2022: learnt periods read at a moving phase, mixed by attention over time."""

    def __init__(self, tables: int, size: int) -> None:
        super().__init__()
        self.tables = nn.Parameter(torch.randn(tables, size) / 4)

    def forward(self, pitch: Tensor, mix: Tensor, loudness: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        samples = target.size(1)
        hertz = F.interpolate(pitch[:, None], samples, mode="linear")[:, 0]
        size = self.tables.size(1)
        phase = torch.cumsum(hertz / 16_000, 1) % 1.0 * size
        low = phase.floor().long() % size
        share = (phase - phase.floor())[..., None]
        waves = torch.tanh(self.tables).t()
        sound = waves[low] * (1 - share) + waves[(low + 1) % size] * share
        weights = F.interpolate(mix.softmax(1), samples, mode="linear").transpose(1, 2)
        gain = F.interpolate(loudness[:, None], samples, mode="linear")[:, 0]
        y = (sound * weights).sum(-1) * gain
        window = torch.hann_window(256, device=y.device)
        own, other = (torch.stft(s, 256, 64, window=window, return_complex=True).abs() for s in (y, target))
        return (own - other).abs().mean() + (torch.log(own + 1e-4) - torch.log(other + 1e-4)).abs().mean(), y


def wavetables(place: Place) -> Made:
    b, frames, n = place.size(2, 16), place.size(20, 200), place.size(2000, 32_000)
    pitch = 80 + 400 * place.rand(b, frames)
    mix, loudness = place.randn(b, 10, frames).requires_grad_(), place.rand(b, frames)
    return Wavetables(10, 512).to(place.device), (pitch, mix, loudness, place.randn(b, n))


def constant_q_chroma(x: Tensor, real: Tensor, imaginary: Tensor) -> tuple[Tensor, Tensor]:
    """Brown's transform as one convolution, folded to twelve pitch classes, tuned, smoothed; keys by correlation."""
    hop = 256
    spectrum = torch.complex(
        F.conv1d(x[:, None], real, stride=hop, padding=real.size(-1) // 2),
        F.conv1d(x[:, None], imaginary, stride=hop, padding=real.size(-1) // 2),
    )
    power = spectrum.abs().square()
    decibels = 10 * torch.log10(power.clamp(min=1e-10))
    decibels = torch.maximum(decibels, decibels.amax(dim=(1, 2), keepdim=True) - 80)
    chroma = power.view(len(x), -1, 12, 3, power.size(-1)).sum(dim=(1, 3))
    chroma = chroma / chroma.norm(dim=1, keepdim=True).clamp(min=1e-8)
    smooth = F.avg_pool1d(chroma, 9, 1, 4, count_include_pad=False)
    profile = x.new_tensor([6.35, 2.23, 3.48, 2.33, 4.38, 4.09, 2.52, 5.19, 2.39, 3.66, 2.29, 2.88])
    turns = torch.stack([profile.roll(k) for k in range(12)])
    turns = (turns - turns.mean(1, keepdim=True)) / turns.std(1, keepdim=True)
    return torch.einsum("kp,bpt->bkt", turns, smooth - smooth.mean(1, keepdim=True)), decibels


def chroma(place: Place) -> Made:
    octaves, length = place.size(2, 4), place.size(1025, 4097)
    bins = 36 * octaves
    t = (torch.arange(length) - length // 2) / 22_050
    hertz = 220.0 * 2 ** (torch.arange(bins) / 36)
    window = torch.exp(-0.5 * (t * hertz[:, None] / 8) ** 2) / length
    angle = 2 * math.pi * hertz[:, None] * t
    kernels = ((window * angle.cos())[:, None].to(place.device), (window * angle.sin())[:, None].to(place.device))
    return constant_q_chroma, (place.randn(place.size(1, 8), place.size(6000, 120_000)), *kernels)


def partitioned_convolution(x: Tensor, impulse: Tensor) -> Tensor:
    """A long room in a plug-in: blocks with spectra of the last ones in a ring, each times its part of the answer."""
    block = 512
    parts = F.pad(impulse, (0, -impulse.size(1) % block)).view(len(impulse), -1, block)
    filters = torch.fft.rfft(parts, 2 * block)
    count = filters.size(1)
    ring = torch.zeros_like(filters)
    before = torch.zeros_like(x[:, :block])
    out = []
    for i, now in enumerate(x.split(block, dim=1)):
        ring[:, i % count] = torch.fft.rfft(torch.cat([before, now], 1))
        order = torch.arange(i, i - count, -1, device=x.device) % count
        spectrum = (ring[:, order] * filters).sum(1)
        out.append(torch.fft.irfft(spectrum)[:, block:])
        before = now
    wet = torch.cat(out, 1)
    return torch.tanh(0.7 * x + 0.3 * wet)


def rooms(place: Place) -> Made:
    b, blocks, n = place.size(2, 64), place.size(6, 24), place.size(3000, 48_000)
    decay = torch.exp(-6 * torch.arange(n, device=place.device) / n)
    return partitioned_convolution, (place.randn(b, 512 * blocks), place.randn(b, n) * decay / 30)


class InverseTransformVocoder(nn.Module):
    """Siuzdak, 2024 (Vocos): ConvNeXt blocks at the rate of frames, then sizes and phases to an inverse STFT."""

    def __init__(self, mels: int, width: int, size: int, layers: int) -> None:
        super().__init__()
        self.size = size
        self.enter = nn.Conv1d(mels, width, 7, padding=3)
        self.deep = nn.ModuleList([nn.Conv1d(width, width, 7, padding=3, groups=width) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(width, eps=1e-6) for _ in range(layers)])
        self.up = nn.ModuleList([nn.Linear(width, 3 * width) for _ in range(layers)])
        self.down = nn.ModuleList([nn.Linear(3 * width, width) for _ in range(layers)])
        self.scales = nn.Parameter(torch.full((layers, width), 1 / layers))
        self.head = nn.Linear(width, size + 2)
        self.register_buffer("window", torch.hann_window(size))

    def forward(self, mel: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        x = self.enter(mel)
        for deep, norm, up, down, scale in zip(self.deep, self.norms, self.up, self.down, self.scales, strict=True):
            y = down(F.gelu(up(norm(deep(x).transpose(1, 2)))))
            x = x + (scale * y).transpose(1, 2)
        magnitude, phase = self.head(x.transpose(1, 2)).transpose(1, 2).chunk(2, dim=1)
        magnitude = torch.exp(magnitude).clamp(max=1e2)
        spectrum = magnitude * (torch.cos(phase) + 1j * torch.sin(phase))
        sound = torch.istft(spectrum, self.size, self.size // 4, window=self.window)
        return F.l1_loss(sound, target[:, : sound.size(1)]), sound


def vocoder(place: Place) -> Made:
    b, frames, width, size = place.size(2, 8), place.size(20, 250), place.size(32, 384), place.size(64, 1024)
    model = InverseTransformVocoder(place.size(20, 80), width, size, place.size(2, 6)).to(place.device)
    return model, (place.randn(b, place.size(20, 80), frames), place.randn(b, frames * size // 4))


def monotonic_alignment(
    mean: Tensor, log_scale: Tensor, z: Tensor, text: Tensor, frames: Tensor
) -> tuple[Tensor, Tensor]:
    """Kim and others, 2020 (Glow-TTS): the likeliest way through letters, one frame after another, and back again."""
    precision = torch.exp(-2 * log_scale)
    constant = (-0.5 * math.log(2 * math.pi) - log_scale - 0.5 * mean.square() * precision).sum(1)[..., None]
    value = constant + precision.transpose(1, 2) @ (-0.5 * z.square()) + (mean * precision).transpose(1, 2) @ z
    b, letters, steps = value.shape
    index = torch.arange(letters, device=z.device)
    best = torch.where(index == 0, value[:, :, 0], -1e9)
    stays = []
    for t in range(1, steps):
        advanced = F.pad(best, (1, 0), value=-1e9)[:, :-1]
        stays.append(best >= advanced)
        best = torch.maximum(best, advanced) + value[:, :, t]
    at = text - 1
    path = torch.zeros_like(value)
    for t in range(steps - 1, -1, -1):
        inside = t < frames
        path[torch.arange(b, device=z.device), at, t] = inside.to(path.dtype)
        if t:
            stay = stays[t - 1].gather(1, at[:, None])[:, 0]
            at = torch.where(inside & ~stay, (at - 1).clamp(min=0), at)
    return path.sum(2), mean @ path


def alignment(place: Place) -> Made:
    b, width, letters, steps = place.size(4, 64), place.size(8, 80), place.size(12, 40), place.size(30, 80)
    text = letters - place.randint(letters // 3, b)
    frames = steps - place.randint(steps // 8, b)
    mean, scale = place.randn(b, width, letters), 0.1 * place.randn(b, width, letters)
    z = mean[:, :, torch.arange(steps) * letters // steps] + 0.7 * place.randn(b, width, steps)
    return monotonic_alignment, (mean, scale, z, text, frames)


ROWS: tuple[Row, ...] = (
    Row("program/learnt_wavetables", wavetables, "training"),
    Row("program/constant_q_chroma", chroma),
    Row("program/partitioned_convolution", rooms),
    Row("program/inverse_transform_vocoder", vocoder, "training"),
    Row("program/monotonic_alignment_search", alignment),
)
