"""Matrix products with weights of few bits, dequantised by hand."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class Int8Linear(nn.Module):
    """Weight only, a scale per output channel (gpt-fast's)."""

    weight: Tensor
    scales: Tensor

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (d_out, d_in), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(d_out) / 127 * d_in**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(dtype=x.dtype)) * self.scales


class Int8FeedForward(nn.Module):
    def __init__(self, d: int, hidden: int) -> None:
        super().__init__()
        self.w1, self.w3, self.w2 = Int8Linear(d, hidden), Int8Linear(d, hidden), Int8Linear(hidden, d)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.w2(F.silu(self.w1(x)) * self.w3(x))


def int8_weights(place: Place) -> Made:
    d = place.size(512, 4096)
    return Int8FeedForward(d, 3 * d).to(place.device), (place.randn(place.size(4, 16), d),)


def int4_matmul(x: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor, group: int = 64) -> Tensor:
    """Two nibbles a byte, a scale and a zero for each group of inputs (AWQ, GPTQ)."""
    low, high = packed & 0xF, packed >> 4
    codes = torch.stack((low, high), dim=-1).flatten(-2)
    grouped = codes.view(codes.shape[0], -1, group).to(x.dtype)
    weight = ((grouped - zeros.unsqueeze(-1)) * scales.unsqueeze(-1)).flatten(1)
    return x @ weight.t()


def int4_weights(place: Place) -> Made:
    d, out = place.size(1024, 4096), place.size(1536, 11_008)
    packed = place.randint(256, out, d // 2).to(torch.uint8)
    scales, zeros = 0.01 + 0.01 * place.rand(out, d // 64), place.randint(16, out, d // 64).float()
    return int4_matmul, (place.randn(place.size(4, 16), d), packed, scales, zeros)


def fp8_matmul(x: Tensor, weight: Tensor, scale: Tensor, block: int = 128) -> Tensor:
    """DeepSeek-V3's weights: e4m3 with a scale for each block of 128 x 128."""
    rows, columns = weight.shape
    blocks = weight.to(x.dtype).view(rows // block, block, columns // block, block)
    dequantised = (blocks * scale[:, None, :, None]).reshape(rows, columns)
    return F.linear(x, dequantised)


def fp8_weights(place: Place) -> Made:
    d, out = place.size(512, 4096), place.size(512, 8192)
    weight = place.randn(out, d).to(torch.float8_e4m3fn)
    return fp8_matmul, (place.randn(place.size(4, 16), d), weight, 0.01 + 0.01 * place.rand(out // 128, d // 128))


def nf4_matmul(x: Tensor, packed: Tensor, absmax: Tensor, table: Tensor, bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """QLoRA: codes into a table of normal quantiles, an absolute maximum per 64, and a low-rank adapter."""
    codes = torch.cat([(packed >> 4).long().unsqueeze(-1), (packed & 15).long().unsqueeze(-1)], dim=-1)
    weight = (table[codes].view(-1, 64) * absmax[:, None]).view(bias.shape[0], x.shape[-1])
    return torch.addmm(bias, x, weight.t()) + 2.0 * (x @ a.t()) @ b.t()


def nf4_lora(place: Place) -> Made:
    d, out, rank = place.size(384, 4096), place.size(512, 4096), 16
    table = torch.erfinv(torch.linspace(-0.97, 0.97, 16)).to(place.device)
    return nf4_matmul, (
        place.randn(place.size(64, 2048), d),
        place.randint(256, out * d // 2).to(torch.uint8),
        0.05 * place.rand(out * d // 64),
        table,
        place.randn(out),
        (0.1 * place.randn(rank, d)).requires_grad_(),
        (0.1 * place.randn(out, rank)).requires_grad_(),
    )


class FakeQuantise(nn.Module):
    """Learnt step size (Esser et al., 2020): rounding with a straight-through gradient, weights and activations."""

    def __init__(self, d_in: int, d_out: int, bits: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(d_in, d_out)
        self.step_w, self.step_x = nn.Parameter(torch.tensor(0.02)), nn.Parameter(torch.tensor(0.3))
        self.low, self.high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def quantise(self, v: Tensor, step: Tensor) -> Tensor:
        gradient_scale = (v.numel() * self.high) ** -0.5
        step = step * gradient_scale + (step - step * gradient_scale).detach()
        scaled = (v / step).clamp(self.low, self.high)
        return (scaled + (scaled.round() - scaled).detach()) * step

    def forward(self, x: Tensor) -> Tensor:
        weight = self.quantise(self.linear.weight, self.step_w)
        return torch.relu(F.linear(self.quantise(x, self.step_x), weight, self.linear.bias))


def quantisation_aware(place: Place) -> Made:
    d = place.size(256, 2048)
    return FakeQuantise(d, d).to(place.device), (place.randn(place.size(256, 8192), d),)


class TernaryLinear(nn.Module):
    """BitNet b1.58: RMS norm, activations to 8 bits per token, weights to -1, 0 and 1."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_out, d_in) * d_in**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.rms_norm(x, (x.shape[-1],), eps=1e-6)
        scale = 127.0 / x.abs().max(dim=-1, keepdim=True).values.clamp_(min=1e-5)
        y = (x * scale).round().clamp_(-128, 127) / scale
        w_scale = 1.0 / self.weight.abs().mean().clamp_(min=1e-5)
        w = (self.weight * w_scale).round().clamp_(-1, 1) / w_scale
        return F.linear(x + (y - x).detach(), self.weight + (w - self.weight).detach())


def ternary(place: Place) -> Made:
    d = place.size(256, 2048)
    return TernaryLinear(d, 2 * d).to(place.device), (place.randn(place.size(128, 4096), d),)


ROWS: tuple[Row, ...] = (
    Row("program/int8_feed_forward", int8_weights),
    Row("program/int4_packed_linear", int4_weights),
    Row("program/fp8_block_linear", fp8_weights),
    Row("program/nf4_lora", nf4_lora, "training"),
    Row("program/learnt_step_quantisation", quantisation_aware, "training"),
    Row("program/ternary_linear", ternary, "training"),
)
