"""Agents' targets and losses off policy, optimizers of recent years by hand, recommenders and speech objectives."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..row import Made, Place, Row


class ConservativeCritic(nn.Module):
    """Kumar et al., 2020 (CQL): values of random and of the policy's actions are pushed down by a logsumexp."""

    def __init__(self, state: int, action: int, width: int, samples: int) -> None:
        super().__init__()
        self.action, self.samples = action, samples

        def critic() -> nn.Module:
            return nn.Sequential(
                nn.Linear(state + action, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
            )

        self.q1, self.q2 = critic(), critic()
        self.policy = nn.Linear(state, 2 * action)

    def forward(self, s: Tensor, a: Tensor, target: Tensor, uniform: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        n = self.samples
        mean, log_std = self.policy(s).chunk(2, dim=-1)
        log_std = log_std.clamp(-5, 2)
        pre = mean[:, None] + log_std.exp()[:, None] * noise
        sampled = torch.tanh(pre).detach()
        log_prob = -0.5 * noise**2 - log_std[:, None] - 0.5 * math.log(2 * math.pi)
        log_prob = (log_prob - torch.log(1 - sampled**2 + 1e-6)).sum(-1).detach()
        states = s[:, None].expand(-1, n, -1)
        losses = []
        for q in (self.q1, self.q2):
            value = q(torch.cat([s, a], dim=-1)).squeeze(-1)
            at_random = q(torch.cat([states, uniform], dim=-1)).squeeze(-1) + self.action * math.log(2)
            at_policy = q(torch.cat([states, sampled], dim=-1)).squeeze(-1) - log_prob
            gap = torch.logsumexp(torch.cat([at_random, at_policy], dim=1), dim=1) - value
            losses.append(F.mse_loss(value, target) + 5.0 * gap.mean())
        return losses[0], losses[1]


def conservative(place: Place) -> Made:
    s, a, n, b = 17, 6, 10, place.size(32, 1024)
    return ConservativeCritic(s, a, place.size(32, 256), n).to(place.device), (
        place.randn(b, s),
        2 * place.rand(b, a) - 1,
        place.randn(b),
        2 * place.rand(b, n, a) - 1,
        place.randn(b, n, a),
    )


def implicit_q(q1: Tensor, q2: Tensor, v: Tensor, log_prob: Tensor, next_v: Tensor, r: Tensor, done: Tensor) -> Tensor:
    """Kostrikov et al., 2021 (IQL): expectile regression of values and weighted cloning of actions."""
    target = torch.minimum(q1, q2).detach()
    difference = target - v
    weight = torch.where(difference > 0, 0.7, 1 - 0.7)
    value_loss = (weight * difference**2).mean()
    backup = r + (1.0 - done.to(r.dtype)) * 0.99 * next_v.detach()
    q_loss = sum(F.mse_loss(q, backup) for q in (q1, q2)) / 2
    advantage = torch.exp(3.0 * (target - v.detach())).clamp(max=100.0)
    return value_loss + q_loss - (advantage * log_prob).mean()


def expectiles(place: Place) -> Made:
    n = place.size(20_000, 4_000_000)
    leaves = [place.randn(n).requires_grad_() for _ in range(4)]
    return implicit_q, (*leaves, place.randn(n), place.randn(n), place.rand(n) < 0.05)


def munchausen(q: Tensor, next_q: Tensor, target_q: Tensor, a: Tensor, r: Tensor, done: Tensor) -> Tensor:
    """Vieillard et al., 2020: the scaled log policy is added to the reward of a soft DQN."""
    tau = 0.03

    def log_policy(values: Tensor) -> Tensor:
        shifted = values - values.max(-1, keepdim=True)[0]
        return shifted - tau * torch.logsumexp(shifted / tau, -1, keepdim=True)

    with torch.no_grad():
        following = log_policy(next_q)
        pi = F.softmax(next_q / tau, dim=-1)
        future = 0.99 * (pi * (next_q - following) * (~done)[:, None]).sum(-1)
        addon = log_policy(target_q).gather(1, a[:, None]).squeeze(1)
        target = r + 0.9 * torch.clamp(addon, min=-1, max=0) + future
    return F.huber_loss(q.gather(1, a[:, None]).squeeze(1), target)


def soft_dqn(place: Place) -> Made:
    b, actions = place.size(2000, 400_000), 18
    return munchausen, (
        place.randn(b, actions).requires_grad_(),
        place.randn(b, actions),
        place.randn(b, actions),
        place.randint(actions, b),
        place.randn(b),
        place.rand(b) < 0.1,
    )


class DistilledNovelty(nn.Module):
    """Burda et al., 2018 (RND): error of predicting a random network; observations normalised as seen so far."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.target = nn.Sequential(nn.Linear(features, width), nn.LeakyReLU(), nn.Linear(width, width))
        self.predictor = nn.Sequential(
            nn.Linear(features, width), nn.LeakyReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)
        )
        self.target.requires_grad_(False)
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("var", torch.ones(features))
        self.register_buffer("count", torch.tensor(1e-4))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            n = obs.size(0)
            mean, var = obs.mean(0), obs.var(0, unbiased=False)
            delta, total = mean - self.mean, self.count + n
            m2 = self.var * self.count + var * n + delta**2 * self.count * n / total
            self.mean.add_(delta * n / total)
            self.var.copy_(m2 / total)
            self.count.copy_(total)
        x = ((obs - self.mean) / torch.sqrt(self.var + 1e-8)).clip(-5, 5)
        error = (self.predictor(x) - self.target(x).detach()).pow(2)
        reward = error.mean(-1).detach()
        return error.mean(), reward / (reward.std() + 1e-8)


def novelty(place: Place) -> Made:
    features, width, b = place.size(48, 512), place.size(64, 512), place.size(128, 16_384)
    return DistilledNovelty(features, width).to(place.device), (3 * place.randn(b, features) + 1,)


def hindsight(
    achieved: Tensor, desired: Tensor, actions: Tensor, length: Tensor, episode: Tensor, step: Tensor, draw: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Andrychowicz et al., 2017: goals of sampled transitions replaced by what was reached later, rewards anew."""
    t = (step * length[episode]).long()
    remaining = length[episode] - t
    future = t + 1 + (draw[0] * remaining).long()
    future = torch.minimum(future, length[episode])
    replace = draw[1] < 0.8
    goal = torch.where(replace[:, None], achieved[episode, future], desired[episode])
    reached = achieved[episode, t + 1]
    distance = torch.linalg.vector_norm(reached - goal, dim=-1)
    reward = -(distance > 0.05).to(achieved.dtype)
    observation = torch.cat([achieved[episode, t], goal], dim=-1)
    mean, std = observation.mean(0), observation.std(0).clamp(min=1e-2)
    return ((observation - mean) / std).clamp(-5, 5), actions[episode, t], reward, replace.sum()


def relabelling(place: Place) -> Made:
    episodes, steps, b = place.size(20, 4000), 50, place.size(1000, 1_000_000)
    path = 0.03 * place.randn(episodes, steps + 1, 3).cumsum(1)
    return hindsight, (
        path,
        0.2 * place.randn(episodes, 3),
        place.randn(episodes, steps, 4),
        10 + place.randint(steps - 10, episodes),
        place.randint(episodes, b),
        place.rand(b),
        place.rand(2, b),
    )


def retrace_targets(q: Tensor, v: Tensor, a: Tensor, r: Tensor, done: Tensor, pi: Tensor, mu: Tensor) -> Tensor:
    """Munos et al., 2016: truncated importance ratios, backwards in time; q and a are (time + 1, batch, ...)."""
    taken = q.gather(-1, a[..., None]).squeeze(-1)
    trace = 0.95 * torch.clamp(pi / mu, max=1.0)
    going = 0.99 * (~done).to(q.dtype)
    target = v[-1]
    targets = []
    for t in reversed(range(r.size(0))):
        correction = trace[t + 1] * (target - taken[t + 1]) if t + 1 < r.size(0) else torch.zeros_like(target)
        target = r[t] + going[t] * (v[t + 1] + correction)
        targets.append(target)
    error = torch.stack(targets[::-1]).detach() - taken[:-1]
    return 0.5 * error.square().mean()


def retraced(place: Place) -> Made:
    t, b, actions = place.size(8, 20), place.size(64, 32_768), 6
    return retrace_targets, (
        place.randn(t + 1, b, actions).requires_grad_(),
        place.randn(t + 1, b),
        place.randint(actions, t + 1, b),
        place.randn(t, b),
        place.rand(t, b) < 0.05,
        0.1 + place.rand(t, b),
        0.1 + place.rand(t, b),
    )


def groups_of(place: Place, count: int = 4) -> list[Tensor]:
    n = place.size(64, 1024)
    shapes = [(n, n), (n,), (4 * n, n), (n, 4 * n)] * count
    return [0.1 * place.randn(*shape) for shape in shapes]


def adan_step(
    params: list[Tensor], grads: list[Tensor], last: list[Tensor], m: list[Tensor], v: list[Tensor], n: list[Tensor]
) -> None:
    """Xie et al., 2022: Nesterov's momentum by differences of gradients, proximal weight decay."""
    b1, b2, b3, lr = 0.02, 0.08, 0.01, 1e-3
    for p, g, old, ma, va, na in zip(params, grads, last, m, v, n, strict=True):
        diff = g - old
        ma.mul_(1 - b1).add_(g, alpha=b1)
        va.mul_(1 - b2).add_(diff, alpha=b2)
        update = g + (1 - b2) * diff
        na.mul_(1 - b3).addcmul_(update, update, value=b3)
        p.addcdiv_(ma + (1 - b2) * va, na.sqrt().add_(1e-8), value=-lr)
        p.div_(1 + lr * 0.02)
        old.copy_(g)


def adan(place: Place) -> Made:
    squared = [t.square() for t in groups_of(place, 1)]
    return adan_step, (*(groups_of(place, 1) for _ in range(5)), squared)


def schedule_free_step(
    y: list[Tensor], z: list[Tensor], grads: list[Tensor], sq: list[Tensor], k: Tensor, weight: Tensor
) -> None:
    """Defazio et al., 2024: AdamW whose average takes the place of a schedule."""
    k.add_(1)
    lr = 0.0025 * torch.clamp(k / 100, max=1.0) * torch.sqrt(1 - 0.999**k)
    square = lr**2
    weight.add_(square)
    share = square / weight
    for p, base, g, s in zip(y, z, grads, sq, strict=True):
        s.mul_(0.999).addcmul_(g, g, value=0.001)
        direction = g / (s.sqrt() + 1e-8) + 0.01 * p
        p.lerp_(base, share)
        p.add_(direction * (lr * (0.9 * (1 - share) - 1)))
        base.sub_(direction * lr)


def schedule_free(place: Place) -> Made:
    y = groups_of(place, 1)
    z = [t + 0.01 for t in y]
    sq = [t.square() for t in groups_of(place, 1)]
    k, weight = torch.tensor(41.0, device=place.device), torch.tensor(2e-6, device=place.device)
    return schedule_free_step, (y, z, groups_of(place, 1), sq, k, weight)


def low_rank_adam(w: Tensor, g: Tensor, basis: Tensor, m: Tensor, v: Tensor, step: Tensor) -> Tensor:
    """Zhao et al., 2024 (GaLore): Adam's state of the projected gradient, projected back."""
    low = basis.T @ g
    step += 1
    m.mul_(0.9).add_(low, alpha=0.1)
    v.mul_(0.999).addcmul_(low, low, value=0.001)
    scale = 0.01 * torch.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    normal = m / (v.sqrt() + 1e-8)
    w.sub_(0.25 * scale * (basis @ normal))
    return (g - basis @ low).norm() / g.norm()


def gradient_projection(place: Place) -> Made:
    n, k, r = place.size(256, 4096), place.size(384, 4096), place.size(16, 128)
    basis = torch.linalg.qr(torch.randn(n, r)).Q.to(place.device)
    step = torch.tensor(12.0, device=place.device)
    return low_rank_adam, (
        place.randn(n, k),
        place.randn(n, k),
        basis,
        place.randn(r, k),
        place.rand(r, k),
        step,
    )


def cautious_step(params: list[Tensor], grads: list[Tensor], m: list[Tensor], v: list[Tensor], step: int) -> None:
    """Liang et al., 2024: AdamW's update only where it agrees with the gradient's sign."""
    for p, g, avg, sq in zip(params, grads, m, v, strict=True):
        avg.lerp_(g, 0.1)
        sq.mul_(0.95).addcmul_(g, g.conj(), value=0.05)
        size = 1e-3 * math.sqrt(1 - 0.95**step) / (1 - 0.9**step)
        mask = (avg * g > 0).to(g.dtype)
        mask.div_(mask.mean().clamp_(min=1e-3))
        p.add_((avg * mask) / sq.sqrt().add_(1e-6), alpha=-size)
        if p.ndim >= 2:
            p.add_(p, alpha=-1e-4)


def cautious(place: Place) -> Made:
    sq = [t.square() for t in groups_of(place, 1)]
    return cautious_step, (groups_of(place, 1), groups_of(place, 1), groups_of(place, 1), sq, 17)


def resilient_step(w: Tensor, g: Tensor, last: Tensor, size: Tensor) -> Tensor:
    """Rprop (Riedmiller, 1993): step sizes grow while signs agree, shrink and wait when they do not."""
    sign = g.mul(last).sign()
    sign[sign.gt(0)] = 1.2
    sign[sign.lt(0)] = 0.5
    sign[sign.eq(0)] = 1
    size.mul_(sign).clamp_(1e-6, 50)
    g = g.clone()
    g[sign.eq(0.5)] = 0
    w.addcmul_(g.sign(), size, value=-1)
    last.copy_(g)
    return (sign == 0.5).sum()


def resilient(place: Place) -> Made:
    n, m = place.size(256, 4096), place.size(512, 4096)
    return resilient_step, (*(place.randn(n, m) for _ in range(3)), 0.01 + place.rand(n, m))


class MultinomialVAE(nn.Module):
    """Liang et al., 2018: who clicked what, a multinomial likelihood, annealed divergence, recall of the held out."""

    def __init__(self, items: int, width: int, latent: int) -> None:
        super().__init__()
        self.q = nn.ModuleList([nn.Linear(items, width), nn.Linear(width, 2 * latent)])
        self.p = nn.ModuleList([nn.Linear(latent, width), nn.Linear(width, items)])

    def forward(self, x: Tensor, noise: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(self.q[0](F.normalize(x)))
        mu, logvar = self.q[1](h).chunk(2, dim=1)
        z = mu + noise * torch.exp(0.5 * logvar)
        logits = self.p[1](torch.tanh(self.p[0](z)))
        nll = -(F.log_softmax(logits, 1) * x).sum(1).mean()
        kld = -0.5 * torch.mean(torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1))
        with torch.no_grad():
            ranked = logits.masked_fill(x > 0, -torch.inf).topk(20, dim=1).indices
            recall = held.gather(1, ranked).sum(1) / held.sum(1).clamp(min=1, max=20)
        return nll + 0.2 * kld, recall


def multinomial(place: Place) -> Made:
    b, items = place.size(32, 500), place.size(800, 20_108)
    return MultinomialVAE(items, place.size(64, 600), place.size(16, 200)).to(place.device), (
        (place.rand(b, items) < 0.02).float(),
        place.randn(b, place.size(16, 200)),
        (place.rand(b, items) < 0.005).float(),
    )


class BilinearFields(nn.Module):
    """Huang et al., 2019 (FiBiNET): squeeze and excitation over fields, bilinear products of all pairs."""

    def __init__(self, fields: int, rows: int, width: int) -> None:
        super().__init__()
        self.fields = fields
        self.embedding = nn.Embedding(fields * rows, width)
        self.register_buffer("offset", rows * torch.arange(fields))
        self.excite = nn.Sequential(
            nn.Linear(fields, fields // 3), nn.ReLU(), nn.Linear(fields // 3, fields), nn.ReLU()
        )
        self.bilinear = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(fields))
        pairs = fields * (fields - 1) // 2
        self.head = nn.Sequential(nn.Linear(2 * pairs * width, 64), nn.ReLU(), nn.Linear(64, 1))

    def interact(self, x: Tensor) -> Tensor:
        parts = x.unbind(1)
        left = [layer(part) for layer, part in zip(self.bilinear, parts, strict=True)]
        n = self.fields
        return torch.stack([left[i] * parts[j] for i in range(n) for j in range(i + 1, n)], dim=1)

    def forward(self, ids: Tensor, clicked: Tensor) -> Tensor:
        x = self.embedding(ids + self.offset)
        weights = self.excite(x.mean(-1))
        both = torch.cat([self.interact(x), self.interact(x * weights[..., None])], dim=1)
        return F.binary_cross_entropy_with_logits(self.head(both.flatten(1)).squeeze(1), clicked)


def bilinear_fields(place: Place) -> Made:
    fields, rows, b = place.size(6, 16), place.size(50, 10_000), place.size(64, 4096)
    return BilinearFields(fields, rows, place.size(8, 32)).to(place.device), (
        place.randint(rows, b, fields),
        (place.rand(b) < 0.3).float(),
    )


class AttentiveStatistics(nn.Module):
    """ECAPA's pooling (Desplanques et al., 2020): weights for each channel from frame, mean and deviation."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(
            nn.Conv1d(3 * channels, width, 1),
            nn.ReLU(),
            nn.BatchNorm1d(width),
            nn.Tanh(),
            nn.Conv1d(width, channels, 1),
        )

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        n = x.size(-1)
        mask = (torch.arange(n, device=x.device)[None] < (lengths * n)[:, None]).unsqueeze(1)

        def statistics(m: Tensor) -> tuple[Tensor, Tensor]:
            mean = (m * x).sum(2)
            return mean, torch.sqrt((m * (x - mean.unsqueeze(2)).pow(2)).sum(2).clamp(1e-12))

        mean, std = statistics(mask / mask.sum(2, keepdim=True).to(x.dtype))
        whole = torch.cat([x, mean.unsqueeze(2).repeat(1, 1, n), std.unsqueeze(2).repeat(1, 1, n)], dim=1)
        weight = self.attention(whole).masked_fill(mask == 0, float("-inf"))
        mean, std = statistics(F.softmax(weight, dim=2))
        return torch.cat((mean, std), dim=1)


def attentive(place: Place) -> Made:
    b, c, n = place.size(2, 16), place.size(48, 1536), place.size(60, 300)
    lengths = 0.5 + 0.5 * place.rand(b)
    lengths[0] = 1
    return AttentiveStatistics(c, place.size(16, 128)).to(place.device), (
        place.randn(b, c, n).requires_grad_(),
        lengths,
    )


def contrasted_codes(
    context: Tensor, codes: Tensor, masked: Tensor, negatives: Tensor, probabilities: Tensor
) -> tuple[Tensor, Tensor]:
    """wav2vec 2.0 (Baevski et al., 2020): masked frames find their code among distractors; codes' diversity."""
    b, width = context.size(0), context.size(2)
    at = masked.nonzero(as_tuple=True)[1].view(b, -1)
    y = codes.gather(1, at[..., None].expand(-1, -1, width))
    x = context.gather(1, at[..., None].expand(-1, -1, width))
    wrong = y.gather(1, negatives.flatten(1)[..., None].expand(-1, -1, width)).view(b, *negatives.shape[1:], width)
    same = (y[:, :, None] == wrong).all(-1)
    logits = F.cosine_similarity(x[:, :, None], torch.cat([y[:, :, None], wrong], dim=2), dim=-1) / 0.1
    logits = torch.cat([logits[..., :1], logits[..., 1:].masked_fill(same, float("-inf"))], dim=-1)
    loss = F.cross_entropy(logits.flatten(0, 1), torch.zeros_like(at).flatten(), reduction="sum")
    average = probabilities.mean(dim=(0, 1))
    perplexity = torch.exp(-torch.sum(average * torch.log(average + 1e-7), dim=-1)).sum()
    return loss / at.numel(), 0.1 * (average.numel() - perplexity) / average.numel()


def masked_codes(place: Place) -> Made:
    b, t, width, k = place.size(2, 8), place.size(40, 500), place.size(16, 256), place.size(8, 100)
    n = t // 2
    mask = torch.zeros(b, t, dtype=torch.bool, device=place.device)
    mask[:, ::2] = True
    return contrasted_codes, (
        place.randn(b, t, width).requires_grad_(),
        place.randn(b, t, width).requires_grad_(),
        mask,
        place.randint(n, b, n, k),
        place.randn(b, t, 2, place.size(32, 320)).softmax(-1).requires_grad_(),
    )


ROWS: tuple[Row, ...] = (
    Row("program/conservative_critics", conservative, "training"),
    Row("program/expectile_values", expectiles, "training"),
    Row("program/log_policy_rewards", soft_dqn, "training"),
    Row("program/distilled_novelty", novelty, "training"),
    Row("program/hindsight_goals", relabelling),
    Row("program/retrace_targets", retraced, "training"),
    Row("program/adan_step", adan, writes=True),
    Row("program/schedule_free_step", schedule_free, writes=True),
    Row("program/low_rank_gradient_adam", gradient_projection, writes=True),
    Row("program/cautious_adamw_step", cautious, writes=True),
    Row("program/resilient_step", resilient, writes=True),
    Row("program/multinomial_click_vae", multinomial, "training"),
    Row("program/bilinear_field_pairs", bilinear_fields, "training"),
    Row("program/attentive_statistics_pool", attentive, "training"),
    Row("program/masked_code_contrast", masked_codes, "training"),
)
