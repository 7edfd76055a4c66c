"""Programs as training loops have them: penalties, inner loops, regularisation, augmentation, copies of networks."""

from __future__ import annotations

import copy
import dataclasses
import enum
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from captured.table import Made, Table, t
from torch import autograd, nn
from torch.autograd import Variable

program = Table()


@program(train=True)
def gradient_penalty() -> Made:
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    class Penalty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.critic = critic

        def forward(self, real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
            alpha = torch.rand(real.size(0), 1).expand_as(real)
            between = Variable(alpha * real.data + (1 - alpha) * fake.data, requires_grad=True)
            out = self.critic(between)
            grads = autograd.grad(
                outputs=out,
                inputs=between,
                grad_outputs=torch.ones(out.size()),
                create_graph=True,
                retain_graph=True,
                only_inputs=True,
            )[0]
            return ((grads.view(grads.size(0), -1).norm(2, dim=1) - 1) ** 2).mean() * 10

    return Penalty(), t(4, 3), t(4, 3, seed=1)


@program(train=True)
def residual_of_an_equation() -> Made:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

        def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
            u = self.net(torch.cat([x, time], 1))
            ones = torch.ones_like(u)
            ux, ut = torch.autograd.grad(u, [x, time], ones, create_graph=True)
            uxx = torch.autograd.grad(ux, x, ones, create_graph=True)[0]
            return (ut + u * ux - 0.1 * uxx).pow(2).mean()

    torch.manual_seed(0)
    return Residual(), t(4, 1).requires_grad_(), t(4, 1, seed=1).requires_grad_()


@program(train=True)
def drop_path_with_rates_of_numpy() -> Made:
    class DropPath(nn.Module):
        def __init__(self, rate: Any) -> None:
            super().__init__()
            self.rate = rate

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.rate == 0.0 or not self.training:
                return x
            keep = 1 - self.rate
            mask = keep + torch.rand((x.shape[0],) + (1,) * (x.ndim - 1), dtype=x.dtype)
            return x.div(keep) * mask.floor_()

    return nn.Sequential(*[DropPath(rate) for rate in np.linspace(0, 0.3, 3)]), t(4, 3).requires_grad_()


@program()
def cutout_by_numpy() -> Made:
    def f(image: torch.Tensor, holes: int, length: int) -> torch.Tensor:
        h, w = image.size(1), image.size(2)
        mask = np.ones((h, w), np.float32)
        for k in range(holes):
            y, x = k % h, (2 * k) % w
            top, bottom = np.clip(y - length // 2, 0, h), np.clip(y + length // 2, 0, h)
            left, right = np.clip(x - length // 2, 0, w), np.clip(x + length // 2, 0, w)
            mask[top:bottom, left:right] = 0.0
        return image * torch.from_numpy(mask).expand_as(image)

    return f, t(2, 6, 6), 3, 4


@program()
def layers_copied_inside() -> Made:
    torch.manual_seed(0)
    layer = nn.Linear(6, 6)

    def f(x: torch.Tensor) -> Any:
        layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(2)])
        for one in layers:
            x = x + F.relu(one(x))
        return x, len(list(layers.parameters()))

    return f, t()


@program()
def configuration_with_enumerations() -> Made:
    class Norm(enum.Enum):
        LAYER = "layer"
        NONE = None

    @dataclasses.dataclass
    class Config:
        norm: Norm = Norm.LAYER
        sizes: list[int] = dataclasses.field(default_factory=lambda: [6])

    config = Config()

    def f(x: torch.Tensor) -> Any:
        given = dataclasses.asdict(config)
        if given["norm"] is Norm.LAYER:
            x = F.layer_norm(x, given["sizes"])
        return x, given["norm"].name

    return f, t()
