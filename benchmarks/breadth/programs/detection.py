"""Detection, augmentation and correspondence: anchors, mosaics, warps, cost volumes, votes, sampling by offsets."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def pairwise_iou(a: Tensor, b: Tensor) -> Tensor:
    """Overlap of all boxes (..., n, 4) with all boxes (..., m, 4), as corners."""
    top_left = torch.maximum(a[..., :, None, :2], b[..., None, :, :2])
    bottom_right = torch.minimum(a[..., :, None, 2:], b[..., None, :, 2:])
    inter = (bottom_right - top_left).clamp(min=0).prod(-1)
    area_a = (a[..., 2:] - a[..., :2]).prod(-1)
    area_b = (b[..., 2:] - b[..., :2]).prod(-1)
    return inter / (area_a[..., :, None] + area_b[..., None, :] - inter).clamp(min=1e-6)


def adaptive_assignment(
    anchors: Tensor, levels: Tensor, boxes: Tensor, labels: Tensor, real: Tensor, per_level: int
) -> tuple[Tensor, Tensor, Tensor]:
    """ATSS: candidates nearest in each level, a threshold by their mean and deviation of overlap, encoded targets."""
    overlap = pairwise_iou(boxes, anchors)
    centre = (anchors[:, :2] + anchors[:, 2:]) / 2
    wanted = (boxes[..., :2] + boxes[..., 2:]) / 2
    distance = (wanted[:, :, None] - centre).square().sum(-1)
    candidates = []
    for level in range(3):
        here = distance.masked_fill(levels != level, torch.inf)
        candidates.append(here.topk(per_level, dim=-1, largest=False).indices)
    index = torch.cat(candidates, dim=-1)
    found = overlap.gather(-1, index)
    threshold = found.mean(-1, keepdim=True) + found.std(-1, keepdim=True)
    inside = (centre[None, None] > boxes[:, :, None, :2]).all(-1) & (centre[None, None] < boxes[:, :, None, 2:]).all(-1)
    positive = torch.zeros_like(overlap, dtype=torch.bool).scatter_(-1, index, found >= threshold)
    positive = positive & inside & real[:, :, None]
    score, owner = torch.where(positive, overlap, -1.0).max(dim=1)
    label = torch.where(score >= 0, labels.gather(1, owner), 0)
    matched = boxes.gather(1, owner[..., None].expand(-1, -1, 4))
    size = anchors[:, 2:] - anchors[:, :2]
    offset = ((matched[..., :2] + matched[..., 2:]) / 2 - centre) / size * 10
    scale = torch.log((matched[..., 2:] - matched[..., :2]) / size) * 5
    target = torch.cat([offset, scale], dim=-1) * (score >= 0)[..., None]
    return label, target, score.clamp(min=0)


def anchor_matching(place: Place) -> Made:
    batch, side, objects = place.size(4, 16), place.size(32, 64), place.size(12, 24)
    anchors, levels = [], []
    for level in range(3):
        step = 2**level / side
        axis = (torch.arange(side >> level) + 0.5) * step
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        point = torch.stack([x, y], -1).view(-1, 2)
        anchors.append(torch.cat([point - 2 * step, point + 2 * step], dim=1))
        levels.append(torch.full((point.size(0),), level))
    corner = 0.7 * place.rand(batch, objects, 2)
    boxes = torch.cat([corner, corner + 0.05 + 0.25 * place.rand(batch, objects, 2)], dim=-1)
    return adaptive_assignment, (
        torch.cat(anchors).to(place.device),
        torch.cat(levels).to(place.device),
        boxes,
        1 + place.randint(20, batch, objects),
        place.rand(batch, objects) < 0.8,
        9,
    )


def mosaic(images: Tensor, boxes: Tensor, centre: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """YOLO's mosaic: four images around a centre in one of twice the size, boxes moved, cut and those too small off."""
    b, c, h, w = images.shape
    rolled = torch.stack([images.roll(k, dims=0) for k in range(4)], dim=1)
    moved = torch.stack([boxes.roll(k, dims=0) for k in range(4)], dim=1)
    y = torch.arange(2 * h, device=images.device, dtype=images.dtype)[None, :, None]
    x = torch.arange(2 * w, device=images.device, dtype=images.dtype)[None, None]
    cy, cx = centre[:, 0, None, None], centre[:, 1, None, None]
    canvas = images.new_full((b, c, 2 * h, 2 * w), 114 / 255)
    placed = []
    for k, (up, left) in enumerate(((True, True), (True, False), (False, True), (False, False))):
        s = scale[:, k, None, None]
        oy = cy - s * h if up else cy
        ox = cx - s * w if left else cx
        v, u = (y - oy) / s, (x - ox) / s
        here = (v >= 0) & (v < h) & (u >= 0) & (u < w)
        here = here & ((y < cy) if up else (y >= cy)) & ((x < cx) if left else (x >= cx))
        grid = torch.stack(torch.broadcast_tensors(2 * (u + 0.5) / w - 1, 2 * (v + 0.5) / h - 1), dim=-1)
        sampled = F.grid_sample(rolled[:, k], grid, align_corners=False, padding_mode="border")
        canvas = torch.where(here[:, None], sampled, canvas)
        offset = torch.stack([ox, oy, ox, oy], dim=-1).view(b, 1, 4)
        placed.append(moved[:, k] * scale[:, k, None, None] + offset)
    out = torch.cat(placed, dim=1)
    full = out.new_tensor([2 * w, 2 * h, 2 * w, 2 * h])
    cut = torch.minimum(out.clamp(min=0), full)
    before = (out[..., 2:] - out[..., :2]).prod(-1)
    after = (cut[..., 2:] - cut[..., :2]).clamp(min=0).prod(-1)
    return canvas, cut, after / before.clamp(min=1e-6) > 0.2


def mosaics(place: Place) -> Made:
    b, n, objects = place.size(4, 16), place.size(48, 320), 12
    corner = 0.6 * n * place.rand(b, objects, 2)
    boxes = torch.cat([corner, corner + 4 + 0.3 * n * place.rand(b, objects, 2)], dim=-1)
    centre = n * (0.5 + place.rand(b, 2))
    return mosaic, (place.rand(b, 3, n, n), boxes, centre, 0.5 + place.rand(b, 4))


def perspective_warp(images: Tensor, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Homographies from four points by the direct linear transform, warping, and photometric differences."""
    b, _, h, w = images.shape
    x, y = target.unbind(-1)
    u, v = source.unbind(-1)
    zero, one = torch.zeros_like(x), torch.ones_like(x)
    first = torch.stack([x, y, one, zero, zero, zero, -u * x, -u * y], dim=-1)
    second = torch.stack([zero, zero, zero, x, y, one, -v * x, -v * y], dim=-1)
    system = torch.cat([first, second], dim=1)
    solution = torch.linalg.solve(system, torch.cat([u, v], dim=1))
    matrix = torch.cat([solution, torch.ones_like(solution[:, :1])], dim=1).view(b, 3, 3)
    ys = torch.linspace(-1, 1, h, dtype=images.dtype, device=images.device)
    xs = torch.linspace(-1, 1, w, dtype=images.dtype, device=images.device)
    gy, gx = torch.meshgrid(ys, xs, indexing="ij")
    points = torch.stack([gx, gy, torch.ones_like(gx)], dim=-1)
    mapped = torch.einsum("bij,hwj->bhwi", matrix, points)
    grid = mapped[..., :2] / mapped[..., 2:].clamp(min=1e-3)
    warped = F.grid_sample(images, grid, align_corners=True)
    valid = (grid.abs() <= 1).all(-1)
    grey = 0.299 * warped[:, 0] + 0.587 * warped[:, 1] + 0.114 * warped[:, 2]
    return warped, valid, torch.where(valid, grey, 0.0).sum((1, 2)) / valid.sum((1, 2)).clamp(min=1)


def warps(place: Place) -> Made:
    b, n = place.size(4, 32), place.size(160, 384)
    corners = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], device=place.device).expand(b, 4, 2)
    return perspective_warp, (place.rand(b, 3, n, n), corners, corners + 0.3 * (place.rand(b, 4, 2) - 0.5))


class StereoMatching(nn.Module):
    """A cost volume of shifted features, 3-d convolutions, soft argmin disparity; smooth L1 where it is known."""

    def __init__(self, channels: int, disparities: int) -> None:
        super().__init__()
        self.disparities = disparities
        self.features = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1)
        )
        self.volume = nn.Sequential(
            nn.Conv3d(2 * channels, channels, 3, padding=1), nn.ReLU(), nn.Conv3d(channels, 1, 3, padding=1)
        )

    def forward(self, left: Tensor, right: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.features(left), self.features(right)
        n, c, h, w = a.shape
        cost = a.new_zeros(n, 2 * c, self.disparities, h, w)
        for d in range(self.disparities):
            if d == 0:
                cost[:, :c, d], cost[:, c:, d] = a, b
            else:
                cost[:, :c, d, :, d:] = a[:, :, :, d:]
                cost[:, c:, d, :, d:] = b[:, :, :, :-d]
        p = F.softmax(-self.volume(cost).squeeze(1), dim=1)
        values = torch.arange(self.disparities, dtype=p.dtype, device=p.device)
        disparity = torch.einsum("ndhw,d->nhw", p, values)
        known = truth > 0
        loss = F.smooth_l1_loss(disparity, truth, reduction="none")
        return (loss * known).sum() / known.sum(), ((disparity.detach() - truth).abs() > 3).sum() / known.sum()


def stereo(place: Place) -> Made:
    b, h, w, channels, disparities = 1, place.size(16, 64), place.size(40, 160), place.size(6, 16), place.size(8, 32)
    return StereoMatching(channels, disparities).to(place.device), (
        place.rand(b, 3, h, w),
        place.rand(b, 3, h, w),
        (disparities * (1.4 * place.rand(b, h, w) - 0.4)).clamp(min=0),
    )


def hough_lines(image: Tensor, angles: int, threshold: float, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Votes of edge pixels for lines by angle and distance, peaks after non-maximum suppression."""
    b, h, w = image.shape
    dx = F.pad(image[:, :, 2:] - image[:, :, :-2], (1, 1))
    dy = F.pad(image[:, 2:] - image[:, :-2], (0, 0, 1, 1))
    strength = torch.hypot(dx, dy)
    edge = (strength > threshold).to(image.dtype).flatten(1)
    reach = math.ceil(math.hypot(h, w))
    theta = torch.arange(angles, device=image.device, dtype=image.dtype) * (math.pi / angles) + 1e-3
    ys = torch.arange(h, device=image.device, dtype=image.dtype)
    xs = torch.arange(w, device=image.device, dtype=image.dtype)
    rho = xs[None, None] * theta.cos()[:, None, None] + ys[None, :, None] * theta.sin()[:, None, None]
    slot = (rho + reach).round().long().flatten(1)
    votes = image.new_zeros(b, angles, 2 * reach + 1)
    for a in range(angles):
        votes[:, a].scatter_add_(1, slot[a].expand(b, -1), edge)
    peaks = votes == F.max_pool2d(votes, (5, 9), stride=1, padding=(2, 4))
    best, where = torch.where(peaks, votes, 0.0).flatten(1).topk(count, dim=1)
    return best, votes.amax((1, 2)), strength.mean((1, 2)) + 0 * where.sum()


def hough(place: Place) -> Made:
    b, n = place.size(2, 8), place.size(64, 320)
    image = place.randint(16, b, n, n) / 16
    image[:, n // 3] = 3.0
    image[:, :, n // 2] = 3.0
    return hough_lines, (image, place.size(24, 90), 0.9, 10)


class ModulatedDeformable(nn.Module):
    """DCNv2 by hand: offsets and masks from a convolution, four gathers, bilinear weights, one product."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.offset = nn.Conv2d(inputs, 27, 3, padding=1)
        self.weight = nn.Parameter(torch.randn(outputs, inputs, 9) / (9 * inputs) ** 0.5)
        self.norm = nn.GroupNorm(4, outputs)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        dy, dx, mask = self.offset(x).chunk(3, dim=1)
        ky, kx = torch.meshgrid(*[torch.arange(-1, 2, device=x.device, dtype=x.dtype)] * 2, indexing="ij")
        ys = torch.arange(h, device=x.device, dtype=x.dtype)[:, None] + ky.reshape(9, 1, 1) + dy
        xs = torch.arange(w, device=x.device, dtype=x.dtype) + kx.reshape(9, 1, 1) + dx
        y0, x0 = ys.floor(), xs.floor()
        padded = F.pad(x, (1, 1, 1, 1)).flatten(2)
        sampled: Tensor | float = 0.0
        for iy, wy in ((y0, 1 - (ys - y0)), (y0 + 1, ys - y0)):
            for ix, wx in ((x0, 1 - (xs - x0)), (x0 + 1, xs - x0)):
                row, column = (iy + 1).clamp(0, h + 1).long(), (ix + 1).clamp(0, w + 1).long()
                index = (row * (w + 2) + column).flatten(1)[:, None].expand(-1, c, -1)
                sampled = sampled + padded.gather(2, index).view(b, c, 9, h, w) * (wy * wx)[:, None]
        columns = sampled * torch.sigmoid(mask)[:, None]
        return F.relu(self.norm(torch.einsum("bckhw,ock->bohw", columns, self.weight)))


def modulated(place: Place) -> Made:
    b, c, n = place.size(1, 4), place.size(16, 64), place.size(28, 64)
    return ModulatedDeformable(c, c).to(place.device), (place.randn(b, c, n, n).requires_grad_(),)


class MaskedAutoencoder(nn.Module):
    """He et al., 2022: a random quarter of the patches is encoded, the rest are decoded from a mask token."""

    def __init__(self, patch: int, d: int, decoder: int, count: int) -> None:
        super().__init__()
        self.patch = patch
        self.embed = nn.Conv2d(3, d, patch, patch)
        self.position = nn.Parameter(0.02 * torch.randn(1, count, d))
        make = nn.TransformerEncoderLayer
        self.encoder = make(d, 4, 4 * d, 0.0, "gelu", batch_first=True, norm_first=True)
        self.narrow = nn.Linear(d, decoder)
        self.mask_token = nn.Parameter(0.02 * torch.randn(1, 1, decoder))
        self.decoder_position = nn.Parameter(0.02 * torch.randn(1, count, decoder))
        self.decoder = make(decoder, 4, 4 * decoder, 0.0, "gelu", batch_first=True, norm_first=True)
        self.head = nn.Linear(decoder, patch * patch * 3)

    def forward(self, images: Tensor, noise: Tensor) -> Tensor:
        p = self.patch
        target = F.unfold(images, p, stride=p).transpose(1, 2)
        target = (target - target.mean(-1, keepdim=True)) / (target.var(-1, keepdim=True) + 1e-6).sqrt()
        x = self.embed(images).flatten(2).transpose(1, 2) + self.position
        b, n, d = x.shape
        keep = n // 4
        shuffle = torch.argsort(noise, dim=1)
        restore = torch.argsort(shuffle, dim=1)
        x = self.encoder(torch.gather(x, 1, shuffle[:, :keep, None].repeat(1, 1, d)))
        y = torch.cat([self.narrow(x), self.mask_token.repeat(b, n - keep, 1)], dim=1)
        y = torch.gather(y, 1, restore[..., None].repeat(1, 1, y.size(2)))
        y = self.head(self.decoder(y + self.decoder_position))
        mask = torch.ones_like(noise)
        mask[:, :keep] = 0
        mask = torch.gather(mask, 1, restore)
        return ((y - target).square().mean(-1) * mask).sum() / mask.sum()


def masked_autoencoder(place: Place) -> Made:
    b, side, patch = place.size(2, 32), place.size(48, 224), place.size(8, 16)
    count = (side // patch) ** 2
    model = MaskedAutoencoder(patch, place.size(64, 384), place.size(32, 192), count).to(place.device)
    return model, (place.rand(b, 3, side, side), place.rand(b, count))


class FlippedEnsemble(nn.Module):
    """Segmentation with test-time augmentation: flips and scales in, logits back, averaged; uncertainty by entropy."""

    def __init__(self, channels: int, classes: int = 8) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.Hardswish(),
            nn.Conv2d(channels, channels, 5, padding=2, groups=channels),
            nn.Hardswish(),
            nn.Conv2d(channels, classes, 1),
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        size = images.shape[-2:]
        total, views = 0.0, []
        for scale in (0.75, 1.0, 1.25):
            resized = F.interpolate(images, scale_factor=scale, mode="bilinear", align_corners=False)
            for flip in ((), (-1,), (-2,), (-2, -1)):
                logits = self.net(resized.flip(flip))
                logits = F.interpolate(logits.flip(flip), size=size, mode="bilinear", align_corners=False)
                views.append(logits.softmax(1))
                total = total + views[-1]
        mean = total / len(views)
        entropy = -(mean * mean.clamp(min=1e-8).log()).sum(1)
        expected = -torch.stack([(v * v.clamp(min=1e-8).log()).sum(1) for v in views]).mean(0)
        return mean, entropy, entropy - expected


def augmented(place: Place) -> Made:
    b, n, channels = place.size(1, 4), place.size(48, 256), place.size(8, 32)
    return FlippedEnsemble(channels).eval().to(place.device), (place.rand(b, 3, n, n),)


ROWS: tuple[Row, ...] = (
    Row("program/adaptive_anchor_assignment", anchor_matching),
    Row("program/mosaic_augmentation", mosaics),
    Row("program/perspective_warp", warps),
    Row("program/stereo_cost_volume", stereo, "training"),
    Row("program/hough_lines", hough),
    Row("program/modulated_deformable_convolution", modulated, "training"),
    Row("program/masked_autoencoder", masked_autoencoder, "training"),
    Row("program/test_time_flips", augmented),
)
