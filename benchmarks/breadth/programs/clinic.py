"""Hospitals' pictures and curves: registration, losses of rare shapes, stains, tissue, slides, hearts."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class MutualInformation(nn.Module):
    """An affine registration of two kinds of scan: a joint histogram with Parzen windows, information to be gained."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.eye(3, 4).repeat(batch, 1, 1) + 0.02 * torch.randn(batch, 3, 4))

    def windows(self, x: Tensor, bins: int) -> Tensor:
        centres = torch.linspace(0, 1, bins, device=x.device)
        weight = torch.exp(-0.5 * ((x.flatten(1)[..., None] - centres) * (bins - 1)) ** 2)
        return weight / weight.sum(-1, keepdim=True)

    def forward(self, moving: Tensor, still: Tensor) -> tuple[Tensor, Tensor]:
        grid = F.affine_grid(self.theta, list(moving.shape), align_corners=False)
        moved = F.grid_sample(moving, grid, padding_mode="border", align_corners=False)
        a, b = self.windows(moved, 24), self.windows(still, 24)
        joint = a.transpose(1, 2) @ b / a.size(1)
        product = joint.sum(2, keepdim=True) * joint.sum(1, keepdim=True)
        information = (joint * torch.log((joint + 1e-8) / (product + 1e-8))).sum((1, 2))
        entropies = -(torch.xlogy(joint.sum(2), joint.sum(2)) + torch.xlogy(joint.sum(1), joint.sum(1))).sum(1)
        return -2 * information / entropies, moved


def information(place: Place) -> Made:
    b, side = place.size(1, 4), place.size(14, 72)
    return MutualInformation(b).to(place.device), (
        place.rand(b, 1, side, side, side),
        place.rand(b, 1, side, side, side),
    )


def rare_shapes(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Focal Tversky and Karimi's erosions in place of a Hausdorff distance: for small lesions of several kinds."""
    kinds = logits.size(1)
    p = logits.softmax(1)
    truth = F.one_hot(labels, kinds).permute(0, 3, 1, 2).to(p.dtype)
    tp, fp, fn = (p * truth).sum((2, 3)), (p * (1 - truth)).sum((2, 3)), ((1 - p) * truth).sum((2, 3))
    tversky = (tp + 1) / (tp + 0.3 * fp + 0.7 * fn + 1)
    focal = (1 - tversky).clamp(min=1e-6).pow(0.75)
    cross = torch.tensor([[0.0, 1, 0], [1, 1, 1], [0, 1, 0]], device=p.device, dtype=p.dtype) * 0.2
    kernel = cross.expand(kinds, 1, 3, 3)
    bound = (p - truth).square()
    total = torch.zeros_like(bound)
    for k in range(8):
        eroded = F.relu(F.conv2d(bound, kernel, padding=1, groups=kinds) - 0.5)
        low, high = eroded.amin((2, 3), keepdim=True), eroded.amax((2, 3), keepdim=True)
        eroded = torch.where(high > low, (eroded - low) / (high - low).clamp(min=1e-6), eroded)
        total = total + eroded * (k + 1) ** 2
        bound = eroded
    return focal[:, 1:].mean(), 1e-3 * total.mean()


def shapes(place: Place) -> Made:
    b, kinds, side = place.size(2, 8), 4, place.size(33, 320)
    return rare_shapes, (place.randn(b, kinds, side, side).requires_grad_(), place.randint(kinds, b, side, side))


def stain_separation(slides: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    """Macenko and others, 2009: two stains of a slide from extreme angles in a plane, painted with another's."""
    out, vectors = [], []
    for pixels in slides.flatten(2):
        density = -torch.log((pixels * 255 + 1) / 256).t()
        tissue = (density.amin(1) > 0.05).to(density.dtype)[:, None]
        mean = (density * tissue).sum(0) / tissue.sum()
        centred = (density - mean) * tissue
        _, axes = torch.linalg.eigh(centred.t() @ centred / tissue.sum())
        plane = axes[:, 1:] * torch.sign(axes[:1, 1:])
        projected = density @ plane
        angle = torch.atan2(projected[:, 0], projected[:, 1])
        low, high = torch.quantile(angle[::7], torch.tensor([0.01, 0.99], device=angle.device, dtype=angle.dtype))
        directions = torch.stack([plane @ torch.stack([a.sin(), a.cos()]) for a in (low, high)], 1)
        directions = torch.where(directions[0, 0] > directions[0, 1], directions, directions.flip(1))
        gram = directions.t() @ directions + 1e-4 * torch.eye(2, device=angle.device)
        amounts = torch.linalg.solve(gram, directions.t() @ density.t())
        amounts = amounts / amounts.abs().amax(1, keepdim=True)
        out.append(torch.exp(-reference @ amounts.clamp(min=0)).clamp(0, 1))
        vectors.append(directions)
    return torch.stack(out).view_as(slides), torch.stack(vectors)


def stains(place: Place) -> Made:
    b, side = place.size(2, 8), place.size(40, 512)
    amounts = place.rand(b, 2, side * side)
    colours = torch.tensor([[0.65, 0.07], [0.70, 0.99], [0.29, 0.11]], device=place.device)
    slides = torch.exp(-colours @ amounts - 0.05 * place.rand(b, 3, side * side)).view(b, 3, side, side)
    return stain_separation, (slides, colours)


def tissue_fingerprints(signal: Tensor, t1: Tensor, t2: Tensor, flips: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Magnetic resonance fingerprinting: a dictionary by pulses and relaxation, signals to their likest atom."""
    m = torch.zeros(len(t1), 3, device=t1.device)
    m[:, 2] = -1.0
    e1, e2 = torch.exp(-12.0 / t1), torch.exp(-12.0 / t2)
    atoms = []
    for k, flip in enumerate(flips.unbind()):
        x, y, z = m.unbind(1)
        y, z = y * flip.cos() - z * flip.sin(), y * flip.sin() + z * flip.cos()
        atoms.append(torch.complex(x * e2.sqrt(), y * e2.sqrt()))
        sign = 1.0 if k % 2 else -1.0
        m = torch.stack([sign * x * e2, sign * y * e2, 1 - (1 - z) * e1], 1)
    dictionary = torch.stack(atoms, 1)
    dictionary = dictionary / torch.linalg.vector_norm(dictionary, dim=1, keepdim=True)
    likeness = (signal @ dictionary.conj().t()).abs()
    score, best = likeness.max(1)
    density = (signal * dictionary[best].conj()).sum(1).real
    return torch.stack([t1[best], t2[best]], 1), score, density


def fingerprints(place: Place) -> Made:
    voxels, atoms, pulses = place.size(200, 16_384), place.size(120, 4000), place.size(20, 60)
    t1 = 200 + 2000 * place.rand(atoms)
    signal = torch.complex(place.randn(voxels, pulses), place.randn(voxels, pulses))
    return tissue_fingerprints, (signal, t1, t1 * (0.05 + 0.3 * place.rand(atoms)), 0.2 + 0.8 * place.rand(pulses))


class SlideInstances(nn.Module):
    """Lu and others, 2021 (CLAM): gated attention over a slide's patches; the most and least attended are labels."""

    def __init__(self, width: int, hidden: int, kinds: int) -> None:
        super().__init__()
        self.enter = nn.Linear(width, hidden)
        self.tanh, self.gate, self.attend = nn.Linear(hidden, 256), nn.Linear(hidden, 256), nn.Linear(256, kinds)
        self.bags = nn.Parameter(torch.randn(kinds, hidden) / hidden**0.5)
        self.instances = nn.ModuleList([nn.Linear(hidden, 2) for _ in range(kinds)])

    def forward(self, patches: Tensor, valid: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        h = F.relu(self.enter(patches))
        scores = self.attend(torch.tanh(self.tanh(h)) * torch.sigmoid(self.gate(h)))
        scores = scores.masked_fill(~valid[..., None], float("-inf")).transpose(1, 2)
        bag = scores.softmax(-1) @ h
        logits = (bag * self.bags).sum(-1)
        loss = F.cross_entropy(logits, label)
        marks = torch.cat([torch.ones(8), torch.zeros(8)]).long().to(h.device)
        for kind, classifier in enumerate(self.instances):
            top = scores[:, kind].topk(8).indices
            bottom = scores[:, kind].masked_fill(~valid, float("inf")).topk(8, largest=False).indices
            picked = h.gather(1, torch.cat([top, bottom], 1)[..., None].expand(-1, -1, h.size(-1)))
            each = F.multi_margin_loss(classifier(picked).flatten(0, 1), marks.repeat(len(h)), reduction="none")
            loss = loss + 0.3 * (each.view(len(h), -1).mean(1) * (label == kind)).mean()
        return loss, logits


def slides(place: Place) -> Made:
    b, n, width = place.size(2, 8), place.size(60, 8000), place.size(64, 1024)
    valid = torch.arange(n, device=place.device)[None] < (n // 2 + place.randint(n // 2, b))[:, None]
    model = SlideInstances(width, place.size(48, 512), 3).to(place.device)
    return model, (place.randn(b, n, width), valid, place.randint(3, b))


def heartbeats(x: Tensor, taps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pan and Tompkins, 1985: band-pass, slope, square, a moving mean, peaks over thresholds that follow; intervals."""
    banded = F.conv1d(x[:, None], taps[None, None], padding=taps.numel() // 2)[:, 0]
    slope = F.pad(2 * banded[:, 4:] + banded[:, 3:-1] - banded[:, 1:-3] - 2 * banded[:, :-4], (2, 2)) / 8
    energy = slope.square()
    mean = F.avg_pool1d(energy[:, None], 31, 1, 15)[:, 0]
    peak = (mean == F.max_pool1d(mean[:, None], 101, 1, 50)[:, 0]) & (mean > 0)
    signal, noise = mean.amax(1) * 0.25, mean.mean(1)
    for window, found in zip(mean.split(500, 1), peak.split(500, 1), strict=True):
        threshold = noise + 0.25 * (signal - noise)
        beats = found & (window > threshold[:, None])
        count = beats.sum(1).clamp(min=1)
        signal = torch.where(beats.any(1), 0.875 * signal + 0.125 * (window * beats).sum(1) / count, signal)
        noise = 0.875 * noise + 0.125 * (window * (found & ~beats)).sum(1) / (found & ~beats).sum(1).clamp(min=1)
    beat = peak & (mean > (noise + 0.25 * (signal - noise))[:, None])
    index = torch.arange(x.size(1), device=x.device)
    last = torch.where(beat, index, -1).cummax(1).values
    before = F.pad(last, (1, 0), value=-1)[:, :-1]
    interval = torch.where(beat & (before >= 0), index - before, 0)
    return beat.sum(1), interval.sum(1) / (interval > 0).sum(1).clamp(min=1), mean


def hearts(place: Place) -> Made:
    b, n = place.size(8, 512), place.size(3000, 20_000)
    t = torch.arange(n, device=place.device) / 200
    pulse = torch.exp(-((((t * (0.9 + 0.5 * place.rand(b, 1))) % 1 - 0.5) / 0.02) ** 2))
    k = torch.arange(-20, 21, device=place.device).float()
    taps = torch.sinc(k * 0.15) * 0.15 - torch.sinc(k * 0.05) * 0.05
    taps = taps * torch.cos(math.pi * k / 42) ** 2
    return heartbeats, (pulse + 0.1 * place.randn(b, n), taps)


ROWS: tuple[Row, ...] = (
    Row("program/mutual_information_registration", information, "training"),
    Row("program/tversky_erosion_losses", shapes, "training"),
    Row("program/stain_separation", stains),
    Row("program/tissue_fingerprints", fingerprints),
    Row("program/slide_instance_attention", slides, "training"),
    Row("program/heartbeat_peaks", hearts),
)
