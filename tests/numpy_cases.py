"""Functions, methods and operators of NumPy, one small program each, and the arrays to call them with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = Callable[[Any, Any], Any]

DTYPES = ("float32", "float64", "int64", "int32", "bool", "uint8")
MORE_DTYPES = ("float16", "int16", "int8")


def arrays(dtype: str) -> tuple[Any, Any]:
    """Two arrays of shape (3, 4), with the values that functions are known to disagree on."""
    kind = np.dtype(dtype).kind
    if kind == "f":
        x = np.array([[0.0, -0.0, 1.0, -1.5], [np.nan, np.inf, -np.inf, 2.5], [0.3, -0.7, 3.5, 100.25]], dtype)
        y = np.array([[1.0, 2.0, -0.0, 0.5], [1.0, np.inf, 2.0, -2.5], [np.nan, 0.25, -3.0, 7.0]], dtype)
        return x, y
    if kind == "b":
        return np.arange(12).reshape(3, 4) % 3 == 0, np.arange(12).reshape(3, 4) % 2 == 0
    info = np.iinfo(dtype)
    x = np.array([[0, 1, 2, 3], [info.max, info.min, 5, 7], [10, 4, 2, 1]], dtype)
    y = np.array([[1, 2, 3, 4], [2, 3, 1, info.max], [7, 1, 2, 9]], dtype)
    return x, y


def tame(dtype: str) -> tuple[Any, Any]:
    """Two arrays of shape (3, 4) whose values are small: for sums and products, where rounding adds up."""
    x = ((np.arange(12) * 7) % 11 - (5 if np.dtype(dtype).kind not in "ub" else 0)).reshape(3, 4)
    y = ((np.arange(12) * 5) % 7 + 1).reshape(3, 4)
    scale = 4 if np.dtype(dtype).kind == "f" else 1
    return (x / scale).astype(dtype), (y / scale).astype(dtype)


_unary = (
    "absolute fabs negative positive sign sqrt square reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan "
    "arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh deg2rad radians rad2deg degrees floor ceil trunc rint "
    "isnan isinf isfinite signbit logical_not invert conjugate cbrt spacing frexp modf bitwise_count"
).split()
_binary = (
    "add subtract multiply divide true_divide floor_divide remainder mod fmod power float_power divmod maximum minimum "
    "fmax fmin arctan2 hypot logaddexp logaddexp2 copysign nextafter heaviside gcd lcm bitwise_and bitwise_or "
    "bitwise_xor left_shift right_shift logical_and logical_or logical_xor less less_equal equal not_equal greater "
    "greater_equal ldexp"
).split()
_operators: dict[str, Case] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "**": lambda x, y: x**y,
    "@": lambda x, y: x @ y.T,
    "&": lambda x, y: x & y,
    "|": lambda x, y: x | y,
    "^": lambda x, y: x ^ y,
    "<<": lambda x, y: x << y,
    ">>": lambda x, y: x >> y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "-x": lambda x, y: -x,
    "+x": lambda x, y: +x,
    "~x": lambda x, y: ~x,
    "abs": lambda x, y: abs(x),
    "divmod(x, y)": lambda x, y: divmod(x, y),
    "x + 1": lambda x, y: x + 1,
    "1 + x": lambda x, y: 1 + x,
    "x - 2": lambda x, y: x - 2,
    "2 - x": lambda x, y: 2 - x,
    "x * 0.1": lambda x, y: x * 0.1,
    "0.1 / x": lambda x, y: 0.1 / x,
    "x ** 2": lambda x, y: x**2,
    "x ** 3": lambda x, y: x**3,
    "x ** 0.5": lambda x, y: x**0.5,
    "x ** -1": lambda x, y: x**-1,
    "2 ** x": lambda x, y: 2**x,
    "x // 2": lambda x, y: x // 2,
    "x % 3": lambda x, y: x % 3,
    "7 % x": lambda x, y: 7 % x,
    "x < 0.1": lambda x, y: x < 0.1,
    "x == 1": lambda x, y: x == 1,
    "x > 300": lambda x, y: x > 300,
    "x + 300": lambda x, y: x + 300,
    "x * True": lambda x, y: x * True,
    "x & 3": lambda x, y: x & 3,
    "x << 2": lambda x, y: x << 2,
    "x + np.float32(2)": lambda x, y: x + np.float32(2),
    "x * np.float64(2)": lambda x, y: x * np.float64(2),
    "x + np.int64(3)": lambda x, y: x + np.int64(3),
    "x * np.pi": lambda x, y: x * np.pi,
    "x + x[0]": lambda x, y: x + x[0],
    "x + x[0, 2]": lambda x, y: x + x[0, 2],
    "x * np.sqrt(2.0)": lambda x, y: x * np.sqrt(2.0),
}
_reductions: dict[str, Case] = {
    name + text: lambda x, y, fn=getattr(np, name), k=kwargs: fn(x, **k)
    for name in "sum prod mean var std max min amax amin ptp argmax argmin all any count_nonzero nansum nanmean nanmax "
    "nanmin cumsum cumprod median average sort".split()
    for text, kwargs in (("", {}), ("[0]", {"axis": 0}), ("[-1]", {"axis": -1}))
}  # fmt: skip
_reductions |= {
    name + " keepdims": lambda x, y, fn=getattr(np, name): fn(x, axis=1, keepdims=True)
    for name in "sum prod mean var std max min argmax all any count_nonzero ptp median".split()
}
_reductions |= {
    name + "[(0, 1)]": lambda x, y, fn=getattr(np, name): fn(x, axis=(0, 1))
    for name in "sum prod mean var std max min all any ptp count_nonzero".split()
}
_methods: dict[str, Case] = {
    "x.sum": lambda x, y: x.sum(),
    "x.sum(0)": lambda x, y: x.sum(0),
    "x.mean": lambda x, y: x.mean(axis=1),
    "x.std": lambda x, y: x.std(),
    "x.var": lambda x, y: x.var(axis=0, ddof=1),
    "x.max": lambda x, y: x.max(),
    "x.min": lambda x, y: x.min(axis=0),
    "x.prod": lambda x, y: x.prod(axis=1),
    "x.any": lambda x, y: x.any(),
    "x.all": lambda x, y: x.all(axis=1),
    "x.argmax": lambda x, y: x.argmax(),
    "x.argmin": lambda x, y: x.argmin(1),
    "x.cumsum": lambda x, y: x.cumsum(),
    "x.cumprod": lambda x, y: x.cumprod(0),
    "x.round": lambda x, y: x.round(1),
    "x.clip": lambda x, y: x.clip(1, 2),
    "x.clip(y)": lambda x, y: x.clip(y, None),
    "x.T": lambda x, y: x.T,
    "x.mT": lambda x, y: x.mT,
    "x.reshape": lambda x, y: x.reshape(2, -1),
    "x.reshape(t)": lambda x, y: x.reshape((4, 3)),
    "x.ravel": lambda x, y: x.ravel(),
    "x.flatten": lambda x, y: x.T.flatten(),
    "x.transpose": lambda x, y: x.transpose(1, 0),
    "x.swapaxes": lambda x, y: x.swapaxes(0, 1),
    "x.squeeze": lambda x, y: x[:, :1].squeeze(),
    "x.copy": lambda x, y: x.copy(),
    "x.astype(f8)": lambda x, y: x.astype(np.float64),
    "x.astype(f4)": lambda x, y: x.astype("float32"),
    "x.astype(i4)": lambda x, y: x.astype(np.int32),
    "x.astype(bool)": lambda x, y: x.astype(bool),
    "x.astype(u1)": lambda x, y: x.astype(np.uint8),
    "x.dot": lambda x, y: x.dot(y.T),
    "x.trace": lambda x, y: x.trace(),
    "x.repeat": lambda x, y: x.repeat(2, axis=0),
    "x.take": lambda x, y: x.take([0, -1], axis=1),
    "x.argsort": lambda x, y: x.argsort(kind="stable"),
    "x.diagonal": lambda x, y: x.diagonal(),
    "x.shape": lambda x, y: (x.shape, x.ndim, x.size, x.dtype, x.itemsize, x.nbytes, len(x)),
    "x.item": lambda x, y: x[0, 2].item(),
    "x.tolist": lambda x, y: x.tolist(),
    "x.nonzero": lambda x, y: x.nonzero(),
    "x.view": lambda x, y: x.view(np.uint8),
    "x.sort": lambda x, y: np.sort(x, axis=None),
    "x.ptp": lambda x, y: np.ptp(x),
    "x.compress": lambda x, y: x.compress([True, False, True], axis=0),
    "x.conj": lambda x, y: x.conj(),
    "x.sum(dtype)": lambda x, y: x.sum(dtype=np.float64),
    "x.mean(dtype)": lambda x, y: x.mean(dtype=np.float64),
    "x.real": lambda x, y: x.real,
    "x.flat": lambda x, y: x.flat[3],
    "x.strides": lambda x, y: x.strides,
}
_shapes: dict[str, Case] = {
    "reshape": lambda x, y: np.reshape(x, (2, 6)),
    "reshape(F)": lambda x, y: np.reshape(x, (2, 6), order="F"),
    "ravel": lambda x, y: np.ravel(x),
    "transpose": lambda x, y: np.transpose(x),
    "swapaxes": lambda x, y: np.swapaxes(x, 0, 1),
    "moveaxis": lambda x, y: np.moveaxis(x[None], 0, -1),
    "rollaxis": lambda x, y: np.rollaxis(x, 1),
    "expand_dims": lambda x, y: np.expand_dims(x, (0, 2)),
    "expand_dims(-1)": lambda x, y: np.expand_dims(x, -1),
    "squeeze": lambda x, y: np.squeeze(x[None]),
    "squeeze(0)": lambda x, y: np.squeeze(x[None], axis=0),
    "broadcast_to": lambda x, y: np.broadcast_to(x[0], (2, 4)),
    "atleast_1d": lambda x, y: np.atleast_1d(x),
    "atleast_2d": lambda x, y: np.atleast_2d(x[0]),
    "atleast_3d": lambda x, y: np.atleast_3d(x),
    "atleast_3d[1]": lambda x, y: np.atleast_3d(x[0]),
    "split": lambda x, y: np.split(x, 2, axis=1),
    "split[list]": lambda x, y: np.split(x, [1, 2]),
    "array_split": lambda x, y: np.array_split(x, 2),
    "vsplit": lambda x, y: np.vsplit(x, 3),
    "hsplit": lambda x, y: np.hsplit(x, [1]),
    "dsplit": lambda x, y: np.dsplit(x[None], 2),
    "concatenate": lambda x, y: np.concatenate([x, y]),
    "concatenate[1]": lambda x, y: np.concatenate((x, y), axis=1),
    "concatenate[None]": lambda x, y: np.concatenate([x, y], axis=None),
    "stack": lambda x, y: np.stack([x, y], axis=-1),
    "concatenate mixed": lambda x, y: np.concatenate([x, y.astype(np.float64)]),
    "vstack": lambda x, y: np.vstack([x, y[0]]),
    "hstack": lambda x, y: np.hstack([x, y]),
    "hstack[1]": lambda x, y: np.hstack([x[0], y[0]]),
    "dstack": lambda x, y: np.dstack([x, y]),
    "column_stack": lambda x, y: np.column_stack([x[0], y[0]]),
    "append": lambda x, y: np.append(x, y, axis=0),
    "roll": lambda x, y: np.roll(x, 2),
    "roll[1]": lambda x, y: np.roll(x, -1, axis=1),
    "flip": lambda x, y: np.flip(x),
    "fliplr": lambda x, y: np.fliplr(x),
    "flipud": lambda x, y: np.flipud(x),
    "rot90": lambda x, y: np.rot90(x),
    "tile": lambda x, y: np.tile(x, (2, 1)),
    "tile[2]": lambda x, y: np.tile(x, 2),
    "repeat": lambda x, y: np.repeat(x, 3),
    "repeat[1]": lambda x, y: np.repeat(x, 2, axis=1),
    "tril": lambda x, y: np.tril(x),
    "triu": lambda x, y: np.triu(x, 1),
    "where": lambda x, y: np.where(x > y, x, y),
    "where 0": lambda x, y: np.where(x != 0, x, 0),
    "where 0.5": lambda x, y: np.where(x != 0, x, 0.5),
    "where bools": lambda x, y: np.where(x, True, False),
    "where numbers": lambda x, y: np.where(x > 0, 1, -1),
    "clip": lambda x, y: np.clip(x, 1, 2),
    "clip[None]": lambda x, y: np.clip(x, None, 1),
    "clip floats": lambda x, y: np.clip(x, 0.5, 1.5),
    "clip arrays": lambda x, y: np.clip(x, y[0], y),
    "round": lambda x, y: np.round(x),
    "round(2)": lambda x, y: np.round(x, 2),
    "around": lambda x, y: np.around(x),
    "nan_to_num": lambda x, y: np.nan_to_num(x),
    "nan_to_num(1)": lambda x, y: np.nan_to_num(x, nan=1.0, posinf=2.0, neginf=3.0),
    "take": lambda x, y: np.take(x, [1, 5]),
    "take[0]": lambda x, y: np.take(x, [[0], [-1]], axis=0),
    "diff": lambda x, y: np.diff(x),
    "diff[0]": lambda x, y: np.diff(x, axis=0),
    "diagonal": lambda x, y: np.diagonal(x),
    "diag": lambda x, y: np.diag(x[0]),
    "argsort": lambda x, y: np.argsort(x, kind="stable"),
    "argsort[0]": lambda x, y: np.argsort(x, axis=0),
    "unique": lambda x, y: np.unique(x),
    "nonzero": lambda x, y: np.nonzero(x),
    "isclose": lambda x, y: np.isclose(x, y),
    "allclose": lambda x, y: np.allclose(x, x, equal_nan=True),
    "array_equal": lambda x, y: np.array_equal(x, y),
    "iscomplexobj": lambda x, y: np.iscomplexobj(x),
    "ndim": lambda x, y: np.ndim(x),
    "shape": lambda x, y: np.shape(x),
    "size": lambda x, y: np.size(x),
    "result_type": lambda x, y: np.result_type(x, y),
    "matrix_transpose": lambda x, y: np.matrix_transpose(x),
    "copy": lambda x, y: np.copy(x),
    "delete": lambda x, y: np.delete(x, 1, 0),
    "insert": lambda x, y: np.insert(x, 1, 0, axis=0),
    "pad": lambda x, y: np.pad(x, 1),
    "searchsorted": lambda x, y: np.searchsorted(np.array([0, 2, 4]), x),
    "meshgrid": lambda x, y: np.meshgrid(x[0], y[0]),
    "ix_": lambda x, y: x[np.ix_([0, 2], [1, 3])],
    "select": lambda x, y: np.select([x > y], [x], 0),
    "cross": lambda x, y: np.cross(x[:, :3], y[:, :3]),
    "gradient": lambda x, y: np.gradient(x),
    "interp": lambda x, y: np.interp(x[0], [0, 1], [2, 3]),
    "percentile": lambda x, y: np.percentile(x, 50),
    "quantile": lambda x, y: np.quantile(x, 0.3),
    "cov": lambda x, y: np.cov(x),
    "histogram": lambda x, y: np.histogram(np.arange(4)),
    "bincount": lambda x, y: np.bincount(np.arange(4)),
    "convolve": lambda x, y: np.convolve(x[0], y[0]),
}
_products: dict[str, Case] = {
    "matmul": lambda x, y: np.matmul(x, y.T),
    "matmul[1]": lambda x, y: np.matmul(x, y[0]),
    "matmul[11]": lambda x, y: np.matmul(x[0], y[0]),
    "dot": lambda x, y: np.dot(x, y.T),
    "dot[11]": lambda x, y: np.dot(x[0], y[0]),
    "vdot": lambda x, y: np.vdot(x, y),
    "inner": lambda x, y: np.inner(x, y),
    "outer": lambda x, y: np.outer(x[0], y[1]),
    "kron": lambda x, y: np.kron(x, y),
    "tensordot": lambda x, y: np.tensordot(x, y, axes=((1,), (1,))),
    "einsum": lambda x, y: np.einsum("ij,kj->ik", x, y),
    "trace": lambda x, y: np.trace(x),
    "linalg.norm": lambda x, y: np.linalg.norm(x),
    "linalg.norm[0]": lambda x, y: np.linalg.norm(x, axis=0),
    "linalg.norm[1]": lambda x, y: np.linalg.norm(x[0], 1),
    "linalg.inv": lambda x, y: np.linalg.inv(x[:, :3] @ y[:, :3].T + np.eye(3)),
    "linalg.det": lambda x, y: np.linalg.det(x[:, :3] + np.eye(3)),
    "linalg.solve": lambda x, y: np.linalg.solve(x[:, :3] + 3 * np.eye(3), y),
    "linalg.matrix_power": lambda x, y: np.linalg.matrix_power(x[:, :3], 2),
    "vander": lambda x, y: np.vander(x[0], 3),
    "linalg.svd": lambda x, y: np.linalg.svd(x)[1],
    "linalg.eigvalsh": lambda x, y: np.linalg.eigvalsh(x @ x.T),
    "fft": lambda x, y: np.fft.fft(x),
    "add.reduce": lambda x, y: np.add.reduce(x),
    "multiply.outer": lambda x, y: np.multiply.outer(x[0], y[0]),
    "add.at": lambda x, y: np.add.accumulate(x),
}
_indexing: dict[str, Case] = {
    "x[0]": lambda x, y: x[0],
    "x[-1, 1]": lambda x, y: x[-1, 1],
    "x[1:]": lambda x, y: x[1:],
    "x[:, ::2]": lambda x, y: x[:, ::2],
    "x[..., 0]": lambda x, y: x[..., 0],
    "x[0, 1, ...]": lambda x, y: x[0, 1, ...],
    "x[None]": lambda x, y: x[None, :, None],
    "x[::-1]": lambda x, y: x[::-1],
    "x[[0, 2]]": lambda x, y: x[[0, 2]],
    "x[:, [1, 0]]": lambda x, y: x[:, [1, 0]],
    "x[[0, 1], [1, 2]]": lambda x, y: x[[0, 1], [1, 2]],
    "x[[0], :, None]": lambda x, y: x[[0], :, None],
    "x[0, [1, 2]]": lambda x, y: x[0, [1, 2]],
    "x[x > 0]": lambda x, y: x[x > 0],
    "x[True]": lambda x, y: x[True],
    "x[np.int64(1)]": lambda x, y: x[np.int64(1)],
    "x[[True, False, True]]": lambda x, y: x[[True, False, True]],
    "x[np.array([0, 1])]": lambda x, y: x[np.array([0, 1])],
    "x[()]": lambda x, y: x[()],
    "iteration": lambda x, y: [row + 1 for row in x],
    "unpacking": lambda x, y: _unpacked(*x),
    "zip": lambda x, y: [a + b for a, b in zip(x, y)],
    "sum()": lambda x, y: sum(x),
    "max()": lambda x, y: max(x[0, 0], x[0, 1]),
    "scalars": lambda x, y: x[0, 0] + x[0, 1] * 2,
    "scalar method": lambda x, y: x[0, 2].sum() + x[0].max(),
    "map": lambda x, y: list(map(np.square, x)),
    "in": lambda x, y: 2 in x,
    "float()": lambda x, y: float(x[0, 2]),
    "int()": lambda x, y: int(x[0, 2]),
    "bool()": lambda x, y: bool(x[0, 2]),
    "str": lambda x, y: f"{x[0, 2]}",
}
_creation: dict[str, Case] = {
    "zeros": lambda x, y: np.zeros(x.shape) + x,
    "zeros(dtype)": lambda x, y: np.zeros(4, dtype=x.dtype) + y,
    "ones": lambda x, y: np.ones((3, 1), dtype=np.int32) * x,
    "full": lambda x, y: np.full((3, 4), 2) * x,
    "full(0.5)": lambda x, y: np.full(4, 0.5) + x,
    "arange": lambda x, y: np.arange(4) + x,
    "arange(3)": lambda x, y: np.arange(1, 9, 2) * x,
    "arange float": lambda x, y: np.arange(0.0, 2.0, 0.5) + x,
    "linspace": lambda x, y: np.linspace(0, 1, 4) + x,
    "eye": lambda x, y: np.eye(3) @ x,
    "identity": lambda x, y: np.identity(3),
    "zeros_like": lambda x, y: np.zeros_like(x),
    "ones_like": lambda x, y: np.ones_like(x),
    "full_like": lambda x, y: np.full_like(x, 1),
    "empty_like": lambda x, y: np.empty_like(x).shape,
    "ones_like(dtype)": lambda x, y: np.ones_like(x, dtype=np.float32),
    "array": lambda x, y: np.array([1, 2, 3, 4]) + x,
    "array of floats": lambda x, y: np.array([[1.5], [2.5], [0.5]]) * x,
    "array of arrays": lambda x, y: np.array([x[0], y[0]]),
    "array of scalars": lambda x, y: np.array([x[0, 0], y[0, 1]]),
    "array(x)": lambda x, y: np.array(x),
    "asarray": lambda x, y: np.asarray(x),
    "array(dtype)": lambda x, y: np.array(x, dtype=np.float64),
    "array mixed": lambda x, y: np.array([x[0, 2], 1.5]),
    "float32()": lambda x, y: np.float32(x[0, 2]) + 1,
    "tri": lambda x, y: np.tri(3),
    "ascontiguousarray": lambda x, y: np.ascontiguousarray(x.T),
    "isscalar": lambda x, y: np.isscalar(x),
    "random": lambda x, y: x.shape == np.random.rand(3, 4).shape,
    "logspace": lambda x, y: np.logspace(0, 1, 4),
}


def _unpacked(a: Any, b: Any, c: Any) -> Any:
    return a, b + c


# Sums start with 0, and sorting does not tell -0.0 from 0.0 (docs/limits.md).
SIGN_OF_ZERO_IS_LOST = ("np.cumsum", "np.median", "np.sort", "x.sort", "x.cumsum")

CASES: dict[str, Case] = {
    **{f"np.{n}": lambda x, y, f=getattr(np, n): f(x) for n in _unary},
    **{f"np.{n}": lambda x, y, f=getattr(np, n): f(x, y) for n in _binary},
    **_operators, **{f"np.{k}": v for k, v in _reductions.items()}, **_methods,
    **{f"np.{k}": v for k, v in {**_shapes, **_products}.items()}, **_indexing, **_creation,
}  # fmt: skip
# Values that add up or are decomposed: compared on tame arrays only.
TAME = {f"np.{k}" for k in _products} | {
    "@",
    "np.cov",
    "np.percentile",
    "np.quantile",
    "np.interp",
    "np.gradient",
    "np.convolve",
    "x.dot",
    "np.logaddexp2",
    "x.std",
    "x.var",
    "x.sum(dtype)",
    "x.mean",
    "x.mean(dtype)",
    *(f"np.{k}" for k in _reductions if k.startswith(("var", "std", "mean", "average", "nanmean"))),
}
