"""Communications: receivers, demappers, decoders, adaptive filters, arrays of antennas, tracking filters."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..row import Made, Place, Row


def ofdm_receiver(samples: Tensor, pilots: Tensor, every: int, prefix: int) -> tuple[Tensor, Tensor, Tensor]:
    """Prefix off, transform, least squares at pilots, linear interpolation, an MMSE equaliser, phase tracking."""
    signal = torch.view_as_complex(samples)
    symbols = torch.fft.fft(signal[..., prefix:], norm="ortho")
    carriers = symbols.size(-1)
    known = torch.view_as_complex(pilots)
    at_pilots = symbols[..., ::every] * known.conj() / known.abs().square()
    following = torch.cat([at_pilots[..., 1:], at_pilots[..., -1:]], dim=-1)
    part = torch.arange(every, device=samples.device, dtype=samples.dtype) / every
    channel = torch.lerp(at_pilots.real[..., None], following.real[..., None], part) + 1j * torch.lerp(
        at_pilots.imag[..., None], following.imag[..., None], part
    )
    channel = channel.flatten(-2)[..., :carriers]
    channel = channel.mean(dim=1, keepdim=True)
    noise = (at_pilots - channel[..., ::every]).abs().square().mean(dim=(1, 2), keepdim=True)
    equalised = symbols * channel.conj() / (channel.abs().square() + noise)
    drift = torch.angle((equalised[..., ::every] * known.conj()).sum(-1, keepdim=True))
    equalised = equalised * torch.polar(torch.ones_like(drift), -drift)
    ratio = 10 * torch.log10(channel.abs().square().mean((1, 2)) / noise.flatten())
    return torch.view_as_real(equalised), drift.squeeze(-1), ratio


def ofdm(place: Place) -> Made:
    batch, count, carriers, every = place.size(16, 256), 14, place.size(512, 2048), 8
    samples = place.randn(batch, count, carriers + carriers // 16, 2)
    pilots = (2.0 * place.randint(2, carriers // every, 2) - 1) / 2**0.5
    return ofdm_receiver, (samples, pilots, every, carriers // 16)


def soft_demapper(received: Tensor, noise: Tensor, points: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Exact log-likelihood ratios of square QAM's bits, hard decisions, and the mutual information they carry."""
    distance = (received[:, None, :] - points).square().sum(-1) / noise[:, None]
    metric = -distance
    ratios = []
    for bit in range(labels.size(1)):
        one = labels[:, bit] == 1
        zeros = metric.masked_fill(one, -torch.inf).logsumexp(dim=1)
        ones = metric.masked_fill(~one, -torch.inf).logsumexp(dim=1)
        ratios.append(zeros - ones)
    llr = torch.stack(ratios, dim=1)
    hard = labels[distance.argmin(1)]
    sign = 1.0 - 2.0 * hard
    information = 1 - torch.log2(1 + torch.exp(-sign * llr)).mean(0)
    return llr, information


def qam64(place: Place) -> Made:
    n = place.size(2000, 131_072)
    axis = torch.arange(8)
    gray = axis ^ (axis >> 1)
    bits = (gray[:, None] >> torch.arange(3)) & 1
    level = (2.0 * axis - 7) / 42**0.5
    points = torch.stack(torch.meshgrid(level, level, indexing="ij"), -1).view(-1, 2)
    labels = torch.cat([bits.repeat_interleave(8, 0), bits.repeat(8, 1)], dim=1)
    return soft_demapper, (
        place.randn(n, 2),
        0.05 + 0.1 * place.rand(n),
        points.to(place.device),
        labels.to(place.device),
    )


def ldpc_min_sum(llr: Tensor, check: Tensor, variable: Tensor, degree: int, rounds: int = 8) -> tuple[Tensor, Tensor]:
    """Normalised min-sum decoding: edges sorted by check, every check of one degree; bits and unsatisfied checks."""
    batch = llr.size(0)
    checks = check.size(0) // degree
    to_check = llr[:, variable]
    total = llr
    for _ in range(rounds):
        message = to_check.view(batch, checks, degree)
        sign = torch.where(message < 0, -1.0, 1.0)
        magnitude = message.abs()
        (least, second), where = magnitude.topk(2, dim=-1, largest=False)[0].unbind(-1), magnitude.argmin(-1)
        slot = torch.arange(degree, device=llr.device)
        others = torch.where(slot == where[..., None], second[..., None], least[..., None])
        from_check = (0.75 * sign.prod(-1, keepdim=True) * sign * others).view(batch, -1)
        total = llr.index_add(1, variable, from_check)
        to_check = (total[:, variable] - from_check).clamp(-20, 20)
    bits = total < 0
    parity = bits[:, variable].view(batch, checks, degree).sum(-1) % 2
    return total, parity.sum(-1)


def ldpc(place: Place) -> Made:
    batch, n, degree = place.size(16, 512), place.size(512, 2048), 6
    variable = torch.stack([torch.randperm(n) for _ in range(3)]).flatten()
    check = torch.arange(variable.numel() // degree * degree) // degree
    variable = variable[: check.numel()]
    llr = (place.randint(1 << 12, batch, n) - 1024 + 0.5) / 512
    return ldpc_min_sum, (llr, check.to(place.device), variable.to(place.device), degree)


def echo_canceller(far: Tensor, near: Tensor, taps: int = 32, mu: float = 0.5) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised least mean squares, sample by sample, many channels: what is left, the filter, the echo's loss."""
    channels, length = near.shape
    weights = far.new_zeros(channels, taps)
    buffer = far.new_zeros(channels, taps)
    errors = []
    for t in range(length):
        buffer = torch.cat([far[:, t : t + 1], buffer[:, :-1]], dim=1)
        estimate = (weights * buffer).sum(1)
        error = near[:, t] - estimate
        power = buffer.square().sum(1) + 1e-3
        weights = weights + mu * (error / power)[:, None] * buffer
        errors.append(error)
    residual = torch.stack(errors, dim=1)
    tail = length // 2
    loss = 10 * torch.log10(near[:, tail:].square().mean(1) / residual[:, tail:].square().mean(1))
    return residual, weights, loss


def echo(place: Place) -> Made:
    channels, length = place.size(64, 4096), place.size(96, 128)
    far = place.randn(channels, length)
    path = 0.8 ** torch.arange(8, device=place.device) * place.randn(1, 8)
    near = F.conv1d(F.pad(far[:, None], (7, 0)), path.flip(-1)[None]).squeeze(1) + 0.05 * place.randn(channels, length)
    return echo_canceller, (far, near)


def minimum_variance(snapshots: Tensor, spacing: float = 0.5, angles: int = 181) -> tuple[Tensor, Tensor]:
    """Capon's beamformer on a line of antennas, loaded diagonally: the spatial spectrum, and the beam at its peak."""
    x = torch.view_as_complex(snapshots)
    batch, sensors, count = x.shape
    covariance = x @ x.mH / count
    load = 0.01 * covariance.diagonal(dim1=-2, dim2=-1).real.mean(-1)
    eye = torch.eye(sensors, dtype=x.real.dtype, device=x.device)
    covariance = covariance + load[:, None, None] * eye
    theta = torch.linspace(-math.pi / 2, math.pi / 2, angles, dtype=x.real.dtype, device=x.device)
    phase = 2 * math.pi * spacing * torch.arange(sensors, device=x.device)[:, None] * torch.sin(theta)
    steering = torch.polar(torch.ones_like(phase), phase)
    solved = torch.linalg.solve(covariance, steering.expand(batch, -1, -1))
    power = 1 / (steering.conj() * solved).sum(1).real
    peak = power.argmax(-1)
    chosen = solved.gather(2, peak[:, None, None].expand(-1, sensors, 1)).squeeze(-1)
    weights = chosen * power.gather(1, peak[:, None])
    beam = (weights.conj()[:, None] @ x).squeeze(1)
    return 10 * torch.log10(power / power.amax(-1, keepdim=True)), beam.abs().square().mean(-1)


def beamforming(place: Place) -> Made:
    batch, sensors, count = place.size(64, 512), place.size(8, 16), place.size(128, 512)
    angle = (place.randint(16, batch, 1, 1) + 0.5) / 16 - 0.5
    phase = math.pi * torch.arange(sensors, device=place.device)[:, None] * torch.sin(angle)
    source = place.randn(batch, 1, count)
    signal = torch.stack([phase.cos() * source, phase.sin() * source], -1)
    return minimum_variance, (signal + 0.3 * place.randn(batch, sensors, count, 2),)


def unscented_filter(mean: Tensor, covariance: Tensor, measured: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sigma points of a turning target seen by range and bearing, many targets; states, covariances, likelihoods."""
    n = mean.size(-1)
    alpha, kappa, beta, dt = 0.5, 1.0, 2.0, 0.5
    lam = alpha**2 * (n + kappa) - n
    w_mean = mean.new_full((2 * n + 1,), 1 / (2 * (n + lam)))
    w_cov = w_mean.clone()
    w_mean[0] = lam / (n + lam)
    w_cov[0] = lam / (n + lam) + 1 - alpha**2 + beta
    process = torch.diag(mean.new_tensor([0.01, 0.01, 0.05, 0.05, 0.001]))
    noise = torch.diag(mean.new_tensor([0.1, 0.01]))
    states, likelihood = [], mean.new_zeros(mean.size(0))

    def points(m: Tensor, p: Tensor) -> Tensor:
        root = torch.linalg.cholesky((n + lam) * p).mT
        return torch.cat([m[:, None], m[:, None] + root, m[:, None] - root], dim=1)

    for t in range(measured.size(1)):
        x, y, vx, vy, turn = points(mean, covariance).unbind(-1)
        safe = torch.where(turn.abs() < 1e-4, 1e-4, turn)
        s, c = torch.sin(safe * dt), torch.cos(safe * dt)
        moved = torch.stack(
            [
                x + (vx * s - vy * (1 - c)) / safe,
                y + (vx * (1 - c) + vy * s) / safe,
                vx * c - vy * s,
                vx * s + vy * c,
                turn,
            ],
            -1,
        )
        mean = torch.einsum("s,bsn->bn", w_mean, moved)
        away = moved - mean[:, None]
        covariance = torch.einsum("s,bsi,bsj->bij", w_cov, away, away) + process
        sigma = points(mean, covariance)
        seen = torch.stack([sigma[..., :2].norm(dim=-1), torch.atan2(sigma[..., 1], sigma[..., 0])], -1)
        expected = torch.einsum("s,bsn->bn", w_mean, seen)
        off = seen - expected[:, None]
        innovation = torch.einsum("s,bsi,bsj->bij", w_cov, off, off) + noise
        across = torch.einsum("s,bsi,bsj->bij", w_cov, sigma - mean[:, None], off)
        gain = torch.linalg.solve(innovation, across.mT).mT
        surprise = measured[:, t] - expected
        surprise[:, 1] = torch.remainder(surprise[:, 1] + math.pi, 2 * math.pi) - math.pi
        mean = mean + torch.einsum("bij,bj->bi", gain, surprise)
        covariance = covariance - gain @ innovation @ gain.mT
        covariance = 0.5 * (covariance + covariance.mT)
        whitened = torch.linalg.solve(innovation, surprise[..., None]).squeeze(-1)
        likelihood = likelihood - 0.5 * ((surprise * whitened).sum(-1) + torch.logdet(innovation))
        states.append(mean)
    return torch.stack(states, 1), covariance, likelihood


def turning_targets(place: Place) -> Made:
    batch, steps = place.size(64, 4096), place.size(6, 8)
    mean = torch.cat([10 + place.rand(batch, 2), place.randn(batch, 2), 0.1 * place.randn(batch, 1)], dim=1)
    covariance = 0.5 * torch.eye(5, device=place.device).repeat(batch, 1, 1)
    measured = torch.stack([15 + place.randn(batch, steps), 0.78 + 0.1 * place.randn(batch, steps)], dim=-1)
    return unscented_filter, (mean, covariance, measured)


ROWS: tuple[Row, ...] = (
    Row("program/ofdm_receiver", ofdm),
    Row("program/qam_soft_demapper", qam64),
    Row("program/ldpc_min_sum", ldpc),
    Row("program/nlms_echo_canceller", echo),
    Row("program/capon_beamformer", beamforming),
    Row("program/unscented_kalman_filter", turning_targets),
)
