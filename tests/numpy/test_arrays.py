"""NumPy's functions, methods and operators, one by one and on every dtype: as in NumPy, or a graph break."""

from __future__ import annotations

import pytest
from numpy_cases import CASES, DTYPES, MORE_DTYPES, SIGN_OF_ZERO_IS_LOST, TAME, arrays, tame
from numpy_checks import agrees, broken, whole

# What breaks: a dtype for which it does, and a part of the reason.
BREAKS: dict[str, tuple[str, str]] = {
    "x.tolist": ("float32", "is not captured"),
    "x.nonzero": ("float32", "is not captured"),
    "x.view": ("float32", "is not captured"),
    "x.compress": ("float32", "is not captured"),
    "x.flat": ("float32", "is not captured"),
    "x.strides": ("float32", "is not captured"),
    "np.rollaxis": ("float32", "is not captured"),
    "np.dsplit": ("float32", "is not captured"),
    "np.fliplr": ("float32", "is not captured"),
    "np.flipud": ("float32", "is not captured"),
    "np.rot90": ("float32", "is not captured"),
    "np.nonzero": ("float32", "is not captured"),
    "np.allclose": ("float32", "is not captured"),
    "np.array_equal": ("float32", "is not captured"),
    "np.iscomplexobj": ("float32", "is not captured"),
    "np.result_type": ("float32", "is not captured"),
    "np.delete": ("float32", "is not captured"),
    "np.insert": ("float32", "is not captured"),
    "np.searchsorted": ("float32", "is not captured"),
    "np.ix_": ("float32", "is not captured"),
    "np.select": ("float32", "is not captured"),
    "np.gradient": ("float32", "is not captured"),
    "np.interp": ("float32", "is not captured"),
    "np.percentile": ("float32", "is not captured"),
    "np.quantile": ("float32", "is not captured"),
    "np.cov": ("float32", "is not captured"),
    "np.convolve": ("float32", "is not captured"),
    "np.linalg.svd": ("float32", "is not captured"),
    "np.fft": ("float32", "is not captured"),
    "np.flip": ("float32", "is not captured"),
    "np.unique": ("float32", "is not captured"),
    "np.add.reduce": ("float32", "ufunc.reduce"),
    "np.multiply.outer": ("float32", "ufunc.outer"),
    "np.add.at": ("float32", "ufunc.accumulate"),
    "np.cbrt": ("float32", "no form in torch"),
    "np.spacing": ("float32", "no form in torch"),
    "np.frexp": ("float32", "no form in torch"),
    "np.modf": ("float32", "no form in torch"),
    "np.ldexp": ("int32", "no form in torch"),
    "np.bitwise_count": ("int32", "no form in torch"),
    "np.lcm": ("int32", "no form in torch"),
    "np.reciprocal": ("int32", "a loop of NumPy over the kind"),
    "np.power": ("int64", "negative exponents"),
    "x ** 2": ("bool", "int8 in NumPy"),
    "x > 300": ("uint8", "the number 300 is no uint8"),
    "np.sum": ("uint8", "uint64"),
    "np.prod[(0, 1)]": ("float32", "several axes"),
    "np.argsort[0]": ("float32", "not stable"),
    "np.reshape(F)": ("float32", "order='F'"),
    "np.linalg.matrix_power": ("int64", "NumPy gives int64"),
    "x.astype(u1)": ("float32", "C does not define"),
    "x.real": ("float32", "ndarray.real"),
    "x[::-1]": ("float32", "backwards"),
    "x[x > 0]": ("float32", "depends on its values"),
    "x[[True, False, True]]": ("float32", "depends on its values"),
    "x[0, [1, 2]]": ("float32", "beside other indices"),
    "x[[0], :, None]": ("float32", "beside other indices"),
    "x[True]": ("float32", "an index of class bool"),
    "str": ("float32", "__str__ of an array"),
    "in": ("float32", "__contains__ of an array"),
    "random": ("float32", "draws from a random number generator"),
    "isscalar": ("float32", "is NumPy's"),
}
# Of these, the ones that are captured for other dtypes.
CAPTURED_ELSEWHERE = {
    "np.reciprocal",
    "np.power",
    "x ** 2",
    "x > 300",
    "np.sum",
    "np.linalg.matrix_power",
    "x.astype(u1)",
}
FOR_INTEGERS = {
    "np.invert",
    "np.gcd",
    "np.bitwise_and",
    "np.bitwise_or",
    "np.bitwise_xor",
    "np.left_shift",
    "np.right_shift",
    "&",
    "|",
    "^",
    "<<",
    ">>",
    "~x",
    "x & 3",
    "x << 2",
    "x.astype(u1)",
}
WITHOUT_A_GRAPH = {"x.shape", "x.conj", "np.atleast_1d", "np.ndim", "np.shape", "np.size", "asarray"}
WHOLE = [n for n in CASES if n not in BREAKS or n in CAPTURED_ELSEWHERE]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_as_in_numpy_on_every_dtype(name: str) -> None:
    for dtype in DTYPES:
        for make in [tame] if name in TAME else [arrays, tame]:
            agrees(CASES[name], *make(dtype), sign=not name.startswith(SIGN_OF_ZERO_IS_LOST))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_as_in_numpy_on_rarer_dtypes(name: str) -> None:
    for dtype in MORE_DTYPES:
        for make in [tame] if name in TAME else [arrays, tame]:
            agrees(CASES[name], *make(dtype), sign=not name.startswith(SIGN_OF_ZERO_IS_LOST))


@pytest.mark.parametrize("name", WHOLE)
def test_captured_as_one_graph(name: str) -> None:
    whole(CASES[name], *tame("int64" if name in FOR_INTEGERS else "float64"), graphs=name not in WITHOUT_A_GRAPH)


@pytest.mark.parametrize("name", BREAKS)
def test_what_would_differ_breaks_with_a_reason(name: str) -> None:
    dtype, reason = BREAKS[name]
    broken(CASES[name], *tame(dtype), reason=reason)
