"""``inspect.signature`` of plain Python functions: all that it looks at is guarded by one check."""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

from jitney.capture.signals import Break
from jitney.capture.special import SPECIAL, special
from jitney.capture.world import ATOMS
from jitney.guards.guard import same

if TYPE_CHECKING:
    from jitney.capture.interpreter import Interpreter

HINT = "call it outside the compiled function"


class SameSignature:
    """Has a function the code, defaults and annotations that it had? A guard asks."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self.facts = _facts(function)
        self.__qualname__ = f"the signature of {function.__qualname__} is the same"

    def __call__(self) -> bool:
        """Compare what the function has now."""
        code, defaults, named, annotations = _facts(self.function)
        known_code, known_defaults, known_named, known_annotations = self.facts
        return (
            code is known_code
            and same(defaults, known_defaults)
            and same(named, known_named)
            and len(annotations) == len(known_annotations)
            and all(a is b for a, b in zip(annotations, known_annotations, strict=True))
            and _plain(self.function)
        )


def _facts(function: types.FunctionType) -> tuple[Any, ...]:
    """The code, the defaults, those by keyword, and the annotations with their names."""
    named, annotations = function.__kwdefaults__ or {}, function.__annotations__
    return (
        function.__code__,
        function.__defaults__ or (),
        tuple(part for pair in named.items() for part in pair),
        tuple(part for pair in annotations.items() for part in pair),
    )


def _plain(function: types.FunctionType) -> bool:
    """Are the defaults plain values, the annotations types or text, and is the function not wrapped?"""
    if "__wrapped__" in vars(function) or "__signature__" in vars(function):
        return False
    _, defaults, named, annotations = _facts(function)
    return all(type(v) in ATOMS for v in (*defaults, *named)) and all(map(_is_type, annotations))


def _is_type(value: Any) -> bool:
    plain = (type, str, type(None), types.GenericAlias, types.UnionType)
    return isinstance(value, plain) or type(value).__module__ == "typing"


@special(inspect.signature)
def _signature(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
    target = args[0] if args else None
    function = target.__func__ if type(target) is types.MethodType else target
    if kwargs or len(args) != 1 or type(function) is not types.FunctionType or not _plain(function):
        raise Break("inspect.signature of more than a plain function", HINT)
    if not vm.world.is_fresh(function):
        source = vm.world.anchor(function).source
        if not source.is_const:
            vm.world.guard(source, "is", function)
        vm.world.guard(vm.world.const(SameSignature(function)), "true", "{v}()")
    return vm.native(inspect.signature, target)


def _reader(name: str) -> Any:
    """Reads a property of a signature that capture has made: it never changes."""

    def read(vm: Interpreter, args: list[Any], kwargs: dict[str, Any]) -> Any:
        (owner,) = args
        if vm.world.record_of(owner) is not None or type(owner) not in (inspect.Signature, inspect.Parameter):
            raise Break(f"{type(owner).__qualname__}.{name} of an object from outside", HINT)
        return vm.native(getattr, owner, name)

    return read


for _cls in (inspect.Signature, inspect.Parameter):
    for _name, _entry in vars(_cls).items():
        if isinstance(_entry, property):
            SPECIAL[id(_entry.fget)] = _reader(_name)
