"""Steps of training beyond plain optimisers: private, sharpness-aware, preconditioned, compressed, federated."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ..row import Made, Place, Row

Weights = dict[str, Tensor]


def small_network(inputs: int, width: int, classes: int, place: Place) -> nn.Sequential:
    """Two hidden layers."""
    net = nn.Sequential(
        nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, classes)
    )
    return net.to(place.device)


class PrivateStep(nn.Module):
    """DP-SGD by vmap of grad: each sample's gradient is clipped, noise is added, parameters come back."""

    def __init__(self, net: nn.Module, bound: float = 1.0, sigma: float = 0.8) -> None:
        super().__init__()
        self.net, self.bound, self.sigma = net, bound, sigma

    def forward(self, x: Tensor, y: Tensor, noise: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        weights = {name: p.detach() for name, p in self.net.named_parameters()}

        def loss(weights: Weights, sample: Tensor, label: Tensor) -> Tensor:
            out = functional_call(self.net, weights, (sample[None],))
            return F.cross_entropy(out, label[None])

        per_sample = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)
        squares = [g.flatten(1).square().sum(1) for g in per_sample.values()]
        norm = torch.stack(squares).sum(0).sqrt()
        factor = (self.bound / (norm + 1e-6)).clamp(max=1.0)
        updated = []
        for (name, g), z in zip(per_sample.items(), noise, strict=True):
            total = torch.einsum("b,b...->...", factor, g) + self.sigma * self.bound * z
            updated.append(weights[name] - 0.1 * total / x.size(0))
        return updated, norm


def private_step(place: Place) -> Made:
    b, inputs, width = place.size(64, 512), place.size(32, 128), place.size(48, 256)
    net = small_network(inputs, width, 10, place)
    noise = [place.randn(*p.shape) for p in net.parameters()]
    return PrivateStep(net), (place.randn(b, inputs), place.randint(10, b), noise)


class SharpnessAware(nn.Module):
    """Foret et al., 2021: ascend to the worst weights nearby, take the gradient there; both losses are returned."""

    def __init__(self, net: nn.Module, rho: float = 0.05) -> None:
        super().__init__()
        self.net, self.rho = net, rho

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        weights = dict(self.net.named_parameters())
        first = F.cross_entropy(self.net(x), y, label_smoothing=0.1)
        gradients = torch.autograd.grad(first, list(weights.values()), retain_graph=True)
        norm = torch.stack([(p.abs() * g).norm() for p, g in zip(weights.values(), gradients, strict=True)]).norm()
        climbed = {
            name: p + self.rho * p.detach().square() * g / (norm + 1e-12)
            for (name, p), g in zip(weights.items(), gradients, strict=True)
        }
        second = F.cross_entropy(functional_call(self.net, climbed, (x,)), y, label_smoothing=0.1)
        return second, first.detach()


def sharpness_aware(place: Place) -> Made:
    b, inputs, width = place.size(256, 4096), place.size(48, 256), place.size(96, 512)
    return SharpnessAware(small_network(inputs, width, 10, place)), (place.randn(b, inputs), place.randint(10, b))


def inverse_root(matrix: Tensor, steps: int = 10) -> Tensor:
    """The inverse fourth root of a positive matrix by coupled Newton iterations, as distributed Shampoo does it."""
    eye = torch.eye(matrix.size(-1), dtype=matrix.dtype, device=matrix.device)
    damped = matrix + 1e-3 * matrix.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None] * eye
    z = 5 / (2 * damped.norm(dim=(-2, -1), keepdim=True))
    m, x = damped * z, eye * z**0.25
    for _ in range(steps):
        t = (5 * eye - m) / 4
        t2 = t @ t
        x, m = x @ t, t2 @ t2 @ m
    return x


def shampoo(weights: list[Tensor], gradients: list[Tensor], left: list[Tensor], right: list[Tensor]) -> Tensor:
    """A step with Kronecker-factored preconditioners, grafted to the gradient's size; all written in place."""
    sizes = []
    for w, g, l_stat, r_stat in zip(weights, gradients, left, right, strict=True):
        l_stat.mul_(0.95).add_(g @ g.T, alpha=0.05)
        r_stat.mul_(0.95).add_(g.T @ g, alpha=0.05)
        direction = inverse_root(l_stat) @ g @ inverse_root(r_stat)
        direction = direction * (g.norm() / direction.norm().clamp(min=1e-12))
        w.mul_(1 - 1e-4).sub_(direction, alpha=0.01)
        sizes.append((direction * g).sum() / (g.norm() ** 2))
    return torch.stack(sizes)


def shampoo_step(place: Place) -> Made:
    n = place.size(48, 512)
    shapes = [(n, n), (2 * n, n), (n, n // 2)]
    weights, gradients = [place.randn(*s) for s in shapes], [place.randn(*s) for s in shapes]
    left = [g @ g.T + torch.eye(g.size(0), device=g.device) for g in gradients]
    right = [g.T @ g + torch.eye(g.size(1), device=g.device) for g in gradients]
    return shampoo, (weights, gradients, left, right)


def lamb(
    weights: list[Tensor], gradients: list[Tensor], m: list[Tensor], v: list[Tensor], step: Tensor
) -> tuple[Tensor, Tensor]:
    """You et al., 2020, with foreach operations, a global clip, and trust ratios of each tensor; in place."""
    step += 1
    norms = torch.stack(torch._foreach_norm(gradients))
    clip = (1.0 / norms.norm().clamp(min=1e-6)).clamp(max=1.0)
    scaled = torch._foreach_mul(gradients, clip)
    torch._foreach_lerp_(m, scaled, 0.1)
    torch._foreach_mul_(v, 0.999)
    torch._foreach_addcmul_(v, scaled, scaled, 0.001)
    first, second = 1 - 0.9**step, 1 - 0.999**step
    denominators = torch._foreach_add(torch._foreach_sqrt(torch._foreach_div(v, second)), 1e-6)
    updates = torch._foreach_div(torch._foreach_div(m, first), denominators)
    torch._foreach_add_(updates, weights, alpha=0.01)
    ratios = []
    for w, u in zip(weights, updates, strict=True):
        size, change = w.norm(), u.norm()
        ratio = torch.where((size > 0) & (change > 0), (size / change).clamp(max=10.0), 1.0)
        w.sub_(0.002 * ratio * u)
        ratios.append(ratio)
    return torch.stack(ratios), clip


def lamb_step(place: Place) -> Made:
    d = place.size(64, 768)
    shapes = [(4 * d, d), (d, 4 * d), (3 * d, d), (d, d), (4 * d,), (d,), (d,)] * 2
    tensors = [[place.randn(*s) * scale for s in shapes] for scale in (0.02, 0.5, 0.0)]
    v = [0.01 * place.rand(*s) for s in shapes]
    return lamb, (*tensors, v, torch.tensor(10.0, device=place.device))


def compressed_gradients(gradients: Tensor, error: Tensor, ratio: float = 0.01) -> tuple[Tensor, Tensor, Tensor]:
    """Deep gradient compression by workers: the largest entries are sent, the rest stays; then signs by blocks."""
    workers, n = gradients.shape
    corrected = gradients + error
    k = int(n * ratio)
    _, index = corrected.abs().topk(k, dim=1, sorted=False)
    values = corrected.gather(1, index)
    error.copy_(corrected.scatter(1, index, 0.0))
    total = torch.zeros(n, dtype=gradients.dtype, device=gradients.device)
    total = total.index_put((index.flatten(),), values.flatten(), accumulate=True) / workers
    blocks = error.view(workers, -1, 256)
    scale = blocks.abs().mean(-1, keepdim=True)
    signs = torch.where(blocks >= 0, 1.0, -1.0)
    dense = (signs * scale).mean(0).flatten()
    error.sub_((signs * scale).view_as(error))
    return total, dense, error.square().mean(1)


def gradient_compression(place: Place) -> Made:
    workers, n = place.size(4, 16), place.size(65_536, 1 << 20)
    return compressed_gradients, (place.randn(workers, n), 0.3 * place.randn(workers, n))


def power_compression(
    gradients: list[Tensor], errors: list[Tensor], bases: list[Tensor]
) -> tuple[list[Tensor], Tensor]:
    """PowerSGD: rank-four products by one power iteration over workers, Gram-Schmidt in a loop, error feedback."""
    results, lost = [], []
    for g, e, q in zip(gradients, errors, bases, strict=True):
        matrix = g + e
        p = (matrix @ q).mean(0)
        for i in range(p.size(1)):
            column = p[:, i : i + 1]
            column /= column.norm() + 1e-8
            if i + 1 < p.size(1):
                rest = p[:, i + 1 :]
                rest -= (column * rest).sum(0) * column
        new_q = (matrix.mT @ p).mean(0)
        low = p @ new_q.T
        e.copy_(matrix - low)
        q.copy_(new_q)
        results.append(low)
        lost.append(e.square().sum() / matrix.square().sum())
    return results, torch.stack(lost)


def power_sgd(place: Place) -> Made:
    workers, n, rank = place.size(2, 8), place.size(96, 768), 4
    shapes = [(n, n), (2 * n, n), (n, 3 * n)]
    gradients = [
        place.randn(workers, a, rank) @ place.randn(rank, b) + 0.3 * place.randn(workers, a, b) for a, b in shapes
    ]
    errors = [torch.zeros_like(g) for g in gradients]
    return power_compression, (gradients, errors, [place.randn(b, rank) for _, b in shapes])


class Federated(nn.Module):
    """FedProx: clients train copies of the weights on their own data, all at once by vmap; averaged by how much."""

    def __init__(self, net: nn.Module, steps: int = 3) -> None:
        super().__init__()
        self.net, self.steps = net, steps

    def forward(self, x: Tensor, y: Tensor, sizes: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        centre = {name: p.detach() for name, p in self.net.named_parameters()}

        def loss(weights: Weights, x: Tensor, y: Tensor) -> Tensor:
            fit = F.cross_entropy(functional_call(self.net, weights, (x,)), y)
            away = sum(((weights[name] - centre[name]) ** 2).sum() for name in weights)
            return fit + 0.005 * away

        clients = {name: p.expand(x.size(0), *p.shape) for name, p in centre.items()}
        for _ in range(self.steps):
            gradients = vmap(grad(loss))(clients, x, y)
            clients = {name: p - 0.1 * gradients[name] for name, p in clients.items()}
        share = sizes / sizes.sum()
        averaged = {name: torch.einsum("c,c...->...", share, p) for name, p in clients.items()}
        drift = torch.stack([(clients[name] - averaged[name]).square().flatten(1).sum(1) for name in clients])
        return averaged, drift.sum(0).sqrt()


def federated(place: Place) -> Made:
    clients, b, inputs, width = place.size(8, 64), place.size(16, 64), place.size(24, 64), place.size(32, 128)
    net = small_network(inputs, width, 10, place)
    return Federated(net), (
        place.randn(clients, b, inputs),
        place.randint(10, clients, b),
        1.0 + place.randint(100, clients),
    )


def limited_memory(gradient: Tensor, moves: Tensor, changes: Tensor, damping: Tensor) -> tuple[Tensor, Tensor]:
    """L-BFGS's two loops over stored pairs, several problems side by side, and Armijo's step on a quadratic."""
    count = moves.size(0)
    rho = 1 / (moves * changes).sum(-1)
    q = gradient
    alphas = []
    for i in range(count - 1, -1, -1):
        alpha = rho[i] * (moves[i] * q).sum(-1)
        q = q - alpha[:, None] * changes[i]
        alphas.append(alpha)
    scale = (moves[-1] * changes[-1]).sum(-1) / changes[-1].square().sum(-1)
    r = scale[:, None] * q
    for i in range(count):
        beta = rho[i] * (changes[i] * r).sum(-1)
        r = r + (alphas[count - 1 - i] - beta)[:, None] * moves[i]
    direction = -r
    slope = (direction * gradient).sum(-1)
    curvature = (direction.square() * damping).sum(-1)
    t = torch.ones_like(slope)
    for _ in range(6):
        value = t * slope + 0.5 * t**2 * curvature
        t = torch.where(value > 1e-4 * t * slope, 0.5 * t, t)
    return t[:, None] * direction, slope


def lbfgs(place: Place) -> Made:
    problems, n, pairs = place.size(16, 128), place.size(4096, 65_536), 8
    damping = 0.5 + place.rand(problems, n)
    moves = place.randn(pairs, problems, n)
    return limited_memory, (place.randn(problems, n), moves, moves * damping, 20 * damping)


ROWS: tuple[Row, ...] = (
    Row("program/private_sgd_step", private_step),
    Row("program/sharpness_aware_step", sharpness_aware, "training"),
    Row("program/shampoo_step", shampoo_step, writes=True),
    Row("program/lamb_step", lamb_step, writes=True),
    Row("program/top_k_error_feedback", gradient_compression, writes=True),
    Row("program/power_sgd", power_sgd, writes=True),
    Row("program/federated_proximal", federated),
    Row("program/limited_memory_bfgs", lbfgs),
)
