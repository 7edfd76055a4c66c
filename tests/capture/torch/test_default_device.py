"""torch's default device: around compiled code, in it, and across graph breaks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from helpers import observe
from torch import nn

import jitney
from jitney.torch_compat import torch_private

META = torch.device("meta")
BACKENDS = ("eager", "aot_eager", "llvm_cpu")


@pytest.fixture(autouse=True)
def modes_are_left_alone() -> Iterator[None]:
    assert torch_private.function_modes() == []
    yield
    left = torch_private.function_modes()
    torch_private.set_function_modes([])
    assert left == []


def facts(value: Any) -> Any:
    """What can be seen of results, some of which have no numbers."""
    if isinstance(value, torch.Tensor):
        return value.device, value.dtype, tuple(value.shape), None if value.is_meta else value.tolist()
    return [*map(facts, value)] if isinstance(value, (tuple, list)) else value


def factories(x: torch.Tensor) -> Any:
    made = torch.zeros(2), torch.arange(3), torch.as_tensor(x), torch.full((2,), 3), torch.ones(1, device="cpu")
    return x + 1, *made, torch.zeros_like(x), x.new_ones(2), torch.get_default_device()


def block(x: torch.Tensor) -> Any:
    with META as device:
        inside = torch.ones(2), torch.get_default_device(), device
    return x * 2, inside, torch.ones(2), torch.get_default_device()


def from_numbers(x: torch.Tensor) -> Any:
    return x + 1, torch.tensor([1.0, 2.0]), torch.scalar_tensor(2.0)


def nested(x: torch.Tensor) -> Any:
    with META:
        a = torch.ones(2)
        with torch.device("cpu"):
            b = torch.ones(2) * x
        return a, b, torch.ones(3)


def broken(x: torch.Tensor) -> Any:
    with META:
        a = torch.ones(2)
        jitney.graph_break()
        b = torch.ones(3)
        x = x + 1
        jitney.graph_break()
    return a, b, x, torch.ones(2) * x


def broken_twice(x: torch.Tensor) -> Any:
    made = []
    for _ in range(2):
        with META:
            with torch.device("cpu"):
                jitney.graph_break()
                made.append(torch.ones(2) + x)
            made.append(torch.ones(2))
        made.append(torch.ones(2) + x)
    return made


def raising(x: torch.Tensor) -> Any:
    try:
        with META:
            made = torch.ones(2)
            jitney.graph_break()
            raise ValueError("no")
    except ValueError:
        return made, torch.ones(2) + x


def grad_mode_too(x: torch.Tensor) -> Any:
    with META, torch.no_grad():
        jitney.graph_break()
        made = torch.ones(2), torch.is_grad_enabled()
    return made, torch.ones(2) + x, torch.is_grad_enabled()


def callee(x: torch.Tensor) -> Any:
    with META:
        made = torch.ones(2)
        jitney.graph_break()
        return made, torch.ones(2), x.sin()


def caller(x: torch.Tensor) -> Any:
    return callee(x), torch.ones(2) * x


def transformed(x: torch.Tensor) -> Any:
    with META:
        on_meta = torch.func.grad(lambda a: (a * torch.ones(2)).sum())(torch.ones(2))
    taken = torch.func.vmap(lambda a: a + torch.ones(()))(x)
    return on_meta, taken, torch.func.grad(lambda a: (a.sin() * torch.ones(2)).sum())(x)


def branches(x: torch.Tensor) -> Any:
    made = torch.cond(x.sum() > 0, lambda a: a + torch.ones(2), lambda a: a - torch.zeros(2), (x,))
    with META:
        inside = torch.func.vmap(lambda a: a * torch.ones(()))(torch.ones(3))
    return made, inside


PROGRAMS = [
    transformed,
    branches,
    factories,
    from_numbers,
    block,
    nested,
    broken,
    broken_twice,
    raising,
    grad_mode_too,
    caller,
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_blocks_within(fn: Callable[..., Any], backend: str) -> None:
    x = torch.tensor([0.5, 2.0])
    compiled = jitney.compile(fn, backend=backend)
    for _ in range(2):
        assert facts(compiled(x)) == facts(fn(x))
        assert torch_private.function_modes() == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("enter", ["with", "set_default_device"])
@pytest.mark.parametrize("fn", [factories, from_numbers, block, broken], ids=lambda f: f.__name__)
def test_the_default_device_around_a_call(fn: Callable[..., Any], enter: str, backend: str) -> None:
    x = torch.tensor([0.5, 2.0])
    if fn is broken:  # its last line has two devices
        fn = lambda x: broken(x)[:3] if torch.get_default_device().type == "cpu" else callee(x)
    compiled = jitney.compile(fn, backend=backend)
    assert facts(compiled(x)) == facts(fn(x))
    with contextlib.ExitStack() as stack:
        if enter == "with":
            stack.enter_context(META)
        else:
            torch.set_default_device(META)
            stack.callback(torch.set_default_device, None)
        with observe() as seen:
            for _ in range(2):
                assert facts(compiled(x)) == facts(fn(x))
        assert fn is not factories or (seen.breaks, len(seen.graphs)) == ([], 1)
        with torch.device("cpu"):
            assert facts(compiled(x)) == facts(fn(x))
    assert facts(compiled(x)) == facts(fn(x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_function_transforms_beside_another_default_device(backend: str) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.sin(), torch.func.vmap(lambda a: (a + 1, torch.ones(3)))(y)

    compiled = jitney.compile(program, backend=backend, fullgraph=True)
    x = torch.tensor([0.5, 2.0])
    with META:
        assert facts(compiled(x, torch.ones(2))) == facts(program(x, torch.ones(2)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_training_beside_another_default_device(backend: str) -> None:
    """What compiling and compiled code make for themselves is not made there."""

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = nn.functional.gelu(model(x)).softmax(-1).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    sides = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = jitney.compile(model, backend=backend) if compiled else model
        x = torch.randn(6, 8)
        losses = []
        for rows in (6, 6, 5, 4):
            with META:
                losses.append(step(run, optimizer, x[:rows]))
        sides.append(losses)
    torch.testing.assert_close(sides[1], sides[0])


def test_double_backward_beside_another_default_device() -> None:
    x = torch.tensor([0.5, 2.0], requires_grad=True)
    compiled = jitney.compile(lambda x: (x.sin() * x).sum(), backend="aot_eager")
    with META:
        (first,) = torch.autograd.grad(compiled(x), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
    (wanted,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    torch.testing.assert_close(second, torch.autograd.grad(wanted.square().sum(), x)[0])


def test_another_function_mode_is_not_captured() -> None:
    class Doubles(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **kwargs or {})
            return result * 2 if func is torch.ones else result

    compiled = jitney.compile(lambda x: x + torch.ones(2), backend="eager")
    x = torch.zeros(2)
    assert compiled(x).tolist() == [1, 1]
    with META, Doubles(), torch.device("cpu"):
        assert compiled(x).tolist() == [2, 2]
    assert compiled(x).tolist() == [1, 1]


CALLS = [0]


class Counting(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        CALLS[0] += 1
        return (torch.cos if func is torch.sin else func)(*args, **kwargs or {})


def in_mode(x: torch.Tensor) -> Any:
    with Counting():
        inside = torch.sin(x)
    return inside, torch.sin(x)


def in_both(x: torch.Tensor) -> Any:
    with Counting():
        with META:
            made = torch.ones(2)
            jitney.graph_break()
            inside = torch.sin(x), torch.ones(2)
        jitney.graph_break()
    return made, inside, torch.sin(x), torch.ones(2)


def in_device_context(x: torch.Tensor) -> Any:
    with torch_private.DeviceContext(META):
        made = torch.ones(2)
    return made, torch.ones(2), torch.sin(x)


@pytest.mark.parametrize("fn", [in_mode, in_both, in_device_context], ids=lambda f: f.__name__)
def test_modes_entered_in_compiled_code_see_every_call(fn: Callable[..., Any]) -> None:
    compiled = jitney.compile(fn, backend="eager")
    for _ in range(2):
        found, seen = [], []
        for run in (fn, compiled):
            CALLS[0] = 0
            found.append(facts(run(torch.ones(2))))
            seen.append(CALLS[0])
        assert found[0] == found[1]
        assert fn is not in_mode or seen[0] == seen[1] > 0


def test_a_failed_capture_leaves_no_mode() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        with META:
            torch.ones(2)
            return x.frobnicate()  # type: ignore[attr-defined, no-any-return]

    for _ in range(2):
        with pytest.raises(AttributeError):
            jitney.compile(fn, backend="eager")(torch.ones(2))
        assert torch_private.function_modes() == []


def test_numbers_that_change_beside_another_default_device() -> None:
    """llvm_cpu's kernels read them from memory."""
    compiled = jitney.compile(lambda x, s: x * s, backend="llvm_cpu")
    for number in (1.5, 2.5, 3.5):
        with META:
            assert compiled(torch.ones(2, device="cpu"), number).tolist() == [number, number]
