"""New arrays: of constants, of a shape, of numbers in a row, of other arrays, of tensors; and back to tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import ATOMS, is_stand_in
from jitney.capture.numpy.constants import bounds
from jitney.capture.numpy.dtypes import BACK, SCALARS
from jitney.capture.numpy.stand_in import Array
from jitney.capture.numpy.wrap_numpy import array_as_tensor, as_numpy_value, as_tensor_value
from jitney.capture.python.c_boundary import expose, specialise
from jitney.config import config
from jitney.torch_compat import torch_private
from jitney.torch_compat.default_device import innermost
from jitney_numpy.calls import (
    NUMBERS,
    ArrayTable,
    as_array,
    as_in_numpy,
    constant,
    holds_array,
    number,
    result,
    sample,
    sampled,
    write,
)
from jitney_numpy.dtypes import as_numpy, as_torch, cast, is_float, rounded
from jitney_numpy.shapes import shape_of

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

table = ArrayTable()
captures = table.captures

Args = list[Any]
Kwargs = dict[str, Any]


def from_tensor(vm: Interpreter, tensor: Any) -> Array:
    """``tensor.numpy()``: the same memory, where NumPy can see it."""
    plain = type(tensor).__name__ == "FakeTensor" and tensor.device.type == "cpu" and not tensor.requires_grad
    if not plain or tensor.is_conj() or tensor.is_neg() or tensor.dtype not in BACK:
        raise Break("the memory of this tensor is not for NumPy", "move it out of the compiled function")
    return Array(vm, tensor)


def to_tensor(value: Any) -> Any:
    """``torch.from_numpy(array)``: a tensor of its own over the same memory."""
    if type(value) is not Array or value.scalar:
        raise Break("torch.from_numpy of what is no array of this capture")
    if value.readonly:
        raise Break("torch.from_numpy of a read-only array", "it warns")
    if value.tensor.device.type != "cpu":
        raise Break("torch.from_numpy of an array whose numbers are on another device")
    return value.tensor.detach()


def _array(vm: Interpreter, value: Any, dtype: Any, copy: bool | None) -> Any:
    """``np.array`` or, unless a copy is asked for, ``np.asarray``."""
    if is_stand_in(value):
        if dtype is not None:
            raise Break("an array of a tensor in another dtype")
        made = from_tensor(vm, value)
        return result(vm, made.tensor, sampled(np.array, [made], {}), [made]) if copy else made
    if type(value) is Array and not value.scalar:
        want = value.tensor.dtype if dtype is None else as_torch(as_numpy(dtype))
        if not copy and want is value.tensor.dtype:
            return value
        return result(vm, _converted(vm, value.tensor, want), sampled(np.array, [value, dtype], {}), [value])
    if dtype is not None and not holds_array(value):
        made = constant(vm, specialise(value), as_numpy(dtype))
    else:
        made = as_array(vm, value)
        if dtype is not None:
            made = Array(vm, _converted(vm, made.tensor, as_torch(as_numpy(dtype))))
    return Array(vm, made.tensor.clone() if type(value) is Array else made.tensor)


def _np_array(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) > 2 or set(kwargs) - {"dtype", "copy"} or kwargs.get("copy", True) is not True:
        raise Break("np.array with more than a dtype")
    return _array(vm, args[0], args[1] if len(args) > 1 else kwargs.get("dtype"), True)


def _np_asarray(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) > 2 or set(kwargs) - {"dtype"}:
        raise Break("np.asarray with more than a dtype")
    return _array(vm, args[0], args[1] if len(args) > 1 else kwargs.get("dtype"), None)


captures(np.array, _np_array)
captures(np.asarray, _np_asarray)
captures(np.asanyarray, _np_asarray)


def _np_ascontiguous(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    (value,) = args
    if kwargs or type(value) is not Array or value.scalar or not value.tensor.ndim:
        raise Break("np.ascontiguousarray with more than an array")
    return value if value.tensor.is_contiguous() else Array(vm, value.tensor.contiguous())


captures(np.ascontiguousarray, _np_ascontiguous)


# ------------------------------------------------------------------ other dtypes


def _converted(vm: Interpreter, tensor: Any, want: torch.dtype) -> Any:
    """New memory in another dtype. Casts that C leaves undefined for some values are NumPy's own to do."""
    if is_float(tensor.dtype) and want in (torch.uint8, torch.int8, torch.int16) and not _fits(vm, tensor, want):
        raise Break("a cast from floats to small integers, of which C does not define what is out of range")
    return tensor.clone() if tensor.dtype is want else tensor.to(want)


def _fits(vm: Interpreter, tensor: Any, want: torch.dtype) -> bool:
    found, most = bounds(vm.tracer, tensor), torch.iinfo(want)
    return found is not None and found[0] >= most.min and found[1] <= most.max


def _astype(vm: Interpreter, owner: Array, args: Args, kwargs: Kwargs) -> Any:
    dtype = args[0] if args else kwargs["dtype"]
    if len(args) > 1 or set(kwargs) - {"dtype", "copy"}:
        raise Break("astype with more than a dtype")
    want = as_torch(as_numpy(dtype))
    if kwargs.get("copy", True) is False and want is owner.tensor.dtype:
        return owner
    like = sampled(lambda x: x.astype(dtype), [owner], {})
    return result(vm, _converted(vm, owner.tensor, want), like, [owner])


table.methods["astype"] = _astype


def _fill(vm: Interpreter, owner: Array, args: Args, kwargs: Kwargs) -> None:
    (value,) = args
    given = assigned(vm, value, owner)
    if isinstance(given, torch.Tensor) and given.ndim:
        raise Break("an array is filled with an array", "NumPy raises for it")
    write(owner, given)


table.methods["fill"] = _fill


def assigned(vm: Interpreter, value: Any, target: Array) -> Any:
    """What is to be written into an array: a number, or a tensor of its dtype and of memory of its own."""
    want = target.tensor.dtype
    value = specialise(value)
    if type(value) in NUMBERS:
        if type(value) is not bool and (want is torch.bool or (not isinstance(value, int) and not is_float(want))):
            raise Break("a number is written into an array of another kind")
        if type(value) is bool:
            return value
        return rounded(number(value, want), want) if is_float(want) else number(value, want)
    given = as_array(vm, value)
    if not np.can_cast(given.dtype, target.dtype, "same_kind"):
        raise Break(f"{given.dtype} is written into an array of {target.dtype}")
    moved = cast(given.tensor, want)
    return moved.clone() if moved is given.tensor else moved


def _scalar(dtype: np.dtype[Any]) -> Any:
    def made(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        if len(args) != 1 or kwargs:
            raise Break(f"np.{dtype.type.__name__} of more than a number")
        value = specialise(args[0])
        if type(value) is Array:
            return Array(vm, _converted(vm, value.tensor, as_torch(dtype)), scalar=value.tensor.ndim == 0)
        if type(value) not in NUMBERS and not isinstance(value, np.generic):
            raise Break(f"np.{dtype.type.__name__} of a {type(value).__qualname__}")
        with np.errstate(all="raise"):
            return dtype.type(value)

    return made


for _kind, _dtype in SCALARS.items():
    captures(_kind, _scalar(_dtype))


# ------------------------------------------------------------------ of a shape


def _filled(value: Any) -> Any:
    def made(vm: Interpreter, args: Args, kwargs: Kwargs) -> Array:
        shape = args[0] if args else kwargs["shape"]
        dtype = args[1] if len(args) > 1 else kwargs.get("dtype", float)
        if len(args) > 2 or set(kwargs) - {"shape", "dtype"}:
            raise Break("a new array with more than a shape and a dtype")
        return Array(vm, torch.full(shape_of(shape), value, dtype=as_torch(as_numpy(dtype))))

    return made


captures(np.zeros, _filled(0))
captures(np.ones, _filled(1))
captures(np.empty, _filled(0))


def _full(vm: Interpreter, args: Args, kwargs: Kwargs) -> Array:
    if len(args) > 3 or set(kwargs) - {"dtype"}:
        raise Break("np.full with more than a dtype")
    shape, value = shape_of(args[0]), specialise(args[1])
    dtype = args[2] if len(args) > 2 else kwargs.get("dtype")
    if type(value) not in NUMBERS:
        raise Break("np.full with an array")
    want = as_torch(as_numpy(np.array(value).dtype if dtype is None else dtype))
    target = Array(vm, torch.full(shape, 0, dtype=want))
    return Array(vm, torch.full(shape, assigned(vm, value, target), dtype=want))


captures(np.full, _full)


def _like(value: Any) -> Any:
    def made(vm: Interpreter, args: Args, kwargs: Kwargs) -> Array:
        base = as_array(vm, args[0])
        fill, rest = (value, args[1:]) if value is not None else (specialise(args[1]), args[2:])
        dtype = rest[0] if rest else kwargs.get("dtype")
        if len(rest) > 1 or set(kwargs) - {"dtype"}:
            raise Break("a new array like another with more than a dtype")
        want = base.tensor.dtype if dtype is None else as_torch(as_numpy(dtype))
        if type(fill) not in NUMBERS:
            raise Break("np.full_like with an array")
        target = Array(vm, torch.full_like(base.tensor, 0, dtype=want))
        made = torch.full_like(base.tensor, assigned(vm, fill, target), dtype=want)
        return Array(vm, as_in_numpy(made, np.zeros_like(sample(base))))

    return made


captures(np.zeros_like, _like(False))
captures(np.ones_like, _like(True))
captures(np.empty_like, _like(False))
captures(np.full_like, _like(None))


# ------------------------------------------------------------------ of numbers in a row


def _arange(vm: Interpreter, args: Args, kwargs: Kwargs) -> Array:
    dtype = kwargs.get("dtype", args[3] if len(args) > 3 else None)
    values = args[:3]
    if set(kwargs) - {"dtype"} or not len(values) >= 1 or any(type(v) is torch.SymFloat for v in values):
        raise Break("np.arange with more than numbers and a dtype")
    whole = all(type(v) in (int, torch.SymInt) for v in values)
    want = (torch.int64 if whole else torch.float64) if dtype is None else as_torch(as_numpy(dtype))
    if want not in (torch.int64, torch.int32, torch.float64) or (not whole and (not is_float(want))):
        raise Break("np.arange in this dtype")
    if not all(type(v) in (int, float, torch.SymInt) for v in values):
        raise Break("np.arange of what are no numbers")
    start, stop = (0, values[0]) if len(values) == 1 else values[:2]
    step = values[2] if len(values) > 2 else 1
    if whole and ((step > 0 and stop < start) or (step < 0 and stop > start)):
        stop = start
    return Array(vm, torch.arange(start, stop, step, dtype=want))


captures(np.arange, _arange)


def _linspace(vm: Interpreter, args: Args, kwargs: Kwargs) -> Array:
    start, stop = map(specialise, args[:2])
    count = specialise(args[2] if len(args) > 2 else kwargs.get("num", 50))
    if len(args) > 3 or set(kwargs) - {"num"} or not all(type(v) in (int, float) for v in (start, stop)):
        raise Break("np.linspace with more than two numbers and a count")
    return Array(vm, torch.linspace(start, stop, count, dtype=torch.float64))


captures(np.linspace, _linspace)


def _eye(vm: Interpreter, args: Args, kwargs: Kwargs) -> Array:
    if not 1 <= len(args) <= 2 or set(kwargs) - {"dtype"}:
        raise Break("np.eye with a diagonal elsewhere")
    (rows,), columns = shape_of(args[0]), args[1] if len(args) > 1 else None
    want = as_torch(as_numpy(kwargs.get("dtype", float)))
    return Array(vm, torch.eye(rows, rows if columns is None else shape_of(columns)[0], dtype=want))


captures(np.eye, _eye)
captures(np.identity, lambda vm, args, kwargs: _eye(vm, args[:1] if len(args) == 1 else [], kwargs))


# ------------------------------------------------------------------ torch's side


def _from_numpy(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    (value,) = args
    return to_tensor(value)


captures(torch.from_numpy, _from_numpy)


def _tensor_of(fn: Any, copies: bool) -> Any:
    """``torch.as_tensor`` and ``torch.tensor``, which also take arrays."""

    def made(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        given = [expose(vm, a) for a in args]
        named = {k: expose(vm, v) for k, v in kwargs.items()}
        if not holds_array([*given, *named.values()]):
            return vm.native(fn, *given, **named)
        if not given:
            given = [named.pop("data")]
        (value,) = given
        if set(named) - {"dtype", "device"} or type(value) is not Array or value.scalar:
            raise Break(f"torch.{fn.__name__} of an array with more than a dtype", "use torch.from_numpy(x).to(...)")
        place = innermost() if named.get("device") is None else torch.device(named["device"])
        tensor = value.tensor.clone() if copies or place.type != "cpu" else to_tensor(value)
        if tensor.device != place:
            tensor = tensor.to(place)
        return tensor if named.get("dtype") is None else cast(tensor, named["dtype"])

    return made


for _fn, _copies in ((torch.as_tensor, False), (torch.tensor, True)):
    table(_fn)(_tensor_of(_fn, _copies))


# ------------------------------------------------------------------ arguments and results of ``wrap_numpy``


@table(as_numpy_value)
def _wrapped_argument(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (value,) = args
    if not is_stand_in(value):
        return value
    plain = config.trace_numpy and type(value) is torch_private.FakeTensor
    if not plain or value.is_conj() or value.is_neg() or value.dtype not in BACK:
        raise Break("a tensor that is not for NumPy is given to a function made by wrap_numpy")
    vm.elsewhere.enter(value.device)
    return Array(vm, value)


@table(array_as_tensor)
def _torchs_result(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (value,) = args
    if type(value) is Array and not value.scalar:
        return _wrapped_result(vm, args, kwargs)
    vm.elsewhere.leave()
    if type(value) is not Array and not isinstance(value, (*ATOMS, torch.Tensor)):
        raise Break(f"a {type(value).__qualname__} is a result of a function made by torch.compiler.wrap_numpy")
    return value


@table(as_tensor_value)
def _wrapped_result(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (value,) = args
    vm.elsewhere.leave()
    if type(value) is Array:
        if value.readonly:
            return value.tensor.clone()
        return value.tensor[...] if vm.tracer.source_of(value.tensor) is not None else value.tensor
    if isinstance(value, np.generic):
        raise Break("a constant scalar of NumPy is a result of a function made by wrap_numpy")
    return value
