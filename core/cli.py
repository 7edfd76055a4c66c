"""The command line: ``jitney COMMAND``, one file per command in ``commands/``."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
import traceback
from collections.abc import Sequence

from jitney.commands import (
    backends,
    bisect,
    cache,
    conformance,
    demo,
    doctor,
    explain,
    memory,
    minify,
    new_backend,
    profile,
    replay,
    report,
)
from jitney.config import config
from jitney.errors import JitneyError

# Each has configure(parser) and run(arguments) -> exit status; its docstring is the help.
COMMANDS = {
    "demo": demo,
    "backends": backends,
    "cache": cache,
    "doctor": doctor,
    "explain": explain,
    "memory": memory,
    "profile": profile,
    "report": report,
    "bisect": bisect,
    "minify": minify,
    "replay": replay,
    "conformance": conformance,
    "new-backend": new_backend,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 fine, 1 a failure that was reported, 2 wrong usage, 130 Ctrl-C."""
    arguments = _parser().parse_args(argv)
    try:
        return COMMANDS[arguments.command].run(arguments)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="jitney", description="A compile stack for PyTorch.")
    parser.add_argument("--version", action="version", version=f"jitney {importlib.metadata.version('jitney')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        summary = (module.__doc__ or "").strip()
        module.configure(commands.add_parser(name, help=summary.splitlines()[0], description=summary))
    return parser
