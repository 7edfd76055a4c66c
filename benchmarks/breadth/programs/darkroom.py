"""Classic image processing: contrast, dithering, colour differences, thinning, floods, codes, haze, orientations."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..row import Made, Place, Row


def limited_equalisation(image: Tensor, tiles: int = 8, limit: float = 2.0) -> Tensor:
    """Zuiderveld, 1994 (CLAHE): clipped histograms of tiles, their tables interpolated at each pixel."""
    b, h, w = image.shape
    th, tw = h // tiles, w // tiles
    cells = image.view(b, tiles, th, tiles, tw).transpose(2, 3).reshape(b, tiles * tiles, -1).long()
    histogram = torch.zeros(b, tiles * tiles, 256, dtype=torch.int64, device=image.device)
    histogram.scatter_add_(2, cells, torch.ones_like(cells))
    most = max(int(limit * th * tw / 256), 1)
    excess = (histogram - most).clamp(min=0).sum(-1, keepdim=True)
    histogram = histogram.clamp(max=most) + excess // 256
    table = (histogram.cumsum(-1) * 255 // (th * tw)).clamp(max=255).view(b, tiles, tiles, 256).float()
    y = ((torch.arange(h, device=image.device) + 0.5) / th - 0.5).float()
    x = ((torch.arange(w, device=image.device) + 0.5) / tw - 0.5).float()
    y0, x0 = y.floor(), x.floor()
    fy, fx = (y - y0)[:, None], x - x0
    batch = torch.arange(b, device=image.device)[:, None, None]
    value = image.long()
    out = torch.zeros(image.shape, device=image.device)
    for dy, wy in ((0, 1 - fy), (1, fy)):
        for dx, wx in ((0, 1 - fx), (1, fx)):
            row = (y0 + dy).clamp(0, tiles - 1).long()[:, None]
            column = (x0 + dx).clamp(0, tiles - 1).long()
            out += wy * wx * table[batch, row, column, value]
    return (out + 0.5).floor().clamp(0, 255).to(torch.uint8)


def equalisation(place: Place) -> Made:
    b, n = place.size(2, 16), place.size(128, 1024)
    return limited_equalisation, ((place.rand(b, n, n) ** 2 * 255).to(torch.uint8),)


def error_diffusion(image: Tensor) -> tuple[Tensor, Tensor]:
    """Floyd and Steinberg, 1976, in integers: rows skewed so that a wavefront of pixels is set at once."""
    b, h, w = image.shape
    pad = 2 * h
    skewed = torch.zeros(b, h, w + pad, dtype=torch.int32, device=image.device)
    for y in range(h):
        skewed[:, y, 2 * y : 2 * y + w] = image[:, y].to(torch.int32)
    zero = torch.zeros(b, h, dtype=torch.int32, device=image.device)
    right, below_left, below, below_right = zero, [zero], [zero] * 2, [zero] * 3
    first = 2 * torch.arange(h, device=image.device)
    outputs = []
    for t in range(w + pad):
        down = (below_left[-1], below[-2], below_right[-3])
        value = skewed[:, :, t] + right + sum((F.pad(e[:, :-1], (1, 0)) for e in down), torch.zeros_like(zero))
        on = value >= 128
        error = torch.where((first <= t) & (t < first + w), value - 255 * on.to(torch.int32), 0)
        right = error * 7 // 16
        below_left, below, below_right = (
            [*below_left, error * 3 // 16][-1:],
            [*below, error * 5 // 16][-2:],
            [*below_right, error // 16][-3:],
        )
        outputs.append(on)
    on = torch.stack(outputs, -1)
    return torch.stack([on[:, y, 2 * y : 2 * y + w] for y in range(h)], 1), on.sum((1, 2))


def dithering(place: Place) -> Made:
    b, h, w = place.size(64, 16_384), 8, 24
    return error_diffusion, (place.randint(256, b, h, w).to(torch.uint8),)


def laboratory(rgb: Tensor) -> Tensor:
    """CIELAB from sRGB under D65."""
    linear = torch.where(rgb > 0.04045, ((rgb.clamp(min=0.04) + 0.055) / 1.055) ** 2.4, rgb / 12.92)
    m = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    matrix = rgb.new_tensor(m) / rgb.new_tensor([0.95047, 1.0, 1.08883])[:, None]
    xyz = torch.einsum("ij,bjyx->biyx", matrix, linear)
    f = torch.where(xyz > 216 / 24389, xyz.clamp(min=1e-3) ** (1 / 3), (24389 / 27 * xyz + 16) / 116)
    return torch.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], 1)


def colour_difference(a: Tensor, b: Tensor) -> Tensor:
    """Sharma, Wu and Dalal, 2005 (CIEDE2000): lightness, chroma, hue, and a turn in the blue."""
    l1, a1, b1 = laboratory(a).unbind(1)
    l2, a2, b2 = laboratory(b).unbind(1)
    mean = (torch.hypot(a1, b1 + 1e-3) + torch.hypot(a2, b2 + 1e-3)) / 2
    g = 0.5 * (1 - (mean**7 / (mean**7 + 25.0**7) + 1e-9).sqrt())
    a1, a2 = a1 * (1 + g), a2 * (1 + g)
    c1, c2 = (a1**2 + b1**2 + 1e-6).sqrt(), (a2**2 + b2**2 + 1e-6).sqrt()
    c = (c1 + c2) / 2
    dl, dc = l2 - l1, c2 - c1
    half = (c1 * c2).sqrt() * torch.sin(torch.atan2(a1 * b2 - a2 * b1, a1 * a2 + b1 * b2) / 2)
    h = torch.atan2(b1 / c1 + b2 / c2 + 1e-3, a1 / c1 + a2 / c2 + 1e-3)
    t = 1 - 0.17 * torch.cos(h - math.pi / 6) + 0.24 * torch.cos(2 * h) + 0.32 * torch.cos(3 * h + 0.105)
    l50 = ((l1 + l2) / 2 - 50) ** 2
    sl, sc, sh = 1 + 0.015 * l50 / (20 + l50).sqrt(), 1 + 0.045 * c, 1 + 0.015 * c * t
    turn = -2 * (c**7 / (c**7 + 25.0**7) + 1e-9).sqrt() * torch.sin(1.05 * torch.exp(-((torch.cos(h) - 0.1) ** 2)))
    lightness, chroma, hue = dl / sl, dc / sc, 2 * half / sh
    return (lightness**2 + chroma**2 + hue**2 + 0.3 * turn * chroma * hue + 1.0).clamp(min=1e-2).sqrt()


def colours(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(96, 512)
    base = torch.tensor([0.6, 0.3, 0.1]).to(place.device)[:, None, None]
    x, y = (base + 0.2 * place.rand(b, 3, n, n) for _ in range(2))
    return colour_difference, (x.requires_grad_(), y)


def thinning(image: Tensor, rounds: int = 6) -> tuple[Tensor, Tensor]:
    """Zhang and Suen, 1984: borders peeled from two sides in turn, until lines are left; their ends and forks."""

    def neighbours(x: Tensor) -> list[Tensor]:
        p = F.pad(x, (1, 1, 1, 1))
        h, w = x.shape[-2:]
        around = ((0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0), (0, 0))
        return [p[..., y : y + h, x0 : x0 + w] for y, x0 in around]

    def crossings(n: list[Tensor]) -> Tensor:
        return torch.stack([~a & b for a, b in zip(n, n[1:] + n[:1], strict=True)]).sum(0)

    for _ in range(rounds):
        for side in (0, 1):
            n = neighbours(image)
            count = torch.stack(n).sum(0)
            first, second = (n[2] & n[4], n[0] & n[6]) if side else (n[0] & n[4], n[2] & n[6])
            one, other = (first & n[0], second & n[2]) if side else (first & n[2], second & n[4])
            image = image & ~((count >= 2) & (count <= 6) & (crossings(n) == 1) & ~one & ~other)
    n = neighbours(image)
    return image, torch.stack([image & (crossings(n) == 1), image & (crossings(n) >= 3)]).sum((-2, -1))


def skeletons(place: Place) -> Made:
    b, n = place.size(2, 16), place.size(128, 1024)
    smooth = F.avg_pool2d(place.randint(64, b, 1, n, n).float(), 9, 1, 4)[:, 0]
    return thinning, (smooth > 31.0,)


def watershed(relief: Tensor, rounds: int = 24) -> tuple[Tensor, Tensor]:
    """Basins by flooding: minima get numbers, every pixel its lowest neighbour's, by pointers that jump."""
    b, h, w = relief.shape
    index = torch.arange(h * w, device=relief.device).view(h, w)
    key = relief * (h * w) + index
    padded = F.pad(key, (1, 1, 1, 1), value=1 << 60)
    lowest = key
    for dy in range(3):
        for dx in range(3):
            lowest = torch.minimum(lowest, padded[:, dy : dy + h, dx : dx + w])
    parent = (lowest % (h * w)).flatten(1)
    for _ in range(rounds // 3):
        parent = parent.gather(1, parent)
    basin = parent.view(b, h, w)
    edge = F.pad(basin[:, :, 1:] != basin[:, :, :-1], (0, 1)) | F.pad(basin[:, 1:] != basin[:, :-1], (0, 0, 0, 1))
    area = torch.zeros_like(parent).scatter_add(1, parent, torch.ones_like(parent))
    depth = relief.flatten(1) - relief.flatten(1).gather(1, parent)
    return torch.where(edge, -1, basin), torch.zeros_like(parent).scatter_reduce(1, parent, depth, "amax") * (area > 4)


def basins(place: Place) -> Made:
    b, n = place.size(2, 16), place.size(96, 1024)
    return watershed, (F.avg_pool2d(place.randint(4096, b, 1, n, n).float(), 5, 1, 2)[:, 0].long(),)


def binary_patterns(image: Tensor, cells: int) -> Tensor:
    """Ojala et al., 2002: signs of eight neighbours as codes, uniform ones told apart, histograms of cells."""
    b, h, w = image.shape
    p = F.pad(image, (1, 1, 1, 1), mode="replicate")
    around = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
    code = torch.zeros_like(image, dtype=torch.int32)
    for bit, (y, x) in enumerate(around):
        code = code | ((p[:, y : y + h, x : x + w] >= image).to(torch.int32) << bit)
    turned = ((code << 1) | (code >> 7)) & 255
    changes, ones = code ^ turned, torch.zeros_like(code)
    count = torch.zeros_like(code)
    for bit in range(8):
        count, ones = count + ((changes >> bit) & 1), ones + ((code >> bit) & 1)
    label = torch.where(count <= 2, ones, 9).long()
    cell = label.view(b, cells, h // cells, cells, w // cells).transpose(2, 3).reshape(b, cells * cells, -1)
    histogram = F.one_hot(cell, 10).sum(2).to(image.dtype)
    return F.normalize((histogram / cell.size(-1)).sqrt().flatten(1), dim=1)


def textures(place: Place) -> Made:
    b, n = place.size(4, 64), place.size(96, 512)
    return binary_patterns, (place.rand(b, n, n), 8)


def dehazed(image: Tensor, patch: int = 7, radius: int = 8) -> tuple[Tensor, Tensor]:
    """He, Sun and Tang, 2011 and 2013: a dark channel, the air's light from its brightest, a guided filter of it."""

    def box(x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 2 * radius + 1, 1, radius, count_include_pad=False)

    b, _, h, w = image.shape
    dark = -F.max_pool2d(-image.amin(1, keepdim=True), patch, 1, patch // 2)
    brightest = dark.flatten(1).topk(h * w // 256, 1).values[:, -1]
    mask = (dark.flatten(1) >= brightest[:, None]).to(image.dtype)
    air = ((image.flatten(2) * mask[:, None]).sum(-1) / mask.sum(-1, keepdim=True)).view(b, 3, 1, 1)
    coarse = 1 + 0.95 * F.max_pool2d(-(image / air).amin(1, keepdim=True), patch, 1, patch // 2)
    guide = image.mean(1, keepdim=True)
    mean, mean_t = box(guide), box(coarse)
    slope = (box(guide * coarse) - mean * mean_t) / (box(guide * guide) - mean**2 + 1e-2)
    t = (box(slope) * guide + box(mean_t - slope * mean)).clamp(0.1, 1)
    return ((image - air) / t + air).clamp(0, 1), t


def haze(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(128, 1024)
    return dehazed, (0.2 + 0.8 * place.randint(4096, b, 3, n, n) / 4096.0,)


def oriented_histograms(image: Tensor, cell: int = 8, bins: int = 9) -> Tensor:
    """Dalal and Triggs, 2005: gradients vote for two bins, cells' histograms, blocks normalised, cut, normalised."""
    b = image.size(0)
    dx = F.pad(image[:, :, 2:] - image[:, :, :-2], (1, 1))
    dy = F.pad(image[:, 2:] - image[:, :-2], (0, 0, 1, 1))
    size = (dx**2 + dy**2).sqrt()
    at = torch.remainder(torch.atan2(dy, dx + 1e-6) / math.pi, 1.0) * bins
    votes = [size * ((1 - (at - k).abs()).clamp(min=0) + (1 - (at - k - bins).abs()).clamp(min=0)) for k in range(bins)]
    cells = F.avg_pool2d(torch.stack(votes, 1), cell)
    blocks = F.unfold(cells, 2).view(b, 4 * bins, -1)
    blocks = blocks / (blocks.square().sum(1, keepdim=True) + 1e-3).sqrt()
    blocks = blocks.clamp(max=0.2)
    return blocks / (blocks.square().sum(1, keepdim=True) + 1e-3).sqrt()


def orientations(place: Place) -> Made:
    b, n = place.size(2, 32), place.size(96, 512)
    return oriented_histograms, (place.rand(b, n, n),)


ROWS: tuple[Row, ...] = (
    Row("program/limited_tile_equalisation", equalisation),
    Row("program/error_diffusion_wavefront", dithering),
    Row("program/colour_difference_2000", colours, "training"),
    Row("program/zhang_suen_thinning", skeletons),
    Row("program/watershed_pointers", basins),
    Row("program/local_binary_patterns", textures),
    Row("program/dark_channel_dehazing", haze),
    Row("program/oriented_gradient_histograms", orientations),
)
