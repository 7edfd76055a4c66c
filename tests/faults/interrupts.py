"""Ctrl-C at random moments of first calls: the next call works and equals eager, and torch's state is as before.

    python tests/faults/interrupts.py --times 500 --seed 1

Programs and backends that run on the CPU are drawn; nothing is taken from the cache on disk. Prints a table, and a line
for each fault; exits with 1 if there is one. A process that ends by itself is the worst of them.
"""

from __future__ import annotations

import argparse
import copy
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn
from torch.nn import functional as F

import jitney
from jitney.torch_compat import torch_private

BACKENDS = ("eager", "aot_eager", "llvm_cpu")
EARLIEST = 0.0005  # seconds after the call begins


class Net(nn.Module):
    """Writes to buffers, and has a graph break."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16)
        self.last = nn.Linear(16, 4)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Probabilities, (batch, 4), of rows, (batch, 8)."""
        self.count += 1
        hidden = self.norm(self.first(x)).relu()
        if x.sum() > 1e9:
            hidden = hidden * 2
        return self.last(F.dropout(hidden, 0.0)).softmax(-1)


def looped(x: torch.Tensor, turns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A loop around a graph break."""
    means = []
    for turn in range(turns):
        x = torch.sin(x) + turn
        means.append(x.mean())
        if turn == 1:
            print(end="")
    return torch.stack(means), x


def written(x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    """Arguments are written to, and are results."""
    x.add_(1)
    y[:, 1:3] = x[:, 1:3] * 2
    return {"x": x, "more": [y, y.sum()]}


def generated(x: torch.Tensor) -> Any:
    """A generator, a context manager, and what comes last of all."""
    try:
        with torch.no_grad():
            return sum(part.sum() for part in (x * n for n in range(3)))
    finally:
        x.mul_(1)


@dataclass
class Program:
    """What is called, what it changes besides its arguments, and arguments for a call."""

    make: Callable[[], tuple[Callable[..., Any], nn.Module | None]]
    arguments: Callable[[], tuple[Any, ...]]


def net() -> tuple[Callable[..., Any], nn.Module]:
    """The module itself."""
    torch.manual_seed(0)
    module = Net()
    return module, module


def step() -> tuple[Callable[..., Any], nn.Module]:
    """A training step of it."""
    torch.manual_seed(0)
    module = Net()
    optimizer = torch.optim.SGD(module.parameters(), 1e-2, momentum=0.9)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = module(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, module


PROGRAMS = {
    "module": Program(net, lambda: (torch.randn(5, 8),)),
    "loop": Program(lambda: (looped, None), lambda: (torch.randn(3, 4), 3)),
    "writes": Program(lambda: (written, None), lambda: (torch.randn(3, 4), torch.randn(3, 4))),
    "generator": Program(lambda: (generated, None), lambda: (torch.randn(3, 4),)),
    "training step": Program(step, lambda: (torch.randn(5, 8),)),
}


class Alarm:
    """Presses Ctrl-C once, so many seconds after ``with`` begins, unless that has ended by then."""

    def __init__(self, seconds: float) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._press, args=(seconds,))

    def _press(self, seconds: float) -> None:
        if not self._over.wait(seconds):
            os.kill(os.getpid(), signal.SIGINT)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def state() -> tuple[Any, ...]:
    """torch's state, and Python's, that a call leaves as it was."""
    modes = len(torch_private.function_modes()), torch._C._len_torch_dispatch_stack()
    grad = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
    return (*modes, *grad, torch.get_default_dtype(), sys.getrecursionlimit(), signal.getsignal(signal.SIGINT))


def interrupted(program: Program, backend: str, seconds: float, seed: int) -> Iterator[str]:
    """Interrupt a first call; ``interrupted`` if it was, and what is wrong then."""
    torch.manual_seed(seed)
    calls = [program.arguments() for _ in range(3)]
    expected, given = copy.deepcopy(calls), copy.deepcopy(calls)
    before = state()
    compiled, module = _compiled(program, backend)
    try:
        with Alarm(seconds):
            compiled(*given[0])
    except KeyboardInterrupt:
        yield "interrupted"
        given = copy.deepcopy(calls)
        if state() != before:
            yield f"the state is {state()}, it was {before}"
            return
        if module is not None:  # how much of its work the call had done, nobody knows
            compiled, module = _compiled(program, backend)
    else:
        return
    plain, twin = program.make()
    try:
        for mine, theirs in zip(given, expected, strict=True):
            torch.testing.assert_close(compiled(*mine), plain(*theirs), rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
        if module is not None and twin is not None:
            torch.testing.assert_close(module.state_dict(), twin.state_dict(), rtol=1e-3, atol=1e-4)
    except Exception as error:
        yield f"the calls after it: {type(error).__name__}: {error}"


def _compiled(program: Program, backend: str) -> tuple[Callable[..., Any], nn.Module | None]:
    plain, module = program.make()
    return jitney.compile(plain, backend=backend), module


def duration(program: Program, backend: str) -> float:
    """Seconds that a first call takes."""
    for _ in range(2):  # the first of all imports
        jitney.reset()
        compiled, _ = _compiled(program, backend)
        arguments = program.arguments()
        begin = time.perf_counter()
        compiled(*arguments)
    return time.perf_counter() - begin


def main(argv: list[str] | None = None) -> int:
    """Run; 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=500, help="how many first calls (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    draw, counts, faults = random.Random(options.seed), Counter[tuple[str, str]](), list[str]()
    seconds: dict[tuple[str, str], float] = {}
    with jitney.config.patch(cache=False):
        for number in track(range(options.times), "first calls", console=Console(stderr=True)):
            name, backend = draw.choice([*PROGRAMS]), draw.choice(BACKENDS)
            if (name, backend) not in seconds:
                seconds[name, backend] = duration(PROGRAMS[name], backend)
            jitney.reset()
            delay = draw.uniform(EARLIEST, 1.05 * seconds[name, backend])
            for found in interrupted(PROGRAMS[name], backend, delay, number):
                if found == "interrupted":
                    counts[name, backend] += 1
                else:
                    faults.append(f"{name}, {backend}, call {number}, after {delay:.4f} s: {found}")
    table = Table("program", *BACKENDS, title=f"{counts.total()} of {options.times} first calls interrupted")
    for name in PROGRAMS:
        table.add_row(name, *(str(counts[name, backend]) for backend in BACKENDS))
    Console().print(table)
    print(f"seed {options.seed}: {len(faults)} faults", *faults, sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
