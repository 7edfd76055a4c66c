"""Whose functions and classes are taken as they are: nobody replaces them while a program runs.

torch's, the standard library's and jitney's are. Where code lies tells, not its name: a module of the user's may be
called ``wave``, a function may say (``functools.wraps``) that it is torch's.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import sysconfig
import types
from typing import Any

import torch
import typing_extensions

from jitney._util.distributions import SIBLINGS, own_folders

OWN_PACKAGES = {"torch", "jitney", "contextlib", *SIBLINGS}
IMMUTABLE, HEAP = 1 << 8, 1 << 9  # Py_TPFLAGS of a class that nobody can change, and of one that Python may have made


def _folders() -> tuple[str, ...]:
    """The folders of torch, of jitney and of the standard library, each ending in a separator; inner ones first."""
    found = [os.path.dirname(torch.__file__), os.path.dirname(os.__file__), *own_folders()]
    found += [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    both = {folder for name in found for folder in (os.path.abspath(name), os.path.realpath(name))}
    return tuple(sorted((os.path.normcase(folder) + os.sep for folder in both), key=len, reverse=True))


FOLDERS = _folders()
_TORCHS_DECORATORS = os.path.normcase(typing_extensions.__file__)  # many functions of torch are "deprecated"
# Packages that others have installed lie within the standard library's folder, mostly; its tests are programs.
_NOT_OURS = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages", "test"))


@functools.lru_cache(maxsize=16384)
def trusted_file(name: str) -> bool:
    """Does a file of Python code (``co_filename``, ``__file__``) belong to torch, jitney or the standard library?"""
    if name.startswith("<frozen "):
        return name[8:-1].partition(".")[0] in sys.stdlib_module_names
    name = os.path.normcase(name)
    if name == _TORCHS_DECORATORS:
        return True
    for folder in FOLDERS:
        if name.startswith(folder):
            return not any(part in name[len(folder) - 1 :] for part in _NOT_OURS)
    return False


def place_of(name: str) -> str:
    """A trusted file's place within its folder: the same on every machine, wherever that folder is."""
    normal = os.path.normcase(name)
    folder = next((folder for folder in FOLDERS if normal.startswith(folder)), "")
    return normal[len(folder) :].replace(os.sep, "/") if folder else os.path.basename(name)


@functools.lru_cache(maxsize=4096)
def _claims(name: str) -> bool:
    """Is it the name of a module of torch's, jitney's or the standard library?"""
    root = name.partition(".")[0]
    return root in OWN_PACKAGES or (root in sys.stdlib_module_names and root != "__main__")


_modules: dict[str, tuple[Any, bool]] = {}  # by name: the module that was looked at, and what came of it


def trusted_module(name: str) -> bool:
    """Is the module of this name torch's, jitney's or the standard library's, whose functions nobody replaces?"""
    if not _claims(name):
        return False
    module = sys.modules.get(name)
    known = _modules.get(name)
    if known is None or known[0] is not module or module is None:
        known = _modules[name] = (module, _lies_well(module, name))
    return known[1]


def _lies_well(module: Any, name: str) -> bool:
    """Does a module lie where one of its name should?"""
    if module is None:
        return _would_lie_well(name)
    space = getattr(module, "__dict__", {})
    file = space.get("__file__")
    if isinstance(file, str) and os.path.isabs(file):
        return trusted_file(file)
    spec = space.get("__spec__")
    if getattr(spec, "origin", None) in ("built-in", "frozen"):
        return name in sys.builtin_module_names or trusted_file(f"<frozen {name}>")
    if type(module) is not types.ModuleType:  # torch.ops, torch.backends.cudnn: instances of classes of torch's
        return any(map(_written_by_trusted, type(module).__mro__))
    return name.startswith("torch._C.") and trusted_module("torch._C")  # made by C code, without a file


def _would_lie_well(name: str) -> bool:
    """The same of a module that is not imported."""
    root, _, rest = name.partition(".")
    if rest:
        return trusted_module(root)
    try:
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError):
        return False
    origin = getattr(spec, "origin", None)
    return origin in ("built-in", "frozen") or (isinstance(origin, str) and trusted_file(origin))


def trusted(owner: Any) -> bool:
    """Does this module, class, function or globals dictionary belong to a trusted module?"""
    if isinstance(owner, type):
        return _trusted_class(owner)
    if isinstance(owner, dict):
        return _trusted_space(owner)
    if isinstance(owner, types.FunctionType):
        return trusted_function(owner)
    if isinstance(owner, types.ModuleType):
        name = getattr(owner, "__name__", "")
        if sys.modules.get(name) is owner:
            return trusted_module(name)
        return _claims(name) and _lies_well(owner, name)
    name = getattr(owner, "__module__", "")
    return isinstance(name, str) and trusted_module(name)


def trusted_code(code: types.CodeType) -> bool:
    """Was this code written by torch, jitney or the standard library?"""
    return trusted_file(code.co_filename)


def trusted_function(function: types.FunctionType) -> bool:
    """The same of a function; what was made from text belongs to the module for which it was made."""
    name = function.__code__.co_filename
    return trusted_file(name) or (name[:1] == "<" and _trusted_space(function.__globals__))


def _trusted_space(space: dict[str, Any]) -> bool:
    name = space.get("__name__")
    if not isinstance(name, str) or not _claims(name):
        return False
    module = sys.modules.get(name)
    if getattr(module, "__dict__", None) is space:
        return trusted_module(name)
    file = space.get("__file__")  # an instance stands for the module, such as that of torch.backends.cudnn
    return isinstance(file, str) and trusted_file(file)


_classes: dict[int, type] = {}  # those found by their names in trusted modules, which stay as long as the process


def _trusted_class(cls: type) -> bool:
    if _classes.get(id(cls)) is cls:
        return True
    name = cls.__module__
    if type(name) is not str or not trusted_module(name):
        return False
    if not cls.__flags__ & HEAP or cls.__flags__ & IMMUTABLE or type(cls).__module__ == "pybind11_builtins":
        _classes[id(cls)] = cls  # no class statement has made it
        return True
    found: Any = sys.modules.get(name)
    for part in cls.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    if found is cls:
        _classes[id(cls)] = cls
        return True
    return _written_by_trusted(cls)  # a function has made it, or it was renamed


def _written_by_trusted(cls: type) -> bool:
    functions = [v for v in vars(cls).values() if type(v) is types.FunctionType]
    return bool(functions) and all(trusted_code(f.__code__) for f in functions)
