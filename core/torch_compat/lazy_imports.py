"""Functions of other packages whose own imports wait until something of what they import is needed.

torch's FakeTensorMode imports all of ``torch._dynamo`` to read three settings; that takes a second. Here a function is
copied: the same code object, with globals in which such a module is a ``_View``. A view answers by the module itself
if anybody has loaded it, by what is known of it otherwise, and imports it for everything else. So a copy does what the
original does, at worst as slowly; nothing outside it changes.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

Known = Mapping[str, Mapping[str, Any]]  # module -> attribute -> its value as long as nobody has loaded the module


def defer_imports(function: Callable[..., Any], modules: Known, names: Mapping[str, Any] | None = None) -> Any:
    """A copy of ``function`` that does not import these modules before it needs something unknown of them.

    Args:
        function: a plain Python function; anything else is returned as it is.
        modules: what is put off.
        names: globals that are something else for the copy.
    """
    if not isinstance(function, FunctionType):
        return function
    scope = {**function.__globals__, **(names or {})}
    scope["__builtins__"] = {**vars(builtins), "__import__": _importer(modules)}
    for root in {module.partition(".")[0] for module in modules}:
        if root in function.__globals__:
            scope[root] = _View(root, modules)
    made = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    return made


def _importer(modules: Known) -> Callable[..., Any]:
    roots = {module.partition(".")[0] for module in modules}

    def late_import(name: str, scope: Any = None, local: Any = None, wanted: Any = (), level: int = 0) -> Any:
        """``import`` as the copy does it."""
        if level or name.partition(".")[0] not in roots:
            return builtins.__import__(name, scope, local, wanted, level)
        if name in modules and name not in sys.modules:
            return _Names(name, modules[name]) if wanted else _View(name.partition(".")[0], modules)
        found = builtins.__import__(name, scope, local, wanted, level)
        return found if wanted else _View(found.__name__, modules)

    return late_import


class _View:
    """A module that is or contains one that is put off."""

    def __init__(self, module: str, modules: Known) -> None:
        self._module = module
        self._modules = modules
        self._known = modules.get(module, {})
        prefix = module + "."
        self._inner = {m[len(prefix) :].partition(".")[0] for m in modules if m.startswith(prefix)}

    def __getattr__(self, name: str) -> Any:
        if name in self._known and self._module not in sys.modules:
            return self._known[name]
        if name in self._inner and f"{self._module}.{name}" not in sys.modules:
            return _View(f"{self._module}.{name}", self._modules)
        # It waits for a thread that is importing it right now.
        return getattr(importlib.import_module(self._module), name)


class _Names:
    """What ``from module import name`` takes names from."""

    def __init__(self, module: str, known: Mapping[str, Any]) -> None:
        self._module = module
        self._known = known

    def __getattr__(self, name: str) -> Any:
        return self._known[name] if name in self._known else _Name(self._module, name)


class _Name:
    """A name of a module that is not loaded. Nothing is an instance of it until the module is."""

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def _real(self) -> Any:
        return getattr(importlib.import_module(self._module), self._name)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._real()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def __instancecheck__(self, instance: object) -> bool:
        return self._module in sys.modules and isinstance(instance, self._real())
