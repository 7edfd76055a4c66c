"""C methods bound to objects: containers go through their records, values are read under guards, the rest breaks."""

from __future__ import annotations

import collections
import contextvars
import functools
import gc
import inspect
import operator
import random
import re
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from jitney.capture import number_keys
from jitney.capture.interpreter import arity
from jitney.capture.interpreter.binding import held
from jitney.capture.interpreter.generators import InterpretedGenerator, Reentrant
from jitney.capture.interpreter.signals import Break, UserRaised
from jitney.capture.kinds import STAND_INS, hashed_in_python
from jitney.capture.numpy.originals import refuse_uncaptured
from jitney.capture.python import attributes, c_boundary, containers, operators, type_slots
from jitney.capture.python.builtins import format_value
from jitney.capture.python.c_boundary import (
    PLAIN,
    callback,
    caller,
    constant_key,
    expose,
    has_tensor,
    printable,
    python_method,
    specialise,
)
from jitney.capture.python.classes import lookup
from jitney.capture.python.containers import iterable
from jitney.capture.python.natives import allocate, items_of_bytes, mapping_items
from jitney.capture.torch.classes import objects, torch_function
from jitney.capture.torch.sequences import generators
from jitney.capture.torch.stand_in_attributes import python_type, store_tensor_attr, tensor_attr
from jitney.capture.world import context_variables, draws
from jitney.capture.world.record import ABSENT, CONTENT_TYPES
from jitney.config import config

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

Args = list[Any]
Kwargs = dict[str, Any]


def _own_access(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args) -> Any:
    """Attribute access by a slot wrapper that is not ``object``'s, or past one; ABSENT: as ``object``'s does it."""
    holder = getattr(fn, "__objclass__", object)
    if name == "__getattribute__":
        getter = vars(holder).get(name)
        if type_slots.is_local(owner) and holder is object:
            raise Break(f"object.{name} of a {type(owner).__qualname__}")
        return ABSENT if type_slots.reads_generically(getter) else type_slots.read(vm, getter, owner, *args)
    setter = type_slots.of_c_class(type(owner), name)
    if not type_slots.writes_generically(setter):
        if holder is not setter.__objclass__:
            raise Break(f"{holder.__name__}.{name} of a {type(owner).__qualname__}")
        type_slots.check_write(setter, owner, args[0])
    return ABSENT


def _object_method(vm: Interpreter, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """Methods that every object has from ``object``."""
    if name == "__init__":  # it refuses arguments by what the class has
        return vm.native(object.__init__, owner, *args, **kwargs)
    if name == "__setattr__":
        return attributes.generic_store(vm, owner, *args)
    if name == "__delattr__":
        return attributes.generic_delete(vm, owner, *args)
    if name == "__getattribute__":
        if isinstance(owner, type):
            return attributes.class_attr(vm, owner, *args)
        return attributes.generic_attr(vm, owner, args[0], fallback=False)
    if name == "__eq__":
        return True if owner is args[0] else NotImplemented
    if name == "__ne__":
        equal = vm.call(attributes.load_attr(vm, owner, "__eq__"), *args)
        return NotImplemented if equal is NotImplemented else not vm.truth(equal)
    if name == "__init_subclass__" and not args and not kwargs:
        return None
    if name == "__format__":
        return format_value(vm, owner, *args)
    if name in ("__str__", "__repr__") and python_method(vm, owner, "__repr__") and name == "__str__":
        return vm.call(lookup(vm, type(owner), "__repr__"), owner)
    raise Break(f"object.{name} of a {type(owner).__qualname__}")


def _is_objects(owner: Any, name: str) -> bool:
    """Has the class of this object the method from ``object``?"""
    return name in vars(object) and inspect.getattr_static(type(owner), name, None) is vars(object)[name]


def stand_ins_method(vm: Interpreter, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A method of ``object``'s on what stands for something else, which it must not see."""
    access = {"__getattribute__": getattr, "__setattr__": setattr, "__delattr__": delattr}.get(name)
    if kwargs or len(args) != COUNTS.get(name, len(args)):
        raise Break(f"object.{name} is called with arguments that it does not take")
    if access is not None:
        return vm.call(access, owner, *args)
    if name in ("__eq__", "__ne__", "__init_subclass__"):
        return _object_method(vm, owner, name, args, kwargs)
    raise Break(f"object.{name} of a {python_type(vm, owner).__qualname__}")


COUNTS = {"__getattribute__": 1, "__setattr__": 2, "__delattr__": 1, "__eq__": 1, "__ne__": 1}  # of arguments
ATTRIBUTE_METHODS = {"__getattribute__", "__setattr__", "__delattr__"}
OBJECT_METHODS = {*ATTRIBUTE_METHODS, "__init__", "__init_subclass__"}

# Methods of containers that do not look into their arguments.
STORING = {"append", "insert", "appendleft", "add", "setdefault", "__setitem__", "pop", "popleft", "discard", "remove",
           "clear", "popitem", "copy", "keys", "values", "items", "get", "move_to_end", "rotate", "reverse", "index",
           "count", "__getitem__", "__delitem__", "__contains__", "__len__", "__iter__", "__reversed__",
           "__missing__"}  # fmt: skip
MUTATING = {"append", "insert", "appendleft", "add", "setdefault", "__setitem__", "pop", "popleft", "discard", "remove",
            "clear", "popitem", "move_to_end", "rotate", "reverse", "extend", "extendleft", "update", "sort",
            "__delitem__", "__iadd__", "__ior__", "__iand__", "__isub__", "__ixor__", "__imul__", "__init__",
            "difference_update", "intersection_update", "symmetric_difference_update"}  # fmt: skip
# Methods that iterate over their arguments.
ITERATING = {"extend", "extendleft", "update", "__init__", "__iadd__", "union", "intersection", "difference",
             "symmetric_difference", "isdisjoint", "issubset", "issuperset", "difference_update",
             "intersection_update", "symmetric_difference_update"}  # fmt: skip
ELEMENT_COMPARING = {"index", "count", "remove", "__contains__"}


def call_bound(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A C method bound to ``owner``."""
    kind = type(owner)
    if kind not in STAND_INS:
        arity.check(fn, args, kwargs)
    if name in ("__str__", "__repr__", "__format__"):
        vm.world.read_orders_within(expose(vm, owner))
    if kind in STAND_INS:
        if name == "numpy" and not args and not kwargs and config.trace_numpy:
            return vm.handlers.arrays.from_tensor(vm, torch_function.as_plain_tensor(vm, owner))
        if name != "__init__" and (getattr(fn, "__objclass__", None) is object or _is_objects(owner, name)):
            return stand_ins_method(vm, owner, name, args, kwargs)
        special = vm.handlers.functions.get(id(getattr(torch.Tensor, name, None)))
        if special is not None:
            return vm.call(getattr(torch.Tensor, name), owner, *args, **kwargs)
        if objects.are_in(vm, args, kwargs):
            return objects.call(vm, fn, args, kwargs)
        call_args = [expose(vm, a) for a in args]
        return vm.native(fn, *call_args, **{k: expose(vm, v) for k, v in kwargs.items()})
    if isinstance(owner, CONTENT_TYPES):
        return _container_method(vm, fn, owner, name, args, kwargs)
    if kind is torch.device and name in ("__enter__", "__exit__"):
        return vm.tracer.enter_device(owner) if name == "__enter__" else vm.tracer.exit_device(owner)
    if kind in PLAIN or isinstance(owner, (str, bytes, int, float, tuple, range, frozenset)):
        return _value_method(vm, fn, owner, name, args, kwargs)
    if getattr(fn, "__objclass__", None) is object or name in OBJECT_METHODS:
        if name == "__init__" and fn.__objclass__ is types.SimpleNamespace and not args:
            for key, value in kwargs.items():  # past the class's ``__setattr__``
                attributes.instance_set(vm, owner, key, value)
            return None
        if name == "__init__" and not isinstance(owner, BaseException) and fn.__objclass__ is not object:
            raise Break(f"call of the C method {fn.__qualname__}", "call it outside the compiled function")
        if isinstance(owner, BaseException) and name == "__init__":
            return _exception_method(vm, fn, owner, name, args, kwargs)
        if isinstance(owner, type) and name in ATTRIBUTE_METHODS and fn.__objclass__ is object:
            raise Break(f"object.{name} of a class")
        if name in ATTRIBUTE_METHODS and not isinstance(owner, type):
            value = _own_access(vm, fn, owner, name, args)
            if value is not ABSENT:
                return value
        return _object_method(vm, owner, name, args, kwargs)
    handler = BOUND.get(kind)
    if handler is not None:
        return handler(vm, fn, owner, name, args, kwargs)
    if isinstance(owner, type):
        return _class_method(vm, fn, owner, name, args, kwargs)
    if isinstance(owner, BaseException):
        return _exception_method(vm, fn, owner, name, args, kwargs)
    if name == "__call__" and isinstance(owner, weakref.ref):
        record, target = vm.world.record_of(owner), weakref.ref.__call__(owner)
        return target if record is None else vm.world.wrap(target, record.source.step("referent"))
    if name == "__call__" and kind in SAFE_OWNERS:
        return vm.call(owner, *args, **kwargs)
    if vm.world.record_of(owner) is None and kind in SAFE_OWNERS:
        return vm.native(fn, *[expose(vm, a) for a in args], **kwargs)
    if _is_objects(owner, name):
        return _object_method(vm, owner, name, args, kwargs)
    if isinstance(owner, random.Random) and name in draws.KINDS:
        return draws.draw(vm, owner, name, args, kwargs)
    refuse_uncaptured(vm, owner, f"call of {kind.__qualname__}.{name}()")
    raise Break(f"call of the C method {kind.__qualname__}.{name}", "call it outside the compiled function")


def _value_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A method of str, int, tuple...: a function of values read under guards."""
    if isinstance(owner, str):
        if name == "join":
            return vm.native(fn, iterable(vm, args[0]))
        if name in ("format", "format_map", "__mod__"):
            call_args = [printable(expose(vm, a)) for a in args]
            if "." in owner and any(isinstance(a, type) for a in (*args, *kwargs.values())):
                raise Break(f"str.{name} reads an attribute of a class")
            for value in [*call_args, *args, *kwargs.values()]:  # a shadow has not the class of what it stands for
                if not c_boundary.plain_text(value):
                    raise Break(f"str.{name} of a tensor or an object", "format outside the compiled function")
                vm.world.read_orders_within(value)
            return vm.native(fn, *call_args, **{k: printable(expose(vm, v)) for k, v in kwargs.items()})
    if isinstance(owner, tuple) and name in ("index", "count", "__contains__", "__eq__"):
        return _by_comparison(vm, fn, owner, name, args)
    if name in ("__getattribute__",):
        return attributes.load_attr(vm, owner, *args)
    if name == "__init__":
        return None
    if isinstance(owner, tuple) and name == "__add__":
        return vm.native(fn, *args, **kwargs)
    c_boundary.refuse_opaque_within(vm, f"{type(owner).__qualname__}.{name}()", *args)
    return vm.native(fn, *[specialise(expose(vm, a)) for a in args], **{k: specialise(v) for k, v in kwargs.items()})


def _by_comparison(vm: Interpreter, fn: Any, items: Any, name: str, args: Args) -> Any:
    """index, count, ``in``: compared one by one by the interpreter where an item is more than plain data."""
    plain = all(type(value) in PLAIN for value in (*items, *args))
    if plain and not c_boundary.compared_in_python(vm, items):
        return vm.native(fn, *map(specialise, args))
    if name == "index" and len(args) > 1:
        raise Break(f"{name} with positions over objects")
    hits = operators.places(vm, items, args[0])
    if name == "count":
        return sum(1 for _ in hits)
    try:
        hit = next(hits, None)
    except UserRaised as raised:
        if name != "remove" or type(raised.value) is not RuntimeError or vm.raised_at.get(id(raised.value)):
            raise
        return vm.raise_user(IndexError(*raised.value.args))  # a deque that a comparison has changed
    if name == "__contains__":
        return hit is not None
    if hit is None:
        in_list = name == "remove" and isinstance(items, list)
        return vm.raise_user(ValueError("list.remove(x): x not in list" if in_list else _not_in(items, args[0])))
    if name == "index":
        return hit
    if isinstance(items, list):
        items[hit : hit + 1] = []  # where it was: a comparison may have changed the list
    else:
        vm.native(operator.delitem, items, hit)
    return None


def _not_in(items: Any, value: Any) -> str:
    """What ``index`` says where it finds nothing."""
    if isinstance(items, tuple):
        return "tuple.index(x): x not in tuple"
    if type(value) not in PLAIN:
        raise Break("index() of an object that is not there")
    kind = "deque" if isinstance(items, collections.deque) else "list"
    return f"{specialise(value)!r} is not in {kind}"


def _container_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A method of list, dict, set or deque (or of a subclass, reached past its overrides)."""
    record = vm.world.record_of(owner)
    if name in ATTRIBUTE_METHODS:
        return _object_method(vm, owner, name, args, kwargs)
    if name == "__str__" and not args and not kwargs:  # ``object``'s, which asks the class for its __repr__
        return vm.call(str, owner)
    if isinstance(owner, dict):
        handler = DICT_METHODS.get(name)
        if handler is not None:
            return handler(vm, owner, record, args, kwargs)
    if name == "append" and record is not None and record.content is None and isinstance(owner, list):
        record.pending.append(args[0])
        record.dirty = True
        return None
    target = vm.world.content(record) if record is not None else owner
    if name == "__setitem__":
        return containers.raw_setitem(vm, owner, *args)
    settled = isinstance(target, dict | set) and bool(args) and hashed_in_python(args[0])
    if settled:
        containers.settle_among(vm, args[0], target)
    elif isinstance(target, set) and name in ("add", "discard", "remove", "__contains__"):
        c_boundary.refuse_own_hash(vm, *args)
    if name in ELEMENT_COMPARING and isinstance(target, (list, collections.deque)):
        if name == "remove" and record is not None:
            record.dirty = True
        bound = getattr(_builtin_base(target), name).__get__(target)
        return _by_comparison(vm, bound, target, name, args)
    if name == "sort":
        return _sort(vm, target, record, kwargs)
    if isinstance(target, dict | set):
        for value in args:
            vm.world.distinct(value)
            if isinstance(value, weakref.ref):
                if not isinstance(target, dict):
                    raise Break(f"{name}() looks a weak reference up", "look it up outside the compiled function")
                containers.settle_reference(vm, value, owner)
        if isinstance(target, set) and name not in STORING and not settled:
            for value in (target, *args):
                c_boundary.check_elements(vm, expose(vm, value))
    if isinstance(target, set) and name == "pop":
        vm.world.set_orders.pop(target)
        vm.world.read_order(target)
    if isinstance(target, list) and name == "append":  # a list holds symbolic numbers as they are, as a display does
        call_args = list(args)
    else:
        itself = name in ITERATING and isinstance(target, list | collections.deque)  # C code takes the items first
        given = [target if itself and a is owner else a for a in args]
        call_args = [specialise(a) if name in STORING else _argument(vm, a, name, target) for a in given]
        if isinstance(target, set) and name in ITERATING:
            call_args = [containers.merged(vm, a, given) for a, given in zip(args, call_args, strict=True)]
    method = getattr(_builtin_base(target), name, None)
    if name in ("copy", "__copy__") and type(owner) is not type(target) and c_boundary.makes_own_class(owner):
        raise Break(f"{type(owner).__qualname__}.{name}(), which makes one of that class")
    if method is None:
        raise Break(f"call of the C method {type(owner).__qualname__}.{name}", "call it outside the compiled function")
    method = method.__get__(target)
    if record is not None and name in MUTATING:
        record.dirty = True
    result = vm.native(method, *call_args, **kwargs)
    if name == "copy" or (isinstance(result, CONTENT_TYPES) and result is not target and name not in STORING):
        vm.world.mark_fresh(result)
    return owner if result is target and record is not None else result


def _builtin_base(value: Any) -> type:
    bases = (collections.OrderedDict, collections.defaultdict, dict, list, set, collections.deque)
    return next(b for b in bases if isinstance(value, b))


def _argument(vm: Interpreter, value: Any, name: str, target: Any) -> Any:
    if value is target:
        return value
    if type(value) in PLAIN:
        return specialise(value)
    if name == "__add__":
        return c_boundary.held(vm, value)
    return iterable(vm, value) if name in ITERATING else expose(vm, value)


def _sort(vm: Interpreter, target: Any, record: Any, kwargs: Kwargs) -> None:
    """``list.sort``, of the list itself: it is empty while its key is called, and C code tells whether it stays so."""
    if record is not None:
        record.dirty = True
    before = list(target)
    if kwargs.get("key") is None:
        if c_boundary.compared_in_python(vm, before):
            kwargs = {**kwargs, "key": c_boundary.ordering(vm)}
        else:
            c_boundary.check_elements(vm, before)
    else:
        kwargs = {**kwargs, "key": c_boundary.key_function(vm, kwargs["key"])}
    try:
        vm.native(list.sort, target, **kwargs)
    except UserRaised:
        raise
    except BaseException:  # a break: nothing has happened
        list.__setitem__(target, slice(None), before)
        raise


# ------------------------------------------------------------------ dictionaries


def _dict_get(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
    found = number_keys.get(vm, record, args[0])
    if found is not ABSENT:
        return found
    key = constant_key(args[0])
    containers.check_key(vm, key, owner)
    if record is None:
        return vm.native(dict.get, owner, key, *args[1:])
    vm.native(hash, key)
    value = vm.world.dict_get(record, key)
    return (args[1] if len(args) > 1 else None) if value is ABSENT else value


def _dict_getitem(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
    return containers.dict_getitem(vm, owner, args[0])


def _dict_setitem(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
    return containers.raw_setitem(vm, owner, *args)


def _dict_contains(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
    return containers.dict_contains(vm, owner, record, args[0])


def _dict_update(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
    for source in args:
        for key, value in mapping_items(vm, source).items():
            containers.raw_setitem(vm, owner, key, value)
    for key, value in kwargs.items():
        containers.raw_setitem(vm, owner, key, value)


def _dict_setdefault(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
    given = {**dict(zip(("key", "default"), args, strict=False)), **kwargs}  # an OrderedDict's may have names
    key, default = given["key"], given.get("default")
    if _dict_contains(vm, owner, record, [key], {}):
        return containers.dict_getitem(vm, owner, key)
    containers.raw_setitem(vm, owner, key, default)
    return default


def _dict_view(name: str) -> Any:
    def view(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
        spread = number_keys.spread(vm, record, owner, name)
        if spread is not None:
            return spread
        target = vm.world.content(record) if record is not None else owner
        return getattr(_builtin_base(target), name)(target)

    return view


def _dict_init(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
    if isinstance(owner, collections.defaultdict):
        if args:
            made = vm.native(collections.defaultdict, callback(vm, args[0]))  # it may refuse the factory
            owner.default_factory = made.default_factory
        args = args[1:]
    return _dict_update(vm, owner, record, args, kwargs)


DICT_METHODS: dict[str, Callable[..., Any]] = {
    "get": _dict_get,
    "__getitem__": _dict_getitem,
    "__setitem__": _dict_setitem,
    "__contains__": _dict_contains,
    "update": _dict_update,
    "setdefault": _dict_setdefault,
    "keys": _dict_view("keys"),
    "values": _dict_view("values"),
    "items": _dict_view("items"),
    "__init__": _dict_init,
}


# ------------------------------------------------------------------ other owners


def _generator_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    return vm.native(fn, *args, **kwargs)


def _iterator_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    if vm.world.record_of(owner) is not None:
        raise Break(f"an iterator of class {type(owner).__qualname__} from outside the compiled function")
    return vm.native(fn, *args, **kwargs)


def _proxy_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A method of a ``types.MappingProxyType``: that of the dictionary behind it."""
    (mapping,) = gc.get_referents(owner)
    if vm.world.record_of(owner) is not None and id(owner) not in vm.world.views:
        raise Break(f"call of the C method {fn.__qualname__}", "call it outside the compiled function")
    if type(mapping) in (dict, collections.OrderedDict) and name in ("get", "keys", "values", "items", "copy"):
        return vm.call(getattr(type(mapping), name), mapping, *args, **kwargs)
    return vm.native(fn, *[expose(vm, a) for a in args], **kwargs)


def _class_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """C methods of classes: ``type.__call__``, ``mro``, ``__subclasses__``, ``fromkeys``."""
    if name == "__call__":
        return vm.construct(owner, args, kwargs)
    if name == "fromkeys":
        if owner not in (dict, collections.OrderedDict):
            raise Break(f"{owner.__qualname__}.fromkeys()", "make it outside the compiled function")
        keys = vm.native(list, iterable(vm, args[0]))
        containers.settle_items(vm, keys)
        return vm.world.mark_fresh(vm.native(fn, keys, *args[1:]))
    if name == "from_iterable":
        parts = iterable(vm, args[0])
        if isinstance(parts, list | tuple) and any(vm.world.record_of(p) and hasattr(p, "__next__") for p in parts):
            raise Break("itertools.chain.from_iterable() of iterators from outside the compiled function")
        return vm.native(fn, vm.native(map, Reentrant(vm, iter), parts))
    if name == "__new__":
        return allocate(vm, args[0], fn, None, args[1:], kwargs)
    if name == "__subclasses__":
        raise Break(f"{owner.__qualname__}.__subclasses__() may grow", "call it outside the compiled function")
    if name == "from_bytes" and args:
        return vm.native(fn, items_of_bytes(vm, args[0]), *args[1:], **kwargs)
    if name in ("mro", "maketrans", "fromhex", "from_bytes", "__instancecheck__", "__subclasscheck__"):
        return vm.native(fn, *[expose(vm, a) for a in args], **kwargs)
    if name in ("__setattr__",):
        return attributes.generic_store(vm, owner, *args)
    raise Break(f"call of the C method {owner.__qualname__}.{name}", "call it outside the compiled function")


CHANGES_EXCEPTION = ("__init__", "add_note", "with_traceback", "__setstate__")


def _exception_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    if (has_tensor(args) and name != "__init__") or name not in (*CHANGES_EXCEPTION, "__str__", "__repr__"):
        raise Break(f"call of the exception method {name}")
    if name in CHANGES_EXCEPTION and vm.world.record_of(owner) is not None:
        raise Break(f"{name} of an exception from outside the compiled function")
    return vm.native(fn, *args, **kwargs)


def _function_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """``function.__get__``: binding by hand."""
    if name != "__get__" or not args or kwargs:
        raise Break(f"call of the C method function.{name}", "call it outside the compiled function")
    return owner if args[0] is None else types.MethodType(owner, args[0])


def _text_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A method of a regular expression, or of what it has found in text that is known."""
    if type(owner) is re.Match and vm.world.record_of(owner) is not None:
        raise Break("a match of a regular expression from outside is asked")
    given = [*args, *kwargs.values()]
    if not all(isinstance(v, (str, bytes, int, types.FunctionType, types.MethodType)) for v in given):
        raise Break(f"{name}() of a regular expression is given more than text")
    return vm.native(fn, *[caller(vm, a) for a in args], **{k: caller(vm, v) for k, v in kwargs.items()})


ACCESSORS = {"__get__": "fget", "__set__": "fset", "__delete__": "fdel"}


def _property_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """Its functions are called as those of any other object; ``setter`` and the like make another property."""
    if name not in ACCESSORS and vm.world.record_of(owner) is not None:
        raise Break(f"call of the C method property.{name}", "call it outside the compiled function")
    if name not in ACCESSORS or kwargs or args[0] is None or getattr(owner, ACCESSORS[name]) is None:
        return vm.native(fn, *args, **kwargs)
    return vm.call(held(vm, owner, ACCESSORS[name]), *args[: 2 if name == "__set__" else 1])


def _field_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """``torch.Tensor.shape.__get__(x)``, as ``__torch_function__`` of the program's gets it."""
    field = owner.__name__
    if kwargs or not args or type(args[0]) not in STAND_INS or getattr(torch.Tensor, field, None) is not owner:
        raise Break(f"call of the C method {fn.__qualname__}", "call it outside the compiled function")
    if name == "__get__":
        return tensor_attr(vm, args[0], field)
    if name != "__set__" or len(args) != 2:
        raise Break(f"{name} of Tensor.{field}")
    return store_tensor_attr(vm, args[0], field, args[1])


BOUND: dict[type, Callable[..., Any]] = {
    property: _property_method,
    types.GetSetDescriptorType: _field_method,
    re.Pattern: _text_method,
    re.Match: _text_method,
    types.FunctionType: _function_method,
    InterpretedGenerator: _generator_method,
    **dict.fromkeys(
        (zip, enumerate, map, filter, reversed, type(iter([])), type(iter(())), type(iter({})), type(iter(range(1)))),
        _iterator_method,
    ),
    types.MappingProxyType: _proxy_method,
    contextvars.ContextVar: context_variables.method,
    torch.Generator: generators.method,
}
SAFE_OWNERS = {
    slice, type({}.keys()), type({}.values()), type({}.items()),
    type(collections.OrderedDict().keys()), type(collections.OrderedDict().values()),
    type(collections.OrderedDict().items()), torch.Size, operator.itemgetter, functools.partial,
}  # fmt: skip
