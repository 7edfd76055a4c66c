"""Results that share memory: with inputs, and with one another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from aot.sides import same
from helpers import t


def leaf() -> tuple[Any, ...]:
    return (t(3, 4, requires_grad=True),)


def result() -> tuple[Any, ...]:
    return (t(3, 4, requires_grad=True) * 1.5,)


def plain() -> tuple[Any, ...]:
    return (t(3, 4),)


def pairs() -> tuple[Any, ...]:
    return (t(3, 2, requires_grad=True),)


def no_grad_view(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return x[0]


VIEWS = {
    "transposed": lambda x: x.t(),
    "chain": lambda x: x.t()[1:].unsqueeze(0),
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
    "detached in a chain": lambda x: x.t().detach()[0],
    "view of data": lambda x: x.data[1:],
    "under no_grad": no_grad_view,
    "expanded": lambda x: x[0].unsqueeze(0).expand(5, 4),
    "strided": lambda x: x.as_strided((2, 2), (1, 2), 1),
    "split": lambda x: x.split(2, 1),
    "chunks": lambda x: torch.chunk(x, 2, 1),
    "rows": lambda x: x.unbind(),
    "one row": lambda x: x.unbind()[1],
    "overlapping": lambda x: x.unfold(1, 2, 1),
    "diagonal": lambda x: x.diagonal(),
    "parts twice": lambda x: (x.unbind()[1], *x.unbind(), x.unbind()[1][1:], x.split(1)[2][0]),
    "same shape": lambda x: (x.contiguous(), x.view_as(x), x.reshape(3, 4), x.to(torch.float32), x[...]),
    "itself": lambda x: (x, x * 2, x),
    "flattened": lambda x: (x.flatten(), x.view(-1)[3:]),
}


@pytest.mark.parametrize("make", [plain, leaf, result])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_views_of_inputs(view: Any, make: Any) -> None:
    same(lambda x: view(x), make)


@pytest.mark.parametrize("make", [plain, leaf])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_views_of_what_is_made(view: Any, make: Any) -> None:
    same(lambda x: view(x * 2), make)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_views_beside_their_base(view: Any) -> None:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        return view(y), y, y.t()

    same(f, leaf)


def test_complex_views() -> None:
    def numbers() -> tuple[Any, ...]:
        return (torch.view_as_complex(t(3, 2)).clone().requires_grad_(),)

    same(lambda x: torch.view_as_real(x), numbers)
    same(lambda x: torch.view_as_complex(x), pairs, poke=False)
    same(lambda x: (x.real, x.imag), numbers)
    same(lambda x: (x * 2).conj(), numbers)
    same(lambda x: ((x * 2).real, x.conj().imag), numbers)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.float16])
def test_dtype_views(dtype: torch.dtype) -> None:
    same(lambda x: x.view(dtype), plain)
    same(lambda x: (x + 1).view(dtype), plain)


def test_results_that_are_views_of_one_another() -> None:
    same(lambda x: (lambda y: (y, y.t()))(x * 2), leaf)
    same(lambda x: (lambda y: (y[0], y.t()))(x * 2), leaf)
    same(lambda x: (lambda y: (y, y))(x * 2), leaf)
    same(lambda x: (lambda y: (y, y.view(3, 4)))(x * 2), leaf)


def test_a_view_and_a_detached_view() -> None:
    same(lambda x: (lambda y: (y, y.detach()))(x * 2), leaf)
    same(lambda x: (lambda y: (y[0], y.detach()[1]))(x * 2), leaf)
    same(lambda x: (lambda y: (y.detach()[1], y.detach()))(x * 2), leaf, kept="different tensors in the same memory")


def test_a_view_made_under_no_grad() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        with torch.no_grad():
            v = y[0]
        return y, v

    same(f, leaf)


def test_views_without_their_base_when_nothing_requires_grad() -> None:
    same(lambda x: (x * 2)[0], plain)

    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return (x * 2)[0]

    same(f, leaf)


def test_many_parts_are_made_by_one_call() -> None:
    from jitney import compile, events

    texts = []
    with events.listen(lambda e: texts.append(e.text) if isinstance(e, events.Artefact) else None):
        compile(lambda x: (x * 2).unbind(), backend="aot_eager")(t(5, 2, requires_grad=True))
    assert sum(text.count("unbind") for text in texts) == 1
