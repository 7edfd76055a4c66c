"""Make a graph that fails smaller, as long as it fails in the same way: jitney minify FILE.

FILE is a program that jitney has written: minifier_launcher.py, by JITNEY_REPRO_AFTER=capture (or aot) or by `jitney
bisect`, or a repro.py; or a folder that has such: then the newest minifier_launcher*.py in it. (Where several processes
write, names have the rank or the number of the process.) The result is repro.py beside it, with what else the name of
FILE has: a program that runs alone and ends in the same error. Ctrl-C keeps the best so far.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from jitney.backends.failure_files import LAUNCHER
from jitney.config import config
from jitney_tools.minifier.case import NotMinified
from jitney_tools.minifier.run import minified, summary


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", type=Path, help="minifier_launcher.py, repro.py, or their folder")
    parser.add_argument("--seconds", type=float, help=f"a time limit (default: {config.minifier_seconds:g})")
    parser.add_argument(
        "--isolate", action="store_true", help="each try in a process of its own: for what takes the process down"
    )
    parser.add_argument("--out", type=Path, help="where to write the result (default: repro*.py beside FILE)")


def run(arguments: argparse.Namespace) -> int:
    """Minify, write, show."""
    found, path = minified(
        newest(arguments.file), seconds=arguments.seconds, out=arguments.out, isolate=arguments.isolate
    )
    print(path.read_text())
    print(f"{found.fault}\n{summary(found, path)}")
    return 0


def newest(path: Path) -> Path:
    """The file itself, or the newest launcher in a folder."""
    if not path.is_dir():
        return path
    launcher = Path(LAUNCHER)
    found = sorted(path.glob(f"{launcher.stem}*{launcher.suffix}"), key=lambda file: file.stat().st_mtime)
    if not found:
        raise NotMinified(f"{path} has no {LAUNCHER}", hint="JITNEY_REPRO_AFTER=capture python ... writes one")
    return found[-1]
