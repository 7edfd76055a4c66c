"""Metrics of evaluations."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def segmentation_scores(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The confusion matrix by bincount; intersection over union and F1 per class."""
    k = logits.shape[1]
    predicted = logits.argmax(1)
    valid = labels != 255
    cell = torch.where(valid, labels * k + predicted, k * k)
    confusion = torch.bincount(cell.flatten(), minlength=k * k + 1)[: k * k].view(k, k).to(logits.dtype)
    hit = confusion.diagonal()
    rows, columns = confusion.sum(1), confusion.sum(0)
    return confusion, hit / (rows + columns - hit).clamp(min=1), 2 * hit / (rows + columns).clamp(min=1)


def confusion_matrix(place: Place) -> Made:
    n, k, side = place.size(2, 16), place.size(12, 19), place.size(96, 512)
    labels = place.randint(k, n, side, side).masked_fill(place.rand(n, side, side) < 0.05, 255)
    return segmentation_scores, (place.randn(n, k, side, side), labels)


def ranking_scores(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Area under the ROC by ranks, and average precision, per task of a multi-task table."""
    order = scores.argsort(dim=0, descending=True)
    y = labels.to(scores.dtype).gather(0, order)
    true_positives, false_positives = y.cumsum(0), (1 - y).cumsum(0)
    positives, negatives = true_positives[-1], false_positives[-1]
    auc = (true_positives * (1 - y)).sum(0) / (positives * negatives).clamp(min=1)
    precision = true_positives / (true_positives + false_positives)
    return auc, (precision * y).sum(0) / positives.clamp(min=1)


def auc(place: Place) -> Made:
    n, tasks = place.size(8000, 1_000_000), 8
    return ranking_scores, (place.randn(n, tasks), place.rand(n, tasks) < 0.1)


class SSIM(nn.Module):
    """Wang et al., 2004, with its 11-tap Gaussian, and the PSNR beside it."""

    window: Tensor

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        g = torch.exp(-((torch.arange(11) - 5.0) ** 2) / (2 * 1.5**2))
        g = g / g.sum()
        self.register_buffer("window", torch.outer(g, g).expand(channels, 1, 11, 11).contiguous())

    def blur(self, t: Tensor) -> Tensor:
        return F.conv2d(t, self.window, groups=t.shape[1])

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        mu_a, mu_b = self.blur(a), self.blur(b)
        var_a = self.blur(a * a) - mu_a**2
        var_b = self.blur(b * b) - mu_b**2
        covariance = self.blur(a * b) - mu_a * mu_b
        c1, c2 = 0.01**2, 0.03**2
        ssim = (2 * mu_a * mu_b + c1) * (2 * covariance + c2) / ((mu_a**2 + mu_b**2 + c1) * (var_a + var_b + c2))
        psnr = -10 * torch.log10(((a - b) ** 2).mean((1, 2, 3)))
        return ssim.mean((1, 2, 3)), psnr


def ssim(place: Place) -> Made:
    n, side = place.size(1, 16), place.size(64, 512)
    return SSIM().to(place.device), (place.rand(n, 3, side, side), place.rand(n, 3, side, side))


def perplexity(logits: Tensor, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Per document: perplexity, accuracy, and the mean reciprocal rank of the right token."""
    logits, labels, keep = logits[:, :-1], tokens[:, 1:], mask[:, 1:]
    nll = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    count = keep.sum(1).clamp(min=1)
    right = logits.gather(-1, labels[..., None])
    rank = (logits > right).sum(-1) + 1
    accuracy = ((rank == 1) & keep).sum(1) / count
    return torch.exp((nll * keep).sum(1) / count), accuracy, (keep / rank).sum(1) / count


def language_model_scores(place: Place) -> Made:
    b, t, v = place.size(2, 8), place.size(64, 512), place.size(4000, 32_000)
    return perplexity, (place.randn(b, t, v), place.randint(v, b, t), place.rand(b, t) < 0.9)


def calibration_error(logits: Tensor, labels: Tensor, bins: int = 15) -> tuple[Tensor, Tensor]:
    """Expected calibration error by a loop over bins, and Brier's score."""
    p = logits.softmax(-1)
    confidence, predicted = p.max(-1)
    accurate = predicted.eq(labels)
    edges = torch.linspace(0, 1, bins + 1, dtype=logits.dtype, device=logits.device)
    error = torch.zeros((), dtype=logits.dtype, device=logits.device)
    for low, high in itertools.pairwise(edges):
        within = confidence.gt(low) & confidence.le(high)
        share = within.to(p.dtype).mean()
        n = within.sum().clamp(min=1)
        error += ((accurate & within).sum() / n - (confidence * within).sum() / n).abs() * share
    return error, (p - F.one_hot(labels, p.shape[-1])).square().sum(-1).mean()


def calibration(place: Place) -> Made:
    n, k = place.size(10_000, 1_000_000), place.size(50, 100)
    return calibration_error, (2 * place.randn(n, k), place.randint(k, n))


def matched_precision(iou: Tensor, scores: Tensor) -> Tensor:
    """COCO's pieces: thresholds at once, greedy matches in order of score, interpolated precision at 101 recalls."""
    order = scores.argsort(descending=True, stable=True)
    iou = iou[order]
    thresholds = torch.linspace(0.5, 0.95, 10, dtype=iou.dtype, device=iou.device)
    taken = torch.zeros(10, iou.shape[1], dtype=torch.bool, device=iou.device)
    hits = []
    for row in iou[:32]:
        free = row[None, :].masked_fill(taken, -1.0)
        best, index = free.max(1)
        hit = best >= thresholds
        taken = taken | (F.one_hot(index, iou.shape[1]).bool() & hit[:, None])
        hits.append(hit)
    hit = torch.stack(hits, 1).to(iou.dtype)
    found = hit.cumsum(1)
    precision = found / torch.arange(1, hit.shape[1] + 1, device=iou.device)
    precision = precision.flip(1).cummax(1).values.flip(1)
    recall = (found / iou.shape[1]).contiguous()
    points = torch.linspace(0, 1, 101, dtype=iou.dtype, device=iou.device).expand(10, 101).contiguous()
    at = torch.searchsorted(recall, points).clamp(max=hit.shape[1] - 1)
    return (precision.gather(1, at) * (points <= recall[:, -1:])).mean(1)


def average_precision(place: Place) -> Made:
    n, m = place.size(200, 10_000), place.size(200, 20_000)
    return matched_precision, (place.rand(n, m), place.rand(n))


ROWS: tuple[Row, ...] = (
    Row("program/confusion_matrix", confusion_matrix),
    Row("program/roc_auc", auc),
    Row("program/ssim_psnr", ssim),
    Row("program/perplexity", language_model_scores),
    Row("program/calibration_error", calibration),
    Row("program/average_precision", average_precision),
)
