"""``x[i]`` with a tensor of one integer is part of the graph where a copy of the row is as good as eager's view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import observe, outcome

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


def written_through_data_as_often_as_by_itself(x: torch.Tensor, i: torch.Tensor) -> Any:
    y = x * 1
    y += 1
    row = y[i]
    y.data.zero_()
    return row + 1


def copy_written_through_data(x: torch.Tensor, i: torch.Tensor) -> Any:
    y = x * 1
    row = y[i]
    row.data.zero_()
    return y


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
    written_through_data_as_often_as_by_itself,
    copy_written_through_data,
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


def one_hot(x: torch.Tensor, i: torch.Tensor) -> Any:
    made = torch.zeros_like(x)
    for row in range(x.shape[0]):
        made[row, x[row].argmax()] = 1
    return made * x


def queue(x: torch.Tensor, i: torch.Tensor) -> Any:
    kept_rows = torch.zeros(5, 3)
    for row in x:
        kept_rows[i] = row
        i = (i + 1) % 4
    return kept_rows


def counted(x: torch.Tensor, i: torch.Tensor) -> Any:
    counts = torch.zeros(x.shape[0])
    for at in (i, i * 0, i):
        counts[at] += 1
    return counts * x.sum()


def several(x: torch.Tensor, i: torch.Tensor) -> Any:
    y = x * 2
    y[i] = x[0]
    y[i, 1:] = torch.tensor([5.0, 6.0])
    y[..., i.clamp(0, 2)] = 7
    y[i] *= 3
    y[i, 1] -= y[0, 0]
    y[i] = y[1]
    return y.sin()


def other_dtypes(x: torch.Tensor, i: torch.Tensor) -> Any:
    whole, truth = torch.zeros(x.shape, dtype=torch.int32), torch.zeros(x.shape, dtype=torch.bool)
    whole[i] = x[0] * 10
    whole[i] += 3
    whole[0, i.clamp(0, 2)] = 2
    truth[i] = True
    line = x[:, 0].clone()
    line[i] = torch.tensor([2], dtype=torch.int64)
    return whole, truth, line


def into_input(x: torch.Tensor, i: torch.Tensor) -> Any:
    x[i] = 4
    x[i] += 1


def into_view(x: torch.Tensor, i: torch.Tensor) -> Any:
    view = x.view(-1)
    view[i] = 9
    return x * 2


WRITES: list[Fn] = [one_hot, queue, counted, several, other_dtypes, into_input, into_view]


def row_read_before(x: torch.Tensor, i: torch.Tensor) -> Any:
    y = x.clone()
    row = y[i]
    y[i] = 3
    return row * 2, y


def row_written_after(x: torch.Tensor, i: torch.Tensor) -> Any:
    y = x.clone()
    row = y[i]
    row += 1
    y[i] = row
    row.mul_(2)
    return y + 0


def swapped(x: torch.Tensor, i: torch.Tensor) -> Any:
    y = x.clone()
    y[i], y[0] = y[0], y[i]
    return y + 0


def too_many(x: torch.Tensor, i: torch.Tensor) -> Any:
    y = x.clone()
    y[i] = torch.ones(2, 3)
    return y


@pytest.mark.parametrize("fn", [*WRITES, row_read_before, row_written_after, swapped, too_many])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_writes_at_an_index_are_eagers(fn: Fn, backend: str) -> None:
    for at in (2, 0, -1, 7, -9):
        found, wanted = both(fn, backend, torch.arange(12.0).view(4, 3), torch.tensor(at))
        assert found == wanted


@pytest.mark.parametrize("fn", WRITES)
def test_writes_at_an_index_are_part_of_the_graph(fn: Fn) -> None:
    report = jitney.explain(fn, backend="eager")(torch.randn(4, 3), torch.tensor(2))
    assert (report.graph_count, report.graph_break_count) == (1, 0)


def test_gradients_of_writes_at_an_index() -> None:
    gradients = []
    for called in (several, jitney.compile(several, backend="aot_eager")):
        x = torch.linspace(0, 2, 12).view(4, 3).requires_grad_()
        called(x, torch.tensor(2)).sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def added_where_masked(x: torch.Tensor, m: torch.Tensor, w: torch.Tensor) -> Any:
    x = x.clone()
    x[m] += w
    x[~m] -= w[0]
    x[m] *= 2
    return x


def kept_before_it_is_put(x: torch.Tensor, m: torch.Tensor, w: torch.Tensor) -> Any:
    x, rows = x.clone(), x[m]
    rows += w
    x[m] = rows
    return x, rows.shape


def a_value_for_each(x: torch.Tensor, m: torch.Tensor, w: torch.Tensor) -> Any:
    x = x.clone()
    x[m] += torch.arange(float(m.numel()))[: int(m.sum()), None]
    return x


def mask_written_meanwhile(x: torch.Tensor, m: torch.Tensor, w: torch.Tensor) -> Any:
    y, m, n = x.detach().clone(), m.clone(), m.roll(1, 0)
    y[m] += m.copy_(n).sum() * w.detach()[0]
    return x * w[0] + y


def mask_written_through_data(x: torch.Tensor, m: torch.Tensor, w: torch.Tensor) -> Any:
    y, m = x.detach().clone(), m.clone()
    m |= False

    def other_places() -> torch.Tensor:
        m.data.copy_(m.roll(1, 0))
        return w.detach()[0]

    y[m] += other_places()
    return x * w[0] + y


def elements_of_several_places(x: torch.Tensor, m: torch.Tensor, w: torch.Tensor) -> Any:
    memory = torch.arange(100.0)
    windows = memory.as_strided(x.shape, (1,) * x.dim())
    windows[m] += w.detach()[0]
    return x * w[0] + windows + memory.sum()


def scaled_by_gradients(x: torch.Tensor, m: torch.Tensor, w: torch.Tensor) -> Any:
    x = torch.where(m[..., None], x, -torch.inf)
    x[m] *= w
    return x[m]


def printed_in_between(x: torch.Tensor, m: torch.Tensor, w: torch.Tensor) -> Any:
    x = x.clone()
    x[m] += w * float(w.detach().sum())
    return x


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    ("fn", "breaks"),
    [
        (added_where_masked, 0),
        (kept_before_it_is_put, None),
        (a_value_for_each, None),
        (mask_written_meanwhile, None),
        (mask_written_through_data, None),
        (elements_of_several_places, None),
        (scaled_by_gradients, None),
        (printed_in_between, None),
    ],
)
@pytest.mark.parametrize("dims", [1, 2])
def test_updates_where_a_mask_is_set(fn: Callable[..., Any], breaks: int | None, backend: str, dims: int) -> None:
    torch.manual_seed(0)
    mask = torch.tensor([[True, False, False], [True, True, False]])
    masks = [mask, ~mask, torch.zeros_like(mask)] if dims == 2 else [mask[:, 0], mask[:, 1]]

    def scenario(wrap: Callable[[Any], Any]) -> Any:
        called, out = wrap(fn), []
        for m in masks:
            x, w = torch.arange(24.0).reshape(2, 3, 4).requires_grad_(), torch.ones(1, 4, requires_grad=True)
            if dims == 1:
                x, w = torch.arange(8.0).reshape(2, 4).requires_grad_(), torch.ones(1, 4, requires_grad=True)
            found = called(x, m, w)
            (found[0] if isinstance(found, tuple) else found).sum().backward()
            out.append((found, x.grad, w.grad))
        return out

    wanted = scenario(lambda f: f)
    with observe() as seen:
        found = scenario(lambda f: jitney.compile(f, backend=backend))
    torch.testing.assert_close(found, wanted, equal_nan=True)
    assert breaks is None or len(seen.breaks) == breaks


def test_a_mask_that_is_a_view_of_the_tensor_is_refused_as_eager_refuses_it() -> None:
    def fn(x: torch.Tensor) -> Any:
        x[x.view(torch.bool)] += 1
        return x

    with pytest.raises(RuntimeError, match="single memory location"):
        jitney.compile(fn, backend="eager")(torch.tensor([0, 1, 1], dtype=torch.uint8))
