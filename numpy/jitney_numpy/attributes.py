"""Attributes of arrays, and calls of their methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jitney.capture.interpreter.signals import Break
from jitney.capture.numpy.stand_in import Array, ArrayMethod
from jitney.config import config
from jitney_numpy.calls import attempt, view

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

READERS: dict[str, Any] = {
    "shape": lambda x: tuple(x.tensor.shape),
    "ndim": lambda x: x.tensor.ndim,
    "dtype": lambda x: x.dtype,
    "size": lambda x: x.tensor.numel(),
    "itemsize": lambda x: x.dtype.itemsize,
    "nbytes": lambda x: x.tensor.numel() * x.dtype.itemsize,
    "__class__": lambda x: x.kind,
}

NUMBERS = frozenset({"item", "tolist"})  # methods that give the number that a scalar is


def array_attr(vm: Interpreter, array: Array, name: str) -> Any:
    """``array.name``. Breaks at what shows the array's memory, and at what it does not have."""
    if name in READERS:
        return READERS[name](array)
    if name in ("T", "mT") and not array.scalar:
        x = array.tensor
        return view(array, x.permute(tuple(range(x.ndim))[::-1]) if name == "T" else x.transpose(-1, -2))
    if callable(getattr(array.kind, name, None)) and not name.startswith("__"):
        return ArrayMethod(array, name)
    raise Break(f"{array.kind.__name__}.{name} is not captured", "read it outside the compiled function")


def call_method(vm: Interpreter, method: ArrayMethod, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """``array.name(...)``."""
    name = f"ndarray.{method.name}"
    handler = vm.handlers.arrays.methods.get(method.name)
    if method.name in NUMBERS and method.owner.scalar and not args and not kwargs:
        number = method.owner.number()
        if number is not None:
            return number
    if method.name == "tolist" and not args and not kwargs and (values := method.owner.constant()) is not None:
        return _listed(vm, values.tolist())
    if handler is None:
        raise Break(f"{name}() is not captured", "it runs in NumPy")
    if not config.trace_numpy:
        raise Break(f"{name}() with config.trace_numpy off", "it runs in NumPy")

    def known(*given: Any, **named: Any) -> Any:
        return getattr(method.owner.constant(), method.name)(*given, **named)

    return attempt(vm, name, lambda vm, given, named: handler(vm, method.owner, given, named), args, kwargs, known)


def _listed(vm: Interpreter, value: Any) -> Any:
    """Lists of numbers, each of them new."""
    return vm.world.mark_fresh([_listed(vm, v) for v in value]) if type(value) is list else value


def length(array: Array) -> Any:
    """``len(array)``, which may be a symbol."""
    if array.tensor.ndim == 0:
        raise Break("len() of an array without dimensions", "NumPy raises for it")
    return array.tensor.shape[0]
