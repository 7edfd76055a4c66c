"""Short rows written out: what becomes of typical groups, and that texts of them stay readable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from lowering.graphs import lowered

from jitney_lowering import CPU, GPU
from jitney_lowering.index import Var, index
from jitney_lowering.ir import Constant, Kernel, apply, constant, position
from jitney_lowering.ir.fold import folded
from jitney_lowering.scheduler import Schedule, schedule


def scheduled(fn: Callable[..., torch.Tensor], *args: torch.Tensor, **changes: int) -> Schedule:
    return schedule(lowered(fn, *args).program, policy=replace(GPU, **changes))  # type: ignore[arg-type]


def only(made: Schedule) -> Kernel:
    (kernel,) = made.items
    assert isinstance(kernel, Kernel)
    return kernel


def turned(x: torch.Tensor) -> torch.Tensor:
    return x.exp() * x.exp().flip(-1) / x.norm(dim=-1, keepdim=True)


def stores(kernel: Kernel) -> list[int]:
    return [len(nest.statements) for nest in kernel.body]


def test_rows_of_three_are_threads_with_three_stores() -> None:
    kernel = only(scheduled(turned, torch.randn(1000, 3)))
    assert (stores(kernel), kernel.scratch) == ([3], ())
    assert [v.size.value for v in (*kernel.outer, *kernel.body[0].loops)] == [1000]


def shaded(colours: torch.Tensor, normals: torch.Tensor, rough: torch.Tensor) -> torch.Tensor:
    """Planes of colours, with what their pixels have in common in between."""
    seen = colours
    for _ in range(3):
        half = F.normalize(normals + seen, dim=0)
        shine = (half * normals).sum(0, keepdim=True).clamp(min=0) / (rough + 1)
        seen = seen + shine * colours
    return seen.clamp(0, 1)


def test_planes_are_rows_of_what_their_pixels_have_in_common() -> None:
    kernel = only(scheduled(shaded, torch.rand(3, 40, 50), torch.randn(3, 40, 50), torch.rand(1, 40, 50)))
    assert not kernel.scratch
    assert [v.size.value for v in (*kernel.outer, *kernel.body[0].loops)] == [2000]


def test_a_copy_the_other_way_round_is_a_kernel_of_its_own() -> None:
    made = scheduled(lambda x: x.exp().t().contiguous().sin().t() + x, torch.randn(64, 64))
    assert all(not isinstance(item, Kernel) or not item.scratch for item in made.items)


def test_longer_rows_that_need_scratch_are_threads_for_elements_where_that_is_cheap() -> None:
    kernel = only(scheduled(lambda x: (x * 2).sin() * (x * 2).sin()[:, :1], torch.randn(1000, 8)))
    assert (stores(kernel), kernel.scratch) == ([1], ())
    assert [v.size.value for v in (*kernel.outer, *kernel.body[0].loops)] == [1000, 8]


@pytest.mark.parametrize("length", [5, 8])
def test_longer_rows_stay_rows_where_these_need_no_scratch(length: int) -> None:
    kernel = only(scheduled(lambda x: x.softmax(-1), torch.randn(1000, length)))
    assert len(kernel.body) > 1


def test_what_is_shared_is_printed_once() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        for _ in range(30):
            x = (x.flip(-1) * x).exp() - x.sum(-1, keepdim=True)
        return x

    assert len(str(scheduled(fn, torch.zeros(1000, 3)))) < 200_000


def test_folding() -> None:
    numbers = [constant(n, torch.float32) for n in (1.0, float("nan"), 3.0)]
    (first,) = [v for v in [folded("argmax", [constant(n, torch.int64) for n in (2, 5, 5)])] if isinstance(v, Constant)]
    assert first.value == 1
    assert str(folded("sum", numbers)).startswith("(((0.0 + 1.0)")
    assert folded("sum", [constant(1.0, torch.bfloat16)] * 2).dtype is torch.bfloat16
    truth = apply("lt", position(index(Var("d0", 9))), constant(4, torch.int64))
    assert folded("all", [truth, constant(True, torch.bool)]) is truth
    assert folded("any", [truth, constant(True, torch.bool)]) is constant(True, torch.bool)


def on_a_cpu(fn: Callable[..., torch.Tensor], *args: torch.Tensor) -> list[Kernel]:
    made = schedule(lowered(fn, *args, policy=CPU).program, policy=CPU)
    return [item for item in made.items if isinstance(item, Kernel)]


def test_on_a_cpu_lanes_of_vectors_are_rows() -> None:
    for fn in (turned, lambda x: x.softmax(-1), lambda x: x * x[:, :1] + x.new_ones(1000, 1)):
        (kernel,) = on_a_cpu(fn, torch.randn(1000, 3))
        assert (stores(kernel), kernel.scratch) == ([3], ())
        assert [v.size.value for v in (*kernel.outer, *kernel.body[0].loops)] == [1000]


def test_on_a_cpu_what_lies_in_order_needs_no_rows() -> None:
    (kernel,) = on_a_cpu(lambda x: x.exp(), torch.randn(1000, 3))
    assert [v.size.value for v in (*kernel.outer, *kernel.body[0].loops)] == [3000]


def test_on_a_cpu_a_reduction_of_few_results_stays_where_its_elements_are() -> None:
    (kernel,) = on_a_cpu(lambda x: (x.exp().sum((1, 3))[..., None]).sum(1), torch.randn(8, 4, 2, 1000))
    assert kernel.outer
    many = on_a_cpu(lambda x: x.exp().sum(1), torch.randn(8, 4, 1000))
    assert [(stores(kernel), kernel.scratch) for kernel in many] == [([1], ())]


def test_on_a_cpu_what_colours_have_in_common_is_computed_once() -> None:
    def fn(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, grid, mode="nearest", align_corners=False) * 2

    (kernel,) = on_a_cpu(fn, torch.randn(4, 3, 20, 20), 2 * torch.rand(4, 20, 30, 2) - 1)
    assert stores(kernel) == [3]
    assert [v.size.value for v in (*kernel.outer, *kernel.body[0].loops)] == [4, 600]


def test_what_is_written_out_is_given_no_more_than_it_reads() -> None:
    def hidden(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        product = x @ y
        product[:, 1:] = 0
        return product[:, 1:] @ y[1:]

    captured = lowered(hidden, torch.randn(72, 6), torch.randn(6, 6), whole=["mm.default"] * 2)
    _, kernel, _ = schedule(captured.program, policy=CPU).items
    assert isinstance(kernel, Kernel)
    assert kernel.buffers.keys() == kernel.writes, "it is given the product, which is gone by then"
