"""Ufuncs: NumPy resolves the dtypes, torch computes.

``UFUNCS`` says what each is on tensors that already have the dtypes of NumPy's loop. A Python number reaches it as such
only where torch's operator takes it; it has been rounded to the loop's dtype before.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.numpy.dtypes import BACK
from jitney.capture.numpy.stand_in import Array
from jitney.capture.python.c_boundary import specialise
from jitney.torch_compat import torch_private
from jitney_numpy.calls import NUMBERS, SYMBOLS, ArrayTable, as_array, as_in_numpy, number, sampled, write
from jitney_numpy.dtypes import as_numpy, as_torch, cast, is_float, rounded

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

table = ArrayTable()
captures = table.captures

Tensor = Any


def _only(*kinds: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """For loops over these kinds of dtypes (NumPy's letters) only."""

    def wrap(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def run(*args: Tensor) -> Tensor:
            kind = next(BACK[a.dtype].kind for a in args if isinstance(a, torch.Tensor))
            if kind not in kinds:
                raise Break(f"a loop of NumPy over the kind {kind!r}")
            return fn(*args)

        return run

    return wrap


def _power(a: Tensor, b: Tensor) -> Tensor:
    kind = (a if isinstance(a, torch.Tensor) else b).dtype
    if is_float(
        kind
    ):  # torch has special cases for exponents that are numbers, and so has NumPy's **, but not np.power
        a, b = (v if isinstance(v, torch.Tensor) else torch.full((), v, dtype=kind) for v in (a, b))
    elif isinstance(b, torch.Tensor) or b < 0:
        raise Break("a power of integers: NumPy refuses negative exponents")
    return a**b


def _remainder(a: Tensor, b: Tensor) -> Tensor:
    """A zero has the sign of the divisor."""
    found = a % b
    return torch.where(found == 0, torch.copysign(found, b), found) if is_float(found.dtype) else found


def _divided(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A division of integers: where the divisor is 0 NumPy gives 0, and torch raises."""

    def run(a: Tensor, b: Tensor) -> Tensor:
        kind = (a if isinstance(a, torch.Tensor) else b).dtype
        if is_float(kind) or (type(b) is int and b):
            return fn(a, b)
        dividend, divisor = (v if isinstance(v, torch.Tensor) else torch.full((), v, dtype=kind) for v in (a, b))
        zero = divisor == 0
        return fn(dividend, divisor.masked_fill(zero, 1)).masked_fill(zero, 0)

    return run


def _heaviside(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(torch.isnan(a), a, torch.heaviside(a, b))


def _nextafter(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype is torch.float16:
        raise Break("np.nextafter of float16")
    return torch.nextafter(a, b)


def _sign(a: Tensor) -> Tensor:
    return torch.where(torch.isnan(a), a, torch.sign(a)) if is_float(a.dtype) else torch.sign(a)


def _unchanged(a: Tensor) -> Tensor:
    return a.clone()


def _integral(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Rounding: integers stay as they are."""
    return lambda a: fn(a) if is_float(a.dtype) else a.clone()


def _absolute(a: Tensor) -> Tensor:
    return a.clone() if a.dtype is torch.bool else torch.abs(a)


def _scaled(factor: float) -> Callable[[Tensor], Tensor]:
    return lambda a: a * rounded(factor, a.dtype)


def _false(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A question about floats, whose answer for integers is no."""
    return lambda a: fn(a) if is_float(a.dtype) else torch.zeros_like(a, dtype=torch.bool)


def _finite(a: Tensor) -> Tensor:
    return torch.isfinite(a) if is_float(a.dtype) else torch.ones_like(a, dtype=torch.bool)


def _signbit(a: Tensor) -> Tensor:
    return torch.zeros_like(a) if a.dtype is torch.bool else torch.signbit(a)


_float, _int = _only("f"), _only("i", "u")
# ufunc -> its form on tensors of the loop's dtypes; those in OPERATORS may get Python numbers, too
UFUNCS: dict[Any, Callable[..., Any]] = {
    np.arctan2: _float(torch.arctan2), np.hypot: _float(torch.hypot), np.logaddexp: _float(torch.logaddexp),
    np.copysign: _float(torch.copysign), np.nextafter: _float(_nextafter),
    np.heaviside: _float(_heaviside), np.fmod: _divided(torch.fmod), np.gcd: _int(torch.gcd),
    np.logaddexp2: _float(torch.logaddexp2),
    np.maximum: torch.maximum, np.minimum: torch.minimum,
    np.fmax: torch.fmax, np.fmin: torch.fmin, np.matmul: torch.matmul,
    np.logical_and: torch.logical_and, np.logical_or: torch.logical_or, np.logical_xor: torch.logical_xor,
    np.logical_not: torch.logical_not, np.invert: torch.bitwise_not,
    np.isnan: _false(torch.isnan), np.isinf: _false(torch.isinf), np.isfinite: _finite, np.signbit: _signbit,
    np.sign: _sign, np.absolute: _absolute, np.fabs: torch.abs, np.negative: torch.neg, np.positive: _unchanged,
    np.conjugate: _unchanged, np.sqrt: torch.sqrt, np.square: lambda a: a * a, np.reciprocal: _float(torch.reciprocal),
    np.exp: torch.exp, np.exp2: torch.exp2, np.expm1: torch.expm1, np.log: torch.log, np.log2: torch.log2,
    np.log10: torch.log10, np.log1p: torch.log1p, np.sin: torch.sin, np.cos: torch.cos, np.tan: torch.tan,
    np.arcsin: torch.asin, np.arccos: torch.acos, np.arctan: torch.atan, np.sinh: torch.sinh, np.cosh: torch.cosh,
    np.tanh: torch.tanh, np.arcsinh: torch.asinh, np.arccosh: torch.acosh, np.arctanh: torch.atanh,
    np.deg2rad: _scaled(np.pi / 180), np.radians: _scaled(np.pi / 180), np.rad2deg: _scaled(180 / np.pi),
    np.degrees: _scaled(180 / np.pi), np.floor: _integral(torch.floor), np.ceil: _integral(torch.ceil),
    np.trunc: _integral(torch.trunc), np.rint: torch.round,
    np.divmod: lambda a, b: (_divided(torch.floor_divide)(a, b), _divided(_remainder)(a, b)),
}  # fmt: skip
OPERATORS: dict[Any, Callable[..., Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.divide: operator.truediv,
    np.floor_divide: _divided(operator.floordiv), np.remainder: _divided(_remainder),
    np.power: _power, np.float_power: _power,
    np.bitwise_and: operator.and_, np.bitwise_or: operator.or_, np.bitwise_xor: operator.xor,
    np.left_shift: operator.lshift, np.right_shift: operator.rshift, np.less: operator.lt,
    np.less_equal: operator.le, np.equal: operator.eq, np.not_equal: operator.ne, np.greater: operator.gt,
    np.greater_equal: operator.ge,
}  # fmt: skip


def call_ufunc(ufunc: Any, vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A ufunc on arrays and numbers; into ``out`` if there is one."""
    implementation = OPERATORS.get(ufunc) or UFUNCS.get(ufunc)
    if implementation is None:
        raise Break(f"the ufunc np.{ufunc.__name__} has no form in torch")
    given, out = args[: ufunc.nin], _out(ufunc, args[ufunc.nin :], kwargs.get("out"))
    if len(given) != ufunc.nin or set(kwargs) - {"out", "dtype"} or kwargs.get("dtype") is not None:
        raise Break(f"np.{ufunc.__name__} with the arguments {', '.join(kwargs) or 'that it lacks'}")
    operands = [_operand(vm, value) for value in given]
    if not any(type(o) is Array for o in operands):
        return _constant(ufunc, operands, out)
    dtypes = [*map(_kind, operands), *([None] * ufunc.nout if out is None else [out.dtype])]
    loop = ufunc.resolve_dtypes(tuple(dtypes))
    plain = ufunc in OPERATORS
    tensors = [_cast(o, as_torch(d), plain) for o, d in zip(operands, loop, strict=False)]
    _check_kernel(ufunc, implementation, tensors)
    made = implementation(*tensors)
    wants = [as_torch(d) for d in loop[ufunc.nin :]]
    if ufunc.nout > 1:
        return tuple(_new(vm, ufunc, t, w, operands) for t, w in zip(made, wants, strict=True))
    if out is None:
        return _new(vm, ufunc, made, wants[0], operands)
    write(out, made)
    return out


_has_kernel: set[Any] = set()


def _check_kernel(ufunc: Any, implementation: Callable[..., Any], tensors: list[Any]) -> None:
    """Raise what torch raises for dtypes that its operator lacks a kernel for; stand-ins do not show that."""
    key = (ufunc, *[(t.dtype, t.ndim) if isinstance(t, torch.Tensor) else type(t) for t in tensors])
    if key in _has_kernel:
        return
    with torch_private.without_modes():
        ones = [torch.ones((1,) * t.ndim, dtype=t.dtype) if isinstance(t, torch.Tensor) else 1 for t in tensors]
        implementation(*ones)
    _has_kernel.add(key)


def _out(ufunc: Any, positional: list[Any], named: Any) -> Array | None:
    out = positional[0] if positional else named
    if type(out) is tuple and len(out) == 1:
        out = out[0]
    if out is None:
        return None
    if type(out) is not Array or ufunc.nout > 1:
        raise Break(f"np.{ufunc.__name__} into an out= that is no array of this capture")
    return out


def _operand(vm: Interpreter, value: Any) -> Any:
    if type(value) in NUMBERS or type(value) in SYMBOLS or isinstance(value, np.generic):
        return value
    return as_array(vm, value)


def _kind(value: Any) -> Any:
    """An operand as ``ufunc.resolve_dtypes`` takes it: a dtype, or int or float for Python's numbers."""
    if type(value) is Array or isinstance(value, np.generic):
        return as_numpy(value.dtype)
    if type(value) is bool:
        return np.dtype(np.bool_)
    return int if type(value) in (int, torch.SymInt) else float


def _cast(value: Any, dtype: torch.dtype, plain: bool) -> Any:
    """An operand in the dtype of NumPy's loop."""
    if type(value) is Array:
        return cast(value.tensor, dtype)
    if type(value) in SYMBOLS:
        if plain and dtype in (torch.float32, torch.float64, torch.int64):
            return value
        value = specialise(value)
    if isinstance(value, np.generic):
        value = value.item()
    elif type(value) is not bool:
        number(value, dtype)
    if is_float(dtype):
        value = rounded(value, dtype)
    elif dtype is not torch.bool:
        value = int(value)
    return value if plain else torch.full((), value, dtype=dtype)


def _constant(ufunc: Any, values: list[Any], out: Any) -> Any:
    """A ufunc on numbers alone: NumPy's own answer, a constant."""
    if out is not None:
        raise Break(f"np.{ufunc.__name__} of numbers into an array")
    with np.errstate(all="raise"):
        return ufunc(*map(specialise, values))


def _new(vm: Interpreter, ufunc: Any, tensor: Any, want: torch.dtype, operands: list[Any]) -> Array:
    """The result; where an operand is not in C's order, NumPy is asked for the result's."""
    made = cast(tensor, want)
    if made.ndim > 1 and not all(o.tensor.is_contiguous() for o in operands if type(o) is Array):
        like = sampled(ufunc, operands, {})
        made = as_in_numpy(made, like[0] if isinstance(like, tuple) else like)
    return Array(vm, made, scalar=made.ndim == 0)


for _found in {id(v): v for v in vars(np).values() if isinstance(v, np.ufunc)}.values():
    captures(_found, functools.partial(call_ufunc, _found))
