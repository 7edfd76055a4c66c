"""Sizes that depend on data: calls in which they are 0 and 1 give what eager gives, shapes and views included."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 (torch's own name for it)

import jitney
from jitney import events


def indices(x: torch.Tensor, m: torch.Tensor) -> Any:
    found = torch.nonzero(m).squeeze()
    return (x[found] if found.dim() == 0 else x[found].flip(0)), found.dim()


def copied(x: torch.Tensor, m: torch.Tensor) -> Any:
    taken = x[m]
    rows = taken[:, None].repeat(1, 2)
    flat = rows.t().reshape(-1)  # a view of a single row, and a copy of more
    flat += 1
    return taken, rows, flat


def computed_sizes(x: torch.Tensor, m: torch.Tensor) -> Any:
    rest, shown = x[m][1:].squeeze(), torch.cat([x[m], x[x > 2]]).squeeze()
    first = x[m][:-1].squeeze()
    return [(t * 2 if t.dim() else t + 100, t.dim()) for t in (rest, shown, first)]


PROGRAMS = {
    "sizes computed from them": computed_sizes,
    "squeeze": lambda x, m: (x[m].squeeze(), x[m].squeeze(0).shape, torch.squeeze(x[m][:, None]).ndim),
    "indices": indices,
    "copied": copied,
    "broadcast": lambda x, m: (x[m][:, None] + x[~m][None], x[m] * torch.ones(1)),
    "joined": lambda x, m: (torch.cat([x[m], x]), torch.outer(x[m], x[m]), x[m] @ x[m], torch.stack([x[m]])),
    "statistics": lambda x, m: (x[m].mean(), x[m].sum(), F.softmax(x[m], 0), (x[m] > 0).all()),
    "written": lambda x, m: x.clone().index_put_((m,), x[m] * 2).index_add_(0, torch.where(m)[0], x[m]),
    "picked twice": lambda x, m: (x[m][x[m] > 0].squeeze(), x[m].topk(min(2, x[m].numel()))[0]),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_results_of_sizes_that_depend_on_data(backend: str) -> None:
    masks = ("11010", "10000", "00000", "11111", "00010", "01010")
    for name, fn in PROGRAMS.items():
        compiled = jitney.compile(fn, backend=backend, fullgraph=True)
        for number, mask in enumerate(masks):
            x = torch.linspace(-2, 3, 5) * (number + 1)
            m = torch.tensor([digit == "1" for digit in mask])
            expected, found = fn(x.clone(), m), compiled(x.clone(), m)
            assert str(found) == str(expected), (name, mask)


def test_what_holds_for_all_sizes_is_not_checked() -> None:
    compiled = jitney.compile(PROGRAMS["joined"], backend="eager", fullgraph=True)
    seen: list[Any] = []
    with events.listen(seen.append):
        for mask in ([True, True, False], [True, False, False], [False, False, False]):
            compiled(torch.ones(3), torch.tensor(mask))
    assert sum(isinstance(event, events.FrameCaptured) for event in seen) == 1
    assert not any(isinstance(event, events.GraphFailed) for event in seen)
