"""Scatters without a copy first: into temporaries, and into inputs that get the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from index_programs import POLICY, different, drawn, normal
from lowering.graphs import Captured

import jitney
from jitney_lowering import Schedule, schedule
from jitney_lowering.ir import Extern, Kernel


class Scheduled(Captured):
    """Notes schedules too."""

    def __init__(self) -> None:
        super().__init__(policy=POLICY)
        self.schedules: list[Schedule] = []

    def _compile(self, graph: Any, inputs: Any, request: Any) -> Callable[..., Any]:
        run = super()._compile(graph, inputs, request)
        self.schedules.append(schedule(self.programs[-1], request.updates, policy=POLICY))
        return run


def scheduled(fn: Callable[..., Any], *args: torch.Tensor) -> Schedule:
    captured = Scheduled()
    wanted, given = [a.clone() for a in args], [a.clone() for a in args]
    torch.testing.assert_close(
        (jitney.compile(fn, backend=captured.backend, fullgraph=True)(*given), given), (fn(*wanted), wanted)
    )
    (made,) = captured.schedules
    return made


def copies(made: Schedule) -> int:
    """Kernels that only copy, element by element."""
    kernels = [str(item) for item in made.items if isinstance(item, Kernel)]
    return sum("] = in0[" in text and "s0:" not in text for text in kernels)


def test_an_input_is_changed_where_it_is() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.index_copy_(0, i, y)
        return x.sum(-1)

    made = scheduled(fn, normal(9, 5), different(9, 3), normal(3, 5))
    assert made.filled == {"s0": "in0"} and len(made.items) == 2 and copies(made) == 0


def test_sums_in_an_input_come_last() -> None:
    def ends(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> None:
        x.index_add_(0, i, y @ y)

    def goes_on(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.index_add_(0, i, y)
        return x @ x

    args = normal(9, 9), drawn(9, 9), normal(9, 9)
    assert [*scheduled(ends, *args).filled] == ["s0"]
    made = scheduled(goes_on, *args)  # what fails then is done again, with what was there
    assert not made.filled and copies(made) == 1


def test_stores_over_what_nobody_has_read_may_come_before_operators() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[i] = y
        return x @ x

    def reads(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = x.sum(-1)
        x[i] = y
        return before, x @ x

    def fails_before(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = torch.linalg.inv(y @ y.t())
        x[i] = z @ y
        return z @ z

    args = normal(9, 9), different(9, 4), normal(4, 9)
    assert scheduled(fn, *args).filled == {"s0": "in0"}
    assert not scheduled(reads, *args).filled
    made = scheduled(fails_before, *args)
    kinds = [isinstance(item, Extern) for item in made.items]
    assert not made.filled or kinds.index(False) > 1


def test_an_input_that_is_read_later_keeps_its_numbers() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.index_add(0, i, y), x.index_add(0, i, y * 2).sum(0)

    made = scheduled(fn, normal(9, 5), drawn(9, 4), normal(4, 5))
    assert not made.filled and copies(made) >= 1


@pytest.mark.parametrize("count", [1, 3])
def test_temporaries_are_changed_where_they_are(count: int) -> None:
    def fn(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x @ x
        for n in range(count):
            z = z.index_add(0, i, y + n)
        return z

    made = scheduled(fn, normal(9, 9), drawn(9, 4), normal(4, 9))
    assert len(made.items) == 1 + count and isinstance(made.items[0], Extern)
    homes = {b.home[0] for b in made.program.buffers.values() if b.home and b.name.startswith("s")}
    assert homes == {"x0"}


@pytest.mark.parametrize(("keys", "elements", "kernels"), [(4, 4096, 3), (200, 256, 3), (40_000, 1 << 17, 4)])
def test_crowded_and_few_sums_go_together(keys: int, elements: int, kernels: int) -> None:
    """Sums and counts by key: their zeros, the scatters, what they end in; one kernel more if places are many."""

    def fn(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sums = torch.zeros(keys).index_add_(0, i, y)
        counts = torch.zeros_like(sums).index_add_(0, i, torch.ones_like(y))
        return sums / counts.clamp(min=1), sums

    made = scheduled(fn, drawn(keys, elements), normal(elements))
    assert len(made.items) == kernels
    made.verify()


def test_what_reads_a_sum_waits_for_all_of_it() -> None:
    def fn(i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        sums = torch.zeros(4).index_add_(0, i, y)
        return torch.zeros(4).index_add_(0, i, y - sums[i])

    made = scheduled(fn, drawn(4, 4096), normal(4096))
    scatters = [n for n, item in enumerate(made.items) if "sum=" in str(item)]
    assert len(scatters) == 2


def test_a_temporary_that_is_read_later_is_copied() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = x @ x
        return z.index_add(0, i, y), z @ x

    made = scheduled(fn, normal(9, 9), drawn(9, 4), normal(4, 9))
    assert sum(isinstance(item, Kernel) for item in made.items) == 2
    assert made.program.buffers["s0"].home is None


def test_deterministic_algorithms_are_operators() -> None:
    def fn(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [x.index_add(0, i, y), x.index_put((i,), y, accumulate=True), x.index_fill(0, i, 1.0)]

    torch.use_deterministic_algorithms(True)
    try:
        made = scheduled(fn, normal(9, 5), drawn(9, 4), normal(4, 5))
    finally:
        torch.use_deterministic_algorithms(False)
    assert [str(i.target) for i in made.items if isinstance(i, Extern)] == [
        "aten.index_add.default", "aten.index_put.default",
    ]  # fmt: skip


@pytest.mark.parametrize("rows", [1, 4])
def test_a_copy_is_made_before_what_changes_its_source(rows: int) -> None:
    """A kernel fewer would be needed if it came later, beside one of equal ranges."""

    def fn(state: torch.Tensor, values: torch.Tensor, x: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, ...]:
        copied = state.index_add(0, torch.arange(rows), values)
        state.scatter_reduce_(0, torch.arange(rows)[:, None].expand_as(x), x, "mean")
        return u + 1, copied

    args = [normal(rows, 3) for _ in range(4)]
    sides = []
    for run in (fn, jitney.compile(fn, backend="triton_gpu")):
        given = [a.clone() for a in args]
        sides.append((run(*given), given))
    torch.testing.assert_close(sides[1], sides[0])


def test_a_scatter_waits_for_one_that_it_reads() -> None:
    def fn(total: torch.Tensor, counts: torch.Tensor, i: torch.Tensor, x: torch.Tensor) -> None:
        total.index_add_(0, torch.zeros_like(i), x)
        counts.index_add_(0, i, x / total)

    sides = []
    for run in (fn, jitney.compile(fn, backend="triton_gpu")):
        given = (torch.zeros(1), torch.zeros(10), torch.arange(64) % 10, torch.arange(64.0) + 1)
        run(*given)
        sides.append(given)
    torch.testing.assert_close(sides[1], sides[0])


def climbed(tree: torch.Tensor, i: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A tree of sums: each change of leaves goes up to the root."""
    tree[i] = values
    for _ in range(4):
        i = i // 2
        tree[i] = tree[2 * i] + tree[2 * i + 1]
    return tree[1:8].clone()


def test_what_a_scatter_computes_of_what_it_changes_is_computed_before() -> None:
    """A chain of them: all in the input, without a copy."""
    made = scheduled(climbed, normal(512), different(256, 7) + 256, normal(7))
    assert made.filled == {f"s{n}": "in0" for n in range(5)}
    assert copies(made) == 0 and not any("] = s" in str(item) and "512" in str(item) for item in made.items)
    assert sum("c" in name for item in made.items for name in item.writes) == 4


def test_much_that_a_scatter_computes_of_what_it_changes_is_not_kept() -> None:
    made = scheduled(climbed, normal(64), different(32, 24) + 32, normal(24))
    assert len(made.filled) < 5


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "llvm_cpu", "triton_gpu"])
def test_chains_of_scatters_are_eagers(backend: str, keeps: bool) -> None:
    """Places that depend on what is changed, sums beside stores, a state between that somebody has, a second call."""

    def fn(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kept = []
        x[x[i].abs() % 128] = x[i] // 2
        x.index_add_(0, i, x[(i + 1) % 128])
        if keeps:
            kept.append(x * 2)
            kept.append(x.clone())
        x[i] = x[(i + 64) % 128] + x[0]
        x.scatter_reduce_(0, i, x[i] - 3, "amax")
        return (x.sum(), *kept)

    compiled = jitney.compile(fn, backend=backend, fullgraph=True)
    wanted = torch.arange(128) * 7 % 120
    given = wanted.clone()
    for step in (8, 16):
        i = torch.arange(0, 128, step)[1:] - 1
        torch.testing.assert_close(compiled(given, i), fn(wanted, i))
        assert torch.equal(given, wanted)


def test_what_is_computed_before_a_scatter_does_not_have_the_name_of_a_scan() -> None:
    def fn(x: torch.Tensor, at: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.clone()
        rows = torch.arange(x.size(0))
        for step in range(3):
            y[rows, (at + step).clamp(0, 11)] |= mask
        covered = y.cumsum(1) > 0
        return (covered & ~y).sum((1, 2)), covered

    drawn = torch.Generator().manual_seed(0)
    x, mask = torch.rand(20, 12, 8, generator=drawn) < 0.3, torch.rand(20, 8, generator=drawn) < 0.5
    made = scheduled(fn, x, torch.randint(12, (20,), generator=drawn), mask)
    written = [(name, item) for item in made.items if isinstance(item, Kernel) for name in item.writes]
    assert len({name for name, _ in written}) == len(written)
    for name, item in written:
        assert item.buffers[name] is made.program.buffers[name].dtype
