"""Surfaces and rays: constructive solids, rasters, cotangents, registration, patches, windings, occlusion, splats."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def solid_march(origin: Tensor, direction: Tensor, light: Tensor, steps: int = 20) -> tuple[Tensor, Tensor]:
    """Spheres, boxes and tori joined smoothly, marched by distance; normals by tetrahedra, soft shadows, occlusion."""

    def distance(p: Tensor) -> Tensor:
        x, y, z = p.unbind(-1)
        ball = (x**2 + (y - 0.2) ** 2 + z**2 + 1e-6).sqrt() - 0.8
        gap = torch.stack([(x - 0.9).abs() - 0.4, y.abs() - 0.3, z.abs() - 0.5], -1)
        box = (gap.clamp(min=0).square().sum(-1) + 1e-6).sqrt() + gap.amax(-1).clamp(max=0) - 0.05
        ring = (((x**2 + z**2 + 1e-6).sqrt() - 1.2) ** 2 + (y + 0.3) ** 2 + 1e-6).sqrt() - 0.2
        h = (0.5 + 0.5 * (box - ball) / 0.3).clamp(0, 1)
        joined = box + (ball - box) * h - 0.3 * h * (1 - h)
        return torch.minimum(torch.minimum(joined, ring), y + 0.9)

    t = torch.zeros_like(direction[..., 0])
    for _ in range(steps):
        t = (t + distance(origin + t[..., None] * direction)).clamp(max=12.0)
    p = origin + t[..., None] * direction
    corners = p.new_tensor([[1, -1, -1], [-1, -1, 1], [-1, 1, -1], [1, 1, 1]])
    normal = F.normalize(sum(((c * distance(p + 0.02 * c)[..., None]) for c in corners), torch.zeros_like(p)), dim=-1)
    shade, s = torch.ones_like(t), torch.full_like(t, 0.1)
    for _ in range(8):
        d = distance(p + s[..., None] * light)
        shade = torch.minimum(shade, 8 * d / s)
        s = s + d.clamp(0.05, 0.5)
    occlusion = sum((0.1 * k - distance(p + 0.1 * k * normal)) / 2**k for k in range(1, 5))
    colour = (normal @ light).clamp(min=0) * shade.clamp(0, 1) + 0.2 * (1 - occlusion).clamp(0, 1)
    return colour * torch.exp(-0.02 * t**2), t


def solids(place: Place) -> Made:
    n = place.size(48, 640)
    i = torch.linspace(-1, 1, n)
    pixel = torch.stack([i.expand(n, n), -i[:, None].expand(n, n), torch.full((n, n), 1.5)], -1)
    light = F.normalize(torch.tensor([0.5, 0.9, -0.4]), dim=0).to(place.device)
    origin = torch.tensor([0.0, 0.3, -3.5]).to(place.device)
    return solid_march, (origin, F.normalize(pixel, dim=-1).to(place.device), light)


def depth_raster(vertices: Tensor, faces: Tensor, colours: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Triangles in a small screen box each: edge functions, depths and colours by barycentrics, a buffer by minima."""
    corner = vertices[faces]
    low = corner[..., :2].amin(1).floor()
    i = torch.arange(8, device=vertices.device, dtype=vertices.dtype) + 0.5
    px, py = low[:, :1, None] + i, low[:, 1:, None] + i[:, None]
    (ax, ay, az), (bx, by, bz), (cx, cy, cz) = (corner[:, k].T[..., None, None] for k in range(3))
    area = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
    area = torch.where(area.abs() < 1e-2, 1e3, area)
    w0 = ((bx - px) * (cy - py) - (by - py) * (cx - px)) / area
    w1 = ((cx - px) * (ay - py) - (cy - py) * (ax - px)) / area
    w2 = 1 - w0 - w1
    inside = (w0 >= 0) & (w1 >= 0) & (w2 >= 0) & (px < size) & (py < size)
    depth = torch.where(inside, w0 * az + w1 * bz + w2 * cz, 1e3)
    pixel = (py.long() * size + px.long()).clamp(0, size * size - 1).flatten()
    buffer = torch.full((size * size,), 1e3, dtype=depth.dtype, device=depth.device)
    buffer = buffer.scatter_reduce(0, pixel, depth.flatten(), "amin")
    seen = inside.flatten() & (depth.flatten() <= buffer[pixel] + 1e-4)
    shade = torch.stack([w0, w1, w2], -1).flatten(1, 2) @ colours[faces]
    image = torch.zeros(size * size, 4, dtype=depth.dtype, device=depth.device)
    image.index_add_(0, pixel, F.pad(shade.flatten(0, 1), (0, 1), value=1.0) * seen[:, None])
    return image[:, :3] / image[:, 3:].clamp(min=1), buffer.clamp(max=10)


def raster(place: Place) -> Made:
    size, count = place.size(128, 1024), place.size(1500, 120_000)
    centre = torch.rand(count, 1, 3) * torch.tensor([size - 8.0, size - 8.0, 4.0])
    corner = centre + torch.rand(count, 3, 3) * torch.tensor([7.0, 7.0, 0.5])
    faces = torch.arange(3 * count).view(count, 3)
    return depth_raster, (corner.view(-1, 3).to(place.device), faces.to(place.device), place.rand(3 * count, 3), size)


def grid_mesh(n: int, place: Place) -> tuple[Tensor, Tensor]:
    """A bumpy square of n by n vertices and its faces."""
    i = torch.arange(n) / n
    xyz = torch.stack([i.expand(n, n), i[:, None].expand(n, n), 0.1 * torch.sin(9 * i) * torch.cos(7 * i[:, None])], -1)
    a = (torch.arange(n - 1)[:, None] * n + torch.arange(n - 1)).flatten()
    faces = torch.cat([torch.stack([a, a + 1, a + n], 1), torch.stack([a + 1, a + n + 1, a + n], 1)])
    return xyz.view(-1, 3).to(place.device) + 0.1 / n * place.randn(n * n, 3), faces.to(place.device)


def cotangent_energy(x: Tensor, faces: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
    """Pinkall and Polthier, 1993: cotangents, mean curvatures and Dirichlet's energy, elastic strains from the rest."""
    p = x[faces]
    laplacian, area = torch.zeros_like(x), torch.zeros_like(x[:, 0])
    for k in range(3):
        a, b, c = p[:, k], p[:, (k + 1) % 3], p[:, (k + 2) % 3]
        cross = (torch.linalg.cross(b - a, c - a).square().sum(-1) + 1e-12).sqrt()
        cotangent = ((b - a) * (c - a)).sum(-1) / cross
        pull = 0.5 * cotangent[:, None] * (c - b)
        laplacian = laplacian.index_add(0, faces[:, (k + 1) % 3], pull).index_add(0, faces[:, (k + 2) % 3], -pull)
        area = area.index_add(0, faces[:, k], cross / 6)
    edge, old = p[:, 1:] - p[:, :1], rest[faces][:, 1:] - rest[faces][:, :1]
    metric = torch.linalg.solve(old @ old.mT, edge @ edge.mT)
    strain = metric - torch.eye(2, dtype=x.dtype, device=x.device)
    elastic = (strain * strain.mT).sum(dim=(1, 2))
    return (laplacian.square().sum(1) / (area + 1e-6)).mean() + elastic.mean(), area.detach()


def curvatures(place: Place) -> Made:
    x, faces = grid_mesh(place.size(40, 500), place)
    return cotangent_energy, (x.requires_grad_(), faces, 1.02 * x.detach() + 0.0)


def point_to_plane(source: Tensor, target: Tensor, normals: Tensor, rounds: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Chen and Medioni, 1992, weighted by Geman and McClure: soft nearest points, Rodrigues' rotations."""
    batch = source.size(0)
    residual = source.new_zeros(batch, source.size(1))
    for _ in range(rounds):
        square = (source[:, :, None] - target[:, None]).square().sum(-1)
        share = torch.softmax(-square / 0.01, 2)
        point, normal = share @ target, F.normalize(share @ normals, dim=-1)
        residual = ((source - point) * normal).sum(-1)
        weight = (0.05 / (0.05 + residual**2)) ** 2
        jacobian = torch.cat([torch.linalg.cross(source, normal), normal], -1)
        gram = (jacobian * weight[..., None]).mT @ jacobian + 1e-2 * torch.eye(
            6, dtype=source.dtype, device=source.device
        )
        move = -torch.linalg.solve(gram, torch.einsum("bni,bn->bi", jacobian, weight * residual))
        w = move[:, :3]
        angle = (w.square().sum(1) + 1e-12).sqrt()[:, None, None]
        zero = torch.zeros_like(w[:, 0])
        k = torch.stack([zero, -w[:, 2], w[:, 1], w[:, 2], zero, -w[:, 0], -w[:, 1], w[:, 0], zero], 1).view(-1, 3, 3)
        turn = torch.eye(3, dtype=w.dtype, device=w.device) + torch.sin(angle) / angle * k
        turn = turn + (1 - torch.cos(angle)) / angle**2 * k @ k
        source = source @ turn.mT + move[:, None, 3:]
    return source, residual, turn


def plane_registration(place: Place) -> Made:
    b, n, m = place.size(2, 16), place.size(200, 2048), place.size(240, 2048)
    target = place.rand(b, m, 3)
    normals = F.normalize(place.randn(b, m, 3) + 1, dim=-1)
    return point_to_plane, (target[:, :n] + 0.03 * place.randn(b, n, 3) + 0.05, target, normals)


def winding_numbers(query: Tensor, corners: Tensor) -> tuple[Tensor, Tensor]:
    """Jacobson et al., 2013: solid angles of all triangles by Van Oosterom and Strackee, and distances to centroids."""
    a, b, c = (corners[:, k][None] - query[:, None] for k in range(3))
    la, lb, lc = (t.square().sum(-1).sqrt() for t in (a, b, c))
    top = (a * torch.linalg.cross(b, c)).sum(-1)
    bottom = la * lb * lc + (a * b).sum(-1) * lc + (b * c).sum(-1) * la + (c * a).sum(-1) * lb
    winding = torch.atan2(top, bottom).sum(1) / (2 * math.pi)
    return winding, ((a + b + c) / 3).square().sum(-1).amin(1).sqrt()


def windings(place: Place) -> Made:
    n, m = place.size(300, 8192), place.size(200, 2048)
    corners = F.normalize(place.randn(m, 1, 3), dim=-1) + 0.2 * place.randn(m, 3, 3)
    return winding_numbers, (0.7 * place.randn(n, 3), corners)


class PlaneSplats(nn.Module):
    """An image fitted by turned Gaussians that add up, each over the whole picture; colours, opacities and loss."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.centre, self.log_scale = nn.Parameter(torch.rand(count, 2)), nn.Parameter(torch.randn(count, 2) / 4 - 2)
        self.angle, self.colour = nn.Parameter(torch.randn(count)), nn.Parameter(torch.randn(count, 4))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        n = image.size(1)
        i = (torch.arange(n, device=image.device, dtype=image.dtype) + 0.5) / n
        dx = (i - self.centre[:, :1])[:, None]
        dy = (i - self.centre[:, 1:])[:, :, None]
        c, s = torch.cos(self.angle)[:, None, None], torch.sin(self.angle)[:, None, None]
        scale = torch.exp(-self.log_scale)[:, :, None, None]
        power = ((c * dx + s * dy) * scale[:, 0]) ** 2 + ((c * dy - s * dx) * scale[:, 1]) ** 2
        weight = torch.exp(-0.5 * power) * self.colour[:, 3].sigmoid()[:, None, None]
        out = torch.einsum("gyx,gc->cyx", weight, self.colour[:, :3].sigmoid()) / (1 + weight.sum(0))
        error = out - image
        return (error.square() + 1e-4).sqrt().mean() + 0.1 * error.diff(dim=1).abs().mean(), out.detach()


def splats(place: Place) -> Made:
    n, count = place.size(48, 256), place.size(100, 512)
    return PlaneSplats(count).to(place.device), (place.rand(3, n, n),)


ROWS: tuple[Row, ...] = (
    Row("program/solid_march_shadows", solids),
    Row("program/depth_buffer_raster", raster),
    Row("program/cotangent_elastic_energy", curvatures, "training"),
    Row("program/point_to_plane_registration", plane_registration),
    Row("program/winding_numbers", windings),
    Row("program/plane_splats", splats, "training"),
)
