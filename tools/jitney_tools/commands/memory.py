"""Compare the peak memory of a call with eager's: jitney memory FILE:FUNCTION.

The function is called with what the file's example_inputs() returns, or without arguments if it needs none. With
--backward a backward runs from the sum of its results, and smaller budgets for what the forward keeps are tried too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from rich.console import Console

import jitney
from jitney import config
from jitney.commands.choice import add_backend, load_backend, load_options
from jitney.commands.target import add_target, load, reporting
from jitney.debug.compiled_as import CompiledAs, compiled_as
from jitney.debug.text import size
from jitney.runtime.wrappers import running_originals
from jitney_tools.commands.columns import columns
from jitney_tools.commands.profile import call_of, device_of, duration
from jitney_tools.commands.timing import interleaved
from jitney_tools.peak_memory import peak

PHASE = "memory"
BUDGETS = (0.5, 0.0)
WARM = 2  # calls before the one that counts
ROUNDS = 5  # calls that are timed


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_target(parser)
    add_backend(parser)
    parser.add_argument("--backward", action="store_true", help="run a backward from the sum of the results, too")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """Run eagerly and compiled, print the table."""
    program = load(arguments.target, PHASE)
    inputs = program.inputs()
    backend, options = load_backend(arguments.backend, PHASE), load_options(arguments.option, PHASE)
    console = Console(soft_wrap=True)
    how = compiled_as(program.function, backend, options)
    if how.note:
        _say(console, f"note: {how.note}")
    with console.status("compiling and running"):
        rows = compared(how, inputs, arguments.backward)
    base = rows[0][1]
    cells = [(name, size(m), f"{m / base:.2f}" if base else "", duration(taken)) for name, m, taken in rows]
    _say(console, columns(("what", "#peak of a call", "#of eager's", "#a call takes"), cells))
    _say(console, "Bytes that one call allocates at its highest, without inputs and parameters.")
    return 0


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False)


def compared(how: CompiledAs, inputs: tuple[Any, ...], backward: bool) -> list[tuple[str, int, float]]:
    """For eager, and for each way to compile: what it is, peak bytes, seconds of a call."""
    plain = call_of(how.function, inputs, backward)

    def eager() -> Any:
        with running_originals():
            return plain()

    ways: dict[str, tuple[Callable[[], Any], float]] = {"eager": (eager, 1.0)}
    backend = how.arguments()["backend"]
    budgets = (config.activation_memory_budget, *(BUDGETS if backward else ()))
    for budget in dict.fromkeys(budgets):
        shown = backend if isinstance(backend, str) else getattr(backend, "__name__", "backend")
        name = f"jitney {shown}" + (f", activation_memory_budget={budget:g}" if backward else "")
        function = jitney.compile(how.function, **how.arguments())
        ways[name] = (call_of(function, inputs, backward), budget)
    peaks = {}
    device = device_of(inputs)
    for name, (call, budget) in ways.items():
        with config.patch(activation_memory_budget=budget):
            for _ in range(WARM):
                call()
        peaks[name] = peak(call, device)
    seconds = interleaved([call for call, _ in ways.values()], (), ROUNDS)
    return [(name, peaks[name], taken) for name, taken in zip(ways, seconds, strict=True)]
