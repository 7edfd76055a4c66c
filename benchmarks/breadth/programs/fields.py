"""Fields and frames that are carried: video by its flow, smoke by its wind, lenses, echoes, waves by their scale."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class SoftmaxSplatting(nn.Module):
    """Niklaus and Liu, 2020: two frames thrown forward along flows, collisions weighed by brightness kept; blended."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.importance = nn.Parameter(torch.tensor(-2.0))
        self.first = nn.Conv2d(8, width, 3, padding=1)
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def splat(self, x: Tensor, flow: Tensor) -> Tensor:
        b, c, h, w = x.shape
        rows, columns = torch.meshgrid(
            torch.arange(h, device=x.device), torch.arange(w, device=x.device), indexing="ij"
        )
        px, py = columns + flow[:, 0], rows + flow[:, 1]
        left, top = px.floor(), py.floor()
        out = torch.zeros(b, c, h * w, device=x.device, dtype=x.dtype)
        for dx in (0, 1):
            for dy in (0, 1):
                cx, cy = left + dx, top + dy
                weight = (1 - (px - cx).abs()) * (1 - (py - cy).abs())
                inside = (cx >= 0) & (cx < w) & (cy >= 0) & (cy < h)
                index = (cy.clamp(0, h - 1) * w + cx.clamp(0, w - 1)).long().view(b, 1, -1).expand(-1, c, -1)
                out = out.scatter_add(2, index, (x * (weight * inside)[:, None]).flatten(2))
        return out.view(b, c, h, w)

    def forward(self, a: Tensor, b: Tensor, there: Tensor, back: Tensor, middle: Tensor) -> tuple[Tensor, Tensor]:
        frames = []
        for frame, other, flow in ((a, b, there), (b, a, back)):
            size = flow.new_tensor([frame.size(3) - 1, frame.size(2) - 1]).view(1, 2, 1, 1)
            base = F.affine_grid(
                torch.eye(2, 3, device=a.device).expand(len(a), 2, 3), list(a.shape), align_corners=True
            )
            seen = F.grid_sample(other, base + (2 * flow / size).permute(0, 2, 3, 1), align_corners=True)
            z = (self.importance * (frame - seen).abs().mean(1, keepdim=True)).clamp(-20, 20).exp()
            thrown = self.splat(torch.cat([frame * z, z], 1), 0.5 * flow)
            frames.append(torch.cat([thrown[:, :3] / (thrown[:, 3:] + 1e-3), thrown[:, 3:]], 1))
        both = torch.cat(frames, 1)
        guess = 0.5 * (both[:, :3] + both[:, 4:7]) + self.last(F.relu(self.first(both)))
        return ((guess - middle).square() + 1e-6).sqrt(), guess


def splatting(place: Place) -> Made:
    b, h, w = place.size(1, 4), place.size(40, 256), place.size(56, 448)
    pictures = [place.rand(b, 3, h, w) for _ in range(3)]
    flows = [(3 * place.randn(b, 2, h, w)).requires_grad_() for _ in range(2)]
    return SoftmaxSplatting(place.size(12, 32)).to(place.device), (*pictures[:2], *flows, pictures[2])


class SmokeControl(nn.Module):
    """A plume steered to a picture: semi-Lagrangian steps with MacCormack's correction, pressure by Fourier."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.velocity = nn.Parameter(0.5 * torch.randn(2, side, side))

    def carry(self, x: Tensor, velocity: Tensor, dt: float) -> Tensor:
        side = x.size(-1)
        line = torch.arange(side, device=x.device, dtype=x.dtype)
        py, px = torch.meshgrid(line, line, indexing="ij")
        px, py = px - dt * velocity[0], py - dt * velocity[1]
        left, top = px.floor(), py.floor()
        fx, fy = px - left, py - top
        x0, y0 = left.long() % side, top.long() % side
        x1, y1 = (x0 + 1) % side, (y0 + 1) % side
        upper = x[:, y0, x0] * (1 - fx) + x[:, y0, x1] * fx
        lower = x[:, y1, x0] * (1 - fx) + x[:, y1, x1] * fx
        return upper * (1 - fy) + lower * fy

    def forward(self, smoke: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        side = smoke.size(-1)
        k = torch.fft.fftfreq(side, device=smoke.device) * 2 * math.pi
        ky, kx = torch.meshgrid(k, k, indexing="ij")
        square = (kx * kx + ky * ky).clamp(min=1e-8)
        velocity = self.velocity
        for _ in range(5):
            velocity = self.carry(velocity, velocity, 0.5)
            velocity = torch.stack([velocity[0], velocity[1] - 0.1 * smoke.mean(0)])
            spectrum = torch.fft.fft2(velocity)
            along = (kx * spectrum[0] + ky * spectrum[1]) / square
            velocity = torch.fft.ifft2(spectrum - torch.stack([kx * along, ky * along])).real
            ahead = self.carry(smoke, velocity, 0.5)
            back = self.carry(ahead, velocity, -0.5)
            smoke = (ahead + 0.5 * (smoke - back)).clamp(0, 2)
        return (smoke - target).square().mean((1, 2)), velocity.square().sum(0)


def plume(place: Place) -> Made:
    side, kinds = place.size(48, 768), 3
    return SmokeControl(side).to(place.device), (place.rand(kinds, side, side), place.rand(kinds, side, side))


def fisheye_undistortion(pictures: Tensor, lens: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
    """Kannala and Brandt's lens: a straight view's rays to angles, the polynomial; its inverse by Newton, to check."""
    _, _, h, w = pictures.shape
    v, u = torch.meshgrid(torch.arange(h, device=lens.device), torch.arange(w, device=lens.device), indexing="ij")
    focal = 0.35 * w
    rays = torch.stack([(u - w / 2) / focal, (v - h / 2) / focal, torch.ones_like(u) / 1.0], -1)
    rays = torch.einsum("bij,hwj->bhwi", turn, rays.to(turn.dtype))
    x, y, z = rays.unbind(-1)
    radius = torch.hypot(x, y).clamp(min=1e-8)
    theta = torch.atan2(radius, z)
    k1, k2, k3, k4 = lens[:, :, None, None].unbind(1)
    square = theta * theta
    bent = theta * (1 + square * (k1 + square * (k2 + square * (k3 + square * k4))))
    px, py = 0.32 * w * bent * x / radius, 0.32 * w * bent * y / radius
    grid = torch.stack([2 * px / w, 2 * py / h], -1)
    straight = F.grid_sample(pictures, grid, mode="bicubic", align_corners=False)
    shade = 1 - 0.2 * (grid.square().sum(-1)).clamp(max=2)
    straight = (straight / shade[:, None]).clamp(0, 1)
    guess = bent
    for _ in range(6):
        s = guess * guess
        value = guess * (1 + s * (k1 + s * (k2 + s * (k3 + s * k4)))) - bent
        slope = 1 + s * (3 * k1 + s * (5 * k2 + s * (7 * k3 + s * 9 * k4)))
        guess = guess - (value / slope).clamp(-0.5, 0.5)
    return straight, guess.flatten(1).amax(1)


def lenses(place: Place) -> Made:
    b, h, w = place.size(1, 8), place.size(60, 720), place.size(80, 1280)
    angle = 0.2 * place.randn(b)
    c, s, o = angle.cos(), angle.sin(), torch.zeros_like(angle)
    turn = torch.stack([c, o, s, o, o + 1, o, -s, o, c], 1).view(b, 3, 3)
    scale = torch.tensor([0.05, 0.01, 0.003, 0.001], device=place.device)
    return fisheye_undistortion, (place.rand(b, 3, h, w), place.rand(b, 4) * scale, turn)


def range_doppler(cube: Tensor, taper: Tensor, steering: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A car's radar: clutter out, two windows and transforms, false alarms kept even by rings, angles of the best."""
    cube = cube - cube.mean(2, keepdim=True)
    fast = torch.fft.fft(cube * taper[: cube.size(3)], dim=3)[..., : cube.size(3) // 2]
    slow = torch.fft.fftshift(
        torch.fft.fft(fast * torch.hann_window(cube.size(2), device=cube.device)[:, None], dim=2), 2
    )
    power = slow.abs().square().sum(1)
    outer = F.avg_pool2d(F.pad(power[:, None], (6, 6, 6, 6), mode="circular"), 13, 1)[:, 0] * 169
    inner = F.avg_pool2d(F.pad(power[:, None], (2, 2, 2, 2), mode="circular"), 5, 1)[:, 0] * 25
    noise = (outer - inner).clamp(min=0) / 144
    peak = power == F.max_pool2d(power[:, None], 3, 1, 1)[:, 0]
    hits = (power > 1.8 * noise) & peak
    strength = torch.where(hits, power / noise.clamp(min=1e-6), 0).flatten(1)
    best, index = strength.topk(16, dim=1)
    snapshots = slow.flatten(2).gather(2, index[:, None].expand(-1, slow.size(1), -1))
    spectrum = torch.einsum("ac,bck->bak", steering.conj(), snapshots).abs()
    angle = spectrum.argmax(1)
    return best, torch.where(best > 0, angle, -1), noise.mean((1, 2))


def radar(place: Place) -> Made:
    b, antennas, chirps, samples = place.size(1, 8), 8, place.size(32, 128), place.size(64, 512)
    shape = b, antennas, chirps, samples
    cube = torch.complex(place.randn(*shape), place.randn(*shape))
    phase = math.pi * torch.sin(torch.linspace(-1.2, 1.2, 61))[:, None] * torch.arange(antennas)
    steering = torch.polar(torch.ones_like(phase), phase).to(place.device)
    return range_doppler, (cube, torch.blackman_window(samples, device=place.device), steering)


def morlet_scalogram(x: Tensor, scales: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Torrence and Compo, 1998: Morlet's wavelets in Fourier space, power against red noise, a cone, coherence."""
    n = x.size(1)
    x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
    omega = 2 * math.pi * torch.fft.fftfreq(n, device=x.device)
    daughter = torch.exp(-0.5 * (scales[:, None] * omega - 6) ** 2) * (omega > 0)
    daughter = daughter * math.pi**-0.25 * (2 * math.pi * scales[:, None]).sqrt()
    wave = torch.fft.ifft(torch.fft.fft(x)[:, None] * daughter)
    power = wave.abs().square()
    alpha = (x[:, 1:] * x[:, :-1]).mean(1, keepdim=True)
    period = 4 * math.pi * scales / (6 + math.sqrt(38))
    red = (1 - alpha**2) / (1 + alpha**2 - 2 * alpha * torch.cos(2 * math.pi / period))
    index = torch.arange(n, device=x.device)
    edge = torch.minimum(index, n - 1 - index) / math.sqrt(2)
    inside = scales[:, None] < edge
    surplus = F.relu(power / red[..., None] - 3) * inside
    cross = (wave * wave.roll(1, 0).conj()) / scales[:, None]
    own = power / scales[:, None]
    smooth = [
        F.avg_pool1d(t, 33, 1, 16, count_include_pad=False) for t in (cross.real, cross.imag, own, own.roll(1, 0))
    ]
    coherence = (smooth[0].square() + smooth[1].square()) / (smooth[2] * smooth[3] + 1e-12)
    total = (power * inside).sum(2) / inside.sum(1).clamp(min=1)
    return total, (coherence * inside).sum(2) / inside.sum(1).clamp(min=1), surplus.sum((1, 2))


def scalogram(place: Place) -> Made:
    b, n, count = place.size(2, 16), place.size(1200, 16_000), place.size(16, 48)
    scales = 2 * 2 ** (torch.arange(count, device=place.device) / 6)
    return morlet_scalogram, (F.avg_pool1d(place.randn(b, n + 8), 9, 1), scales)


ROWS: tuple[Row, ...] = (
    Row("program/softmax_splatting", splatting, "training"),
    Row("program/smoke_control", plume, "training"),
    Row("program/fisheye_undistortion", lenses),
    Row("program/range_doppler_detections", radar),
    Row("program/morlet_scalogram", scalogram),
)
