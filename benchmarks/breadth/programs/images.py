"""Preprocessing, augmentation and measuring of images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class Preprocess(nn.Module):
    """Bytes to what a backbone takes: resize the shorter side, crop the centre, normalise."""

    mean: Tensor
    std: Tensor

    def __init__(self, resize: int, crop: int) -> None:
        super().__init__()
        self.resize, self.crop = resize, crop
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        x = images.permute(0, 3, 1, 2).to(self.mean.dtype) / 255
        h, w = x.shape[-2:]
        scale = self.resize / min(h, w)
        size = round(h * scale), round(w * scale)
        x = F.interpolate(x, size=size, mode="bilinear", align_corners=False, antialias=False)
        top, left = (size[0] - self.crop) // 2, (size[1] - self.crop) // 2
        return (x[..., top : top + self.crop, left : left + self.crop] - self.mean) / self.std


def preprocess(place: Place) -> Made:
    n, h, w = place.size(2, 64), place.size(240, 480), place.size(320, 640)
    return Preprocess(144, 128).to(place.device), (place.randint(256, n, h, w, 3).to(torch.uint8),)


def color_jitter(x: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor) -> Tensor:
    """torchvision's four adjustments with factors per image; the hue turns the chroma plane."""
    b, c, s = (f.view(-1, 1, 1, 1) for f in (brightness, contrast, saturation))
    x = (x * b).clamp(0, 1)
    grey = (x * x.new_tensor([0.2989, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
    mean = grey.mean(dim=(1, 2, 3), keepdim=True)
    x = (c * x + (1 - c) * mean).clamp(0, 1)
    x = (s * x + (1 - s) * grey).clamp(0, 1)
    to_yiq = x.new_tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
    yiq = torch.einsum("kc,nchw->nkhw", to_yiq, x)
    cos, sin = torch.cos(hue).view(-1, 1, 1), torch.sin(hue).view(-1, 1, 1)
    y, i, q = yiq.unbind(1)
    turned = torch.stack([y, cos * i - sin * q, sin * i + cos * q], 1)
    return torch.einsum("kc,nchw->nkhw", torch.linalg.inv(to_yiq), turned).clamp(0, 1)


def jitter(place: Place) -> Made:
    n, side = place.size(8, 64), place.size(96, 256)
    factors = (0.6 + 0.8 * place.rand(n) for _ in range(3))
    return color_jitter, (place.rand(n, 3, side, side), *factors, place.randn(n) * 0.3)


def gaussian_blur(x: Tensor, size: int = 9, sigma: float = 2.0) -> Tensor:
    """Separable, with reflected borders; and an unsharp mask with it."""
    t = torch.arange(size, dtype=x.dtype, device=x.device) - (size - 1) / 2
    kernel = torch.exp(-0.5 * (t / sigma) ** 2)
    kernel = kernel / kernel.sum()
    c = x.shape[1]
    blurred = F.pad(x, (size // 2,) * 4, mode="reflect")
    blurred = F.conv2d(blurred, kernel.view(1, 1, 1, size).repeat(c, 1, 1, 1), groups=c)
    blurred = F.conv2d(blurred, kernel.view(1, 1, size, 1).repeat(c, 1, 1, 1), groups=c)
    sharp = x + 1.5 * (x - blurred)
    return torch.where((x - blurred).abs() > 0.02, sharp, x).clamp_(0, 1)


def unsharp_mask(place: Place) -> Made:
    side = place.size(128, 512)
    return gaussian_blur, (place.rand(place.size(2, 32), 3, side, side),)


def random_erase(x: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor, noise: Tensor) -> Tensor:
    """Rectangles given per image, filled with noise; and every second image is mirrored, in place."""
    _, _, h, w = x.shape
    rows = torch.arange(h, device=x.device).view(1, 1, h, 1)
    columns = torch.arange(w, device=x.device).view(1, 1, 1, w)
    t, lft, hh, ww = (v.view(-1, 1, 1, 1) for v in (top, left, height, width))
    box = (rows >= t) & (rows < t + hh) & (columns >= lft) & (columns < lft + ww)
    out = torch.where(box, noise, x)
    out[::2] = out[::2].flip(-1)
    return out


def erase(place: Place) -> Made:
    n, side = place.size(16, 256), place.size(128, 224)
    boxes = (place.randint(side // 2, n) for _ in range(4))
    return random_erase, (place.rand(n, 3, side, side), *boxes, place.randn(n, 3, side, side))


def cutmix(
    x: Tensor, labels: Tensor, lam: Tensor, permutation: Tensor, box: tuple[int, int, int, int]
) -> tuple[Tensor, Tensor]:
    """Mixup for the first half of the batch and CutMix for the second, and their soft labels."""
    n = x.size(0) // 2
    classes = 100
    target = F.one_hot(labels, classes).to(x.dtype)
    weight = lam.view(-1, 1, 1, 1)
    mixed = weight * x[:n] + (1 - weight) * x[permutation][:n]
    mixed_target = lam[:, None] * target[:n] + (1 - lam[:, None]) * target[permutation][:n]
    y0, y1, x0, x1 = box
    cut = x[n:].clone()
    cut[:, :, y0:y1, x0:x1] = x[permutation][n:, :, y0:y1, x0:x1]
    share = 1 - (y1 - y0) * (x1 - x0) / (x.size(2) * x.size(3))
    cut_target = share * target[n:] + (1 - share) * target[permutation][n:]
    return torch.cat((mixed, cut)), torch.cat((mixed_target, cut_target))


def mixup_cutmix(place: Place) -> Made:
    n, side = place.size(16, 256), place.size(96, 224)
    images, labels = place.rand(n, 3, side, side), place.randint(100, n)
    permutation = torch.arange(n, device=place.device).flip(0)
    return cutmix, (images, labels, place.rand(n // 2), permutation, (10, side // 2, 20, side // 2))


class SpatialTransformer(nn.Module):
    """Jaderberg et al., 2015: a localisation net, an affine grid, sampling."""

    def __init__(self) -> None:
        super().__init__()
        self.localise = nn.Sequential(
            nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(192, 32), nn.ReLU(), nn.Linear(32, 6)
        )

    def forward(self, x: Tensor) -> Tensor:
        identity = torch.tensor([1.0, 0, 0, 0, 1, 0], dtype=x.dtype, device=x.device)
        theta = (identity + 0.1 * torch.tanh(self.localise(x))).view(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def spatial_transformer(place: Place) -> Made:
    n, side = place.size(8, 64), place.size(64, 224)
    return SpatialTransformer().to(place.device), (place.rand(n, 3, side, side),)


def histogram_equalization(images: Tensor) -> Tensor:
    """Each channel's histogram by scatter_add, its cumulative distribution as a lookup table."""
    n, c, h, w = images.shape
    flat = images.reshape(n * c, h * w).long()
    histogram = torch.zeros(n * c, 256, dtype=torch.long, device=images.device)
    histogram.scatter_add_(1, flat, torch.ones_like(flat))
    cdf = histogram.cumsum(1)
    lowest = torch.where(cdf > 0, cdf, h * w).amin(1, keepdim=True)
    table = ((cdf - lowest).clamp(min=0) * 255) // (h * w - lowest).clamp(min=1)
    return table.gather(1, flat).to(torch.uint8).view_as(images)


def equalize(place: Place) -> Made:
    n, side = place.size(8, 64), place.size(160, 512)
    return histogram_equalization, ((100 + 20 * place.randn(n, 3, side, side)).clamp(0, 255).to(torch.uint8),)


class SubPixelUpscaler(nn.Module):
    """ESPCN's: convolutions at low resolution, pixel_shuffle at the end, on top of a bicubic guess."""

    def __init__(self, width: int, scale: int = 2) -> None:
        super().__init__()
        self.scale = scale
        self.head = nn.Conv2d(3, width, 5, padding=2)
        self.body = nn.Conv2d(width, width, 3, padding=1)
        self.tail = nn.Conv2d(width, 3 * scale**2, 3, padding=1)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        features = torch.tanh(self.head(x))
        features = features + torch.tanh(self.body(features))
        base = F.interpolate(x, scale_factor=self.scale, mode="bicubic", align_corners=False)
        out = base + F.pixel_shuffle(self.tail(features), self.scale)
        error = out - target
        return torch.sqrt(error * error + 1e-6).mean()


def pixel_shuffle(place: Place) -> Made:
    n, side = place.size(2, 16), place.size(40, 128)
    model = SubPixelUpscaler(place.size(16, 64)).to(place.device)
    return model, (place.rand(n, 3, side, side), place.rand(n, 3, 2 * side, 2 * side))


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    lt = torch.max(a[:, None, :2], b[None, :, :2])
    rb = torch.min(a[:, None, 2:], b[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    return inter / (area_a[:, None] + area_b - inter)


def matrix_nms(boxes: Tensor, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """SOLOv2's soft suppression: scores decay by overlap with better boxes of the same class, in one go."""
    order = scores.argsort(descending=True, stable=True)
    boxes, scores, labels = boxes[order], scores[order], labels[order]
    iou = box_iou(boxes, boxes) * (labels[:, None] == labels[None, :])
    iou = iou.triu(diagonal=1)
    worst = iou.max(0).values
    decay = torch.exp(-2 * iou**2) / torch.exp(-2 * worst[:, None] ** 2)
    return scores * decay.amin(0), order


def matrix_suppression(place: Place) -> Made:
    n = place.size(512, 6000)
    corner = place.rand(n, 2)
    boxes = torch.cat([corner, corner + 0.05 + 0.3 * place.rand(n, 2)], 1)
    return matrix_nms, (boxes, place.rand(n), place.randint(10, n))


def greedy_nms(boxes: Tensor, scores: Tensor, threshold: float = 0.5, keep: int = 24) -> tuple[Tensor, Tensor]:
    """A fixed number of rounds of greedy suppression with tensors only: no data-dependent shapes."""
    left = scores.clone()
    chosen, kept = [], []
    for _ in range(keep):
        best = left.argmax(0, keepdim=True)
        iou = box_iou(boxes[best], boxes)[0]
        chosen.append(best)
        kept.append(left[best])
        left = left.masked_fill(iou > threshold, -1.0)
        left[best] = -1.0
    return torch.cat(chosen), torch.cat(kept)


def greedy_suppression(place: Place) -> Made:
    n = place.size(2000, 100_000)
    corner = place.rand(n, 2)
    boxes = torch.cat([corner, corner + 0.05 + 0.3 * place.rand(n, 2)], 1)
    return greedy_nms, (boxes, place.rand(n))


def yuv420(rgb: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """BT.601 studio range with subsampled chroma: what comes back from it, the luma, the chroma."""
    r, g, b = (rgb.to(torch.get_default_dtype()) / 255).unbind(1)
    y = 0.257 * r + 0.504 * g + 0.098 * b + 16 / 255
    u = -0.148 * r - 0.291 * g + 0.439 * b + 0.5
    v = 0.439 * r - 0.368 * g - 0.071 * b + 0.5
    u, v = (F.avg_pool2d(c.unsqueeze(1), 2) for c in (u, v))
    luma = 1.164 * (y.clamp(16 / 255, 235 / 255) - 16 / 255)
    cb, cr = (F.interpolate(c - 0.5, scale_factor=2, mode="nearest")[:, 0] for c in (u, v))
    back = torch.stack([luma + 1.596 * cr, luma - 0.392 * cb - 0.813 * cr, luma + 2.017 * cb], dim=1)
    return back.clamp(0, 1), y, torch.cat([u, v], 1)


def yuv(place: Place) -> Made:
    h, w = place.size(144, 1080), place.size(256, 1920)
    return yuv420, (place.randint(256, place.size(4, 8), 3, h, w).to(torch.uint8),)


def canny_edges(x: Tensor) -> tuple[Tensor, Tensor]:
    """Sobel gradients, non-maximum suppression along the gradient, two thresholds and growth of the strong ones.

    Exact on bytes: magnitudes are compared squared.
    """
    kernel = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]], dtype=x.dtype, device=x.device)
    gx = F.conv2d(x, kernel[None, None], padding=1)
    gy = F.conv2d(x, kernel.t()[None, None], padding=1)
    size = gx * gx + gy * gy
    sector = torch.round(torch.atan2(gy, gx) * 4 / torch.pi).long() % 4
    around = F.pad(size, (1, 1, 1, 1))
    h, w = x.shape[-2:]
    thin = torch.zeros_like(size)
    for k, (dy, dx) in enumerate([(0, 1), (1, 1), (1, 0), (1, -1)]):
        ahead = around[..., 1 + dy : 1 + dy + h, 1 + dx : 1 + dx + w]
        behind = around[..., 1 - dy : 1 - dy + h, 1 - dx : 1 - dx + w]
        thin = torch.where((sector == k) & (size >= ahead) & (size >= behind), size, thin)
    strong, weak = thin > 90_000.5, thin > 20_000.5
    for _ in range(3):
        strong = (F.max_pool2d(strong.to(x.dtype), 3, 1, 1) > 0) & weak
    return strong, thin * strong


def canny(place: Place) -> Made:
    side = place.size(160, 1024)
    return canny_edges, (place.randint(256, place.size(1, 8), 1, side, side).float(),)


def patch_inpainting(x: Tensor, mask: Tensor, patch: int = 8) -> Tensor:
    """Masked patches become the average of the others, weighted by likeness of position; unfold and fold."""
    n, _, h, w = x.shape
    patches = F.unfold(x, patch, stride=patch).transpose(1, 2)
    rows, columns = h // patch, w // patch
    where = torch.stack(torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij"), -1).view(-1, 2)
    where = where.to(device=x.device, dtype=x.dtype)
    closeness = (-torch.cdist(where, where)).expand(n, -1, -1).masked_fill(mask[:, None], -1e4).softmax(-1)
    filled = torch.where(mask[..., None], closeness @ patches, patches)
    return F.fold(filled.transpose(1, 2), (h, w), patch, stride=patch)


def patches(place: Place) -> Made:
    n, side = place.size(4, 64), place.size(96, 256)
    return patch_inpainting, (place.rand(n, 3, side, side), place.rand(n, (side // 8) ** 2) > 0.6)


ROWS: tuple[Row, ...] = (
    Row("program/resize_normalise", preprocess),
    Row("program/color_jitter", jitter),
    Row("program/unsharp_mask", unsharp_mask),
    Row("program/random_erase", erase),
    Row("program/mixup_cutmix", mixup_cutmix),
    Row("program/spatial_transformer", spatial_transformer, "training"),
    Row("program/histogram_equalization", equalize),
    Row("program/sub_pixel_upscaler", pixel_shuffle, "training"),
    Row("program/matrix_nms", matrix_suppression),
    Row("program/greedy_nms", greedy_suppression),
    Row("program/yuv420", yuv),
    Row("program/canny_edges", canny),
    Row("program/patch_inpainting", patches),
)
