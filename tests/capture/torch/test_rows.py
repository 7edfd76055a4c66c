"""``x[i]`` with a tensor of one integer is part of the graph where a copy of the row is as good as eager's view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import outcome

import jitney

Fn = Callable[[torch.Tensor, torch.Tensor], Any]
kept: list[torch.Tensor] = []
buffer = torch.zeros(4, 3)


def written_after(x: torch.Tensor, i: torch.Tensor) -> Any:
    row = x[i]
    x.add_(1)
    return row * 2


def copy_written(x: torch.Tensor, i: torch.Tensor) -> Any:
    row = x[i]
    row.mul_(3)
    return x.sum()


def written_through_data(x: torch.Tensor, i: torch.Tensor) -> Any:
    y = x * 1
    row = y[i]
    y.data.zero_()
    return row + 1


def written_through_a_view(x: torch.Tensor, i: torch.Tensor) -> Any:
    y = x * 1
    view = y.view(-1)
    row = y[i]
    view[1:].zero_()
    return row + 1


def written_elsewhere(x: torch.Tensor, i: torch.Tensor) -> Any:
    row = buffer[i]
    x.add_(1)
    return row + 1


def kept_outside(x: torch.Tensor, i: torch.Tensor) -> Any:
    kept.append(x[i])
    return x + 1


def view_of_it(x: torch.Tensor, i: torch.Tensor) -> Any:
    return x[i].view(-1), x + 1


def across_a_break(x: torch.Tensor, i: torch.Tensor) -> Any:
    y = x * 1
    row = y[i]
    jitney.graph_break()
    y.zero_()
    return row + 1


VIEWS: list[Fn] = [
    written_after,
    copy_written,
    written_through_data,
    written_through_a_view,
    written_elsewhere,
    kept_outside,
    view_of_it,
    across_a_break,
    lambda x, i: x[i],
    lambda x, i: (x[i], x + 1),
    lambda x, i: {"row": x[i].unsqueeze(0)},
    lambda x, i: x.t()[i] + 1,
    lambda x, i: x[..., i.clamp(0, 2)].sum() * x,
]
COPIES: list[Fn] = [
    lambda x, i: x[i] + 1,
    lambda x, i: x[i] @ x.t(),
    lambda x, i: x[i, 1] * 2,
    lambda x, i: x[i, :2] * 2,
    lambda x, i: x[None, i] * 2,
    lambda x, i: x[x[:, 0].argmax()] * 2,
    lambda x, i: x[i.to(torch.int8)] * x,
    lambda x, i: x[0, i.clamp(0, 2)] + x,
    lambda x, i: x.flatten()[i] * x,
    lambda x, i: x[:4].view(2, 2, 3)[1, :1, i.clamp(0, 1)] * 2,
    lambda x, i: x[:4].view(2, 2, 3)[..., 1, :][i.clamp(0, 1)] * 2,
]


def both(fn: Fn, backend: str, x: torch.Tensor, i: torch.Tensor) -> list[Any]:
    """What eager and compiled code give, and leave in their arguments and what is kept."""
    told = []
    for called in (fn, jitney.compile(fn, backend=backend)):
        kept.clear()
        given = x.clone()
        result = outcome(called, given, i)
        if isinstance(result, torch.Tensor):
            result.zero_() if result.is_leaf else None  # a view's write is seen in the base
        told.append(str((result, given, kept)))
    return told


@pytest.mark.parametrize("fn", [*VIEWS, *COPIES])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_rows_are_eagers(fn: Fn, backend: str) -> None:
    for at in (2, 0, -1, 7, -9):
        for rows in (4, 5):
            found, wanted = both(fn, backend, torch.arange(rows * 3.0).view(rows, 3), torch.tensor(at))
            assert found == wanted


@pytest.mark.parametrize("fn", COPIES)
def test_rows_are_part_of_the_graph(fn: Fn) -> None:
    report = jitney.explain(fn, backend="eager")(torch.randn(4, 3), torch.tensor(2))
    assert (report.graph_count, report.graph_break_count) == (1, 0)


@pytest.mark.parametrize("fn", VIEWS)
def test_views_that_are_seen_are_graph_breaks(fn: Fn) -> None:
    report = jitney.explain(fn, backend="eager")(torch.randn(4, 3), torch.tensor(2))
    assert report.graph_break_count > 0


@pytest.mark.parametrize("fn", COPIES)
def test_gradients_of_rows(fn: Fn) -> None:
    gradients = []
    for called in (fn, jitney.compile(fn, backend="aot_eager")):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
        called(x, torch.tensor(1)).sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def test_rows_of_parameters_without_gradients() -> None:
    weight = torch.nn.Parameter(torch.ones(3, 2))

    def fn(x: torch.Tensor, i: torch.Tensor) -> Any:
        with torch.no_grad():
            row = weight[i]
        return x * row, row.requires_grad

    found, wanted = (called(torch.ones(2), torch.tensor(1)) for called in (jitney.compile(fn, backend="eager"), fn))
    assert found[0].requires_grad == wanted[0].requires_grad and found[1] == wanted[1]


@pytest.mark.parametrize("index", [torch.tensor(True), torch.tensor(1, dtype=torch.uint8), torch.tensor([1])])
def test_other_indices_are_torchs(index: torch.Tensor) -> None:
    found, wanted = both(lambda x, i: x[i] * 2, "eager", torch.randn(4, 3), index)
    assert found == wanted
