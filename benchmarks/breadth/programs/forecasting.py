"""Forecasting of time series: stacks of bases, decompositions, patches, causal convolutions, smoothing."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class NBeats(nn.Module):
    """Oreshkin et al., 2020: trend and seasonal stacks with residual backcasts; sMAPE as the loss."""

    def __init__(self, past: int, future: int, width: int, degree: int = 3, harmonics: int = 6) -> None:
        super().__init__()
        self.past, self.future = past, future
        t = torch.arange(past + future) / future - past / future
        trend = torch.stack([t**i for i in range(degree)])
        waves = [2 * math.pi * i * t for i in range(1, harmonics + 1)]
        season = torch.stack([w.cos() for w in waves] + [w.sin() for w in waves])
        self.register_buffer("trend", trend)
        self.register_buffer("season", season)
        sizes = [degree, degree, 2 * harmonics, 2 * harmonics]
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(past, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2 * size)
            )
            for size in sizes
        )

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-3)
        rest, forecast = x / scale, torch.zeros_like(y)
        for block, basis in zip(self.blocks, (self.trend, self.trend, self.season, self.season), strict=True):
            back, fore = block(rest).chunk(2, dim=-1)
            rest = rest - back @ basis[:, : self.past]
            forecast = forecast + fore @ basis[:, self.past :]
        forecast = forecast * scale
        smape = 200 * ((y - forecast).abs() / (y.abs() + forecast.abs()).clamp(min=1e-1)).mean()
        return smape, forecast


def n_beats(place: Place) -> Made:
    batch, past, future, width = place.size(256, 8192), 72, 24, place.size(128, 512)
    return NBeats(past, future, width).to(place.device), (place.randn(batch, past), place.randn(batch, future))


class DecomposedLinear(nn.Module):
    """DLinear under RevIN: a moving average splits trend and remainder, linear maps per channel."""

    def __init__(self, channels: int, past: int, future: int, kernel: int = 25) -> None:
        super().__init__()
        self.kernel = kernel
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.season = nn.Parameter(torch.full((channels, future, past), 1 / past))
        self.trend = nn.Parameter(torch.full((channels, future, past), 1 / past))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True).detach()
        std = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5).detach()
        z = (x - mean) / std * self.weight + self.bias
        front = z[:, :1].repeat(1, (self.kernel - 1) // 2, 1)
        end = z[:, -1:].repeat(1, (self.kernel - 1) // 2, 1)
        padded = torch.cat([front, z, end], dim=1)
        trend = F.avg_pool1d(padded.transpose(1, 2), self.kernel, stride=1)
        season = z.transpose(1, 2) - trend
        out = torch.einsum("bcp,cfp->bfc", season, self.season) + torch.einsum("bcp,cfp->bfc", trend, self.trend)
        out = (out - self.bias) / (self.weight + 1e-10) * std + mean
        return F.mse_loss(out, y)


def decomposed(place: Place) -> Made:
    batch, channels, past, future = place.size(16, 256), place.size(8, 64), place.size(96, 336), place.size(48, 192)
    return DecomposedLinear(channels, past, future).to(place.device), (
        place.randn(batch, past, channels).cumsum(1),
        place.randn(batch, future, channels),
    )


class TemporalBlock(nn.Module):
    """Two dilated causal convolutions with weight norm and a residual; the future is cut off after padding."""

    def __init__(self, inputs: int, outputs: int, dilation: int, kernel: int = 3) -> None:
        super().__init__()
        self.padding = (kernel - 1) * dilation
        norm = nn.utils.parametrizations.weight_norm
        self.conv1 = norm(nn.Conv1d(inputs, outputs, kernel, padding=self.padding, dilation=dilation))
        self.conv2 = norm(nn.Conv1d(outputs, outputs, kernel, padding=self.padding, dilation=dilation))
        self.down = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.conv1(x)[:, :, : -self.padding].contiguous())
        h = F.relu(self.conv2(h)[:, :, : -self.padding].contiguous())
        return F.relu(h + (x if self.down is None else self.down(x)))


class TemporalNetwork(nn.Module):
    """Bai et al., 2018: blocks of growing dilation, quantiles of the next steps, the pinball loss."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            TemporalBlock(inputs, width, 1), *(TemporalBlock(width, width, 2**i) for i in range(1, 4))
        )
        self.head = nn.Linear(width, 3)
        self.register_buffer("levels", torch.tensor([0.1, 0.5, 0.9]))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        predicted = self.head(self.blocks(x).transpose(1, 2))
        error = y[..., None] - predicted
        return torch.maximum(self.levels * error, (self.levels - 1) * error).mean()


def temporal(place: Place) -> Made:
    batch, length, width = place.size(8, 64), place.size(128, 512), place.size(24, 96)
    return TemporalNetwork(4, width).to(place.device), (place.randn(batch, 4, length), place.randn(batch, length))


class PatchTst(nn.Module):
    """Nie et al., 2023: patches of each channel alone, a post-norm encoder with batch norm and residual scores."""

    def __init__(self, past: int, future: int, d: int, heads: int, patch: int = 16, stride: int = 8) -> None:
        super().__init__()
        self.patch, self.stride, self.heads = patch, stride, heads
        count = (past - patch) // stride + 2
        self.embed = nn.Linear(patch, d)
        self.position = nn.Parameter(0.02 * torch.randn(count, d))
        self.qkv = nn.ModuleList(nn.Linear(d, 3 * d) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(d, d) for _ in range(2))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d, bias=False)) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(d) for _ in range(4))
        self.head = nn.Linear(count * d, future)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        b, channels, _ = x.shape
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True, unbiased=False) + 1e-5
        z = F.pad((x - mean) / std, (0, self.stride), mode="replicate").unfold(-1, self.patch, self.stride)
        h = self.embed(z).flatten(0, 1) + self.position
        scores: Tensor | None = None
        for i, (qkv, out, mlp) in enumerate(zip(self.qkv, self.out, self.mlp, strict=True)):
            q, k, v = qkv(h).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            now = q @ k.transpose(-1, -2) * (q.size(-1) ** -0.5)
            scores = now if scores is None else now + scores
            mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
            h = self.norms[2 * i]((h + out(mixed)).transpose(1, 2)).transpose(1, 2)
            h = self.norms[2 * i + 1]((h + mlp(h)).transpose(1, 2)).transpose(1, 2)
        predicted = self.head(h.flatten(1)).view(b, channels, -1) * std + mean
        return F.mse_loss(predicted, y)


def patch_tst(place: Place) -> Made:
    batch, channels, past, future, d = (
        place.size(4, 32),
        place.size(7, 21),
        place.size(96, 336),
        96,
        place.size(32, 128),
    )
    return PatchTst(past, future, d, 4).to(place.device), (
        place.randn(batch, channels, past).cumsum(-1),
        place.randn(batch, channels, future),
    )


class HoltWinters(nn.Module):
    """Multiplicative triple exponential smoothing, damped, with parameters by series; one step and a horizon ahead."""

    def __init__(self, series: int, period: int) -> None:
        super().__init__()
        self.period = period
        self.rates = nn.Parameter(torch.randn(4, series))
        self.log_season = nn.Parameter(0.1 * torch.randn(series, period))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        alpha, beta, gamma, phi = torch.sigmoid(self.rates).unbind(0)
        season = list((self.log_season - self.log_season.mean(1, keepdim=True)).exp().unbind(1))
        level, trend = x[:, 0] / season[0], torch.zeros_like(alpha)
        errors = []
        for t in range(x.size(1)):
            s = season[t % self.period]
            expected = (level + phi * trend) * s
            errors.append(torch.log(x[:, t]) - torch.log(expected.clamp(min=1e-2)))
            old = level
            level = alpha * x[:, t] / s + (1 - alpha) * (level + phi * trend)
            trend = beta * (level - old) + (1 - beta) * phi * trend
            season[t % self.period] = gamma * x[:, t] / level + (1 - gamma) * s
        steps = torch.cumsum(torch.stack([phi**h for h in range(1, self.period + 1)], dim=1), dim=1)
        order = [season[(x.size(1) + h) % self.period] for h in range(self.period)]
        ahead = (level[:, None] + steps * trend[:, None]) * torch.stack(order, dim=1)
        return torch.stack(errors, 1).square().mean(), ahead


def holt_winters(place: Place) -> Made:
    series, length, period = place.size(512, 65_536), place.size(36, 20), 12
    wave = 1.5 + torch.sin(torch.arange(length, device=place.device) * (2 * math.pi / period))
    return HoltWinters(series, period).to(place.device), (wave * (0.8 + 0.4 * place.rand(series, length)),)


class AutoCorrelation(nn.Module):
    """Autoformer's layer: periods by transforms, the top delays roll the values, series are decomposed after."""

    def __init__(self, d: int, heads: int, kernel: int = 25) -> None:
        super().__init__()
        self.heads, self.kernel = heads, kernel
        self.q, self.k, self.v, self.out = (nn.Linear(d, d) for _ in range(4))
        self.conv1 = nn.Conv1d(d, 2 * d, 1, bias=False)
        self.conv2 = nn.Conv1d(2 * d, d, 1, bias=False)

    def decomposed(self, x: Tensor) -> Tensor:
        padded = F.pad(x.transpose(1, 2), (self.kernel // 2, self.kernel // 2), mode="replicate")
        return x - F.avg_pool1d(padded, self.kernel, stride=1).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = (f(x).view(b, n, self.heads, -1).permute(0, 2, 3, 1) for f in (self.q, self.k, self.v))
        spectrum = torch.fft.rfft(q, dim=-1) * torch.conj(torch.fft.rfft(k, dim=-1))
        correlation = torch.fft.irfft(spectrum, n=n, dim=-1)
        top = int(2 * math.log(n))
        mean = correlation.mean(dim=(1, 2))
        index = torch.topk(mean.mean(0), top).indices
        weights = torch.softmax(mean[:, index], dim=-1)
        doubled = v.repeat(1, 1, 1, 2)
        position = torch.arange(n, device=x.device)
        mixed = torch.zeros_like(v)
        for i in range(top):
            rolled = doubled.gather(-1, (position + index[i]).expand_as(v))
            mixed = mixed + rolled * weights[:, i, None, None, None]
        x = self.decomposed(x + self.out(mixed.permute(0, 3, 1, 2).reshape(b, n, d)))
        y = self.conv2(F.gelu(self.conv1(x.transpose(1, 2)))).transpose(1, 2)
        return self.decomposed(x + y)


def auto_correlation(place: Place) -> Made:
    batch, n, d = place.size(4, 32), place.size(96, 384), place.size(32, 256)
    return AutoCorrelation(d, 4).to(place.device), (place.randn(batch, n, d).requires_grad_(),)


ROWS: tuple[Row, ...] = (
    Row("program/n_beats", n_beats, "training"),
    Row("program/decomposed_linear", decomposed, "training"),
    Row("program/temporal_convolutions", temporal, "training"),
    Row("program/patch_time_series", patch_tst, "training"),
    Row("program/holt_winters", holt_winters, "training"),
    Row("program/auto_correlation", auto_correlation, "training"),
)
