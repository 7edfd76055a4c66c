"""Show the graphs, the graph breaks and the guards of a function: jitney explain FILE:FUNCTION.

The function is called once, with what the file's example_inputs() returns (a tuple of arguments), or without
arguments if it needs none. Its graphs run as they were captured; through a backend, if one is named or the function is
compiled already: then it is shown what that makes of them, too. What the file itself raises is shown as Python would
show it; the exit status is then 1.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from jitney.commands.choice import add_backend, load_backend, load_options
from jitney.commands.target import add_target, load, reporting
from jitney.debug import explain

PHASE = "explain"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_target(parser)
    add_backend(parser, "eager")
    parser.add_argument("--plain", action="store_true", help="print plain text, with counts for programs to read")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """Import the file, call the function under explain, print what was found."""
    program = load(arguments.target, PHASE)
    backend, options = load_backend(arguments.backend, PHASE), load_options(arguments.option, PHASE)
    output = explain(program.function, backend=backend, options=options)(*program.inputs())
    if arguments.plain:
        print(output)
    else:
        Console(soft_wrap=True).print(output)
    return 0
