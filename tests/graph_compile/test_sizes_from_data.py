"""Graphs with sizes that depend on data: what comes before and after is compiled, beside what runs as captured."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import jitney
from jitney import events


def long(x: torch.Tensor) -> torch.Tensor:
    for _ in range(5):
        x = x * 1.01 + x.sin()
    return x


def counted(x: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return long(x), torch.bincount(s, minlength=7)


def in_between(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    y = long(x)
    rows = y[s > 2]
    return long(rows.sum(0) + y)


def at_the_end(x: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = long(x)
    return y.masked_select(y > 0), long(y)


def twice(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    x = long(x + torch.unique(s).sum())
    x = long(x + s.nonzero().sum())
    return long(x * s.repeat_interleave(s + 1).float().mean())


def writes(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    y = long(x)
    n = torch.bincount(s, minlength=7).sum()
    s.add_(1)
    return long(y + n)


PROGRAMS: dict[str, tuple[Callable[..., object], int]] = {
    "counted": (counted, 1),
    "in between": (in_between, 2),
    "at the end": (at_the_end, 2),
    "twice": (twice, 3),
    "writes": (writes, 1),
}


def check(fn: Callable[..., object], backend: str, *, gradient: bool) -> tuple[int, int]:
    """As eager, in four calls; the graphs that were compiled, and those that run as captured."""
    seen: list[object] = []
    compiled = jitney.compile(fn, backend=backend, fullgraph=True)
    for number in range(4):
        torch.manual_seed(number)
        x = torch.randn(6, 3)
        results = []
        with events.listen(seen.append), events.details():
            for run in (compiled, fn):
                own, s = x.clone().requires_grad_(gradient), torch.arange(6) * (number + 1) % (4 + number)
                found = run(own, s)
                leaves = [t for t in torch.utils._pytree.tree_leaves(found) if isinstance(t, torch.Tensor)]
                if gradient:
                    sum(t.sin().sum() for t in leaves if t.requires_grad).backward()  # type: ignore[union-attr]
                results.append([*leaves, s, own.grad])
        torch.testing.assert_close(*results)
    halves = [e for e in seen if isinstance(e, events.AtenGraph) and e.kind in ("forward", "inference")]
    return len(halves), sum(isinstance(e, events.GraphKept) for e in seen)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_comes_before_and_after_is_compiled(name: str, gradient: bool) -> None:
    fn, compiled = PROGRAMS[name]
    assert check(fn, "aot_eager", gradient=gradient)[0] >= compiled
    check(fn, "llvm_cpu", gradient=gradient)


def test_few_operations_stay_with_their_neighbours() -> None:
    def fn(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        a = x[s > 2].sum()
        b = a + 1
        return x[s > 3].sum() + b

    assert check(fn, "aot_eager", gradient=False) == (0, 1)
