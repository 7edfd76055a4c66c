"""Video: prediction inside frames, edges of blocks, fields, scenes, backgrounds, tracks, steadying, learnt motion."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def intra_modes(frame: Tensor, side: int, step: int) -> tuple[Tensor, Tensor, Tensor]:
    """H.264's prediction of blocks from their borders: five modes judged by Hadamard's sums, residuals quantised."""
    b, h, w = frame.shape
    x = F.pad(frame, (1, 0, 1, 0), value=128)
    blocks = frame.unfold(1, side, side).unfold(2, side, side)
    rows, columns = torch.arange(0, h, side, device=frame.device), torch.arange(0, w, side, device=frame.device)
    lane = torch.arange(side, device=frame.device)
    top = x[:, rows[:, None, None], columns[None, :, None] + lane + 1]
    left = x[:, rows[:, None, None] + lane + 1, columns[None, :, None]]
    corner = x[:, rows[:, None], columns[None]]
    mean = (top.sum(-1) + left.sum(-1) + side) // (2 * side)
    slope_x = ((lane + 1) * (top - top.flip(-1))).sum(-1) // (2 * side)
    slope_y = ((lane + 1) * (left - left.flip(-1))).sum(-1) // (2 * side)
    middle = (top[..., -1] + left[..., -1] + 1) // 2
    centre = lane - side // 2
    plane = (
        middle[..., None, None]
        + (slope_x[..., None, None] * centre + slope_y[..., None, None] * centre[:, None]) // side
    )
    edge = torch.cat([left.flip(-1), corner[..., None], top], -1)
    smooth = (edge[..., :-2] + 2 * edge[..., 1:-1] + edge[..., 2:] + 2) // 4
    diagonal = smooth[..., lane - lane[:, None] + side - 1]
    modes = [
        mean[..., None, None].expand_as(blocks),
        top[..., None, :].expand_as(blocks),
        left[..., None].expand_as(blocks),
    ]
    guesses = torch.stack([*modes, plane.clamp(0, 255), diagonal], 3)
    residual = blocks[:, :, :, None] - guesses
    t = residual
    for axis in (-1, -2):
        width = 1
        while width < side:
            y = t.unflatten(axis, (-1, 2, width))
            i = axis - 1
            first, second = y.select(i, 0), y.select(i, 1)
            t = torch.stack([first + second, first - second], i).flatten(i - 1, i + 1)
            width *= 2
    cost = t.abs().sum((-2, -1)) + 4 * torch.arange(5, device=frame.device)
    least, mode = cost.min(3)
    pick = mode[..., None, None, None].expand(-1, -1, -1, 1, side, side)
    chosen = residual.gather(3, pick).squeeze(3)
    level = torch.sign(chosen) * ((chosen.abs() + step // 3) // step)
    back = (guesses.gather(3, pick).squeeze(3) + level * step).clamp(0, 255)
    return mode, least, back.transpose(2, 3).reshape(b, h, w)


def modes(place: Place) -> Made:
    b, n = place.size(1, 4), place.size(128, 1024)
    frame = (F.avg_pool2d(place.rand(b, 1, n + 4, n + 4), 5, stride=1)[:, 0] * 500 - 120).clamp(0, 255)
    return intra_modes, (frame.int(), 4, 8)


def deblocked(frame: Tensor, strength: Tensor, alpha: int, beta: int) -> tuple[Tensor, Tensor]:
    """H.264's filter along edges of eight pixels, in place: flat sides are clipped towards one another, or blended."""

    def edges(x: Tensor, s: Tensor) -> Tensor:
        n = s.size(2)
        p2, p1, p0, q0, q1, q2 = (x[:, :, 8 + k :: 8][:, :, :n] for k in range(-3, 3))
        on = (s > 0) & ((p0 - q0).abs() < alpha) & ((p1 - p0).abs() < beta) & ((q1 - q0).abs() < beta)
        flat_p, flat_q = (p2 - p0).abs() < beta, (q2 - q0).abs() < beta
        c = 1 + s + flat_p.int() + flat_q.int()
        delta = torch.maximum(torch.minimum(((q0 - p0) * 4 + (p1 - q1) + 4) >> 3, c), -c)
        strong = on & (s == 4) & ((p0 - q0).abs() < (alpha >> 2) + 2)
        weak = on & ~strong
        new_p0 = torch.where(
            strong & flat_p, (p2 + 2 * p1 + 2 * p0 + 2 * q0 + q1 + 4) >> 3, torch.where(weak, p0 + delta, p0)
        )
        new_q0 = torch.where(
            strong & flat_q, (q2 + 2 * q1 + 2 * q0 + 2 * p0 + p1 + 4) >> 3, torch.where(weak, q0 - delta, q0)
        )
        new_p1 = torch.where(strong & flat_p, (p2 + p1 + p0 + q0 + 2) >> 2, p1)
        new_q1 = torch.where(strong & flat_q, (q2 + q1 + q0 + p0 + 2) >> 2, q1)
        count = on.sum((1, 2))
        for k, z in zip((-2, -1, 0, 1), (new_p1, new_p0, new_q0, new_q1), strict=True):
            x[:, :, 8 + k :: 8][:, :, :n] = z.clamp(0, 255)
        return count

    out = frame.clone()
    vertical = edges(out, strength[0].repeat_interleave(8, 1))
    horizontal = edges(out.transpose(1, 2), strength[1].repeat_interleave(8, 1))
    return out, torch.stack([vertical, horizontal, (out != frame).sum((1, 2))], 1)


def block_edges(place: Place) -> Made:
    b, n = place.size(2, 16), place.size(256, 1024)
    steps = F.interpolate(place.rand(b, 1, n // 8, n // 8) * 24, scale_factor=8)[:, 0]
    frame = (100 + steps + 6 * place.rand(b, n, n)).int()
    return deblocked, (frame, place.randint(5, 2, b, n // 8, n // 8 - 1).int(), 30, 9)


def deinterlaced(fields: Tensor, keep: float) -> tuple[Tensor, Tensor]:
    """Missing lines along the best of five edges, held within what fields before and after allow (as Yadif does)."""
    before, now, after = fields[:, :-2], fields[:, 1:-1], fields[:, 2:]
    up, down = F.pad(now, (3, 3, 0, 0), mode="replicate"), F.pad(now.roll(-1, 2), (3, 3, 0, 0), mode="replicate")
    w = now.size(3)
    best, line = torch.full_like(now, 1e9), torch.zeros_like(now)
    for shift in (0, -1, 1, -2, 2):
        score = torch.full_like(now, 0.5 * abs(shift))
        for k in (-1, 0, 1):
            score = (
                score
                + (up[..., 3 + shift + k : 3 + shift + k + w] - down[..., 3 - shift + k : 3 - shift + k + w]).abs()
            )
        guess = 0.5 * (up[..., 3 + shift : 3 + shift + w] + down[..., 3 - shift : 3 - shift + w])
        better = score < best
        best, line = torch.where(better, score, best), torch.where(better, guess, line)
    still = 0.5 * (before + after)
    differ = torch.stack([(before - after).abs() / 2, (now - still).abs() / 4, (now.roll(-1, 2) - still).abs() / 4])
    most = keep + differ.amax(0)
    line = torch.maximum(torch.minimum(line, still + most), still - most)
    frames = torch.stack([now, line], 3).flatten(2, 3)
    comb = (frames[:, :, 1:-1] - 0.5 * (frames[:, :, :-2] + frames[:, :, 2:])).abs()
    return frames, (comb > 20).to(frames.dtype).mean((2, 3))


def fields_of_video(place: Place) -> Made:
    b, t, h, w = place.size(1, 2), place.size(4, 10), place.size(96, 256), place.size(160, 1024)
    return deinterlaced, (place.randint(256, b, t, h, w).float(), 2.0)


def scenes(frames: Tensor, bins: int) -> tuple[Tensor, ...]:
    """Cuts between shots: histograms of colours, distances beyond a local mean, shots numbered, a frame for each."""
    b, t, _, h, w = frames.shape
    level = (frames * bins).long().clamp(max=bins - 1)
    code = (level[:, :, 0] * bins + level[:, :, 1]) * bins + level[:, :, 2]
    count = torch.zeros(b, t, bins**3, dtype=frames.dtype, device=frames.device)
    count.scatter_add_(2, code.flatten(2), torch.ones_like(frames[:, :, 0]).flatten(2))
    histogram = (count / (h * w)).sqrt()
    distance = 1 - (histogram[:, 1:] * histogram[:, :-1]).sum(2)
    around = F.avg_pool1d(F.pad(distance[:, None], (4, 4), mode="replicate"), 9, stride=1)[:, 0]
    peak = distance == F.max_pool1d(distance[:, None], 5, stride=1, padding=2)[:, 0]
    cut = peak & (distance > 2.5 * around + 0.02)
    shot = F.pad(cut.long().cumsum(1), (1, 0))
    shots = t // 2
    shot = shot.clamp(max=shots - 1)
    size = torch.zeros(b, shots, dtype=frames.dtype, device=frames.device)
    size.scatter_add_(1, shot, torch.ones_like(frames[:, :, 0, 0, 0]))
    mean = histogram.new_zeros(b, shots, bins**3)
    mean.scatter_add_(1, shot[..., None].expand_as(histogram), histogram)
    mean = mean / size.clamp(min=1)[..., None]
    off = (histogram - mean.gather(1, shot[..., None].expand_as(histogram))).square().sum(2)
    least = torch.full_like(size, 1e9).scatter_reduce(1, shot, off, "amin")
    return shot, distance, size, torch.where(size > 0, least, 0.0)


def cuts(place: Place) -> Made:
    b, t, n = place.size(1, 4), place.size(24, 60), place.size(80, 128)
    tint = place.rand(b, t // 6, 3, 1, 1).repeat_interleave(6, 1)
    return scenes, (0.5 * tint + 0.5 * place.rand(b, t, 3, n, n), 8)


def soft_background(frames: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, rate: float) -> tuple[Tensor, ...]:
    """Stauffer and Grimson, 1999, with soft matches: each pixel's mixture follows the film, in place; what is new."""
    masks = []
    for frame in frames.unbind(0):
        off = frame[None] - mean
        square = off.square().sum(1)
        score = weight.log() - 0.5 * square / variance - 1.5 * variance.log()
        score = torch.cat([score, torch.full_like(score[:1], -9.0)])
        chance = score.softmax(0)
        own, new = chance[:-1], chance[-1]
        weight.mul_(1 - rate).add_(rate * own).clamp_(min=1e-3)
        weight.div_(weight.sum(0))
        step = rate * own / weight
        mean.add_(step[:, None].clamp(max=0.5) * off)
        variance.add_(step.clamp(max=0.5) * (square / 3 - variance)).clamp_(1e-3, 0.5)
        stable = (weight / variance.sqrt()).softmax(0)
        foreground = new + (own * (1 - stable)).sum(0)
        smooth = F.avg_pool2d(foreground[None, None], 5, stride=1, padding=2)[0, 0]
        masks.append(torch.sigmoid(8 * (smooth - 0.5)))
    return torch.stack(masks), (weight[:, None] * mean).sum(0)


def background(place: Place) -> Made:
    t, k, n = place.size(4, 8), place.size(3, 4), place.size(64, 640)
    state = (
        place.rand(k, 3, n, n),
        0.02 + 0.05 * place.rand(k, n, n),
        torch.full((k, n, n), 1 / k, device=place.device),
    )
    return soft_background, (0.3 + 0.4 * place.rand(t, 3, n, n), *state, 0.05)


def tracked_boxes(detections: Tensor, found: Tensor, start: Tensor, gate: float) -> tuple[Tensor, Tensor, Tensor]:
    """Bewley et al., 2016 (SORT): boxes carried on by Kalman filters, matched by overlap where both like it best."""

    def corners(z: Tensor) -> tuple[Tensor, Tensor]:
        half = z[..., 2:4].clamp(min=1) / 2
        return z[..., :2] - half, z[..., :2] + half

    state = torch.cat([start, torch.zeros_like(start)], -1)
    a, b, c = (torch.full_like(start, v) for v in (10.0, 0.0, 100.0))
    age = torch.zeros_like(start[..., 0])
    path, matched = [], []
    for t in range(detections.size(1)):
        z = detections[:, t]
        position, speed = state[..., :4] + state[..., 4:], state[..., 4:]
        a, b, c = a + 2 * b + c + 1.0, b + c, c + 0.1
        (low, high), (z_low, z_high) = corners(position), corners(z)
        inner = (
            torch.minimum(high[:, :, None], z_high[:, None]) - torch.maximum(low[:, :, None], z_low[:, None])
        ).clamp(min=0)
        overlap = inner.prod(-1)
        area, z_area = (high - low).prod(-1), (z_high - z_low).prod(-1)
        iou = overlap / (area[:, :, None] + z_area[:, None] - overlap)
        iou = torch.where(found[:, t, None], iou, -1.0)
        best, which = iou.max(2)
        back = iou.argmax(1).gather(1, which)
        own = torch.arange(iou.size(1), device=z.device)
        hit = (back == own) & (best > gate)
        measured = z.gather(1, which[..., None].expand(-1, -1, 4))
        gain, turn = a / (a + 4), b / (a + 4)
        off = torch.where(hit[..., None], measured - position, 0.0)
        state = torch.cat([position + gain * off, speed + turn * off], -1)
        seen = hit[..., None]
        a, b, c = (
            torch.where(seen, (1 - gain) * a, a),
            torch.where(seen, (1 - gain) * b, b),
            torch.where(seen, c - turn * b, c),
        )
        age = torch.where(hit, 0.0, age + 1)
        path.append(state[..., :4])
        matched.append(torch.where(hit, which, -1))
    return torch.stack(path, 1), torch.stack(matched, 1), age


def tracks(place: Place) -> Made:
    b, n, m, t = place.size(4, 256), place.size(20, 64), place.size(28, 96), place.size(16, 16)
    start = torch.cat([400 * place.rand(b, n, 2), 20 + 30 * place.rand(b, n, 2)], -1)
    speed = torch.cat([4 * place.randn(b, n, 2), 0 * place.rand(b, n, 2)], -1)
    times = torch.arange(1, t + 1, device=place.device)[:, None, None]
    true = start[:, None] + times * speed[:, None] + place.randn(b, t, n, 4)
    false = torch.cat([400 * place.rand(b, t, m - n, 2), 20 + 30 * place.rand(b, t, m - n, 2)], -1)
    order = torch.rand(b, t, m).argsort(2).to(place.device)[..., None].expand(-1, -1, -1, 4)
    return tracked_boxes, (torch.cat([true, false], 2).gather(2, order), place.rand(b, t, m) < 0.9, start, 0.3)


class SteadyPath(nn.Module):
    """A shaking camera's path made smooth: frames turned and shifted by learnt amounts, neighbours to look alike."""

    def __init__(self, frames: int) -> None:
        super().__init__()
        self.path = nn.Parameter(0.02 * torch.randn(frames, 4))
        self.gain = nn.Parameter(torch.zeros(frames, 1, 1, 1))

    def forward(self, film: Tensor, measured: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        angle, zoom, dx, dy = self.path.unbind(1)
        scale = torch.exp(zoom)
        c, s = scale * angle.cos(), scale * angle.sin()
        theta = torch.stack([torch.stack([c, -s, dx], 1), torch.stack([s, c, dy], 1)], 1)
        grid = F.affine_grid(theta, list(film.shape), align_corners=False)
        warped = F.grid_sample(film, grid, padding_mode="border", align_corners=False) * torch.exp(self.gain)
        inside = torch.sigmoid(20 * (1 - grid.abs().amax(3)))
        both = (inside[1:] * inside[:-1])[:, None]
        alike = torch.sqrt((warped[1:] - warped[:-1]).square() + 1e-3) * both
        seen = measured + self.path
        total = seen.cumsum(0)
        smooth = [total]
        for _ in range(3):
            smooth.append(smooth[-1][1:] - smooth[-1][:-1])
        bends = sum(
            w * torch.sqrt(x.square() + 1e-4).mean() for w, x in zip((10.0, 1.0, 100.0), smooth[1:], strict=True)
        )
        return alike.sum((1, 2, 3)) / both.sum((1, 2, 3)), 0.1 * bends, (1 - inside).mean((1, 2))


def steady_path(place: Place) -> Made:
    t, n = place.size(12, 48), place.size(48, 384)
    scene = F.avg_pool2d(place.rand(1, 3, n + 6, n + 6), 7, stride=1)
    film = torch.cat([scene.roll((k % 3, -(k % 4)), (2, 3)) for k in range(t)])
    return SteadyPath(t).to(place.device), (film, 0.02 * place.randn(t, 4))


class SeparableKernels(nn.Module):
    """Niklaus et al., 2017: a frame between two, each pixel with its own vertical and horizontal kernels, occlusion."""

    def __init__(self, width: int, taps: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(6, width, 3, padding=1), nn.LeakyReLU(0.1), nn.Conv2d(width, width, 3, padding=1)
        )
        self.kernels = nn.Conv2d(width, 4 * taps + 1, 1)
        self.taps = taps

    def forward(self, first: Tensor, second: Tensor, middle: Tensor) -> tuple[Tensor, Tensor]:
        taps, (b, _, h, w) = self.taps, first.shape
        k = self.kernels(F.leaky_relu(self.body(torch.cat([first, second], 1)), 0.1))
        kernels = k[:, :-1].unflatten(1, (4, taps)).softmax(2)
        mask = torch.sigmoid(k[:, -1:])
        made = []
        for i, frame in enumerate((first, second)):
            vertical, horizontal = kernels[:, 2 * i], kernels[:, 2 * i + 1]
            padded = F.pad(frame, [taps // 2] * 4, mode="replicate")
            rows = padded.unfold(3, taps, 1)
            across = torch.zeros(b, 3, h, w, dtype=k.dtype, device=k.device)
            for j in range(taps):
                line = (rows[:, :, j : j + h] * horizontal.permute(0, 2, 3, 1)[:, None]).sum(-1)
                across = across + vertical[:, None, j] * line
            made.append(across)
        out = mask * made[0] + (1 - mask) * made[1]
        off = torch.sqrt((out - middle).square() + 1e-6)
        gx = (out[..., 1:] - out[..., :-1]) - (middle[..., 1:] - middle[..., :-1])
        return off.mean((1, 2, 3)), 0.5 * gx.abs().mean((1, 2, 3))


def separable_kernels(place: Place) -> Made:
    b, n, width, taps = place.size(1, 4), place.size(40, 256), place.size(8, 24), 7
    frames = [place.rand(b, 3, n, n) for _ in range(3)]
    return SeparableKernels(width, taps).to(place.device), tuple(frames)


class ShiftedFrames(nn.Module):
    """Lin et al., 2019 (TSM): channels moved a frame on or back between convolutions, as attention pools the clip."""

    def __init__(self, width: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.first = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(blocks))
        self.second = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(blocks))
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(blocks))
        self.score, self.head = nn.Linear(width, 1), nn.Linear(width, classes)

    def shift(self, x: Tensor, frames: int) -> Tensor:
        y = x.unflatten(0, (-1, frames))
        fold = y.size(2) // 4
        out = torch.zeros_like(y)
        out[:, :-1, :fold] = y[:, 1:, :fold]
        out[:, 1:, fold : 2 * fold] = y[:, :-1, fold : 2 * fold]
        out[:, :, 2 * fold :] = y[:, :, 2 * fold :]
        return out.flatten(0, 1)

    def forward(self, clip: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        b, t = clip.shape[:2]
        h = self.stem(clip.flatten(0, 1))
        for first, second, norm in zip(self.first, self.second, self.norms, strict=True):
            h = h + second(F.relu(norm(first(self.shift(h, t)))))
        pooled = h.mean((2, 3)).view(b, t, -1)
        weight = self.score(pooled).softmax(1)
        logits = self.head((weight * pooled).sum(1))
        change = (pooled[:, 1:] - pooled[:, :-1]).square().mean(2)
        return F.cross_entropy(logits, label, reduction="none", label_smoothing=0.1), 0.1 * change


def shifted_frames(place: Place) -> Made:
    b, t, n, width = place.size(1, 4), place.size(6, 8), place.size(32, 128), place.size(16, 64)
    return ShiftedFrames(width, 2, 20).to(place.device), (place.randn(b, t, 3, n, n), place.randint(20, b))


class ScaleSpaceFlow(nn.Module):
    """Agustsson et al., 2020: frames warped through a stack of blurs, latents rounded with given noise, their bits."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(6, width, 5, stride=4, padding=2), nn.GELU(), nn.Conv2d(width, 8, 3, padding=1)
        )
        self.decode = nn.Sequential(
            nn.Conv2d(8, width, 3, padding=1), nn.GELU(), nn.Conv2d(width, 3 * 16, 3, padding=1)
        )
        self.spread, self.mean = nn.Parameter(torch.zeros(8, 1, 1)), nn.Parameter(torch.zeros(8, 1, 1))
        self.levels = levels

    def forward(self, last: Tensor, now: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        b, _, h, w = last.shape
        y = self.encode(torch.cat([last, now], 1)) + noise
        scale = F.softplus(self.spread) + 0.1
        upper, lower = (y + 0.5 - self.mean) / scale, (y - 0.5 - self.mean) / scale
        bits = -torch.log2((torch.sigmoid(upper) - torch.sigmoid(lower)).clamp(min=1e-6))
        flow = F.pixel_shuffle(self.decode(y), 4)
        stack, kernel = [last], last.new_tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
        for level in range(self.levels - 1):
            x, d = stack[-1], 2**level
            for shape, pad in (((3, 1, 1, 5), (2 * d, 2 * d, 0, 0)), ((3, 1, 5, 1), (0, 0, 2 * d, 2 * d))):
                k = kernel.view(1, 1, *shape[2:]).expand(shape)
                x = F.conv2d(F.pad(x, pad, mode="replicate"), k, groups=3, dilation=d)
            stack.append(x)
        volume = torch.stack(stack, 2)
        gy, gx = (
            torch.linspace(-1, 1, h, dtype=y.dtype, device=y.device),
            torch.linspace(-1, 1, w, dtype=y.dtype, device=y.device),
        )
        gx, gy = (
            gx.expand(b, h, w) + 0.1 * torch.tanh(flow[:, 0]),
            gy[:, None].expand(b, h, w) + 0.1 * torch.tanh(flow[:, 1]),
        )
        grid = torch.stack([gx, gy, torch.tanh(flow[:, 2])], -1)[:, None]
        warped = F.grid_sample(volume, grid, padding_mode="border", align_corners=True).squeeze(2)
        error = (warped - now).square().mean((1, 2, 3))
        return bits.sum((1, 2, 3)) / (h * w) + 100 * error, -10 * torch.log10(error.detach() + math.exp(-20))


def scale_space_flow(place: Place) -> Made:
    b, n, width = place.size(1, 8), place.size(48, 256), place.size(8, 64)
    model = ScaleSpaceFlow(width, 4).to(place.device)
    scene = 4 * F.avg_pool2d(place.rand(b, 3, n + 8, n + 8), 9, stride=1) - 1.5
    return model, (scene, scene.roll((2, 1), (2, 3)), place.rand(b, 8, n // 4, n // 4) - 0.5)


ROWS: tuple[Row, ...] = (
    Row("program/intra_prediction_modes", modes),
    Row("program/deblocked_edges", block_edges),
    Row("program/deinterlaced_fields", fields_of_video),
    Row("program/scene_cuts", cuts),
    Row("program/soft_background_mixtures", background, writes=True),
    Row("program/tracked_boxes", tracks),
    Row("program/steady_camera_path", steady_path, "training"),
    Row("program/separable_frame_kernels", separable_kernels, "training"),
    Row("program/shifted_frame_channels", shifted_frames, "training"),
    Row("program/scale_space_flow", scale_space_flow, "training"),
)
