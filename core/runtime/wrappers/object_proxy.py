"""What stands for an original: its attributes and special methods are the original's, its call is compiled."""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any

own = object.__getattribute__  # a proxy's own attribute: any other way to read one leads to the original

FIELDS = frozenset(
    {"_jitney_original", "_jitney_is_compiled", "_jitney_session", "_jitney_root", "_jitney_recompile_reasons",
     "_jitney_call", "_jitney_inner", "_jitney_forward", "_jitney_watched", "_jitney_owner"}
)  # fmt: skip
METHODS = frozenset(
    {"__class__", "__call__", "__get__", "__repr__", "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__",
     "__getattribute__", "__setattr__", "__delattr__", "__dir__"}
)  # fmt: skip
# What belongs to making, keeping and dropping an object, or to its class: a proxy has its own, or nothing to do there.
NOT_FORWARDED = METHODS - {"__get__"} | frozenset(
    {"__new__", "__init__", "__del__", "__getattr__", "__getstate__", "__setstate__", "__getnewargs__",
     "__getnewargs_ex__", "__init_subclass__", "__class_getitem__", "__subclasshook__", "__prepare__", "__post_init__"}
)  # fmt: skip


class ObjectProxy:
    """The base of proxies. ``proxy_class`` makes the class of those for one class of originals."""

    _jitney_original: Any
    _jitney_is_compiled = True

    @staticmethod
    def _jitney_kind() -> type | None:
        """Of a class that ``proxy_class`` has made: that of the originals."""
        return None

    def _jitney_invoke(self, bound: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a method of the original's; one that returns the original returns the proxy."""
        result = bound(*args, **kwargs)
        return self if result is own(self, "_jitney_original") else result

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(own(self, "_jitney_original"))

    def __getattribute__(self, name: str) -> Any:
        if name in METHODS or name in FIELDS:
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_jitney_original"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(own(self, "_jitney_original"), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(own(self, "_jitney_original"), name)

    def __dir__(self) -> list[str]:
        return dir(own(self, "_jitney_original"))

    def __repr__(self) -> str:
        return f"compiled {own(self, '_jitney_original')!r}"


class _Doc:
    """``__doc__`` of a class of proxies: of the originals' class; of a proxy: the original's, past the class, too."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        found = owner._jitney_kind() if instance is None else own(instance, "_jitney_original")
        return None if found is None else found.__doc__

    def __set__(self, instance: Any, value: Any) -> None:
        own(instance, "_jitney_original").__doc__ = value


# By the class of the originals, then the base: both classes die together.
_classes: weakref.WeakKeyDictionary[type, dict[type, Callable[[], type | None]]] = weakref.WeakKeyDictionary()


def proxy_class(base: Any, kind: type) -> Any:
    """The class of proxies for originals of class ``kind``: it has the special methods that ``kind`` has, no others."""
    known = _classes.setdefault(kind, {})
    made = known.get(base, _no_class)()
    if made is None:
        space: dict[str, Any] = {
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__doc__": _Doc(),
        }
        space["_jitney_kind"] = reference = weakref.ref(kind)
        space |= {name: _forwarder(name, found, reference) for name, found in special_methods(kind).items()}
        space["__call__"] = _call_like(base.__call__, kind)
        made = type(base)(kind.__name__, (base,), space)
        known[base] = weakref.ref(made)
    return made


def _no_class() -> type | None:
    return None


def special_methods(kind: type) -> dict[str, Any]:
    """What Python looks up in the class of an object, as it is in the class: by name; None: the class forbids it."""
    found: dict[str, Any] = {}
    for owner in kind.__mro__[:-1]:
        for name, value in vars(owner).items():
            is_special = name[:2] == "__" == name[-2:] and name not in NOT_FORWARDED and name not in found
            if is_special and _is_method(value):
                found[name] = value
    if "__get__" in found and issubclass(kind, types.FunctionType):
        del found["__get__"]  # a function's proxy binds itself
    return found


def _is_method(value: Any) -> bool:
    method = callable(value) or isinstance(value, (staticmethod, classmethod))
    return value is None or (method and not isinstance(value, type))


def _forwarder(name: str, found: Any, kind: Callable[[], Any]) -> Any:
    if found is None:
        return None
    if isinstance(found, (staticmethod, classmethod)):  # asked of the class itself: ``__torch_function__``
        return staticmethod(lambda *args, **kwargs: getattr(kind(), name)(*args, **kwargs))

    def forward(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        original = own(self, "_jitney_original")
        kind = type(original)
        raw = next(vars(c)[name] for c in kind.__mro__ if name in vars(c))
        if name == "__get__" and type(raw) is types.FunctionType:
            return raw(self, *args, **kwargs)  # what it binds is to be compiled
        if type(raw) is not types.FunctionType:  # C code asks for the class that an object really has
            args = tuple(map(original_of_proxy, args))
        bound = raw.__get__(original, kind) if hasattr(type(raw), "__get__") else raw
        return own(self, "_jitney_invoke")(bound, args, kwargs)

    _describe(forward, found)
    forward.__name__ = name
    return forward


def original_of_proxy(value: Any) -> Any:
    """What a proxy stands for; any other value as it is."""
    return own(value, "_jitney_original") if issubclass(type(value), ObjectProxy) else value


def _call_like(call: Any, kind: type) -> types.FunctionType:
    """A proxy's ``__call__``, with the name, the signature and the text of its original's."""
    made = types.FunctionType(call.__code__, call.__globals__, "__call__", call.__defaults__, call.__closure__)
    made.__kwdefaults__ = call.__kwdefaults__
    _describe(made, getattr(kind, "__call__", None))  # noqa: B004
    return made


def _describe(function: Any, original: Any) -> None:
    functools.update_wrapper(function, original, updated=())
    try:
        function.__signature__ = inspect.signature(original)
    except (TypeError, ValueError):  # a C function may have none
        return
