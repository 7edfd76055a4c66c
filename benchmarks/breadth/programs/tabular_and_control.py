"""Tables, sequences of clicks, and the control of machines."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


def sparsemax(z: Tensor) -> Tensor:
    """Martins and Astudillo, 2016: the projection onto the simplex, by sorting."""
    ordered = z.sort(dim=-1, descending=True).values
    k = torch.arange(1, z.size(-1) + 1, device=z.device, dtype=z.dtype)
    total = ordered.cumsum(-1)
    support = (1 + k * ordered > total).sum(-1, keepdim=True)
    tau = (total.gather(-1, support - 1) - 1) / support.to(z.dtype)
    return torch.clamp(z - tau, min=0)


class GhostNorm(nn.Module):
    """Batch normalisation over virtual batches."""

    def __init__(self, d: int, virtual: int) -> None:
        super().__init__()
        self.virtual = virtual
        self.bn = nn.BatchNorm1d(d, momentum=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.bn(chunk) for chunk in x.chunk(math.ceil(x.size(0) / self.virtual), 0)], dim=0)


class GatedUnit(nn.Module):
    """A linear layer, ghost norm and a gated linear unit."""

    def __init__(self, d: int, out: int, virtual: int) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(d, 2 * out, bias=False), GhostNorm(2 * out, virtual)

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(self.norm(self.fc(x)))


class TabNet(nn.Module):
    """Arik and Pfister, 2021: steps that attend to features sparsely; logits and the masks' entropy."""

    def __init__(self, features: int, d: int, virtual: int, steps: int = 3, gamma: float = 1.3) -> None:
        super().__init__()
        self.d, self.gamma = d, gamma
        self.norm = nn.BatchNorm1d(features)
        self.shared = GatedUnit(features, 2 * d, virtual)
        self.own = nn.ModuleList([GatedUnit(2 * d, 2 * d, virtual) for _ in range(steps + 1)])
        self.attend = nn.ModuleList([nn.Linear(d, features, bias=False) for _ in range(steps)])
        self.attend_norm = nn.ModuleList([GhostNorm(features, virtual) for _ in range(steps)])
        self.head = nn.Linear(d, 2, bias=False)

    def transform(self, x: Tensor, step: int) -> Tensor:
        y = self.shared(x)
        return (y + self.own[step](y)) * math.sqrt(0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(x)
        prior = torch.ones_like(x)
        entropy = x.new_zeros(())
        attended = self.transform(x, 0)[:, self.d :]
        total: Tensor | float = 0.0
        for step, (attend, norm) in enumerate(zip(self.attend, self.attend_norm, strict=True)):
            mask = sparsemax(norm(attend(attended)) * prior)
            entropy = entropy + torch.mean(torch.sum(-mask * torch.log(mask + 1e-5), dim=1))
            prior = torch.mul(self.gamma - mask, prior)
            out = self.transform(mask * x, step + 1)
            decision, attended = out[:, : self.d], out[:, self.d :]
            total = total + F.relu(decision)
        return self.head(total), entropy / len(self.attend)


def tabnet(place: Place) -> Made:
    n, features, d = place.size(256, 32_768), place.size(24, 64), place.size(8, 32)
    return TabNet(features, d, n // 2).to(place.device), (place.randn(n, features),)


def target_encoding(columns: Tensor, target: Tensor, folds: Tensor, levels: int, prior: float = 10.0) -> Tensor:
    """Out-of-fold means of the target by category, shrunk to the global mean; a column at a time."""
    mean = target.mean()
    encoded = torch.empty(columns.shape, dtype=target.dtype, device=target.device)
    count_folds = 4
    for c in range(columns.shape[1]):
        key = folds * levels + columns[:, c]
        sums = torch.zeros(count_folds * levels, dtype=target.dtype, device=target.device).index_add_(0, key, target)
        counts = torch.zeros_like(sums).index_add_(0, key, torch.ones_like(target))
        sums, counts = sums.view(count_folds, levels), counts.view(count_folds, levels)
        sums_rest = sums.sum(0, keepdim=True) - sums
        counts_rest = counts.sum(0, keepdim=True) - counts
        smooth = (sums_rest + prior * mean) / (counts_rest + prior)
        encoded[:, c] = smooth.view(-1)[key]
    return encoded


def encoded_table(place: Place) -> Made:
    n, columns, levels = place.size(60_000, 1_000_000), place.size(8, 12), place.size(100, 2000)
    table = place.randint(levels, n, columns)
    return target_encoding, (table, place.rand(n), place.randint(4, n), levels)


def best_splits(
    bins: Tensor, gradient: Tensor, hessian: Tensor, node: Tensor, nodes: int, n_bins: int, reg: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """A level of a boosted tree: histograms by node, feature and bin; the split of most gain; rows moved on."""
    n, features = bins.shape
    offset = torch.arange(features, device=bins.device) * n_bins
    flat = (node[:, None] * (features * n_bins) + offset + bins).reshape(-1)
    size = nodes * features * n_bins
    g = torch.zeros(size, dtype=gradient.dtype, device=bins.device)
    g.scatter_add_(0, flat, gradient[:, None].expand(n, features).reshape(-1))
    h = torch.zeros_like(g).scatter_add_(0, flat, hessian[:, None].expand(n, features).reshape(-1))
    g_left = g.view(nodes, features, n_bins).cumsum(-1)
    h_left = h.view(nodes, features, n_bins).cumsum(-1)
    g_total, h_total = g_left[..., -1:], h_left[..., -1:]
    g_right, h_right = g_total - g_left, h_total - h_left
    gain = g_left**2 / (h_left + reg) + g_right**2 / (h_right + reg) - g_total**2 / (h_total + reg)
    gain = torch.where((h_left > 1) & (h_right > 1), gain, torch.full_like(gain, -1.0))
    best, where = gain.flatten(1).max(dim=1)
    feature, threshold = where // n_bins, where % n_bins
    value = bins.gather(1, feature[node].unsqueeze(1)).squeeze(1)
    moved = 2 * node + (value > threshold[node]).long()
    return best, where, moved


def boosting(place: Place) -> Made:
    n, features = place.size(40_000, 1_000_000), place.size(16, 28)
    nodes, n_bins = place.size(4, 16), place.size(32, 128)
    return best_splits, (
        place.randint(n_bins, n, features),
        place.randn(n),
        0.1 + place.rand(n),
        place.randint(nodes, n),
        nodes,
        n_bins,
    )


def squash(x: Tensor) -> Tensor:
    """A capsule's length, pressed below one."""
    squared = x.square().sum(-1, keepdim=True)
    return squared / (1 + squared) * x / torch.sqrt(squared + 1e-9)


class MultiInterest(nn.Module):
    """MIND: capsules of interest by routing over the history, attention by label, a sampled softmax."""

    def __init__(self, items: int, d: int, interests: int, iterations: int = 3) -> None:
        super().__init__()
        self.interests, self.iterations = interests, iterations
        self.items = nn.Embedding(items, d)
        self.bilinear = nn.Linear(d, d, bias=False)
        self.project = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))

    def forward(self, history: Tensor, mask: Tensor, start: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        low = self.bilinear(self.items(history)) * mask.unsqueeze(-1)
        still = low.detach()
        logits = start.expand(history.size(0), -1, -1)
        blocked = (~mask).unsqueeze(1)
        for i in range(self.iterations):
            last = i == self.iterations - 1
            weights = logits.softmax(dim=1).masked_fill(blocked, 0.0)
            capsules = squash(torch.bmm(weights, low if last else still))
            if not last:
                logits = logits + torch.bmm(capsules, still.transpose(1, 2))
        interests = self.project(capsules)
        target = self.items(positive)
        attention = torch.softmax((interests @ target.unsqueeze(-1)).squeeze(-1).pow(2), dim=-1)
        user = (attention.unsqueeze(-1) * interests).sum(1)
        scores = torch.cat([(user * target).sum(-1, keepdim=True), user @ self.items(negative).t()], dim=1)
        return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))


def multi_interest(place: Place) -> Made:
    b, n, items, d = place.size(160, 4096), place.size(30, 100), place.size(2000, 100_000), place.size(32, 64)
    mask = torch.arange(n, device=place.device) < place.randint(n - 2, b, 1) + 2
    return MultiInterest(items, d, 4).to(place.device), (
        place.randint(items, b, n),
        mask,
        place.randn(1, 4, n),
        place.randint(items, b),
        place.randint(items, place.size(200, 2000)),
    )


def als_users(items: Tensor, index: Tensor, counts: Tensor, mask: Tensor, alpha: float = 40.0) -> tuple[Tensor, Tensor]:
    """Hu et al., 2008: the users' half-step of implicit matrix factorisation, and the errors of what was seen."""
    k = items.shape[1]
    gram = items.t() @ items + 0.1 * torch.eye(k, dtype=items.dtype, device=items.device)
    seen = items[index] * mask.unsqueeze(-1)
    confidence = alpha * torch.log1p(counts) * mask
    a = gram + torch.einsum("ulk,ul,ulm->ukm", seen, confidence, seen)
    b = torch.einsum("ulk,ul->uk", seen, 1 + confidence)
    users = torch.cholesky_solve(b.unsqueeze(-1), torch.linalg.cholesky(a)).squeeze(-1)
    predicted = torch.bmm(seen, users.unsqueeze(-1)).squeeze(-1)
    return users, ((1 - predicted) ** 2 * mask).sum(1) / mask.sum(1).clamp(min=1)


def als(place: Place) -> Made:
    users, items, most, k = place.size(1024, 8192), place.size(500, 20_000), place.size(24, 64), place.size(16, 32)
    mask = torch.arange(most, device=place.device) <= place.randint(most, users, 1)
    return als_users, (
        0.3 * place.randn(items, k),
        place.randint(items, users, most),
        5 * place.rand(users, most),
        mask.to(torch.float32),
    )


class SASRecBlock(nn.Module):
    """Causal self-attention with a normalised query, and a pointwise feed-forward by convolutions."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d, eps=1e-8), nn.LayerNorm(d, eps=1e-8)
        self.attention = nn.MultiheadAttention(d, heads, batch_first=True)
        self.conv1, self.conv2 = nn.Conv1d(d, d, kernel_size=1), nn.Conv1d(d, d, kernel_size=1)

    def forward(self, x: Tensor, future: Tensor, keep: Tensor) -> Tensor:
        q = self.norm1(x)
        x = q + self.attention(q, x, x, attn_mask=future, need_weights=False)[0]
        x = self.norm2(x)
        x = x + self.conv2(F.gelu(self.conv1(x.transpose(1, 2)))).transpose(1, 2)
        return x * keep


class SASRec(nn.Module):
    """Kang and McAuley, 2018: the next item at every position, against one negative each."""

    def __init__(self, items: int, d: int, length: int, heads: int = 2, blocks: int = 2) -> None:
        super().__init__()
        self.items = nn.Embedding(items + 1, d, padding_idx=0)
        self.positions = nn.Embedding(length, d)
        self.blocks = nn.ModuleList([SASRecBlock(d, heads) for _ in range(blocks)])
        self.norm = nn.LayerNorm(d, eps=1e-8)
        nn.init.normal_(self.items.weight, std=0.05)
        nn.init.normal_(self.positions.weight, std=0.05)

    def forward(self, history: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        n = history.size(1)
        x = self.items(history) * self.items.embedding_dim**0.5
        x = x + self.positions(torch.arange(n, device=history.device))
        keep = (history != 0).unsqueeze(-1)
        x = x * keep
        future = ~torch.tril(torch.ones((n, n), dtype=torch.bool, device=history.device))
        for block in self.blocks:
            x = block(x, future, keep)
        x = self.norm(x)
        up = (x * self.items(positive)).sum(-1)
        down = (x * self.items(negative)).sum(-1)
        weight = (positive != 0).to(up.dtype)
        loss = F.softplus(-up) + F.softplus(down)
        return (loss * weight).sum() / weight.sum()


def sasrec(place: Place) -> Made:
    b, n, d, items = place.size(4, 128), place.size(50, 200), place.size(32, 64), place.size(1000, 20_000)
    history = place.randint(items, b, n) + 1
    history[torch.arange(n, device=place.device) < place.randint(n // 2, b, 1)] = 0
    positive = torch.cat([history[:, 1:], place.randint(items, b, 1) + 1], dim=1)
    return SASRec(items, d, n).to(place.device), (history, positive, place.randint(items, b, n) + 1)


def lqr(a: Tensor, b: Tensor, q: Tensor, r: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Finite-horizon control that varies in time: Riccati's recursion back, then the closed loop forth."""
    horizon = a.size(0)
    value = q
    gains: list[Tensor] = []
    for t in reversed(range(horizon)):
        bt = b[t].mT
        inner = r + bt @ value @ b[t]
        gain = torch.linalg.solve(inner, bt @ value @ a[t])
        closed = a[t] - b[t] @ gain
        value = q + gain.mT @ r @ gain + closed.mT @ value @ closed
        value = 0.5 * (value + value.mT)
        gains.insert(0, gain)
    x = start
    cost = torch.zeros_like(start[:, 0])
    path = [x]
    for t in range(horizon):
        u = -(gains[t] @ x.unsqueeze(-1)).squeeze(-1)
        cost = cost + torch.einsum("bi,ij,bj->b", x, q, x) + torch.einsum("bi,ij,bj->b", u, r, u)
        x = torch.baddbmm((b[t] @ u.unsqueeze(-1)), a[t], x.unsqueeze(-1)).squeeze(-1)
        path.append(x)
    return torch.stack(path, 1), torch.stack(gains, 1), cost


def riccati(place: Place) -> Made:
    horizon, batch, n, m = place.size(16, 12), place.size(16, 2048), place.size(6, 12), place.size(2, 4)
    a = 0.9 * torch.eye(n, device=place.device) + 0.05 * place.randn(horizon, batch, n, n)
    return lqr, (
        a,
        0.3 * place.randn(horizon, batch, n, m),
        torch.eye(n, device=place.device),
        0.1 * torch.eye(m, device=place.device),
        place.randn(batch, n),
    )


def bicycle(state: Tensor, control: Tensor, dt: float = 0.1, wheelbase: float = 2.5) -> Tensor:
    """A kinematic car: place, heading, speed; acceleration and steering, both limited."""
    x, y, heading, speed = state.unbind(-1)
    acceleration = 3.0 * torch.tanh(control[..., 0])
    steering = 0.5 * torch.tanh(control[..., 1])
    return torch.stack(
        (
            x + speed * torch.cos(heading) * dt,
            y + speed * torch.sin(heading) * dt,
            heading + speed / wheelbase * torch.tan(steering) * dt,
            (speed + acceleration * dt).clamp(0.0, 15.0),
        ),
        dim=-1,
    )


def mppi(
    state: Tensor, plan: Tensor, noise: Tensor, goal: Tensor, obstacles: Tensor, radii: Tensor, temperature: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Model-predictive path integral control: perturbed plans rolled out, averaged by their costs."""
    samples, horizon, _ = noise.shape
    noise = noise.clone()
    noise[0] = 0
    states = state.expand(samples, -1)
    cost = state.new_zeros(samples)
    for t in range(horizon):
        control = plan[t] + noise[:, t]
        states = bicycle(states, control)
        position = states[:, :2]
        clearance = (position[:, None, :] - obstacles[None]).norm(dim=-1) - radii
        cost += 0.1 * (position - goal).norm(dim=-1)
        cost += 5.0 * (1.0 - clearance).clamp(min=0).square().sum(-1)
        cost += 0.01 * (plan[t] * noise[:, t]).sum(-1)
    cost += 2.0 * (states[:, :2] - goal).norm(dim=-1)
    weights = torch.softmax(-(cost - cost.min()) / temperature, dim=0)
    plan = plan + torch.einsum("k,kth->th", weights, noise)
    smooth = plan.clone()
    smooth[1:-1] = (plan[:-2] + plan[1:-1] + plan[2:]) / 3
    return smooth, cost, 1 / weights.square().sum()


def path_integral(place: Place) -> Made:
    samples, horizon, obstacles = place.size(1024, 131_072), place.size(15, 25), place.size(8, 16)
    return mppi, (
        torch.tensor([0.0, 0.0, 0.3, 4.0], device=place.device),
        0.1 * place.randn(horizon, 2),
        0.5 * place.randn(samples, horizon, 2),
        torch.tensor([12.0, 6.0], device=place.device),
        8 * place.rand(obstacles, 2),
        0.3 + place.rand(obstacles),
    )


class RSSM(nn.Module):
    """PlaNet's and Dreamer's world model: a deterministic and a Gaussian state, posterior against prior."""

    def __init__(self, embed: int, action: int, deter: int, stoch: int, hidden: int) -> None:
        super().__init__()
        self.deter, self.stoch = deter, stoch
        self.inputs = nn.Linear(stoch + action, hidden)
        self.cell = nn.GRUCell(hidden, deter)
        self.prior = nn.Sequential(nn.Linear(deter, hidden), nn.ELU(), nn.Linear(hidden, 2 * stoch))
        self.posterior = nn.Sequential(nn.Linear(deter + embed, hidden), nn.ELU(), nn.Linear(hidden, 2 * stoch))
        self.reward = nn.Sequential(nn.Linear(deter + stoch, hidden), nn.ELU(), nn.Linear(hidden, 1))

    @staticmethod
    def distribution(parameters: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = parameters.chunk(2, dim=-1)
        return mean, F.softplus(std) + 0.1

    def forward(
        self, embeds: Tensor, actions: Tensor, first: Tensor, noise: Tensor, rewards: Tensor
    ) -> tuple[Tensor, Tensor]:
        steps, b = embeds.shape[:2]
        h, z = embeds.new_zeros(b, self.deter), embeds.new_zeros(b, self.stoch)
        features, priors, posteriors = [], [], []
        for t in range(steps):
            keep = (~first[t]).to(h.dtype).unsqueeze(-1)
            h, z, action = h * keep, z * keep, actions[t] * keep
            h = self.cell(F.elu(self.inputs(torch.cat([z, action], -1))), h)
            priors.append(self.prior(h))
            posteriors.append(self.posterior(torch.cat([h, embeds[t]], -1)))
            mean, std = self.distribution(posteriors[-1])
            z = mean + std * noise[t]
            features.append(torch.cat([h, z], -1))
        p_mean, p_std = self.distribution(torch.stack(priors))
        q_mean, q_std = self.distribution(torch.stack(posteriors))
        ratio = (q_std / p_std).pow(2)
        kl = 0.5 * (ratio + ((q_mean - p_mean) / p_std).pow(2) - 1 - ratio.log()).sum(-1)
        predicted = self.reward(torch.stack(features)).squeeze(-1)
        return kl.mean().clamp(min=1.0), 0.5 * (predicted - rewards).pow(2).mean()


def world_model(place: Place) -> Made:
    steps, b, embed, deter = place.size(8, 6), place.size(8, 512), place.size(64, 1024), place.size(64, 512)
    return RSSM(embed, 6, deter, 30, deter).to(place.device), (
        place.randn(steps, b, embed),
        place.randn(steps, b, 6),
        place.rand(steps, b) < 0.1,
        place.randn(steps, b, 30),
        place.randn(steps, b),
    )


class QMixer(nn.Module):
    """QMIX: weights of a monotone mixing network from the state, and the squared temporal difference."""

    def __init__(self, agents: int, state: int, embed: int) -> None:
        super().__init__()
        self.agents, self.embed = agents, embed
        self.w1 = nn.Sequential(nn.Linear(state, 64), nn.ReLU(), nn.Linear(64, agents * embed))
        self.w2 = nn.Sequential(nn.Linear(state, 64), nn.ReLU(), nn.Linear(64, embed))
        self.b1 = nn.Linear(state, embed)
        self.v = nn.Sequential(nn.Linear(state, embed), nn.ReLU(), nn.Linear(embed, 1))

    def mix(self, q: Tensor, state: Tensor) -> Tensor:
        b, t, _ = q.shape
        state = state.reshape(b * t, -1)
        w1 = self.w1(state).abs().view(-1, self.agents, self.embed)
        w2 = self.w2(state).abs().view(-1, self.embed, 1)
        hidden = F.elu(torch.bmm(q.reshape(b * t, 1, -1), w1) + self.b1(state).unsqueeze(1))
        return (torch.bmm(hidden, w2).squeeze(2) + self.v(state)).view(b, t)

    def forward(
        self,
        q: Tensor,
        target_q: Tensor,
        available: Tensor,
        actions: Tensor,
        state: Tensor,
        reward: Tensor,
        mask: Tensor,
    ) -> tuple[Tensor, Tensor]:
        chosen = torch.gather(q[:, :-1], dim=3, index=actions).squeeze(3)
        with torch.no_grad():
            online = q.detach().clone()
            online[~available] = -9999999
            best = online[:, 1:].max(dim=3, keepdim=True)[1]
            target = torch.gather(target_q[:, 1:], 3, best).squeeze(3)
            goal = reward + 0.99 * self.mix(target, state[:, 1:])
        td = (self.mix(chosen, state[:, :-1]) - goal) * mask
        return (td**2).sum() / mask.sum(), td.detach().abs()


def qmix(place: Place) -> Made:
    b, t, agents, actions, d = place.size(48, 512), place.size(20, 60), place.size(4, 8), 12, place.size(32, 120)
    available = place.rand(b, t + 1, agents, actions) > 0.3
    available[..., 0] = True
    return QMixer(agents, d, 32).to(place.device), (
        place.randn(b, t + 1, agents, actions).requires_grad_(),
        place.randn(b, t + 1, agents, actions),
        available,
        place.randint(actions, b, t, agents, 1),
        place.randn(b, t + 1, d),
        place.randn(b, t),
        (place.rand(b, t) > 0.1).to(torch.float32),
    )


def ekf_slam(
    mean: Tensor, covariance: Tensor, control: Tensor, readings: Tensor, seen: Tensor, dt: float = 0.1
) -> tuple[Tensor, Tensor]:
    """A filter over the pose and all landmarks: the motion, then each landmark's range and bearing in turn."""
    mean, covariance = mean.clone(), covariance.clone()
    batch, n = mean.shape
    v, w = control[:, 0], control[:, 1]
    heading = mean[:, 2].clone()
    g = torch.eye(3, dtype=mean.dtype, device=mean.device).repeat(batch, 1, 1)
    g[:, 0, 2] = -v * dt * heading.sin()
    g[:, 1, 2] = v * dt * heading.cos()
    mean[:, 0] += v * dt * heading.cos()
    mean[:, 1] += v * dt * heading.sin()
    mean[:, 2] += w * dt
    covariance[:, :3] = g @ covariance[:, :3]
    covariance[:, :, :3] = covariance[:, :, :3] @ g.mT
    covariance.diagonal(dim1=1, dim2=2)[:, :3] += torch.tensor(
        [0.01, 0.01, 0.002], dtype=mean.dtype, device=mean.device
    )
    noise = torch.diag(torch.tensor([0.05, 0.01], dtype=mean.dtype, device=mean.device))
    for i in range(readings.size(1)):
        at = 3 + 2 * i
        dx, dy = mean[:, at] - mean[:, 0], mean[:, at + 1] - mean[:, 1]
        squared = dx**2 + dy**2 + 1e-6
        distance = squared.sqrt()
        jacobian = torch.zeros(batch, 2, n, dtype=mean.dtype, device=mean.device)
        jacobian[:, 0, 0], jacobian[:, 0, 1] = -dx / distance, -dy / distance
        jacobian[:, 1, 0], jacobian[:, 1, 1], jacobian[:, 1, 2] = dy / squared, -dx / squared, -1
        jacobian[:, 0, at], jacobian[:, 0, at + 1] = dx / distance, dy / distance
        jacobian[:, 1, at], jacobian[:, 1, at + 1] = -dy / squared, dx / squared
        bearing = torch.atan2(dy, dx) - mean[:, 2]
        innovation = readings[:, i] - torch.stack([distance, bearing], -1)
        angle = innovation[:, 1]
        innovation = torch.stack([innovation[:, 0], torch.atan2(angle.sin(), angle.cos())], -1)
        ph = covariance @ jacobian.mT
        s = jacobian @ ph + noise
        determinant = s[:, 0, 0] * s[:, 1, 1] - s[:, 0, 1] * s[:, 1, 0]
        adjugate = torch.stack([s[:, 1, 1], -s[:, 0, 1], -s[:, 1, 0], s[:, 0, 0]], -1).view(-1, 2, 2)
        gain = ph @ (adjugate / determinant[:, None, None])
        gain = gain * seen[:, i, None, None]
        mean = mean + (gain @ innovation.unsqueeze(-1)).squeeze(-1)
        covariance = covariance - gain @ ph.mT
    return mean, 0.5 * (covariance + covariance.mT)


def slam(place: Place) -> Made:
    batch, landmarks = place.size(128, 1024), place.size(8, 12)
    n = 3 + 2 * landmarks
    mean = torch.cat([0.1 * place.randn(batch, 3), 6 * place.randn(batch, 2 * landmarks)], 1)
    square = 0.1 * place.randn(batch, n, n)
    covariance = square @ square.mT + 0.1 * torch.eye(n, device=place.device)
    points = mean[:, 3:].view(batch, landmarks, 2)
    readings = torch.stack([points.norm(dim=-1), torch.atan2(points[..., 1], points[..., 0])], -1)
    seen = (place.rand(batch, landmarks) > 0.2).to(torch.float32)
    noisy = readings + 0.05 * place.randn(batch, landmarks, 2)
    return ekf_slam, (mean, covariance, place.randn(batch, 2), noisy, seen)


ROWS: tuple[Row, ...] = (
    Row("program/tabnet", tabnet, "training"),
    Row("program/target_encoding", encoded_table),
    Row("program/boosting_split_histograms", boosting),
    Row("program/multi_interest_routing", multi_interest, "training"),
    Row("program/als_half_step", als),
    Row("program/sasrec", sasrec, "training", autocast=torch.bfloat16),
    Row("program/riccati_lqr", riccati),
    Row("program/mppi_control", path_integral),
    Row("program/rssm_world_model", world_model, "training", autocast=torch.bfloat16),
    Row("program/qmix", qmix, "training"),
    Row("program/ekf_slam", slam),
)
