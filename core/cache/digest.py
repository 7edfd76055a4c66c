"""Is it what it was? Short texts that are equal in two processes if functions, classes and values are the same there.

Of what is torch's or the standard library's, whose versions are part of every key, where it is defined is enough, and
tells also whether somebody has put another function in its place. Of the rest, code counts.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import sys
import types
from typing import Any

import torch

from jitney._util.code_cache import cached_by_code
from jitney._util.ownership import place_of, trusted, trusted_module

ATOMS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
BY_REPR = (torch.dtype, torch.layout, torch.memory_format, torch.device, torch.Size, range)
C_FUNCTIONS = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
)
_LRU = type(functools.lru_cache(lambda: None))
IMMUTABLE = 1 << 8  # Py_TPFLAGSIMMUTABLETYPE: nobody can give such a class attributes
# Flags that say what a class is; the others are notes of the interpreter's.
_FLAGS = 1 << 5 | 1 << 6 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 20 | 0xFF << 24
# Entries of a class that differ from process to process, or that only people read.
_LEFT_OUT = {"__doc__", "__firstlineno__", "__static_attributes__"}


class NotStorable(Exception):
    """Something cannot be kept for another process; the text says what."""


def digest(*parts: object) -> str:
    """40 hexadecimal digits of the parts' texts."""
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


@cached_by_code(maxsize=16384)
def of_code(code: types.CodeType) -> str:
    """Of what a code object does: not of its file and lines."""
    return digest(
        code.co_code, tuple(map(_constant, code.co_consts)), code.co_names, code.co_varnames, code.co_freevars,
        code.co_cellvars, code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
        code.co_exceptiontable, code.co_qualname,
    )  # fmt: skip


def _constant(value: Any) -> object:
    if isinstance(value, types.CodeType):
        return of_code(value)
    if isinstance(value, frozenset):  # its order differs from process to process
        return "frozenset", sorted(map(repr, map(_constant, value)))
    return tuple(map(_constant, value)) if isinstance(value, tuple) else value


class Fingerprints:
    """The fingerprints of one moment; each object is looked at once."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._kept: list[Any] = []

    def of(self, value: Any) -> str:
        """The text for a value.

        Raises:
            NotStorable: nobody can tell whether it is the same in another process.
        """
        found = self._known.get(id(value))
        if found is None:
            found = self._known[id(value)] = self._made(value)
            self._kept.append(value)
        return found

    def has(self, value: Any) -> bool:
        """Is the object, or something that it is a part of, among those that were looked at?"""
        return id(value) in self._known

    def _made(self, value: Any) -> str:
        kind = type(value)
        if kind in ATOMS or kind in BY_REPR:
            return f"{kind.__name__} {value!r}"
        if kind is tuple:
            return f"({', '.join(map(self.of, value))})"
        if kind is types.FunctionType:
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        if kind is types.CodeType:
            return of_code(value)
        if isinstance(value, types.ModuleType):
            return f"module {value.__name__}"
        if isinstance(value, enum.Enum):
            return f"{self.of(kind)} {value.name} {self.of(value.value)}"
        if kind in C_FUNCTIONS:
            return self._c_function(value)
        return self._wrapper(value, kind)

    def _wrapper(self, value: Any, kind: type) -> str:
        if kind in (staticmethod, classmethod):
            return f"{kind.__name__} {self.of(value.__func__)}"
        if kind is property:
            return f"property {[self.of(f) for f in (value.fget, value.fset, value.fdel)]}"
        if kind is functools.cached_property:
            return f"cached {self.of(value.func)}"
        if kind is _LRU:
            return f"lru_cache {self.of(value.__wrapped__)}"
        if kind is types.CellType:  # what is in it is a matter of its own
            return "cell"
        raise NotStorable(f"a {kind.__module__}.{kind.__qualname__}")

    @staticmethod
    def _c_function(value: Any) -> str:
        owner = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
        if type(owner).__module__ == "pybind11_builtins" and _is_in_trusted_module(value):
            return f"{type(value).__name__} {value.__module__} {value.__name__}"  # the rest says how it was built
        if owner is not None and not isinstance(owner, (type, types.ModuleType)):
            raise NotStorable(f"the method {value.__qualname__} of a {type(owner).__qualname__}")
        return f"{type(value).__name__} {getattr(value, '__module__', '')} {_name(owner)} {value.__qualname__}"

    def _function(self, fn: types.FunctionType) -> str:
        space, code = fn.__globals__, fn.__code__
        module = str(space.get("__name__", ""))
        given = [self._given(value) for value in (fn.__defaults__ or (), *(fn.__kwdefaults__ or {}).items())]
        if trusted(fn) and code.co_filename[:1] != "<":  # nobody knows what made a function from text
            return f"function {module} {code.co_qualname} {place_of(code.co_filename)}:{code.co_firstlineno} {given}"
        own = space is getattr(sys.modules.get(module), "__dict__", None)
        return f"function {module} {own} {sorted(fn.__dict__)} {given} {_annotations(fn)} {of_code(code)}"

    def _given(self, value: Any) -> str:
        """Of a default value: what can be said of it."""
        if type(value) is tuple:
            return str([self._given(item) for item in value])
        try:
            return self.of(value)
        except NotStorable:
            return f"a {_name(type(value))}"

    def _class(self, cls: type) -> str:
        if trusted(cls) or cls.__flags__ & IMMUTABLE:
            return f"class {_name(cls)}"
        self._known[id(cls)] = f"class {_name(cls)}"  # should it lead back to itself
        parts: list[object] = [_name(cls), cls.__name__, self.of(type(cls)), cls.__flags__ & _FLAGS, _annotations(cls)]
        parts += [[self.of(base) for base in cls.__mro__[1:]], list(map(_name, cls.__bases__))]
        if issubclass(cls, enum.Enum):
            parts.append([(name, self._given(member.value)) for name, member in cls.__members__.items()])
        for name, value in sorted(vars(cls).items()):
            parts.append((name, "" if name in _LEFT_OUT else self._member(name, value)))
        return f"class {_name(cls)} {digest(*parts)}"

    def _member(self, name: str, value: Any) -> str:
        """Of an entry of a class: code by what it does. Data is guarded where it was read, and may change."""
        kind = type(value)
        if kind in ATOMS:
            return repr(value) if name.startswith("__") else kind.__name__
        if isinstance(value, type):
            return _name(value)
        if kind in (types.FunctionType, staticmethod, classmethod, property, functools.cached_property, tuple):
            try:
                return self.of(value)
            except NotStorable:
                return kind.__qualname__
        return f"{kind.__module__}.{kind.__qualname__}"


def _is_in_trusted_module(value: Any) -> bool:
    """Is a C function what its module has under its name, and is that module torch's?"""
    module = getattr(value, "__module__", None)
    if not isinstance(module, str) or not trusted_module(module):
        return False
    return getattr(sys.modules.get(module), value.__name__, None) is value


def _annotations(owner: Any) -> list[tuple[str, str]]:
    """What a class or function says of its fields or parameters, in order: ``dataclasses`` and ``typing`` read it."""
    held = owner.__annotations__ if isinstance(owner, types.FunctionType) else vars(owner).get("__annotations__")
    return [(str(name), _text(value)) for name, value in held.items()] if isinstance(held, dict) else []


def _text(value: Any) -> str:
    """Of an annotation: of classes and of what consists of them all that there is, of other objects their class."""
    if isinstance(value, type):
        return _name(value)
    if type(value) in ATOMS:
        return repr(value)
    parts = value if isinstance(value, (tuple, list)) else getattr(value, "__args__", ())
    inner = [_text(part) for part in parts] if isinstance(parts, (tuple, list)) else []
    return f"{_name(type(value))} {_name(getattr(value, '__origin__', None))} {getattr(value, '__name__', '')} {inner}"


def _name(owner: Any) -> str:
    if isinstance(owner, types.ModuleType):
        return owner.__name__
    return f"{getattr(owner, '__module__', '')}.{getattr(owner, '__qualname__', '')}"
