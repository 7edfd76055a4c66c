"""Run a function with one step of compiling more each time, and name the step with which it goes wrong.

The ladder is: the program itself, eager, aot_eager, aot_eager with core decompositions, the backend. Results, writes
and gradients are compared with eager's, and where they differ with float64, so that rounding is no fault. The function
is called with what the file's example_inputs() returns (a tuple of arguments), or without arguments if it needs none.
For a graph that fails a program is written that `jitney minify` makes small. The exit status is 1 then.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from jitney.commands.choice import add_backend, load_backend, load_options
from jitney.commands.target import add_target, load, reporting
from jitney_tools.bisect import bisect

PHASE = "bisect"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_target(parser)
    add_backend(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """Import the file, climb the ladder, print where it broke."""
    program = load(arguments.target, PHASE)
    backend, options = load_backend(arguments.backend, PHASE), load_options(arguments.option, PHASE)
    with Console(stderr=True).status("bisecting") as status:
        found = bisect(
            program.function,
            program.inputs(),
            backend=backend,
            options=options,
            say=lambda name: status.update(f"bisecting: {name}"),
        )
    print(found)
    if found.stopped:
        return 130
    return 0 if found.guilty is None else 1
