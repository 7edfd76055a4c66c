"""Training programs whose whole step is one function: compiled, they go on as eager does."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from capture.torch.training import Training, check, mlp, pair
from torch import nn, optim
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

PROGRAMS: dict[str, Callable[[], Training]] = {}


def program(make: Callable[[], Training]) -> Callable[[], Training]:
    PROGRAMS[make.__name__] = make
    return make


@program
def the_step_that_people_write() -> Training:
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = optim.AdamW(model.parameters(), 0.01)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        return loss.detach()

    return Training(step, pair(), [model], [optimizer])


@program
def convolutions() -> Training:
    image = [nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.AvgPool2d(2)]
    model = nn.Sequential(*image, nn.Flatten(), nn.Linear(16, 3))
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-3, nesterov=True)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.05)
        optimizer.step()
        return loss.detach()

    return Training(step, lambda: (torch.randn(3, 2, 6, 6), torch.randint(3, (3,))), [model], [optimizer])


@program
def tiny_transformer() -> Training:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(11, 8), nn.Parameter(torch.randn(5, 8) * 0.1)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True, bias=False)
            self.head = nn.Linear(8, 11, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.tokens(ids) + self.places
            mask = torch.triu(torch.full((5, 5), -math.inf), 1)
            return self.head(self.layer(x, src_mask=mask))

    model = Model()
    optimizer = optim.AdamW(
        [
            {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0},
        ],
        0.01,
    )
    warmup = optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 4))

    def step(ids: torch.Tensor) -> torch.Tensor:
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        warmup.step()
        return loss.detach()

    return Training(step, lambda: (torch.randint(11, (3, 6)),), [model], [optimizer], graphs=3)  # it warms up, or not


@program
def accumulation_over_micro_batches() -> Training:
    model = mlp(4, 8, 3)
    optimizer = optim.Adam(model.parameters(), 0.01)

    def step(x: torch.Tensor, y: torch.Tensor) -> float:
        optimizer.zero_grad()
        total = torch.zeros(())
        for part, target in zip(x.chunk(3), y.chunk(3), strict=True):
            loss = F.cross_entropy(model(part), target) / 3
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    return Training(step, pair(), [model], [optimizer])


@program
def gradients_that_stay_from_step_to_step() -> Training:
    model = mlp(4, 5, 3)
    optimizer = optim.SGD(model.parameters(), 0.05)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        for p in model.parameters():
            assert p.grad is not None
            p.grad.mul_(0.5)
        return loss.detach()

    return Training(step, pair(), [model], [optimizer])


@program
def zeroed_in_place() -> Training:
    model = mlp(4, 5, 3)
    optimizer = optim.Adam(model.parameters(), 0.05)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, pair(), [model], [optimizer])


@program
def gan() -> Training:
    generator, critic = mlp(3, 8, 4), mlp(4, 8, 1)
    first = optim.Adam(generator.parameters(), 0.01, betas=(0.5, 0.9))
    second = optim.RMSprop(critic.parameters(), 0.01)

    def step(real: torch.Tensor) -> Any:
        ones, zeros = torch.ones(real.size(0), 1), torch.zeros(real.size(0), 1)
        fake = generator(torch.randn(real.size(0), 3))
        second.zero_grad()
        judged = F.binary_cross_entropy_with_logits(critic(real), ones)
        guessed = F.binary_cross_entropy_with_logits(critic(fake.detach()), zeros)
        (judged + guessed).backward()
        second.step()
        first.zero_grad()
        fooled = F.binary_cross_entropy_with_logits(critic(fake), ones)
        fooled.backward()
        first.step()
        return judged.detach(), fooled.detach()

    return Training(step, lambda: (torch.randn(5, 4),), [generator, critic], [first, second])


@program
def wgan_with_penalty() -> Training:
    generator, critic = mlp(3, 6, 4), mlp(4, 6, 1)
    first, second = optim.Adam(generator.parameters(), 0.01), optim.Adam(critic.parameters(), 0.01)

    def step(real: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            fake = generator(torch.randn(5, 3)).detach()
            alpha = torch.rand(5, 1)
            mixed = (alpha * real + (1 - alpha) * fake).requires_grad_()
            (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
            penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
            loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
            second.zero_grad()
            loss.backward()
            second.step()
        first.zero_grad()
        (-critic(generator(torch.randn(5, 3))).mean()).backward()
        first.step()
        return loss.detach()

    return Training(step, lambda: (torch.randn(5, 4),), [generator, critic], [first, second])


@program
def vae() -> Training:
    encoder, decoder = mlp(6, 8, 4), mlp(2, 8, 6)
    optimizer = optim.Adamax([*encoder.parameters(), *decoder.parameters()], 0.01)

    def step(x: torch.Tensor) -> Any:
        mean, log_variance = encoder(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        again = F.mse_loss(decoder(z), x, reduction="sum")
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
        loss = again + divergence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach(), "kl": divergence.detach()}

    return Training(step, lambda: (torch.randn(5, 6),), [encoder, decoder], [optimizer])


@program
def ppo() -> Training:
    actor, critic = mlp(4, 8, 3), mlp(4, 8, 1)
    optimizer = optim.Adam([{"params": actor.parameters(), "lr": 0.01}, {"params": critic.parameters()}], 0.02)

    def step(x: torch.Tensor, actions: torch.Tensor, before: torch.Tensor, returns: torch.Tensor) -> Any:
        for _ in range(2):
            policy = torch.distributions.Categorical(logits=actor(x), validate_args=False)
            value = critic(x).squeeze(-1)
            advantage = (returns - value).detach()
            ratio = (policy.log_prob(actions) - before).exp()
            clipped = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            loss = -clipped.mean() + 0.5 * F.mse_loss(value, returns) - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
            optimizer.step()
        return loss.detach()

    def batch() -> Any:
        return torch.randn(6, 4), torch.randint(3, (6,)), torch.randn(6) - 1, torch.randn(6)

    return Training(step, batch, [actor, critic], [optimizer])


@program
def maml() -> Training:
    model = mlp(1, 6, 1)
    optimizer = optim.Adam(model.parameters(), 0.01)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        total = torch.zeros(())
        for task in range(2):
            fast = dict(model.named_parameters())
            inner = F.mse_loss(torch.func.functional_call(model, fast, (x[task, :3],)), y[task, :3])
            slopes = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
            fast = {name: p - 0.1 * g for (name, p), g in zip(fast.items(), slopes, strict=True)}
            total = total + F.mse_loss(torch.func.functional_call(model, fast, (x[task, 3:],)), y[task, 3:])
        total.backward()
        optimizer.step()
        return total.detach()

    return Training(step, lambda: (torch.randn(2, 6, 1), torch.randn(2, 6, 1)), [model], [optimizer])


@program
def two_towers() -> Training:
    left, right = mlp(4, 8, 5), mlp(3, 8, 5)
    scale = nn.Parameter(torch.tensor(1.0))
    optimizer = optim.AdamW([*left.parameters(), *right.parameters(), scale], 0.01)

    def step(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        x, y = F.normalize(left(a), dim=-1), F.normalize(right(b), dim=-1)
        logits = scale.exp() * x @ y.t()
        targets = torch.arange(len(a))
        loss = (F.cross_entropy(logits, targets) + F.cross_entropy(logits.t(), targets)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            scale.clamp_(0, math.log(100))
        return loss.detach()

    both = nn.ModuleList([left, right, nn.ParameterList([scale])])
    return Training(step, lambda: (torch.randn(6, 4), torch.randn(6, 3)), [both], [optimizer])


@program
def distillation() -> Training:
    teacher, student = mlp(4, 16, 3).eval().requires_grad_(False), mlp(4, 5, 3)
    optimizer = optim.SGD(student.parameters(), 0.1, momentum=0.9)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            wanted = F.softmax(teacher(x) / 2, -1)
        got = student(x)
        soft = F.kl_div(F.log_softmax(got / 2, -1), wanted, reduction="batchmean") * 4
        loss = 0.3 * F.cross_entropy(got, y) + 0.7 * soft
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, pair(), [teacher, student], [optimizer])


@program
def moving_average_of_the_weights() -> Training:
    model = mlp(4, 5, 3)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = optim.Adam(model.parameters(), 0.01)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
        return loss.detach()

    return Training(step, pair(), [model, average], [optimizer])


@program
def averaged_model_of_torch() -> Training:
    model = mlp(4, 5, 3)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = optim.SGD(model.parameters(), 0.1)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        return loss.detach()

    return Training(step, pair(), [model, average], [optimizer])


@program
def two_losses_one_trunk() -> Training:
    trunk, first, second = mlp(4, 6, 6), nn.Linear(6, 3), nn.Linear(6, 1)
    one = optim.Adam([*trunk.parameters(), *first.parameters()], 0.01)
    other = optim.SGD(second.parameters(), 0.05)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        one.zero_grad()
        other.zero_grad()
        h = trunk(x)
        a = F.cross_entropy(first(h), y)
        b = second(h).square().mean()
        a.backward(retain_graph=True)
        b.backward(inputs=list(second.parameters()))
        one.step()
        other.step()
        return a.detach(), b.detach()

    return Training(step, pair(), [trunk, first, second], [one, other])


@program
def both_losses_at_once() -> Training:
    model = nn.ModuleList([nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 1)])
    optimizer = optim.Adagrad(model.parameters(), 0.05)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        h = model[0](x).relu()
        losses = [F.cross_entropy(model[1](h), y), model[2](h)]
        optimizer.zero_grad()
        torch.autograd.backward(losses, [None, torch.full((len(x), 1), 0.1)])
        optimizer.step()
        return losses[0].detach()

    return Training(step, pair(), [model], [optimizer], graphs=1)


@program
def autocast() -> Training:
    model = mlp(4, 8, 3, act=nn.GELU)
    optimizer = optim.Adam(model.parameters(), 0.01)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, pair(), [model], [optimizer])


@program
def checkpointed() -> Training:
    first, second = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Tanh()), nn.Linear(8, 3)
    optimizer = optim.SGD([*first.parameters(), *second.parameters()], 0.1)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        h = torch.utils.checkpoint.checkpoint(first, x, use_reentrant=False)
        loss = F.cross_entropy(second(h), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, pair(), [first, second], [optimizer], graphs=1)


@program
def recurrent_by_hand() -> Training:
    cell, head = nn.LSTMCell(3, 5), nn.Linear(5, 2)
    optimizer = optim.RMSprop([*cell.parameters(), *head.parameters()], 0.01, momentum=0.5)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h, c = torch.zeros(len(x), 5), torch.zeros(len(x), 5)
        for at in range(x.size(1)):
            h, c = cell(x[:, at], (h, c))
        loss = F.mse_loss(head(h), y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([*cell.parameters(), *head.parameters()], 1.0, foreach=False)
        optimizer.step()
        return loss.detach()

    return Training(step, lambda: (torch.randn(3, 4, 3), torch.randn(3, 2)), [cell, head], [optimizer])


@program
def adversarial_examples() -> Training:
    model = mlp(4, 8, 3)
    optimizer = optim.SGD(model.parameters(), 0.1)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        near = (x + 0.01 * torch.randn_like(x)).requires_grad_()
        F.cross_entropy(model(near), y).backward()
        assert near.grad is not None
        worse = (x + 0.1 * near.grad.sign()).detach()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(worse), y)
        loss.backward()
        optimizer.step()
        return loss.detach(), worse

    return Training(step, pair(), [model], [optimizer])


@program
def the_loss_as_it_is() -> Training:
    model = mlp(4, 5, 3)
    optimizer = optim.Adam(model.parameters(), 0.01)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return Training(step, pair(), [model], [optimizer])


@program
def the_loss_as_a_number() -> Training:
    model = mlp(4, 5, 3)
    optimizer = optim.Adam(model.parameters(), 0.01)

    def step(x: torch.Tensor, y: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return Training(step, pair(), [model], [optimizer])


@program
def scaled_gradients() -> Training:
    model = mlp(4, 5, 3)
    optimizer = optim.SGD(model.parameters(), 0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return Training(step, pair(), [model], [optimizer])


BY_KERNELS = {
    "llvm_cpu": ("the_step_that_people_write", "tiny_transformer", "accumulation_over_micro_batches", "gan", "ppo",
                 "autocast", "moving_average_of_the_weights", "the_loss_as_it_is"),
    "triton_gpu": ("zeroed_in_place", "distillation"),
}  # fmt: skip
CASES = [(name, backend) for backend in ("eager", "aot_eager") for name in PROGRAMS]
CASES += [(name, backend) for backend, names in BY_KERNELS.items() for name in names]


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_a_program_goes_as_in_eager(name: str, backend: str) -> None:
    check(PROGRAMS[name], backend)
