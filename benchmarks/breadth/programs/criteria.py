"""Losses and scores: margins, redundancy, sets, boxes, evidence, mixtures, forecasts, similarity, sets of samples."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class ArcMargin(nn.Module):
    """Deng et al., 2019: an angle is added to the true class's, three centres to each class, easy ones turned."""

    def __init__(self, d: int, classes: int, margin: float = 0.4, scale: float = 32.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, 3, d))
        self.margin, self.scale = margin, scale

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        cosine = torch.einsum("bd,ckd->bck", F.normalize(x, dim=1), F.normalize(self.weight, dim=2)).amax(2)
        cosine = cosine.clamp(-0.999, 0.999)
        sine = (1 - cosine**2).sqrt()
        turned = cosine * math.cos(self.margin) - sine * math.sin(self.margin)
        turned = torch.where(cosine > math.cos(math.pi - self.margin), turned, cosine - 0.1)
        hit = F.one_hot(y, cosine.size(1)).to(torch.bool)
        return F.cross_entropy(self.scale * torch.where(hit, turned, cosine), y)


def arc_margin(place: Place) -> Made:
    b, d, classes = place.size(64, 1024), place.size(64, 256), place.size(200, 8192)
    return ArcMargin(d, classes).to(place.device), (place.randn(b, d).requires_grad_(), place.randint(classes, b))


def variance_covariance(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Bardes et al., 2022, beside Zbontar et al., 2021: hinges on deviations, covariances, cross-correlations."""
    n, d = a.shape
    close = F.mse_loss(a, b)
    spread = sum((F.relu(1 - (t.var(0) + 1e-4).sqrt()).mean() for t in (a, b)), torch.zeros_like(close))
    ca, cb = ((t - t.mean(0)).T @ (t - t.mean(0)) / (n - 1) for t in (a, b))
    off = sum((c.square().sum() - c.diagonal().square().sum() for c in (ca, cb)), torch.zeros_like(close)) / d
    za, zb = ((t - t.mean(0)) / (t.std(0) + 1e-4) for t in (a, b))
    cross = za.T @ zb / n
    twins = (1 - cross.diagonal()).square().sum() + 5e-3 * (cross.square().sum() - cross.diagonal().square().sum())
    return 25 * close + 25 * spread + off, twins / d


def redundancy(place: Place) -> Made:
    n, d = place.size(256, 4096), place.size(128, 2048)
    a = place.randn(n, d)
    return variance_covariance, (a.requires_grad_(), (0.8 * a.detach() + 0.6 * place.randn(n, d)).requires_grad_())


def lovasz_softmax(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Berman et al., 2018: the Jaccard index's extension over sorted errors of classes, beside Tversky's."""
    p = logits.softmax(1).transpose(0, 1).flatten(1)
    hit = F.one_hot(labels.flatten(), p.size(0)).T.to(p.dtype)
    error, order = (hit - p).abs().sort(dim=1, descending=True, stable=True)
    truth = hit.gather(1, order)
    total = truth.sum(1, keepdim=True)
    jaccard = 1 - (total - truth.cumsum(1)) / (total + (1 - truth).cumsum(1))
    step = jaccard.diff(dim=1, prepend=torch.zeros_like(total))
    both, missed, false = (p * hit).sum(1), ((1 - p) * hit).sum(1), (p * (1 - hit)).sum(1)
    tversky = (1 - (both + 1) / (both + 0.7 * missed + 0.3 * false + 1)) ** 0.75
    return (error * step).sum(1), tversky


def lovasz(place: Place) -> Made:
    b, classes, n = place.size(2, 8), place.size(5, 19), place.size(48, 256)
    return lovasz_softmax, (place.randn(b, classes, n, n).requires_grad_(), place.randint(classes, b, n, n))


def complete_boxes(a: Tensor, b: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Zheng et al., 2020: overlap, distance of centres, shapes; qualities as soft targets of a varifocal loss."""
    low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    inter = (high - low).clamp(min=0).prod(1)
    wa, wb = a[:, 2:] - a[:, :2], b[:, 2:] - b[:, :2]
    iou = inter / (wa.prod(1) + wb.prod(1) - inter + 1e-6)
    hull = torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])
    apart = (a[:, :2] + a[:, 2:] - b[:, :2] - b[:, 2:]).square().sum(1) / 4
    shape = 4 / math.pi**2 * (torch.atan2(wa[:, 0], wa[:, 1]) - torch.atan2(wb[:, 0], wb[:, 1])) ** 2
    trade = (shape / (1 - iou + shape + 1e-4)).detach()
    box = 1 - iou + apart / (hull.square().sum(1) + 1e-6) + trade * shape
    q = iou.detach()[:, None].clamp(0, 1)
    p = logits.sigmoid()
    weight = torch.where(q > 0.1, q, 0.75 * p.detach() ** 2)
    return box, (weight * F.binary_cross_entropy_with_logits(logits, q.expand_as(logits), reduction="none")).sum(1)


def boxes(place: Place) -> Made:
    n, classes = place.size(4000, 400_000), place.size(16, 40)
    corner, size = place.rand(2, n, 2), 0.2 + place.rand(2, n, 2)
    a, b = torch.cat([corner, corner + size], -1).unbind(0)
    return complete_boxes, (a.clone().requires_grad_(), b.clone(), place.randn(n, classes).requires_grad_())


def evidential(mu: Tensor, raw: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Amini et al., 2020: a normal-inverse-gamma's negative log evidence and its regulariser; uncertainties."""
    v, alpha, beta = F.softplus(raw).unbind(-1)
    v, alpha, beta = v + 1e-2, alpha + 1.1, beta + 1e-2
    omega = 2 * beta * (1 + v)
    loss = 0.5 * torch.log(math.pi / v) - alpha * omega.log() + (alpha + 0.5) * torch.log(v * (y - mu) ** 2 + omega)
    loss = loss + torch.lgamma(alpha) - torch.lgamma(alpha + 0.5) + 0.05 * (y - mu).abs() * (2 * v + alpha)
    return loss, (beta / (v * (alpha - 1))).detach()


def evidence(place: Place) -> Made:
    n = place.size(40_000, 4_000_000)
    return evidential, (place.randn(n).requires_grad_(), place.randn(n, 3).requires_grad_(), place.randn(n))


def mixture_density(raw: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Bishop, 1994, scored by Grimit et al., 2006: mixtures' likelihoods, ranked probability scores."""
    logit, mean, log_scale = raw.unbind(-1)
    share, scale = logit.softmax(-1), F.softplus(log_scale) + 0.05

    def absolute(gap: Tensor, s: Tensor) -> Tensor:
        z = gap / s
        return gap * torch.erf(z / math.sqrt(2)) + s * math.sqrt(2 / math.pi) * torch.exp(-0.5 * z**2)

    z = (y[:, None] - mean) / scale
    likelihood = torch.logsumexp(logit.log_softmax(-1) - scale.log() - 0.5 * z**2, -1)
    first = (share * absolute(y[:, None] - mean, scale)).sum(-1)
    spread = (scale[:, :, None] ** 2 + scale[:, None] ** 2).sqrt()
    pairs = absolute(mean[:, :, None] - mean[:, None], spread)
    second = torch.einsum("nk,nl,nkl->n", share, share, pairs)
    return -likelihood, first - 0.5 * second


def mixtures(place: Place) -> Made:
    n, k = place.size(3000, 400_000), 6
    return mixture_density, (place.randn(n, k, 3).requires_grad_(), place.randn(n))


def gradient_similarity(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Xue et al., 2014 (GMSD), with chroma: Prewitt's gradients at two scales, similarity maps, deviations pooled."""
    to_yiq = a.new_tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
    kernel = a.new_tensor([[1, 0, -1]] * 3) / 3
    kernel = torch.stack([kernel, kernel.T])[:, None]
    a, b = (torch.einsum("ij,bjyx->biyx", to_yiq, t) for t in (a, b))
    scores = []
    for _ in range(2):
        a, b = F.avg_pool2d(a, 2), F.avg_pool2d(b, 2)
        ga, gb = ((F.conv2d(t[:, :1], kernel, padding=1).square().sum(1) + 1e-6).sqrt() for t in (a, b))
        scores.append((2 * ga * gb + 0.0026) / (ga**2 + gb**2 + 0.0026))
    chroma = ((2 * a * b + 0.02) / (a**2 + b**2 + 0.02))[:, 1:].prod(1)
    deviation = torch.stack([s.flatten(1).std(1) for s in scores], -1)
    return deviation, chroma.mean(dim=(1, 2)), scores[-1]


def similarity(place: Place) -> Made:
    b, n = place.size(2, 16), place.size(192, 1024)
    a = place.rand(b, 3, n, n)
    return gradient_similarity, (a, (a + 0.1 * place.randn(b, 3, n, n)).clamp(0, 1))


def manifold_precision(real: Tensor, fake: Tensor, k: int = 5) -> tuple[Tensor, Tensor]:
    """Kynkäänniemi et al., 2019, and Naeem et al., 2020: balls of k neighbours, softly; precision, recall, density."""

    def squares(a: Tensor, b: Tensor) -> Tensor:
        return (a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T).clamp(min=0)

    radius_real = squares(real, real).topk(k + 1, largest=False).values[:, -1]
    radius_fake = squares(fake, fake).topk(k + 1, largest=False).values[:, -1]
    between = squares(fake, real)
    in_real = torch.sigmoid(5 * (radius_real - between) / radius_real)
    in_fake = torch.sigmoid(5 * (radius_fake[:, None] - between) / radius_fake[:, None])
    density = in_real.sum(1).mean() / k
    return torch.stack([in_real.amax(1).mean(), in_fake.amax(0).mean(), density]), radius_real


def precision(place: Place) -> Made:
    n, d = place.size(500, 8192), place.size(64, 512)
    return manifold_precision, (place.randn(n, d), 0.9 * place.randn(n, d) + 0.1)


ROWS: tuple[Row, ...] = (
    Row("program/sub_centre_arc_margin", arc_margin, "training"),
    Row("program/variance_covariance_twins", redundancy, "training"),
    Row("program/lovasz_softmax", lovasz, "training"),
    Row("program/complete_box_varifocal", boxes, "training"),
    Row("program/evidential_regression", evidence, "training"),
    Row("program/mixture_ranked_scores", mixtures, "training"),
    Row("program/gradient_similarity_chroma", similarity),
    Row("program/manifold_precision_recall", precision),
)
