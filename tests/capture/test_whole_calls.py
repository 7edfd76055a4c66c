"""Where something breaks in a call that computes nothing of the graph's, the graph breaks once, at that call."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import CountingBackend

import jitney

LIBRARY = """
import contextlib, os, time

lines = []

class Logger:
    def __init__(self):
        self.handlers = {"first": self._write}

    def info(self, message, *args, **kwargs):
        self._log("INFO", message, args, kwargs)

    def _log(self, level, message, args, kwargs):
        began = time.perf_counter()
        with self._locked():
            for name, handler in self.handlers.items():
                handler(f"{level}: {message.format(*args)}", os.getpid())
        assert time.perf_counter() >= began

    @contextlib.contextmanager
    def _locked(self):
        os.getppid()
        yield

    def _write(self, text, process):
        os.getpid()
        lines.append(text)

def twice(function, value):
    os.getpid()
    return function(function(value))

def fails(text):
    os.getpid()
    raise ValueError(text)
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An installed package that logs."""
    folder = tmp_path / "site-packages" / "plain_logs"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder.parent))
    yield importlib.import_module("plain_logs")
    del sys.modules["plain_logs"]


def runs(fn: Any, *args: Any) -> tuple[Any, jitney.CompileProfiler]:
    with jitney.CompileProfiler() as profile:
        return jitney.compile(fn, backend="eager")(*args), profile


def test_a_library_that_knows_nothing_of_tensors(library: Any) -> None:
    logger = library.Logger()

    def fn(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        logger.info("of shape {}", tuple(x.shape))
        return x * 2

    x = torch.ones(3)
    found, profile = runs(fn, x)
    assert torch.equal(found, fn(x))
    assert library.lines == ["INFO: of shape (3,)"] * 2
    assert (profile.graphs, profile.graph_breaks) == (2, 1)


def test_what_it_raises_is_handled(library: Any) -> None:
    def fn(x: torch.Tensor) -> Any:
        x = x + 1
        try:
            library.fails("no")
        except ValueError as error:
            return x * 2, str(error)

    found, profile = runs(fn, torch.ones(2))
    assert found[1] == "no"
    assert torch.equal(found[0], torch.full((2,), 4.0))
    assert profile.graph_breaks == 1


def test_a_function_of_the_programs_stays_compiled(library: Any) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + 1

    def fn(x: torch.Tensor) -> torch.Tensor:
        return library.twice(step, x) * 3

    x = torch.ones(3)
    backend = CountingBackend()
    torch.testing.assert_close(jitney.compile(fn, backend=backend)(x), fn(x))
    operations = [node.name for graph in backend.graphs for node in graph.graph.nodes]
    assert sum(name.startswith("sin") for name in operations) == 2


def test_a_modules_backward_hooks() -> None:
    def model() -> tuple[torch.nn.Module, list[Any]]:
        torch.manual_seed(0)
        made, seen = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)), []
        for part in made:
            part.register_full_backward_hook(lambda module, given, got: seen.append((given, got)))
        return made, seen

    (plain, wanted), (other, seen) = model(), model()
    x = torch.randn(5, 3)
    plain(x.clone().requires_grad_()).sum().backward()
    with jitney.CompileProfiler() as profile:
        out = jitney.compile(other, backend="eager")(x.clone().requires_grad_())
    out.sum().backward()
    torch.testing.assert_close(seen, wanted)
    torch.testing.assert_close([p.grad for p in other.parameters()], [p.grad for p in plain.parameters()])
    assert "grad_fn" not in profile.report()
