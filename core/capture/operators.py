"""Operators, subscripts, iteration and truth, by Python's own protocol."""

from __future__ import annotations

import collections
import enum
import functools
import operator
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from jitney import _torch
from jitney.capture.attributes import PYTHON_FUNCTION, lookup
from jitney.capture.generators import InterpretedGenerator, Reentrant, ReentrantIterator
from jitney.capture.iterators import OutsideIterator, advance
from jitney.capture.record import ABSENT, CONTENT_TYPES
from jitney.capture.signals import Break, UserRaised
from jitney.capture.world import ATOMS

if TYPE_CHECKING:
    from jitney.capture.interpreter import Interpreter

PLAIN = frozenset({*ATOMS, torch.Size, torch.dtype, torch.device, torch.SymInt, torch.SymFloat, torch.SymBool, range})
OWN_TYPES = frozenset({InterpretedGenerator, Reentrant, ReentrantIterator, OutsideIterator})
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
FRESH_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict)

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
    "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv,
    "//=": operator.ifloordiv, "%=": operator.imod, "**=": operator.ipow, "@=": operator.imatmul,
    "&=": operator.iand, "|=": operator.ior, "^=": operator.ixor, "<<=": operator.ilshift, ">>=": operator.irshift,
}  # fmt: skip
METHODS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
COMPARE_METHODS = {"<": "__lt__", "<=": "__le__", "==": "__eq__", "!=": "__ne__", ">": "__gt__", ">=": "__ge__"}
MIRROR = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}
UNARY = {"-": operator.neg, "+": operator.pos, "~": operator.invert}


# ------------------------------------------------------------------ values as C code may see them


def expose(vm: Interpreter, value: Any) -> Any:
    """The value with every container from outside replaced by its guarded shadow, all the way down."""
    kind = type(value)
    if kind in PLAIN or kind is _torch.FakeTensor:
        return value
    record = vm.world.record_of(value)
    if record is not None and isinstance(value, CONTENT_TYPES):
        return expose_items(vm, vm.world.content(record))
    if kind in FRESH_CONTAINERS:
        return expose_items(vm, value)
    return value


def expose_items(vm: Interpreter, value: Any) -> Any:
    """The container itself, or a copy where an item had to be replaced."""
    if isinstance(value, dict):
        made = {expose(vm, k): expose(vm, v) for k, v in value.items()}
        if all(made.get(k) is v for k, v in value.items()):
            return value
        return collections.OrderedDict(made) if isinstance(value, collections.OrderedDict) else made
    items = [expose(vm, v) for v in value]
    if all(a is b for a, b in zip(items, value, strict=True)):
        return value
    return type(value)(items)


TRANSPARENT = (*CONTENT_TYPES, tuple, str, type, types.FunctionType, types.BuiltinFunctionType, types.MethodType,
               types.ModuleType, enum.Enum, weakref.ref)  # fmt: skip


def refuse_opaque(vm: Interpreter, what: str, *values: Any) -> None:
    """Break where C code would look into an object from outside that no guard describes (an array, a file...)."""
    for value in values:
        kind = type(value)
        if kind in PLAIN or kind is _torch.FakeTensor or isinstance(value, TRANSPARENT):
            continue
        if what == "membership" and _default_equality(value):
            continue
        if vm.world.record_of(value) is not None:
            raise Break(f"{what} of a {kind.__qualname__} from outside", "move it out of the compiled function")


def has_tensor(value: Any) -> bool:
    """Does a plain value contain a stand-in?"""
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        return any(map(has_tensor, value))
    if isinstance(value, dict):
        return any(map(has_tensor, value.values())) or any(map(has_tensor, value))
    return False


def specialise(value: Any) -> Any:
    """A symbolic number as the constant that it is in this capture (which guards it)."""
    if type(value) is torch.SymInt:
        return int(value)
    if type(value) is torch.SymFloat:
        return float(value)
    if type(value) is torch.SymBool:
        return bool(value)
    if type(value) in (tuple, list) and any(type(v) in SYMBOLIC for v in value):
        return type(value)(map(specialise, value))
    if type(value) is slice:
        return slice(specialise(value.start), specialise(value.stop), specialise(value.step))
    return value


def python_method(vm: Interpreter, value: Any, name: str) -> Any:
    """The class's method of this name if it is written in Python, else None."""
    kind = type(value)
    if kind in PLAIN or kind is _torch.FakeTensor or kind in OWN_TYPES or not kind.__flags__ & (1 << 9):
        return None
    found = lookup(vm, kind, name)
    return found if type(found) is PYTHON_FUNCTION else None


def callback(vm: Interpreter, value: Any) -> Any:
    """A callable that C code may call: Python functions re-enter the interpreter."""
    if isinstance(value, (types.FunctionType, types.MethodType)) or python_method(vm, value, "__call__"):
        return Reentrant(vm, value)
    if isinstance(value, type) and value.__flags__ & (1 << 9):
        return Reentrant(vm, value)
    return value


# ------------------------------------------------------------------ truth, arithmetic, comparison


def truth(vm: Interpreter, value: Any) -> bool:
    """``bool(value)``."""
    kind = type(value)
    if kind is bool:
        return bool(value)
    if value is None:
        return False
    if kind is _torch.FakeTensor:
        raise_if_data_dependent(vm, value)
        return vm.native(bool, value)
    record = vm.world.record_of(value)
    if record is not None and isinstance(value, CONTENT_TYPES) and not python_method(vm, value, "__bool__"):
        return _container_truth(vm, value, record)
    if kind in PLAIN:
        return vm.native(bool, value)
    for name in ("__bool__", "__len__"):
        method = python_method(vm, value, name)
        if method is not None:
            return bool(specialise(vm.call(method, value)))
        if lookup(vm, kind, name) is not ABSENT:
            refuse_opaque(vm, "the truth", value)
            break
    return vm.native(bool, value)


def _container_truth(vm: Interpreter, value: Any, record: Any) -> bool:
    if record.content is not None:
        return bool(record.content)
    if record.overlay or record.pending:
        return True
    vm.world.guard(record.source, "nonempty" if len(value) else "empty")
    return len(value) != 0


def raise_if_data_dependent(vm: Interpreter, value: Any) -> None:
    """Break with the words that people search for."""
    try:
        bool(value)
    except (_torch.DataDependentOutputException, _torch.GuardOnDataDependentSymNode):
        raise Break(
            "data-dependent control flow: a branch depends on the values of a tensor",
            "use torch.where, or keep the branch outside the compiled function",
        ) from None
    except Exception:
        raise Break("the truth of a tensor with more than one value") from None


def binary(vm: Interpreter, symbol: str, a: Any, b: Any) -> Any:
    """``a symbol b``; ``symbol`` may end in ``=`` for the in-place form."""
    if type(a) in PLAIN and type(b) in PLAIN:
        return vm.native(BINARY[symbol], a, b)
    if type(a) is _torch.FakeTensor or type(b) is _torch.FakeTensor:
        if python_method(vm, a, "__torch_function__") or python_method(vm, b, "__torch_function__"):
            raise Break("an operand with its own __torch_function__")
        if type(b) is _torch.FakeTensor or type(b) in PLAIN:
            if type(a) is _torch.FakeTensor or type(a) in PLAIN:
                return vm.native(BINARY[symbol], a, b)
    base = symbol.rstrip("=")
    name = METHODS[base]
    if symbol != base:
        done, value = _inplace(vm, symbol, f"__i{name}__", a, b)
        if done:
            return value
    forward, reflected = python_method(vm, a, f"__{name}__"), python_method(vm, b, f"__r{name}__")
    if reflected and type(a) is not type(b) and issubclass(type(b), type(a)):
        value = vm.call(reflected, b, a)
        if value is not NotImplemented:
            return value
        reflected = None
    if forward:
        value = vm.call(forward, a, b)
        if value is not NotImplemented:
            return value
    elif not reflected:
        if python_method(vm, a, "__getattr__") and not hasattr(type(a), f"__{name}__"):
            return _unsupported(vm, symbol, a, b)
        refuse_opaque(vm, f"the operator {base}", a, b)
        return vm.native(BINARY[base], expose(vm, a), expose(vm, b))
    if reflected and (type(a) is not type(b)):
        c_forward = getattr(type(a), f"__{name}__", None)
        if forward is None and c_forward is not None:
            value = vm.native(c_forward, expose(vm, a), b)
            if value is not NotImplemented:
                return value
        value = vm.call(reflected, b, a)
        if value is not NotImplemented:
            return value
    return _unsupported(vm, symbol, a, b)


def _unsupported(vm: Interpreter, symbol: str, a: Any, b: Any) -> Any:
    text = "** or pow()" if symbol == "**" else symbol
    kinds = f"{type(a).__name__!r} and {type(b).__name__!r}"
    return vm.raise_user(TypeError(f"unsupported operand type(s) for {text}: {kinds}"))


def _inplace(vm: Interpreter, symbol: str, name: str, a: Any, b: Any) -> tuple[bool, Any]:
    """Try the in-place method: (was there one, its value)."""
    method = python_method(vm, a, name)
    if method is not None:
        value = vm.call(method, a, b)
        return value is not NotImplemented, value
    record = vm.world.record_of(a)
    if record is not None and isinstance(a, CONTENT_TYPES) and hasattr(type(a), name):
        other = iterable(vm, b) if isinstance(a, list | collections.deque) and symbol == "+=" else expose(vm, b)
        vm.native(BINARY[symbol], vm.world.content(record), other)
        record.dirty = True
        return True, a
    if isinstance(a, CONTENT_TYPES) and hasattr(type(a), name):
        other = iterable(vm, b) if isinstance(a, list) and symbol == "+=" else expose(vm, b)
        return True, vm.native(BINARY[symbol], a, other)
    return False, None


def compare(vm: Interpreter, symbol: str, a: Any, b: Any) -> Any:
    """``a symbol b`` for the six comparisons."""
    if type(a) in PLAIN and type(b) in PLAIN:
        return vm.native(COMPARE[symbol], a, b)
    forward = python_method(vm, a, COMPARE_METHODS[symbol])
    reflected = python_method(vm, b, COMPARE_METHODS[MIRROR[symbol]])
    if forward is None and reflected is None:
        if symbol == "!=" and (python_method(vm, a, "__eq__") or python_method(vm, b, "__eq__")):
            value = compare(vm, "==", a, b)
            return not truth(vm, value)
        if symbol in ("==", "!=") and _default_equality(a) and _default_equality(b):
            return identical(vm, a, b) == (symbol == "==")
        check_elements(vm, a)
        check_elements(vm, b)
        refuse_opaque(vm, f"the comparison {symbol}", a, b)
        return vm.native(COMPARE[symbol], expose(vm, a), expose(vm, b))
    first = [(forward, a, b), (reflected, b, a)]
    if type(a) is not type(b) and issubclass(type(b), type(a)):
        first.reverse()
    for method, x, y in first:
        if method is not None:
            value = vm.call(method, x, y)
            if value is not NotImplemented:
                return value
    if symbol == "==":
        return identical(vm, a, b)
    if symbol == "!=":
        return not identical(vm, a, b)
    kinds = f"{type(a).__name__!r} and {type(b).__name__!r}"
    return vm.raise_user(TypeError(f"{symbol!r} not supported between instances of {kinds}"))


def _default_equality(value: Any) -> bool:
    kind: Any = type(value)
    return kind.__eq__ is object.__eq__ and kind.__ne__ is object.__ne__


def check_elements(vm: Interpreter, value: Any) -> None:
    """Break where C code would run Python methods of the items (``__eq__``, ``__lt__``, ``__hash__``)."""
    if isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        for item in value:
            if python_method(vm, item, "__eq__") or python_method(vm, item, "__lt__"):
                if not _safe_to_compare(type(item)):
                    raise Break(f"items of class {type(item).__qualname__} are compared by C code")
            check_elements(vm, item)
    elif isinstance(value, dict):
        check_elements(vm, list(value.values()))


def _safe_to_compare(kind: type) -> bool:
    return issubclass(kind, enum.Enum)


def identical(vm: Interpreter, a: Any, b: Any) -> bool:
    """``a is b``, guarded where both are objects from outside."""
    same = a is b
    first, second = vm.world.record_of(a), vm.world.record_of(b)
    if first is not None and second is not None and not same and type(a) is type(b):
        if not (first.source.is_const and second.source.is_const):
            vm.world.relate(first.source, second.source, False)
    return same


# What operator.add and its like stand for.
OPERATOR_FUNCTIONS: dict[int, Callable[[Any, Any, Any], Any]] = {}
for _symbol, _fn in BINARY.items():
    OPERATOR_FUNCTIONS[id(_fn)] = functools.partial(lambda symbol, vm, a, b: binary(vm, symbol, a, b), _symbol)
for _symbol, _fn in COMPARE.items():
    OPERATOR_FUNCTIONS[id(_fn)] = functools.partial(lambda symbol, vm, a, b: compare(vm, symbol, a, b), _symbol)
OPERATOR_FUNCTIONS[id(operator.getitem)] = lambda vm, a, b: getitem(vm, a, b)
OPERATOR_FUNCTIONS[id(operator.contains)] = lambda vm, a, b: contains(vm, a, b)
OPERATOR_FUNCTIONS[id(operator.delitem)] = lambda vm, a, b: delitem(vm, a, b)
OPERATOR_FUNCTIONS[id(operator.is_)] = lambda vm, a, b: identical(vm, a, b)
OPERATOR_FUNCTIONS[id(operator.is_not)] = lambda vm, a, b: not identical(vm, a, b)
UNARY_FUNCTIONS: dict[int, Callable[[Any, Any], Any]] = {
    id(operator.neg): lambda vm, a: unary(vm, "-", a),
    id(operator.pos): lambda vm, a: unary(vm, "+", a),
    id(operator.invert): lambda vm, a: unary(vm, "~", a),
    id(operator.inv): lambda vm, a: unary(vm, "~", a),
    id(operator.not_): lambda vm, a: not truth(vm, a),
    id(operator.truth): lambda vm, a: truth(vm, a),
}
# Builtins that are one method of their argument.
PROTOCOL = {id(abs): "__abs__", id(round): "__round__", id(divmod): "__divmod__", id(operator.abs): "__abs__"}
DUNDERS = (
    "__eq__ __lt__ __hash__ __bool__ __len__ __iter__ __next__ __getitem__ __contains__ __index__ __int__ "
    "__float__ __add__ __radd__ __mul__ __rmul__ __call__ __abs__ __round__ __str__ __repr__ __format__"
).split()


@functools.lru_cache(maxsize=4096)
def has_python_protocol(kind: type) -> bool:
    """Would C code that works on such an object run Python methods of its class?"""
    if not kind.__flags__ & (1 << 9) or issubclass(kind, (enum.Enum, type)) or kind in OWN_TYPES or kind in PLAIN:
        return False
    return any(type(getattr(kind, name, None)) is PYTHON_FUNCTION for name in DUNDERS)


def refuse_protocol(what: str, *values: Any) -> None:
    """Break where C code would run an object's Python methods natively."""
    for value in values:
        kind: Any = type(value)
        if has_python_protocol(kind) and not isinstance(value, (torch.Tensor, tuple)):
            raise Break(f"{what} of a {kind.__qualname__}, whose methods are written in Python")


def unary(vm: Interpreter, symbol: str, value: Any) -> Any:
    """``-value``, ``+value``, ``~value``."""
    method = python_method(vm, value, {"-": "__neg__", "+": "__pos__", "~": "__invert__"}[symbol])
    if method is not None:
        return vm.call(method, value)
    refuse_opaque(vm, f"the operator {symbol}", value)
    return vm.native(UNARY[symbol], value)


# ------------------------------------------------------------------ subscripts and membership


def getitem(vm: Interpreter, obj: Any, key: Any) -> Any:
    """``obj[key]``."""
    kind = type(obj)
    if kind is _torch.FakeTensor:
        return vm.native(operator.getitem, obj, expose(vm, key))
    method = python_method(vm, obj, "__getitem__")
    if method is not None:
        return vm.call(method, obj, key)
    if isinstance(obj, type):
        return class_getitem(vm, obj, key)
    if isinstance(obj, dict):
        return dict_getitem(vm, obj, key)
    if kind is torch.Size or kind in (tuple, list):
        if type(key) is slice and kind is torch.Size:
            return vm.native(operator.getitem, obj, specialise(key))
    key = specialise(key)
    record = vm.world.record_of(obj)
    if record is not None and isinstance(obj, CONTENT_TYPES):
        obj = vm.world.content(record)
    elif not isinstance(obj, (str, bytes, tuple, list, range, collections.deque, types.MappingProxyType)):
        if record is not None or not _known_subscript(obj):
            raise Break(f"a {kind.__qualname__} is subscripted")
    return vm.native(operator.getitem, obj, _index(vm, key))


def _known_subscript(obj: Any) -> bool:
    return not hasattr(type(obj), "__getitem__")


def _index(vm: Interpreter, key: Any) -> Any:
    method = python_method(vm, key, "__index__")
    return vm.call(method, key) if method is not None else key


def class_getitem(vm: Interpreter, cls: type, key: Any) -> Any:
    """``cls[key]``: an enum's member, or a generic alias."""
    method = lookup(vm, type(cls), "__getitem__")
    if type(method) is PYTHON_FUNCTION and not issubclass(type(cls), enum.EnumType):
        return vm.call(method, cls, key)
    return vm.native(operator.getitem, cls, key)


def dict_getitem(vm: Interpreter, obj: Any, key: Any) -> Any:
    """``obj[key]`` for dictionaries, with ``__missing__``."""
    check_key(vm, key)
    key = specialise(key)
    record = vm.world.record_of(obj)
    if record is not None:
        vm.native(hash, key)
        value = vm.world.dict_get(record, key)
    else:
        value = vm.native(dict.get, obj, key, ABSENT)
    if value is not ABSENT:
        return value
    missing = lookup(vm, type(obj), "__missing__")
    if type(missing) is PYTHON_FUNCTION:
        return vm.call(missing, obj, key)
    if isinstance(obj, collections.defaultdict):
        factory = obj.default_factory
        if record is not None:
            factory = vm.world.wrap(factory, record.source.attr("default_factory"))
        if factory is not None:
            made = vm.call(factory.fn if isinstance(factory, Reentrant) else factory)
            setitem(vm, obj, key, made)
            return made
    return vm.raise_user(KeyError(key))


def dict_base(obj: Any) -> Any:
    """The builtin class whose methods keep this dictionary in order."""
    return collections.OrderedDict if isinstance(obj, collections.OrderedDict) else dict


def check_key(vm: Interpreter, key: Any) -> None:
    """Break where looking a key up would run Python code on an object from outside."""
    if type(key) in PLAIN:
        return
    if type(key) is tuple:
        for part in key:
            check_key(vm, part)
    elif python_method(vm, key, "__hash__") and not _safe_to_compare(type(key)):
        if vm.world.record_of(key) is not None:
            raise Break(f"a dictionary key of class {type(key).__qualname__} with its own __hash__")


def setitem(vm: Interpreter, obj: Any, key: Any, value: Any) -> None:
    """``obj[key] = value``."""
    if type(obj) is _torch.FakeTensor:
        vm.native(operator.setitem, obj, expose(vm, key), value)
        return
    method = python_method(vm, obj, "__setitem__")
    if method is not None:
        vm.call(method, obj, key, value)
        return
    raw_setitem(vm, obj, key, value)


def raw_setitem(vm: Interpreter, obj: Any, key: Any, value: Any) -> None:
    """The builtin container's own ``__setitem__``."""
    record = vm.world.record_of(obj)
    key = specialise(key)
    if isinstance(obj, dict):
        check_key(vm, key)
        if record is not None:
            vm.native(hash, key)
            vm.world.dict_set(record, key, value)
        else:
            vm.native(dict_base(obj).__setitem__, obj, key, value)
        return
    key = _index(vm, key)
    if type(key) is slice:
        value = iterable(vm, value)
    if record is not None and isinstance(obj, CONTENT_TYPES):
        vm.native(operator.setitem, vm.world.content(record), key, value)
        record.dirty = True
    elif isinstance(obj, list | collections.deque):
        vm.native(operator.setitem, obj, key, value)
    elif hasattr(type(obj), "__setitem__"):
        raise Break(f"an item of a {type(obj).__qualname__} is set")
    else:
        vm.native(operator.setitem, obj, key, value)


def delitem(vm: Interpreter, obj: Any, key: Any) -> None:
    """``del obj[key]``."""
    method = python_method(vm, obj, "__delitem__")
    if method is not None:
        vm.call(method, obj, key)
        return
    record = vm.world.record_of(obj)
    key = specialise(key)
    if record is not None and isinstance(obj, CONTENT_TYPES):
        vm.native(operator.delitem, vm.world.content(record), key)
        record.dirty = True
    elif isinstance(obj, dict):
        vm.native(dict_base(obj).__delitem__, obj, key)
    elif isinstance(obj, CONTENT_TYPES) or not hasattr(type(obj), "__delitem__"):
        vm.native(operator.delitem, obj, key)
    else:
        raise Break(f"an item of a {type(obj).__qualname__} is deleted")


def contains(vm: Interpreter, obj: Any, key: Any) -> bool:
    """``key in obj``."""
    method = python_method(vm, obj, "__contains__")
    if method is not None:
        return truth(vm, vm.call(method, obj, key))
    record = vm.world.record_of(obj)
    if isinstance(obj, dict):
        check_key(vm, key)
        key = specialise(key)
        if record is not None:
            vm.native(hash, key)
            return vm.world.dict_has(record, key)
        return vm.native(operator.contains, obj, key)
    if python_method(vm, obj, "__iter__") or python_method(vm, obj, "__getitem__"):
        return any(item is key or truth(vm, compare(vm, "==", item, key)) for item in iterable(vm, obj))
    if isinstance(obj, (list, tuple, collections.deque)):
        items = vm.world.content(record) if record is not None and isinstance(obj, CONTENT_TYPES) else obj
        return any(item is key or truth(vm, compare(vm, "==", item, key)) for item in list(items))
    check_elements(vm, obj)
    refuse_opaque(vm, "membership", obj, key)
    return vm.native(operator.contains, expose(vm, obj), specialise(key))


# ------------------------------------------------------------------ iteration


def get_iter(vm: Interpreter, value: Any) -> Any:
    """``iter(value)``."""
    kind = type(value)
    if kind in OWN_TYPES:
        return value
    method = python_method(vm, value, "__iter__")
    if method is not None:
        return vm.call(method, value)
    record = vm.world.record_of(value)
    if record is not None and isinstance(value, CONTENT_TYPES):
        return iter(vm.world.content(record))
    if record is not None and not isinstance(value, (tuple, range, str, type)):
        if lookup(vm, kind, "__iter__") is ABSENT and python_method(vm, value, "__getitem__"):
            return iter(_Sequence(vm, value))
        if hasattr(kind, "__next__"):
            return value
        raise Break(f"an object of class {kind.__qualname__} from outside is iterated over")
    if lookup(vm, kind, "__iter__") is ABSENT and python_method(vm, value, "__getitem__"):
        return iter(_Sequence(vm, value))
    return vm.native(iter, value)


class _Sequence:
    """An object with only ``__getitem__``, as ``iter`` sees it."""

    def __init__(self, vm: Interpreter, value: Any) -> None:
        self.vm = vm
        self.value = value

    def __getitem__(self, index: int) -> Any:
        try:
            return getitem(self.vm, self.value, index)
        except UserRaised as raised:
            raise raised.value from None


def next_value(vm: Interpreter, iterator: Any) -> Any:
    """``next(iterator)``; raises ``UserRaised(StopIteration)`` at the end."""
    method = python_method(vm, iterator, "__next__")
    if method is not None and type(iterator) not in OWN_TYPES:
        return vm.call(method, iterator)
    record = vm.world.record_of(iterator)
    if record is not None:
        return advance(vm, iterator, record)
    return vm.native(next, iterator)


def iterable(vm: Interpreter, value: Any) -> Any:
    """Something that C code may iterate over with the same items."""
    kind = type(value)
    if kind in PLAIN or kind in OWN_TYPES:
        return value
    record = vm.world.record_of(value)
    if kind in FRESH_CONTAINERS and record is None:
        return value
    made = get_iter(vm, value)
    step = python_method(vm, made, "__next__")
    if step is not None and type(made) not in OWN_TYPES:
        return ReentrantIterator(vm, made, step)
    record = vm.world.record_of(made)
    if record is not None:
        return OutsideIterator(vm, made, record)
    return made


def length(vm: Interpreter, value: Any) -> Any:
    """``len(value)``."""
    method = python_method(vm, value, "__len__")
    if method is not None:
        return vm.call(method, value)
    record = vm.world.record_of(value)
    if record is not None and isinstance(value, CONTENT_TYPES):
        if record.content is None and not record.overlay and not record.pending:
            vm.world.guard(record.source, "len", len(value))
            return len(value)
        return len(vm.world.content(record))
    if type(value) is _torch.FakeTensor:
        if value.dim() == 0:
            return vm.native(len, value)
        return value.size(0)
    refuse_opaque(vm, "len()", value)
    return vm.native(len, value)
