"""Medical imaging: tomography, diffusion tensors, registration, volumes cut in patches and their losses."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def filtered_back_projection(sinogram: Tensor, angles: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Ram and Lak's filter under Hann's window by transform, then each view smeared back, interpolated."""
    batch, views, detectors = sinogram.shape
    padded = 2 ** math.ceil(math.log2(2 * detectors))
    frequency = torch.fft.rfftfreq(padded, device=sinogram.device, dtype=sinogram.dtype)
    ramp = 2 * frequency * (0.5 + 0.5 * torch.cos(2 * math.pi * frequency))
    filtered = torch.fft.irfft(torch.fft.rfft(sinogram, n=padded) * ramp, n=padded)[..., :detectors]
    axis = torch.arange(size, device=sinogram.device, dtype=sinogram.dtype) - (size - 1) / 2
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    image = sinogram.new_zeros(batch, size, size)
    for i in range(views):
        s = x * torch.cos(angles[i]) + y * torch.sin(angles[i]) + (detectors - 1) / 2
        s = s.clamp(0, detectors - 1.001)
        low = s.floor()
        part = s - low
        index = low.long().flatten()
        view = filtered[:, i]
        a, b = view[:, index].view_as(image), view[:, index + 1].view_as(image)
        image += (1 - part) * a + part * b
    image *= math.pi / (2 * views)
    circle = x**2 + y**2 <= (size / 2) ** 2
    image = torch.where(circle, image, 0.0)
    hounsfield = (1000 * (image - 0.02) / 0.02).clamp(-1024, 3071)
    return image, hounsfield.mean((1, 2))


def tomography(place: Place) -> Made:
    batch, views, size = place.size(1, 4), place.size(48, 72), place.size(96, 512)
    angles = torch.arange(views, device=place.device) * (math.pi / views) + 0.01
    return filtered_back_projection, (place.rand(batch, views, int(1.5 * size)), angles, size)


def tensor_maps(signal: Tensor, design: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Diffusion tensors by weighted least squares in each voxel; eigenvalues in closed form, anisotropy."""
    log_s = torch.log(signal.clamp(min=1e-4))
    weight = signal.square()
    normal = torch.einsum("vm,mi,mj->vij", weight, design, design)
    right = torch.einsum("vm,mi,vm->vi", weight, design, log_s)
    fit = torch.linalg.solve(normal, right)
    dxx, dyy, dzz, dxy, dxz, dyz = fit[:, 1:].unbind(-1)
    mean = (dxx + dyy + dzz) / 3
    off = dxy**2 + dxz**2 + dyz**2
    p2 = (dxx - mean) ** 2 + (dyy - mean) ** 2 + (dzz - mean) ** 2 + 2 * off
    p = torch.sqrt(p2 / 6).clamp(min=1e-8)
    bxx, byy, bzz = (dxx - mean) / p, (dyy - mean) / p, (dzz - mean) / p
    bxy, bxz, byz = dxy / p, dxz / p, dyz / p
    det = bxx * (byy * bzz - byz**2) - bxy * (bxy * bzz - byz * bxz) + bxz * (bxy * byz - byy * bxz)
    phi = torch.acos((det / 2).clamp(-0.9999, 0.9999)) / 3
    first = mean + 2 * p * torch.cos(phi)
    third = mean + 2 * p * torch.cos(phi + 2 * math.pi / 3)
    values = torch.stack([first, 3 * mean - first - third, third], dim=-1)
    spread = (values - mean[:, None]).square().sum(-1)
    anisotropy = torch.sqrt(1.5 * spread / values.square().sum(-1).clamp(min=1e-12))
    return values, anisotropy, mean


def diffusion_tensors(place: Place) -> Made:
    voxels, directions = place.size(4000, 262_144), 32
    g = F.normalize(place.randn(directions, 3), dim=-1)
    b = 1.0 + (torch.arange(directions, device=place.device) % 2)
    x, y, z = g.unbind(-1)
    one = torch.ones_like(x)
    design = torch.stack([one, *(-b * v for v in (x * x, y * y, z * z, 2 * x * y, 2 * x * z, 2 * y * z))], dim=-1)
    tensor = torch.cat([0.5 + place.rand(voxels, 3), 0.2 * place.randn(voxels, 3)], dim=1)
    signal = torch.exp(tensor @ design[:, 1:].T) * (1 + 0.02 * place.randn(voxels, directions))
    return tensor_maps, (signal, design)


def identity_grid(shape: tuple[int, int, int], like: Tensor) -> Tensor:
    """Voxel coordinates from -1 to 1, as grid_sample has them: (1, d, h, w, 3)."""
    axes = [torch.linspace(-1, 1, n, dtype=like.dtype, device=like.device) for n in shape]
    z, y, x = torch.meshgrid(*axes, indexing="ij")
    return torch.stack([x, y, z], dim=-1)[None]


def diffeomorphic(velocity: Tensor, moving: Tensor, fixed: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """A volume's registration: scaling and squaring, warping, mean squares, bending energy, folded voxels."""
    d, h, w = moving.shape[2:]
    grid = identity_grid((d, h, w), moving)
    flow = velocity / 2**5
    for _ in range(5):
        there = grid + flow.permute(0, 2, 3, 4, 1)
        flow = flow + F.grid_sample(flow, there, align_corners=True, padding_mode="border")
    warped = F.grid_sample(moving, grid + flow.permute(0, 2, 3, 4, 1), align_corners=True)
    propagated = F.grid_sample(labels, grid + flow.permute(0, 2, 3, 4, 1), mode="nearest", align_corners=True)
    dz = flow[:, :, 1:, :-1, :-1] - flow[:, :, :-1, :-1, :-1]
    dy = flow[:, :, :-1, 1:, :-1] - flow[:, :, :-1, :-1, :-1]
    dx = flow[:, :, :-1, :-1, 1:] - flow[:, :, :-1, :-1, :-1]
    smooth = (dx.square() + dy.square() + dz.square()).mean()
    scale = torch.stack([torch.tensor((n - 1) / 2.0, dtype=flow.dtype) for n in (w, h, d)]).to(flow.device)
    jacobian = torch.stack([dx, dy, dz], dim=-1).permute(0, 2, 3, 4, 1, 5) * scale[:, None]
    jacobian = jacobian + torch.eye(3, dtype=flow.dtype, device=flow.device)
    a, b, c = jacobian.unbind(-2)
    determinant = (a * torch.linalg.cross(b, c)).sum(-1)
    folding = F.relu(-determinant).mean()
    loss = F.mse_loss(warped, fixed) + 0.1 * smooth * d * d + 10 * folding
    overlap = (propagated.detach() * (fixed > 0)).mean()
    return loss, overlap


def registration(place: Place) -> Made:
    n = place.size(16, 96)
    volume = [F.avg_pool3d(place.randn(1, 1, n, n, n), 3, 1, 1) for _ in range(2)]
    velocity = 0.3 * F.avg_pool3d(place.randn(1, 3, n, n, n), 3, 1, 1)
    return diffeomorphic, (velocity.requires_grad_(), volume[0], volume[1], torch.ones_like(volume[0]))


def erode(x: Tensor) -> Tensor:
    """Soft erosion by three thin minima."""
    a = -F.max_pool3d(-x, (3, 1, 1), 1, (1, 0, 0))
    b = -F.max_pool3d(-x, (1, 3, 1), 1, (0, 1, 0))
    c = -F.max_pool3d(-x, (1, 1, 3), 1, (0, 0, 1))
    return torch.min(torch.min(a, b), c)


def skeleton(x: Tensor, iterations: int) -> Tensor:
    """Shit et al., 2021: what openings take away, collected while the mask is eroded."""
    opened = F.max_pool3d(erode(x), 3, 1, 1)
    result = F.relu(x - opened)
    for _ in range(iterations):
        x = erode(x)
        opened = F.max_pool3d(erode(x), 3, 1, 1)
        delta = F.relu(x - opened)
        result = result + F.relu(delta - result * delta)
    return result


def vessel_loss(logits: Tensor, target: Tensor, distance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Centre-line dice, focal Tversky and a boundary loss by a signed distance map, for thin structures in volumes."""
    p = torch.sigmoid(logits)
    skeleton_p, skeleton_t = skeleton(p, 3), skeleton(target, 3)
    precision = ((skeleton_p * target).sum((1, 2, 3, 4)) + 1) / (skeleton_p.sum((1, 2, 3, 4)) + 1)
    sensitivity = ((skeleton_t * p).sum((1, 2, 3, 4)) + 1) / (skeleton_t.sum((1, 2, 3, 4)) + 1)
    centre_line = 1 - 2 * (precision * sensitivity / (precision + sensitivity)).mean()
    tp = (p * target).sum((1, 2, 3, 4))
    fp, fn = (p * (1 - target)).sum((1, 2, 3, 4)), ((1 - p) * target).sum((1, 2, 3, 4))
    tversky = (1 - (tp + 1) / (tp + 0.3 * fp + 0.7 * fn + 1)) ** 0.75
    boundary = (p * distance).mean()
    return centre_line, tversky.mean(), boundary


def vessels(place: Place) -> Made:
    batch, n = place.size(1, 2), place.size(20, 96)
    smooth = F.avg_pool3d(place.randn(batch, 1, n, n, n), 5, 1, 2)
    return vessel_loss, (
        (4 * F.avg_pool3d(place.randn(batch, 1, n, n, n), 3, 1, 1)).requires_grad_(),
        (smooth > 0.05).float(),
        smooth.neg(),
    )


class SlidingWindow(nn.Module):
    """MONAI's inference: overlapping patches of a volume through a network, blended by a Gaussian of importance."""

    def __init__(self, channels: int, patch: int, classes: int = 4) -> None:
        super().__init__()
        self.patch = patch
        self.net = nn.Sequential(
            nn.Conv3d(1, channels, 3, padding=1),
            nn.InstanceNorm3d(channels, affine=True),
            nn.LeakyReLU(0.01),
            nn.Conv3d(channels, channels, 3, padding=2, dilation=2),
            nn.InstanceNorm3d(channels, affine=True),
            nn.LeakyReLU(0.01),
            nn.Conv3d(channels, classes, 1),
        )
        axis = torch.arange(patch) - (patch - 1) / 2
        g = torch.exp(-0.5 * (axis / (0.25 * patch)) ** 2)
        self.register_buffer("importance", g[:, None, None] * g[:, None] * g)

    def forward(self, volume: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        p, stride = self.patch, self.patch // 2
        volume = (volume - volume.mean()) / (volume.std() + 1e-5)
        windows = volume.unfold(2, p, stride).unfold(3, p, stride).unfold(4, p, stride)
        counts = windows.shape[2:5]
        probabilities = self.net(windows.reshape(-1, 1, p, p, p)).softmax(1) * self.importance
        classes = probabilities.size(1)
        blended = volume.new_zeros(classes, *volume.shape[2:])
        norm = volume.new_zeros(volume.shape[2:])
        k = 0
        for i in range(counts[0]):
            for j in range(counts[1]):
                for l in range(counts[2]):  # noqa: E741
                    z, y, x = i * stride, j * stride, l * stride
                    blended[:, z : z + p, y : y + p, x : x + p] += probabilities[k]
                    norm[z : z + p, y : y + p, x : x + p] += self.importance
                    k += 1
        blended = blended / norm
        best, label = blended.max(0)
        volumes = torch.nn.functional.one_hot(label, classes).sum((0, 1, 2))
        return label, best, volumes


def sliding_window(place: Place) -> Made:
    n, patch, channels = place.size(24, 96), place.size(12, 32), place.size(4, 16)
    return SlidingWindow(channels, patch).to(place.device), (place.rand(1, 1, n, n, n),)


ROWS: tuple[Row, ...] = (
    Row("program/filtered_back_projection", tomography),
    Row("program/diffusion_tensor_maps", diffusion_tensors),
    Row("program/diffeomorphic_registration", registration, "training"),
    Row("program/vessel_centre_line_loss", vessels, "training"),
    Row("program/sliding_window_volume", sliding_window),
)
