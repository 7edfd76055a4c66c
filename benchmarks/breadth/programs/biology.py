"""Proteins, genomes, cells and medical images."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class TriangleMultiplication(nn.Module):
    """AlphaFold's update of pairs from the outgoing edges of every triangle."""

    def __init__(self, c: int, hidden: int) -> None:
        super().__init__()
        self.norm_in, self.norm_out = nn.LayerNorm(c), nn.LayerNorm(hidden)
        self.a, self.a_gate = nn.Linear(c, hidden), nn.Linear(c, hidden)
        self.b, self.b_gate = nn.Linear(c, hidden), nn.Linear(c, hidden)
        self.gate, self.out = nn.Linear(c, c), nn.Linear(hidden, c)

    def forward(self, z: Tensor, mask: Tensor) -> Tensor:
        mask = mask.unsqueeze(-1)
        x = self.norm_in(z)
        a = mask * self.a(x) * torch.sigmoid(self.a_gate(x))
        b = mask * self.b(x) * torch.sigmoid(self.b_gate(x))
        p = torch.matmul(a.permute(2, 0, 1), b.permute(2, 1, 0)).permute(1, 2, 0)
        return z + self.out(self.norm_out(p)) * self.gate(x).sigmoid()


def triangle(place: Place) -> Made:
    n, c = place.size(64, 384), place.size(64, 128)
    present = (place.rand(n) > 0.1).to(torch.float32)
    return TriangleMultiplication(c, c).to(place.device), (place.randn(n, n, c), present[:, None] * present[None, :])


class OuterProductMean(nn.Module):
    """From an alignment's columns to pairs of residues: outer products, averaged over sequences."""

    def __init__(self, c_m: int, c_z: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(c_m)
        self.left, self.right = nn.Linear(c_m, hidden), nn.Linear(c_m, hidden)
        self.out = nn.Linear(hidden * hidden, c_z)

    def forward(self, m: Tensor, mask: Tensor) -> Tensor:
        m = self.norm(m)
        left = self.left(m) * mask[..., None]
        right = self.right(m) * mask[..., None]
        outer = torch.einsum("sic,sjd->ijcd", left, right)
        norm = torch.einsum("si,sj->ij", mask, mask)
        return self.out(outer.flatten(-2)) / (1e-3 + norm[..., None])


def outer_product_mean(place: Place) -> Made:
    s, n, c, hidden = place.size(24, 128), place.size(48, 192), place.size(32, 64), place.size(16, 32)
    mask = (place.rand(s, n) > 0.15).to(torch.float32)
    return OuterProductMean(c, c, hidden).to(place.device), (place.randn(s, n, c), mask)


def gram_schmidt(x: Tensor) -> Tensor:
    """Rotations from six numbers."""
    a, b = x[..., :3], x[..., 3:]
    e1 = a / (a.norm(dim=-1, keepdim=True) + 1e-8)
    b = b - (e1 * b).sum(-1, keepdim=True) * e1
    e2 = b / (b.norm(dim=-1, keepdim=True) + 1e-8)
    return torch.stack([e1, e2, torch.linalg.cross(e1, e2)], dim=-1)


class InvariantPointAttention(nn.Module):
    """Attention by features, by pairs, and by distances of points that each residue's frame carries."""

    def __init__(self, c_s: int, c_z: int, heads: int, c: int = 16, q_points: int = 4, v_points: int = 8) -> None:
        super().__init__()
        self.heads, self.c, self.q_points, self.v_points = heads, c, q_points, v_points
        self.q, self.kv = nn.Linear(c_s, heads * c), nn.Linear(c_s, 2 * heads * c)
        self.q_pts = nn.Linear(c_s, heads * q_points * 3)
        self.kv_pts = nn.Linear(c_s, heads * (q_points + v_points) * 3)
        self.bias = nn.Linear(c_z, heads)
        self.head_weights = nn.Parameter(torch.full((heads,), 0.541))
        self.out = nn.Linear(heads * (c + c_z + v_points * 4), c_s)

    def place_points(self, flat: Tensor, rotation: Tensor, translation: Tensor) -> Tensor:
        points = torch.stack(flat.chunk(3, dim=-1), dim=-1)
        points = torch.einsum("nij,npj->npi", rotation, points) + translation[:, None]
        return points.view(points.size(0), self.heads, -1, 3)

    def forward(self, s: Tensor, z: Tensor, frames: Tensor, translation: Tensor) -> Tensor:
        n = s.size(0)
        rotation = gram_schmidt(frames)
        q = self.q(s).view(n, self.heads, self.c)
        k, v = self.kv(s).view(n, self.heads, 2 * self.c).split(self.c, dim=-1)
        q_pts = self.place_points(self.q_pts(s), rotation, translation)
        kv_pts = self.place_points(self.kv_pts(s), rotation, translation)
        k_pts, v_pts = torch.split(kv_pts, [self.q_points, self.v_points], dim=-2)

        logits = torch.einsum("ihc,jhc->ijh", q, k) * math.sqrt(1 / (3 * self.c))
        logits = logits + math.sqrt(1 / 3) * self.bias(z)
        distance = (q_pts.unsqueeze(1) - k_pts.unsqueeze(0)).pow(2).sum(-1)
        weight = F.softplus(self.head_weights) * math.sqrt(1 / (3 * (self.q_points * 9 / 2)))
        logits = logits - 0.5 * weight * distance.sum(-1)
        a = torch.softmax(logits, dim=1)

        o = torch.einsum("ijh,jhc->ihc", a, v)
        o_pts = torch.einsum("ijh,jhpx->ihpx", a, v_pts)
        o_pts = torch.einsum("nji,nhpj->nhpi", rotation, o_pts - translation[:, None, None])
        o_norm = torch.sqrt(o_pts.pow(2).sum(-1) + 1e-8)
        o_pair = torch.einsum("ijh,ijc->ihc", a, z)
        features = [o.flatten(1), o_pts.flatten(1), o_norm.flatten(1), o_pair.flatten(1)]
        return s + self.out(torch.cat(features, dim=-1))


def invariant_point_attention(place: Place) -> Made:
    n, c_s, c_z, heads = place.size(112, 384), place.size(64, 384), place.size(32, 128), place.size(4, 12)
    return InvariantPointAttention(c_s, c_z, heads).to(place.device), (
        place.randn(n, c_s),
        place.randn(n, n, c_z),
        place.randn(n, 6),
        3 * place.randn(n, 3),
    )


def fape(
    frames: Tensor, origins: Tensor, points: Tensor, true_frames: Tensor, true_points: Tensor, mask: Tensor
) -> Tensor:
    """Frame-aligned point error: all points as every residue's frame sees them, clamped at ten angstroms."""
    rotation, true_rotation = gram_schmidt(frames), gram_schmidt(true_frames)
    local = torch.matmul(points[None] - origins[:, None], rotation)
    true_local = torch.matmul(true_points[None] - origins.detach()[:, None], true_rotation)
    distance = torch.sqrt(((local - true_local) ** 2).sum(-1) + 1e-4)
    error = distance.clamp(max=10.0) / 10.0
    return (error * mask).sum() / (frames.size(0) * mask.sum() + 1e-4)


def frame_aligned(place: Place) -> Made:
    n, points = place.size(128, 768), place.size(768, 6144)
    true_frames, true_points = place.randn(n, 6), 8 * place.randn(points, 3)
    return fape, (
        (true_frames + 0.3 * place.randn(n, 6)).requires_grad_(),
        place.randn(n, 3).requires_grad_(),
        (true_points + place.randn(points, 3)).requires_grad_(),
        true_frames,
        true_points,
        (place.rand(points) > 0.1).to(torch.float32),
    )


def smooth_lddt(predicted: Tensor, true: Tensor, nucleotide: Tensor, present: Tensor) -> Tensor:
    """AlphaFold 3's differentiable lDDT: local distances, four thresholds softened by sigmoids."""
    d_pred = (predicted[:, :, None, :] - predicted[:, None, :, :]).square().sum(-1).add(1e-8).sqrt()
    d_true = (true[:, :, None, :] - true[:, None, :, :]).norm(dim=-1)
    difference = (d_true - d_pred).abs()
    score = torch.zeros_like(difference)
    for threshold in (0.5, 1.0, 2.0, 4.0):
        score += torch.sigmoid(threshold - difference)
    score = score / 4
    near = torch.where(nucleotide[:, :, None], d_true < 30, d_true < 15)
    near = near & present[:, :, None] & present[:, None, :]
    near = near & ~torch.eye(true.size(1), dtype=torch.bool, device=true.device)
    weight = near.to(score.dtype)
    return 1 - (score * weight).sum((1, 2)) / weight.sum((1, 2)).clamp(min=1)


def lddt(place: Place) -> Made:
    b, n = place.size(1, 4), place.size(320, 2048)
    true = 12 * place.randn(b, n, 3)
    predicted = (true + place.randn(b, n, 3)).requires_grad_()
    return smooth_lddt, (predicted, true, place.rand(b, n) > 0.7, place.rand(b, n) > 0.05)


class ZINBDecoder(nn.Module):
    """scVI's decoder: the zero-inflated negative binomial likelihood of counts by cell and gene."""

    def __init__(self, latent: int, hidden: int, genes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(latent, hidden), nn.LayerNorm(hidden), nn.ReLU())
        self.scale, self.dropout = nn.Linear(hidden, genes), nn.Linear(hidden, genes)
        self.log_theta = nn.Parameter(torch.randn(genes))

    def forward(self, z: Tensor, x: Tensor, eps: float = 1e-8) -> Tensor:
        h = self.body(z)
        library = torch.log(x.sum(1, keepdim=True) + 1)
        mu = torch.exp(library) * self.scale(h).softmax(dim=-1)
        pi = self.dropout(h)
        theta = self.log_theta.exp()
        softplus_pi = F.softplus(-pi)
        log_theta_mu = torch.log(theta + mu + eps)
        pi_theta = -pi + theta * (torch.log(theta + eps) - log_theta_mu)
        zero = F.softplus(pi_theta) - softplus_pi
        other = (
            -softplus_pi
            + pi_theta
            + x * (torch.log(mu + eps) - log_theta_mu)
            + torch.lgamma(x + theta)
            - torch.lgamma(theta)
            - torch.lgamma(x + 1)
        )
        log_likelihood = torch.mul((x < eps).type(x.dtype), zero) + torch.mul((x > eps).type(x.dtype), other)
        return -log_likelihood.sum(-1)


def zinb(place: Place) -> Made:
    cells, genes = place.size(64, 4096), place.size(400, 4000)
    counts = (place.rand(cells, genes) * 6 - 3).clamp(min=0).ceil()
    return ZINBDecoder(10, 128, genes).to(place.device), (place.randn(cells, 10), counts)


def felsenstein(tips: Tensor, branches: list[Tensor], kappa: Tensor, rates: Tensor) -> Tensor:
    """The log-likelihood of each site on a balanced tree: Kimura's model, rate categories, rescaled partials."""
    partial = tips.unsqueeze(0).expand(rates.size(0), -1, -1, -1)
    scale = torch.zeros_like(tips[0, :, 0])
    transition = [[False, False, True, False], [False, False, False, True], [True, False, False, False]]
    transition = transition + [[False, True, False, False]]
    is_transition = torch.tensor(transition, device=tips.device)
    same = torch.eye(4, dtype=torch.bool, device=tips.device)
    for lengths in branches:
        d = rates[:, None] * lengths[None, :]
        slow = torch.exp(-4 * d / (kappa + 2))
        fast = torch.exp(-2 * d * (kappa + 1) / (kappa + 2))
        p_same, p_transition = 0.25 + 0.25 * slow + 0.5 * fast, 0.25 + 0.25 * slow - 0.5 * fast
        p_other = 0.25 - 0.25 * slow
        p = torch.where(same, p_same[..., None, None], p_other[..., None, None])
        p = torch.where(is_transition, p_transition[..., None, None], p)
        up = torch.einsum("kbij,kbsj->kbsi", p, partial)
        partial = up[:, 0::2] * up[:, 1::2]
        largest = partial.amax(dim=(0, 3), keepdim=True)
        partial = partial / largest
        scale = scale + largest.log().sum(1).view(-1)
    return torch.log(partial.mean((1, 3)).mean(0)) + scale


def phylogeny(place: Place) -> Made:
    leaves, sites = place.size(16, 64), place.size(2048, 16_384)
    tips = F.one_hot(place.randint(4, leaves, sites), 4).to(torch.float32)
    branches = []
    nodes = leaves
    while nodes > 1:
        branches.append(0.02 + 0.2 * place.rand(nodes))
        nodes //= 2
    rates = torch.tensor([0.137, 0.477, 1.0, 2.386], device=place.device)
    return felsenstein, (tips, branches, torch.tensor(2.5, device=place.device), rates)


def nussinov(bases: Tensor, scores: Tensor, loop: int = 3) -> Tensor:
    """The best score of a nested RNA structure, filled span by span; every diagonal at once."""
    b, n = bases.shape
    pair = scores[bases[:, :, None], bases[:, None, :]]
    best = torch.zeros(b, n + 1, n + 1, dtype=scores.dtype, device=scores.device)
    for span in range(loop + 1, n):
        i = torch.arange(n - span, device=bases.device)
        j = i + span
        value = torch.maximum(best[:, i + 1, j], best[:, i, j - 1])
        value = torch.maximum(value, best[:, i + 1, j - 1] + pair[:, i, j])
        k = torch.arange(1, span, device=bases.device)
        left = best[:, i[:, None], i[:, None] + k]
        right = best[:, i[:, None] + k + 1, j[:, None]]
        value = torch.maximum(value, (left + right).amax(-1))
        best[:, i, j] = value
    return best[:, 0, n - 1]


def rna(place: Place) -> Made:
    b, n = place.size(64, 2048), place.size(28, 40)
    scores = torch.zeros(4, 4)
    scores[0, 3] = scores[3, 0] = 2.0
    scores[1, 2] = scores[2, 1] = 3.0
    scores[2, 3] = scores[3, 2] = 1.0
    return nussinov, (place.randint(4, b, n), scores.to(place.device))


class SpliceUnit(nn.Module):
    """A residual unit of two dilated convolutions, normalised before."""

    def __init__(self, channels: int, width: int, dilation: int) -> None:
        super().__init__()
        padding = dilation * (width - 1) // 2
        self.bn1, self.bn2 = nn.BatchNorm1d(channels), nn.BatchNorm1d(channels)
        self.conv1 = nn.Conv1d(channels, channels, width, dilation=dilation, padding=padding, bias=False)
        self.conv2 = nn.Conv1d(channels, channels, width, dilation=dilation, padding=padding)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(F.relu(self.bn1(x)))
        return x + self.conv2(F.relu(self.bn2(y)))


class SpliceNet(nn.Module):
    """SpliceAI in small: dilated units on one-hot DNA, skips, context cropped, a loss weighted by class."""

    weights: Tensor

    def __init__(self, channels: int, context: int) -> None:
        super().__init__()
        self.context = context
        self.stem, self.skip = nn.Conv1d(4, channels, 1), nn.Conv1d(channels, channels, 1)
        self.units = nn.ModuleList([SpliceUnit(channels, 11, dilation) for dilation in (1, 4, 10)])
        self.skips = nn.ModuleList([nn.Conv1d(channels, channels, 1) for _ in self.units])
        self.head = nn.Conv1d(channels, 3, 1)
        self.register_buffer("weights", torch.tensor([0.1, 1.0, 1.0]))

    def forward(self, dna: Tensor, labels: Tensor) -> Tensor:
        x = self.stem(F.one_hot(dna, 4).transpose(1, 2).to(self.weights.dtype))
        total = self.skip(x)
        for unit, skip in zip(self.units, self.skips, strict=True):
            x = unit(x)
            total += skip(x)
        logits = self.head(total[..., self.context : -self.context])
        return F.cross_entropy(logits, labels[:, self.context : -self.context], weight=self.weights)


def splice(place: Place) -> Made:
    b, n, channels = place.size(2, 16), place.size(400, 8000), place.size(16, 32)
    labels = (place.rand(b, n) * 1.1).long() + (place.rand(b, n) * 1.1).long()
    return SpliceNet(channels, 50).to(place.device), (place.randint(4, b, n), labels)


def fft2c(x: Tensor) -> Tensor:
    """Centred, orthonormal."""
    return torch.fft.fftshift(torch.fft.fft2(torch.fft.ifftshift(x, dim=(-2, -1)), norm="ortho"), dim=(-2, -1))


def ifft2c(x: Tensor) -> Tensor:
    return torch.fft.fftshift(torch.fft.ifft2(torch.fft.ifftshift(x, dim=(-2, -1)), norm="ortho"), dim=(-2, -1))


def sense_reconstruction(kspace: Tensor, maps: Tensor, mask: Tensor, threshold: float = 0.01) -> Tensor:
    """Parallel MRI: gradient steps to the measured k-space over coils, a soft threshold, momentum."""
    measured = torch.view_as_complex(kspace) * mask
    sensitivity = torch.view_as_complex(maps)
    sensitivity = sensitivity / (sensitivity.abs().square().sum(0, keepdim=True).sqrt() + 1e-6)
    image = (sensitivity.conj() * ifft2c(measured)).sum(0)
    previous = image
    for step in range(3):
        ahead = image + step / (step + 3) * (image - previous)
        residual = mask * fft2c(sensitivity * ahead) - measured
        update = ahead - (sensitivity.conj() * ifft2c(residual)).sum(0)
        magnitude = update.abs()
        previous, image = image, update * (F.relu(magnitude - threshold) / (magnitude + 1e-8))
    return image.abs()


def mri(place: Place) -> Made:
    coils, n = place.size(4, 16), place.size(128, 512)
    mask = place.rand(1, n) < 0.3
    mask[:, n // 2 - 8 : n // 2 + 8] = True
    return sense_reconstruction, (
        place.randn(coils, n, n, 2),
        1 + 0.3 * place.randn(coils, n, n, 2),
        mask.to(torch.float32),
    )


class Registration(nn.Module):
    """VoxelMorph's objective in the plane: warp by a flow, local cross-correlation, a smooth flow."""

    def __init__(self, window: int = 9, scale: int = 8) -> None:
        super().__init__()
        self.window, self.scale = window, scale

    def local(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, self.window, stride=1, padding=self.window // 2)

    def forward(self, moving: Tensor, fixed: Tensor, coarse: Tensor) -> tuple[Tensor, Tensor]:
        h, w = fixed.shape[2:]
        flow = self.scale * F.interpolate(coarse, scale_factor=self.scale, mode="bilinear", align_corners=True)
        vectors = [torch.arange(0, size, device=flow.device, dtype=flow.dtype) for size in (h, w)]
        grid = torch.stack(torch.meshgrid(vectors, indexing="ij")).unsqueeze(0) + flow
        y = 2 * (grid[:, 0] / (h - 1) - 0.5)
        x = 2 * (grid[:, 1] / (w - 1) - 0.5)
        warped = F.grid_sample(moving, torch.stack((x, y), dim=-1), align_corners=True, padding_mode="border")

        i_mean, j_mean = self.local(fixed), self.local(warped)
        cross = self.local(fixed * warped) - i_mean * j_mean
        i_var = self.local(fixed * fixed) - i_mean * i_mean
        j_var = self.local(warped * warped) - j_mean * j_mean
        ncc = cross * cross / (i_var * j_var + 1e-5)

        dy = (flow[:, :, 1:] - flow[:, :, :-1]).square().mean()
        dx = (flow[:, :, :, 1:] - flow[:, :, :, :-1]).square().mean()
        return 1 - ncc.mean(), 0.05 * (dx + dy)


def registration(place: Place) -> Made:
    b, n = place.size(1, 4), place.size(128, 768)
    moving = F.interpolate(place.rand(b, 1, n // 16, n // 16), scale_factor=16, mode="bicubic")
    fixed = (moving.roll(3, 2) + 0.1 * place.rand(b, 1, n, n)).clamp(0, 1)
    return Registration().to(place.device), (moving, fixed, (0.5 * place.randn(b, 2, n // 8, n // 8)).requires_grad_())


ROWS: tuple[Row, ...] = (
    Row("program/triangle_multiplication", triangle, dtype=torch.bfloat16),
    Row("program/outer_product_mean", outer_product_mean, "training"),
    Row("program/invariant_point_attention", invariant_point_attention),
    Row("program/frame_aligned_point_error", frame_aligned, "training"),
    Row("program/smooth_lddt", lddt, "training"),
    Row("program/zinb_counts", zinb, "training"),
    Row("program/felsenstein_pruning", phylogeny),
    Row("program/nussinov_folding", rna),
    Row("program/splice_sites", splice, "training"),
    Row("program/sense_reconstruction", mri),
    Row("program/ncc_registration", registration, "training"),
)
