"""A backend that another process cannot import, as text: its source, and whatever of its module that uses."""

from __future__ import annotations

import ast
import builtins
import inspect
import symtable
import textwrap
import types
from collections.abc import Iterator
from typing import Any

from jitney_tools.minifier.case import NotMinified, imports

TAKEN = ("graph", "inputs", "SETTINGS", "minify_file", "fails")  # what the program around it calls its own
HINT = "move the backend to a module of its own, such as my_backend.py beside the program"


def written_out(backend: types.FunctionType) -> list[str]:
    """Lines that make the name ``backend`` a function of this source.

    Raises:
        NotMinified: its source is not there, or it uses something that no line makes.
    """
    lines: dict[str, list[str]] = {}
    _write(backend.__name__, backend, backend.__globals__, lines)
    own = [] if backend.__name__ == "backend" else [f"backend = {backend.__name__}"]
    return [line for part in lines.values() for line in part] + own


def _write(name: str, value: Any, space: dict[str, Any], lines: dict[str, list[str]]) -> None:
    """Add the lines that make a name, after those of what it uses."""
    if name in lines or (name == "torch" and isinstance(value, types.ModuleType)):
        return
    if name in TAKEN:
        raise NotMinified(f"the backend uses {name}, a name that the program for the minifier has", hint=HINT)
    if not _is_own(value, space):
        lines[name] = [_constant(name, value)] if _is_plain(value) else imports({name: value})
        return
    source, tree = _source(name, value)
    lines[name] = []  # functions may call each other
    free = _free(symtable.symtable(source, name, "exec"))
    for used in _names(tree):
        if used in free and used in space and used != name:
            _write(used, space[used], space, lines)
    lines[name] = [*lines.pop(name), source, ""]


def _is_own(value: Any, space: dict[str, Any]) -> bool:
    module = getattr(value, "__module__", None)
    return isinstance(value, (types.FunctionType, type)) and module == space.get("__name__")


def _source(name: str, value: Any) -> tuple[str, ast.stmt]:
    """The text of a function or class, and what it says."""
    what = f"{name} is defined in the program that runs"
    try:
        source = textwrap.dedent(inspect.getsource(value)).rstrip()
        (tree,) = ast.parse(source).body
    except (OSError, TypeError, SyntaxError, ValueError):
        raise NotMinified(f"{what}, and its source is not there", hint=HINT) from None
    if (
        not isinstance(tree, (ast.FunctionDef, ast.ClassDef))
        or tree.name != name
        or getattr(value, "__closure__", None)
    ):
        raise NotMinified(f"{what}, and is no plain function or class there", hint=HINT)
    return source, tree


def _names(tree: ast.AST) -> Iterator[str]:
    """The names that a definition reads, but for annotations: the program does not evaluate these."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.Name) and not hasattr(builtins, part.id):
                yield part.id
            elif isinstance(part, ast.AST):
                yield from _names(part)


def _free(scope: symtable.SymbolTable) -> set[str]:
    """The names that a definition, or one within it, looks for in its module."""
    found = {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global() or symbol.is_referenced()}
    if scope.get_type() == "function":
        found = {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()}
    return found.union(*map(_free, scope.get_children()))


def _is_plain(value: Any) -> bool:
    if isinstance(value, (types.ModuleType, types.FunctionType, type)):
        return False
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False


def _constant(name: str, value: Any) -> str:
    return f"{name} = {value!r}"
