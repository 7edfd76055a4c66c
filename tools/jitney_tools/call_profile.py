"""Where the time of a call goes: guards, kernels, operators that run as a whole, and what is between them."""

from __future__ import annotations

import collections
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from jitney import events
from jitney.torch_compat import markers
from jitney.torch_compat.markers import Span

# What a moment counts as, by what is open then; the first that is.
PARTS = {
    "kernel": "kernels",
    "extern": "operators as a whole",
    "graph": "in graphs, between kernels: memory, launches",
    "run": "around graphs: autograd, views, writes",
    "guards": "guards, and fetching inputs",
    "frame": "Python: the rest of frames, breaks, autograd's engine",
    "call": "before the first guard",
}
WARM = 3  # calls before any is timed
COPIED = 64 << 20  # bytes: what the machine's memory is measured with
Key = tuple[int, str, str]  # frame's number, kind of graph, name


@dataclass(frozen=True)
class Measured:
    """A kernel or operator.

    Args:
        number, graph, name: which one: of the frame, of the graph (forward...), its own.
        kind: ``kernel`` or ``extern``.
        runs: per call.
        seconds: of one run, median.
        moved: bytes read and written in one run; 0 if unknown.
    """

    number: int
    graph: str
    name: str
    kind: str
    runs: float
    seconds: float
    moved: int

    @property
    def bandwidth(self) -> float:
        """Bytes a second; 0 if unknown."""
        return self.moved / self.seconds if self.seconds else 0.0


@dataclass
class Profile:
    """What a call costs.

    Args:
        calls: how many were timed.
        seconds: of a call as it is, median.
        marked: of a call whose kernels run one by one, with a clock around each: mean of the faster half.
        parts: seconds per call by part of ``PARTS``, of that half; what the clocks themselves take is taken off.
        rows: kernels and operators, the most expensive first.
        spans: of the timed calls.
    """

    calls: int
    seconds: float
    marked: float
    parts: dict[str, float] = field(default_factory=dict)
    rows: list[Measured] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)


def measure(
    bare: Callable[[], Any], marked: Callable[[], Any], calls: int, moved: dict[Key, int] | None = None
) -> Profile:
    """Time a call, without and with markers in its code.

    Args:
        bare: a call of compiled code.
        marked: a call of the same program, compiled apart; its code gets markers.
        calls: how many to time of each.
        moved: bytes of each kernel and operator, filled while ``marked`` compiles: see ``bytes_told``.
    """
    for _ in range(WARM):
        bare()
    with markers.collecting() as spans:
        for _ in range(WARM):
            marked()
        spans.clear()
        plain, seen = [], []
        for _ in range(calls):  # in turns, so that noise hits both alike
            plain.append(_timed(bare)[1])
            begin, seconds = _timed(marked)
            seen.append((begin, begin + seconds))
    cost = _marker_cost()
    typical = sorted(seen, key=lambda turn: turn[1] - turn[0])[: (calls + 1) // 2]  # the others were interrupted
    profile = Profile(calls, statistics.median(plain), statistics.fmean(end - begin for begin, end in typical))
    profile.spans = [s for s in spans if any(begin <= s.begin <= end for begin, end in seen)]
    own = [s for s in profile.spans if any(begin <= s.begin <= end for begin, end in typical)]
    profile.parts = parts_of(own, typical, cost)
    profile.rows = rows_of(profile.spans, calls, moved or {})
    return profile


def _timed(call: Callable[[], Any]) -> tuple[float, float]:
    on_device = torch.cuda.is_initialized()
    if on_device:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    if on_device:
        torch.cuda.synchronize()
    return begin, time.perf_counter() - begin


def bytes_told(moved: dict[Key, int]) -> Callable[[events.Event], None]:
    """A listener that keeps the bytes which each kernel and operator moves."""

    def collect(event: events.Event) -> None:
        if isinstance(event, events.Scheduled):
            for launch in event.launches:
                moved[events.subject(), event.kind, launch.name] = launch.read + launch.written

    return collect


def parts_of(spans: Iterable[Span], calls: Sequence[tuple[float, float]], cost: float = 0.0) -> dict[str, float]:
    """Seconds per call by part; each moment counts once.

    Args:
        spans: from ``markers.collecting``.
        calls: when each call began and ended.
        cost: seconds that a marker adds around what it is about; taken from the part that it is within.
    """
    order = list(PARTS)
    edges: list[tuple[float, int, str]] = []
    for begin, end in calls:
        edges += [(begin, 1, "call"), (end, -1, "call")]
    listed = sorted(spans, key=lambda span: span.begin)
    for at, span in enumerate(listed):
        if span.kind != "frame":
            edges += [(span.begin, 1, span.kind), (span.end, -1, span.kind)]
            continue
        # From entering a frame to its graph are the guards; until the call ends we are past the first of them.
        own = next((s for s in listed[at + 1 :] if s.kind in ("run", "frame")), None)
        end = next(end for begin, end in calls if begin <= span.begin <= end)
        if own is not None and own.kind == "run" and own.begin <= end:
            edges += [(span.begin, 1, "guards"), (own.begin, -1, "guards")]
        edges += [(span.begin, 1, "frame"), (end, -1, "frame")]
    open_ = collections.Counter[str]()
    sums: dict[str, float] = dict.fromkeys(order, 0.0)
    inner = collections.Counter[str]()  # markers that begin within a part
    last = 0.0
    for moment, change, kind in sorted(edges, key=lambda edge: (edge[0], edge[1])):
        part = next((p for p in order if open_[p]), None)
        if part is not None:
            sums[part] += moment - last
            inner[part] += change > 0 and kind in ("kernel", "extern", "graph", "run")
        open_[kind] += change
        last = moment
    return {PARTS[p]: max(0.0, sums[p] - inner[p] * cost) / len(calls) for p in order if sums[p]}


def rows_of(spans: Iterable[Span], calls: int, moved: dict[Key, int]) -> list[Measured]:
    """Kernels and operators, the most expensive first."""
    found: dict[tuple[int, str, str, str], list[float]] = {}
    for span in spans:
        if span.kind in ("kernel", "extern"):
            found.setdefault((span.number, span.detail, span.name, span.kind), []).append(span.end - span.begin)
    rows = [
        Measured(n, graph, name, kind, len(t) / calls, statistics.median(t), moved.get((n, graph, name), 0))
        for (n, graph, name, kind), t in found.items()
    ]
    return sorted(rows, key=lambda row: -row.seconds * row.runs)


def _marker_cost() -> float:
    """Seconds that a marker takes besides what it measures."""
    marker = markers.Marker("kernel", "nothing")
    costs = []
    with markers.collecting() as spans:
        for _ in range(50):
            begin = time.perf_counter()
            with marker():
                pass
            total = time.perf_counter() - begin
            costs.append(total - (spans[-1].end - spans[-1].begin))
    return statistics.median(costs)


def copy_bandwidth(device: torch.device) -> float:
    """Bytes a second that copying a large tensor reads and writes there: what a kernel can hope for."""
    source = torch.zeros(COPIED, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = [_timed(lambda: target.copy_(source))[1] for _ in range(5)]
    return 2 * COPIED / min(times)
