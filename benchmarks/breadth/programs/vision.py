"""Detection, segmentation, flow: the heads, losses and post-processing of vision models."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class DeformableAttention(nn.Module):
    """Zhu et al., 2021: each query samples a few points of every level, as in the reference's own PyTorch version."""

    def __init__(self, d: int, heads: int, shapes: list[tuple[int, int]], points: int = 4) -> None:
        super().__init__()
        self.heads, self.shapes, self.points = heads, shapes, points
        self.offsets = nn.Linear(d, heads * len(shapes) * points * 2)
        self.weights = nn.Linear(d, heads * len(shapes) * points)
        self.value, self.out = nn.Linear(d, d), nn.Linear(d, d)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.offsets.weight)
        theta = torch.arange(self.heads) * (2.0 * math.pi / self.heads)
        ring = torch.stack([theta.cos(), theta.sin()], -1)
        ring = (ring / ring.abs().max(-1, keepdim=True)[0]).view(self.heads, 1, 1, 2)
        ring = ring.repeat(1, len(self.shapes), self.points, 1) * torch.arange(1, self.points + 1).view(-1, 1)
        self.offsets.bias = nn.Parameter(ring.flatten())

    def forward(self, query: Tensor, reference: Tensor, memory: Tensor) -> Tensor:
        b, q, d = query.shape
        levels = len(self.shapes)
        value = self.value(memory).view(b, -1, self.heads, d // self.heads)
        offsets = self.offsets(query).view(b, q, self.heads, levels, self.points, 2)
        weights = self.weights(query).view(b, q, self.heads, levels * self.points).softmax(-1)
        size = query.new_tensor([[w, h] for h, w in self.shapes])
        locations = reference[:, :, None, None, None, :] + offsets / size[None, None, None, :, None, :]
        grids = 2 * locations - 1
        sampled = []
        for level, part in enumerate(value.split([h * w for h, w in self.shapes], dim=1)):
            h, w = self.shapes[level]
            maps = part.flatten(2).transpose(1, 2).reshape(b * self.heads, -1, h, w)
            grid = grids[:, :, :, level].transpose(1, 2).flatten(0, 1)
            sampled.append(F.grid_sample(maps, grid, mode="bilinear", padding_mode="zeros", align_corners=False))
        weights = weights.transpose(1, 2).reshape(b * self.heads, 1, q, levels * self.points)
        y = (torch.stack(sampled, dim=-2).flatten(-2) * weights).sum(-1).view(b, d, q)
        return self.out(y.transpose(1, 2).contiguous())


def deformable(place: Place) -> Made:
    batch, d, side = place.size(1, 2), place.size(64, 256), place.size(24, 96)
    shapes = [(side, side), (side // 2, side // 2), (side // 4, side // 4)]
    queries, tokens = place.size(150, 3000), sum(h * w for h, w in shapes)
    return DeformableAttention(d, 8, shapes).to(place.device), (
        place.randn(batch, queries, d).requires_grad_(),
        (place.randint(4 * side, batch, queries, 2) + 0.5) / (4 * side),
        place.randn(batch, tokens, d).requires_grad_(),
    )


class YoloDecode(nn.Module):
    """YOLOv5's head after its convolutions: boxes from three levels, and the best hundred of each image."""

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.no, self.strides = classes + 5, (8.0, 16.0, 32.0)
        anchors = [[10, 13, 16, 30, 33, 23], [30, 61, 62, 45, 59, 119], [116, 90, 156, 198, 373, 326]]
        self.register_buffer("anchors", torch.tensor(anchors, dtype=torch.float32).view(3, 1, 3, 1, 1, 2))

    def forward(self, levels: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        z = []
        for i, x in enumerate(levels):
            bs, _, ny, nx = x.shape
            y = x.view(bs, 3, self.no, ny, nx).permute(0, 1, 3, 4, 2).contiguous().sigmoid()
            yv, xv = torch.meshgrid(torch.arange(ny, device=x.device), torch.arange(nx, device=x.device), indexing="ij")
            grid = torch.stack((xv, yv), 2).view(1, 1, ny, nx, 2).to(x.dtype)
            y[..., 0:2] = (y[..., 0:2] * 2.0 - 0.5 + grid) * self.strides[i]
            y[..., 2:4] = (y[..., 2:4] * 2) ** 2 * self.anchors[i]
            z.append(y.view(bs, -1, self.no))
        prediction = torch.cat(z, 1)
        prediction[..., 5:] *= prediction[..., 4:5]
        confidence, label = prediction[..., 5:].max(-1)
        score, keep = torch.where(confidence > 0.25, confidence, 0.0).topk(100, dim=1)
        box = prediction[..., :4].gather(1, keep.unsqueeze(-1).expand(-1, -1, 4))
        xyxy = torch.empty_like(box)
        xyxy[..., :2] = box[..., :2] - box[..., 2:] / 2
        xyxy[..., 2:] = box[..., :2] + box[..., 2:] / 2
        return xyxy, score, label.gather(1, keep)


def yolo(place: Place) -> Made:
    batch, side = place.size(1, 16), place.size(52, 80)
    levels = [place.randn(batch, 255, side // k, side // k) for k in (1, 2, 4)]
    return YoloDecode().to(place.device), (levels,)


def corners(box: Tensor) -> Tensor:
    """Centres and sizes to corners."""
    cx, cy, w, h = box.unbind(-1)
    return torch.stack([cx - 0.5 * w, cy - 0.5 * h, cx + 0.5 * w, cy + 0.5 * h], dim=-1)


def generalized_iou(a: Tensor, b: Tensor) -> Tensor:
    """Of paired boxes: the overlap, less the share of the hull that neither covers."""
    area_a = (a[..., 2:] - a[..., :2]).prod(-1)
    area_b = (b[..., 2:] - b[..., :2]).prod(-1)
    wh = (torch.min(a[..., 2:], b[..., 2:]) - torch.max(a[..., :2], b[..., :2])).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    union = area_a + area_b - inter
    hull = (torch.max(a[..., 2:], b[..., 2:]) - torch.min(a[..., :2], b[..., :2])).prod(-1)
    return inter / union - (hull - union) / hull


class SetCriterion(nn.Module):
    """DETR's losses of matched predictions, summed over the decoder's layers."""

    weight: Tensor

    def __init__(self, classes: int, no_object: float = 0.1) -> None:
        super().__init__()
        self.classes = classes
        weight = torch.ones(classes + 1)
        weight[-1] = no_object
        self.register_buffer("weight", weight)

    def forward(
        self, logits: Tensor, boxes: Tensor, matched: Tensor, labels: Tensor, targets: Tensor, valid: Tensor
    ) -> dict[str, Tensor]:
        batch = torch.arange(matched.size(0), device=matched.device)[:, None].expand_as(matched)
        wanted = torch.full(logits.shape[1:3], self.classes, dtype=torch.int64, device=logits.device)
        wanted[batch, matched] = torch.where(valid, labels, self.classes)
        count = valid.sum().clamp(min=1)
        total = {"loss_ce": logits.new_zeros(()), "loss_bbox": logits.new_zeros(()), "loss_giou": logits.new_zeros(())}
        for layer_logits, layer_boxes in zip(logits, boxes, strict=True):
            box = layer_boxes.sigmoid()[batch, matched]
            total["loss_ce"] = total["loss_ce"] + F.cross_entropy(layer_logits.transpose(1, 2), wanted, self.weight)
            l1 = F.l1_loss(box, targets, reduction="none").sum(-1)
            total["loss_bbox"] = total["loss_bbox"] + 5 * (l1 * valid).sum() / count
            giou = generalized_iou(corners(box), corners(targets))
            total["loss_giou"] = total["loss_giou"] + 2 * ((1 - giou) * valid).sum() / count
        return total


def detr(place: Place) -> Made:
    layers, batch, queries, objects = 3, place.size(4, 64), place.size(100, 300), 20
    classes = 91
    return SetCriterion(classes).to(place.device), (
        place.randn(layers, batch, queries, classes + 1).requires_grad_(),
        place.randn(layers, batch, queries, 4).requires_grad_(),
        place.rand(batch, queries).argsort(1)[:, :objects],
        place.randint(classes, batch, objects),
        0.1 + 0.5 * place.rand(batch, objects, 4),
        place.rand(batch, objects) > 0.4,
    )


def bilateral_filter(image: Tensor, window: int = 5, sigma_space: float = 1.5, sigma_colour: float = 0.1) -> Tensor:
    """Each pixel is the average of its window, weighted by nearness and by likeness in colour."""
    b, c, h, w = image.shape
    radius = window // 2
    padded = F.pad(image, (radius, radius, radius, radius), mode="reflect")
    patches = F.unfold(padded, window).view(b, c, window * window, h, w)
    x = torch.arange(window, device=image.device, dtype=image.dtype) - radius
    spatial = torch.exp(-(x[:, None] ** 2 + x[None, :] ** 2) / (2 * sigma_space**2)).reshape(1, 1, -1, 1, 1)
    distance = (patches - image.unsqueeze(2)).abs().sum(1, keepdim=True)
    weight = spatial * torch.exp(-(distance**2) / (2 * sigma_colour**2))
    return (patches * weight).sum(2) / weight.sum(2)


def bilateral(place: Place) -> Made:
    n = place.size(96, 1024)
    return bilateral_filter, (place.rand(1, 3, n, n),)


def warp(image: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
    """The second image as seen from the first; and where that is inside it."""
    _, _, h, w = image.shape
    ys, xs = torch.meshgrid(
        torch.arange(h, device=image.device, dtype=image.dtype),
        torch.arange(w, device=image.device, dtype=image.dtype),
        indexing="ij",
    )
    grid = torch.stack((xs, ys)) + flow
    x = 2.0 * grid[:, 0] / max(w - 1, 1) - 1.0
    y = 2.0 * grid[:, 1] / max(h - 1, 1) - 1.0
    inside = (x.abs() <= 1) & (y.abs() <= 1)
    warped = F.grid_sample(image, torch.stack((x, y), dim=-1), padding_mode="border", align_corners=True)
    return warped, inside.unsqueeze(1)


def census(image: Tensor, patch: int = 7) -> Tensor:
    """UnFlow's ternary transform: soft signs of the differences to the neighbours."""
    grey = image.mul(image.new_tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True) * 255
    kernel = torch.eye(patch * patch, dtype=image.dtype, device=image.device).view(-1, 1, patch, patch)
    difference = F.conv2d(grey, kernel, padding=patch // 2) - grey
    return difference / torch.sqrt(0.81 + difference**2)


def unsupervised_flow_loss(first: Tensor, second: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
    """Census distance after warping, where the flow stays inside, and edge-aware smoothness."""
    warped, inside = warp(second, flow)
    squared = (census(first) - census(warped)) ** 2
    distance = (squared / (0.1 + squared)).mean(1, keepdim=True)
    mask = inside.to(first.dtype)
    photometric = (((distance + 0.01) ** 0.4) * mask).sum() / (mask.sum() + 1e-6)
    weight_x = torch.exp(-10 * (first[..., :, 1:] - first[..., :, :-1]).abs().mean(1, keepdim=True))
    weight_y = torch.exp(-10 * (first[..., 1:, :] - first[..., :-1, :]).abs().mean(1, keepdim=True))
    dx, dy = flow.diff(dim=-1).abs(), flow.diff(dim=-2).abs()
    return photometric, (weight_x * dx).mean() / 2 + (weight_y * dy).mean() / 2


def flow_loss(place: Place) -> Made:
    batch, h, w = place.size(1, 4), place.size(48, 384), place.size(64, 512)
    images = place.rand(batch, 3, h, w), place.rand(batch, 3, h, w)
    flow = (place.randint(64, batch, 2, h, w) - 31.5) / 8
    return unsupervised_flow_loss, (*images, flow.requires_grad_())


def correlation_lookup(fmap1: Tensor, fmap2: Tensor, coords: Tensor, levels: int = 4, radius: int = 3) -> Tensor:
    """RAFT's: all pairs of features, pooled to a pyramid, sampled around where each pixel is thought to go."""
    b, d, h, w = fmap1.shape
    corr = torch.matmul(fmap1.view(b, d, h * w).transpose(1, 2), fmap2.view(b, d, h * w))
    corr = corr.reshape(b * h * w, 1, h, w) / d**0.5
    coords = coords.permute(0, 2, 3, 1).reshape(b * h * w, 1, 1, 2)
    step = torch.linspace(-radius, radius, 2 * radius + 1, device=fmap1.device, dtype=fmap1.dtype)
    delta = torch.stack(torch.meshgrid(step, step, indexing="ij"), dim=-1)[None]
    out = []
    for level in range(levels):
        if level > 0:
            corr = F.avg_pool2d(corr, 2, stride=2)
        hl, wl = corr.shape[-2:]
        xg, yg = (coords / 2**level + delta).split([1, 1], dim=-1)
        grid = torch.cat([2 * xg / (wl - 1) - 1, 2 * yg / (hl - 1) - 1], dim=-1)
        out.append(F.grid_sample(corr, grid, align_corners=True).view(b, h, w, -1))
    return torch.cat(out, dim=-1).permute(0, 3, 1, 2).contiguous()


def raft(place: Place) -> Made:
    b, d, h, w = 1, place.size(64, 256), place.size(24, 56), place.size(40, 128)
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    coords = torch.stack((x, y)).unsqueeze(0).to(place.device) + 3 * place.randn(b, 2, h, w)
    return correlation_lookup, (place.randn(b, d, h, w), place.randn(b, d, h, w), coords)


class ConvNeXtBlock(nn.Module):
    """Liu et al., 2022: a wide depthwise convolution, and an inverted bottleneck with channels last."""

    def __init__(self, d: int, layer_scale: float = 0.1) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(d, d, 7, padding=3, groups=d)
        self.norm = nn.LayerNorm(d, eps=1e-6)
        self.expand, self.contract = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.gamma = nn.Parameter(layer_scale * torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(x).permute(0, 2, 3, 1)
        y = self.contract(F.gelu(self.expand(self.norm(y))))
        return x + (self.gamma * y).permute(0, 3, 1, 2)


class ConvNeXtStage(nn.Module):
    """A patchwise downsampling, blocks, and a pooled classifier."""

    def __init__(self, d: int, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, d, 4, stride=4)
        self.blocks = nn.Sequential(*(ConvNeXtBlock(d) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 100)

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        x = self.blocks(self.stem(image))
        return F.cross_entropy(self.head(self.norm(x.mean([-2, -1]))), label, label_smoothing=0.1)


def convnext(place: Place) -> Made:
    batch, side, d = place.size(1, 32), place.size(48, 224), place.size(32, 96)
    model = ConvNeXtStage(d, 2).to(place.device)
    return model, (place.randn(batch, 3, side, side), place.randint(100, batch))


class InvertedResidual(nn.Module):
    """MobileNetV3's: expand, depthwise, squeeze and excite, project."""

    def __init__(self, d: int, expansion: int = 4, reduction: int = 4) -> None:
        super().__init__()
        e = d * expansion
        self.expand = nn.Sequential(nn.Conv2d(d, e, 1, bias=False), nn.BatchNorm2d(e), nn.Hardswish(inplace=True))
        self.depthwise = nn.Sequential(
            nn.Conv2d(e, e, 5, padding=2, groups=e, bias=False), nn.BatchNorm2d(e), nn.Hardswish(inplace=True)
        )
        self.squeeze, self.excite = nn.Conv2d(e, e // reduction, 1), nn.Conv2d(e // reduction, e, 1)
        self.project = nn.Sequential(nn.Conv2d(e, d, 1, bias=False), nn.BatchNorm2d(d))

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.expand(x))
        scale = F.adaptive_avg_pool2d(y, 1)
        scale = F.hardsigmoid(self.excite(F.relu(self.squeeze(scale), inplace=True)))
        return x + self.project(y * scale)


def squeeze_excite(place: Place) -> Made:
    batch, d, side = place.size(1, 32), place.size(24, 40), place.size(40, 112)
    model = nn.Sequential(InvertedResidual(d), InvertedResidual(d)).to(place.device).eval()
    return model, (place.randn(batch, d, side, side),)


class DeepSupervision(nn.Module):
    """U2-Net's heads: a map from every scale, upsampled, fused, and each compared with the mask."""

    def __init__(self, channels: tuple[int, ...]) -> None:
        super().__init__()
        self.sides = nn.ModuleList(nn.Conv2d(c, 1, 3, padding=1) for c in channels)
        self.fuse = nn.Conv2d(len(channels), 1, 1)

    def forward(self, features: list[Tensor], mask: Tensor) -> tuple[Tensor, Tensor]:
        size = mask.shape[-2:]
        maps = []
        for side, feature in zip(self.sides, features, strict=True):
            maps.append(F.interpolate(side(feature), size=size, mode="bilinear", align_corners=False))
        maps.insert(0, self.fuse(torch.cat(maps, dim=1)))
        edges = (F.avg_pool2d(mask, 15, stride=1, padding=7) - mask).abs()
        weight = 1 + 5 * edges
        losses = []
        for logits in maps:
            bce = F.binary_cross_entropy_with_logits(logits, mask, reduction="none")
            bce = (weight * bce).sum(dim=(2, 3)) / weight.sum(dim=(2, 3))
            p = torch.sigmoid(logits)
            inter, union = (p * mask * weight).sum(dim=(2, 3)), ((p + mask) * weight).sum(dim=(2, 3))
            losses.append((bce + 1 - (inter + 1) / (union - inter + 1)).mean())
        return sum(losses), losses[0].detach()


def deep_supervision(place: Place) -> Made:
    batch, side = place.size(1, 8), place.size(96, 320)
    channels = (8, 16, 32, 32)
    features = [place.randn(batch, c, side >> i, side >> i) for i, c in enumerate(channels)]
    mask = (place.rand(batch, 1, side, side) > 0.6).to(torch.float32)
    return DeepSupervision(channels).to(place.device), (features, mask)


class MeanField(nn.Module):
    """A convolutional CRF: messages from the window, by nearness and colour, then the classes' compatibility."""

    def __init__(self, classes: int, window: int = 5, iterations: int = 3) -> None:
        super().__init__()
        self.window, self.iterations = window, iterations
        self.compatibility = nn.Parameter(torch.ones(classes, classes) - torch.eye(classes))
        self.weights = nn.Parameter(torch.tensor([1.0, 0.5]))

    def neighbours(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        return F.unfold(x, self.window, padding=self.window // 2).view(b, c, -1, h, w)

    def kernel(self, features: Tensor) -> Tensor:
        squared = (self.neighbours(features) - features.unsqueeze(2)).square().sum(1)
        weight = torch.exp(-0.5 * squared)
        weight[:, self.window**2 // 2] = 0
        return weight / weight.sum(1, keepdim=True).clamp(min=1e-6)

    def forward(self, unary: Tensor, image: Tensor) -> Tensor:
        h, w = image.shape[-2:]
        y = torch.arange(h, device=image.device, dtype=image.dtype).view(1, 1, h, 1).expand(image.size(0), 1, h, w)
        x = torch.arange(w, device=image.device, dtype=image.dtype).view(1, 1, 1, w).expand(image.size(0), 1, h, w)
        position = torch.cat((y, x), dim=1)
        kernel = self.weights[0] * self.kernel(torch.cat((position / 4, image / 0.2), dim=1))
        kernel = kernel + self.weights[1] * self.kernel(position / 2)
        q = unary.softmax(1)
        for _ in range(self.iterations):
            message = (self.neighbours(q) * kernel.unsqueeze(1)).sum(2)
            q = (unary - torch.einsum("kc,bchw->bkhw", self.compatibility, message)).softmax(1)
        return q


def crf(place: Place) -> Made:
    classes, n = place.size(6, 21), place.size(56, 384)
    return MeanField(classes).to(place.device), (place.randn(1, classes, n, n), place.rand(1, 3, n, n))


def panoptic(
    semantic: Tensor, heatmap: Tensor, offsets: Tensor, things: int = 8, k: int = 50
) -> tuple[Tensor, Tensor, Tensor]:
    """Panoptic-DeepLab: peaks of the heatmap are centres; thing pixels join the nearest, which votes on its class."""
    b, classes, h, w = semantic.shape
    peak = heatmap * (F.max_pool2d(heatmap, 7, stride=1, padding=3) == heatmap)
    peak = torch.where(peak > 0.1, peak, torch.full_like(peak, -1))
    score, index = peak.flatten(1).topk(k, dim=1)
    cy, cx = torch.div(index, w, rounding_mode="floor"), index % w
    centres = torch.stack((cy, cx), dim=-1).to(offsets.dtype)
    y, x = torch.meshgrid(
        torch.arange(h, device=semantic.device), torch.arange(w, device=semantic.device), indexing="ij"
    )
    location = (torch.stack((y, x)).to(offsets.dtype) + offsets).flatten(2).transpose(1, 2)
    distance = (location.unsqueeze(1) - centres.unsqueeze(2)).norm(dim=-1)
    distance = distance.masked_fill((score <= 0).unsqueeze(-1), float("inf"))
    instance = distance.argmin(dim=1).view(b, h, w) + 1
    label = semantic.argmax(1)
    instance = instance * (label < things)
    votes = torch.zeros(b, k + 1, classes, dtype=semantic.dtype, device=semantic.device)
    cell = instance.flatten(1) * classes + label.flatten(1)
    votes = votes.flatten(1).scatter_add_(1, cell, torch.ones_like(cell, dtype=semantic.dtype)).view(b, k + 1, classes)
    majority = votes[:, :, :things].argmax(-1)
    voted = majority.gather(1, instance.flatten(1)).view(b, h, w)
    return torch.where(instance > 0, voted * 1000 + instance, label * 1000), votes.sum(-1), score


def panoptic_merge(place: Place) -> Made:
    b, n = place.size(1, 2), place.size(64, 512)
    heatmap = F.avg_pool2d(place.rand(b, 1, n, n), 5, stride=1, padding=2)
    return panoptic, (place.randn(b, 19, n, n), heatmap, 6 * place.randn(b, 2, n, n))


ROWS: tuple[Row, ...] = (
    Row("program/deformable_attention", deformable, "training"),
    Row("program/yolo_decode", yolo),
    Row("program/detr_set_criterion", detr, "training"),
    Row("program/bilateral_filter", bilateral),
    Row("program/census_flow_loss", flow_loss, "training"),
    Row("program/raft_correlation", raft),
    Row("program/convnext_stage", convnext, "training", autocast=torch.bfloat16),
    Row("program/squeeze_excite", squeeze_excite, dtype=torch.bfloat16),
    Row("program/deep_supervision", deep_supervision, "training"),
    Row("program/crf_mean_field", crf),
    Row("program/panoptic_merge", panoptic_merge),
)
