"""Every public function of NumPy: a program that calls it, or the reason why there is none.

``numpy_cases.py`` has the programs of what is used most; here is the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy_cases

Case = Callable[[Any, Any], Any]
PARTS = {"": np, "linalg.": np.linalg, "fft.": np.fft, "random.": np.random}


def public() -> list[str]:
    """Functions and ufuncs of ``numpy``, ``numpy.linalg``, ``numpy.fft`` and ``numpy.random``; classes are none."""
    found = []
    for prefix, module in PARTS.items():
        for name in module.__all__:
            value = getattr(module, name, None)
            if callable(value) and not isinstance(value, type):
                found.append(prefix + name)
    return sorted(found)


def in_cases() -> set[str]:
    """Those that ``numpy_cases.py`` calls."""
    text = Path(numpy_cases.__file__).read_text()
    named = {*numpy_cases._unary, *numpy_cases._binary}
    named |= {name.removeprefix("np.").partition("[")[0] for name in numpy_cases.CASES}
    return named | set(re.findall(r"np\.((?:linalg\.|fft\.|random\.)?\w+)\(", text))


def _plain(names: str, *more: Any) -> Iterator[tuple[str, Case]]:
    """Functions of one array, and of what else is given."""
    for name in names.split():
        yield name, lambda x, y, f=_function(name): f(x, *more)


def _of_two(names: str) -> Iterator[tuple[str, Case]]:
    for name in names.split():
        yield name, lambda x, y, f=_function(name): f(x, y)


def _of_rows(names: str) -> Iterator[tuple[str, Case]]:
    for name in names.split():
        yield name, lambda x, y, f=_function(name): f(x[0], y[0])


def _of_squares(names: str) -> Iterator[tuple[str, Case]]:
    """Of a symmetric matrix whose eigenvalues lie apart."""
    for name in names.split():
        yield name, lambda x, y, f=_function(name): f(x[:, :3] @ x[:, :3].T + np.diag(np.arange(1, 4) * 7))


def _drawn(**given: Any) -> Iterator[tuple[str, Case]]:
    """Functions that draw random numbers, after a seed."""
    for name, arguments in given.items():
        yield f"random.{name}", lambda x, y, f=getattr(np.random, name), a=arguments: _after_seed(f, a, x)


def _after_seed(draw: Callable[..., Any], arguments: tuple[Any, ...], x: Any) -> Any:
    np.random.seed(3)
    return draw(*arguments), x + 1


def _function(name: str) -> Any:
    prefix, _, short = name.rpartition(".")
    return getattr(PARTS[f"{prefix}." if prefix else ""], short, None)


def _written(write: Callable[[Any], Any]) -> Any:
    """What a function that returns nothing has written to a copy."""
    return lambda x, y: _given_back(write, x)


def _given_back(write: Callable[[Any], Any], x: Any) -> Any:
    made = x.copy()
    write(made)
    return made


_ALL: dict[str, Case] = {
    # ufuncs under their other names, and functions of each element
    **dict(_plain("acos acosh asin asinh atan atanh angle conj fix i0 imag real real_if_close sinc isneginf isposinf")),
    **dict(_plain("iscomplex isreal isrealobj bitwise_invert bitwise_not isfortran iterable unwrap")),
    **dict(_of_two("atan2 pow bitwise_left_shift bitwise_right_shift vecdot linalg.vecdot array_equiv isin")),
    "isnat": lambda x, y: np.isnat(np.array(["2020-01-01", "NaT"], "datetime64[D]")),
    "matvec": lambda x, y: np.matvec(x, y[0]),
    "vecmat": lambda x, y: np.vecmat(x[:, 0], y),
    "frompyfunc": lambda x, y: np.frompyfunc(lambda a: a + 1, 1, 1)(x),
    # reductions
    **dict(_plain("nanargmax nanargmin nancumprod nancumsum nanmedian nanprod nanstd nanvar corrcoef")),
    **dict(_plain("nanpercentile", 50)),
    **dict(_plain("nanquantile", 0.3)),
    "cumulative_sum": lambda x, y: np.cumulative_sum(x, axis=1),
    "cumulative_prod": lambda x, y: np.cumulative_prod(x, axis=0),
    "trapezoid": lambda x, y: np.trapezoid(x),
    "apply_along_axis": lambda x, y: np.apply_along_axis(lambda row: row.sum(), 0, x),
    "apply_over_axes": lambda x, y: np.apply_over_axes(np.sum, x, [0, 1]),
    "piecewise": lambda x, y: np.piecewise(x, [x > 1, x <= 1], [lambda a: a + 1, lambda a: a - 1]),
    # shapes
    **dict(_plain("asanyarray asarray_chkfinite asfortranarray diagflat trim_zeros", )),
    **dict(_of_two("broadcast_arrays row_stack")),
    "astype": lambda x, y: np.astype(x, np.float32),
    "block": lambda x, y: np.block([[x, y], [y, x]]),
    "broadcast_shapes": lambda x, y: np.broadcast_shapes(x.shape, (1, 4)),
    "concat": lambda x, y: np.concat([x, y], axis=1),
    "permute_dims": lambda x, y: np.permute_dims(x, (1, 0)),
    "require": lambda x, y: np.require(x, requirements="C"),
    "resize": lambda x, y: np.resize(x, (2, 3)),
    "unstack": lambda x, y: np.unstack(x),
    "unravel_index": lambda x, y: np.unravel_index([1, 5], x.shape),
    "ravel_multi_index": lambda x, y: np.ravel_multi_index(([0, 1], [2, 3]), x.shape),
    "packbits": lambda x, y: np.packbits(x > 1),
    "unpackbits": lambda x, y: np.unpackbits((x > 1).astype(np.uint8)),
    # indices
    **dict(_plain("argwhere flatnonzero lexsort sort_complex")),
    "argpartition": lambda x, y: np.sort(np.argpartition(x, 2, axis=1)[:, :0]),
    "choose": lambda x, y: np.choose((x[0] > 1).astype(np.int64), [x[1], y[1]]),
    "compress": lambda x, y: np.compress([True, False, True], x, axis=0),
    "copyto": _written(lambda x: np.copyto(x, 2)),
    "diag_indices": lambda x, y: x[np.diag_indices(3)],
    "diag_indices_from": lambda x, y: np.diag_indices_from(x[:, :3]),
    "digitize": lambda x, y: np.digitize(x, [0, 1, 2]),
    "extract": lambda x, y: np.extract(x > 1, x),
    "fill_diagonal": _written(lambda x: np.fill_diagonal(x, 3)),
    "indices": lambda x, y: np.indices((3, 4)) + (x > 1),
    "mask_indices": lambda x, y: x[:, :3][np.mask_indices(3, np.triu)],
    "partition": lambda x, y: np.partition(x, 1, axis=1)[:, 1],
    "place": _written(lambda x: np.place(x, x > 1, [1])),
    "put": _written(lambda x: np.put(x, [0, 2], [1, 0])),
    "put_along_axis": _written(lambda x: np.put_along_axis(x, np.array([[0], [1], [2]]), 1, axis=1)),
    "putmask": _written(lambda x: np.putmask(x, x > 1, 1)),
    "take_along_axis": lambda x, y: np.take_along_axis(x, np.array([[0], [1], [2]]), axis=1),
    "tril_indices": lambda x, y: x[np.tril_indices(3)],
    "tril_indices_from": lambda x, y: np.tril_indices_from(x),
    "triu_indices": lambda x, y: x[np.triu_indices(3)],
    "triu_indices_from": lambda x, y: np.triu_indices_from(x),
    "nested_iters": lambda x, y: [[int(b) for b in inner] for inner in [np.arange(2)] for _ in
                                  np.nested_iters(np.arange(6).reshape(2, 3), [[0], [1]])[0]],
    # sets
    **dict(_of_two("intersect1d setdiff1d setxor1d union1d ediff1d")),
    **dict(_plain("unique_values")),
    **{n: lambda x, y, f=getattr(np, n): tuple(f(x)) for n in "unique_all unique_counts unique_inverse".split()},
    # windows, polynomials, histograms, signals
    **{n: lambda x, y, f=getattr(np, n): f(4) * x for n in "bartlett blackman hamming hanning".split()},
    "kaiser": lambda x, y: np.kaiser(4, 2.0) * x,
    **dict(_of_rows("correlate polyadd polysub polymul polyval")),
    "polydiv": lambda x, y: np.polydiv(x[0] * 0 + 3.0, np.array([1.0, 2.0])),
    **{n: lambda x, y, f=getattr(np, n): f(x[0]) for n in "polyder polyint".split()},
    "poly": lambda x, y: np.poly(x[0]),
    "roots": lambda x, y: np.roots(np.array([1.0, -3.0, 2.0]) + x[0, :1] * 0),
    "polyfit": lambda x, y: np.polyfit(np.arange(4), x[0], 2),
    "histogram2d": lambda x, y: np.histogram2d(np.arange(4), np.arange(4), bins=2),
    "histogramdd": lambda x, y: np.histogramdd(np.arange(8).reshape(4, 2), bins=2)[0],
    "histogram_bin_edges": lambda x, y: np.histogram_bin_edges(x, bins=3),
    # what is made
    "empty": lambda x, y: np.empty(x.shape).shape,
    "geomspace": lambda x, y: np.geomspace(1, 8, 4) + x,
    "fromfunction": lambda x, y: np.fromfunction(lambda i, j: i + j, (3, 4)) + x,
    "fromiter": lambda x, y: np.fromiter(range(4), np.int64) + x,
    "frombuffer": lambda x, y: np.frombuffer(b"\1\2\3\4", np.uint8) + x,
    "fromstring": lambda x, y: np.fromstring("1 2 3 4", sep=" ") + x,
    "from_dlpack": lambda x, y: np.from_dlpack(np.arange(4)) + x,
    # about types
    "can_cast": lambda x, y: np.can_cast(x.dtype, np.float64),
    "common_type": lambda x, y: np.common_type(np.ones(2), np.ones(2, np.float32)),
    "isdtype": lambda x, y: np.isdtype(x.dtype, "real floating"),
    "issubdtype": lambda x, y: np.issubdtype(x.dtype, np.floating),
    "min_scalar_type": lambda x, y: np.min_scalar_type(300),
    "mintypecode": lambda x, y: np.mintypecode(["f", "d"]),
    "promote_types": lambda x, y: np.promote_types(x.dtype, np.float32),
    "typename": lambda x, y: np.typename("d"),
    "may_share_memory": lambda x, y: np.may_share_memory(x, x[1:]),
    "shares_memory": lambda x, y: np.shares_memory(x, y),
    # text
    "array2string": lambda x, y: np.array2string(x),
    "array_repr": lambda x, y: np.array_repr(x),
    "array_str": lambda x, y: np.array_str(x),
    "base_repr": lambda x, y: np.base_repr(x.shape[0], 3),
    "binary_repr": lambda x, y: np.binary_repr(x.shape[0]),
    "format_float_positional": lambda x, y: np.format_float_positional(1.5),
    "format_float_scientific": lambda x, y: np.format_float_scientific(1.5),
    "einsum_path": lambda x, y: np.einsum_path("ij,kj->ik", x, y)[0],
    # dates
    "busday_count": lambda x, y: np.busday_count("2020-01-01", "2020-01-11"),
    "busday_offset": lambda x, y: np.busday_offset("2020-01-01", 3),
    "is_busday": lambda x, y: np.is_busday("2020-01-01"),
    "datetime_as_string": lambda x, y: np.datetime_as_string(np.datetime64("2020-01-01")),
    "datetime_data": lambda x, y: np.datetime_data(np.dtype("datetime64[D]")),
    # matrices
    "asmatrix": lambda x, y: np.asmatrix(x),
    "bmat": lambda x, y: np.bmat([[x, y]]),
    # how errors are treated
    "geterr": lambda x, y: np.geterr(),
    "getbufsize": lambda x, y: np.getbufsize(),
    "geterrcall": lambda x, y: np.geterrcall(),
    "seterr": lambda x, y: np.seterr(**np.geterr()),
    "seterrcall": lambda x, y: np.seterrcall(np.geterrcall()),
    "setbufsize": lambda x, y: np.setbufsize(np.getbufsize()),
    "get_printoptions": lambda x, y: np.get_printoptions()["precision"],
    "set_printoptions": lambda x, y: np.set_printoptions(precision=np.get_printoptions()["precision"]),
    # linear algebra
    **dict(_of_squares("linalg.cholesky linalg.cond linalg.eigh linalg.eigvals linalg.matrix_rank linalg.pinv")),
    **dict(_of_squares("linalg.slogdet linalg.svdvals linalg.eig linalg.qr")),
    **dict(_plain("linalg.diagonal linalg.matrix_norm linalg.matrix_transpose linalg.trace linalg.vector_norm")),
    "linalg.cross": lambda x, y: np.linalg.cross(x[:, :3], y[:, :3]),
    "linalg.lstsq": lambda x, y: np.linalg.lstsq(x[:, :2] + np.eye(3)[:, :2] * 5, y[:, 0], rcond=None)[0],
    "linalg.matmul": lambda x, y: np.linalg.matmul(x, y.T),
    "linalg.multi_dot": lambda x, y: np.linalg.multi_dot([x, y.T, x]),
    "linalg.outer": lambda x, y: np.linalg.outer(x[0], y[0]),
    "linalg.tensordot": lambda x, y: np.linalg.tensordot(x, y.T, axes=1),
    "linalg.tensorinv": lambda x, y: np.linalg.tensorinv(x[:, :3] * 0 + np.eye(3) * 2, ind=1),
    "linalg.tensorsolve": lambda x, y: np.linalg.tensorsolve(x[:, :3] * 0 + np.eye(3) * 2, y[:, 0]),
    # transforms
    **dict(_plain("fft.fft2 fft.fftn fft.hfft fft.ifft fft.ifft2 fft.ifftn fft.ihfft fft.irfft fft.irfft2 fft.irfftn")),
    **dict(_plain("fft.rfft fft.rfft2 fft.rfftn fft.fftshift fft.ifftshift")),
    "fft.fftfreq": lambda x, y: np.fft.fftfreq(4) + x,
    "fft.rfftfreq": lambda x, y: np.fft.rfftfreq(6) + x,
    # random numbers
    **dict(_drawn(
        beta=(2, 3, 4), binomial=(5, 0.5, 4), bytes=(3,), chisquare=(2, 4), choice=(5, 3), dirichlet=([1, 2],),
        exponential=(1, 4), f=(2, 3, 4), gamma=(2, 1, 4), geometric=(0.5, 4), gumbel=(0, 1, 4),
        hypergeometric=(3, 4, 2, 4), laplace=(0, 1, 4), logistic=(0, 1, 4), lognormal=(0, 1, 4), logseries=(0.5, 4),
        multinomial=(4, [0.5, 0.5]), multivariate_normal=([0, 0], [[1, 0], [0, 1]]), negative_binomial=(3, 0.5, 4),
        noncentral_chisquare=(2, 1, 4), noncentral_f=(2, 3, 1, 4), normal=(0, 1, 4), pareto=(2, 4), permutation=(5,),
        poisson=(2, 4), power=(2, 4), randint=(5,), randn=(4,), random=(4,), random_sample=(4,), ranf=(4,),
        rayleigh=(1, 4), sample=(4,), standard_cauchy=(4,), standard_exponential=(4,), standard_gamma=(2, 4),
        standard_normal=(4,), standard_t=(3, 4), triangular=(0, 1, 2, 4), uniform=(0, 1, 4), vonmises=(0, 1, 4),
        wald=(1, 1, 4), weibull=(2, 4), zipf=(2, 4),
    )),
    "random.seed": lambda x, y: (np.random.seed(3), np.random.rand(3, 4) + x)[1],
    "random.default_rng": lambda x, y: np.random.default_rng(3).random((3, 4)) + x,
    "random.get_state": lambda x, y: np.random.get_state()[0],
    "random.set_state": lambda x, y: np.random.set_state(np.random.get_state()),
    "random.shuffle": lambda x, y: (np.random.seed(3), _given_back(np.random.shuffle, x))[1],
}  # fmt: skip

# Older versions of NumPy lack some.
MORE = {name: case for name, case in _ALL.items() if name in public()}

# What no program here calls, and why.
LEFT_OUT = {
    "reads or writes files": "fromfile fromregex genfromtxt load loadtxt save savetxt savez savez_compressed",
    "is about NumPy itself": "get_include info show_config show_runtime test",
    "is a context manager about text": "printoptions",
    "is deprecated": "random.random_integers",
}

# What is captured since the inventory was made, called in other ways: some of them break.
VARIANTS: dict[str, Case] = {
    "pad pairs": lambda x, y: np.pad(x, ((1, 0), (2, 3))),
    "pad pair": lambda x, y: np.pad(x, (0, 2)),
    "pad value": lambda x, y: np.pad(x, 1, constant_values=3),
    "pad frac": lambda x, y: np.pad(x, 1, constant_values=0.5),
    "pad nan": lambda x, y: np.pad(x, 1, constant_values=np.nan),
    "pad big": lambda x, y: np.pad(x, 1, constant_values=300),
    "pad neg": lambda x, y: np.pad(x, 1, constant_values=-1),
    "pad values": lambda x, y: np.pad(x, 1, constant_values=(1, 2)),
    "pad edge": lambda x, y: np.pad(x, 1, mode="edge"),
    "pad 0": lambda x, y: np.pad(x, 0),
    "pad 1d": lambda x, y: np.pad(x[0], (1, 2)),
    "pad T": lambda x, y: np.pad(x.T, 1),
    "pad dict": lambda x, y: np.pad(x, {0: (1, 2)}),
    "take_along_axis neg": lambda x, y: np.take_along_axis(x, np.array([[-1], [1], [0]]), axis=-1),
    "take_along_axis 0": lambda x, y: np.take_along_axis(x, np.array([[-1, 0, 1, 2]]), axis=0),
    "take_along_axis oob": lambda x, y: np.take_along_axis(x, np.array([[9], [1], [0]]), axis=1),
    "take_along_axis argsort": lambda x, y: np.take_along_axis(x, np.argsort(x, axis=1, kind="stable"), axis=1),
    "take_along_axis bc": lambda x, y: np.take_along_axis(x, np.array([[0]]), axis=1),
    "trapezoid dx": lambda x, y: np.trapezoid(x, dx=0.5, axis=0),
    "trapezoid dx int": lambda x, y: np.trapezoid(x, dx=2),
    "trapezoid x": lambda x, y: np.trapezoid(x, x=np.arange(4)),
    "trapezoid 1": lambda x, y: np.trapezoid(x[:, :1]),
    "fftshift ax": lambda x, y: np.fft.fftshift(x, axes=1),
    "fftshift axs": lambda x, y: np.fft.ifftshift(x, axes=(0,)),
    "nanvar dd": lambda x, y: np.nanvar(x, ddof=1),
    "nanvar ax": lambda x, y: np.nanvar(x, axis=1, keepdims=True),
    "nanstd axs": lambda x, y: np.nanstd(x, axis=(0, 1)),
    "nanstd few": lambda x, y: np.nanstd(x[:1], axis=0, ddof=1),
    "nanvar neg": lambda x, y: np.nanvar(x, axis=-1),
    "cumulative_sum dtype": lambda x, y: np.cumulative_sum(x, axis=0, dtype=np.float64),
    "cumulative_sum init": lambda x, y: np.cumulative_sum(x, axis=0, include_initial=True),
    "cumulative_sum none": lambda x, y: np.cumulative_sum(x[0]),
    "vecdot ax": lambda x, y: np.linalg.vecdot(x, y, axis=0),
    "vecdot bc": lambda x, y: np.linalg.vecdot(x, y[0]),
    "cross 2": lambda x, y: np.cross(x[:, :2], y[:, :2]),
    "cross bc": lambda x, y: np.cross(x[:, :3], y[0, :3]),
    "cross ax": lambda x, y: np.cross(x, y, axis=0),
    "linalg.cross ax": lambda x, y: np.linalg.cross(x, y, axis=0),
    "cross pos": lambda x, y: np.cross(x[:, :3], y[:, :3], -1),
    "trace off": lambda x, y: np.linalg.trace(x, offset=1),
    "trace 3d": lambda x, y: np.linalg.trace(np.stack([x, y])),
    "trace dt": lambda x, y: np.linalg.trace(x, dtype=np.float64),
    "matrix_transpose": lambda x, y: np.linalg.matrix_transpose(np.stack([x, y])),
    "linalg.matmul": lambda x, y: np.linalg.matmul(x[0], y[0]),
    "linalg.outer 2d": lambda x, y: np.linalg.outer(x, y),
    "linalg.tensordot": lambda x, y: np.linalg.tensordot(x, y, axes=((0,), (0,))),
    "eigvalsh UPLO": lambda x, y: np.linalg.eigvalsh(x[:, :3] @ x[:, :3].T + np.diag([1, 7, 19]), UPLO="U"),
    "astype copy": lambda x, y: np.astype(x, np.float32, copy=False),
    "astype same": lambda x, y: np.astype(x, x.dtype),
    "nanprod ax": lambda x, y: np.nanprod(x, axis=1, keepdims=True),
    "nanprod none kd": lambda x, y: np.nanprod(x, keepdims=True),
    "nancumsum ax": lambda x, y: np.nancumsum(x, axis=1),
    "nancumprod ax": lambda x, y: np.nancumprod(x, axis=0),
    "fix scalar": lambda x, y: np.fix(x[0, 2]),
    "isreal sc": lambda x, y: np.isreal(x[0, 0]),
    "isposinf out": lambda x, y: np.isposinf(x),
    "fix out": lambda x, y: np.fix(x, out=np.zeros(x.shape)),
    "svdvals": lambda x, y: np.linalg.svdvals(np.stack([x, y])),
    "pad list": lambda x, y: np.pad([1, 2, 3], 1) + x[0, :1],
    "pad write": lambda x, y: (np.pad(x, 0).__setitem__((0, 0), 1), x)[1],
    "astype write": lambda x, y: (np.astype(x, x.dtype).__setitem__((0, 0), 1), x)[1],
}
if not hasattr(np, "cumulative_sum"):
    VARIANTS = {name: case for name, case in VARIANTS.items() if "cumulative" not in name}
