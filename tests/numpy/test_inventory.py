"""Every public function of NumPy: captured, or a graph break and then NumPy's own; results and dtypes are NumPy's."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from numpy_cases import CASES, DTYPES, SIGN_OF_ZERO_IS_LOST, TAME, tame
from numpy_checks import agrees
from numpy_inventory import LEFT_OUT, MORE, VARIANTS, in_cases, public

# Of what is not in ``test_arrays.py``: captured as one graph. Everything else here breaks.
WHOLE = set(
    "acos acosh asin asinh atan atanh atan2 conj fix isneginf isposinf iscomplex isreal pow nancumprod nancumsum "
    "nanprod nanstd nanvar cumulative_sum cumulative_prod trapezoid asanyarray astype concat permute_dims empty "
    "take_along_axis linalg.vecdot linalg.svdvals linalg.matrix_transpose linalg.trace linalg.cross linalg.matmul "
    "linalg.outer linalg.tensordot fft.fftshift fft.ifftshift random.randint".split()
)
# Functions of integers, captured for these.
OF_INTEGERS = set("bitwise_invert bitwise_not bitwise_left_shift bitwise_right_shift".split())
# Of constants, whose results are known.
OF_CONSTANTS = set(
    "ravel_multi_index indices tril_indices triu_indices bartlett blackman hamming hanning kaiser geomspace".split()
)
WITHOUT_A_GRAPH = {"asanyarray"}
NUMBERS = [name for name in MORE if not name.startswith("random.")]


QUIETLY = pytest.mark.filterwarnings(
    "ignore::RuntimeWarning", "ignore::DeprecationWarning", "ignore::numpy.exceptions.RankWarning"
)


def test_every_public_function_has_a_program_or_a_reason() -> None:
    left = [name for names in LEFT_OUT.values() for name in names.split()]
    found = [*in_cases(), *MORE, *left]
    assert not set(public()) - set(found)
    assert not [name for name in {*MORE, *left} if found.count(name) > 1]
    assert set(WHOLE) | OF_INTEGERS <= set(MORE) | {"cumulative_sum", "cumulative_prod"}  # of NumPy 2.1


@pytest.mark.filterwarnings(
    "ignore::RuntimeWarning", "ignore::DeprecationWarning", "ignore::numpy.exceptions.RankWarning"
)
@pytest.mark.parametrize("name", MORE)
def test_it_is_as_in_numpy_and_captured_where_the_table_says_so(name: str) -> None:
    seen = agrees(MORE[name], *tame("int64" if name in OF_INTEGERS else "float64"))
    if name in WHOLE | OF_INTEGERS | OF_CONSTANTS:
        assert (seen.breaks, seen.skips, len(seen.graphs)) == ([], [], name not in WITHOUT_A_GRAPH)
    else:
        assert seen.breaks and "not captured: module" not in seen.breaks[0], (seen.breaks, seen.skips)


@QUIETLY
@pytest.mark.parametrize("name", VARIANTS)
def test_called_in_other_ways(name: str) -> None:
    for dtype in ("float32", "uint8") if name.startswith("pad") else ("float32",):
        agrees(VARIANTS[name], *tame(dtype), sign="cum" not in name)


ALL = {**CASES, **{f"np.{name}": MORE[name] for name in NUMBERS}}
# Whose numbers hang on rounding: eigenvalues of multiple ones, ranks, least squares, what is drawn anew.
UNSTABLE = ("np.linalg", "np.poly", "np.roots", "np.random", "random", "np.corrcoef", "np.cov")
TAME_TOO = {*TAME, *(f"np.{n}" for n in "nanvar nanstd trapezoid correlate convolve vecdot matvec vecmat".split())}


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, Any, Any]:
    """A function and two arrays of shape (3, 4), in any order in memory."""
    name = draw(st.sampled_from([n for n in ALL if not n.startswith(UNSTABLE)]))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    if dtype.kind == "f":
        quarters = st.integers(-20, 20).map(lambda n: n / 4)
        wild = st.sampled_from([np.nan, np.inf, -np.inf, -0.0, 0.0])
        elements: Any = quarters if name in TAME_TOO else st.one_of(quarters, quarters, wild)
    else:
        elements = st.booleans() if dtype.kind == "b" else st.integers(0 if dtype.kind == "u" else -20, 20)
    made = []
    for _ in range(2):
        x = draw(hnp.arrays(dtype, (3, 4), elements=elements))
        made.append({"C": x, "F": np.asfortranarray(x), "strided": np.repeat(x, 2, axis=1)[:, ::2]}[draw(LAYOUTS)])
    return name, *made


# NumPy gives either zero of two, by the order of its operands or by its loop.
EXTREMES = ("np.max", "np.min", "np.amax", "np.amin", "np.nanmax", "np.nanmin", "np.fmax", "np.fmin")
SIGNLESS = (*SIGN_OF_ZERO_IS_LOST, "np.cumulative_sum", "np.nancumsum", *EXTREMES)
LAYOUTS = st.sampled_from(["C", "C", "F", "strided"])


@pytest.mark.filterwarnings(
    "ignore::RuntimeWarning", "ignore::DeprecationWarning", "ignore::numpy.exceptions.RankWarning"
)
@given(programs())
def test_any_function_on_any_array(program: tuple[str, Any, Any]) -> None:
    name, x, y = program
    agrees(ALL[name], x, y, sign=not name.startswith(SIGNLESS))
