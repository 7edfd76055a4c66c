"""Distances, clusters, alignments and factorisations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def lloyd_step(x: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """k-means: assign, average, keep the centroids of empty clusters; the inertia."""
    d2 = (x**2).sum(1, keepdim=True) - 2 * x @ centroids.T + (centroids**2).sum(1)
    distance, label = d2.min(dim=1)
    sums = torch.zeros_like(centroids).index_add_(0, label, x)
    counts = torch.bincount(label, minlength=len(centroids)).to(x.dtype)
    new = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centroids)
    return new, distance.clamp(min=0).sum()


def k_means(place: Place) -> Made:
    n, k = place.size(8000, 1_000_000), place.size(64, 256)
    return lloyd_step, (place.randn(n, 32), place.randn(k, 32))


def knn_regression(queries: Tensor, points: Tensor, values: Tensor, k: int = 8) -> Tensor:
    """Inverse distance weighting of the nearest k."""
    distance, index = torch.cdist(queries, points).topk(k, dim=1, largest=False)
    weight = 1 / (distance + 1e-3)
    weight = weight / weight.sum(1, keepdim=True)
    return torch.einsum("qk,qkc->qc", weight, values[index])


def knn(place: Place) -> Made:
    m, n = place.size(400, 10_000), place.size(2000, 20_000)
    return knn_regression, (place.randn(m, 8), place.randn(n, 8), place.randn(n, 4))


def dbscan(x: Tensor, eps: float = 0.15, minimum: int = 6) -> tuple[Tensor, Tensor]:
    """Core points, and labels by spreading the least index through the core graph in ten rounds."""
    n = x.shape[0]
    near = (x[:, None, :] - x[None, :, :]).square().sum(-1) < eps * eps
    core = near.sum(1) >= minimum
    linked = near & core[None, :]
    label = torch.where(core, torch.arange(n, device=x.device), n)
    for _ in range(10):
        spread = torch.where(linked, label[None, :], n).amin(1)
        label = torch.where(core, torch.minimum(label, spread), n)
    border = torch.where(linked, label[None, :], n).amin(1)
    return torch.where(core, label, border), core


def density_clusters(place: Place) -> Made:
    n = place.size(400, 4000)
    return dbscan, (place.rand(n, 2),)


class SoftDTW(nn.Module):
    """Cuturi and Blondel, 2017, over anti-diagonals of the skewed cost matrix."""

    def __init__(self, gamma: float = 0.5) -> None:
        super().__init__()
        self.gamma = gamma

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        cost = (x[:, :, None] - y[:, None, :]).pow(2).sum(-1)
        b, n, m = cost.shape
        big = 1e6
        skewed = F.pad(cost, (0, n), value=big).flatten(1)[:, : n * (n + m - 1)].view(b, n, n + m - 1)
        corner = torch.zeros_like(cost[:, :1, 0])
        older = torch.cat([corner, torch.full_like(cost[:, :, 0], big)], 1)
        newer = torch.full_like(older, big)
        for d in range(n + m - 1):
            options = torch.stack([older[:, :-1], newer[:, :-1], newer[:, 1:]], -1)
            soft_min = -self.gamma * torch.logsumexp(-options / self.gamma, dim=-1)
            newest = F.pad(skewed[:, :, d] + soft_min, (1, 0), value=big)
            older, newer = newer, newest
        return newer[:, -1]


def soft_dtw(place: Place) -> Made:
    b, n = place.size(16, 256), place.size(16, 48)
    return SoftDTW(), (place.randn(b, n, 4).requires_grad_(), place.randn(b, n, 4).requires_grad_())


def principal_components(x: Tensor, start: Tensor, rounds: int = 8) -> tuple[Tensor, Tensor]:
    """Block power iteration with Gram-Schmidt in a Python loop; explained variance and the projected data."""
    x = x - x.mean(0)
    q = start
    for _ in range(rounds):
        z = x.t() @ (x @ q)
        columns: list[Tensor] = []
        for v in z.unbind(1):
            for u in columns:
                v = v - (u @ v) * u
            columns.append(v / v.norm())
        q = torch.stack(columns, dim=1)
    projected = x @ q
    return projected.var(0), projected.square()


def pca(place: Place) -> Made:
    n, d = place.size(4000, 500_000), place.size(64, 256)
    spectrum = 3.0 ** (-torch.arange(d).float()).clamp(min=-4)
    return principal_components, (place.randn(n, d) * spectrum.to(place.device), place.randn(d, 4))


class GaussianMixture(nn.Module):
    """The negative log-likelihood of points under diagonal Gaussians, and the responsibilities."""

    def __init__(self, k: int, d: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.randn(k, d))
        self.log_std = nn.Parameter(torch.zeros(k, d))
        self.logits = nn.Parameter(torch.zeros(k))

    def forward(self, x: Tensor) -> Tensor:
        z = (x[:, None, :] - self.mean) * torch.exp(-self.log_std)
        log_p = -0.5 * z.square().sum(-1) - self.log_std.sum(-1) - 0.9189385 * x.shape[-1]
        return -torch.logsumexp(log_p + torch.log_softmax(self.logits, 0), dim=1).mean()


def gaussian_mixture(place: Place) -> Made:
    n, k = place.size(2000, 200_000), 32
    return GaussianMixture(k, 16).to(place.device), (place.randn(n, 16),)


def sinkhorn(x: Tensor, y: Tensor, epsilon: float = 0.1, rounds: int = 10) -> Tensor:
    """Entropic optimal transport in the log domain: the cost of the plan."""
    cost = ((x[:, :, None] - y[:, None]) ** 2).sum(-1)
    kernel = -cost / epsilon
    f, g = torch.zeros_like(cost[:, :, 0]), torch.zeros_like(cost[:, 0])
    for _ in range(rounds):
        f = -torch.logsumexp(kernel + g[:, None, :], dim=2)
        g = -torch.logsumexp(kernel + f[:, :, None], dim=1)
    plan = torch.exp(kernel + f[:, :, None] + g[:, None, :])
    return (plan * cost).sum((1, 2))


def optimal_transport(place: Place) -> Made:
    b, n = place.size(4, 64), place.size(64, 512)
    return sinkhorn, (place.rand(b, n, 3).requires_grad_(), place.rand(b, n, 3))


ROWS: tuple[Row, ...] = (
    Row("program/k_means_step", k_means),
    Row("program/knn_regression", knn),
    Row("program/dbscan", density_clusters),
    Row("program/soft_dtw", soft_dtw, "training"),
    Row("program/pca_power_iteration", pca),
    Row("program/gaussian_mixture", gaussian_mixture, "training"),
    Row("program/sinkhorn", optimal_transport, "training"),
)
