"""Layers and steps of vision: kernels made from content, two frequencies, points of doubt, thresholds, fused boxes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class ReassembledFeatures(nn.Module):
    """CARAFE (Wang et al., 2019): each pixel of the larger map mixes a neighbourhood with a kernel of its own."""

    def __init__(self, channels: int, scale: int, size: int) -> None:
        super().__init__()
        self.scale, self.size = scale, size
        self.squeeze = nn.Conv2d(channels, channels // 4, 1)
        self.encode = nn.Conv2d(channels // 4, (scale * size) ** 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        kernel = F.pixel_shuffle(self.encode(self.squeeze(x)), self.scale).softmax(1)
        patches = F.unfold(x, self.size, padding=self.size // 2).view(b, c * self.size**2, h, w)
        patches = F.interpolate(patches, scale_factor=self.scale, mode="nearest")
        patches = patches.view(b, c, self.size**2, h * self.scale, w * self.scale)
        return (patches * kernel[:, None]).sum(2)


def reassembled(place: Place) -> Made:
    b, c, n = place.size(1, 8), place.size(16, 64), place.size(16, 64)
    return ReassembledFeatures(c, 2, 5).to(place.device), (place.randn(b, c, n, n).requires_grad_(),)


class Involution(nn.Module):
    """Li et al., 2021: kernels that differ by place and are shared by channels, in a bottleneck."""

    def __init__(self, channels: int, groups: int, size: int) -> None:
        super().__init__()
        self.groups, self.size = groups, size
        self.reduce = nn.Sequential(
            nn.Conv2d(channels, channels // 4, 1, bias=False), nn.BatchNorm2d(channels // 4), nn.ReLU()
        )
        self.span = nn.Conv2d(channels // 4, size * size * groups, 1)
        self.before, self.after = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.before(x))
        b, c, h, w = y.shape
        kernel = self.span(self.reduce(y)).view(b, self.groups, 1, self.size**2, h, w)
        patches = F.unfold(y, self.size, padding=self.size // 2)
        patches = patches.view(b, self.groups, c // self.groups, self.size**2, h, w)
        out = (kernel * patches).sum(3).view(b, c, h, w)
        return F.relu(x + self.norm(self.after(out)))


def involved(place: Place) -> Made:
    b, c, n = place.size(2, 16), place.size(16, 128), place.size(16, 56)
    return Involution(c, place.size(4, 8), place.size(5, 7)).to(place.device), (place.randn(b, c, n, n),)


class OctaveBlock(nn.Module):
    """Chen et al., 2019: fine and coarse channels, four convolutions between them, normalised apart."""

    def __init__(self, fine: int, coarse: int) -> None:
        super().__init__()
        self.hh, self.hl = (nn.Conv2d(fine, c, 3, padding=1, bias=False) for c in (fine, coarse))
        self.ll, self.lh = (nn.Conv2d(coarse, c, 3, padding=1, bias=False) for c in (coarse, fine))
        self.norms = nn.ModuleList([nn.BatchNorm2d(fine), nn.BatchNorm2d(coarse)])

    def forward(self, high: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
        up = F.interpolate(self.lh(low), scale_factor=2, mode="nearest")
        new_high = self.norms[0](self.hh(high) + up)
        new_low = self.norms[1](self.ll(low) + self.hl(F.avg_pool2d(high, 2)))
        return F.silu(new_high) + high, F.silu(new_low) + low


def octaves(place: Place) -> Made:
    b, c, n = place.size(2, 16), place.size(8, 64), place.size(32, 112)
    return OctaveBlock(c, c // 2).to(place.device), (
        place.randn(b, c, n, n).requires_grad_(),
        place.randn(b, c // 2, n // 2, n // 2),
    )


class MixedExpertKernels(nn.Module):
    """CondConv (Yang et al., 2019): a kernel for each picture, mixed of experts, run as one grouped convolution."""

    def __init__(self, channels: int, experts: int) -> None:
        super().__init__()
        self.kernels = nn.Parameter(torch.randn(experts, channels, channels, 3, 3) / math.sqrt(9 * channels))
        self.bias = nn.Parameter(torch.zeros(experts, channels))
        self.route = nn.Linear(channels, experts)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        weight = torch.sigmoid(self.route(x.mean((2, 3))))
        kernel = torch.einsum("be,eoihw->boihw", weight, self.kernels).reshape(b * c, c, 3, 3)
        out = F.conv2d(x.reshape(1, b * c, h, w), kernel, (weight @ self.bias).flatten(), padding=1, groups=b)
        return F.hardswish(out.view(b, c, h, w))


def mixed_kernels(place: Place) -> Made:
    b, c, n = place.size(4, 32), place.size(12, 64), place.size(20, 56)
    return MixedExpertKernels(c, 4).to(place.device), (place.randn(b, c, n, n),)


class PointsOfDoubt(nn.Module):
    """PointRend (Kirillov et al., 2020): the least certain of sampled points, fine and coarse features, a head."""

    def __init__(self, channels: int, classes: int, points: int) -> None:
        super().__init__()
        self.points = points
        self.head = nn.Sequential(
            nn.Conv1d(channels + classes, 64, 1), nn.ReLU(), nn.Conv1d(64, 64, 1), nn.ReLU(), nn.Conv1d(64, classes, 1)
        )

    def forward(self, coarse: Tensor, fine: Tensor, label: Tensor, sampled: Tensor) -> tuple[Tensor, Tensor]:
        def looked_up(t: Tensor, at: Tensor, mode: str = "bilinear") -> Tensor:
            return F.grid_sample(t, 2 * at[:, :, None] - 1, mode=mode, align_corners=False).squeeze(-1)

        with torch.no_grad():
            best = looked_up(coarse, sampled).topk(2, dim=1).values
            doubt = best[:, 1] - best[:, 0]
            kept = doubt.topk(3 * self.points // 4, dim=1).indices
            at = torch.cat([sampled.gather(1, kept[..., None].expand(-1, -1, 2)), sampled[:, : self.points // 4]], 1)
        features = torch.cat([looked_up(fine, at), looked_up(coarse, at)], dim=1)
        target = looked_up(label[:, None].to(fine.dtype), at, "nearest").squeeze(1).long()
        return F.cross_entropy(self.head(features), target), F.cross_entropy(
            F.interpolate(coarse, label.shape[1:]), label
        )


def points_of_doubt(place: Place) -> Made:
    b, c, classes, n, points = place.size(2, 8), place.size(16, 256), 9, place.size(16, 64), place.size(64, 2048)
    return PointsOfDoubt(c, classes, points).to(place.device), (
        place.randn(b, classes, n, n).requires_grad_(),
        place.randn(b, c, 2 * n, 2 * n).requires_grad_(),
        place.randint(classes, b, 4 * n, 4 * n),
        place.rand(b, 3 * points, 2),
    )


def soft_thresholds(
    probability: Tensor, threshold: Tensor, shrunk: Tensor, border: Tensor, mask: Tensor, border_mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Text detection by differentiable binarisation (Liao et al., 2020): three losses, negatives mined three to one."""
    p, t = torch.sigmoid(probability), torch.sigmoid(threshold)
    binary = torch.reciprocal(1 + torch.exp(-50 * (p - t)))
    positive = (shrunk * mask).byte()
    negative = ((1 - shrunk) * mask).byte()
    count = positive.numel() // 8
    loss = F.binary_cross_entropy_with_logits(probability, shrunk, reduction="none")
    positives = (loss * positive).sum()
    hardest, _ = torch.topk((loss * negative).flatten(), 3 * count)
    balanced = (positives + hardest.sum()) / (positive.sum() + 3 * count + 1e-6)
    dice = 1 - 2 * (binary * shrunk * mask).sum() / ((binary * mask).sum() + (shrunk * mask).sum() + 1e-6)
    l1 = ((t - border).abs() * border_mask).sum() / (border_mask.sum() + 1e-6)
    return 5 * balanced, dice, 10 * l1


def text_regions(place: Place) -> Made:
    b, n = place.size(2, 16), place.size(96, 640)

    def smooth() -> Tensor:
        return F.interpolate(place.randn(b, 1, n // 8, n // 8), (n, n), mode="bilinear")[:, 0].contiguous()

    region = smooth()
    return soft_thresholds, (
        (0.1 * place.randn(b, n, n)).requires_grad_(),
        (0.1 * place.randn(b, n, n)).requires_grad_(),
        (region > 0.5).float(),
        0.3 + 0.4 * torch.sigmoid(region),
        (place.rand(b, n, n) < 0.95).float(),
        (region.abs() < 0.5).float(),
    )


def fused_boxes(
    boxes: Tensor, scores: Tensor, model: Tensor, models: int, rounds: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted boxes fusion (Solovyev et al., 2019) in rounds: the best box left gathers those that overlap it."""
    area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    left, right = torch.maximum(boxes[:, None, :2], boxes[:, :2]), torch.minimum(boxes[:, None, 2:], boxes[:, 2:])
    overlap = (right - left).clamp(min=0).prod(-1)
    iou = overlap / (area[:, None] + area - overlap)
    alive = torch.ones_like(scores, dtype=torch.bool)
    fused, confidence, members = [], [], []
    for _ in range(rounds):
        leader = torch.where(alive, scores, -1.0).argmax()
        cluster = (iou[leader] > 0.55) & alive
        weight = scores * cluster
        voters = torch.zeros(models, dtype=torch.bool, device=boxes.device)
        voters[model[cluster]] = True
        fused.append((weight[:, None] * boxes).sum(0) / weight.sum().clamp(min=1e-6))
        confidence.append(weight.sum() / cluster.sum().clamp(min=1) * voters.sum() / models)
        members.append(cluster.sum())
        alive = alive & ~cluster
    return torch.stack(fused), torch.stack(confidence), torch.stack(members)


def fusion_of_models(place: Place) -> Made:
    n, objects = place.size(300, 4000), place.size(10, 24)
    centre = 500 * place.rand(objects, 2)
    size = 30 + 60 * place.rand(objects, 2)
    which = place.randint(objects, n)
    boxes = torch.cat([centre - size / 2, centre + size / 2], 1)[which] + 3 * place.randn(n, 4)
    return fused_boxes, (boxes, place.rand(n), place.randint(5, n), 5, place.size(8, 16))


def binary_matches(
    image: Tensor, keypoints: Tensor, pairs: Tensor, other: Tensor, table: Tensor, ratio: float
) -> tuple[Tensor, Tensor, Tensor]:
    """ORB (Rublee et al., 2011): angles of patches' moments, turned tests packed to bytes, Hamming's distances by a
    table, matches that agree both ways and pass a ratio."""
    r = 7
    steps = torch.arange(-r, r + 1, device=image.device)
    y, x = torch.meshgrid(steps, steps, indexing="ij")
    disc = (y**2 + x**2 <= r * r).to(image.dtype)
    rows, columns = keypoints[:, 0, None, None] + y, keypoints[:, 1, None, None] + x
    patch = image[rows, columns] * disc
    angle = torch.atan2((patch * y).sum((1, 2)), (patch * x).sum((1, 2)))
    c, s = angle.cos()[:, None], angle.sin()[:, None]

    def intensity(p: Tensor) -> Tensor:
        dx, dy = (c * p[:, 0] - s * p[:, 1]).round().long(), (s * p[:, 0] + c * p[:, 1]).round().long()
        return image[keypoints[:, :1] + dy, keypoints[:, 1:] + dx]

    bits = (intensity(pairs[:, :2]) < intensity(pairs[:, 2:])).view(len(keypoints), -1, 8)
    code = (bits.long() << torch.arange(8, device=image.device)).sum(-1)
    distance = table[code[:, None] ^ other].sum(-1)
    best, index = distance.topk(2, dim=1, largest=False)
    back = distance.argmin(0)
    mutual = back[index[:, 0]] == torch.arange(len(code), device=image.device)
    good = mutual & (best[:, 0] < ratio * best[:, 1])
    return index[:, 0], good, code


def descriptors(place: Place) -> Made:
    n, size, m = place.size(200, 4096), place.size(96, 1024), place.size(250, 4096)
    image = F.avg_pool2d(place.rand(1, 1, size, size), 5, stride=1, padding=2)[0, 0].contiguous()
    keypoints = 12 + place.randint(size - 24, n, 2)
    pairs = (3 * place.randn(256, 4)).clamp(-7, 7).round()
    table = torch.tensor([bin(i).count("1") for i in range(256)], device=place.device)
    return binary_matches, (image, keypoints, pairs, place.randint(256, m, 32), table, 0.97)


ROWS: tuple[Row, ...] = (
    Row("program/reassembled_features", reassembled, "training"),
    Row("program/involution_kernels", involved, "training"),
    Row("program/octave_frequencies", octaves, "training"),
    Row("program/mixed_expert_kernels", mixed_kernels, "training"),
    Row("program/points_of_doubt", points_of_doubt, "training"),
    Row("program/soft_text_thresholds", text_regions, "training"),
    Row("program/weighted_box_fusion", fusion_of_models),
    Row("program/binary_descriptor_matches", descriptors),
)
