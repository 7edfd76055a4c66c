"""Linear algebra written out by hand: eigenvalues, factorisations, Krylov methods, recursions over blocks."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..row import Made, Place, Row


def jacobi_eigenvalues(matrix: Tensor, sweeps: int = 4) -> tuple[Tensor, Tensor]:
    """Cyclic Jacobi rotations of small symmetric matrices, in a batch: eigenvalues and what is off the diagonal."""
    a = matrix.clone()
    n = a.size(-1)
    for _ in range(sweeps):
        for p in range(n - 1):
            for q in range(p + 1, n):
                apq = a[:, p, q]
                theta = (a[:, q, q] - a[:, p, p]) / (2 * apq + 1e-20)
                t = torch.sign(theta) / (theta.abs() + torch.sqrt(theta * theta + 1))
                c = torch.rsqrt(t * t + 1)
                s = t * c
                row_p, row_q = a[:, p].clone(), a[:, q].clone()
                a[:, p] = c[:, None] * row_p - s[:, None] * row_q
                a[:, q] = s[:, None] * row_p + c[:, None] * row_q
                column_p, column_q = a[:, :, p].clone(), a[:, :, q].clone()
                a[:, :, p] = c[:, None] * column_p - s[:, None] * column_q
                a[:, :, q] = s[:, None] * column_p + c[:, None] * column_q
    diagonal = a.diagonal(dim1=-2, dim2=-1)
    off = a.square().sum((1, 2)) - diagonal.square().sum(-1)
    return diagonal.sort(-1).values, off.clamp(min=0).mean()


def jacobi(place: Place) -> Made:
    m = place.randn(place.size(2048, 65_536), 4, 4)
    return jacobi_eigenvalues, (m + m.mT,)


def laplacian(x: Tensor, kappa: Tensor) -> Tensor:
    """The five-point operator with a coefficient that varies, zero outside."""
    padded = F.pad(x, (1, 1, 1, 1))
    k = F.pad(kappa[None, None], (1, 1, 1, 1), mode="replicate")[0, 0]
    centre = k[1:-1, 1:-1]
    out = torch.zeros_like(x)
    for dy, dx in ((0, 1), (2, 1), (1, 0), (1, 2)):
        h, w = x.shape
        face = 0.5 * (centre + k[dy : dy + h, dx : dx + w])
        out += face * (x - padded[dy : dy + h, dx : dx + w])
    return out


def conjugate_gradients(kappa: Tensor, b: Tensor, steps: int = 12) -> tuple[Tensor, Tensor]:
    """Preconditioned by the diagonal, for flow in a porous medium; the solution and the residuals on the way."""
    diagonal = 4 * kappa
    x = torch.zeros_like(b)
    r = b - laplacian(x, kappa)
    z = r / diagonal
    p = z
    rz = (r * z).sum()
    history = []
    for _ in range(steps):
        ap = laplacian(p, kappa)
        alpha = rz / (p * ap).sum()
        x = x + alpha * p
        r = r - alpha * ap
        z = r / diagonal
        rz_new = (r * z).sum()
        p = z + (rz_new / rz) * p
        rz = rz_new
        history.append(r.norm())
    return x, torch.stack(history)


def cg(place: Place) -> Made:
    n = place.size(128, 1024)
    return conjugate_gradients, (0.5 + place.rand(n, n), place.randn(n, n))


def block_thomas(lower: Tensor, diagonal: Tensor, upper: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Block-tridiagonal systems by Thomas' elimination: (batch, blocks, d, d); the solution and its log-determinant."""
    blocks = diagonal.size(1)
    pivot, right = diagonal[:, 0], b[:, 0]
    pivots, rights = [pivot], [right]
    for i in range(1, blocks):
        factor = torch.linalg.solve(pivot.mT, lower[:, i].mT).mT
        pivot = diagonal[:, i] - factor @ upper[:, i - 1]
        right = b[:, i] - (factor @ right[..., None]).squeeze(-1)
        pivots.append(pivot)
        rights.append(right)
    x = torch.linalg.solve(pivots[-1], rights[-1])
    solution = [x]
    for i in range(blocks - 2, -1, -1):
        x = torch.linalg.solve(pivots[i], rights[i] - torch.einsum("bij,bj->bi", upper[:, i], x))
        solution.append(x)
    log_det = torch.stack([torch.linalg.slogdet(p)[1] for p in pivots]).sum(0)
    return torch.stack(solution[::-1], dim=1), log_det


def thomas(place: Place) -> Made:
    batch, blocks, d = place.size(64, 2048), place.size(8, 12), 4
    diagonal = 4 * torch.eye(d, device=place.device) + 0.3 * place.randn(batch, blocks, d, d)
    sides = [0.3 * place.randn(batch, blocks, d, d) for _ in range(2)]
    right = place.randn(batch, blocks, d)
    return block_thomas, (sides[0], diagonal.requires_grad_(), sides[1], right.requires_grad_())


def lanczos(matrix: Tensor, start: Tensor, steps: int = 16) -> tuple[Tensor, Tensor]:
    """Lanczos' tridiagonal coefficients with full reorthogonalisation, and the trace of log by quadrature."""
    n = start.size(-1)
    q = start / start.norm(dim=-1, keepdim=True)
    basis = start.new_zeros(steps, *start.shape)
    alphas, betas = [], []
    previous, beta = torch.zeros_like(q), start.new_zeros(start.size(0), 1)
    for i in range(steps):
        basis[i] = q
        w = q @ matrix - beta * previous
        alpha = (w * q).sum(-1, keepdim=True)
        w = w - alpha * q
        known = basis[: i + 1]
        w = w - torch.einsum("kb,kbn->bn", torch.einsum("kbn,bn->kb", known, w), known)
        beta = w.norm(dim=-1, keepdim=True)
        previous, q = q, w / beta
        alphas.append(alpha.squeeze(-1))
        betas.append(beta.squeeze(-1))
    a, b = torch.stack(alphas, -1), torch.stack(betas, -1)
    t = torch.diag_embed(a) + torch.diag_embed(b[:, :-1], 1) + torch.diag_embed(b[:, :-1], -1)
    values, vectors = torch.linalg.eigh(t)
    trace = n * (vectors[:, 0].square() * values.clamp(min=1e-6).log()).sum(-1)
    return t, trace


def quadrature(place: Place) -> Made:
    n, probes = place.size(384, 4096), place.size(4, 16)
    m = place.randn(n, n) / n**0.5
    spd = m @ m.T + torch.eye(n, device=place.device)
    return lanczos, (spd, 2.0 * place.randint(2, probes, n) - 1)


def householder_qr(a: Tensor) -> tuple[Tensor, Tensor]:
    """Householder's reflections column by column, on a stack of tall matrices; thin Q and R."""
    r = a.clone()
    batch, m, n = a.shape
    vectors = []
    for j in range(n):
        x = r[:, j:, j]
        norm = x.norm(dim=-1)
        v = x.clone()
        v[:, 0] += torch.where(x[:, 0] >= 0, norm, -norm)
        v = v / v.norm(dim=-1, keepdim=True)
        r[:, j:, j:] -= 2 * v[:, :, None] * (v[:, None, :] @ r[:, j:, j:])
        vectors.append(v)
    q = torch.eye(m, n, dtype=a.dtype, device=a.device).repeat(batch, 1, 1)
    for j in reversed(range(n)):
        v = vectors[j]
        q[:, j:] -= 2 * v[:, :, None] * (v[:, None, :] @ q[:, j:])
    return q, r[:, :n].triu()


def householder(place: Place) -> Made:
    return householder_qr, (place.randn(place.size(256, 4096), place.size(24, 32), 12),)


def blocked_cholesky(k: Tensor, y: Tensor, block: int = 32) -> tuple[Tensor, Tensor]:
    """A right-looking factorisation by blocks, and the Gaussian log-density through it."""
    n = k.size(-1)
    rest = k
    columns = []
    for start in range(0, n, block):
        size = min(block, n - start)
        corner = torch.linalg.cholesky(rest[:size, :size])
        below = torch.linalg.solve_triangular(corner, rest[size:, :size].mT, upper=False).mT
        rest = rest[size:, size:] - below @ below.mT
        columns.append(F.pad(torch.cat([corner, below]), (0, 0, start, 0)))
    factor = torch.cat(columns, dim=1)
    white = torch.linalg.solve_triangular(factor, y[:, None], upper=False)
    log_density = -0.5 * white.square().sum() - factor.diagonal().log().sum() - 0.5 * n * math.log(2 * math.pi)
    return log_density, factor


def cholesky(place: Place) -> Made:
    n = place.size(160, 1024)
    m = place.randn(n, n) / n**0.5
    spd = m @ m.T + 0.5 * torch.eye(n, device=place.device)
    return blocked_cholesky, (spd.requires_grad_(), place.randn(n))


def matrix_exponential(a: Tensor, target: Tensor, squarings: int = 4) -> tuple[Tensor, Tensor]:
    """Scaling and squaring with the (5, 5) Padé approximant: rates of a continuous-time Markov chain."""
    off = F.softplus(a) * (1 - torch.eye(a.size(-1), dtype=a.dtype, device=a.device))
    q = off - torch.diag_embed(off.sum(-1))
    x = q / 2**squarings
    i = torch.eye(a.size(-1), dtype=a.dtype, device=a.device)
    x2 = x @ x
    x4 = x2 @ x2
    even = 30240 * i + 3360 * x2 + 30 * x4
    odd = x @ (15120 * i + 420 * x2 + x4)
    p = torch.linalg.solve(even - odd, even + odd)
    for _ in range(squarings):
        p = p @ p
    likelihood = (target * torch.log(p.clamp(min=1e-8))).sum((-2, -1))
    return -likelihood.mean(), p


def markov_rates(place: Place) -> Made:
    batch, n = place.size(32, 1024), place.size(16, 20)
    return matrix_exponential, (place.randn(batch, n, n).requires_grad_(), 1.0 * place.randint(10, batch, n, n))


def randomised_svd(a: Tensor, probe: Tensor) -> tuple[Tensor, Tensor]:
    """Halko et al., 2011: a range finder with power iterations, a small decomposition, the error of the low rank."""
    y = a @ probe
    for _ in range(2):
        q = torch.linalg.qr(y).Q
        q = torch.linalg.qr(a.T @ q).Q
        y = a @ q
    q = torch.linalg.qr(y).Q
    u, s, vh = torch.linalg.svd(q.T @ a, full_matrices=False)
    low = (q @ u) * s @ vh
    return s, (a - low).square().mean()


def low_rank(place: Place) -> Made:
    m, n, rank = place.size(800, 4096), place.size(400, 1024), place.size(24, 32)
    decay = 0.9 ** torch.arange(3 * rank, device=place.device)
    a = (place.randn(m, 3 * rank) * decay) @ place.randn(3 * rank, n)
    return randomised_svd, (a, place.randn(n, rank))


ROWS: tuple[Row, ...] = (
    Row("program/jacobi_rotations", jacobi),
    Row("program/conjugate_gradients", cg),
    Row("program/block_tridiagonal", thomas, "training"),
    Row("program/lanczos_quadrature", quadrature),
    Row("program/householder_qr", householder),
    Row("program/blocked_cholesky", cholesky, "training"),
    Row("program/markov_matrix_exponential", markov_rates, "training"),
    Row("program/randomised_svd", low_rank),
)
