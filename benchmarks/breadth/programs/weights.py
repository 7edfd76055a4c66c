"""Weights of large models: number formats of small blocks, calibration, pruning, merging; optimisers' small states."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def microscaling(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Open Compute's MX: blocks of 32 share a power of two, elements are e2m1; a product of what is left."""

    def rounded(t: Tensor) -> tuple[Tensor, Tensor]:
        blocks = t.reshape(*t.shape[:-1], -1, 32)
        largest = blocks.abs().amax(-1, keepdim=True).clamp(min=2.0**-126)
        exponent = torch.floor(torch.log2(largest)) - 2
        scaled = (blocks / torch.exp2(exponent)).clamp(-6, 6)
        private = torch.floor(torch.log2(scaled.abs().clamp(min=1e-8))).clamp(min=0)
        step = torch.exp2(private - 1)
        value = torch.round(scaled / step) * step
        return (value * torch.exp2(exponent)).reshape(t.shape), (exponent + 127).to(torch.uint8).squeeze(-1)

    x_rounded, x_scales = rounded(x)
    w_rounded, _ = rounded(weight)
    return x_rounded @ w_rounded.t(), (x - x_rounded).abs().mean(-1), x_scales


def mx(place: Place) -> Made:
    n, width = place.size(64, 4096), place.size(128, 2048)
    return microscaling, (place.randn(n, width), place.randn(width, width) / 40)


def stochastic_rounding(weight: Tensor, gradient: Tensor, m: Tensor, v: Tensor, noise: Tensor) -> Tensor:
    """AdamW whose weights are bfloat16 without a float32 copy: noise under the bits that are cut off."""
    g = gradient.float()
    first = torch.lerp(m.float(), g, 0.1)
    second = (0.99 * v.float()).addcmul_(g, g, value=0.01)
    m.copy_(first)
    v.copy_(second)
    denominator = (second / (1 - 0.99**10)).sqrt_().add_(1e-8)
    new = weight.float() * (1 - 1e-4) - 1e-3 * (first / (1 - 0.9**10)) / denominator
    bits = new.view(torch.int32)
    bits = (bits + noise) & -65536
    weight.copy_(bits.view(torch.float32))
    return (weight.float() - new).abs().amax()


def bf16_weights(place: Place) -> Made:
    n = place.size(50_000, 16_777_216)
    noise = place.randint(65_536, n).int()
    return stochastic_rounding, (place.randn(n), place.randn(n), 0.1 * place.randn(n), place.rand(n), noise)


def group_rounding(weight: Tensor, bits: int, group: int) -> Tensor:
    w = weight.reshape(-1, group)
    high, low = w.amax(1, keepdim=True), w.amin(1, keepdim=True)
    scale = (high - low).clamp(min=1e-5) / (2**bits - 1)
    zero = (-torch.round(low / scale)).clamp(0, 2**bits - 1)
    codes = torch.clamp(torch.round(w / scale) + zero, 0, 2**bits - 1)
    return ((codes - zero) * scale).reshape(weight.shape)


def activation_aware(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Lin and others, 2024 (AWQ): which power of activations' sizes scales channels best before rounding to 4 bits."""
    reference = x @ weight.t()
    size = x.abs().mean(0)
    errors, scales = [], []
    for i in range(12):
        s = size.pow(i / 12).clamp(min=1e-4)
        s = s / (s.max() * s.min()).sqrt()
        approximate = x @ (group_rounding(weight * s, 4, 64) / s).t()
        errors.append((reference - approximate).pow(2).mean())
        scales.append(s)
    loss = torch.stack(errors)
    best = loss.argmin()
    return loss, torch.stack(scales)[best]


def awq(place: Place) -> Made:
    n, width = place.size(32, 512), place.size(64, 2048)
    return activation_aware, (place.randn(n, width) * (0.2 + 3 * place.rand(width)), place.randn(width, width) / 30)


def entropy_calibration(activations: Tensor) -> tuple[Tensor, Tensor]:
    """TensorRT's choice of a clip: histograms of 1024 bins, folded to 128 levels at each width; divergences."""
    absolute = activations.abs().flatten(1)
    peak = absolute.amax(1, keepdim=True)
    bins = (absolute / peak * 1024).long().clamp(max=1023)
    histogram = torch.zeros(len(absolute), 1024, device=absolute.device)
    histogram.scatter_add_(1, bins, torch.ones_like(absolute))
    divergences = []
    for end in range(256, 1025, 128):
        p = histogram[:, :end].clone()
        p[:, -1] += histogram[:, end:].sum(1)
        chunks = histogram[:, :end].reshape(len(p), 128, -1)
        filled = (chunks > 0).to(p.dtype)
        level = chunks.sum(-1, keepdim=True) / filled.sum(-1, keepdim=True).clamp(min=1)
        q = (level * filled).reshape(p.shape)
        p, q = p / p.sum(1, keepdim=True), (q + 1e-6) / (q + 1e-6).sum(1, keepdim=True)
        divergences.append(torch.xlogy(p, p).sum(1) - (p * q.log()).sum(1))
    divergence = torch.stack(divergences, 1)
    return divergence, peak.squeeze(1) * (256 + 128 * divergence.argmin(1)) / 1024


def calibration(place: Place) -> Made:
    return entropy_calibration, (place.randn(place.size(4, 64), place.size(10_000, 262_144)),)


def half_quadratic(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Badri and Shaji, 2023 (HQQ): zero points by shrinking what rounding leaves, a few times."""
    w = weight.reshape(-1, 64)
    low, high = w.amin(1, keepdim=True), w.amax(1, keepdim=True)
    scale = (7 / (high - low)).clamp(max=2e4)
    zero = -low * scale
    beta = 10.0
    for _ in range(10):
        codes = torch.round(w * scale + zero).clamp(0, 7)
        left = w - (codes - zero) / scale
        shrunk = torch.sign(left) * F.relu(left.abs() - (1 / beta) * left.abs().clamp(min=1e-8).pow(-0.3))
        zero = (codes - (w - shrunk) * scale).mean(1, keepdim=True)
        beta *= 1.01
    codes = torch.round(w * scale + zero).clamp(0, 7).to(torch.uint8)
    return codes, 1 / scale, ((codes - zero) / scale - w).abs().mean()


def hqq(place: Place) -> Made:
    return half_quadratic, (place.randn(place.size(64, 4096), place.size(256, 4096)),)


def two_of_four(weight: Tensor, squares: Tensor, activations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sun and others, 2024 (Wanda): two of four neighbours stay, by size times the activations' norm; packed."""
    metric = (weight.abs() * squares.sqrt()).view(weight.size(0), -1, 4)
    index = metric.topk(2, dim=-1).indices.sort(dim=-1).values
    mask = torch.zeros_like(metric, dtype=torch.bool).scatter_(-1, index, True)
    values = weight.view_as(metric).gather(-1, index)
    meta = (index[..., 0] | (index[..., 1] << 2)).view(weight.size(0), -1, 2)
    packed = (meta[..., 0] | (meta[..., 1] << 4)).to(torch.uint8)
    pruned = weight.masked_fill(~mask.view_as(weight), 0)
    return values.flatten(1), packed, activations @ (weight - pruned).t()


def wanda(place: Place) -> Made:
    width = place.size(128, 4096)
    activations = place.randn(place.size(16, 512), width)
    return two_of_four, (place.randn(width, width), activations.square().mean(0), activations)


def ties(base: Tensor, models: Tensor) -> tuple[Tensor, Tensor]:
    """Yadav and others, 2023: changes are cut to the largest fifth, a sign elected, the mean of those that agree."""
    change = models - base
    kept = int(0.8 * change.size(1))
    threshold = change.abs().kthvalue(kept, dim=1, keepdim=True).values
    trimmed = torch.where(change.abs() >= threshold, change, torch.zeros_like(change))
    sign = torch.sign(trimmed.sum(0))
    sign = torch.where(sign == 0, torch.sign(sign.sum()), sign)
    agree = torch.where(sign > 0, trimmed > 0, trimmed < 0)
    merged = (trimmed * agree).sum(0) / agree.sum(0).clamp(min=1)
    return base + 0.7 * merged, agree.float().mean(1)


def merging(place: Place) -> Made:
    n = place.size(20_001, 1_000_003)
    base = place.randn(n)
    return ties, (base, base + 0.1 * place.randn(5, n))


def eight_bit_adam(weight: Tensor, gradient: Tensor, codes: Tensor, scales: Tensor, table: Tensor) -> Tensor:
    """Dettmers and others, 2022: moments as bytes of a table, a scale for each block of 256; opened, moved, shut."""
    g, table = gradient.float(), table.float()
    m = (table[codes[0].long()].view(-1, 256) * scales[0, :, None]).flatten()
    v = ((table[codes[1].long()].view(-1, 256) * scales[1, :, None]).flatten()).square()
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    weight.add_(m / (v.sqrt() + 1e-8), alpha=-1e-3)
    for k, state in enumerate((m, v.sqrt())):
        blocks = state.view(-1, 256)
        largest = blocks.abs().amax(1).clamp(min=1e-12)
        middles = (table[1:] + table[:-1]) / 2
        codes[k] = torch.bucketize((blocks / largest[:, None]).flatten(), middles).to(torch.uint8)
        scales[k] = largest
    return weight.norm()


def byte_states(place: Place) -> Made:
    n = place.size(16_384, 8_388_608)
    line = torch.linspace(-1, 1, 256, device=place.device)
    table = line.sign() * line.abs() ** 3
    codes = place.randint(256, 2, n).to(torch.uint8)
    return eight_bit_adam, (place.randn(n), place.randn(n), codes, place.rand(2, n // 256) + 0.5, table)


def sophia(weights: list[Tensor], gradients: list[Tensor], momenta: list[Tensor], curvatures: list[Tensor]) -> Tensor:
    """Liu and others, 2023: momentum over the curvature's average, clipped element by element; decay apart."""
    clipped = torch.zeros((), device=weights[0].device)
    for w, g, m, h in zip(weights, gradients, momenta, curvatures, strict=True):
        m.mul_(0.965).add_(g, alpha=0.035)
        h.mul_(0.99).addcmul_(g, g, value=0.01 * 480)
        ratio = (m.abs() / (0.05 * h + 1e-15)).clamp(None, 1)
        w.mul_(1 - 6e-4 * 0.1)
        w.addcmul_(m.sign(), ratio, value=-6e-4)
        clipped = clipped + (ratio == 1).sum()
    return clipped / sum(w.numel() for w in weights)


def sophia_step(place: Place) -> Made:
    width = place.size(64, 1024)
    shapes = [(width, width), (4 * width, width), (width,), (width, 4 * width), (3 * width, width), (width,)] * 2
    lists = [[place.randn(*s) for s in shapes] for _ in range(3)]
    return sophia, (*lists, [place.rand(*s) for s in shapes])


class AdditiveCodes(nn.Module):
    """Egiazarian and others, 2024 (AQLM): eight weights at a time are a sum of entries of two learnt books."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randint(256, (outputs, inputs // 8, 2), dtype=torch.uint8))
        self.books = nn.Parameter(torch.randn(2, 256, 8) / 8)
        self.scales = nn.Parameter(torch.rand(outputs, 1, 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        codes = self.codes.int()
        weight = self.books[0][codes[..., 0]] + self.books[1][codes[..., 1]]
        return F.linear(x, (weight * self.scales).flatten(1))


def aqlm(place: Place) -> Made:
    width = place.size(64, 2048)
    layers = nn.Sequential(AdditiveCodes(width, 2 * width), nn.SiLU(), AdditiveCodes(2 * width, width))
    return layers.to(place.device), (place.randn(place.size(16, 256), width),)


ROWS: tuple[Row, ...] = (
    Row("program/microscaling_blocks", mx),
    Row("program/stochastic_rounding_step", bf16_weights, dtype=torch.bfloat16, writes=True),
    Row("program/activation_aware_scales", awq),
    Row("program/entropy_calibration", calibration),
    Row("program/half_quadratic_zero_points", hqq),
    Row("program/two_of_four_pruning", wanda),
    Row("program/elected_sign_merging", merging),
    Row("program/eight_bit_adam", byte_states, dtype=torch.bfloat16, writes=True),
    Row("program/sophia_step", sophia_step, writes=True),
    Row("program/additive_code_books", aqlm, "training", dtype=torch.bfloat16),
)
