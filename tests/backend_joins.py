"""Tensors put together of parts, beside eager, for every backend that makes kernels.

A folder of tests that imports them (``from backend_joins import *``) has the fixtures that they take: ``backend``, a
name, and ``device``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from backend_programs import On, on  # noqa: F401 (fixtures)

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


def mixed(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    """Half of the rows are mixed with others, the other half has a part of others in it."""
    n = a.shape[0] // 2
    order = torch.arange(a.shape[0], device=a.device).flip(0)
    share = torch.sigmoid(c[:n, :1])
    first = share * a[:n] + (1 - share) * a[order][:n]
    second = a[n:].clone()
    second[:, 2:5] = a[order][n:, 2:5] * 2
    return torch.cat([first, second])


def heavy(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    """Parts that take longer than memory does."""
    x = a.sin().tanh().exp().erf() + b
    y = torch.lgamma(c.abs() + 1) * x.amax(1, keepdim=True)
    return torch.cat([x, y, b], 1)


def shifted(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    """Parts that read parts."""
    x = torch.cat([a[1:].sigmoid(), b[:1].sigmoid()], 0)
    y = torch.cat([x[:, 3:] * 2, x[:, :3] + c[:, :3]], 1)
    return torch.cat([y[2:], y[:2].tanh()], 0) * 3


def tiled(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    return a.roll(3, 1) + a.roll((1, -2), (0, 1)), a.repeat(2, 3) * 2, a.flip(0, 1).exp()


def unpacked(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    """Two numbers of four bits in each byte."""
    packed = (a * 40).to(torch.int32).to(torch.uint8)
    numbers = torch.stack([packed & 15, (packed >> 4) & 15], -1).flatten(1)
    return (numbers.to(b.dtype) - b[:, :1]) * c[:, :1]


def paired(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    """Pairs of neighbours, turned."""
    x, y = a[:, ::2], a[:, 1::2]
    cos, sin = b[:, ::2].cos(), b[:, ::2].sin()
    return torch.stack([x * cos - y * sin, x * sin + y * cos], -1).flatten(1) + c


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
    "mixed": mixed,
    "heavy": heavy,
    "parts of parts": shifted,
    "rows that are normal": lambda a, b, c: torch.cat([a.softmax(1), (b - b.mean(1, keepdim=True)).exp()], 0),
    "columns": lambda a, b, c: torch.cat([a.softmax(0), b.exp() / b.exp().sum(0)], 1),
    "into a product": lambda a, b, c: torch.cat([a.exp().sin(), b.tanh().cos()], 1) @ torch.cat([a, c], 1).t(),
    "strided": lambda a, b, c: torch.stack([a.exp().sin(), b.tanh().cos()], 2).flatten(1),
    "halves": lambda a, b, c: torch.cat([a.bfloat16().exp().sin(), b.bfloat16() * 3], 1),
    "integers": lambda a, b, c: torch.cat([(a * 9).int() // 2, (b * 9).int() % 5], 0),
    "truth values": lambda a, b, c: torch.cat([a > 0, b.exp() > 1], 1),
    "the same part twice": lambda a, b, c: torch.cat([torch.cat([a.exp().sin()] * 2, 1), a.exp().sin()], 1),
    "a part is summed": lambda a, b, c: (torch.cat([(z := a.exp().sin().tan()), b], 0), z.sum(), z[0]),
    "a slice": lambda a, b, c: torch.slice_scatter(a, b[:, 2:5].exp().sin(), 1, 2, 5).softmax(1),
    "a row": lambda a, b, c: torch.select_scatter(a, b[1].exp().softmax(0), 0, -2) + c,
    "padded": lambda a, b, c: torch.nn.functional.pad(a.exp().sin(), (1, 2, 3, 0), value=0.5).sum(1),
    "turned and tiled": tiled,
    "unpacked": unpacked,
    "pairs": paired,
    "spread": lambda a, b, c: torch.cat([a[:, :1].expand(-1, 3), a[:, :1].exp().expand(-1, 2), b], 1) * 2,
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_joined_as_in_eager(name: str, dynamic: bool, backend: str, on: On) -> None:  # noqa: F811
    compiled = jitney.compile(PROGRAMS[name], backend=backend, dynamic=dynamic)
    for rows in (6, 10):
        torch.manual_seed(rows)
        mine = on([torch.randn(rows, 8) for _ in range(3)])
        theirs = [t.clone() for t in mine]
        wanted, got = PROGRAMS[name](*mine), compiled(*theirs)
        torch.testing.assert_close((got, theirs), (wanted, mine))
        for one, other in zip(*(torch.utils._pytree.tree_leaves(r) for r in (wanted, got)), strict=True):
            assert one.stride() == other.stride()


GRADIENTS = ("computed parts", "rotated", "mixed", "heavy", "parts of parts", "strided", "a slice", "pairs")


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_joins_are_eagers(name: str, backend: str, on: On) -> None:  # noqa: F811
    torch.manual_seed(0)
    args = on([torch.randn(6, 8) for _ in range(3)])
    found = []
    for run in (PROGRAMS[name], jitney.compile(PROGRAMS[name], backend=backend, fullgraph=True)):
        leaves = [a.clone().requires_grad_() for a in args]
        y = run(*leaves)
        found.append(torch.autograd.grad(y, leaves, y.detach().cos(), allow_unused=True))
    torch.testing.assert_close(found[1], found[0])


def test_results_share_no_memory(backend: str, on: On) -> None:  # noqa: F811
    a, b = on((torch.ones(2, 3), torch.ones(2, 3)))
    joined, part, _ = jitney.compile(rest, backend=backend)(a, b, b)
    before = part.clone()
    joined.zero_()
    torch.testing.assert_close(part, before)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_choice_by_a_size_that_is_another_ones(dynamic: bool, backend: str, on: On) -> None:  # noqa: F811
    """Which of both is less, nobody knows."""

    def program(u: torch.Tensor, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        chosen = torch.where(torch.arange(z.shape[0], device=z.device) < y.shape[0], 2 * z, 3 * z)
        return torch.cat([u.sum(1), chosen])

    compiled = jitney.compile(program, backend=backend, dynamic=dynamic)
    for rows, other in ((30, 10), (10, 30), (20, 20)):
        args = on((torch.randn(5, 65), torch.ones(rows), torch.ones(other)))
        torch.testing.assert_close(compiled(*args), program(*args))
