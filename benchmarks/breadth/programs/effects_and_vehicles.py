"""Recurrences with few states and many steps: analogue effects and strings; attitudes, dead reckoning, cars, curves."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class Phaser(nn.Module):
    """Carney and others, 2023: allpass filters swept by an oscillator, feedback round them, fitted sample by sample."""

    def __init__(self, batch: int, stages: int = 4) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.full((batch,), -3.0))
        self.depth = nn.Parameter(torch.zeros(batch, 2))
        self.feedback = nn.Parameter(torch.zeros(batch))
        self.mix = nn.Parameter(torch.zeros(batch))
        self.stages = stages

    def forward(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        time = torch.arange(x.size(1), dtype=x.dtype, device=x.device)
        sweep = torch.sin(self.rate.exp()[:, None] * time)
        low, span = torch.sigmoid(self.depth).unbind(1)
        d = 0.1 + 0.8 * low[:, None] + 0.1 * span[:, None] * sweep
        p = (1 - torch.tan(math.pi / 4 * d)) / (1 + torch.tan(math.pi / 4 * d))
        g, mix = 0.7 * torch.tanh(self.feedback), torch.sigmoid(self.mix)
        state = [torch.zeros_like(x[:, 0]) for _ in range(self.stages)]
        last = torch.zeros_like(x[:, 0])
        out = []
        for t in range(x.size(1)):
            h = x[:, t] + g * last
            for k in range(self.stages):
                y = state[k] + p[:, t] * h
                state[k] = h - p[:, t] * y
                h = y
            last = h
            out.append(x[:, t] + mix * h)
        y = torch.stack(out, 1)
        emphasis = (y - target)[:, 1:] - 0.95 * (y - target)[:, :-1]
        return emphasis.square().sum(1) / target.square().sum(1), y


def phaser(place: Place) -> Made:
    b, n = place.size(64, 65_536), place.size(40, 24)
    return Phaser(b).to(place.device), (place.randn(b, n), place.randn(b, n))


class DiodeClipper(nn.Module):
    """A pair of diodes and a capacitor by the trapezium rule, Newton's steps damped; the parts' values are learnt."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.log_resistance = nn.Parameter(0.1 * torch.randn(channels) + 7.7)
        self.log_capacity = nn.Parameter(0.1 * torch.randn(channels) - 18.4)
        self.log_leak = nn.Parameter(torch.full((channels,), -19.8))

    def slope(self, v: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """The voltage's change, and that change's derivative."""
        r, c, leak = self.log_resistance.exp(), self.log_capacity.exp(), self.log_leak.exp()
        z = (v / 0.0453).clamp(-25, 25)
        grow, fade = torch.exp(z), torch.exp(-z)
        change = (u - v) / (r * c) - leak / c * (grow - fade)
        return change, -1 / (r * c) - leak / (c * 0.0453) * (grow + fade)

    def forward(self, drive: Tensor) -> Tensor:
        half = 0.5 / 96_000
        v = torch.zeros_like(drive[0])
        before = self.slope(v, drive[0])[0]
        out = []
        for u in drive.unbind(0):
            guess = v
            for _ in range(3):
                change, derivative = self.slope(guess, u)
                step = (guess - v - half * (change + before)) / (1 - half * derivative)
                guess = guess - step.clamp(-0.1, 0.1)
            v = guess
            before = self.slope(v, u)[0]
            out.append(v)
        return torch.stack(out)


def clipper(place: Place) -> Made:
    steps, channels = place.size(8, 6), place.size(64, 131_072)
    drive = 2 * torch.sin(0.3 * torch.arange(steps, device=place.device))[:, None] * (0.5 + place.rand(channels))
    return DiodeClipper(channels).to(place.device), (drive,)


def ladder(x: Tensor, cutoff: Tensor, resonance: Tensor) -> tuple[Tensor, Tensor]:
    """Huovinen, 2004: four saturating stages with half a sample's delay in the loop, computed twice for each sample."""
    g = 1 - torch.exp(-2 * math.pi * cutoff)
    stage = [torch.zeros_like(x[:, 0]) for _ in range(4)]
    shaped = [torch.zeros_like(x[:, 0]) for _ in range(4)]
    delayed, loudest = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
    out = []
    for t in range(x.size(1)):
        for _ in range(2):
            u = torch.tanh(x[:, t] - 4 * resonance * delayed)
            for k in range(4):
                stage[k] = stage[k] + g[:, t] * (u - shaped[k])
                shaped[k] = u = torch.tanh(stage[k])
            delayed = 0.5 * (stage[3] + delayed)
        out.append(stage[3])
        loudest = torch.maximum(0.99 * loudest, stage[3].abs())
    return torch.stack(out, 1), loudest


def filters(place: Place) -> Made:
    b, n = place.size(128, 131_072), place.size(64, 48)
    return ladder, (place.randn(b, n), 0.02 + 0.1 * place.rand(b, n), 0.9 * place.rand(b))


def plucked(buffer: Tensor, position: Tensor, length: Tensor, decay: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Karplus and Strong, 1983: rings of samples, each string of its own length, read, averaged and written back."""
    string = torch.arange(buffer.size(0), device=buffer.device)
    out = []
    for _ in range(steps):
        now = buffer[string, position]
        following = torch.where(position + 1 < length, position + 1, 0)
        fresh = decay * 0.5 * (now + buffer[string, following])
        buffer.index_put_((string, position), fresh)
        position.copy_(following)
        out.append(now)
    sound = torch.stack(out, 1)
    return sound, sound.view(-1, 8, steps).mean(1)


def strings(place: Place) -> Made:
    n, longest, steps = place.size(128, 65_536), place.size(200, 200), place.size(120, 60)
    length = longest // 2 + place.randint(longest // 2, n)
    buffer = 2 * place.rand(n, longest) - 1
    return plucked, (buffer, place.randint(longest // 2, n), length, 0.9 + 0.099 * place.rand(n), steps)


def quaternion_product(a: Tensor, b: Tensor) -> Tensor:
    aw, ax, ay, az = a.unbind(-1)
    bw, bx, by, bz = b.unbind(-1)
    return torch.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        -1,
    )


class AttitudeFilter(nn.Module):
    """Madgwick's descent for gravity and Mahony's bias, with gains that are learnt; errors as angles of rotation."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor([-2.5, -5.0]))

    def forward(self, gyro: Tensor, accelerometer: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
        dt = 0.01
        beta, zeta = self.gain.exp().unbind()
        q = torch.zeros_like(truth[:, 0])
        q[:, 0] = 1.0
        bias = torch.zeros_like(gyro[:, 0])
        losses = []
        for t in range(gyro.size(1)):
            a = F.normalize(accelerometer[:, t], dim=-1)
            w, x, y, z = q.unbind(-1)
            f1, f2, f3 = (
                2 * (x * z - w * y) - a[:, 0],
                2 * (w * x + y * z) - a[:, 1],
                2 * (0.5 - x * x - y * y) - a[:, 2],
            )
            gradient = torch.stack(
                [2 * x * f2 - 2 * y * f1, 2 * z * f1 + 2 * w * f2 - 4 * x * f3, 2 * z * f2 - 2 * w * f1 - 4 * y * f3]
                + [2 * x * f1 + 2 * y * f2],
                -1,
            )
            gradient = gradient / (gradient.norm(dim=-1, keepdim=True) + 1e-3)
            wrong = 2 * quaternion_product(q * q.new_tensor([1.0, -1.0, -1.0, -1.0]), gradient)
            bias = bias + zeta * dt * wrong[:, 1:]
            rate = F.pad(gyro[:, t] - bias, (1, 0))
            q = q + dt * (0.5 * quaternion_product(q, rate) - beta * gradient)
            q = q / q.norm(dim=-1, keepdim=True)
            losses.append(1 - (q * truth[:, t]).sum(-1).square())
        return torch.stack(losses, 1).mean(1), q


def attitudes(place: Place) -> Made:
    b, n = place.size(64, 32_768), place.size(8, 6)
    gravity = torch.tensor([0.0, 0.0, 1.0], device=place.device)
    truth = F.normalize(torch.tensor([1.0, 0, 0, 0], device=place.device) + 0.2 * place.randn(b, n, 4), dim=-1)
    return AttitudeFilter().to(place.device), (0.5 * place.randn(b, n, 3), gravity + 0.2 * place.randn(b, n, 3), truth)


def preintegration(gyro: Tensor, accelerometer: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Forster and others, 2017: rotation, velocity and position between frames, Rodrigues' formula, covariances too."""
    dt = 0.005
    batch = gyro.size(0)
    eye = torch.eye(3, dtype=gyro.dtype, device=gyro.device)
    r = eye.expand(batch, 3, 3)
    v, p = gyro.new_zeros(batch, 3), gyro.new_zeros(batch, 3)
    covariance = gyro.new_zeros(batch, 9, 9)
    noise = torch.diag(torch.cat([gyro.new_full((3,), 1e-4), gyro.new_full((3,), 1e-2), gyro.new_full((3,), 1e-6)]))

    def hat(w: Tensor) -> Tensor:
        out = w.new_zeros(batch, 3, 3)
        out[:, 0, 1], out[:, 0, 2], out[:, 1, 2] = -w[:, 2], w[:, 1], -w[:, 0]
        return out - out.mT

    for t in range(gyro.size(1)):
        w = (gyro[:, t] - bias[:, :3]) * dt
        a = accelerometer[:, t] - bias[:, 3:]
        square = w.square().sum(-1)[:, None, None]
        angle = (square + 1e-12).sqrt()
        k = hat(w)
        small = square < 1e-6
        turn = eye + torch.where(small, 1 - square / 6, angle.sin() / angle) * k
        turn = turn + torch.where(small, 0.5 - square / 24, (1 - angle.cos()) / angle.square()) * (k @ k)
        push = (r @ a[..., None]).squeeze(-1)
        p = p + v * dt + 0.5 * dt * dt * push
        v = v + dt * push
        step = torch.eye(9, dtype=gyro.dtype, device=gyro.device).repeat(batch, 1, 1)
        lever = -dt * r @ hat(a)
        step[:, :3, :3] = turn.mT
        step[:, 3:6, :3] = lever
        step[:, 6:, :3] = 0.5 * dt * lever
        step[:, 6:, 3:6] = dt * eye
        covariance = step @ covariance @ step.mT + dt * noise
        r = r @ turn
    trace = covariance.diagonal(dim1=1, dim2=2).sum(-1)
    return torch.cat([v, p], -1), r, trace


def inertial_frames(place: Place) -> Made:
    b, n = place.size(32, 4096), 8
    bias = (0.05 * place.randn(b, 6)).requires_grad_()
    return preintegration, (place.randn(b, n, 3), 3 * place.randn(b, n, 3), bias)


def dubins(start: Tensor, end: Tensor, radius: float) -> tuple[Tensor, Tensor, Tensor]:
    """Dubins, 1957: the six words of turns and straights, which of them is shortest, and points along it."""
    full = 2 * math.pi
    d = end[:, :2] - start[:, :2]
    length = d.norm(dim=-1) / radius
    heading = torch.atan2(d[:, 1], d[:, 0])
    a, b = torch.remainder(start[:, 2] - heading, full), torch.remainder(end[:, 2] - heading, full)
    sa, sb, ca, cb, cab = a.sin(), b.sin(), a.cos(), b.cos(), (a - b).cos()
    words = []

    def word(square: Tensor, first: Tensor, last: Tensor, straight: Tensor) -> None:
        legs = torch.stack([torch.remainder(first, full), straight, torch.remainder(last, full)], -1)
        words.append(torch.where((square >= 0)[:, None], legs, 1e3))

    p = 2 + length.square() - 2 * cab + 2 * length * (sa - sb)
    t = torch.atan2(cb - ca, length + sa - sb)
    word(p, t - a, b - t, p.clamp(min=0).sqrt())
    p = 2 + length.square() - 2 * cab + 2 * length * (sb - sa)
    t = torch.atan2(ca - cb, length - sa + sb)
    word(p, a - t, t - b, p.clamp(min=0).sqrt())
    p = length.square() - 2 + 2 * cab + 2 * length * (sa + sb)
    s = p.clamp(min=0).sqrt()
    t = torch.atan2(-ca - cb, length + sa + sb) - torch.atan2(torch.full_like(s, -2.0), s)
    word(p, t - a, t - b, s)
    p = length.square() - 2 + 2 * cab - 2 * length * (sa + sb)
    s = p.clamp(min=0).sqrt()
    t = torch.atan2(ca + cb, length - sa - sb) - torch.atan2(torch.full_like(s, 2.0), s)
    word(p, a - t, b - t, s)
    for sign in (1.0, -1.0):
        q = (6 - length.square() + 2 * cab + sign * 2 * length * (sa - sb)) / 8
        middle = full - torch.acos(q.clamp(-1, 1))
        t = sign * a - torch.atan2(ca - cb, length - sign * (sa - sb)) + 0.5 * middle
        word(1 - q.abs(), t, sign * (a - b) - t + middle, middle)
    legs = torch.stack(words, 1)
    total = legs.sum(-1)
    best, which = total.min(1)
    chosen = legs.gather(1, which[:, None, None].expand(-1, 1, 3)).squeeze(1)
    sides = start.new_tensor([[1, 0, 1], [-1, 0, -1], [1, 0, -1], [-1, 0, 1], [-1, 1, -1], [1, -1, 1]])[which]
    steps = torch.linspace(0, 1, 33, dtype=start.dtype, device=start.device)[1:] * best[:, None]
    ends = chosen.cumsum(-1)
    leg = (steps[..., None] > ends[:, None, :2]).sum(-1)
    turning = sides.gather(1, leg)
    theta = start[:, 2:] + (turning * best[:, None] / 32).cumsum(1)
    move = torch.stack([theta.cos(), theta.sin()], -1) * (radius * best[:, None, None] / 32)
    return radius * best, torch.bincount(which, minlength=6), start[:, None, :2] + move.cumsum(1)


def curves(place: Place) -> Made:
    n = place.size(1000, 262_144)
    poses = [torch.cat([10 * place.rand(n, 2), 6.28 * place.rand(n, 1)], 1) for _ in range(2)]
    return dubins, (*poses, 1.0)


class TyreModel(nn.Module):
    """A single-track car on Pacejka's tyres with load transfer, driven open-loop; the tyres are fitted to a trace."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Parameter(torch.tensor([10.0, 1.3, 1.0, 0.2]))
        self.rear = nn.Parameter(torch.tensor([11.0, 1.4, 1.1, 0.1]))
        self.log_inertia = nn.Parameter(torch.tensor(7.6))

    @staticmethod
    def grip(slip: Tensor, load: Tensor, tyre: Tensor) -> Tensor:
        b, c, d, e = tyre.unbind()
        x = b * slip
        return d * load * torch.sin(c * torch.atan(x - e * (x - torch.atan(x))))

    def forward(self, state: Tensor, steer: Tensor, throttle: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        dt, mass, lf, lr, tall = 0.02, 1500.0, 1.2, 1.5, 0.5
        x, y, yaw, vx, vy, turn = state.unbind(-1)
        along = torch.zeros_like(x)
        miss = torch.zeros_like(x)
        for t in range(steer.size(1)):
            speed = vx.clamp(min=1.0)
            shift = mass * along * tall / (lf + lr)
            load_f = (mass * 9.81 * lr / (lf + lr) - shift).clamp(min=500.0)
            load_r = (mass * 9.81 * lf / (lf + lr) + shift).clamp(min=500.0)
            side_f = self.grip(steer[:, t] - torch.atan((vy + lf * turn) / speed), load_f, self.front)
            side_r = self.grip(-torch.atan((vy - lr * turn) / speed), load_r, self.rear)
            drive = torch.where(throttle[:, t] > 0, 4000.0, 8000.0) * throttle[:, t] - 0.4 * vx * vx.abs()
            room = ((0.9 * load_r).square() - side_r.square()).clamp(min=1e4).sqrt()
            drive = torch.maximum(torch.minimum(drive, room), -room)
            along = (drive - side_f * steer[:, t].sin()) / mass
            vx, vy = vx + dt * (along + vy * turn), vy + dt * ((side_f * steer[:, t].cos() + side_r) / mass - vx * turn)
            turn = turn + dt * (lf * side_f * steer[:, t].cos() - lr * side_r) / self.log_inertia.exp()
            yaw = yaw + dt * turn
            x, y = x + dt * (vx * yaw.cos() - vy * yaw.sin()), y + dt * (vx * yaw.sin() + vy * yaw.cos())
            miss = miss + (turn - observed[:, t]).square()
        return miss / steer.size(1), torch.stack([x, y, yaw, vx, vy, turn], -1)


def cars(place: Place) -> Made:
    b, n = place.size(64, 65_536), place.size(10, 6)
    state = torch.zeros(b, 6, device=place.device)
    state[:, 3] = 15 + 10 * place.rand(b)
    return TyreModel().to(place.device), (state, 0.05 * place.randn(b, n), place.randn(b, n), 0.2 * place.randn(b, n))


ROWS: tuple[Row, ...] = (
    Row("program/swept_allpass_phaser", phaser, "training"),
    Row("program/diode_clipper", clipper, "training"),
    Row("program/ladder_filters", filters, dtype=torch.float16),
    Row("program/plucked_strings", strings, writes=True),
    Row("program/gradient_attitude_filter", attitudes, "training"),
    Row("program/inertial_preintegration", inertial_frames, "training"),
    Row("program/dubins_curves", curves),
    Row("program/tyre_identification", cars, "training"),
)
