"""The stand-in for an ndarray or a scalar of NumPy: a stand-in tensor, and what NumPy says of the array besides.

It behaves as the array where C code works with it: operators, functions of NumPy and ufuncs go to the handlers
of ``handlers.py``. What would need its values stops the capture.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import ARRAYS
from jitney.capture.numpy.constants import constant_of, is_exact, unwritten, uses
from jitney.capture.numpy.dtypes import BACK
from jitney.capture.numpy.memory import from_scalar
from jitney.guards import Source
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter


FEW = 64  # elements of an array whose values are guarded


class _Slot:
    """A special method of the stand-in. It is no Python function, since those would be interpreted as the user's."""

    def __init__(self, made: Callable[..., Any]) -> None:
        self.made = made

    def __get__(self, owner: Any, kind: type) -> Any:
        return self if owner is None else types.MethodType(self.made, owner)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.made(*args, **kwargs)


class Array:
    """An ndarray, or with ``scalar`` a scalar of NumPy, of the running capture.

    Args:
        vm: the capture.
        tensor: a stand-in over the same memory; of no dimensions for a scalar, whose memory is its own.
        scalar: is it an ``np.generic``?
        readonly: may nobody write to it?
        source: where it came from; None for one that the frame made.
    """

    __slots__ = ("known", "readonly", "scalar", "source", "tensor", "vm")

    def __init__(
        self, vm: Interpreter, tensor: Any, scalar: bool = False, readonly: bool = False, source: Source | None = None
    ) -> None:
        self.vm = vm
        self.tensor = tensor
        self.scalar = scalar
        self.readonly = readonly
        self.source = source
        self.known: Any = None  # what NumPy gives, where it was computed of constants; of a scalar from outside, that

    def number(self) -> Any:
        """The Python number that it is: one that changes where it comes from outside; None if capture knows none."""
        if self.tensor.ndim or self.tensor.is_complex() or (self.source is not None and not self.scalar):
            return None
        if self.source is not None:
            return self.vm.world.wrap(self.known.item(), self.source.attr("item").step("call"))
        found = self.constant()
        if found is None and self.scalar:
            found = self._of_outside()
        return None if found is None else found.item()

    def _of_outside(self) -> Any:
        """What was computed of scalars and small arrays from outside and of constants, which are guarded; else None."""
        tracer = self.vm.tracer
        outside = [a for a in self.vm.arrays.values() if a.source is not None and (a.scalar or a._is_small())]
        arrays = {tracer.nodes[id(a.tensor)]: a for a in outside if id(a.tensor) in tracer.nodes}
        with torch_private.without_modes():
            given = {n: from_scalar(a.known) if a.scalar else a._real().clone() for n, a in arrays.items()}
        real = constant_of(tracer, self.tensor, given)
        used = uses(tracer, self.tensor, given) if real is not None else ()
        if real is None or not (all(arrays[n].scalar for n in used) or is_exact(tracer, self.tensor, given)):
            return None
        for node in used:
            arrays[node]._settle()
        with torch_private.without_modes():
            return real.numpy()[()]

    def _is_small(self) -> bool:
        """Is it an array from outside of few elements, as it was when the frame began?"""
        vm = self.vm
        known = id(self.tensor) in vm.tracer.adopted and vm.foresees and not vm.tracer.mutates_inputs()
        return known and type(self.tensor.numel()) is int and self.tensor.numel() <= FEW

    def _real(self) -> torch.Tensor:
        found: torch.Tensor = self.vm.tracer.adopted[id(self.tensor)][0]
        return found

    def _settle(self) -> None:
        """Guard the values."""
        if self.scalar:
            type(self.known.item())(self.number())
        elif self.source is not None:
            with torch_private.without_modes():
                values = self._real().numpy().tobytes()
            self.vm.world.guard(self.source, "true", f"{{v}}.tobytes() == {values!r}")

    def constant(self) -> Any:
        """A copy as NumPy has it, of what was computed of constants alone; else None."""
        if self.source is None and self.known is not None and unwritten(self.tensor):
            return self.known.copy()
        real = None if self.source is not None else constant_of(self.vm.tracer, self.tensor)
        if real is not None:
            with torch_private.without_modes():
                return real.numpy()[()] if self.scalar else real.numpy()
        return None

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype."""
        return BACK[self.tensor.dtype]

    @property
    def kind(self) -> type:
        """The class that the program sees."""
        return self.dtype.type if self.scalar else np.ndarray

    # ------------------------------------------------------------------ C code meets it

    @_Slot
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            raise Break(f"np.{ufunc.__name__}.{method}() is not captured")
        return self.vm.call(ufunc, *inputs, **kwargs)

    @_Slot
    def __array_function__(self, func: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
        return self.vm.call(func, *args, **kwargs)

    @classmethod
    def __torch_function__(cls, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        def number(value: Any) -> Any:
            if type(value) in (list, tuple):  # of sizes, for one
                return type(value)(map(number, value))
            if type(value) is not cls:
                return value
            found = value.number() if value.scalar else None
            if found is None:
                raise Break(
                    f"{getattr(func, '__name__', 'a function')} of torch is called with an array",
                    "use torch.from_numpy, or a function of NumPy",
                )
            return _for_torch(found)

        return func(*map(number, args), **{name: number(value) for name, value in (kwargs or {}).items()})

    @_Slot
    def __getitem__(self, key: Any) -> Any:
        return self.vm.handlers.arrays.getitem(self.vm, self, key)


def _for_torch(number: Any) -> Any:
    """A scalar's number as torch takes it: a truth value of NumPy is none of Python's, mostly it is a float."""
    return np.bool_(number) if type(number) is bool else number


def _refusing(name: str) -> Callable[..., NoReturn]:
    def method(self: Any, /, *args: Any, **kwargs: Any) -> NoReturn:
        raise Break(f"{name} of an array needs its values, or is not captured", "move it out of the compiled function")

    return method


def _reading(name: str, made: Callable[[Any], Any]) -> Callable[..., Any]:
    def method(self: Any, /) -> Any:
        value = self.number() if made is not operator.index or self.dtype.kind in "iu" else None
        if value is None:
            branch = "data-dependent control flow: a branch depends on the values of an array"
            reason = branch if made is bool else f"{name} of an array needs its values"
            raise Break(reason, "use np.where, or move it out of the compiled function")
        return made(value)

    return method


for _made in (int, float, bool, operator.index):
    _name = f"__{_made.__name__}__"
    setattr(Array, _name, _Slot(_reading(_name, _made)))
for _name in (
    "len iter contains complex array repr str format hash reduce_ex reduce round trunc floor ceil "
    "setitem delitem copy deepcopy dlpack"
).split():
    setattr(Array, f"__{_name}__", _Slot(_refusing(f"__{_name}__")))


def _operator(ufunc: Any) -> Callable[..., Any]:
    return lambda self, other: self.vm.call(ufunc, self, other)


def _reflected(ufunc: Any) -> Callable[..., Any]:
    return lambda self, other: self.vm.call(ufunc, other, self)


def _in_place(ufunc: Any) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if ufunc is np.matmul:
            raise Break("a product of matrices in place", "NumPy refuses some that np.matmul takes")
        return NotImplemented if self.scalar else self.vm.call(ufunc, self, other, out=self)

    return method


def _unary(ufunc: Any) -> Callable[..., Any]:
    return lambda self: self.vm.call(ufunc, self)


def power_ufunc(base: Any, exponent: Any) -> tuple[Any, ...]:
    """The ufunc and the operands that ``base ** exponent`` means: NumPy has shorter ways for some numbers."""
    if type(base) is not Array:
        return np.power, base, exponent
    if base.dtype.kind == "b":
        raise Break("a power of booleans, which is int8 in NumPy")
    if type(exponent) in (torch.SymInt, torch.SymFloat):  # which way it is depends on the number
        exponent = int(exponent) if type(exponent) is torch.SymInt else float(exponent)
    if not base.scalar and type(exponent) in (int, float):
        if base.dtype.kind == "f" and exponent in POWERS:
            return POWERS[exponent], base
        if type(exponent) is int and exponent == 2:
            return np.square, base
    return np.power, base, exponent


def _power(self: Any, other: Any) -> Any:
    return self.vm.call(*power_ufunc(self, other))


def _power_in_place(self: Any, other: Any) -> Any:
    return NotImplemented if self.scalar else self.vm.call(*power_ufunc(self, other), out=self)


POWERS: dict[float, Any] = {1: np.positive, -1: np.reciprocal, 0.5: np.sqrt, 2: np.square}
BINARY: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "matmul": np.matmul, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "lshift": np.left_shift, "rshift": np.right_shift, "divmod": np.divmod,
}  # fmt: skip
COMPARISONS: dict[str, Any] = {
    "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
UNARY: dict[str, Any] = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}
for _name, _ufunc in {**BINARY, **COMPARISONS}.items():
    setattr(Array, f"__{_name}__", _Slot(_operator(_ufunc)))
for _name, _ufunc in BINARY.items():
    setattr(Array, f"__r{_name}__", _Slot(_reflected(_ufunc)))
    if _name != "divmod":
        setattr(Array, f"__i{_name}__", _Slot(_in_place(_ufunc)))
for _name, _method in {"pow": _power, "ipow": _power_in_place}.items():
    setattr(Array, f"__{_name}__", _Slot(_method))
for _name, _ufunc in UNARY.items():
    setattr(Array, f"__{_name}__", _Slot(_unary(_ufunc)))


ARRAYS.add(Array)


class ArrayMethod:
    """A method of an array, bound: what ``x.sum`` is before it is called."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Array, name: str) -> None:
        self.owner = owner
        self.name = name

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it from C code."""
        return self.owner.vm.call(self, *args, **kwargs)
