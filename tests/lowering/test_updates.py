"""Caches, averages and buffers of inputs are written where they are; the numbers and the errors stay eager's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import jitney
from jitney.backends import Backend
from jitney_lowering import CPU, Schedule, decompositions, lower, needed_bytes, schedule
from jitney_lowering.ir import Extern, Kernel, Program, Strided

T = torch.Tensor
Make = Callable[[], tuple[Any, ...]]


def cache() -> T:
    return torch.randn(3, 8, 4)


def decode(k: T, at: T, new: T, q: T) -> T:
    k.index_copy_(1, at, new)
    return torch.softmax(q @ k.mT, -1) @ k


def by_slice(k: T, new: T) -> T:
    k[:, 2:4] = new
    return k.sum(1)


def nested(k: T, new: T) -> T:
    k[1, 2:6:2] = new
    return k.mean(-1)


def twice(k: T, new: T) -> T:
    k[0] = new
    first = k.sum()
    k[:, -1] += first
    return k * 2


def pages(k: T, rows: T, columns: T, new: T) -> T:
    k[0].index_put_((rows, columns), new)
    k[1].index_put_((rows, columns), new)
    return k[0][rows].relu()


def ring(at: T, k: T, new: T, rows: T) -> T:
    """The position changes after all that may fail."""
    places = (at + torch.arange(2, device=at.device)) % 3
    k[places] = new
    at += 2
    return k[rows] * 2


def looked_up(k: T, table: T, at: T, new: T) -> T:
    """Whether ``at`` is in the table is known before the write."""
    k[table[at]] = new
    return k[0] + k[table[at]].sum(0)


def counts(k: T, at: T, new: T) -> T:
    k.index_add_(0, at, new)
    return k.exp()


def sums_and_more(k: T, at: T, new: T) -> T:
    k.index_add_(0, at, new)
    k.scatter_add_(1, at[:, None, None].expand(2, 1, 4), new[:, :1])
    return k.index_select(0, at)


def read_before(k: T, new: T) -> tuple[T, T]:
    old = k[:, 2:4] * 3
    view = k[1]
    other = view.sum(0)
    k[:, 2:4] = new
    return old, other


def copied_after(k: T, new: T) -> T:
    k[:, 2:4] = new
    return k.clone()


def negative(k: T, new: T) -> T:
    k[-1, -2] = new[0, 0]
    return k[-1]


IN_PLACE: dict[str, tuple[Callable[..., Any], Make, list[str]]] = {
    "a decoder's cache": (
        decode, lambda: (cache(), torch.tensor([5]), torch.randn(3, 1, 4), torch.randn(3, 2, 4)),
        ["index_copy_.default", "bmm.default", "bmm.default"],
    ),
    "a slice": (by_slice, lambda: (cache(), torch.randn(3, 2, 4)), ["copy_.default"]),
    "a slice of a part": (nested, lambda: (cache(), torch.randn(2, 4)), ["copy_.default"]),
    "two writes": (twice, lambda: (cache(), torch.randn(8, 4)), 3 * ["copy_.default"]),
    "pages": (
        pages,
        lambda: (cache(), torch.tensor([0, 3]), torch.tensor([1, 2]), torch.randn(2)),
        ["index_put_.default", "index_put_.default"],
    ),
    "a ring": (
        ring,
        lambda: (torch.tensor(2), cache(), torch.randn(2, 8, 4), torch.tensor([0, 2, -1])),
        ["index_put_.default"],
    ),
    "a place in a table": (
        looked_up,
        lambda: (cache(), torch.tensor([2, 0, 1]), torch.tensor([1, -1]), torch.randn(2, 8, 4)),
        ["index_put_.default"],
    ),
    "sums": (
        counts,
        lambda: (cache(), torch.tensor([1, 0]), torch.randn(2, 8, 4)),
        ["index_add_.default"],
    ),
    "what is read before": (read_before, lambda: (cache(), torch.randn(3, 2, 4)), ["copy_.default"]),
    "a copy afterwards": (copied_after, lambda: (cache(), torch.randn(3, 2, 4)), ["copy_.default"]),
    "counted from the end": (negative, lambda: (cache(), torch.randn(3, 2, 4)), ["copy_.default"]),
}  # fmt: skip


def read_later(k: T, new: T) -> T:
    old = k.clone()
    k[:, 2:4] = new
    return old + 1


def swapped(k: T, l: T) -> T:  # noqa: E741
    k[0], l[0] = l[0].clone(), k[0].clone()
    return k + l


def everywhere(k: T, new: T) -> T:
    k.copy_(k * 2 + new.sum())
    return k


def shifted(k: T, new: T) -> T:
    k.copy_(torch.cat([k[:, 1:], new], 1))
    return k * 2


def rolled(k: T, v: T, new: T) -> T:
    """Layers whose caches move on by a place."""
    for cache in (k, v):
        cache.copy_(torch.cat([cache[:, 1:], new], 1))
        new = (cache * new).mean(1, keepdim=True)
    return new


def rolled_and_looked_up(k: T, v: T, new: T, at: T) -> T:
    """A place that may be wrong, between two caches that move on."""
    k.copy_(k.roll(1, 0) + new)
    found = v[at] * 2
    v.copy_(v.roll(1, 0) - new)
    return found


def long_cache() -> T:
    return torch.randn(8, 512, 128)


OTHERS: dict[str, tuple[Callable[..., Any], Make]] = {
    "the old value is a result": (read_later, lambda: (cache(), torch.randn(3, 2, 4))),
    "sums, and what may fail": (sums_and_more, lambda: (cache(), torch.tensor([1, 0]), torch.randn(2, 8, 4))),
    "two inputs swap": (swapped, lambda: (cache(), cache())),
    "all of it": (everywhere, lambda: (cache(), torch.randn(3, 2, 4))),
    "strides with holes": (by_slice, lambda: (torch.randn(3, 8, 8)[..., ::2], torch.randn(3, 2, 4))),
    "another order": (by_slice, lambda: (torch.randn(4, 8, 3).permute(2, 1, 0), torch.randn(3, 2, 4))),
    "shifted": (shifted, lambda: (cache(), torch.randn(3, 1, 4))),
    "integers": (by_slice, lambda: (torch.randint(9, (3, 8, 4)), torch.randint(9, (3, 2, 4)))),
    "a number of another kind": (by_slice, lambda: (cache(), torch.randint(9, (3, 2, 4)))),
    "two that are shifted": (rolled, lambda: (long_cache(), long_cache(), torch.randn(8, 1, 128))),
    "and lie the other way": (rolled, lambda: (long_cache(), long_cache().mT.contiguous().mT, torch.randn(8, 1, 128))),
    "one memory that is shifted": (rolled, lambda: ((k := long_cache()), k.view(8, 512, 128), torch.randn(8, 1, 128))),
    "two that are rolled": (
        rolled_and_looked_up,
        lambda: (long_cache(), long_cache(), torch.randn(8, 1, 128), torch.tensor([7, 0])),
    ),
    "one memory": (swapped, lambda: ((k := cache()), k.view(3, 8, 4))),
}


def every() -> dict[str, tuple[Callable[..., Any], Make]]:
    return {name: case[:2] for name, case in IN_PLACE.items()} | OTHERS


def moved(values: Any, device: str) -> Any:
    return tuple(v.to(device) for v in values)


@pytest.mark.parametrize("case", every())
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["llvm_cpu", "triton_gpu"])
def test_results_and_inputs_are_eagers(case: str, dynamic: bool, backend: str) -> None:
    fn, make = every()[case]
    device = "cuda" if backend == "triton_gpu" and torch.cuda.is_available() else "cpu"
    compiled = jitney.compile(fn, backend=backend, dynamic=dynamic)
    for seed in range(3):
        torch.manual_seed(seed)
        mine = moved(make(), device)
        torch.manual_seed(seed)
        theirs = moved(make(), device)
        with torch.no_grad():
            got, want = compiled(*mine), fn(*theirs)
            assert_close(got, want)
            assert_close(mine, theirs)
            for result in got if isinstance(got, tuple) else (got,):  # as in eager, no other name of an input
                if result is not mine[0]:
                    result.zero_()
            for result in want if isinstance(want, tuple) else (want,):
                if result is not theirs[0]:
                    result.zero_()
            assert_close(mine, theirs)


def programs(
    fn: Callable[..., Any], args: tuple[Any, ...], in_place: bool = True, by_kernels: frozenset[str] = frozenset()
) -> list[Program]:
    """Programs whose schedules write in place, or not, and by kernels into these inputs; all else by operators."""
    found: list[Program] = []

    def compile_graph(graph: Any, inputs: Any, request: Any) -> Callable[..., Any]:
        found.append(lower(graph, inputs, updates=request.updates))
        made = schedule(found[-1], request.updates)
        made.verify()
        operators = [item for item in made.items if isinstance(item, Extern)]
        by_operators = {name for item in operators for name in item.written}
        assert by_operators.isdisjoint(by_kernels) and set(made.filled.values()) == by_operators | by_kernels
        assert bool(made.filled) is in_place
        return graph.forward

    backend = Backend("noting", compile_graph, level="aten", decompositions=decompositions())
    jitney.compile(fn, backend=backend, fullgraph=True, dynamic=False)(*args)
    return found


@pytest.mark.parametrize("case", IN_PLACE)
def test_only_the_part_is_written(case: str) -> None:
    fn, make, operators = IN_PLACE[case]
    (program,) = programs(fn, make(), by_kernels=frozenset({"in0"} if fn is ring else ()))  # the cursor, last of all
    run = [item for item in schedule(program).items if isinstance(item, Extern)]
    assert [str(item.target).removeprefix("aten.") for item in run] == operators


def scheduled(fn: Callable[..., Any], args: tuple[Any, ...]) -> Schedule:
    found: list[Schedule] = []

    def compile_graph(graph: Any, inputs: Any, request: Any) -> Callable[..., Any]:
        found.append(schedule(lower(graph, inputs, updates=request.updates), request.updates))
        found[0].verify()
        return graph.forward

    backend = Backend("noting", compile_graph, level="aten", decompositions=decompositions())
    jitney.compile(fn, backend=backend, fullgraph=True, dynamic=False)(*args)
    return found[0]


def test_caches_that_move_on_are_there_once_more_at_a_time() -> None:
    """The caller copies a single one; not before a place that may be wrong is known to be right."""

    def of_one(k: T, new: T) -> None:
        k.copy_(torch.cat([k[:, 1:], new], 1))

    new, size = torch.randn(8, 1, 128), 4 * 8 * 512 * 128
    made = scheduled(rolled, (long_cache(), long_cache(), new))
    assert {*made.filled.values()} == {"in0", "in2"} and size <= needed_bytes(made) < 1.5 * size
    assert not scheduled(of_one, (long_cache(), new)).filled
    made = scheduled(rolled_and_looked_up, (long_cache(), long_cache(), new, torch.tensor([7, 0])))
    checks = {check[0] for check in made.program.checks}
    known = max(n for n, item in enumerate(made.items) if not item.writes.isdisjoint(checks))
    assert all(item.writes.isdisjoint(made.filled) for item in made.items[: known + 1])


def test_kernels_write_to_an_input_after_the_checks_before_them() -> None:
    """With a policy that stores in order, and one that does not; ``added`` is no store, so a later check forbids it."""

    def added(k: T, at: T, new: T, rows: T) -> T:
        k.index_add_(0, at, new)
        return k[rows] * 2

    def checked_before(k: T, at: T, new: T, rows: T) -> T:
        picked = new[rows] * 2
        k.index_add_(0, at, new)
        return picked

    def kernels(fn: Callable[..., Any], args: tuple[Any, ...], **policy: bool) -> dict[str, int]:
        """Input that kernels write to -> how many checks come before."""
        found: list[Schedule] = []

        def compile_graph(graph: Any, inputs: Any, request: Any) -> Callable[..., Any]:
            own = replace(CPU, **policy)
            found.append(
                schedule(lower(graph, inputs, policy=own, updates=request.updates), request.updates, policy=own)
            )
            return graph.forward

        backend = Backend("noting", compile_graph, level="aten", decompositions=decompositions())
        jitney.compile(fn, backend=backend, fullgraph=True, dynamic=False)(*args)
        filled = found[0].filled
        items = [item for item in found[0].items if isinstance(item, Kernel)]
        return {filled[b]: len(item.after) for item in items for b in item.writes if b in filled}

    args = (cache(), torch.tensor([1, 0]), torch.randn(2, 8, 4), torch.tensor([0, 1]))
    assert kernels(ring, (torch.tensor(2), cache(), torch.randn(2, 8, 4), torch.tensor([0, 2]))) == {"in0": 1}
    assert kernels(added, args, scatters_in_order=True) == {}
    assert kernels(checked_before, args, scatters_in_order=True) == {"in2": 2}
    assert kernels(looked_up, IN_PLACE["a place in a table"][1](), scatters_in_order=True) == {"in2": 2}


def test_new_values_wait_for_all_operators() -> None:
    """A training step: each weight is written to before the next gradient is there, if the order is the program's."""

    def step(x: T, *weights: T) -> T:
        for weight in weights:
            x = (x @ weight).relu()
        slope = x
        for weight in reversed(weights):
            before = slope @ weight.mT
            weight.sub_(x.mT @ slope, alpha=0.1)
            slope = before * 2
        return slope

    def read_again(x: T, first: T, second: T) -> T:
        first.add_(x)
        second.mul_(2)
        return (first @ x) @ x

    def filled(fn: Callable[..., Any], args: tuple[Any, ...]) -> set[str]:
        return set(scheduled(fn, args).filled.values())

    weights = [torch.randn(4, 4) for _ in range(3)]
    assert filled(step, (torch.randn(4, 4), *weights)) == {"in1", "in2", "in3"}
    assert filled(read_again, (torch.randn(4, 4), torch.randn(4, 4), torch.randn(9))) == {"in2"}
    for seed in range(2):
        found = []
        for fn in (jitney.compile(step, backend="llvm_cpu"), step):
            torch.manual_seed(seed)
            args = [torch.randn(4, 4) / 2 for _ in range(4)]
            found.append((fn(*args), args))
        assert_close(*found)


def test_a_wrong_index_before_or_after_a_kernels_write() -> None:
    def fn(k: T, at: T, new: T, before: T, after: T) -> tuple[T, T]:
        first = new.index_select(0, before) * 2
        k[at] = new
        return first, k.index_select(0, after).exp()

    compiled = jitney.compile(fn, backend="llvm_cpu")  # on CUDA a wrong index is the end of the process
    for at, before, after in [((0, 2), 1, 1), ((0, 2), 9, 1), ((0, 9), 1, 1), ((0, 2), 1, 9)]:
        found = []
        for f in (compiled, fn):
            k, raised, got = torch.ones(3, 8, 4), None, None
            try:
                got = f(k, torch.tensor(at), 2 + torch.zeros(2, 8, 4), torch.tensor([before]), torch.tensor([after]))
            except (RuntimeError, IndexError) as error:
                raised = type(error)
            found.append((k, raised, got))
        assert_close(found[0][0], found[1][0])
        assert found[0][1] is found[1][1]
        assert_close(found[0][2], found[1][2])


def test_an_error_before_the_write_leaves_the_input() -> None:
    def fn(k: T, at: T, new: T) -> T:
        picked = (new * 2).gather(1, at)
        k[:, 1] = new
        return picked

    compiled = jitney.compile(fn, backend="llvm_cpu")  # on CUDA a wrong index is the end of the process
    k, new = torch.zeros(3, 8, 4), torch.ones(3, 4)
    for f in (compiled, fn):
        with pytest.raises((RuntimeError, IndexError)):
            f(k, torch.full((3, 1), 9), new)
        assert not k.any()


@pytest.mark.parametrize(("at", "table"), [(9, 1), (0, 9)])
def test_an_error_of_a_place_in_a_table_leaves_the_input(at: int, table: int) -> None:
    compiled = jitney.compile(looked_up, backend="llvm_cpu")  # on CUDA a wrong index is the end of the process
    found = []
    for f in (compiled, looked_up):
        k = torch.zeros(3, 8, 4)
        f(k, torch.tensor([2, 0, 1]), torch.tensor([1, -1]), torch.ones(2, 8, 4))
        with pytest.raises((RuntimeError, IndexError)) as raised:
            f(k, torch.tensor([2, table, 1]), torch.tensor([1, at]), torch.ones(2, 8, 4) * 2)
        found.append((k, type(raised.value)))
    assert_close(*[k for k, _ in found])
    assert found[0][1] is found[1][1]


def test_a_copy_of_what_the_graph_made_is_that() -> None:
    (program,) = programs(shifted, (cache(), torch.randn(3, 1, 4)), in_place=False)
    joined = next(step.buffers[0] for step in program.steps if isinstance(step, Extern))
    assert joined in {view.buffer for view in program.outputs if isinstance(view, Strided)}


SUMS: dict[str, Callable[..., Any]] = {
    "index_add": lambda x, i, s: x.index_add_(0, i, s),
    "scatter_add": lambda x, i, s: x.scatter_add_(0, i, s),
    "scatter_reduce": lambda x, i, s: x.scatter_reduce_(0, i, s, "sum"),
    "index_put": lambda x, i, s: x.index_put_((i,), s, accumulate=True),
    "a slice": lambda x, i, s: x[1:].index_add_(0, i, s),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_that_stops_half_way_is_not_done_again(name: str) -> None:
    compiled = jitney.compile(SUMS[name], backend="llvm_cpu")
    for index in ([0, 1, 2, 0], [0, 1, 9, 0], [0, -9, 1, 1]):
        found = []
        for f in (compiled, SUMS[name]):
            x, raised = torch.ones(6), None
            try:
                f(x, torch.tensor(index), torch.ones(4))
            except (RuntimeError, IndexError) as error:
                raised = type(error)
            found.append((x, raised))
        assert_close(found[0][0], found[1][0])
        assert found[0][1] is found[1][1]


def fresh_copy(x: T) -> tuple[T, T, T]:
    y = x @ x
    a, b = torch.empty_like(y), torch.empty_like(y)
    a.copy_(y)
    b[:] = y
    return y, a, b


@pytest.mark.parametrize("backend", ["llvm_cpu", "triton_gpu"])
def test_copies_that_the_program_gets_have_memory_of_their_own(backend: str) -> None:
    device = "cuda" if backend == "triton_gpu" and torch.cuda.is_available() else "cpu"
    y, a, b = jitney.compile(fresh_copy, backend=backend)(torch.eye(4, device=device))
    a.zero_()
    assert y.sum() == b.sum() == 4 and not a.any()
    b.zero_()
    assert y.sum() == 4


def test_an_error_after_the_write_leaves_it_written() -> None:
    def fn(k: T, at: T, new: T) -> T:
        k[:, 1] = new
        return k.index_select(0, at)

    compiled = jitney.compile(fn, backend="llvm_cpu")  # on CUDA a wrong index is the end of the process
    for f in (compiled, fn):
        k, new = torch.zeros(3, 8, 4), torch.ones(3, 4)
        with pytest.raises((RuntimeError, IndexError)):
            f(k, torch.tensor([9]), new)
        assert k.sum() == 12


def test_what_eager_does_again_is_not_added_twice() -> None:
    def added(k: T, at: T, new: T) -> T:
        k.index_add_(0, at[:1], new)
        return k.index_select(0, at)

    def moved(k: T, at: T, new: T) -> T:
        old = k[0] * 2
        k[0] = old + new[0]
        return k.index_select(0, at)

    for fn in (added, moved):
        compiled = jitney.compile(fn, backend="llvm_cpu")  # on CUDA a wrong index is the end of the process
        found = []
        for f in (compiled, fn):
            k, new = torch.ones(3, 8, 4), torch.ones(1, 8, 4)
            with pytest.raises((RuntimeError, IndexError)):
                f(k, torch.tensor([1, 9]), new)
            found.append(k)
        assert_close(*found)
