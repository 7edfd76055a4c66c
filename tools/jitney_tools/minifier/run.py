"""Minifying a program: it is read, made smaller, written beside itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from jitney.config import config
from jitney_tools.minifier.case import Case, NotMinified
from jitney_tools.minifier.isolated import Isolated
from jitney_tools.minifier.script import load, raise_fault, smaller_path, write_case
from jitney_tools.minifier.search import STOPPED, Found, minify


def minify_file(file: str | Path, *, seconds: float | None = None) -> None:
    """Minify the graph of a program, write it beside that (``smaller_path``), show it, raise what it ends in."""
    found, path = minified(Path(file), seconds=seconds)
    console = Console(stderr=True, soft_wrap=True)
    console.print(f"\n{path.read_text()}", highlight=False, markup=False)
    console.print(summary(found, path), highlight=False, markup=False)
    raise_fault(found.case, found.fault)


def minified(
    path: Path, *, seconds: float | None = None, out: Path | None = None, isolate: bool = False
) -> tuple[Found, Path]:
    """The minified case of a program, and where it was written.

    Args:
        path: the program.
        seconds: a time limit; None: ``config.minifier_seconds``.
        out: where the result goes; None: see ``smaller_path``.
        isolate: try each case in a process of its own.
    """
    try:
        case, fault = load(path)
    except KeyboardInterrupt:
        raise NotMinified(STOPPED) from None
    limit = config.minifier_seconds if seconds is None else seconds
    with progress() as say, contextlib.ExitStack() as stack:
        look = Case.fault
        if isolate or (fault is not None and fault.kind == "dies"):
            look = stack.enter_context(Isolated()).fault
        found = minify(case, fault, seconds=limit, say=say, look=look)
    return found, write_case(found.case, found.fault, out or smaller_path(path), before=found.before)


def summary(found: Found, path: Path) -> str:
    """One line on what was reached."""
    stopped = f", stopped by {found.stopped}" if found.stopped else ""
    return (
        f"{found.before} operations became {found.case.op_count}, in {found.tries} tries and {found.seconds:.1f} s"
        f"{stopped}. Written to {path}; `python {path}` ends in the same error."
    )


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on the terminal that says how far it is; nothing where there is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("minifying") as status:
        yield lambda text: status.update(f"minifying: {text} (Ctrl-C keeps the best so far)")
