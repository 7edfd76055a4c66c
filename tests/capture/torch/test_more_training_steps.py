"""More training programs whose step is one function: other optimizers, written by hand or elsewhere, other losses."""

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

PROGRAMS: dict[str, Callable[[], Training]] = {}


def program(make: Callable[[], Training]) -> Callable[[], Training]:
    PROGRAMS[make.__name__] = make
    return make


def classified(optimizer_of: Callable[[Any], optim.Optimizer], **told: Any) -> Training:
    """A small classifier, and an optimizer."""
    model = mlp(4, 6, 3)
    optimizer = optimizer_of(model.parameters())

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, pair(), [model], [optimizer], **told)


class Lion(optim.Optimizer):
    """Signs of a momentum (arXiv 2302.06675), as people write it."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99), "weight_decay": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step."""
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(state["exp_avg"].lerp(p.grad, 1 - first).sign_(), alpha=-group["lr"])
                state["exp_avg"].lerp_(p.grad, 1 - second)


class Lamb(optim.Optimizer):
    """Adam with a trust ratio for each layer (arXiv 1904.00962); steps are counted in Python, as timm does."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr, "step": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step."""
        for group in self.param_groups:
            group["step"] += 1
            corrections = 1 - 0.9 ** group["step"], 1 - 0.999 ** group["step"]
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["m"].mul_(0.9).add_(p.grad, alpha=0.1)
                state["v"].mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                update = (state["m"] / corrections[0]) / ((state["v"] / corrections[1]).sqrt() + 1e-6)
                weight, length = p.norm(), update.norm()
                ratio = torch.where((weight > 0) & (length > 0), weight / length, 1.0)
                p.add_(update * ratio, alpha=-group["lr"])


@program
def lion() -> Training:
    return classified(lambda p: Lion(p, 0.01))


@program
def lamb() -> Training:
    return classified(lambda p: Lamb(p, 0.01))


@program
def radam() -> Training:
    return classified(lambda p: optim.RAdam(p, 0.05), graphs=3)  # it warms up


@program
def asgd() -> Training:
    return classified(lambda p: optim.ASGD(p, 0.05))


@program
def nadam_of_lists() -> Training:
    return classified(lambda p: optim.NAdam(p, 0.05, foreach=True))


@program
def fused_adamw() -> Training:
    return classified(lambda p: optim.AdamW(p, 0.05, fused=True))


@program
def adafactor_of_transformers() -> Training:
    adafactor = pytest.importorskip("transformers.optimization").Adafactor
    return classified(lambda p: adafactor(p, lr=0.01, relative_step=False, scale_parameter=False), graphs=3)


@program
def several_groups_and_one_cycle() -> Training:
    model = mlp(4, 6, 3)
    groups = [{"params": model[0].parameters(), "lr": 0.01}, {"params": model[2].parameters(), "weight_decay": 0.1}]
    optimizer = optim.AdamW(groups, 0.02)
    scheduler = optim.lr_scheduler.LambdaLR(optimizer, [lambda n: 0.9**n, lambda n: 1 / (1 + n)])

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()
        scheduler.step()
        return loss.detach()

    return Training(step, pair(), [model], [optimizer])


@program
def sharpness_aware() -> Training:
    model = mlp(4, 6, 3)
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            moves = [p.grad * (0.05 / (norm + 1e-12)) for p in model.parameters()]
            torch._foreach_add_(list(model.parameters()), moves)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), moves)
        optimizer.step()
        return loss.detach()

    return Training(step, pair(), [model], [optimizer])


@program
def mean_teacher() -> Training:
    student = mlp(4, 6, 3)
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = optim.Adam(student.parameters(), 0.02)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.no_grad():
            goal = teacher(x + 0.1 * torch.randn_like(x)).softmax(-1)
        out = student(x + 0.1 * torch.randn_like(x))
        loss = F.cross_entropy(out, y) + F.mse_loss(out.softmax(-1), goal)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mine, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
                mine.lerp_(theirs, 0.01)
        return loss.detach()

    return Training(step, pair(), [student, teacher], [optimizer])


@program
def siamese_with_stopped_gradients() -> Training:
    encoder, predictor = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()), nn.Linear(8, 8)
    optimizer = optim.SGD([*encoder.parameters(), *predictor.parameters()], 0.05, momentum=0.9)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        one, two = (encoder(x + 0.1 * torch.randn_like(x)) for _ in range(2))
        near = [F.cosine_similarity(predictor(a), b.detach()).mean() for a, b in ((one, two), (two, one))]
        loss = -sum(near) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, pair(), [encoder, predictor], [optimizer])


@program
def reinforce() -> Training:
    policy = mlp(4, 8, 3)
    optimizer = optim.RMSprop(policy.parameters(), 0.01)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = policy(x)
        action = torch.multinomial(logits.softmax(-1), 1).squeeze(-1)
        reward = (action == y).float()
        chosen = logits.log_softmax(-1).gather(-1, action[:, None]).squeeze(-1)
        loss = -(chosen * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return reward.mean()

    return Training(step, pair(16), [policy], [optimizer])


@program
def mixup() -> Training:
    model = mlp(4, 6, 3)
    optimizer = optim.AdamW(model.parameters(), 0.02, foreach=True)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        order, share = torch.randperm(len(x)), torch.rand(())
        out = model(share * x + (1 - share) * x[order])
        loss = share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[order])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, pair(), [model], [optimizer])


@program
def losses_weighed_by_what_is_learned() -> Training:
    trunk, heads = mlp(4, 6), nn.ModuleList(nn.Linear(6, 3) for _ in range(2))
    weights = nn.ParameterList(nn.Parameter(torch.zeros(())) for _ in range(2))
    optimizer = optim.Adam([*trunk.parameters(), *heads.parameters(), *weights.parameters()], 0.02)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        optimizer.zero_grad()
        hidden = trunk(x).tanh()
        parts = [F.cross_entropy(heads[0](hidden), y), heads[1](hidden).square().mean()]
        loss = torch.stack([(-w).exp() * part + w for w, part in zip(weights, parts, strict=True)]).sum()
        loss.backward()
        optimizer.step()
        return [part.detach() for part in parts]

    return Training(step, pair(), [trunk, heads, weights], [optimizer])


@program
def penalised_slopes() -> Training:
    model = mlp(4, 6, 1, act=nn.Softplus)
    optimizer = optim.Adam(model.parameters(), 0.02)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        energy = model(x).sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        loss = (energy / len(x) - 1).square() + (force + x.detach()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, pair(), [model], [optimizer])


@program
def accumulated_and_scaled() -> Training:
    model = mlp(4, 6, 3)
    optimizer = optim.SGD(model.parameters(), 0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=2)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        total = torch.zeros(())
        for part, labels in zip(x.chunk(2), y.chunk(2), strict=True):
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(model(part), labels) / 2
            scaler.scale(loss).backward()
            total += loss.detach()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return total

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        x, y = pair()()
        return torch.where(torch.rand(()) < 0.3, math.inf, x), y

    return Training(step, batch, [model], [optimizer])


@program
def embeddings_and_attention() -> Training:
    table, mix, out = nn.Embedding(7, 8), nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 7)
    optimizer = optim.AdamW([*table.parameters(), *mix.parameters(), *out.parameters()], 0.01)

    def step(ids: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        x = table(ids[:, :-1])
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        made = out(x + mix(x, x, x, attn_mask=mask, need_weights=False)[0])
        loss = F.cross_entropy(made.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Training(step, lambda: (torch.randint(7, (3, 6)),), [table, mix, out], [optimizer])


@program
def truncated_backpropagation() -> Training:
    table, cells, out = nn.Embedding(7, 4), nn.LSTM(4, 4, 2), nn.Linear(4, 7)
    parameters = [*table.parameters(), *cells.parameters(), *out.parameters()]
    held: list[Any] = [None]

    def step(ids: torch.Tensor) -> torch.Tensor:
        for p in parameters:
            p.grad = None
        before = None if held[0] is None else tuple(h.detach() for h in held[0])
        made, held[0] = cells(table(ids[:-1]), before)
        loss = F.cross_entropy(out(made).flatten(0, 1), ids[1:].flatten())
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p.add_(p.grad, alpha=-0.1)
        return loss.detach()

    why = "an LSTM's kernel on this device keeps what its backward needs only where autograd sees it"
    return Training(step, lambda: (torch.randint(7, (5, 2)),), [table, cells, out], kept=(why,))


BY_KERNELS = {
    "llvm_cpu": ("lion", "radam", "sharpness_aware", "mean_teacher", "fused_adamw", "penalised_slopes"),
    "triton_gpu": ("radam",),
}
CASES = [(name, backend) for backend in ("eager", "aot_eager") for name in PROGRAMS]
CASES += [(name, backend) for backend, names in BY_KERNELS.items() for name in names]


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_a_program_goes_as_in_eager(name: str, backend: str) -> None:
    check(PROGRAMS[name], backend)
