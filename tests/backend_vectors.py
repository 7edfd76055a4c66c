"""Products of a vector and a matrix that lies nowhere, beside eager, for every backend that makes kernels.

A folder of tests that imports them (``from backend_vectors import *``) has the fixtures that they take: ``backend``, a
name, and ``device``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from backend_programs import On, on  # noqa: F401 (fixtures)

import jitney

T = torch.Tensor


def quantised(q: T, k: T, v: T) -> T:
    """Attention of one row to a cache of bytes."""
    cached = [(x * 40).to(torch.int8) for x in (k, v)]
    keys, values = (x.to(q.dtype) / 40 for x in cached)
    return torch.softmax(q[:, :, :1] @ keys.mT, -1) @ values


def grouped(q: T, k: T, v: T) -> T:
    """Attention of two heads to each head of a cache."""
    q = torch.cat([q, q.flip(1)], 1)[:, :, -1:]
    k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
    return torch.softmax((q @ k.mT).masked_fill(k.sum(-1).unsqueeze(-2) > 3, -1e4), -1) @ v


def unpacked(q: T, k: T, v: T) -> T:
    packed = (k[0, 0].abs() * 60).to(torch.uint8)
    weight = torch.stack([packed & 15, packed >> 4], -1).flatten(1).to(q.dtype) - 8
    return torch.nn.functional.linear(torch.cat([q[0, 0, :1], v[0, 0, :1]], 1), weight, v[0, 0, :, 0])


def columns(q: T, k: T, v: T) -> tuple[T, T, T]:
    turned = (k * 2).transpose(0, 1).reshape(-1, k.shape[-1])
    return turned @ q[0, 0, 0], turned.cos() @ q[0, 0, 0].unsqueeze(1), q[0, 0, 1] @ (turned + 1).t()


def together(q: T, k: T, v: T) -> tuple[T, T]:
    """The matrix is a result, too: it lies in memory."""
    joined = torch.cat([k, v], -2) * 2
    return q[:, :, :1] @ joined.mT, joined


def ones(q: T, k: T, v: T) -> T:
    return (q[:, :1, :1] * k[:, :1, :1].tanh()).flatten(1) @ (v[0, 0] * 2).sigmoid().sum(0, keepdim=True).t()


PROGRAMS: dict[str, Callable[..., Any]] = {
    "a quantised cache": quantised,
    "grouped heads": grouped,
    "unpacked weights": unpacked,
    "columns": columns,
    "a matrix that is a result": together,
    "one by one": ones,
    "halves": lambda q, k, v: quantised(q.bfloat16(), k.bfloat16(), v.bfloat16()),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_vectors_by_computed_matrices_as_in_eager(name: str, dynamic: bool, backend: str, on: On) -> None:  # noqa: F811
    compiled = jitney.compile(PROGRAMS[name], backend=backend, dynamic=dynamic)
    tolerances = {"rtol": 2e-2, "atol": 2e-2} if name == "halves" else {"rtol": 1e-4, "atol": 1e-5}
    for rows in (5, 9):
        torch.manual_seed(rows)
        args = on([torch.randn(2, 3, rows, 8) for _ in range(3)])
        wanted, got = PROGRAMS[name](*args), compiled(*args)
        torch.testing.assert_close(got, wanted, **tolerances)
        for one, other in zip(*(torch.utils._pytree.tree_leaves(r) for r in (wanted, got)), strict=True):
            assert one.stride() == other.stride()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_matrices_as_in_eager(backend: str, dtype: torch.dtype, on: On) -> None:  # noqa: F811
    """One step of a gated feed-forward: where matrices are streamed, each product goes on in its kernel."""

    def fn(x: T, gain: T, gate: T, up: T, down: T) -> T:
        h = torch.nn.functional.rms_norm(x, (512,)) * gain
        return x + torch.nn.functional.linear(torch.nn.functional.silu(h @ gate.t()) * (h @ up.t()), down)

    torch.manual_seed(0)
    args = on(
        [torch.randn(1, 512), torch.randn(512), *(torch.randn(*s) / 23 for s in 2 * [(1024, 512)] + [(512, 1024)])]
    )
    args = [x.to(dtype) for x in args]
    got, wanted = jitney.compile(fn, backend=backend)(*args), fn(*args)
    torch.testing.assert_close(got, wanted, **({"rtol": 3e-2, "atol": 3e-2} if dtype is torch.bfloat16 else {}))


@pytest.mark.parametrize("name", ["grouped heads", "columns"])
def test_gradients_of_such_products_are_eagers(name: str, backend: str, on: On) -> None:  # noqa: F811
    torch.manual_seed(0)
    args = on([torch.randn(2, 3, 6, 8) for _ in range(3)])
    found = []
    for fn in (jitney.compile(PROGRAMS[name], backend=backend), PROGRAMS[name]):
        leaves = [x.clone().requires_grad_() for x in args]
        results = fn(*leaves)
        sum(r.square().sum() for r in (results if isinstance(results, tuple) else (results,))).backward()
        found.append([x.grad for x in leaves])
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)


def test_the_matrix_is_never_written(backend: str, on: On) -> None:  # noqa: F811
    args = on([torch.randn(2, 3, 6, 8) for _ in range(3)])
    for name in ("a quantised cache", "grouped heads", "unpacked weights"):
        report = str(jitney.explain(PROGRAMS[name], backend=backend)(*args))
        assert "as a whole: nothing" in report, report
