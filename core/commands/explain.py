"""Show the graphs, the graph breaks and the guards of a function: jitney explain FILE:FUNCTION.

The function is called once, with what the file's example_inputs() returns (a tuple of arguments), or without
arguments if it needs none. What the file itself raises is shown as Python would show it; the exit status is then 1.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from jitney.commands.target import add_target, load, reporting
from jitney.debug import explain

PHASE = "explain"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_target(parser)
    parser.add_argument("--plain", action="store_true", help="print plain text, with counts for programs to read")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """Import the file, call the function under explain, print what was found."""
    program = load(arguments.target, PHASE)
    output = explain(program.function)(*program.inputs())
    if arguments.plain:
        print(output)
    else:
        Console(soft_wrap=True).print(output)
    return 0
