"""Backwards of which only some results have a gradient."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from helpers import compile_fn, t


def results(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = x @ w
    a, b = h.chunk(2, 1)
    return a.sigmoid(), (b * 0).sqrt(), h.softmax(-1), (x * 2).log_softmax(0), torch.cat([a, x], 1), w.sum(0), x - w[:3]


def test_every_subset_of_results() -> None:
    run = compile_fn(results, backend="aot_eager")
    for count in (1, 2, 3, 7):
        for chosen in itertools.combinations(range(7), count):
            sides: list[Any] = []
            for fn in (results, run):
                x, w = t(3, 4, requires_grad=True), t(4, 4, requires_grad=True)
                out = fn(x, w)
                roots = [out[i] for i in chosen]
                tangents = [torch.arange(r.numel()).reshape(r.shape).to(r.dtype) + 1 for r in roots]
                sides.append(torch.autograd.grad(roots, [x, w], tangents, allow_unused=True))
            for eager, found in zip(*sides, strict=True):
                assert (eager is None) == (found is None), chosen
                if eager is not None:
                    torch.testing.assert_close(eager, found, equal_nan=True, rtol=1e-5, atol=1e-6, msg=str(chosen))


def test_a_gradient_that_is_a_sum_with_a_missing_part() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 3, x.sum(), x.t() * 2, x.expand(2, 3, 4)

    run = compile_fn(f, backend="aot_eager")
    for i in range(4):
        x, y = t(3, 4, requires_grad=True), t(3, 4, requires_grad=True)
        f(x)[i].sum().backward()
        run(y)[i].sum().backward()
        assert torch.equal(x.grad, y.grad) and x.grad.dtype == y.grad.dtype


def test_half_precision_gradients_of_one_result() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 2, y.float() * x, y.exp()

    run = compile_fn(f, backend="aot_eager")
    for i in range(3):
        sides = []
        for fn in (f, run):
            x, y = t(3, 4, requires_grad=True), t(3, 4).bfloat16().requires_grad_()
            sides.append(torch.autograd.grad(fn(x, y)[i].float().sum(), [x, y], allow_unused=True))
        for eager, found in zip(*sides, strict=True):
            assert (eager is None) == (found is None)
            assert eager is None or (torch.equal(eager, found) and eager.dtype == found.dtype)


def test_missing_parts_of_symbolic_sizes() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        k = x.shape[0] // 3
        a, b = (x * 2).split_with_sizes([k, x.shape[0] - k])
        return a.sin(), b.exp(), *torch.aminmax(torch.cat([x, x], 1), dim=0)

    run = compile_fn(f, backend="aot_eager", dynamic=True)
    for n in (6, 9, 11):
        for i in range(4):
            x, y = t(n, 4, requires_grad=True), t(n, 4, requires_grad=True)
            f(x)[i].sum().backward()
            run(y)[i].sum().backward()
            assert torch.equal(x.grad, y.grad)


def after_writing(fn: Any, wanted: tuple[int, ...], written: tuple[int, ...]) -> Any:
    """Gradients by some results of what another one was written over; what the backward raises."""
    x, w = t(3, 4, requires_grad=True), t(4, 4, requires_grad=True)
    out = fn(x, w)
    for i in written:
        out[i].relu_()
    try:
        return torch.autograd.grad([out[i].sum() for i in wanted], [x, w], allow_unused=True)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return "raises"


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
def test_results_that_no_gradient_needs_may_be_written_to(backend: str) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x @ w).softmax(0), (w * 2).softmax(1), x.sin(), (w + 1).log_softmax(0)

    run = compile_fn(f, backend=backend)
    for wanted in ((0,), (1,), (2,), (0, 2), (1, 3), (0, 1, 2, 3)):
        for written in ((0,), (1,), (1, 2), (0, 3)):
            eager, found = after_writing(f, wanted, written), after_writing(run, wanted, written)
            if eager != "raises":
                torch.testing.assert_close(eager, found)
            elif backend == "aot_eager":  # others may not need what eager saves
                assert found == "raises", (wanted, written)


def test_what_hooks_unpack_is_theirs() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x @ w).softmax(0), w.sin()

    run = compile_fn(f, backend="aot_eager")
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor):
        expected = after_writing(f, (1,), (0,))
        torch.testing.assert_close(after_writing(run, (1,), (0,)), expected)


def distinct(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    found = y.unique()
    y.mul_(3)
    return found * 2, y.sin(), found.sum() + y.sum()


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
def test_operators_without_a_derivative_raise_only_if_they_are_reached(backend: str) -> None:
    run = compile_fn(distinct, backend=backend)
    sides: list[Any] = []
    for fn in (distinct, run):
        x = torch.tensor([1.0, 2.0, 1.0], requires_grad=True)
        for chosen in (0, 2):
            with pytest.raises(NotImplementedError, match="the derivative for '_unique2' is not implemented"):
                fn(x)[chosen].sum().backward()
        results = fn(x)
        torch.autograd.backward(results[1].sum())
        sides.append([x.grad, *results])
    for eager, found in zip(*sides, strict=True):
        torch.testing.assert_close(eager, found)
        assert eager.requires_grad == found.requires_grad


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
def test_operators_without_a_derivative_raise_on_the_way_to_what_is_asked_for(backend: str) -> None:
    """``torch.autograd.grad`` runs only what leads to its inputs."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x.unique() * w * x[:2]

    run = compile_fn(f, backend=backend)
    for inner in (False, True):
        for fn in (f, run):
            x, w = (torch.tensor(v, requires_grad=True) for v in ([1.0, 2.0, 1.0], [3.0, 4.0]))
            given = x * 2 if inner else x
            out = fn(given, w).sum()
            (gradient,) = torch.autograd.grad(out, w, retain_graph=True)
            torch.testing.assert_close(gradient, given.detach().unique() * given.detach()[:2])
            with pytest.raises(NotImplementedError, match="the derivative for '_unique2' is not implemented"):
                torch.autograd.grad(out, given)
