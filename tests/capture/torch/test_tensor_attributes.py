"""Attributes of tensors from outside that compiled code sets: gradients, data, ``requires_grad``, the program's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import jitney
from jitney.errors import Unsupported

Made = tuple[Callable[[torch.Tensor], Any], Callable[[], list[Any]]]


class Pair:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.w = nn.Parameter(torch.randn(3))
        self.v = nn.Parameter(torch.ones(3))

    def state(self) -> list[Any]:
        tensors = (self.w, self.v)
        return [part for t in tensors for part in (t.detach().clone(), t.grad, t.requires_grad, sorted(vars(t)))]


def sets_gradient(p: Pair, x: torch.Tensor) -> Any:
    p.w.grad = torch.ones_like(p.w) * x.mean()
    return (p.w * x).sum() + p.w.grad.sum()


def accumulates(p: Pair, x: torch.Tensor) -> Any:
    if p.w.grad is None:
        p.w.grad = torch.zeros_like(p.w)
    p.w.grad += x
    p.w.grad = p.w.grad * 2
    return (p.w * x).sum()


def exchanges_gradients(p: Pair, x: torch.Tensor) -> Any:
    total = (p.w * x).sum()
    p.w.grad, p.v.grad = p.v.grad, p.w.grad
    return total


def keeps_the_original(p: Pair, x: torch.Tensor) -> Any:
    w: Any = p.w
    if not hasattr(w, "org"):
        w.org = w.data.clone()
    w.org = w.org * 2
    w.tag = "seen"
    return (w * x).sum() + w.org.sum() + len(w.tag)


def says_it_again(p: Pair, x: torch.Tensor) -> Any:
    p.w.requires_grad = True
    p.w.requires_grad_()
    return (p.w * x.requires_grad_(False)).sum()


WHOLE = [sets_gradient, accumulates, exchanges_gradients, keeps_the_original, says_it_again]


def binarizes(p: Pair, x: torch.Tensor) -> Any:
    w: Any = p.w
    if not hasattr(w, "org"):
        w.org = w.data.clone()
    w.data = w.org.sign()
    return (w * x * p.v).sum()


def puts_it_back(p: Pair, x: torch.Tensor) -> Any:
    before = p.w.data
    p.w.data = p.w.data.round()
    result = (p.w * (x * p.v)).sum()
    p.w.data = before
    return result


def writes_to_the_new(p: Pair, x: torch.Tensor) -> Any:
    new = x * 2
    p.w.data = new
    new.add_(1)
    p.w.data.mul_(3)
    return (p.w * x * p.v).sum() + new.sum()


def shares(p: Pair, x: torch.Tensor) -> Any:
    p.v.data = p.w.data
    with torch.no_grad():
        p.v.mul_(2)
    return (p.w * x).sum() + p.v.sum()


def exchanges(p: Pair, x: torch.Tensor) -> Any:
    p.w.data, p.v.data = p.v.data, p.w.data
    return (p.w * x).sum() + (p.v * p.v).sum()


DATA = [binarizes, puts_it_back, writes_to_the_new, shares, exchanges]


def outcome(fn: Callable[[Pair, torch.Tensor], Any], **options: Any) -> list[Any]:
    pair, found = Pair(), []
    run: Any = jitney.compile(lambda x: fn(pair, x), **options) if options else lambda x: fn(pair, x)
    for x in (torch.ones(3), torch.arange(3.0), torch.ones(3) * 2):
        result = run(x)
        found.append(result.detach())
        result.backward()
        found += pair.state()
    return found


def same(found: list[Any], wanted: list[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
        else:
            assert a == b


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", WHOLE)
def test_writes_wait_for_the_graph(fn: Callable[..., Any], backend: str) -> None:
    same(outcome(fn, backend=backend, fullgraph=True), outcome(fn))


@pytest.mark.parametrize("fn", DATA)
def test_data_is_replaced_in_captured_graphs(fn: Callable[..., Any]) -> None:
    same(outcome(fn, backend="eager", fullgraph=True), outcome(fn))


@pytest.mark.parametrize("fn", [puts_it_back, binarizes])
def test_data_is_replaced_between_aten_graphs(fn: Callable[..., Any]) -> None:
    same(outcome(fn, backend="aot_eager"), outcome(fn))
    with pytest.raises(Unsupported, match=r"assignment to Tensor\.data"):
        outcome(fn, backend="aot_eager", fullgraph=True)


def test_tensors_that_may_be_one_are_told_apart() -> None:
    def fn(a: Any, b: Any) -> Any:
        a.grad, a.tag = torch.ones(3), 1
        return b.grad is None, hasattr(b, "tag")

    compiled = jitney.compile(fn, backend="eager", fullgraph=True)
    one = torch.ones(3)
    assert compiled(torch.ones(3), torch.ones(3)) == (True, False)
    assert compiled(one, one) == (False, True)


def test_a_gradient_that_does_not_fit_is_refused_as_in_eager() -> None:
    def fn(p: torch.Tensor) -> None:
        p.grad = torch.ones(4)

    with pytest.raises(RuntimeError, match="attempting to assign a gradient of size"):
        jitney.compile(fn, backend="eager")(torch.ones(3, requires_grad=True))


def test_requires_grad_of_a_tensor_from_outside_changes_between_graphs() -> None:
    pair = Pair()

    def fn(x: torch.Tensor) -> torch.Tensor:
        pair.w.requires_grad = False
        return (pair.w * x * pair.v).sum()

    compiled = jitney.compile(fn, backend="eager")
    for _ in range(2):
        compiled(torch.ones(3)).backward()
        assert pair.w.grad is None
        assert not pair.w.requires_grad


def test_data_of_a_size_that_depends_on_data_is_set_in_python() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.data = x[x > 0].data.clone()
        return y * 2

    compiled = jitney.compile(fn, backend="aot_eager")
    for x in (torch.ones(3), torch.tensor([1.0, -1, 2])):
        y, expected = torch.ones(3), x[x > 0]
        assert torch.equal(compiled(x, y), expected * 2)
        assert torch.equal(y, expected)
