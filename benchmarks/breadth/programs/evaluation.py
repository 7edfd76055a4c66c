"""Scores of models: perceptual distances, structural similarity, n-grams, retrieval, distances of sets."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class PerceptualDistance(nn.Module):
    """LPIPS in small: features of a frozen stack, normalised by channel, weighed by learnt lines, averaged."""

    mean: Tensor
    std: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [3, width, 2 * width, 4 * width]
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(sizes[i], sizes[i + 1], 3, padding=1), nn.ReLU()) for i in range(3)
        )
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        self.lines = nn.ParameterList(nn.Parameter(torch.rand(size)) for size in sizes[1:])
        self.register_buffer("mean", torch.tensor([-0.030, -0.088, -0.188]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.458, 0.448, 0.450]).view(1, 3, 1, 1))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        x = (torch.cat([a, b]) - self.mean) / self.std
        total = a.new_zeros(a.size(0))
        for i, (stage, line) in enumerate(zip(self.stages, self.lines, strict=True)):
            x = stage(F.max_pool2d(x, 2) if i else x)
            unit = x * torch.rsqrt(x.square().sum(1, keepdim=True) + 1e-8)
            first, second = unit.chunk(2)
            distance = (first - second).square() * line.clamp(min=0)[:, None, None]
            total = total + distance.sum(1).mean((1, 2))
        return total.mean()


def perceptual(place: Place) -> Made:
    b, n, width = place.size(2, 16), place.size(40, 160), place.size(8, 32)
    return PerceptualDistance(width).to(place.device), (
        place.randn(b, 3, n, n).requires_grad_(),
        place.randn(b, 3, n, n),
    )


def multi_scale_similarity(x: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """MS-SSIM with box windows by integral images, mixed with L1 as Zhao et al. mix them."""

    def box(t: Tensor, r: int = 7) -> Tensor:
        s = F.pad(t.cumsum(-1).cumsum(-2), (1, 0, 1, 0))
        return (s[..., r:, r:] - s[..., :-r, r:] - s[..., r:, :-r] + s[..., :-r, :-r]) / r**2

    l1 = (x - y).abs().mean((1, 2, 3))
    levels = []
    for level in range(weights.numel()):
        mx, my = box(x), box(y)
        vx = (box(x * x) - mx * mx).clamp(min=0)
        vy = (box(y * y) - my * my).clamp(min=0)
        cov = box(x * y) - mx * my
        contrast = (2 * cov + 0.0009) / (vx + vy + 0.0009)
        value = contrast
        if level == weights.numel() - 1:
            value = contrast * (2 * mx * my + 0.0001) / (mx**2 + my**2 + 0.0001)
        levels.append(F.relu(value.mean((1, 2, 3))) + 1e-6)
        x, y = F.avg_pool2d(x, 2), F.avg_pool2d(y, 2)
    similarity = (torch.stack(levels, dim=-1) ** weights).prod(-1)
    return (0.84 * (1 - similarity) + 0.16 * l1).mean(), similarity.detach()


def multi_scale(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(80, 320)
    weights = torch.tensor([0.3, 0.4, 0.3], device=place.device)
    y = place.rand(b, 3, n, n)
    return multi_scale_similarity, ((y + 0.1 * place.randn(b, 3, n, n)).requires_grad_(), y, weights)


def clipped_n_grams(
    candidate: Tensor, reference: Tensor, length: Tensor, wanted: Tensor, vocabulary: int
) -> tuple[Tensor, Tensor, Tensor]:
    """BLEU of a batch: n-grams as numbers, counted by comparing all pairs, clipped; brevity; ROUGE-L beside it."""
    b, n = candidate.shape
    m = reference.size(1)
    kind = torch.get_default_dtype()
    log_precision = torch.zeros(b, dtype=kind, device=candidate.device)
    for order in range(1, 5):
        a = torch.zeros_like(candidate[:, : n - order + 1])
        r = torch.zeros_like(reference[:, : m - order + 1])
        for k in range(order):
            a = a * vocabulary + candidate[:, k : n - order + 1 + k]
            r = r * vocabulary + reference[:, k : m - order + 1 + k]
        here = torch.arange(a.size(1), device=a.device) < (length - order + 1)[:, None]
        there = torch.arange(r.size(1), device=a.device) < (wanted - order + 1)[:, None]
        same = (a[:, :, None] == a[:, None]) & here[:, :, None] & here[:, None]
        occurrence = torch.tril(same, diagonal=-1).sum(-1)
        available = ((a[:, :, None] == r[:, None]) & there[:, None]).sum(-1)
        hits = ((occurrence < available) & here).sum(-1)
        smoothed = (hits + 1).to(kind) / ((length - order + 1).clamp(min=0) + 1)
        log_precision += 0.25 * torch.log(smoothed)
    ratio = wanted / length
    bleu = torch.exp(log_precision + (1 - ratio).clamp(max=0))
    match = candidate[:, :, None] == reference[:, None]
    row = torch.zeros(b, m + 1, dtype=torch.int64, device=candidate.device)
    longest = torch.zeros(b, dtype=torch.int64, device=candidate.device)
    for i in range(n):
        diagonal = row[:, :-1] + match[:, i]
        row = F.pad(torch.maximum(row[:, 1:], diagonal).cummax(dim=1).values, (1, 0))
        longest = torch.where(length == i + 1, row.gather(1, wanted[:, None]).squeeze(1), longest)
    recall, precision = longest / wanted, longest / length
    rouge = 2 * recall * precision / (recall + precision).clamp(min=1e-9)
    return bleu, rouge, longest


def translations(place: Place) -> Made:
    b, n, vocabulary = place.size(32, 1024), place.size(24, 48), 60
    reference = place.randint(vocabulary, b, n)
    candidate = torch.where(place.rand(b, n) < 0.3, place.randint(vocabulary, b, n), reference)
    lengths = [n // 2 + place.randint(n // 2, b) for _ in range(2)]
    return clipped_n_grams, (candidate, reference, *lengths, vocabulary)


def frechet_distance(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """FID with the matrix root by Newton and Schulz, the kernel distance by a cubic kernel, precision by neighbours."""
    mean_a, mean_b = a.mean(0), b.mean(0)
    d = a.size(1)
    cov_a = (a - mean_a).T @ (a - mean_a) / (a.size(0) - 1)
    cov_b = (b - mean_b).T @ (b - mean_b) / (b.size(0) - 1)
    eye = torch.eye(d, dtype=a.dtype, device=a.device)
    product = cov_a @ cov_b + 1e-3 * eye
    norm = product.norm()
    y, z = product / norm, eye
    for _ in range(12):
        t = 0.5 * (3 * eye - z @ y)
        y, z = y @ t, t @ z
    root = y.diagonal().sum() * norm.sqrt()
    fid = (mean_a - mean_b).square().sum() + cov_a.diagonal().sum() + cov_b.diagonal().sum() - 2 * root

    def kernel(x: Tensor, y: Tensor) -> Tensor:
        return (x @ y.T / d + 1) ** 3

    n = a.size(0)
    within = (kernel(a, a).sum() - kernel(a, a).diagonal().sum()) / (n * (n - 1))
    within = within + (kernel(b, b).sum() - kernel(b, b).diagonal().sum()) / (n * (n - 1))
    kid = within - 2 * kernel(a, b).mean()
    radius = torch.cdist(a, a).kthvalue(4, dim=1).values
    covered = (torch.cdist(b, a) <= radius).any(1)
    return fid, kid, covered.to(a.dtype).mean()


def frechet(place: Place) -> Made:
    n, d = place.size(300, 4096), place.size(64, 512)
    return frechet_distance, (place.randn(n, d), 1.1 * place.randn(n, d) + 0.1)


def surface_distances(a: Tensor, b: Tensor, rounds: int) -> tuple[Tensor, Tensor, Tensor]:
    """Average and 95th percentile surface distances of masks, distances by chamfer sweeps; surface dice."""

    def edge(mask: Tensor) -> Tensor:
        solid = mask.float()
        return mask & (-F.max_pool2d(-solid, 3, 1, 1) < 1)

    def distances(points: Tensor, like: Tensor) -> Tensor:
        d = torch.where(points, 0.0, 1000.0).to(like.dtype)
        straight, slanted = 1.0, 2**0.5
        for _ in range(rounds):
            p = F.pad(d, (1, 1, 1, 1), value=1000.0)
            n = d.size(-1)
            for dy, dx in ((0, 1), (2, 1), (1, 0), (1, 2), (0, 0), (0, 2), (2, 0), (2, 2)):
                step = straight if dy == 1 or dx == 1 else slanted
                d = torch.minimum(d, p[:, dy : dy + n, dx : dx + n] + step)
        return d

    like = torch.zeros((), dtype=torch.get_default_dtype(), device=a.device)
    edge_a, edge_b = edge(a), edge(b)
    to_a, to_b = distances(edge_a, like), distances(edge_b, like)
    sums = torch.where(edge_a, to_b, 0.0).sum((1, 2)) + torch.where(edge_b, to_a, 0.0).sum((1, 2))
    size = edge_a.sum((1, 2)) + edge_b.sum((1, 2))
    near = (edge_a & (to_b <= 2)).sum((1, 2)) + (edge_b & (to_a <= 2)).sum((1, 2))
    both = torch.cat([to_b.masked_fill(~edge_a, torch.nan), to_a.masked_fill(~edge_b, torch.nan)], dim=1).flatten(1)
    hausdorff = torch.nanquantile(both, 0.95, dim=1)
    return sums / size, hausdorff, near / size


def surfaces(place: Place) -> Made:
    b, n = place.size(2, 16), place.size(64, 256)
    i = torch.arange(n, device=place.device)
    centre = n // 2 + place.randint(n // 8, b, 2, 2)
    away = (i[:, None] - centre[..., 0, None, None]) ** 2 + (i - centre[..., 1, None, None]) ** 2
    masks = away < (n // 4) ** 2
    return surface_distances, (masks[:, 0], masks[:, 1], place.size(10, 24))


def retrieval(
    queries: Tensor, gallery: Tensor, person: Tensor, camera: Tensor, known: Tensor, seen: Tensor
) -> tuple[Tensor, Tensor]:
    """Re-identification: ranks by distance without the same camera's matches, cumulative matches, mean precision."""
    distance = 2 - 2 * F.normalize(queries, dim=-1) @ F.normalize(gallery, dim=-1).T
    match = person[:, None] == known
    junk = match & (camera[:, None] == seen)
    order = distance.masked_fill(junk, torch.inf).argsort(dim=1)
    hit = (match & ~junk).gather(1, order)
    found = hit.cumsum(1)
    kind = distance.dtype
    rank = torch.arange(1, hit.size(1) + 1, device=hit.device)
    total = hit.sum(1)
    precision = (found / rank * hit).sum(1) / total.clamp(min=1)
    valid = total > 0
    curve = ((found[:, :20] > 0) & valid[:, None]).to(kind).sum(0) / valid.sum()
    return torch.where(valid, precision, 0.0).sum() / valid.sum(), curve


def identities(place: Place) -> Made:
    q, g, d = place.size(64, 1024), place.size(1000, 16_384), place.size(32, 128)
    return retrieval, (
        place.randn(q, d),
        place.randn(g, d),
        place.randint(50, q),
        place.randint(6, q),
        place.randint(50, g),
        place.randint(6, g),
    )


ROWS: tuple[Row, ...] = (
    Row("program/perceptual_distance", perceptual, "training"),
    Row("program/multi_scale_similarity", multi_scale, "training"),
    Row("program/bleu_and_rouge", translations),
    Row("program/frechet_distance", frechet),
    Row("program/surface_distances", surfaces),
    Row("program/re_identification", identities),
)
