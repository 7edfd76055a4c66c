"""Running sums beside eager, and when they stay operators that run as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering.graphs import Captured, faked, kinds, lowered
from torch import fx

from jitney.errors import BackendFailed
from jitney_lowering.ir import Computed, Kernel
from jitney_lowering.policy import CPU, GPU, Policy
from jitney_lowering.scheduler import schedule

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]


def several(dtype: torch.dtype, *size: int) -> torch.Tensor:
    made = torch.randn(*size, generator=torch.Generator().manual_seed(0)) * 3
    return made > 1 if dtype is torch.bool else made.to(dtype) if dtype.is_floating_point else made.abs().to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_running_sums_of_each_dtype(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.cumsum(-1), y.cumsum(2), x.t().cumsum(-1), y[:, ::2].cumsum(-1), x[:, :1].cumsum(1)

    exact = not dtype.is_floating_point
    captured = lowered(fn, several(dtype, 5, 37), several(dtype, 2, 4, 9), whole=None, exact=exact)
    assert kinds(captured.program).count("cumsum") >= 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.uint8], ids=str)
def test_running_sums_to_another_dtype(dtype: torch.dtype) -> None:
    x = several(torch.float32, 4, 300) * 40
    lowered(lambda x: x.abs().cumsum(-1, dtype=dtype), x, exact=not dtype.is_floating_point)


def test_a_running_sum_fuses_with_what_is_around_it() -> None:
    def top_p(logits: torch.Tensor) -> torch.Tensor:
        p = logits.softmax(-1)
        return torch.where(p.cumsum(-1) - p > 0.9, float("-inf"), logits)

    captured = lowered(top_p, torch.randn(3, 50))
    assert kinds(captured.program).count("cumsum") == 1


def test_a_running_sum_of_symbolic_sizes() -> None:
    lowered(lambda x: (x * 2).cumsum(-1) + 1, torch.randn(3, 17), dynamic=True)


WHOLE: dict[str, tuple[Callable[[torch.Tensor], Any], torch.Tensor]] = {
    "a single row": (lambda x: x.cumsum(0), torch.randn(9)),
    "a single row among ones": (lambda x: x.cumsum(1), torch.randn(1, 9, 1)),
    "across rows": (lambda x: x.cumsum(0), torch.randn(5, 4)),
    "float64": (lambda x: x.cumsum(-1), torch.randn(5, 4).double()),
    "nothing": (lambda x: x.cumsum(-1), torch.randn(5, 0)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_runs_as_a_whole(name: str) -> None:
    fn, x = WHOLE[name]
    lowered(fn, x, whole=["cumsum.default"])


def test_a_backend_without_scans_gets_the_operator() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.ops.aten.cumsum.default, (x, 1)),))
    module = fx.GraphModule(torch.nn.Module(), graph)
    assert kinds(faked(module, torch.randn(3, 4), policy=replace(GPU, scans=frozenset()))) == ["cumsum.default"]
    assert kinds(faked(module, torch.randn(3, 4))) == ["cumsum"]
    assert kinds(faked(module, torch.randn(3, 4).double(), policy=GPU)) == ["cumsum"]


def test_a_scan_that_is_not_innermost_is_refused() -> None:
    captured: Captured = lowered(lambda x: x.cumsum(-1), torch.randn(3, 4))
    program = captured.program
    (step,) = program.steps
    assert isinstance(step, Computed)
    program.steps[0] = Computed(
        step.buffer, step.vars, step.place, step.value, step.reduced, step.kind, (*step.reduced, *step.vars)
    )
    with pytest.raises(BackendFailed, match="innermost"):
        program.verify()


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=4),
    st.integers(0, 3),
    st.sampled_from([torch.float32, torch.int64, torch.bool, torch.bfloat16]),
    st.randoms(use_true_random=False),
)
def test_running_sums_of_any_layout(size: list[int], dim: int, dtype: torch.dtype, dice: Any) -> None:
    order = list(range(len(size)))
    dice.shuffle(order)
    x = several(dtype, *size).permute(order)
    lowered(lambda x: (x.cumsum(dim % len(size)), x.cumsum(-1) + 1), x, whole=None, exact=dtype is torch.int64)


OTHERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "cumprod": lambda x: (x.cumprod(-1), x.t().cumprod(-1)),
    "cummax": lambda x: (torch.cummax(x, -1), torch.cummax(x, 0)),
    "cummin": lambda x: (torch.cummin(x, -1), torch.cummin(x, 0)),
    "logcumsumexp": lambda x: (x.logcumsumexp(-1), x.float().logcumsumexp(0)),
}


@pytest.mark.parametrize("policy", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool], ids=str)
def test_other_scans(name: str, dtype: torch.dtype, policy: Policy) -> None:
    if name == "logcumsumexp" and not dtype.is_floating_point:
        pytest.skip("of floats")
    for dynamic in (False, True):
        lowered(OTHERS[name], several(dtype, 6, 9), whole=None, policy=policy, dynamic=dynamic)


FUSED: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
    "top p": (lambda x: torch.where(x.softmax(-1).cumsum(-1) - x.softmax(-1) > 0.9, float("-inf"), x), 1),
    "a gated recurrence": (lambda x: x.sigmoid().log().cumsum(-1).exp() * x, 1),
    "an extreme and where it is": (lambda x: torch.cummax(x * 2, -1), 1),
    "of two": (lambda x: (x.cumsum(-1) - (x * x).cumsum(-1)).cumprod(-1), 1),
}


@pytest.mark.parametrize("policy", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("name", FUSED)
def test_a_scan_is_one_kernel_with_what_is_around_it(name: str, policy: Policy) -> None:
    fn, number = FUSED[name]
    made = schedule(lowered(fn, torch.randn(300, 50), policy=policy).program, policy=policy)
    assert len(made.items) == number, str(made)
    if name != "top p":
        assert not any(kernel.scratch for kernel in made.items if isinstance(kernel, Kernel))
