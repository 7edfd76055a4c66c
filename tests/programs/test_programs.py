"""Generated Python programs do the same compiled as in eager: results, state, printed text, exceptions.

``JITNEY_TEST_EXAMPLES`` sets how many programs are drawn, ``JITNEY_TEST_PROFILE=long`` draws thousands, and
``JITNEY_TEST_SEED`` repeats a run (pytest's header prints the seed).
"""

from __future__ import annotations

import contextlib
import linecache
import os
from collections.abc import Iterator
from typing import Any

import torch
from helpers import FRONTEND, check_made, disable, graph_break, t
from hypothesis import given, note, seed, settings

from jitney_testing.drawn.programs import functions

SEED = int(os.environ.get("JITNEY_TEST_SEED", "0"))


class Box:
    """An object with attributes."""

    def __init__(self, v: torch.Tensor, n: int) -> None:
        self.v = v
        self.n = n


class Track:
    """A context manager that remembers what happened to it."""

    def __init__(self, log: list[Any], swallow: tuple[type[BaseException], ...] = ()) -> None:
        self.log = log
        self.swallow = swallow

    def __enter__(self) -> Track:
        self.log.append("enter")
        return self

    def __exit__(self, kind: Any, value: Any, tb: Any) -> bool:
        self.log.append(("exit", kind and kind.__name__))
        return kind is not None and issubclass(kind, self.swallow)


@contextlib.contextmanager
def scope(log: list[Any], x: torch.Tensor) -> Iterator[torch.Tensor]:
    """A context manager written as a generator."""
    log.append("in")
    try:
        yield x * 2
    finally:
        log.append("out")


def opaque(x: torch.Tensor, log: list[Any]) -> torch.Tensor:
    """Runs outside of the compiler."""
    log.append(x.sum().item())
    return x * 2


def load(source: str) -> dict[str, Any]:
    """Execute the module text anew; its lines show up in tracebacks."""
    filename = "<generated program>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {
        "__name__": "generated",
        "torch": torch,
        "contextlib": contextlib,
        "Box": Box,
        "Track": Track,
        "scope": scope,
        "opaque": disable(opaque),
        "graph_break": graph_break,
    }
    exec(compile(source, filename, "exec"), namespace)
    return namespace


def run(source: str, n: int, grad: bool, calls: int = 2, **options: Any) -> None:
    """Check one program."""
    note(source)

    def make() -> Any:
        namespace = load(source)
        return namespace["program"], lambda: {k: namespace[k] for k in ("COUNT", "LOG", "TABLE")}

    x = t()
    shared = t() * 2
    box = Box(t() + 1, 1)
    items = [shared, t() - 1, x]
    weight = t(requires_grad=True)
    if grad:
        items.append(weight)
    arguments = x, t() * 3, n, items, {"a": shared}, box
    check_made(make, *arguments, calls=calls, raises=BaseException, skips=None, compile_options=options)


@seed(SEED)
@given(source=functions())
def test_generated_programs(source: str) -> None:
    run(source, n=2, grad=False)


@seed(SEED + 1)
@settings(max_examples=max(1, settings.default.max_examples // 4))
@given(source=functions())
def test_generated_programs_that_see_parameters(source: str) -> None:
    run(source, n=1, grad=True, calls=3)


def test_the_strategy_covers_the_language() -> None:
    """What is drawn is valid Python, mostly runs to its end, and uses every kind of statement."""
    from collections import Counter

    from hypothesis import HealthCheck, Phase

    words: Counter[str] = Counter()

    @seed(3)
    @settings(max_examples=200, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(source=functions())
    def collect(source: str) -> None:
        body = source.split("def program", 1)[1]
        words["programs"] += 1
        words.update({w for w in body.replace(":", " ").replace("(", " ").split() if w.isidentifier()})
        compile(source, "<generated>", "exec")
        with contextlib.redirect_stdout(None):
            with contextlib.suppress(Exception):
                x = t()
                load(source)["program"](x, t() * 3, 2, [t(), t() - 1, x], {"a": t()}, Box(t(), 1))
                words["finished"] += 1

    if FRONTEND != "dynamo":
        collect()
        for word in "if else for while try except finally with def class yield match lambda print break return".split():
            assert words[word] > 1, (word, words)
        assert words["finished"] > words["programs"] * 0.5
