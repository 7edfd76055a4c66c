"""Measuring with cameras: flow, stereo, corners, descriptors, diffusion, total variation, distances, phase."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def horn_schunck(first: Tensor, second: Tensor, rounds: int = 20, alpha: float = 0.5) -> tuple[Tensor, Tensor]:
    """Horn and Schunck, 1981: derivatives of cubes of pixels, averages of the flow around, Jacobi's rounds."""
    mean = first.new_tensor([[1, 2, 1], [2, 0, 2], [1, 2, 1]]).view(1, 1, 3, 3) / 12
    both = F.pad(torch.stack([first, second], 1), (0, 1, 0, 1), mode="replicate")
    x = both[..., :-1, 1:] - both[..., :-1, :-1] + both[..., 1:, 1:] - both[..., 1:, :-1]
    y = both[..., 1:, :-1] - both[..., :-1, :-1] + both[..., 1:, 1:] - both[..., :-1, 1:]
    ix, iy = x.mean(1, keepdim=True) / 2, y.mean(1, keepdim=True) / 2
    it = (second - first)[:, None]
    u, v = torch.zeros_like(ix), torch.zeros_like(ix)
    for _ in range(rounds):
        pu, pv = (F.conv2d(F.pad(f, (1, 1, 1, 1), mode="replicate"), mean) for f in (u, v))
        step = (ix * pu + iy * pv + it) / (alpha**2 + ix**2 + iy**2)
        u, v = pu - ix * step, pv - iy * step
    return torch.cat([u, v], 1), (ix * u + iy * v + it).abs().mean(dim=(1, 2, 3))


def optical_flow(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(112, 768)
    first = F.avg_pool2d(place.rand(b, n + 6, n + 6), 7, 1)
    return horn_schunck, (first, first.roll(1, -1) + 0.01 * place.randn(b, n, n))


def semi_global_matching(
    left: Tensor, right: Tensor, disparities: int, p1: float = 0.1, p2: float = 0.6
) -> tuple[Tensor, Tensor]:
    """Hirschmüller, 2008: absolute differences in blocks, penalised paths from both sides, a soft minimum."""
    shifted = torch.stack([F.pad(right, (d, 0))[..., : right.size(-1)] for d in range(disparities)], 1)
    cost = F.avg_pool2d((left[:, None] - shifted).abs(), 5, 1, 2)

    def path(cost: Tensor) -> Tensor:
        columns = cost.unbind(-1)
        running = columns[0]
        found = [running]
        for column in columns[1:]:
            lowest = running.amin(1, keepdim=True)
            near = F.pad(running[:, None], (0, 0, 1, 1), value=1e3)[:, 0]
            options = torch.stack([running, near[:, :-2] + p1, near[:, 2:] + p1, (lowest + p2).expand_as(running)])
            running = column + options.amin(0) - lowest
            found.append(running)
        return torch.stack(found, -1)

    total = path(cost) + path(cost.flip(-1)).flip(-1)
    weight = torch.softmax(-8 * total, 1)
    d = torch.arange(disparities, device=left.device, dtype=left.dtype)
    return torch.einsum("bdhw,d->bhw", weight, d), -(weight * (weight + 1e-6).log()).sum(1)


def stereo(place: Place) -> Made:
    b, h, w = place.size(1, 4), place.size(96, 2048), 40
    left = place.rand(b, h, w)
    return semi_global_matching, (left, left.roll(-3, -1) + 0.02 * place.randn(b, h, w), 16)


def corner_descriptors(image: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Harris corners after suppression, and histograms of gradients around them as in SIFT, clipped and normalised."""
    p = F.pad(image[:, None], (1, 1, 1, 1), mode="replicate")
    gx = (p[..., 1:-1, 2:] - p[..., 1:-1, :-2]) / 2
    gy = (p[..., 2:, 1:-1] - p[..., :-2, 1:-1]) / 2
    xx, yy, xy = (F.avg_pool2d(t, 5, 1, 2) for t in (gx * gx, gy * gy, gx * gy))
    response = xx * yy - xy**2 - 0.05 * (xx + yy) ** 2
    peak = response == F.max_pool2d(response, 7, 1, 3)
    border = F.pad(torch.ones_like(peak[..., 8:-8, 8:-8]), (8, 8, 8, 8), value=False)
    score, index = torch.where(peak & border, response, -1.0).flatten(1).topk(count)
    w = image.size(-1)
    y, x = index // w, index % w
    offset = torch.arange(-8, 8, device=image.device)
    flat = (y[..., None, None] + offset[:, None]) * w + x[..., None, None] + offset
    size, angle = (gx**2 + gy**2 + 1e-6).sqrt().flatten(1), torch.atan2(gy, gx + 1e-6).flatten(1)
    size = size.gather(1, flat.flatten(1)).view(flat.shape)
    angle = angle.gather(1, flat.flatten(1)).view(flat.shape)
    size = size * torch.exp(-(offset[:, None] ** 2 + offset**2) / 64.0)
    bins = torch.arange(8, device=image.device) * (math.pi / 4)
    near = (torch.cos(angle[..., None] - bins) - 0.7).clamp(min=0) / 0.3
    cells = (near * size[..., None]).unflatten(2, (4, 4)).unflatten(4, (4, 4)).sum(dim=(3, 5))
    descriptor = F.normalize(cells.flatten(2), dim=-1).clamp(max=0.2)
    return F.normalize(descriptor, dim=-1).sum(1), score


def corners(place: Place) -> Made:
    b, n = place.size(1, 16), place.size(160, 640)
    return corner_descriptors, (F.avg_pool2d(place.rand(b, n + 2, n + 2), 3, 1), place.size(100, 1000))


def chambolle(image: Tensor, weight: Tensor, rounds: int = 15) -> tuple[Tensor, Tensor]:
    """Chambolle, 2004: total variation denoising by its dual, projected by division; unrolled to learn the weight."""
    px, py = torch.zeros_like(image), torch.zeros_like(image)
    w = weight[:, None, None]
    for _ in range(rounds):
        divergence = px - F.pad(px[..., :-1], (1, 0)) + py - F.pad(py[..., :-1, :], (0, 0, 1, 0))
        u = divergence - image / w
        gx = F.pad(u[..., 1:] - u[..., :-1], (0, 1))
        gy = F.pad(u[..., 1:, :] - u[..., :-1, :], (0, 0, 0, 1))
        size = 1 + 0.25 * (gx**2 + gy**2 + 1e-6).sqrt()
        px, py = (px + 0.25 * gx) / size, (py + 0.25 * gy) / size
    divergence = px - F.pad(px[..., :-1], (1, 0)) + py - F.pad(py[..., :-1, :], (0, 0, 1, 0))
    clean = image - w * divergence
    return clean.square().mean(dim=(1, 2)), clean


def total_variation(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(96, 512)
    return chambolle, (place.rand(b, n, n), (0.1 + 0.2 * place.rand(b)).requires_grad_())


def coherence_diffusion(image: Tensor, steps: int = 8) -> tuple[Tensor, Tensor]:
    """Weickert, 1999: a structure tensor's eigenvectors in closed form steer the diffusion along lines."""

    def d(x: Tensor, axis: int) -> Tensor:
        return 0.5 * (x.roll(-1, axis) - x.roll(1, axis))

    for _ in range(steps):
        gx, gy = d(image, -1), d(image, -2)
        xx, yy, xy = (F.avg_pool2d(t, 5, 1, 2) for t in (gx * gx, gy * gy, gx * gy))
        spread = ((xx - yy) ** 2 + 4 * xy**2 + 1e-6).sqrt()
        c2, s2 = (xx - yy) / spread, 2 * xy / spread
        along = 0.01 + 0.99 * torch.exp(-1e-3 / (spread**2 + 1e-6))
        across = 0.01
        a = 0.5 * (across + along) + 0.5 * (across - along) * c2
        c = 0.5 * (across + along) - 0.5 * (across - along) * c2
        b = 0.5 * (across - along) * s2
        image = image + 0.2 * (d(a * gx + b * gy, -1) + d(b * gx + c * gy, -2))
    return image, spread


def diffusion(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(128, 768)
    return coherence_diffusion, (place.rand(b, 1, n, n),)


def distance_transform(mask: Tensor, reach: int) -> tuple[Tensor, Tensor]:
    """Saito and Toriwaki, 1994: squared distances by columns as cumulated extremes, then lower envelopes over rows."""
    h = mask.size(-2)
    y = torch.arange(h, device=mask.device)[:, None]
    above = torch.where(mask, y, -10_000).cummax(-2).values
    below = torch.where(mask, y, 10_000).flip(-2).cummin(-2).values.flip(-2)
    vertical = torch.minimum(y - above, below - y).clamp(max=2 * reach).square()
    padded = F.pad(vertical, (reach, reach), value=4 * reach * reach)
    shift = (torch.arange(2 * reach + 1, device=mask.device) - reach).square()
    square = (padded.unfold(-1, 2 * reach + 1, 1) + shift).amin(-1)
    distance = square.to(torch.get_default_dtype()).sqrt()
    medial = (distance == F.max_pool2d(distance[:, None], 3, 1, 1)[:, 0]) & (square > 2)
    return distance, medial.sum(dim=(1, 2))


def distances(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(144, 1024)
    return distance_transform, (place.rand(b, n, n) > 0.985, place.size(12, 16))


def phase_correlation(first: Tensor, second: Tensor, reach: int = 2) -> tuple[Tensor, Tensor]:
    """Kuglin and Hines, 1975: windowed cross-power spectra of tiles, a peak's centroid, outliers become medians."""
    n = 32
    window = torch.hann_window(n, device=first.device, dtype=first.dtype)
    window = window[:, None] * window
    tiles = [t.unfold(1, n, n // 2).unfold(2, n, n // 2) * window for t in (first, second)]
    fa, fb = torch.fft.rfft2(tiles[0]), torch.fft.rfft2(tiles[1])
    cross = fa.conj() * fb
    surface = torch.fft.irfft2(cross / (cross.abs() + 0.1), s=(n, n))
    surface = torch.fft.fftshift(surface, dim=(-2, -1))
    middle = surface[..., n // 2 - 8 : n // 2 + 9, n // 2 - 8 : n // 2 + 9]
    sharp = torch.softmax(6 * middle.flatten(-2) / middle.amax(dim=(-2, -1))[..., None], -1).view_as(middle)
    offset = torch.arange(-8, 9, device=first.device, dtype=first.dtype)
    shift = torch.stack([(sharp.sum(-1) * offset).sum(-1), (sharp.sum(-2) * offset).sum(-1)], 1)
    k = 2 * reach + 1
    padded = F.pad(shift, (reach,) * 4, mode="replicate")
    median = padded.unfold(2, k, 1).unfold(3, k, 1).flatten(-2).median(-1).values
    trust = torch.sigmoid(4 * (1.5 - (shift - median).norm(dim=1, keepdim=True)))
    return trust * shift + (1 - trust) * median, sharp.amax(dim=(-2, -1))


def displacement(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(256, 1024)
    first = place.rand(b, n, n)
    return phase_correlation, (first, first.roll((2, -3), (1, 2)) + 0.1 * place.randn(b, n, n))


class PhotometricStereo(nn.Module):
    """Lambert's surface under many lights: normals of a height map, cast into shade, albedo and lights learnt."""

    def __init__(self, lights: int, n: int) -> None:
        super().__init__()
        self.height = nn.Parameter(0.1 * torch.randn(n, n))
        self.albedo = nn.Parameter(torch.zeros(n, n))
        self.lights = nn.Parameter(F.normalize(torch.randn(lights, 3) + torch.tensor([0.0, 0.0, 2.0]), dim=1))

    def forward(self, photographs: Tensor) -> tuple[Tensor, Tensor]:
        p = F.pad(self.height[None, None], (1, 1, 1, 1), mode="replicate")[0, 0]
        slope_x, slope_y = (p[1:-1, 2:] - p[1:-1, :-2]) / 2, (p[2:, 1:-1] - p[:-2, 1:-1]) / 2
        normal = F.normalize(torch.stack([-slope_x, -slope_y, torch.ones_like(slope_x)], -1), dim=-1)
        shade = F.leaky_relu(torch.einsum("yxc,lc->lyx", normal, self.lights), 0.05)
        error = photographs - torch.sigmoid(self.albedo) * shade
        robust = (error**2 / (error**2 + 0.1)).mean()
        smooth = (slope_x.diff(dim=1).square().mean() + slope_y.diff(dim=0).square().mean()) * 0.1
        return robust + smooth, normal.detach()[..., 2]


def photometric(place: Place) -> Made:
    lights, n = place.size(8, 24), place.size(128, 1024)
    return PhotometricStereo(lights, n).to(place.device), (place.rand(lights, n, n),)


ROWS: tuple[Row, ...] = (
    Row("program/horn_schunck_flow", optical_flow),
    Row("program/semi_global_matching", stereo),
    Row("program/harris_sift_descriptors", corners),
    Row("program/chambolle_unrolled", total_variation, "training"),
    Row("program/coherence_diffusion", diffusion),
    Row("program/exact_distance_transform", distances),
    Row("program/phase_correlation_tiles", displacement),
    Row("program/photometric_stereo", photometric, "training"),
)
