"""NumPy's functions, methods and operators, captured and made into kernels, beside NumPy."""

from __future__ import annotations

import pytest
from numpy_cases import CASES, TAME, arrays, tame
from numpy_checks import agrees

# Sums start with 0, and sorting does not tell -0.0 from 0.0 (docs/limits.md).
SIGN_OF_ZERO_IS_LOST = ("np.cumsum", "np.median", "np.sort", "x.sort", "x.cumsum")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_what_numpy_does(name: str) -> None:
    for dtype in ("float32", "float64", "int64", "uint8", "bool"):
        make = tame if name in TAME else arrays
        agrees(CASES[name], *make(dtype), sign=not name.startswith(SIGN_OF_ZERO_IS_LOST), backend="llvm_cpu")
