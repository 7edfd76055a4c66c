"""A picture of training steps: computation and communication of each rank, from torch's profiler, and what is hidden.

    python -m jitney_ddp_bucketing.timeline trace_rank0.json trace_rank1.json -o timeline.svg

The traces are what ``torch.profiler.profile(...).export_chrome_trace(path)`` wrote, one for each rank. With CUDA in
them, computation and communication are kernels (NCCL's are communication); without, operators and gloo's collectives.
The share hidden is the part of the time of communication in which the same rank computed, too.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Console

Interval = tuple[float, float]
WAITS = ("_c10d_functional::wait_tensor", "c10d::", "_c10d_functional::")  # operators that start or await collectives
COLORS = {"compute": "#2f6fde", "communication": "#e8833a"}


@dataclass(frozen=True)
class Lanes:
    """What one rank did, as disjoint intervals in order, in microseconds.

    Args:
        name: of the rank.
        compute: when it computed.
        communication: when gradients (or anything else) were on their way.
    """

    name: str
    compute: list[Interval]
    communication: list[Interval]

    @property
    def compute_time(self) -> float:
        """Microseconds of computation."""
        return total(self.compute)

    @property
    def communication_time(self) -> float:
        """Microseconds of communication."""
        return total(self.communication)

    @property
    def hidden(self) -> float | None:
        """The share of communication during which the rank computed; None without communication."""
        if not self.communication:
            return None
        return total(intersection(self.communication, self.compute)) / self.communication_time


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same times as disjoint intervals, in order."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > begin:
            found.append((begin, end))
    return found


def intersection(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """Where both are; each disjoint and in order."""
    found = []
    i = j = 0
    while i < len(one) and j < len(other):
        begin, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if begin < end:
            found.append((begin, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def without(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """Where ``one`` is and ``other`` is not; each disjoint and in order."""
    found = []
    for begin, end in one:
        for b, e in other:
            if e <= begin or b >= end:
                continue
            if b > begin:
                found.append((begin, b))
            begin = max(begin, e)
        if begin < end:
            found.append((begin, end))
    return found


def total(intervals: Iterable[Interval]) -> float:
    """How long they are together."""
    return sum(end - begin for begin, end in intervals)


def lanes(events: Iterable[dict[str, Any]], name: str) -> Lanes:
    """The lanes of one rank, from the events of a Chrome trace."""
    timed = [e for e in events if e.get("ph") == "X" and "dur" in e]
    kernels = [e for e in timed if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]

    def times(chosen: Iterable[dict[str, Any]]) -> list[Interval]:
        return union((float(e["ts"]), float(e["ts"]) + float(e["dur"])) for e in chosen)

    if kernels:
        sends = [e for e in kernels if "nccl" in e["name"].lower()]
        return Lanes(name, times(e for e in kernels if "nccl" not in e["name"].lower()), times(sends))
    operators = [e for e in timed if e.get("cat") == "cpu_op"]
    waits = times(e for e in operators if e["name"].startswith(WAITS))
    sends = [e for e in timed if e["name"].startswith(("gloo:", "mpi:", "ucc:"))]
    return Lanes(name, without(times(operators), waits), times(sends))


def read(path: Path) -> Lanes:
    """The lanes of a trace file, which may be compressed; named after it.

    Raises:
        ValueError: it is no Chrome trace.
    """
    try:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        events = json.loads(text)
        events = events["traceEvents"] if isinstance(events, dict) else events
    except (ValueError, KeyError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is no trace of torch's profiler ({error})") from error
    return lanes(events, path.name.removesuffix(".gz").removesuffix(".json"))


def before_rank(names: Sequence[str]) -> str:
    """What all names have before the rank: ``model_`` of ``model_rank0`` and ``model_rank1``."""
    if len(names) < 2:
        return ""
    words = zip(*(name.split("_")[:-1] for name in names), strict=False)
    shared = itertools.takewhile(lambda alike: len({*alike}) == 1, words)
    return "".join(f"{alike[0]}_" for alike in shared)


def svg(ranks: Sequence[Lanes], width: int = 1200) -> str:
    """Two lanes for each rank, on one axis of time; the share that is hidden beside them."""
    everything = [i for rank in ranks for i in (*rank.compute, *rank.communication)]
    begin = min((b for b, _ in everything), default=0.0)
    span = max((e for _, e in everything), default=1.0) - begin or 1.0
    left, height = 240, 22
    shared = before_rank([rank.name for rank in ranks])
    scale = (width - left - 20) / span
    rows = []
    y = 40
    for rank in ranks:
        for kind, intervals in (("compute", rank.compute), ("communication", rank.communication)):
            milliseconds = total(intervals) / 1000
            name = escape(rank.name.removeprefix(shared)[:14])
            rows.append(f'<text x="8" y="{y + 15}">{name} {kind} {milliseconds:.1f} ms</text>')
            for b, e in intervals:
                x, w = left + (b - begin) * scale, max((e - b) * scale, 0.3)
                rows.append(f'<rect x="{x:.2f}" y="{y}" width="{w:.2f}" height="{height - 4}" fill="{COLORS[kind]}"/>')
            y += height
        share = "no communication" if rank.hidden is None else f"{rank.hidden:.0%} of communication hidden"
        rows.append(f'<text x="{left}" y="{y + 12}" fill="#5c6670">{share}</text>')
        y += height + 6
    named = f"{shared.strip('_')}: " if shared else ""
    title = f'<text x="8" y="22" font-size="14">{escape(named)}{span / 1000:.1f} ms</text>'
    style = 'font-family="sans-serif" font-size="11"'
    size = f'width="{width}" height="{y + 6}" viewBox="0 0 {width} {y + 6}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}><rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, title, *rows, "</svg>"]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m jitney_ddp_bucketing.timeline", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("traces", nargs="+", type=Path, help="Chrome traces of torch's profiler, one for each rank")
    parser.add_argument("-o", "--output", type=Path, default=Path("timeline.svg"), help="the picture")
    given = parser.parse_args(arguments)
    console = Console()
    try:
        ranks = [read(path) for path in given.traces]
    except (OSError, ValueError) as error:
        console.print(f"[red]{error}")
        return 1
    for rank in ranks:
        share = "no communication" if rank.hidden is None else f"{rank.hidden:.1%} of it hidden"
        times = f"compute {rank.compute_time / 1000:.2f} ms, communication {rank.communication_time / 1000:.2f} ms"
        console.print(f"{rank.name}: {times}, {share}", soft_wrap=True)
    try:
        given.output.write_text(svg(ranks))
    except OSError as error:
        console.print(f"[red]{error}")
        return 1
    console.print(f"wrote {given.output}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
