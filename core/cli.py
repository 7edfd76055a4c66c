"""The command line: ``jitney COMMAND``; the core's commands are in ``commands/``, others come with distributions."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType

from jitney.config import config
from jitney.errors import JitneyError

GROUP = "jitney.commands"  # entry points: name -> module
# A command's module has configure(parser) and run(arguments) -> exit status; its docstring is the help.
CORE = ("backends", "cache", "explain")
# What the distributions released with the core have: the message for one that is not installed says how to get it.
ELSEWHERE = {
    **dict.fromkeys(
        ("demo", "doctor", "memory", "profile", "report", "bisect", "minify", "replay", "watch", "new-backend"), "tools"
    ),
    "conformance": "testing",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 fine, 1 a failure that was reported, 2 wrong usage, 130 Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    modules = _modules(words)
    first = modules.get(words[0]) if words else None
    if isinstance(first, _Absent):
        print(f"jitney {words[0]}: {first.reason}", file=sys.stderr)
        return 1
    arguments = _parser(modules).parse_args(words)
    try:
        return int(modules[arguments.command].run(arguments))
    except KeyboardInterrupt:
        if config.verbose:
            traceback.print_exc()
        print(f"jitney {arguments.command}: stopped by Ctrl-C, before there was anything to keep", file=sys.stderr)
        return 130
    except JitneyError as error:
        if config.verbose:
            traceback.print_exc()
        text = str(error)
        own = text.startswith(f"{arguments.command}: ")  # the command itself speaks
        print(f"jitney {text}" if own else f"jitney {arguments.command}: {text}", file=sys.stderr)
        return 1


class _Absent(ModuleType):
    """A command that cannot run here, for a reason; it is listed all the same."""

    def __init__(self, summary: str, reason: str) -> None:
        super().__init__("absent", summary)
        self.reason = reason

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """It takes nothing: what is given is not looked at."""


def _modules(words: Sequence[str]) -> dict[str, ModuleType]:
    """The commands by name; where the first word is one of them, that one alone is imported."""
    points = {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}
    names = dict.fromkeys((*CORE, *ELSEWHERE, *sorted(points)))
    chosen = [words[0]] if words and words[0] in names else names
    return {name: _module(name, points.get(name)) for name in chosen}


def _module(name: str, point: importlib.metadata.EntryPoint | None) -> ModuleType:
    if name in CORE:
        return importlib.import_module(f"jitney.commands.{name}")
    if point is None:
        extra = ELSEWHERE[name]
        need = f"it comes with the package jitney-{extra}: pip install 'jitney[{extra}]'"
        return _Absent(f"(not installed: {need})", need)
    try:
        found: ModuleType = importlib.import_module(point.value)
        return found
    except Exception as error:  # a broken package costs its own commands only
        package = point.dist.name if point.dist is not None else point.value
        return _Absent(f"(broken: see jitney {name})", f"{package} fails to import: {type(error).__name__}: {error}")


def _parser(modules: dict[str, ModuleType]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="jitney", description="A compile stack for PyTorch.")
    parser.add_argument("--version", action="version", version=f"jitney {importlib.metadata.version('jitney')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in modules.items():
        summary = (module.__doc__ or "").strip()
        module.configure(commands.add_parser(name, help=summary.splitlines()[0], description=summary))
    return parser
