"""Large products by oneDNN, beside eager: numbers, strides, and which products they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import jitney
from jitney_llvm_cpu.emit.calls import Make
from jitney_llvm_cpu.machine import engine, machine
from jitney_llvm_cpu.onednn import linear, linear_trial
from jitney_lowering.ir import Extern, Program

# A program of rows, weights that are read along their rows, and a bias; how many products are oneDNN's.
PROGRAMS: dict[str, tuple[Callable[..., Any], int]] = {
    "linear": (lambda x, w, b: F.gelu(F.linear(x, w, b)) * 2, 1),
    "no bias": (lambda x, w, b: (x * 2) @ w.t() + b, 1),
    "of a batch": (lambda x, w, b: F.linear(x.view(2, -1, 8), w, b).relu(), 1),
    "weights the other way": (lambda x, w, b: torch.addmm(b, x, w.t().contiguous()).exp(), 1),
    "one after the other": (lambda x, w, b: ((x @ w.t()).relu() @ w).sigmoid() @ w.t(), 3),
    "products are results": (lambda x, w, b: (x @ w.t(), torch.addmm(b, x, w.t()).t()), 2),
    "a bias for each element": (lambda x, w, b: torch.addmm(x[:, :5] * b, x, w.t()), 0),
    "a column as bias": (lambda x, w, b: F.linear(x, w, w[:, 2]).relu(), 0),
    "one number as bias": (lambda x, w, b: torch.addmm(b[:1], x, w.t()) * 2, 0),
    "one number, expanded": (lambda x, w, b: F.linear(x, w, b[:1].expand(5)).relu(), 0),
    "scaled": (lambda x, w, b: torch.addmm(b, x, w.t(), beta=0.5, alpha=-2).exp(), 0),
    "columns": (lambda x, w, b: x.t() @ (x @ w.t()), 1),
    "read with a step": (lambda x, w, b: x[:, ::2] @ w[:, ::2].t() + b, 0),
    "not a number": (lambda x, w, b: F.linear(x.log(), w, b), 1),
}


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Products of any size are oneDNN's; the results of those that are."""
    if "linear" not in machine(0).shims:
        pytest.skip("torch exports no product of oneDNN's here, or it failed its trial")
    monkeypatch.setattr(linear_trial, "is_faster", lambda own, threads: True)
    monkeypatch.setattr(linear, "LEAST", 1)
    found: list[str] = []
    call_of = linear.call_of

    def noted(extern: Extern, program: Program) -> Make:
        made = call_of(extern, program)
        found.append(made.result.buffer)
        return made

    monkeypatch.setattr(linear, "call_of", noted)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_numbers_are_those_of_eager(name: str, calls: list[str]) -> None:
    torch.manual_seed(0)
    program, count = PROGRAMS[name]
    given = torch.randn(12, 8), torch.randn(5, 8), torch.randn(5)
    got = jitney.compile(program, backend="llvm_cpu")(*given)
    wanted = program(*given)
    torch.testing.assert_close(got, wanted, equal_nan=True)
    for one, other in zip(*(torch.utils._pytree.tree_leaves(r) for r in (wanted, got)), strict=True):
        assert one.stride() == other.stride()
    assert len(calls) == count


def test_gradients_of_equal_layers(calls: list[str]) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(*[part for _ in range(6) for part in (nn.Linear(16, 16), nn.Tanh())])
    x = torch.randn(24, 16)
    expected = torch.autograd.grad(layers(x).square().sum(), [*layers.parameters()])
    found = torch.autograd.grad(jitney.compile(layers, backend="llvm_cpu")(x).square().sum(), [*layers.parameters()])
    torch.testing.assert_close(found, expected)
    assert calls


def test_sizes_that_change_and_other_types_stay_with_torch(calls: list[str]) -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x @ w.t()).relu()

    compiled = jitney.compile(program, backend="llvm_cpu", dynamic=True)
    for rows in (4, 7):
        x, w = torch.randn(rows, 6), torch.randn(5, 6)
        torch.testing.assert_close(compiled(x, w), program(x, w))
        torch.testing.assert_close(compiled(x.double(), w.double()), program(x.double(), w.double()))
    assert not calls


def test_weights_that_change_are_read_anew() -> None:
    model = nn.Linear(8, 4)
    compiled, x = jitney.compile(model, backend="llvm_cpu"), torch.randn(6, 8)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x))
            model.weight.data.mul_(-2)


def test_the_verdict_is_one_of_time() -> None:
    """It is asked once, in so many threads; the ratio is a number, whatever it is."""
    available = linear_trial.available(engine(0, True, ""))
    assert available == {"linear"}
    library = linear_trial._libraries[0]
    assert library is not None
    assert 0 < linear_trial._ratio(library, 4, 8, 16) < 1000
