"""C functions and classes that may run while capturing, and how their arguments are prepared."""

from __future__ import annotations

import binascii
import builtins
import cmath
import collections
import enum
import functools
import itertools
import math
import operator
import os
import struct
import sys
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from jitney._util.ownership import trusted, trusted_function
from jitney.capture.interpreter import arity
from jitney.capture.interpreter.generators import Reentrant
from jitney.capture.interpreter.signals import Break, GiveUp
from jitney.capture.kinds import is_stand_in
from jitney.capture.numpy.stand_in import Array
from jitney.capture.python.c_boundary import (
    FRESH_CONTAINERS,
    PLAIN,
    SYMBOLIC,
    callback,
    caller,
    check_elements,
    compared_in_python,
    demanded,
    expose,
    has_tensor,
    held,
    item_key,
    key_function,
    ordering,
    plain_text,
    printable,
    python_method,
    refuse_opaque,
    refuse_protocol,
    specialise,
)
from jitney.capture.python.classes import PYTHON_FUNCTION, lookup
from jitney.capture.python.containers import (
    SequenceView,
    check_key,
    dict_base,
    getitem,
    iterable,
    merged,
    setitem,
    settle_items,
)
from jitney.capture.python.operators import OPERATOR_FUNCTIONS, PROTOCOL, UNARY_FUNCTIONS, binary, exact, put_off, truth
from jitney.capture.torch import conversions
from jitney.capture.world.host_comparisons import host_comparison, host_number
from jitney.capture.world.record import ABSENT

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

# ------------------------------------------------------------------ pure C functions

_builtin_names = (
    "abs all any ascii bin callable chr divmod format hash hex len max min oct ord pow repr round sorted sum".split()
)
PURE_MODULES = (math, cmath, operator)
OF_BYTES = (struct.calcsize, struct.pack, struct.unpack, struct.unpack_from, binascii.hexlify, binascii.unhexlify,
            binascii.b2a_hex, binascii.a2b_hex, binascii.a2b_base64, binascii.b2a_base64, binascii.crc32)  # fmt: skip
PURE: dict[int, Any] = {id(getattr(builtins, n)): getattr(builtins, n) for n in _builtin_names}
for _module in PURE_MODULES:
    PURE.update({id(v): v for v in vars(_module).values() if isinstance(v, types.BuiltinFunctionType)})
for _name in ("call", "countOf", "indexOf", "length_hint"):  # these run Python methods
    del PURE[id(getattr(operator, _name))]
PURE[id(functools.reduce)] = functools.reduce
PURE[id(functools.cmp_to_key)] = functools.cmp_to_key
for _fn in (str.maketrans, bytes.fromhex, float.fromhex, int.from_bytes, dict.fromkeys, itertools.chain.from_iterable,
            itertools.tee, os.fspath, sys.intern, *OF_BYTES):  # fmt: skip
    PURE[id(_fn)] = _fn
CLASS_METHODS = {"maketrans", "fromhex", "fromkeys", "from_bytes", "from_iterable", "mro"}
ITERATING = {id(f) for f in (all, any, sum, max, min, sorted, functools.reduce, math.prod, math.fsum,
                             itertools.tee)}  # fmt: skip
COMPARING = {id(f) for f in (max, min, sorted)}
PRINTING = {id(f) for f in (repr, ascii, format, hash)}
KEEP_SYMBOLS = {id(v) for v in vars(operator).values() if isinstance(v, types.BuiltinFunctionType)} | {
    id(f) for f in (sum, max, min, abs, math.prod, functools.reduce)
}


LATER_WINS = {max: ">", min: "<"}  # how the second of two arguments must compare with the first to be the result
EXTREMES: dict[Any, Callable[[Any, Any], Any]] = {max: torch.sym_max, min: torch.sym_min}


def is_pure(fn: Any) -> bool:
    """May this C function run on values that were read under guards?"""
    return id(fn) in PURE or getattr(fn, "__name__", "") in CLASS_METHODS


def call_pure(vm: Interpreter, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run a pure C function: containers exposed, iterators and callbacks going back through the interpreter."""
    key = id(fn)
    arity.check(fn, args, kwargs)
    if fn in (operator.concat, operator.iconcat) and any(type(a) is Array for a in args):
        raise Break(f"operator.{fn.__name__}() of an array")
    if not kwargs:
        if len(args) == 2 and key in OPERATOR_FUNCTIONS:
            return OPERATOR_FUNCTIONS[key](vm, *args)
        if len(args) == 1 and key in UNARY_FUNCTIONS:
            return UNARY_FUNCTIONS[key](vm, *args)
        if fn is operator.setitem:
            return setitem(vm, *args)
        method = python_method(vm, args[0], PROTOCOL[key]) if key in PROTOCOL and args else None
        if method is not None:
            return vm.call(method, *args)
    if key not in ITERATING:
        refuse_protocol(vm, f"{getattr(fn, '__name__', fn)}()", *args, *kwargs.values())
    if key not in COMPARING or not compared_in_python(vm, args):
        refuse_opaque(vm, f"{getattr(fn, '__name__', fn)}()", *args, *kwargs.values())
    if key in PRINTING and has_tensor(args):
        raise Break(f"{fn.__name__}() reads a tensor's values", "move it out of the compiled function")
    if key in PRINTING:
        vm.world.read_orders_within(args)
    made = None if kwargs else put_off(vm, fn, *args)
    if made is not None:
        return made
    if fn in LATER_WINS and not kwargs and len(args) == 2 and any(map(vm.symbols.scalars.is_unknown, args)):
        wins = host_comparison(vm, LATER_WINS[fn], args[1], args[0])  # an int or a float, whichever it is
        if wins is not None:
            return args[1] if wins else args[0]
    if fn is divmod and len(args) == 2 and all(type(a) in (int, torch.SymInt) for a in args) and truth(vm, args[1]):
        return vm.native(operator.floordiv, *args), vm.native(operator.mod, *args)
    at = _iterated_argument(fn, args)
    seen = [expose(vm, a) for a in args] if at is None else [held(vm, a) if i == at else a for i, a in enumerate(args)]
    if key in KEEP_SYMBOLS:
        call_args = seen
        if fn not in (max, min) or not all(map(vm.symbols.scalars.compares, call_args)):
            call_args = list(exact(*call_args))
    else:
        call_args = [*map(specialise, seen)]
        kwargs = {k: specialise(v) for k, v in kwargs.items()}
    if key in ITERATING:
        if fn is functools.reduce:
            call_args[0] = caller(vm, args[0])
        if at is not None and 0 <= at < len(args):
            own = python_method(vm, args[at], "__iter__") is not None
            call_args[at] = _iterated(vm, fn, args[at] if own else call_args[at])
    elif fn is functools.cmp_to_key:
        call_args[0] = caller(vm, args[0])
    if key in COMPARING and kwargs.get("key") is None:
        values = call_args if len(call_args) > 1 else call_args[0]
        values = list(values) if isinstance(values, dict) else values
        if isinstance(values, FRESH_CONTAINERS) and compared_in_python(vm, values):
            kwargs = {**kwargs, "key": ordering(vm, operator.gt if fn is max else operator.lt)}
        elif not isinstance(values, FRESH_CONTAINERS):  # items that come one by one
            kwargs = {**kwargs, "key": item_key(vm, operator.gt if fn is max else operator.lt)}
        else:
            check_elements(vm, values)
            if not all(type(v) in PLAIN for v in values):
                kwargs = {**kwargs, "key": functools.partial(expose, vm)}
    elif key in COMPARING:
        kwargs = {**kwargs, "key": key_function(vm, kwargs["key"], operator.gt if fn is max else operator.lt)}
    if fn is sum and call_args:
        return _python_sum(vm, *call_args, **kwargs)
    if fn is math.prod and call_args:
        kwargs, call_args = dict(kwargs), [vm.native(list, call_args[0]), *call_args[1:]]
        values = _of_one_kind([*call_args[0], *kwargs.values()])
        call_args[0], kwargs = values[: len(call_args[0])], dict(zip(kwargs, values[len(call_args[0]) :], strict=True))
    if fn in EXTREMES and call_args and not kwargs:
        values = call_args if len(call_args) > 1 else vm.native(list, call_args[0])
        if {*map(type, values)} <= {int, torch.SymInt} and any(map(vm.symbols.scalars.is_unknown, values)):
            return functools.reduce(EXTREMES[fn], values)
        call_args = [values]
    return vm.native(fn, *call_args, **kwargs)


def _iterated_argument(fn: Any, args: list[Any]) -> int | None:
    """Which argument the function goes over, whose items it may return; -1 where arguments are such items."""
    if id(fn) not in ITERATING:
        return None
    if fn is functools.reduce:
        return 1
    return -1 if id(fn) in COMPARING and len(args) > 1 else 0


def _iterated(vm: Interpreter, fn: Any, value: Any) -> Any:
    ordered = fn in (sorted, max, min) and isinstance(value, set | frozenset) and {*map(type, value)} in ({int}, {str})
    made = list(value) if ordered else iterable(vm, value)
    if fn in (any, all):
        return _truths(vm, made)
    if fn is sorted and not isinstance(made, FRESH_CONTAINERS):
        return vm.native(list, made)
    return made


def _truths(vm: Interpreter, values: Any) -> Any:
    for value in values:
        yield truth(vm, value)


NUMBERS = (bool, int, float, complex, torch.SymInt, torch.SymFloat)


def _of_one_kind(values: list[Any]) -> list[Any]:
    """Symbolic numbers as constants where there are floats: torch would add (or multiply) in another order."""
    kinds = set(map(type, values))
    return values if kinds.isdisjoint((float, complex, torch.SymFloat)) else list(map(specialise, values))


def _python_sum(vm: Interpreter, values: Any, start: Any = 0) -> Any:
    """``sum``: of the numbers that come first in C (which may compensate for rounding), then item by item as they come.

    What yields them may change what was added already.
    """
    total = start
    if isinstance(total, (str, bytes)):
        raise Break("sum() of text")
    iterator = vm.native(iter, values)
    value = vm.native(next, iterator, END)
    numbers = [total]
    while type(total) in NUMBERS and type(value) in NUMBERS:
        numbers.append(value)
        value = vm.native(next, iterator, END)
    if len(numbers) > 1:
        total, *numbers = _of_one_kind(numbers)
        total = vm.native(sum, numbers, total)
    while value is not END:
        total = binary(vm, "+", total, value)
        value = vm.native(next, iterator, END)
    return total


END = object()


# ------------------------------------------------------------------ classes

MUTABLE = (list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict)


def _make_iterated(vm: Interpreter, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """list, tuple, set, frozenset, deque, zip, enumerate, reversed: the arguments are iterated over."""
    if cls in (tuple, frozenset) and len(args) == 1 and type(args[0]) is cls and not kwargs:
        return args[0]
    if cls in (enumerate, collections.deque):
        first, rest = args[:1], [specialise(a) for a in args[1:]]
    else:
        first, rest = args, []
    call_args = [iterable(vm, a) for a in first]
    if cls in (set, frozenset) and call_args and not isinstance(call_args[0], torch.Tensor):
        call_args = [list(map(specialise, vm.native(list, a))) for a in call_args]
        settle_items(vm, call_args[0])
        call_args = [merged(vm, args[0], call_args[0])] if len(args) == 1 else call_args
    if any(isinstance(a, torch.Tensor) for a in call_args):
        call_args = [vm.native(iter, a) if isinstance(a, torch.Tensor) else a for a in call_args]
    made = vm.native(cls, *call_args, *rest, **{k: specialise(v) for k, v in kwargs.items()})
    return vm.world.mark_fresh(made) if cls in (list, set, frozenset, collections.deque) else made


def _make_reversed(vm: Interpreter, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    method = python_method(vm, args[0], "__reversed__")
    if method is not None:
        return vm.call(method, args[0])
    by_length = python_method(vm, args[0], "__len__") and python_method(vm, args[0], "__getitem__")
    if by_length and lookup(vm, type(args[0]), "__reversed__") is ABSENT:
        return vm.native(reversed, SequenceView(vm, args[0]))
    refuse_opaque(vm, "reversed()", args[0])
    return vm.native(reversed, held(vm, args[0]))


def _make_dict(vm: Interpreter, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    made = vm.world.mark_fresh(vm.native(cls, *args[:-1] if cls is collections.defaultdict and args else ()))
    if cls is collections.defaultdict:
        factory, args = (args[0] if args else None), args[1:]
        made = vm.world.mark_fresh(vm.native(collections.defaultdict, callback(vm, factory)))
    fill_dict(vm, made, args, kwargs)
    return made


def fill_dict(vm: Interpreter, target: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """``dict.update``."""
    for source in args:
        if source is None:
            vm.native(target.update, source)
        items = mapping_items(vm, source)
        for key in items:
            check_key(vm, key, target)
        dict_base(target).update(target, items)
    dict_base(target).update(target, kwargs)


def mapping_items(vm: Interpreter, source: Any) -> Any:
    """A plain dictionary (or pairs) with a mapping's items, as ``dict(source)`` sees them."""
    if isinstance(source, dict) and not python_method(vm, source, "__iter__"):
        record = vm.world.record_of(source)
        return dict(source) if record is None else dict(vm.world.content(record))
    if isinstance(source, types.MappingProxyType):
        if vm.world.record_of(source) is not None and id(source) not in vm.world.views:
            raise Break("a dictionary is made of a types.MappingProxyType from outside")
        return dict(source)
    keys = lookup(vm, type(source), "keys")
    if type(keys) is PYTHON_FUNCTION:
        names = vm.native(list, iterable(vm, vm.call(keys, source)))
        return {specialise(k): getitem(vm, source, k) for k in names}
    pairs = vm.native(list, iterable(vm, source))
    if any(type(p) in PLAIN and not isinstance(p, (str, range, torch.Size)) for p in pairs):
        raise Break("a dictionary is made of what are no pairs")
    made = [vm.native(tuple, iterable(vm, p)) for p in pairs]
    if any(len(pair) != 2 for pair in made):
        raise Break("a dictionary is made of what are no pairs")
    return vm.native(dict, [(*map(specialise, pair[:1]), *pair[1:]) for pair in made])


def _make_callback(vm: Interpreter, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """map, filter and the itertools that call a function."""
    at = 1 if cls in (itertools.accumulate, itertools.groupby) else 0
    call_args = [caller(vm, a) if i == at or (cls is map and i == 0) else iterable(vm, a) for i, a in enumerate(args)]
    if cls is filter and args[0] is None:
        call_args[0] = Reentrant(vm, bool)
    if cls is itertools.accumulate and len(args) < 2 and kwargs.get("func") is None:  # the sum, step by step
        kwargs = {**kwargs, "func": operator.add}
    if cls is itertools.accumulate and len(args) == 2 and args[1] is None:
        call_args[1] = caller(vm, operator.add)
    return vm.native(cls, *call_args, **{k: caller(vm, v) for k, v in kwargs.items()})


def _make_itertool(vm: Interpreter, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    numbers = cls in (itertools.count, itertools.repeat)
    call_args = [a if numbers else iterable(vm, specialise(a)) for a in args]
    return vm.native(cls, *call_args, **{k: specialise(v) for k, v in kwargs.items()})


def _make_number(vm: Interpreter, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and not kwargs:
        value = args[0]
        if cls is bool:
            return truth(vm, value)
        if type(value) is Array:
            number = value.number()
            args = [value := value if number is None else number]
        if (type(value), cls) in ((torch.SymInt, int), (torch.SymFloat, float)):
            return value
        if cls is int and type(value) is torch.SymFloat and vm.symbols.scalars.is_unknown(value):
            return vm.symbols.scalars.truncated(value)
        if cls is int and type(value) is torch.SymFloat:
            return vm.native(math.trunc, value)
        if is_stand_in(value):
            number = host_number(vm, value) if cls in (int, float) else None
            if number is not None:
                return _make_number(vm, cls, [number], {})
            number = conversions.converted(vm, cls, value)
            if number is not conversions.UNREAD:
                return number
        for name in (f"__{cls.__name__}__", "__index__", "__trunc__"):
            method = python_method(vm, value, name)
            if method is not None:
                made = demanded(vm.call(method, value), cls if name == f"__{cls.__name__}__" else int, name)
                return made if cls is int else vm.native(cls, specialise(made))
    refuse_opaque(vm, f"{cls.__name__}()", *args)
    return vm.native(cls, *map(specialise, args), **kwargs)


def _make_str(vm: Interpreter, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and not kwargs:
        return to_text(vm, args[0], "__str__")
    return vm.native(cls, *args, **kwargs)


def to_text(vm: Interpreter, value: Any, method: str) -> str:
    """``str(value)`` or ``repr(value)``."""
    value = specialise(value) if type(value) in SYMBOLIC else value
    if has_tensor(value) or _deep_python(vm, value):
        raise Break("a tensor (or an object that may hold one) is turned into text", "print outside compiled code")
    if isinstance(value, types.FunctionType) and not vm.world.anchor(value).source.is_const:
        raise Break("a function is turned into text")
    for name in (method, "__repr__"):
        found = python_method(vm, value, name)
        if found is not None:
            return str(demanded(vm.call(found, value), str, name))
        if lookup(vm, type(value), name) is not object.__dict__.get(name):
            break
    refuse_own_text(vm, value)
    if vm.world.record_of(value) is not None or vm.world.is_fresh(value):
        plain = isinstance(value, (*FRESH_CONTAINERS, str, int, float, BaseException, type, types.FunctionType))
        if not plain and not isinstance(value, enum.Enum):
            raise Break(f"a {type(value).__qualname__} is turned into text")
    exposed = printable(expose(vm, value))
    if has_tensor(exposed):
        raise Break("a tensor is turned into text", "print outside compiled code")
    vm.world.read_orders_within(exposed)
    text = str(vm.native(str if method == "__str__" else repr, exposed))
    if " at 0x" in text:
        vm.world.assumptions.keep_private("an object's address as text")
    return text


def refuse_own_text(vm: Interpreter, value: Any) -> None:
    """Break where C code would write what no guard describes, or what a shadow does not show: its class."""
    kind = type(value)
    if isinstance(value, FRESH_CONTAINERS) and kind not in (*FRESH_CONTAINERS, torch.Size):
        raise Break(f"a {kind.__qualname__} is turned into text", "print outside compiled code")
    if isinstance(value, BaseException) and vm.world.record_of(value) is not None:
        raise Break(f"a {kind.__qualname__} from outside is turned into text", "print outside compiled code")
    if kind is slice and not plain_text(value):
        raise Break("a slice of objects is turned into text", "print outside compiled code")


def _deep_python(vm: Interpreter, value: Any) -> bool:
    """Does a container hold an instance whose text is made by Python code, or is no plain value's?"""
    if not isinstance(value, FRESH_CONTAINERS):
        return False
    items = [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)
    return any(not plain_text(v) and (type(v) not in FRESH_CONTAINERS or _deep_python(vm, v)) for v in items)


def _make_plain(vm: Interpreter, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Immutable values and wrappers: made as they are, arguments kept."""
    if cls is weakref.ref:
        _check_weakref(vm, cls, args)
    if cls in (range, bytes, bytearray):
        refuse_protocol(vm, f"{cls.__name__}()", *args)
    if cls in (bytes, bytearray) and args:
        args = [items_of_bytes(vm, args[0]), *args[1:]]
    if cls is types.MappingProxyType and any(vm.world.record_of(a) is not None for a in args):
        raise Break("a types.MappingProxyType of a mapping from outside")
    made = vm.native(cls, *[specialise(a) for a in args], **kwargs)
    return vm.world.mark_fresh(made) if cls in FRESH_WRAPPERS else made


def items_of_bytes(vm: Interpreter, value: Any) -> Any:
    """What ``bytes()`` and ``int.from_bytes()`` are made of: bytes, or integers one by one."""
    if type(value) is Array:
        raise Break("bytes of an array")
    refuse_opaque(vm, "bytes()", value)
    if type(value) in PLAIN or isinstance(value, (bytes, bytearray, memoryview)) or is_stand_in(value):
        return value
    return value if not hasattr(type(value), "__iter__") else [*map(specialise, vm.native(list, iterable(vm, value)))]


def holds_array(value: Any) -> bool:
    """Is it, or does it hold in containers, an array as capture knows them?"""
    if isinstance(value, dict):
        return any(map(holds_array, value.values()))
    return type(value) is Array or (isinstance(value, FRESH_CONTAINERS) and any(map(holds_array, value)))


def _check_weakref(vm: Interpreter, cls: type, args: list[Any]) -> None:
    """Compiled code keeps what the frame made until it ends, so a weak reference to that would live too long."""
    source = vm.world.anchor(args[0]).source if args and vm.world.record_of(args[0]) else None
    resumed = vm.frames[0].func is None and source is not None and source.kind == "local"
    if args and (resumed or vm.world.is_fresh(args[0])):
        raise GiveUp(f"a weak reference to a {type(args[0]).__qualname__} made by the frame", "make it outside")
    callback = args[1] if len(args) > 1 else None
    plain = callback is None or (type(callback) is types.FunctionType and trusted_function(callback))
    if not plain or cls is not weakref.ref:
        raise Break(f"{cls.__module__}.{cls.__qualname__}() with a callback")


def _make_size(vm: Interpreter, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return vm.native(cls, *[vm.native(list, iterable(vm, a)) for a in args])


def _make_super(vm: Interpreter, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return vm.native(super, *args)


def _make_partial(vm: Interpreter, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """One of another is one of what that calls, unless that has attributes of its own."""
    func = args[0] if args else None
    if isinstance(func, functools.partial) and not vm.truth(vm.call(getattr, func, "__dict__")):
        first, named = func.args, func.keywords
        if vm.world.record_of(func) is not None:
            wrapped = vm.world.wrap(named, vm.world.anchor(func).source.attr("keywords"))
            named = vm.world.content(vm.world.anchor(wrapped))
            first = vm.world.wrap(first, vm.world.anchor(func).source.attr("args"))
        args, kwargs = [func.func, *first, *args[1:]], {**named, **kwargs}
    return vm.world.mark_fresh(vm.native(functools.partial, *args, **kwargs))


def _make_type(vm: Interpreter, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if len(args) == 3 and all(type(b) is type for b in args[1]):
        return vm.world.mark_fresh(vm.native(type, *args, **kwargs))
    raise Break("a class with a metaclass is made by calling type()")


GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
FRESH_WRAPPERS = (types.CellType, types.SimpleNamespace, object, types.MethodType, bytearray, property, *GETTERS)
VALUE_CLASSES: dict[type, Callable[[Any, Any, list[Any], dict[str, Any]], Any]] = {
    **dict.fromkeys((list, tuple, set, frozenset, collections.deque, zip, enumerate), _make_iterated),
    **dict.fromkeys((dict, collections.OrderedDict, collections.defaultdict), _make_dict),
    **dict.fromkeys((map, filter, itertools.accumulate, itertools.groupby, itertools.takewhile), _make_callback),
    **dict.fromkeys((itertools.dropwhile, itertools.filterfalse, itertools.starmap), _make_callback),
    **dict.fromkeys(
        (itertools.chain, itertools.product, itertools.permutations, itertools.combinations, itertools.islice,
         itertools.combinations_with_replacement, itertools.cycle, itertools.count, itertools.repeat,
         itertools.zip_longest, itertools.compress, itertools.pairwise),
        _make_itertool,
    ),
    **dict.fromkeys((int, float, bool, complex), _make_number),
    **dict.fromkeys(
        (range, slice, bytes, property, staticmethod, classmethod, torch.device, types.MethodType, types.CellType,
         *GETTERS, types.SimpleNamespace, object, bytearray,
         types.MappingProxyType, weakref.ref),
        _make_plain,
    ),
    str: _make_str,
    reversed: _make_reversed,
    torch.Size: _make_size,
    super: _make_super,
    functools.partial: _make_partial,
    type: _make_type,
}  # fmt: skip
if hasattr(itertools, "batched"):
    VALUE_CLASSES[itertools.batched] = _make_itertool


def is_value_class(cls: type) -> bool:
    """A class that the table knows, though it may be a heap type."""
    return cls in VALUE_CLASSES or issubclass(cls, enum.Enum)


def make_value(vm: Interpreter, cls: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """An instance of a C class."""
    maker = VALUE_CLASSES.get(cls)
    if maker is not None:
        arity.check(cls, args, kwargs)
        return maker(vm, cls, args, kwargs)
    if issubclass(cls, BaseException):
        return vm.world.mark_fresh(vm.native(cls, *args, **kwargs))
    if cls in (torch.finfo, torch.iinfo):
        return vm.native(cls, *args)
    if issubclass(cls, enum.Enum):
        if not cls.__members__ and (len(args) > 1 or kwargs):
            raise Break(f"the enumeration {args[0] if args else ''} is made by calling {cls.__name__}()")
        guard_members(vm, cls)
        return vm.native(cls, *map(specialise, args), **kwargs)
    raise Break(f"an instance of the C class {cls.__module__}.{cls.__qualname__} is made")


def guard_members(vm: Interpreter, cls: Any) -> None:
    """Guard how many members an enumeration has: some libraries give them to one that is there already."""
    if not vm.world.is_fresh(cls) and not trusted(cls):
        vm.world.guard(vm.world.const(cls).attr("_member_map_"), "len", len(cls._member_map_))


def allocate(vm: Interpreter, cls: type, new: Any, init: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """``cls.__new__`` where it is C code."""
    if new is object.__new__:
        if (args or kwargs) and init is object.__init__:
            raise Break(f"{cls.__qualname__}() takes no arguments")
        return vm.world.mark_fresh(vm.native(object.__new__, cls, *args, **kwargs))
    if issubclass(cls, weakref.ref):
        _check_weakref(vm, cls, args)
    if issubclass(cls, BaseException):
        return vm.world.mark_fresh(vm.native(cls.__new__, cls, *args, **kwargs))
    if issubclass(cls, (*MUTABLE, types.SimpleNamespace)):
        return vm.world.mark_fresh(vm.native(new, cls))
    if issubclass(cls, (tuple, frozenset)):
        return vm.world.mark_fresh(vm.native(new, cls, *[vm.native(list, iterable(vm, a)) for a in args], **kwargs))
    if issubclass(cls, (int, float, str, complex, bytes)):
        return vm.world.mark_fresh(vm.native(new, cls, *map(specialise, args), **kwargs))
    raise Break(f"an instance of {cls.__qualname__} is made by C code")
