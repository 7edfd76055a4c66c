"""Reading and writing at indices that tensors hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import Captured, kinds, lowered, trained

import jitney
from jitney_lowering import CPU


def cross_entropy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, y)


def targets(count: int, classes: int, *, ignored: bool = False) -> torch.Tensor:
    made = torch.randint(classes, (count,), generator=torch.Generator().manual_seed(0))
    if ignored:
        made[::3] = -100
    return made


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss(reduction: str, weighted: bool) -> None:
    weight = torch.rand(5) if weighted else None

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.nll_loss(F.log_softmax(x, -1), y, weight, reduction=reduction)

    trained(fn, torch.randn(7, 5, requires_grad=True), targets(7, 5, ignored=True))


def test_nll_loss_of_a_single_row_and_of_pixels() -> None:
    trained(cross_entropy, torch.randn(5, requires_grad=True), torch.tensor(3))
    trained(cross_entropy, torch.randn(2, 5, 3, 4, requires_grad=True), targets(24, 5).reshape(2, 3, 4))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_nll_loss_of_other_dtypes(dtype: torch.dtype) -> None:
    trained(cross_entropy, torch.randn(7, 5, dtype=dtype, requires_grad=True), targets(7, 5))


def test_nll_loss_where_sizes_are_symbols() -> None:
    trained(cross_entropy, torch.randn(7, 5, requires_grad=True), targets(7, 5), dynamic=True)


def test_the_logarithms_of_softmax_are_never_stored() -> None:
    program = lowered(cross_entropy, torch.randn(4, 1000), targets(4, 1000)).program
    large = [b for b in program.buffers.values() if b.extent.value == 4000]
    assert [b.name for b in large] == [program.inputs[0]]
    assert [k for k in kinds(program) if k != "pointwise"] == ["max", "sum", "any", "sum", "sum"]


def test_gather_of_what_is_computed() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -torch.log_softmax(x, -1).gather(1, y[:, None]).mean()

    trained(fn, torch.randn(7, 5, requires_grad=True), targets(7, 5))
    trained(fn, torch.randn(7, 5, requires_grad=True), targets(7, 5), dynamic=True)


def test_gather_of_what_is_in_memory_runs_as_a_whole_where_the_policy_says_so() -> None:
    args = torch.randn(7, 5), targets(14, 5).reshape(7, 2)
    policy = replace(CPU, fused_gathers=False)
    lowered(lambda x, y: x.gather(1, y), *args, whole=["gather.default"], policy=policy)
    lowered(lambda x, y: x.gather(1, y), *args)


def test_one_index_in_each_row_scatters() -> None:
    def fn(x: torch.Tensor, at: torch.Tensor, source: torch.Tensor) -> Any:
        return (x.scatter(1, at, source), x.scatter(1, at, 2.5), x.scatter_add(1, at, source),
                x.scatter(-1, at, source), (x > 0).scatter(1, at, True))  # fmt: skip

    lowered(fn, torch.randn(7, 5), targets(7, 5)[:, None], torch.randn(7, 1))


def test_one_hot() -> None:
    lowered(lambda y: torch.zeros(7, 5).scatter(1, y[:, None], 1.0), targets(7, 5))


def test_several_indices_in_a_row_run_as_a_whole() -> None:
    def fn(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return x.scatter(1, at, 2.0)

    lowered(fn, torch.randn(7, 5), targets(14, 5).reshape(7, 2), whole=["scatter.value"])


def test_elements_of_each_row_are_put_where_they_belong() -> None:
    """In order. Those of a column, which eager deals out to threads, run as a whole."""

    policy = replace(CPU, scatters_in_order=True)
    x, few, many = torch.randn(4, 50), targets(200, 50).reshape(4, 50), targets(204, 50).reshape(4, 51)
    lowered(lambda x, at, source: (x * 2).scatter_add(1, at, source) + 1, x, few, torch.randn(4, 50), policy=policy)
    lowered(lambda x, at: x.exp().scatter(-1, at.clamp(max=0), 3.0), x, few, policy=policy)
    lowered(lambda x, at, s: x.scatter_add(1, at, s.exp()), x, many, torch.randn(4, 51), policy=policy)
    lowered(lambda x, at, s: x.scatter_add(1, at, s), x, few, torch.randn(4, 50), policy=policy, dynamic=True)
    whole = ["scatter_add.default"]
    rows = few.clamp(max=3)
    lowered(lambda x, at, s: x.scatter_add(0, at, s), x, rows, torch.randn(4, 50), policy=policy, whole=whole)


@pytest.mark.parametrize("dynamic", [False, True])
def test_rows_without_an_index_stay(dynamic: bool) -> None:
    def fn(x: torch.Tensor, at: torch.Tensor, source: torch.Tensor) -> Any:
        return x.scatter(1, at, 2.0), x.scatter_add(1, at, source), x.scatter(1, at, source)

    lowered(fn, torch.randn(7, 5), targets(3, 5)[:, None], torch.randn(4, 2), dynamic=dynamic)


WRONG: dict[str, Any] = {
    "nll": (lambda x, y: F.nll_loss(x, y), IndexError, "out of bounds"),
    "gather": (lambda x, y: x.exp().gather(1, y[:, None]), RuntimeError, "out of bounds"),
    "scatter": (lambda x, y: x.scatter(1, y[:, None], 2.0), RuntimeError, "out of bounds"),
    "scatter_add": (lambda x, y: x.scatter_add(1, y[:, None], x[:, :1]), RuntimeError, "out of bounds"),
}


@pytest.mark.parametrize("index", [5, -1, 2**40, -(2**40)])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_index_is_an_error_and_reads_no_other_memory(name: str, index: int) -> None:
    fn, exception, text = WRONG[name]
    y = targets(7, 5)
    y[3] = index
    x = torch.randn(7, 5)
    with pytest.raises(exception, match=text):
        fn(x, y)
    compiled = jitney.compile(fn, backend=Captured().backend)
    compiled(x, targets(7, 5))
    with pytest.raises(exception, match=text):
        compiled(x, y)
