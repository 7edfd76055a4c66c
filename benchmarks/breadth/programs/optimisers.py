"""Steps of optimisers over lists of tensors, in place."""

from __future__ import annotations

import torch
from torch import Tensor

from ..row import Made, Place, Row


def parameters_of(place: Place) -> list[tuple[int, ...]]:
    """The shapes of a small transformer."""
    d = place.size(96, 1024)
    return [(d, d), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)] * 6


def tensors_of(place: Place, scale: float = 1.0) -> list[Tensor]:
    return [scale * place.randn(*shape) for shape in parameters_of(place)]


def adam_step(params: list[Tensor], grads: list[Tensor], m: list[Tensor], v: list[Tensor], step: Tensor) -> None:
    """AdamW as torch's single-tensor version has it, the step being a tensor."""
    lr, beta1, beta2, eps = 1e-3, 0.9, 0.999, 1e-8
    step += 1
    correction1, correction2 = 1 - beta1**step, 1 - beta2**step
    for p, g, exp_avg, exp_avg_sq in zip(params, grads, m, v, strict=True):
        p.mul_(1 - lr * 0.01)
        exp_avg.lerp_(g, 1 - beta1)
        exp_avg_sq.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        denominator = exp_avg_sq.sqrt() / correction2.sqrt() + eps
        p.sub_(lr / correction1 * exp_avg / denominator)


def adam(place: Place) -> Made:
    squares = [t.square() for t in tensors_of(place)]
    step = torch.tensor(10.0, device=place.device)
    return adam_step, (tensors_of(place), tensors_of(place), tensors_of(place), squares, step)


def lion_step(params: list[Tensor], grads: list[Tensor], momenta: list[Tensor]) -> Tensor:
    """Chen et al., 2023; gives how many signs turned."""
    turned = torch.zeros((), device=params[0].device, dtype=params[0].dtype)
    for p, g, m in zip(params, grads, momenta, strict=True):
        update = m * 0.9 + g * 0.1
        turned += (update.sign() != m.sign()).sum()
        p.mul_(1 - 1e-4 * 0.1).add_(update.sign_(), alpha=-1e-4)
        m.mul_(0.99).add_(g, alpha=0.01)
    return turned


def lion(place: Place) -> Made:
    return lion_step, (tensors_of(place), tensors_of(place), tensors_of(place))


def clip_and_nesterov(params: list[Tensor], grads: list[Tensor], velocity: list[Tensor], max_norm: float) -> Tensor:
    """The global norm from stacked norms, gradients clipped in place, then SGD with Nesterov's momentum."""
    total = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
    coefficient = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for g in grads:
        g.mul_(coefficient)
    for p, g, v in zip(params, grads, velocity, strict=True):
        g = g + 5e-4 * p
        v.mul_(0.9).add_(g)
        p.add_(g + 0.9 * v, alpha=-0.1)
    return total


def clipped_sgd(place: Place) -> Made:
    return clip_and_nesterov, (tensors_of(place), tensors_of(place), tensors_of(place), 1.0)


def newton_schulz(g: Tensor, rounds: int = 5) -> Tensor:
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    if g.size(0) > g.size(1):
        x = x.T
    for _ in range(rounds):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x.T if g.size(0) > g.size(1) else x


def muon_step(params: list[Tensor], grads: list[Tensor], momenta: list[Tensor]) -> None:
    """Jordan et al., 2024: the matrices' momentum orthogonalised, vectors by sign."""
    for p, g, m in zip(params, grads, momenta, strict=True):
        m.lerp_(g, 0.05)
        if p.ndim == 2:
            update = newton_schulz(torch.lerp(g, m, 0.95))
            p.add_(update, alpha=-0.02 * max(1, p.size(0) / p.size(1)) ** 0.5)
        else:
            p.sub_(1e-3 * m.sign())


def muon(place: Place) -> Made:
    return muon_step, (tensors_of(place)[:12], tensors_of(place)[:12], tensors_of(place)[:12])


def adafactor_step(weight: Tensor, grad: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Shazeer and Stern, 2018: a factored second moment, clipping by root mean square."""
    squared = grad.square().add_(1e-30)
    row.lerp_(squared.mean(dim=-1), 0.2)
    column.lerp_(squared.mean(dim=-2), 0.2)
    row_factor = (row / row.mean(dim=-1, keepdim=True)).rsqrt_().unsqueeze(-1)
    update = row_factor * column.unsqueeze(-2).rsqrt() * grad
    rms = update.norm(2) / update.numel() ** 0.5
    update.div_(torch.clamp(rms, min=1.0))
    scale = torch.maximum(weight.norm(2) / weight.numel() ** 0.5, torch.full_like(rms, 1e-3))
    weight.sub_(1e-2 * scale * update)
    return rms


def adafactor(place: Place) -> Made:
    n, m = place.size(512, 8192), place.size(1024, 8192)
    return adafactor_step, (place.randn(n, m), place.randn(n, m), place.rand(n) + 0.5, place.rand(m) + 0.5)


ROWS: tuple[Row, ...] = (
    Row("program/adamw_step", adam, writes=True),
    Row("program/lion_step", lion, writes=True),
    Row("program/clipped_nesterov", clipped_sgd, writes=True),
    Row("program/muon_step", muon, writes=True),
    Row("program/adafactor_step", adafactor, writes=True),
)
