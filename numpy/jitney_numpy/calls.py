"""Calling a function of NumPy on stand-ins: operands, what NumPy would make of them, the result's class and dtype.

``sample`` runs NumPy itself on small arrays of the same dtypes. What it makes is what the captured function must make:
its dtype, its number of dimensions, whether it is an array or a scalar. A result that differs stops the capture.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import is_stand_in
from jitney.capture.metadata import storage
from jitney.capture.numpy.dtypes import BACK
from jitney.capture.numpy.originals import is_original
from jitney.capture.numpy.stand_in import Array
from jitney.capture.python.c_boundary import expose, specialise
from jitney.capture.tables import Args, FunctionTable, Handler, Kwargs
from jitney.config import config
from jitney.torch_compat import torch_private
from jitney_numpy.dtypes import as_numpy, as_torch, cast, fits

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

NUMBERS = (bool, int, float)
SYMBOLS = (torch.SymInt, torch.SymFloat)
MOST = 3  # sizes of samples: as large as matters to any function that is captured
HINT = "it runs in NumPy"


def holds_array(value: Any) -> bool:
    """Is it a stand-in for an array, or a list or tuple with one?"""
    return type(value) is Array or (type(value) in (list, tuple) and any(map(holds_array, value)))


class ArrayTable(FunctionTable):
    """Functions of NumPy and methods of arrays: handlers that run what they cannot do in NumPy."""

    def __init__(self) -> None:
        super().__init__()
        self.methods: dict[str, Callable[[Any, Any, Args, Kwargs], Any]] = {}  # by name, of the array and the arguments

    def captures(self, fn: Any, handler: Handler) -> None:
        """Call ``handler`` wherever the program calls this function of NumPy, if it still has its place there."""
        if not is_original(fn):
            return
        name = getattr(fn, "__name__", str(fn))

        def guarded(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
            if not config.trace_numpy:
                raise Break(f"np.{name} with config.trace_numpy off", "it runs in NumPy")
            return attempt(vm, name, handler, args, kwargs, fn)

        self.add(fn, guarded)

    def implements(
        self, *functions: Any, method: str = "", arrays: int = 1, half: bool = True, raises: bool = False
    ) -> Callable[..., Any]:
        """Register torch's form of functions of NumPy, of which the first ``arrays`` arguments are arrays.

        The implementation gets the dtype that NumPy would give (None where it gives several results), tensors for the
        arrays, and the other arguments as constants; its result is checked against what NumPy makes of samples.
        ``half``: is float16 captured? Not where NumPy overflows elsewhere. ``raises``: does NumPy raise for some
        values?
        """

        def register(made: Callable[..., Any]) -> Callable[..., Any]:
            def run(fn: Any, vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
                first = [as_array(vm, a) for a in args[:arrays]]
                rest = [specialise(a) for a in args[arrays:]]
                named = {k: specialise(v) for k, v in kwargs.items()}
                if named.get("out") is not None or holds_array(rest) or holds_array([*named.values()]):
                    raise Break(f"np.{getattr(fn, '__name__', '?')} with an array there", HINT)
                named.pop("out", None)
                like = sampled(fn, [*args[:arrays], *rest], named)
                want = as_torch(like.dtype) if isinstance(like, (np.ndarray, np.generic)) else None
                if not half and torch.float16 in (want, *[a.tensor.dtype for a in first]):
                    raise Break(f"np.{getattr(fn, '__name__', '?')} of float16, which overflows elsewhere", HINT)
                if raises:
                    may_raise(vm)
                tried(made, want, *first, *rest, **named)
                return result(vm, made(want, *[a.tensor for a in first], *rest, **named), like, first)

            for fn in functions:
                self.captures(fn, functools.partial(run, fn))
            if method:
                self.methods[method] = lambda vm, owner, args, kwargs: run(_method(method), vm, [owner, *args], kwargs)
            return made

        return register


def attempt(
    vm: Interpreter,
    name: str,
    handler: Callable[..., Any],
    args: Any,
    kwargs: Any,
    fn: Callable[..., Any] | None = None,
) -> Any:
    """Run a handler; what it cannot do (an unknown argument, sizes that do not fit) is NumPy's to do, or to refuse.

    A function ``fn`` of constants is computed, too: its result is known, and a constant where no handler has it.
    """
    args, kwargs = [expose(vm, a) for a in args], {k: expose(vm, v) for k, v in kwargs.items()}
    known = None if fn in (None, torch.from_numpy) or kwargs.get("out") is not None else computed(fn, args, kwargs)
    try:
        with vm.elsewhere.factories():
            made = handler(vm, args, kwargs)
    except Break:
        if not _is_literal(known):
            raise
        return literal(vm, known)
    except Exception as error:
        if _is_literal(known):
            return literal(vm, known)
        lines = str(error).strip().splitlines()
        raise Break(f"np.{name} is not captured: {lines[0][:200] if lines else type(error).__name__}", HINT) from None
    dtype = getattr(known, "dtype", None)
    if type(made) is Array and made.kind is type(known) and made.dtype == dtype and made.source is None:
        made.known = known
    return made


# ------------------------------------------------------------------ constants

KNOWN = 1024  # elements of an array that is kept as a constant
PLAIN = (type(None), bool, int, float, str, np.dtype, type, torch.Size)


class Unknown(Exception):
    """A value that the graph computes."""


def computed(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a function of NumPy gives for constants; None for anything else, and where it warns or raises."""
    try:
        given, named = [*map(_known, args)], {k: _known(v) for k, v in kwargs.items()}
        with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
            warnings.simplefilter("error")
            made = fn(*given, **named)
    except Exception:
        return None
    parts = made if type(made) in (list, tuple) else [made]
    return made if all(map(_is_small, parts)) else None


def _is_small(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(map(_is_small, value))
    if isinstance(value, (np.ndarray, np.generic)):
        return value.size <= KNOWN and value.dtype.kind in "biuf"
    return type(value) in NUMBERS


def _known(value: Any) -> Any:
    if type(value) is Array:
        found = value.constant()
        if found is None:
            raise Unknown
        return found
    if type(value) in (list, tuple):
        return type(value)(map(_known, value))
    if isinstance(value, np.generic):  # of constants, too
        return value
    if type(value) not in PLAIN or (type(value) is torch.Size and not all(type(n) is int for n in value)):
        raise Unknown
    return tuple(value) if type(value) is torch.Size else value


def _is_literal(known: Any) -> bool:
    """Are these numbers, and arrays as stand-ins for them would be: each its own memory, row after row?"""
    parts = known if type(known) in (list, tuple) else [known]
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if known is None or any(type(part) in (list, tuple) for part in parts):
        return False
    alone = not any(np.may_share_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    return alone and all(a.flags.c_contiguous and a.flags.writeable for a in arrays)


def literal(vm: Interpreter, value: Any) -> Any:
    """What NumPy has made of constants, as stand-ins for these very numbers."""
    if type(value) in (list, tuple):
        made = [literal(vm, v) for v in value]
        return vm.world.mark_fresh(made) if type(value) is list else tuple(made)
    if type(value) in NUMBERS:
        return value
    stand_in = constant(vm, value, value.dtype)
    stand_in.known = value.copy()
    return stand_in


# ------------------------------------------------------------------ operands


def as_array(vm: Interpreter, value: Any) -> Array:
    """An argument as an array, as ``np.asarray`` would see it (a constant, a list of arrays)."""
    if type(value) is range:  # a sequence of numbers like others
        value = list(value)
    kind = type(value)
    if kind is Array:
        return value
    if kind in NUMBERS or kind in SYMBOLS or isinstance(value, np.generic):
        return constant(vm, specialise(value))
    if kind in (list, tuple, torch.Size):
        if not holds_array(value):
            return constant(vm, specialise(_plain(value)))
        items = [as_array(vm, v) for v in value]
        dtype = as_torch(np.result_type(*[i.dtype for i in items]))
        return Array(vm, torch.stack([cast(i.tensor, dtype) for i in items]).contiguous())
    if is_stand_in(value):
        raise Break("a function of NumPy is called with a tensor", "call it with an array, as x.numpy() is")
    raise Break(f"a function of NumPy is called with a {kind.__qualname__}")


def _plain(value: Any) -> Any:
    """A list of numbers, symbols in it as the constants that they are here."""
    if type(value) in (list, tuple, torch.Size):
        return [_plain(v) for v in value]
    if type(value) in NUMBERS or type(value) in SYMBOLS or isinstance(value, np.generic):
        return specialise(value)
    raise Break(f"an array is made of a {type(value).__qualname__}")


def constant(vm: Interpreter, value: Any, dtype: Any = None) -> Array:
    """An array made of numbers (in lists), or a scalar of NumPy made of a number."""
    made = np.array(value, dtype=dtype)
    kind = as_torch(made.dtype)
    if made.ndim == 0:
        return Array(vm, torch.full((), made.item(), dtype=kind), scalar=isinstance(value, np.generic))
    return Array(vm, torch.tensor(made.tolist(), dtype=kind).reshape(made.shape))


def number(value: Any, dtype: torch.dtype) -> Any:
    """A Python number that is to be used with arrays of this dtype; breaks where NumPy would refuse it."""
    if not fits(value, dtype):
        raise Break(f"the number {value} is no {BACK[dtype]}", HINT)
    return value


# ------------------------------------------------------------------ samples and results


def sample(value: Any) -> Any:
    """A small array (or a scalar) of the same dtype and number of dimensions; anything else as it is, constant."""
    kind = type(value)
    if kind is Array:
        if value.scalar:
            return value.dtype.type(1)
        shape = tuple(min(int(n), MOST) if type(n) is int else MOST for n in value.tensor.shape)
        if value.dtype.kind != "f":
            return laid_out(np.zeros(shape, value.dtype), value.tensor)
        size = int(np.prod(shape))
        made = (((np.arange(size) * 7919) % 13 + 1) / 3).astype(value.dtype).reshape(shape)
        return laid_out(made, value.tensor)
    if kind in (list, tuple):
        return kind(map(sample, value))
    return specialise(value)


def laid_out(array: Any, like: Any) -> Any:
    """The array with its dimensions in memory in the order that those of ``like`` have."""
    if like.ndim < 2 or like.is_contiguous():
        return array
    order = sorted(range(like.ndim), key=lambda d: -like.stride(d))
    repeated = tuple(slice(0, 1) if like.stride(d) == 0 else slice(None) for d in range(like.ndim))
    made = np.ascontiguousarray(array[repeated].transpose(order)).transpose(np.argsort(order))
    return np.broadcast_to(made, array.shape) if made.shape != array.shape else made


def as_in_numpy(tensor: Any, like: Any) -> Any:
    """A new tensor with its dimensions in memory in the order that NumPy gives them: reshapes are views by that."""
    if tensor.ndim < 2 or (like.flags.c_contiguous and tensor.is_contiguous()):
        return tensor
    order = sorted(range(like.ndim), key=lambda d: (-like.strides[d], d))
    if like.flags.c_contiguous:
        order = list(range(like.ndim))
    turned = tensor.permute(order)
    return tensor if turned.is_contiguous() else turned.contiguous().permute([int(d) for d in np.argsort(order)])


def sampled(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What NumPy makes of arguments of these dtypes.

    Breaks where that is an argument, or a view of one, as ``np.diff(x, 0)`` is: what is made of torch's is a copy.
    """
    given, named = [*map(sample, args)], {k: sample(v) for k, v in kwargs.items()}
    with np.errstate(all="ignore"):
        found = fn(*given, **named)
    for one in _arrays_in(found):
        if any(one is other or np.shares_memory(one, other) for other in _arrays_in([*given, *named.values()])):
            raise Break(f"np.{getattr(fn, '__name__', '?')} gives a view of an argument", HINT)
    return found


def _arrays_in(value: Any) -> list[Any]:
    """The arrays of NumPy in tuples and lists."""
    if isinstance(value, (tuple, list)):
        return [one for v in value for one in _arrays_in(v)]
    return [value] if isinstance(value, np.ndarray) else []


def tried(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    """Run an implementation on samples: torch lacks kernels for some dtypes, which stand-ins do not show."""
    with torch_private.without_modes(), np.errstate(all="ignore"):
        fn(*[torch.from_numpy(np.array(sample(a))) if type(a) is Array else a for a in args], **kwargs)


def result(vm: Interpreter, tensor: Any, like: Any, inputs: Sequence[Any]) -> Any:
    """The array (or scalar, or tuple of them) that NumPy would give; breaks where the tensor is another one.

    A result is new memory unless ``like``, what NumPy made of samples, is a view.
    """
    if isinstance(like, (tuple, list)):
        if len(tensor) != len(like):
            raise Break(f"{len(like)} results in NumPy are {len(tensor)} here")
        made = [result(vm, t, one, inputs) for t, one in zip(tensor, like, strict=True)]
        return vm.world.mark_fresh(made) if type(like) is list else tuple(made)
    if not isinstance(like, (np.ndarray, np.generic)) or type(like) not in (np.ndarray, like.dtype.type):
        raise Break(f"NumPy gives a {type(like).__qualname__}", HINT)
    if as_torch(as_numpy(like.dtype)) is not tensor.dtype or like.ndim != tensor.ndim:
        raise Break(f"NumPy gives {like.dtype} with {like.ndim} dimensions, torch {tensor.dtype} with {tensor.ndim}")
    if any(storage(tensor) == storage(i.tensor) for i in inputs):
        tensor = tensor.clone()
    return Array(vm, as_in_numpy(tensor, like), scalar=isinstance(like, np.generic))


def view(base: Array, tensor: Any) -> Array:
    """A result that is a view of an array's memory where torch made one, and as writeable as the array."""
    if base.scalar:
        raise Break("a view of a scalar of NumPy")
    return Array(base.vm, tensor, readonly=base.readonly and storage(tensor) == storage(base.tensor))


def _method(name: str) -> Callable[..., Any]:
    def call(owner: Any, /, *args: Any, **kwargs: Any) -> Any:
        return getattr(owner, name)(*args, **kwargs)

    call.__name__ = f"ndarray.{name}"
    return call


def may_raise(vm: Interpreter) -> None:
    """The next operation raises for some values, where NumPy is to raise: breaks if something was written before.

    A graph that raises is run again in NumPy only if it writes to nothing older than the frame.
    """
    if vm.tracer.written():
        raise Break("what may raise comes after a write to an argument", HINT)
    vm.arrays_raise = True


def check_writeable(target: Array) -> None:
    """Break at an array that is read-only, at a scalar, and at memory that a graph which may raise must leave alone."""
    if target.scalar or target.readonly:
        raise Break("a read-only array is written to", "NumPy raises for it")
    if target.vm.arrays_raise and storage(target.tensor) in map(storage, target.vm.tracer.outside()):
        raise Break("a write to an argument comes after what may raise", HINT)


def write(target: Array, value: Any) -> None:
    """Give an array's memory new values; breaks where ``check_writeable`` does."""
    check_writeable(target)
    if isinstance(value, torch.Tensor):
        target.tensor.copy_(value)
    else:
        target.tensor.fill_(value)
