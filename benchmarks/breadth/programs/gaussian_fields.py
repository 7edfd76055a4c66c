"""Gaussian processes and fields: sparse and deep kernels, kriging, ensembles, square roots, mixtures of experts."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class SparseProcess(nn.Module):
    """Titsias, 2009: inducing points, the collapsed bound by two Cholesky factors, and its trace."""

    def __init__(self, inducing: int, d: int) -> None:
        super().__init__()
        self.z = nn.Parameter(torch.randn(inducing, d))
        self.log_scale = nn.Parameter(torch.full((d,), 0.5))
        self.log_signal, self.log_noise = nn.Parameter(torch.zeros(())), nn.Parameter(torch.tensor(-1.0))

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        a, b = a / self.log_scale.exp(), b / self.log_scale.exp()
        square = a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T
        return self.log_signal.exp() * torch.exp(-0.5 * square.clamp(min=0))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        m, n = self.z.size(0), x.size(0)
        noise = self.log_noise.exp()
        eye = torch.eye(m, dtype=x.dtype, device=x.device)
        factor = torch.linalg.cholesky(self.kernel(self.z, self.z) + 1e-2 * eye)
        a = torch.linalg.solve_triangular(factor, self.kernel(self.z, x), upper=False) / noise.sqrt()
        inner = torch.linalg.cholesky(eye + a @ a.T)
        c = torch.linalg.solve_triangular(inner, (a @ y)[:, None], upper=False) / noise.sqrt()
        bound = -0.5 * n * (math.log(2 * math.pi) + self.log_noise) - inner.diagonal().log().sum()
        bound = bound - 0.5 * y.square().sum() / noise + 0.5 * c.square().sum()
        return -(bound - 0.5 * (n * self.log_signal.exp() / noise - a.square().sum())) / n


def sparse_process(place: Place) -> Made:
    n, inducing, d = place.size(1200, 60_000), place.size(48, 256), 6
    return SparseProcess(inducing, d).to(place.device), (place.randn(n, d), place.randn(n))


def local_kriging(query: Tensor, sites: Tensor, values: Tensor, k: int = 12) -> tuple[Tensor, Tensor]:
    """Ordinary kriging: nearest sites of every query, a spherical variogram, Lagrange's multiplier."""
    square = query.square().sum(1)[:, None] + sites.square().sum(1) - 2 * query @ sites.T
    near = square.topk(k, dim=1, largest=False).indices
    place = sites[near]

    def variogram(h: Tensor) -> Tensor:
        r = (h / 0.5).clamp(max=1)
        return 0.1 + 0.9 * (1.5 * r - 0.5 * r**3)

    between = (place[:, :, None] - place[:, None]).square().sum(-1).clamp(min=1e-12).sqrt()
    own = torch.eye(k, dtype=torch.bool, device=sites.device)
    gamma = torch.where(own, 0.0, variogram(between))
    system = F.pad(gamma, (0, 1, 0, 1), value=1.0)
    system[:, k, k] = 0.0
    right = F.pad(variogram((place - query[:, None]).square().sum(-1).sqrt()), (0, 1), value=1.0)
    weight = torch.linalg.solve(system, right)
    estimate = (weight[:, :k] * values[near]).sum(1)
    return estimate, (weight * right).sum(1)


def kriging(place: Place) -> Made:
    queries, sites = place.size(200, 16_384), place.size(500, 8192)
    return local_kriging, (place.rand(queries, 2), place.rand(sites, 2), place.randn(sites))


class DeepKernel(nn.Module):
    """Wilson et al., 2016: a network's features in a Matérn kernel; likelihoods of many small tasks at once."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 4)
        )
        self.log_noise, self.log_length = nn.Parameter(torch.tensor(-1.0)), nn.Parameter(torch.tensor(0.0))

    def forward(self, x: Tensor, y: Tensor, query: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        def kernel(a: Tensor, b: Tensor) -> Tensor:
            r = (
                ((a[:, :, None] - b[:, None]).square().sum(-1) + 1e-4).sqrt()
                * math.sqrt(5)
                * torch.exp(-self.log_length)
            )
            return (1 + r + r**2 / 3) * torch.exp(-r)

        known, asked = self.net(x), self.net(query)
        eye = torch.eye(x.size(1), dtype=x.dtype, device=x.device)
        factor = torch.linalg.cholesky(kernel(known, known) + (self.log_noise.exp() + 1e-3) * eye)
        white = torch.linalg.solve_triangular(factor, y[..., None], upper=False)
        likelihood = 0.5 * white.square().sum(dim=(1, 2)) + factor.diagonal(dim1=1, dim2=2).log().sum(1)
        cross = torch.linalg.solve_triangular(factor, kernel(known, asked), upper=False)
        mean = (cross.mT @ white)[..., 0]
        variance = (1 - cross.square().sum(1)).clamp(min=1e-3) + self.log_noise.exp()
        held_out = 0.5 * (variance.log() + (target - mean) ** 2 / variance)
        return likelihood.mean() / x.size(1), held_out.mean()


def deep_kernel(place: Place) -> Made:
    tasks, shots, inputs, width = place.size(8, 256), place.size(20, 50), 8, place.size(32, 128)
    return DeepKernel(inputs, width).to(place.device), (
        place.randn(tasks, shots, inputs),
        place.randn(tasks, shots),
        place.randn(tasks, shots, inputs),
        place.randn(tasks, shots),
    )


def ensemble_kalman(ensemble: Tensor, noise: Tensor, seen: Tensor, steps: int = 10) -> tuple[Tensor, Tensor]:
    """Evensen, 1994: members of Lorenz's model of 1996 forecast by Runge and Kutta, then tapered covariances update."""
    members, n = ensemble.shape

    def rate(x: Tensor) -> Tensor:
        return (x.roll(-1, 1) - x.roll(2, 1)) * x.roll(1, 1) - x + 8.0

    for _ in range(steps):
        k1 = rate(ensemble)
        k2 = rate(ensemble + 0.005 * k1)
        k3 = rate(ensemble + 0.005 * k2)
        k4 = rate(ensemble + 0.01 * k3)
        ensemble = ensemble + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    i = torch.arange(n, device=ensemble.device)
    gap = (i[:, None] - i).abs()
    gap = torch.minimum(gap, n - gap).to(ensemble.dtype)
    taper = torch.exp(-((gap / 8) ** 2))
    deviation = ensemble - ensemble.mean(0)
    covariance = taper * (deviation.T @ deviation) / (members - 1)
    observed = i[::4]
    gain_t = torch.linalg.solve(
        covariance[observed][:, observed]
        + 0.5 * torch.eye(len(observed), dtype=ensemble.dtype, device=ensemble.device),
        covariance[observed],
    )
    innovation = seen + 0.7 * noise - ensemble[:, observed]
    updated = ensemble + innovation @ gain_t
    return updated, covariance.diagonal().sqrt()


def data_assimilation(place: Place) -> Made:
    members, n = place.size(64, 4096), place.size(120, 2048)
    return ensemble_kalman, (2 + 3 * place.randn(members, n), place.randn(members, n // 4), 2 + place.randn(n // 4))


def square_root_filter(y: Tensor, move: Tensor, look: Tensor) -> tuple[Tensor, Tensor]:
    """Potter's and Carlson's square roots: predicted factors by QR of stacked matrices, scalar measurements in turn."""
    b, length, seen = y.shape
    s = move.size(-1)
    eye = torch.eye(s, dtype=y.dtype, device=y.device).expand(b, s, s)
    mean, root = y.new_zeros(b, s), eye
    track = []
    for t in range(length):
        mean = torch.einsum("bij,bj->bi", move, mean)
        stacked = torch.cat([(move @ root).mT, 0.3 * eye], 1)
        root = torch.linalg.qr(stacked, mode="r").R.mT
        for m in range(seen):
            a = torch.einsum("bij,i->bj", root, look[m])
            beta = 1 / (a.square().sum(-1) + 0.5)
            gamma = 1 / (1 + (0.5 * beta).sqrt())
            gain = torch.einsum("bij,bj->bi", root, a) * beta[:, None]
            mean = mean + gain * (y[:, t, m] - mean @ look[m])[:, None]
            root = root - gamma[:, None, None] * gain[..., None] * a[:, None]
        track.append(mean)
    return torch.stack(track, 1), root @ root.mT


def square_roots(place: Place) -> Made:
    b, length, states, seen = place.size(16, 2048), 5, 6, 3
    move = 0.8 * torch.eye(states).to(place.device) + 0.1 * place.randn(b, states, states)
    return square_root_filter, (place.randn(b, length, seen), move, place.randn(seen, states))


def circulant_field(noise: Tensor, length: Tensor, roughness: float = 1.5) -> tuple[Tensor, Tensor]:
    """Dietrich and Newsam, 1997: stationary fields by circulant embedding, wet places, variograms."""
    n = noise.size(-2)
    d = torch.arange(n, device=noise.device, dtype=noise.dtype)
    d = torch.minimum(d, n - d)
    r = (d[:, None] ** 2 + d**2 + 1e-6).sqrt() / length[:, None, None]
    covariance = (1 + math.sqrt(3) * r) * torch.exp(-math.sqrt(3) * r) * (1 + roughness * r**2).rsqrt()
    spectrum = torch.fft.fft2(covariance).real.clamp(min=1e-3)
    field = torch.fft.fft2(spectrum.sqrt() * torch.view_as_complex(noise)) / n
    field = field.real[:, : n // 2, : n // 2]
    lags = [1, 2, 4, 8]
    variogram = torch.stack([0.5 * (field[..., k:] - field[..., :-k]).square().mean(dim=(1, 2)) for k in lags], -1)
    wet = torch.sigmoid(4 * (field - 0.5))
    return field * wet, variogram


def random_fields(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(256, 1024)
    return circulant_field, (place.randn(b, n, n, 2), (2 + 6 * place.rand(b)).requires_grad_())


ROWS: tuple[Row, ...] = (
    Row("program/sparse_inducing_points", sparse_process, "training"),
    Row("program/local_kriging", kriging),
    Row("program/deep_kernel_tasks", deep_kernel, "training"),
    Row("program/ensemble_kalman_lorenz", data_assimilation),
    Row("program/square_root_filter", square_roots),
    Row("program/circulant_random_fields", random_fields, "training"),
)
