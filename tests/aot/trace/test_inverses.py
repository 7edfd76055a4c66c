"""What is written through an expanded view, or through windows, has eager's numbers, infinities too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney

SPECIAL = torch.tensor([float("nan"), float("inf"), -float("inf"), 2.0, -1.0, 0.1, 1e8])


def same_sizes(x: torch.Tensor) -> None:
    x.expand_as(x).relu_()


def one_more_dimension(x: torch.Tensor) -> None:
    x.expand(1, 7)[0].mul_(0.1)


def broadcast(x: torch.Tensor) -> Any:
    y, _ = torch.broadcast_tensors(x, torch.ones(1))
    y.copy_(torch.arange(7.0) / 3)
    return y * 2


def by_subscript(x: torch.Tensor) -> None:
    x.expand(7)[1:3] = 0.3


def a_copy(x: torch.Tensor) -> Any:
    y = x.clone().expand(1, 1, 7)
    y.add_(0.1)
    return y


@pytest.mark.parametrize("fn", [same_sizes, one_more_dimension, broadcast, by_subscript, a_copy])
@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu"])
def test_numbers_are_eagers_to_the_last_bit(fn: Callable[[torch.Tensor], Any], backend: str) -> None:
    mine, theirs = SPECIAL.clone(), SPECIAL.clone()
    found, wanted = jitney.compile(fn, backend=backend)(mine), fn(theirs)
    torch.testing.assert_close((mine, found), (theirs, wanted), rtol=0, atol=0, equal_nan=True)


def test_what_a_program_computes_so_itself_is_one_graph() -> None:
    def straight_through(x: torch.Tensor) -> torch.Tensor:
        y = x + (x.round() - x).detach()
        y.mul_(2)
        return y

    x = torch.linspace(-2, 2, 9)
    output = jitney.explain(straight_through, backend="aot_eager")(x)
    assert output.aten_graphs and not output.kept
    assert torch.equal(jitney.compile(straight_through, backend="aot_eager")(x), straight_through(x))


def windows_that_leave_out_the_end(x: torch.Tensor) -> None:
    x.unfold(0, 2, 2).mul_(3)


def windows_with_gaps(x: torch.Tensor) -> None:
    x.unfold(-1, 2, 3)[:, 1:] = 0.3


def windows_of_windows(x: torch.Tensor) -> Any:
    y = torch.arange(35.0).view(5, 7) + x
    windows = y.unfold(0, 2, 2).unfold(1, 3, 3)
    windows[..., 1:].copy_(windows[..., :-1].clone())
    return y


def windows_that_overlap(x: torch.Tensor) -> None:
    x.unfold(0, 3, 2)[:, 1].fill_(0.1)


@pytest.mark.parametrize(
    "fn", [windows_that_leave_out_the_end, windows_with_gaps, windows_of_windows, windows_that_overlap]
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_no_window_shows_stays_as_it_was(fn: Callable[[torch.Tensor], Any], dynamic: bool) -> None:
    mine, theirs = SPECIAL.clone(), SPECIAL.clone()
    found, wanted = jitney.compile(fn, backend="aot_eager", dynamic=dynamic)(mine), fn(theirs)
    torch.testing.assert_close((mine, found), (theirs, wanted), rtol=0, atol=0, equal_nan=True)


def test_a_write_through_windows_side_by_side_is_one_graph() -> None:
    def doubled(x: torch.Tensor) -> None:
        x.unfold(0, 4, 4).mul_(2)

    mine, theirs = torch.randn(12), torch.zeros(12)
    theirs.copy_(mine)
    output = jitney.explain(doubled, backend="aot_eager")(mine.clone())
    assert output.aten_graphs and not output.kept
    jitney.compile(doubled, backend="aot_eager")(mine), doubled(theirs)
    assert torch.equal(mine, theirs)
