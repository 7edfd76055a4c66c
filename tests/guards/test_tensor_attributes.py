"""Attributes and hooks of many tensors, asked in one call; what a step writes to, told apart in one check."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import observe
from torch import nn, optim

import jitney
from jitney.guards.tensor_attributes import Untouched, attributes, is_quiet


def _parameters(count: int = 3) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(2)) for _ in range(count)]


def _halved(gradient: torch.Tensor) -> torch.Tensor:
    return gradient / 2


def _doubled(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(2)


TOUCHES: dict[str, Callable[[Any], Any]] = {
    "an attribute": lambda p: setattr(p, "mul_", None),
    "an empty dictionary": lambda p: setattr(p, "mul_", {}),
    "a class": lambda p: setattr(p, "mul_", nn.Parameter),
    "a hook": lambda p: p.register_hook(_halved),
    "a hook that is gone": lambda p: p.register_hook(_halved).remove(),
    "a hook afterwards": lambda p: p.register_post_accumulate_grad_hook(_doubled),
}


@pytest.mark.parametrize("touch", TOUCHES)
def test_what_is_added_to_one_of_many_tensors_is_seen(touch: str) -> None:
    for known in (False, True):  # asked for the first time, and beside what was found before
        for has_dictionary in (False, True):
            tensors = _parameters()
            if has_dictionary:
                vars(tensors[1])
            check = Untouched([{"mul_"}] * 3, [True] * 3)
            assert not known or check(*tensors)
            TOUCHES[touch](tensors[1])
            assert not check(*tensors)
            assert not check(*tensors)


def test_what_is_not_asked_for_does_not_matter() -> None:
    tensors = _parameters()
    check = Untouched([{"mul_"}, {"mul_"}, ()], [True, False, False])
    assert check(*tensors)
    setattr(tensors[0], "note", [])  # noqa: B010
    setattr(tensors[2], "mul_", 1)  # noqa: B010
    tensors[1].register_hook(_halved)
    for _ in range(2):
        assert check(*tensors)
    setattr(tensors[1], "mul_", 1)  # noqa: B010
    assert not check(*tensors)
    assert check(*_parameters())


def test_an_attribute_moves_from_one_tensor_to_another_that_must_not_have_it() -> None:
    first, second = _parameters(2)
    check = Untouched([(), {"mul_"}], [True, True])
    setattr(first, "mul_", 1)  # noqa: B010
    assert check(first, second)
    del first.mul_  # type: ignore[attr-defined]
    setattr(second, "mul_", 1)  # noqa: B010
    assert not check(first, second)


def test_asking_gives_no_tensor_a_dictionary() -> None:
    tensor = nn.Parameter(torch.zeros(2))
    assert attributes(tensor) == {} and is_quiet(tensor)
    assert Untouched([{"mul_"}], [True])(tensor)
    assert gc.get_referents(tensor) == [nn.Parameter]
    setattr(tensor, "note", 1)  # noqa: B010
    assert attributes(tensor) == {"note": 1} and is_quiet(tensor)
    tensor.register_hook(_halved)
    assert not is_quiet(tensor)


# ------------------------------------------------------------------ of a training step


def _changes(model: nn.Sequential, optimizer: optim.Optimizer) -> list[Callable[[], Any]]:
    """What a program may do between two steps."""
    layer, other = model[0], model[2]
    state: Any = optimizer.state
    hooks: list[Any] = []
    return [
        lambda: setattr(layer.weight, "note", "mine"),
        lambda: hooks.append(layer.weight.register_hook(_halved)),
        lambda: hooks.pop().remove(),
        lambda: other.bias.register_post_accumulate_grad_hook(_doubled),
        lambda: state.update({other.weight: state[layer.weight]}),
        lambda: state.update({other.weight: dict(state[layer.weight])}),
        lambda: state.update({other.weight: {"momentum_buffer": torch.ones(4, 4)}}),
        lambda: state.update({other.weight: {"momentum_buffer": None}}),
        lambda: setattr(layer.weight, "data", torch.ones(4, 4)),
        lambda: setattr(layer.weight, "grad", torch.ones(4, 4).t()),
        lambda: optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict())),
        lambda: optimizer.param_groups[0].update(lr=0.01),
        lambda: optimizer.param_groups[0].update(momentum=0.5),
        state.clear,
    ]


def _train(wrap: Callable[[Any], Any]) -> list[Any]:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)))
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x).tanh(), x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled, found = wrap(step), []
    for change in [int, int, *_changes(model, optimizer)]:
        change()
        for _ in range(2):
            loss = compiled(torch.randn(3, 4))
        gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        versions = [p._version for p in model.parameters()]
        found.append((loss, copy.deepcopy(model.state_dict()), gradients, versions))
        found.append(
            [{key: copy.deepcopy(value) for key, value in state.items()} for state in optimizer.state.values()]
        )
    return found


def test_a_step_sees_what_is_changed_between_its_calls() -> None:
    with jitney.config.patch(cache_size_limit=64), observe() as seen:
        got = _train(lambda step: jitney.compile(step, backend="eager"))
    torch.testing.assert_close(got, _train(lambda step: step), rtol=0, atol=0)
    assert not seen.breaks and not seen.skips


def _length(layers: int) -> int:
    """Lines of the emitted function of a step of so many layers, whose optimizer writes its state back."""
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(layers)))
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)

    @jitney.compile(backend="eager", fullgraph=True)
    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    sources: list[str] = []
    listener = lambda event: sources.append(event.source) if hasattr(event, "source") else None  # noqa: E731
    with jitney.events.listen(listener):
        for _ in range(2):
            step(torch.randn(2, 2))
    assert len(sources) == 2 and "['momentum_buffer'] = " not in sources[1]
    return sources[1].count("\n")


def test_the_guards_of_a_step_grow_with_its_parameters_and_no_faster() -> None:
    few, more, most = map(_length, (4, 8, 16))
    assert most - more <= 2.2 * (more - few)
