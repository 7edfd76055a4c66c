"""Memory that is held no longer than it is needed: each temporary's own, and what a backward reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import jitney
from jitney.config import config
from jitney_tools.peak_memory import peak
from jitney_triton_gpu import compiler, launcher, tiles


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(24), nn.Linear(24, 48), nn.Linear(48, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.norm(x).chunk(3, -1)
        y = torch.cat([F.gelu(q) * k, (q @ k.mT).softmax(-1) @ v, v.cumsum(1)], -1)
        return x + self.down(F.silu(self.up(y)))


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 3)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return F.relu(self.second(y)).mean((2, 3)).log_softmax(-1)


EXAMPLES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "block": (lambda: nn.Sequential(Block(), Block()), (2, 5, 24)),
    "pictures": (Pictures, (2, 3, 8, 8)),
}


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of each wrapper that is built meanwhile, none of which has an arena."""
    found: list[str] = []
    build = compiler.Wrapper.build

    def noting(self: Any) -> Any:
        made = build(self)
        found.append(self.source)
        return made

    monkeypatch.setattr(compiler.Wrapper, "build", noting)
    monkeypatch.setattr(tiles, "LARGE", 0)
    monkeypatch.setattr(config, "verify", False)  # or all results are looked at, and nothing dies
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_training_with_memory_of_its_own_for_each_temporary(
    name: str, sources: list[str], device: torch.device
) -> None:
    near = 1e-3 if device.type == "cuda" else 1e-4  # cuDNN rounds to TF32
    make, shape = EXAMPLES[name]
    torch.manual_seed(0)
    theirs = make().to(device)
    mine = make().to(device)
    mine.load_state_dict(theirs.state_dict())
    compiled = jitney.compile(mine, backend="triton_gpu", fullgraph=True)
    for step in range(3):  # from the second on, what the backward reads dies on the way
        x = torch.randn(shape, generator=torch.Generator().manual_seed(step)).to(device)
        found = []
        for fn in (compiled, theirs):
            leaf = x.clone().requires_grad_()
            fn(leaf).square().sum().backward()
            found.append(leaf.grad)
        torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=near)
    grads = [[p.grad for p in module.parameters()] for module in (mine, theirs)]
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=10 * near)
    torch.testing.assert_close(mine.state_dict(), theirs.state_dict(), rtol=1e-4, atol=1e-4)
    assert len(sources) == 2 and all("arena" not in source for source in sources)
    assert sources[1].startswith("def boxed(inputs):") and "del i" in sources[1]


def test_a_graph_that_is_kept_runs_backward_again(sources: list[str], device: torch.device) -> None:
    torch.manual_seed(0)
    module = Block().to(device)
    compiled = jitney.compile(module, backend="triton_gpu", fullgraph=True)
    for _ in range(2):
        x = torch.randn(2, 5, 24, device=device, requires_grad=True)
        loss = compiled(x).square().sum()
        (wanted,) = torch.autograd.grad(module(x).square().sum(), x)
        for kept in (True, True, False):
            (found,) = torch.autograd.grad(loss, x, retain_graph=kept)
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            torch.autograd.grad(loss, x)


@pytest.mark.parametrize("length", [900, 20001])
def test_what_is_read_again_is_not_yet_overwritten(length: int, sources: list[str], device: torch.device) -> None:
    """``p`` must not lie where ``t`` was: ``q`` needs what was computed of ``t``. But ``q`` may."""

    def fn(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        t = x.sum(-1)
        e = torch.exp(t - t.amax(-1, keepdim=True))
        p = e / e.sum(-1, keepdim=True)
        q = torch.sqrt(e + 1) * (p * p).sum(-1, keepdim=True)
        return p @ w, q

    torch.manual_seed(0)
    x, w = torch.randn(2, length, 9, device=device), torch.randn(length, 3, device=device)
    found = jitney.compile(fn, backend="triton_gpu", dynamic=False)(x, w)
    torch.testing.assert_close(found, fn(x, w), rtol=1e-4, atol=1e-6)
    assert re.search(r" = (_as_strided\()?t\d+", sources[0])


def softmaxes(x: torch.Tensor) -> torch.Tensor:
    """Kernels that each read all that the one before has made."""
    for _ in range(4):
        x = x.flip(0).cumsum(1) / 64
    return x


def wave(now: torch.Tensor, before: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each step reads the last two, the older of them only where it stores."""
    for _ in range(4):
        now, before = now.flip(0).cumsum(1) / 64 - before, now
    return now, before


def penalties(x: torch.Tensor) -> torch.Tensor:
    seen = torch.arange(x.shape[1], device=x.device).flip(0).expand_as(x)[:, ::2]
    counts = torch.zeros_like(x).scatter_add(1, seen, torch.ones_like(x[:, ::2]))
    return (x.scatter(1, seen, 2.0) - counts).log_softmax(-1)


def values_alone(x: torch.Tensor) -> torch.Tensor:
    return x.sort(1).values.flip(0).cumsum(1).flip(0).cumsum(1)


PEAKS: dict[str, tuple[Callable[..., Any], int, int]] = {  # function, arguments, how many such at a time
    "kernels in a row": (softmaxes, 1, 2),
    "results over temporaries": (wave, 2, 2),
    "over what was scattered into": (penalties, 1, 2),
    "indices that nobody reads": (values_alone, 1, 6),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", PEAKS)
def test_what_lies_where_something_was(case: str, dynamic: bool, sources: list[str], device: torch.device) -> None:
    fn, count, _ = PEAKS[case]
    torch.manual_seed(0)
    args = [torch.randn(64, 128, device=device) for _ in range(count)]
    compiled = jitney.compile(fn, backend="triton_gpu", fullgraph=True, dynamic=dynamic)
    before = [a.clone() for a in args]
    for _ in range(2):
        found = compiled(*args)
        torch.testing.assert_close(found, fn(*args), rtol=1e-4, atol=1e-5)
        for result in found if isinstance(found, tuple) else [found]:
            assert not result._is_view()
            result.add_(1)
    assert all(map(torch.equal, args, before))


@pytest.mark.parametrize("case", PEAKS)
def test_peaks(case: str, sources: list[str], device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what is launched: Triton's interpreter keeps arguments until the next collection of garbage."""
    monkeypatch.setattr(launcher, "load", lambda source, name, functions, *rest: dict.fromkeys(functions, nothing))
    fn, count, most = PEAKS[case]
    args = [torch.randn(64, 128, device=device) for _ in range(count)]
    compiled = jitney.compile(fn, backend="triton_gpu", fullgraph=True, dynamic=False)
    compiled(*args)
    assert peak(lambda: compiled(*args), device) <= most * 64 * 128 * 4 + 8192


def nothing(*launched: Any) -> None:
    """A kernel's launcher."""


def test_the_gradient_that_frees_most_comes_first(sources: list[str], device: torch.device) -> None:
    """Of two products of one gradient, the one that reads a large activation for the last time."""

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x.sin().exp() @ w.cos())

    torch.manual_seed(0)
    x = torch.randn(256, 64, device=device, requires_grad=True)
    w = torch.randn(64, 8, device=device, requires_grad=True)
    found = torch.autograd.grad(jitney.compile(fn, backend="triton_gpu", fullgraph=True)(x, w).sum(), (x, w))
    torch.testing.assert_close(found, torch.autograd.grad(fn(x, w).sum(), (x, w)), rtol=1e-4, atol=1e-4)
