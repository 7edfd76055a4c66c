"""What is read out of maps, scans and sentences: limbs, turned boxes, labels, charts, words, planes, stabilisers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def limb_scores(
    heatmaps: Tensor, fields: Tensor, limbs: Tensor, k: int, samples: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """OpenPose (Cao et al., 2017): peaks of heatmaps, fields integrated along candidate limbs, pairs taken greedily."""
    b, _parts, h, w = heatmaps.shape
    peak = F.max_pool2d(heatmaps, 3, stride=1, padding=1) == heatmaps
    score, index = torch.where(peak & (heatmaps > 0.1), heatmaps, 0.0).flatten(2).topk(k, dim=2)
    joints = torch.stack([index % w, torch.div(index, w, rounding_mode="floor")], dim=-1)
    a, c = joints[:, limbs[:, 0]], joints[:, limbs[:, 1]]
    vector = (c[:, :, None] - a[:, :, :, None]).to(fields.dtype)
    length = vector.norm(dim=-1).clamp(min=1e-4)
    unit = vector / length[..., None]
    t = torch.linspace(0, 1, samples, device=fields.device, dtype=fields.dtype)
    at = (a[:, :, :, None, None] + t[:, None] * vector[..., None, :]).round().long()
    flat = at[..., 1].clamp(0, h - 1) * w + at[..., 0].clamp(0, w - 1)
    field = fields.view(b, len(limbs), 2, h * w)
    taken = [field[:, :, i].gather(2, flat.flatten(2)).view_as(flat) for i in range(2)]
    along = taken[0] * unit[..., None, 0] + taken[1] * unit[..., None, 1]
    enough = (along > 0.05).to(along.dtype).mean(-1) > 0.3
    real = (score[:, limbs[:, 0], :, None] > 0) & (score[:, limbs[:, 1], None, :] > 0)
    prior = (0.5 * h / length - 1).clamp(max=0)
    total = torch.where(enough & real & (length > 1), along.mean(-1) + prior, -1.0)
    left = total.clone()
    assigned = torch.full((b, len(limbs), k), -1, dtype=torch.int64, device=fields.device)
    for _ in range(k):
        best, which = left.flatten(2).max(dim=2)
        i, j = which // k, which % k
        ok = best > 0
        old = assigned.gather(2, i[..., None])
        assigned.scatter_(2, i[..., None], torch.where(ok[..., None], j[..., None], old))
        left.scatter_(2, i[..., None, None].expand(-1, -1, 1, k), -1.0)
        left.scatter_(3, j[..., None, None].expand(-1, -1, k, 1), -1.0)
    return total, assigned, joints, (assigned >= 0).sum(-1)


def poses(place: Place) -> Made:
    b, n, k = place.size(1, 16), place.size(24, 96), place.size(4, 16)
    limbs = torch.tensor([[1, 2], [2, 3], [3, 4], [1, 5], [5, 6], [6, 7], [1, 8], [8, 9], [9, 10], [1, 11], [11, 12]])
    heat = F.avg_pool2d(place.rand(b, 14, n + 4, n + 4), 5, stride=1)
    heat = (heat - heat.amin((2, 3), keepdim=True)) / (
        heat.amax((2, 3), keepdim=True) - heat.amin((2, 3), keepdim=True)
    )
    fields = 2 * F.avg_pool2d(place.randn(b, 2 * len(limbs), n + 4, n + 4), 5, stride=1)
    return limb_scores, (heat, fields, limbs.to(place.device), k, 10)


def rotated_overlaps(boxes: Tensor, scores: Tensor, threshold: float, rounds: int) -> tuple[Tensor, Tensor]:
    """Overlap of turned boxes: crossings of edges and corners inside, sorted by angle, shoelaces; then suppression."""
    order = scores.argsort(descending=True)
    boxes = boxes[order]
    x, y, w, h, angle = boxes.unbind(-1)
    c, s = torch.cos(angle), torch.sin(angle)
    dx = 0.5 * torch.stack([w, -w, -w, w], dim=-1)
    dy = 0.5 * torch.stack([h, h, -h, -h], dim=-1)
    corners = torch.stack(
        [x[:, None] + c[:, None] * dx - s[:, None] * dy, y[:, None] + s[:, None] * dx + c[:, None] * dy], -1
    )
    n = len(boxes)
    p = corners[:, None, :, None].expand(n, n, 4, 4, 2)
    r = (corners.roll(-1, 1) - corners)[:, None, :, None]
    q = corners[None, :, None, :]
    e = (corners.roll(-1, 1) - corners)[None, :, None, :]
    cross = r[..., 0] * e[..., 1] - r[..., 1] * e[..., 0]
    apart = q - p
    safe = torch.where(cross.abs() < 1e-9, 1.0, cross)
    t = (apart[..., 0] * e[..., 1] - apart[..., 1] * e[..., 0]) / safe
    u = (apart[..., 0] * r[..., 1] - apart[..., 1] * r[..., 0]) / safe
    hit = (t >= 0) & (t <= 1) & (u >= 0) & (u <= 1) & (cross.abs() >= 1e-9)
    crossings = (p + t[..., None] * r).flatten(2, 3)

    def within(points: Tensor, box: int) -> Tensor:
        shape = [1, 1, 1]
        shape[box] = n
        px, py = points[..., 0] - x.view(shape), points[..., 1] - y.view(shape)
        cb, sb = c.view(shape), s.view(shape)
        along, across = px * cb + py * sb, py * cb - px * sb
        return (along.abs() <= w.view(shape) / 2) & (across.abs() <= h.view(shape) / 2)

    mine, theirs = corners[:, None].expand(n, n, 4, 2), corners[None].expand(n, n, 4, 2)
    points = torch.cat([crossings, mine, theirs], dim=2)
    mask = torch.cat([hit.flatten(2), within(mine, 1), within(theirs, 0)], dim=2)
    count = mask.sum(-1)
    centre = (points * mask[..., None]).sum(2) / count.clamp(min=1)[..., None]
    relative = (points - centre[:, :, None]) * mask[..., None]
    theta = torch.atan2(relative[..., 1], relative[..., 0]).masked_fill(~mask, 1e4)
    turn = theta.argsort(dim=-1)
    ordered = relative.gather(2, turn[..., None].expand_as(relative))
    present = mask.gather(2, turn)
    ordered = torch.where(present[..., None], ordered, ordered[:, :, :1])
    following = ordered.roll(-1, 2)
    area = 0.5 * (ordered[..., 0] * following[..., 1] - ordered[..., 1] * following[..., 0]).sum(-1).abs()
    area = torch.where(count > 2, area, 0.0)
    size = w * h
    iou = area / (size[:, None] + size - area)
    iou = iou.masked_fill(torch.eye(n, dtype=torch.bool, device=iou.device), 0.0)
    over = (iou > threshold).triu(1)
    keep = torch.ones(n, dtype=torch.bool, device=iou.device)
    for _ in range(rounds):
        keep = ~(over & keep[:, None]).any(0)
    return iou, keep


def turned_boxes(place: Place) -> Made:
    n = place.size(24, 500)
    side = 12 * math.sqrt(n)
    sizes = place.rand(n, 2) * torch.tensor([40.0, 15.0], device=place.device) + 5
    boxes = torch.cat([side * place.rand(n, 2), sizes, math.pi * (place.rand(n, 1) - 0.5)], dim=1)
    return rotated_overlaps, (boxes, place.rand(n), 0.3, 6)


def range_labels(
    points: Tensor, logits: Tensor, weights: Tensor, width: int, height: int, cutoff: float, k: int
) -> tuple[Tensor, Tensor]:
    """RangeNet++ (Milioto et al., 2019): a scan as a picture of ranges, and its labels voted on by near neighbours."""
    depth = points.norm(dim=1)
    yaw, pitch = -torch.atan2(points[:, 1], points[:, 0]), torch.asin(points[:, 2] / depth)
    up, down = math.radians(3.0), math.radians(-25.0)
    px = (0.5 * (yaw / math.pi + 1.0) * width).floor().clamp(0, width - 1).long()
    py = ((1.0 - (pitch - down) / (up - down)) * height).floor().clamp(0, height - 1).long()
    order = depth.argsort(descending=True)
    image = torch.full((height * width,), -1.0, dtype=depth.dtype, device=depth.device)
    nearest = torch.full((height * width,), float("inf"), dtype=depth.dtype, device=depth.device)
    nearest.scatter_reduce_(0, py[order] * width + px[order], depth[order], "amin")
    image = torch.where(nearest.isinf(), image, nearest).view(height, width)
    classes = logits.size(0)
    argmax = logits.argmax(0)
    patches = F.unfold(image[None, None], 5, padding=2)[0]
    index = py * width + px
    around = patches[:, index].clone()
    around[around < 0] = float("inf")
    around[12] = depth
    distance = (around - depth).abs() * (1 - weights.flatten())[:, None]
    chosen = distance.topk(k, dim=0, largest=False, sorted=False).indices
    labels = F.unfold(argmax[None, None].to(image.dtype), 5, padding=2)[0][:, index].gather(0, chosen).long()
    labels = torch.where(distance.gather(0, chosen) > cutoff, classes, labels)
    votes = torch.zeros(len(points), classes + 1, dtype=torch.int32, device=points.device)
    votes.scatter_add_(1, labels.T, torch.ones_like(labels.T, dtype=torch.int32))
    return image, votes[:, 1:-1].argmax(dim=1) + 1


def range_pictures(place: Place) -> Made:
    n, w, h, classes = place.size(800, 120_000), place.size(64, 2048), place.size(8, 64), place.size(5, 20)
    column, row = torch.randint(w, (n,)) + 0.2 + 0.6 * torch.rand(n), torch.randint(h, (n,)) + 0.2 + 0.6 * torch.rand(n)
    yaw, pitch = math.pi * (1 - 2 * column / w), torch.deg2rad(3 - 28 * row / h)
    depth = 2 + 60 * torch.rand(n) ** 2
    points = depth[:, None] * torch.stack(
        [torch.cos(yaw) * torch.cos(pitch), torch.sin(yaw) * torch.cos(pitch), torch.sin(pitch)], -1
    )
    bell = torch.exp(-0.5 * (torch.arange(5) - 2.0) ** 2)
    weights = bell[:, None] * bell / bell.sum() ** 2
    return range_labels, (points.to(place.device), place.randn(classes, h, w), weights.to(place.device), w, h, 1.0, 5)


class InsideChart(nn.Module):
    """A neural grammar (Kim et al., 2019): scores of rules, the inside algorithm by widths, sentences of one length."""

    def __init__(self, states: int, terminals: int, vocabulary: int, width: int) -> None:
        super().__init__()
        self.nt, self.t = states, terminals
        self.t_emb, self.nt_emb = nn.Parameter(torch.randn(terminals, width)), nn.Parameter(torch.randn(states, width))
        self.root_emb = nn.Parameter(torch.randn(1, width))
        self.rule_mlp = nn.Linear(width, (states + terminals) ** 2)
        self.root_mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, states))
        self.vocab_mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, vocabulary))

    def forward(self, words: Tensor) -> Tensor:
        b, n = words.shape
        unary = F.log_softmax(self.vocab_mlp(self.t_emb), dim=1).T[words]
        root = F.log_softmax(self.root_mlp(self.root_emb), dim=1)
        s = self.nt + self.t
        rules = F.log_softmax(self.rule_mlp(self.nt_emb), dim=1).view(self.nt, s, s)
        leaf = unary.new_full((b, n, self.nt), -1e4)
        chart = {1: torch.cat([leaf, unary], dim=-1)}
        for width in range(2, n + 1):
            m = n - width + 1
            terms = []
            for k in range(1, width):
                left, right = chart[k][:, :m], chart[width - k][:, k : k + m]
                terms.append(left[..., :, None] + right[..., None, :])
            splits = torch.logsumexp(torch.stack(terms), dim=0)
            top = splits.flatten(2).max(-1).values[..., None, None]
            inner = torch.einsum("bmij,aij->bma", torch.exp(splits - top), rules.exp())
            states = torch.log(inner + 1e-20) + top[..., 0]
            chart[width] = torch.cat([states, states.new_full((b, m, self.t), -1e4)], dim=-1)
        return -torch.logsumexp(chart[n][:, 0, : self.nt] + root, dim=-1).mean()


def inside(place: Place) -> Made:
    b, n, states, terminals = place.size(2, 16), place.size(5, 9), place.size(4, 20), place.size(6, 40)
    model = InsideChart(states, terminals, place.size(50, 2000), place.size(16, 128)).to(place.device)
    return model, (place.randint(place.size(50, 2000), b, n),)


class SubwordSkipGrams(nn.Module):
    """fastText (Bojanowski et al., 2017): words as bags of hashed n-grams, contexts in windows, drawn negatives."""

    def __init__(self, buckets: int, vocabulary: int, width: int) -> None:
        super().__init__()
        self.buckets = buckets
        self.grams = nn.EmbeddingBag(buckets, width, mode="mean")
        self.context = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.context.weight, std=0.1)

    def hashes(self, letters: Tensor) -> Tensor:
        bags = []
        for n in (3, 4, 5):
            h = torch.full_like(letters[:, n - 1 :], 2166136261)
            for i in range(n):
                h = ((h ^ letters[:, i : letters.size(1) - n + 1 + i]) * 16777619) & 0xFFFFFFFF
            bags.append(h % self.buckets)
        return torch.cat(bags, dim=1)

    def forward(self, letters: Tensor, corpus: Tensor, spans: Tensor, negatives: Tensor, keep: Tensor) -> Tensor:
        vectors = self.grams(self.hashes(letters))
        centre = vectors[corpus]
        n = len(corpus)
        total, count = centre.new_zeros(()), centre.new_zeros(())
        for offset in (-3, -2, -1, 1, 2, 3):
            low, high = max(0, -offset), min(n, n - offset)
            here, there = slice(low, high), slice(low + offset, high + offset)
            active = (spans[here] >= abs(offset)) & keep[here] & keep[there]
            positive = (centre[here] * self.context(corpus[there])).sum(-1)
            total = total - (F.logsigmoid(positive) * active).sum()
            count = count + active.sum()
        noise = torch.bmm(self.context(negatives), centre.unsqueeze(2)).squeeze(2)
        return total / count - (F.logsigmoid(-noise).sum(1) * keep).sum() / keep.sum()


def skip_grams(place: Place) -> Made:
    vocabulary, n, buckets = place.size(60, 10_000), place.size(200, 16_384), place.size(500, 200_000)
    corpus = (place.rand(n) ** 3 * vocabulary).long()
    model = SubwordSkipGrams(buckets, vocabulary, place.size(8, 100)).to(place.device)
    return model, (
        place.randint(26, vocabulary, 10),
        corpus,
        1 + place.randint(3, n),
        place.randint(vocabulary, n, 5),
        place.rand(n) < 0.8,
    )


class FactoredRadiance(nn.Module):
    """TensoRF (Chen et al., 2022): planes and lines of features along rays, alphas, colours by direction."""

    def __init__(self, size: int, density: int, appearance: int) -> None:
        super().__init__()

        def factors(n: int, *shape: int) -> nn.ParameterList:
            return nn.ParameterList(nn.Parameter(0.3 * torch.randn(1, n, *shape)) for _ in range(3))

        self.density_planes, self.density_lines = factors(density, size, size), factors(density, size, 1)
        self.app_planes, self.app_lines = factors(appearance, size, size), factors(appearance, size, 1)
        self.basis = nn.Linear(3 * appearance, 27, bias=False)
        self.mlp = nn.Sequential(nn.Linear(27 + 15 + 54, 64), nn.ReLU(), nn.Linear(64, 3))
        self.mat_mode, self.vec_mode = ((0, 1), (0, 2), (1, 2)), (2, 1, 0)

    def sampled(self, xyz: Tensor, planes: nn.ParameterList, lines: nn.ParameterList) -> list[Tensor]:
        out = []
        for i, (mode, axis) in enumerate(zip(self.mat_mode, self.vec_mode, strict=True)):
            on_plane = xyz[..., list(mode)].view(1, -1, 1, 2)
            on_line = torch.stack([torch.zeros_like(xyz[..., axis]), xyz[..., axis]], dim=-1).view(1, -1, 1, 2)
            plane = F.grid_sample(planes[i], on_plane, align_corners=True).view(planes[i].size(1), -1)
            out.append(plane * F.grid_sample(lines[i], on_line, align_corners=True).view(plane.size(0), -1))
        return out

    def forward(self, origins: Tensor, directions: Tensor, jitter: Tensor, target: Tensor) -> Tensor:
        rays, steps = jitter.shape
        z = (torch.arange(steps, device=jitter.device) + jitter) / steps * 2.0
        xyz = origins[:, None] + directions[:, None] * z[..., None]
        inside = (xyz.abs() < 1).all(-1)
        points = xyz.reshape(-1, 3)
        sigma = torch.stack([p.sum(0) for p in self.sampled(points, self.density_planes, self.density_lines)]).sum(0)
        sigma = F.softplus(sigma.view(rays, steps) - 1.0) * inside
        dists = torch.cat([z[:, 1:] - z[:, :-1], torch.zeros_like(z[:, :1])], dim=-1)
        alpha = 1.0 - torch.exp(-sigma * dists * 25)
        transmitted = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], -1), -1)
        weights = alpha * transmitted[:, :-1]
        features = self.basis(torch.cat(self.sampled(points, self.app_planes, self.app_lines)).T)
        view = directions[:, None].expand(-1, steps, -1).reshape(-1, 3)
        view = torch.cat([view, *(f(view * 2.0**k) for k in range(2) for f in (torch.sin, torch.cos))], dim=-1)
        code = torch.cat([features, view, torch.sin(features), torch.cos(features)], dim=-1)
        rgb = torch.sigmoid(self.mlp(code)).view(rays, steps, 3)
        rgb = torch.where((weights > 1e-4)[..., None], rgb, 0.0)
        colour = (weights[..., None] * rgb).sum(1) + (1 - weights.sum(1))[:, None]
        smooth = torch.stack(
            [(p[:, :, 1:] - p[:, :, :-1]).square().mean() + p.diff(dim=3).square().mean() for p in self.density_planes]
        ).sum()
        return F.mse_loss(colour.clamp(0, 1), target) + 0.1 * smooth


def radiance_planes(place: Place) -> Made:
    rays, steps = place.size(32, 2048), place.size(12, 96)
    model = FactoredRadiance(place.size(16, 160), place.size(4, 16), place.size(4, 24)).to(place.device)
    return model, (
        0.3 * place.randn(rays, 3) - torch.tensor([0.0, 0.0, 1.0], device=place.device),
        F.normalize(0.3 * place.randn(rays, 3) + torch.tensor([0.0, 0.0, 1.0], device=place.device), dim=-1),
        place.rand(rays, steps),
        place.rand(rays, 3),
    )


def stabilisers(gates: Tensor, first: Tensor, second: Tensor, draws: Tensor, qubits: int) -> tuple[Tensor, Tensor]:
    """Aaronson and Gottesman's tableaux (2004) of many Clifford circuits: gates by columns, then measured qubits."""
    b, depth = gates.shape
    rows = torch.arange(b, device=gates.device)
    x = torch.zeros(b, 2 * qubits, qubits, dtype=torch.uint8, device=gates.device)
    z = torch.zeros_like(x)
    i = torch.arange(qubits, device=gates.device)
    x[:, i, i] = 1
    z[:, qubits + i, i] = 1
    r = torch.zeros(b, 2 * qubits, dtype=torch.uint8, device=gates.device)
    for d in range(depth):
        p, q, kind = first[:, d], second[:, d], gates[:, d, None]
        xp, zp, xq, zq = x[rows, :, p], z[rows, :, p], x[rows, :, q], z[rows, :, q]
        flip = torch.where(kind == 2, xp & zq & (xq ^ zp ^ 1), xp & zp)
        r ^= flip
        x[rows, :, p] = torch.where(kind == 0, zp, xp)
        z[rows, :, p] = torch.where(kind == 0, xp, torch.where(kind == 1, zp ^ xp, zp ^ zq))
        x[rows, :, q] = torch.where(kind == 2, xq ^ xp, x[rows, :, q])
    outcomes = []
    for a in range(min(qubits, draws.size(1))):
        stabiliser = x[:, qubits:, a].bool()
        random = stabiliser.any(1)
        p = qubits + stabiliser.int().argmax(1)
        px, pz, pr = x[rows, p], z[rows, p], r[rows, p]
        hit = x[:, :, a].bool() & random[:, None]
        hit[rows, p] = False
        xi, zi = x.to(torch.int32), z.to(torch.int32)
        qx, qz = px[:, None].to(torch.int32), pz[:, None].to(torch.int32)
        phase = torch.where(
            (qx == 1) & (qz == 1),
            zi - xi,
            torch.where(qx == 1, zi * (2 * xi - 1), torch.where(qz == 1, xi * (1 - 2 * zi), 0)),
        )
        sign = (2 * r.to(torch.int32) + 2 * pr[:, None].to(torch.int32) + phase.sum(-1)) % 4
        r = torch.where(hit, (sign // 2).to(torch.uint8), r)
        x = torch.where(hit[..., None], x ^ px[:, None], x)
        z = torch.where(hit[..., None], z ^ pz[:, None], z)
        bit = draws[:, a]
        fresh = F.one_hot(torch.full_like(p, a), qubits).to(torch.uint8)
        x[rows, p - qubits] = torch.where(random[:, None], px, x[rows, p - qubits])
        z[rows, p - qubits] = torch.where(random[:, None], pz, z[rows, p - qubits])
        r[rows, p - qubits] = torch.where(random, pr, r[rows, p - qubits])
        x[rows, p] = torch.where(random[:, None], torch.zeros_like(px), x[rows, p])
        z[rows, p] = torch.where(random[:, None], fresh, z[rows, p])
        r[rows, p] = torch.where(random, bit, r[rows, p])
        outcomes.append(torch.where(random, bit, 2))
    weight = ((x | z)[:, qubits:] > 0).sum((1, 2))
    return torch.stack(outcomes, dim=1), weight


def clifford_circuits(place: Place) -> Made:
    b, qubits, depth = place.size(20, 4096), place.size(5, 16), place.size(8, 32)
    first = place.randint(qubits, b, depth)
    second = (first + 1 + place.randint(qubits - 1, b, depth)) % qubits
    draws = place.randint(2, b, place.size(2, 6)).to(torch.uint8)
    return stabilisers, (place.randint(3, b, depth), first, second, draws, qubits)


ROWS: tuple[Row, ...] = (
    Row("program/limb_affinity_scores", poses),
    Row("program/rotated_box_overlaps", turned_boxes),
    Row("program/range_picture_labels", range_pictures),
    Row("program/inside_parse_chart", inside, "training"),
    Row("program/subword_skip_grams", skip_grams, "training"),
    Row("program/factored_radiance_planes", radiance_planes, "training"),
    Row("program/clifford_tableaux", clifford_circuits),
)
