"""Diffusion and flow matching: samplers with small denoisers in them, and what trains them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def timestep_embedding(t: Tensor, dim: int, period: float = 10_000.0) -> Tensor:
    """Cosines and sines of time at geometric frequencies."""
    half = dim // 2
    freqs = torch.exp(-math.log(period) * torch.arange(half, dtype=t.dtype, device=t.device) / half)
    angles = t[:, None] * freqs[None]
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """DiT's: a scale and a shift for each sample."""
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class DiTBlock(nn.Module):
    """Attention and an MLP, both modulated and gated by the condition (adaLN-Zero)."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(approximate="tanh"), nn.Linear(4 * d, d))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.modulation(c).chunk(6, dim=1)
        b, n, d = x.shape
        qkv = self.qkv(modulate(self.norm1(x), shift_a, scale_a)).view(b, n, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = x + gate_a.unsqueeze(1) * self.proj(attended)
        return x + gate_m.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift_m, scale_m))


class RectifiedFlow(nn.Module):
    """A diffusion transformer's velocity loss on patches: logit-normal times, dropped labels, Stable Diffusion 3's."""

    def __init__(self, d: int = 128, heads: int = 4, depth: int = 2, channels: int = 4, patch: int = 2) -> None:
        super().__init__()
        self.patch, self.d = patch, d
        self.patchify = nn.Conv2d(channels, d, patch, patch)
        self.time = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d))
        self.label = nn.Embedding(11, d)
        self.blocks = nn.ModuleList(DiTBlock(d, heads) for _ in range(depth))
        self.head = nn.Linear(d, patch * patch * channels)

    def forward(self, x1: Tensor, x0: Tensor, label: Tensor, drop: Tensor, normal: Tensor) -> Tensor:
        t = torch.sigmoid(normal)
        xt = torch.lerp(x0, x1, t[:, None, None, None])
        label = torch.where(drop, 10, label)
        c = self.time(timestep_embedding(1000 * t, self.d)) + self.label(label)
        h = self.patchify(xt)
        height, width = h.shape[-2:]
        h = h.flatten(2).transpose(1, 2)
        for block in self.blocks:
            h = block(h, c)
        v = self.head(h).transpose(1, 2).unflatten(-1, (height, width))
        v = F.pixel_shuffle(v, self.patch)
        weight = 1 / (t * (1 - t)).clamp(min=0.05)
        loss = (v - (x1 - x0)).square().flatten(1).mean(1)
        return (weight * loss).mean()


def rectified_flow(place: Place) -> Made:
    batch, side = place.size(4, 32), place.size(16, 32)
    model = RectifiedFlow(place.size(96, 384), place.size(3, 6), 2).to(place.device)
    return model, (
        place.randn(batch, 4, side, side),
        place.randn(batch, 4, side, side),
        place.randint(10, batch),
        place.rand(batch) < 0.2,
        place.randn(batch),
    )


class Denoiser(nn.Module):
    """A residual MLP on vectors with time and a class, where -1 means none."""

    def __init__(self, data: int, width: int, classes: int = 10) -> None:
        super().__init__()
        self.width = width
        self.into, self.out = nn.Linear(data, width), nn.Linear(width, data)
        self.condition = nn.Embedding(classes + 1, width)
        self.time = nn.Linear(width, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(2)
        )

    def forward(self, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        h = self.into(x) + self.time(timestep_embedding(t, self.width)) + self.condition(label + 1)
        for layer in self.layers:
            h = h + layer(h)
        return self.out(h)


class DpmSolver(nn.Module):
    """DPM-Solver++(2M) over eight log-SNR steps with classifier-free guidance, rescaled as Lin et al. do."""

    def __init__(self, data: int, width: int, steps: int = 8, guidance: float = 4.0) -> None:
        super().__init__()
        self.net = Denoiser(data, width)
        self.steps, self.guidance = steps, guidance

    def predicted(self, x: Tensor, t: Tensor, label: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        both = self.net(torch.cat([x, x]), t.expand(2 * x.size(0)), torch.cat([label, torch.full_like(label, -1)]))
        conditional, unconditional = both.chunk(2)
        eps = unconditional + self.guidance * (conditional - unconditional)
        rescaled = eps * (conditional.std(-1, keepdim=True) / eps.std(-1, keepdim=True))
        eps = 0.7 * rescaled + 0.3 * eps
        return ((x - sigma * eps) / alpha).clamp(-3, 3)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        t = torch.linspace(0.98, 0.02, self.steps + 1, dtype=x.dtype, device=x.device)
        alpha = torch.cos(0.5 * math.pi * t)
        sigma = torch.sin(0.5 * math.pi * t)
        lambdas = torch.log(alpha / sigma)
        old: Tensor | None = None
        for i in range(self.steps):
            x0 = self.predicted(x, 1000 * t[i], label, alpha[i], sigma[i])
            h = lambdas[i + 1] - lambdas[i]
            if old is None or i == self.steps - 1:
                direction = x0
            else:
                r = (lambdas[i] - lambdas[i - 1]) / h
                direction = (1 + 1 / (2 * r)) * x0 - 1 / (2 * r) * old
            x = sigma[i + 1] / sigma[i] * x - alpha[i + 1] * torch.expm1(-h) * direction
            old = x0
        return x


def dpm_solver(place: Place) -> Made:
    batch, data, width = place.size(64, 4096), place.size(32, 64), place.size(96, 512)
    return DpmSolver(data, width).to(place.device), (place.randn(batch, data), place.randint(10, batch))


class Edm(nn.Module):
    """Karras et al., 2022: preconditioning around a convolutional network; Heun's sampler with churn."""

    def __init__(self, channels: int, sigma_data: float = 0.5) -> None:
        super().__init__()
        self.sigma_data = sigma_data
        self.into = nn.Conv2d(3, channels, 3, padding=1)
        self.noise = nn.Sequential(nn.Linear(1, channels), nn.SiLU(), nn.Linear(channels, 2 * channels))
        self.norm = nn.GroupNorm(4, channels)
        self.middle = nn.Conv2d(channels, channels, 3, padding=1)
        self.out = nn.Conv2d(channels, 3, 3, padding=1)

    def raw(self, x: Tensor, c_noise: Tensor) -> Tensor:
        h = self.into(x)
        scale, shift = self.noise(c_noise.view(-1, 1))[:, :, None, None].chunk(2, dim=1)
        h = h + self.middle(F.silu(self.norm(h) * (1 + scale) + shift))
        return self.out(F.silu(h)) * 2**-0.5

    def denoise(self, x: Tensor, sigma: Tensor) -> Tensor:
        sigma = sigma.reshape(-1, 1, 1, 1)
        total = sigma**2 + self.sigma_data**2
        c_skip, c_out = self.sigma_data**2 / total, sigma * self.sigma_data / total.sqrt()
        c_in = total.rsqrt()
        return c_skip * x + c_out * self.raw(c_in * x, sigma.flatten().log() / 4)

    @staticmethod
    def schedule(steps: int, like: Tensor, low: float = 0.002, high: float = 80.0, rho: float = 7.0) -> Tensor:
        i = torch.arange(steps, dtype=like.dtype, device=like.device)
        sigmas = (high ** (1 / rho) + i / (steps - 1) * (low ** (1 / rho) - high ** (1 / rho))) ** rho
        return torch.cat([sigmas, torch.zeros_like(sigmas[:1])])


class EdmSampler(Edm):
    """Stochastic second-order steps."""

    def forward(self, latents: Tensor, noise: Tensor) -> Tensor:
        steps = noise.size(0)
        sigmas = self.schedule(steps, latents)
        gamma = min(40 / steps, 2**0.5 - 1)
        x = latents * sigmas[0]
        for i in range(steps):
            now, following = sigmas[i], sigmas[i + 1]
            churn = torch.where((now > 0.05) & (now < 50), gamma, 0.0)
            hat = now + churn * now
            x = x + (hat**2 - now**2).clamp(min=0).sqrt() * 1.003 * noise[i]
            d = (x - self.denoise(x, hat)) / hat
            x_next = x + (following - hat) * d
            if i < steps - 1:
                d_next = (x_next - self.denoise(x_next, following)) / following
                x_next = x + (following - hat) * (0.5 * d + 0.5 * d_next)
            x = x_next
        return x


def edm_sampler(place: Place) -> Made:
    batch, side, channels = place.size(1, 8), place.size(24, 64), place.size(16, 64)
    return EdmSampler(channels).to(place.device), (
        place.randn(batch, 3, side, side),
        place.randn(5, batch, 3, side, side),
    )


class EdmLoss(Edm):
    """Training with log-normal noise levels and EDM2's learnt uncertainty."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.uncertainty = nn.Linear(16, 1)
        self.register_buffer("frequency", 6.28 * torch.randn(16))

    def forward(self, images: Tensor, normal: Tensor, noise: Tensor) -> Tensor:
        sigma = (normal * 1.2 - 1.2).exp()
        spread = sigma.view(-1, 1, 1, 1)
        denoised = self.denoise(images + noise * spread, sigma)
        weight = (sigma**2 + self.sigma_data**2) / (sigma * self.sigma_data) ** 2
        log_variance = self.uncertainty(torch.cos(sigma.log()[:, None] / 4 * self.frequency) * 2**0.5).squeeze(-1)
        loss = weight * (denoised - images).square().mean((1, 2, 3))
        return (loss / log_variance.exp() + log_variance).mean()


def edm_loss(place: Place) -> Made:
    batch, side, channels = place.size(4, 32), place.size(24, 64), place.size(16, 64)
    return EdmLoss(channels).to(place.device), (
        0.5 * place.randn(batch, 3, side, side),
        place.randn(batch),
        place.randn(batch, 3, side, side),
    )


class ConsistencyTraining(nn.Module):
    """Song and Dhariwal, 2024: neighbouring noise levels must agree; pseudo-Huber, a frozen copy as the target."""

    def __init__(self, data: int, width: int) -> None:
        super().__init__()
        self.net, self.target = Denoiser(data, width), Denoiser(data, width)
        self.target.requires_grad_(False)

    @staticmethod
    def consistency(net: nn.Module, x: Tensor, sigma: Tensor, label: Tensor) -> Tensor:
        s = sigma[:, None]
        c_skip = 0.25 / ((s - 0.002) ** 2 + 0.25)
        c_out = 0.5 * (s - 0.002) / (s**2 + 0.25).sqrt()
        return c_skip * x + c_out * net(x / (s**2 + 0.25).sqrt(), 250 * sigma.log(), label)

    def forward(self, x: Tensor, noise: Tensor, index: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        i = torch.arange(20, dtype=x.dtype, device=x.device)
        levels = (0.002 ** (1 / 7) + i / 19 * (80.0 ** (1 / 7) - 0.002 ** (1 / 7))) ** 7
        low, high = levels[index], levels[index + 1]
        student = self.consistency(self.net, x + high[:, None] * noise, high, label)
        with torch.no_grad():
            teacher = self.consistency(self.target, x + low[:, None] * noise, low, label)
        c = 0.00054 * x.size(-1) ** 0.5
        distance = ((student - teacher).square().sum(-1) + c**2).sqrt() - c
        loss = (distance / (high - low)).mean()
        moved = [
            torch.lerp(old, new.detach(), 0.01).square().sum()
            for old, new in zip(self.target.parameters(), self.net.parameters(), strict=True)
        ]
        return loss, torch.stack(moved).sum()


def consistency(place: Place) -> Made:
    batch, data, width = place.size(128, 8192), place.size(32, 64), place.size(128, 512)
    return ConsistencyTraining(data, width).to(place.device), (
        place.randn(batch, data),
        place.randn(batch, data),
        place.randint(19, batch),
        place.randint(10, batch),
    )


class MaskedDiffusion(nn.Module):
    """LLaDA's sampler: a bidirectional model fills a block, the least certain tokens are masked again."""

    def __init__(self, vocabulary: int, d: int, heads: int, steps: int = 4) -> None:
        super().__init__()
        self.heads, self.steps, self.mask = heads, steps, vocabulary
        self.embed = nn.Embedding(vocabulary + 1, d)
        self.norm = nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.head = nn.Linear(d, vocabulary)

    def logits(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, self.heads, -1).transpose(1, 3).unbind(2)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))
        return self.head(x + self.mlp(x))

    def forward(self, tokens: Tensor, gumbel: Tensor) -> tuple[Tensor, Tensor]:
        masked = tokens == self.mask
        total = masked.sum(1)
        score = torch.zeros(tokens.shape, dtype=gumbel.dtype, device=tokens.device)
        for step in range(self.steps):
            logits = self.logits(tokens)
            choice = (logits + 0.5 * gumbel[step]).argmax(-1)
            confidence = logits.softmax(-1).gather(-1, choice[..., None]).squeeze(-1)
            confidence = torch.where(masked, confidence, -torch.inf)
            keep = (total * (step + 1)) // self.steps - (total * step) // self.steps
            rank = confidence.argsort(dim=1, descending=True).argsort(dim=1)
            chosen = (rank < keep[:, None]) & masked
            tokens = torch.where(chosen, choice, tokens)
            score = torch.where(chosen, confidence, score)
            masked = masked & ~chosen
        return tokens, score


def masked_diffusion(place: Place) -> Made:
    batch, length, vocabulary = place.size(2, 16), place.size(48, 256), place.size(500, 4000)
    model = MaskedDiffusion(vocabulary, place.size(64, 256), 4).to(place.device)
    tokens = place.randint(vocabulary, batch, length)
    tokens[:, length // 4 :] = vocabulary
    gumbel = -torch.log(-torch.log((place.randint(4096, 4, batch, length, vocabulary) + 0.5) / 4096))
    return model, (tokens, gumbel)


ROWS: tuple[Row, ...] = (
    Row("program/rectified_flow_transformer", rectified_flow, "training"),
    Row("program/dpm_solver_guidance", dpm_solver),
    Row("program/edm_heun_sampler", edm_sampler),
    Row("program/edm_uncertainty_loss", edm_loss, "training"),
    Row("program/consistency_training", consistency, "training"),
    Row("program/masked_diffusion_decoding", masked_diffusion),
)
