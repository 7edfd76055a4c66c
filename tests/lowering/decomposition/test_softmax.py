"""Softmax and its relatives, forward and backward."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import kinds, lowered, trained

import jitney

FUNCTIONS: dict[str, Any] = {
    "softmax": F.softmax,
    "log_softmax": F.log_softmax,
    "softmin": F.softmin,
    "logsumexp": torch.logsumexp,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dim", [-1, 0, 1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_and_backward(name: str, dim: int, dtype: torch.dtype) -> None:
    x = (torch.randn(3, 4, 16) * 3).to(dtype).requires_grad_()
    trained(lambda x: FUNCTIONS[name](x, dim), x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_where_sizes_are_symbols(name: str) -> None:
    trained(lambda x: FUNCTIONS[name](x, -1), torch.randn(3, 4, 5, requires_grad=True), dynamic=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_infinities_nan_and_what_is_empty(name: str) -> None:
    def fn(*xs: torch.Tensor) -> Any:
        return [FUNCTIONS[name](x, -1) for x in xs]

    inf = math.inf
    rows = torch.tensor([[1.0, -inf, 2.0], [-inf, -inf, -inf], [inf, 1.0, 2.0], [math.nan, 1.0, 2.0], [1e30, -1e30, 0]])
    lowered(fn, rows, torch.randn(0, 3), torch.randn(3, 0), torch.randn(3, 1), whole=None)
    lowered(lambda x: FUNCTIONS[name](x, 0), torch.tensor(2.5))


def test_other_layouts_become_contiguous_as_in_eager() -> None:
    x = torch.randn(5, 4, 3).permute(2, 1, 0)
    lowered(lambda x: (F.softmax(x, -1), F.softmax(x, 0), F.log_softmax(x, 1)), x)


def test_halves_are_exactly_eagers() -> None:
    x = (torch.randn(3, 64) * 3).to(torch.bfloat16)
    lowered(lambda x: (F.softmax(x, -1), F.log_softmax(x, -1), F.log_softmax(x, 0)), x, exact=True)


def test_to_another_dtype() -> None:
    lowered(lambda x: F.softmax(x, -1, dtype=torch.float32), torch.randn(3, 8).to(torch.bfloat16))


def test_softmax_takes_three_steps() -> None:
    """The exponentials are kept: they are cheaper to read once more than to compute."""
    program = lowered(lambda x: F.softmax(x, -1), torch.randn(3, 64)).program
    assert kinds(program) == ["max", "pointwise", "sum", "pointwise"]


@pytest.mark.parametrize("backend", ["llvm_cpu", "aot_eager"])
@pytest.mark.parametrize("fn", [F.softmax, F.log_softmax, F.softmin, F.glu], ids=lambda fn: fn.__name__)
def test_integers_are_refused_as_by_eager(fn: Any, backend: str) -> None:
    for x in (torch.arange(8).reshape(2, 4), torch.ones(2, 4, dtype=torch.uint8)):
        for run in (fn, jitney.compile(lambda x: fn(x, -1), backend=backend)):
            with pytest.raises(NotImplementedError, match="not implemented for"):
                run(x, -1) if run is fn else run(x)


@pytest.mark.parametrize("backend", ["llvm_cpu", "aot_eager"])
def test_logarithms_of_sigmoids_of_integers_are_refused_as_by_eager(backend: str) -> None:
    for run in (F.logsigmoid, jitney.compile(lambda x: F.logsigmoid(x), backend=backend)):
        with pytest.raises(NotImplementedError, match="not implemented for"):
            run(torch.arange(8))
