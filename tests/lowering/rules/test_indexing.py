"""Loads at computed places, as the reference runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from index_programs import GRADIENTS, POLICY, READS, WHOLE, WRITES, WRONG, drawn, normal, refuses
from lowering.graphs import Captured, kinds, lowered, trained

import jitney
from jitney_lowering import CPU
from jitney_lowering.index import Size, index
from jitney_lowering.ir import Checked, Computed, apply, constant, load, position, walk
from jitney_lowering.ir.intervals import interval


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", READS)
def test_reads_are_loops(name: str, dynamic: bool) -> None:
    fn, make = READS[name]
    lowered(fn, *make(), whole=WHOLE.get(name, ()), dynamic=dynamic, policy=POLICY)


@pytest.mark.parametrize("name", READS)
def test_reads_where_operators_run_as_a_whole(name: str) -> None:
    fn, make = READS[name]
    lowered(fn, *make(), whole=None, policy=replace(CPU, fused_gathers=False))


@pytest.mark.parametrize("name", READS)
def test_reads_where_nothing_stops_kernels(name: str) -> None:
    fn, make = READS[name]
    joins = ["cat.default"] if name in ("of joined parts", "in a part") else []  # which has no work
    lowered(fn, *make(), whole=[*(WHOLE.get(name) or []), *joins])


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_writes_are_loops(name: str, dynamic: bool) -> None:
    fn, make = WRITES[name]
    lowered(fn, *make(), whole=WHOLE.get(name, ()), dynamic=dynamic, policy=POLICY)


@pytest.mark.parametrize("name", WRITES)
def test_writes_where_operators_run_as_a_whole(name: str) -> None:
    fn, make = WRITES[name]
    lowered(fn, *make(), whole=None)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_reads_are_loops(name: str, dynamic: bool) -> None:
    fn, make = GRADIENTS[name]
    x, *rest = make()
    trained(fn, x.requires_grad_(), *rest, dynamic=dynamic, policy=POLICY)


@pytest.mark.parametrize("place", [6, -7, 2**40, -(2**40)])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_index_is_an_error(name: str, place: int) -> None:
    refuses(jitney.compile(WRONG[name][0], backend=Captured(policy=POLICY).backend, fullgraph=True), name, place)


def checks(captured: Captured) -> int:
    """How many different values are checked, or buffers looked at."""
    steps = [s for s in captured.program.steps if isinstance(s, Computed)]
    return len({v for s in steps for v in walk(s.value) if isinstance(v, Checked)}) + len(captured.program.checks)


@pytest.mark.parametrize("name", ["the greatest", "sorted", "remainders", "remainders of a size", "a range"])
def test_what_is_in_range_is_not_looked_at(name: str) -> None:
    fn, make = READS[name]
    assert checks(lowered(fn, *make(), whole=None, policy=POLICY)) == 0


def test_symbolic_sizes_are_proofs_too() -> None:
    fn, make = READS["the greatest"]
    assert checks(lowered(fn, *make(), whole=None, dynamic=True, policy=POLICY)) == 0


def test_what_is_drawn_or_found_is_in_range() -> None:
    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        best, places = x.topk(2, 0)
        return [x[torch.randint(6, (3,))], x[torch.randperm(6)], x[torch.randint(2, 5, (3,))], x.gather(0, places),
                x[x.max(0)[1]], x[torch.multinomial(x[0].abs(), 2)]]  # fmt: skip

    captured = Captured(policy=POLICY)
    jitney.compile(fn, backend=captured.backend, fullgraph=True)(normal(6, 5))
    assert checks(captured) == 0


def test_an_index_is_looked_at_once_without_assertions() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        return [x.exp()[i], y.exp()[i], x.sin()[i]]

    assert len(lowered(fn, normal(60, 5), normal(60, 5), drawn(60, 7)).program.checks) == 1


def test_a_row_that_is_picked_is_never_stored() -> None:
    captured = lowered(READS["messages along edges"][0], *READS["messages along edges"][1](), policy=POLICY)
    assert kinds(captured.program) == ["sum", "pointwise"]


def bagged(w: torch.Tensor, i: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    return F.embedding_bag(i, w, starts, mode="mean").exp()


def test_gradients_of_bags_of_any_size_are_loops() -> None:
    args = (normal(9, 5).requires_grad_(), drawn(9, 20), torch.tensor([0, 3, 3, 10]))
    trained(bagged, *args, policy=POLICY, whole=["_embedding_bag.default"])


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("padding", [-1, 2])
def test_all_results_of_bags(mode: str, padding: int) -> None:
    def fn(w: torch.Tensor, i: torch.Tensor) -> Any:
        starts = torch.arange(0, 24, 6)
        return torch.embedding_bag(w, i, starts, False, int(mode == "mean"), False, None, False, padding)

    for dtype in (torch.float32, torch.bfloat16):
        lowered(fn, normal(9, 5).to(dtype), drawn(9, 24), policy=POLICY)


def test_between_what_values_lie() -> None:
    n = Size("n", 1)
    held = load("b", index(n) - 1, torch.int64)
    assert interval(held, {}) == (None, None)
    assert [str(end) for end in interval(held, {"b": index(n)})] == ["0", "n - 1"]
    below = apply("remainder", held, position(index(n)))
    assert [str(end) for end in interval(below, {})] == ["0", "n - 1"]
    limited = apply("minimum", apply("maximum", held, constant(0, torch.int64)), constant(7, torch.int64))
    assert [str(end) for end in interval(limited, {})] == ["0", "7"]
    turned = apply("sub", constant(7, torch.int64), limited)
    assert [str(end) for end in interval(turned, {})] == ["0", "7"]
    around = apply("add", limited, constant(2**62, torch.int64))
    assert interval(around, {}) == (None, None)


WRONG_SIZES: dict[str, Callable[..., Any]] = {
    "index_add": lambda x, i: x.index_add(1, i, torch.ones(9, 5)),
    "index_add, rows": lambda x, i: x.index_add(0, i, torch.ones(4, 6)),
    "index_copy": lambda x, i: x.index_copy(0, i, torch.ones(5, 7)),
    "index_put": lambda x, i: x.index_put((i,), torch.ones(4, 6)),
    "index_put, added": lambda x, i: x.index_put((i,), torch.ones(5, 2), accumulate=True),
    "slice_scatter": lambda x, i: x.slice_scatter(torch.ones(4, 6), 0, 1, 3),
    "slice_scatter, step": lambda x, i: (
        x.slice_scatter(torch.ones(2, 6), 0, 1, 4, 2) + x.slice_scatter(x[:3], 0, 1, 4, 2)
    ),
    "slice_scatter, columns": lambda x, i: x.slice_scatter(torch.ones(2, 5), 0, 1, 3),
    "select_scatter": lambda x, i: x.select_scatter(torch.ones(9), 0, 1),
    "as_strided_scatter": lambda x, i: x.as_strided_scatter(torch.ones(3), (4,), (7,)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", WRONG_SIZES)
def test_a_source_of_another_size_is_refused_as_in_eager(case: str, dynamic: bool) -> None:
    x, i = torch.zeros(4, 6), torch.tensor([0, 2, 1, 3, 0])
    with pytest.raises(RuntimeError):
        WRONG_SIZES[case](x, i)
    with pytest.raises(RuntimeError):
        jitney.compile(WRONG_SIZES[case], backend="llvm_cpu", dynamic=dynamic)(x, i)
