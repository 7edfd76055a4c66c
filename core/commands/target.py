"""``FILE:FUNCTION`` on a command line: the file is imported, and the function called with what it asks for.

What the file's ``example_inputs()`` returns are the arguments (a tuple, or one argument); without it the function must
need none.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from traceback import StackSummary, TracebackException
from types import ModuleType
from typing import Any

from jitney._util.callers import is_ours, is_users
from jitney.errors import JitneyError, nearest

_LOADED: set[str] = set()  # the names of files that were imported here


@dataclass(frozen=True)
class Program:
    """What a command is about.

    Args:
        name: as the user wrote it.
        function: the function, or module object.
        module: of its file.
        phase: the command, for messages.
    """

    name: str
    function: Callable[..., Any]
    module: ModuleType
    phase: str

    def inputs(self) -> tuple[Any, ...]:
        """New arguments for one call."""
        return _inputs(self.module, self.function, self.name, self.phase)


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add the argument ``target`` to a command."""
    parser.add_argument("target", metavar="FILE:FUNCTION", help="a Python file and a function or module object in it")


def load(target: str, phase: str) -> Program:
    """Import the file.

    Raises:
        JitneyError: ``target`` is not of that form, or there is no such file or function.
    """
    path, _, name = target.rpartition(":")
    if not path or not name:
        raise JitneyError(f"{target!r} is not FILE:FUNCTION", hint="model.py:forward", phase=phase)
    module = _import_file(Path(path), phase)
    function = getattr(module, name, None)
    if not callable(function):
        callables = [key for key, value in vars(module).items() if callable(value)]
        hint = nearest(name, callables) or f"one of {', '.join(callables) or 'none'}"
        raise JitneyError(f"{path} has no function {name!r}", hint=hint, phase=phase)
    return Program(name, function, module, phase)


def reporting(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """A command that shows what the user's file raises as Python would show it, and then exits with 1."""

    def run(arguments: argparse.Namespace) -> int:
        try:
            return command(arguments)
        except JitneyError:
            raise
        except Exception as error:
            report = _of_the_user(error)
            if report is None:
                raise
            print(report, end="", file=sys.stderr)
            return 1

    return run


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


def _import_file(path: Path, phase: str) -> ModuleType:
    if not path.is_file():
        raise JitneyError(f"there is no file {path}", phase=phase)
    name = path.stem
    if name in sys.modules and name not in _LOADED:  # a file called random.py is not what others import as that
        name += "_py"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise JitneyError(f"{path} is not a Python file", phase=phase)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look modules up there
    _LOADED.add(name)
    folder = str(path.parent.absolute())
    if folder not in sys.path:  # as `python FILE` does; it stays there: functions import when they are called, too
        sys.path.insert(0, folder)
    spec.loader.exec_module(module)
    return module


def _inputs(module: ModuleType, function: Callable[..., Any], name: str, phase: str) -> tuple[Any, ...]:
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
                phase=phase,
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
            phase=phase,
        )
    return ()
