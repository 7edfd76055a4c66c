"""Every reduction rule beside eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import kinds, lowered

import jitney
from jitney_lowering import CPU

ALL: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: (x.sum(), x.sum(0), x.sum(-1, keepdim=True), x.sum((0, 2)), x.sum([])),
    "prod": lambda x: (x.prod(), x.prod(1), x.prod(1, keepdim=True)),
    "amax": lambda x: (x.max(), x.amax(0), x.amax((0, 1), keepdim=True)),
    "amin": lambda x: (x.min(), x.amin(-1), x.amin((1, 2))),
    "max": lambda x: (x.max(0), x.max(-1, keepdim=True)),
    "min": lambda x: (x.min(1), x.min(-1, keepdim=True)),
    "argmax": lambda x: (x.argmax(), x.argmax(0), x.argmax(-1, keepdim=True)),
    "argmin": lambda x: (x.argmin(), x.argmin(1)),
    "aminmax": lambda x: (*x.aminmax(), *x.aminmax(dim=1)),
    "any": lambda x: (x.any(), x.any(0), x.any(-1, keepdim=True), torch.any(x, dim=(0, 1))),
    "all": lambda x: (x.all(), x.all(0), x.all(-1, keepdim=True), torch.all(x, dim=(0, 1))),
    "count_nonzero": lambda x: (x.count_nonzero(), x.count_nonzero(1)),
}
OF_FLOATS: dict[str, Callable[[torch.Tensor], Any]] = {
    "mean": lambda x: (x.mean(), x.mean(0), x.mean((0, 2), keepdim=True)),
    "var": lambda x: (x.var(), x.var(0), x.var((0, 1), correction=0), x.var(-1, keepdim=True), x.var(1, correction=2)),
    "std": lambda x: (x.std(), x.std(1), torch.std_mean(x, 2)),
    "var_mean": lambda x: torch.var_mean(x, (1, 2), keepdim=True),
    "norm": lambda x: [torch.linalg.vector_norm(x, p, dim=1) for p in (0, 1, 2, 3, 2.5, math.inf, -math.inf)],
    "norm of all": lambda x: (x.norm(), torch.linalg.vector_norm(x, 2, keepdim=True), x.norm(dim=0)),
    "logsumexp": lambda x: (x.logsumexp(0), x.logsumexp((1, 2), keepdim=True), x.logsumexp(-1)),
    "sum to another dtype": lambda x: (x.sum(0, dtype=torch.float64), x.mean(1, dtype=torch.float64)),
}


def several(dtype: torch.dtype) -> torch.Tensor:
    made = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0)) * 3
    if dtype is torch.bool:
        return made > 1
    return made.to(dtype) if dtype.is_floating_point else made.abs().to(dtype)


@pytest.mark.parametrize("name", ALL)
def test_reductions_of_each_dtype(name: str) -> None:
    def fn(*xs: torch.Tensor) -> Any:
        return [ALL[name](x) for x in xs]

    dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]
    without = {"prod": 1, "aminmax": 0}
    lowered(fn, *[several(d) for d in dtypes[: len(dtypes) - without.get(name, 0)] if _takes(name, d)])


def _takes(name: str, dtype: torch.dtype) -> bool:
    return not (dtype is torch.bool and name in ("argmax", "argmin"))  # eager refuses


@pytest.mark.parametrize("name", OF_FLOATS)
def test_reductions_of_floats(name: str) -> None:
    def fn(*xs: torch.Tensor) -> Any:
        return [OF_FLOATS[name](x) for x in xs]

    lowered(fn, *[several(d) for d in (torch.float32, torch.float64, torch.bfloat16, torch.float16)])


@pytest.mark.parametrize("name", [*ALL, *OF_FLOATS])
def test_reductions_where_sizes_are_symbols(name: str) -> None:
    lowered({**ALL, **OF_FLOATS}[name], several(torch.float32), dynamic=True)


@pytest.mark.parametrize("name", ["amax", "amin", "max", "min", "argmax", "argmin", "sum", "any", "aminmax"])
def test_nan_and_infinities(name: str) -> None:
    x = several(torch.float32)
    x[0, 1, 2] = math.nan
    x[1] = math.inf
    x[2, :, 0] = -math.inf
    lowered(ALL[name], x)


def test_the_first_of_equal_extremes_counts() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0, 0.0, 0.0], [2.0, 2.0, 2.0, 2.0, 2.0]])
    lowered(lambda x: (x.argmax(1), x.argmin(1), x.max(1), x.min(1), x.argmax()), x, exact=True)


def test_what_has_no_elements() -> None:
    x = torch.randn(3, 0, 4)
    lowered(lambda x: (x.sum(), x.sum(1), x.prod(1), x.mean(1), x.any(1), x.all(1), x.amax(0), x.sum(0)), x)


def test_what_has_no_dimensions() -> None:
    x = torch.tensor(2.5)
    lowered(lambda x: (x.sum(), x.mean(), x.amax(), x.argmax(), x.max(0), x.any(), x.prod()), x)
    lowered(lambda x: (x.sum(0), x.argmax(1), x.max(1)), torch.randn(4, 1))


@pytest.mark.parametrize("layout", ["transposed", "sliced", "expanded", "channels last"])
def test_reductions_of_other_layouts(layout: str) -> None:
    x = {
        "transposed": torch.randn(6, 5, 4).permute(2, 1, 0),
        "sliced": torch.randn(8, 5, 12)[::2, :, ::2],
        "expanded": torch.randn(4, 1, 6).expand(4, 5, 6),
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    }[layout]
    lowered(lambda x: (x.sum(0), x.sum(1), x.mean((0, 1), keepdim=True), x.argmax(), x.amax(1), x.var(0)), x)


def test_loops_follow_the_data_in_memory() -> None:
    x = torch.randn(6, 5, 4).permute(2, 1, 0)
    (step,) = lowered(lambda x: x.sum(1), x).program.steps
    assert [str(v) for v in step.loops] == ["d2", "d1", "d0"]  # the last one is contiguous


def test_what_is_reduced_is_computed_in_the_same_loops() -> None:
    captured = lowered(lambda x, y: ((x - y).exp() * x).sum(1), torch.randn(4, 5), torch.randn(5))
    assert kinds(captured.program) == ["sum"]


WINDOWS = replace(CPU, unrolled_window=32)


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("sum", "count_nonzero", "aminmax")])
def test_windows_are_written_out(name: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        reduce = getattr(torch, name)
        return reduce(x.unfold(1, 7, 1), dim=-1), reduce(x.unfold(1, 5, 2) * 2, dim=-1)

    for x in (several(torch.float32), several(torch.int64) % 3, several(torch.float16)):
        rows = x.reshape(4, 30)
        if name in ("any", "all"):
            rows = rows > 1
        elif rows.is_floating_point():
            rows[1, 3], rows[2, 7:9], rows[3] = math.nan, math.inf, -0.0
        captured = lowered(fn, rows, policy=WINDOWS)
        assert set(kinds(captured.program)) == {"pointwise"}


def test_of_what_windows_are_written_out() -> None:
    x = torch.randn(2, 3, 12, 12)
    patches = lambda x: F.unfold(x, 3).view(2, 3, 9, -1)  # noqa: E731
    assert kinds(lowered(lambda x: patches(x).std(2), x, policy=WINDOWS).program) == ["pointwise"] * 2
    assert kinds(lowered(lambda x: (patches(x) - x[:, :, 1:-1, 1:-1].flatten(2)[:, :, None]).abs().sum(2), x,
                         policy=WINDOWS).program) == ["pointwise"]  # fmt: skip
    assert kinds(lowered(lambda x: x.sum(-1), x, policy=WINDOWS).program) == ["sum"]  # each its own elements
    assert kinds(lowered(lambda x: x.flatten(1).unfold(1, 40, 1).sum(-1), x, policy=WINDOWS).program) == ["sum"]
    assert kinds(lowered(lambda x: patches(x).std(2), x).program) != ["pointwise"] * 2


def test_halves_add_up_in_float32() -> None:
    x = torch.full((4096,), 1.0009765625, dtype=torch.float16)
    captured = lowered(lambda x: (x.sum(), x.mean()), x, exact=True)
    assert captured.program.buffers[captured.program.steps[0].buffer].dtype is torch.float32


def test_an_outer_product_is_never_stored() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x[:, :, None] * y[:, None, :]).sum((-2, -1))

    captured = lowered(fn, torch.randn(4, 5), torch.randn(4, 6))
    assert kinds(captured.program) == ["sum"]


@pytest.mark.parametrize("backend", ["llvm_cpu", "triton_gpu"])
@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (1, 1), (2, 3)])
def test_sums_of_negative_zeros_are_positive(shape: tuple[int, ...], backend: str) -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        return [1 / x.sum(0), 1 / x.sum(1, keepdim=True), 1 / x.mean(0), 1 / x.sum()]

    x = -torch.zeros(shape, device="cuda" if torch.cuda.is_available() and backend == "triton_gpu" else "cpu")
    assert all((y == float("inf")).all() for y in jitney.compile(fn, backend=backend)(x))


@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu", "triton_gpu"])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_truth_values_are_refused_as_in_eager(name: str, backend: str) -> None:
    for args in ((), (0,), (1, True)):

        def fn(x: torch.Tensor, args: tuple[Any, ...] = args) -> Any:
            return getattr(x, name)(*args)

        with pytest.raises(RuntimeError, match="does not support bool input") as wanted:
            fn(torch.ones(2, 3, dtype=torch.bool))
        with pytest.raises(RuntimeError) as found:
            jitney.compile(fn, backend=backend)(torch.ones(2, 3, dtype=torch.bool))
        assert str(found.value) == str(wanted.value)
