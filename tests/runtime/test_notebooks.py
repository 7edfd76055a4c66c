"""Cells of a notebook that run again define everything anew: what was there before goes, and all that was compiled."""

from __future__ import annotations

import gc
import linecache
import textwrap
import types
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import jitney
from jitney import events
from jitney.runtime.wrappers import compiled_function

CELLS = {
    "a function that calls another": """
        def step(x): return helper(x).relu()
        def helper(x): return x * 2 + 1
        compiled = jitney.compile(step, backend=backend)
        for n in (3, 4): compiled(torch.ones(n))
        """,
    "a module that trains": """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 4)
            def forward(self, x): return self.layer(x).relu()
        net = Net()
        compiled = jitney.compile(net, backend=backend)
        def step(x): return net(x).sum()
        both = jitney.compile(step, backend=backend)
        for n in (2, 3): compiled(torch.ones(n, 4)).sum().backward()
        both(torch.ones(2, 4)).backward()
        """,
    "graph breaks": """
        def step(x):
            y = x.sin()
            for _ in range(2):
                print(end=str(y)[:0])
                y = helper(y)
            return y
        def helper(x):
            print(end=str(x)[:0])
            return x + 1
        compiled = jitney.compile(step, backend=backend)
        for n in (3, 4): compiled(torch.ones(n))
        """,
    "generators, classes, closures": """
        class Box:
            def __init__(self, x): self.x = x
            @property
            def twice(self): return self.x * 2
        def pieces(x):
            for i in range(3): yield x * i
        @jitney.compile(backend=backend)
        def step(x, f=lambda t: t + 1):
            return sum(map(f, pieces(Box(x).twice))) + sorted([2, 1], key=lambda k: -k)[0]
        @jitney.disable
        def off(x): return x + 1
        @jitney.compile(backend=backend)
        def other(x): return off(step(x)) * 2
        for n in (3, 4): other(torch.ones(n))
        jitney.explain(other)(torch.ones(3))
        """,
    "autograd functions and optimizers": """
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x * 2
            @staticmethod
            def backward(ctx, g): return g * 2
        net = torch.nn.Linear(3, 3)
        optimizer = torch.optim.Adam(net.parameters())
        @jitney.compile(backend=backend)
        def step(x):
            optimizer.zero_grad()
            loss = Double.apply(net(x)).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()
        for _ in range(2): step(torch.ones(2, 3))
        """,
}


@contextmanager
def captured_graphs() -> Iterator[list[weakref.ref[Any]]]:
    found: list[weakref.ref[Any]] = []

    def collect(event: events.Event) -> None:
        if isinstance(event, events.GraphCaptured):
            found.append(weakref.ref(event.graph))

    with events.listen(collect):
        yield found


def run_cell(text: str, number: int, space: dict[str, Any]) -> list[weakref.ref[Any]]:
    """Run it as a kernel does; what it has defined."""
    filename = f"<ipython-input-{number}-abcdef>"
    text = textwrap.dedent(text)
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    exec(compile(text, filename, "exec"), space)
    del linecache.cache[filename]
    found: list[weakref.ref[Any]] = []
    for value in space.values():
        original = getattr(value, "_jitney_original", value)
        if isinstance(original, types.FunctionType) and original.__code__.co_filename == filename:
            found += [weakref.ref(original), weakref.ref(original.__code__)]
        elif isinstance(value, type) and value.__module__ == "__main__":
            found.append(weakref.ref(value))
    return found


def collect_all() -> None:
    for _ in range(2):  # what a node of autograd's holds goes one round later
        gc.collect()


@pytest.mark.parametrize(
    ("name", "kept", "count"),
    [
        *((name, False, 50 if name == "a function that calls another" else 3) for name in CELLS),
        ("graph breaks", True, 3),  # from disk
    ],
)
def test_a_cell_that_runs_again_leaves_nothing(name: str, kept: bool, count: int, tmp_path: Path) -> None:
    space: dict[str, Any] = {"torch": torch, "jitney": jitney, "backend": "aot_eager", "__name__": "__main__"}
    defined: list[list[weakref.ref[Any]]] = []
    with jitney.config.patch(cache=kept, cache_dir=str(tmp_path)), captured_graphs() as graphs:
        for number in range(count):
            defined.append(run_cell(CELLS[name], number, space))
            if number >= count - 2:
                collect_all()
        assert len(defined[0]) >= 2 and graphs
        del defined[-1]  # it is there
        alive = [one() for refs in defined for one in refs if one() is not None]
        assert not alive
        space.clear()
        collect_all()
        assert not [graph() for graph in graphs if graph() is not None]
        assert not [root for root in compiled_function.roots if root.target.code.co_filename.startswith("<ipython")]
