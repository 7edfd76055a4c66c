"""Returns, advantages and losses of reinforcement learning; time is the first dimension."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def generalised_advantage(rewards: Tensor, values: Tensor, dones: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """CleanRL's reverse loop."""
    steps = rewards.shape[0]
    advantages = torch.zeros_like(rewards)
    running = torch.zeros_like(last)
    for t in reversed(range(steps)):
        following = last if t == steps - 1 else values[t + 1]
        alive = 1.0 - dones[t]
        delta = rewards[t] + 0.99 * following * alive - values[t]
        advantages[t] = running = delta + 0.99 * 0.95 * alive * running
    return advantages, advantages + values


def gae(place: Place) -> Made:
    t, n = 32, place.size(4096, 500_000)
    dones = (place.rand(t, n) < 0.05).float()
    return generalised_advantage, (place.randn(t, n), place.randn(t, n), dones, place.randn(n))


class VTraceLoss(nn.Module):
    """IMPALA's actor-critic: truncated importance weights, targets without gradient."""

    def __init__(self, d: int, actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d, 128), nn.Tanh())
        self.policy, self.value = nn.Linear(128, actions), nn.Linear(128, 1)

    def forward(self, state: Tensor, action: Tensor, behaviour: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
        h = self.body(state)
        log_pi, values = F.log_softmax(self.policy(h), -1), self.value(h).squeeze(-1)
        log_prob = log_pi.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            rho = torch.exp(log_prob - behaviour).clamp(max=1.0)
            following = torch.cat([values[1:], values[-1:]])
            delta = rho * (reward + discount * following - values)
            trace = torch.zeros_like(values[0])
            corrections = []
            for d, g, c in zip(delta.flip(0), discount.flip(0), rho.flip(0), strict=True):
                trace = d + g * c * trace
                corrections.append(trace)
            vs = torch.stack(corrections).flip(0) + values
            advantage = rho * (reward + discount * torch.cat([vs[1:], values[-1:]]) - values)
        entropy = -(log_pi.exp() * log_pi).sum(-1)
        return -(log_prob * advantage).mean() + 0.5 * (vs - values).square().mean() - 0.01 * entropy.mean()


def v_trace(place: Place) -> Made:
    t, n, d = 20, place.size(64, 4096), 32
    args = place.randn(t, n, d), place.randint(6, t, n), -1.8 + 0.1 * place.randn(t, n), place.randn(t, n)
    return VTraceLoss(d, 6).to(place.device), (*args, 0.99 * (place.rand(t, n) > 0.05).float())


def discounted_returns(rewards: Tensor, gamma: float = 0.98) -> tuple[Tensor, Tensor]:
    """By a product with the triangle of powers; standardised, as REINFORCE does it."""
    t = rewards.shape[0]
    i = torch.arange(t, device=rewards.device)
    lag = (i[None, :] - i[:, None]).to(rewards.dtype)
    weights = torch.where(lag >= 0, gamma ** lag.clamp(min=0), torch.zeros_like(lag))
    returns = weights @ rewards
    return returns, (returns - returns.mean()) / (returns.std() + 1e-9)


def returns(place: Place) -> Made:
    return discounted_returns, (place.randn(place.size(256, 2048), place.size(512, 8192)),)


class DoubleDQN(nn.Module):
    """A duelling network and its target, Huber's loss weighted by priorities; the new priorities."""

    def __init__(self, d: int, actions: int) -> None:
        super().__init__()
        self.online = nn.ModuleDict({"body": nn.Linear(d, 256), "v": nn.Linear(256, 1), "a": nn.Linear(256, actions)})
        self.target = nn.ModuleDict({"body": nn.Linear(d, 256), "v": nn.Linear(256, 1), "a": nn.Linear(256, actions)})
        self.target.requires_grad_(False)

    @staticmethod
    def q(net: nn.ModuleDict, x: Tensor) -> Tensor:
        h = F.relu(net["body"](x))
        advantage: Tensor = net["a"](h)
        return net["v"](h) + advantage - advantage.mean(1, keepdim=True)

    def forward(
        self, state: Tensor, action: Tensor, reward: Tensor, after: Tensor, done: Tensor, weight: Tensor
    ) -> Tensor:
        q = self.q(self.online, state).gather(1, action[:, None]).squeeze(1)
        with torch.no_grad():
            best = self.q(self.online, after).argmax(1, keepdim=True)
            target = reward + 0.99 * (1 - done) * self.q(self.target, after).gather(1, best).squeeze(1)
        return weight * F.smooth_l1_loss(q, target, reduction="none")


def double_dqn(place: Place) -> Made:
    n, d = place.size(512, 32_768), 64
    args = place.randn(n, d), place.randint(8, n), place.randn(n), place.randn(n, d)
    return DoubleDQN(d, 8).to(place.device), (*args, (place.rand(n) < 0.1).float(), place.rand(n))


def categorical_projection(p: Tensor, rewards: Tensor, dones: Tensor) -> Tensor:
    """C51's: shifted atoms, their mass split between neighbours by index_add_ into the flat result."""
    n, atoms = p.shape
    low, high = -10.0, 10.0
    dz = (high - low) / (atoms - 1)
    support = torch.linspace(low, high, atoms, dtype=p.dtype, device=p.device)
    moved = (rewards[:, None] + 0.99 * (1 - dones[:, None]) * support).clamp(low, high)
    b = (moved - low) / dz
    lower = b.floor().long().clamp(0, atoms - 2)
    upper = lower + 1
    offset = torch.arange(n, device=p.device).unsqueeze(1) * atoms
    out = torch.zeros_like(p)
    out.view(-1).index_add_(0, (lower + offset).view(-1), (p * (upper - b)).view(-1))
    out.view(-1).index_add_(0, (upper + offset).view(-1), (p * (b - lower)).view(-1))
    return out


def c51(place: Place) -> Made:
    n = place.size(2048, 200_000)
    p = place.randn(n, 51).softmax(-1)
    return categorical_projection, (p, place.randn(n), (place.rand(n) < 0.1).float())


def squashed_gaussian(mean: Tensor, log_std: Tensor, noise: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """SAC's policy loss: a tanh of a reparametrised Gaussian with its correction, and the temperature's loss."""
    log_std = -5 + 0.5 * 7 * (torch.tanh(log_std) + 1)
    u = mean + log_std.exp() * noise
    action = torch.tanh(u)
    log_prob = -0.5 * noise**2 - log_std - 0.9189385
    log_prob = (log_prob - 2 * (0.6931472 - u - F.softplus(-2 * u))).sum(-1)
    value = -(action - q).square().sum(-1)
    return 0.2 * log_prob - value, -(log_prob.detach() - mean.shape[-1]).mean()


def soft_actor(place: Place) -> Made:
    shape = place.size(8192, 500_000), 8
    mean, log_std = place.randn(*shape).requires_grad_(), place.randn(*shape).requires_grad_()
    return squashed_gaussian, (mean, log_std, place.randn(*shape), place.randn(*shape))


ROWS: tuple[Row, ...] = (
    Row("program/gae", gae),
    Row("program/v_trace", v_trace, "training"),
    Row("program/discounted_returns", returns),
    Row("program/double_dqn", double_dqn, "training"),
    Row("program/c51_projection", c51),
    Row("program/squashed_gaussian", soft_actor, "training"),
)
