"""Programs with NumPy arrays: memory, writes, guards, breaks, mixtures with tensors, ``wrap_numpy``."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import check, compile_fn, observe, t
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy_checks import agrees, broken, difference, numbers, outcome, whole

import jitney
from jitney import config, events
from jitney.errors import InvalidOption

X = numbers(3, 4)
BACKENDS = ["eager", "aot_eager", "llvm_cpu"]


# ------------------------------------------------------------------ the same memory


def _add_in_place(x: Any) -> Any:
    x += 1
    return x


def _through_a_view(x: Any) -> Any:
    view = x[1]
    view *= 2
    return view


def _overlapping(x: Any) -> Any:
    x[1:] = x[:-1]
    return x


def _masked(x: Any) -> Any:
    x[x > 3] = 0
    return x


def _items(x: Any) -> Any:
    x[0] = 5
    x[1:, 2] = x[0, 0] * 2
    x[[0, 2]] = 9
    return x.sum()


def _scalar_is_a_copy(x: Any) -> Any:
    scalar = x[0, 0]
    x[0, 0] = 9
    return scalar, x[0, 0]


def _transposed(x: Any) -> Any:
    square = x[:, :3]
    square += square.T
    return x


def _out(x: Any) -> Any:
    return np.add(x, 1, out=x), np.multiply(x, x, x)


def _reshaped(x: Any) -> Any:
    flat = x.reshape(-1)
    flat[0] = 7
    flat.fill(2)
    return x, flat


def _powers(x: Any) -> Any:
    x **= 2
    x **= 0.5
    return x**3, x**-1, x**0


WRITERS = [_add_in_place, _through_a_view, _overlapping, _masked, _items, _scalar_is_a_copy, _transposed, _out,
           _reshaped, _powers]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", WRITERS, ids=lambda fn: fn.__name__)
def test_writes_reach_the_callers_array(fn: Any, backend: str) -> None:
    whole(fn, X, backend=backend)
    whole(fn, np.asfortranarray(X), backend=backend)
    agrees(fn, numbers(6, 8)[::2, ::2], backend=backend)


ORDERS: list[Any] = [
    lambda x: x.T.copy(),
    lambda x: x.copy("F"),
    lambda x: x.T + 1,
    lambda x: x.T.astype(np.float64),
    lambda x: np.array(x.T),
    lambda x: x.T + x[:, :3],
    lambda x: np.where(x.T > 2, x.T, 0),
    lambda x: np.zeros_like(x.T),
    lambda x: x[:, [1, 0]],
    lambda x: np.broadcast_to(x, (2, 3, 4)) * 1,
    lambda x: np.broadcast_to(x.T[:, :, None], (4, 3, 2)) + x[0, 0],
    lambda x: x.reshape(3, 2, 2).transpose(2, 0, 1) * 2,
    lambda x: x.reshape(3, 2, 2).transpose(2, 0, 1).sum(1),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", ORDERS, ids=range(len(ORDERS)))
def test_what_is_a_view_depends_on_the_order_in_memory(make: Any, backend: str) -> None:
    def fn(x: Any) -> Any:
        made = make(x)
        flat = made.reshape(-1)
        flat[0] = 77
        return made, flat

    whole(fn, X if make is not ORDERS[5] else numbers(3, 3), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_of_an_argument_are_views_of_it(backend: str) -> None:
    def fn(x: Any) -> Any:
        return x[1:], x.T, x.reshape(-1)[2:5], x[None], x

    found = compile_fn(fn, backend=backend)(X)
    assert difference(found, fn(X)) == ""
    assert all(np.shares_memory(v, X) for v in found)
    assert found[-1] is X


def test_results_that_share_memory_with_each_other() -> None:
    def fn(x: Any) -> Any:
        made = x + 1
        return made, made[0]

    made, row = compile_fn(fn)(X)
    assert np.shares_memory(made, row)


def test_what_numpy_copies_is_a_copy() -> None:
    def fn(x: Any) -> Any:
        return x.astype(np.float32), np.array(x), x.flatten(), +x, np.round(np.arange(3)), x.copy(), np.tile(x, 1)

    assert not any(np.shares_memory(v, X) for v in compile_fn(fn)(X))


@pytest.mark.parametrize("backend", BACKENDS)
def test_arguments_that_overlap(backend: str) -> None:
    def fn(x: Any, y: Any) -> Any:
        x += 1
        return y * 2

    compiled = compile_fn(fn, backend=backend)
    compiled(numbers(5), numbers(5))
    ours, theirs = numbers(6), numbers(6)
    assert difference(compiled(ours[1:], ours[:-1]), fn(theirs[1:], theirs[:-1])) == ""
    assert difference(compiled(ours, ours), fn(theirs, theirs)) == ""
    assert difference(ours, theirs) == ""


def test_read_only_arrays_stay_read_only() -> None:
    def fn(x: Any) -> Any:
        return x[0], x.T, x + 1, np.broadcast_to(x, (2, 3, 4)), x

    fixed = X.copy()
    fixed.flags.writeable = False
    found = compile_fn(fn)(fixed)
    assert difference(found, fn(fixed)) == ""
    assert np.shares_memory(found[0], fixed) and found[-1] is fixed
    assert outcome(compile_fn(_add_in_place), fixed) == outcome(_add_in_place, fixed)
    assert np.array_equal(fixed, X)


def test_an_array_that_becomes_read_only_compiles_again() -> None:
    compiled, x = compile_fn(lambda x: x[1:]), X.copy()
    assert compiled(x).flags.writeable
    x.flags.writeable = False
    assert not compiled(x).flags.writeable


# ------------------------------------------------------------------ guards


def test_dtypes_dimensions_and_classes_are_guarded() -> None:
    def fn(x: Any) -> Any:
        return x * 2 + 1

    values: list[Any] = [
        numbers(3),
        numbers(3, dtype=np.float64),
        numbers(3, dtype=np.int64),
        numbers(4),
        numbers(2, 2),
        np.arange(3, dtype=np.longlong),
        np.arange(3, dtype=">f4"),
        numbers(8)[::2],
        np.float32(3),
        np.ma.array([1, 2], mask=[0, 1]),
        2.5,
        pickle.loads(pickle.dumps(numbers(3))),
    ]
    compiled = compile_fn(fn)
    with config.patch(cache_size_limit=64):
        for value in values * 2:
            assert difference(np.asarray(compiled(value)), np.asarray(fn(value))) == ""
            assert type(compiled(value)) is type(fn(value))


def test_an_unpickled_dtype_is_the_same_dtype() -> None:
    compiled = compile_fn(lambda x: x + 1)
    with observe() as seen:
        compiled(X)
        compiled(pickle.loads(pickle.dumps(X)))
    assert len(seen.graphs) == 1


def test_sizes_become_symbolic() -> None:
    def fn(x: Any) -> Any:
        return x.reshape(x.shape[0] * x.shape[1])[: x.size // 2] / x.shape[0], np.zeros(x.shape) + x, np.arange(len(x))

    compiled = compile_fn(fn)
    with observe() as seen:
        for shape in ((3, 4), (5, 7), (6, 9), (9, 9), (12, 5)):
            assert difference(compiled(numbers(*shape)), fn(numbers(*shape))) == ""
    assert len(seen.graphs) == 2


SCALE = numbers(4)


class Holder:
    weight: Any = None


def test_arrays_in_globals_attributes_and_containers() -> None:
    holder = Holder()
    holder.weight = numbers(4)

    def fn(xs: Any) -> Any:
        holder.weight = holder.weight + 1
        return {"a": [x * SCALE + holder.weight for x in xs]}["a"][0], sum(xs)

    expected = X * SCALE + (numbers(4) + 1), X + X
    assert difference(compile_fn(fn)([X, X.copy()]), expected) == ""
    assert difference(holder.weight, numbers(4) + 1) == ""


# ------------------------------------------------------------------ scalars and NEP 50


def test_scalars_of_numpy_are_inputs() -> None:
    for scalar in (np.float32(2), np.float64(2), np.int64(7), np.uint8(3), np.True_):
        whole(lambda x, s: (x * s, s + 1, s, np.maximum(x, s)), X, scalar)
    compiled = compile_fn(lambda x, s: x * s)
    with observe() as seen:
        assert compiled(X, np.float64(2)).sum() * 2 == compiled(X, np.float64(4)).sum()
    assert len(seen.graphs) == 1


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.bool_, np.float64, np.int32])
def test_an_item_of_a_tensor_is_set_to_a_scalar(kind: Any) -> None:
    def fn(x: torch.Tensor, value: Any) -> Any:
        try:
            x[0] = value
        except TypeError:
            return x + 100
        return x * 2

    check(fn, t(), kind(3))


def test_reductions_and_items_are_scalars_and_ellipses_arrays() -> None:
    def fn(x: Any) -> Any:
        return x.sum(), x[0, 0], x[0, 0, ...], np.sin(x[0, 0, ...]), x[0] @ x[0], x.sum() + 1, x.reshape(-1)[3] ** 2

    whole(fn, X)
    assert [type(v) for v in compile_fn(fn)(X)][:3] == [np.float32, np.float32, np.ndarray]


def test_classes_as_the_program_sees_them() -> None:
    def fn(x: Any) -> Any:
        total = x.sum()
        return (
            isinstance(x, np.ndarray),
            isinstance(total, np.float32),
            isinstance(total, float),
            type(x),
            type(total),
            isinstance(x.astype(float).sum(), float),
            x.dtype == np.float32,
            x.dtype.kind,
            x is x,
        )

    assert compile_fn(fn)(X) == fn(X)


def test_constants_of_numpy_keep_their_dtype() -> None:
    whole(lambda x: (x * np.sqrt(2.0), x * np.float32(0.1), x * np.pi, np.float64(2) * x, np.int8(3) + x), X)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["float32", "float64", "int64", "int32", "bool", "uint8", "int8", "float16"]),
    st.sampled_from(["float32", "float64", "int64", "int32", "bool", "uint8", "int16", "float16"]),
    st.sampled_from([np.add, np.multiply, np.maximum, np.divide, np.floor_divide, np.remainder, np.less, np.arctan2]),
    st.sampled_from([(3, 4), (4,), (1, 4), (3, 1), (), (1,)]),
    st.one_of(st.none(), st.integers(-300, 300), st.floats(width=32), st.booleans()),
)
def test_promotion_and_broadcasting(first: str, second: str, ufunc: Any, shape: tuple[int, ...], number: Any) -> None:
    x, y = numbers(3, 4).astype(first), numbers(*shape).astype(second)
    if number is not None and ufunc is np.arctan2:  # it rounds otherwise, which a second one, in float64, would show
        agrees(lambda x: ufunc(x, number), x)
    else:
        agrees(lambda x, y: ufunc(x, y) if number is None else ufunc(ufunc(x, number), y), x, y)
    agrees(lambda x, y: x.__add__(y), x, y)


# ------------------------------------------------------------------ breaks


def test_a_break_keeps_arrays_and_scalars() -> None:
    def fn(x: Any) -> Any:
        total, mean, scaled = x.sum(), x.mean(), x * 2
        text = f"{mean}"
        return scaled + total, text, mean

    broken(fn, X, reason="__str__ of an array", calls=2)


def test_a_branch_on_many_values_breaks() -> None:
    def fn(x: Any) -> Any:
        return x * 2 if x.max() > 0 else x

    whole(fn, X)
    broken(fn, np.tile(X, (20, 1)), reason="data-dependent control flow")


def test_a_branch_on_a_sum_breaks() -> None:
    """NumPy adds in another order."""
    broken(lambda x: x * 2 if x.sum() > 0 else x, X, reason="data-dependent control flow")


def test_a_loop_over_values() -> None:
    def fn(x: Any) -> Any:
        total = 0.0
        for value in x[0]:
            total += float(value)
        return total, [row.sum() for row in x]

    assert agrees(fn, X, calls=2).skips == []


def test_exceptions_are_numpys() -> None:
    for fn in (lambda x: x + np.ones(7), lambda x: x[5], lambda x: x.reshape(5), lambda x: np.concatenate([x, x[0]]),
               lambda x: x.astype(np.uint8) + 300, lambda x: x.sum(axis=3), lambda x: x.nothing):  # fmt: skip
        agrees(fn, X)


@pytest.mark.parametrize(
    "value",
    [np.array([1, "a"], dtype=object), np.ma.masked_array([1, 2], [0, 1]), np.arange(3, dtype=np.uint64),
     np.arange(3, dtype=np.longlong), np.arange(3, dtype=">f4"), np.array([1j, 2]), np.array(["a", "b"]),
     np.arange(4)[::-1], np.rec.array([1, 2])],
    ids=lambda v: f"{type(v).__name__}-{v.dtype}",
)  # fmt: skip
def test_what_is_not_captured_runs_in_numpy(value: Any) -> None:
    def fn(x: Any) -> Any:
        return x + x, x[0]

    found, wanted = outcome(compile_fn(fn), value), outcome(fn, value)
    assert str(found) == str(wanted) and type(found[0]) is type(wanted[0])


def test_structured_arrays_run_in_numpy() -> None:
    table = np.zeros(3, dtype=[("a", "f4"), ("b", "i4")])
    assert difference(compile_fn(lambda x: x["a"] + 1)(table), table["a"] + 1) == ""


def test_random_numbers_are_numpys() -> None:
    np.random.seed(0)
    found = compile_fn(lambda x: x + np.random.rand(4))(X)
    np.random.seed(0)
    assert difference(found, X + np.random.rand(4)) == ""


def test_dtypes_without_a_kernel_break_before_anything_is_written() -> None:
    def fn(x: Any, y: Any) -> Any:
        y -= x @ x
        return y

    broken(fn, np.ones(4, dtype=bool), X, reason="not implemented for 'Bool'")


def test_trace_numpy_off() -> None:
    with config.patch(trace_numpy=False):
        seen = agrees(lambda x: np.sum(x * 2) + 1, X)
    assert seen.graphs == []
    with pytest.raises(InvalidOption):
        config.trace_numpy = 3  # type: ignore[assignment]


# ------------------------------------------------------------------ tensors


def test_tensors_and_arrays_in_one_graph() -> None:
    def fn(x: Any, weight: Any) -> Any:
        hidden = torch.relu(torch.from_numpy(x) @ weight)
        back = hidden.detach().numpy()
        return hidden, back.mean(), np.asarray(hidden.detach()) + 1, torch.as_tensor(back), torch.tensor(back * 2)

    weight = torch.ones(4, 2, requires_grad=True)
    with observe() as seen:
        found = compile_fn(fn)(X, weight)
    wanted = fn(X, weight)
    assert (seen.breaks, len(seen.graphs)) == ([], 1)
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.equal(ours, theirs) if isinstance(ours, torch.Tensor) else difference(ours, theirs) == ""


def test_an_array_of_a_tensor_is_its_memory() -> None:
    def fn(tensor: Any) -> Any:
        array = tensor.numpy()
        array += 1
        return array, tensor * 2

    tensor = torch.ones(3)
    array, doubled = compile_fn(fn)(tensor)
    assert tensor.tolist() == [2, 2, 2] and doubled.tolist() == [4, 4, 4]
    assert np.shares_memory(array, tensor.numpy())


def test_a_tensor_that_requires_grad_has_no_array() -> None:
    found = outcome(compile_fn(lambda t: t.numpy()), torch.ones(3, requires_grad=True))
    assert found[0] is RuntimeError and "requires grad" in found[1]


def test_functions_of_torch_on_arrays_are_torchs_to_judge() -> None:
    fn = lambda x: torch.add(torch.from_numpy(x), x)
    assert outcome(compile_fn(fn), X)[0] is outcome(fn, X)[0] is TypeError


# ------------------------------------------------------------------ wrap_numpy


@jitney.wrap_numpy
def _wrapped(x: Any, y: Any) -> Any:
    return np.sum(np.sin(x) * y, axis=0), {"mean": x.mean(), "rows": [x[0]]}


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_through_numpy(backend: str) -> None:
    x, y = torch.randn(3, 2, requires_grad=True), torch.randn(3, 2)
    compiled = compile_fn(_wrapped, backend=backend)
    with observe() as seen:
        total, more = compiled(x, y)
        (total.sum() + more["mean"] + more["rows"][0].sum()).backward()
    expected = torch.cos(x) * y + 1 / 6 + torch.tensor([[1.0, 1.0], [0, 0], [0, 0]])
    assert (seen.breaks, len(seen.graphs)) == ([], 1)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, expected)
    for ours, theirs in zip(compiled(y, y)[0], _wrapped(y, y)[0], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_wrap_numpy_without_compiling() -> None:
    total, more = _wrapped(torch.ones(3, 2), torch.ones(3, 2))
    assert total.shape == (2,) and more["mean"].item() == 1.0
    assert outcome(_wrapped, torch.ones(3, 2, requires_grad=True), torch.ones(3, 2))[0] is RuntimeError


def test_wrap_numpy_where_capture_breaks() -> None:
    fn = jitney.wrap_numpy(lambda x: np.cbrt(x))
    torch.testing.assert_close(compile_fn(fn)(torch.full((2,), 8.0)), torch.full((2,), 2.0))
    assert outcome(compile_fn(fn), torch.ones(2, requires_grad=True))[0] is RuntimeError


# ------------------------------------------------------------------ kernels


def test_the_product_of_many_pairs_is_one_kernel() -> None:
    def fn(x: Any, y: Any) -> Any:
        return np.sum(x[:, :, None] * y[:, None, :], axis=(-2, -1))

    x, y = np.random.default_rng(0).normal(size=(2, 1024, 64)).astype(np.float32)
    heard: list[Any] = []
    with events.details(), events.listen(heard.append):
        report = str(jitney.explain(fn, backend="llvm_cpu")(x, y))
    assert "Graph count: 1" in report and "1 kernels; as a whole: nothing" in report
    (schedule,) = [event for event in heard if isinstance(event, events.Scheduled)]
    (launch,) = schedule.launches
    assert schedule.arena + launch.written < 1 << 16 < x.nbytes  # the products would be 16 MB
    whole(fn, numbers(64, 8) / 100, numbers(64, 8) / 100, backend="llvm_cpu")


TRUTH = np.bool_(True)
WITH_TRUTHS: list[Callable[[torch.Tensor, Any], Any]] = [
    lambda x, s: x.int() * s, lambda x, s: s * x.int(), lambda x, s: torch.full((2,), s), lambda x, s: x.int() * TRUTH,
    lambda x, s: torch.where(x > 0, s, 0), lambda x, s: torch.arange(s), lambda x, s: (x > 0) * s,
    lambda x, s: x.int() * (np.float64(s) > 0),
]  # fmt: skip


@pytest.mark.parametrize("fn", WITH_TRUTHS)
def test_torch_takes_truth_values_of_numpy_for_floats(fn: Callable[[torch.Tensor, Any], Any]) -> None:
    x = torch.tensor([1.0, -2.0])
    compiled = jitney.compile(fn, backend="eager")
    for truth in (np.bool_(True), np.bool_(False)):
        found, wanted = compiled(x, truth), fn(x, truth)
        assert found.dtype is wanted.dtype and torch.equal(found, wanted)


@pytest.mark.parametrize("truth", [np.bool_(True), np.float64(2), np.int64(2), True])
def test_result_types_are_torchs_own(truth: Any) -> None:
    def fn(x: torch.Tensor, s: Any) -> Any:
        return x + 1, torch.result_type(x, s), torch.result_type(s, x), torch.result_type(s, s), torch.result_type(1, s)

    x = torch.tensor([1, 2])
    assert jitney.compile(fn, backend="eager")(x, truth)[1:] == fn(x, truth)[1:]


def test_an_index_that_numpy_calls_true_is_refused_as_in_eager() -> None:
    with pytest.raises(IndexError):
        jitney.compile(lambda x, s: x[s], backend="eager")(torch.ones(2), np.bool_(True))


@pytest.mark.parametrize("backend", BACKENDS)
def test_ranges_are_sequences_of_numbers(backend: str) -> None:
    def fn(x: Any, n: int) -> Any:
        rows, columns = np.meshgrid(range(-n, n + 1), range(3), indexing="ij")
        counted = np.concatenate([np.array(range(n)), np.asarray(range(1, 4, 2))])
        return x + rows[0], columns, counted, np.stack([range(3), range(3)]), np.sum(range(n)), np.asarray(range(0))

    compiled = compile_fn(fn, backend=backend, fullgraph=True)
    for n in (2, 3, 4):
        for ours, numpys in zip(compiled(np.ones(3), n), fn(np.ones(3), n), strict=True):
            assert ours.dtype == numpys.dtype and ours.strides == numpys.strides
            np.testing.assert_array_equal(ours, numpys)


@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor])
def test_a_tensor_of_an_array_on_a_device(make: Callable[..., torch.Tensor]) -> None:
    def fn(x: torch.Tensor) -> Any:
        rows = np.arange(6).reshape(2, 3) * 2
        made = make(rows, device=x.device, dtype=torch.float32)
        kept = make(rows, device="cpu")
        rows[0, 0] = 9  # as_tensor shares memory with it
        return x + made, kept, rows

    check(fn, torch.ones(2, 3), graphs=1, breaks=0)


# ------------------------------------------------------------------ constants that NumPy computes


def _filters(sr: int, n_fft: int, n_mels: int) -> Any:
    def mel(f: float) -> Any:
        return 2595.0 * np.log10(1 + f / 700.0)

    points = 700.0 * (10 ** (np.linspace(mel(0), mel(sr / 2), n_mels + 2) / 2595.0) - 1)
    bins = np.floor((n_fft + 1) * points / sr).astype(int)
    bank = np.zeros((n_mels, n_fft // 2 + 1))
    for m in range(1, n_mels + 1):
        for k in range(bins[m - 1], bins[m]):
            bank[m - 1, k] = (k - bins[m - 1]) / (bins[m] - bins[m - 1])
    return bank, bins.tolist()


CONSTANTS: dict[str, Callable[[Any], Any]] = {
    "filters": lambda x: (_filters(1600, 16, 4)[0] + x.sum(), _filters(1600, 16, 4)[1]),
    "scalars": lambda x: np.linspace(np.float64(1), np.log10(20.0), 3) + x[0, :3],
    "lists": lambda x: (x * 2, np.arange(6).reshape(2, 3).tolist(), np.ones(2).tolist()),
    "tests": lambda x: (x * 2, np.allclose(np.arange(2), [0, 1]), np.array_equal([1], [2])),
    "windows": lambda x: x[0] * np.hanning(9)[:4],
    "several": lambda x: (x * 2, np.unique([3, 1, 3], return_counts=True), np.unravel_index(5, (2, 3))),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CONSTANTS)
def test_numpy_computes_functions_of_constants(name: str, backend: str) -> None:
    whole(CONSTANTS[name], X, backend=backend)


SHARED: dict[str, Callable[[Any], Any]] = {
    "of data": lambda x: (np.allclose(x, x), np.unique(x), x.tolist()),
    "rows that are not one after the other": lambda x: (x * 2, np.unravel_index([1, 5], (2, 3))),
    "one array twice": lambda x: (x * 2, np.diag_indices(3)),
}


@pytest.mark.parametrize("name", SHARED)
def test_what_is_no_array_of_its_own_is_numpys_to_make(name: str) -> None:
    broken(SHARED[name], X, reason="")


def test_lists_of_constants_are_new_at_each_call() -> None:
    def fn(x: Any) -> Any:
        made = np.arange(4).reshape(2, 2).tolist()
        made[0].append(7)
        return x * 2, made

    agrees(fn, X, calls=3)
