"""The part of the demo that trains: a small decoder and its optimizer, compiled, beside eager."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from jitney import events
from jitney.api import compile as compile_function
from jitney_tools.commands.demo_models import VOCABULARY, model_in_training

STEPS = 20
# Twenty steps of training amplify the last bit of the first.
CLOSE = 1e-4


@dataclass
class Run:
    """A model in training, and what that shows."""

    model: torch.nn.Module
    call: Any
    optimizer: torch.optim.Optimizer
    step: Any
    dice: torch.Tensor  # the state of the random numbers
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    kept: int = 0  # bytes between the last forward and its backward, parameters not counted


@dataclass
class Found:
    """What was compiled for it."""

    graphs: dict[str, int]
    breaks: int
    seconds: float


def train_and_show(console: Console) -> bool:
    """Train with and without, print the table; did they agree?"""
    (name, eager), (_, ours) = model_in_training(), model_in_training()
    ours.load_state_dict(eager.state_dict())
    found = Found({}, 0, 0.0)

    def look(event: events.Event) -> None:
        if isinstance(event, events.AtenGraph) and event.kind != "joint":
            found.graphs[event.kind] = found.graphs.get(event.kind, 0) + 1
        elif isinstance(event, events.GraphBreak):
            found.breaks += 1
        elif isinstance(event, events.Phase):
            found.seconds += event.seconds

    with events.listen(look):
        wanted, got = train([start(eager, False), start(ours, True)])
    apart = max(abs(a - b) for a, b in zip(wanted.losses, got.losses, strict=True))
    console.print(
        f"{name} (2 layers, random weights) and AdamW, {STEPS} steps of training through the default backend\n"
    )
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("run")
    for title in (
        "first\nloss",
        "last\nloss",
        "kept for\nbackward",
        "a step\nms",
        "speedup",
        "graphs",
        "breaks",
        "compile\ns",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_row("eager", *_figures(wanted), "", "", "", "")
    graphs = "+".join(str(found.graphs.get(kind, 0)) for kind in ("forward", "backward", "inference"))
    speedup = f"[bold]{statistics.median(wanted.seconds) / statistics.median(got.seconds):.2f}[/]"
    table.add_row("compiled", *_figures(got), speedup, graphs, str(found.breaks), f"{found.seconds:.1f}")
    console.print(table)
    agree = math.isfinite(apart) and apart <= CLOSE
    color = "green" if agree else "red"
    console.print(f"\nlosses: [{color}]{apart:.0e}[/] apart at most. graphs: forward+backward+the optimizer's.")
    return agree


def _figures(run: Run) -> tuple[str, ...]:
    step = statistics.median(run.seconds) * 1e3
    return f"{run.losses[0]:.4f}", f"{run.losses[-1]:.4f}", f"{run.kept / 1e6:.1f} MB", f"{step:.1f}"


def start(model: torch.nn.Module, compiled: bool) -> Run:
    """Ready for training, with dropout, from the same seed each time."""
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    call: Any = model.train()
    step: Any = optimizer.step
    if compiled:
        call, step = compile_function(model), compile_function(optimizer.step)
    return Run(model, call, optimizer, step, torch.get_rng_state())


def train(runs: list[Run]) -> list[Run]:
    """Some steps on one batch, the runs in turns."""
    torch.manual_seed(0)
    ids = torch.randint(1, VOCABULARY, (8, 64))
    for _ in track(range(STEPS), description="training", transient=True):
        for run in runs:
            torch.set_rng_state(run.dice)
            begin = time.perf_counter()
            one_step(run, ids)
            run.seconds.append(time.perf_counter() - begin)
            run.dice = torch.get_rng_state()
    return runs


def one_step(run: Run, ids: torch.Tensor) -> None:
    """Forward, backward, optimizer; what is saved in between is counted."""
    own = {p.untyped_storage().data_ptr() for p in run.model.parameters()}
    sizes: dict[int, int] = {}

    def pack(saved: torch.Tensor) -> torch.Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return saved

    run.optimizer.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        loss = run.call(input_ids=ids, labels=ids).loss
    loss.backward()
    run.step()
    run.losses.append(float(loss.detach()))
    run.kept = sum(sizes.values())
