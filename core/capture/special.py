"""Builtins and methods that the interpreter must see for itself, each a short function in a table."""

from __future__ import annotations

import builtins
import collections
import contextlib
import functools
import operator
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from jitney import _torch
from jitney.capture import attributes, operators
from jitney.capture.attributes import PYTHON_FUNCTION, lookup, python_type
from jitney.capture.frame import NULL
from jitney.capture.generators import InterpretedGenerator
from jitney.capture.graph_runner import InferenceScope
from jitney.capture.operators import PLAIN, callback, expose, has_tensor, iterable, python_method, specialise
from jitney.capture.record import ABSENT, CONTENT_TYPES
from jitney.capture.signals import Break, UserRaised

if TYPE_CHECKING:
    from jitney.capture.interpreter import Interpreter

Args = list[Any]
Kwargs = dict[str, Any]
Handler = Callable[[Any, Args, Kwargs], Any]

SPECIAL: dict[int, Handler] = {}
_kept: list[Any] = []


def special(*functions: Any) -> Callable[[Handler], Handler]:
    """Register a handler for these very functions."""

    def register(handler: Handler) -> Handler:
        for fn in functions:
            SPECIAL[id(fn)] = handler
            _kept.append(fn)
        return handler

    return register


# ------------------------------------------------------------------ attributes and types


@special(getattr)
def _getattr(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    obj, name, *default = args
    try:
        return attributes.load_attr(vm, obj, name)
    except UserRaised as raised:
        if default and isinstance(raised.value, AttributeError):
            return default[0]
        raise


@special(hasattr)
def _hasattr(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    try:
        attributes.load_attr(vm, args[0], args[1])
    except UserRaised as raised:
        if isinstance(raised.value, AttributeError):
            return False
        raise
    return True


@special(setattr)
def _setattr(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    attributes.store_attr(vm, *args)


@special(delattr)
def _delattr(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    attributes.delete_attr(vm, *args)


@special(type)
def _type(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1:
        return python_type(vm, args[0])
    if all(type(b) is type for b in args[1]):
        return vm.world.mark_fresh(vm.native(type, *args, **kwargs))
    raise Break("a class with a metaclass is made by calling type()")


@special(isinstance)
def _isinstance(vm: Interpreter, args: Args, kwargs: Kwargs) -> bool:
    value, classes = args
    check = None
    if isinstance(classes, type):
        check = lookup(vm, type(classes), "__instancecheck__")
    if type(check) is PYTHON_FUNCTION and not attributes.trusted(type(classes)):
        return vm.truth(vm.call(check, classes, value))
    kind = type(value)
    if kind in (torch.SymInt, torch.SymFloat, torch.SymBool):
        plain = {torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True}[kind]
        return vm.native(isinstance, plain, classes) or vm.native(isinstance, value, classes)
    if kind is InterpretedGenerator:
        return bool(vm.native(issubclass, types.GeneratorType, classes))
    if kind is _torch.FakeTensor:
        return bool(vm.native(isinstance, value, classes)) and classes is not _torch.FakeTensor
    return bool(vm.native(isinstance, value, classes))


@special(issubclass)
def _issubclass(vm: Interpreter, args: Args, kwargs: Kwargs) -> bool:
    return bool(vm.native(issubclass, *args))


@special(callable)
def _callable(vm: Interpreter, args: Args, kwargs: Kwargs) -> bool:
    return callable(args[0])


@special(id)
def _id(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    value = args[0]
    if isinstance(value, (type, types.ModuleType, types.FunctionType)) and not vm.world.is_fresh(value):
        return id(value)
    record = vm.world.record_of(value)
    if isinstance(value, torch.Tensor):
        real = vm.tracer.real_of(value)
        source = vm.tracer.source_of(value)
        if source is not None:
            vm.world.guard(source, "true", f"id({{v}}) == {id(real)}")
            return id(real)
    elif record is not None:
        vm.world.guard(record.source, "true", f"id({{v}}) == {id(value)}")
        return id(value)
    raise Break("id() of an object made in the compiled function", "compare objects with `is`")


@special(hash)
def _hash(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    method = python_method(vm, args[0], "__hash__")
    if method is not None:
        return vm.call(method, args[0])
    if type(args[0]) in PLAIN or (isinstance(args[0], (type, tuple, frozenset)) and not has_tensor(args[0])):
        return vm.native(hash, specialise(args[0]))
    if isinstance(args[0], CONTENT_TYPES):
        return vm.native(hash, args[0])
    raise Break("hash() of an object by its identity")


@special(vars)
def _vars(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if not args:
        return _locals(vm, args, kwargs)
    return attributes.load_attr(vm, args[0], "__dict__")


@special(dir)
def _dir(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if args and isinstance(args[0], (type, types.ModuleType)):
        return vm.world.mark_fresh(vm.native(dir, args[0]))
    raise Break("dir() of an object")


@special(globals)
def _globals(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    namespace = vm.frames[-1].globals
    vm.world.anchor(namespace)
    return namespace


@special(locals)
def _locals(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    frame = vm.frames[-1]
    if frame.namespace is not None:
        return frame.namespace
    made = dict(frame.locals)
    for name, cell in frame.cells.items():
        with contextlib.suppress(UserRaised):
            made[name] = attributes.cell_get(vm, cell, name)
    order = [*frame.info.code.co_varnames, *frame.info.code.co_cellvars, *frame.info.code.co_freevars]
    return vm.world.mark_fresh({n: made[n] for n in dict.fromkeys(order) if n in made})


@special(super)
def _super(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if args:
        return make_super(vm, *args)
    frame = vm.frames[-1]
    cell = frame.cells.get("__class__")
    if cell is None or frame.first_argument is NULL:
        return vm.raise_user(RuntimeError("super(): no arguments"))
    return make_super(vm, attributes.cell_get(vm, cell, "__class__"), frame.first_argument)


def make_super(vm: Interpreter, cls: type, obj: Any = None) -> Any:
    """A ``super`` object."""
    return vm.native(super, cls, obj)


# ------------------------------------------------------------------ protocol functions


@special(len)
def _len(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return operators.length(vm, args[0])


@special(iter)
def _iter(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2:
        return vm.native(iter, callback(vm, args[0]), args[1])
    return operators.get_iter(vm, args[0])


@special(next)
def _next(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    try:
        return operators.next_value(vm, args[0])
    except UserRaised as raised:
        if len(args) > 1 and isinstance(raised.value, StopIteration):
            return args[1]
        raise


@special(repr)
def _repr(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    from jitney.capture.natives import to_text

    return to_text(vm, args[0], "__repr__")


@special(format)
def _format(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return format_value(vm, *args)


def format_value(vm: Interpreter, value: Any, spec: str = "") -> str:
    """``format(value, spec)``, as f-strings do it."""
    from jitney.capture.natives import to_text

    value = specialise(value)
    if type(value) is str and not spec:
        return value
    method = python_method(vm, value, "__format__")
    if method is not None:
        return str(vm.call(method, value, spec))
    if not spec:
        return to_text(vm, value, "__str__")
    if isinstance(value, torch.Tensor):
        raise Break("a tensor is turned into text", "print outside the compiled function")
    return str(vm.native(format, value, spec))


def _outside_handler(name: str, what: str) -> Handler:
    def handler(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        raise Break(f"{name}() {what}", "move it out of the compiled function")

    return handler


for _name, _what in (
    ("print", "writes to the terminal"),
    ("input", "reads from the terminal"),
    ("open", "opens a file"),
    ("breakpoint", "starts the debugger"),
    ("exec", "runs text as code"),
    ("eval", "runs text as code"),
    ("compile", "compiles text"),
):
    SPECIAL[id(getattr(builtins, _name))] = _outside_handler(_name, _what)


@special(__import__)
def _import(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return import_name(vm, args[0], args[3] if len(args) > 3 else None, args[4] if len(args) > 4 else 0)


def import_name(vm: Interpreter, name: str, fromlist: Any, level: int) -> Any:
    """``import``: done if the module is loaded already, a break if it must be loaded."""
    namespace = vm.frames[-1].globals
    package = namespace.get("__package__") or ""
    full = name
    if level:
        base = package.rsplit(".", level - 1)[0] if level > 1 else package
        full = f"{base}.{name}" if name else base
    if full not in sys.modules:
        raise Break(f"import of {full}, which is not loaded yet", "import it at the top of the file")
    return vm.native(__import__, name, namespace, None, fromlist, level)


@special(sys.exc_info)
def _exc_info(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    error = vm.handling
    return (None, None, None) if error is None else (type(error), error, None)


@special(sys._getframe)
def _getframe(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    raise Break("sys._getframe() looks at the stack")


# ------------------------------------------------------------------ object's own methods


@special(object.__new__)
def _object_new(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    from jitney.capture.natives import allocate, refused_class

    why = refused_class(args[0])
    if why:
        raise Break(f"an instance of {args[0].__qualname__} is made: {why}")
    return allocate(vm, args[0], object.__new__, None, [], {})


@special(tuple.__new__, int.__new__, float.__new__, str.__new__, frozenset.__new__)
def _immutable_new(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    cls = args[0]
    base = next(b for b in (tuple, int, float, str, frozenset) if issubclass(cls, b))
    rest = [iterable(vm, a) for a in args[1:]] if base in (tuple, frozenset) else list(map(specialise, args[1:]))
    return vm.world.mark_fresh(vm.native(base.__new__, cls, *rest, **kwargs))


@special(dict.__new__, list.__new__, set.__new__, BaseException.__new__, Exception.__new__)
def _mutable_new(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    cls = args[0]
    rest = args[1:] if issubclass(cls, BaseException) else []
    return vm.world.mark_fresh(vm.native(cls.__mro__[-2].__new__ if rest else _builtin_new(cls), cls, *rest))


def _builtin_new(cls: type) -> Any:
    return next(b for b in (collections.OrderedDict, dict, list, set, BaseException) if issubclass(cls, b)).__new__


def _object_method(vm: Interpreter, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """Methods that every object has from ``object``."""
    if name == "__init__":
        return None
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
        return NotImplemented if owner is not args[0] else False
    if name == "__init_subclass__":
        return None
    if name == "__format__":
        return format_value(vm, owner, *args)
    if name in ("__str__", "__repr__") and python_method(vm, owner, "__repr__") and name == "__str__":
        return vm.call(lookup(vm, type(owner), "__repr__"), owner)
    raise Break(f"object.{name} of a {type(owner).__qualname__}")


OBJECT_METHODS = {"__init__", "__setattr__", "__delattr__", "__getattribute__", "__init_subclass__"}

# Methods of containers that do not look into their arguments.
STORING = {"append", "insert", "appendleft", "add", "setdefault", "__setitem__", "pop", "popleft", "discard", "remove",
           "clear", "popitem", "copy", "keys", "values", "items", "get", "move_to_end", "rotate", "reverse", "index",
           "count", "__getitem__", "__delitem__", "__contains__", "__len__", "__iter__", "__reversed__",
           "__missing__"}  # fmt: skip
MUTATING = {"append", "insert", "appendleft", "add", "setdefault", "__setitem__", "pop", "popleft", "discard", "remove",
            "clear", "popitem", "move_to_end", "rotate", "reverse", "extend", "extendleft", "update", "sort",
            "__delitem__", "__iadd__", "__ior__", "__iand__", "__isub__", "__ixor__", "__imul__", "__init__",
            "difference_update", "intersection_update", "symmetric_difference_update"}  # fmt: skip
ELEMENT_COMPARING = {"index", "count", "remove", "__contains__"}


def call_bound(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A C method bound to ``owner``."""
    kind = type(owner)
    if kind is _torch.FakeTensor:
        call_args = [expose(vm, a) for a in args]
        return vm.native(fn, *call_args, **{k: expose(vm, v) for k, v in kwargs.items()})
    if isinstance(owner, CONTENT_TYPES):
        return _container_method(vm, fn, owner, name, args, kwargs)
    if kind in PLAIN or isinstance(owner, (str, bytes, int, float, tuple, range, frozenset)):
        return _value_method(vm, fn, owner, name, args, kwargs)
    if getattr(fn, "__objclass__", None) is object or name in OBJECT_METHODS:
        if isinstance(owner, BaseException) and name == "__init__":
            return vm.native(fn, *args, **kwargs)
        return _object_method(vm, owner, name, args, kwargs)
    handler = BOUND.get(kind)
    if handler is not None:
        return handler(vm, fn, owner, name, args, kwargs)
    if isinstance(owner, type):
        return _class_method(vm, fn, owner, name, args, kwargs)
    if isinstance(owner, BaseException):
        return _exception_method(vm, fn, owner, name, args, kwargs)
    if vm.world.record_of(owner) is None and kind in SAFE_OWNERS:
        return vm.native(fn, *[expose(vm, a) for a in args], **kwargs)
    if name in ("__eq__", "__ne__", "__str__", "__repr__", "__format__", "__hash__"):
        return _object_method(vm, owner, name, args, kwargs)
    raise Break(f"call of the C method {kind.__qualname__}.{name}", "call it outside the compiled function")


def _value_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A method of str, int, tuple...: a function of values read under guards."""
    if isinstance(owner, str):
        if name == "join":
            return vm.native(fn, iterable(vm, args[0]))
        if name in ("format", "format_map", "__mod__"):
            call_args = [specialise(expose(vm, a)) for a in args]
            for value in [*call_args, *kwargs.values()]:
                if has_tensor(value) or vm.world.record_of(value) or (vm.world.is_fresh(value) and not _plain(value)):
                    raise Break(f"str.{name} of a tensor or an object", "format outside the compiled function")
            return vm.native(fn, *call_args, **{k: specialise(v) for k, v in kwargs.items()})
    if isinstance(owner, tuple) and name in ("index", "count", "__contains__", "__eq__"):
        return _by_comparison(vm, fn, owner, name, args)
    if name in ("__getattribute__",):
        return attributes.load_attr(vm, owner, *args)
    if name == "__init__":
        return None
    return vm.native(fn, *[specialise(expose(vm, a)) for a in args], **{k: specialise(v) for k, v in kwargs.items()})


def _plain(value: Any) -> bool:
    return type(value) in PLAIN or isinstance(value, (list, tuple, dict, set))


def _by_comparison(vm: Interpreter, fn: Any, items: Any, name: str, args: Args) -> Any:
    """index, count, ``in``: compared one by one by the interpreter where an item is more than plain data."""
    if all(type(i) in PLAIN for i in items) and all(type(a) in PLAIN for a in args):
        return vm.native(fn, *map(specialise, args))
    hits = [i for i, v in enumerate(list(items)) if v is args[0] or vm.truth(operators.compare(vm, "==", v, args[0]))]
    if name == "__contains__":
        return bool(hits)
    if name == "count":
        return len(hits)
    if name == "index" and len(args) == 1:
        return hits[0] if hits else vm.raise_user(ValueError("item is not in the sequence"))
    if name == "remove":
        if not hits:
            return vm.raise_user(ValueError("list.remove(x): x not in list"))
        del items[hits[0]]
        return None
    raise Break(f"{name} with positions over objects")


def _container_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """A method of list, dict, set or deque (or of a subclass, reached past its overrides)."""
    record = vm.world.record_of(owner)
    if name in ("__setattr__", "__getattribute__", "__delattr__"):
        return _object_method(vm, owner, name, args, kwargs)
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
        return operators.raw_setitem(vm, owner, *args)
    if isinstance(target, set) and name in ("add", "discard", "remove", "__contains__"):
        by_identity: Any = object.__hash__
        operators.refuse_protocol("hashing", *[a for a in args if type(a).__hash__ is not by_identity])
    if name in ELEMENT_COMPARING and isinstance(target, (list, collections.deque)):
        if name == "remove" and record is not None:
            record.dirty = True
        bound = getattr(_builtin_base(target), name).__get__(target)
        return _by_comparison(vm, bound, target, name, args)
    if name == "sort":
        return _sort(vm, target, record, kwargs)
    call_args = [specialise(a) for a in args] if name in STORING else [_argument(vm, a, name) for a in args]
    method = getattr(_builtin_base(target), name).__get__(target)
    if record is not None and name in MUTATING:
        record.dirty = True
    result = vm.native(method, *call_args, **kwargs)
    if name == "copy" or (isinstance(result, CONTENT_TYPES) and result is not target and name not in STORING):
        vm.world.mark_fresh(result)
    return owner if result is target and record is not None else result


def _builtin_base(value: Any) -> type:
    bases = (collections.OrderedDict, collections.defaultdict, dict, list, set, collections.deque)
    return next(b for b in bases if isinstance(value, b))


def _argument(vm: Interpreter, value: Any, name: str) -> Any:
    if name in ("__eq__", "__ne__", "__add__", "__mul__", "__or__", "__and__", "__sub__", "__lt__", "__gt__"):
        return expose(vm, value)
    if type(value) in PLAIN:
        return specialise(value)
    return iterable(vm, value)


def _sort(vm: Interpreter, target: Any, record: Any, kwargs: Kwargs) -> None:
    if record is not None:
        record.dirty = True
    if "key" not in kwargs or kwargs["key"] is None:
        operators.check_elements(vm, target)
        items = vm.native(sorted, list(target), **kwargs)
    else:
        items = vm.native(sorted, list(target), **{k: callback(vm, v) for k, v in kwargs.items()})
    target[:] = items


# ------------------------------------------------------------------ dictionaries


def _dict_get(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
    key = specialise(args[0])
    operators.check_key(vm, key)
    if record is None:
        return vm.native(dict.get, owner, key, *args[1:])
    vm.native(hash, key)
    value = vm.world.dict_get(record, key)
    return (args[1] if len(args) > 1 else None) if value is ABSENT else value


def _dict_getitem(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
    return operators.dict_getitem(vm, owner, args[0])


def _dict_setitem(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
    return operators.raw_setitem(vm, owner, *args)


def _dict_contains(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
    operators.check_key(vm, args[0])
    if record is None:
        return vm.native(dict.__contains__, owner, specialise(args[0]))
    vm.native(hash, args[0])
    return vm.world.dict_has(record, specialise(args[0]))


def _dict_update(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
    from jitney.capture.natives import mapping_items

    for source in args:
        for key, value in mapping_items(vm, source).items():
            operators.raw_setitem(vm, owner, key, value)
    for key, value in kwargs.items():
        operators.raw_setitem(vm, owner, key, value)


def _dict_setdefault(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
    key, default = args[0], (args[1] if len(args) > 1 else None)
    if _dict_contains(vm, owner, record, [key], {}):
        return operators.dict_getitem(vm, owner, key)
    operators.raw_setitem(vm, owner, key, default)
    return default


def _dict_view(name: str) -> Any:
    def view(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
        target = vm.world.content(record) if record is not None else owner
        return getattr(_builtin_base(target), name)(target)

    return view


def _dict_init(vm: Interpreter, owner: Any, record: Any, args: Args, kwargs: Kwargs) -> Any:
    if isinstance(owner, collections.defaultdict):
        if args:
            owner.default_factory = callback(vm, args[0])
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


def _class_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """C methods of classes: ``type.__call__``, ``mro``, ``__subclasses__``, ``fromkeys``."""
    from jitney.capture.calls import construct
    from jitney.capture.interpreter import Frame

    if name == "__call__":
        made = construct(vm, owner, args, kwargs)
        return vm.finish(made) if type(made) is Frame else made
    if name == "fromkeys":
        return vm.world.mark_fresh(vm.native(fn, iterable(vm, args[0]), *args[1:]))
    if name == "from_iterable":
        return vm.native(fn, iterable(vm, args[0]))
    if name == "__new__":
        return _builtin_new_call(vm, fn, args, kwargs)
    if name in (
        "mro",
        "__subclasses__",
        "maketrans",
        "fromhex",
        "from_bytes",
        "__instancecheck__",
        "__subclasscheck__",
    ):
        return vm.native(fn, *args, **kwargs)
    if name in ("__setattr__",):
        return attributes.generic_store(vm, owner, *args)
    raise Break(f"call of the C method {owner.__qualname__}.{name}", "call it outside the compiled function")


def _builtin_new_call(vm: Interpreter, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    from jitney.capture.natives import allocate

    return allocate(vm, args[0], fn, None, args[1:], kwargs)


def _exception_method(vm: Interpreter, fn: Any, owner: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    if name == "with_traceback":
        return owner
    if name in ("__init__", "add_note", "__str__", "__repr__", "__setstate__") and not has_tensor(args):
        return vm.native(fn, *args, **kwargs)
    raise Break(f"call of the exception method {name}")


BOUND: dict[type, Callable[..., Any]] = {
    InterpretedGenerator: _generator_method,
    **dict.fromkeys(
        (zip, enumerate, map, filter, reversed, type(iter([])), type(iter(())), type(iter({})), type(iter(range(1)))),
        _iterator_method,
    ),
}
SAFE_OWNERS = {
    slice, types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items()), property,
    type(collections.OrderedDict().keys()), type(collections.OrderedDict().values()),
    type(collections.OrderedDict().items()), torch.Size, operator.itemgetter, functools.partial,
}  # fmt: skip


@special(InferenceScope.__enter__)
def _enter_inference(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    vm.tracer.enter_scope(args[0])


@special(InferenceScope.__exit__)
def _exit_inference(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    vm.tracer.exit_scope(args[0])


@special(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)
def _is_compiling(vm: Interpreter, args: Args, kwargs: Kwargs) -> bool:
    """True, but for nn.Module's own call, which skips its exception handling where it is told so."""
    return vm.frames[-1].globals.get("__name__") != _torch.MODULE_CALL_FILE
