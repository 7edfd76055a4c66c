"""Losses, as training scripts spell them out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def focal_loss(logits: Tensor, labels: Tensor, alpha: float = 0.25, gamma: float = 2.0) -> Tensor:
    """Lin et al., 2017: binary focal loss over anchors x classes; a label of -1 is ignored."""
    valid = labels >= 0
    targets = labels.clamp(min=0).to(logits.dtype)
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    loss = ce * (1 - p_t) ** gamma
    alpha_t = alpha * targets + (1 - alpha) * (1 - targets)
    loss = torch.where(valid, alpha_t * loss, torch.zeros_like(loss))
    return loss.sum() / valid.sum().clamp(min=1)


def focal(place: Place) -> Made:
    anchors, classes = place.size(4096, 200_000), 80
    labels = (place.rand(anchors, classes) > 0.98).long() - (place.rand(anchors, 1) > 0.9).long()
    return focal_loss, (place.randn(anchors, classes).requires_grad_(), labels.clamp(min=-1))


class InfoNCE(nn.Module):
    """The symmetric contrastive loss of CLIP, with a learnt temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(2.6592))

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        image = image / image.norm(dim=-1, keepdim=True)
        text = text / text.norm(dim=-1, keepdim=True)
        logits = self.logit_scale.exp().clamp(max=100) * image @ text.t()
        labels = torch.arange(len(logits), device=logits.device)
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


def contrastive(place: Place) -> Made:
    n, d = place.size(384, 4096), place.size(256, 768)
    pair = place.randn(n, d).requires_grad_(), place.randn(n, d).requires_grad_()
    return InfoNCE().to(place.device), pair


def nt_xent(z: Tensor, temperature: float = 0.5) -> Tensor:
    """SimCLR's loss: 2n views, the partner of i is i + n; the diagonal is masked out in place."""
    z = F.normalize(z, dim=1)
    n = z.shape[0] // 2
    similarity = torch.mm(z, z.T) / temperature
    itself = torch.eye(2 * n, dtype=torch.bool, device=z.device)
    similarity.masked_fill_(itself, float("-inf"))
    partner = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(z.device)
    log_prob = similarity - torch.logsumexp(similarity, dim=1, keepdim=True)
    return -log_prob.gather(1, partner[:, None]).mean()


def simclr(place: Place) -> Made:
    return nt_xent, (place.randn(place.size(384, 4096), 128).requires_grad_(),)


class SpeechHead(nn.Module):
    """A projection to characters and the CTC loss of frames against transcripts."""

    def __init__(self, d: int, vocabulary: int) -> None:
        super().__init__()
        self.proj = nn.Linear(d, vocabulary)
        self.ctc = nn.CTCLoss(blank=0, zero_infinity=True)

    def forward(self, frames: Tensor, targets: Tensor, frame_lengths: Tensor, target_lengths: Tensor) -> Tensor:
        log_probs = F.log_softmax(self.proj(frames), dim=-1).transpose(0, 1)
        loss: Tensor = self.ctc(log_probs, targets, frame_lengths, target_lengths)
        return loss


def ctc(place: Place) -> Made:
    batch, frames, symbols = place.size(8, 64), place.size(100, 800), place.size(20, 120)
    targets = place.randint(31, batch, symbols) + 1
    lengths = torch.full((batch,), frames, device=place.device), torch.full((batch,), symbols, device=place.device)
    return SpeechHead(128, 32).to(place.device), (place.randn(batch, frames, 128), targets, *lengths)


def ppo_loss(
    logits: Tensor, values: Tensor, actions: Tensor, old_log_prob: Tensor, advantage: Tensor, returns: Tensor
) -> tuple[Tensor, Tensor]:
    """Schulman et al., 2017: the clipped objective, clipped values, an entropy bonus; and the approximate KL."""
    log_probs = logits - logits.logsumexp(-1, keepdim=True)
    log_prob = log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
    log_ratio = log_prob - old_log_prob
    ratio = log_ratio.exp()
    with torch.no_grad():
        approximate_kl = ((ratio - 1) - log_ratio).mean()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy = torch.max(-advantage * ratio, -advantage * torch.clamp(ratio, 0.8, 1.2)).mean()
    value = 0.5 * torch.max((values - returns) ** 2, (values.clamp(-1, 1) - returns) ** 2).mean()
    return policy - 0.01 * entropy + value * 0.5, approximate_kl


def ppo(place: Place) -> Made:
    n, actions = place.size(16_384, 1_000_000), 18
    return ppo_loss, (
        place.randn(n, actions).requires_grad_(),
        place.randn(n).requires_grad_(),
        place.randint(actions, n),
        -3 + 0.2 * place.randn(n),
        place.randn(n),
        place.randn(n),
    )


def distillation_loss(student: Tensor, teacher: Tensor, labels: Tensor, T: float = 4.0, alpha: float = 0.7) -> Tensor:
    """Hinton et al., 2015: softened KL to the teacher plus cross entropy with the labels."""
    soft = F.kl_div(F.log_softmax(student / T, dim=-1), F.softmax(teacher / T, dim=-1), reduction="batchmean")
    hard = F.cross_entropy(student, labels, ignore_index=-100)
    return alpha * T * T * soft + (1 - alpha) * hard


def distillation(place: Place) -> Made:
    n, classes = place.size(512, 4096), place.size(1000, 32_000)
    return distillation_loss, (
        place.randn(n, classes).requires_grad_(),
        place.randn(n, classes),
        place.randint(classes, n),
    )


class LabelSmoothing(nn.Module):
    """The Annotated Transformer's: a smoothed target distribution, scattered, with padding of no weight."""

    def __init__(self, size: int, padding: int = 0, smoothing: float = 0.1) -> None:
        super().__init__()
        self.size, self.padding, self.smoothing = size, padding, smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        log_p = x.log_softmax(-1)
        true = torch.zeros_like(log_p)
        true.fill_(self.smoothing / (self.size - 2))
        true.scatter_(1, target.unsqueeze(1), 1 - self.smoothing)
        true[:, self.padding] = 0
        true = true.masked_fill((target == self.padding).unsqueeze(1), 0.0)
        return (true * (true.clamp(min=1e-12).log() - log_p)).sum() / (target != self.padding).sum()


def label_smoothing(place: Place) -> Made:
    n, vocabulary = place.size(512, 8192), place.size(1500, 16_000)
    return LabelSmoothing(vocabulary), (place.randn(n, vocabulary).requires_grad_(), place.randint(vocabulary, n))


def dice_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Soft dice over classes, by one-hot labels, averaged over those that occur."""
    classes = logits.size(1)
    p = logits.softmax(1)
    one_hot = F.one_hot(labels, classes).permute(0, 3, 1, 2).to(logits.dtype)
    dims = (0, 2, 3)
    intersection = (p * one_hot).sum(dims)
    cardinality = (p + one_hot).sum(dims)
    score = (2 * intersection + 1.0) / (cardinality + 1.0)
    occurs = (one_hot.sum(dims) > 0).to(score.dtype)
    return ((1 - score) * occurs).mean()


def dice(place: Place) -> Made:
    n, side = place.size(2, 16), place.size(112, 512)
    return dice_loss, (place.randn(n, 8, side, side).requires_grad_(), place.randint(8, n, side, side))


def triplet_loss(x: Tensor, labels: Tensor, margin: float = 0.3) -> Tensor:
    """Hermans et al., 2017: batch-hard triplets, distances from the Gram matrix."""
    squared = x.pow(2).sum(1, keepdim=True)
    d2 = squared + squared.t() - 2 * x @ x.t()
    dist = d2.clamp(min=1e-12).sqrt()
    same = labels[:, None].eq(labels[None, :])
    hardest_positive = (dist * same).max(dim=1).values
    hardest_negative = dist.masked_fill(same, 1e9).min(dim=1).values
    return F.relu(hardest_positive - hardest_negative + margin).mean()


def triplet(place: Place) -> Made:
    n = place.size(512, 4096)
    return triplet_loss, (place.randn(n, 128).requires_grad_(), place.randint(n // 4, n))


def multiclass_hinge(scores: Tensor, labels: Tensor) -> Tensor:
    """CS231n's SVM loss, written with advanced indexing."""
    n = scores.shape[0]
    rows = torch.arange(n, device=scores.device)
    correct = scores[rows, labels].view(-1, 1)
    margins = torch.clamp(scores - correct + 1.0, min=0)
    margins[rows, labels] = 0
    return margins.sum(dim=1)


def hinge(place: Place) -> Made:
    n, classes = place.size(4096, 65_536), place.size(500, 1000)
    return multiclass_hinge, (place.randn(n, classes), place.randint(classes, n))


def quantile_huber(quantiles: Tensor, target: Tensor, kappa: float = 1.0) -> Tensor:
    """QR-DQN's loss: every quantile against every target quantile."""
    n = quantiles.shape[1]
    tau = (torch.arange(n, device=quantiles.device, dtype=quantiles.dtype) + 0.5) / n
    u = target[:, None, :] - quantiles[:, :, None]
    size = u.abs()
    huber = torch.where(size <= kappa, 0.5 * u.pow(2), kappa * (size - 0.5 * kappa))
    loss = (tau.view(1, n, 1) - (u.detach() < 0).to(u.dtype)).abs() * huber / kappa
    return loss.mean(2).sum(1).mean()


def quantile(place: Place) -> Made:
    batch, n = place.size(64, 512), place.size(51, 200)
    return quantile_huber, (place.randn(batch, n).requires_grad_(), place.randn(batch, n))


ROWS: tuple[Row, ...] = (
    Row("program/focal_loss", focal, "training"),
    Row("program/clip_infonce", contrastive, "training"),
    Row("program/simclr_nt_xent", simclr, "training"),
    Row("program/ctc", ctc, "training"),
    Row("program/ppo_clip", ppo, "training"),
    Row("program/kl_distillation", distillation, "training"),
    Row("program/label_smoothing", label_smoothing, "training"),
    Row("program/dice_loss", dice, "training"),
    Row("program/batch_hard_triplet", triplet, "training"),
    Row("program/multiclass_hinge", hinge),
    Row("program/quantile_huber", quantile, "training"),
)
