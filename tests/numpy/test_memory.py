"""Which results of NumPy are views, which are the argument itself, and what is written when something raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import compile_fn
from numpy_cases import CASES, tame
from numpy_checks import agrees, broken, difference, numbers, outcome, whole

X = numbers(3, 4)
SQUARE = numbers(3, 3)
BACKENDS = ["eager", "aot_eager", "llvm_cpu"]


def _shared(results: Any, arguments: tuple[Any, ...]) -> list[Any]:
    """For each array of the results: is it an argument, does it share memory with one?"""
    if isinstance(results, (tuple, list)):
        return [found for one in results for found in _shared(one, arguments)]
    if not isinstance(results, np.ndarray):
        return []
    return [[(results is a, np.shares_memory(results, a)) for a in arguments]]


OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "ravel of a slice": lambda x, y: (x[::2].ravel(), np.ravel(x[:, 1]), np.ravel(x.T), np.ravel(x[:1])),
    "ravel of a row": lambda x, y: (x[0, ::2].ravel(), x[0].ravel(), x[:, :1].ravel(), x[0, 0, ...].ravel()),
    "reshape of a slice": lambda x, y: (x[::2].reshape(-1), x[0, ::2].reshape(2, 1), x.T.reshape(-1)),
    "squeeze": lambda x, y: (np.squeeze(x), x.squeeze(), np.squeeze(x, axis=()), x[None].squeeze(0)),
    "atleast": lambda x, y: (np.atleast_1d(x), np.atleast_2d(x), np.atleast_3d(x), np.atleast_2d(x[0])),
    "atleast, three dimensions": lambda x, y: (np.atleast_3d(x[None]), np.atleast_1d(x[0, 0, ...])),
    "the same": lambda x, y: (x.reshape(x.shape), x[...], x[:], x[()], x.transpose(0, 1), np.expand_dims(x, ())),
    "einsum of one": lambda x, y: (np.einsum("ij->ji", x), np.einsum("ij->ij", x), np.einsum("ii->i", x[:, :3])),
    "einsum": lambda x, y: (np.einsum("ij->i", x), np.einsum("ij,ij->ij", x, y)),
    "nothing to do": lambda x, y: (np.diff(x, 0), np.round(x), np.clip(x, None, None), np.roll(x, 0), np.tile(x, 1)),
    "matrix_power": lambda x, y: (np.linalg.matrix_power(x[:, :3], 1), np.linalg.matrix_power(x[:, :3], 2)),
    "no axes": lambda x, y: (np.sum(x, axis=()), np.max(x, axis=()), np.mean(x, axis=())),
    "dtypes": lambda x, y: (x.astype(x.dtype, copy=False), x.astype(x.dtype), np.array(x), np.asarray(x)),
    "one piece": lambda x, y: (np.split(x, 1), np.concatenate([x]), np.stack([x]), np.vstack([x]), np.hstack([x])),
    "where": lambda x, y: (np.where(True, x, y), np.nan_to_num(x), np.tril(x, 9), x.repeat(1, 0), x.conj()),
}


@pytest.mark.parametrize("name", [*OTHERS, *(n for n in CASES if n not in ("x.flat", "x.nonzero"))])
def test_what_shares_memory_in_numpy_does_so_compiled(name: str) -> None:
    fn = {**CASES, **OTHERS}[name]
    for dtype in ("float64", "int64"):
        ours, theirs = tame(dtype), tame(dtype)
        with np.errstate(all="ignore"):
            found, wanted = outcome(compile_fn(fn), *ours), outcome(fn, *theirs)
        assert _shared(found, ours) == _shared(wanted, theirs)


def _ravel(x: Any) -> Any:
    y = x[::2, 0].ravel()
    y += 1
    return y, x


def _ravel_of_a_step(x: Any) -> Any:
    np.ravel(x[0, ::2]).fill(9)
    return x


def _diagonal(x: Any) -> Any:
    np.einsum("ii->i", x)[...] = 0
    return x


def _transposed(x: Any) -> Any:
    y = np.einsum("ij->ji", x)
    y += 1
    return x


def _no_difference(x: Any) -> Any:
    y = np.diff(x, 0)
    y += 1
    return x


def _first_power(x: Any) -> Any:
    y = np.linalg.matrix_power(x, 1)
    y += 1
    return x


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "fn", [_ravel, _ravel_of_a_step, _diagonal, _transposed, _no_difference, _first_power], ids=lambda fn: fn.__name__
)
def test_writes_to_results_reach_what_they_reach_in_numpy(fn: Any, backend: str) -> None:
    agrees(fn, SQUARE, backend=backend)


def test_what_is_the_same_object_in_numpy_is_so_compiled() -> None:
    def fn(x: Any) -> Any:
        y = x + 1
        return (np.squeeze(x) is x, x.squeeze() is x, x.squeeze(()) is x, x[None].squeeze() is x, x.reshape(3, 3) is x,
                np.atleast_1d(x) is x, np.atleast_2d(x) is x, np.atleast_3d(x) is x, y.squeeze() is y)  # fmt: skip

    assert compile_fn(fn)(SQUARE) == fn(SQUARE)
    assert True in fn(SQUARE) and False in fn(SQUARE)


# ------------------------------------------------------------------ float16


OVERFLOWS: list[Callable[[Any], Any]] = [
    lambda x: np.median(x),
    lambda x: np.linalg.norm(x / 200),
    lambda x: np.linalg.norm(x / 200, axis=0),
    lambda x: np.stack([x, x, -x]).T @ np.ones(3, np.float16),
    lambda x: np.stack([x, x, -x]).sum(0),
    lambda x: np.cumsum(np.concatenate([x, -x])),
    lambda x: np.std(x),
    lambda x: np.mean(x),
    lambda x: np.mean(np.stack([x, x, -x]), axis=0, dtype=np.float16),
    lambda x: np.einsum("ij->j", np.stack([x, x, -x])),
]


@pytest.mark.parametrize("fn", OVERFLOWS, ids=range(len(OVERFLOWS)))
def test_float16_overflows_where_it_does_in_numpy(fn: Any) -> None:
    agrees(fn, np.full(2, 60000, np.float16))


def test_a_deviation_overflows_where_its_square_does() -> None:
    whole(lambda x: (x.std(), np.std(x), x.var()), np.array([1e30, -1e30], np.float32))
    whole(lambda x: (x.std(), np.std(x, ddof=1)), np.array([1e-30, -1e-30], np.float32))


# ------------------------------------------------------------------ writes beside what raises


def _written_then_indexed(x: Any, at: Any) -> None:
    x += 1
    x[at] = 0


def _written_then_read(x: Any, at: Any) -> Any:
    x += 1
    return x[at]


def _read_then_written(x: Any, at: Any) -> Any:
    y = x[at]
    x += 1
    return y


def _written_then_taken(x: Any, at: Any) -> Any:
    x += 1
    return np.take(x, at)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "fn", [_written_then_indexed, _written_then_read, _read_then_written, _written_then_taken], ids=lambda f: f.__name__
)
def test_an_index_out_of_range_leaves_what_numpy_leaves(fn: Any, backend: str) -> None:
    for places in ([1, 7], [0, -1]):
        agrees(fn, numbers(5), np.array(places), backend=backend)


def _singular(x: Any) -> Any:
    x += 1
    return np.linalg.inv(x)


def test_writes_and_what_may_raise_are_in_different_graphs() -> None:
    places = np.array([0, -1])
    broken(_written_then_read, numbers(5), places, reason="after a write to an argument")
    broken(_read_then_written, numbers(5), places, reason="after what may raise")
    whole(lambda x, at: _read_then_written(x + 1, at), numbers(5), places)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_singular_matrix_leaves_what_numpy_leaves(backend: str) -> None:
    agrees(_singular, np.ones((2, 2)), backend=backend)


def _first_and_last(x: Any) -> Any:
    x[[0, -1]] = 3.0
    return x


def _listed(x: Any) -> Any:
    x += 1
    return x[[0, 7]]


def test_lists_of_indices_are_checked_by_capture() -> None:
    whole(_first_and_last, X)
    broken(_first_and_last, np.zeros((0, 3)), reason="out of bounds")
    broken(_listed, X, reason="out of bounds")
    broken(_written_then_indexed, numbers(5), np.array([0, 2]), reason="by an array of indices")


@pytest.mark.parametrize("shape", [(1,), (1, 1), (), (2,), (1, 4), (1, 1, 4)], ids=str)
def test_arrays_written_to_an_element_or_a_row(shape: tuple[int, ...]) -> None:
    def element(x: Any, y: Any) -> Any:
        x += 1
        x[0] = y
        return x

    def empty_key(x: Any, y: Any) -> Any:
        x[0, 0, ...] = y
        return x

    agrees(element, numbers(5), numbers(*shape))
    agrees(lambda x, y: x.fill(y), numbers(5), numbers(*shape))
    agrees(element, X, numbers(*shape))
    agrees(empty_key, X, numbers(*shape))


# ------------------------------------------------------------------ integers divided by zero


def _divided(x: Any, y: Any) -> Any:
    x += 1
    x %= y
    return x // y, np.fmod(x, y), divmod(x, y), x.sum() // y, 5 // y, x // 0, x % 0, x // 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
def test_integers_divided_by_zero_are_zero(dtype: str, backend: str) -> None:
    y = np.arange(4).astype(dtype)
    whole(_divided, np.arange(4) * 3, y, backend=backend)
    assert difference(compile_fn(_floor)(y, np.array([1, 0], dtype)[:1]), _floor(y, np.array([1], dtype))) == ""


def _floor(x: Any, y: Any) -> Any:
    return x // y
