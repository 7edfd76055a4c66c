"""How networks are trained: by mirrored noise, by slow weights, between tasks, through second gradients and kernels."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def antithetic_evolution(
    theta: Tensor, noise: Tensor, states: Tensor, target: Tensor, sigma: float, sizes: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Evolution strategies (Salimans et al., 2017): mirrored networks in batches, ranks shape, rows weigh the noise."""
    population = torch.cat([theta + sigma * noise, theta - sigma * noise])
    pairs = list(itertools.pairwise(sizes))
    fitness = torch.zeros(len(population), device=theta.device, dtype=theta.dtype)
    x = states.expand(len(population), -1, -1)
    for t in range(4):
        h, at = x, 0
        for k, (a, b) in enumerate(pairs):
            w = population[:, at : at + a * b].view(-1, a, b)
            bias = population[:, at + a * b : at + a * b + b]
            at += a * b + b
            h = torch.baddbmm(bias[:, None], h, w)
            h = torch.tanh(h) if k < len(pairs) - 1 else h
        x = x + 0.1 * torch.cat([x[..., h.size(-1) :], torch.tanh(h)], dim=-1)
        fitness = fitness - (x - target).square().mean((1, 2)) * 0.9**t
    ranks = torch.empty_like(fitness)
    ranks[fitness.argsort()] = torch.arange(len(fitness), device=theta.device, dtype=theta.dtype)
    shaped = ranks / (len(fitness) - 1) - 0.5
    half = len(noise)
    gradient = (shaped[:half] - shaped[half:]) @ noise / (2 * half * sigma)
    return theta + 0.01 * gradient - 0.0005 * theta, fitness


def evolution(place: Place) -> Made:
    n, b, s, a, hidden = place.size(8, 128), place.size(16, 256), 12, 4, place.size(16, 64)
    sizes = (s, hidden, hidden, a)
    count = sum(x * y + y for x, y in itertools.pairwise(sizes))
    return antithetic_evolution, (
        0.1 * place.randn(count),
        place.randn(n, count),
        place.randn(b, s),
        place.randn(b, s),
        0.05,
        sizes,
    )


def centralised_lookahead(
    params: list[Tensor], grads: list[Tensor], m: list[Tensor], v: list[Tensor], slow: list[Tensor], step: Tensor
) -> Tensor:
    """Ranger: rectified Adam with centred gradients, and every fifth step half way back to slow weights; in place."""
    step += 1
    beta1, beta2 = 0.95, 0.999
    rho_inf = 2 / (1 - beta2) - 1
    beta2_t = beta2**step
    rho = rho_inf - 2 * step * beta2_t / (1 - beta2_t)
    rectifier = torch.sqrt(
        ((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)).clamp(min=0) * (1 - beta2_t)
    )
    norm = torch.zeros_like(step)
    for p, g, m_t, v_t, s in zip(params, grads, m, v, slow, strict=True):
        if g.dim() > 1:
            g = g - g.mean(dim=tuple(range(1, g.dim())), keepdim=True)
        norm = norm + g.square().sum()
        v_t.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        m_t.mul_(beta1).add_(g, alpha=1 - beta1)
        adaptive = rectifier * m_t / (v_t.sqrt() + 1e-5) / (1 - beta1**step)
        update = torch.where(rho > 5, adaptive, m_t / (1 - beta1**step))
        p.mul_(1 - 1e-5).sub_(1e-3 * update)
        synced = s + 0.5 * (p - s)
        now = step % 5 == 0
        s.copy_(torch.where(now, synced, s))
        p.copy_(torch.where(now, synced, p))
    return norm.sqrt()


def ranger(place: Place) -> Made:
    c = place.size(8, 256)
    shapes = [(c, 3, 7, 7), (c,), (c, c, 3, 3), (c,), (2 * c, c, 1, 1), (10, 2 * c), (10,)]

    def tensors() -> list[Tensor]:
        return [0.1 * place.randn(*s) for s in shapes]

    v = [t.square() for t in tensors()]
    return centralised_lookahead, (tensors(), tensors(), tensors(), v, tensors(), torch.tensor(34.0).to(place.device))


def projected_gradients(grads: list[list[Tensor]], orders: Tensor) -> tuple[list[Tensor], Tensor]:
    """Gradient surgery (Yu et al., 2020): each task's gradient loses what conflicts with others, in a random order."""
    flat = torch.stack([torch.cat([g.reshape(-1) for g in task]) for task in grads])
    tasks = len(flat)
    conflicts = torch.zeros((), dtype=torch.int64, device=flat.device)
    merged = torch.zeros_like(flat[0])
    for i in range(tasks):
        g = flat[i].clone()
        for k in range(tasks):
            other = flat[orders[i, k]]
            dot = torch.dot(g, other)
            hurt = (dot < 0) & (orders[i, k] != i)
            g = torch.where(hurt, g - dot / (other.norm() ** 2 + 1e-12) * other, g)
            conflicts += hurt
        merged += g
    merged = merged / tasks
    out, at = [], 0
    for g in grads[0]:
        out.append(merged[at : at + g.numel()].view_as(g))
        at += g.numel()
    return out, conflicts


def gradient_surgery(place: Place) -> Made:
    n, tasks = place.size(64, 1024), place.size(3, 6)
    shapes = [(n, n), (n,), (n, 4 * n), (4 * n,)]
    grads = [[place.randn(*s) for s in shapes] for _ in range(tasks)]
    return projected_gradients, (grads, torch.rand(tasks, tasks).argsort(1).to(place.device))


def tangent_kernel(params: dict[str, Tensor], x1: Tensor, x2: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The empirical tangent kernel of a small network by Jacobians of each example, and its ridge's predictions."""

    def net(p: dict[str, Tensor], x: Tensor) -> Tensor:
        x = F.conv2d(x[None], p["conv"], p["conv_bias"], stride=2, padding=1).relu()
        x = F.avg_pool2d(x, 2).flatten()
        return p["out"] @ torch.tanh(p["hidden"] @ x) / math.sqrt(len(p["hidden"]))

    def jacobians(x: Tensor) -> dict[str, Tensor]:
        return torch.func.vmap(torch.func.jacrev(net), (None, 0))(params, x)

    j1, j2 = jacobians(x1), jacobians(x2)

    def kernel(a: dict[str, Tensor], b: dict[str, Tensor]) -> Tensor:
        parts = [torch.einsum("naf,mbf->nmab", a[k].flatten(2), b[k].flatten(2)) for k in a]
        return torch.stack(parts).sum(0)

    k11 = kernel(j1, j1).permute(0, 2, 1, 3).flatten(2).flatten(0, 1)
    k21 = kernel(j2, j1).permute(0, 2, 1, 3).flatten(2).flatten(0, 1)
    ridge = 1e-2 * k11.diagonal().mean() * torch.eye(len(k11), device=y.device, dtype=y.dtype)
    return k21, (k21 @ torch.linalg.solve(k11 + ridge, y.flatten())).view(len(x2), -1)


def neural_tangents(place: Place) -> Made:
    n, m, size, c, hidden, out = place.size(6, 64), place.size(4, 48), place.size(8, 28), place.size(4, 16), 32, 3
    features = c * (size // 4) ** 2
    params = {
        "conv": place.randn(c, 1, 3, 3) / 3,
        "conv_bias": 0.1 * place.randn(c),
        "hidden": place.randn(hidden, features) / math.sqrt(features),
        "out": place.randn(out, hidden),
    }
    pictures = (place.randn(n, 1, size, size), place.randn(m, 1, size, size))
    return tangent_kernel, (params, *pictures, place.randn(n, out))


class PenalisedCritic(nn.Module):
    """WGAN-GP's critic (Gulrajani et al., 2017): gradients at mixed pictures are drawn to norm one, drift is held."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.c1 = nn.Conv2d(channels, width, 5, stride=2, padding=2)
        self.c2 = nn.Conv2d(width, 2 * width, 5, stride=2, padding=2)
        self.n2, self.n3 = nn.InstanceNorm2d(2 * width, affine=True), nn.InstanceNorm2d(4 * width, affine=True)
        self.c3 = nn.Conv2d(2 * width, 4 * width, 5, stride=2, padding=2)
        self.out = nn.Conv2d(4 * width, 1, 4)

    def critic(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.c1(x), 0.2)
        x = F.leaky_relu(self.n2(self.c2(x)), 0.2)
        return self.out(F.leaky_relu(self.n3(self.c3(x)), 0.2)).view(x.size(0))

    def forward(self, real: Tensor, fake: Tensor, alpha: Tensor) -> Tensor:
        d_real, d_fake = self.critic(real), self.critic(fake.detach())
        mixed = (alpha * real + (1 - alpha) * fake).detach().requires_grad_(True)
        scores = self.critic(mixed)
        gradients = torch.autograd.grad(
            outputs=scores, inputs=mixed, grad_outputs=torch.ones_like(scores), create_graph=True, retain_graph=True
        )[0]
        penalty = ((gradients.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
        return d_fake.mean() - d_real.mean() + 10 * penalty + 1e-3 * d_real.square().mean()


def critic_penalty(place: Place) -> Made:
    b, width = place.size(2, 64), place.size(4, 48)
    pictures = (place.randn(b, 3, 32, 32), torch.tanh(place.randn(b, 3, 32, 32)))
    return PenalisedCritic(3, width).to(place.device), (*pictures, place.rand(b, 1, 1, 1))


class BiTempered(torch.autograd.Function):
    """The bi-tempered logistic loss (Amid et al., 2019), with its own gradient, as its authors wrote it for torch."""

    @staticmethod
    def normalisation(activations: Tensor, t: float, rounds: int) -> Tensor:
        mu = activations.max(-1, keepdim=True).values
        shifted0 = activations - mu
        shifted = shifted0
        for _ in range(rounds):
            partition = exp_t(shifted, t).sum(-1, keepdim=True)
            shifted = shifted0 * partition.pow(1.0 - t)
        partition = exp_t(shifted, t).sum(-1, keepdim=True)
        return -log_t(1.0 / partition, t) + mu

    @staticmethod
    def forward(ctx: Any, activations: Tensor, labels: Tensor, t1: float, t2: float, rounds: int) -> Tensor:
        probabilities = exp_t(activations - BiTempered.normalisation(activations, t2, rounds), t2)
        loss = labels * log_t(labels + 1e-10, t1) - labels * log_t(probabilities, t1)
        loss = loss - labels.pow(2.0 - t1) / (2.0 - t1) + probabilities.pow(2.0 - t1) / (2.0 - t1)
        ctx.save_for_backward(labels, probabilities)
        ctx.t1, ctx.t2 = t1, t2
        return loss.sum(dim=-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        labels, probabilities = ctx.saved_tensors
        forget = probabilities.pow(ctx.t2 - ctx.t1)
        delta = (probabilities - labels) * forget
        escorts = probabilities.pow(ctx.t2)
        escorts = escorts / escorts.sum(dim=-1, keepdim=True)
        derivative = delta - escorts * delta.sum(dim=-1, keepdim=True)
        return derivative * grad.unsqueeze(-1), None, None, None, None


def log_t(u: Tensor, t: float) -> Tensor:
    return u.log() if t == 1.0 else (u.pow(1.0 - t) - 1.0) / (1.0 - t)


def exp_t(u: Tensor, t: float) -> Tensor:
    return u.exp() if t == 1 else (1.0 + (1.0 - t) * u).relu().pow(1.0 / (1.0 - t))


class NoisyLabels(nn.Module):
    """A head under that loss, labels smoothed, with pooling by a learnt power (GeM)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor(3.0))
        self.fc = nn.Linear(channels, classes)
        self.classes = classes

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        pooled = F.avg_pool2d(x.clamp(min=1e-6).pow(self.p), x.shape[-2:]).pow(1.0 / self.p).flatten(1)
        target = F.one_hot(label, self.classes).to(x.dtype)
        k = self.classes
        target = (1 - 0.1 * k / (k - 1)) * target + 0.1 / (k - 1)
        return BiTempered.apply(self.fc(pooled), target, 0.8, 1.4, 5).mean()


def noisy_labels(place: Place) -> Made:
    b, c, classes = place.size(8, 256), place.size(32, 1280), place.size(5, 500)
    features = place.randn(b, c, 7, 7).relu().requires_grad_()
    return NoisyLabels(c, classes).to(place.device), (features, place.randint(classes, b))


ROWS: tuple[Row, ...] = (
    Row("program/antithetic_evolution", evolution),
    Row("program/centralised_lookahead_step", ranger, writes=True),
    Row("program/projected_task_gradients", gradient_surgery),
    Row("program/empirical_tangent_kernel", neural_tangents),
    Row("program/critic_gradient_penalty", critic_penalty, "training"),
    Row("program/bi_tempered_labels", noisy_labels, "training"),
)
