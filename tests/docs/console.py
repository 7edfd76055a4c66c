"""Runs the examples of a Markdown page: what its console blocks show is what happens.

A line that is only a file name in backquotes and a colon (`model.py`:), before a Python block, makes that file. In a
block of the language ``console`` each line after ``$`` is a command, the lines below are its output; ``...`` stands for
anything. Commands are ``jitney ...`` and ``python FILE``, with ``JITNEY_`` variables in front; all run in this process.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import runpy
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jitney
from jitney.cli import main
from jitney.config import Config, config

BLOCK = re.compile(r"(?:^`([\w./]+)`:\n+)?^```(\w+)\n(.*?)^```$", re.M | re.S)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Step:
    """A file to be made, or a command with its output."""

    file: str = ""
    command: str = ""
    text: str = ""


def steps(page: str) -> Iterator[Step]:
    """Everything on a page that makes or runs something, in order."""
    for name, language, body in BLOCK.findall(page):
        if name and language == "python":
            yield Step(file=name, text=body)
        elif language == "console":
            for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
                command, _, output = part.partition("\n")
                yield Step(command=command, text=output)


def run_page(path: Path, folder: Path) -> list[str]:
    """Run a page in an empty folder, which is the current one; what is not as shown, command by command."""
    wrong = []
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        for step in steps(path.read_text()):
            if step.file:
                (folder / step.file).write_text(step.text)
                continue
            output = run(step.command).replace(f"{folder}/", "")
            if not doctest.OutputChecker().check_output(step.text, output, FLAGS):
                wrong.append(f"$ {step.command}\n--- shown\n{step.text}--- happens\n{output}")
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
    return wrong


def run(command: str) -> str:
    """What a command prints, stdout and stderr."""
    words = shlex.split(command)
    environment = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    own = Config()
    assert not own.load_environment(environment), environment
    changed = {name: value for name, value in vars(own).items() if value != vars(Config())[name]}
    printed = io.StringIO()
    jitney.reset()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), config.patch(**changed):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            if words[0] == "jitney":
                main(words[1:])
            else:
                assert words[0] == "python", command
                _python(words[1])
    return printed.getvalue() + "".join(f"UserWarning: {w.message}\n" for w in warned)


def _python(file: str) -> None:
    try:
        runpy.run_path(str(Path(file).absolute()), run_name="__main__")
    except Exception as error:
        traceback.print_exception(error)
