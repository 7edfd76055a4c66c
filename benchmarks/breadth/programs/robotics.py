"""Robots: chains of joints, their dynamics, planning by rollouts, maps from range finders."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row

# Franka Emika's arm: a, d, alpha of the modified Denavit-Hartenberg convention.
PANDA = (
    (0.0, 0.333, 0.0),
    (0.0, 0.0, -math.pi / 2),
    (0.0, 0.316, math.pi / 2),
    (0.0825, 0.0, math.pi / 2),
    (-0.0825, 0.384, -math.pi / 2),
    (0.0, 0.0, math.pi / 2),
    (0.088, 0.107, math.pi / 2),
)


def link_transform(theta: Tensor, a: float, d: float, alpha: float) -> Tensor:
    """Homogeneous matrices (batch, 4, 4) of one joint."""
    c, s = theta.cos(), theta.sin()
    ca, sa = math.cos(alpha), math.sin(alpha)
    zero, one = torch.zeros_like(c), torch.ones_like(c)
    rows = [
        torch.stack([c, -s, zero, a * one], -1),
        torch.stack([s * ca, c * ca, -sa * one, -d * sa * one], -1),
        torch.stack([s * sa, c * sa, ca * one, d * ca * one], -1),
        torch.stack([zero, zero, zero, one], -1),
    ]
    return torch.stack(rows, -2)


def inverse_kinematics(q: Tensor, goal: Tensor, damping: float = 0.05) -> tuple[Tensor, Tensor]:
    """Four steps of damped least squares with the geometric Jacobian of a seven-joint arm."""
    for _ in range(4):
        pose = torch.eye(4, dtype=q.dtype, device=q.device).expand(q.size(0), 4, 4)
        axes, origins = [], []
        for joint, (a, d, alpha) in enumerate(PANDA):
            pose = pose @ link_transform(q[:, joint], a, d, alpha)
            axes.append(pose[:, :3, 2])
            origins.append(pose[:, :3, 3])
        z, p = torch.stack(axes, -1), torch.stack(origins, -1)
        tip = pose[:, :3, 3]
        linear = torch.cross(z, tip[:, :, None] - p, dim=1)
        jacobian = torch.cat([linear, z], dim=1)
        now, wanted = pose[:, :3, :3], goal[:, :3, :3]
        turn = 0.5 * torch.cross(now, wanted, dim=1).sum(-1)
        error = torch.cat([goal[:, :3, 3] - tip, turn], dim=1)
        gram = jacobian @ jacobian.mT + damping**2 * torch.eye(6, dtype=q.dtype, device=q.device)
        step = jacobian.mT @ torch.linalg.solve(gram, error[:, :, None])
        q = q + step.squeeze(-1).clamp(-0.2, 0.2)
        q = torch.remainder(q + math.pi, 2 * math.pi) - math.pi
    return q, error.norm(dim=-1)


def arm(place: Place) -> Made:
    n = place.size(256, 16_384)
    angles = place.rand(n, 7) - 0.5
    goal = torch.eye(4, device=place.device).repeat(n, 1, 1)
    goal[:, :3, 3] = 0.3 + 0.3 * place.rand(n, 3)
    return inverse_kinematics, (angles, goal)


def skew(v: Tensor) -> Tensor:
    """The matrices of cross products with vectors (..., 3)."""
    x, y, z = v.unbind(-1)
    o = torch.zeros_like(x)
    return torch.stack([o, -z, y, z, o, -x, -y, x, o], -1).unflatten(-1, (3, 3))


class NewtonEuler(nn.Module):
    """Inverse dynamics by the recursive algorithm; masses, centres and inertias are learnt from torques."""

    def __init__(self, joints: int = 6) -> None:
        super().__init__()
        self.joints = joints
        self.log_mass = nn.Parameter(0.1 * torch.randn(joints))
        self.centre = nn.Parameter(0.1 * torch.randn(joints, 3))
        self.root = nn.Parameter(0.2 * torch.randn(joints, 3, 3))
        self.friction = nn.Parameter(torch.full((joints,), 0.1))
        self.register_buffer("offset", torch.tensor([[0.0, 0.0, 0.3]]).repeat(joints, 1))
        self.register_buffer("axis", torch.eye(3)[[2, 1, 1, 2, 1, 2]][:joints])

    def rotation(self, joint: int, angle: Tensor) -> Tensor:
        k = skew(self.axis[joint])
        s, c = angle.sin()[:, None, None], angle.cos()[:, None, None]
        return torch.eye(3, dtype=angle.dtype, device=angle.device) + s * k + (1 - c) * (k @ k)

    def forward(self, q: Tensor, qd: Tensor, qdd: Tensor, torque: Tensor) -> tuple[Tensor, Tensor]:
        batch = q.size(0)
        mass = self.log_mass.exp()
        inertia = self.root @ self.root.mT
        w = q.new_zeros(batch, 3)
        dw = q.new_zeros(batch, 3)
        a = q.new_tensor([0.0, 0.0, 9.81]).expand(batch, 3)
        turns, forces, moments = [], [], []
        for i in range(self.joints):
            r = self.rotation(i, q[:, i])
            axis = self.axis[i]
            w_in = torch.einsum("bji,bj->bi", r, w)
            dw_in = torch.einsum("bji,bj->bi", r, dw)
            lever = self.offset[i].expand(batch, 3)
            a_in = a + torch.linalg.cross(dw, lever) + torch.linalg.cross(w, torch.linalg.cross(w, lever))
            a = torch.einsum("bji,bj->bi", r, a_in)
            spin = qd[:, i, None] * axis
            dw = dw_in + qdd[:, i, None] * axis + torch.linalg.cross(w_in, spin)
            w = w_in + spin
            c = self.centre[i].expand(batch, 3)
            ac = a + torch.linalg.cross(dw, c) + torch.linalg.cross(w, torch.linalg.cross(w, c))
            angular = w @ inertia[i]
            turns.append(r)
            forces.append(mass[i] * ac)
            moments.append(dw @ inertia[i] + torch.linalg.cross(w, angular))
        f, n = torch.zeros_like(w), torch.zeros_like(w)
        taus: list[Tensor] = []
        for i in reversed(range(self.joints)):
            if i + 1 < self.joints:
                carried = torch.einsum("bij,bj->bi", turns[i + 1], f)
                n = torch.einsum("bij,bj->bi", turns[i + 1], n)
                n = n + torch.linalg.cross(self.offset[i + 1].expand(batch, 3), carried)
                f = carried
            f = f + forces[i]
            n = n + moments[i] + torch.linalg.cross(self.centre[i].expand(batch, 3), forces[i])
            taus.insert(0, (n * self.axis[i]).sum(-1) + self.friction[i] * qd[:, i])
        predicted = torch.stack(taus, -1)
        return F.huber_loss(predicted, torque), predicted


def newton_euler(place: Place) -> Made:
    n = place.size(512, 32_768)
    states = [0.5 * place.randn(n, 6) for _ in range(4)]
    return NewtonEuler().to(place.device), tuple(states)


def quadrotor(state: Tensor, thrust: Tensor, dt: float) -> Tensor:
    """One step of place, velocity, quaternion and body rates under four rotors."""
    p, v, q, w = state.split([3, 3, 4, 3], dim=-1)
    qw, qx, qy, qz = q.unbind(-1)
    up = torch.stack([2 * (qx * qz + qw * qy), 2 * (qy * qz - qw * qx), 1 - 2 * (qx**2 + qy**2)], -1)
    gravity = torch.zeros_like(v)
    gravity[..., 2] = -9.81
    acceleration = up * thrust.sum(-1, keepdim=True) + gravity - 0.1 * v
    a, b, c, d = thrust.unbind(-1)
    torque = torch.stack([b - d, a - c, 0.2 * (a - b + c - d)], -1)
    wx, wy, wz = w.unbind(-1)
    rate = torch.stack(
        [
            -qx * wx - qy * wy - qz * wz,
            qw * wx + qy * wz - qz * wy,
            qw * wy - qx * wz + qz * wx,
            qw * wz + qx * wy - qy * wx,
        ],
        -1,
    )
    q = q + 0.5 * dt * rate
    q = q / q.norm(dim=-1, keepdim=True)
    return torch.cat([p + dt * v, v + dt * acceleration, q, w + dt * (4 * torque - 0.3 * w)], -1)


def cross_entropy_method(start: Tensor, goal: Tensor, noise: Tensor, elites: int = 32) -> tuple[Tensor, Tensor]:
    """Plans of a quadrotor: sample around a mean, roll out, keep the elites, refit; twice over."""
    rounds, samples, horizon, _ = noise.shape
    mean = noise.new_full((horizon, 4), 9.81 / 4)
    std = torch.ones_like(mean)
    best = []
    for i in range(rounds):
        plans = (mean + std * noise[i]).clamp(0.0, 6.0)
        state = start.expand(samples, 13)
        cost = noise.new_zeros(samples)
        for t in range(horizon):
            state = quadrotor(state, plans[:, t], 0.05)
            away = (state[:, :3] - goal).square().sum(-1)
            tilt = state[:, 7:9].square().sum(-1)
            cost = cost + away + 0.5 * tilt + 1e-3 * plans[:, t].square().sum(-1)
            cost = torch.where(state[:, 2] < 0, cost + 10.0, cost)
        value, index = cost.topk(elites, largest=False)
        chosen = plans[index]
        mean = 0.9 * chosen.mean(0) + 0.1 * mean
        std = chosen.std(0, unbiased=False) + 1e-2
        best.append(value[0])
    return mean, torch.stack(best)


def cem(place: Place) -> Made:
    samples, horizon = place.size(256, 16_384), 9
    start = torch.zeros(13)
    start[2], start[6] = 1.0, 1.0
    goal = torch.tensor([1.0, -0.5, 2.0])
    noise = place.randn(2, samples, horizon, 4)
    return cross_entropy_method, (start.to(place.device), goal.to(place.device), noise)


def occupancy_grid(log_odds: Tensor, poses: Tensor, ranges: Tensor, cell: float = 0.1) -> tuple[Tensor, Tensor]:
    """A map from a robot's scans: cells along each beam are free, those at its end are occupied."""
    size = log_odds.size(-1)
    beams = ranges.size(-1)
    angle = poses[:, 2:3] + torch.linspace(-math.pi, math.pi, beams + 1, device=ranges.device, dtype=ranges.dtype)[:-1]
    direction = torch.stack([angle.cos(), angle.sin()], -1)
    along = torch.linspace(0, 1, 48, device=ranges.device, dtype=ranges.dtype)
    reach = (ranges - cell).clamp(min=0)[..., None] * along
    free = poses[:, None, None, :2] + reach[..., None] * direction[:, :, None]
    ends = poses[:, None, :2] + ranges[..., None] * direction
    hit = ranges < 8.0
    updated = log_odds.clone()
    for points, amount in ((free.flatten(0, 2), -0.05), (ends.flatten(0, 1), 0.85)):
        at = (points / cell).floor().long() + size // 2
        inside = ((at >= 0) & (at < size)).all(-1)
        if amount > 0:
            inside &= hit.flatten()
        flat = torch.where(inside, at[:, 1] * size + at[:, 0], size * size)
        votes = updated.new_zeros(size * size + 1).index_add_(0, flat, updated.new_full(flat.shape, amount))
        updated += votes[:-1].view(size, size)
    updated.clamp_(-4.0, 4.0)
    p = torch.sigmoid(updated)
    entropy = -(p * p.log() + (1 - p) * (1 - p).log())
    return updated, entropy.mean()


def lidar(place: Place) -> Made:
    size, scans, beams = place.size(128, 512), place.size(16, 256), place.size(90, 360)
    poses = place.randn(scans, 3)
    ranges = 10.0 * (place.randint(4096, scans, beams) + 0.5) / 4096
    return occupancy_grid, (torch.zeros(size, size, device=place.device), poses, ranges)


class HopperPolicy(nn.Module):
    """A policy trained through a simulated hopper: penalty contact with friction, substeps, energy in the loss."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, hidden), nn.ELU(), nn.Linear(hidden, 2))

    def forward(self, body: Tensor, velocity: Tensor, leg: Tensor, leg_rate: Tensor) -> tuple[Tensor, Tensor]:
        dt = 0.02
        effort = body.new_zeros(body.size(0))
        for _ in range(6):
            command = torch.tanh(self.net(torch.cat([velocity, leg, leg_rate], dim=-1)))
            for _ in range(2):
                swing, length = leg.unbind(-1)
                foot = body + torch.stack([length * swing.sin(), -length * swing.cos()], dim=-1)
                depth = F.softplus(-foot[:, 1], beta=50.0)
                slip = velocity[:, 0] + leg_rate[:, 0] * length
                normal = 200.0 * depth - 2.0 * depth * velocity[:, 1]
                friction = -0.8 * normal * torch.tanh(5.0 * slip)
                force = torch.stack([friction, normal - 9.81], dim=-1)
                velocity = velocity + dt * force
                body = body + dt * velocity
                pull = torch.stack([5.0 * command[:, 0] - swing, 20.0 * (1.0 + 0.3 * command[:, 1] - length)], dim=-1)
                leg_rate = 0.95 * leg_rate + dt * pull
                leg = torch.stack(
                    [leg[:, 0] + dt * leg_rate[:, 0], (leg[:, 1] + dt * leg_rate[:, 1]).clamp(0.5, 1.5)], -1
                )
            effort = effort + command.square().sum(-1)
        reward = body[:, 0] - 0.01 * effort - (body[:, 1] - 1.0).square()
        return -reward.mean(), body


def hopper(place: Place) -> Made:
    n = place.size(256, 16_384)
    body = torch.stack([torch.zeros(n), torch.ones(n)], dim=-1).to(place.device)
    leg = torch.stack([torch.zeros(n), torch.ones(n)], dim=-1).to(place.device) + 0.05 * place.randn(n, 2)
    return HopperPolicy().to(place.device), (body, 0.3 * place.randn(n, 2), leg, 0.1 * place.randn(n, 2))


ROWS: tuple[Row, ...] = (
    Row("program/arm_inverse_kinematics", arm),
    Row("program/newton_euler_identification", newton_euler, "training"),
    Row("program/cross_entropy_planning", cem),
    Row("program/lidar_occupancy_grid", lidar),
    Row("program/hopper_policy_gradient", hopper, "training"),
)
