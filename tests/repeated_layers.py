"""Generated stacks of layers that are equal, or nearly so, for backends that compile equal layers once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

ROWS, WIDTH = 4, 6
SCALE = [1.0, 0.0, 2.0, 1.0, 0.5, 1.0]

Operator = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]


def _written(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    made = torch.zeros_like(a)
    made[1:3] = b[1:3]
    made[0] += a[-1]
    return made.mul_(0.5)


# What one step of a layer computes of two values, a weight (WIDTH x WIDTH) and a number.
OPERATORS: dict[str, Operator] = {
    "product": lambda a, b, w, n: a @ w,
    "tanh": lambda a, b, w, n: torch.tanh(a * n),
    "mean of two": lambda a, b, w, n: (a + b) * 0.5,
    "scale": lambda a, b, w, n: a * w[0] * n,
    "constant": lambda a, b, w, n: (a + torch.tensor(SCALE, dtype=a.dtype, device=a.device)).sin(),
    "a constant alone": lambda a, b, w, n: (
        torch.tensor(SCALE, dtype=a.dtype, device=a.device).expand(a.shape[0], WIDTH) * 1
    ),
    "norm": lambda a, b, w, n: F.layer_norm(a, (WIDTH,), w[0], w[1], eps=0.1 * n),
    "softmax": lambda a, b, w, n: a.softmax(-1),
    "of the row": lambda a, b, w, n: a - a.mean(1, keepdim=True) + b.amax(1, keepdim=True) * 0.1,
    "of all": lambda a, b, w, n: a * b.mean().sigmoid(),
    "concatenation": lambda a, b, w, n: torch.cat([a[:, :2], b[:, 2:4], a[:, 4:]], 1),
    "product of a concatenation": lambda a, b, w, n: torch.tanh(torch.cat([a, b], 1) @ torch.cat([w, w.t()])),
    "stack": lambda a, b, w, n: torch.stack([a, b, a]).mean(0),
    "split": lambda a, b, w, n: torch.cat([p * 0.5 for p in a.split(2, 1)][::-1], 1).cos(),
    "transposed": lambda a, b, w, n: (a.t().contiguous().t() * n).sin(),
    "dropout": lambda a, b, w, n: F.dropout(a, 0.2),
    "cumulative sum": lambda a, b, w, n: a.cumsum(1) * 0.3,
    "in place": lambda a, b, w, n: (a * 1.0).add_(b).mul_(0.5),
    "parts written": lambda a, b, w, n: _written(a, b),
    "picked": lambda a, b, w, n: a[:, torch.tensor([5, 3, 1, 0, 2, 4], device=a.device)],
    "where": lambda a, b, w, n: torch.where(a > b, a, b * 0.5),
    "detached": lambda a, b, w, n: a * 0.5 + b.detach(),
    "half": lambda a, b, w, n: a.float().sin().to(a.dtype),
    "convolution": lambda a, b, w, n: F.conv1d(a[None].transpose(1, 2), w[:, :, None])[0].t().tanh(),
}
WEIGHTS = ["own", "own", "own", "all the same", "in turn", "the last layer's too", "some the same"]
RESULTS = ["none", "list", "stack", "sum", "views", "every second", "the last three", "inputs too"]
ODDITIES = ["none", "a number of each", "one number", "one dtype", "one step more", "one without gradient"]


@dataclass(frozen=True)
class Step:
    """A row of ``OPERATORS``, and the numbers of the values that it is given."""

    operator: str
    first: int
    second: int
    weight: int


@dataclass(frozen=True)
class Layers:
    """A stack of layers.

    Args:
        depth: how many.
        states: values that go from layer to layer.
        steps: of a layer; their values are numbered from ``states`` on.
        kept: the numbers of a layer's values that the next one gets.
        weights: which layers share theirs.
        shown: the number of the value that each layer shows, and in ``results`` how.
        oddity: what is different in one layer, or in each.
        odd: the number of that layer.
        buffer: does each layer write to a buffer of its own?
        trains: is there a backward?
        dynamic: are there several sizes?
    """

    depth: int
    states: int
    steps: tuple[Step, ...]
    kept: tuple[int, ...]
    weights: str
    shown: int
    results: str
    oddity: str
    odd: int
    buffer: bool
    trains: bool
    dynamic: bool


@st.composite
def layers(draw: st.DrawFn) -> Layers:
    """Any stack of layers."""
    states = draw(st.sampled_from([1, 1, 2, 3]))
    steps = []
    for number in range(states, states + draw(st.integers(1, 5))):
        values = st.integers(0, number - 1)
        operator = draw(st.sampled_from([*OPERATORS]))
        steps.append(
            Step(operator, number - 1 if draw(st.booleans()) else draw(values), draw(values), draw(st.integers(0, 1)))
        )
    last, depth = states + len(steps) - 1, draw(st.integers(10, 14))
    kept = [draw(st.integers(0 if n else states, last)) for n in range(states)]
    kept[draw(st.integers(0, states - 1))] = last
    return Layers(
        depth, states, tuple(steps), tuple(kept), draw(st.sampled_from(WEIGHTS)),
        draw(st.integers(0, last)), draw(st.sampled_from(RESULTS)), draw(st.sampled_from(["none", "none", *ODDITIES])),
        draw(st.sampled_from([0, 1, depth // 2, depth - 2, depth - 1])),  # at either end enough others are equal
        draw(st.integers(0, 7)) == 0, draw(st.booleans()), draw(st.integers(0, 5)) == 0,
    )  # fmt: skip


class Stack(nn.Module):
    """The module that ``made`` describes."""

    def __init__(self, made: Layers) -> None:
        super().__init__()
        self.made = made
        rng = torch.Generator().manual_seed(0)
        own = [
            [nn.Parameter(torch.randn(WIDTH, WIDTH, generator=rng, dtype=torch.float64) * 0.4) for _ in range(2)]
            for _ in range(made.depth)
        ]
        for number, weights in enumerate(own):
            if made.weights == "all the same":
                weights[0] = own[0][0]
            elif made.weights == "in turn" and number > 1:
                weights[0] = own[number - 2][0]
            elif made.weights == "the last layer's too" and number:
                weights[1] = own[number - 1][0]
            elif made.weights == "some the same" and 4 <= number < 7:
                weights[0] = own[3][0]
            if made.oddity == "one without gradient" and number == made.odd:
                weights[1].requires_grad_(False)
        self.weights = nn.ModuleList(nn.ParameterList(weights) for weights in own)
        for number in range(made.depth if made.buffer else 0):
            self.register_buffer(f"mean{number}", torch.zeros(WIDTH, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> Any:
        made = self.made
        states = [x, *(x * (n + 2) for n in range(made.states - 1))]
        shown = []
        for number, weights in enumerate(self.weights):
            values = self._layer(number, states, weights)
            states = [values[n] for n in made.kept]
            if made.buffer:
                mean = self.get_buffer(f"mean{number}")
                mean.mul_(0.9).add_(states[0].detach().mean(0) * 0.1)
                states[0] = states[0] - mean
            if made.results != "every second" or number % 2:
                shown.append(values[made.shown])
        return states, _results(made.results, shown, self.weights)

    def _layer(self, number: int, states: list[torch.Tensor], weights: Any) -> list[torch.Tensor]:
        made, values = self.made, list(states)
        odd = number == made.odd
        factor = 1.0
        if made.oddity == "a number of each":
            factor = 1 + 0.1 * number
        elif made.oddity == "one number" and odd:
            factor = 1.5
        for step in made.steps:
            a, b, w = values[step.first], values[step.second], weights[step.weight]
            if made.oddity == "one dtype" and odd:
                a = a.to(torch.float32).to(torch.float64)
            values.append(OPERATORS[step.operator](a, b, w, factor))
        if made.oddity == "one step more" and odd:
            values[-1] = values[-1].cos()
        values[-1] = values[-1].tanh()  # what is handed on stays small
        return values


def _results(kind: str, shown: list[torch.Tensor], weights: Any) -> list[torch.Tensor]:
    if kind in ("list", "every second"):
        return shown
    if kind == "stack":
        return [torch.stack(shown)]
    if kind == "sum":
        return [torch.stack(shown).sum(0), sum(shown[1:], shown[0])]
    if kind == "views":
        return [value.t() for value in shown]
    if kind == "the last three":
        return shown[-3:]
    if kind == "inputs too":
        return [value for pair in zip(shown, (w[0] for w in weights), strict=False) for value in pair]
    return []
