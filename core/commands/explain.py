"""Show the graphs, the graph breaks and the guards of a function: jitney explain FILE:FUNCTION.

The function is called once, with what the file's example_inputs() returns (a tuple of arguments), or without
arguments if it needs none.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console

from jitney.debug import explain
from jitney.errors import JitneyError, nearest

PHASE = "explain"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("target", metavar="FILE:FUNCTION", help="a Python file and a function or module object in it")
    parser.add_argument("--plain", action="store_true", help="print plain text instead of tables")


def run(arguments: argparse.Namespace) -> int:
    """Import the file, call the function under explain, print what was found."""
    path, _, name = arguments.target.rpartition(":")
    if not path or not name:
        raise JitneyError(f"{arguments.target!r} is not FILE:FUNCTION", hint="model.py:forward", phase=PHASE)
    module = _import_file(Path(path))
    function = getattr(module, name, None)
    if not callable(function):
        callables = [key for key, value in vars(module).items() if callable(value)]
        hint = nearest(name, callables) or f"one of {', '.join(callables) or 'none'}"
        raise JitneyError(f"{path} has no function {name!r}", hint=hint, phase=PHASE)
    output = explain(function)(*_inputs(module, function, name))
    if arguments.plain:
        print(output)
    else:
        Console().print(output)
    return 0


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise JitneyError(f"there is no file {path}", phase=PHASE)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise JitneyError(f"{path} is not a Python file", phase=PHASE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and pickling look modules up there
    sys.path.insert(0, str(path.parent))  # as `python FILE` does
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _inputs(module: ModuleType, function: Callable[..., Any], name: str) -> tuple[Any, ...]:
    if hasattr(module, "example_inputs"):
        inputs = module.example_inputs()
        return inputs if isinstance(inputs, tuple) else (inputs,)
    required = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if required:
        raise JitneyError(
            f"{name} takes {', '.join(required)}, and {module.__file__} has no example_inputs()",
            hint=f"add `def example_inputs(): return (...)` with the arguments of {name} to the file",
            phase=PHASE,
        )
    return ()
