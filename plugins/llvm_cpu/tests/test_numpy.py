"""NumPy's functions, methods and operators, captured and made into kernels, beside NumPy."""

from __future__ import annotations

import pytest
from numpy_cases import CASES, TAME, arrays, tame
from numpy_checks import agrees
from numpy_inventory import MORE

# Of those in the inventory, the ones that are captured.
CAPTURED = (
    "fix isneginf isposinf nancumprod nancumsum nanprod nanstd nanvar cumulative_sum cumulative_prod trapezoid astype "
    "take_along_axis linalg.vecdot linalg.svdvals linalg.trace linalg.cross linalg.outer fft.fftshift"
).split()

# Sums start with 0, and sorting does not tell -0.0 from 0.0 (docs/limits.md).
SIGN_OF_ZERO_IS_LOST = ("np.cumsum", "np.median", "np.sort", "x.sort", "x.cumsum")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_what_numpy_does(name: str) -> None:
    for dtype in ("float32", "float64", "int64", "uint8", "bool"):
        make = tame if name in TAME else arrays
        agrees(CASES[name], *make(dtype), sign=not name.startswith(SIGN_OF_ZERO_IS_LOST), backend="llvm_cpu")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [name for name in CAPTURED if name in MORE])
def test_kernels_of_what_is_made_of_other_functions(name: str) -> None:
    for dtype in ("float32", "int64"):
        agrees(MORE[name], *tame(dtype), sign="cum" not in name, backend="llvm_cpu")
