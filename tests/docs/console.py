"""Runs the examples of a Markdown page: what it shows is what happens.

A line that is only a file name in backquotes and a colon (`model.py`:), before a Python block, makes that file; any
other Python block runs as ``example.py``, and a ``text`` block after it is what it prints. In a block of the language
``console`` each line after ``$`` is a command, the lines below it are its output. ``...`` stands for anything. Commands
are ``jitney ...`` and ``python FILE``, with ``JITNEY_`` variables in front; all run in this process. Each must end
well: else a traceback is shown, or the next command is ``echo $?``.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import linecache
import logging
import re
import runpy
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import jitney
from jitney.cli import main
from jitney.config import Config, config
from jitney.debug import reset_compile_times, set_logs

BLOCK = re.compile(r"(?:^`([\w./]+)`:\n+)?^```(\w+)\n(.*?)^```$", re.M | re.S)
EXAMPLE = "example.py"
WHOLE = ("getting-started.md", "troubleshooting.md")  # pages of which all is run, in order
BY_QUESTION = ("faq.md", "training.md")  # each section by itself
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Step:
    """A file to be made, or a command with its output (empty: not looked at) and exit status."""

    file: str = ""
    command: str = ""
    text: str = ""
    status: int = 0


def steps(page: str) -> Iterator[Step]:
    """Everything on a page that makes or runs something, in order."""
    blocks = BLOCK.findall(page)
    for at, (name, language, body) in enumerate(blocks):
        if language == "python":
            yield Step(file=name or EXAMPLE, text=body)
        if language == "python" and not name:
            following = blocks[at + 1] if at + 1 < len(blocks) else ("", "", "")
            yield Step(command=f"python {EXAMPLE}", text=following[2] if following[1] == "text" else "")
        elif language == "console":
            yield from _commands(body)


def _commands(body: str) -> list[Step]:
    found: list[Step] = []
    for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        if command == "echo $?":
            found[-1] = replace(found[-1], status=int(output))
        else:
            found.append(Step(command=command, text=output, status=int("Traceback (most recent call" in output)))
    return found


def sections(page: str) -> dict[str, str]:
    """The parts of a page that have blocks, by the title (``##``) that they begin with."""
    parts = re.split(r"^## +(.*)$", page, flags=re.M)
    return {title: text for title, text in zip(parts[1::2], parts[2::2], strict=True) if BLOCK.search(text)}


def run_page(page: str, folder: Path) -> list[str]:
    """Run a page in an empty folder, which is the current one; what is not as shown, command by command."""
    wrong = []
    before, path = set(sys.modules), list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        for step in steps(page):
            if step.file:
                (folder / step.file).write_text(step.text)
                continue
            output, status = run(step.command)
            output = output.replace(f"{folder}/", "")
            if status != step.status:
                wrong.append(f"$ {step.command}\n--- exit status {status}, not {step.status}\n{output}")
            elif step.text and not doctest.OutputChecker().check_output(step.text, output, FLAGS):
                wrong.append(f"$ {step.command}\n--- shown\n{step.text}--- happens\n{output}")
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
    return wrong


def run(command: str) -> tuple[str, int]:
    """What a command prints, stdout and stderr, and its exit status."""
    words = shlex.split(command)
    environment = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    own = Config()
    assert not own.load_environment(environment), environment
    changed = {name: value for name, value in vars(own).items() if value != vars(Config())[name]}
    changed.setdefault("cache", True)  # as it is for readers
    changed.setdefault("cache_dir", str(Path("cache").absolute()))  # readers have compiled nothing before
    printed = io.StringIO()
    said = logging.StreamHandler(printed)
    said.setFormatter(logging.Formatter("%(message)s"))
    logging.getLogger("jitney.debug").addHandler(said)
    jitney.reset()
    reset_compile_times()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), config.patch(**changed):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            set_logs(own.logs)
            assert words[0] in ("jitney", "python"), command
            try:
                status = main(words[1:]) if words[0] == "jitney" else _python(words[1])
            except SystemExit as end:
                status = int(end.code or 0)
    set_logs()
    logging.getLogger("jitney.debug").removeHandler(said)
    return printed.getvalue() + "".join(f"UserWarning: {w.message}\n" for w in warned), status


def _python(file: str) -> int:
    linecache.checkcache()
    try:
        runpy.run_path(str(Path(file).absolute()), run_name="__main__")
    except Exception as error:
        traceback.print_exception(error)
        return 1
    return 0
