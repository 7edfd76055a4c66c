"""Short rows put in order by comparisons are what eager's kernels make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import jitney
from jitney.events import AtenGraph
from jitney_lowering import decompositions
from jitney_lowering.decomposition.orders import DTYPES

aten = torch.ops.aten
Sorting = Callable[[torch.Tensor], Any]
SHAPES = (((5, 4), -1), ((3, 9, 7), 1), ((17,), 0), ((2, 1), 1), ((6, 33), 0), ((8, 3, 2), 0))


def rows(dtype: torch.dtype, shape: tuple[int, ...]) -> list[torch.Tensor]:
    """With equal elements and, of floats, such as have no usual place; also as they lie when turned, and with gaps."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).mul(3).round()
    x = (x > 0) if dtype is torch.bool else (x.abs() if dtype is torch.uint8 else x).to(dtype)
    found = [x]
    if dtype.is_floating_point:
        strange = x.clone().flatten()
        strange[::3], strange[1::5], strange[2::5] = float("nan"), float("inf"), -0.0
        found.append(strange.view(shape))
    turned = [r.transpose(0, -1).contiguous().transpose(0, -1) for r in found[: x.dim() - 1]]
    return [*found, *turned, *(torch.cat([r, r])[::2] for r in turned)]


def compiled(fn: Sorting, backend: Any) -> tuple[Sorting, list[Any]]:
    """And which operators its graphs have."""
    operators: list[Any] = []

    def noting(event: Any) -> None:
        if isinstance(event, AtenGraph):
            operators.extend(node.target for node in event.graph.nodes)

    made = jitney.compile(fn, backend=backend, dynamic=False)

    def call(x: torch.Tensor) -> Any:
        with jitney.events.listen(noting):
            return made(x)

    return call, operators


def both(fn: Sorting, x: torch.Tensor, backend: Any) -> list[Any]:
    """Equal, down to strides and the signs of zeros."""
    call, operators = compiled(fn, backend)
    ours, eagers = call(x), fn(x)
    for mine, theirs in zip(*([r] if isinstance(r, torch.Tensor) else r for r in (ours, eagers)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
        assert mine.stride() == theirs.stride()
        if mine.is_floating_point():
            zeros = theirs == 0
            assert torch.equal(mine[zeros].signbit(), theirs[zeros].signbit())
    return operators


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sorted_rows_are_eagers(dtype: torch.dtype) -> None:
    """Of equal elements the first is first."""
    for shape, dim in SHAPES if dtype.is_floating_point else SHAPES[:2]:

        def sorts(x: torch.Tensor, dim: int = dim) -> list[torch.Tensor]:
            both = [x.sort(dim=dim, descending=descending, stable=True) for descending in (False, True)]
            return [*both[0], *both[1], x.argsort(dim=dim, stable=True)]

        for x in rows(dtype, shape):
            operators = both(sorts, x, "llvm_cpu")
            assert operators and aten.sort.stable not in operators


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d is not torch.bool], ids=str)
def test_selections_have_eagers_values(dtype: torch.dtype) -> None:
    """Their positions are those of such values. Zeros of both signs are equal, and so one as good as the other."""
    backend = jitney.backends.Backend(
        "taken_apart", lambda graph, inputs, request: graph.forward, level="aten",
        decompositions=decompositions(first_of_equals=True),
    )  # fmt: skip
    for shape, dim in SHAPES if dtype.is_floating_point else SHAPES[:2]:

        def selections(x: torch.Tensor, dim: int = dim, k: int = min(3, shape[dim])) -> list[torch.Tensor]:
            found = [x.topk(k, dim), x.topk(k, dim, largest=False), x.kthvalue(k, dim, True), x.median(dim, True)]
            return [t for pair in found for t in pair]

        for x in rows(dtype, shape):
            call, operators = compiled(selections, backend)
            ours, eagers = call(x), selections(x)
            for n in range(0, len(ours), 2):
                for values in (ours[n], x.gather(dim, ours[n + 1])):
                    torch.testing.assert_close(values, eagers[n], rtol=0, atol=0, equal_nan=True)
            assert [t.stride() for t in ours] == [t.stride() for t in eagers]
            assert not {aten.topk.default, aten.kthvalue.default, aten.median.dim} & {*operators}


def test_gradients_go_to_where_the_elements_were() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        values, positions = x.sort(-1)
        return (values * torch.arange(5.0)).sum() + (values.diff() * positions[:, 1:]).square().sum()

    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    grads = []
    for fn in (loss, jitney.compile(loss, backend="llvm_cpu")):
        given = x.clone().requires_grad_()
        fn(given).backward()
        grads.append(given.grad)
    torch.testing.assert_close(*grads)


def test_selections_from_truth_values_are_refused_as_in_eager() -> None:
    table = decompositions(first_of_equals=True)
    x = torch.ones(2, 3, dtype=torch.bool)
    found = [table[aten.topk.default](x, 2), table[aten.kthvalue.default](x, 1), table[aten.median.dim](x, 0)]
    assert found == [NotImplemented] * 3


@pytest.mark.parametrize("backend", ["llvm_cpu", "aot_eager"])
def test_a_dimension_that_is_not_there_is_eagers_error(backend: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            return x.sort(dim=3)[0]
        except IndexError:
            return x + 1

    assert torch.equal(jitney.compile(program, backend=backend)(torch.zeros(2, 2)), torch.ones(2, 2))


def test_long_rows_and_relaxed_arithmetic_are_left_to_libraries() -> None:
    """There the same element computed twice may be two numbers."""
    assert aten.sort.stable in both(lambda x: x.sort(dim=-1, stable=True), torch.randn(2, 65), "llvm_cpu")
    left = {aten.sort.default, aten.topk.default, aten.median.dim, aten.kthvalue.default}
    assert left & {*decompositions(first_of_equals=True)} == left
    assert left & {*decompositions()} == {aten.sort.default}
    assert not left & {*decompositions(relaxed_math=True, first_of_equals=True)}
