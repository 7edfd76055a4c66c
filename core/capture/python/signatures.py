"""``inspect.signature`` of Python functions, wrapped ones too, and ``getfullargspec``: what they look at is guarded."""

from __future__ import annotations

import ast
import builtins
import inspect
import types
import typing
import weakref
from typing import TYPE_CHECKING, Any

from jitney._util.ownership import trusted
from jitney.capture.directive_rules import in_python
from jitney.capture.interpreter.signals import Break
from jitney.capture.kinds import ATOMS
from jitney.capture.tables import FunctionTable
from jitney.capture.world.world import World

if TYPE_CHECKING:
    from jitney.capture.interpreter.interpreter import Interpreter

special = FunctionTable()

DEEP = 8  # functions around a function
HELD = ("default", "annotation", "return_annotation")  # the program's objects in signatures
HINT = "call it outside the compiled function"
# What annotations that are text may be made of.
NAMED = (ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Constant, ast.BinOp,
         ast.BitOr, ast.expr_context)  # fmt: skip


def _guard(vm: Interpreter, function: types.FunctionType) -> None:
    """Guard the code, the defaults, the annotations, and that no attribute says something else; once."""
    world, source = vm.world, vm.world.const(function)
    known = _guarded.setdefault(world, set())
    if id(function) in known:
        return
    known.add(id(function))
    world.guard(source.attr("__code__"), "is", function.__code__)
    world.guard(source.attr("__defaults__"), "is", function.__defaults__)
    for name in ("__kwdefaults__", "__annotations__"):
        table, at = getattr(function, name), source.attr(name)
        if table is None:
            world.guard(at, "is", None)
            continue
        world.guard(at, "type", dict)
        world.guard(at, "keys", list(table))
        for key, value in table.items():
            world.guard(at.item(key), "equals" if type(value) in ATOMS else "is", value)
    for name in ("__wrapped__", "__signature__"):
        world.guard_disjoint(source.step("dict_of"), name)


_guarded: weakref.WeakKeyDictionary[World, set[int]] = weakref.WeakKeyDictionary()


def _plain(function: types.FunctionType) -> bool:
    """Are the defaults constants, the annotations types or text, and is the function not wrapped?"""
    if "__wrapped__" in vars(function) or "__signature__" in vars(function):
        return False
    named, annotations = function.__kwdefaults__ or {}, function.__annotations__
    if (
        type(named) is not dict
        or type(annotations) is not dict
        or any(type(k) is not str for k in (*named, *annotations))
    ):
        return False
    defaults = (*(function.__defaults__ or ()), *named.values())
    return all(map(World.constant_key, defaults)) and all(map(_is_type, annotations.values()))


def _is_type(value: Any) -> bool:
    plain = (type, str, type(None), types.GenericAlias, types.UnionType)
    return isinstance(value, plain) or type(value).__module__ == "typing"


@special(inspect.signature)
def _signature(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    target = args[0] if args else None
    function = target.__func__ if type(target) is types.MethodType else target
    wrappers, inner = _unwrapped(function)
    if kwargs or len(args) != 1 or type(inner) is not types.FunctionType or not _plain(inner):
        raise Break("inspect.signature of more than a plain function", HINT)
    if any(map(vm.world.is_fresh, wrappers)) or (wrappers and vm.world.is_fresh(inner)):
        raise Break("inspect.signature of a function that the frame has wrapped", HINT)
    if not vm.world.is_fresh(inner):
        source = vm.world.anchor(function).source
        if not source.is_const:
            vm.world.guard(source, "is", function)
        for wrapper in wrappers:
            outside = vm.world.const(wrapper)
            vm.world.guard(outside.attr("__wrapped__"), "is", wrapper.__wrapped__)
            vm.world.guard_disjoint(outside.step("dict_of"), "__signature__")
        _guard(vm, inner)
    return vm.native(inspect.signature, target)


def _guard_itself(vm: Interpreter, function: types.FunctionType) -> None:
    """Guard which function it is, if it is from outside, and what its signature is made of."""
    if not vm.world.is_fresh(function):
        source = vm.world.anchor(function).source
        if not source.is_const:
            vm.world.guard(source, "is", function)
        _guard(vm, function)


@special(inspect.getfullargspec)
def _full_arg_spec(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """It looks at the function itself, whatever that wraps, and gives new lists."""
    target = args[0] if args else None
    function = target.__func__ if type(target) is types.MethodType else target
    if kwargs or len(args) != 1 or type(function) is not types.FunctionType or not _plain(function):
        raise Break("inspect.getfullargspec of more than a plain function", HINT)
    _guard_itself(vm, function)
    return vm.native(inspect.getfullargspec, target)


@special(typing.get_type_hints)
def _type_hints(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Of a plain function, whose annotations may be text: what the names in that stand for is guarded."""
    function = args[0] if args else None
    if isinstance(function, type) and len(args) == 1 and not kwargs:
        return vm.native(typing.get_type_hints, function)
    if kwargs or len(args) != 1 or type(function) is not types.FunctionType or not _plain(function):
        raise Break("typing.get_type_hints of more than a plain function or a class", HINT)
    _guard_itself(vm, function)
    for text in filter(lambda value: type(value) is str, function.__annotations__.values()):
        _guard_names(vm, function, text)
    return vm.world.mark_fresh(in_python(vm, typing.get_type_hints, [function], {}))


def _guard_names(vm: Interpreter, function: types.FunctionType, text: str) -> None:
    """Guard what the names in an annotation stand for: classes, what ``typing`` makes, modules that nobody changes."""
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except SyntaxError:
        raise Break("typing.get_type_hints of annotations that are no expressions", HINT) from None
    if not all(isinstance(node, NAMED) for node in nodes):
        raise Break(f"typing.get_type_hints of the annotation {text!r}", HINT)
    space = vm.world.anchor(function.__globals__).source
    for name in (node.id for node in nodes if isinstance(node, ast.Name)):
        if name not in function.__globals__:
            if not isinstance(getattr(builtins, name, None), type):
                raise Break(f"typing.get_type_hints of an annotation with the name {name}", HINT)
            vm.world.guard_disjoint(space, name)
            continue
        value = function.__globals__[name]
        if not (trusted(value) if isinstance(value, types.ModuleType) else _is_type(value)):
            raise Break(f"typing.get_type_hints of an annotation with the name {name}", HINT)
        vm.world.guard(space.item(name), "is", value)


def _unwrapped(function: Any) -> tuple[list[Any], Any]:
    """The plain functions around a function, by ``functools.wraps``, outermost first, and that function."""
    wrappers: list[Any] = []
    while type(function) is types.FunctionType and "__wrapped__" in vars(function) and len(wrappers) < DEEP:
        if "__signature__" in vars(function):
            break
        wrappers.append(function)
        function = vars(function)["__wrapped__"]
    return wrappers, function


def _known(vm: Interpreter, owner: Any) -> bool:
    """Is it a signature or a parameter? These never change, so one from outside is guarded to be that object."""
    if type(owner) not in (inspect.Signature, inspect.Parameter):
        return False
    if vm.world.record_of(owner) is not None:
        source = vm.world.anchor(owner).source
        if not source.is_const:
            vm.world.guard(source, "is", owner)
    return True


def _reader(name: str) -> Any:
    """Reads a property of a signature."""

    def read(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
        (owner,) = args
        if not _known(vm, owner):
            raise Break(f"{type(owner).__qualname__}.{name} of an object from outside", HINT)
        value = vm.native(getattr, owner, name)
        if name in HELD and not World.constant_key(value) and not _is_type(value):
            raise Break(f"{type(owner).__qualname__}.{name} is a {type(value).__qualname__}", HINT)
        return value

    return read


for _cls in (inspect.Signature, inspect.Parameter):
    for _name, _entry in vars(_cls).items():
        if isinstance(_entry, property):
            special.add(_entry.fget, _reader(_name))


def _is_plain(value: Any) -> bool:
    """Is its text the same in every process?"""
    parts = value if type(value) is tuple else (value,)
    return all(type(v) in ATOMS or v is inspect.Parameter.empty for v in parts)


def _text(name: str, cls: Any) -> Any:
    """The text of a signature or parameter whose defaults are constants, and whose annotations are such, or classes."""

    def text(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
        (owner,) = args
        if not _known(vm, owner):
            raise Break(f"{cls.__qualname__}.{name} of an object from outside", HINT)
        parameters = [owner] if cls is inspect.Parameter else owner.parameters.values()
        defaults = [p.default for p in parameters]
        annotations = [p.annotation for p in parameters]
        if cls is inspect.Signature:
            annotations.append(owner.return_annotation)
        if not all(map(_is_plain, defaults)) or not all(_is_plain(a) or _is_type(a) for a in annotations):
            raise Break(f"{cls.__qualname__}.{name} shows objects", HINT)
        return vm.native(getattr(cls, name), owner)

    return text


for _cls in (inspect.Signature, inspect.Parameter):
    for _name in ("__str__", "__repr__"):
        special(getattr(_cls, _name))(_text(_name, _cls))


@special(type(inspect.Parameter.VAR_KEYWORD).__str__)
def _kind_text(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return vm.native(type(inspect.Parameter.VAR_KEYWORD).__str__, *args)


# ------------------------------------------------------------------ binding


def _own(vm: Interpreter, owner: Any, cls: type, name: str) -> None:
    """Refuse an object that capture has not made: its parts would need guards."""
    if type(owner) is not cls or vm.world.record_of(owner) is not None:
        raise Break(f"{cls.__qualname__}.{name} of an object from outside", HINT)


def _binder(name: str) -> Any:
    """``bind`` and ``bind_partial`` put values into a dictionary by the names of parameters, and look into none."""

    def bind(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not args or type(args[0]) is not inspect.Signature or not _known(vm, args[0]):
            raise Break(f"Signature.{name} of an object from outside", HINT)
        bound = vm.world.mark_fresh(vm.native(getattr(inspect.Signature, name), *args, **kwargs))
        _mark_parts(vm, bound)
        return bound

    return bind


def _mark_parts(vm: Interpreter, bound: inspect.BoundArguments) -> None:
    vm.world.mark_fresh(bound.arguments)
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and name in bound.arguments:
            vm.world.mark_fresh(bound.arguments[name])


for _name in ("bind", "bind_partial"):
    special(getattr(inspect.Signature, _name))(_binder(_name))


@special(inspect.BoundArguments.apply_defaults)
def _apply_defaults(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> None:
    (bound,) = args
    _own(vm, bound, inspect.BoundArguments, "apply_defaults")
    given = bound.arguments
    defaults = [p.default for name, p in bound.signature.parameters.items() if name not in given]
    if not all(map(World.constant_key, defaults)):
        raise Break("BoundArguments.apply_defaults with defaults that are no constants", HINT)
    vm.native(inspect.BoundArguments.apply_defaults, bound)
    vm.world.mark_fresh(bound.arguments)
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and name not in given:
            vm.world.mark_fresh(bound.arguments[name])


def _part(name: str) -> Any:
    """``args`` and ``kwargs`` are made anew of what is bound."""

    def read(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
        (bound,) = args
        _own(vm, bound, inspect.BoundArguments, name)
        if type(bound.arguments) is not dict or vm.world.record_of(bound.arguments) is not None:
            raise Break(f"BoundArguments.{name} with arguments from outside", HINT)
        for key, parameter in bound.signature.parameters.items():  # these are iterated over, and the program may write
            value = bound.arguments.get(key)
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL and type(value) not in (tuple, type(None)):
                raise Break(f"BoundArguments.{name} where {key!r} is a {type(value).__qualname__}", HINT)
            if parameter.kind is inspect.Parameter.VAR_KEYWORD and value is not None:
                if type(value) is not dict or vm.world.record_of(value) is not None:
                    raise Break(f"BoundArguments.{name} where {key!r} is from outside", HINT)
        made = vm.native(getattr, bound, name)
        return vm.world.mark_fresh(made) if type(made) is dict else made

    return read


for _name in ("args", "kwargs"):
    special.add(vars(inspect.BoundArguments)[_name].fget, _part(_name))


@special(vars(inspect.BoundArguments)["signature"].fget)
def _bound_signature(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    _own(vm, args[0], inspect.BoundArguments, "signature")
    return vm.native(getattr, args[0], "signature")
