"""The functions and the function transforms that tests/capture/test_transforms.py puts together, two levels deep."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

Function = Callable[[torch.Tensor], torch.Tensor]
WEIGHT = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
LINEAR = torch.nn.Linear(4, 4).requires_grad_(False)  # linearize around tensors that require grad is a break

# From four numbers to four, differentiable.
FUNCTIONS: dict[str, Function] = {
    "sin": lambda x: x.sin() * x,
    "softmax": lambda x: x.softmax(0),
    "product with a matrix": lambda x: WEIGHT @ x,
    "linear": lambda x: LINEAR(x).tanh(),
    "layer norm": lambda x: F.layer_norm(x, (4,)),
    "gelu": lambda x: F.gelu(x) + x.square().mean(),
    "where": lambda x: torch.where(x > 0, x.exp(), x * 2),
    "cumsum": lambda x: x.cumsum(0) * x.flip(0),
    "outer product": lambda x: torch.outer(x, x).sum(0),
    "indexing": lambda x: torch.stack([x[0] * x[1], x[2], x[-1], x[:2].sum()]),
    "in place on its own": lambda x: x.clone().mul_(2).add_(x),
    "loop": lambda x: sum((x**n / (n + 1) for n in range(4)), x),
    "max": lambda x: x * x.max(),
    "norm": lambda x: x / x.norm(),
    "roll and cat": lambda x: torch.cat([x[1:], x[:1]]).roll(1) * x,
    "einsum": lambda x: torch.einsum("i,ij->j", x, WEIGHT),
    "solve": lambda x: torch.linalg.solve(torch.eye(4) * 3 + torch.outer(x, x), x),
    "logsumexp": lambda x: x - x.logsumexp(0),
    "sigmoid and log": lambda x: x.sigmoid().log() * 0.5,
    "gather": lambda x: x.gather(0, torch.tensor([3, 1, 0, 2])),
    "view": lambda x: x.view(2, 2).t().reshape(4) * 3,
    "branch on a shape": lambda x: x * 2 if x.shape[0] > 3 else x,
    "detach": lambda x: x * x.detach(),
    "no grad": lambda x: x * 1.5 + x.sqrt().nan_to_num(),
    "mse": lambda x: x * F.mse_loss(x, torch.ones(4)),
    "clamp": lambda x: x.clamp(-0.5, 0.5) + x,
    "atan2": lambda x: torch.atan2(x, x.flip(0) + 2),
    "prod": lambda x: x * x.prod(),
    "var": lambda x: x * x.var(),
    "conv": lambda x: F.conv1d(x.view(1, 1, 4), torch.ones(1, 1, 3), padding=1).view(4),
}


class Scaled(torch.nn.Module):
    """A function times a parameter."""

    def __init__(self, f: Function) -> None:
        super().__init__()
        self.f = f
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Four numbers."""
        return self.f(x) * self.scale


def called(f: Function) -> Function:
    """The function as a module that is called with another parameter than its own."""
    module = Scaled(f)
    return lambda x: functional_call(module, {"scale": x.cos()}, (x,))


# Of a function from four numbers to four: functions of four numbers, made before anything is compiled.
TRANSFORMS: dict[str, Callable[[Function], Callable[[torch.Tensor], Any]]] = {
    "grad": lambda f: grad(lambda x: f(x).sum()),
    "grad_and_value": lambda f: grad_and_value(lambda x: f(x).square().sum()),
    "vjp": lambda f: lambda x: vjp(f, x)[1](x.cos()),
    "jvp": lambda f: lambda x: jvp(f, (x,), (x.cos(),)),
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "hessian": lambda f: hessian(lambda x: f(x).sum()),
    "vmap": lambda f: lambda x: vmap(f, out_dims=1)(torch.stack([x, x + 1])),
    "functional_call": called,
    "linearize": lambda f: lambda x: linearize(f, x)[1](x.cos()),
}
NESTED = [name for name in TRANSFORMS if name != "linearize"]  # torch's own gives nonsense in and around others


def vector(f: Callable[[torch.Tensor], Any]) -> Function:
    """Four numbers that depend on all that ``f`` gives."""

    def four(x: torch.Tensor) -> torch.Tensor:
        flat = torch.cat([leaf.reshape(-1) for leaf in torch.utils._pytree.tree_leaves(f(x))])
        return flat[:4] + flat.mean() * x

    return four


def pairs(name: str) -> list[tuple[str, str]]:
    """(outer, inner) transforms to nest around a function: one by a seed, or as many as ``JITNEY_TEST_PAIRS`` says."""
    everything = list(itertools.product(NESTED, NESTED))
    wanted = os.environ.get("JITNEY_TEST_PAIRS", "1")
    return everything if wanted == "all" else random.Random(name).sample(everything, int(wanted))
