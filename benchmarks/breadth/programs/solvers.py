"""Equations by hand: Krylov spaces, eigenvalues by rotations, tridiagonal systems, fits, recursive updates."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def gmres(a: Tensor, b: Tensor, steps: int = 16) -> tuple[Tensor, Tensor]:
    """Saad and Schultz, 1986: Arnoldi by modified Gram-Schmidt, Givens rotations on the fly, a triangular solve."""
    beta = b.norm(dim=-1)
    basis = [b / beta[:, None]]
    columns: list[Tensor] = []
    cosines: list[Tensor] = []
    sines: list[Tensor] = []
    right = [beta]
    for j in range(steps):
        w = torch.einsum("bij,bj->bi", a, basis[j])
        h = []
        for v in basis:
            coefficient = (v * w).sum(-1)
            w = w - coefficient[:, None] * v
            h.append(coefficient)
        norm = w.norm(dim=-1)
        basis.append(w / norm[:, None])
        for i, (c, s) in enumerate(zip(cosines, sines, strict=True)):
            h[i], h[i + 1] = c * h[i] + s * h[i + 1], c * h[i + 1] - s * h[i]
        radius = torch.hypot(h[j], norm)
        c, s = h[j] / radius, norm / radius
        cosines.append(c)
        sines.append(s)
        h[j] = radius
        right.append(-s * right[j])
        right[j] = c * right[j]
        columns.append(torch.stack([*h, *[torch.zeros_like(beta)] * (steps - 1 - j)], -1))
    triangle = torch.stack(columns, -1)
    y = torch.linalg.solve_triangular(triangle, torch.stack(right[:-1], -1)[..., None], upper=True)
    x = torch.einsum("bji,bj->bi", torch.stack(basis[:-1], 1), y[..., 0])
    return x, right[-1].abs() / beta


def krylov(place: Place) -> Made:
    b, n = place.size(2, 16), place.size(160, 1024)
    a = torch.eye(n, device=place.device) + 0.4 * place.randn(b, n, n) / n**0.5
    return gmres, (a, place.randn(b, n))


def bicgstab(rhs: Tensor, wind_x: Tensor, wind_y: Tensor, steps: int = 12) -> tuple[Tensor, Tensor]:
    """Van der Vorst, 1992: an upwind convection and diffusion stencil, matrix-free; residuals of every step."""

    def apply(u: Tensor) -> Tensor:
        p = F.pad(u, (1, 1, 1, 1))
        west, east, north, south = p[:, 1:-1, :-2], p[:, 1:-1, 2:], p[:, :-2, 1:-1], p[:, 2:, 1:-1]
        flow = wind_x.clamp(min=0) * (u - west) + wind_x.clamp(max=0) * (east - u)
        flow = flow + wind_y.clamp(min=0) * (u - north) + wind_y.clamp(max=0) * (south - u)
        return 5 * u - west - east - north - south + flow

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(dim=(1, 2), keepdim=True)

    x = torch.zeros_like(rhs)
    r = rhs.clone()
    shadow, p = r, r
    rho = dot(shadow, r)
    history = []
    for _ in range(steps):
        ap = apply(p)
        alpha = rho / dot(shadow, ap)
        s = r - alpha * ap
        ass = apply(s)
        omega = dot(ass, s) / dot(ass, ass)
        x = x + alpha * p + omega * s
        r = s - omega * ass
        new = dot(shadow, r)
        p = r + new / rho * alpha / omega * (p - omega * ap)
        rho = new
        history.append(dot(r, r).flatten())
    return x, torch.stack(history, -1).sqrt() / rhs.flatten(1).norm(dim=1)[:, None]


def convection(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(96, 768)
    return bicgstab, (place.randn(b, n, n), place.randn(n, n), place.randn(n, n))


def jacobi_eigenvalues(a: Tensor, sweeps: int = 2) -> tuple[Tensor, Tensor]:
    """Brent and Luk's parallel order: n/2 disjoint rotations at a time, by a tournament's schedule; batched."""
    n = a.size(-1)
    half = n // 2
    seats = list(range(n))
    for _ in range(sweeps * (n - 1)):
        p, q = torch.tensor(seats[:half], device=a.device), torch.tensor(seats[half:][::-1], device=a.device)
        app, aqq, apq = a[:, p, p], a[:, q, q], a[:, p, q]
        angle = 0.5 * torch.atan2(2 * apq, aqq - app)
        c, s = torch.cos(angle)[:, :, None], torch.sin(angle)[:, :, None]
        rows_p, rows_q = a[:, p], a[:, q]
        a = a.clone()
        a[:, p] = c * rows_p - s * rows_q
        a[:, q] = s * rows_p + c * rows_q
        c, s = c.mT, s.mT
        columns_p, columns_q = a[:, :, p], a[:, :, q]
        a[:, :, p] = c * columns_p - s * columns_q
        a[:, :, q] = s * columns_p + c * columns_q
        seats = [seats[0], seats[-1], *seats[1:-1]]
    diagonal = a.diagonal(dim1=-2, dim2=-1)
    off = (a.square().sum(dim=(1, 2)) - diagonal.square().sum(-1)).clamp(min=0)
    return diagonal.sort(dim=-1).values, off / a.square().sum(dim=(1, 2))


def rotations(place: Place) -> Made:
    b, n = place.size(64, 16_384), 12
    a = place.randn(b, n, n)
    return jacobi_eigenvalues, (a + a.mT,)


def cyclic_reduction(lower: Tensor, main: Tensor, upper: Tensor, rhs: Tensor) -> Tensor:
    """Hockney, 1965, the parallel form: every equation eliminates its neighbours at twice the distance each time."""
    n = main.size(-1)
    distance = 1
    while distance < n:

        def before(t: Tensor, fill: float, d: int = distance) -> Tensor:
            return F.pad(t, (d, 0), value=fill)[..., :-d]

        def after(t: Tensor, fill: float, d: int = distance) -> Tensor:
            return F.pad(t, (0, d), value=fill)[..., d:]

        k1 = lower / before(main, 1.0)
        k2 = upper / after(main, 1.0)
        main = main - before(upper, 0.0) * k1 - after(lower, 0.0) * k2
        rhs = rhs - before(rhs, 0.0) * k1 - after(rhs, 0.0) * k2
        lower, upper = -before(lower, 0.0) * k1, -after(upper, 0.0) * k2
        distance *= 2
    return rhs / main


def tridiagonal(place: Place) -> Made:
    b, n = place.size(64, 8192), place.size(256, 1024)
    lower, upper = -place.rand(b, n), -place.rand(b, n)
    lower[:, 0], upper[:, -1] = 0.0, 0.0
    tensors = lower, 2.2 + place.rand(b, n), upper, place.randn(b, n)
    return cyclic_reduction, tuple(t.requires_grad_() for t in tensors)


def levenberg_marquardt(t: Tensor, y: Tensor, start: Tensor, rounds: int = 6) -> tuple[Tensor, Tensor]:
    """Fits of two decays to many curves: Jacobians by hand, damped normal equations, steps taken where they help."""

    def model(p: Tensor) -> tuple[Tensor, Tensor]:
        a, k, b, m = (p[:, i : i + 1] for i in range(4))
        first, second = torch.exp(-k.exp() * t), torch.exp(-m.exp() * t)
        jacobian = torch.stack([first, -a * k.exp() * t * first, second, -b * m.exp() * t * second], -1)
        return a * first + b * second, jacobian

    p = start
    damping = torch.full_like(p[:, :1], 0.1)
    value, jacobian = model(p)
    cost = (y - value).square().sum(1, keepdim=True)
    for _ in range(rounds):
        gram = torch.einsum("bti,btj->bij", jacobian, jacobian)
        slope = torch.einsum("bti,bt->bi", jacobian, y - value)
        scale = gram.diagonal(dim1=1, dim2=2) + 1e-2
        system = gram + torch.diag_embed(damping * scale)
        move = torch.cholesky_solve(slope[..., None], torch.linalg.cholesky(system))[..., 0]
        share = torch.sigmoid(50 * (cost - (y - model(p + move)[0]).square().sum(1, keepdim=True)) / cost)
        p = p + share * move
        damping = damping * torch.exp(1 - 2 * share)
        value, jacobian = model(p)
        cost = (y - value).square().sum(1, keepdim=True)
    return p, cost


def decays(place: Place) -> Made:
    b, n = place.size(256, 65_536), 48
    t = torch.linspace(0, 4, n, device=place.device)
    rate = place.rand(b, 2)
    y = torch.exp(-(0.3 + 0.3 * rate[:, :1]) * t) + 0.7 * torch.exp(-(2 + rate[:, 1:]) * t) + 0.05 * place.randn(b, n)
    start = torch.tensor([0.8, -0.7, 0.8, 0.6], device=place.device).repeat(b, 1)
    return levenberg_marquardt, (t, y, start)


class SmoothedStates(nn.Module):
    """Rauch, Tung and Striebel, 1965: Kalman's filter forwards, the smoother backwards, the loss on smoothed means."""

    def __init__(self, states: int, seen: int) -> None:
        super().__init__()
        self.move = nn.Parameter(0.9 * torch.eye(states) + 0.05 * torch.randn(states, states))
        self.look = nn.Parameter(torch.randn(seen, states) / states**0.5)
        self.log_q, self.log_r = nn.Parameter(torch.zeros(states)), nn.Parameter(torch.zeros(seen))

    def forward(self, y: Tensor) -> tuple[Tensor, Tensor]:
        b, length, _ = y.shape
        s = self.move.size(0)
        eye = torch.eye(s, dtype=y.dtype, device=y.device)
        q, r = torch.diag(self.log_q.exp()), torch.diag(self.log_r.exp())
        mean, cov = y.new_zeros(b, s), eye
        filtered, likelihood = [], y.new_zeros(b)
        for t in range(length):
            ahead, spread = mean @ self.move.T, self.move @ cov @ self.move.T + q
            factor = torch.linalg.cholesky(self.look @ spread @ self.look.T + r)
            gain = torch.cholesky_solve(self.look @ spread, factor).T
            error = y[:, t] - ahead @ self.look.T
            white = torch.linalg.solve_triangular(factor, error.T, upper=False)
            likelihood = likelihood - 0.5 * white.square().sum(0) - factor.diagonal().log().sum()
            mean = ahead + error @ gain.T
            keep = eye - gain @ self.look
            cov = keep @ spread @ keep.T + gain @ r @ gain.T
            filtered.append((ahead, spread, mean, cov))
        smooth = mean
        total = (smooth @ self.look.T - y[:, -1]).square().mean()
        for t in range(length - 2, -1, -1):
            _, _, mean, cov = filtered[t]
            ahead, spread, _, _ = filtered[t + 1]
            back = torch.linalg.solve(spread, self.move @ cov).T
            smooth = mean + (smooth - ahead) @ back.T
            total = total + (smooth @ self.look.T - y[:, t]).square().mean()
        return total / length, -likelihood.mean()


def smoother(place: Place) -> Made:
    b, length, states = place.size(64, 16_384), place.size(12, 16), 6
    return SmoothedStates(states, 4).to(place.device), (place.randn(b, length, 4),)


def newton_polar(a: Tensor, steps: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """Higham's iteration for polar factors with scaled inverses of 3x3 matrices by cofactors; strains from the rest."""
    u = a
    for _ in range(steps):
        cofactor = torch.stack(
            [torch.linalg.cross(u[:, (i + 1) % 3], u[:, (i + 2) % 3], dim=-1) for i in range(3)], dim=1
        )
        det = (u[:, 0] * cofactor[:, 0]).sum(-1)[:, None, None]
        inverse = cofactor / det
        scale = (inverse.square().sum(dim=(1, 2)) / u.square().sum(dim=(1, 2))).pow(0.25)[:, None, None]
        u = 0.5 * (scale * u + inverse / scale)
    stretch = u.mT @ a
    strain = 0.5 * (stretch @ stretch - torch.eye(3, dtype=a.dtype, device=a.device))
    invariants = torch.stack([strain.diagonal(dim1=1, dim2=2).sum(-1), strain.square().sum(dim=(1, 2))], -1)
    return u, 0.5 * (stretch + stretch.mT), invariants


def polar(place: Place) -> Made:
    n = place.size(4000, 1_000_000)
    return newton_polar, (torch.eye(3).to(place.device) + 0.25 * place.rand(n, 3, 3),)


def chebyshev_filter(x: Tensor, weight: Tensor, degree: int = 10) -> tuple[Tensor, Tensor]:
    """Zhou and Saad, 2007: a block of vectors through Chebyshev's polynomial of a banded matrix, then Rayleigh-Ritz."""
    low, high = 1.5, 9.0
    centre, half = (high + low) / 2, (high - low) / 2

    def apply(v: Tensor) -> Tensor:
        out = (4 + weight)[:, None] * v
        for shift, share in ((1, -1.0), (2, -0.4), (7, -0.3)):
            out = out + share * (F.pad(v, (0, 0, shift, 0))[:-shift] + F.pad(v, (0, 0, 0, shift))[shift:])
        return out

    before, now = x, (apply(x) - centre * x) / half
    for _ in range(2, degree + 1):
        before, now = now, 2 * (apply(now) - centre * now) / half - before
    factor = torch.linalg.cholesky(now.T @ now)
    basis = torch.linalg.solve_triangular(factor, now.T, upper=False).T
    ritz, _ = torch.linalg.eigh(basis.T @ apply(basis))
    return ritz, (apply(basis) - basis * (basis * apply(basis)).sum(0)).norm(dim=0).sort().values


def filtered_subspace(place: Place) -> Made:
    n, k = place.size(6000, 1_000_000), 16
    return chebyshev_filter, (place.randn(n, k), place.rand(n))


def ridge_path(x: Tensor, y: Tensor, penalties: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Golub, Heath and Wahba, 1979: ridge regressions of all penalties from one decomposition, validated."""
    rows = x.size(1)
    value, vector = torch.linalg.eigh(x.mT @ x)
    value = value.clamp(min=0)
    rotated = torch.einsum("bji,bj->bi", vector, torch.einsum("bni,bn->bi", x, y))
    shrunk = rotated[:, None] / (value[:, None] + penalties[:, None])
    coefficients = torch.einsum("bij,bpj->bpi", vector, shrunk)
    residual = y[:, None] - torch.einsum("bni,bpi->bpn", x, coefficients)
    freedom = (value[:, None] / (value[:, None] + penalties[:, None])).sum(-1)
    score = rows * residual.square().sum(-1) / (rows - freedom) ** 2
    weight = torch.softmax(-20 * score / score.amin(1, keepdim=True), 1)
    return torch.einsum("bp,bpi->bi", weight, coefficients), score, freedom


def penalties(place: Place) -> Made:
    b, rows, features = place.size(32, 128), place.size(256, 1024), place.size(24, 64)
    grid = torch.exp(torch.linspace(-2, 7, 24)).to(place.device)
    return ridge_path, (place.randn(b, rows, features), place.randn(b, rows), grid)


ROWS: tuple[Row, ...] = (
    Row("program/gmres_arnoldi", krylov),
    Row("program/bicgstab_convection", convection),
    Row("program/jacobi_eigenvalues", rotations),
    Row("program/cyclic_reduction", tridiagonal, "training"),
    Row("program/levenberg_marquardt_curves", decays),
    Row("program/rauch_tung_striebel", smoother, "training"),
    Row("program/newton_polar_strain", polar),
    Row("program/chebyshev_filtered_subspace", filtered_subspace),
    Row("program/ridge_path_validation", penalties),
)
