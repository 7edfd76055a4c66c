"""Signals that arrive: tones, radio, carriers, radar, samples of one bit, brain waves; pictures of the earth, maps."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def dial_tones(audio: Tensor, frame: int, rate: float, tones: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Goertzel's recurrence at eight frequencies over overlapping frames; digits by twist, level and hysteresis."""
    frames = audio.unfold(-1, frame, frame // 2) * torch.hamming_window(frame, device=audio.device, dtype=audio.dtype)
    k = torch.round(frame * tones / rate)
    coefficient = 2 * torch.cos(2 * math.pi * k / frame)
    s_prev = torch.zeros(*frames.shape[:-1], tones.numel(), device=audio.device, dtype=audio.dtype)
    s_prev2 = torch.zeros_like(s_prev)
    for i in range(frame):
        s = frames[..., i, None] + coefficient * s_prev - s_prev2
        s_prev2 = s_prev
        s_prev = s
    power = s_prev2**2 + s_prev**2 - coefficient * s_prev * s_prev2
    row, col = power[..., :4].max(-1), power[..., 4:].max(-1)
    energy = frames.square().sum(-1) * frame
    twist = 10 * torch.log10(row.values / col.values)
    valid = (row.values + col.values > 0.2 * energy) & (twist > -8) & (twist < 4)
    digit = torch.where(valid, row.indices * 4 + col.indices, -1)
    steady = (digit[:, 1:] == digit[:, :-1]) & (digit[:, 1:] >= 0)
    first = steady & ~F.pad(steady, (1, 0))[:, :-1]
    return power, digit, first.sum(1)


def dial_tone_detector(place: Place) -> Made:
    lines, frame, count = place.size(4, 256), place.size(50, 205), place.size(10, 60)
    length, rate = frame * count, 8000.0
    tones = torch.tensor([697.0, 770.0, 852.0, 941.0, 1209.0, 1336.0, 1477.0, 1633.0])
    digits = torch.randint(16, (lines, count // 4 + 1)).repeat_interleave(4 * frame, 1)[:, :length]
    time = torch.arange(length) / rate
    audio = torch.sin(2 * math.pi * tones[digits // 4] * time) + torch.sin(2 * math.pi * tones[4 + digits % 4] * time)
    return dial_tones, (audio.to(place.device) + 0.1 * place.randn(lines, length), frame, rate, tones.to(place.device))


def stereo_radio(iq: Tensor, channel: Tensor, audio: Tensor, band: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """Broadcast FM: a channel is mixed down and thinned out, its phase turns, a pilot doubled finds the difference."""
    n = iq.size(-1)
    turn = torch.arange(n, device=iq.device, dtype=iq.real.dtype) * (2 * math.pi * 0.05)
    iq = iq * torch.polar(torch.ones_like(turn), -turn)
    low = F.conv1d(torch.view_as_real(iq).permute(0, 2, 1).flatten(0, 1)[:, None], channel[None, None], stride=5)
    low = torch.view_as_complex(low.view(iq.size(0), 2, -1).transpose(1, 2).contiguous())
    demodulated = torch.angle(low[:, 1:] * low[:, :-1].conj())
    demodulated = demodulated - demodulated.mean(-1, keepdim=True)
    pilot = F.conv1d(demodulated[:, None], band[None, None], padding=band.numel() // 2)[:, 0]
    spectrum = torch.fft.fft(pilot)
    half = spectrum.size(-1) // 2
    spectrum[:, 1:half] *= 2
    spectrum[:, half + 1 :] = 0
    analytic = torch.fft.ifft(spectrum)
    unit = analytic / (analytic.abs() + 1e-6)
    carrier = (unit * unit).real
    both = torch.stack([demodulated, 2 * demodulated * carrier], dim=1).flatten(0, 1)
    both = F.conv1d(both[:, None], audio[None, None], stride=5).view(iq.size(0), 2, -1)
    stereo = torch.stack([both[:, 0] + both[:, 1], both[:, 0] - both[:, 1]], dim=1)
    alpha = 1 - math.exp(-25 / (rate * 75e-6))
    taps = alpha * (1 - alpha) ** torch.arange(32, device=iq.device, dtype=stereo.dtype)
    stereo = F.conv1d(F.pad(stereo, (31, 0)), taps.flip(0).expand(2, 1, -1), groups=2)
    return stereo, (20 * torch.log10(low.abs().mean(-1) + 1e-9)).round().to(torch.int32)


def radio(place: Place) -> Made:
    b, n, rate = place.size(2, 16), place.size(8000, 500_000), 1.2e6

    def low_pass(taps: int, cut: float) -> Tensor:
        t = torch.arange(taps) - (taps - 1) / 2
        return 2 * cut * torch.sinc(2 * cut * t) * torch.hann_window(taps, periodic=False)

    time = torch.arange(n) / rate
    left, right = torch.sin(2 * math.pi * 440 * time), torch.sin(2 * math.pi * 1000 * time)
    pilot = 2 * math.pi * 19000 * time
    message = 0.45 * (left + right) + 0.1 * torch.cos(pilot) + 0.45 * (left - right) * torch.cos(2 * pilot)
    phase = (2 * math.pi * 75000 / rate * message).cumsum(0) + 2 * math.pi * 0.05 * torch.arange(n)
    iq = torch.polar((0.2 + 2 * torch.rand(b, 1)).expand(b, n), phase.expand(b, n)) + 0.05 * torch.complex(
        torch.randn(b, n), torch.randn(b, n)
    )
    band = low_pass(65, 0.005) * 2 * torch.cos(2 * math.pi * 19000 / (rate / 5) * (torch.arange(65) - 32))
    filters = (low_pass(41, 0.08), low_pass(61, 0.06), band)
    return stereo_radio, (iq.to(place.device), *(f.to(place.device) for f in filters), rate)


def carrier_loop(symbols: Tensor, bandwidth: float, damping: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A decision-directed loop for QPSK bursts: phase and frequency in a loop of second order, gain, lock, symbols."""
    theta = bandwidth / (damping + 0.25 / damping)
    d = 1 + 2 * damping * theta + theta * theta
    alpha, beta = 4 * damping * theta / d, 4 * theta * theta / d
    b, n = symbols.shape
    phase = torch.zeros(b, device=symbols.device, dtype=symbols.real.dtype)
    frequency, gain, lock = torch.zeros_like(phase), torch.ones_like(phase), torch.zeros_like(phase)
    out = torch.empty_like(symbols)
    bits = torch.empty(b, n, 2, dtype=torch.uint8, device=symbols.device)
    for i in range(n):
        y = symbols[:, i] * torch.polar(gain, -phase)
        decided = torch.complex(torch.sign(y.real), torch.sign(y.imag)) / math.sqrt(2)
        error = y.imag * decided.real - y.real * decided.imag
        frequency = (frequency + beta * error).clamp(-0.3, 0.3)
        phase = phase + frequency + alpha * error
        phase = torch.where(phase > math.pi, phase - 2 * math.pi, phase)
        phase = torch.where(phase < -math.pi, phase + 2 * math.pi, phase)
        gain = (gain * (1 + 0.02 * (1 - y.abs()))).clamp(0.1, 10)
        lock = 0.95 * lock + 0.05 * (y * decided.conj()).real
        out[:, i] = y
        bits[:, i, 0], bits[:, i, 1] = y.real > 0, y.imag > 0
    return out, bits, frequency, lock


def carriers(place: Place) -> Made:
    b, n = place.size(32, 20_000), place.size(20, 40)
    quadrant = torch.randint(4, (b, n))
    offset = 0.02 * torch.randn(b, 1) * torch.arange(n) + 0.2 * torch.randn(b, 1)
    clean = torch.polar(torch.full((b, n), 1.3), math.pi / 4 + math.pi / 2 * quadrant + offset)
    noise = 0.03 * torch.complex(torch.randn(b, n), torch.randn(b, n))
    return carrier_loop, ((clean + noise).to(place.device), 0.06, 0.707)


def back_projection(pulses: Tensor, antenna: Tensor, grid: Tensor, start: Tensor, step: float, k: float) -> Tensor:
    """Synthetic aperture radar in the time domain: each pulse at each pixel's distance, turned back and added."""
    image = torch.zeros(grid.shape[:-1], dtype=pulses.dtype, device=pulses.device)
    window = torch.hann_window(len(pulses), periodic=False, device=grid.device, dtype=grid.dtype)
    samples = pulses.size(1)
    for p in range(len(pulses)):
        distance = torch.linalg.vector_norm(grid - antenna[p], dim=-1)
        position = (distance - start[p]) / step
        low = position.floor()
        fraction = position - low
        index = low.long()
        inside = (index >= 0) & (index < samples - 1)
        index = index.clamp(0, samples - 2)
        pulse = pulses[p]
        value = torch.lerp(torch.view_as_real(pulse[index]), torch.view_as_real(pulse[index + 1]), fraction[..., None])
        turned = torch.view_as_complex(value) * torch.polar(window[p] * inside, k * (distance - start[p]))
        image += turned
    magnitude = image.abs()
    return 20 * torch.log10(magnitude / magnitude.max() + 1e-4)


def aperture_radar(place: Place) -> Made:
    pulses, samples, n = place.size(12, 72), place.size(64, 1024), place.size(24, 384)
    angle = torch.linspace(-0.3, 0.3, pulses)
    antenna = 20 * torch.stack([torch.sin(angle), -torch.cos(angle), torch.full_like(angle, 0.4)], -1)
    at = torch.linspace(-2, 2, n)
    grid = torch.stack([*torch.meshgrid(at, at, indexing="xy"), torch.zeros(n, n)], -1)
    start = antenna.norm(dim=-1) - 3.5
    data = torch.complex(torch.randn(pulses, samples), torch.randn(pulses, samples))
    return back_projection, (
        *(t.to(place.device) for t in (data, antenna, grid, start)),
        7.0 / samples,
        12.0,
    )


def delta_audio(samples: Tensor, steps: Tensor, moves: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """IMA's adaptive differential code of 16-bit samples: an encoder, nibbles packed in bytes, a decoder."""
    n = samples.size(1)
    predicted = samples[:, 0].clone()
    index = torch.zeros_like(predicted)
    codes = []
    for i in range(n):
        step = steps[index]
        diff = samples[:, i] - predicted
        sign = (diff < 0).to(torch.int32) * 8
        diff = diff.abs()
        code = torch.zeros_like(diff)
        delta = step >> 3
        for bit in (4, 2, 1):
            taken = diff >= step
            code = torch.where(taken, code | bit, code)
            diff = torch.where(taken, diff - step, diff)
            delta = torch.where(taken, delta + step, delta)
            step = step >> 1
        predicted = torch.where(sign > 0, predicted - delta, predicted + delta).clamp(-32768, 32767)
        code = code | sign
        index = (index + moves[code & 7]).clamp(0, 88)
        codes.append(code)
    stacked = torch.stack(codes, dim=1)
    packed = (stacked[:, 0::2] | (stacked[:, 1::2] << 4)).to(torch.uint8)
    decoded = torch.empty_like(samples)
    value, index = samples[:, 0].clone(), torch.zeros_like(index)
    for i in range(n):
        code = (packed[:, i // 2] >> (4 * (i % 2))).to(torch.int32) & 15
        step = steps[index]
        delta = (step >> 3) + torch.where((code & 4) != 0, step, 0)
        delta = delta + torch.where((code & 2) != 0, step >> 1, 0) + torch.where((code & 1) != 0, step >> 2, 0)
        value = (value + torch.where((code & 8) != 0, -delta, delta)).clamp(-32768, 32767)
        index = (index + moves[code & 7]).clamp(0, 88)
        decoded[:, i] = value
    return packed, decoded.to(torch.int16), (samples - decoded).abs().amax(1)


def adaptive_delta(place: Place) -> Made:
    b, n = place.size(64, 40_000), place.size(12, 18)
    steps = [7]
    while len(steps) < 89:
        steps.append(min(32767, max(steps[-1] + 1, round(steps[-1] * 1.1))))
    time = torch.arange(n) * 0.2
    wave = 8000 * torch.sin(time + 6 * torch.rand(b, 1)) + 300 * torch.randn(b, n)
    moves = torch.tensor([-1, -1, -1, -1, 2, 4, 6, 8], dtype=torch.int32)
    return delta_audio, (
        wave.to(torch.int32).to(place.device),
        torch.tensor(steps, dtype=torch.int32, device=place.device),
        moves.to(place.device),
    )


def decimated_bits(packed: Tensor, compensation: Tensor, factor: int, order: int) -> tuple[Tensor, Tensor]:
    """A microphone's one-bit stream: bits, integrators, thinning, combs in wrapping integers, a filter."""
    shifts = torch.arange(7, -1, -1, device=packed.device, dtype=torch.uint8)
    bits = ((packed[..., None] >> shifts) & 1).flatten(1).to(torch.int32)
    x = bits * 2 - 1
    for _ in range(order):
        x = torch.cumsum(x, dim=1, dtype=torch.int32)
    x = x[:, factor - 1 :: factor]
    for _ in range(order):
        x = torch.cat([x[:, :1], x[:, 1:] - x[:, :-1]], dim=1)
    scaled = x.to(compensation.dtype) / factor**order
    y = F.conv1d(scaled[:, None], compensation[None, None], stride=2, padding=compensation.numel() // 2)[:, 0]
    blocked = y - torch.cat([y[:, :1], y[:, :-1]], dim=1)
    ones = bits.view(bits.size(0), -1, factor).sum(-1)
    return blocked, ones.amax(1) - ones.amin(1)


def one_bit_microphones(place: Place) -> Made:
    channels, count, factor = place.size(2, 64), place.size(4096, 131_072), 64
    taps = torch.sinc((torch.arange(31) - 15) * 0.5) * torch.hamming_window(31, periodic=False)
    packed = place.randint(256, channels, count).to(torch.uint8)
    return decimated_bits, (packed, (taps / taps.sum()).to(place.device), factor, 3)


class BrainWaves(nn.Module):
    """EEGNet (Lawhern et al., 2018): filters of time, then of electrodes with bounded norms, then separable ones."""

    def __init__(self, electrodes: int, samples: int, f1: int, depth: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, f1, (1, 64), padding=(0, 32), bias=False)
        self.bn1, self.bn2, self.bn3 = nn.BatchNorm2d(f1), nn.BatchNorm2d(f1 * depth), nn.BatchNorm2d(f1 * depth)
        self.spatial = nn.Conv2d(f1, f1 * depth, (electrodes, 1), groups=f1, bias=False)
        self.separable = nn.Conv2d(f1 * depth, f1 * depth, (1, 16), padding=(0, 8), groups=f1 * depth, bias=False)
        self.pointwise = nn.Conv2d(f1 * depth, f1 * depth, 1, bias=False)
        size = ((samples + 1) // 4 + 1) // 8
        self.dense = nn.Linear(f1 * depth * size, classes)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        x = x - x.mean(1, keepdim=True)
        x = self.bn1(self.conv1(x[:, None]))
        weight = torch.renorm(self.spatial.weight, p=2, dim=0, maxnorm=1.0)
        x = F.elu(self.bn2(F.conv2d(x, weight, groups=self.spatial.groups)))
        x = F.avg_pool2d(x, (1, 4))
        x = F.elu(self.bn3(self.pointwise(self.separable(x))))
        x = F.avg_pool2d(x, (1, 8)).flatten(1)
        weight = torch.renorm(self.dense.weight, p=2, dim=0, maxnorm=0.25)
        return F.nll_loss(F.log_softmax(F.linear(x, weight, self.dense.bias), dim=1), label)


def brain_waves(place: Place) -> Made:
    b, electrodes, samples = place.size(4, 64), place.size(6, 22), place.size(96, 512)
    return BrainWaves(electrodes, samples, 8, 2, 4).to(place.device), (
        20 * place.randn(b, electrodes, samples),
        place.randint(4, b),
    )


def cloud_free(bands: Tensor, quality: Tensor, day: Tensor, target: float) -> tuple[Tensor, Tensor, Tensor]:
    """A composite of satellite scenes: bits of quality, a mask grown by two pixels, medoids, and the nearest day."""
    fill, dilated, cirrus, cloud, shadow = ((quality >> bit) & 1 for bit in (0, 1, 2, 3, 4))
    certain = ((quality >> 8) & 3) == 3
    bad = (fill | dilated | cloud | shadow | (cirrus & certain.to(cirrus.dtype))).bool()
    grown = F.max_pool2d(bad[:, None].to(torch.float32), 5, stride=1, padding=2)[:, 0] > 0
    reflectance = (bands.to(day.dtype) * 2.75e-5 - 0.2).clamp(0, 1)
    valid = ~grown
    masked = reflectance.masked_fill(grown[:, None], float("nan"))
    median = torch.nanmedian(masked, dim=0).values
    distance = (masked - median).square().sum(1).masked_fill(grown, float("inf"))
    best = distance.argmin(0)
    medoid = reflectance.gather(0, best[None, None].expand(1, reflectance.size(1), -1, -1))[0]
    ndvi = (reflectance[:, 3] - reflectance[:, 2]) / (reflectance[:, 3] + reflectance[:, 2] + 1e-4)
    greenest = torch.where(valid, ndvi, -2.0).amax(0)
    age = torch.where(valid, (day[:, None, None] - target).abs(), 1e4)
    seen = valid.any(0)
    return torch.where(seen, medoid, 0.0), torch.where(seen, greenest, 0.0), torch.where(seen, age.argmin(0), -1)


def composite(place: Place) -> Made:
    scenes, n = place.size(5, 13), place.size(32, 512)
    quality = torch.where(torch.rand(scenes, n, n) < 0.05, torch.randint(1024, (scenes, n, n)), 32).to(torch.int32)
    bands = place.randint(40_000, scenes, 6, n, n).to(torch.int32)
    return cloud_free, (bands, quality.to(place.device), 16.0 * torch.arange(scenes, device=place.device) + 3.3, 75.0)


def projected_tile(tile: Tensor, east: Tensor, north: Tensor, meridian: float, origin: Tensor, pixel: float) -> Tensor:
    """From UTM back to degrees by Krueger's series in float64, a Mercator tile sampled there by Catmull and Rom."""
    a, f, k0 = 6378137.0, 1 / 298.257223563, 0.9996
    n = f / (2 - f)
    radius = a / (1 + n) * (1 + n**2 / 4 + n**4 / 64)
    beta = (n / 2 - 2 * n**2 / 3 + 37 * n**3 / 96, n**2 / 48 + n**3 / 15, 17 * n**3 / 480)
    delta = (2 * n - 2 * n**2 / 3 - 2 * n**3, 7 * n**2 / 3 - 8 * n**3 / 5, 56 * n**3 / 15)
    xi, eta = north[:, None] / (k0 * radius), (east[None, :] - 500_000.0) / (k0 * radius)
    xi, eta = xi.expand(len(north), len(east)), eta.expand(len(north), len(east))
    xi1, eta1 = xi, eta
    for j, b in enumerate(beta, start=1):
        xi1 = xi1 - b * torch.sin(2 * j * xi) * torch.cosh(2 * j * eta)
        eta1 = eta1 - b * torch.cos(2 * j * xi) * torch.sinh(2 * j * eta)
    chi = torch.asin(torch.sin(xi1) / torch.cosh(eta1))
    latitude = chi
    for j, d in enumerate(delta, start=1):
        latitude = latitude + d * torch.sin(2 * j * chi)
    longitude = math.radians(meridian) + torch.atan2(torch.sinh(eta1), torch.cos(xi1))
    x = (a * longitude - origin[0]) / pixel
    y = (origin[1] - a * torch.log(torch.tan(math.pi / 4 + latitude / 2))) / pixel
    x0, y0 = x.floor(), y.floor()
    tx, ty = (x - x0).to(tile.dtype), (y - y0).to(tile.dtype)

    def weights(t: Tensor) -> list[Tensor]:
        return [
            ((2 - t) * t - 1) * t / 2,
            ((3 * t - 5) * t * t + 2) / 2,
            ((4 - 3 * t) * t + 1) * t / 2,
            (t - 1) * t * t / 2,
        ]

    out = torch.zeros(tile.size(0), *x.shape, dtype=tile.dtype, device=tile.device)
    for j, wy in enumerate(weights(ty)):
        for i, wx in enumerate(weights(tx)):
            row = (y0.long() + j - 1).clamp(0, tile.size(1) - 1)
            col = (x0.long() + i - 1).clamp(0, tile.size(2) - 1)
            out = out + wy * wx * tile[:, row, col]
    return (out * 255).clamp(0, 255).round().to(torch.uint8)


def transverse_tiles(place: Place) -> Made:
    n = place.size(48, 1024)
    east = 500_000.0 + torch.arange(n, dtype=torch.float64) * 10
    north = 5_300_000.0 - torch.arange(n, dtype=torch.float64) * 10
    origin = torch.tensor([6378137.0 * math.radians(9.0) - 200, 6_083_000.0], dtype=torch.float64)
    return projected_tile, (
        place.rand(3, n, n),
        east.to(place.device),
        north.to(place.device),
        9.0,
        origin.to(place.device),
        20.0,
    )


def points_inside(
    points: Tensor, vertices: Tensor, offsets: Tensor, owner: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """A spatial join: ragged rings, boxes first, crossings of a ray and distances to edges, means by polygon."""
    count = offsets.numel() - 1
    following = torch.arange(1, len(vertices) + 1, device=points.device)
    following[offsets[1:] - 1] = offsets[:-1]
    a, b = vertices, vertices[following]
    low = torch.full((count, 2), float("inf"), device=points.device, dtype=points.dtype)
    low = low.scatter_reduce(0, owner[:, None].expand(-1, 2), vertices, "amin")
    high = torch.full_like(low, -float("inf")).scatter_reduce(0, owner[:, None].expand(-1, 2), vertices, "amax")
    x, y = points[:, 0, None], points[:, 1, None]
    straddles = (a[:, 1] > y) != (b[:, 1] > y)
    slope = (b[:, 0] - a[:, 0]) / torch.where(a[:, 1] == b[:, 1], 1.0, b[:, 1] - a[:, 1])
    crosses = straddles & (x < slope * (y - a[:, 1]) + a[:, 0])
    crossings = torch.zeros(len(points), count, dtype=torch.int32, device=points.device)
    crossings.index_add_(1, owner, crosses.to(torch.int32))
    boxed = ((points[:, None] >= low) & (points[:, None] <= high)).all(-1)
    inside = ((crossings & 1) == 1) & boxed
    t = ((points[:, None] - a) * (b - a)).sum(-1) / (b - a).square().sum(-1).clamp(min=1e-12)
    nearest = (points[:, None] - a - t.clamp(0, 1)[..., None] * (b - a)).square().sum(-1).amin(1).sqrt()
    home = torch.where(inside.any(1), inside.int().argmax(1), -1)
    sums = torch.zeros(count + 1, device=points.device, dtype=value.dtype).index_add_(0, home + 1, value)
    means = sums / torch.bincount(home + 1, minlength=count + 1).clamp(min=1)
    return home, nearest, means[1:]


def spatial_join(place: Place) -> Made:
    n, count = place.size(300, 20_000), place.size(6, 40)
    sizes = torch.randint(3, 14, (count,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    owner = torch.repeat_interleave(torch.arange(count), sizes)
    turn = 2 * math.pi * (torch.arange(len(owner)) - offsets[owner]) / sizes[owner]
    radius = (0.03 + 0.08 * torch.rand(len(owner)))[:, None]
    vertices = torch.rand(count, 2)[owner] + radius * torch.stack([torch.cos(turn), torch.sin(turn)], -1)
    arguments = (vertices, offsets, owner)
    return points_inside, (place.rand(n, 2), *(t.to(place.device) for t in arguments), place.randn(n))


ROWS: tuple[Row, ...] = (
    Row("program/dial_tone_detector", dial_tone_detector),
    Row("program/stereo_radio", radio),
    Row("program/carrier_tracking_loop", carriers),
    Row("program/aperture_back_projection", aperture_radar),
    Row("program/adaptive_delta_audio", adaptive_delta),
    Row("program/one_bit_microphones", one_bit_microphones),
    Row("program/compact_brain_wave_network", brain_waves, "training"),
    Row("program/cloud_free_composite", composite),
    Row("program/transverse_mercator_tile", transverse_tiles),
    Row("program/points_in_polygons", spatial_join),
)
