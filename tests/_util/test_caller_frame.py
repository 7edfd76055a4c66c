"""Warnings of what compiled code calls name the line that they name in eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import compile_fn, t
from torch import nn


class Layer(nn.Module):
    """Warns in a forward of the program's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x)


LAYER = Layer()


def two_lines(x: torch.Tensor) -> torch.Tensor:
    x = F.softmax(x)
    return F.mse_loss(x, x[:1])


def after_a_break(x: torch.Tensor) -> torch.Tensor:
    print(end="")
    return F.softmax(x + 1)


def in_a_callee(x: torch.Tensor) -> torch.Tensor:
    return two_lines(x) + LAYER(x).sum()


WARNING: dict[str, Callable[[torch.Tensor], Any]] = {
    "of torch's Python": two_lines,
    "of C++": lambda x: x.sum() + torch.range(0, 2),
    "of a decorator": lambda x: nn.utils.clip_grad_norm([x], 1.0),  # type: ignore[attr-defined]
    "interpreted": lambda x: F.upsample(x[None, None], scale_factor=2),
    "of a method": lambda x: F.dropout2d(x, 0.0),
    "after a break": after_a_break,
    "in a callee": in_a_callee,
}


def told(fn: Callable[[torch.Tensor], Any], x: torch.Tensor) -> list[tuple[Any, ...]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fn(x)
    return [(str(w.message), w.category, w.filename, w.lineno) for w in caught]


@pytest.mark.parametrize("name", WARNING)
def test_a_warning_names_the_programs_line(name: str) -> None:
    fn, x = WARNING[name], t(3, 3)
    wanted = told(fn, x)
    assert wanted and all(filename == __file__ for _, _, filename, _ in wanted)
    found = told(compile_fn(fn, backend="llvm_cpu"), x)
    assert {*found} == {*wanted}


def test_it_is_the_programs_module_that_filters_go_by() -> None:
    compiled = compile_fn(two_lines, backend="llvm_cpu")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", module=__name__.replace(".", r"\."))
        compiled(t(3, 3))
    assert [w.filename for w in caught] == [__file__] * 2


def test_one_that_is_an_error_is_the_programs_error() -> None:
    compiled = compile_fn(two_lines, backend="llvm_cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="Implicit dimension"):
            compiled(t(3, 3))
