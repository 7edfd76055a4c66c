"""Kernels in Triton's interpreter, on tensors of the CPU: slow, exact enough for tests, no GPU needed.

The interpreter has no ``libdevice``, and reduces with helpers of ours one element at a time; both are put right here.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import interpreter

from jitney_lowering.ir import FLOAT8
from jitney_triton_gpu.code import Function


def launchers(functions: Mapping[str, Function], namespace: Mapping[str, Any]) -> dict[str, Callable[..., None]]:
    """A launcher for each function: ``launch(programs, *arguments)`` with tensors for buffers."""
    return {name: _launcher(function, namespace[function.name]) for name, function in functions.items()}


def _launcher(function: Function, kernel: Any) -> Callable[..., None]:
    integers = function.integers

    def launch(programs: int, *arguments: Any) -> None:
        if programs:
            for parameter, argument in zip(function.parameters, arguments, strict=True):
                if integers.get(parameter.name) == "i32" and not -(2**31) <= argument < 2**31:  # Python's have no end
                    raise OverflowError(f"{function.name} takes {parameter.of} in 32 bits, which {argument} leaves")
            try:
                arguments = tuple([_as_codes(a) for a in arguments])
                with np.errstate(all="ignore"):  # a GPU warns of nothing
                    kernel[(programs,)](*arguments, **function.blocks)
            except interpreter.InterpreterError as error:
                raise _stopped(error) from error.__cause__

    return launch


def _as_codes(argument: Any) -> Any:
    """Floats of 8 bits as bytes, as which kernels take them."""
    small = isinstance(argument, torch.Tensor) and argument.dtype in FLOAT8
    return argument.view(torch.uint8) if small else argument


def _stopped(error: BaseException) -> BaseException:
    """What the assertion that stopped a kernel says that it is, as in "IndexError: out of range"; else the error."""
    name, _, text = str(error.__cause__).partition(": ")
    kind = getattr(builtins, name, None)
    if isinstance(error.__cause__, AssertionError) and isinstance(kind, type) and issubclass(kind, Exception):
        return kind(text)
    return error


def _elementwise(compute: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """A function of ``libdevice`` by torch's."""

    def call(*given: Any) -> Any:
        operands = [torch.from_numpy(np.array(x.handle.data)) for x in given]
        data = compute(*torch.broadcast_tensors(*operands)).numpy()
        scalar = given[0].dtype if data.dtype != np.int32 else tl.int32
        blocks = any(x.type.is_block() for x in given)
        return tl.core.tensor(
            interpreter.TensorHandle(data, scalar), tl.block_type(scalar, list(data.shape)) if blocks else scalar
        )

    return call


_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    name: getattr(torch, name)
    for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
        "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "pow", "atan2", "hypot", "nextafter",
        "floor", "ceil", "trunc", "rsqrt", "copysign",
    )
}  # fmt: skip
_FUNCTIONS["nearbyint"] = torch.round
# torch's fmod is nan where the quotient is very large
_FUNCTIONS["fmod"] = lambda x, y: torch.from_numpy(np.fmod(x.numpy(), y.numpy()))
_FUNCTIONS["signbit"] = lambda x: torch.signbit(x).to(torch.int32)

for _name, _function in _FUNCTIONS.items():
    setattr(libdevice, _name, _elementwise(_function))

# A combining helper of ours -> the same over a whole axis.
_REDUCTIONS: dict[str, Callable[..., np.ndarray[Any, Any]]] = {
    "add": np.sum,
    "multiply": np.prod,
    "maximum_nan": np.max,
    "minimum_nan": np.min,
    "maximum_int": np.max,
    "minimum_int": np.min,
    "either": np.bitwise_or.reduce,
    "both": np.bitwise_and.reduce,
    "_xor_combine": np.bitwise_xor.reduce,  # of Triton's own sort
    "logaddexp": np.logaddexp.reduce,
}
_POSITIONS: dict[str, Callable[..., np.ndarray[Any, Any]]] = {"first_greater": np.argmax, "first_lesser": np.argmin}
_slow = interpreter.ReduceOps.apply_impl


def _reduce(self: Any, given: Any) -> Any:
    """A reduction with NumPy where the combining function is one of ours."""
    name = getattr(getattr(self.combine_fn, "fn", None), "__name__", "")
    values = given[0].handle.data
    if name in _REDUCTIONS and self.axis is not None:
        made = _REDUCTIONS[name](values, axis=self.axis, keepdims=self.keep_dims).astype(values.dtype)
        return self.to_tensor(made, given[0].dtype)
    if name in _POSITIONS and self.axis is not None:
        places = given[1].handle.data
        order = np.argsort(places, axis=self.axis, kind="stable")  # the first of equals is that of the lowest position
        ordered = np.take_along_axis(values, order, self.axis)
        at = _POSITIONS[name](ordered, axis=self.axis, keepdims=True)
        at = np.take_along_axis(order, at, self.axis)
        found = [np.take_along_axis(x, at, self.axis) for x in (values, places)]
        found = found if self.keep_dims else [np.squeeze(x, self.axis) for x in found]
        return [self.to_tensor(x, g.dtype) for x, g in zip(found, given, strict=True)]
    return _slow(self, given)


interpreter.ReduceOps.apply_impl = _reduce

_SCANS: dict[str, np.ufunc] = {
    "add": np.add, "multiply": np.multiply, "maximum_nan": np.maximum, "minimum_nan": np.minimum,
    "maximum_int": np.maximum, "minimum_int": np.minimum, "logaddexp": np.logaddexp,
}  # fmt: skip
_slow_scan = interpreter.ScanOps.apply_impl


def _scan(self: Any, given: Any) -> Any:
    """A scan with NumPy where the combining function is one of ours."""
    name = getattr(getattr(self.combine_fn, "fn", None), "__name__", "")
    if name not in _SCANS or self.reverse:
        return _slow_scan(self, given)
    values = given[0].handle.data
    return [self.to_tensor(_SCANS[name].accumulate(values, axis=self.axis, dtype=values.dtype), given[0].dtype)]


interpreter.ScanOps.apply_impl = _scan

_FLOATS = {tl.float16: torch.float16, tl.bfloat16: torch.bfloat16, tl.float32: torch.float32, tl.float64: torch.float64}
_cast = interpreter.InterpreterBuilder.cast_impl


def _rounding_cast(self: Any, source: Any, target: Any) -> Any:
    """Triton's own cuts floats off on the way to bfloat16, and reads its denormals wrong."""
    types = (source.dtype.scalar, target.scalar)
    if tl.bfloat16 not in types or not set(types) <= set(_FLOATS):
        return _cast(self, source, target)
    given = torch.from_numpy(np.array(source.data))
    given = given.view(torch.bfloat16) if types[0] == tl.bfloat16 else given
    made = given.to(_FLOATS[types[1]])
    made = made.view(torch.uint16) if types[1] == tl.bfloat16 else made
    return interpreter.TensorHandle(made.numpy(), types[1])


interpreter.InterpreterBuilder.cast_impl = _rounding_cast
for _name in ("create_fp_trunc", "create_fp_ext"):
    setattr(interpreter.InterpreterBuilder, _name, lambda self, source, target: self.cast_impl(source, target))


def _fma(self: Any, a: Any, b: Any, c: Any) -> Any:
    """Triton's own rounds the product, which may overflow."""
    made = a.data.astype(np.float64) * b.data.astype(np.float64) + c.data.astype(np.float64)
    return interpreter.TensorHandle(made.astype(a.data.dtype), a.dtype.scalar)


def _all_ones(self: Any, type: Any) -> Any:
    """Triton's own does not know unsigned integers."""
    scalar = type.scalar
    bits = np.array([-1], dtype=np.int64).astype(interpreter._get_np_dtype(scalar))
    return interpreter.TensorHandle(bits, scalar)


def _splat(self: Any, shape: Any, value: Any) -> Any:
    """Triton's own makes floats of truth values."""
    return interpreter.TensorHandle(
        np.full(shape.shape, value.data.flat[0], dtype=value.data.dtype), value.dtype.scalar
    )


_dot = interpreter.InterpreterBuilder.create_dot


def _dot_of_numbers(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
    """Triton's own multiplies the bits of bfloat16."""
    wide = [self.cast_impl(x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b)]
    return _dot(self, *wide, d, *rest)


_atomic = interpreter.InterpreterBuilder.create_atomic_rmw


def _atomic_of_all(self: Any, operation: Any, *given: Any) -> Any:
    """Triton's own reads what is broadcast, a mask of one element for instance, as if it lay in memory as a whole."""
    operands, rest = given[:3], given[3:]
    whole = [interpreter.TensorHandle(np.ascontiguousarray(x.data), x.dtype) for x in operands]
    return _atomic(self, operation, *whole, *rest)


def _assert(self: Any, condition: Any, message: str) -> None:
    """A reason to stop."""
    if not condition.data.all():
        raise AssertionError(message)


interpreter.InterpreterBuilder.create_assert = _assert
interpreter.interpreter_builder.options = replace(
    interpreter.interpreter_builder.options, debug=True, sanitize_overflow=False
)
interpreter.InterpreterBuilder.create_atomic_rmw = _atomic_of_all
interpreter.InterpreterBuilder.create_dot = _dot_of_numbers
interpreter.InterpreterBuilder.create_fma = _fma
interpreter.InterpreterBuilder.create_splat = _splat
interpreter.InterpreterBuilder.get_all_ones_value = _all_ones
