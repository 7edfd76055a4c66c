"""``Tensor.register_hook`` on what a frame has computed: a graph of the hook where that can be, else a break."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import jitney
from jitney import events
from jitney.errors import Unsupported

SCALE = 0.25


def half(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * 0.5


def by_global(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * SCALE


def scaled_by(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda gradient: gradient * factor


def intermediate(x: torch.Tensor) -> Any:
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return (y * y).sum()


def result(x: torch.Tensor) -> Any:
    y = x.sin()
    if y.requires_grad:
        y.register_hook(lambda g: g.clamp(-0.1, 0.1))
    return y


def several(x: torch.Tensor) -> Any:
    y = x.sin()
    y.register_hook(half)
    y.register_hook(lambda g: g + 1)
    return y, y * 2


def closed_over_number(x: torch.Tensor) -> Any:
    scale = 4.0
    y = x.sin()
    y.register_hook(lambda g: g * scale)
    return y.exp()


def closed_over_tensor(x: torch.Tensor) -> Any:
    mask = x.detach() * 1
    y = x.sin()
    y.register_hook(lambda g: g * mask)
    mask.add_(1)
    return y.exp()


def made_by_function(x: torch.Tensor) -> Any:
    y = x * 1
    y.register_hook(scaled_by(3))
    return y * y


def of_torch(x: torch.Tensor) -> Any:
    y = x * 1
    y.register_hook(F.relu)
    y.register_hook(torch.nan_to_num)
    return y * y


def before_a_write(x: torch.Tensor) -> Any:
    y = x * 1
    y.register_hook(lambda g: g * 3)
    z = y + 1
    y.mul_(2)
    return y, z


def unused(x: torch.Tensor) -> Any:
    y = x * 1
    y.register_hook(lambda g: g * 3)
    return x * 2


def expanded_gradient(x: torch.Tensor) -> Any:
    y = x * 1
    y.register_hook(lambda g: g.reshape(-1).reshape(g.shape) * g.norm())
    return y.sum()


def view(x: torch.Tensor) -> Any:
    y = x.view(-1)
    y.register_hook(lambda g: g * 3)
    return y


def gradients(fn: Callable[..., Any], compiled: Callable[..., Any]) -> list[torch.Tensor]:
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        x = torch.randn(3, 4, requires_grad=True)
        made = compiled(x)
        tensors = made if isinstance(made, tuple) else (made,)
        sum((t * t).sum() for t in tensors).backward()  # type: ignore[union-attr]
        assert x.grad is not None
        found += [*(t.detach() for t in tensors), x.grad]
    return found


WHOLE = [intermediate, result, several, closed_over_number, closed_over_tensor, made_by_function, of_torch,
         before_a_write, unused, expanded_gradient]  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "llvm_cpu"])
@pytest.mark.parametrize("fn", WHOLE)
def test_hooks_that_compute_are_part_of_the_graph(fn: Callable[..., Any], backend: str) -> None:
    compiled = jitney.compile(fn, backend=backend, fullgraph=True)
    torch.testing.assert_close(gradients(fn, compiled), gradients(fn, fn))


# ------------------------------------------------------------------ hooks that are no graph


def of_a_loop(x: torch.Tensor) -> Any:
    y = x.sin()
    for i in range(3):
        y.register_hook(lambda g: g * (i + 1))  # noqa: B023
    return y.exp()


def of_a_variable_set_later(x: torch.Tensor) -> Any:
    scale = 4.0
    y = x.sin()
    y.register_hook(lambda g: g * scale)
    scale = 5.0
    return y.exp()


def of_a_variable_set_by_another(x: torch.Tensor) -> Any:
    scale = 4.0

    def change() -> None:
        nonlocal scale
        scale = 5.0

    y = x.sin()
    y.register_hook(lambda g: g * scale)
    change()
    return y.exp()


def of_a_generator(x: torch.Tensor) -> Any:
    def factors() -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
        factor = 2.0
        yield lambda g: g * factor
        factor = 7.0
        yield lambda g: g * factor

    y, made = x.sin(), factors()
    y.register_hook(next(made))
    next(made)
    return y.exp()


def of_a_global(x: torch.Tensor) -> Any:
    y = x * 1
    y.register_hook(by_global)
    return y * y


def that_asks_for_strides(x: torch.Tensor) -> Any:
    y = x * 1
    y.register_hook(lambda g: g * 3 if g.is_contiguous() else g * 2)
    return y.sum()


def of_an_argument(x: torch.Tensor) -> Any:
    x.register_hook(lambda g: g * 3)
    return x * 2


def that_is_removed(x: torch.Tensor) -> Any:
    y = x * 2
    handle = y.register_hook(lambda g: g * 0)
    handle.remove()
    return y * y


def that_keeps(x: torch.Tensor) -> Any:
    kept: list[torch.Tensor] = []
    y = x * 2
    y.register_hook(kept.append)
    return y * y


BROKEN = [of_a_loop, of_a_variable_set_later, of_a_variable_set_by_another, of_a_generator, of_a_global,
          that_asks_for_strides, of_an_argument, that_is_removed, that_keeps]  # fmt: skip


@pytest.mark.parametrize("fn", BROKEN)
def test_other_hooks_are_graph_breaks(fn: Callable[..., Any]) -> None:
    compiled = jitney.compile(fn, backend="eager")
    torch.testing.assert_close(gradients(fn, compiled), gradients(fn, fn), rtol=0, atol=0)
    with pytest.raises(Unsupported):
        gradients(fn, jitney.compile(fn, backend="eager", fullgraph=True))


def test_a_hook_reads_a_global_when_the_gradient_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3, requires_grad=True)
    made = jitney.compile(of_a_global, backend="eager")(x)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    made.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [4.0, 4.0, 4.0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_hook_of_a_view_is_kept(backend: str) -> None:
    compiled = jitney.compile(view, backend=backend)
    torch.testing.assert_close(gradients(view, compiled), gradients(view, view), rtol=0, atol=0)


def test_a_hook_needs_a_tensor_that_requires_grad() -> None:
    with pytest.raises(RuntimeError, match="cannot register a hook"):
        jitney.compile(intermediate, backend="eager")(torch.ones(2))


def test_a_handle_may_outlive_the_graph() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        return y * y, y.register_hook(lambda g: g * 0)

    graphs: list[Any] = []
    with events.listen(lambda event: graphs.append(event) if isinstance(event, events.FrameCaptured) else None):
        x = torch.ones(2, requires_grad=True)
        made, handle = jitney.compile(f, backend="eager")(x)
    handle.remove()
    made.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [8.0, 8.0]
    assert graphs


def test_hooks_that_ask_whether_there_are_gradients() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda g: g * (4 if torch.is_grad_enabled() else 8))
        return y * y

    def gradients(run: Callable[..., Any]) -> list[torch.Tensor]:
        x = torch.arange(3.0).requires_grad_()
        (with_graph,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        (without,) = torch.autograd.grad(run(x).sum(), x)
        return [with_graph, without]

    torch.testing.assert_close(gradients(jitney.compile(fn, backend="eager")), gradients(fn))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_hooks_that_the_program_adds_to_a_result_come_after_those_in_the_graph(backend: str) -> None:
    def run(fn: Callable[..., Any]) -> Any:
        seen: list[Any] = []
        x = torch.ones(2, requires_grad=True)
        y = fn(x)
        y.register_hook(lambda g: seen.append(g.tolist()))
        (by_y,) = torch.autograd.grad(y.sum(), y, retain_graph=True)
        y.sum().backward()
        return seen, by_y.tolist(), x.grad

    def fn(x: torch.Tensor) -> Any:
        y = x * 2
        y.register_hook(half)
        return y

    expected, found = run(fn), run(jitney.compile(fn, backend=backend, fullgraph=True))
    assert expected[:2] == found[:2] and torch.equal(expected[2], found[2])


def test_a_hook_reads_a_number_that_changes() -> None:
    def fn(x: torch.Tensor, scale: float) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda g: g * scale)
        return y * scale

    def gradient(run: Callable[..., Any], scale: float) -> torch.Tensor:
        x = torch.ones(2, requires_grad=True)
        run(x, scale).sum().backward()
        assert x.grad is not None
        return x.grad

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    for scale in (2, 3, 4, 0.5, 0.25, 0.125):
        assert torch.equal(gradient(compiled, scale), gradient(fn, scale))
