"""Show the graphs, the graph breaks and the guards of a function: jitney explain FILE:FUNCTION.

The function is called once, with what the file's example_inputs() returns (a tuple of arguments), or without
arguments if it needs none. What the file itself raises is shown as Python would show it; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from traceback import StackSummary, TracebackException
from types import ModuleType
from typing import Any

from rich.console import Console

from jitney.callers import is_ours, is_users
from jitney.debug import ExplainOutput, explain
from jitney.errors import JitneyError, nearest

PHASE = "explain"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("target", metavar="FILE:FUNCTION", help="a Python file and a function or module object in it")
    parser.add_argument("--plain", action="store_true", help="print plain text, with counts for programs to read")


def run(arguments: argparse.Namespace) -> int:
    """Import the file, call the function under explain, print what was found."""
    path, _, name = arguments.target.rpartition(":")
    if not path or not name:
        raise JitneyError(f"{arguments.target!r} is not FILE:FUNCTION", hint="model.py:forward", phase=PHASE)
    try:
        output = _explained(Path(path), name)
    except JitneyError:
        raise
    except Exception as error:
        report = _of_the_user(error)
        if report is None:
            raise
        print(report, end="", file=sys.stderr)
        return 1
    if arguments.plain:
        print(output)
    else:
        Console(soft_wrap=True).print(output)
    return 0


def _explained(path: Path, name: str) -> ExplainOutput:
    module = _import_file(path)
    function = getattr(module, name, None)
    if not callable(function):
        callables = [key for key, value in vars(module).items() if callable(value)]
        hint = nearest(name, callables) or f"one of {', '.join(callables) or 'none'}"
        raise JitneyError(f"{path} has no function {name!r}", hint=hint, phase=PHASE)
    return explain(function)(*_inputs(module, function, name))


def _of_the_user(error: BaseException) -> str | None:
    """The traceback without our frames; None if it ends in one of them without a line of the user's: a bug of ours."""
    found = TracebackException.from_exception(error)
    ours = bool(found.stack) and is_ours(found.stack[-1].filename)
    todo = [found]
    while todo:
        at = todo.pop()
        ours = ours and not any(is_users(frame.filename) for frame in at.stack)
        shown = [f for f in at.stack if not is_ours(f.filename) and not f.filename.startswith("<frozen")]
        at.stack = StackSummary.from_list(shown)
        todo += [e for e in (at.__cause__, at.__context__) if e is not None]
    return None if ours else "".join(found.format())


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
    try:
        signature = inspect.signature(function)
    except ValueError:  # a C function without one
        signature = inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
    if hasattr(module, "example_inputs"):
        inputs = module.example_inputs()
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        try:
            signature.bind(*inputs)
        except TypeError as error:
            raise JitneyError(
                f"example_inputs() of {module.__file__} does not fit {name}{signature}: {error}",
                hint=f"a tuple with the arguments of {name}",
                phase=PHASE,
            ) from error
        return inputs
    required = [
        parameter.name
        for parameter in signature.parameters.values()
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
