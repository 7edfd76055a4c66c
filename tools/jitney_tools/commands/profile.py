"""Show where the time of a call goes: jitney profile FILE:FUNCTION.

Guards, kernels, operators that run as a whole, and the gaps between them; then each kernel with the bandwidth that it
reaches. The function is called with what the file's example_inputs() returns, or without arguments if it needs none.
For the measurement a second copy is compiled, whose kernels run one by one with a clock around each.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import jitney
from jitney import config, events
from jitney.commands.choice import add_backend, load_backend, load_options
from jitney.commands.target import Program, add_target, load, reporting
from jitney.debug.compiled_as import compiled_as
from jitney.debug.text import size
from jitney.debug.times import write_trace
from jitney.errors import JitneyError
from jitney_tools.call_profile import Measured, Profile, bytes_told, copy_bandwidth, measure
from jitney_tools.commands.columns import columns
from jitney_tools.debug_folder.folder import current
from jitney_tools.report import write_report

PHASE = "profile"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_target(parser)
    add_backend(parser)
    parser.add_argument("--backward", action="store_true", help="run a backward from the sum of the results, too")
    parser.add_argument("--calls", type=int, default=20, help="how many calls to time (default: 20)")
    parser.add_argument("--top", type=int, default=15, help="how many kernels to list (default: 15)")
    parser.add_argument("--report", type=Path, help="write the HTML report of this run, with these times, to this file")
    parser.add_argument("--trace", type=Path, help="write a Chrome trace of compiling and of the calls to this file")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """Compile twice, time calls, print the tables."""
    program = load(arguments.target, PHASE)
    inputs = program.inputs()
    console = Console(soft_wrap=True)
    with console.status("compiling and timing"):
        profile = _profiled(program, inputs, arguments)
        best = copy_bandwidth(device_of(inputs))
    _print(profile, best, arguments.top, console)
    if arguments.report is not None:
        console.print(f"report: {arguments.report}")
    if arguments.trace is not None:
        console.print(f"trace: {write_trace(arguments.trace, profile.spans)} (chrome://tracing, ui.perfetto.dev)")
    return 0


def _profiled(program: Program, inputs: tuple[Any, ...], arguments: argparse.Namespace) -> Profile:
    """Time calls of a program; make the report if it is asked for."""
    moved: dict[tuple[int, str, str], int] = {}
    backend, options = load_backend(arguments.backend, PHASE), load_options(arguments.option, PHASE)
    how = compiled_as(program.function, backend, options)
    if how.note:
        print(f"note: {how.note}")
    functions = [jitney.compile(how.function, **how.arguments()) for _ in range(2)]
    bare, marked = (call_of(function, inputs, arguments.backward) for function in functions)
    bare()  # compiled now, so that only the other is in the report
    debug = config.patch(compile_debug=arguments.report is not None)
    with debug, events.listen(bytes_told(moved)), events.details():
        profile = measure(bare, marked, arguments.calls, moved)
        if arguments.report is not None:
            _report(profile, arguments.report)
    return profile


def call_of(function: Callable[..., Any], inputs: tuple[Any, ...], backward: bool) -> Callable[[], Any]:
    """A call, and perhaps its backward."""

    def call() -> Any:
        found = function(*inputs)
        if not backward:
            return found
        torch.autograd.backward([t.sum() for t in _tensors(found) if t.requires_grad])
        return None

    return call


def _report(profile: Profile, file: Path) -> None:
    """Put the times into the debug folder that was written meanwhile, and make its page."""
    folder = current()
    if folder is None:
        raise JitneyError("no report without a debug folder", hint="config.base_dir, somewhere to write", phase=PHASE)
    for row in profile.rows:
        folder.add_record({"event": "Measured", **asdict(row)})
    write_report(folder.path, file)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


def device_of(inputs: tuple[Any, ...]) -> torch.device:
    """Where the first tensor is."""
    found = [tensor.device for tensor in _tensors(inputs)]
    return found[0] if found else torch.device("cpu")


def _print(profile: Profile, best: float, top: int, console: Console) -> None:
    console.print(
        f"A call takes {duration(profile.seconds)} (median of {profile.calls}); with a clock around each kernel, "
        f"{duration(profile.marked)} (mean of the faster half), which goes to:"
    )
    whole = sum(profile.parts.values()) or 1.0
    rows = [(name, duration(seconds), f"{seconds / whole:.0%}") for name, seconds in profile.parts.items()]
    _say(console, columns(("part", "#per call", "#share"), rows))
    if not profile.rows:
        _say(console, "No kernels: the backend runs graphs operator by operator.")
        return
    head = ("kernel or operator", "graph", "#per call", "#runs", "#bytes", "#GB/s")
    _say(console, "\n" + columns(head, map(_cells, profile.rows[:top])))
    more = len(profile.rows) - top
    if more > 0:
        _say(console, f"and {more} more (--top)")
    _say(console, f"Copying a large tensor reaches {best / 1e9:.1f} GB/s here.")


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False)


def _cells(row: Measured) -> tuple[str, ...]:
    moved = (size(row.moved), f"{row.bandwidth / 1e9:.1f}") if row.moved else ("", "")
    kind = "" if row.kind == "kernel" else " (as a whole)"
    name = f"{row.name}{kind}"
    return (name, f"{row.graph} {row.number}", duration(row.seconds * row.runs), f"{row.runs:g}", *moved)


def duration(seconds: float) -> str:
    """``1.5 ms``."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
