"""Compression: quantised latents, learnt entropy models, wavelets, block motion, bits of run lengths."""

from __future__ import annotations

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class VectorQuantiser(nn.Module):
    """VQ-VAE-2's layer: the codebook is a moving average of what chose each code, dead codes are revived; in place."""

    def __init__(self, codes: int, d: int, decay: float = 0.99) -> None:
        super().__init__()
        self.decay, self.codes = decay, codes
        self.into, self.out = nn.Conv2d(d, d, 1), nn.Conv2d(d, d, 1)
        embed = torch.randn(codes, d)
        self.register_buffer("embed", embed)
        self.register_buffer("size", torch.ones(codes))
        self.register_buffer("total", embed.clone())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = self.into(x).permute(0, 2, 3, 1)
        flat = z.flatten(0, 2)
        distance = flat.square().sum(1, keepdim=True) - 2 * flat @ self.embed.T + self.embed.square().sum(1)
        index = distance.argmin(1)
        one_hot = F.one_hot(index, self.codes).to(flat.dtype)
        quantised = F.embedding(index, self.embed).view_as(z)
        with torch.no_grad():
            self.size.mul_(self.decay).add_(one_hot.sum(0), alpha=1 - self.decay)
            self.total.mul_(self.decay).add_(one_hot.T @ flat, alpha=1 - self.decay)
            n = self.size.sum()
            smoothed = (self.size + 1e-5) / (n + self.codes * 1e-5) * n
            fresh = self.total / smoothed[:, None]
            dead = self.size < 0.9
            fresh[dead] = flat[: self.codes][dead]
            self.embed.copy_(fresh)
        commitment = F.mse_loss(z, quantised.detach())
        usage = one_hot.mean(0)
        perplexity = torch.exp(-(usage * torch.log(usage + 1e-10)).sum())
        straight = z + (quantised - z).detach()
        reconstruction = self.out(straight.permute(0, 3, 1, 2))
        return F.mse_loss(reconstruction, x) + 0.25 * commitment, perplexity, index


def vector_quantiser(place: Place) -> Made:
    b, d, n, codes = place.size(2, 16), place.size(16, 64), place.size(20, 32), place.size(256, 1024)
    return VectorQuantiser(codes, d).to(place.device), (place.randn(b, d, n, n),)


class FiniteScalar(nn.Module):
    """Mentzer et al., 2024: a few levels per channel by bounded rounding; indices as mixed-radix numbers, and back."""

    def __init__(self, d: int, levels: tuple[int, ...] = (8, 5, 5, 5)) -> None:
        super().__init__()
        self.register_buffer("levels", torch.tensor(levels))
        self.register_buffer("basis", torch.tensor([1, *levels[:-1]]).cumprod(0))
        self.encoder = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, len(levels)))
        self.decoder = nn.Sequential(nn.Linear(len(levels), 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = self.encoder(x)
        half = (self.levels - 1) * (1 - 1e-3) / 2
        offset = torch.where(self.levels % 2 == 1, 0.0, 0.5)
        shift = torch.tan(offset / half)
        bounded = torch.tanh(z + shift) * half - offset
        rounded = bounded + (bounded.round() - bounded).detach()
        codes = rounded / (self.levels // 2)
        index = ((codes.detach() * (self.levels // 2) + self.levels // 2).round().long() * self.basis).sum(-1)
        counts = torch.bincount(index.flatten(), minlength=int(self.levels.prod()))
        back = (index[..., None] // self.basis) % self.levels
        again = (back - self.levels // 2) / (self.levels // 2)
        y = self.decoder(codes)
        return F.mse_loss(y, x), (again - codes.detach()).abs().max(), (counts > 0).sum()


def finite_scalar(place: Place) -> Made:
    n, d = place.size(2000, 65_536), place.size(32, 128)
    return FiniteScalar(d).to(place.device), (place.randn(n, d),)


class DivisiveNorm(nn.Module):
    """Ballé et al.'s generalised divisive normalisation."""

    def __init__(self, channels: int, inverse: bool = False) -> None:
        super().__init__()
        self.inverse = inverse
        self.beta = nn.Parameter(torch.ones(channels))
        self.gamma = nn.Parameter(0.1 * torch.eye(channels) + 0.01 * torch.rand(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        norm = F.conv2d(x**2, self.gamma.abs()[:, :, None, None], self.beta.abs())
        return x * torch.sqrt(norm) if self.inverse else x * torch.rsqrt(norm)


class Hyperprior(nn.Module):
    """Minnen et al., 2018, in small: uniform noise, a factorised prior of cumulative networks, Gaussians."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        c = channels
        self.analysis = nn.Sequential(nn.Conv2d(3, c, 5, 2, 2), DivisiveNorm(c), nn.Conv2d(c, c, 5, 2, 2))
        self.synthesis = nn.Sequential(
            nn.ConvTranspose2d(c, c, 5, 2, 2, 1), DivisiveNorm(c, inverse=True), nn.ConvTranspose2d(c, 3, 5, 2, 2, 1)
        )
        self.hyper_in = nn.Sequential(nn.Conv2d(c, c, 3, 1, 1), nn.LeakyReLU(), nn.Conv2d(c, c, 5, 2, 2))
        self.hyper_out = nn.Sequential(
            nn.ConvTranspose2d(c, c, 5, 2, 2, 1), nn.LeakyReLU(), nn.Conv2d(c, 2 * c, 3, 1, 1)
        )
        sizes = (1, 3, 3, 1)
        self.matrices = nn.ParameterList(nn.Parameter(torch.randn(c, b, a) * 0.5) for a, b in itertools.pairwise(sizes))
        self.biases = nn.ParameterList(nn.Parameter(torch.rand(c, b, 1) - 0.5) for b in sizes[1:])
        self.factors = nn.ParameterList(nn.Parameter(torch.zeros(c, b, 1)) for b in sizes[1:-1])

    def cumulative(self, x: Tensor) -> Tensor:
        for i, (matrix, bias) in enumerate(zip(self.matrices, self.biases, strict=True)):
            x = F.softplus(matrix) @ x + bias
            if i < len(self.factors):
                x = x + torch.tanh(self.factors[i]) * torch.tanh(x)
        return x

    def forward(self, image: Tensor, noise_y: Tensor, noise_z: Tensor) -> tuple[Tensor, Tensor]:
        y = self.analysis(image)
        z = self.hyper_in(y) + noise_z
        flat = z.transpose(0, 1).flatten(1)[:, None]
        lower, upper = self.cumulative(flat - 0.5), self.cumulative(flat + 0.5)
        sign = -torch.sign(lower + upper).detach()
        p_z = (torch.sigmoid(sign * upper) - torch.sigmoid(sign * lower)).abs().clamp(min=1e-6)
        mean, scale = self.hyper_out(z).chunk(2, dim=1)
        scale = F.softplus(scale).clamp(min=0.11)
        away = (y + noise_y - mean).abs()
        p_y = 0.5 * (torch.erfc((away - 0.5) / scale / 2**0.5) - torch.erfc((away + 0.5) / scale / 2**0.5))
        bits = -torch.log2(p_y.clamp(min=1e-6)).sum() - torch.log2(p_z).sum()
        restored = self.synthesis(y + noise_y)
        rate = bits / (image.size(0) * image.size(2) * image.size(3))
        return rate, 0.01 * 255**2 * F.mse_loss(restored, image)


def hyperprior(place: Place) -> Made:
    b, n, c = place.size(1, 8), place.size(48, 256), place.size(8, 64)
    return Hyperprior(c).to(place.device), (
        place.rand(b, 3, n, n),
        place.rand(b, c, n // 4, n // 4) - 0.5,
        place.rand(b, c, n // 8, n // 8) - 0.5,
    )


def lift(x: Tensor) -> tuple[Tensor, Tensor]:
    """One level of the 9/7 wavelet along the last dimension, by lifting with mirrored borders."""
    even, odd = x[..., 0::2], x[..., 1::2]
    for a, b in ((-1.586134342, -0.052980118), (0.882911076, 0.443506852)):
        odd = odd + a * (even + torch.cat([even[..., 1:], even[..., -1:]], dim=-1))
        even = even + b * (odd + torch.cat([odd[..., :1], odd[..., :-1]], dim=-1))
    return even * 1.149604398, odd / 1.149604398


def unlift(low: Tensor, high: Tensor) -> Tensor:
    """Its inverse."""
    even, odd = low / 1.149604398, high * 1.149604398
    for a, b in ((0.882911076, 0.443506852), (-1.586134342, -0.052980118)):
        even = even - b * (odd + torch.cat([odd[..., :1], odd[..., :-1]], dim=-1))
        odd = odd - a * (even + torch.cat([even[..., 1:], even[..., -1:]], dim=-1))
    return torch.stack([even, odd], dim=-1).flatten(-2)


def wavelet_codec(image: Tensor, levels: int = 3, step: float = 0.06) -> tuple[Tensor, Tensor, Tensor]:
    """JPEG 2000's transform: three levels, a dead zone, significance by bit plane, the picture back, its PSNR."""
    low, bands = image - 0.5, []
    for _ in range(levels):
        a, b = lift(low)
        ll, lh = lift(a.mT)
        hl, hh = lift(b.mT)
        bands.append((lh.mT, hl.mT, hh.mT))
        low = ll.mT
    significant = image.new_zeros(image.size(0), 8)
    quantised = []
    for level, parts in enumerate(bands):
        kept = []
        for band in parts:
            q = torch.sign(band) * torch.floor(band.abs() * 2**level / step)
            planes = torch.stack([(q.abs() >= 2**k).to(image.dtype).sum((1, 2)) for k in range(8)], dim=-1)
            significant = significant + planes
            kept.append(torch.sign(q) * (q.abs() + 0.5 * (q != 0)) * step / 2**level)
        quantised.append(kept)
    for lh, hl, hh in reversed(quantised):
        a = unlift(low.mT, lh.mT).mT
        b = unlift(hl.mT, hh.mT).mT
        low = unlift(a, b)
    restored = (low + 0.5).clamp(0, 1)
    psnr = -10 * torch.log10((restored - image).square().mean((1, 2)))
    return restored, psnr, significant


def wavelets(place: Place) -> Made:
    b, n = place.size(2, 16), place.size(128, 1024)
    return wavelet_codec, (F.avg_pool2d(place.rand(b, n + 2, n + 2), 3, 1),)


def block_motion(now: Tensor, before: Tensor, block: int, reach: int) -> tuple[Tensor, Tensor, Tensor]:
    """Full search by sums of absolute differences with a rate for long vectors; then the compensated residual."""
    b, h, w = now.shape
    padded = F.pad(before[:, None], (reach,) * 4, mode="replicate").squeeze(1)
    rows, columns = h // block, w // block
    costs, offsets = [], []
    for dy in range(-reach, reach + 1):
        for dx in range(-reach, reach + 1):
            moved = padded[:, reach + dy : reach + dy + h, reach + dx : reach + dx + w]
            sad = (now - moved).abs().view(b, rows, block, columns, block).sum((2, 4))
            costs.append(sad + (abs(dy) + abs(dx)) * 4)
            offsets.append((dy, dx))
    best, index = torch.stack(costs).min(dim=0)
    vector = torch.tensor(offsets, device=now.device)[index]
    dense = vector.repeat_interleave(block, 1).repeat_interleave(block, 2)
    y = torch.arange(h, device=now.device)[:, None] + reach + dense[..., 0]
    x = torch.arange(w, device=now.device) + reach + dense[..., 1]
    frame = torch.arange(b, device=now.device)[:, None, None]
    return vector, best, now - padded[frame, y, x]


def motion(place: Place) -> Made:
    b, n, reach = place.size(1, 4), place.size(128, 512), place.size(4, 7)
    before = place.randint(1 << 14, b, n, n).float() / 64
    now = before.roll((2, -3), dims=(1, 2)) + place.randint(8, b, n, n).float()
    return block_motion, (now, before, 16, reach)


def entropy_bits(image: Tensor, table: Tensor, zigzag: Tensor, basis: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How many bits a baseline coder takes: zigzag order, runs of zeros, size categories, the symbols' entropy."""
    b, h, w = image.shape
    blocks = image.view(b, h // 8, 8, w // 8, 8).permute(0, 1, 3, 2, 4).flatten(1, 2)
    coefficients = basis @ (blocks - 128) @ basis.T
    levels = torch.round(coefficients / table).long().flatten(-2)[..., zigzag]
    dc = levels[..., 0]
    dc = torch.cat([dc[:, :1], dc[:, 1:] - dc[:, :-1]], dim=1)

    def category(value: Tensor) -> Tensor:
        size = torch.zeros_like(value)
        for k in range(11):
            size += value.abs() >= (1 << k)
        return size

    ac = levels[..., 1:]
    nonzero = ac != 0
    position = torch.arange(1, 64, device=image.device)
    last = torch.cummax(torch.where(nonzero, position, 0), dim=-1).values
    previous = F.pad(last[..., :-1], (1, 0))
    run = position - previous - 1
    symbol = torch.where(nonzero, (run % 16) * 16 + category(ac), 0)
    histogram = torch.zeros(b, 256, dtype=torch.int64, device=image.device)
    histogram.scatter_add_(1, symbol.flatten(1), nonzero.flatten(1).long())
    ends = (last[..., -1] < 63).sum(1)
    kind = torch.get_default_dtype()
    counts = torch.cat([histogram, ends[:, None]], dim=1).to(kind)
    p = counts / counts.sum(1, keepdim=True)
    code = -(counts * torch.log2(p.clamp(min=1e-12))).sum(1)
    extra = (category(ac) * nonzero).sum((1, 2)) + category(dc).sum(1) + (run // 16 * 11 * nonzero).sum((1, 2))
    return code + extra, histogram, ends


def run_lengths(place: Place) -> Made:
    k = torch.arange(8)
    basis = torch.cos((2 * k + 1) * k[:, None] * math.pi / 16) / 2
    basis[0] /= 2**0.5
    order = sorted(range(64), key=lambda i: (i // 8 + i % 8, (i // 8 if (i // 8 + i % 8) % 2 else i % 8)))
    table = 10.0 + 7 * (k + k[:, None])
    b, n = place.size(2, 16), place.size(96, 512)
    image = F.avg_pool2d(255 * place.rand(b, n + 2, n + 2), 3, 1)
    return entropy_bits, (
        image,
        table.to(place.device),
        torch.tensor(order, device=place.device),
        basis.to(place.device),
    )


ROWS: tuple[Row, ...] = (
    Row("program/moving_average_codebook", vector_quantiser, "training"),
    Row("program/finite_scalar_quantiser", finite_scalar, "training"),
    Row("program/scale_hyperprior", hyperprior, "training"),
    Row("program/wavelet_codec", wavelets),
    Row("program/block_motion_search", motion),
    Row("program/run_length_entropy", run_lengths),
)
