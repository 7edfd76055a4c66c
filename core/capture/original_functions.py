"""Whose code is it? Programs put functions of their own in the place of torch's and Python's, under the same names."""

from __future__ import annotations

import builtins
import collections
import copy
import dis
import functools
import inspect
import itertools
import math
import operator
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from jitney._util.ownership import trusted, trusted_function
from jitney.capture.interpreter.code import decode
from jitney.capture.interpreter.signals import Break
from jitney.torch_compat import torch_private

# ------------------------------------------------------------------ whose function is it?


def home(fn: types.FunctionType) -> str:
    """The module whose names a Python function reads: where it was written, whatever its ``__module__`` says."""
    return str(fn.__globals__.get("__name__") or "")


def is_own(value: Any) -> bool:
    """Is this torch's or the standard library's own? A function that wraps a user's is not, whatever its name."""
    if isinstance(value, types.MethodType):
        value = value.__func__
    if hasattr(type(value), "_jitney_is_compiled"):
        return False
    while isinstance(value, types.FunctionType):
        if home(value).partition(".")[0] == "jitney":
            return False
        if not trusted_function(value):
            return False
        value = value.__dict__.get("__wrapped__")
    if isinstance(value, functools.partial):
        return is_own(value.func)
    if isinstance(value, type):
        return trusted(value)
    return trusted(type(value))


def is_known(fn: Any) -> bool:
    """Is it torch's, the standard library's or ours?"""
    return is_own(fn) or (isinstance(fn, types.FunctionType) and home(fn).partition(".")[0] == "jitney")


@functools.cache
def written_in_python(fn: Any) -> types.FunctionType | None:
    """What the standard library has written in Python for where there is none of this C function of its own."""
    module: Any = sys.modules.get(str(getattr(fn, "__module__", None)).removeprefix("_"))
    if module is None or not trusted(module) or vars(module).get(fn.__name__) is not fn:
        return None  # a module that calls the C function is another matter
    loader: Any = getattr(module.__spec__, "loader", None)
    code = loader.get_code(module.__name__) if hasattr(loader, "get_code") else None
    constants = code.co_consts if code is not None else ()
    found = next((c for c in constants if isinstance(c, types.CodeType) and c.co_name == fn.__name__), None)
    if found is None or found.co_freevars:
        return None
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:  # nobody says which defaults it has
        return None
    made = types.FunctionType(found, vars(module), fn.__name__)
    given = {p.name: p.default for p in parameters if p.default is not p.empty}
    named = found.co_varnames[found.co_argcount : found.co_argcount + found.co_kwonlyargcount]
    made.__kwdefaults__ = {name: given[name] for name in named if name in given}
    made.__defaults__ = tuple(value for name, value in given.items() if name not in named)
    return made


# ------------------------------------------------------------------ what torch's functions call by name

# What such functions call before they begin: whether a torch function mode or a tensor's class takes over.
PRELUDE = ("has_torch_function", "handle_torch_function")
# Modules whose functions are looked into for what they call in turn.
CALLERS = ("torch.nn.functional", "torch.functional", "torch._tensor", "torch._jit_internal")
NO_CODE = (type(None), bool, int, float, str, tuple, list, dict, torch.dtype, torch.device)


@functools.lru_cache(maxsize=1024)
def callees(fn: types.FunctionType) -> tuple[tuple[Any, str], ...]:
    """What a function of torch calls by name, itself or through others: (its owner, its name).

    An owner is a module, or ``torch.Tensor`` for every attribute of something that is no module.
    """
    found: dict[tuple[int, str], tuple[Any, str]] = {}
    seen: set[types.CodeType] = set()
    todo: list[Any] = [fn]
    while todo:
        at = todo.pop()
        if not isinstance(at, types.FunctionType) or at.__code__ in seen or not home(at).startswith(CALLERS):
            continue
        seen.add(at.__code__)
        todo += [cell.cell_contents for cell in at.__closure__ or () if not _is_empty(cell)]
        for owner, name in _reads(at.__code__, sys.modules.get(home(at))):
            value = named(owner, name)
            if callable(value) and not isinstance(value, NO_CODE) and not name.startswith(PRELUDE):
                found[id(owner), name] = (owner, name)
                todo.append(value)
    return tuple(found.values())


def _reads(code: types.CodeType, module: types.ModuleType | None) -> Iterator[tuple[Any, str]]:
    """The globals of a code object and the attributes that it reads: (owner, name)."""
    value: Any = None
    for instr in decode(code).instrs:
        if instr.op == "LOAD_GLOBAL" and module is not None:
            owner: Any = module
        elif instr.op in ("LOAD_ATTR", "LOAD_METHOD"):
            owner = value if isinstance(value, types.ModuleType) else torch.Tensor
        else:
            value = None
            continue
        yield owner, instr.argval
        value = named(owner, instr.argval)
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _reads(part, module)


def named(owner: Any, name: str) -> Any:
    """What a module (its ``__getattr__`` may import) or class has under a name; None if nothing."""
    return vars(owner).get(name) if isinstance(owner, types.ModuleType) else getattr(owner, name, None)


def _is_empty(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is None
    except ValueError:
        return True


def is_disturbed(fn: types.FunctionType) -> bool:
    """Is the name of this function of torch, or of one that it calls, another function now? Then it is looked into."""
    module = sys.modules.get(fn.__module__ or "")
    if vars(module).get(fn.__name__, fn) is not fn if module is not None else False:
        return True
    return any(not is_own(named(owner, name)) for owner, name in callees(fn))


# ------------------------------------------------------------------ targets of graphs


def path_of(target: Any) -> str | None:
    """The path by which FX's generated code calls a target, ``torch.nn.functional.relu``; None if it calls the object.

    Raises:
        LookupError: FX finds no name for it, since its name is another function now.
    """
    if isinstance(target, torch_private.OPERATOR_CLASSES):
        return None
    if isinstance(target, types.FunctionType) and not is_own(target) and target.__module__ != home(target):
        raise LookupError(f"{target.__qualname__} says that it is of {target.__module__}")
    if target is getattr:
        return "builtins.getattr"
    try:
        if torch_private.is_from_torch(target):
            return torch_private.qualified_name(target)
        if getattr(target, "__module__", None) is None:
            torch_private.qualified_name(target)  # a C function: FX knows it by the name that torch has for it, or not
    except RuntimeError as error:
        raise LookupError(str(error)) from None
    return None


def at_path(path: str) -> Any:
    """What generated code finds at a path now; None if there is nothing."""
    root, *names = path.split(".")
    value: Any = builtins if root == "builtins" else torch
    for name in names:
        value = getattr(value, name, None)
    return value


def pinned(target: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls this very object, for a graph: FX would call what has the object's name now."""
    found = _pinned.get(id(target))
    if found is None:

        def found(*args: Any, **kwargs: Any) -> Any:
            return target(*args, **kwargs)

        found.__name__ = found.__qualname__ = f"original_{target.__name__}"
        found.__dict__["target"] = target  # keeps it alive, so its id stays its own
        _pinned[id(target)] = found
    return found


_pinned: dict[int, Callable[..., Any]] = {}


# ------------------------------------------------------------------ methods of tensors

_METHODS = {name: value for name, value in vars(torch.Tensor).items() if is_own(value)}
# What only shows a tensor or copies it: capture breaks there in any case.
_SHOWING = {"__repr__", "__str__", "__format__", "__deepcopy__", "__reduce_ex__", "__dir__", "__init_subclass__"}


def behind(fn: Any) -> Any:
    """The method of tensors that runs when torch says that it is ``fn``, which the program has put under its name.

    Raises:
        Break: nobody knows.
    """
    for name, value in vars(torch.Tensor).items():
        original = getattr(torch_private.TensorBase, name, None)
        if value is fn and original is not None:
            return original
    name = getattr(fn, "__qualname__", type(fn).__qualname__)
    raise Break(f"{name} is in the place of a function of torch's", "it runs as in eager")


# What capture and torch's stand-ins ask of tensors themselves.
_ASKED = {
    "size", "stride", "dim", "ndimension", "numel", "nelement", "storage_offset", "is_contiguous", "untyped_storage",
    "element_size", "is_floating_point", "is_complex", "is_conj", "is_neg", "is_inference", "shape", "ndim", "dtype",
    "device", "layout", "requires_grad", "requires_grad_", "grad", "grad_fn", "is_leaf", "is_quantized", "is_nested",
    "is_sparse", "data", "detach", "clone", "as_strided", "view_as", "_version", "_base", "_is_view",
    "_has_symbolic_sizes_strides",
}  # fmt: skip


def replaced_methods() -> Iterator[tuple[str, Any]]:
    """The methods of ``torch.Tensor`` that are not torch's any more, and what is in their place."""
    for name, value in vars(torch.Tensor).items():
        if value is not _METHODS.get(name) and value is not getattr(torch_private.TensorBase, name, None):
            if (name in _METHODS or hasattr(torch_private.TensorBase, name)) and name not in _SHOWING:
                yield name, value
    for name in _METHODS:
        if name not in vars(torch.Tensor):
            yield name, None


def _dunders(text: str) -> tuple[str, ...]:
    return tuple(f"__{name}__" for name in text.split())


BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
# What Python looks for in the class of an operand, by the function that does the same.
PROTOCOLS: dict[int, tuple[str, ...]] = {
    id(getattr(operator, f"__{name}__")): _dunders(f"{name} r{name}") for name in BINARY
}
PROTOCOLS |= {id(getattr(operator, f"__i{name}__")): _dunders(f"i{name} {name} r{name}") for name in BINARY}
PROTOCOLS |= {
    id(getattr(operator, name)): _dunders(f"{name} {mirror}")
    for name, mirror in (("lt", "gt"), ("le", "ge"), ("eq", "eq"), ("ne", "ne"), ("gt", "lt"), ("ge", "le"))
}
PROTOCOLS |= {
    id(getattr(operator, f"__{name}__")): _dunders(name)
    for name in "neg pos invert abs getitem setitem delitem contains index".split()
}
PROTOCOLS |= {
    id(function): _dunders(names)
    for function, names in (
        (abs, "abs"), (len, "len"), (iter, "iter"), (reversed, "reversed"), (bool, "bool len"),
        (int, "int index trunc"), (float, "float index"), (complex, "complex float index"), (round, "round"),
        (divmod, "divmod rdivmod"),
        (pow, "pow rpow"), (math.floor, "floor"), (math.ceil, "ceil"), (math.trunc, "trunc"), (range, "index"),
        (operator.truth, "bool len"), (operator.not_, "bool len"),
    )
}  # fmt: skip


# ------------------------------------------------------------------ what is not followed

# Python's own builtins, but those that programs replace to no harm (``print``, ``open``, ``exec``...): nothing here or
# in torch's Python depends on what these do. What a shell or profiler adds (``display``, ``profile``) is no builtin.
_FUNCTIONS = (
    "abs aiter all anext any ascii bin bool bytearray bytes callable chr classmethod complex delattr dict dir divmod "
    "enumerate filter float format frozenset getattr globals hasattr hash hex id int isinstance issubclass iter len "
    "list locals map max memoryview min next object oct ord pow property range repr reversed round set setattr slice "
    "sorted staticmethod str sum super tuple type vars zip Ellipsis NotImplemented"
).split()


def _is_genuine(name: str, value: Any) -> bool:
    if isinstance(value, types.BuiltinFunctionType):
        return value.__self__ is builtins and value.__name__ == name
    return not isinstance(value, types.FunctionType | types.MethodType | functools.partial) and is_own(value)


_BUILTINS: dict[str, Any] = {n: getattr(builtins, n, None) for n in _FUNCTIONS} | {
    n: v for n, v in vars(builtins).items() if isinstance(v, type) and issubclass(v, BaseException) and is_own(v)
}
# Modules of the standard library whose functions capture itself and torch are made of.
_LIBRARY = [
    (module, {n: v for n, v in vars(module).items() if callable(v) and not n.startswith("_")})
    for module in (collections, copy, dis, functools, inspect, itertools, types)
]
_FALSE = [n for n, v in _BUILTINS.items() if not _is_genuine(n, v)]


def genuine_builtin(name: str) -> Any:
    """What the builtin of this name was when jitney was imported; None if there is no such."""
    return _BUILTINS.get(name)


def unfollowable() -> str:
    """Why nothing can be captured just now, or an empty string: what is replaced takes part in capturing itself."""
    now = vars(builtins)
    for name, value in _BUILTINS.items():
        if now.get(name) is not value or name in _FALSE:
            return f"the builtin {name} has been replaced"
    for name, value in replaced_methods():
        if name.startswith("__") or name in _ASKED or value is None or is_own(value):
            return f"torch.Tensor.{name} has been replaced"
    for module, known in _LIBRARY:
        space = vars(module)
        if [*map(space.get, known)] != [*known.values()]:
            name = next(n for n, v in known.items() if space.get(n) is not v)
            return f"{module.__name__}.{name} has been replaced"
    return ""
