"""Machines that move and learn: plans around obstacles, contacts, rewards of legged robots, scans, games, returns."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def smoothed_plans(
    plans: Tensor, field: Tensor, inverse: Tensor, offsets: Tensor, extent: float, step: float, rounds: int
) -> tuple[Tensor, Tensor]:
    """CHOMP (Zucker et al., 2013): plans of a disc-shaped arm descend by a covariant metric, away from obstacles."""
    plans = plans.clone()
    size = field.size(0)
    for _ in range(rounds):
        velocity = 0.5 * (plans[:, 2:] - plans[:, :-2])
        acceleration = plans[:, 2:] - 2 * plans[:, 1:-1] + plans[:, :-2]
        gradient = torch.zeros_like(velocity)
        for offset in offsets:
            angle = plans[:, 1:-1, 2]
            c, s = torch.cos(angle), torch.sin(angle)
            lever = torch.stack([c * offset[0] - s * offset[1], s * offset[0] + c * offset[1]], dim=-1)
            at = (plans[:, 1:-1, :2] + lever) / extent * (size - 1)
            low = at.floor().clamp(0, size - 2)
            f = (at - low).clamp(0, 1)
            i, j = low.long().unbind(-1)
            v00, v01, v10, v11 = field[i, j], field[i, j + 1], field[i + 1, j], field[i + 1, j + 1]
            top, bottom = v00 + f[..., 1] * (v01 - v00), v10 + f[..., 1] * (v11 - v10)
            distance = top + f[..., 0] * (bottom - top)
            gx = (bottom - top) * (size - 1) / extent
            gy = torch.lerp(v01 - v00, v11 - v10, f[..., 0]) * (size - 1) / extent
            slope = torch.where(distance < 0, -1.0, torch.where(distance < 0.2, (distance - 0.2) / 0.2, 0.0))
            cost = torch.where(
                distance < 0, 0.1 - distance, torch.where(distance < 0.2, (distance - 0.2) ** 2 / 0.4, 0.0)
            )
            speed = velocity[..., :2].norm(dim=-1, keepdim=True).clamp(min=1e-4)
            unit = velocity[..., :2] / speed
            push = slope[..., None] * torch.stack([gx, gy], dim=-1)
            curvature = (acceleration[..., :2] - unit * (unit * acceleration[..., :2]).sum(-1, keepdim=True)) / speed**2
            push = speed * (push - unit * (unit * push).sum(-1, keepdim=True) - cost[..., None] * curvature)
            gradient[..., :2] += push
            gradient[..., 2] += -push[..., 0] * lever[..., 1] + push[..., 1] * lever[..., 0]
        total = 0.1 * gradient - acceleration
        plans[:, 1:-1] -= step * torch.einsum("tu,bud->btd", inverse, total)
    return plans, (plans[:, 2:] - 2 * plans[:, 1:-1] + plans[:, :-2]).square().sum((1, 2))


def trajectory_smoothing(place: Place) -> Made:
    b, t, n = place.size(8, 512), place.size(16, 64), place.size(32, 256)
    at = torch.linspace(0, 1, n)
    centres = 0.2 + 0.6 * torch.rand(5, 2)
    y, x = torch.meshgrid(at, at, indexing="ij")
    field = torch.stack([((y - c[0]) ** 2 + (x - c[1]) ** 2).sqrt() - 0.08 for c in centres]).amin(0)
    ends = torch.rand(b, 2, 3)
    along = torch.linspace(0, 1, t)[:, None]
    plans = ends[:, :1] * (1 - along) + ends[:, 1:] * along + 0.01 * torch.randn(b, t, 3)
    second = 2 * torch.eye(t - 2) - torch.eye(t - 2).roll(1, 0).tril() - torch.eye(t - 2).roll(-1, 0).triu()
    inverse = torch.linalg.inv(second + 0.01 * torch.eye(t - 2))
    offsets = torch.tensor([[0.0, 0.0], [0.04, 0.0], [-0.04, 0.02]])
    return smoothed_plans, (
        *(v.to(place.device) for v in (plans, field, inverse, offsets)),
        1.0,
        0.1 / t,
        place.size(2, 5),
    )


def stacked_contacts(
    height: Tensor, velocity: Tensor, mass: Tensor, radius: Tensor, slope: float, dt: float, steps: int, sweeps: int
) -> tuple[Tensor, Tensor]:
    """Columns of discs under gravity: normal and frictional impulses by projected Gauss-Seidel, warm started."""
    envs, n = mass.shape
    position = torch.stack([torch.zeros_like(height), height], dim=-1)
    velocity, omega = velocity.clone(), torch.zeros_like(mass)
    inertia = 0.5 * mass * radius**2
    impulse = torch.zeros(envs, n, 2, dtype=mass.dtype, device=mass.device)
    for _ in range(steps):
        velocity[..., 0] += dt * 9.81 * math.sin(slope)
        velocity[..., 1] -= dt * 9.81 * math.cos(slope)
        impulse *= 0.8
        for _ in range(sweeps):
            for i in range(n):
                below = i - 1
                gap = position[:, i, 1] - radius[:, i]
                inverse = 1 / mass[:, i]
                vn = velocity[:, i, 1]
                vt = velocity[:, i, 0] + omega[:, i] * radius[:, i]
                if below >= 0:
                    gap = gap - position[:, below, 1] - radius[:, below]
                    inverse = inverse + 1 / mass[:, below]
                    vn = vn - velocity[:, below, 1]
                    vt = vt - velocity[:, below, 0] + omega[:, below] * radius[:, below]
                bias = 0.2 / dt * (gap + 0.005).clamp(max=0)
                old = impulse[:, i].clone()
                push = (old[:, 0] - (vn + bias) / inverse).clamp(min=0)
                push = torch.where(gap < 0.001, push, 0.0)
                bound = 0.5 * push
                turn = torch.minimum(torch.maximum(old[:, 1] - vt / (3 * inverse), -bound), bound)
                impulse[:, i, 0], impulse[:, i, 1] = push, turn
                dn, dtg = push - old[:, 0], turn - old[:, 1]
                velocity[:, i] += torch.stack([dtg, dn], dim=-1) / mass[:, i, None]
                omega[:, i] += radius[:, i] * dtg / inertia[:, i]
                if below >= 0:
                    velocity[:, below] -= torch.stack([dtg, dn], dim=-1) / mass[:, below, None]
                    omega[:, below] += radius[:, below] * dtg / inertia[:, below]
        position = position + dt * velocity
    return position, impulse


def contacts(place: Place) -> Made:
    envs, n = place.size(32, 16_384), place.size(3, 4)
    radius = 0.1 + 0.1 * place.rand(envs, n)
    height = 2 * radius.cumsum(1) - radius - 0.002
    return stacked_contacts, (
        height,
        0.1 * place.randn(envs, n, 2),
        0.5 + place.rand(envs, n),
        radius,
        0.1,
        0.01,
        place.size(1, 2),
        place.size(2, 3),
    )


def quat_rotate_inverse(q: Tensor, v: Tensor) -> Tensor:
    shape = q.shape
    q_w, q_vec = q[:, -1], q[:, :3]
    a = v * (2.0 * q_w**2 - 1.0).unsqueeze(-1)
    b = torch.cross(q_vec, v, dim=-1) * q_w.unsqueeze(-1) * 2.0
    c = q_vec * torch.bmm(q_vec.view(shape[0], 1, 3), v.view(shape[0], 3, 1)).squeeze(-1) * 2.0
    return a - b + c


def legged_step(
    root: Tensor,
    dof_pos: Tensor,
    dof_vel: Tensor,
    last_dof_vel: Tensor,
    actions: Tensor,
    last_actions: Tensor,
    torques: Tensor,
    forces: Tensor,
    commands: Tensor,
    air_time: Tensor,
    last_contacts: Tensor,
    episode: Tensor,
    sums: Tensor,
    terrain: Tensor,
    default_pos: Tensor,
    fresh: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """After the physics of legged_gym (Rudin et al., 2021): rewards, ends, resets in place, heights, observations."""
    episode += 1
    quat, gravity = root[:, 3:7], root.new_tensor([0.0, 0.0, -1.0]).repeat(root.size(0), 1)
    base_lin_vel = quat_rotate_inverse(quat, root[:, 7:10])
    base_ang_vel = quat_rotate_inverse(quat, root[:, 10:13])
    projected = quat_rotate_inverse(quat, gravity)
    forward = torch.stack(
        [
            1 - 2 * (quat[:, 1] ** 2 + quat[:, 2] ** 2),
            2 * (quat[:, 0] * quat[:, 1] + quat[:, 3] * quat[:, 2]),
        ],
        dim=-1,
    )
    heading = torch.atan2(forward[:, 1], forward[:, 0])
    error = (commands[:, 3] - heading) % (2 * math.pi)
    error = error - 2 * math.pi * (error > math.pi)
    commands[:, 2] = torch.clip(0.5 * error, -1.0, 1.0)
    gx, gy = torch.meshgrid(
        torch.linspace(-0.8, 0.8, 17, device=root.device),
        torch.linspace(-0.5, 0.5, 11, device=root.device),
        indexing="ij",
    )
    px = forward[:, :1] * gx.flatten() - forward[:, 1:] * gy.flatten() + root[:, :1]
    py = forward[:, 1:] * gx.flatten() + forward[:, :1] * gy.flatten() + root[:, 1:2]
    ix = torch.clip((px / 0.1).long(), 0, terrain.shape[0] - 2)
    iy = torch.clip((py / 0.1).long(), 0, terrain.shape[1] - 2)
    heights = torch.min(torch.min(terrain[ix, iy], terrain[ix + 1, iy]), terrain[ix, iy + 1]) * 0.005
    contact = forces[:, :, 2] > 1.0
    filtered = torch.logical_or(contact, last_contacts)
    last_contacts[:] = contact
    first = (air_time > 0.0) * filtered
    air_time += 0.02
    moving = torch.norm(commands[:, :2], dim=1) > 0.1
    rewards = {
        "lin_vel": torch.exp(-torch.sum(torch.square(commands[:, :2] - base_lin_vel[:, :2]), dim=1) / 0.25),
        "ang_vel": 0.5 * torch.exp(-torch.square(commands[:, 2] - base_ang_vel[:, 2]) / 0.25),
        "lin_vel_z": -2.0 * torch.square(base_lin_vel[:, 2]),
        "ang_vel_xy": -0.05 * torch.sum(torch.square(base_ang_vel[:, :2]), dim=1),
        "orientation": -torch.sum(torch.square(projected[:, :2]), dim=1),
        "torques": -1e-5 * torch.sum(torch.square(torques), dim=1),
        "dof_acc": -2.5e-7 * torch.sum(torch.square((last_dof_vel - dof_vel) / 0.02), dim=1),
        "action_rate": -0.01 * torch.sum(torch.square(last_actions - actions), dim=1),
        "air_time": torch.sum((air_time - 0.5) * first, dim=1) * moving,
        "stumble": -1.0 * torch.any(torch.norm(forces[:, :, :2], dim=2) > 5 * torch.abs(forces[:, :, 2]), dim=1),
        "stand_still": -0.1 * torch.sum(torch.abs(dof_pos - default_pos), dim=1) * ~moving,
        "limits": -10.0 * torch.sum((dof_pos.abs() - 2.0).clip(min=0.0), dim=1),
    }
    air_time *= ~filtered
    total = torch.zeros_like(root[:, 0])
    for i, reward in enumerate(rewards.values()):
        total += reward * 0.02
        sums[:, i] += reward * 0.02
    total = torch.clip(total, min=0.0)
    timeout = episode > 1000
    reset = timeout | (projected[:, 2] > -0.2) | (root[:, 2] - heights.mean(1) < 0.15)
    measured = torch.clip(root[:, 2].unsqueeze(1) - 0.5 - heights, -1, 1.0) * 5.0
    obs = torch.cat(
        (
            base_lin_vel * 2.0,
            base_ang_vel * 0.25,
            projected,
            commands[:, :3] * 2.0,
            dof_pos - default_pos,
            dof_vel * 0.05,
            actions,
            measured,
        ),
        dim=-1,
    )
    dof_pos[reset] = (default_pos * (0.5 + fresh))[reset]
    dof_vel[reset] = 0.0
    for buffer in (air_time, episode, sums):
        buffer[reset] = 0
    last_actions[:] = actions[:]
    last_dof_vel[:] = dof_vel[:]
    return torch.clip(obs, -100.0, 100.0), total, reset


def legged_robots(place: Place) -> Made:
    n, side = place.size(64, 16_384), place.size(60, 1000)
    root = 0.2 * place.randn(n, 13)
    root[:, :2] = place.rand(n, 2) * side * 0.1
    root[:, 2] = 0.5 + 0.5 * root[:, 2]
    root[:, 3:7] = F.normalize(root.new_tensor([0.0, 0.0, 0.0, 1.0]) + root[:, 3:7], dim=1)
    states = [0.3 * place.randn(n, 12) for _ in range(6)]
    forces = 20 * place.rand(n, 4, 3)
    terrain = torch.randint(-20, 20, (side, side), dtype=torch.int16).to(place.device)
    return legged_step, (
        root,
        *states,
        forces,
        0.3 * place.randn(n, 4),
        place.rand(n, 4),
        place.rand(n, 4) < 0.5,
        place.randint(1010, n),
        place.randn(n, 12),
        terrain,
        0.5 * place.randn(12),
        place.rand(n, 12),
    )


def located_by_scans(
    particles: Tensor, weights: Tensor, grid: Tensor, scan: Tensor, bearings: Tensor, noise: Tensor, start: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Monte Carlo localisation: odometry, beams through an occupancy grid, likely ranges, systematic resampling."""
    move = particles.new_tensor([0.1, 0.02, 0.05]) + noise
    c, s = torch.cos(particles[:, 2]), torch.sin(particles[:, 2])
    x = particles[:, 0] + c * move[:, 0] - s * move[:, 1]
    y = particles[:, 1] + s * move[:, 0] + c * move[:, 1]
    heading = particles[:, 2] + move[:, 2]
    angle = heading[:, None] + bearings
    dx, dy = torch.cos(angle), torch.sin(angle)
    h, w = grid.shape
    reach = torch.zeros_like(angle)
    blocked = torch.zeros_like(angle, dtype=torch.bool)
    for _ in range(48):
        px = ((x[:, None] + reach * dx) * 10).long()
        py = ((y[:, None] + reach * dy) * 10).long()
        outside = (px < 0) | (py < 0) | (px >= w) | (py >= h)
        hit = outside | (grid[py.clamp(0, h - 1), px.clamp(0, w - 1)] > 50)
        blocked = blocked | hit
        reach = reach + 0.1 * ~blocked
    difference = scan - reach
    z_hit = torch.exp(-0.5 * (difference / 0.2) ** 2)
    z_short = torch.where(difference < 0, 0.5 * torch.exp(0.5 * difference), 0.0)
    z_max = (scan >= 4.7).to(scan.dtype)
    log_weight = torch.log(0.8 * z_hit + 0.1 * z_short + 0.05 * z_max + 0.05).sum(1) * 0.2
    weights = torch.softmax(weights.log() + log_weight, dim=0)
    effective = 1 / weights.square().sum()
    n = len(weights)
    positions = (torch.arange(n, device=weights.device, dtype=weights.dtype) + start) / n
    chosen = torch.searchsorted(weights.cumsum(0), positions).clamp(max=n - 1)
    moved = torch.stack([x, y, torch.atan2(torch.sin(heading), torch.cos(heading))], dim=1)
    mean = (weights[:, None] * moved).sum(0)
    spread = (weights[:, None, None] * (moved - mean)[:, :, None] * (moved - mean)[:, None, :]).sum(0)
    return mean, spread, effective / n, moved[chosen].mean(0)


def scan_localisation(place: Place) -> Made:
    n, beams, side = place.size(60, 10_000), place.size(8, 60), place.size(64, 400)
    grid = (100 * (torch.rand(side // 8, side // 8) < 0.15)).repeat_interleave(8, 0).repeat_interleave(8, 1)
    particles = place.rand(n, 3) * torch.tensor([side / 10, side / 10, 6.28], device=place.device)
    return located_by_scans, (
        particles,
        torch.full((n,), 1.0 / n, device=place.device),
        grid.to(torch.int8).to(place.device),
        4.8 * place.rand(beams),
        torch.linspace(-1.5, 1.5, beams).to(place.device),
        0.02 * place.randn(n, 3),
        place.rand(1),
    )


def snake_moves(
    board: Tensor, head: Tensor, length: Tensor, food: Tensor, done: Tensor, actions: Tensor, draws: Tensor
) -> tuple[Tensor, Tensor]:
    """Many games of snake: bodies as counters that fall, food on a free cell, ends and restarts; boards in place."""
    n, size, _ = board.shape
    index = torch.arange(n, device=board.device)
    moves = torch.tensor([[-1, 0], [0, 1], [1, 0], [0, -1]], device=board.device)
    rewards = torch.zeros(n, device=board.device)
    for t in range(actions.size(0)):
        head += moves[actions[t]]
        crash = ((head < 0) | (head >= size)).any(dim=1)
        head.clamp_(0, size - 1)
        board.sub_((board > 0).to(board.dtype))
        bitten = board[index, head[:, 0], head[:, 1]] > 0
        ate = (head == food).all(dim=1) & ~crash
        length += ate.to(length.dtype)
        board.add_((board > 0).to(board.dtype) * ate[:, None, None].to(board.dtype))
        board[index, head[:, 0], head[:, 1]] = length
        free = draws[t].view(n, -1).masked_fill(board.view(n, -1) > 0, -1.0)
        cell = free.argmax(dim=1)
        food[ate] = torch.stack([cell // size, cell % size], dim=1)[ate]
        over = crash | bitten
        rewards += ate.float() - over.float()
        done |= over
        board[over] = 0
        length[over] = 3
        head[over] = size // 2
        board[over, size // 2, size // 2] = 3
    planes = torch.stack([board > 0, board == length[:, None, None].to(board.dtype)], dim=1).float()
    goal = torch.zeros_like(planes[:, :1])
    goal[index, 0, food[:, 0], food[:, 1]] = 1.0
    return torch.cat([planes, goal], dim=1), rewards


def snake_games(place: Place) -> Made:
    n, size, steps = place.size(50, 20_000), place.size(8, 16), place.size(3, 12)
    board = torch.zeros(n, size, size, dtype=torch.int32)
    board[:, size // 2, size // 2 - 1 : size // 2 + 2] = torch.tensor([1, 2, 3], dtype=torch.int32)
    head = torch.tensor([size // 2, size // 2 + 1]).repeat(n, 1)
    return snake_moves, (
        board.to(place.device),
        head.to(place.device),
        torch.full((n,), 3, dtype=torch.int32, device=place.device),
        place.randint(size, n, 2),
        torch.zeros(n, dtype=torch.bool, device=place.device),
        place.randint(4, steps, n),
        place.rand(steps, n, size, size),
    )


def falling_blocks(board: Tensor, pieces: Tensor, shape: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every drop of a piece in many wells of Tetris: landing rows by heights, cleared lines, Dellacherie's features."""
    n, h, w = board.shape
    columns = w - 3
    drops = torch.arange(columns, device=board.device)
    rows = torch.arange(h, device=board.device)
    filled = board.bool()
    top = torch.where(filled.any(1), filled.int().argmax(1), h)
    cells = shape[pieces]
    r = cells.size(1)
    bottom = torch.where(cells.any(2), 4 - cells.flip(2).int().argmax(2), 0)
    under = top.unfold(1, 4, 1)
    room = torch.where(bottom[:, :, None] > 0, under[:, None] - bottom[:, :, None], h)
    y = room.amin(-1)
    legal = y >= 0
    placed = filled[:, None, None].expand(n, r, columns, h, w).clone()
    envs = torch.arange(n, device=board.device)[:, None, None]
    turns = torch.arange(r, device=board.device)[None, :, None]
    for i in range(4):
        for j in range(4):
            at = (y + i).clamp(0, h - 1)
            placed[envs, turns, drops, at, drops + j] |= cells[:, :, None, i, j] & legal
    full = placed.all(-1)
    lines = full.sum(-1)
    order = torch.where(full, rows - h, rows).argsort(dim=-1)
    placed = placed.gather(3, order[..., None].expand_as(placed))
    placed = placed & (rows >= lines[..., None])[..., None]
    covered = placed.cumsum(3) > 0
    holes = (covered & ~placed).sum((-2, -1))
    heights = covered.sum(3)
    bumps = (heights[..., 1:] - heights[..., :-1]).abs().sum(-1)
    edges = F.pad(placed, (1, 1), value=True)
    transitions = (edges[..., 1:] != edges[..., :-1]).sum((-2, -1))
    score = 760 * lines - 510 * heights.sum(-1) - 357 * holes - 184 * bumps - 3 * transitions
    score = score.masked_fill(~legal, -(10**6)).flatten(1)
    best = score.argmax(1)
    chosen = placed.flatten(1, 2)[torch.arange(n, device=board.device), best]
    return chosen.to(torch.uint8), best // columns, best % columns, score.amax(1)


def tetris(place: Place) -> Made:
    n, h, w = place.size(20, 4096), place.size(12, 20), place.size(8, 10)
    board = torch.rand(n, h, w) < 0.8
    level = torch.randint(h // 2, h, (n, 1, w))
    board = board & (torch.arange(h)[:, None] >= level)
    base = torch.zeros(7, 4, 4, dtype=torch.bool)
    squares = ("0123", "0156", "0145", "1456", "0456", "2456", "1245")
    for k, s in enumerate(squares):
        base[k].view(-1)[[int(c) for c in s]] = True
    turned = torch.stack([torch.rot90(base, q, (1, 2)) for q in range(4)], dim=1)
    empty = ~turned.any(-1)
    turned = turned.gather(2, empty.int().argsort(dim=2, stable=True)[..., None].expand_as(turned))
    empty = ~turned.any(-2)
    turned = turned.gather(3, empty.int().argsort(dim=2, stable=True)[..., None, :].expand_as(turned))
    return falling_blocks, (board.to(torch.uint8).to(place.device), place.randint(7, n), turned.to(place.device))


class ReturnTokens(nn.Module):
    """Decision transformer (Chen et al., 2021): returns, states and actions interleaved, a causal GPT, three heads."""

    def __init__(self, state: int, action: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.embed_timestep = nn.Embedding(1000, width)
        self.embed_return = nn.Linear(1, width)
        self.embed_state, self.embed_action = nn.Linear(state, width), nn.Linear(action, width)
        self.embed_ln, self.ln_f = nn.LayerNorm(width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "ln_1": nn.LayerNorm(width),
                    "c_attn": nn.Linear(width, 3 * width),
                    "c_proj": nn.Linear(width, width),
                    "ln_2": nn.LayerNorm(width),
                    "c_fc": nn.Linear(width, 4 * width),
                    "mlp": nn.Linear(4 * width, width),
                }
            )
            for _ in range(layers)
        )
        self.predict_action = nn.Sequential(nn.Linear(width, action), nn.Tanh())
        self.predict_state, self.predict_return = nn.Linear(width, state), nn.Linear(width, 1)

    def forward(self, states: Tensor, actions: Tensor, returns: Tensor, timesteps: Tensor, mask: Tensor) -> Tensor:
        b, t = states.shape[:2]
        time = self.embed_timestep(timesteps)
        parts = (self.embed_return(returns), self.embed_state(states), self.embed_action(actions))
        stacked = torch.stack([p + time for p in parts], dim=1).permute(0, 2, 1, 3).reshape(b, 3 * t, self.width)
        x = self.embed_ln(stacked)
        keep = torch.stack((mask, mask, mask), dim=1).permute(0, 2, 1).reshape(b, 3 * t)
        causal = torch.tril(torch.ones(3 * t, 3 * t, dtype=torch.bool, device=x.device))
        for block in self.blocks:
            q, k, v = block["c_attn"](block["ln_1"](x)).split(self.width, dim=2)  # type: ignore[index]
            q, k, v = (z.view(b, 3 * t, self.heads, -1).transpose(1, 2) for z in (q, k, v))
            w = (q @ k.transpose(-2, -1)) / math.sqrt(v.size(-1))
            w = torch.where(causal, w, torch.finfo(w.dtype).min)
            w = w + (1.0 - keep[:, None, None, :].to(w.dtype)) * -10000.0
            y = (w.softmax(-1).to(v.dtype) @ v).transpose(1, 2).reshape(b, 3 * t, self.width)
            x = x + block["c_proj"](y)  # type: ignore[index]
            x = x + block["mlp"](F.relu(block["c_fc"](block["ln_2"](x))))  # type: ignore[index]
        x = self.ln_f(x).reshape(b, t, 3, self.width).permute(0, 2, 1, 3)
        kept = mask.reshape(-1) > 0
        action = self.predict_action(x[:, 1]).reshape(b * t, -1)
        error = ((action - actions.reshape(b * t, -1)) ** 2).mean(-1) * kept
        loss = error.sum() / kept.sum()
        loss = loss + 0.1 * F.mse_loss(self.predict_state(x[:, 2])[:, :-1], states[:, 1:])
        return loss + 0.1 * F.smooth_l1_loss(self.predict_return(x[:, 2]), returns)


def return_tokens(place: Place) -> Made:
    b, t, width = place.size(4, 64), place.size(6, 20), place.size(16, 128)
    states, actions = place.size(5, 17), place.size(2, 6)
    steps = place.randint(900, b, 1) + torch.arange(t, device=place.device)
    mask = (torch.arange(t, device=place.device) >= place.randint(t - 1, b, 1)).long()
    return ReturnTokens(states, actions, width, place.size(2, 4), place.size(2, 3)).to(place.device), (
        place.randn(b, t, states),
        torch.tanh(place.randn(b, t, actions)),
        place.randn(b, t, 1),
        steps,
        mask,
    )


ROWS: tuple[Row, ...] = (
    Row("program/trajectory_smoothing", trajectory_smoothing),
    Row("program/stacked_contacts", contacts),
    Row("program/legged_robot_rewards", legged_robots, writes=True),
    Row("program/scan_localisation", scan_localisation),
    Row("program/snake_games", snake_games, writes=True),
    Row("program/falling_block_drops", tetris),
    Row("program/return_conditioned_tokens", return_tokens, "training", autocast=torch.bfloat16),
)
