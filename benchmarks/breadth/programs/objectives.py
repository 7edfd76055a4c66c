"""Objectives of papers: contrast with labels and queues, margins, long tails, heatmaps, depth, forecasts, boxes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def supervised_contrast(features: Tensor, labels: Tensor, temperature: float = 0.1) -> Tensor:
    """Khosla et al., 2020: features are (batch, views, width); all of one label are positives."""
    batch, views = features.shape[:2]
    z = F.normalize(torch.cat(torch.unbind(features, dim=1), dim=0), dim=1)
    mask = torch.eq(labels[:, None], labels[None]).to(z.dtype).repeat(views, views)
    logits = z @ z.T / temperature
    logits = logits - logits.max(dim=1, keepdim=True).values.detach()
    others = torch.ones_like(mask).scatter_(1, torch.arange(batch * views, device=z.device)[:, None], 0)
    mask = mask * others
    log_prob = logits - torch.log((torch.exp(logits) * others).sum(1, keepdim=True))
    return -((mask * log_prob).sum(1) / mask.sum(1).clamp(min=1)).mean()


def labelled_views(place: Place) -> Made:
    batch, width = place.size(96, 2048), place.size(64, 256)
    return supervised_contrast, (place.randn(batch, 2, width).requires_grad_(), place.randint(10, batch))


class ProxyAnchor(nn.Module):
    """Kim et al., 2020: a proxy for each class pulls its own and pushes the others."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.classes = classes
        self.proxies = nn.Parameter(torch.randn(classes, width))
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        cos = F.linear(F.normalize(x), F.normalize(self.proxies))
        one_hot = F.one_hot(labels, self.classes)
        positive = torch.exp(-32 * (cos - 0.1))
        negative = torch.exp(32 * (cos + 0.1))
        with_positive = torch.nonzero(one_hot.sum(dim=0) != 0).squeeze(dim=1)
        count = len(with_positive)
        p_sum = torch.where(one_hot == 1, positive, torch.zeros_like(positive)).sum(dim=0)
        n_sum = torch.where(one_hot == 0, negative, torch.zeros_like(negative)).sum(dim=0)
        return torch.log(1 + p_sum).sum() / count + torch.log(1 + n_sum).sum() / self.classes


def proxies(place: Place) -> Made:
    classes, width, batch = place.size(100, 8000), place.size(64, 512), place.size(64, 1024)
    return ProxyAnchor(classes, width).to(place.device), (
        place.randn(batch, width).requires_grad_(),
        place.randint(classes, batch),
    )


def circle_loss(x: Tensor, labels: Tensor, margin: float = 0.25, gamma: float = 64.0) -> Tensor:
    """Sun et al., 2020: pairs above the diagonal, weighted by how far they are from their optimum."""
    x = F.normalize(x)
    similarity = x @ x.T
    same = labels[None] == labels[:, None]
    positive = same.triu(diagonal=1)
    negative = same.logical_not().triu(diagonal=1)
    sp, sn = similarity[positive], similarity[negative]
    ap = torch.clamp_min(-sp.detach() + 1 + margin, min=0.0)
    an = torch.clamp_min(sn.detach() + margin, min=0.0)
    logit_p = -ap * (sp - (1 - margin)) * gamma
    logit_n = an * (sn - margin) * gamma
    return F.softplus(torch.logsumexp(logit_n, dim=0) + torch.logsumexp(logit_p, dim=0))


def circles(place: Place) -> Made:
    batch, width = place.size(128, 1024), place.size(64, 512)
    return circle_loss, (place.randn(batch, width).requires_grad_(), place.randint(16, batch))


def adaptive_wing(
    pred: Tensor, target: Tensor, omega: float = 14.0, theta: float = 0.5, epsilon: float = 1.0, alpha: float = 2.1
) -> Tensor:
    """Wang et al., 2019, on heatmaps of landmarks, with the weight map of dilated foreground."""
    delta = (target - pred).abs()
    a = omega * (1 / (1 + (theta / epsilon) ** (alpha - target))) * (alpha - target)
    a = a * ((theta / epsilon) ** (alpha - target - 1)) * (1 / epsilon)
    c = theta * a - omega * torch.log(1 + (theta / epsilon) ** (alpha - target))
    loss = torch.where(delta < theta, omega * torch.log(1 + (delta / epsilon) ** (alpha - target)), a * delta - c)
    dilated = F.max_pool2d(target, 3, stride=1, padding=1)
    weight = torch.where(dilated >= 0.2, 10.0, 0.0) + 1
    return (loss * weight).mean()


def landmark_maps(place: Place) -> Made:
    b, k, n = place.size(2, 32), place.size(8, 68), place.size(32, 64)
    at = place.rand(b, k, 2, 1, 1) * n
    grid = torch.arange(n, device=place.device)
    squared = (grid[:, None] - at[:, :, 0]) ** 2 + (grid[None] - at[:, :, 1]) ** 2
    return adaptive_wing, ((0.3 + 0.2 * place.rand(b, k, n, n)).requires_grad_(), torch.exp(-squared / 8))


def asymmetric_loss(x: Tensor, y: Tensor, gamma_neg: float = 4, gamma_pos: float = 1, clip: float = 0.05) -> Tensor:
    """Ben-Baruch (Ridnik) et al., 2020: many labels; easy negatives shifted and focused away."""
    xs_pos = torch.sigmoid(x)
    xs_neg = (1 - xs_pos + clip).clamp(max=1)
    loss = y * torch.log(xs_pos.clamp(min=1e-8)) + (1 - y) * torch.log(xs_neg.clamp(min=1e-8))
    with torch.no_grad():
        pt = xs_pos * y + xs_neg * (1 - y)
        weight = torch.pow(1 - pt, gamma_pos * y + gamma_neg * (1 - y))
    return -(loss * weight).sum()


def many_labels(place: Place) -> Made:
    b, n = place.size(64, 2048), place.size(500, 9605)
    return asymmetric_loss, (place.randn(b, n).requires_grad_(), (place.rand(b, n) < 0.02).float())


class SpeakerEndToEnd(nn.Module):
    """Wan et al., 2018 (GE2E): every utterance against all speakers' centroids, its own without itself."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.tensor(10.0)), nn.Parameter(torch.tensor(-5.0))

    def forward(self, embeddings: Tensor) -> Tensor:
        speakers, utterances, _ = embeddings.shape
        e = embeddings / embeddings.norm(dim=-1, keepdim=True)
        centroids = e.mean(dim=1)
        excluding = (e.sum(dim=1, keepdim=True) - e) / (utterances - 1)
        similarity = torch.einsum("sud,td->sut", e, F.normalize(centroids, dim=-1))
        own = (e * F.normalize(excluding, dim=-1)).sum(-1)
        index = torch.arange(speakers, device=e.device)
        similarity = similarity.clone()
        similarity[index, :, index] = own
        similarity = self.w.clamp(min=1e-6) * similarity + self.b
        target = index.repeat_interleave(utterances)
        return F.cross_entropy(similarity.reshape(speakers * utterances, speakers), target)


def speakers(place: Place) -> Made:
    s, u, d = place.size(32, 640), place.size(5, 10), place.size(64, 256)
    return SpeakerEndToEnd().to(place.device), (place.randn(s, u, d).requires_grad_(),)


class SelfDistillation(nn.Module):
    """DINO's loss (Caron et al., 2021): crops of a student against a centred, sharpened teacher."""

    def __init__(self, outputs: int, crops: int) -> None:
        super().__init__()
        self.crops = crops
        self.register_buffer("center", torch.zeros(1, outputs))

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        parts = (student / 0.1).chunk(self.crops)
        targets = F.softmax((teacher - self.center) / 0.04, dim=-1).detach().chunk(2)
        total, terms = 0, 0
        for iq, q in enumerate(targets):
            for v in range(len(parts)):
                if v == iq:
                    continue
                total = total + torch.sum(-q * F.log_softmax(parts[v], dim=-1), dim=-1).mean()
                terms += 1
        self.update_center(teacher)
        return total / terms

    @torch.no_grad()
    def update_center(self, teacher: Tensor) -> None:
        center = torch.sum(teacher, dim=0, keepdim=True) / len(teacher)
        self.center = self.center * 0.9 + center * 0.1


def self_distillation(place: Place) -> Made:
    b, n, crops = place.size(8, 64), place.size(2048, 65_536), place.size(4, 6)
    return SelfDistillation(n, crops).to(place.device), (
        place.randn(crops * b, n).requires_grad_(),
        place.randn(2 * b, n),
    )


class OrdinalLevels(nn.Module):
    """Cao et al., 2020 (CORAL): one score, a threshold for each rank, extended binary labels."""

    def __init__(self, width: int, ranks: int) -> None:
        super().__init__()
        self.ranks = ranks
        self.body = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ELU())
        self.score = nn.Linear(width, 1, bias=False)
        self.bias = nn.Parameter(torch.arange(ranks - 1, 0, -1).float() / (ranks - 1))

    def forward(self, x: Tensor, age: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.score(self.body(x)) + self.bias
        levels = (torch.arange(self.ranks - 1, device=x.device)[None] < age[:, None]).to(logits.dtype)
        importance = torch.sqrt(torch.maximum(levels.sum(0), (1 - levels).sum(0)))
        importance = importance / importance.max()
        value = F.logsigmoid(logits) * levels + (F.logsigmoid(logits) - logits) * (1 - levels)
        loss = -(value * importance).sum(1).mean()
        with torch.no_grad():
            error = ((torch.sigmoid(logits) > 0.5).sum(1) - age).abs()
        return loss, error


def ages(place: Place) -> Made:
    b, width = place.size(256, 16_384), place.size(64, 512)
    return OrdinalLevels(width, 101).to(place.device), (place.randn(b, width), place.randint(101, b))


def distribution_focal(pred: Tensor, boxes: Tensor, anchors: Tensor, stride: Tensor, weight: Tensor) -> Tensor:
    """Li et al., 2020 (GFL): each side of a box is a distribution over bins; cross entropy of two bins, GIoU."""
    bins = pred.size(-1) // 4
    sides = pred.view(-1, 4, bins)
    project = torch.arange(bins, device=pred.device, dtype=pred.dtype)
    distance = F.softmax(sides, dim=-1).matmul(project)
    decoded = torch.cat([anchors - distance[:, :2], anchors + distance[:, 2:]], dim=-1)
    target_boxes = boxes / stride
    target = torch.cat([anchors - target_boxes[:, :2], target_boxes[:, 2:] - anchors], dim=-1).clamp(0, bins - 1.01)
    left = target.long()
    weight_left = (left + 1).to(target.dtype) - target
    flat = sides.reshape(-1, bins)
    dfl = F.cross_entropy(flat, left.view(-1), reduction="none").view(left.shape) * weight_left
    dfl = dfl + F.cross_entropy(flat, (left + 1).view(-1), reduction="none").view(left.shape) * (1 - weight_left)
    lt = torch.max(decoded[:, :2], target_boxes[:, :2])
    rb = torch.min(decoded[:, 2:], target_boxes[:, 2:])
    overlap = (rb - lt).clamp(min=0).prod(1)
    areas = [(b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]) for b in (decoded, target_boxes)]
    union = areas[0] + areas[1] - overlap + 1e-6
    hull = torch.max(decoded[:, 2:], target_boxes[:, 2:]) - torch.min(decoded[:, :2], target_boxes[:, :2])
    hull = hull.clamp(min=0).prod(1) + 1e-6
    giou = overlap / union - (hull - union) / hull
    return ((1 - giou) * weight).sum() / weight.sum() + 0.25 * (dfl.mean(-1) * weight).sum() / weight.sum()


def box_sides(place: Place) -> Made:
    n, bins = place.size(2000, 300_000), 16
    anchors = place.rand(n, 2) * 64
    stride = torch.tensor([8.0, 16.0, 32.0], device=place.device)[place.randint(3, n)][:, None]
    boxes = torch.cat([anchors - 8 * place.rand(n, 2), anchors + 8 * place.rand(n, 2)], dim=1) * stride
    return distribution_focal, (place.randn(n, 4 * bins).requires_grad_(), boxes, anchors, stride, place.rand(n))


class Seesaw(nn.Module):
    """Wang et al., 2021: counts of classes seen so far, and scores, weigh what tails are punished with."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.register_buffer("seen", torch.zeros(classes))

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        self.seen += torch.bincount(labels, minlength=self.classes)
        one_hot = F.one_hot(labels, self.classes)
        ratio = self.seen[None, :].clamp(min=1) / self.seen[:, None].clamp(min=1)
        index = (ratio < 1.0).to(logits.dtype)
        weights = (ratio.pow(0.8) * index + (1 - index))[labels]
        scores = F.softmax(logits.detach(), dim=1)
        own = scores[torch.arange(len(scores), device=scores.device), labels]
        matrix = scores / own[:, None].clamp(min=1e-2)
        index = (matrix > 1.0).to(logits.dtype)
        weights = weights * (matrix.pow(2.0) * index + (1 - index))
        return F.cross_entropy(logits + weights.log() * (1 - one_hot), labels)


def long_tail(place: Place) -> Made:
    b, n = place.size(256, 8192), place.size(300, 1203)
    labels = (place.rand(b) ** 3 * n).long()
    return Seesaw(n).to(place.device), (place.randn(b, n).requires_grad_(), labels)


class MomentumQueue(nn.Module):
    """MoCo's head (He et al., 2020): keys of earlier batches are negatives; the newest overwrite the oldest."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("queue", F.normalize(torch.randn(width, size), dim=0))
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q, k = F.normalize(q, dim=1), F.normalize(k, dim=1)
        l_pos = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
        logits = torch.cat([l_pos, l_neg], dim=1) / 0.07
        labels = torch.zeros(logits.shape[0], dtype=torch.long, device=q.device)
        with torch.no_grad():
            at = (self.pointer + torch.arange(k.size(0), device=k.device)) % self.size
            self.queue[:, at] = k.T
            self.pointer[0] = (self.pointer[0] + k.size(0)) % self.size
            accuracy = (logits.argmax(1) == 0).to(q.dtype).mean()
        return F.cross_entropy(logits, labels), accuracy


def momentum_queue(place: Place) -> Made:
    b, d, n = place.size(64, 512), place.size(32, 128), place.size(1024, 65_536)
    return MomentumQueue(d, n).to(place.device), (place.randn(b, d).requires_grad_(), place.randn(b, d))


def ensemble_scores(members: Tensor, truth: Tensor, latitude: Tensor) -> tuple[Tensor, Tensor]:
    """Fair continuous ranked probability score of an ensemble of global fields, weighted by area, and its spread."""
    n = members.size(0)
    weight = torch.cos(latitude)
    weight = (weight / weight.mean())[:, None]
    skill = (members - truth).abs().mean(0)
    spread = (members[:, None] - members[None]).abs().sum((0, 1)) / (2 * n * (n - 1))
    score = ((skill - spread) * weight).mean(dim=(-1, -2))
    variance = members.var(0, unbiased=True)
    ratio = torch.sqrt((variance * weight).mean((-1, -2)) / (((members.mean(0) - truth) ** 2) * weight).mean((-1, -2)))
    return score, ratio.detach()


def ensembles(place: Place) -> Made:
    n, fields, h, w = place.size(4, 8), place.size(3, 12), place.size(32, 181), place.size(64, 360)
    latitude = torch.linspace(-1.55, 1.55, h, device=place.device)
    return ensemble_scores, (place.randn(n, fields, h, w).requires_grad_(), place.randn(fields, h, w), latitude)


def scale_free_depth(pred: Tensor, target: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Ranftl et al., 2020 (MiDaS): least squares for scale and shift of each picture, gradients at four scales."""
    a00, a01, a11 = (mask * pred * pred).sum((1, 2)), (mask * pred).sum((1, 2)), mask.sum((1, 2))
    b0, b1 = (mask * pred * target).sum((1, 2)), (mask * target).sum((1, 2))
    det = a00 * a11 - a01 * a01
    valid = det > 0
    safe = torch.where(valid, det, torch.ones_like(det))
    scale = torch.where(valid, (a11 * b0 - a01 * b1) / safe, torch.zeros_like(det))
    shift = torch.where(valid, (-a01 * b0 + a00 * b1) / safe, torch.zeros_like(det))
    aligned = scale.view(-1, 1, 1) * pred + shift.view(-1, 1, 1)
    data = (mask * (aligned - target) ** 2).sum() / (2 * mask.sum())
    smooth = aligned.new_zeros(())
    for k in range(4):
        step = 2**k
        m, d = mask[:, ::step, ::step], (aligned - target)[:, ::step, ::step]
        d = m * d
        grad_x = (d[:, :, 1:] - d[:, :, :-1]).abs() * m[:, :, 1:] * m[:, :, :-1]
        grad_y = (d[:, 1:] - d[:, :-1]).abs() * m[:, 1:] * m[:, :-1]
        smooth = smooth + ((grad_x.sum((1, 2)) + grad_y.sum((1, 2))) / m.sum((1, 2)).clamp(min=1)).mean()
    return data, 0.5 * smooth


def depths(place: Place) -> Made:
    b, h, w = place.size(2, 32), place.size(48, 384), place.size(64, 512)
    target = place.rand(b, h, w)
    pred = (2 * target + 0.3 + 0.2 * place.randn(b, h, w)).requires_grad_()
    return scale_free_depth, (pred, target, (place.rand(b, h, w) < 0.9).float())


def hard_pixels(logits: Tensor, labels: Tensor, ignore: int, threshold: float, keep: int) -> Tensor:
    """Online hard example mining of segmentation: pixels below a probability, but at least so many."""
    loss = F.cross_entropy(logits, labels, ignore_index=ignore, reduction="none").view(-1)
    valid = labels.view(-1) != ignore
    prob = F.softmax(logits, dim=1).gather(1, labels.clamp(max=logits.size(1) - 1)[:, None]).view(-1)
    prob = prob.masked_fill(~valid, 1.0).detach()
    kth = prob.sort().values[keep]
    chosen = (prob <= torch.clamp(kth, min=threshold)) & valid
    return loss[chosen].mean()


def hard_examples(place: Place) -> Made:
    b, c, h, w = place.size(2, 8), 19, place.size(32, 256), place.size(64, 512)
    labels = place.randint(c + 1, b, h, w)
    labels = torch.where(labels == c, 255, labels)
    return hard_pixels, (place.randn(b, c, h, w).requires_grad_(), labels, 255, 0.03, b * h * w // 16)


def hard_negatives(conf: Tensor, loc: Tensor, labels: Tensor, boxes: Tensor, ratio: int = 3) -> tuple[Tensor, Tensor]:
    """SSD's (Liu et al., 2016): three of the worst negatives for each positive, by sorting twice."""
    positive = labels > 0
    loss_loc = F.smooth_l1_loss(loc[positive], boxes[positive], reduction="sum")
    loss = F.cross_entropy(conf.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
    mined = loss.detach().clone()
    mined[positive] = 0
    _, order = mined.sort(1, descending=True)
    _, rank = order.sort(1)
    count = positive.long().sum(1, keepdim=True)
    negative = rank < torch.clamp(ratio * count, max=positive.size(1) - 1)
    n = positive.sum().to(conf.dtype)
    return loss[positive | negative].sum() / n, loss_loc / n


def mined_boxes(place: Place) -> Made:
    b, n, c = place.size(2, 32), place.size(500, 8732), 21
    labels = place.randint(c, b, n) * (place.rand(b, n) < 0.03)
    return hard_negatives, (
        place.randn(b, n, c).requires_grad_(),
        place.randn(b, n, 4).requires_grad_(),
        labels,
        place.randn(b, n, 4),
    )


def rotated_divergence(pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Yang et al., 2021: boxes with angles as Gaussians; Kullback-Leibler and Wasserstein distances of them."""

    def gaussian(boxes: Tensor) -> tuple[Tensor, Tensor]:
        xy, wh, r = boxes[:, :2], boxes[:, 2:4].clamp(min=1e-3, max=1e3), boxes[:, 4]
        cos, sin = torch.cos(r), torch.sin(r)
        rotation = torch.stack((cos, -sin, sin, cos), dim=-1).reshape(-1, 2, 2)
        s = 0.5 * torch.diag_embed(wh)
        return xy, rotation.bmm(s.square()).bmm(rotation.permute(0, 2, 1))

    (mu_p, sigma_p), (mu_t, sigma_t) = gaussian(pred), gaussian(target)
    det_p, det_t = (torch.linalg.det(s) for s in (sigma_p, sigma_t))
    cofactor = torch.stack(
        (sigma_p[..., 1, 1], -sigma_p[..., 0, 1], -sigma_p[..., 1, 0], sigma_p[..., 0, 0]), dim=-1
    ).reshape(-1, 2, 2)
    inverse = cofactor / det_p[:, None, None]
    dxy = (mu_p - mu_t).unsqueeze(-1)
    maha = 0.5 * dxy.permute(0, 2, 1).bmm(inverse).bmm(dxy).view(-1)
    trace = 0.5 * inverse.bmm(sigma_t).diagonal(dim1=-2, dim2=-1).sum(-1)
    divergence = (maha + trace + 0.5 * (det_p.log() - det_t.log()) - 1).clamp(min=1e-6)
    cross = sigma_p.bmm(sigma_t).diagonal(dim1=-2, dim2=-1).sum(-1)
    whole = (sigma_p + sigma_t).diagonal(dim1=-2, dim2=-1).sum(-1)
    wasserstein = dxy.square().sum((1, 2)) + whole - 2 * (cross + 2 * (det_p * det_t).sqrt()).sqrt()
    kld = 1 - 1 / (2 + torch.log1p(divergence))
    return kld.mean(), (1 - 1 / (1 + torch.log1p(wasserstein.clamp(min=1e-6)))).mean()


def rotated(place: Place) -> Made:
    n = place.size(1000, 500_000)
    target = torch.cat([100 * place.rand(n, 2), 5 + 20 * place.rand(n, 2), 3 * place.rand(n, 1)], dim=1)
    return rotated_divergence, ((target + 0.5 * place.randn(n, 5)).requires_grad_(), target)


def discriminative_instances(x: Tensor, labels: Tensor, instances: int) -> tuple[Tensor, Tensor, Tensor]:
    """De Brabandere et al., 2017: pixels pulled to their instance's mean, means pushed apart, by scattered sums."""
    b, c = x.shape[:2]
    flat, label = x.flatten(2), labels.flatten(1)
    index = label[:, None].expand(-1, c, -1)
    count = torch.zeros(b, instances, dtype=x.dtype, device=x.device).scatter_add_(
        1, label, torch.ones_like(flat[:, 0])
    )
    means = torch.zeros(b, c, instances, dtype=x.dtype, device=x.device).scatter_add_(2, index, flat)
    means = means / count.clamp(min=1)[:, None]
    distance = torch.norm(flat - means.gather(2, index), dim=1)
    pull = torch.clamp(distance - 0.5, min=0) ** 2
    per = torch.zeros_like(count).scatter_add_(1, label, pull) / count.clamp(min=1)
    apart = torch.norm(means[:, :, :, None] - means[:, :, None] + 1e-6, dim=1)
    push = torch.clamp(2 * 1.5 - apart, min=0) ** 2
    push = push * (1 - torch.eye(instances, device=x.device, dtype=x.dtype))
    return per.mean(), push.sum((1, 2)).mean() / (instances * (instances - 1)), 1e-3 * means.norm(dim=1).mean()


def instance_embeddings(place: Place) -> Made:
    b, c, n, k = place.size(2, 16), place.size(8, 16), place.size(48, 256), place.size(6, 24)
    return discriminative_instances, (place.randn(b, c, n, n).requires_grad_(), place.randint(k, b, n, n), k)


ROWS: tuple[Row, ...] = (
    Row("program/supervised_contrast", labelled_views, "training"),
    Row("program/proxy_anchors", proxies, "training"),
    Row("program/circle_margin_pairs", circles, "training"),
    Row("program/adaptive_wing_heatmaps", landmark_maps, "training"),
    Row("program/asymmetric_many_labels", many_labels, "training"),
    Row("program/speaker_centroids", speakers, "training"),
    Row("program/centred_self_distillation", self_distillation, "training"),
    Row("program/ordinal_age_levels", ages, "training"),
    Row("program/distribution_focal_sides", box_sides, "training"),
    Row("program/seesaw_long_tail", long_tail, "training"),
    Row("program/momentum_key_queue", momentum_queue, "training"),
    Row("program/ensemble_ranked_probability", ensembles, "training"),
    Row("program/scale_free_depth", depths, "training"),
    Row("program/hard_example_pixels", hard_examples, "training"),
    Row("program/hard_negative_boxes", mined_boxes, "training"),
    Row("program/rotated_box_divergence", rotated, "training"),
    Row("program/discriminative_instances", instance_embeddings, "training"),
)
