"""Reinforcement learning with environments in torch: vectorised worlds, replay with priorities, planning networks."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class CartPole(nn.Module):
    """Gym's cart and pole, many at once, with a policy inside and resets where an episode ends."""

    def __init__(self, hidden: int = 64, steps: int = 16) -> None:
        super().__init__()
        self.steps = steps
        self.policy = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 2))

    def forward(self, state: Tensor, age: Tensor, uniforms: Tensor, fresh: Tensor) -> dict[str, Tensor]:
        gravity, cart, pole, length, push, tau = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
        rewards, dones, entropies = [], [], []
        for t in range(self.steps):
            logits = self.policy(state)
            log_p = logits.log_softmax(-1)
            action = (uniforms[t] < log_p[:, 1].exp()).to(state.dtype)
            force = push * (2 * action - 1)
            x, dx, theta, dtheta = state[:, 0], state[:, 1], state[:, 2], state[:, 3]
            cos, sin = torch.cos(theta), torch.sin(theta)
            total = cart + pole
            temp = (force + pole * length * dtheta**2 * sin) / total
            ddtheta = (gravity * sin - cos * temp) / (length * (4.0 / 3.0 - pole * cos**2 / total))
            ddx = temp - pole * length * ddtheta * cos / total
            state = torch.stack((x + tau * dx, dx + tau * ddx, theta + tau * dtheta, dtheta + tau * ddtheta), dim=1)
            age = age + 1
            fallen = (state[:, 0].abs() > 2.4) | (state[:, 2].abs() > 12 * 2 * math.pi / 360)
            done = fallen | (age >= 500)
            rewards.append(torch.ones_like(force))
            dones.append(done)
            entropies.append(-(log_p.exp() * log_p).sum(-1))
            state = torch.where(done[:, None], fresh[t], state)
            age = torch.where(done, 0, age)
        reward, done = torch.stack(rewards), torch.stack(dones)
        episodes = done.sum().clamp(min=1)
        return {
            "state": state,
            "age": age,
            "done": done,
            "length": reward.sum() / episodes,
            "entropy": torch.stack(entropies).mean(),
        }


def cartpole(place: Place) -> Made:
    n = place.size(1024, 131_072)
    state = 0.2 * place.randn(n, 4)
    uniforms = (place.randint(256, 16, n) + 0.5) / 256
    return CartPole().to(place.device), (state, place.randint(500, n), uniforms, 0.05 * place.randn(16, n, 4))


MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1), (0, 0))


def value_iteration(reward: Tensor, wall: Tensor, slip: float = 0.1, gamma: float = 0.97) -> tuple[Tensor, Tensor]:
    """Twenty sweeps over grid worlds in a batch: moves slip sideways, walls hold; values and greedy moves."""
    _, h, w = reward.shape
    value = torch.zeros_like(reward)
    blocked = F.pad(wall, (1, 1, 1, 1), value=True)
    q = reward.new_zeros(len(MOVES), *reward.shape)
    for _ in range(20):
        padded = F.pad(value, (1, 1, 1, 1))
        reached = []
        for dy, dx in MOVES:
            there = padded[:, 1 + dy : 1 + dy + h, 1 + dx : 1 + dx + w]
            stays = blocked[:, 1 + dy : 1 + dy + h, 1 + dx : 1 + dx + w]
            reached.append(torch.where(stays, value, there))
        up, down, left, right, stay = reached
        q[0] = (1 - 2 * slip) * up + slip * (left + right)
        q[1] = (1 - 2 * slip) * down + slip * (left + right)
        q[2] = (1 - 2 * slip) * left + slip * (up + down)
        q[3] = (1 - 2 * slip) * right + slip * (up + down)
        q[4] = stay
        value = (reward + gamma * q.amax(0)).masked_fill(wall, 0.0)
    return value, q.softmax(0)


def grid_values(place: Place) -> Made:
    batch, n = place.size(8, 32), place.size(48, 256)
    return value_iteration, (place.randn(batch, n, n), place.rand(batch, n, n) > 0.75)


def forage(
    grid: Tensor, at: Tensor, heading: Tensor, actions: Tensor, respawn: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """A MiniGrid-like world: turn, walk, eat; each agent sees the 5 x 5 cells around it. The grid changes in place."""
    n, h, w = grid.shape
    world = torch.arange(n, device=grid.device)
    step = torch.tensor([[0, 1], [1, 0], [0, -1], [-1, 0]], device=grid.device)
    window = torch.arange(-2, 3, device=grid.device)
    score = torch.zeros(n, dtype=torch.int64, device=grid.device)
    views = []
    for t in range(actions.size(0)):
        action = actions[t]
        heading = torch.where(action == 0, heading - 1, heading)
        heading = torch.where(action == 1, heading + 1, heading) % 4
        ahead = at + step[heading]
        ahead = torch.stack([ahead[:, 0].clamp(0, h - 1), ahead[:, 1].clamp(0, w - 1)], dim=1)
        free = grid[world, ahead[:, 0], ahead[:, 1]] != 1
        at = torch.where(((action == 2) & free)[:, None], ahead, at)
        here = grid[world, at[:, 0], at[:, 1]]
        eats = here == 2
        score += eats
        grid[world, at[:, 0], at[:, 1]] = torch.where(eats, 0, here)
        y, x = respawn[t].unbind(-1)
        there = grid[world, y, x]
        grid[world, y, x] = torch.where(eats & (there == 0), 2, there)
        rows = (at[:, 0, None] + window).clamp(0, h - 1)
        columns = (at[:, 1, None] + window).clamp(0, w - 1)
        views.append(grid[world[:, None, None], rows[:, :, None], columns[:, None, :]])
    return torch.stack(views), score, at


def foraging(place: Place) -> Made:
    n, side, steps = place.size(512, 65_536), 12, 12
    grid = place.randint(10, n, side, side)
    grid = torch.where(grid < 7, 0, torch.where(grid < 9, 1, 2))
    where = place.randint(side, n, 2)
    return forage, (grid, where, place.randint(4, n), place.randint(3, steps, n), place.randint(side, steps, n, 2))


def prioritised_sample(
    tree: Tensor, leaves: Tensor, errors: Tensor, uniforms: Tensor, alpha: float = 0.6, beta: float = 0.4
) -> tuple[Tensor, Tensor]:
    """A sum tree: new priorities go up from the leaves in place, then a descent for each stratum's draw."""
    capacity = tree.size(0) // 2
    node = leaves + capacity
    tree[node] = (errors.abs() + 1e-3) ** alpha
    depth = capacity.bit_length() - 1
    for _ in range(depth):
        node = node // 2
        tree[node] = tree[2 * node] + tree[2 * node + 1]
    count = uniforms.size(0)
    stratum = torch.arange(count, device=tree.device, dtype=tree.dtype)
    mass = (stratum + uniforms) / count * tree[1]
    index = torch.ones(count, dtype=torch.int64, device=tree.device)
    for _ in range(depth):
        left = tree[2 * index]
        right = mass >= left
        mass = torch.where(right, mass - left, mass)
        index = 2 * index + right
    probability = tree[index] / tree[1]
    weight = (capacity * probability) ** -beta
    return index - capacity, weight / weight.max()


def sum_tree(place: Place) -> Made:
    capacity, batch = place.size(16_384, 1 << 20), place.size(1024, 65_536)
    tree = torch.zeros(2 * capacity)
    tree[capacity:] = (torch.randint(1, 64, (capacity,)) / 64).float()
    for level in reversed(range(capacity.bit_length() - 1)):
        first = 1 << level
        tree[first : 2 * first] = tree[2 * first : 4 * first].view(-1, 2).sum(1)
    leaves = torch.randperm(capacity)[:batch].to(place.device)
    return prioritised_sample, (tree.to(place.device), leaves, place.randn(batch), place.rand(batch))


def two_hot(value: Tensor, bound: int) -> Tensor:
    """MuZero's support: a squashed scalar between two neighbouring integers."""
    value = value.sign() * ((value.abs() + 1).sqrt() - 1) + 1e-3 * value
    value = value.clamp(-bound, bound)
    low = value.floor()
    part = value - low
    target = value.new_zeros(*value.shape, 2 * bound + 1)
    low_index = (low + bound).long()
    target.scatter_(-1, low_index[..., None], (1 - part)[..., None])
    target.scatter_add_(-1, (low_index + 1).clamp(max=2 * bound)[..., None], part[..., None])
    return target


class MuZero(nn.Module):
    """Unrolled model-based learning: five steps in a latent world, categorical values and rewards, policies."""

    def __init__(self, observation: int, latent: int, actions: int, bound: int = 10) -> None:
        super().__init__()
        self.actions, self.bound = actions, bound
        self.represent = nn.Sequential(nn.Linear(observation, latent), nn.LayerNorm(latent), nn.ReLU())
        self.dynamics = nn.Sequential(nn.Linear(latent + actions, latent), nn.LayerNorm(latent), nn.ReLU())
        self.reward = nn.Linear(latent, 2 * bound + 1)
        self.value = nn.Linear(latent, 2 * bound + 1)
        self.policy = nn.Linear(latent, actions)

    @staticmethod
    def scaled(latent: Tensor) -> Tensor:
        low, high = latent.amin(-1, keepdim=True), latent.amax(-1, keepdim=True)
        return (latent - low) / (high - low + 1e-5)

    def forward(self, observation: Tensor, action: Tensor, reward: Tensor, value: Tensor, visits: Tensor) -> Tensor:
        latent = self.scaled(self.represent(observation))
        steps = action.size(1)
        loss = observation.new_zeros(observation.size(0))
        rewards, values = two_hot(reward, self.bound), two_hot(value, self.bound)
        for t in range(steps + 1):
            scale = 1.0 if t == 0 else 1.0 / steps
            policy_loss = -(visits[:, t] * self.policy(latent).log_softmax(-1)).sum(-1)
            value_loss = -(values[:, t] * self.value(latent).log_softmax(-1)).sum(-1)
            loss = loss + scale * (policy_loss + 0.25 * value_loss)
            if t < steps:
                one_hot = F.one_hot(action[:, t], self.actions).to(latent.dtype)
                latent = latent + self.dynamics(torch.cat([latent, one_hot], dim=-1))
                latent = self.scaled(latent)
                reward_loss = -(rewards[:, t] * self.reward(latent).log_softmax(-1)).sum(-1)
                loss = loss + reward_loss / steps
                latent = 0.5 * latent + 0.5 * latent.detach()
        return loss.mean()


def muzero(place: Place) -> Made:
    batch, latent, actions, steps = place.size(64, 4096), place.size(64, 256), 6, 5
    model = MuZero(48, latent, actions).to(place.device)
    visits = place.randn(batch, steps + 1, actions).softmax(-1)
    return model, (
        place.randn(batch, 48),
        place.randint(actions, batch, steps),
        place.randn(batch, steps),
        5 * place.randn(batch, steps + 1),
        visits,
    )


ROWS: tuple[Row, ...] = (
    Row("program/cartpole_rollout", cartpole),
    Row("program/grid_value_iteration", grid_values),
    Row("program/foraging_grid_world", foraging, writes=True),
    Row("program/sum_tree_replay", sum_tree, writes=True),
    Row("program/muzero_unroll", muzero, "training"),
)
