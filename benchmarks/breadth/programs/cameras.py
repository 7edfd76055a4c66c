"""What cameras see: assignment, duplicates, centres, birds' views, homographies, bundles, regions, tracks."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def overlaps(a: Tensor, b: Tensor) -> Tensor:
    """Intersections over unions of all pairs of corner boxes, (..., n, 4) and (..., m, 4)."""
    low = torch.maximum(a[..., :, None, :2], b[..., None, :, :2])
    high = torch.minimum(a[..., :, None, 2:], b[..., None, :, 2:])
    inter = (high - low).clamp(min=0).prod(-1)
    area_a, area_b = ((x[..., 2:] - x[..., :2]).prod(-1) for x in (a, b))
    return inter / (area_a[..., :, None] + area_b[..., None, :] - inter)


def dynamic_assignment(boxes: Tensor, truth: Tensor, scores: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Ge et al., 2021 (SimOTA): as many predictions for an object as its best overlaps sum up to, the cheapest ones."""
    iou = overlaps(truth, boxes)
    centre = (boxes[..., :2] + boxes[..., 2:]) / 2
    inside = ((centre[:, None] > truth[:, :, None, :2]) & (centre[:, None] < truth[:, :, None, 2:])).all(-1)
    p = scores.gather(2, label[:, None].expand(-1, scores.size(1), -1)).mT
    cost = F.softplus(-p) - 3 * torch.log(iou + 1e-3) + 1e3 * ~inside
    wanted = iou.topk(10, -1).values.sum(-1).floor().clamp(min=1).long()
    cheapest, index = cost.topk(10, -1, largest=False)
    limit = cheapest.gather(2, wanted.clamp(max=10)[..., None] - 1)
    chosen = torch.zeros_like(cost).scatter(2, index, (cheapest <= limit).to(cost.dtype))
    only = (cost == cost.amin(1, keepdim=True)).to(cost.dtype)
    chosen = torch.where(chosen.sum(1, keepdim=True) > 1, only * chosen.amax(1, keepdim=True), chosen)
    return (chosen * iou).amax(1), (chosen * cost).sum((1, 2)) / chosen.sum((1, 2))


def random_boxes(place: Place, *shape: int) -> Tensor:
    """Corner boxes on a grid that every type can tell apart."""
    corner, size = place.randint(900, *shape, 2), 40 + place.randint(160, *shape, 2)
    return torch.cat([corner, corner + size], -1).float()


def assignment(place: Place) -> Made:
    b, n, m, classes = place.size(2, 16), place.size(400, 8400), place.size(12, 40), place.size(10, 80)
    args = random_boxes(place, b, n), random_boxes(place, b, m), place.randn(b, n, classes)
    return dynamic_assignment, (*args, place.randint(classes, b, m))


def soft_suppression(boxes: Tensor, scores: Tensor, keep: int = 20, sigma: float = 0.5) -> tuple[Tensor, Tensor]:
    """Bodla et al., 2017: the best box is taken, the others' scores fade by their overlap with it, again and again."""
    iou = overlaps(boxes, boxes)
    batch = torch.arange(len(boxes), device=boxes.device)
    taken, confidence = [], []
    for _ in range(keep):
        best, index = scores.max(1)
        taken.append(boxes[batch, index])
        confidence.append(best)
        scores = scores * torch.exp(-iou[batch, index].square() / sigma)
        scores = scores.scatter(1, index[:, None], -1.0)
    return torch.stack(taken, 1), torch.stack(confidence, 1)


def suppression(place: Place) -> Made:
    b, n = place.size(8, 16), place.size(200, 2000)
    return soft_suppression, (random_boxes(place, b, n), place.rand(b, n))


def centre_points(
    heat: Tensor, sizes: Tensor, offsets: Tensor, centre: Tensor, size: Tensor, kind: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Zhou et al., 2019 (CenterNet): bells drawn for objects, a penalty-reduced focal loss, sizes read at centres."""
    h, w = heat.shape[-2:]
    at = centre.floor()
    x = torch.arange(w, device=heat.device, dtype=heat.dtype)
    y = torch.arange(h, device=heat.device, dtype=heat.dtype)
    spread = (size.prod(-1).sqrt() / 6 + 0.5)[..., None]
    gx = torch.exp(-((x - at[..., :1]) ** 2) / (2 * spread**2))
    gy = torch.exp(-((y - at[..., 1:]) ** 2) / (2 * spread**2))
    bells = gy[..., :, None] * gx[..., None, :]
    target = torch.zeros_like(heat).scatter_reduce(1, kind[:, :, None, None].expand(-1, -1, h, w), bells, "amax")
    p = heat.sigmoid().clamp(1e-4, 1 - 1e-4)
    hit = target == 1
    loss = torch.where(hit, -((1 - p) ** 2) * p.log(), -((1 - target) ** 4) * p**2 * (1 - p).log())
    index = (at[..., 1] * w + at[..., 0]).long()[:, None].expand(-1, 2, -1)
    own_size, own_offset = (t.flatten(2).gather(2, index).mT for t in (sizes, offsets))
    regression = 0.1 * (own_size - size).abs().mean() + (own_offset - (centre - at)).abs().mean()
    return loss.sum() / hit.sum().clamp(min=1), regression, target.mean((1, 2, 3))


def centres(place: Place) -> Made:
    b, classes, n, objects = place.size(2, 16), place.size(4, 40), place.size(32, 128), place.size(8, 32)
    return centre_points, (
        place.randn(b, classes, n, n).requires_grad_(),
        place.randn(b, 2, n, n).requires_grad_(),
        place.randn(b, 2, n, n).requires_grad_(),
        place.rand(b, objects, 2) * (n - 1),
        2 + 8 * place.rand(b, objects, 2),
        place.randint(classes, b, objects),
    )


class LiftSplat(nn.Module):
    """Philion and Fidler, 2020: pixels spread along their rays by a depth distribution, summed in cells from above."""

    def __init__(self, channels: int, depths: int, d: int, cells: int) -> None:
        super().__init__()
        self.depths, self.cells = depths, cells
        self.head = nn.Conv2d(channels, depths + d, 1)
        self.bev = nn.Sequential(
            nn.Conv2d(d, d, 3, padding=1, bias=False), nn.BatchNorm2d(d), nn.ReLU(), nn.Conv2d(d, 1, 1)
        )

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        b, cameras = x.shape[:2]
        depth, feature = self.head(x.flatten(0, 1)).unflatten(0, (b, cameras)).split([self.depths, 16], 2)
        frustum = depth.softmax(2)[:, :, :, None] * feature[:, :, None]
        points = frustum.permute(0, 1, 2, 4, 5, 3).reshape(-1, feature.size(2))
        grid = torch.zeros(b * self.cells**2 + 1, points.size(1), device=x.device, dtype=points.dtype)
        grid = grid.index_add(0, index.flatten(), points)[:-1]
        above = grid.view(b, self.cells, self.cells, -1).permute(0, 3, 1, 2)
        return self.bev(above).square()


def birds_view(place: Place) -> Made:
    b, cameras, channels, h, w = place.size(1, 4), place.size(2, 6), place.size(24, 128), place.size(6, 16), 22
    depths, cells = place.size(16, 48), place.size(32, 128)
    z = torch.arange(1, depths + 1).view(1, 1, -1, 1, 1) * cells / 2.2 / depths
    angle = torch.arange(cameras).view(1, -1, 1, 1, 1) * 2 * math.pi / cameras
    angle = angle + torch.linspace(-0.5, 0.5, w) + torch.zeros(b, 1, 1, h, 1)
    column, row = ((cells / 2 + z * f(angle)).floor().long() for f in (torch.cos, torch.sin))
    inside = (column >= 0) & (column < cells) & (row >= 0) & (row < cells)
    base = torch.arange(b).view(-1, 1, 1, 1, 1) * cells**2
    index = torch.where(inside, base + row * cells + column, b * cells**2).to(place.device)
    return LiftSplat(channels, depths, 16, cells).to(place.device), (place.randn(b, cameras, channels, h, w), index)


def four_point_homographies(a: Tensor, b: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    """Homographies from four matches each by linear systems; all matches' transfer errors, soft votes for the best."""
    p, q = a[samples], b[samples]
    x, y, u, v = p[..., 0], p[..., 1], q[..., 0], q[..., 1]
    one, zero = torch.ones_like(x), torch.zeros_like(x)
    first = torch.stack([x, y, one, zero, zero, zero, -u * x, -u * y], -1)
    second = torch.stack([zero, zero, zero, x, y, one, -v * x, -v * y], -1)
    system = torch.cat([first, second], 1)
    normal = system.mT @ system + 5e-2 * torch.eye(8, device=a.device, dtype=a.dtype)
    h = torch.linalg.solve(normal, system.mT @ torch.cat([u, v], 1)[..., None])[..., 0]
    matrix = F.pad(h, (0, 1), value=1.0).view(-1, 3, 3)
    moved = F.pad(a, (0, 1), value=1.0) @ matrix.mT
    depth = moved[..., 2:]
    error = (moved[..., :2] / torch.where(depth.abs() < 0.2, 0.2, depth) - b).square().sum(-1)
    votes = torch.exp(-error / 0.02).sum(-1)
    share = (votes / 4).softmax(0)
    return votes, torch.einsum("h,hij->ij", share, matrix)


def homographies(place: Place) -> Made:
    n, rounds = place.size(200, 2000), place.size(256, 8192)
    a = 2 * place.rand(n, 2) - 1
    turn = torch.tensor([[0.9, -0.3], [0.3, 0.9]]).to(place.device)
    return four_point_homographies, (a, a @ turn.T + 0.05 * place.randn(n, 2), place.randint(n, rounds, 4))


def bundle_adjustment(
    pose: Tensor, point: Tensor, camera: Tensor, landmark: Tensor, seen: Tensor, rounds: int = 3
) -> tuple[Tensor, Tensor, Tensor]:
    """Triggs et al., 2000: Gauss and Newton with Huber's weights, points taken out by Schur complements."""
    cameras, points = len(pose), len(point)
    costs = []
    for _ in range(rounds):
        local = point[landmark] + pose[camera, 3:]
        local = local + torch.linalg.cross(pose[camera, :3], local)
        x, y, z = local.unbind(-1)
        r = torch.stack([x / z, y / z], -1) - seen
        weight = (0.1 / r.norm(dim=-1).clamp(min=0.1))[:, None, None]
        zero = torch.zeros_like(z)
        d = torch.stack([torch.stack([1 / z, zero, -x / z**2], -1), torch.stack([zero, 1 / z, -y / z**2], -1)], -2)
        turn = torch.stack([torch.linalg.cross(e.expand_as(local), local) for e in torch.eye(3).to(local)], -1)
        jc, jp = torch.cat([d @ turn, d], -1), d
        costs.append((weight[:, 0, 0] * r.square().sum(-1)).mean())
        r = r[..., None]
        u = torch.zeros(cameras, 6, 6).to(pose).index_add(0, camera, weight * jc.mT @ jc)
        v = torch.zeros(points, 3, 3).to(pose).index_add(0, landmark, weight * jp.mT @ jp)
        gc = torch.zeros(cameras, 6, 1).to(pose).index_add(0, camera, -weight * jc.mT @ r)
        gp = torch.zeros(points, 3, 1).to(pose).index_add(0, landmark, -weight * jp.mT @ r)
        w = torch.zeros(points * cameras, 6, 3).to(pose)
        w = w.index_add(0, landmark * cameras + camera, weight * jc.mT @ jp).view(points, cameras * 6, 3)
        u, v = (t + 0.05 * torch.diag_embed(t.diagonal(dim1=1, dim2=2)) for t in (u, v))
        inverse = torch.linalg.inv(v)
        schur = torch.block_diag(*u) - torch.einsum("pab,pbc,pdc->ad", w, inverse, w)
        right = gc.flatten() - torch.einsum("pab,pbc,pcd->a", w, inverse, gp)
        step = torch.linalg.solve(schur, right)
        dp = inverse @ (gp - w.mT @ step[:, None])
        pose, point = pose + step.view(cameras, 6), point + dp[..., 0]
    return torch.stack(costs), pose, point


def bundles(place: Place) -> Made:
    cameras, points = place.size(4, 16), place.size(200, 20_000)
    camera = torch.arange(cameras).repeat(points).to(place.device)
    landmark = torch.arange(points).repeat_interleave(cameras).to(place.device)
    point = 2 * place.rand(points, 3) - 1 + torch.tensor([0.0, 0.0, 5.0]).to(place.device)
    pose = torch.cat([torch.zeros(cameras, 3).to(place.device), 0.6 * place.randn(cameras, 3)], 1)
    local = point[landmark] + pose[camera, 3:]
    seen = local[:, :2] / local[:, 2:] + 0.01 * place.randn(len(landmark), 2)
    return bundle_adjustment, (pose + 0.01 * place.randn(cameras, 6), point, camera, landmark, seen)


def aligned_regions(features: Tensor, boxes: Tensor, image: Tensor, out: int = 7, samples: int = 2) -> Tensor:
    """He et al., 2017 (RoIAlign) by gathers: bilinear samples of each region's cells, their means; pooled channels."""
    c, h, w = features.shape[1:]
    n = len(boxes)
    step = (torch.arange(out * samples, device=boxes.device).to(boxes.dtype) + 0.5) / (out * samples)
    x = (boxes[:, :1] + step * (boxes[:, 2:3] - boxes[:, :1]) - 0.5).clamp(0, w - 1)
    y = (boxes[:, 1:2] + step * (boxes[:, 3:] - boxes[:, 1:2]) - 0.5).clamp(0, h - 1)
    x0, y0 = x.floor(), y.floor()
    fx, fy = x - x0, y - y0
    flat = features.permute(0, 2, 3, 1).reshape(-1, c)
    total = torch.zeros(n, out * samples, out * samples, c, device=boxes.device, dtype=features.dtype)
    for dy, wy in ((0, 1 - fy), (1, fy)):
        for dx, wx in ((0, 1 - fx), (1, fx)):
            row, column = (y0 + dy).clamp(max=h - 1).long(), (x0 + dx).clamp(max=w - 1).long()
            index = (image[:, None, None] * h + row[:, :, None]) * w + column[:, None]
            total = total + flat[index] * (wy[:, :, None] * wx[:, None])[..., None]
    return total.unflatten(2, (out, samples)).unflatten(1, (out, samples)).mean((2, 4)).square()


def regions(place: Place) -> Made:
    b, c, side, n = place.size(2, 4), place.size(16, 64), place.size(40, 128), place.size(32, 256)
    corner = place.rand(n, 2) * side * 0.6
    boxes = torch.cat([corner, corner + side * (0.1 + 0.3 * place.rand(n, 2))], 1)
    return aligned_regions, (place.randn(b, c, side, side).requires_grad_(), boxes, place.randint(b, n))


def tracked_points(
    before: Tensor, after: Tensor, points: Tensor, levels: int = 3, rounds: int = 4
) -> tuple[Tensor, ...]:
    """Bouguet, 2001 (pyramids of Lucas and Kanade): windows sampled at every level, two-by-two systems, residuals."""

    def sample(image: Tensor, at: Tensor) -> Tensor:
        size = torch.tensor([image.size(-1), image.size(-2)]).to(at)
        grid = (2 * at + 1) / size - 1
        return F.grid_sample(image, grid, padding_mode="border", align_corners=False)[:, 0]

    i = torch.arange(-4, 5, device=points.device).to(points.dtype)
    window = torch.stack([i.expand(9, 9), i[:, None].expand(9, 9)], -1).flatten(0, 1)
    pyramid = [(before, after)]
    for _ in range(levels - 1):
        pyramid.append((F.avg_pool2d(pyramid[-1][0], 2), F.avg_pool2d(pyramid[-1][1], 2)))
    flow = torch.zeros_like(points)
    for level in range(levels - 1, -1, -1):
        a, b = pyramid[level]
        centre = (points + 0.5) / 2**level - 0.5
        at = centre[:, :, None] + window
        patch = sample(a, at)
        ex, ey = torch.eye(2).to(at)
        gx, gy = ((sample(a, at + e) - sample(a, at - e)) / 2 for e in (ex, ey))
        xx, xy, yy = (gx * gx).sum(-1) + 0.05, (gx * gy).sum(-1), (gy * gy).sum(-1) + 0.05
        det = xx * yy - xy**2
        for _ in range(rounds):
            t = patch - sample(b, at + flow[:, :, None])
            bx, by = (t * gx).sum(-1), (t * gy).sum(-1)
            flow = flow + torch.stack([yy * bx - xy * by, xx * by - xy * bx], -1) / det[..., None]
        residual = t.abs().mean(-1)
        flow = flow * 2 if level else flow
    return flow, residual


def tracks(place: Place) -> Made:
    b, n, m = place.size(1, 8), place.size(96, 512), place.size(100, 2000)
    image = F.avg_pool2d(place.rand(b, 1, n + 10, n + 10), 7, 1) * 4
    before, after = image[:, :, 2 : n + 2, 2 : n + 2], image[:, :, 3 : n + 3, 1 : n + 1]
    return tracked_points, (before, after + 0.05 * place.rand(b, 1, n, n), 10 + (n - 20) * place.rand(b, m, 2))


ROWS: tuple[Row, ...] = (
    Row("program/dynamic_box_assignment", assignment),
    Row("program/soft_suppression", suppression),
    Row("program/centre_point_bells", centres, "training"),
    Row("program/lift_splat_birds_view", birds_view, "training"),
    Row("program/four_point_homographies", homographies),
    Row("program/bundle_schur_complements", bundles),
    Row("program/aligned_regions", regions, "training"),
    Row("program/pyramid_tracks", tracks),
)
