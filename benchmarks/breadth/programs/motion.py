"""Bodies that are driven: quadrotors, local quadratic plans, graphs of poses, splines, skins, ropes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def hat(w: Tensor) -> Tensor:
    """The matrix of a cross product."""
    x, y, z = w.unbind(-1)
    o = torch.zeros_like(x)
    return torch.stack([o, -z, y, z, o, -x, -y, x, o], -1).view(*w.shape[:-1], 3, 3)


def exponential(w: Tensor) -> Tensor:
    """Rodrigues' rotation, by series near zero."""
    square = w.square().sum(-1, keepdim=True)[..., None]
    small = square < 1e-6
    angle = torch.where(small, torch.ones_like(square), square).sqrt()
    a = torch.where(small, 1 - square / 6, angle.sin() / angle)
    b = torch.where(small, 0.5 - square / 24, (1 - angle.cos()) / angle**2)
    k = hat(w)
    return torch.eye(3, device=w.device) + a * k + b * (k @ k)


class QuadrotorTracking(nn.Module):
    """Lee's controller on SE(3) whose gains are learnt through a rollout of rigid bodies."""

    def __init__(self) -> None:
        super().__init__()
        self.gains = nn.Parameter(torch.tensor([1.5, 1.0, 2.0, 0.5]))

    def forward(self, x: Tensor, v: Tensor, rotation: Tensor, rate: Tensor, path: Tensor) -> tuple[Tensor, Tensor]:
        kx, kv, kr, kw = F.softplus(self.gains)
        dt, mass, gravity = 0.02, 1.0, x.new_tensor([0.0, 0.0, 9.81])
        inertia = x.new_tensor([0.02, 0.02, 0.04])
        error, effort = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
        for target in path.unbind(1):
            force = mass * (-4 * kx * (x - target) - 4 * kv * v + gravity)
            thrust = (force * rotation[:, :, 2]).sum(-1, keepdim=True).clamp(0, 25)
            b3 = F.normalize(force, dim=-1)
            b2 = F.normalize(torch.linalg.cross(b3, x.new_tensor([1.0, 0.0, 0.0]).expand_as(b3)), dim=-1)
            wanted = torch.stack([torch.linalg.cross(b2, b3), b2, b3], -1)
            skew = wanted.mT @ rotation - rotation.mT @ wanted
            turn = 0.5 * torch.stack([skew[:, 2, 1], skew[:, 0, 2], skew[:, 1, 0]], -1)
            torque = -kr * turn - 0.2 * kw * rate
            spin = (torque - torch.linalg.cross(rate, inertia * rate)) / inertia
            v = v + dt * (thrust * rotation[:, :, 2] / mass - gravity)
            x = x + dt * v
            rate = (rate + dt * spin).clamp(-20, 20)
            rotation = rotation @ exponential(dt * rate)
            error = error + (x - target).square().sum(-1)
            effort = effort + 1e-3 * torque.square().sum(-1)
        return error + effort, x


def quadrotors(place: Place) -> Made:
    n, steps = place.size(64, 65_536), 6
    rotation = exponential(0.2 * place.randn(n, 3))
    path = torch.cumsum(0.05 * place.randn(n, steps, 3), 1)
    return QuadrotorTracking().to(place.device), (
        place.randn(n, 3),
        place.randn(n, 3),
        rotation,
        place.randn(n, 3),
        path,
    )


def local_plans(start: Tensor, controls: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
    """Iterative LQR for cars: analytic Jacobians, Riccati backwards, a line search of four steps forwards."""
    dt = 0.1

    def step(s: Tensor, u: Tensor) -> Tensor:
        heading, speed = s[..., 2], s[..., 3]
        change = torch.stack([speed * heading.cos(), speed * heading.sin(), speed * u[..., 1].tanh(), u[..., 0]], -1)
        return s + dt * change

    def price(states: Tensor, u: Tensor) -> Tensor:
        return 0.01 * u.square().sum((-1, -2)) + 5 * (states[..., -1, :] - goal).square().sum(-1)

    b, t, _ = controls.shape
    eye = torch.eye(4, device=start.device).expand(b, 4, 4)
    damp = 0.02 * torch.eye(2, device=start.device) + 1e-3 * torch.eye(2, device=start.device)
    costs = []
    for _ in range(2):
        states = [start]
        for k in range(t):
            states.append(step(states[-1], controls[:, k]))
        s = torch.stack(states, 1)
        vx, vxx = 10 * (s[:, -1] - goal), 10 * eye
        gains, changes = [], []
        for k in range(t - 1, -1, -1):
            h, v, steer = s[:, k, 2], s[:, k, 3], controls[:, k, 1]
            a, bu = eye.clone(), torch.zeros(b, 4, 2, device=start.device)
            a[:, 0, 2], a[:, 0, 3] = -dt * v * h.sin(), dt * h.cos()
            a[:, 1, 2], a[:, 1, 3] = dt * v * h.cos(), dt * h.sin()
            a[:, 2, 3] = dt * steer.tanh()
            bu[:, 2, 1], bu[:, 3, 0] = dt * v * (1 - steer.tanh() ** 2), dt
            qu = 0.02 * controls[:, k] + (bu.mT @ vx[..., None])[..., 0]
            quu, qux = damp + bu.mT @ vxx @ bu, bu.mT @ vxx @ a
            solved = torch.linalg.solve(quu, torch.cat([qu[..., None], qux], -1))
            small, gain = -solved[..., 0], -solved[..., 1:]
            vx = (a.mT @ vx[..., None])[..., 0] + (qux.mT @ small[..., None])[..., 0]
            vxx = a.mT @ vxx @ a + qux.mT @ gain
            vxx = 0.5 * (vxx + vxx.mT)
            gains.append(gain)
            changes.append(small)
        alpha = torch.tensor([1.0, 0.5, 0.25, 0.0], device=start.device)[:, None, None]
        now, tried, places = start.expand(4, b, 4), [], []
        for k in range(t):
            feedback = (gains[t - 1 - k] @ (now - s[:, k])[..., None])[..., 0]
            u = controls[:, k] + alpha * changes[t - 1 - k] + feedback
            now = step(now, u)
            tried.append(u)
            places.append(now)
        every = torch.stack(tried, 2)
        cost, best = price(torch.stack(places, 2), every).min(0)
        controls = every[best, torch.arange(b, device=best.device)]
        costs.append(cost)
    return controls, torch.stack(costs)


def plans(place: Place) -> Made:
    n, t = place.size(64, 16_384), 6
    start = torch.cat([place.randn(n, 3), 1 + place.rand(n, 1)], 1)
    return local_plans, (start, 0.1 * place.randn(n, t, 2), torch.cat([3 * place.rand(n, 2), place.rand(n, 2)], 1))


def pose_graph(poses: Tensor, first: Tensor, second: Tensor, measured: Tensor) -> tuple[Tensor, Tensor]:
    """Planar SLAM: errors of loops with Huber's weights, blocks added up in a dense system, Gauss-Newton's steps."""
    n, e = len(poses), len(first)
    costs = []
    for _ in range(3):
        xi, xj = poses[first], poses[second]
        c, s = xi[:, 2].cos(), xi[:, 2].sin()
        dx, dy = (xj - xi)[:, 0], (xj - xi)[:, 1]
        angle = xj[:, 2] - xi[:, 2] - measured[:, 2]
        error = torch.stack([
            c * dx + s * dy - measured[:, 0], -s * dx + c * dy - measured[:, 1], torch.atan2(angle.sin(), angle.cos())
        ], 1)  # fmt: skip
        norm = error.norm(dim=1)
        weight = torch.where(norm < 1, torch.ones_like(norm), 1 / norm.clamp(min=1))[:, None, None]
        zero, one = torch.zeros_like(c), torch.ones_like(c)
        ji = torch.stack([-c, -s, -s * dx + c * dy, s, -c, -c * dx - s * dy, zero, zero, -one], 1).view(e, 3, 3)
        jj = torch.stack([c, s, zero, -s, c, zero, zero, zero, one], 1).view(e, 3, 3)
        system = torch.zeros(n, n, 3, 3, device=poses.device)
        for (p, jp), (q, jq) in (((first, ji), (first, ji)), ((first, ji), (second, jj)),
                                 ((second, jj), (first, ji)), ((second, jj), (second, jj))):  # fmt: skip
            system.index_put_((p, q), weight * jp.mT @ jq, accumulate=True)
        right = torch.zeros(n, 3, 1, device=poses.device)
        right.index_add_(0, first, weight * ji.mT @ error[..., None])
        right.index_add_(0, second, weight * jj.mT @ error[..., None])
        matrix = system.permute(0, 2, 1, 3).reshape(3 * n, 3 * n) + 0.1 * torch.eye(3 * n, device=poses.device)
        factor = torch.linalg.cholesky(matrix)
        poses = poses - torch.cholesky_solve(right.view(-1, 1), factor).view(n, 3)
        costs.append((weight[:, 0, 0] * norm.square()).sum())
    return poses, torch.stack(costs)


def graph_of_poses(place: Place) -> Made:
    n, loops = place.size(24, 700), place.size(20, 3000)
    first = torch.cat([torch.arange(n - 1, device=place.device), place.randint(n, loops)])
    second = torch.cat([torch.arange(1, n, device=place.device), place.randint(n, loops)])
    second = torch.where(first == second, (second + 1) % n, second)
    poses = torch.cumsum(place.randn(n, 3) * 0.3, 0)
    return pose_graph, (poses, first, second, (poses[second] - poses[first]) + 0.1 * place.randn(len(first), 3))


def spline_trajectories(points: Tensor, obstacles: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Cubic B-splines as plans of drones: smoothness, obstacles, limits of speed, distance of neighbours in time."""
    batch = len(points)
    knots = torch.cat([ends[:, :1].expand(-1, 3, -1), points, ends[:, 1:].expand(-1, 3, -1)], 1)
    u = torch.linspace(0, 1, 9, device=points.device)[:-1]
    basis = torch.stack([(1 - u) ** 3, 3 * u**3 - 6 * u**2 + 4, -3 * u**3 + 3 * u**2 + 3 * u + 1, u**3], 1) / 6
    windows = knots.unfold(1, 4, 1)
    path = torch.einsum("uk,bndk->bnud", basis, windows).flatten(1, 2)
    speed = path.diff(dim=1) / 0.05
    jerk = knots.diff(n=3, dim=1).square().sum((1, 2))
    gap = (path[:, :, None] - obstacles[None, None, :, :3]).norm(dim=-1) - obstacles[:, 3]
    collision = torch.where(gap < 0, 0.25 - gap, 2 * (0.5 - gap).clamp(min=0) ** 2).sum((1, 2))
    fast = (speed.norm(dim=-1) - 3).clamp(min=0).square().mean(1)
    between = torch.cdist(path.transpose(0, 1), path.transpose(0, 1))
    close = (0.6 - between).clamp(min=0).masked_fill(torch.eye(batch, dtype=torch.bool, device=path.device), 0)
    return jerk + 10 * collision + fast + 5 * close.square().sum((0, 2)), path


def splines(place: Place) -> Made:
    n, count, obstacles = place.size(12, 192), place.size(8, 24), place.size(10, 60)
    ends = 3 * place.randn(n, 2, 3)
    share = torch.linspace(0, 1, count + 2, device=place.device)[1:-1, None]
    points = ends[:, :1] * (1 - share) + ends[:, 1:] * share + 0.3 * place.randn(n, count, 3)
    balls = torch.cat([2 * place.randn(obstacles, 3), 0.2 + 0.5 * place.rand(obstacles, 1)], 1)
    return spline_trajectories, (points.requires_grad_(), balls, ends)


def quaternion_product(a: Tensor, b: Tensor) -> Tensor:
    scalar = a[..., :1] * b[..., :1] - (a[..., 1:] * b[..., 1:]).sum(-1, keepdim=True)
    vector = a[..., :1] * b[..., 1:] + b[..., :1] * a[..., 1:] + torch.linalg.cross(a[..., 1:], b[..., 1:])
    return torch.cat([scalar, vector], -1)


def dual_skin(vertices: Tensor, bones: Tensor, weights: Tensor, turns: Tensor, shifts: Tensor) -> tuple[Tensor, Tensor]:
    """Kavan and others, 2008: four bones a vertex, blended as dual quaternions, all on one half of the sphere."""
    real = F.normalize(turns, dim=-1)
    dual = 0.5 * quaternion_product(F.pad(shifts, (1, 0)), real)
    r, d = real[:, bones], dual[:, bones]
    sign = torch.where((r * r[..., :1, :]).sum(-1, keepdim=True) < 0, -1.0, 1.0)
    w = weights[..., None] * sign
    r, d = (w * r).sum(-2), (w * d).sum(-2)
    size = r.norm(dim=-1, keepdim=True)
    r, d = r / size, d / size
    axis = r[..., 1:]
    twice = 2 * torch.linalg.cross(axis, torch.linalg.cross(axis, vertices.expand_as(axis)) + r[..., :1] * vertices)
    conjugate = r * r.new_tensor([1.0, -1.0, -1.0, -1.0])
    moved = vertices + twice + 2 * quaternion_product(d, conjugate)[..., 1:]
    return moved, torch.stack([moved.amin(1), moved.amax(1)], 1)


def skins(place: Place) -> Made:
    n, bones, frames = place.size(600, 50_000), 40, place.size(3, 24)
    weights = place.rand(n, 4).softmax(1)
    turns, shifts = place.randn(frames, bones, 4), 0.2 * place.randn(frames, bones, 3)
    return dual_skin, (place.randn(n, 3), place.randint(bones, n, 4), weights, turns, shifts)


def ropes(x: Tensor, v: Tensor, mass: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
    """Macklin and others, 2016 (XPBD): red and black links, bending, a floor and a ball; written in place."""
    dt, compliance = 1 / 240, 1e-6
    ball, radius = x.new_tensor([0.0, 0.5, 0.0]), 0.4
    for _ in range(4):
        v[..., 1] -= 9.81 * dt
        before = x.clone()
        x.addcmul_(v, (mass > 0).to(v.dtype)[..., None], value=dt)
        for gap, lengths, soft in ((1, rest, compliance), (2, 2 * rest, 100 * compliance)):
            for start in range(2 * gap):
                a, b = x[:, start :: 2 * gap], x[:, start + gap :: 2 * gap]
                a = a[:, : b.size(1)]
                wa, wb = mass[:, start :: 2 * gap][:, : b.size(1)], mass[:, start + gap :: 2 * gap]
                delta = b - a
                length = delta.norm(dim=-1).clamp(min=1e-6)
                push = (length - lengths) / (wa + wb + soft / dt**2) / length
                move = delta * push[..., None]
                a += wa[..., None] * move
                b -= wb[..., None] * move
        away = x - ball
        far = away.norm(dim=-1, keepdim=True).clamp(min=1e-6)
        x.copy_(torch.where(far < radius, ball + away / far * radius, x))
        x[..., 1].clamp_(min=-1)
        v.copy_((x - before) / dt * math.exp(-0.5 * dt))
    return x.diff(dim=1).norm(dim=-1).sum(1), v.square().sum((1, 2))


def many_ropes(place: Place) -> Made:
    n, links = place.size(64, 8192), place.size(33, 97)
    line = torch.arange(links, device=place.device) * 0.05
    x = torch.stack([line, torch.ones_like(line), torch.zeros_like(line)], 1) + 0.01 * place.randn(n, links, 3)
    mass = torch.ones(n, links, device=place.device)
    mass[:, 0] = 0
    return ropes, (x, torch.zeros_like(x), mass, torch.full((n, 1), 0.05, device=place.device))


ROWS: tuple[Row, ...] = (
    Row("program/quadrotor_tracking", quadrotors, "training"),
    Row("program/local_quadratic_plans", plans),
    Row("program/planar_pose_graph", graph_of_poses),
    Row("program/spline_trajectories", splines, "training"),
    Row("program/dual_quaternion_skins", skins),
    Row("program/position_based_ropes", many_ropes, writes=True),
)
