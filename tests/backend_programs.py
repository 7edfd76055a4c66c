"""Whole programs beside eager, for every backend that makes kernels.

Those that once gave other numbers, other strides, or no result. A folder of tests that imports them (``from
backend_programs import *``) has the fixtures that they take: ``backend``, a name, and ``device``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import jitney

CL = torch.channels_last
On = Callable[[Any], Any]
Check = Callable[..., None]


def moved(values: Any, device: torch.device) -> Any:
    """The same tensors on another device: with their strides, and sharing memory where they do."""
    memory: dict[int, torch.Tensor] = {}

    def move(tensor: torch.Tensor) -> torch.Tensor:
        whole = tensor.untyped_storage()
        if whole.data_ptr() not in memory:
            memory[whole.data_ptr()] = torch.empty(0, dtype=torch.uint8).set_(whole).to(device)
        bytes_there = memory[whole.data_ptr()]
        there = torch.empty(0, dtype=tensor.dtype, device=device).set_(bytes_there.untyped_storage())
        return there.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    if device.type == "cpu":
        return values
    if isinstance(values, torch.nn.Module):
        return values.to(device)
    return torch.utils._pytree.tree_map_only(torch.Tensor, move, values)


@pytest.fixture
def on(device: torch.device) -> On:
    """``on(tensors)``: the same on the device of these tests."""
    return lambda values: moved(values, device)


@pytest.fixture
def check(backend: str, on: On) -> Check:
    """``check(fn, *args)``: equal results and strides, twice; inputs that the program writes to are compared too."""

    def compare(fn: Callable[..., Any], *args: torch.Tensor, **options: Any) -> None:
        compiled = jitney.compile(fn, backend=backend, **options)
        there = on(args)
        for _ in range(2):
            mine = [a.clone(memory_format=torch.preserve_format) for a in there]
            theirs = [a.clone(memory_format=torch.preserve_format) for a in there]
            wanted, got = fn(*mine), compiled(*theirs)
            torch.testing.assert_close((got, theirs), (wanted, mine), equal_nan=True)
            for one, other in zip(*(torch.utils._pytree.tree_leaves(r) for r in (wanted, got)), strict=True):
                assert one.stride() == other.stride()

    return compare


REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[[], torch.Tensor]]] = {
    "sum of a transposed tensor": (lambda x: x.sum(), lambda: torch.randn(4, 5).t()),
    "least of a transposed tensor": (lambda x: x.amin(), lambda: torch.randn(4, 5).t()),
    "mean of channels_last": (lambda x: x.mean(), lambda: torch.randn(2, 3, 4, 5).to(memory_format=CL)),
    "variance over height": (lambda x: x.var(2), lambda: torch.randn(33, 4, 4, 33).to(memory_format=CL)),
    "variance over width": (lambda x: x.var(3), lambda: torch.randn(33, 4, 4, 33).to(memory_format=CL)),
    "softmax over channels": (lambda x: x.softmax(1), lambda: torch.randn(9, 4, 4, 33).to(memory_format=CL)),
    "extremes of two kinds": (lambda x: (x.amin((1, 2)), x.min(2)[1]), lambda: torch.randn(9, 4, 5)),
    "sum and its place": (lambda x: (x.sum(), x.argmax(), x * 2), lambda: torch.randn(5, 4).t()),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_in_any_layout(check: Check, name: str) -> None:
    fn, make = REDUCTIONS[name]
    torch.manual_seed(0)
    x = make()
    check(fn, x)
    check(fn, x.double())


EMPTY: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: x.sum(),
    "sum over nothing": lambda x: x.sum(1),
    "sum over something": lambda x: x.sum(0),
    "mean": lambda x: x.mean(),
    "any": lambda x: (x > 0).any(),
    "sums of two": lambda x: (x.sigmoid().sum(), (x * 2).mean()),
    "softmax": lambda x: x.softmax(1),
    "cat": lambda x: torch.cat([x * 2, x.exp()]).sigmoid(),
    "product": lambda x: (x * 2) @ (x * 3).t(),
    "loss": lambda x: F.mse_loss(x, x + 1),
}


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("shape", [(3, 0), (0, 3)])
def test_empty_tensors(check: Check, name: str, shape: tuple[int, int]) -> None:
    check(EMPTY[name], torch.ones(shape))


def test_extremes_of_nothing_raise_as_in_eager(backend: str, on: On) -> None:
    for fn in (lambda x: x.min(), lambda x: x.argmax()):
        with pytest.raises((RuntimeError, IndexError)):
            fn(on(torch.ones(0)))
        with pytest.raises((RuntimeError, IndexError)):
            jitney.compile(fn, backend=backend)(on(torch.ones(0)))


def test_a_bound_that_the_integers_lack_raises_as_in_eager(backend: str, on: On) -> None:
    x = on(torch.tensor([200], dtype=torch.uint8))
    for fn in (lambda x: x.clamp(max=300), lambda x: x.clamp_max(300)):
        with pytest.raises(RuntimeError):
            fn(x)
        with pytest.raises(RuntimeError):
            jitney.compile(fn, backend=backend)(x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_quotient_of_halves_is_rounded_after_truncation(check: Check, dtype: torch.dtype) -> None:
    x = torch.arange(0, 256, 0.5).to(dtype)
    for mode in ("trunc", "floor"):
        check(lambda x, mode=mode: torch.div(x, 0.3, rounding_mode=mode), x)


def test_statistics_are_updated_though_nobody_reads_the_result(backend: str, on: On) -> None:
    def fn(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        model(x)
        return x * 2

    x = on(torch.randn(8, 4))
    one, other = on(torch.nn.BatchNorm1d(4)), on(torch.nn.BatchNorm1d(4))
    fn(one, x)
    jitney.compile(fn, backend=backend)(other, x)
    torch.testing.assert_close(other.state_dict(), one.state_dict())


def test_equal_copies_that_are_written_to_stay_two(backend: str, on: On) -> None:
    def fn(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b, va, vb = mean.clone(), mean.clone(), var.clone(), var.clone()
        F.batch_norm(x, a, va, training=True)
        F.batch_norm(x * 2, b, vb, training=True)
        return a, b

    args = on((torch.randn(8, 4), torch.randn(4), torch.rand(4)))
    torch.testing.assert_close(jitney.compile(fn, backend=backend)(*args), fn(*args))


def test_optimizers_write_in_place_and_are_seen_by_autograd(backend: str, on: On) -> None:
    def step(p: torch.Tensor, g: torch.Tensor) -> None:
        p.mul_(0.9).add_(g, alpha=-0.1)

    p = torch.nn.Parameter(on(torch.ones(64, 64)))
    before, pointer = p._version, p.data_ptr()
    loss = (p * p).sum()
    with torch.no_grad():
        jitney.compile(step, backend=backend)(p, on(torch.ones(64, 64)))
    assert p._version > before and p.data_ptr() == pointer
    torch.testing.assert_close(p.detach(), torch.full_like(p, 0.8).detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_one_compile_serves_many_batch_sizes(backend: str, on: On) -> None:
    captured: list[Any] = []

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.gelu(x @ w), (16,)).softmax(-1)

    w = on(torch.randn(16, 16))
    compiled = jitney.compile(fn, backend=backend, dynamic=True)
    with jitney.events.listen(lambda e: captured.append(e) if isinstance(e, jitney.events.FrameCaptured) else None):
        for batch in (2, 3, 17, 64):
            x = on(torch.randn(batch, 5, 16))
            torch.testing.assert_close(compiled(x, w), fn(x, w))
    assert len(captured) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA's kernel takes what it writes to otherwise")
def test_statistics_that_an_operator_moves_in_silence(check: Check) -> None:
    """No schema says that it writes to them: to an argument, and to what the program has computed."""

    def fn(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, ...]:
        own = mean * 2
        before = own + 1
        found = torch.batch_norm_update_stats(x, own, variance, 0.25)
        return before, own * 3, variance + found[0]

    check(fn, torch.randn(6, 3, 4) + 2, torch.zeros(3), torch.ones(3))


@pytest.mark.parametrize("dynamic", [False, True])
def test_empty_views_with_strides_are_written_to(backend: str, on: On, dynamic: bool) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[:, :-1] = x[:, 1:]
        return x * 2

    compiled = jitney.compile(fn, backend=backend, dynamic=dynamic, fullgraph=True)
    for _ in range(2):
        x, y = (on(torch.empty(0, 7))[:, 1::2] for _ in range(2))
        assert compiled(x).stride() == fn(y).stride()


PARTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "every second of the last": lambda x: x[..., 1::2],
    "rows in the middle": lambda x: x[:, 1:4],
    "rows and columns": lambda x: x[:, ::2, 1::3],
    "from an offset": lambda x: x.flatten()[3:],
    "one column": lambda x: x[..., 2],
    "transposed parts": lambda x: x[:, 1:, 1::2].transpose(0, 2),
}


@pytest.mark.parametrize("name", PARTS)
def test_guards_hold_on_parts_of_tensors_with_symbolic_sizes(backend: str, on: On, name: str) -> None:
    captured: list[Any] = []

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x.sum(0)

    with jitney.config.patch(verify=True):
        compiled = jitney.compile(fn, backend=backend, dynamic=True, fullgraph=True)
        with jitney.events.listen(lambda e: captured.append(e) if isinstance(e, jitney.events.FrameCaptured) else None):
            for rows in (5, 6):
                x = PARTS[name](on(torch.randn(3, rows, 12)))
                got, wanted = compiled(x), fn(x)
                torch.testing.assert_close(got, wanted)
                assert [g.stride() for g in got] == [w.stride() for w in wanted]
    assert len(captured) == 1


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a call gave, or which exception, and what its arguments are then."""
    try:
        return fn(*args), None, args
    except Exception as error:
        return None, (type(error), str(error)), args


def spread(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.as_strided((4, 3), (2, 1)).mul_(3)
    return y


ALIASED: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "an argument": (lambda x: x.add_(1), lambda: (torch.arange(10.0).as_strided((4, 3), (2, 1)),)),
    "an expanded argument": (lambda x: x.mul_(2), lambda: (torch.arange(4.0).expand(3, 4),)),
    "a row of one": (lambda x: x[0].mul_(2), lambda: (torch.arange(4.0).expand(3, 4),)),
    "in a list": (lambda x: torch._foreach_add_([x], 1), lambda: (torch.arange(4.0).expand(3, 4),)),
    "given as out": (lambda x, o: torch.exp(x, out=o), lambda: (torch.ones(4), torch.ones(1).expand(4))),
    "made inside": (spread, lambda: (torch.arange(10.0),)),
    "expanded inside": (lambda x: (x * 2).expand(3, 4).add_(1), lambda: (torch.arange(4.0),)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ALIASED)
def test_writes_to_tensors_that_overlap_themselves(backend: str, on: On, name: str, dynamic: bool) -> None:
    fn, make = ALIASED[name]
    compiled = jitney.compile(fn, backend=backend, dynamic=dynamic)
    for _ in range(2):
        torch.testing.assert_close(outcome(compiled, on(make()))[::2], outcome(fn, on(make()))[::2])
        assert outcome(compiled, on(make()))[1] == outcome(fn, on(make()))[1]


def test_a_later_argument_that_overlaps_itself(backend: str, on: On) -> None:
    def fn(x: torch.Tensor) -> None:
        x.mul_(2).add_(1)

    compiled = jitney.compile(fn, backend=backend, dynamic=True)
    for stride in ((40, 10, 2), (42, 12, 3), (6, 5, 2), (6, 3, 2)):
        mine, theirs = (on(torch.arange(200.0)).as_strided((3, 4, 5), stride) for _ in range(2))
        fn(mine)
        compiled(theirs)
        torch.testing.assert_close(theirs, mine)


def into_fresh(x: torch.Tensor) -> torch.Tensor:
    return torch.add(x, 1, out=x.new_empty(0))


RESIZED: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "an empty argument": (lambda x, o: torch.add(x, 1, out=o), lambda: (torch.ones(2, 3), torch.empty(0))),
    "with dimensions": (lambda x, o: torch.add(x, 1, out=o), lambda: (torch.ones(2, 3), torch.empty(4, 0))),
    "then used": (lambda x, o: torch.exp(x, out=o).sum() * o, lambda: (torch.ones(2, 3), torch.empty(0))),
    "two": (lambda x, a, b: torch.max(x, 1, out=(a, b)),
            lambda: (torch.ones(2, 3), torch.empty(0), torch.empty(0, dtype=torch.int64))),
    "made inside": (into_fresh, lambda: (torch.ones(2, 3),)),
}  # fmt: skip


@pytest.mark.parametrize("name", RESIZED)
def test_tensors_given_as_out_are_resized(backend: str, on: On, name: str) -> None:
    fn, make = RESIZED[name]
    compiled = jitney.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        wanted, got = outcome(fn, on(make())), outcome(compiled, on(make()))
        torch.testing.assert_close((got[0], got[2]), (wanted[0], wanted[2]))
        assert got[1] is wanted[1] is None


PLACES: dict[str, Callable[[torch.Tensor], Any]] = {
    "argmax": lambda x: x.argmax(0),
    "argmin of what is computed": lambda x: (x * 2).argmin(0),
    "with the values": lambda x: x.max(0),
    "the dimension stays": lambda x: x.min(0, keepdim=True),
    "of a transposed tensor": lambda x: x.t().argmax(1),
    "in the middle": lambda x: x.view(-1, 3, 11).argmax(0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PLACES)
def test_where_the_extreme_of_a_column_is(backend: str, on: On, name: str, dynamic: bool, dtype: torch.dtype) -> None:
    compiled = jitney.compile(PLACES[name], backend=backend, dynamic=dynamic)
    for rows in (40, 7):
        torch.manual_seed(rows)
        x = on((torch.randn(rows, 33) * 3).to(dtype))
        if dtype.is_floating_point:
            x[2, 5] = x[4, 5] = float("nan")
            x[:, 3] = -float("inf")
        torch.testing.assert_close(compiled(x), PLACES[name](x), equal_nan=True)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_losses_of_empty_batches_and_of_ignored_ones(
    check: Check, loss: Callable[..., torch.Tensor], reduction: str
) -> None:
    for shape in ((), (2, 2)):
        nothing = torch.zeros(0, *shape, dtype=torch.int64)
        check(lambda x, y: loss(x, y, reduction=reduction), torch.randn(0, 5, *shape), nothing)
    ones = torch.ones(2, dtype=torch.int64)
    check(lambda x, y: loss(x, y, reduction=reduction, ignore_index=1), torch.randn(2, 5), ones)


FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_that_are_not_finite(check: Check, dtype: torch.dtype) -> None:
    x = torch.tensor([NAN, INF, -INF, -0.0, 0.0, 1.5, -2.0], dtype=dtype)
    check(torch.heaviside, x, x.flip(0))
    check(torch.nan_to_num, x)
    check(lambda x: torch.nan_to_num(x, 1.0, 2.0, -3.0), x)


@pytest.mark.parametrize("dtype", FLOATS)
def test_powers_of_special_numbers(check: Check, dtype: torch.dtype) -> None:
    x = torch.tensor([-8.0, -2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 300.0, INF, NAN], dtype=dtype)
    y = torch.tensor([-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, INF, NAN], dtype=dtype)
    check(lambda x, y: x[:, None] ** y, x, y)
    check(lambda x: [x**p for p in (-2, -1, -0.5, 0, 0.5, 1, 2, 3, 2.5)], x)
    check(lambda y: [p**y for p in (-2.0, 0.0, 0.5, 1.0, 2.0, 10.0)], y)


def less_its_column(x: torch.Tensor) -> torch.Tensor:
    y = x + x
    y.sub_(y.select(1, 0))
    return y


def halves(x: torch.Tensor) -> torch.Tensor:
    y = x + x
    y[:, :3].mul_(y[:, 3:])
    y[::2] -= y[1::2]
    y.mul_(y)
    y[1:4, 2] += y[2:5, 1]
    return y


def shifted_assignment(x: torch.Tensor) -> torch.Tensor:
    x[:, 1:, None] = x[:, :-1, None]
    return x * 2


MEETING: dict[str, Callable[[torch.Tensor], Any]] = {
    "a column": less_its_column,
    "transposed": lambda x: x.add_(x.t()),
    "shifted rows": lambda x: x[1:].mul_(x[:-1]),
    "shifted columns": lambda x: x[:, 1:].mul_(x[:, :-1]),
    "shifted assignments": shifted_assignment,
    "shifted copies": lambda x: x[:, :-1].copy_(x[:, 1:]),
    "given as out": lambda x: torch.add(x[0], 1, out=x[:, 0]),
    "nothing in common": halves,
}


@pytest.mark.parametrize("name", MEETING)
def test_writes_to_what_the_same_operation_reads(backend: str, on: On, name: str) -> None:
    """Eager raises, or takes what it has written already."""
    kept: list[Any] = []
    for make in (lambda: torch.arange(36.0).reshape(6, 6), lambda: torch.arange(36.0).reshape(6, 6).t()):
        with jitney.events.listen(lambda e: kept.append(e) if isinstance(e, jitney.events.GraphKept) else None):
            got = outcome(jitney.compile(MEETING[name], backend=backend), (on(make()),))
        wanted = outcome(MEETING[name], (on(make()),))
        torch.testing.assert_close(got[::2], wanted[::2])
        assert got[1] == wanted[1]
    assert name != "nothing in common" or not kept


LAID_OUT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "roll": lambda x: torch.roll(x, 1, -1),
    "roll of all": lambda x: x.roll(2),
    "floor": lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    "a power": lambda x: 2.0**x,
    "a gate": lambda x: F.glu(x, 1),
    "logsigmoid": F.logsigmoid,
    "and": lambda x: (x > 0).logical_and(x[:1] < 1),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "batch norm of no batch": lambda x: F.batch_norm(x, x.mean((0, 2, 3)), x.var((0, 2, 3))),
    "a reshape": lambda x: torch.roll(x, 1, 1).flatten(1).sin(),
}


@pytest.mark.parametrize("name", LAID_OUT)
def test_results_have_eagers_strides_in_any_layout(check: Check, name: str) -> None:
    x = torch.randn(2, 4, 3, 5)
    for made in (x, x.to(memory_format=CL), x.permute(3, 1, 0, 2), x.transpose(2, 3).to(memory_format=CL)):
        check(LAID_OUT[name], made)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", ["batch", "no affine", "layer", "group", "eval"])
def test_half_inputs_with_float_parameters(backend: str, on: On, norm: str, dtype: torch.dtype) -> None:
    """Eager keeps the statistics in float32, of which torch's stand-ins know nothing."""
    made: dict[str, Callable[[], torch.nn.Module]] = {
        "batch": lambda: torch.nn.BatchNorm2d(8),
        "no affine": lambda: torch.nn.BatchNorm2d(8, affine=False),
        "layer": lambda: torch.nn.LayerNorm(6),
        "group": lambda: torch.nn.GroupNorm(2, 8),
        "eval": lambda: torch.nn.BatchNorm2d(8).eval(),
    }
    results = []
    for compiles in (False, True):
        torch.manual_seed(0)
        module = on(made[norm]())
        x = on(torch.randn(4, 8, 6, 6).to(dtype)).requires_grad_()
        if x.is_cuda and norm in ("layer", "group"):  # CUDA's kernels take one dtype only
            if not compiles:
                with pytest.raises(RuntimeError, match="expected scalar type"):
                    module(x)
            continue
        y = (jitney.compile(module, backend=backend) if compiles else module)(x)
        y.float().sin().sum().backward()
        results.append([y, x.grad, *(p.grad for p in module.parameters()), *module.buffers()])
    if not results:
        return
    torch.testing.assert_close(results[1][:2], results[0][:2], rtol=2e-2, atol=2e-2)
    # Eager's sums over rows are rounded more than ours.
    torch.testing.assert_close(results[1][2:], results[0][2:], rtol=0.1, atol=0.25)
    assert [t.dtype for t in results[1]] == [t.dtype for t in results[0]]


LISTS: dict[str, Callable[..., Any]] = {
    "crosswise": lambda a, b: torch._foreach_add_([a, b], [b, a]),
    "twice": lambda a, b: torch._foreach_add_([a, a], [b, b]),
    "copied": lambda a, b: torch._foreach_copy_([a, b], [b, a]),
    "rows": lambda a, b: torch._foreach_mul_([a[0], a[1]], [a[1], a[0]]),
    "apart": lambda a, b: torch._foreach_mul_([a, b], 2.0),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_whose_tensors_share_memory(check: Check, name: str) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        LISTS[name](a, b)
        return a * 1, b * 1

    check(fn, torch.ones(2, 3), torch.full((2, 3), 3.0))


DRAWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "dropout": lambda x: F.dropout(x * 2, 0.5),
    "written": lambda x: x.clone().bernoulli_(0.3),
    "new": lambda x: torch.bernoulli(x.sigmoid(), 0.3),
    "of probabilities": lambda x: torch.bernoulli(x.sigmoid()),
    "transposed": lambda x: F.dropout(x.transpose(1, 2), 0.5),
    "rows with gaps": lambda x: F.dropout(x[:, ::2], 0.5),
    "group norm": lambda x: F.group_norm(x, 2),
    "shuffled": lambda x: torch.channel_shuffle(x, 2),
}


@pytest.mark.parametrize("layout", [torch.contiguous_format, CL])
@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_and_strides_in_any_layout(backend: str, on: On, name: str, layout: torch.memory_format) -> None:
    x = on(torch.randn(2, 4, 6, 6).to(memory_format=layout))
    torch.manual_seed(0)
    wanted = DRAWS[name](x)
    torch.manual_seed(0)
    got = jitney.compile(DRAWS[name], backend=backend)(x)
    torch.testing.assert_close(got, wanted)
    assert got.stride() == wanted.stride()


FIRST: dict[str, Callable[[torch.Tensor], Any]] = {
    "floor division": lambda x: 5 // x,
    "of a negative number": lambda x: -7 // x,
    "remainder": lambda x: 5 % x,
    "fmod": lambda x: torch.fmod(torch.tensor(5), x),
    "difference": lambda x: 5 - x,
    "power": lambda x: 2 ** x.abs(),
    "rounded": lambda x: torch.div(torch.tensor(7), x, rounding_mode="floor"),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", FIRST)
def test_a_number_in_front_of_a_tensor(check: Check, name: str, dtype: torch.dtype) -> None:
    check(FIRST[name], torch.tensor([3, -2, 7]).to(dtype))


JOINED: dict[str, Callable[..., Any]] = {
    "two": lambda x, y: torch.cat((-x, y.exp()), -1) * 2,
    "halves in turn": lambda x, y: x * y + torch.cat((-x[..., 3:], x[..., :3]), -1) * 0.5,
    "four, of other sizes": lambda x, y: torch.cat((x[:1], y[:2], x[:0], y), 0).sum(0),
    "read by rows": lambda x, y: torch.cat((x, y), 1).softmax(1),
    "of one that is gathered": lambda x, y: torch.cat((x[torch.tensor([2, 0], device=x.device)], y), 0) + 1,
    "stacked": lambda x, y: torch.stack((x, y, x + y), 1).amax(1),
    "joined twice": lambda x, y: torch.cat((torch.cat((x, y), 0)[1:], y), 0) - 1,
    "returned": lambda x, y: torch.cat((x, y.t().contiguous().t()), 0),
}


@pytest.mark.parametrize("name", JOINED)
def test_few_parts_are_joined_as_in_eager(name: str, check: Check) -> None:
    torch.manual_seed(0)
    check(JOINED[name], torch.randn(4, 6), torch.randn(4, 6))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.float32], ids=str)
def test_sums_of_which_one_term_counts(dtype: torch.dtype, check: Check) -> None:
    """Numbers that are none of the loop's, and of types in which several are or something in between."""

    def picked(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        numbers = torch.arange(300, device=x.device).to(at.dtype)
        return torch.where(numbers == at[:, None], x[:, None], 0.0).sum(1)

    at = [3, 0, 299, -1, 300, 5, -128] if dtype in (torch.int64, torch.int32) else [3, 0, 44, -1, 100, 5, -128]
    numbers = torch.tensor(at, dtype=dtype)
    if dtype is torch.float32:
        numbers = numbers + 0.5
        numbers[0] = 3
    check(picked, torch.tensor([1.5, -0.0, 2.0, 3.0, 4.0, float("nan"), float("inf")]), numbers)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_gradients_of_a_loss_that_picks_classes(reduction: str, smoothing: float, backend: str, on: On) -> None:
    target = on(torch.tensor([0, 9, 3, -100, 5, 5]))
    found = []
    for compiles in (False, True):
        torch.manual_seed(0)
        x = on(torch.randn(6, 10)).requires_grad_()

        def loss(x: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(x * 2, target, reduction=reduction, label_smoothing=smoothing)

        y = (jitney.compile(loss, backend=backend) if compiles else loss)(x)
        found.append((y.detach(), *torch.autograd.grad(y.sum(), x)))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("how", ["once", "twice the same", "looked at after", "without a momentum"])
def test_running_statistics_are_written_once_and_in_time(how: str, backend: str, on: On) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm2d(4, momentum=None if how == "without a momentum" else 0.3)
            self.other = torch.nn.BatchNorm2d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.other(self.norm(x).relu())
            if how == "twice the same":
                y = self.norm(y)
            return y * self.norm.running_mean.view(1, 4, 1, 1) if how == "looked at after" else y

    found = []
    for compiles in (False, True):
        torch.manual_seed(0)
        net = on(Net())
        run = jitney.compile(net, backend=backend) if compiles else net
        results = [run(on(torch.randn(3, 4, 5, 5))).detach() for _ in range(3)]
        found.append((results, {name: value.clone() for name, value in net.state_dict().items()}))
    torch.testing.assert_close(found[1], found[0])


def test_updates_of_many_tensors_of_few_sizes(check: Check) -> None:
    torch.manual_seed(0)
    sizes = [(4, 5), (7,), (), (4, 5), (7,), (4, 5)] * 4

    def update(*tensors: torch.Tensor) -> list[torch.Tensor]:
        n = len(sizes)
        results = []
        for p, g, m in zip(tensors[:n], tensors[n : 2 * n], tensors[2 * n :], strict=True):
            m.mul_(0.9).add_(g, alpha=0.1)
            results.append(p - m / (m.abs().sqrt() + 1e-8))
        return results

    check(update, *[torch.randn(size) for _ in range(3) for size in sizes])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_functions_of_halves(dtype: torch.dtype, check: Check) -> None:
    """Where what follows is rounded at once: exact numbers and special ones."""
    x = torch.tensor([0.0, -0.0, 1.0, -2.5, 11.0, -11.0, 88.0, -88.0, float("inf"), -float("inf"), float("nan")])
    check(lambda x: (F.silu(x), x.sigmoid(), x / 3, 1 / x, x.exp(), x.abs().sqrt(), x.abs().rsqrt()), x.to(dtype))


COUNTED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float]] = {
    "rand": (lambda x: torch.rand(x.shape, device=x.device), 0.5, 1 / 12),
    "rand_like": (torch.rand_like, 0.5, 1 / 12),
    "randn": (lambda x: torch.randn(x.shape, device=x.device), 0.0, 1.0),
    "randn_like": (torch.randn_like, 0.0, 1.0),
    "bernoulli": (lambda x: torch.full_like(x, 0.3).bernoulli(), 0.3, 0.21),
    "bernoulli_": (lambda x: torch.empty_like(x).bernoulli_(0.3), 0.3, 0.21),
    "dropout": (lambda x: F.dropout(torch.ones_like(x), 0.25), 1.0, 0.1875 / 0.75**2),
    "uniform_": (lambda x: torch.empty_like(x).uniform_(-2, 4), 1.0, 3.0),
    "normal_": (lambda x: torch.empty_like(x).normal_(2, 3), 2.0, 9.0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", COUNTED)
def test_numbers_of_a_counter(backend: str, on: On, name: str, dtype: torch.dtype) -> None:
    """As they should be distributed, others at each call, the same for the same seed."""
    fn, mean, variance = COUNTED[name]
    x = on(torch.zeros(120, 100, dtype=dtype))
    compiled = jitney.compile(fn, backend=backend, options={"fallback_random": False}, fullgraph=True)
    torch.manual_seed(3)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(3)
    assert torch.equal(compiled(x), first) and not torch.equal(first, second)
    expected = fn(x)
    assert (first.dtype, first.shape, first.stride()) == (expected.dtype, expected.shape, expected.stride())
    for drawn in (first.double(), second.double()):
        assert abs(drawn.mean().item() - mean) < 6 * (variance / x.numel()) ** 0.5 + 4e-3 * variance**0.5
        assert abs(drawn.var().item() / variance - 1) < 0.1
    if "rand" in name and "n" not in name[4:]:
        assert 0 <= first.min() and first.max() < 1


def test_dropout_of_a_counter_goes_back_as_it_came(backend: str, on: On) -> None:
    """And what is kept for the backward is the seed."""
    kept: list[torch.dtype] = []

    def note(event: Any) -> None:
        if isinstance(event, jitney.events.AtenGraph) and event.kind == "forward":
            kept.extend(n.meta["val"].dtype for n in event.graph.output_node().args[0])

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5) * 3

    compiled = jitney.compile(fn, backend=backend, options={"fallback_random": False}, fullgraph=True)
    with jitney.events.listen(note):
        for _ in range(3):
            x = on(torch.rand(30, 40) + 1).requires_grad_()
            made = compiled(x)
            made.sum().backward()
            assert x.grad is not None
            torch.testing.assert_close(made, x * x.grad)
            assert set(x.grad.unique().tolist()) == {0.0, 6.0}
    assert kept == [torch.float32, torch.int64]


def test_drops_of_a_counter_differ_from_layer_to_layer(backend: str, on: On) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.dropout(x, 0.5), F.dropout(x, 0.5), F.dropout(x.view(-1), 0.5)

    made = jitney.compile(fn, backend=backend, options={"fallback_random": False})(on(torch.ones(50, 40)))
    shares = [
        ((a.view(-1) == b.view(-1)).float().mean().item()) for a, b in zip(made, (*made[1:], made[0]), strict=True)
    ]
    assert all(0.4 < share < 0.6 for share in shares)
