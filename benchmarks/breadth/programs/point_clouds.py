"""Point clouds, voxels and volumes: sampling, grouping, pillars, fusion of depth, marching, alignment."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def farthest_points(xyz: Tensor, count: int) -> Tensor:
    """Indices of points that are far from each other, as PointNet++'s reference loop has it."""
    b, n, _ = xyz.shape
    chosen = torch.zeros(b, count, dtype=torch.long, device=xyz.device)
    distance = torch.full((b, n), 1e10, dtype=xyz.dtype, device=xyz.device)
    farthest = torch.zeros(b, dtype=torch.long, device=xyz.device)
    batch = torch.arange(b, device=xyz.device)
    for i in range(count):
        chosen[:, i] = farthest
        centroid = xyz[batch, farthest, :].view(b, 1, 3)
        d = torch.sum((xyz - centroid) ** 2, -1)
        mask = d < distance
        distance[mask] = d[mask]
        farthest = torch.max(distance, -1)[1]
    return chosen


def ball_query(radius: float, k: int, xyz: Tensor, centres: Tensor) -> Tensor:
    """The first k points within a radius of each centre; the first one again where there are fewer."""
    b, n, _ = xyz.shape
    s = centres.size(1)
    index = torch.arange(n, device=xyz.device).view(1, 1, n).repeat(b, s, 1)
    square = ((centres[:, :, None] - xyz[:, None]) ** 2).sum(-1)
    index[square > radius**2] = n
    index = index.sort(dim=-1)[0][:, :, :k]
    first = index[:, :, :1].repeat(1, 1, k)
    mask = index == n
    index[mask] = first[mask]
    return index


class SetAbstraction(nn.Module):
    """Qi et al., 2017: sample, group, a shared network with batch norm, a maximum; then a classifier."""

    def __init__(self, features: int, count: int, k: int) -> None:
        super().__init__()
        self.count, self.k = count, k
        sizes = [features + 3, 32, 64]
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 1, bias=False) for a, b in itertools.pairwise(sizes))
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for b in sizes[1:])
        self.head = nn.Linear(64, 10)

    def forward(self, xyz: Tensor, features: Tensor, label: Tensor) -> Tensor:
        batch = torch.arange(xyz.size(0), device=xyz.device)
        with torch.no_grad():
            chosen = farthest_points(xyz, self.count)
            centres = xyz[batch[:, None], chosen]
            group = ball_query(0.4, self.k, xyz, centres)
        local = xyz[batch[:, None, None], group] - centres[:, :, None]
        x = torch.cat([local, features[batch[:, None, None], group]], dim=-1).permute(0, 3, 2, 1)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x)))
        pooled = torch.max(x, 2)[0].mean(-1)
        return F.cross_entropy(self.head(pooled), label)


def set_abstraction(place: Place) -> Made:
    b, n, count, k = place.size(4, 32), place.size(256, 2048), place.size(32, 128), place.size(8, 32)
    model = SetAbstraction(6, count, k).to(place.device)
    return model, (place.rand(b, n, 3), place.randn(b, n, 6).requires_grad_(), place.randint(10, b))


class PointPillars(nn.Module):
    """Lang et al., 2019: points to pillars by their cell, decorated, a maximum by cell, a pseudo-image."""

    def __init__(self, side: int, d: int = 32) -> None:
        super().__init__()
        self.side = side
        self.linear, self.norm = nn.Linear(9, d, bias=False), nn.BatchNorm1d(d)
        self.backbone = nn.Sequential(
            nn.Conv2d(d, 2 * d, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(2 * d), nn.ReLU()
        )
        self.head = nn.Conv2d(2 * d, 7, 1)

    def forward(self, points: Tensor, scan: Tensor, scans: int) -> Tensor:
        cells = (points[:, :2] * self.side).long().clamp(0, self.side - 1)
        cell = (scan * self.side + cells[:, 1]) * self.side + cells[:, 0]
        total = scans * self.side * self.side
        count = torch.bincount(cell, minlength=total).clamp(min=1).to(points.dtype)
        mean = points.new_zeros(total, 3).index_add_(0, cell, points[:, :3]) / count[:, None]
        to_mean = points[:, :3] - mean[cell]
        to_centre = points[:, :2] - (cells + 0.5) / self.side
        x = F.relu(self.norm(self.linear(torch.cat([points, to_mean, to_centre], dim=-1))))
        pillars = x.new_zeros(total, x.size(1))
        pillars = pillars.scatter_reduce(0, cell[:, None].expand_as(x), x, "amax", include_self=True)
        image = pillars.view(scans, self.side, self.side, -1).permute(0, 3, 1, 2)
        return self.head(self.backbone(image)).square().mean()


def pillars(place: Place) -> Made:
    scans, n, side = place.size(2, 8), place.size(2000, 30_000), place.size(32, 216)
    points = (place.randint(1 << 16, scans * n, 4) + 0.5) / (1 << 16)
    scan = torch.arange(scans, device=place.device).repeat_interleave(n)
    return PointPillars(side).to(place.device), (points, scan, scans)


def fuse_depth(
    tsdf: Tensor, weight: Tensor, depth: Tensor, poses: Tensor, focal: float, truncation: float = 0.1
) -> tuple[Tensor, Tensor]:
    """KinectFusion's volume: each frame's depth projected into all voxels, averaged in place; a slice and its mean."""
    n = tsdf.size(0)
    frames, h, w = depth.shape
    axis = (torch.arange(n, device=tsdf.device, dtype=tsdf.dtype) + 0.5) / n - 0.5
    x, y, z = torch.meshgrid(axis, axis, axis, indexing="ij")
    world = torch.stack([x, y, z, torch.ones_like(x)], dim=-1).view(-1, 4)
    for frame in range(frames):
        camera = world @ poses[frame].T
        depth_of = camera[:, 2]
        u = (focal * camera[:, 0] / depth_of + w / 2).floor().long()
        v = (focal * camera[:, 1] / depth_of + h / 2).floor().long()
        visible = (u >= 0) & (u < w) & (v >= 0) & (v < h) & (depth_of > 0.1)
        measured = depth[frame, v.clamp(0, h - 1), u.clamp(0, w - 1)]
        signed = (measured - depth_of).view(n, n, n)
        use = visible.view(n, n, n) & (measured.view(n, n, n) > 0) & (signed > -truncation)
        value = (signed / truncation).clamp(max=1.0)
        new_weight = weight + use
        average = (tsdf * weight + value) / new_weight.clamp(min=1)
        tsdf.copy_(torch.where(use, average, tsdf))
        weight.copy_(new_weight.clamp(max=64))
    inside = (weight > 0) & (tsdf < 0)
    return tsdf[:, :, n // 2].clone(), inside.to(tsdf.dtype).mean()


def depth_fusion(place: Place) -> Made:
    n, frames, h, w = place.size(40, 160), place.size(3, 4), place.size(60, 480), place.size(80, 640)
    poses = torch.eye(4).repeat(frames, 1, 1)
    poses[:, 2, 3] = 1.5
    poses[:, :3, 3] += 0.05 * torch.randn(frames, 3)
    depth = 1.2 + 0.4 * place.rand(frames, h, w)
    depth = torch.where(place.rand(frames, h, w) < 0.1, 0.0, depth)
    zeros = torch.zeros(n, n, n, device=place.device)
    return fuse_depth, (zeros, zeros.clone(), depth, poses.to(place.device), 0.9 * w)


def volume_rendering(
    volume: Tensor, origin: Tensor, direction: Tensor, transfer: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """Direct volume rendering: trilinear samples on rays, a transfer function, gradients for shading, compositing."""
    t = torch.linspace(0.5, 3.5, steps, dtype=origin.dtype, device=origin.device)
    at = origin[:, None] + t[:, None] * direction[:, None]
    h = 2.0 / volume.size(-1)
    offset = torch.zeros(4, 3, dtype=origin.dtype, device=origin.device)
    offset[1, 0] = offset[2, 1] = offset[3, 2] = h
    grid = (at[None] + offset[:, None, None])[:, None]
    samples = F.grid_sample(volume.expand(4, -1, -1, -1, -1), grid, align_corners=False, padding_mode="zeros")
    value, dx, dy, dz = samples[:, 0, 0].unbind(0)
    normal = torch.stack([dx - value, dy - value, dz - value], dim=-1)
    normal = normal / (normal.norm(dim=-1, keepdim=True) + 1e-4)
    shade = 0.3 + 0.7 * (normal * -direction[:, None]).sum(-1).clamp(min=0)
    position = value.clamp(0, 1) * (transfer.size(0) - 1.001)
    low = position.floor().long()
    rgba = torch.lerp(transfer[low], transfer[low + 1], (position - low)[..., None])
    alpha = 1 - torch.exp(-rgba[..., 3] * 8 * (t[1] - t[0]))
    alpha = torch.where((at.abs() < 1).all(-1), alpha, 0.0)
    passed = torch.cumprod(1 - alpha, dim=1)
    passed = torch.cat([torch.ones_like(passed[:, :1]), passed[:, :-1]], dim=1)
    weight = passed * alpha
    colour = (weight[..., None] * shade[..., None] * rgba[..., :3]).sum(1)
    return colour, (weight * t).sum(1)


def direct_volume(place: Place) -> Made:
    n, rays, steps = place.size(24, 128), place.size(500, 40_000), place.size(32, 96)
    volume = F.avg_pool3d(place.rand(1, 1, n, n, n), 3, 1, 1)
    origin = torch.tensor([0.0, 0.0, -2.0], device=place.device).expand(rays, 3)
    forward = torch.tensor([0.0, 0.0, 1.0], device=place.device)
    direction = F.normalize(forward + 0.3 * place.randn(rays, 3), dim=-1)
    transfer = torch.cat([place.rand(32, 3), torch.linspace(0, 1, 32, device=place.device)[:, None]], dim=1)
    return volume_rendering, (volume, origin, direction, transfer, steps)


def marching_squares(field: Tensor, table: Tensor, level: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Contours of maps: a case by four bits, segments by table, ends interpolated on edges; counts and lengths."""
    a, b = field[:, :-1, :-1], field[:, :-1, 1:]
    c, d = field[:, 1:, 1:], field[:, 1:, :-1]
    case = (a > level).long() | ((b > level).long() << 1) | ((c > level).long() << 2) | ((d > level).long() << 3)

    def crossing(p: Tensor, q: Tensor) -> Tensor:
        gap = q - p
        t = (level - p) / torch.where(gap == 0, 1.0, gap)
        return t.clamp(0, 1)

    zero, one = torch.zeros_like(a), torch.ones_like(a)
    edges = torch.stack(
        [
            torch.stack([zero, crossing(a, b)], -1),
            torch.stack([crossing(b, c), one], -1),
            torch.stack([one, crossing(d, c)], -1),
            torch.stack([crossing(a, d), zero], -1),
        ],
        dim=-2,
    )
    segments = table[case]
    exists = segments[..., 0] >= 0
    picked = segments.clamp(min=0).flatten(-2)
    ends = edges.gather(-2, picked[..., None].expand(*picked.shape, 2)).unflatten(-2, (2, 2))
    length = (ends[..., 0, :] - ends[..., 1, :]).norm(dim=-1) * exists
    histogram = torch.stack([(case == k).sum((1, 2)) for k in range(16)], dim=-1)
    return length.sum((1, 2, 3)), exists.sum((1, 2, 3)), histogram


def contours(place: Place) -> Made:
    lines = [[], [(0, 3)], [(0, 1)], [(1, 3)], [(1, 2)], [(0, 1), (2, 3)], [(0, 2)], [(2, 3)]]
    lines += [[(2, 3)], [(0, 2)], [(0, 3), (1, 2)], [(1, 2)], [(1, 3)], [(0, 1)], [(0, 3)], []]
    table = torch.tensor([[*case, *[(-1, -1)] * (2 - len(case))] for case in lines])
    batch, n = place.size(2, 8), place.size(96, 768)
    return marching_squares, (place.randn(batch, n, n), table.to(place.device))


class PointTransformer(nn.Module):
    """Zhao et al., 2021: vector attention over nearest neighbours, with encoded differences of position."""

    def __init__(self, d: int, k: int = 12) -> None:
        super().__init__()
        self.k = k
        self.q, self.key, self.v = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.position = nn.Sequential(nn.Linear(3, d), nn.ReLU(), nn.Linear(d, d))
        self.gamma = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, d)

    def forward(self, xyz: Tensor, x: Tensor) -> Tensor:
        distance = (xyz[:, :, None] - xyz[:, None]).square().sum(-1)
        near = distance.topk(self.k, dim=-1, largest=False).indices

        def grouped(t: Tensor) -> Tensor:
            flat = near.flatten(1)[..., None].expand(-1, -1, t.size(-1))
            return t.gather(1, flat).unflatten(1, near.shape[1:])

        h = self.norm(x)
        delta = self.position(xyz[:, :, None] - grouped(xyz))
        attention = self.gamma(self.q(h)[:, :, None] - grouped(self.key(h)) + delta)
        attention = F.softmax(attention / attention.size(-1) ** 0.5, dim=-2)
        return x + self.out((attention * (grouped(self.v(h)) + delta)).sum(2))


def point_transformer(place: Place) -> Made:
    b, n, d = place.size(2, 8), place.size(128, 1024), place.size(32, 64)
    return PointTransformer(d).to(place.device), (place.rand(b, n, 3), place.randn(b, n, d).requires_grad_())


def kabsch(moving: Tensor, fixed: Tensor, confidence: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Umeyama's weighted alignment with scale, reweighted robustly three times; rotations, shifts, residuals."""
    weight = confidence
    rotation = torch.eye(3, dtype=moving.dtype, device=moving.device).expand(moving.size(0), 3, 3)
    shift, residual = moving.new_zeros(moving.size(0), 3), torch.zeros_like(confidence)
    for _ in range(3):
        w = weight / weight.sum(1, keepdim=True)
        centre_m = (w[..., None] * moving).sum(1, keepdim=True)
        centre_f = (w[..., None] * fixed).sum(1, keepdim=True)
        m, f = moving - centre_m, fixed - centre_f
        covariance = torch.einsum("bn,bni,bnj->bij", w, f, m)
        u, s, vh = torch.linalg.svd(covariance)
        sign = torch.det(u) * torch.det(vh)
        flip = torch.stack([torch.ones_like(sign), torch.ones_like(sign), sign], dim=-1)
        rotation = u @ (flip[..., None] * vh)
        scale = (s * flip).sum(-1) / (w * m.square().sum(-1)).sum(1)
        shift = centre_f.squeeze(1) - scale[:, None] * torch.einsum("bij,bj->bi", rotation, centre_m.squeeze(1))
        placed = scale[:, None, None] * torch.einsum("bij,bnj->bni", rotation, moving) + shift[:, None]
        residual = (placed - fixed).norm(dim=-1)
        weight = confidence / (1 + (residual / 0.2) ** 2)
    return rotation, shift, residual.square().mean(1).sqrt()


def alignment(place: Place) -> Made:
    b, n = place.size(64, 1024), place.size(128, 512)
    moving = place.randn(b, n, 3)
    turn = torch.linalg.qr(place.randn(b, 3, 3)).Q
    turn = turn * torch.linalg.det(turn)[:, None, None]
    fixed = 1.3 * moving @ turn.mT + place.randn(b, 1, 3) + 0.1 * place.randn(b, n, 3)
    return kabsch, (moving, fixed, 0.1 + place.rand(b, n))


ROWS: tuple[Row, ...] = (
    Row("program/set_abstraction", set_abstraction, "training"),
    Row("program/point_pillars", pillars, "training"),
    Row("program/depth_fusion", depth_fusion, writes=True),
    Row("program/volume_rendering", direct_volume),
    Row("program/marching_squares", contours),
    Row("program/point_transformer", point_transformer, "training"),
    Row("program/robust_kabsch", alignment),
)
