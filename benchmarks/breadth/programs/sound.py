"""Sound by hand: pitch, resampling, stretching, synthesis, reverberation, discriminators of vocoders."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def yin(signal: Tensor, frame: int, hop: int, low: int, high: int, threshold: float = 0.15) -> tuple[Tensor, Tensor]:
    """De Cheveigné and Kawahara, 2002: difference function by sums, its cumulative mean, the first dip, a parabola."""
    frames = signal.unfold(-1, frame + high, hop)
    window = frames[..., :frame]
    energy = F.pad(frames.square().cumsum(-1), (1, 0))
    taus = torch.arange(high, device=signal.device)
    shifted = frames.unfold(-1, frame, 1)[..., :high, :]
    product = torch.einsum("...tf,...f->...t", shifted, window)
    power = energy[..., frame : frame + high] - energy[..., :high]
    difference = (power[..., :1] + power - 2 * product).clamp(min=0)
    running = difference[..., 1:].cumsum(-1)
    normal = difference[..., 1:] * taus[1:] / running.clamp(min=1e-6)
    normal = F.pad(normal, (1, 0), value=1.0)
    usable = (taus >= low) & (taus < high - 1)
    dip = (normal < threshold) & usable
    dip = dip & (normal <= F.pad(normal[..., 1:], (0, 1), value=2.0))
    first = torch.where(dip, taus, high).amin(-1)
    lowest = normal.masked_fill(~usable, 2.0).argmin(-1)
    lag = torch.where(first < high, first, lowest)
    a, b, c = (normal.gather(-1, (lag + k)[..., None]).squeeze(-1) for k in (-1, 0, 1))
    offset = 0.5 * (a - c) / (a - 2 * b + c).clamp(min=1e-4)
    return 16_000 / (lag + offset.clamp(-0.5, 0.5)), 1 - b


def pitches(place: Place) -> Made:
    batch, length = place.size(2, 6), place.size(16_000, 64_000)
    t = torch.arange(length, device=place.device) / 16_000
    tone = torch.sin(2 * math.pi * (150 + 37 * torch.arange(batch, device=place.device)[:, None]) * t)
    return yin, (tone + 0.02 * place.randn(batch, length), 512, 256, 32, 256)


class PolyphaseResampler(nn.Module):
    """torchaudio's way: windowed sinc filters by phase as one strided convolution; 44.1 kHz to 16 kHz."""

    def __init__(self, source: int = 441, target: int = 160, width: int = 6, rolloff: float = 0.99) -> None:
        super().__init__()
        self.source, self.target = source, target
        base = min(source, target) * rolloff
        self.reach = math.ceil(width * source / base)
        index = torch.arange(-self.reach, self.reach + source) / source
        t = ((torch.arange(0, -target, -1)[:, None] / target + index) * base).clamp(-width, width)
        window = torch.cos(t * math.pi / width / 2) ** 2
        kernel = torch.where(t == 0, torch.ones(()), torch.sin(t * math.pi) / (t * math.pi)) * window * (base / source)
        self.register_buffer("kernel", kernel[:, None])

    def forward(self, wave: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
        length = wave.size(-1)
        padded = F.pad(wave * gain[:, None], (self.reach, self.reach + self.source))
        out = F.conv1d(padded[:, None], self.kernel, stride=self.source).transpose(1, 2).flatten(1)
        out = out[:, : math.ceil(self.target * length / self.source)]
        peak = out.abs().amax(-1, keepdim=True)
        limited = torch.tanh(out / peak.clamp(min=1e-5) * 1.2)
        codes = ((limited + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
        return limited, codes


def resampling(place: Place) -> Made:
    batch, length = place.size(8, 64), place.size(44_100, 441_000)
    return PolyphaseResampler().to(place.device), (place.randn(batch, length), 0.5 + place.rand(batch))


def phase_vocoder(signal: Tensor, window: Tensor, rate: float, hop: int) -> tuple[Tensor, Tensor]:
    """Time stretching: magnitudes interpolated, phases advanced by the unwrapped difference and summed up."""
    n = window.numel()
    spectrum = torch.stft(signal, n, hop, window=window, return_complex=True)
    time = torch.arange(0, spectrum.size(-1) - 2, rate, device=signal.device, dtype=signal.dtype)
    low = time.floor().long()
    part = time - low
    first, second = spectrum[..., low], spectrum[..., low + 1]
    advance = torch.linspace(0, math.pi * hop, spectrum.size(1), device=signal.device, dtype=signal.dtype)[:, None]
    turn = torch.angle(second) - torch.angle(first) - advance
    turn = turn - 2 * math.pi * torch.round(turn / (2 * math.pi))
    step = turn + advance
    phase = torch.cumsum(torch.cat([torch.angle(spectrum[..., :1]), step[..., :-1]], dim=-1), dim=-1)
    magnitude = torch.lerp(first.abs(), second.abs(), part)
    stretched = torch.istft(torch.polar(magnitude, phase), n, hop, window=window)
    flux = F.relu(magnitude[..., 1:] - magnitude[..., :-1]).sum(1)
    return stretched, flux


def stretching(place: Place) -> Made:
    batch, length, n = place.size(2, 32), place.size(8000, 96_000), 512
    return phase_vocoder, (place.randn(batch, length), torch.hann_window(n, device=place.device), 1.3, n // 4)


class HarmonicSynthesiser(nn.Module):
    """DDSP's: a controller gives amplitudes of harmonics and a noise filter; oscillators by cumulative phase."""

    def __init__(self, width: int, harmonics: int, bands: int, hop: int) -> None:
        super().__init__()
        self.harmonics, self.hop, self.bands = harmonics, hop, bands
        self.net = nn.Sequential(nn.Linear(2, width), nn.LayerNorm(width), nn.LeakyReLU(), nn.Linear(width, width))
        self.amplitudes, self.noise = nn.Linear(width, harmonics + 1), nn.Linear(width, bands)

    def forward(self, pitch: Tensor, loudness: Tensor, noise: Tensor, target: Tensor) -> Tensor:
        b, frames = pitch.shape
        h = self.net(torch.stack([torch.log(pitch), loudness], dim=-1))
        raw = 2 * torch.sigmoid(self.amplitudes(h)) ** math.log(10) + 1e-7
        total, shares = raw[..., :1], raw[..., 1:]
        k = torch.arange(1, self.harmonics + 1, device=pitch.device)
        shares = shares * ((pitch[..., None] * k) < 8000)
        shares = total * shares / shares.sum(-1, keepdim=True).clamp(min=1e-5)
        amplitude = F.interpolate(shares.transpose(1, 2), scale_factor=self.hop, mode="linear").transpose(1, 2)
        f0 = F.interpolate(pitch[:, None], scale_factor=self.hop, mode="linear").squeeze(1)
        phase = torch.cumsum(2 * math.pi * f0 / 16_000, dim=1)
        phase = torch.remainder(phase, 2 * math.pi)
        tone = (torch.sin(phase[..., None] * k) * amplitude).sum(-1)
        response = torch.sigmoid(self.noise(h) - 3)
        impulse = torch.fft.irfft(response + 0j, n=2 * self.bands - 2)
        impulse = torch.roll(impulse, self.bands - 1, -1) * torch.hann_window(
            2 * self.bands - 2, device=pitch.device, dtype=pitch.dtype
        )
        n = 2 * self.hop
        filtered = torch.fft.irfft(
            torch.fft.rfft(noise.view(b, frames, self.hop), n=n) * torch.fft.rfft(impulse, n=n), n=n
        )
        wave = tone + filtered[..., : self.hop].flatten(1)
        loss = wave.new_zeros(())
        for size in (256, 64):
            window = torch.hann_window(size, device=wave.device, dtype=wave.dtype)
            a, c = (torch.stft(w, size, size // 4, window=window, return_complex=True) for w in (wave, target))
            a, c = (torch.sqrt(s.real**2 + s.imag**2 + 1e-6) for s in (a, c))
            loss = loss + F.l1_loss(a, c) + F.l1_loss(a.log(), c.log())
        return loss


def harmonics(place: Place) -> Made:
    b, frames, hop = place.size(1, 8), place.size(24, 120), place.size(64, 160)
    model = HarmonicSynthesiser(place.size(48, 256), place.size(16, 48), 33, hop).to(place.device)
    return model, (
        100 + 200 * place.rand(b, frames),
        place.randn(b, frames),
        2 * place.rand(b, frames * hop) - 1,
        0.3 * place.randn(b, frames * hop),
    )


class FeedbackDelays(nn.Module):
    """A reverberator in the frequency domain: delay lines, an orthogonal feedback matrix, absorption, all learnt."""

    def __init__(self, lines: int, bins: int) -> None:
        super().__init__()
        self.bins = bins
        delays = torch.tensor([149, 211, 263, 293, 337, 379, 419, 461])[:lines]
        self.register_buffer("delays", delays)
        self.skew = nn.Parameter(0.3 * torch.randn(lines, lines))
        self.gain_in, self.gain_out = nn.Parameter(torch.randn(lines)), nn.Parameter(torch.randn(lines))
        self.absorb = nn.Parameter(torch.full((lines,), 2.0))
        self.direct = nn.Parameter(torch.tensor(0.5))

    def forward(self, dry: Tensor, wet: Tensor) -> tuple[Tensor, Tensor]:
        upper = self.skew.triu(1)
        feedback = torch.linalg.matrix_exp(upper - upper.T)
        omega = torch.linspace(0, math.pi, self.bins, device=dry.device, dtype=dry.dtype)
        angle = -omega[:, None] * self.delays
        gain = torch.sigmoid(self.absorb) ** (self.delays / 300)
        delay = torch.polar(gain.expand_as(angle), angle)
        eye = torch.eye(self.delays.numel(), device=dry.device, dtype=dry.dtype)
        system = eye - feedback * delay[:, None, :]
        state = torch.linalg.solve(system, self.gain_in.expand(self.bins, -1).to(system.dtype))
        transfer = (delay * state) @ self.gain_out.to(system.dtype) + self.direct
        n = 2 * (self.bins - 1)
        out = torch.fft.irfft(torch.fft.rfft(dry, n=n) * transfer, n=n)
        decay = torch.fft.irfft(transfer, n=n).square().flip(-1).cumsum(-1).flip(-1)
        curve = 10 * torch.log10(decay / decay[:1] + 1e-6)
        wanted = torch.linspace(0, -40, n, device=dry.device, dtype=dry.dtype)
        return F.l1_loss(out, wet), 0.01 * F.mse_loss(curve, wanted)


def reverberation(place: Place) -> Made:
    b, bins, lines = place.size(2, 16), place.size(1025, 16_385), 8
    n = 2 * (bins - 1)
    return FeedbackDelays(lines, bins).to(place.device), (place.randn(b, n // 2), place.randn(b, n))


class PeriodDiscriminators(nn.Module):
    """HiFi-GAN's: waves folded by several periods into strided convolutions; least squares and feature matching."""

    def __init__(self, width: int, periods: tuple[int, ...] = (2, 3, 5)) -> None:
        super().__init__()
        self.periods = periods
        sizes = [1, width, 2 * width, 4 * width]
        self.stacks = nn.ModuleList(
            nn.ModuleList(nn.Conv2d(a, b, (5, 1), (3, 1), padding=(2, 0)) for a, b in itertools.pairwise(sizes))
            for _ in periods
        )
        self.posts = nn.ModuleList(nn.Conv2d(sizes[-1], 1, (3, 1), padding=(1, 0)) for _ in periods)

    def features(self, wave: Tensor, i: int) -> list[Tensor]:
        period = self.periods[i]
        x = wave
        if x.size(-1) % period:
            x = F.pad(x, (0, period - x.size(-1) % period), mode="reflect")
        x = x.unflatten(-1, (-1, period))
        found = []
        for conv in self.stacks[i]:
            x = F.leaky_relu(conv(x), 0.1)
            found.append(x)
        found.append(self.posts[i](x))
        return found

    def forward(self, real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        discriminator = generator = matching = real.new_zeros(())
        for i in range(len(self.periods)):
            r, f = self.features(real, i), self.features(fake, i)
            discriminator = discriminator + (1 - r[-1]).square().mean() + f[-1].square().mean()
            generator = generator + (1 - f[-1]).square().mean()
            for a, b in zip(r[:-1], f[:-1], strict=True):
                matching = matching + F.l1_loss(b, a.detach())
        return discriminator, generator, 2 * matching


def vocoder(place: Place) -> Made:
    b, n, width = place.size(2, 16), place.size(1500, 8192), place.size(8, 32)
    return PeriodDiscriminators(width).to(place.device), (place.randn(b, 1, n), place.randn(b, 1, n).requires_grad_())


ROWS: tuple[Row, ...] = (
    Row("program/yin_pitch", pitches),
    Row("program/polyphase_resampler", resampling),
    Row("program/phase_vocoder", stretching),
    Row("program/harmonic_synthesiser", harmonics, "training"),
    Row("program/feedback_delay_network", reverberation, "training"),
    Row("program/period_discriminators", vocoder, "training"),
)
