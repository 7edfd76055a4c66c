"""Make a graph that fails smaller, as long as it fails in the same way: jitney minify FILE.

FILE is a program that jitney has written: minifier_launcher.py, by JITNEY_REPRO_AFTER=capture (or aot) or by `jitney
bisect`, or a repro.py. The result is repro.py beside it: a program that runs alone and ends in the same error. Ctrl-C
keeps the best so far.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from jitney.config import config
from jitney.debug.minifier.script import minified, summary


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", type=Path, help="minifier_launcher.py or repro.py")
    parser.add_argument("--seconds", type=float, help=f"a time limit (default: {config.minifier_seconds:g})")
    parser.add_argument(
        "--isolate", action="store_true", help="each try in a process of its own: for what takes the process down"
    )
    parser.add_argument("--out", type=Path, help="where to write the result (default: repro.py beside FILE)")


def run(arguments: argparse.Namespace) -> int:
    """Minify, write, show."""
    found, path = minified(arguments.file, seconds=arguments.seconds, out=arguments.out, isolate=arguments.isolate)
    print(path.read_text())
    print(f"{found.fault}\n{summary(found, path)}")
    return 0
