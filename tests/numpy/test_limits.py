"""What docs/limits.md says of NumPy programs: one test for each row of its table."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers import compile_fn, observe
from numpy_checks import broken, difference, numbers, outcome

X = numbers(3, 4)


def test_floating_point_errors_are_neither_warned_about_nor_raised() -> None:
    fn = lambda x: (x / 0, x.astype(np.int64) // 0)
    with pytest.warns(RuntimeWarning):
        fn(X)
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        infinite, zero = compile_fn(fn)(X)
    assert np.isinf(infinite).all() and not zero.any()


def test_sums_agree_up_to_rounding() -> None:
    x = np.random.default_rng(0).normal(size=(1000, 7)).astype(np.float32)
    found, wanted = compile_fn(lambda x: x.sum(0))(x), x.sum(0, dtype=np.float64)
    assert np.abs(found - wanted).max() < 1e-3 and found.dtype == np.float32


def test_cumsum_loses_the_sign_of_a_zero() -> None:
    zero = np.array([-0.0])
    assert np.signbit(np.cumsum(zero))[0] and not np.signbit(compile_fn(lambda x: np.cumsum(x))(zero))[0]


def test_casts_to_integers_agree_in_range() -> None:
    x = np.array([-2.7, 0.0, 3.9, 2.0**31 - 1, -(2.0**31)])
    fn = lambda x: (x.astype(np.int64), x.astype(np.int32))
    assert difference(compile_fn(fn)(x), fn(x)) == ""
    broken(lambda x: x.astype(np.int8), X, reason="C does not define")


def test_the_memory_of_a_new_array_is_a_tensors() -> None:
    fn = lambda x: x + 1
    made = compile_fn(fn)(X)
    assert fn(X).base is None and made.base is not None and not made.flags.owndata


def test_empty_arrays_are_zeros() -> None:
    assert compile_fn(lambda x: np.empty(3))(X).tolist() == [0, 0, 0]


def test_what_fails_in_the_graph_runs_in_numpy() -> None:
    places, singular = np.array([0, 7]), np.ones((2, 2))
    fn = lambda x, at: x[at]
    with observe() as seen:
        assert outcome(compile_fn(fn), X, places) == outcome(fn, X, places)
        inverse = lambda x: np.linalg.inv(x)
        assert outcome(compile_fn(inverse), singular) == outcome(inverse, singular)
    assert (seen.breaks, len(seen.graphs)) == ([], 2)


BREAKING = {
    "where": lambda x: np.sum(x, where=x > 2),
    "out": lambda x: np.sum(x, out=np.zeros(())),
    "ufunc where": lambda x: np.add(x, 1, where=x > 2, out=x),
    "flags": lambda x: x.T.flags,
    "complex": lambda x: x * 1j,
    "argsort": lambda x: np.argsort(x),
    "backwards": lambda x: x[::-1] + 1,
    "base": lambda x: x.base,
}


@pytest.mark.parametrize("name", BREAKING)
def test_breaks_where_the_table_says_so(name: str) -> None:
    fn = BREAKING[name]
    with observe() as seen:
        found = compile_fn(fn)(X.copy())
    assert str(found) == str(fn(X.copy()))
    assert seen.breaks
