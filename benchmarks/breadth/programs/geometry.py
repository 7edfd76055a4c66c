"""Rotations, rays, meshes, clouds of points."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def quaternion_product(a: Tensor, b: Tensor) -> Tensor:
    aw, ax, ay, az = torch.unbind(a, -1)
    bw, bx, by, bz = torch.unbind(b, -1)
    w = aw * bw - ax * bx - ay * by - az * bz
    x = aw * bx + ax * bw + ay * bz - az * by
    y = aw * by - ax * bz + ay * bw + az * bx
    z = aw * bz + ax * by - ay * bx + az * bw
    return torch.stack((w, x, y, z), -1)


def kinematic_chain(rotations: Tensor, offsets: Tensor, target: Tensor) -> Tensor:
    """Forward kinematics along bones, quaternions normalised; the error of the joints' positions."""
    q = F.normalize(rotations, dim=-1)
    conjugate = q.new_tensor([1.0, -1.0, -1.0, -1.0])
    orientation, position = q[:, 0], torch.zeros_like(offsets[:, 0])
    error = torch.zeros_like(position[:, 0])
    for j in range(1, q.shape[1]):
        bone = F.pad(offsets[:, j], (1, 0))
        turned = quaternion_product(quaternion_product(orientation, bone), orientation * conjugate)
        position = position + turned[:, 1:]
        orientation = quaternion_product(orientation, q[:, j])
        error = error + (position - target[:, j]).square().sum(-1)
    return error


def forward_kinematics(place: Place) -> Made:
    n, joints = place.size(1024, 200_000), 8
    return kinematic_chain, (
        place.randn(n, joints, 4).requires_grad_(),
        place.randn(n, joints, 3),
        place.randn(n, joints, 3),
    )


def chamfer_distance(a: Tensor, b: Tensor) -> Tensor:
    """Of clouds in a batch, both ways, by the expanded square."""
    aa = (a * a).sum(-1)[:, :, None]
    bb = (b * b).sum(-1)[:, None, :]
    d = (aa + bb - 2 * torch.bmm(a, b.transpose(1, 2))).clamp(min=0)
    return d.min(2)[0].mean(1) + d.min(1)[0].mean(1)


def chamfer(place: Place) -> Made:
    n, points = place.size(4, 16), place.size(400, 4096)
    return chamfer_distance, (place.randn(n, points, 3).requires_grad_(), place.randn(n, points, 3))


def ray_spheres(origin: Tensor, direction: Tensor, centre: Tensor, radius: Tensor, color: Tensor) -> Tensor:
    """All rays with all spheres: soft silhouettes, Lambert and Phong, the nearer over the farther by their weights."""
    direction = F.normalize(direction, dim=1)
    oc = origin[:, None] - centre[None]
    b = (oc * direction[:, None]).sum(-1)
    c = (oc * oc).sum(-1) - radius**2
    disc = b * b - c
    t = -b - disc.clamp(min=1e-4).sqrt()
    coverage = torch.sigmoid(30 * disc / radius**2 - 3) * torch.sigmoid(20 * t)
    normal = F.normalize(origin[:, None] + direction[:, None] * t[..., None] - centre, dim=-1)
    light = F.normalize(origin.new_tensor([1.0, 2.0, -1.5]), dim=0)
    diffuse = (normal @ light).clamp(min=0)
    mirrored = direction[:, None] - 2 * (direction[:, None] * normal).sum(-1, keepdim=True) * normal
    gloss = (mirrored @ light).clamp(min=0) ** 16
    shade = color * (0.1 + 0.9 * diffuse[..., None]) + 0.3 * gloss[..., None]
    weight = coverage * torch.exp(-4 * (t - t.amin(1, keepdim=True)).clamp(max=10))
    return (weight[..., None] * shade).sum(1) / (weight.sum(1) + 0.01)[:, None]


def ray_tracing(place: Place) -> Made:
    rays, spheres = place.size(1500, 200_000), 32
    centre = place.randn(spheres, 3) + torch.tensor([0.0, 0.0, 6.0], device=place.device)
    origin = torch.zeros(rays, 3, device=place.device)
    direction = torch.cat([0.4 * place.randn(rays, 2), torch.ones(rays, 1, device=place.device)], 1)
    return ray_spheres, (origin, direction, centre, 0.2 + 0.3 * place.rand(spheres), place.rand(spheres, 3))


def soft_rasterise(vertices: Tensor, color: Tensor, side: int) -> Tensor:
    """Barycentric coordinates of all pixels in all triangles, soft coverage, colours blended by depth."""
    pixel = (torch.arange(side, device=vertices.device, dtype=vertices.dtype) + 0.5) / side * 2 - 1
    y, x = torch.meshgrid(pixel, pixel, indexing="ij")
    (ax, ay, az), (bx, by, bz), (cx, cy, cz) = (vertices[:, i].T[:, :, None, None] for i in range(3))
    area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
    area = torch.where(area.abs() < 1e-2, torch.full_like(area, 1e-2), area)
    w0 = ((bx - x) * (cy - y) - (cx - x) * (by - y)) / area
    w1 = ((cx - x) * (ay - y) - (ax - x) * (cy - y)) / area
    w2 = 1 - w0 - w1
    inside = torch.sigmoid(20 * torch.minimum(torch.minimum(w0, w1), w2).clamp(-1, 1))
    depth = (w0 * az + w1 * bz + w2 * cz).clamp(-3, 3)
    weight = torch.softmax(depth + torch.log(inside + 1e-6), dim=0) * inside
    return torch.einsum("fhw,fc->chw", weight, color)


def rasterisation(place: Place) -> Made:
    faces, side = place.size(24, 256), place.size(48, 384)
    return soft_rasterise, (place.randn(faces, 3, 3).requires_grad_(), place.rand(faces, 3).requires_grad_(), side)


class SphereTracer(nn.Module):
    """Marching along a signed distance: a rounded box and a torus, smoothly joined; normals by differences."""

    def __init__(self) -> None:
        super().__init__()
        self.extent, self.k = nn.Parameter(torch.tensor([0.8, 0.5, 0.6])), nn.Parameter(torch.tensor(0.3))

    def distance(self, p: Tensor) -> Tensor:
        q = p.abs() - self.extent
        box = torch.linalg.vector_norm(q.clamp(min=0) + 1e-9, dim=-1) + q.amax(-1).clamp(max=0) - 0.1
        ring = torch.hypot(torch.hypot(p[..., 0], p[..., 2]) - 1.2, p[..., 1]) - 0.25
        h = (0.5 + 0.5 * (ring - box) / self.k).clamp(0, 1)
        return torch.lerp(ring, box, h) - self.k * h * (1 - h)

    def forward(self, origin: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        t = torch.zeros_like(origin[:, 0])
        for _ in range(12):
            t = t + 0.9 * self.distance(origin + t[:, None] * direction).clamp(min=0)
            t = t.clamp(max=8)
        p = origin + t[:, None] * direction
        step = 1e-2 * torch.eye(3, dtype=p.dtype, device=p.device)
        slope = torch.stack([self.distance(p + e) - self.distance(p - e) for e in step], -1)
        return t, F.normalize(slope, dim=-1)


def sphere_tracing(place: Place) -> Made:
    n = place.size(4000, 1_000_000)
    origin = torch.tensor([0.0, 0.5, -4.0], device=place.device).expand(n, 3).contiguous()
    direction = torch.cat([0.3 * place.randn(n, 2), torch.ones(n, 1, device=place.device)], 1)
    return SphereTracer().to(place.device), (origin, F.normalize(direction, dim=1))


def icp_step(source: Tensor, target: Tensor, normals: Tensor) -> tuple[Tensor, Tensor]:
    """Point-to-plane alignment: nearest neighbours, Tukey's weights, the normal equations, Rodrigues' rotation."""
    distance, index = torch.cdist(source, target).min(dim=1)
    q, n = target[index], normals[index]
    weight = (1 - (distance / 2).clamp(max=1) ** 2) ** 2
    jacobian = torch.cat([torch.linalg.cross(source, n), n], dim=1)
    residual = ((q - source) * n).sum(1)
    a = torch.einsum("ni,n,nj->ij", jacobian, weight, jacobian) + 1e-3 * torch.eye(6, dtype=q.dtype, device=q.device)
    solution = torch.linalg.solve(a, torch.einsum("ni,n->i", jacobian, weight * residual))
    omega, shift = solution[:3], solution[3:]
    angle = omega.norm().clamp(min=1e-9)
    x, y, z = (omega / angle).unbind()
    zero = torch.zeros_like(x)
    k = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero]).view(3, 3)
    rotation = torch.eye(3, dtype=q.dtype, device=q.device) + angle.sin() * k + (1 - angle.cos()) * (k @ k)
    return source @ rotation.T + shift, residual.abs().mean()


def point_alignment(place: Place) -> Made:
    n = place.size(800, 16_000)
    return icp_step, (place.randn(n, 3), place.randn(n, 3), F.normalize(place.randn(n, 3), dim=1))


ROWS: tuple[Row, ...] = (
    Row("program/forward_kinematics", forward_kinematics, "training"),
    Row("program/chamfer_distance", chamfer, "training"),
    Row("program/ray_spheres", ray_tracing),
    Row("program/soft_rasteriser", rasterisation, "training"),
    Row("program/sphere_tracing", sphere_tracing),
    Row("program/icp_step", point_alignment),
)
