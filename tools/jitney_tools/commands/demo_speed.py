"""The part of the demo that shows speed: whole models and a few formulas through the default backend, beside eager."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.nn import functional as F

from jitney import events
from jitney.api import compile as compile_function
from jitney_tools.commands.timing import interleaved

ROUNDS = 15
CLOSE = 1e-4

Program = tuple[str, Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Row:
    """What was measured on one program: medians of interleaved calls, in milliseconds."""

    name: str
    apart: float  # greatest absolute difference to eager
    eager_ms: float
    jitney_ms: float
    first_s: float  # the first call, compiling included
    kernels: int
    whole: int  # operators that run as a whole


def formulas() -> list[Program]:
    """Functions whose memory traffic is what costs."""
    torch.manual_seed(0)
    x, bias = torch.randn(2048, 2048), torch.randn(2048)
    labels = torch.randint(2048, (2048,))
    return [
        ("bias, GELU, residual", lambda x, b: F.gelu(x + b) + x, (x, bias)),
        ("RMS norm, SwiGLU", _swiglu, (x, bias)),
        ("softmax", lambda x: torch.softmax(x, -1), (x,)),
        ("cross entropy", lambda x, y: F.cross_entropy(x, y), (x, labels)),
    ]


def _swiglu(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    scaled = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight
    gate, value = scaled.chunk(2, -1)
    return F.silu(gate) * value


def infer_and_show(console: Console, models: Sequence[Program]) -> bool:
    """Measure each program with and without, print the table; did all agree?"""
    rows = [measure(*program) for program in track([*models, *formulas()], description="inference", transient=True)]
    console.print("Inference through the default backend\n")
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for title in ("program", "result"):
        table.add_column(title, no_wrap=True)
    for title in ("kernels", "whole\nops", "first call\ns", "eager\nms", "jitney\nms", "speedup"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        color = "green" if row.apart <= CLOSE else "red"
        table.add_row(
            row.name, f"[{color}]~{row.apart:.0e}[/]", str(row.kernels), str(row.whole), f"{row.first_s:.2f}",
            f"{row.eager_ms:.2f}", f"{row.jitney_ms:.2f}", f"[bold]{row.eager_ms / row.jitney_ms:.2f}[/]",
        )  # fmt: skip
    console.print(table)
    console.print(
        f"\n{torch.get_num_threads()} threads, interleaved medians. whole ops: matrix products and the like.\n"
    )
    return all(row.apart <= CLOSE for row in rows)


def measure(name: str, program: Callable[..., Any], inputs: tuple[Any, ...]) -> Row:
    """One program."""
    made: list[events.Lowered] = []

    def look(event: events.Event) -> None:
        if isinstance(event, events.Lowered):
            made.append(event)

    with torch.no_grad():
        compiled = compile_function(program)
        expected = _tensor(program(*inputs))
        with events.listen(look):
            begin = time.perf_counter()
            got = _tensor(compiled(*inputs))
            first = time.perf_counter() - begin
        eager_ms, jitney_ms = (1e3 * seconds for seconds in interleaved([program, compiled], inputs, ROUNDS))
    apart = float((expected - got).abs().max())
    kernels, whole = sum(e.kernels for e in made), sum(len(e.whole) for e in made)
    return Row(name, apart, eager_ms, jitney_ms, first, kernels, whole)


def _tensor(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else next(v for v in dict(result).values())
