"""Kernels store where a product's result was, if nobody else wants that; the numbers stay eager's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import lowered
from torch.testing import assert_close

import jitney
from jitney_lowering import GPU
from jitney_lowering.scheduler import schedule

X, W, B = torch.randn(12, 16), torch.randn(16, 12), torch.randn(12)
IMAGE, FILTER = torch.randn(2, 3, 9, 9), torch.randn(4, 3, 3, 3)
custom = torch.library.Library("jitney_test_successors", "DEF")
custom.define("kept(Tensor x) -> Tensor")
KEPT: list[torch.Tensor] = []


def kept(x: torch.Tensor) -> torch.Tensor:
    """An operator that goes on having its result."""
    KEPT.append(x + 1)
    return KEPT[-1]


custom.impl("kept", kept, "CPU")
custom.impl("kept", lambda x: torch.empty_like(x), "Meta")


def twice(x: torch.Tensor, w: torch.Tensor) -> Any:
    product = x @ w
    return product.relu(), product.sum(0)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "an activation": (lambda x, w, b: F.gelu(x @ w + b), (X, W, B), 1),
    "a convolution's": (lambda x, f: F.conv2d(x, f).relu(), (IMAGE, FILTER), 1),
    "rows": (lambda x, w: (x @ w).softmax(-1), (X, W), 1),
    "the next product reads it": (lambda x, w: (x @ w).relu() @ (w.T @ x.T).tanh(), (X, W), 2),
    "the product is a result, too": (lambda x, w: ((p := x @ w), p + 1), (X, W), 0),
    "a view of the product is a result": (lambda x, w: ((p := x @ w)[0], p + 1), (X, W), 0),
    "read again, later": (lambda x, w: ((p := x @ w).relu() @ p) @ p.T, (X, W), 0),
    "read at other places": (lambda x, w: (p := x @ w) + p.T, (X, W), 0),
    "another dtype": (lambda x, w: (x @ w).double(), (X, W), 0),
    "other strides": (lambda x, w: (x @ w).T.clone(memory_format=torch.contiguous_format) * 2, (X, W), 0),
    "smaller": (lambda x, w: (x @ w)[:6] * 2, (X, W), 0),
    "an operator of somebody's": (lambda x: torch.ops.jitney_test_successors.kept(x) * 2, (X,), 0),
    "two results, one memory": (lambda x, w: ((p := x @ w).relu(), p.tanh()), (X, W), 1),
    "a sum beside it": (twice, (X, W), 1),
    "other sizes": (lambda x, w: (x @ w).view(3, 4, 12).exp(), (X, W), 1),
    "its own row turned, before": (lambda x, w: (p := x @ w) - p.flip(1).amax(1, keepdim=True), (X, W), 1),
    "another row": (lambda x, w: (p := x @ w) - p.flip(0).amax(1, keepdim=True), (X, W), 0),
    "kept for later nests": (lambda x, w: (p := (x @ w).exp(), p / p.sum(1, keepdim=True)), (X, W), 1),
}


@pytest.mark.parametrize("case", CASES)
def test_what_takes_over_a_products_memory(case: str) -> None:
    fn, args, count = CASES[case]
    program = lowered(fn, *args, whole=None).program
    made = schedule(program)
    made.verify()
    assert len(made.successors) == count, str(made)
    assert len(set(made.successors.values())) == count
    assert not set(made.successors) & set(made.allocated)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", ["llvm_cpu", "triton_gpu"])
def test_numbers_are_eagers(case: str, backend: str) -> None:
    fn, args, _ = CASES[case]
    if backend == "triton_gpu" and torch.cuda.is_available():
        args = tuple(a.cuda() for a in args)
        if case == "an operator of somebody's":
            pytest.skip("the operator is for the CPU")
    compiled = jitney.compile(fn, backend=backend, dynamic=False)
    for _ in range(2):
        before = [a.clone() for a in args]
        assert_close(compiled(*args), fn(*args), rtol=1e-4, atol=1e-4)
        assert_close(list(args), before, rtol=0, atol=0)
    if KEPT:
        assert all(torch.equal(k, X + 1) for k in KEPT)
        KEPT.clear()


POLICY = replace(GPU, scatters=True)
LARGE: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "a result over a temporary": (lambda x: x.cumsum(0).softmax(1), (X,), 1),
    "each over the one before": (lambda x: x.softmax(0).softmax(1).softmax(0), (X,), 1),
    "over what is read of other places": (lambda x: x.cumsum(0).T.softmax(0).clone(), (X,), 0),
    "over what was scattered into": (
        lambda x: x.scatter(1, torch.zeros_like(x, dtype=torch.int64), 2.0).exp(),
        (X,),
        1,
    ),
}


@pytest.mark.parametrize("case", LARGE)
def test_what_takes_over_a_temporarys_memory(case: str) -> None:
    fn, args, count = LARGE[case]
    made = schedule(lowered(fn, *args, whole=None, policy=POLICY).program, large=0, policy=POLICY)
    made.verify()
    assert len(made.successors) == count, str(made)
    assert not set(made.successors) & set(made.allocated)


@pytest.mark.parametrize("backend", ["llvm_cpu", "triton_gpu"])
def test_gradients_of_convolutions(backend: str) -> None:
    device = "cuda" if backend == "triton_gpu" and torch.cuda.is_available() else "cpu"
    conv = torch.nn.Conv2d
    layers = [conv(3, 4, 3), torch.nn.ReLU(), conv(4, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), conv(4, 2, 3)]
    model = torch.nn.Sequential(*layers).to(device)
    twin = copy.deepcopy(model)
    compiled = jitney.compile(model, backend=backend)
    for _ in range(2):
        for m in (compiled, twin):
            m(IMAGE.to(device)).square().sum().backward()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-3)
