"""Matrix products called from native code, beside eager."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import output_code
from torch.nn import functional as F

import jitney
import jitney_llvm_cpu.launch as launch
from jitney.errors import BackendFailed
from jitney_llvm_cpu import machine, products
from jitney_llvm_cpu.shims import dtype_code

PROGRAMS: dict[str, Callable[..., Any]] = {
    "linear": lambda x, w, b: F.gelu(F.linear(x, w, b)) * 2,
    "no bias": lambda x, w, b: (x * 2) @ w.t() + b,
    "a product is a result": lambda x, w, b: (x @ w.t(), (x @ w.t()).relu()),
    "transposed both": lambda x, w, b: (x.t() @ (x * 2)).t() @ w.t(),
    "scaled": lambda x, w, b: torch.addmm(b, x, w.t(), beta=0.5, alpha=-2).exp(),
    "nothing of the bias": lambda x, w, b: torch.addmm(b * float("nan"), x, w.t(), beta=0),
    "batched": lambda x, w, b: torch.bmm(x.view(2, -1, 6), w.t().expand(2, 6, 5)).softmax(-1),
    "batched and added": lambda x, w, b: torch.baddbmm(b[None, None], x.view(2, -1, 6), w.t().expand(2, 6, 5), alpha=3),
    "one after the other": lambda x, w, b: ((x @ w.t()).relu() @ w).sigmoid() @ w.t(),
    "part of an argument": lambda x, w, b: x[1:, 1:4] @ w[:3, 2:6].t()[1:] + 1,
    "read with a step": lambda x, w, b: x[::2, ::2] @ w[:, ::2].t() + b,
    "empty inside": lambda x, w, b: x[:, :0] @ w[:, :0].t() + b,
    "no rows": lambda x, w, b: (x[:0] @ w.t() + b, x.sum()),
    "whole numbers": lambda x, w, b: (x * 3).long() @ (w.t() * 3).long(),
}


def arguments(rows: int, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(rows)
    return [torch.randn(rows, 6, dtype=dtype), torch.randn(5, 6, dtype=dtype), torch.randn(5, dtype=dtype)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_numbers_are_those_of_eager(name: str, dtype: torch.dtype, dynamic: bool) -> None:
    compiled = jitney.compile(PROGRAMS[name], backend="llvm_cpu", dynamic=dynamic)
    for rows in (4, 8, 4):
        given = arguments(rows, dtype)
        wanted, got = PROGRAMS[name](*given), compiled(*given)
        torch.testing.assert_close(got, wanted, equal_nan=True)
        for one, other in zip(*(torch.utils._pytree.tree_leaves(r) for r in (wanted, got)), strict=True):
            assert one.stride() == other.stride()


def test_kernels_and_products_are_one_native_call() -> None:
    fn = PROGRAMS["one after the other"]
    given = arguments(4, torch.float32)
    with output_code() as codes:
        torch.testing.assert_close(jitney.compile(fn, backend="llvm_cpu", options={"dump": True})(*given), fn(*given))
    (code,) = codes
    assert len(re.findall(r"if e\d+\(", code)) == 1
    assert not re.search(r"^ +t\d+ = ", code, re.MULTILINE)


def test_gradients() -> None:
    fn = PROGRAMS["one after the other"]
    mine, theirs = ([t.requires_grad_() for t in arguments(8, torch.float64)] for _ in range(2))
    fn(*mine).square().sum().backward()
    jitney.compile(fn, backend="llvm_cpu")(*theirs).square().sum().backward()
    torch.testing.assert_close([t.grad for t in theirs[:2]], [t.grad for t in mine[:2]])


def test_without_shims_torch_is_called_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine.machine(0)
    monkeypatch.setattr(launch, "machine", lambda vector_bytes: replace(here, shims=frozenset()))
    fn = PROGRAMS["linear"]
    given = arguments(4, torch.float32)
    with output_code() as codes:
        torch.testing.assert_close(jitney.compile(fn, backend="llvm_cpu", options={"dump": True})(*given), fn(*given))
    assert re.search(r"^ +t\d+ = ", codes[0], re.MULTILINE)


def test_a_product_that_torch_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that do not fit never get here; so the call is given a dtype without products."""
    monkeypatch.setattr(products, "dtype_code", lambda dtype: dtype_code(torch.bool))
    with pytest.raises(BackendFailed, match="matrix product"):
        jitney.compile(PROGRAMS["linear"], backend="llvm_cpu")(*arguments(4, torch.float32))


def test_explain_tells_how_they_are_called() -> None:
    report = str(jitney.explain(PROGRAMS["linear"], backend="llvm_cpu")(*arguments(4, torch.float32)))
    assert "called from native code" in report
