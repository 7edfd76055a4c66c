"""Speech and sound: recognisers, synthesisers, codecs and the signal processing around them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class FeedForward(nn.Module):
    """A conformer's: a norm, an expansion, swish, a contraction."""

    def __init__(self, d: int, expansion: int = 4) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d * expansion), nn.SiLU(), nn.Linear(d * expansion, d))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class ConformerConv(nn.Module):
    """Pointwise and gated, depthwise, batch norm, swish, pointwise."""

    def __init__(self, d: int, kernel: int = 31) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.pointwise1 = nn.Conv1d(d, 2 * d, 1)
        self.depthwise = nn.Conv1d(d, d, kernel, padding=kernel // 2, groups=d)
        self.batch_norm = nn.BatchNorm1d(d)
        self.pointwise2 = nn.Conv1d(d, d, 1)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        x = self.norm(x).transpose(1, 2)
        x = F.glu(self.pointwise1(x), dim=1)
        x = x.masked_fill(padding.unsqueeze(1), 0.0)
        x = F.silu(self.batch_norm(self.depthwise(x)))
        return self.pointwise2(x).transpose(1, 2)


class ConformerBlock(nn.Module):
    """Gulati et al., 2020: attention and convolution between two half feed-forwards."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ff1, self.ff2 = FeedForward(d), FeedForward(d)
        self.attention_norm = nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.conv = ConformerConv(d)
        self.final_norm = nn.LayerNorm(d)

    def attend(self, x: Tensor, padding: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        keep = ~padding[:, None, None, :]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return self.out(y.transpose(1, 2).reshape(b, t, d))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        padding = torch.arange(x.size(1), device=x.device)[None, :] >= lengths[:, None]
        x = x + 0.5 * self.ff1(x)
        x = x + self.attend(self.attention_norm(x), padding)
        x = x + self.conv(x, padding)
        x = x + 0.5 * self.ff2(x)
        return self.final_norm(x)


def conformer(place: Place) -> Made:
    batch, t, d = place.size(1, 32), place.size(160, 512), place.size(128, 512)
    lengths = place.randint(t // 2, batch) + t // 2
    return ConformerBlock(d, d // 32).to(place.device).eval(), (place.randn(batch, t, d), lengths)


class SqueezeformerConv(nn.Module):
    """Kim et al., 2022: learnt scale and bias before, swish for the gate, a norm after the residual; time is halved."""

    def __init__(self, d: int, kernel: int = 15) -> None:
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.ones(1, 1, d)), nn.Parameter(torch.zeros(1, 1, d))
        self.expand = nn.Linear(d, 2 * d)
        self.depthwise = nn.Conv1d(2 * d, 2 * d, kernel, padding=kernel // 2, groups=2 * d, bias=False)
        self.batch_norm = nn.BatchNorm1d(2 * d)
        self.contract = nn.Linear(2 * d, d)
        self.norm = nn.LayerNorm(d)
        self.reduce = nn.Conv1d(d, d, 5, stride=2, padding=2, groups=d)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        y = x * self.scale + self.bias
        y = F.silu(self.expand(y)) * mask.unsqueeze(-1)
        y = F.silu(self.batch_norm(self.depthwise(y.transpose(1, 2)))).transpose(1, 2)
        x = self.norm(x + self.contract(y))
        reduced = self.reduce((x * mask.unsqueeze(-1)).transpose(1, 2)).transpose(1, 2)
        kept = mask[:, ::2]
        return reduced * kept.unsqueeze(-1), kept.sum(1)


def squeezeformer(place: Place) -> Made:
    batch, t, d = place.size(2, 32), place.size(160, 800), place.size(64, 256)
    lengths = place.randint(t // 2, batch) + t // 2
    mask = (torch.arange(t, device=place.device) < lengths[:, None]).to(torch.float32)
    return SqueezeformerConv(d).to(place.device), (place.randn(batch, t, d).requires_grad_(), mask)


class TransducerJoint(nn.Module):
    """Graves, 2012: every frame with every prefix; the log-probabilities of a blank and of the next symbol."""

    def __init__(self, encoder: int, predictor: int, joint: int, vocabulary: int) -> None:
        super().__init__()
        self.encoder, self.predictor = nn.Linear(encoder, joint), nn.Linear(predictor, joint)
        self.out = nn.Linear(joint, vocabulary)

    def forward(self, encoded: Tensor, predicted: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        joint = torch.tanh(self.encoder(encoded).unsqueeze(2) + self.predictor(predicted).unsqueeze(1))
        log_probs = self.out(joint).log_softmax(dim=-1)
        blank = log_probs[..., 0]
        index = targets[:, None, :, None].expand(-1, log_probs.size(1), -1, -1)
        symbol = log_probs[:, :, :-1].gather(-1, index).squeeze(-1)
        return blank, symbol


def rnnt_joint(place: Place) -> Made:
    batch, t, u = place.size(4, 8), place.size(40, 160), place.size(13, 41)
    d, vocabulary = place.size(64, 256), place.size(128, 512)
    return TransducerJoint(d, d, d, vocabulary).to(place.device), (
        place.randn(batch, t, d).requires_grad_(),
        place.randn(batch, u, d).requires_grad_(),
        place.randint(vocabulary - 1, batch, u - 1) + 1,
    )


class SpectralLoss(nn.Module):
    """Yamamoto et al., 2020: spectral convergence and log magnitudes, over several resolutions."""

    def __init__(self, resolutions: tuple[tuple[int, int, int], ...]) -> None:
        super().__init__()
        self.resolutions = resolutions
        for i, (_, _, length) in enumerate(resolutions):
            self.register_buffer(f"window{i}", torch.hann_window(length))

    def magnitude(self, x: Tensor, i: int) -> Tensor:
        size, hop, length = self.resolutions[i]
        spectrum = torch.stft(x, size, hop, length, getattr(self, f"window{i}"), return_complex=True)
        return torch.sqrt(torch.clamp(spectrum.real**2 + spectrum.imag**2, min=1e-7)).transpose(2, 1)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        convergence, magnitude = x.new_zeros(()), x.new_zeros(())
        for i in range(len(self.resolutions)):
            x_mag, y_mag = self.magnitude(x, i), self.magnitude(y, i)
            convergence = convergence + torch.norm(y_mag - x_mag, p="fro") / torch.norm(y_mag, p="fro")
            magnitude = magnitude + F.l1_loss(torch.log(y_mag), torch.log(x_mag))
        return convergence / len(self.resolutions), magnitude / len(self.resolutions)


def stft_loss(place: Place) -> Made:
    batch, samples = place.size(2, 32), place.size(8192, 65_536)
    loss = SpectralLoss(((1024, 120, 600), (2048, 240, 1200), (512, 50, 240)))
    return loss.to(place.device), (place.randn(batch, samples).requires_grad_(), place.randn(batch, samples))


class GriffinLim(nn.Module):
    """Perraudin et al., 2013: phases for magnitudes, by going there and back with momentum."""

    window: Tensor

    def __init__(self, size: int = 512, hop: int = 128, iterations: int = 4, momentum: float = 0.99) -> None:
        super().__init__()
        self.size, self.hop, self.iterations = size, hop, iterations
        self.momentum = momentum / (1 + momentum)
        self.register_buffer("window", torch.hann_window(size))

    def forward(self, magnitude: Tensor, phase: Tensor) -> Tensor:
        angles = torch.complex(torch.cos(phase), torch.sin(phase))
        previous = torch.zeros_like(angles)
        for _ in range(self.iterations):
            wave = torch.istft(magnitude * angles, self.size, self.hop, window=self.window)
            rebuilt = torch.stft(wave, self.size, self.hop, window=self.window, return_complex=True)
            angles = rebuilt - previous.mul(self.momentum)
            angles = angles / (angles.abs() + 1e-8)
            previous = rebuilt
        return torch.istft(magnitude * angles, self.size, self.hop, window=self.window)


def griffin_lim(place: Place) -> Made:
    batch, frames = place.size(1, 16), place.size(100, 800)
    phase = 2 * math.pi * place.rand(batch, 257, frames)
    return GriffinLim().to(place.device), (place.rand(batch, 257, frames), phase)


class LengthRegulator(nn.Module):
    """FastSpeech 2 and Glow-TTS: symbols repeated by their durations, with pitch added before."""

    bins: Tensor

    def __init__(self, d: int, frames: int) -> None:
        super().__init__()
        self.frames = frames
        self.pitch = nn.Embedding(256, d)
        self.register_buffer("bins", torch.linspace(-3, 3, 255))
        self.proj = nn.Linear(d, 80)

    def path(self, durations: Tensor) -> Tensor:
        b, symbols = durations.shape
        ends = torch.cumsum(durations, 1).view(b * symbols)
        position = torch.arange(self.frames, device=durations.device)
        reached = (position.unsqueeze(0) < ends.unsqueeze(1)).view(b, symbols, self.frames).to(self.proj.weight.dtype)
        return reached - F.pad(reached, (0, 0, 1, 0))[:, :-1]

    def forward(self, x: Tensor, log_durations: Tensor, pitch: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        durations = torch.clamp(torch.round(torch.exp(log_durations) - 1), min=0).long()
        durations = durations.masked_fill(padding, 0)
        x = x + self.pitch(torch.bucketize(pitch, self.bins))
        x = x.masked_fill(padding.unsqueeze(-1), 0)
        expanded = torch.bmm(self.path(durations).transpose(1, 2), x)
        lengths = durations.sum(1).clamp(max=self.frames)
        mask = torch.arange(self.frames, device=x.device)[None] < lengths[:, None]
        return self.proj(expanded) * mask.unsqueeze(-1), lengths


def length_regulator(place: Place) -> Made:
    batch, symbols, d = place.size(8, 64), place.size(96, 160), place.size(192, 384)
    lengths = place.randint(symbols // 2, batch) + symbols // 2
    padding = torch.arange(symbols, device=place.device) >= lengths[:, None]
    log_durations, pitch = 1 + 0.6 * place.rand(batch, symbols), place.randn(batch, symbols)
    model = LengthRegulator(d, symbols * 4).to(place.device)
    return model, (place.randn(batch, symbols, d), log_durations, pitch, padding)


class MultiReceptiveField(nn.Module):
    """HiFi-GAN's stage: an upsampling, then residual blocks of several kernels and dilations, averaged."""

    def __init__(self, channels: int, kernels: tuple[int, ...] = (3, 7), dilations: tuple[int, ...] = (1, 3)) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(2 * channels, channels, 8, stride=4, padding=2)
        self.dilated = nn.ModuleList()
        self.plain = nn.ModuleList()
        for k in kernels:
            for d in dilations:
                self.dilated.append(nn.Conv1d(channels, channels, k, dilation=d, padding=(k - 1) * d // 2))
                self.plain.append(nn.Conv1d(channels, channels, k, padding=k // 2))
        self.count, self.per_kernel = len(kernels), len(dilations)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(F.leaky_relu(x, 0.1))
        total = None
        for i in range(self.count):
            y = x
            for j in range(i * self.per_kernel, (i + 1) * self.per_kernel):
                z = F.leaky_relu(y, 0.1)
                z = F.leaky_relu(self.dilated[j](z), 0.1)
                y = y + self.plain[j](z)
            total = y if total is None else total + y
        return torch.tanh(total / self.count)


def hifigan(place: Place) -> Made:
    batch, channels, t = place.size(1, 8), place.size(24, 64), place.size(128, 2048)
    return MultiReceptiveField(channels).to(place.device), (place.randn(batch, 2 * channels, t),)


class ResidualQuantizer(nn.Module):
    """SoundStream's: each codebook codes what the earlier ones left; straight-through gradients."""

    def __init__(self, d: int, books: int, codes: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(d, d // 2), nn.Linear(d // 2, d)
        self.books = nn.ParameterList(nn.Parameter(torch.randn(codes, d // 2) / 2**i) for i in range(books))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = self.down(x)
        residual, quantized = z, torch.zeros_like(z)
        commitment = z.new_zeros(())
        usage = []
        for book in self.books:
            flat = residual.reshape(-1, residual.size(-1))
            distance = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ book.t() + book.pow(2).sum(1)
            codes = distance.argmin(dim=-1)
            code = F.embedding(codes, book).view_as(residual)
            commitment = commitment + F.mse_loss(residual, code.detach()) + F.mse_loss(residual.detach(), code)
            quantized = quantized + code
            residual = residual - code.detach()
            share = torch.bincount(codes, minlength=len(book)).to(z.dtype) / codes.numel()
            usage.append(torch.exp(-(share * torch.log(share + 1e-10)).sum()))
        quantized = z + (quantized - z).detach()
        return self.up(quantized), commitment, torch.stack(usage)


def residual_vq(place: Place) -> Made:
    batch, t, d, codes = place.size(4, 16), place.size(100, 750), place.size(64, 256), place.size(256, 1024)
    return ResidualQuantizer(d, 4, codes).to(place.device), (place.randn(batch, t, d).requires_grad_(),)


def track_pitch(wave: Tensor, rate: int = 8000, low: int = 40, high: int = 160) -> tuple[Tensor, Tensor, Tensor]:
    """Autocorrelation of frames by Fourier transform; the best lag is refined by a parabola."""
    frames = wave.unfold(-1, 512, 128)
    frames = frames - frames.mean(-1, keepdim=True)
    frames = frames * torch.hann_window(512, dtype=wave.dtype, device=wave.device)
    power = torch.fft.rfft(frames, n=1024).abs().square()
    correlation = torch.fft.irfft(power)[..., : high + 2]
    correlation = correlation / correlation[..., :1].clamp(min=1e-8)
    strength, best = correlation[..., low:high].max(dim=-1)
    best = best + low
    left = correlation.gather(-1, (best - 1).unsqueeze(-1)).squeeze(-1)
    right = correlation.gather(-1, (best + 1).unsqueeze(-1)).squeeze(-1)
    offset = 0.5 * (left - right) / (left - 2 * strength + right).clamp(max=-1e-6)
    pitch = rate / (best + offset.clamp(-0.5, 0.5))
    voiced = strength > 0.3
    loudness = 10 * torch.log10(frames.pow(2).mean(-1) + 1e-10)
    return torch.where(voiced, pitch, torch.zeros_like(pitch)), voiced, loudness


def pitch(place: Place) -> Made:
    batch, samples = place.size(8, 64), place.size(16_000, 160_000)
    f0 = 90 + 50 * place.rand(batch, 1)
    t = torch.arange(samples, device=place.device) / 8000
    wave = sum(torch.sin(2 * math.pi * k * f0 * t) / k for k in (1, 2, 3))
    return track_pitch, (wave + 0.1 * place.randn(batch, samples),)


def overlap_and_add(signal: Tensor, step: int) -> Tensor:
    """Frames to samples, by way of subframes, as in TensorFlow's and Conv-TasNet's."""
    outer, (frames, length) = signal.shape[:-2], signal.shape[-2:]
    subframe = math.gcd(length, step)
    ratio = step // subframe
    count = (step * (frames - 1) + length) // subframe
    pieces = signal.reshape(*outer, -1, subframe)
    index = torch.arange(count, device=signal.device).unfold(0, length // subframe, ratio).contiguous().view(-1)
    result = signal.new_zeros(*outer, count, subframe)
    result.index_add_(-2, index, pieces)
    return result.view(*outer, -1)


class Separator(nn.Module):
    """Conv-TasNet in small: an encoder's basis, masks for each speaker, a decoder with overlap-add."""

    def __init__(self, basis: int, length: int, speakers: int = 2) -> None:
        super().__init__()
        self.length, self.speakers = length, speakers
        self.encoder = nn.Conv1d(1, basis, length, stride=length // 2, bias=False)
        self.norm = nn.GroupNorm(1, basis, eps=1e-8)
        self.bottleneck = nn.Conv1d(basis, basis // 4, 1)
        self.depthwise = nn.Conv1d(basis // 4, basis // 4, 3, padding=2, dilation=2, groups=basis // 4)
        self.prelu = nn.PReLU()
        self.masks = nn.Conv1d(basis // 4, speakers * basis, 1)
        self.basis = nn.Linear(basis, length, bias=False)

    def forward(self, mixture: Tensor) -> Tensor:
        w = F.relu(self.encoder(mixture.unsqueeze(1)))
        y = self.bottleneck(self.norm(w))
        y = y + self.prelu(self.depthwise(y))
        b, n, k = w.shape
        masks = F.relu(self.masks(y)).view(b, self.speakers, n, k)
        sources = (w.unsqueeze(1) * masks).transpose(2, 3)
        estimate = overlap_and_add(self.basis(sources), self.length // 2)
        return F.pad(estimate, (0, mixture.size(-1) - estimate.size(-1)))


def separator(place: Place) -> Made:
    batch, samples, basis = place.size(4, 8), place.size(8000, 32_000), place.size(64, 256)
    return Separator(basis, 20).to(place.device), (place.randn(batch, samples),)


def deltas(x: Tensor, width: int = 5) -> Tensor:
    """Regression over a window of frames, per band."""
    n = (width - 1) // 2
    kernel = torch.arange(-n, n + 1, dtype=x.dtype, device=x.device).repeat(x.size(1), 1, 1)
    return F.conv1d(F.pad(x, (n, n), mode="replicate"), kernel, groups=x.size(1)) / (n * (n + 1) * (2 * n + 1) / 3)


def augmented_features(mel: Tensor, lengths: Tensor, bands: Tensor, times: Tensor) -> Tensor:
    """Deltas and their deltas, normalised per utterance, masked as by SpecAugment, three frames in one."""
    first = deltas(mel)
    x = torch.cat((mel, first, deltas(first)), dim=1)
    valid = (torch.arange(x.size(-1), device=x.device) < lengths.unsqueeze(1)).unsqueeze(1)
    count = lengths.view(-1, 1, 1).to(x.dtype)
    mean = (x * valid).sum(-1, keepdim=True) / count
    variance = ((x - mean).pow(2) * valid).sum(-1, keepdim=True) / count
    x = (x - mean) / torch.sqrt(variance + 1e-5)
    band = torch.arange(mel.size(1), device=x.device).repeat(3)
    frame = torch.arange(x.size(-1), device=x.device)
    for start in bands.unbind(1):
        x = x.masked_fill(((band >= start[:, None]) & (band < start[:, None] + 10)).unsqueeze(2), 0.0)
    for start in times.unbind(1):
        x = x.masked_fill(((frame >= start[:, None]) & (frame < start[:, None] + 12)).unsqueeze(1), 0.0)
    x = torch.where(valid, x, torch.zeros_like(x)).transpose(1, 2)
    stacked = x.unfold(1, 3, 3).permute(0, 1, 3, 2)
    return stacked.reshape(x.size(0), -1, 3 * x.size(2))


def features(place: Place) -> Made:
    batch, t = place.size(8, 64), place.size(240, 1500)
    lengths = place.randint(t // 2, batch) + t // 2
    return augmented_features, (
        place.randn(batch, 80, t),
        lengths,
        place.randint(70, batch, 2),
        place.randint(t // 2, batch, 3),
    )


ROWS: tuple[Row, ...] = (
    Row("program/conformer_block", conformer, autocast=torch.bfloat16),
    Row("program/squeezeformer_conv", squeezeformer, "training"),
    Row("program/rnnt_joint", rnnt_joint, "training"),
    Row("program/multi_resolution_stft_loss", stft_loss, "training"),
    Row("program/griffin_lim", griffin_lim),
    Row("program/length_regulator", length_regulator),
    Row("program/hifigan_residual", hifigan, "training"),
    Row("program/residual_vector_quantizer", residual_vq, "training"),
    Row("program/pitch_autocorrelation", pitch),
    Row("program/overlap_add_separator", separator),
    Row("program/spec_augment_deltas", features),
)
