"""Photographs: restoring, merging, demosaicing, denoising, fusing, carving, morphology, retouching."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def richardson_lucy(image: Tensor, point: Tensor, rounds: int = 8, damping: float = 0.01) -> tuple[Tensor, Tensor]:
    """Richardson, 1972, and Lucy, 1974: multiplicative updates by transforms, with total variation; the likelihood."""
    h, w = image.shape[-2:]
    otf = torch.fft.rfft2(F.pad(point, (0, w - point.size(-1), 0, h - point.size(-2))))
    estimate = image.clone()
    for _ in range(rounds):
        blurred = torch.fft.irfft2(torch.fft.rfft2(estimate) * otf, s=(h, w)).clamp(min=1e-3)
        correction = torch.fft.irfft2(torch.fft.rfft2(image / blurred) * otf.conj(), s=(h, w))
        dx, dy = estimate.roll(-1, -1) - estimate, estimate.roll(-1, -2) - estimate
        size = (dx**2 + dy**2 + 1e-3).sqrt()
        px, py = dx / size, dy / size
        divergence = px - px.roll(1, -1) + py - py.roll(1, -2)
        estimate = estimate * correction.clamp(min=0) / (1 - damping * divergence)
    return estimate, (blurred - image * blurred.log()).mean(dim=(-2, -1))


def deblurring(place: Place) -> Made:
    n, c = place.size(160, 1024), 3
    i = torch.arange(9) - 4.0
    g = torch.exp(-(i**2) / 6)
    point = (g[:, None] * g / g.sum() ** 2).to(place.device)
    return richardson_lucy, (0.05 + place.rand(c, n, n), point)


def radiance_map(stack: Tensor, exposure: Tensor) -> tuple[Tensor, Tensor]:
    """Debevec and Malik, 1997: hat weights, log radiances merged over exposures, then Reinhard's local tones."""
    z = stack.clamp(0, 1)
    weight = 1 - (2 * z - 1).abs() ** 12 + 1e-3
    response = torch.log(z**2.2 + 1e-3)
    log_radiance = (weight * (response - exposure.log()[:, None, None, None])).sum(0) / weight.sum(0)
    radiance = log_radiance.exp()
    luminance = 0.2126 * radiance[0] + 0.7152 * radiance[1] + 0.0722 * radiance[2]
    key = torch.exp((luminance + 1e-4).log().mean())
    scaled = 0.18 / key * luminance
    responses = []
    for scale in (1, 2, 4, 8):
        size = 2 * scale + 1
        centre = F.avg_pool2d(scaled[None, None], size, 1, scale, count_include_pad=False)
        around = F.avg_pool2d(scaled[None, None], 2 * size + 1, 1, size, count_include_pad=False)
        activity = (centre - around) / (2**8 * 0.18 / size**2 + centre)
        responses.append((centre, activity.abs()))
    chosen = responses[0][0]
    for centre, activity in responses[1:]:
        keep = torch.sigmoid((0.05 - activity) / 0.01)
        chosen = keep * centre + (1 - keep) * chosen
    tone = scaled * (1 + scaled / 4) / (1 + chosen[0, 0])
    return (radiance / (luminance + 1e-4) * tone).clamp(0, 1) ** (1 / 2.2), log_radiance


def high_dynamic_range(place: Place) -> Made:
    n = place.size(144, 1280)
    exposure = 2.0 ** torch.arange(-2, 3)
    scene = torch.exp(place.randn(3, n, n))
    return radiance_map, (
        (scene * exposure.to(place.device)[:, None, None, None] / 4).clamp(0, 1),
        exposure.to(place.device),
    )


class Malvar(nn.Module):
    """Malvar, He and Cutler, 2004: five-tap gradients correct bilinear colours of a Bayer mosaic; a white balance."""

    def __init__(self) -> None:
        super().__init__()
        green = [[0, 0, -1, 0, 0], [0, 0, 2, 0, 0], [-1, 2, 4, 2, -1], [0, 0, 2, 0, 0], [0, 0, -1, 0, 0]]
        row = [[0, 0, 0.5, 0, 0], [0, -1, 0, -1, 0], [-1, 4, 5, 4, -1], [0, -1, 0, -1, 0], [0, 0, 0.5, 0, 0]]
        cross = [[0, 0, -1.5, 0, 0], [0, 2, 0, 2, 0], [-1.5, 0, 6, 0, -1.5], [0, 2, 0, 2, 0], [0, 0, -1.5, 0, 0]]
        kernels = [torch.tensor(k, dtype=torch.get_default_dtype()) for k in (green, row, cross)]
        bank = torch.stack([kernels[0], kernels[1], kernels[1].T, kernels[2]])[:, None] / 8
        self.register_buffer("bank", bank)
        self.register_buffer("matrix", torch.tensor([[1.6, -0.4, -0.2], [-0.2, 1.5, -0.3], [0.0, -0.6, 1.6]]))

    def forward(self, raw: Tensor, gains: Tensor) -> Tensor:
        raw = (raw - 0.06).clamp(min=0) / 0.94
        green, in_row, in_column, cross = F.conv2d(
            F.pad(raw[:, None], (2, 2, 2, 2), mode="reflect"), self.get_buffer("bank")
        ).unbind(1)
        image = raw.new_empty(raw.size(0), 3, *raw.shape[1:])
        image[:, 1] = raw
        image[:, 1, ::2, ::2] = green[:, ::2, ::2]
        image[:, 1, 1::2, 1::2] = green[:, 1::2, 1::2]
        for channel, (y, x) in ((0, (0, 0)), (2, (1, 1))):
            image[:, channel, y::2, x::2] = raw[:, y::2, x::2]
            image[:, channel, y::2, 1 - x :: 2] = in_row[:, y::2, 1 - x :: 2]
            image[:, channel, 1 - y :: 2, x::2] = in_column[:, 1 - y :: 2, x::2]
            image[:, channel, 1 - y :: 2, 1 - x :: 2] = cross[:, 1 - y :: 2, 1 - x :: 2]
        balanced = image * gains[:, :, None, None]
        coloured = torch.einsum("ij,bjyx->biyx", self.get_buffer("matrix"), balanced.clamp(0, 1)).clamp(0, 1)
        return torch.where(coloured <= 0.0031308, 12.92 * coloured, 1.055 * (coloured + 1e-6) ** (1 / 2.4) - 0.055)


def demosaic(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(256, 1536)
    return Malvar().to(place.device), (place.rand(b, n, n), 1 + place.rand(b, 3))


def non_local_means(image: Tensor, reach: int = 3, patch: int = 2, strength: float = 0.15) -> tuple[Tensor, Tensor]:
    """Buades et al., 2005, by shifts: every offset's patch distances are a box filter of squared differences."""
    h, w = image.shape[-2:]
    padded = F.pad(image, (reach,) * 4, mode="reflect")
    total, mass = torch.zeros_like(image), torch.zeros_like(image[:, :1])
    strongest = torch.zeros_like(mass)
    for dy in range(2 * reach + 1):
        for dx in range(2 * reach + 1):
            if dy == reach and dx == reach:
                continue
            shifted = padded[:, :, dy : dy + h, dx : dx + w]
            d = F.avg_pool2d((image - shifted).square().mean(1, keepdim=True), 2 * patch + 1, 1, patch)
            weight = torch.exp(-d / strength**2)
            total += weight * shifted
            mass += weight
            strongest = torch.maximum(strongest, weight)
    return (total + strongest * image) / (mass + strongest), mass


def patches(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(80, 768)
    smooth = F.interpolate(place.rand(b, 3, n // 8, n // 8), size=(n, n), mode="bicubic", align_corners=False)
    return non_local_means, (smooth + 0.1 * place.randn(b, 3, n, n),)


def exposure_fusion(stack: Tensor, levels: int = 4) -> Tensor:
    """Mertens et al., 2007: contrast, saturation and exposedness as weights, blended on Laplacian pyramids."""
    kernel = stack.new_tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16

    def blur(x: Tensor) -> Tensor:
        c = x.size(1)
        x = F.conv2d(F.pad(x, (2, 2, 0, 0), mode="reflect"), kernel.view(1, 1, 1, 5).expand(c, -1, -1, -1), groups=c)
        return F.conv2d(F.pad(x, (0, 0, 2, 2), mode="reflect"), kernel.view(1, 1, 5, 1).expand(c, -1, -1, -1), groups=c)

    def up(x: Tensor) -> Tensor:
        return blur(F.interpolate(x, scale_factor=2, mode="nearest"))

    grey = stack.mean(1, keepdim=True)
    p = F.pad(grey, (1, 1, 1, 1), mode="reflect")
    contrast = (p[..., 2:, 1:-1] + p[..., :-2, 1:-1] + p[..., 1:-1, 2:] + p[..., 1:-1, :-2] - 4 * grey).abs()
    saturation = stack.std(1, keepdim=True)
    exposed = torch.exp(-12.5 * (stack - 0.5) ** 2).prod(1, keepdim=True)
    weight = contrast * saturation * exposed + 1e-4
    weight = weight / weight.sum(0, keepdim=True)
    bands = []
    for _ in range(levels):
        small = blur(stack)[:, :, ::2, ::2]
        bands.append((weight * (stack - up(small))).sum(0, keepdim=True))
        stack, weight = small, blur(weight)[:, :, ::2, ::2]
    image = (weight * stack).sum(0, keepdim=True)
    for band in reversed(bands):
        image = up(image) + band
    return image.clamp(0, 1)


def fusion(place: Place) -> Made:
    n = place.size(128, 1536)
    scene = place.rand(1, 3, n, n)
    gains = torch.tensor([0.4, 0.8, 1.2, 1.8]).to(place.device)
    return exposure_fusion, ((scene * gains[:, None, None, None]).clamp(0, 1),)


def carved_seams(image: Tensor, seams: int = 1) -> tuple[Tensor, Tensor]:
    """Avidan and Shamir, 2007: forward energies cumulated row by row, the cheapest seam followed up and cut out."""
    rows = image.size(-2)
    cost = torch.zeros_like(image[:, 0])
    for _ in range(seams):
        w = image.size(-1)
        p = F.pad(image, (1, 1), mode="replicate")
        across = (p[..., 2:] - p[..., :-2]).abs()
        total = across[:, 0]
        choices = []
        for y in range(1, rows):
            above = image[:, y - 1]
            ends = F.pad(above, (1, 1), mode="replicate")
            from_left, from_right = (image[:, y] - ends[:, :-2]).abs(), (image[:, y] - ends[:, 2:]).abs()
            q = F.pad(total, (1, 1), value=1e4)
            options = torch.stack([q[:, :-2] + from_left, q[:, 1:-1], q[:, 2:] + from_right], -1)
            best, step = options.min(-1)
            total = best + across[:, y]
            choices.append(step - 1)
        column = total.argmin(-1)
        cost = total.amin(-1)
        path = [column]
        for step in reversed(choices):
            column = column + step.gather(1, column[:, None])[:, 0]
            path.append(column)
        seam = torch.stack(path[::-1], 1)
        i = torch.arange(w - 1, device=image.device)
        image = image.gather(2, i + (i >= seam[..., None]).long())
    return image, cost


def carving(place: Place) -> Made:
    b, rows, columns = place.size(4, 64), 28, place.size(400, 8192)
    return carved_seams, (place.randint(4096, b, rows, columns) / 4096.0,)


def morphological_granules(image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Openings of growing discs, top hats, geodesic reconstruction by dilations under a mask, a pattern spectrum."""

    def dilate(x: Tensor, size: int) -> Tensor:
        wide = F.max_pool2d(x, (size, 1), 1, (size // 2, 0))
        cross = F.max_pool2d(x, (1, size), 1, (0, size // 2))
        return torch.maximum(wide, cross)

    def erode(x: Tensor, size: int) -> Tensor:
        return -dilate(-x, size)

    volumes = [image.sum(dim=(1, 2, 3))]
    for size in (3, 5, 7):
        opened = dilate(erode(image, size), size)
        volumes.append(opened.sum(dim=(1, 2, 3)))
    hat = image - opened
    marker = (image - 0.2).clamp(min=0)
    for _ in range(10):
        marker = torch.minimum(dilate(marker, 3), image)
    gradient = dilate(image, 3) - erode(image, 3)
    spectrum = -torch.stack(volumes, -1).diff(dim=-1) / volumes[0][:, None]
    return hat + (image - marker), gradient, spectrum


def morphology(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(96, 1024)
    return morphological_granules, (place.rand(b, 1, n, n),)


class BilateralGrid(nn.Module):
    """Gharbi et al., 2017: affine colours predicted in a coarse grid, sliced along a learnt guide, and applied."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.reduce = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 96, 3, 1, 1),
        )
        self.mix = nn.Conv2d(3, 3, 1)
        self.slopes = nn.Parameter(torch.rand(3, 8))
        self.register_buffer("shifts", torch.linspace(0, 0.9, 8))

    def forward(self, image: Tensor, target: Tensor) -> Tensor:
        b, _, h, w = image.shape
        small = F.interpolate(image, size=(64, 64), mode="bilinear", align_corners=False)
        grid = self.reduce(small).view(b, 12, 8, 16, 16)
        mixed = self.mix(image)
        curve = (
            self.slopes[:, :, None, None] * F.relu(mixed[:, :, None] - self.get_buffer("shifts")[:, None, None])
        ).sum(2)
        guide = torch.tanh(curve.mean(1))
        y = torch.linspace(-1, 1, h, device=image.device, dtype=image.dtype)
        x = torch.linspace(-1, 1, w, device=image.device, dtype=image.dtype)
        where = torch.stack([x.expand(b, h, w), y[:, None].expand(b, h, w), guide], -1)[:, None]
        sliced = F.grid_sample(grid, where, align_corners=False, padding_mode="border")[:, :, 0].view(b, 3, 4, h, w)
        out = (sliced[:, :, :3] * image[:, None]).sum(2) + sliced[:, :, 3]
        return F.smooth_l1_loss(out, target)


def retouching(place: Place) -> Made:
    b, n = place.size(1, 8), place.size(128, 768)
    return BilateralGrid().to(place.device), (place.rand(b, 3, n, n), place.rand(b, 3, n, n))


ROWS: tuple[Row, ...] = (
    Row("program/richardson_lucy", deblurring),
    Row("program/debevec_radiance_map", high_dynamic_range),
    Row("program/malvar_demosaic", demosaic),
    Row("program/non_local_means", patches),
    Row("program/exposure_fusion", fusion),
    Row("program/seam_carving", carving),
    Row("program/morphological_granules", morphology),
    Row("program/bilateral_grid_retouching", retouching, "training"),
)
