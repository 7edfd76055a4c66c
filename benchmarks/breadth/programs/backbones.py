"""Blocks of backbones as their repositories have them: volumes, gated and modulated convolutions, scans, wavelets."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class VolumeResponseBlock(nn.Module):
    """MedNeXt (Roy et al., 2023) in three dimensions: a depthwise kernel, wide channels, global response norms."""

    def __init__(self, channels: int, ratio: int, stride: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv3d(channels, channels, 5, stride=stride, padding=2, groups=channels)
        self.norm = nn.GroupNorm(channels, channels)
        self.expand = nn.Conv3d(channels, ratio * channels, 1)
        self.gamma = nn.Parameter(torch.randn(1, ratio * channels, 1, 1, 1) * 0.1)
        self.beta = nn.Parameter(torch.zeros(1, ratio * channels, 1, 1, 1))
        self.compress = nn.Conv3d(ratio * channels, 2 * channels, 1)
        self.skip = nn.Conv3d(channels, 2 * channels, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.expand(self.norm(self.depthwise(x))))
        gx = torch.norm(y, p=2, dim=(-3, -2, -1), keepdim=True)
        nx = gx / (gx.mean(dim=1, keepdim=True) + 1e-6)
        y = self.gamma * (y * nx) + self.beta + y
        return self.compress(y) + self.skip(x)


def volumes(place: Place) -> Made:
    c, n = place.size(6, 32), place.size(12, 48)
    block = VolumeResponseBlock(c, 3, 2).to(place.device)
    return block, (place.randn(place.size(1, 2), c, n, n + 4, n).requires_grad_(),)


class RecursiveGates(nn.Module):
    """HorNet's recursive gated convolution (Rao et al., 2022): channels double, each order gates the next."""

    def __init__(self, width: int, order: int) -> None:
        super().__init__()
        self.dims = [width // 2**i for i in range(order)][::-1]
        self.proj_in = nn.Conv2d(width, 2 * width, 1)
        self.dwconv = nn.Conv2d(sum(self.dims), sum(self.dims), 7, padding=3, groups=sum(self.dims))
        self.pws = nn.ModuleList(nn.Conv2d(a, b, 1) for a, b in zip(self.dims[:-1], self.dims[1:], strict=True))
        self.proj_out = nn.Conv2d(width, width, 1)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma1 = nn.Parameter(torch.full((width,), 0.1))
        self.gamma2 = nn.Parameter(torch.full((width,), 0.1))

    def mix(self, x: Tensor) -> Tensor:
        fused = self.proj_in(x)
        pwa, abc = torch.split(fused, (self.dims[0], sum(self.dims)), dim=1)
        parts = torch.split(self.dwconv(abc) / 3.0, self.dims, dim=1)
        x = pwa * parts[0]
        for i, layer in enumerate(self.pws):
            x = layer(x) * parts[i + 1]
        return self.proj_out(x)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        x = x + self.gamma1[:, None, None] * self.mix(y)
        y = x.permute(0, 2, 3, 1)
        y = self.gamma2 * self.down(F.gelu(self.up(self.norm2(y))))
        return x + y.permute(0, 3, 1, 2)


def recursive_gates(place: Place) -> Made:
    width, n = place.size(16, 128), place.size(12, 28)
    return RecursiveGates(width, place.size(3, 4)).to(place.device), (place.randn(place.size(2, 32), width, n, n),)


class FocalModulation(nn.Module):
    """FocalNet (Yang et al., 2022): contexts of growing kernels, summed by gates, modulate each query."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        self.levels = levels
        self.f = nn.Linear(width, 2 * width + levels + 1)
        self.h = nn.Conv2d(width, width, 1)
        self.proj = nn.Linear(width, width)
        self.focal_layers = nn.ModuleList()
        for k in range(levels):
            size = 2 * k + 3
            self.focal_layers.append(
                nn.Sequential(nn.Conv2d(width, width, size, groups=width, padding=size // 2, bias=False), nn.GELU())
            )

    def forward(self, x: Tensor) -> Tensor:
        c = x.shape[-1]
        x = self.f(x).permute(0, 3, 1, 2).contiguous()
        q, ctx, gates = torch.split(x, (c, c, self.levels + 1), 1)
        ctx_all: Any = 0
        for level in range(self.levels):
            ctx = self.focal_layers[level](ctx)
            ctx_all = ctx_all + ctx * gates[:, level : level + 1]
        ctx_global = F.gelu(ctx.mean(2, keepdim=True).mean(3, keepdim=True))
        ctx_all = ctx_all + ctx_global * gates[:, self.levels :]
        out = q * self.h(ctx_all / (self.levels + 1))
        return self.proj(out.permute(0, 2, 3, 1).contiguous())


def focal_modulation(place: Place) -> Made:
    width, n = place.size(16, 192), place.size(14, 28)
    return FocalModulation(width, 3).to(place.device), (place.randn(place.size(2, 32), n, n, width),)


class SelectiveKernels(nn.Module):
    """LSKNet (Li et al., 2023): two reaches of depthwise kernels, chosen place by place from pooled channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.conv_spatial = nn.Conv2d(width, width, 7, padding=9, groups=width, dilation=3)
        self.conv1, self.conv2 = nn.Conv2d(width, width // 2, 1), nn.Conv2d(width, width // 2, 1)
        self.conv_squeeze = nn.Conv2d(2, 2, 7, padding=3)
        self.conv = nn.Conv2d(width // 2, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        attn1 = self.conv0(x)
        attn2 = self.conv_spatial(attn1)
        attn1, attn2 = self.conv1(attn1), self.conv2(attn2)
        attn = torch.cat([attn1, attn2], dim=1)
        agg = torch.cat([torch.mean(attn, dim=1, keepdim=True), torch.max(attn, dim=1, keepdim=True)[0]], dim=1)
        sig = self.conv_squeeze(agg).sigmoid()
        attn = attn1 * sig[:, 0, :, :].unsqueeze(1) + attn2 * sig[:, 1, :, :].unsqueeze(1)
        return x * self.conv(attn)


def selective_kernels(place: Place) -> Made:
    width, n = place.size(12, 64), place.size(20, 80)
    x = place.randn(place.size(1, 8), width, n, n).to(memory_format=torch.channels_last)
    return SelectiveKernels(width).to(place.device), (x.requires_grad_(),)


class PhaseAwareTokens(nn.Module):
    """Wave-MLP (Tang et al., 2021): tokens as waves with amplitude and phase, mixed along rows and along columns."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc_h, self.fc_w, self.fc_c = (nn.Conv2d(width, width, 1, bias=False) for _ in range(3))
        self.tfc_h = nn.Conv2d(2 * width, width, (1, 7), stride=1, padding=(0, 3), groups=width, bias=False)
        self.tfc_w = nn.Conv2d(2 * width, width, (7, 1), stride=1, padding=(3, 0), groups=width, bias=False)
        self.theta_h, self.theta_w = (
            nn.Sequential(nn.Conv2d(width, width, 1), nn.BatchNorm2d(width), nn.ReLU()) for _ in range(2)
        )
        self.reweight = nn.Sequential(nn.Linear(width, width // 4), nn.GELU(), nn.Linear(width // 4, 3 * width))
        self.proj = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        b, c, _, _ = x.shape
        theta_h, theta_w = self.theta_h(x), self.theta_w(x)
        x_h, x_w = self.fc_h(x), self.fc_w(x)
        x_h = torch.cat([x_h * torch.cos(theta_h), x_h * torch.sin(theta_h)], dim=1)
        x_w = torch.cat([x_w * torch.cos(theta_w), x_w * torch.sin(theta_w)], dim=1)
        h, w, own = self.tfc_h(x_h), self.tfc_w(x_w), self.fc_c(x)
        a = F.adaptive_avg_pool2d(h + w + own, output_size=1)
        a = self.reweight(a.flatten(1)).reshape(b, c, 3).permute(2, 0, 1).softmax(dim=0).unsqueeze(-1).unsqueeze(-1)
        return self.proj(h * a[0] + w * a[1] + own * a[2])


def phase_aware(place: Place) -> Made:
    width, n = place.size(16, 96), place.size(14, 56)
    return PhaseAwareTokens(width).to(place.device), (place.randn(place.size(2, 8), width, n, n),)


class CrossScan(nn.Module):
    """VMamba's two-dimensional selective scan (Liu et al., 2024): four orders of the pixels, merged again."""

    def __init__(self, width: int, state: int, rank: int) -> None:
        super().__init__()
        self.state, self.rank = state, rank
        self.x_proj = nn.Parameter(torch.randn(4, rank + 2 * state, width) / math.sqrt(width))
        self.dt_proj = nn.Parameter(torch.randn(4, width, rank) / math.sqrt(rank))
        self.dt_bias = nn.Parameter(torch.full((4, width), -3.0))
        self.a_log = nn.Parameter(torch.arange(1, state + 1).float().log().repeat(4, width, 1))
        self.d = nn.Parameter(torch.ones(4, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        length = h * w
        xs = x.new_empty((b, 4, c, length))
        xs[:, 0] = x.flatten(2, 3)
        xs[:, 1] = x.transpose(2, 3).flatten(2, 3)
        xs[:, 2:4] = torch.flip(xs[:, 0:2], dims=[-1])
        x_dbl = torch.einsum("bkdl,kcd->bkcl", xs, self.x_proj)
        dts, bs, cs = torch.split(x_dbl, [self.rank, self.state, self.state], dim=2)
        dts = F.softplus(torch.einsum("bkrl,kdr->bkdl", dts, self.dt_proj) + self.dt_bias[..., None])
        a = -torch.exp(self.a_log)
        hidden = x.new_zeros((b, 4, c, self.state))
        ys = []
        for i in range(length):
            decay = torch.exp(dts[..., i, None] * a)
            hidden = decay * hidden + (dts[..., i] * xs[..., i])[..., None] * bs[:, :, None, :, i]
            ys.append(torch.einsum("bkdn,bkn->bkd", hidden, cs[..., i]))
        y = torch.stack(ys, dim=-1) + self.d[..., None] * xs
        y = y[:, 0:2] + y[:, 2:4].flip(dims=[-1])
        y = y[:, 0] + y[:, 1].view(b, c, w, h).transpose(2, 3).flatten(2, 3)
        return self.norm(y.transpose(1, 2)).view(b, h, w, c)


def cross_scan(place: Place) -> Made:
    width = place.size(16, 192)
    return CrossScan(width, place.size(4, 16), place.size(2, 12)).to(place.device), (
        place.randn(place.size(1, 16), width, place.size(5, 10), place.size(6, 8)),
    )


class ChebyshevLayer(nn.Module):
    """An edge of a Kolmogorov-Arnold network as Chebyshev polynomials, through the angle."""

    def __init__(self, inputs: int, outputs: int, degree: int) -> None:
        super().__init__()
        self.inputs, self.degree = inputs, degree
        self.cheby_coeffs = nn.Parameter(torch.randn(inputs, outputs, degree + 1) / (inputs * (degree + 1)) ** 0.5)
        self.register_buffer("arange", torch.arange(0, degree + 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(x).clamp(-1 + 1e-4, 1 - 1e-4)
        x = x.view((-1, self.inputs, 1)).expand(-1, -1, self.degree + 1)
        x = (x.acos() * self.arange).cos()
        return torch.einsum("bid,iod->bo", x, self.cheby_coeffs)


def chebyshev_network(place: Place) -> Made:
    n = place.size(32, 128)
    network = nn.Sequential(
        ChebyshevLayer(place.size(49, 784), n, 4),
        nn.LayerNorm(n),
        ChebyshevLayer(n, n, 4),
        nn.LayerNorm(n),
        ChebyshevLayer(n, 10, 3),
    )
    return network.to(place.device), (place.randn(place.size(32, 4096), place.size(49, 784)),)


class SnakeConvolution(nn.Module):
    """DSCNet (Qi et al., 2023): kernels whose taps follow offsets that add up from the middle outwards."""

    def __init__(self, channels: int, outputs: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.offset = nn.Conv2d(channels, size, 3, padding=1)
        self.bn = nn.BatchNorm2d(size)
        self.conv = nn.Conv2d(channels, outputs, kernel_size=(size, 1), stride=(size, 1))
        self.gn = nn.GroupNorm(outputs // 4, outputs)

    def forward(self, f: Tensor) -> Tensor:
        b, _c, h, w = f.shape
        k, center = self.size, self.size // 2
        offset = torch.tanh(self.bn(self.offset(f)))
        y_offset = offset.detach().clone() * 0
        y_offset[:, center] = 0
        for index in range(1, center + 1):
            y_offset[:, center + index] = y_offset[:, center + index - 1] + offset[:, center + index]
            y_offset[:, center - index] = y_offset[:, center - index + 1] + offset[:, center - index]
        y = torch.arange(h, device=f.device, dtype=f.dtype).view(1, 1, h, 1) + y_offset
        x = torch.arange(w, device=f.device, dtype=f.dtype).view(1, 1, 1, w)
        x = x + torch.linspace(-center, center, k, device=f.device, dtype=f.dtype).view(1, k, 1, 1)
        x = x.expand(b, k, h, w)
        grid = torch.stack([2 * x / (w - 1) - 1, 2 * y / (h - 1) - 1], dim=-1)
        grid = grid.permute(0, 2, 1, 3, 4).reshape(b, h * k, w, 2)
        deformed = F.grid_sample(f, grid, mode="bilinear", padding_mode="zeros", align_corners=True)
        return F.relu(self.gn(self.conv(deformed)))


def snakes(place: Place) -> Made:
    c, n = place.size(8, 32), place.size(16, 96)
    return SnakeConvolution(c, c, place.size(5, 9)).to(place.device), (
        place.randn(place.size(1, 4), c, n, n).requires_grad_(),
    )


class WaveletConvolution(nn.Module):
    """WTConv (Finder et al., 2024): small kernels on Haar's bands, level by level, and back."""

    def __init__(self, channels: int, levels: int) -> None:
        super().__init__()
        self.levels = levels
        low, high = torch.tensor([1.0, 1.0]) / 2**0.5, torch.tensor([1.0, -1.0]) / 2**0.5
        bank = torch.stack([torch.outer(a, b) for a in (low, high) for b in (low, high)])
        self.register_buffer("bank", bank[:, None].repeat(channels, 1, 1, 1))
        self.base_conv = nn.Conv2d(channels, channels, 5, padding="same", groups=channels)
        self.wavelet_convs = nn.ModuleList(
            nn.Conv2d(4 * channels, 4 * channels, 5, padding="same", groups=4 * channels, bias=False)
            for _ in range(levels)
        )
        self.scales = nn.ParameterList(nn.Parameter(torch.full((1, 4 * channels, 1, 1), 0.1)) for _ in range(levels))

    def forward(self, x: Tensor) -> Tensor:
        b, c, _, _ = x.shape
        ll, lows, highs, shapes = x, [], [], []
        for i in range(self.levels):
            shapes.append(ll.shape)
            if ll.shape[2] % 2 or ll.shape[3] % 2:
                ll = F.pad(ll, (0, ll.shape[3] % 2, 0, ll.shape[2] % 2))
            bands = F.conv2d(ll, self.bank, stride=2, groups=c).view(b, c, 4, -(-ll.shape[2] // 2), -1)
            ll = bands[:, :, 0]
            h, w = bands.shape[3:]
            tagged = self.scales[i] * self.wavelet_convs[i](bands.reshape(b, 4 * c, h, w))
            tagged = tagged.view(b, c, 4, h, w)
            lows.append(tagged[:, :, 0])
            highs.append(tagged[:, :, 1:4])
        next_ll: Any = 0
        for _ in range(self.levels):
            bands = torch.cat([(lows.pop() + next_ll).unsqueeze(2), highs.pop()], dim=2)
            next_ll = F.conv_transpose2d(bands.flatten(1, 2), self.bank, stride=2, groups=c)
            shape = shapes.pop()
            next_ll = next_ll[:, :, : shape[2], : shape[3]]
        return self.base_conv(x) + next_ll


def wavelet_convolution(place: Place) -> Made:
    c, n = place.size(8, 64), place.size(22, 54)
    return WaveletConvolution(c, 3).to(place.device), (place.randn(place.size(1, 16), c, n, n).requires_grad_(),)


class VideoStem(nn.Module):
    """R(2+1)D's stem and a block: kernels of space, then kernels of time, odd strides, channels in groups."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.space = nn.Conv3d(3, 45, (1, 7, 7), stride=(1, 2, 2), padding=(0, 3, 3), bias=False)
        self.time = nn.Conv3d(45, width, (3, 1, 1), stride=(2, 1, 1), padding=(1, 0, 0), bias=False)
        self.bn1, self.bn2 = nn.BatchNorm3d(45), nn.BatchNorm3d(width)
        self.space2 = nn.Conv3d(width, width, (1, 3, 3), stride=(1, 3, 2), padding=(0, 1, 1), groups=width // 8)
        self.time2 = nn.Conv3d(width, width, (5, 1, 1), padding=(4, 0, 0), dilation=(2, 1, 1), groups=4)
        self.shuffle_groups = 4
        self.pool = nn.MaxPool3d((1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))

    def forward(self, clip: Tensor) -> Tensor:
        x = clip.to(self.space.weight.dtype).div(255).sub(0.45).div(0.225).permute(0, 4, 1, 2, 3)
        x = F.relu_(self.bn1(self.space(x)))
        x = self.pool(F.relu_(self.bn2(self.time(x))))
        y = F.silu(self.space2(x))
        b, c, t, h, w = y.shape
        y = y.view(b, self.shuffle_groups, c // self.shuffle_groups, t, h, w).transpose(1, 2).reshape(b, c, t, h, w)
        y = self.time2(y)
        gate = torch.sigmoid(y.mean(dim=(3, 4), keepdim=True))
        return (y * gate).amax(dim=(3, 4)).transpose(1, 2)


def video_stem(place: Place) -> Made:
    n, frames = place.size(32, 112), place.size(4, 16)
    clip = place.randint(256, place.size(1, 4), frames, n, n + 16, 3).to(torch.uint8)
    return VideoStem(place.size(16, 64)).to(place.device).eval(), (clip,)


class ReversibleFunction(torch.autograd.Function):
    """RevNet's stack (Gomez et al., 2017): no activation is kept; the backward computes inputs from outputs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, depth: int, *weights: Tensor) -> Tensor:
        x1, x2 = x.chunk(2, dim=-1)
        for i in range(depth):
            x1 = x1 + torch.tanh(x2 @ weights[2 * i])
            x2 = x2 + torch.tanh(x1 @ weights[2 * i + 1])
        y = torch.cat([x1, x2], dim=-1)
        ctx.depth = depth
        ctx.save_for_backward(y, *weights)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        y, *weights = ctx.saved_tensors
        y1, y2 = y.chunk(2, dim=-1)
        d1, d2 = grad.chunk(2, dim=-1)
        grads: list[Any] = [None] * len(weights)
        for i in reversed(range(ctx.depth)):
            g = torch.tanh(y1 @ weights[2 * i + 1])
            y2 = y2 - g
            dg = d2 * (1 - g * g)
            grads[2 * i + 1] = y1.flatten(0, -2).T @ dg.flatten(0, -2)
            d1 = d1 + dg @ weights[2 * i + 1].T
            f = torch.tanh(y2 @ weights[2 * i])
            y1 = y1 - f
            df = d1 * (1 - f * f)
            grads[2 * i] = y2.flatten(0, -2).T @ df.flatten(0, -2)
            d2 = d2 + df @ weights[2 * i].T
        return torch.cat([d1, d2], dim=-1), None, *grads


class ReversibleStack(nn.Module):
    """Such a stack between two projections."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.inner = nn.ParameterList(
            nn.Parameter(torch.randn(width, width) / math.sqrt(width)) for _ in range(2 * depth)
        )
        self.into, self.out = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(ReversibleFunction.apply(self.into(x), self.depth, *self.inner))


def reversible_stack(place: Place) -> Made:
    width, depth = place.size(32, 512), place.size(3, 8)
    return ReversibleStack(width, depth).to(place.device), (
        place.randn(place.size(2, 8), place.size(20, 512), width).requires_grad_(),
    )


ROWS: tuple[Row, ...] = (
    Row("program/volume_response_block", volumes, "training"),
    Row("program/recursive_gated_convolution", recursive_gates, "training", autocast=torch.bfloat16),
    Row("program/focal_modulation", focal_modulation, autocast=torch.float16),
    Row("program/selective_large_kernels", selective_kernels, "training"),
    Row("program/phase_aware_tokens", phase_aware, "training"),
    Row("program/cross_scan_state_space", cross_scan),
    Row("program/chebyshev_edge_network", chebyshev_network, "training"),
    Row("program/snake_convolution", snakes, "training"),
    Row("program/wavelet_domain_convolution", wavelet_convolution, "training"),
    Row("program/factorised_video_stem", video_stem, autocast=torch.bfloat16),
    Row("program/reversible_residual_stack", reversible_stack, "training"),
)
