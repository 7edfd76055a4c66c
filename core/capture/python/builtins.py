"""Builtins and methods that the interpreter must see for itself, each a short function in a table."""

from __future__ import annotations

import abc
import builtins
import collections
import functools
import importlib
import importlib.util
import sys
import types
import typing
from typing import TYPE_CHECKING, Any

import torch

from jitney._util.ownership import HEAP, trusted, trusted_module
from jitney.capture import directive_rules
from jitney.capture.codegen.graph_runner import InferenceScope
from jitney.capture.interpreter.code import decode
from jitney.capture.interpreter.frame import Frame
from jitney.capture.interpreter.generators import InterpretedGenerator
from jitney.capture.interpreter.resume import origin
from jitney.capture.interpreter.signals import Break, GiveUp, UserRaised
from jitney.capture.kinds import ATOMS, STAND_INS, hashed_in_python, is_stand_in
from jitney.capture.numpy.stand_in import Array
from jitney.capture.policy import refused_class
from jitney.capture.python import attributes, classes, containers, type_slots
from jitney.capture.python.c_boundary import (
    PLAIN,
    SYMBOLIC,
    ask_abstract,
    caller,
    constant_key,
    demanded,
    expose,
    looks_at_instances,
    plain_text,
    python_method,
    refuse_asking,
    specialise,
)
from jitney.capture.python.classes import PYTHON_FUNCTION, lookup
from jitney.capture.python.containers import iterable
from jitney.capture.python.natives import allocate, to_text
from jitney.capture.tables import Args, FunctionTable, Handler, Kwargs
from jitney.capture.torch import optimizers
from jitney.capture.torch.lazy_modules import class_asked
from jitney.capture.torch.stand_in_attributes import python_type
from jitney.capture.world.cells import cell_get, variables
from jitney.capture.world.record import ABSENT, CONTENT_TYPES
from jitney.guards.assumptions import each_class
from jitney.torch_compat import torch_private
from jitney.torch_compat.default_device import innermost

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()


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
    if not isinstance(args[1], str):
        raise Break("the name of an attribute is no text")
    attributes.store_attr(vm, *args)


@special(delattr)
def _delattr(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    if not isinstance(args[1], str):
        raise Break("the name of an attribute is no text")
    attributes.delete_attr(vm, *args)


@special(type)
def _type(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and not kwargs:
        class_asked(vm, args[0])
        return python_type(vm, args[0])
    if len(args) != 3 or [type(a) for a in args] != [str, tuple, dict]:
        vm.native(type, *args, **kwargs)
    elif all(type(b) is type for b in args[1]):
        name, bases, namespace = args
        caller = vm.frames[-1].globals.get("__name__", ABSENT)  # which C code would look for in its own caller
        if "__module__" not in namespace and caller is not ABSENT and vm.world.record_of(namespace) is None:
            namespace = {**namespace, "__module__": caller}
        return vm.world.mark_fresh(vm.native(type, name, bases, namespace, **kwargs))
    raise Break("a class with a metaclass is made by calling type()")


@special(isinstance)
def _isinstance(vm: Interpreter, args: Args, kwargs: Kwargs) -> bool:
    value, classes = args
    kind = type(value)
    class_asked(vm, value)
    if kind is classes and kind not in STAND_INS:  # of which Python does not ask it
        return True
    if check := _check_of_program(vm, classes, "__instancecheck__"):
        return vm.truth(vm.call(check, classes, value))
    if _asks_program_within(vm, classes, "__instancecheck__") or (kind in STAND_INS and type(classes) is tuple):
        return any(_isinstance(vm, [value, cls], {}) for cls in classes)
    ask_abstract(vm, python_type(vm, value), classes)
    if kind in (torch.SymInt, torch.SymFloat, torch.SymBool):
        plain = {torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True}[kind]
        return vm.native(isinstance, plain, classes) or vm.native(isinstance, value, classes)
    if kind is InterpretedGenerator:
        return bool(vm.native(issubclass, types.GeneratorType, classes))
    if kind in STAND_INS:
        own = kind is torch_private.FakeTensor and vm.native(issubclass, python_type(vm, value), classes)
        looks = kind is not torch_private.FakeTensor or looks_at_instances(classes)
        return bool(own or (looks and vm.native(isinstance, value, classes)))
    if kind is Array:
        return bool(vm.native(issubclass, value.kind, classes))
    record = vm.world.record_of(value)
    others = [c for c in each_class(classes) if type(c) is not type and not attributes.trusted(c)]
    if record is not None and (others or type_slots.may_claim_class(kind)):
        storage = vm.world.dict_record(record)
        if not (record.dirty or (storage is not None and storage.dirty)):
            result = bool(vm.native(isinstance, value, classes))  # an abstract class, a protocol or a proxy may change
            vm.world.guard(record.source, "instance", (classes, result))
            return result
        if any(map(looks_at_instances, others)) or type_slots.may_claim_class(kind):
            raise Break("isinstance() asks a class about an object that was written to, where the write waits")
    _guard_derivation(vm, kind, classes)
    return bool(vm.native(isinstance, value, classes))


@special(vars(abc)["_abc_instancecheck"])
def _abstract_isinstance(vm: Interpreter, args: Args, kwargs: Kwargs) -> bool:
    """What a metaclass of the program's asks ``ABCMeta``: a question about the object's class."""
    cls, value = args
    if vm.world.record_of(value) is not None and type_slots.may_claim_class(type(value)):
        raise Break("isinstance() asks an object from outside for its class")
    return _issubclass(vm, [python_type(vm, value), cls], {})


def _check_of_program(vm: Interpreter, cls: Any, name: str) -> Any:
    """What the program's metaclass says of what is an instance of a class, or below it; None if it says nothing."""
    check = lookup(vm, type(cls), name) if isinstance(cls, type) else None
    abstract = check is abc.ABCMeta.__instancecheck__ and not _check_of_program(vm, cls, "__subclasscheck__")
    if abstract or check is abc.ABCMeta.__subclasscheck__:  # which a metaclass of the program's may have inherited
        return None
    return check if type(check) is PYTHON_FUNCTION and not attributes.trusted(type(cls)) else None


def _asks_program_within(vm: Interpreter, classes: Any, name: str) -> bool:
    """Does a class in the tuple, or in a tuple within it, have such a metaclass?"""
    return type(classes) is tuple and any(
        _check_of_program(vm, cls, name) or _asks_program_within(vm, cls, name) for cls in classes
    )


def _guard_derivation(vm: Interpreter, cls: type, others: Any) -> None:
    """Guard from what a class is derived, and what abstract classes say of it."""
    vm.world.guard_bases(cls)
    try:
        asked = vm.world.assumptions.asked(cls, others)
    except Exception as error:
        raise Break(f"issubclass() raises {type(error).__name__}") from None
    for other in asked:
        meta: Any = type(other)
        if meta.__subclasscheck__ is not type.__subclasscheck__ and not vm.world.is_fresh(cls):
            vm.world.guard(vm.world.const(cls), "subclass", (other, issubclass(cls, other)))


@special(issubclass)
def _issubclass(vm: Interpreter, args: Args, kwargs: Kwargs) -> bool:
    if len(args) == 2 and isinstance(args[0], type):
        if check := _check_of_program(vm, args[1], "__subclasscheck__"):
            return vm.truth(vm.call(check, args[1], args[0]))
        if _asks_program_within(vm, args[1], "__subclasscheck__"):
            return any(_issubclass(vm, [args[0], cls], {}) for cls in args[1])
        ask_abstract(vm, *args)
        _guard_derivation(vm, *args)
    return bool(vm.native(issubclass, *args))


@special(callable)
def _callable(vm: Interpreter, args: Args, kwargs: Kwargs) -> bool:
    kind = type(args[0])
    if kind.__flags__ & HEAP and not isinstance(args[0], type):
        return lookup(vm, kind, "__call__") is not ABSENT
    return callable(args[0])


@special(id)
def _id(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    value = args[0]
    record = vm.world.record_of(value)
    if isinstance(value, (type, types.ModuleType, types.FunctionType)) and not vm.world.is_fresh(value):
        if record is None or record.source.is_const:
            vm.world.assumptions.keep_private("id() of an object")
            return id(value)
    if isinstance(value, torch.Tensor):
        real = vm.tracer.real_of(value)
        source = vm.tracer.source_of(value)
        if source is not None:
            vm.world.guard(source, "true", f"_b.id({{v}}) == {id(real)}")
            return id(real)
    elif record is not None:
        vm.world.guard(record.source, "true", f"_b.id({{v}}) == {id(value)}")
        return id(value)
    raise Break("id() of an object made in the compiled function", "compare objects with `is`")


@special(hash, torch.Tensor.__hash__)
def _hash(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    method = python_method(vm, args[0], "__hash__")
    if method is not None:
        return hash(containers.Hashed(specialise(demanded(vm.call(method, args[0]), int, "__hash__"))))
    vm.world.assumptions.keep_private("hash() of a value")
    if type(args[0]) is tuple:
        containers.settle(vm, args[0])
        for part in args[0]:
            if not hashed_in_python(part):
                _hash(vm, [part], {})
        return vm.native(hash, constant_key(args[0]))
    if type(args[0]) in PLAIN or isinstance(args[0], type) or plain_text(args[0]):
        return vm.native(hash, constant_key(args[0]))
    if isinstance(args[0], CONTENT_TYPES):
        return vm.native(hash, args[0])
    raise Break("hash() of an object by its identity")


@special(vars)
def _vars(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if not args:
        return _locals(vm, args, kwargs)
    try:
        return attributes.load_attr(vm, args[0], "__dict__")
    except UserRaised as raised:
        if isinstance(raised.value, AttributeError):
            return vm.raise_user(TypeError("vars() argument must have __dict__ attribute"))
        raise


@special(dir)
def _dir(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if not args:
        return vm.world.mark_fresh(vm.native(sorted, _locals(vm, args, kwargs)))
    if len(args) > 1 or kwargs:
        raise Break("dir() of these arguments")
    method = python_method(vm, args[0], "__dir__")
    return vm.call(sorted, vm.call(method, args[0]) if method is not None else attributes.names_of(vm, args[0]))


@special(globals)
def _globals(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    namespace = vm.frames[-1].globals
    vm.world.anchor(namespace)
    return namespace


@special(locals)
def _locals(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    frame = vm.frames[-1]
    if frame.namespace is not None and frame.locals:  # from Python 3.12 on
        raise Break("locals() in a comprehension of a class's body, or of text")
    return variables(vm, frame) if frame.namespace is None else frame.namespace


@special(super)
def _super(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if args:
        return make_super(vm, *args)
    frame = vm.frames[-1]
    code, _ = origin(frame.info.code, frame.at)
    if not code.co_argcount:
        return vm.raise_user(RuntimeError("super(): no arguments"))
    name = code.co_varnames[0]  # what it holds now
    try:
        first = cell_get(vm, frame.cells[name], name) if name in frame.cells else frame.locals[name]
    except (UserRaised, KeyError):
        return vm.raise_user(RuntimeError("super(): arg[0] deleted"))
    if "__class__" not in frame.cells:
        return vm.raise_user(RuntimeError("super(): __class__ cell not found"))
    try:
        cls = cell_get(vm, frame.cells["__class__"], "__class__")
    except UserRaised:
        return vm.raise_user(RuntimeError("super(): empty __class__ cell"))
    return make_super(vm, cls, first)


def make_super(vm: Interpreter, cls: type, obj: Any = None) -> Any:
    """A ``super`` object; of a tensor, one of its class."""
    if not is_stand_in(obj):
        return vm.native(super, cls, obj)
    made = vm.native(super, cls, python_type(vm, obj))
    vm.supers[made] = obj
    return made


# ------------------------------------------------------------------ protocol functions


@special(len)
def _len(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return containers.length(vm, args[0])


@special(iter)
def _iter(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2:
        return vm.native(iter, caller(vm, args[0]) if _callable(vm, args[:1], {}) else args[0], args[1])
    return containers.get_iter(vm, args[0])


@special(next)
def _next(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    try:
        return containers.next_value(vm, args[0])
    except UserRaised as raised:
        if len(args) > 1 and isinstance(raised.value, StopIteration):
            return args[1]
        raise


@special(repr)
def _repr(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return to_text(vm, args[0], "__repr__")


@special(format)
def _format(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return format_value(vm, *args)


def format_value(vm: Interpreter, value: Any, spec: str = "") -> str:
    """``format(value, spec)``, as f-strings do it."""
    value = specialise(value) if type(value) in SYMBOLIC else value
    if type(value) is str and not spec:
        return value
    method = python_method(vm, value, "__format__")
    if method is not None:
        return str(demanded(vm.call(method, value, spec), str, "__format__"))
    if not spec:
        return to_text(vm, value, "__str__")
    if isinstance(value, torch.Tensor):
        raise Break("a tensor is turned into text", "print outside the compiled function")
    return str(vm.native(format, value, spec))


@special(eval)
def _eval(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """``eval(text)``: the names are the caller's. Only comprehensions have fast ones, from Python 3.12 on."""
    caller_frame = vm.frames[-1]
    if kwargs or len(args) != 1 or type(args[0]) is not str or caller_frame.namespace is not None:
        raise Break("eval() runs text as code", "move it out of the compiled function")
    code = vm.native(compile, args[0].lstrip(" \t"), "<string>", "eval")
    if any(i.op.startswith(("STORE_", "DELETE_")) and "_FAST" not in i.op for i in decode(code).instrs):
        raise Break("eval() of text that sets variables", "move it out of the compiled function")
    frame = Frame(decode(code), caller_frame.globals, {}, {}, types.FunctionType(code, caller_frame.globals))
    frame.namespace = _locals(vm, [], {})
    return vm.finish(frame)


@special(collections.namedtuple)
def _namedtuple(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """``collections.namedtuple(typename, field_names, ...)`` of plain values."""
    call_args, call_kwargs = [expose(vm, a) for a in args], {k: expose(vm, v) for k, v in kwargs.items()}
    if not all(map(_is_plain, (*call_args, *call_kwargs.values()))):
        raise Break("collections.namedtuple of more than plain values", "define it at the top of the file")
    if call_kwargs.get("module") is None:  # the caller's, which it would look for on the stack
        call_kwargs["module"] = vm.frames[-1].globals.get("__name__", "__main__")
    return classes.new_class(vm, vm.native(collections.namedtuple, *call_args, **call_kwargs))


def _is_plain(value: Any) -> bool:
    return isinstance(value, ATOMS) or (type(value) in (list, tuple) and all(map(_is_plain, value)))


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
    ("compile", "compiles text"),
):
    special.add(getattr(builtins, _name), _outside_handler(_name, _what))


@special(__import__)
def _import(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return import_name(vm, args[0], args[3] if len(args) > 3 else None, args[4] if len(args) > 4 else 0)


def import_name(vm: Interpreter, name: str, fromlist: Any, level: int) -> Any:
    """``import``: done if the module is loaded already, a break if it must be loaded."""
    vm.hooked("__import__", "import")
    namespace = vm.frames[-1].globals
    package = namespace.get("__package__") or ""
    full = name
    if level:
        base = package.rsplit(".", level - 1)[0] if level > 1 else package
        full = f"{base}.{name}" if name else base
    if full not in sys.modules:
        _load(vm, full)
    elif not (trusted(namespace) and trusted_module(full)):
        _guard_modules(vm, full)
    return vm.native(__import__, name, namespace, None, fromlist, level)


def _guard_modules(vm: Interpreter, name: str) -> None:
    """Guard which module has this name, and those of the packages around it: a program may put others there."""
    modules = vm.world.const(sys).attr("modules")
    record = vm.world.record_of(sys.modules)
    if record is not None and record.dirty:
        raise Break("an import after a write to sys.modules")
    while name:
        if name in sys.modules:
            vm.world.guard(modules.item(name), "is", sys.modules[name])
        else:
            vm.world.guard(modules, "lacks", name)
        name = name.rpartition(".")[0]


def _load(vm: Interpreter, name: str) -> None:
    """Python looks for a module that is nowhere; one that is there runs code of its own, which nobody has seen."""
    top = name.partition(".")[0]
    if top in sys.modules or importlib.util.find_spec(top) is not None:
        raise Break(f"import of {name}, which is not loaded yet", "import it at the top of the file")
    try:
        directive_rules.in_python(vm, importlib.import_module, [name], {})
    except UserRaised as raised:
        missing = getattr(raised.value, "name", None) or ""
        if type(raised.value) is not ModuleNotFoundError or not f"{name}.".startswith(f"{missing}."):
            raise Break(f"import of {name} raises {type(raised.value).__name__}") from None
        vm.world.assumptions.keep_private(f"there is no module {name}")
        vm.world.guard(vm.world.const(sys.modules), "lacks", missing)
        raise


def _dispatched(vm: Interpreter, fn: types.FunctionType, args: Args, kwargs: Kwargs) -> Any:
    """What ``functools.singledispatch`` has for a class: its answer, which is guarded as such."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    record = vm.world.record_of(cells["registry"].cell_contents)
    if len(args) != 1 or not isinstance(args[0], type) or vm.world.is_fresh(args[0]) or (record and record.dirty):
        raise Break("functools.singledispatch of a class, or with a function, that is new")
    found = directive_rules.in_python(vm, fn, args, kwargs)
    return vm.world.wrap(found, vm.world.anchor(fn).source.call(((args[0],), ())))


special.codes[id(functools.singledispatch(lambda value: value).dispatch.__code__)] = _dispatched


@special(sys.exc_info)
def _exc_info(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    error = _exception(vm, args, kwargs)
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


@special(sys.exception)
def _exception(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if vm.handling is None:
        vm.ask_outside()
    return vm.handling


@special(sys.settrace, sys.setprofile)
def _watched(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    raise GiveUp("a trace or profile function is set: what runs is to be seen line by line", plainly=True)


@special(sys._getframe)
def _getframe(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    raise Break("sys._getframe() looks at the stack")


# ------------------------------------------------------------------ object's own methods


@special(object.__new__)
def _object_new(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    cls, *rest = args
    why = refused_class(cls)
    if why:
        raise Break(f"an instance of {cls.__qualname__} is made: {why}")
    if rest or kwargs:  # C code refuses them, unless the class has an ``__init__`` of its own and no ``__new__``
        lookup(vm, cls, "__new__")
        lookup(vm, cls, "__init__")
    return allocate(vm, cls, object.__new__, None, rest, kwargs)


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


@special(typing.cast)
def _cast(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """For type checkers only: the value itself."""
    return kwargs["val"] if "val" in kwargs else args[-1]


@special(InferenceScope.__enter__)
def _enter_inference(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    vm.tracer.enter_scope(args[0])


@special(InferenceScope.__exit__)
def _exit_inference(vm: Interpreter, args: Args, kwargs: Kwargs) -> None:
    vm.tracer.exit_scope(args[0])


@special(torch.get_default_device)
def _default_device(vm: Interpreter, args: Args, kwargs: Kwargs) -> torch.device:
    """That of the program: capture's own modes have none."""
    device = innermost()
    if device.type not in ("cpu", "meta") and ":" not in str(device):
        raise Break("torch.get_default_device() tells the current device", "name the device's number")
    return device


@special(*torch_private.FUNCTION_MODE_CALLS)
def _function_mode(vm: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    """What a mode does at each operation is the program's own Python: nothing is captured within."""
    raise Break("a torch function mode is entered, left or asked for", "use it outside the compiled function")


@special(*torch_private.has_torch_function)
def _has_torch_function(vm: Interpreter, args: Args, kwargs: Kwargs) -> bool:
    """Is there a mode of the program's, or a tensor of a class with rules of its own?"""
    values = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
    for value in values:
        refuse_asking(vm, value)
    if vm.tracer.rules.have_a_say(values):
        return True
    if any(type(v) in STAND_INS and type(v) is not torch_private.FakeTensor for v in values):
        raise Break("a tensor's class may take over a function of torch's")
    if any(hasattr(type(v), "__torch_function__") for v in values if type(v) not in STAND_INS):
        raise Break("an argument's class may take over a function of torch's")
    return False


@special(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)
def _is_compiling(vm: Interpreter, args: Args, kwargs: Kwargs) -> bool:
    """True, but for code that computes otherwise where it is told so.

    nn.Module's call skips its exception handling; optimizers, torch's and others, do their bias correction in the
    step's dtype, so as not to read it.
    """
    reader = str(vm.frames[-1].globals.get("__name__"))
    if reader == torch_private.MODULE_CALL_FILE or optimizers.in_optimizer(vm):
        return False
    return vm.is_compiling()
