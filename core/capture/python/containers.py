"""Subscripts, iteration and length, by Python's own protocol."""

from __future__ import annotations

import collections
import enum
import operator
import re
import types
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jitney._util.ownership import trusted_function
from jitney.capture import number_keys
from jitney.capture.interpreter import exception_context
from jitney.capture.interpreter.code import leaves_traces
from jitney.capture.interpreter.generators import Reentrant, ReentrantIterator
from jitney.capture.interpreter.iterators import OutsideIterator, advance
from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.kinds import STAND_INS, hashed_in_python, is_stand_in
from jitney.capture.numpy.originals import refuse_uncaptured
from jitney.capture.numpy.stand_in import Array
from jitney.capture.python.c_boundary import (
    FRESH_CONTAINERS,
    OWN_TYPES,
    PLAIN,
    check_elements,
    constant_key,
    default_equality,
    demanded,
    expose,
    is_opaque_instance,
    python_method,
    refuse_asking,
    refuse_opaque,
    refuses,
    safe_to_compare,
    specialise,
)
from jitney.capture.python.classes import PYTHON_FUNCTION, lookup
from jitney.capture.python.type_slots import is_own_slot, name_in_c, own_namespace
from jitney.capture.torch import rows
from jitney.capture.torch.stand_in_attributes import python_type
from jitney.capture.world.host_comparisons import host_number
from jitney.capture.world.record import ABSENT, CONTENT_TYPES

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter


# ------------------------------------------------------------------ subscripts and membership


def _with_tensors(key: Any) -> Any:
    """A key of a tensor, its arrays as the tensors over the same memory, as torch takes them."""
    if type(key) is tuple:
        return tuple(map(_with_tensors, key))
    return key.tensor if type(key) is Array and key.tensor.ndim and key.dtype.kind in "bi" else key


def _refuse_index(vm: Interpreter, value: Any) -> None:
    """Break at an object whose methods torch would call, to take it for a number or a sequence."""
    if is_opaque_instance(value) and not hasattr(type(value), "__torch_function__"):
        if any(python_method(vm, value, name) is not None for name in ("__getitem__", "__index__")):
            raise Break(f"a tensor is indexed by a {type(value).__qualname__}", "index it by numbers or tensors")


def _key_of_tensor(vm: Interpreter, key: Any) -> Any:
    """The same; integers that only the running graph knows are tensors in it, too."""
    for part in key if type(key) is tuple else (key,):
        refuse_asking(vm, part)
        for value in (part.start, part.stop, part.step) if type(part) is slice else (part,):
            _refuse_index(vm, value)
    key = _with_tensors(expose(vm, key))
    unknown = vm.symbols.scalars.is_unknown
    is_list = type(key) is list and any(type(part) is torch.SymInt for part in key)
    if is_list or (unknown(key) and not vm.symbols.reads_numbers):
        return vm.call(torch.tensor, key)
    return key


def getitem(vm: Interpreter, obj: Any, key: Any) -> Any:
    """``obj[key]``."""
    kind = type(obj)
    if kind in STAND_INS:
        key = _key_of_tensor(vm, key)
        if vm.tracer.rules.is_watched(obj):
            return vm.native(operator.getitem, obj, key)
        selected = _selected(vm, obj, key)
        if selected is not None:
            return selected
        row = rows.taken(vm, obj, key)
        row = rows.masked(vm, obj, key) if row is None else row
        return vm.native(operator.getitem, obj, key) if row is None else row
    if kind is Array:
        return vm.handlers.arrays.getitem(vm, obj, key)
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
    key = constant_key(key)
    record = vm.world.record_of(obj)
    if record is not None and isinstance(obj, CONTENT_TYPES):
        obj = vm.world.content(record)
    elif not isinstance(obj, (str, bytes, tuple, list, range, collections.deque)) and not (
        isinstance(obj, types.MappingProxyType | re.Match) and (record is None or id(obj) in vm.world.views)
    ):
        if record is not None or not _known_subscript(obj):
            refuse_uncaptured(vm, obj, f"a {kind.__qualname__} is subscripted")
            raise Break(f"a {kind.__qualname__} is subscripted")
    return vm.native(operator.getitem, obj, _index(vm, key))


def _known_subscript(obj: Any) -> bool:
    return not hasattr(type(obj), "__getitem__")


def _index(vm: Interpreter, key: Any) -> Any:
    if isinstance(key, int):  # C code takes it as it is, whatever its class says
        return key
    if type(key) is slice:
        return slice(*(_index(vm, end) if is_stand_in(end) else end for end in (key.start, key.stop, key.step)))
    if is_stand_in(key):
        number = host_number(vm, key)
        return key if number is None else specialise(number)
    method = python_method(vm, key, "__index__")
    return vm.call(method, key) if method is not None else key


def class_getitem(vm: Interpreter, cls: type, key: Any) -> Any:
    """``cls[key]``: an enum's member, or a generic alias."""
    method = lookup(vm, type(cls), "__getitem__")
    if type(method) is PYTHON_FUNCTION and not issubclass(type(cls), enum.EnumType):
        return vm.call(method, cls, key)
    made = lookup(vm, cls, "__class_getitem__") if method is ABSENT else None
    function: Any = made.__func__ if isinstance(made, classmethod) else None
    if type(function) is PYTHON_FUNCTION and not trusted_function(function):
        return vm.call(function, cls, key)
    return vm.native(operator.getitem, cls, key)


def dict_getitem(vm: Interpreter, obj: Any, key: Any) -> Any:
    """``obj[key]`` for dictionaries, with ``__missing__``."""
    check_key(vm, key, obj)
    record = vm.world.record_of(obj)
    found = number_keys.get(vm, record, key)
    if found is not ABSENT:
        return found
    key = constant_key(key)
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


def _selected(vm: Interpreter, tensor: Any, key: Any) -> Any:
    """``tensor[key]`` where numbers that change select, of which torch's indexing makes constants; None: none does."""
    parts = list(key) if type(key) is tuple else [key]
    symbols = [at for at, part in enumerate(parts) if type(part) is torch.SymInt]
    taken_up = sum(part is not None and part is not Ellipsis for part in parts)
    known = all(type(part) in (*rows.PLAIN, torch.SymInt) for part in parts)
    if not symbols or not known or taken_up > tensor.dim() or parts.count(Ellipsis) > 1:
        return None
    whole = tuple([slice(None) if at in symbols else part for at, part in enumerate(parts)])
    dims = [rows.dimension(whole, at, tensor.dim()) for at in symbols]
    if any(part != slice(None) for part in whole):
        tensor = vm.native(operator.getitem, tensor, whole)
    for at, dim in zip(reversed(symbols), reversed(dims), strict=True):
        tensor = vm.native(tensor.select, dim, parts[at])
    return tensor


# ------------------------------------------------------------------ keys


def check_key(vm: Interpreter, key: Any, owner: Any) -> None:
    """Before a dictionary looks a key up: how it is hashed and compared must be known."""
    if type(key) in PLAIN:
        return
    vm.world.distinct(key)
    if isinstance(key, weakref.ref):
        settle_reference(vm, key, owner)
        return
    if hashed_in_python(key):
        record = vm.world.record_of(owner)
        settle_among(vm, key, owner if record is None else vm.world.dict_content(record))
    elif type(key) is tuple:
        for part in key:
            check_key(vm, part, ())
    else:
        _refuse_librarys_hash(vm, key)


def settle_reference(vm: Interpreter, key: Any, owner: Any) -> None:
    """A weak reference is looked up as what it refers to, by identity: which of the keys lead there is guarded."""
    record = vm.world.record_of(owner)
    content = owner if record is None else vm.world.dict_content(record)
    for reference in (key, *content):
        if type(reference) is not weakref.ref:
            raise Break("a dictionary is looked up by a weak reference", "look it up outside the compiled function")
        known = vm.world.record_of(reference)
        target = reference() if known is None else vm.world.wrap(reference(), known.source.step("call"))
        by_identity = lookup(vm, type(target), "__hash__") is object.__hash__ and default_equality(vm, type(target))
        if reference is key and (target is None or not by_identity):
            raise Break("a dictionary is looked up by a weak reference to what has a hash of its own, or is gone")
        vm.world.distinct(target)


def settle(vm: Interpreter, key: Any) -> None:
    """Have the hash of a key interpreted where Python says it: what that reads is guarded, and C code may ask again."""
    if type(key) is tuple:
        for part in key:
            settle(vm, part)
        return
    if not hashed_in_python(key):
        _refuse_librarys_hash(vm, key)
        return
    method = python_method(vm, key, "__hash__")
    if vm.witness is None or method is None or leaves_traces(method.__code__):
        raise Break(f"a {type(key).__qualname__}, which has a __hash__ of its own, is hashed")
    made = specialise(demanded(vm.call(method, key), int, "__hash__"))
    _fix_numbers(vm, key)
    vm.witness.settle(key)
    if vm.native(hash, key) != hash(Hashed(made)):
        raise Break(f"a {type(key).__qualname__}, which waits to be written to, is hashed")


def _fix_numbers(vm: Interpreter, key: Any) -> None:
    """Numbers that change are constants in a key that the frame has made: C code is to hash and compare them."""
    if type(key) is tuple:
        for part in key:
            _fix_numbers(vm, part)
    if not vm.world.is_fresh(key):
        return
    held = own_namespace(key) or {}
    slots = {m.__name__: m for cls in type(key).__mro__ for m in vars(cls).values() if is_own_slot(m)}
    for name in [*held, *(name for name in slots if hasattr(key, name))]:
        value = held[name] if name in held else slots[name].__get__(key)
        fixed = specialise(value)
        if fixed is not value and name in held:
            dict.__setitem__(held, name, fixed)
        elif fixed is not value:
            slots[name].__set__(key, fixed)
        _fix_numbers(vm, fixed)


def _refuse_librarys_hash(vm: Interpreter, key: Any) -> None:
    """Nobody sees what Python of torch's or the standard library's reads for a hash, unless it has generated that."""
    if type(key) in PLAIN or safe_to_compare(type(key)) or not python_method(vm, key, "__hash__"):
        return
    if vm.world.record_of(key) is not None or type(key).__hash__.__code__.co_filename != "<string>":
        raise Break(f"a dictionary key of class {type(key).__qualname__} with its own __hash__")


class Hashed:
    """Has this hash, as far as C code can hold it."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        return self.value


def settle_among(vm: Interpreter, key: Any, stored: Iterable[Any]) -> None:
    """The same for its equality with the keys that have its hash."""
    settle(vm, key)
    assert vm.witness is not None
    for other in list(stored):
        if (id(other),) not in vm.witness.settled:
            settle(vm, other)
        if other is not key and vm.native(hash, other) == vm.native(hash, key):
            _settle_equality(vm, other, key)


def _settle_equality(vm: Interpreter, a: Any, b: Any) -> None:
    if type(a) is type(b) is tuple:
        for x, y in zip(a, b, strict=False):
            _settle_equality(vm, x, y)
        return
    methods = [python_method(vm, value, "__eq__") for value in (a, b)]
    if vm.witness is None or any(m is not None and leaves_traces(m.__code__) for m in methods):
        raise Break(f"a {type(b).__qualname__}, which has an __eq__ of its own, is compared by C code")
    try:
        with vm.witness.settling():
            same = vm.truth(vm.call(operator.eq, a, b))
    except UserRaised:  # C code compares only as far as it must
        raise Break(f"a {type(b).__qualname__}, whose __eq__ raises, is compared by C code") from None
    if bool(vm.native(operator.eq, a, b)) != same:
        raise Break(f"a {type(b).__qualname__}, which waits to be written to, is compared by C code")
    if not same:
        tell_apart(vm, a, b)


def tell_apart(vm: Interpreter, a: Any, b: Any) -> None:
    """Two that are not equal: were they one object, C code and containers would take them for equal nevertheless."""
    records = [vm.world.record_of(value) for value in (a, b)]
    if type(a) is type(b) and all(r is not None and not r.source.is_const for r in records):
        vm.world.relate(records[0].source, records[1].source, False)  # type: ignore[union-attr]


def settle_items(vm: Interpreter, items: list[Any]) -> None:
    """What a new set hashes and compares, one after the other."""
    for i, item in enumerate(items):
        if hashed_in_python(item):
            settle_among(vm, item, items[:i])
        else:
            check_elements(vm, [item])


def setitem(vm: Interpreter, obj: Any, key: Any, value: Any) -> None:
    """``obj[key] = value``."""
    if type(obj) in STAND_INS:
        key = _key_of_tensor(vm, key)
        watched = vm.tracer.rules.is_watched(obj)
        selected = None if watched else _selected(vm, obj, key)
        if selected is not None:
            obj, key = selected, Ellipsis
        if type(value) is Array and value.scalar and not issubclass(value.kind, (int, float, np.integer)):
            raise Break(f"an item of a tensor is set to a numpy.{value.kind.__name__}, which torch refuses")
        if watched or not (rows.put_masked(vm, obj, key, value) or rows.put(vm, obj, key, value)):
            vm.native(operator.setitem, obj, key, value)
        return
    if type(obj) is Array:
        vm.handlers.arrays.setitem(vm, obj, key, value)
        return
    method = python_method(vm, obj, "__setitem__")
    if method is not None:
        vm.call(method, obj, key, value)
        return
    raw_setitem(vm, obj, key, value)


def raw_setitem(vm: Interpreter, obj: Any, key: Any, value: Any) -> None:
    """The builtin container's own ``__setitem__``."""
    record = vm.world.record_of(obj)
    if isinstance(obj, dict) and number_keys.put(vm, record, key, value):
        return
    key = constant_key(key)
    if isinstance(obj, dict):
        check_key(vm, key, obj)
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
    if number_keys.delete(vm, record, key):
        return
    key = constant_key(key)
    if isinstance(obj, dict):
        check_key(vm, key, obj)
    if record is not None and isinstance(obj, CONTENT_TYPES):
        vm.native(operator.delitem, vm.world.content(record), key)
        record.dirty = True
    elif isinstance(obj, dict):
        vm.native(dict_base(obj).__delitem__, obj, key)
    elif isinstance(obj, CONTENT_TYPES) or not hasattr(type(obj), "__delitem__"):
        vm.native(operator.delitem, obj, key)
    else:
        raise Break(f"an item of a {type(obj).__qualname__} is deleted")


# ------------------------------------------------------------------ iteration


def get_iter(vm: Interpreter, value: Any) -> Any:
    """``iter(value)``."""
    kind = type(value)
    if kind in OWN_TYPES:
        return value
    if kind is Array:
        vm.handlers.arrays.length(value)
        return iter(SequenceView(vm, value))
    method = python_method(vm, value, "__iter__")
    if method is not None:
        made = vm.call(method, value)
        if hasattr(type(made), "__next__"):
            return made
        return vm.raise_user(TypeError(f"iter() returned non-iterator of type {name_in_c(python_type(vm, made))!r}"))
    if refuses(vm, value, "__iter__"):
        return vm.raise_user(TypeError(f"{name_in_c(kind)!r} object is not iterable"))
    record = vm.world.record_of(value)
    if record is not None and isinstance(value, CONTENT_TYPES):
        content = vm.world.content(record)
        if isinstance(content, set):
            vm.world.set_orders.read(content)
        return iter(content)
    readable = isinstance(value, (tuple, range, str, type)) or id(value) in vm.world.views
    readable = readable or vm.world.set_orders.holds(value)
    if record is not None and not readable:
        if lookup(vm, kind, "__iter__") is ABSENT and python_method(vm, value, "__getitem__"):
            return iter(SequenceView(vm, value))
        if hasattr(kind, "__next__") and kind not in weakref.ProxyTypes:
            return value
        refuse_uncaptured(vm, value, f"a {kind.__qualname__} is iterated over")
        raise Break(f"an object of class {kind.__qualname__} from outside is iterated over")
    if lookup(vm, kind, "__iter__") is ABSENT and python_method(vm, value, "__getitem__"):
        return iter(SequenceView(vm, value))
    if isinstance(value, (set, frozenset)):
        vm.world.read_order(value)
    return vm.native(iter, value)


class SequenceView:
    """An object with ``__getitem__``, as ``iter`` sees it, and with ``__len__``, as ``reversed`` does."""

    def __init__(self, vm: Interpreter, value: Any) -> None:
        self.vm = vm
        self.value = value

    def __getitem__(self, index: int) -> Any:
        return self._asked(getitem, index)

    def __len__(self) -> int:
        return int(self._asked(length))

    def _asked(self, function: Any, *args: Any) -> Any:
        try:
            return function(self.vm, self.value, *args)
        except UserRaised as raised:
            error = raised.value
        exception_context.hand_on(error)


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
    if kind in STAND_INS and vm.tracer.rules.is_watched(value):
        raise Break("C code iterates over a tensor, where __torch_function__ of the program's sees it")
    record = vm.world.record_of(value)
    if kind in FRESH_CONTAINERS and record is None:
        if kind in (set, frozenset):
            vm.world.read_order(value)
        return value
    made = get_iter(vm, value)
    step = python_method(vm, made, "__next__")
    if step is not None and type(made) not in OWN_TYPES:
        return ReentrantIterator(vm, made, step)
    record = vm.world.record_of(made)
    if record is not None:
        return OutsideIterator(vm, made, record)
    return made


def merged(vm: Interpreter, value: Any, items: Any) -> Any:
    """What C code takes for an argument of a set's: a set or dictionary as such, whose tables it merges; else items."""
    record = vm.world.record_of(value)
    if type(value) not in (dict, set, frozenset):
        return items
    return value if record is None else vm.world.content(record)


def length(vm: Interpreter, value: Any) -> Any:
    """``len(value)``."""
    method = python_method(vm, value, "__len__")
    if method is not None:
        size = demanded(vm.call(method, value), int, "__len__")
        if size < 0:
            raise Break("__len__ gave a negative number")
        return size
    record = vm.world.record_of(value)
    if record is not None and isinstance(value, CONTENT_TYPES):
        if record.shadow is None and not record.overlay and not record.pending:
            vm.world.guard(record.source, "len", len(value))
            return len(value)
        return len(vm.world.content(record) if record.shadow is None else record.shadow)
    if type(value) in STAND_INS:
        vm.world.guard_method("__len__")
        if vm.tracer.rules.is_watched(value) or value.dim() == 0:
            return vm.native(len, value)
        return value.size(0)
    if type(value) is Array:
        return vm.handlers.arrays.length(value)
    refuse_opaque(vm, "len()", value)
    return vm.native(len, value)


def dict_contains(vm: Interpreter, owner: Any, record: Any, key: Any) -> bool:
    """Is it a key of the dictionary, whatever its class says?"""
    if record is not None and number_keys.knows(vm, record, key):
        return number_keys.get(vm, record, key) is not ABSENT
    if type(key) in (torch.SymInt, torch.SymFloat) and (numbers := _number_keys(vm, owner, record, key)) is not None:
        return any(bool(key == number) for number in numbers)
    key = constant_key(key)
    check_key(vm, key, owner)
    if record is None:
        return bool(vm.native(dict.__contains__, owner, key))
    vm.native(hash, key)
    return bool(vm.world.dict_has(record, key))


def _number_keys(vm: Interpreter, owner: Any, record: Any, key: Any) -> list[Any] | None:
    """The keys that a number which changes may equal, few enough to be compared with it one by one; else None."""
    if not vm.symbols.scalars.compares(key) or len(owner) > number_keys.MOST_KEYS:
        return None
    keys = list(owner) if record is None else vm.world.plain_keys(record)
    if keys is None or not {*map(type, keys)} <= {*number_keys.COMPARED}:
        return None
    return [k for k in keys if type(k) is not str]
