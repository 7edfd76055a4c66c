"""State-space models, linear attention and other recurrences along time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def selective_scan(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """Mamba's reference: u, delta (b, l, d); A (d, n); B, C (b, l, n)."""
    b, length, d = u.shape
    dA = torch.exp(torch.einsum("bld,dn->bldn", delta, A))
    dBu = torch.einsum("bld,bln,bld->bldn", delta, B, u)
    x = torch.zeros(b, d, A.shape[1], dtype=u.dtype, device=u.device)
    ys = []
    for i in range(length):
        x = dA[:, i] * x + dBu[:, i]
        ys.append(torch.einsum("bdn,bn->bd", x, C[:, i]))
    return torch.stack(ys, dim=1) + u * D


class MambaBlock(nn.Module):
    """A small selective state-space block: gate, causal depthwise convolution, scan."""

    def __init__(self, d: int, n: int = 8) -> None:
        super().__init__()
        self.n = n
        self.in_proj = nn.Linear(d, 2 * d, bias=False)
        self.conv = nn.Conv1d(d, d, 4, groups=d, padding=3)
        self.x_proj = nn.Linear(d, 2 * n + 1, bias=False)
        self.dt_proj = nn.Linear(1, d)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, n + 1).float()).repeat(d, 1))
        self.D = nn.Parameter(torch.ones(d))
        self.out_proj = nn.Linear(d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        x, gate = self.in_proj(x).chunk(2, dim=-1)
        x = F.silu(self.conv(x.transpose(1, 2))[..., :length].transpose(1, 2))
        dt, B, C = self.x_proj(x).split([1, self.n, self.n], dim=-1)
        y = selective_scan(x, F.softplus(self.dt_proj(dt)), -torch.exp(self.A_log), B, C, self.D)
        return self.out_proj(y * F.silu(gate))


def mamba(place: Place) -> Made:
    d = place.size(64, 512)
    return MambaBlock(d).to(place.device), (place.randn(place.size(2, 16), 32, d),)


def s4d_kernel(A_real: Tensor, A_imag: Tensor, C: Tensor, log_dt: Tensor, length: int) -> Tensor:
    """S4D's convolution kernel with real arithmetic: C (h, n, 2) is the complex one."""
    dt = log_dt.exp()[:, None]
    decay = -A_real.exp() * dt
    turn = A_imag * dt
    t = torch.arange(length, device=C.device, dtype=C.dtype)
    size = torch.exp(decay[..., None] * t)
    angle = turn[..., None] * t
    real, imag = C[..., 0, None], C[..., 1, None]
    return 2 * (size * (real * torch.cos(angle) - imag * torch.sin(angle))).sum(1)


class S4D(nn.Module):
    """A diagonal state space as a long convolution by FFT, twice as long against wrapping."""

    def __init__(self, h: int, n: int = 16) -> None:
        super().__init__()
        self.A_real = nn.Parameter(torch.log(0.5 * torch.ones(h, n)))
        self.A_imag = nn.Parameter(torch.pi * torch.arange(n).float().repeat(h, 1))
        self.C = nn.Parameter(torch.randn(h, n, 2) * 0.3)
        self.log_dt = nn.Parameter(torch.rand(h) * 4 - 7)
        self.D = nn.Parameter(torch.randn(h))
        self.out = nn.Conv1d(h, 2 * h, 1)

    def forward(self, u: Tensor) -> Tensor:
        length = u.size(-1)
        k = s4d_kernel(self.A_real, self.A_imag, self.C, self.log_dt, length)
        k_f = torch.fft.rfft(k, n=2 * length)
        u_f = torch.fft.rfft(u, n=2 * length)
        y = torch.fft.irfft(u_f * k_f, n=2 * length)[..., :length]
        y = F.gelu(y + u * self.D.unsqueeze(-1))
        return F.glu(self.out(y), dim=1)


def s4(place: Place) -> Made:
    h, length = place.size(32, 256), place.size(512, 4096)
    return S4D(h).to(place.device), (place.randn(place.size(2, 16), h, length),)


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Katharopoulos et al., 2020: the recurrent form, a matrix of state per head."""
    q, k = F.elu(q) + 1, F.elu(k) + 1
    b, h, t, d = q.shape
    state = q.new_zeros(b, h, d, v.shape[-1])
    norm = q.new_zeros(b, h, d)
    out = torch.empty_like(v)
    for i in range(t):
        state = state + k[:, :, i, :, None] * v[:, :, i, None, :]
        norm = norm + k[:, :, i]
        top = torch.einsum("bhd,bhde->bhe", q[:, :, i], state)
        out[:, :, i] = top / (torch.einsum("bhd,bhd->bh", q[:, :, i], norm)[..., None] + 1e-6)
    return out


def linear_attention_recurrence(place: Place) -> Made:
    shape = place.size(2, 16), place.size(4, 16), 32, place.size(32, 64)
    return linear_attention, (place.randn(*shape), place.randn(*shape), place.randn(*shape))


def retention(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    """Gated retention in its parallel form: decays from differences of a cumulative sum."""
    cumulative = torch.cumsum(F.logsigmoid(log_decay), dim=-1)
    between = cumulative.unsqueeze(-1) - cumulative.unsqueeze(-2)
    t = q.shape[-2]
    causal = torch.ones(t, t, dtype=torch.bool, device=q.device).tril()
    decay = torch.exp(between.masked_fill(~causal, float("-inf")))
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5 * decay
    scores = scores / scores.abs().sum(-1, keepdim=True).clamp(min=1)
    return scores @ v


def gated_retention(place: Place) -> Made:
    b, h, t, d = place.size(2, 8), 4, place.size(128, 1024), 64
    q, k, v = (place.randn(b, h, t, d).requires_grad_() for _ in range(3))
    return retention, (q, k, v, (place.randn(b, h, t) + 3).requires_grad_())


def associative_scan(a: Tensor, b: Tensor) -> Tensor:
    """h[t] = a[t] h[t-1] + b[t] by Hillis and Steele: log2(T) sweeps of shifts."""
    step = 1
    while step < a.shape[1]:
        shifted_a = F.pad(a[:, :-step], (0, 0, step, 0), value=1.0)
        shifted_b = F.pad(b[:, :-step], (0, 0, step, 0), value=0.0)
        a, b = a * shifted_a, a * shifted_b + b
        step *= 2
    return b


class MinGRU(nn.Module):
    """Feng et al., 2024: a GRU whose gates do not see the state, so a scan computes it."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        z = torch.sigmoid(self.gate(x))
        return associative_scan(1 - z, z * self.value(x))


def min_gru(place: Place) -> Made:
    d = place.size(64, 512)
    return MinGRU(d).to(place.device), (place.randn(place.size(2, 16), place.size(128, 1024), d),)


def double_ema(x: Tensor, alpha: float = 0.3, beta: float = 0.1) -> tuple[Tensor, Tensor]:
    """Holt's exponential smoothing along time, written into preallocated results."""
    smooth, trend = torch.zeros_like(x), torch.zeros_like(x)
    smooth[:, 0] = x[:, 0]
    trend[:, 0] = x[:, 1] - x[:, 0]
    for t in range(1, x.shape[1]):
        level = smooth[:, t - 1] + trend[:, t - 1]
        smooth[:, t] = alpha * x[:, t] + (1 - alpha) * level
        trend[:, t] = beta * (smooth[:, t] - smooth[:, t - 1]) + (1 - beta) * trend[:, t - 1]
    return smooth, trend


def holt_smoothing(place: Place) -> Made:
    return double_ema, (place.randn(place.size(4096, 500_000), 24),)


class RWKVTimeMix(nn.Module):
    """RWKV-4's WKV recurrence, with the running maximum for stability."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.linspace(-2, 1, d))
        self.first = nn.Parameter(torch.zeros(d))
        self.mix = nn.Parameter(torch.full((d,), 0.5))
        self.key, self.value, self.receptance = (nn.Linear(d, d, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        before = F.pad(x, (0, 0, 1, -1))
        mixed = x * self.mix + before * (1 - self.mix)
        k, v, r = self.key(mixed), self.value(mixed), torch.sigmoid(self.receptance(mixed))
        w = -torch.exp(self.decay)
        top = bottom = torch.zeros_like(x[:, 0])
        largest = torch.full_like(top, -1e30)
        outputs = []
        for kt, vt in zip(k.unbind(1), v.unbind(1), strict=True):
            m = torch.maximum(largest, self.first + kt)
            old, new = torch.exp(largest - m), torch.exp(self.first + kt - m)
            outputs.append((old * top + new * vt) / (old * bottom + new))
            m = torch.maximum(largest + w, kt)
            old, new = torch.exp(largest + w - m), torch.exp(kt - m)
            top, bottom, largest = old * top + new * vt, old * bottom + new, m
        return r * torch.stack(outputs, 1)


def rwkv(place: Place) -> Made:
    d = place.size(128, 1024)
    return RWKVTimeMix(d).to(place.device), (place.randn(place.size(4, 64), 32, d),)


ROWS: tuple[Row, ...] = (
    Row("program/mamba_block", mamba, "training"),
    Row("program/s4d_convolution", s4, "training"),
    Row("program/linear_attention_recurrence", linear_attention_recurrence),
    Row("program/gated_retention", gated_retention, "training"),
    Row("program/min_gru_scan", min_gru, "training"),
    Row("program/holt_smoothing", holt_smoothing),
    Row("program/rwkv_time_mix", rwkv),
)
