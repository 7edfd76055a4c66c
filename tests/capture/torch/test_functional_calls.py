"""``torch.func.functional_call`` in compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap

import jitney


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
        return self.second(self.first(x).relu()) * self.scale + shift


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def other(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach() * 0.5 + 0.1 for name, p in module.named_parameters()}


CALLS: dict[str, Callable[[Any, Any, torch.Tensor], Any]] = {
    "all of its parameters": lambda m, p, x: functional_call(m, p, (x,)),
    "one argument": lambda m, p, x: functional_call(m, p, x),
    "some of its parameters": lambda m, p, x: functional_call(m, {"first.bias": p["first.bias"]}, (x,)),
    "a buffer": lambda m, p, x: functional_call(m, ({"scale": x.sum()}, p), (x,)),
    "keywords": lambda m, p, x: functional_call(m, p, (x,), {"shift": 3.0}),
    "then its own": lambda m, p, x: functional_call(m, p, (x,)) + m(x),
    "a gradient": lambda m, p, x: grad(lambda q: functional_call(m, q, (x,)).square().sum())(p),
    "gradients of each example": lambda m, p, x: vmap(
        grad(lambda q, r: functional_call(m, q, (r,)).square().sum()), in_dims=(None, 0)
    )(p, x),
    "a jacobian": lambda m, p, x: jacrev(lambda q: functional_call(m, q, (x[0],)))(p),
    "nested": lambda m, p, x: functional_call(m, p, (functional_call(m, {"first.bias": x[0].repeat(2)}, (x,)),)),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_with_other_parameters(name: str, backend: str) -> None:
    module, fn = net(), CALLS[name]
    before = {key: value.clone() for key, value in module.state_dict().items()}
    own = [id(p) for p in module.parameters()]
    compiled = jitney.compile(fn, backend=backend, fullgraph=True)
    for seed in range(2):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            torch.testing.assert_close(compiled(module, other(module), x), fn(module, other(module), x))
    torch.testing.assert_close(dict(module.state_dict()), before)
    assert [id(p) for p in module.parameters()] == own


def test_training_by_functional_calls() -> None:
    def step(module: Net, p: dict[str, torch.Tensor], x: torch.Tensor) -> dict[str, torch.Tensor]:
        g = grad(lambda q: functional_call(module, q, (x,)).square().mean())(p)
        return {name: value - 0.1 * g[name] for name, value in p.items()}

    module, x = net(), torch.randn(3, 4)
    compiled = jitney.compile(step, backend="aot_eager", fullgraph=True)
    mine, theirs = other(module), other(module)
    for _ in range(3):
        mine, theirs = compiled(module, mine, x), step(module, theirs, x)
    torch.testing.assert_close(mine, theirs)


def test_an_ensemble_of_models() -> None:
    models = [net() for _ in range(3)]
    for n, model in enumerate(models):
        with torch.no_grad():
            model.first.weight += n
    parameters, buffers = stack_module_state(models)  # type: ignore[arg-type]
    base = net().to("meta")

    def run(p: Any, b: Any, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = vmap(lambda q, c: functional_call(base, (q, c), (x,)))(p, b)
        return made

    x = torch.randn(2, 4)
    compiled = jitney.compile(run, backend="aot_eager")
    torch.testing.assert_close(compiled(parameters, buffers, x), run(parameters, buffers, x))


class Sets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count = self.count + 1
        return x * self.count


def test_a_module_that_sets_its_buffers_runs_as_in_eager() -> None:
    sides = []
    for wrap in (lambda fn: fn, lambda fn: jitney.compile(fn, backend="eager")):
        module = Sets()
        fn = wrap(lambda m, x: functional_call(m, {"count": torch.ones(())}, (x,)))
        sides.append(([fn(module, torch.ones(2)) for _ in range(2)], module.count))
    torch.testing.assert_close(sides[1], sides[0])


def test_tied_weights_run_as_in_eager_and_are_noticed_later() -> None:
    module = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    compiled = jitney.compile(lambda m, p, x: functional_call(m, p, (x,)), backend="eager")
    x, p = torch.randn(2, 4), {"0.weight": torch.randn(4, 4)}
    torch.testing.assert_close(compiled(module, p, x), functional_call(module, p, (x,)))
    module[1].weight = module[0].weight
    torch.testing.assert_close(compiled(module, p, x), functional_call(module, p, (x,)))


@pytest.mark.parametrize("name", ["third.bias", "first.nothing", ""])
def test_a_name_that_the_module_lacks_does_what_it_does_in_eager(name: str) -> None:
    module, x = net(), torch.randn(2, 4)
    fn = lambda m: functional_call(m, {name: x}, (x,))  # noqa: E731
    sides: list[Any] = []
    for run in (fn, jitney.compile(fn, backend="eager")):
        try:
            sides.append(run(module))
        except Exception as error:
            sides.append(type(error))
    assert type(sides[0]) is type(sides[1])
    if isinstance(sides[0], torch.Tensor):
        torch.testing.assert_close(sides[1], sides[0])
    else:
        assert sides[0] is sides[1]
