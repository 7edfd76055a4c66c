"""Short loops of kernels are written out where vectors along the rows are faster; the numbers are the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering.graphs import lowered

import jitney
from jitney_lowering import CPU, GPU
from jitney_lowering.ir import Accumulate, Kernel
from jitney_lowering.scheduler import schedule

BY_ROWS = replace(CPU, row_lanes=False, short_row=0)


def kernels(fn: Callable[..., object], *args: torch.Tensor, policy: object = CPU) -> list[Kernel]:
    made = schedule(lowered(fn, *args).program, policy=policy)  # type: ignore[arg-type]
    return [item for item in made.items if isinstance(item, Kernel)]


def innermost(kernel: Kernel) -> list[int | None]:
    return [nest.loops[-1].size.value if nest.loops else 1 for nest in kernel.body]


def distances(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A vector for each row, which somebody else reads, and a sum over all rows."""
    apart = a - b
    return apart, apart.norm(dim=-1).clamp(max=3).sum()


def strikes(path: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """A few sums over rows, of what takes long to compute once for each row."""
    for _ in range(6):
        path = (path + path.abs().sqrt() * 0.1).tanh()
    return (path[:, None] - at).relu().sum(0)


def both_ways(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums over two of three dimensions, the last of which is short."""
    return x.sum(0), x.neg().sum(1)


def test_a_sum_over_rows_goes_along_with_what_is_stored_for_each() -> None:
    (kernel,) = kernels(distances, torch.randn(64, 96, 3), torch.randn(64, 96, 3))
    assert innermost(kernel) == [64 * 96]


def test_what_a_row_has_in_common_is_computed_in_vectors() -> None:
    (kernel, *_) = kernels(strikes, torch.randn(4096), torch.randn(9))
    assert innermost(kernel) == [4096]
    assert sum(isinstance(s, Accumulate) for s in kernel.body[0].statements) == 9


def test_blocks_of_rows_where_the_outer_loops_are_few() -> None:
    (kernel,) = kernels(distances, torch.randn(2, 4096, 3), torch.randn(4096, 3))
    assert [v.size.value for v in kernel.outer] == [2, 4]
    assert innermost(kernel) == [1024]


def test_only_the_loop_that_is_short_is_written_out() -> None:
    (kernel,) = kernels(both_ways, torch.randn(32, 768, 3))
    assert max(n or 0 for n in innermost(kernel)) == 768


@pytest.mark.parametrize("length", [5, 8, 15])
def test_short_columns_are_summed_result_by_result(length: int) -> None:
    (kernel,) = kernels(lambda x: (x * x).sum(0), torch.randn(length, 200, 40))
    assert not kernel.partials


def test_longer_columns_are_added_up_row_by_row() -> None:
    (kernel,) = kernels(lambda x: (x * x).sum(0), torch.randn(64, 200, 40))
    assert kernel.partials


def test_sums_of_halves_stay_in_float32() -> None:
    x = torch.full((4096, 3), 0.1, dtype=torch.bfloat16)

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, x.sum(0)

    torch.testing.assert_close(jitney.compile(fn, backend="llvm_cpu")(x), fn(x))


PROGRAMS: dict[str, Callable[[torch.Tensor], object]] = {
    "distances": lambda x: distances(x, x.flip(-2)),
    "strikes": lambda x: strikes(x[..., 0].reshape(-1), x.reshape(-1)[: x.shape[-1]]),
    "both ways": lambda x: (x.sum(0), x.neg().sum(1), x.amax((0, 1))),
    "extremes": lambda x: ((x * 2).amax(-1).amin(0), x.exp()),
    "products": lambda x: ((x * 0.1 + 1).prod(-1).sum(1), x.cos()),
    "truth": lambda x: ((x > 0.5).any(-1).all(0), (x > 0).sum((0, 1))),
    "columns": lambda x: x.transpose(0, -1).square().sum(0),
    "weights": lambda x: (x.softmax(-1), (x.softmax(-1) * x).sum((0, 1))),
    "places": lambda x: (x.argmax(-1), x.sum((0, 1))),
    "running": lambda x: (x.cumsum(-1), x.sum(0)),
    "shifted": lambda x: (x.roll(1, -1) - x, (x.roll(1, -1) - x).abs().sum()),
    "padded": lambda x: torch.nn.functional.pad(x, (1, 1)).unfold(-1, 3, 1).square().sum(-1).sum(1),
}


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([*PROGRAMS]),
    st.sampled_from([(3, 50), (17, 64), (2, 400), (40, 40), (1, 33), (5, 1)]),
    st.integers(1, 16),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int32]),
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_numbers_are_those_of_rows(
    name: str, rows: tuple[int, int], length: int, dtype: torch.dtype, dynamic: bool, threads: int
) -> None:
    if dtype is torch.int32 and name in ("distances", "strikes", "weights", "products", "extremes"):
        dtype = torch.float32
    torch.manual_seed(0)
    x = (torch.randn(*rows, length) * 4).to(dtype)
    fn = PROGRAMS[name]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = jitney.compile(fn, backend="llvm_cpu", dynamic=dynamic)(x)
    finally:
        torch.set_num_threads(before)
    exact = fn(x.double() if dtype.is_floating_point else x)
    for ours, theirs, eager in zip(*(torch.utils._pytree.tree_leaves(r) for r in (found, exact, fn(x))), strict=True):
        assert ours.dtype is eager.dtype and ours.stride() == eager.stride()
        if not dtype.is_floating_point or not ours.dtype.is_floating_point:
            torch.testing.assert_close(ours, eager, rtol=0, atol=0)
            continue
        error, allowed = (ours.double() - theirs).abs().max(), (eager.double() - theirs).abs().max()
        assert error <= 2 * allowed + 1e-6 * theirs.abs().max() + 1e-12, (name, float(error), float(allowed))


def priced(path: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same, with something stored for each row, and a mean."""
    for _ in range(6):
        path = (path + path.abs().sqrt() * 0.1).tanh()
    return path, (path[:, None] - at).relu().mean(0)


def apart(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """What is stored lies far apart for threads that are rows, and there is nothing to spare."""
    return (x[:, None] - at) * 2


def test_threads_are_rows_where_these_have_much_in_common() -> None:
    path, at = torch.randn(1 << 16), torch.randn(9)
    (kernel, *_) = kernels(strikes, path, at, policy=GPU)
    assert innermost(kernel) == [1 << 16] and not kernel.outer
    assert sum(isinstance(s, Accumulate) for s in kernel.body[0].statements) == 9
    (kernel, *_) = kernels(strikes, path[:1000], at, policy=GPU)
    assert innermost(kernel)[-1] == 9  # too few rows
    (kernel, *_) = kernels(strikes, path, torch.randn(90), policy=GPU)
    assert innermost(kernel)[-1] == 90
    (kernel, *_) = kernels(apart, path, at, policy=GPU)
    assert 1 << 16 not in innermost(kernel)


@pytest.mark.parametrize("fn", [strikes, priced, distances], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("length", [1, 3, 9, 16])
def test_numbers_where_threads_are_rows(fn: Callable[..., object], length: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = torch.randn(1 << 16, device=device), torch.randn(length, device=device)
    if fn is distances:
        x, y = (torch.randn(1 << 16, length, device=device) for _ in range(2))
    found = jitney.compile(fn, backend="triton_gpu", fullgraph=True)(x, y)
    torch.testing.assert_close(found, fn(x, y), rtol=1e-4, atol=1e-4)
