"""Generation by flows and by noise since 2021: what pairs, steps and guides them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class Velocity(nn.Module):
    """A small network of a point and a time."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.enter, self.time = nn.Linear(width, hidden), nn.Linear(16, hidden)
        self.middle, self.leave = nn.Linear(hidden, hidden), nn.Linear(hidden, width)
        self.register_buffer("frequencies", torch.exp(torch.linspace(0, 4, 8)))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        angle = t[:, None] * self.frequencies
        h = F.silu(self.enter(x) + self.time(torch.cat([angle.sin(), angle.cos()], 1)))
        return self.leave(F.silu(self.middle(h)) + h)


class CoupledFlow(nn.Module):
    """Tong and others, 2024: noise and data of a batch are paired by an entropic plan before they are joined."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.velocity = Velocity(width, hidden)

    def forward(self, noise: Tensor, data: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            cost = torch.cdist(noise, data).square()
            log_k = -cost / (0.05 * cost.mean())
            f, g = torch.zeros_like(cost[:, 0]), torch.zeros_like(cost[0])
            for _ in range(20):
                f = -torch.logsumexp(log_k + g[None], 1)
                g = -torch.logsumexp(log_k + f[:, None], 0)
            partner = (log_k + f[:, None] + g[None]).argmax(1)
        data = data[partner]
        x = (1 - t[:, None]) * noise + t[:, None] * data
        loss = (self.velocity(x, t) - (data - noise)).square().mean()
        return loss, (data - noise).norm(dim=1)


def coupled(place: Place) -> Made:
    n, width, hidden = place.size(96, 1024), place.size(16, 128), place.size(64, 1024)
    return CoupledFlow(width, hidden).to(place.device), (place.randn(n, width), place.randn(n, width), place.rand(n))


def ancestral_guidance(x: Tensor, weight: Tensor, noise: Tensor) -> Tensor:
    """Euler's ancestral steps: guidance whose spread is pulled back (Lin and others), Imagen's moving threshold."""
    steps = len(noise)
    sigmas = torch.linspace(80.0 ** (1 / 7), 0.02 ** (1 / 7), steps + 1, device=x.device).pow(7)
    for i in range(steps):
        sigma, following = sigmas[i], sigmas[i + 1]
        scaled = x / (sigma * sigma + 1).sqrt()
        both = F.conv2d(torch.cat([scaled, scaled.flip(1)]), weight, padding=1)
        unconditional, conditional = both.chunk(2)
        guided = unconditional + 7.5 * (conditional - unconditional)
        factor = conditional.std(dim=(1, 2, 3), keepdim=True) / guided.std(dim=(1, 2, 3), keepdim=True)
        guided = 0.7 * guided * factor + 0.3 * guided
        limit = guided.abs().flatten(1).kthvalue(int(0.995 * guided[0].numel()), dim=1).values.clamp(min=1)
        limit = limit[:, None, None, None]
        denoised = torch.clamp(guided, -limit, limit) / limit
        up = torch.minimum(following, (following**2 * (sigma**2 - following**2) / sigma**2).sqrt())
        down = (following**2 - up**2).clamp(min=0).sqrt()
        x = x + (x - denoised) / sigma * (down - sigma)
        x = x + noise[i] * up
    return x


def ancestral(place: Place) -> Made:
    b, side, steps = place.size(2, 16), place.size(24, 96), 6
    return ancestral_guidance, (
        80 * place.randn(b, 4, side, side),
        place.randn(4, 4, 3, 3) / 6,
        place.randn(steps, b, 4, side, side),
    )


def predictor_corrector(x: Tensor, means: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Song and others, 2021: reverse diffusion, then Langevin steps sized by norms; a mixture's score is exact."""

    def score(x: Tensor, sigma: Tensor) -> Tensor:
        variance = sigma * sigma + 0.05
        logits = -torch.cdist(x, means).square() / (2 * variance)
        return (logits.softmax(1) @ means - x) / variance

    steps = noise.size(0)
    sigmas = torch.exp(torch.linspace(3, -3, steps, device=x.device))
    sizes = []
    for i in range(steps):
        sigma = sigmas[i]
        before = sigmas[i + 1] if i + 1 < steps else torch.zeros_like(sigma)
        change = sigma**2 - before**2
        x = x + change * score(x, sigma) + change.sqrt() * noise[i, 0]
        gradient = score(x, before)
        size = 2 * (0.16 * noise[i, 1].norm(dim=1).mean() / gradient.norm(dim=1).mean()) ** 2
        x = x + size * gradient + (2 * size).sqrt() * noise[i, 1]
        sizes.append(size)
    return x, torch.stack(sizes)


def corrector(place: Place) -> Made:
    n, width = place.size(64, 4096), place.size(8, 64)
    return predictor_corrector, (20 * place.randn(n, width), place.randn(50, width), place.randn(12, 2, n, width))


class CategoricalDiffusion(nn.Module):
    """Austin and others, 2021 (D3PM): labels that change at random; posteriors of a step compared in logarithms."""

    def __init__(self, kinds: int, width: int) -> None:
        super().__init__()
        self.embed, self.time = nn.Embedding(kinds, width), nn.Embedding(100, width)
        self.conv = nn.Conv1d(width, width, 5, padding=2)
        self.out = nn.Linear(width, kinds)
        self.kinds = kinds
        self.register_buffer("keep", torch.cos(torch.linspace(0, 1.5, 101)) ** 2)

    def posterior(self, start: Tensor, now: Tensor, t: Tensor) -> Tensor:
        """The logarithm of the step before, of where it started (probabilities) and where it is (labels)."""
        total = self.keep[t][:, None, None]
        step = (self.keep[t + 1] / self.keep[t])[:, None, None]
        here = F.one_hot(now, self.kinds).to(start.dtype)
        forward = step * here + (1 - step) / self.kinds
        prior = total * start + (1 - total) / self.kinds
        return torch.log_softmax(torch.log(forward + 1e-9) + torch.log(prior + 1e-9), -1)

    def forward(self, labels: Tensor, t: Tensor, uniform: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        noisy = torch.where(uniform < self.keep[t + 1][:, None], labels, other)
        h = self.embed(noisy) + self.time(t)[:, None]
        logits = self.out(F.gelu(self.conv(h.transpose(1, 2))).transpose(1, 2) + h)
        true = self.posterior(F.one_hot(labels, self.kinds).to(logits.dtype), noisy, t)
        guess = self.posterior(logits.softmax(-1), noisy, t)
        bound = (true.exp() * (true - guess)).sum(-1)
        loss = bound.mean(1) + 0.01 * F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").mean(1)
        return loss, (noisy != labels).float().mean(1)


def categories(place: Place) -> Made:
    b, n, kinds, width = place.size(4, 64), place.size(50, 512), place.size(27, 64), place.size(32, 256)
    uniform, labels = place.rand(b, n), place.randint(kinds, b, n)
    model = CategoricalDiffusion(kinds, width).to(place.device)
    return model, (labels, place.randint(99, b), uniform, place.randint(kinds, b, n))


class TracedFlow(nn.Module):
    """Grathwohl and others, 2019: a density carried along an equation, its trace by one probe; Heun's rule."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.velocity = Velocity(width, hidden)

    def slope(self, x: Tensor, t: Tensor, probe: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x.requires_grad_()
        v = self.velocity(x, t)
        (product,) = torch.autograd.grad(v, x, probe, create_graph=True)
        return v, (product * probe).sum(1), product.square().sum(1)

    def forward(self, x: Tensor, probe: Tensor) -> Tensor:
        steps = 4
        change, penalty = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
        for i in range(steps):
            t = torch.full_like(x[:, 0], i / steps)
            v, trace, size = self.slope(x, t, probe)
            later, other, _ = self.slope(x + v / steps, t + 1 / steps, probe)
            x = x + (v + later) / (2 * steps)
            change = change + (trace + other) / (2 * steps)
            penalty = penalty + size / steps
        log_p = -0.5 * x.square().sum(1) + change
        return -log_p + 0.01 * penalty


def traced(place: Place) -> Made:
    n, width, hidden = place.size(64, 4096), place.size(8, 64), place.size(32, 512)
    return TracedFlow(width, hidden).to(place.device), (
        place.randn(n, width).requires_grad_(),
        place.randn(n, width).sign(),
    )


ROWS: tuple[Row, ...] = (
    Row("program/coupled_batch_flow", coupled, "training"),
    Row("program/ancestral_guidance", ancestral),
    Row("program/predictor_corrector_scores", corrector),
    Row("program/categorical_diffusion", categories, "training"),
    Row("program/traced_continuous_flow", traced, "training"),
)
