"""Training programs of research code, their whole step compiled: they go on as eager does."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from capture.torch.training import Training, check, mlp, pair
from torch import nn, optim
from torch.optim.lr_scheduler import LinearLR
from torch.optim.swa_utils import SWALR, AveragedModel

PROGRAMS: dict[str, Callable[[], Training]] = {}


def program(make: Callable[[], Training]) -> Callable[[], Training]:
    PROGRAMS[make.__name__] = make
    return make


@program
def functional_step() -> Training:
    """Gradients by ``torch.func``; the state is an argument and a result."""
    model = mlp(4, 6, 3)
    state = {name: p.detach().clone() for name, p in model.named_parameters()}

    def loss_of(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(torch.func.functional_call(model, parameters, (x,)), y)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        gradients, loss = torch.func.grad_and_value(loss_of)(state, x, y)
        for name, gradient in gradients.items():
            state[name] = state[name] - 0.1 * gradient
        return loss

    return Training(step, pair(), [model], graphs=1)


@program
def private_gradients() -> Training:
    """Each sample's gradient clipped, noise added (arXiv 1607.00133)."""
    model = mlp(4, 6, 3)
    optimizer = optim.SGD(model.parameters(), 0.1)

    def loss_of(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(torch.func.functional_call(model, parameters, (x[None],)), y[None])

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        each = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0, 0))(parameters, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
        factor = (0.5 / (norms + 1e-6)).clamp(max=1.0)
        for name, p in model.named_parameters():
            p.grad = torch.einsum("n,n...->...", factor, each[name]) / len(x) + 0.01 * torch.randn_like(p)
        optimizer.step()
        return norms

    return Training(step, pair(), [model], [optimizer], graphs=1)


@program
def reptile() -> Training:
    """arXiv 1803.02999: some steps on a copy, towards which the weights go."""
    model, fast = mlp(4, 6, 3), mlp(4, 6, 3)
    inner = optim.SGD(fast.parameters(), 0.1)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for p, q in zip(fast.parameters(), model.parameters(), strict=True):
                p.copy_(q)
        for _ in range(3):
            inner.zero_grad()
            loss = F.cross_entropy(fast(x), y)
            loss.backward()
            inner.step()
        with torch.no_grad():
            for p, q in zip(fast.parameters(), model.parameters(), strict=True):
                q.lerp_(p, 0.3)
        return loss.detach()

    return Training(step, pair(), [model, fast], [inner], graphs=1)


@program
def momentum_contrast() -> Training:
    """arXiv 1911.05722: a slow encoder, a queue of its keys, a pointer into it."""
    encoder = mlp(4, 8, 6)
    slow = copy.deepcopy(encoder).requires_grad_(False)
    bank = nn.Module()
    bank.register_buffer("queue", F.normalize(torch.randn(12, 6), dim=1))
    bank.register_buffer("pointer", torch.zeros((), dtype=torch.long))
    optimizer = optim.SGD(encoder.parameters(), 0.1, momentum=0.9)

    def step(x: torch.Tensor) -> torch.Tensor:
        queue, pointer = bank.queue, bank.pointer
        assert isinstance(queue, torch.Tensor) and isinstance(pointer, torch.Tensor)
        q = F.normalize(encoder(x + 0.1 * torch.randn_like(x)), dim=1)
        with torch.no_grad():
            for p, s in zip(encoder.parameters(), slow.parameters(), strict=True):
                s.mul_(0.9).add_(p, alpha=0.1)
            k = F.normalize(slow(x + 0.1 * torch.randn_like(x)), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.clone().T], dim=1) / 0.2
        loss = F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            queue.index_copy_(0, (pointer + torch.arange(len(x))) % len(queue), k)
            pointer.add_(len(x)).remainder_(len(queue))
        return loss.detach()

    return Training(step, lambda: (torch.randn(3, 4),), [encoder, slow, bank], [optimizer])


@program
def stochastic_weight_averaging() -> Training:
    model = mlp(4, 6, 3)
    average = AveragedModel(model)
    optimizer = optim.SGD(model.parameters(), 0.1)
    warm, flat = LinearLR(optimizer, 0.5, 1.0, 4), SWALR(optimizer, 0.05, anneal_epochs=2)
    count = [0]

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        count[0] += 1
        if count[0] > 5:
            average.update_parameters(model)
            flat.step()
        else:
            warm.step()
        return loss.detach()

    return Training(step, pair(), [model, average], [optimizer], graphs=6)


@program
def stochastic_depth() -> Training:
    """Layers are left out by numbers that Python draws (arXiv 1603.09382)."""
    first, layers, last = nn.Linear(4, 6), nn.ModuleList(nn.Linear(6, 6) for _ in range(3)), nn.Linear(6, 3)
    optimizer = optim.AdamW([*first.parameters(), *layers.parameters(), *last.parameters()], 0.01)

    def step(x: torch.Tensor, y: torch.Tensor, kept: tuple[bool, ...]) -> torch.Tensor:
        optimizer.zero_grad()
        h = first(x)
        for layer, keep in zip(layers, kept, strict=True):
            if keep:
                h = h + layer(h).tanh()
        loss = F.cross_entropy(last(h), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    generator = random.Random(1)
    choices = [(True, True, True), (True, False, True)]
    batch = pair()
    return Training(step, lambda: (*batch(), generator.choice(choices)), [first, layers, last], [optimizer], graphs=3)


@program
def layerwise_adaptive_rates() -> Training:
    """One optimizer for each layer, its rate by the layer's norms (arXiv 1708.03888)."""
    model = mlp(4, 6, 3)
    optimizers = [optim.SGD([p], 0.1, momentum=0.9) for p in model.parameters()]

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        for p, optimizer in zip(model.parameters(), optimizers, strict=True):
            assert p.grad is not None
            with torch.no_grad():
                p.grad.mul_(p.norm() / (p.grad.norm() + 1e-3 * p.norm() + 1e-8)).clamp_(-1, 1)
            optimizer.step()
        return loss.detach()

    return Training(step, pair(), [model], optimizers)


BY_KERNELS = {"llvm_cpu": ("private_gradients", "reptile", "momentum_contrast", "stochastic_weight_averaging")}
CASES = [(name, backend) for backend in ("eager", "aot_eager") for name in PROGRAMS]
CASES += [(name, backend) for backend, names in BY_KERNELS.items() for name in names]


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_a_program_goes_as_in_eager(name: str, backend: str) -> None:
    check(PROGRAMS[name], backend)
