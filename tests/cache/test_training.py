"""Training with frames from disk: results, gradients and state are eager's, whichever results the loss depends on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cache.again import run

import jitney

MODULE = """
    torch.manual_seed(0)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.norm, self.bn = nn.Linear(4, 4), nn.LayerNorm(4), nn.BatchNorm1d(4)
        def forward(self, x):
            hidden = F.gelu(self.linear(x))
            return self.norm(self.bn(hidden)), hidden * 2, F.dropout(hidden, 0.5)
    fn = Net().double()
    def arguments(): return [torch.arange(12.).double().view(3, 4).requires_grad_()]
"""
# The results that the loss depends on.
LOSSES = {"all": (0, 1, 2), "the first": (0,), "the second": (1,), "none": ()}


def training(used: tuple[int, ...], steps: int = 2) -> Any:
    def call(function: Any, module: Any) -> Any:
        told: list[Any] = []
        for _ in range(steps):
            (x,) = module.arguments()
            results = function(x)
            if used:
                sum(results[i].pow(2).sum() for i in used).backward()
            told += [r.detach() for r in results]
            told.append(x.grad)
        gradients = {name: p.grad for name, p in module.fn.named_parameters()}
        return told, gradients, module.fn.state_dict()

    return call


def same(found: Any, expected: Any) -> None:
    for a, b in zip(found[0], expected[0], strict=True):
        torch.testing.assert_close(a, b)
    assert {n for n, g in found[1].items() if g is None} == {n for n, g in expected[1].items() if g is None}
    for a, b in zip(found[1].values(), expected[1].values(), strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(found[2], expected[2])


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu", "auto", "eager"])
@pytest.mark.parametrize("first", LOSSES)
@pytest.mark.parametrize("then", LOSSES)
def test_a_training_step_is_loaded(backend: str, first: str, then: str) -> None:
    same(*run(MODULE, training(LOSSES[first]), backend=backend)[:2])
    for loss in (then, first):
        found, expected, story = run(MODULE, training(LOSSES[loss]), backend=backend)
        same(found, expected)
        assert story.loaded, story.steps


def test_the_backward_is_kept_when_it_was_compiled() -> None:
    phases: list[str] = []

    def listener(event: Any) -> None:
        if isinstance(event, jitney.events.Phase):
            phases.append(event.name)

    with jitney.events.listen(listener):
        story = run(MODULE, training((0,)), backend="llvm_cpu")[2]
        assert story.steps == ["captured", "stored", "stored"]
        assert "backend llvm_cpu, backward" in phases
        phases.clear()
        assert run(MODULE, training((0,)), backend="llvm_cpu")[2].steps == ["loaded"]
        assert phases == ["load llvm_cpu", "load llvm_cpu"]
        phases.clear()
        assert run(MODULE, training((1,)), backend="llvm_cpu")[2].steps == ["loaded"]
        assert "backend llvm_cpu, backward" in phases  # of what was kept of the graph, for this loss


def test_steps_of_an_optimizer_go_on() -> None:
    text = MODULE + "    def more(): pass\n"

    def call(function: Any, module: Any) -> Any:
        optimizer = torch.optim.AdamW(module.fn.parameters(), lr=0.1)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = function(*module.arguments())[0].pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    for _ in range(2):
        found, expected, story = run(text, call, backend="llvm_cpu")
        torch.testing.assert_close(found, expected)
    assert story.loaded


SYMBOLIC = {
    "a size as a number": "def fn(x): return x.sin() * x.shape[0]\n",
    "products and quotients": (
        "def fn(x): return (x.sin().reshape(-1) * (x.numel() // 3 + x.shape[0] % 2)).view(x.shape[0] * 2).cumsum(0)\n"
    ),
    "the greater of two": "def fn(x): return torch.cat([x, x[1:]]).exp()[: max(x.shape[0], 4)] * x.shape[0]\n",
    "a part that grows": (
        "def fn(x):\n    n = x.shape[0]\n"
        "    return torch.cat([x, x.new_ones(n, n)], 1)[:, 1:].softmax(-1) @ x.new_ones(n + 1, 2)\n"
    ),
}


@pytest.mark.parametrize("name", SYMBOLIC)
@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
def test_a_graph_of_symbolic_sizes_that_trains_is_loaded(name: str, backend: str) -> None:
    def steps(sizes: list[int], used: bool = True) -> Any:
        def call(function: Any, module: Any) -> Any:
            told = []
            for n in sizes:
                x = torch.linspace(-1, 1, 2 * n).view(n, 2).requires_grad_()
                result = function(x)
                told.append(result.detach())
                if used:
                    result.square().sum().backward()
                    told.append(x.grad)
            return told

        return call

    # The backward of the second form is compiled there, or here from what was kept of its graph.
    for used in (True, False):
        jitney.config.cache_dir += "x"
        run(SYMBOLIC[name], steps([5, 7], used), backend=backend)
        found, expected, story = run(SYMBOLIC[name], steps([5, 8, 6, 11]), backend=backend)
        torch.testing.assert_close(found, expected)
        assert story.loaded, story.steps
        assert set(story.steps) == {"loaded"}


def test_a_loaded_backward_is_differentiated_again() -> None:
    text = "def fn(x): return (x.sin() * x).reshape(-1, 1)\n"

    def call(function: Any, module: Any) -> Any:
        x = torch.ones(3, requires_grad=True)
        (gradient,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        return gradient.detach(), torch.autograd.grad(gradient.sum(), x)

    for _ in range(3):
        found, expected, story = run(text, call)
        torch.testing.assert_close(found, expected)
    assert story.loaded, story.steps


def test_code_that_is_replaced_before_the_backward_does_not_pass_for_what_was_captured() -> None:
    text = """
        def inner(x): return x * {}
        def fn(x): return inner(x).sin()
        def arguments(): return [torch.arange(3.).requires_grad_()]
    """

    def reloaded(function: Any, module: Any) -> Any:
        (x,) = module.arguments()
        result = function(x)
        made: dict[str, Any] = {}
        exec("def inner(x): return x * 5", made)  # as a notebook does that loads edited modules anew
        module.inner.__code__ = made["inner"].__code__
        result.sum().backward()
        return result.detach(), x.grad

    def plainly(function: Any, module: Any) -> Any:
        (x,) = module.arguments()
        result = function(x)
        result.sum().backward()
        return result.detach(), x.grad

    _, _, story = run(text.format(2), reloaded)
    assert story.steps.count("stored") == 2
    found, expected, story = run(text.format(5), plainly)
    assert not story.loaded
    torch.testing.assert_close(found, expected)
    found, expected, story = run(text.format(2), plainly)
    assert story.loaded
    torch.testing.assert_close(found, expected)


def test_a_whole_step_of_many_parameters_is_loaded() -> None:
    """Attributes and hooks of its parameters are asked in one call, also in the process that loads it."""
    module = """
        torch.manual_seed(0)
        net = nn.Sequential(*(nn.Linear(2, 2) for _ in range(6)))
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        def fn(x):
            optimizer.zero_grad()
            loss = net(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()
        def arguments(): return [torch.ones(3, 2)]
    """

    def call(function: Any, module: Any) -> Any:
        for _ in range(3):
            loss = function(*module.arguments())
        module.net[2].bias.register_hook(torch.zeros_like)
        function(*module.arguments())
        return loss, module.net.state_dict(), module.net[2].bias.grad

    torch.testing.assert_close(*run(module, call, backend="eager")[:2])
    found, expected, story = run(module, call, backend="eager")
    torch.testing.assert_close(found, expected)
    assert (
        story.steps[:2] == ["loaded", "loaded"] and not found[2].any()
    )  # the hook, of which these know nothing, is seen
