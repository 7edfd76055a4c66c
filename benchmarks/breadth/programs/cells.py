"""Sequences and cells: couplings of residues, scans of genomes, maps of single cells, batches made alike."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class PottsCouplings(nn.Module):
    """Direct couplings of a family of proteins by pseudo-likelihood: weights of alike sequences, contacts corrected."""

    def __init__(self, length: int, kinds: int) -> None:
        super().__init__()
        self.fields = nn.Parameter(torch.zeros(length, kinds))
        self.couplings = nn.Parameter(0.02 * torch.randn(length, kinds, length, kinds))
        self.register_buffer("others", 1 - torch.eye(length)[:, None, :, None])

    def forward(self, alignment: Tensor) -> tuple[Tensor, Tensor]:
        length, kinds = self.fields.shape
        x = F.one_hot(alignment, kinds).to(self.fields.dtype)
        flat = x.flatten(1)
        alike = flat @ flat.t() / length
        weight = 1 / (alike > 0.21).to(flat.dtype).sum(1)
        j = 0.5 * (self.couplings + self.couplings.permute(2, 3, 0, 1)) * self.others
        logits = self.fields + torch.einsum("nia,iajb->njb", x, j)
        loss = -(weight[:, None] * (logits.log_softmax(-1) * x).sum(-1)).sum() / weight.sum()
        loss = loss + 0.01 * self.fields.square().sum() + 0.01 * j.square().sum() / 2
        with torch.no_grad():
            centred = j - j.mean(1, keepdim=True) - j.mean(3, keepdim=True) + j.mean((1, 3), keepdim=True)
            norm = centred.square().sum((1, 3)).sqrt()
            contacts = norm - norm.mean(0) * norm.mean(1, keepdim=True) / norm.mean()
        return loss, contacts


def potts(place: Place) -> Made:
    n, length, kinds = place.size(60, 2000), place.size(20, 140), 21
    return PottsCouplings(length, kinds).to(place.device), (place.randint(kinds, n, length),)


def association_scan(genotypes: Tensor, trait: Tensor, covariates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A scan of a genome: missing calls by means, covariates projected out, slopes, p-values, inflation, clumps."""
    g = genotypes.to(trait.dtype)
    missing = genotypes < 0
    g = g.masked_fill(missing, 0)
    count = (~missing).sum(0)
    mean = g.sum(0) / count
    g = torch.where(missing, mean, g) - mean
    q, _ = torch.linalg.qr(torch.cat([torch.ones_like(trait)[:, None], covariates], 1))
    y = trait - q @ (q.t() @ trait)
    g = g - q @ (q.t() @ g)
    size = g.square().sum(0).clamp(min=1e-6)
    beta = (g * y[:, None]).sum(0) / size
    left = y.square().sum() - beta.square() * size
    se = (left / (len(y) - q.size(1) - 1) / size).sqrt()
    z = beta / se
    logp = torch.special.log_ndtr(-z.abs()) + 0.6931471805599453
    inflation = z.square().median() / 0.4549
    frequency = mean / 2
    rare = torch.minimum(frequency, 1 - frequency) < 0.05
    logp = logp.masked_fill(rare, 0.0)
    best = F.max_pool1d(-logp[None, None], 51, 1, 25)[0, 0]
    return beta, logp, torch.stack([inflation, ((-logp == best) & (logp < -4)).sum()])


def association(place: Place) -> Made:
    people, sites = place.size(120, 2000), place.size(3000, 30_000)
    genotypes = (place.randint(4, people, sites) - 1).to(torch.int8)
    return association_scan, (genotypes, place.randn(people), place.randn(people, 8))


def fuzzy_layout(
    places: Tensor, head: Tensor, tail: Tensor, distance: Tensor, negative: Tensor
) -> tuple[Tensor, Tensor]:
    """McInnes and others, 2018 (UMAP): bandwidths by bisection, memberships joined, edges pulled, others pushed."""
    with torch.no_grad():
        nearest = distance[:, :1]
        low, high = torch.zeros_like(nearest), torch.full_like(nearest, 1e3)
        sigma = torch.ones_like(nearest)
        for _ in range(24):
            total = torch.exp(-(distance - nearest).clamp(min=0) / sigma).sum(1, keepdim=True)
            over = total > 3.9
            high, low = torch.where(over, sigma, high), torch.where(over, low, sigma)
            sigma = torch.where(high < 1e3, (low + high) / 2, sigma * 2)
        weight = torch.exp(-(distance - nearest).clamp(min=0) / sigma).flatten()
        weight = weight / weight.max()
    a, b = 1.577, 0.895
    gap = (places[head] - places[tail]).square().sum(1)
    attract = torch.log1p(a * (gap + 1e-6).pow(b))
    gap = (places[head][:, None] - places[negative]).square().sum(-1)
    repel = -torch.log(1 - 1 / (1 + a * (gap + 1e-3).pow(b)) + 1e-4)
    return (weight * (attract + repel.sum(1))).sum() / weight.sum(), sigma.squeeze(1)


def layout(place: Place) -> Made:
    n, near, pushed = place.size(400, 40_000), 15, 5
    head = torch.arange(n, device=place.device).repeat_interleave(near)
    distance = place.rand(n, near).sort(1).values + 0.1
    tail, negative = place.randint(n, n * near), place.randint(n, n * near, pushed)
    return fuzzy_layout, (place.randn(n, 2).requires_grad_(), head, tail, distance, negative)


def six_frames(bases: Tensor, code: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Three reading frames of each strand: codons to residues, the longest open stretch of each, its score."""
    both = torch.stack([bases, 3 - bases.flip(1)], 1)
    length = (bases.size(1) - 2) // 3 * 3
    frames = torch.stack([both[..., k : k + length] for k in range(3)], 2)
    codons = frames.reshape(*frames.shape[:3], -1, 3)
    index = (codons[..., 0] << 4) | (codons[..., 1] << 2) | codons[..., 2]
    residues = code[index]
    stop = residues == 20
    position = torch.arange(residues.size(-1), device=bases.device)
    last = torch.where(stop, position, -1).cummax(-1).values
    run = position - last
    longest, end = run.max(-1)
    total = scores[residues].masked_fill(stop, 0).cumsum(-1)
    begin = (end - longest).clamp(min=0)
    score = total.gather(-1, end[..., None]) - total.gather(-1, begin[..., None])
    counts = torch.zeros(*residues.shape[:3], 21, dtype=torch.int32, device=bases.device)
    counts.scatter_add_(-1, residues, torch.ones_like(residues, dtype=torch.int32))
    return longest, score.squeeze(-1), counts


def frames(place: Place) -> Made:
    code = torch.cat([torch.arange(21), torch.arange(20), torch.arange(20), torch.tensor([20, 20, 3])])
    code = code[torch.randperm(64)].to(place.device)
    return six_frames, (place.randint(4, place.size(8, 256), place.size(1500, 30_001)), code, place.randn(21))


def batches_made_alike(x: Tensor, batch: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Korsunsky and others, 2019 (Harmony): soft clusters punished for a batch's surplus, corrections in each."""
    kinds = 6
    phi = F.one_hot(batch, kinds).to(x.dtype)
    share = phi.mean(0)
    z = F.normalize(x, dim=1)
    for _ in range(4):
        distance = 2 * (1 - z @ F.normalize(centres, dim=1).t())
        r = torch.softmax(-distance / 0.2, 1)
        for _ in range(2):
            observed = r.t() @ phi
            expected = r.sum(0)[:, None] * share
            penalty = ((expected + 1) / (observed + 1)).pow(2).log()
            r = torch.softmax(-distance / 0.2 + phi @ penalty.t(), 1)
        centres = r.t() @ z
    design = torch.cat([torch.ones_like(phi[:, :1]), phi], 1)
    ridge = torch.eye(kinds + 1, device=x.device, dtype=x.dtype)
    ridge[0, 0] = 0
    corrected = x.clone()
    for k in range(r.size(1)):
        weighted = design * r[:, k : k + 1]
        slopes = torch.linalg.solve(weighted.t() @ design + ridge, weighted.t() @ x)
        slopes[0] = 0
        corrected -= weighted @ slopes
    return corrected, r


def alike(place: Place) -> Made:
    n, width, clusters = place.size(400, 60_000), place.size(10, 50), place.size(8, 24)
    batch = place.randint(6, n)
    x = place.randn(n, width) + 0.5 * place.randn(6, width)[batch]
    return batches_made_alike, (x, batch, place.randn(clusters, width))


ROWS: tuple[Row, ...] = (
    Row("program/residue_couplings", potts, "training"),
    Row("program/genome_association_scan", association),
    Row("program/fuzzy_neighbour_layout", layout, "training"),
    Row("program/six_reading_frames", frames),
    Row("program/soft_cluster_batches", alike),
)
