"""Write a package that is a backend, complete and working: jitney new-backend NAME.

The folder DIR/jitney-NAME has a pyproject.toml with the entry points, a backend that runs ATen graphs step by step
with one operator rewritten, its options, tests that run the conformance suite, a CI file for GitHub, and a README.
Nothing that exists is written over. docs/backend-authors.md goes on from there.
"""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import os
import re
import shlex
import tempfile
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from jitney.backends import registry
from jitney.backends.registry import published
from jitney.errors import JitneyError

PHASE = "new-backend"
TEMPLATES = Path(__file__).parents[1] / "templates" / "backend"
LONGEST = 40  # characters of a name; the lines of the package stay short enough for its formatter

# Where each template goes. @@NAME@@ is the backend's name, @@DIST@@ the package's.
FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "ci.yml": ".github/workflows/test.yml",
    "init.py": "jitney_@@NAME@@/__init__.py",
    "compiler.py": "jitney_@@NAME@@/compiler.py",
    "rewrites.py": "jitney_@@NAME@@/rewrites.py",
    "torch_backend.py": "jitney_@@NAME@@/torch_backend.py",
    "py.typed": "jitney_@@NAME@@/py.typed",
    "test_backend.py": "tests/test_backend.py",
    "test_conformance.py": "tests/test_conformance.py",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", metavar="NAME", help="what users will write in backend=, as in my_backend")
    parser.add_argument("--dir", type=Path, default=Path(), help="where the folder is made (default: here)")


def run(arguments: argparse.Namespace) -> int:
    """Write the package and say what comes next."""
    folder = write(arguments.name, arguments.dir)
    console = Console()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        console.print(f"  {escape(str(path))}", highlight=False, soft_wrap=True)
    commands = (
        f"cd {shlex.quote(str(folder))}",
        'pip install -e ".[dev]"',
        f"jitney conformance {arguments.name}",
        "pytest",
    )
    console.print("next:", *(f"  {escape(command)}" for command in commands), sep="\n", highlight=False, soft_wrap=True)
    return 0


def write(name: str, parent: Path) -> Path:
    """Write the package of a backend; returns its folder, which is there whole or not at all.

    Args:
        name: of the backend.
        parent: of the folder; made if it is not there.

    Raises:
        JitneyError: the name cannot be had, the folder exists, or cannot be written.
    """
    check_name(name, registry.names())
    folder = parent / distribution(name)
    if os.path.lexists(folder):
        raise JitneyError(f"{folder} exists already", hint="another name, or --dir DIR for another place", phase=PHASE)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".jitney-", dir=parent) as made:
            fill(Path(made) / "new", name)
            os.rename(Path(made) / "new", folder)
    except OSError as error:
        why = f"{folder} cannot be written: {error.strerror or error}"
        raise JitneyError(why, hint="--dir DIR for another place", phase=PHASE) from error
    return folder


def fill(folder: Path, name: str) -> None:
    """Write all files below ``folder``."""
    for template, place in FILES.items():
        path = folder / filled(place, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (TEMPLATES / f"{template}.tmpl").read_text(encoding="utf-8")
        path.write_text(filled(text, name), encoding="utf-8")


def filled(text: str, name: str) -> str:
    """The text of a template for this name."""
    return text.replace("@@NAME@@", name).replace("@@DIST@@", distribution(name))


def distribution(name: str) -> str:
    """What pip calls the package of this backend."""
    return f"jitney-{name.replace('_', '-')}"


def check_name(name: str, known: Iterable[str]) -> None:
    """Refuse a name that no new backend can have.

    Args:
        name: what was asked for.
        known: the names of installed backends.

    Raises:
        JitneyError: with the reason, and a name near it where there is one.
    """
    problem, hint = _problem(name, set(known))
    if problem:
        raise JitneyError(f"{name!r} cannot be the name of a new backend: {problem}", hint=hint, phase=PHASE)


def _problem(name: str, known: set[str]) -> tuple[str, str]:
    """Why the name cannot be had, and what to try; empty if it can."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name) or len(name) > LONGEST:
        words = re.findall(r"[a-z0-9]+", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower())
        near = re.sub(r"^[0-9_]+", "", "_".join(words))[:LONGEST].strip("_")
        near = f"{near}_backend" if keyword.iskeyword(near) else near
        form = f"lower-case letters, digits and single underscores between them, a letter first, at most {LONGEST}"
        return f"it is also the name of a Python package ({form})", f"did you mean {near!r}?" if near else ""
    if name == "auto":
        return "it means the installed backends, in order of preference", ""
    if name in known:
        return "an installed backend has it", "`jitney backends` lists those that are installed"
    if name in published():
        return "a package of this project has it", ""
    if importlib.util.find_spec(f"jitney_{name}") is not None:
        return f"an installed package has a module jitney_{name}", ""
    return "", ""
