"""Compile an encoder, a decoder and plain Python, infer and train through the default, check all, print tables."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from jitney.api import compile as compile_function
from jitney.backends import registry
from jitney.config import config
from jitney.debug import ExplainOutput, observe
from jitney_tools.commands.demo_models import TITLE, models
from jitney_tools.commands.demo_speed import infer_and_show
from jitney_tools.commands.demo_training import train_and_show
from jitney_tools.commands.timing import interleaved

ROUNDS = 30
KERNELS = "llvm_cpu"
# Two eager runs may differ so much too: what a BLAS rounds depends on where the allocator put its arguments.
ROUNDING = 1e-5


@dataclass(frozen=True)
class Row:
    """What the demo measured on one program; times in microseconds per call, medians."""

    name: str
    found: ExplainOutput
    difference: float  # greatest absolute difference to eager
    eager_us: float
    jitney_us: float
    overhead_us: float  # a call whose graphs cost nothing


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments."""


@config.patch(cache=False)  # it shows what compiling does
def run(arguments: argparse.Namespace) -> int:
    """Measure the programs, train; 1 if something differs from eager."""
    torch.manual_seed(0)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for title in ("program", "result"):
        table.add_column(title, no_wrap=True)
    for title in ("graphs", "breaks", "ops", "capture\ns", "eager\nms", "jitney\nms", "ratio", "overhead\nus"):
        table.add_column(title, justify="right", no_wrap=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # what is measured is the Python around the graphs
    try:
        rows = [measure(name, program, inputs) for name, program, inputs in programs()]
    finally:
        torch.set_num_threads(threads)
    for row in rows:
        counts = (row.found.graph_count, row.found.graph_break_count, row.found.op_count)
        seconds = sum(frame.seconds for frame in row.found.frames)
        times = (f"{row.eager_us / 1e3:.2f}", f"{row.jitney_us / 1e3:.2f}", f"{row.jitney_us / row.eager_us:.2f}")
        cells = (*map(str, counts), f"{seconds:.2f}", *times, f"{row.overhead_us:.0f}")
        table.add_row(row.name, verdict(row.difference), *cells)
    console = Console()
    console.print(f"What is captured: {TITLE} (4 layers, random weights), backend 'eager'\n")
    console.print(table)
    console.print("\nresult: against eager. eager, jitney: one call, one thread, interleaved medians.")
    console.print("overhead: a call whose graphs cost nothing.\n")
    agree = True
    if KERNELS in registry.usable():
        agree = infer_and_show(console, programs()[:2])
        agree = train_and_show(console) and agree
    else:
        console.print("For speed, install the plugin that makes kernels: pip install jitney-llvm-cpu")
    return 0 if agree and all(row.difference <= ROUNDING for row in rows) else 1


def verdict(difference: float) -> str:
    """How the result compares with eager's, in colour; NaN and infinity are no rounding."""
    if difference == 0:
        return "[green]equal[/]"
    return f"[green]~{difference:.0e}[/]" if difference <= ROUNDING else f"[red]differs: {difference:.0e}[/]"


def programs() -> list[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """The name, the callable and the inputs of each program."""
    return [
        *models(),
        ("plain Python", python_heavy, (torch.randn(8, 16), ["scale", "shift", "unknown", "clip"])),
    ]


@dataclass
class _Step:
    name: str
    factor: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        match self.name:
            case "scale":
                return x * self.factor
            case "shift":
                return x + self.factor
            case "clip":
                return x.clamp(-self.factor, self.factor)
        raise KeyError(self.name)


def python_heavy(x: torch.Tensor, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Dataclasses, comprehensions, exceptions, closures, a generator, and one branch that needs a value."""
    steps = {name: _Step(name, 1.0 + index / 2) for index, name in enumerate(names)}
    results: dict[str, torch.Tensor] = {}
    failed: list[str] = []

    def remember(label: str, value: torch.Tensor) -> None:
        results[f"{label}:{len(results)}"] = value

    for name, step in steps.items():
        try:
            x = step(x)
        except KeyError as error:
            failed.append(str(error))
            continue
        remember(name, x)
    if x.sum() > 0:  # a graph break: which way depends on data
        x = x - x.mean()
    remember("total", sum(value.sin() for value in results.values() if value.dim() == 2) + x + len(failed))
    return results


def measure(name: str, program: Callable[..., Any], inputs: tuple[Any, ...]) -> Row:
    """Compile the program twice, once to compare with eager and once with graphs that cost nothing."""
    with torch.no_grad():
        compiled = compile_function(program, backend="eager")
        null = compile_function(program, backend=null_backend)
        expected = program(*inputs)
        with observe() as found:
            got = compiled(*inputs)
        null(*inputs)
        times = [1e6 * seconds for seconds in interleaved([program, compiled, null], inputs, ROUNDS)]
    return Row(name, found, difference(expected, got), *times)


def null_backend(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Runs the graph at the first call and returns those results ever after."""
    kept: list[Any] = []

    def run_once(*arguments: Any) -> Any:
        if not kept:
            kept.append(graph.forward(*arguments))
        return kept[0]

    return run_once


def difference(expected: Any, got: Any) -> float:
    """The greatest absolute difference between the tensors of two results; infinite if they are built differently."""
    want, have = _tensors(expected), _tensors(got)
    if type(expected) is not type(got) or [(k, t.shape, t.dtype) for k, t in want] != [
        (k, t.shape, t.dtype) for k, t in have
    ]:
        return float("inf")
    pairs = zip(want, have, strict=True)
    return max((float((a - b).abs().max()) for (_, a), (_, b) in pairs), default=0.0)


def _tensors(result: Any) -> list[tuple[str, torch.Tensor]]:
    if isinstance(result, torch.Tensor):
        return [("", result)]
    return [(key, value) for key, value in dict(result).items() if isinstance(value, torch.Tensor)]
