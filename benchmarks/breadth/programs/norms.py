"""Normalisations, each written out, with a loss that their gradients can be seen in."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class GroupNorm(nn.Module):
    """By views, with torch.var_mean."""

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        g = x.view(n, self.groups, -1)
        var, mean = torch.var_mean(g, dim=-1, keepdim=True, unbiased=False)
        g = (g - mean) / torch.sqrt(var + 1e-5)
        return F.silu(g.view(n, c, h, w) * self.weight + self.bias)


def group_norm(place: Place) -> Made:
    n, c, side = place.size(4, 32), place.size(32, 128), place.size(32, 64)
    return GroupNorm(8, c).to(place.device), (place.randn(n, c, side, side).requires_grad_(),)


def adaptive_instance_norm(content: Tensor, style: Tensor) -> Tensor:
    """Huang and Belongie, 2017: the style's statistics on the content's; and the style loss' Gram matrices."""

    def statistics(t: Tensor) -> tuple[Tensor, Tensor]:
        flat = t.flatten(2)
        return flat.mean(2)[..., None, None], (flat.var(2) + 1e-5).sqrt()[..., None, None]

    mean_c, std_c = statistics(content)
    mean_s, std_s = statistics(style)
    mixed = (content - mean_c) / std_c * std_s + mean_s

    def gram(t: Tensor) -> Tensor:
        f = t.flatten(2)
        return f @ f.transpose(1, 2) / f.shape[-1]

    return F.mse_loss(gram(F.relu(mixed)), gram(F.relu(style)))


def style_transfer(place: Place) -> Made:
    n, c, side = place.size(2, 8), place.size(32, 256), place.size(40, 128)
    return adaptive_instance_norm, (place.randn(n, c, side, side).requires_grad_(), place.rand(n, c, side, side))


class WeightNormStandardised(nn.Module):
    """A convolution with weight standardisation (Qiao et al., 2019) and a linear with weight norm's g and v."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, c, 3, padding=1)
        self.v, self.g = nn.Parameter(torch.randn(10, c)), nn.Parameter(torch.ones(10))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        w = self.conv.weight
        w = w - w.mean(dim=(1, 2, 3), keepdim=True)
        w = w / (w.flatten(1).std(dim=1).view(-1, 1, 1, 1) + 1e-5)
        h = F.relu(F.conv2d(x, w, self.conv.bias, padding=1)).mean((2, 3))
        weight = self.v * (self.g / torch.linalg.norm(self.v, dim=1)).unsqueeze(1)
        return F.cross_entropy(h @ weight.t(), labels)


def weight_norm(place: Place) -> Made:
    n, side = place.size(4, 64), place.size(32, 128)
    model = WeightNormStandardised(place.size(32, 64)).to(place.device)
    return model, (place.randn(n, 3, side, side), place.randint(10, n))


class RMSNormBlocks(nn.Module):
    """Llama's RMSNorm around gated feed-forwards with residuals, twice."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.gains = nn.Parameter(torch.ones(2, d))
        self.up = nn.ModuleList([nn.Linear(d, 4 * d, bias=False) for _ in range(2)])
        self.down = nn.ModuleList([nn.Linear(2 * d, d, bias=False) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        for gain, up, down in zip(self.gains, self.up, self.down, strict=True):
            variance = x.pow(2).mean(-1, keepdim=True)
            h = gain * (x * torch.rsqrt(variance + 1e-6))
            a, b = up(h).chunk(2, dim=-1)
            x = x + down(F.silu(a) * b)
        return x


def rms_norm(place: Place) -> Made:
    d = place.size(128, 1024)
    return RMSNormBlocks(d).to(place.device), (place.randn(place.size(128, 4096), d),)


class BatchRenorm(nn.Module):
    """Ioffe, 2017: corrections r and d without gradient, running statistics updated in place."""

    mean: Tensor
    std: Tensor

    def __init__(self, c: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))
        self.register_buffer("mean", torch.zeros(c))
        self.register_buffer("std", torch.ones(c))

    def forward(self, x: Tensor) -> Tensor:
        mean, std = x.mean((0, 2)), x.std((0, 2), unbiased=False) + 1e-5
        r = (std.detach() / self.std).clamp(1 / 3, 3)
        d = ((mean.detach() - self.mean) / self.std).clamp(-5, 5)
        y = (x - mean[:, None]) / std[:, None] * r[:, None] + d[:, None]
        with torch.no_grad():
            self.mean.lerp_(mean, 0.01)
            self.std.lerp_(std, 0.01)
        return F.leaky_relu(y * self.weight[:, None] + self.bias[:, None])


def batch_renorm(place: Place) -> Made:
    n, c, t = place.size(16, 256), place.size(32, 256), place.size(256, 1024)
    return BatchRenorm(c).to(place.device), ((1 + place.randn(n, c, t)).requires_grad_(),)


def whiten(x: Tensor, rounds: int = 5) -> Tensor:
    """IterNorm: decorrelated features by Newton-Schulz iterations of the covariance."""
    n, d = x.shape
    x = x - x.mean(0, keepdim=True)
    covariance = x.t() @ x / n + 1e-3 * torch.eye(d, dtype=x.dtype, device=x.device)
    trace = covariance.diagonal().sum()
    scaled = covariance / trace
    p = torch.eye(d, dtype=x.dtype, device=x.device)
    for _ in range(rounds):
        p = 1.5 * p - 0.5 * torch.linalg.multi_dot([p, p, p, scaled])
    return torch.relu(x @ p / trace.sqrt())


def iterative_whitening(place: Place) -> Made:
    n, d = place.size(2048, 65_536), place.size(64, 256)
    return whiten, (place.randn(n, d).requires_grad_(),)


ROWS: tuple[Row, ...] = (
    Row("program/group_norm_silu", group_norm, "training"),
    Row("program/adaptive_instance_norm", style_transfer, "training"),
    Row("program/weight_norm", weight_norm, "training"),
    Row("program/rms_norm_blocks", rms_norm, "training"),
    Row("program/batch_renorm", batch_renorm, "training"),
    Row("program/iterative_whitening", iterative_whitening, "training"),
)
