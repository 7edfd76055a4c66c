"""Documents whose examples run: what a page shows is what its readers get.

In a section (from one ``##`` to the next), in a folder of its own:

- a ``python`` block runs, after those before it in the section; its first line may be ``# file: NAME``, then it is only
  written there;
- a ``console`` block has commands after ``$ ``, each with what it prints. ``jitney`` runs in this process;
- a ``text`` block is what the ``python`` block before it prints.

``...`` in what is shown stands for anything, white space counts once. Blocks of other languages are not looked at.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jitney.cli import main

ROOT = Path(__file__).parent.parent.parent
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = "# file: "


@dataclass(frozen=True)
class Section:
    """A part of a page: its title, and its blocks as (language, text)."""

    title: str
    blocks: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """For the id of a test."""
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")

    def run(self, folder: Path) -> None:
        """Run all blocks in this folder, which is the current one."""
        space: dict[str, Any] = {"__name__": "__main__"}
        printed: str | None = None
        for number, (language, text) in enumerate(self.blocks):
            if language == "python" and text.startswith(FILE):
                name, _, rest = text.removeprefix(FILE).partition("\n")
                (folder / name.strip()).write_text(rest)
            elif language == "python":
                printed = _python(text, f"example{number or ''}.py", space)
            elif language == "text":
                assert printed is not None, f"{self.title}: a text block without a program before it"
                same(printed, text)
            elif language == "console":
                for command, shown in commands(text):
                    same(_command(command), shown)


def sections(page: str) -> list[Section]:
    """The sections of a page in docs/ that have blocks."""
    parts = re.split(r"^## +(.*)$", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE)
    found = zip(parts[1::2], parts[2::2], strict=True)
    made = [Section(title, tuple((m[1], m[2]) for m in FENCE.finditer(text))) for title, text in found]
    return [section for section in made if section.blocks]


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command with what is shown of its output."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def same(printed: str, shown: str) -> None:
    """Compare what was printed with what the page shows; nothing shown is nothing compared."""
    if not shown.strip():
        return
    checker = doctest.OutputChecker()
    if not checker.check_output(shown, printed, FLAGS):
        raise AssertionError(checker.output_difference(doctest.Example("", shown), printed, FLAGS))


def _python(text: str, name: str, space: dict[str, Any]) -> str:
    Path(name).write_text(text)  # where messages find its lines
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        exec(compile(text, name, "exec"), space)
    return out.getvalue()


def _command(command: str) -> str:
    words = shlex.split(command)
    if words[0] == "jitney":
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            main(words[1:])
        return out.getvalue()
    environment = dict(os.environ)
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    assert words[0] == "python", command
    done = subprocess.run([sys.executable, *words[1:]], env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
