"""Names for what compiled code runs: told to torch's profiler, and to whoever times it.

Only code that is compiled while markers are wanted has them (``config.profiler_markers``, or torch's profiler runs
then). All other code has not one instruction more.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import torch

from jitney import events
from jitney.config import config
from jitney.torch_compat import torch_private


class Span(NamedTuple):
    """Something ran.

    Args:
        kind: ``frame`` (an emitted function is entered: no length), ``run`` (a captured graph, with what autograd
            needs), ``graph`` (what a backend made of one), ``kernel`` or ``extern`` (a part of that).
        name: what people read.
        number: of the frame, as ``events.subject``.
        detail: of a graph: inference, forward or backward.
        begin, end: as ``time.perf_counter`` has them.
        thread: its identity.
    """

    kind: str
    name: str
    number: int
    detail: str
    begin: float
    end: float
    thread: int


_collectors: list[list[Span]] = []


def profiling() -> bool:
    """Is torch's profiler running?"""
    return torch_private.is_profiling()


def wanted() -> bool:
    """Does what is compiled now get markers?"""
    return config.profiler_markers or bool(_collectors) or profiling()


@contextlib.contextmanager
def collecting() -> Iterator[list[Span]]:
    """All spans of the process until the block ends, in the order in which they end."""
    spans: list[Span] = []
    _collectors.append(spans)
    try:
        yield spans
    finally:
        _collectors.remove(spans)


class Marker:
    """``with marker():`` around what runs.

    Args:
        kind, name, detail: see ``Span``; the number is that of the frame which is being compiled.
    """

    def __init__(self, kind: str, name: str, detail: str = "") -> None:
        self.kind = kind
        self.name = name
        self.detail = detail
        self.number = events.subject()

    def __call__(self) -> _Open:
        """One run of it."""
        return _Open(self)

    def instant(self) -> None:
        """A moment rather than a while."""
        now = time.perf_counter()
        for spans in _collectors:
            spans.append(self._span(now, now))

    def _span(self, begin: float, end: float) -> Span:
        return Span(self.kind, self.name, self.number, self.detail, begin, end, threading.get_ident())


class _Open:
    """One run of what a marker is about."""

    __slots__ = ("begin", "marker", "record")

    def __init__(self, marker: Marker) -> None:
        self.marker = marker
        self.record = torch.profiler.record_function(f"jitney {marker.kind}: {marker.name}")

    def __enter__(self) -> None:
        self.record.__enter__()
        _wait()
        self.begin = time.perf_counter()

    def __exit__(self, *error: Any) -> None:
        _wait()
        end = time.perf_counter()
        for spans in _collectors:
            spans.append(self.marker._span(self.begin, end))
        kind: type[BaseException] | None = error[0]
        trace: TracebackType | None = error[2]
        self.record.__exit__(kind, error[1], trace)


def _wait() -> None:
    """Somebody measures: what was started on a device has ended before the clock is read."""
    if _collectors and torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()


def marked(
    compiled: Callable[..., Sequence[Any]], kind: str, name: str, detail: str = ""
) -> Callable[..., Sequence[Any]]:
    """``compiled`` with a marker around it, if markers are wanted; else itself."""
    if not wanted():
        return compiled
    marker = Marker(kind, name, detail)

    def run(*inputs: Any) -> Sequence[Any]:
        with marker():
            return compiled(*inputs)

    boxed = getattr(compiled, "boxed", None)
    if boxed is not None:

        def run_boxed(inputs: list[Any]) -> Sequence[Any]:
            with marker():
                found: Sequence[Any] = boxed(inputs)
                return found

        run.boxed = run_boxed  # type: ignore[attr-defined] # see Backend
    run.filled = getattr(compiled, "filled", frozenset())  # type: ignore[attr-defined] # see CompileRequest.updates
    return run
