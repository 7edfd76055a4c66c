"""Tensors put together of parts: each part is computed where it belongs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney


def rest(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    z = a.exp()
    return torch.cat([z, b], 0), z, torch.cat([z, z], 1)


def nested(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    rows = torch.cat([torch.cat([a, b], 1) * 2, torch.cat([b, c], 1)], 0)
    return rows @ torch.cat([a, b], 1).t()


def rotated(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    x, y = a.chunk(2, 1)
    return torch.cat([-y, x], 1) * b + c


def written(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    a.add_(1)
    joined = torch.cat([a, b], 1)
    joined.mul_(2)
    return joined, joined[:, 1:3]


PROGRAMS: dict[str, Callable[..., Any]] = {
    "computed parts": lambda a, b, c: torch.cat([a * 2, b.relu(), c + 1], 1),
    "a part is a result too": rest,
    "stacked": lambda a, b, c: (torch.stack([a, b, c.sin()], -1).sum(-1), torch.stack([a, b]).softmax(0)),
    "joined twice": nested,
    "equal parts": lambda a, b, c: torch.cat([a, a], 0) + torch.cat([a * 1, a * 1], 0),
    "an empty part": lambda a, b, c: torch.cat([a[:0], b, c], 0),
    "another dtype": lambda a, b, c: torch.cat([a, b.double()], 0),
    "rotated": rotated,
    "products": lambda a, b, c: torch.cat([a @ b.t(), c @ b.t()], 1).cumsum(1),
    "written to": written,
    "read by reductions": lambda a, b, c: (torch.cat([a, b], 1)[:, ::2].sum(0), torch.cat([a, b]).amax(0)),
    "rows in between": lambda a, b, c: torch.cat([a[:1], b, c[2:]], 0).sigmoid(),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_joined_as_in_eager(name: str, dynamic: bool) -> None:
    compiled = jitney.compile(PROGRAMS[name], backend="llvm_cpu", dynamic=dynamic)
    for rows in (6, 10):
        torch.manual_seed(rows)
        mine = [torch.randn(rows, 8) for _ in range(3)]
        theirs = [t.clone() for t in mine]
        wanted, got = PROGRAMS[name](*mine), compiled(*theirs)
        torch.testing.assert_close((got, theirs), (wanted, mine))
        for one, other in zip(*(torch.utils._pytree.tree_leaves(r) for r in (wanted, got)), strict=True):
            assert one.stride() == other.stride()


def test_results_share_no_memory() -> None:
    a, b = torch.ones(2, 3), torch.ones(2, 3)
    joined, part, _ = jitney.compile(rest, backend="llvm_cpu")(a, b, b)
    before = part.clone()
    joined.zero_()
    torch.testing.assert_close(part, before)


def test_nothing_is_copied() -> None:
    report = str(jitney.explain(PROGRAMS["computed parts"], backend="llvm_cpu")(*[torch.ones(4, 8) for _ in range(3)]))
    assert "as a whole: nothing" in report
