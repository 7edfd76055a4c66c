"""Lazy modules at their first call: parameters, random numbers and graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import check_made, check_scenario
from torch import nn

import jitney
from jitney.errors import BackendFailed


class Encoder(nn.Module):
    """Calls a lazy module twice, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.LazyConv1d(4, 3, padding=1)
        self.norm = nn.LazyBatchNorm1d()
        self.mix = nn.LazyConv1d(4, 1)
        self.head = nn.LazyLinear(2)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x = self.norm(self.conv(x))
        return self.head(self.mix(self.mix(x)).mean(-1)) * self.calls


class Asks(nn.Module):
    """The frame tells a lazy module from one that is not, before it calls it."""

    def __init__(self, ask: Callable[[Any], bool]) -> None:
        super().__init__()
        self.linear = nn.LazyLinear(2)
        self.ask = ask
        self.told: list[bool] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.told.append(self.ask(self.linear))
        return self.linear(x)


class Drops(nn.Module):
    """Draws numbers before the parameters are made."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.LazyLinear(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(nn.functional.dropout(x, 0.5))


class Own(nn.LazyLinear):
    """A class of the program's, which tells when it is initialised."""

    log: list[str] = []

    def reset_parameters(self) -> None:
        self.log.append("reset")
        super().reset_parameters()


PROGRAMS: dict[str, tuple[Callable[[], Any], tuple[int, ...], int]] = {
    "sequential": (lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(3)), (2, 5), 0),
    "by itself": (lambda: nn.LazyConv1d(4, 3), (2, 3, 8), 0),
    "several": (Encoder, (2, 3, 8), 0),
    "numbers drawn before": (Drops, (2, 5), 1),
    "isinstance": (lambda: Asks(lambda m: isinstance(m, nn.LazyLinear)), (2, 5), 1),
    "type": (lambda: Asks(lambda m: type(m) is nn.Linear), (2, 5), 1),
    "__class__": (lambda: Asks(lambda m: m.__class__ is nn.Linear), (2, 5), 1),
    "parameters": (lambda: Asks(lambda m: m.has_uninitialized_params()), (2, 5), 1),
    "hasattr": (lambda: Asks(lambda m: hasattr(m, "cls_to_become")), (2, 5), 1),
    "getattr": (lambda: Asks(lambda m: getattr(m, "initialize_parameters", None) is not None), (2, 5), 1),
    "method": (lambda: Asks(lambda m: m.reset_parameters.__func__ is nn.Linear.reset_parameters), (2, 5), 1),
    "a class of the program's": (lambda: nn.Sequential(Own(2)), (2, 5), 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_first_call(name: str) -> None:
    make, shape, breaks = PROGRAMS[name]
    check_made(make, torch.randn(shape), graphs=None if breaks else 1, breaks=None if breaks else 0, calls=3)


def test_one_compilation() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    compiled = jitney.compile(model, backend="eager", fullgraph=True)
    compiled(torch.randn(2, 3))
    with jitney.config.patch(error_on_recompile=True):
        compiled(torch.randn(2, 3))
    assert type(model[0]) is nn.Linear


def test_raises_what_eager_raises() -> None:
    class Raises(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = super().forward(x)
            raise ValueError(f"{len(y)} rows")

    check_made(lambda: Raises(nn.LazyLinear(2)), torch.randn(3, 5), raises=ValueError)
    convolution = nn.LazyConv2d(2, 3)
    with pytest.raises(RuntimeError, match="Expected 3D"):
        jitney.compile(convolution, backend="eager")(torch.randn(2, 5))
    assert type(convolution) is nn.LazyConv2d

    class Tries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.LazyLinear(2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return convolution(x)
            except RuntimeError:
                return self.linear(x)

    check_made(Tries, torch.randn(2, 5), breaks=1)


def test_failed_compilation_leaves_it_lazy() -> None:
    def fails(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no")

    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    tables = [[*m._forward_pre_hooks, *m._load_state_dict_pre_hooks] for m in model]
    before = torch.get_rng_state()
    with pytest.raises(BackendFailed):
        jitney.compile(model, backend=fails)(torch.randn(2, 5, generator=torch.Generator().manual_seed(0)))
    assert [type(m) for m in model] == [nn.LazyLinear, nn.LazyBatchNorm1d]
    assert all(m.has_uninitialized_params() for m in model)
    assert [[*m._forward_pre_hooks, *m._load_state_dict_pre_hooks] for m in model] == tables
    assert torch.equal(before, torch.get_rng_state())
    assert model(torch.randn(2, 5)).shape == (2, 4)


def test_break_after_it() -> None:
    def scenario(wrap: Callable[[Any], Any]) -> Any:
        class Breaks(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = nn.LazyLinear(2)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                y = self.linear(x)
                print("between")
                return y + torch.rand(2)

        model = Breaks()
        called = wrap(model)
        return [called(torch.ones(2, 3)) for _ in range(2)], dict(model.named_parameters())

    check_scenario(scenario)
