"""Values as C code may see them: which may go as they are, which are replaced, which are refused."""

from __future__ import annotations

import abc
import collections
import enum
import functools
import operator
import re
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jitney._util.ownership import HEAP, trusted
from jitney.capture import original_functions
from jitney.capture.builtin_iterators import VIEWS
from jitney.capture.interpreter.code import leaves_traces
from jitney.capture.interpreter.generators import InterpretedGenerator, Reentrant, ReentrantIterator
from jitney.capture.interpreter.iterators import OutsideIterator
from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.kinds import ATOMS, STAND_INS, is_stand_in
from jitney.capture.numpy.originals import refuse_uncaptured
from jitney.capture.numpy.stand_in import Array
from jitney.capture.python.classes import PYTHON_FUNCTION, lookup
from jitney.capture.world.record import ABSENT, CONTENT_TYPES
from jitney.capture.world.writes import writes
from jitney.guards.assumptions import each_class
from jitney.torch_compat import torch_private

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

PLAIN = frozenset({*ATOMS, torch.Size, torch.dtype, torch.device, torch.SymInt, torch.SymFloat, torch.SymBool, range})
OWN_TYPES = frozenset({InterpretedGenerator, Reentrant, ReentrantIterator, OutsideIterator})
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
SYMBOLS_OF: dict[type, type] = {int: torch.SymInt, float: torch.SymFloat}
DEEP = frozenset({*SYMBOLIC, tuple, list, torch.Size, dict, collections.OrderedDict, collections.deque})
MAPPINGS = (dict, collections.OrderedDict)
FRESH_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict)
TRANSPARENT = (*CONTENT_TYPES, tuple, str, bytes, int, float, type, types.FunctionType, types.BuiltinFunctionType,
               types.MethodType, types.ModuleType, enum.Enum, weakref.ref)  # fmt: skip
# Classes of C code whose objects, when they are called, call what they hold, or methods of what they are given.
CALLING = (functools.partial, operator.itemgetter, operator.attrgetter, operator.methodcaller)
DUNDERS = (
    "__eq__ __lt__ __hash__ __bool__ __len__ __iter__ __next__ __getitem__ __contains__ __index__ __int__ "
    "__float__ __add__ __radd__ __mul__ __rmul__ __call__ __abs__ __round__ __str__ __repr__ __format__ __floor__ "
    "__ceil__ __trunc__ __complex__ __bytes__ __length_hint__ __pow__ __rpow__ __divmod__ __rdivmod__ __gt__ __ne__"
).split()


C_METHOD = type(re.compile("").match)  # a bound method of C code that is told its class
COMPARISONS = ("__eq__", "__ne__", "__lt__", "__gt__", "__le__", "__ge__")


def expose(vm: Interpreter, value: Any) -> Any:
    """The value with every container from outside replaced by its guarded shadow, all the way down."""
    kind = type(value)
    if kind in PLAIN or kind in STAND_INS:
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


def held(vm: Interpreter, value: Any) -> Any:
    """What a container from outside holds, its items as they are; any other value itself."""
    record = vm.world.record_of(value)
    return vm.world.content(record) if record is not None and isinstance(value, CONTENT_TYPES) else value


def is_transparent(vm: Interpreter, value: Any) -> bool:
    """May C code look into a value from outside, since guards hold what it sees there?"""
    return isinstance(value, TRANSPARENT) or vm.world.set_orders.holds(value) or id(value) in vm.world.views


def refuse_opaque(vm: Interpreter, what: str, *values: Any) -> None:
    """Break where C code would look into an object from outside that no guard describes (an array, a file...)."""
    for value in values:
        kind = type(value)
        if kind in PLAIN or kind in STAND_INS or is_transparent(vm, value):
            continue
        if what == "membership" and default_equality(vm, type(value)):
            continue
        if vm.world.record_of(value) is not None:
            refuse_uncaptured(vm, value, f"{what} of a {kind.__qualname__}")
            raise Break(f"{what} of a {kind.__qualname__} from outside", "move it out of the compiled function")


def refuse_opaque_within(vm: Interpreter, what: str, *values: Any) -> None:
    """The same of what is in containers, too."""
    for value in values:
        if isinstance(value, FRESH_CONTAINERS):
            items = expose(vm, value)
            refuse_opaque_within(vm, what, *([*items.keys(), *items.values()] if isinstance(items, dict) else items))
        else:
            refuse_opaque(vm, what, value)


def makes_own_class(value: Any) -> bool:
    """Is what C code makes of the container (a copy, a union) of its own class?"""
    return isinstance(value, (set, collections.deque, collections.defaultdict, collections.OrderedDict))


def has_tensor(value: Any) -> bool:
    """Does a plain value contain a stand-in?"""
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        return any(map(has_tensor, value))
    if isinstance(value, dict):
        return any(map(has_tensor, value.values())) or any(map(has_tensor, value))
    return False


def is_opaque_instance(value: Any) -> bool:
    """Is it an object of a class written in Python, which a graph cannot hold: no tensor, no tuple with names?"""
    kind = type(value)
    held = kind in PLAIN or kind is Array or isinstance(value, (torch.Tensor, tuple, type, torch.Generator, np.generic))
    return bool(kind.__flags__ & HEAP) and not held


def plain_text(value: Any) -> bool:
    """Is the text of this value the same in every call for which the capture holds, all the way down?"""
    if type(value) in PLAIN:
        return True
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        items = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        return type(value) in FRESH_CONTAINERS and all(map(plain_text, items))
    if type(value) is slice:
        return all(type(part) in PLAIN for part in (value.start, value.stop, value.step))
    return isinstance(value, type)


def specialise(value: Any) -> Any:
    """A symbolic number as the constant that it is in this capture (which guards it)."""
    try:
        return _specialise(value)
    except torch_private.GuardOnDataDependentSymNode:
        raise Break("a number read from a tensor, or drawn at random, is needed before the graph has run") from None


def beside_symbols(a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands of C code: a symbol beside a number that is no plain one (of an IntEnum) is a constant."""
    if type(a) in SYMBOLIC and not _takes_symbols(b):
        return specialise(a), b
    if type(b) in SYMBOLIC and not _takes_symbols(a):
        return a, specialise(b)
    return a, b


def _takes_symbols(value: Any) -> bool:
    return type(value) in PLAIN or type(value) in STAND_INS or type(value) is Array


def constant_key(key: Any) -> Any:
    """A key of a dictionary or set as the constant that it is in this capture, sizes of tensors too."""
    if type(key) is torch.Size or (type(key) is tuple and torch.Size in map(type, key)):
        return type(key)(map(constant_key, key))
    return specialise(key)


def printable(value: Any) -> Any:
    """A value as text shows it: symbolic numbers are constants, in containers of containers too."""
    if type(value) in SYMBOLIC:
        return specialise(value)
    if type(value) in (tuple, list, torch.Size) and any(type(v) in DEEP for v in value):
        made = [printable(v) for v in value]
        return made if type(value) is list else type(value)(made)
    if type(value) is collections.deque and any(type(v) in DEEP for v in value):
        return collections.deque(map(printable, value), value.maxlen)
    if type(value) in MAPPINGS and any(type(v) in DEEP for v in (*value, *value.values())):
        return type(value)((printable(k), printable(v)) for k, v in value.items())
    return value


def _specialise(value: Any) -> Any:
    if type(value) is torch.SymInt:
        return int(value)
    if type(value) is torch.SymFloat:
        return _float(value)
    if type(value) is torch.SymBool:
        return bool(value)
    if type(value) is list and any(type(v) in SYMBOLIC for v in value):
        return list(map(_specialise, value))
    if type(value) is tuple:
        made = tuple(map(_specialise, value))
        return value if all(a is b for a, b in zip(made, value, strict=True)) else made
    if type(value) is slice:
        parts = (value.start, value.stop, value.step)
        found = tuple(map(specialise, parts))
        return value if all(a is b for a, b in zip(found, parts, strict=True)) else slice(*found)
    return value


def _float(value: torch.SymFloat) -> float:
    """The number that a symbolic float is from then on; of a zero the guard asks for the sign (``Symbols.guards``)."""
    hint = value.node.hint
    if hint == 0 and not value.node.expr.free_symbols:
        raise Break("a float that changes between calls is wanted as a number where it is known to be zero")
    found = float(value)
    return hint if found == 0 and hint == 0 else found


def python_method(vm: Interpreter, value: Any, name: str) -> Any:
    """The class's method of this name if it is written in Python, else None."""
    found = _of_program(vm, value, name)
    return found if type(found) is PYTHON_FUNCTION else None


def refuses(vm: Interpreter, value: Any, name: str) -> bool:
    """Has the program's class None in the place of a special method?"""
    return _of_program(vm, value, name) is None


def _of_program(vm: Interpreter, value: Any, name: str) -> Any:
    kind = type(value)
    if kind in PLAIN or kind in STAND_INS or kind in OWN_TYPES or kind is Array or not kind.__flags__ & HEAP:
        return ABSENT
    return lookup(vm, kind, name)


def demanded(value: Any, kind: type, name: str) -> Any:
    """What a special method gave; a break where it is not of the class that Python demands: Python shall complain."""
    if not isinstance(value, kind) and SYMBOLS_OF.get(kind) is not type(value):
        raise Break(f"{name} gave a {type(value).__qualname__}")
    return value


def callback(vm: Interpreter, value: Any) -> Any:
    """A callable that C code may call: Python functions re-enter the interpreter."""
    if isinstance(value, (types.FunctionType, types.MethodType)) or python_method(vm, value, "__call__"):
        return Reentrant(vm, value)
    if not is_transparent(vm, value) and vm.world.record_of(value) is not None:  # a partial: what it holds is guarded
        return Reentrant(vm, value)
    if (isinstance(value, type) and value.__flags__ & HEAP) or isinstance(value, CALLING):
        return Reentrant(vm, value)
    return value


def caller(vm: Interpreter, value: Any) -> Any:
    """As ``callback``, of what C code calls at once: classes and C functions too see values as the interpreter does."""
    return Reentrant(vm, value) if isinstance(value, type | types.BuiltinFunctionType) else callback(vm, value)


def default_equality(vm: Interpreter, kind: type) -> bool:
    """Is an object of this class equal to itself only?"""
    return all(lookup(vm, kind, name) is vars(object)[name] for name in ("__eq__", "__ne__"))


def refuse_own_hash(vm: Interpreter, *values: Any) -> None:
    """Break where C code would hash an object by a method written in Python."""
    for value in values:
        vm.world.distinct(value)
    by_identity = vars(object)["__hash__"]
    refuse_protocol(vm, "hashing", *[v for v in values if lookup(vm, type(v), "__hash__") is not by_identity])


def check_elements(vm: Interpreter, value: Any, by_identity: set[type] | None = None) -> None:
    """Break where C code would run Python methods of the items (``__eq__``, ``__lt__``, ``__hash__``).

    Args:
        by_identity: classes that have been looked at, whose objects are equal to themselves only: a class is asked once
            for all of its objects, of which a set of modules has hundreds.
    """
    known: set[type] = set() if by_identity is None else by_identity
    if isinstance(value, (list, tuple, set, frozenset, collections.deque, *VIEWS)):
        items: Any = value
        for item in items:
            vm.world.distinct(item)
            if type(item) in known:
                continue
            if isinstance(item, weakref.ref):
                raise Break("weak references are compared by C code")
            if _compares_itself(vm, item) or _compares_in_c(vm, item):
                raise Break(f"items of class {type(item).__qualname__} are compared by C code")
            if type(item).__flags__ & HEAP and default_equality(vm, type(item)):
                known.add(type(item))
            check_elements(vm, item, known)
    elif isinstance(value, dict):
        record = vm.world.record_of(value)
        check_elements(vm, list((value if record is None else vm.world.content(record)).items()), known)


def _compares_in_c(vm: Interpreter, value: Any) -> bool:
    """Is it an object from outside that C code compares by what no guard describes?"""
    if type(value) in PLAIN or is_transparent(vm, value) or vm.world.record_of(value) is None:
        return False
    return not default_equality(vm, type(value))


def _compares_itself(vm: Interpreter, value: Any) -> bool:
    return any(python_method(vm, value, name) for name in COMPARISONS) and not safe_to_compare(type(value))


def compared_in_python(vm: Interpreter, items: Any) -> bool:
    """Are some of these items, or of lists and tuples among them, compared by methods written in Python?

    Or symbolic truth values, which are not equal to 0 or 1 for C code, or tensors, whose comparisons are branches?
    """
    return any(
        type(v) is torch.SymBool
        or is_stand_in(v)
        or _compares_itself(vm, v)
        or (type(v) in (list, tuple) and compared_in_python(vm, v))
        for v in items
    )


def ordering(vm: Interpreter, symbol: Callable[[Any, Any], bool] = operator.lt) -> Any:
    """The key by which C code that sorts, or looks for an extreme, asks the interpreter to compare."""
    compares, truth = Reentrant(vm, symbol), Reentrant(vm, bool)
    sign = -1 if symbol is operator.lt else 1
    return functools.cmp_to_key(lambda a, b: sign * truth(compares(a, b)))


def key_function(vm: Interpreter, key: Any, symbol: Callable[[Any, Any], bool] = operator.lt) -> Callable[[Any], Any]:
    """A function that gives keys, for C code: keys with methods written in Python are compared by the interpreter.

    The first key decides for all of them, as C code cannot compare keys of both kinds.
    """
    keys, ordered = caller(vm, key), ordering(vm, symbol)
    decided: list[bool] = []

    def made(item: Any) -> Any:
        value = keys(item)
        if not decided:
            decided.append(compared_in_python(vm, [value]))
        return ordered(value) if decided[0] else value

    return made


def item_key(vm: Interpreter, symbol: Callable[[Any, Any], bool]) -> Callable[[Any], Any]:
    """The key of items that come one by one, which C code compares, or has the interpreter compare."""
    ordered = ordering(vm, symbol)
    decided: list[bool] = []

    def made(item: Any) -> Any:
        if not decided:
            decided.append(compared_in_python(vm, [item]))
        if decided[0]:
            return ordered(item)
        check_elements(vm, [item])
        return expose(vm, item)

    return made


def safe_to_compare(kind: type) -> bool:
    """Do the class's Python methods for comparing and hashing look at constants only?"""
    return issubclass(kind, enum.Enum)


def refuse_asking(vm: Interpreter, value: Any) -> None:
    """Break where torch, which asks each operand for its ``__torch_function__``, would have the program answer.

    That its class comes to answer is guarded.
    """
    kind = type(value)
    own = kind in PLAIN or kind in STAND_INS or kind in OWN_TYPES or kind is Array
    if own or not kind.__flags__ & HEAP or isinstance(value, type) or trusted(kind):
        return
    lookup(vm, kind, "__torch_function__")
    for name in ("__getattr__", "__getattribute__"):
        owner = next((cls for cls in kind.__mro__ if name in vars(cls)), object)
        if type(lookup(vm, kind, name)) is PYTHON_FUNCTION and not trusted(owner):
            raise Break(f"torch asks an object of class {kind.__qualname__}, by its {name}, for __torch_function__")


def has_python_protocol(vm: Interpreter, value: Any) -> bool:
    """Would C code that works on this object run Python methods of its class?"""
    kind = type(value)
    if not kind.__flags__ & HEAP or issubclass(kind, (enum.Enum, type)):
        return False
    return any(python_method(vm, value, name) for name in DUNDERS)


def refuse_protocol(vm: Interpreter, what: str, *values: Any) -> None:
    """Break where C code would run an object's Python methods natively."""
    for value in values:
        kind: Any = type(value)
        if isinstance(value, weakref.ref):
            raise Break(f"{what} of a weak reference")
        if not isinstance(value, (torch.Tensor, tuple)) and has_python_protocol(vm, value):
            raise Break(f"{what} of a {kind.__qualname__}, whose methods are written in Python")


# ------------------------------------------------------------------ code of the program's that is to run in Python


def in_python(vm: Any, fn: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What the function itself returns, called now."""
    paused = vm.watch is not None and vm.watch.pause()
    entered = vm.witness.latest if vm.witness is not None else ""
    try:
        with torch_private.without_modes():
            return fn(*args, **kwargs)
    except Exception as error:
        raise UserRaised(error) from None
    finally:  # what the function enters is its own affair
        if paused:
            vm.watch.go_on()
        if vm.witness is not None:
            vm.witness.latest = entered


def ask_abstract(vm: Interpreter, kind: type, classes: Any) -> None:
    """Have abstract classes answer by the program's ``__subclasshook__``, natively, as Python does at this place.

    ``ABCMeta`` keeps what they say, so whoever asks again, guards among them, enters no hook. Where one may change
    something, or read what waits to be written, the graph breaks before it is asked.
    """
    for cls in each_class(classes):
        if type(cls) is type:
            answer = issubclass(kind, cls)
        elif not is_abstract(cls) or type(type.__getattribute__(cls, "__subclasses__")) is not types.BuiltinMethodType:
            return  # the program's code says more than hooks do
        elif _is_answered(kind, cls) or not (hooks := _hooks(cls)):
            answer = vm.native(issubclass, kind, cls)
        else:
            waits = writes(vm)[0] or vm.class_writes or vm.tracer.mutates_inputs()
            if waits or any(leaves_traces(hook.__code__) for hook in hooks):
                raise Break(f"{hooks[0].__qualname__} may change something, or read what the frame has written")
            answer = in_python(vm, issubclass, (kind, cls), {})
        if answer:  # of the next in a tuple nobody asks
            return


def _is_answered(kind: type, cls: Any) -> bool:
    """Does ``ABCMeta`` know the answer?"""
    _, known, denied, version = vars(abc)["_get_dump"](cls)
    key = weakref.ref(kind)
    return key in known or (key in denied and version == abc.get_cache_token())


def looks_at_instances(cls: Any) -> bool:
    """Does isinstance() ask it about the object? An abstract class looks at the object's class alone."""
    check: Any = type(cls).__instancecheck__
    return check not in (type.__instancecheck__, abc.ABCMeta.__instancecheck__)


def is_abstract(cls: Any) -> bool:
    """Is it a class of which ``ABCMeta`` says what is an instance, by the object's class alone?"""
    meta: Any = type(cls)
    own = meta.__subclasscheck__, meta.__instancecheck__
    return isinstance(cls, type) and own == (abc.ABCMeta.__subclasscheck__, abc.ABCMeta.__instancecheck__)


def _hooks(cls: Any) -> list[types.FunctionType]:
    """The program's functions that say what is below an abstract class, or below those that are themselves below it."""
    todo, seen, found = [cls], set[int](), list[types.FunctionType]()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        hook = getattr(type.__getattribute__(one, "__subclasshook__"), "__func__", None)
        for function in (hook, type(one).__subclasscheck__):
            if isinstance(function, types.FunctionType) and not original_functions.trusted_function(function):
                found.append(function)
        todo += type.__subclasses__(one)
    return found
