"""Speed on a GPU: eager, torch.compile and jitney's triton_gpu on the same workloads, most of them in bfloat16.

Per workload one process, in which the front ends take turns, each with data of its own; times are medians of steps
measured by the device's own clock, with its cache emptied before each, and speeds medians of the ratios within a
round. Results are compared with eager's first: a wrong answer gets no speed. First calls begin with empty caches.
Peaks are those of the device's memory while a step runs, without what other front ends hold.

Ctrl-C stops and keeps what has been measured. Exits with 1 if an answer was wrong or a front end failed, and with 2
without a GPU.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import report
import speed_table
import torch
from bar_chart import BARS, GREY, speed_chart
from children import ask, reply
from front_ends import PEER, REFERENCE, FrontEnd, front_end
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from workloads_cpu import Job, tensors_in
from workloads_gpu import DEVICE, WORKLOADS, bytes_moved

NAME = "speed_gpu"
COPY = "copy"  # the turn of torch's own copy, among those of the front ends
TOLERANCE = 0.03  # of a tensor's norm: bfloat16, through four transformer blocks and back
WORSE = 2.0  # how many times further than eager from what is exact, where rounding is more than that
CACHE = 256 << 20  # bytes, more than the last cache of any device
TURN_SECONDS = 0.03
LEAST_STEPS, MOST_STEPS = 3, 50

Turns = dict[str, Callable[[], Any]]


# --- one workload, in a process of its own ---------------------------------------------------------------------------


def measure(task: Mapping[str, Any]) -> dict[str, Any]:
    """All front ends on one workload, in turn; eager is the first.

    ``task``: workload, front_ends, rounds, and budget in seconds.
    """
    workload = WORKLOADS[task["workload"]]
    records: dict[str, dict[str, Any]] = {name: {} for name in task["front_ends"]}
    turns: Turns = {}
    expected: list[torch.Tensor] = []
    exact: list[torch.Tensor] = []
    moved = 0
    for name, record in records.items():
        try:
            job = workload.job()
            step, found = first_call(front_end(name), job, expected, exact, record)
        except Exception as error:  # whatever a compiler raises is a row of the table
            if name == REFERENCE:
                return failure(error)
            record |= failure(error)
            continue
        if name == REFERENCE:
            expected, moved = found, bytes_moved(job, found)
            exact = [t.detach().clone() for t in tensors_in(job.exact())] if job.exact else []
        if "wrong" not in record:
            record["peak_bytes"] = peak(step)
            turns[name] = step
    del found, job
    expected.clear()
    exact.clear()
    if workload.bandwidth:
        turns[COPY] = copy_of(moved)
    times = rounds(turns, task["rounds"], task["budget"])
    for name, seconds in times.items():
        record = records.setdefault(name, {})
        record |= {"ms": 1e3 * median(seconds), "rounds": len(seconds), "speed": speed_table.ratios(times, name)}
    result: dict[str, Any] = {"bytes": moved if workload.bandwidth else None}
    if COPY in times:
        result["copy_gb_s"] = moved / median(times[COPY]) / 1e9
        del records[COPY]
        kernels = {name: kernel_seconds(turn) for name, turn in turns.items()}
        for name, record in records.items():
            if kernels.get(name) and kernels[COPY]:
                record["kernel_ms"] = 1e3 * kernels[name]
                record["copy_share"] = kernels[COPY] / kernels[name]
    return result | {"front_ends": records}


def failure(error: Exception) -> dict[str, Any]:
    first = (str(error).strip().splitlines() or [""])[0]
    return {"error": f"{type(error).__name__}: {first}"}


def first_call(
    tool: FrontEnd,
    job: Job,
    expected: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor],
    record: dict[str, Any],
) -> tuple[Callable[[], Any], list[torch.Tensor]]:
    """Compile, and compare a step with eager's; fills ``record``. The step, and eager's results if this is eager."""
    with tool.watch() as work:
        torch.cuda.synchronize()
        begin = perf_counter()
        compiled = tool.compile(job.target)
        result = job.step(compiled)
        torch.cuda.synchronize()
        record["first_s"] = perf_counter() - begin
    record |= {"graphs": work.graphs, "kernels": work.kernels, "whole": work.whole, "left": work.left}
    found = [t.detach().clone() for t in tensors_in(result)]
    del result
    worst = 0.0
    if expected:
        worst, wrong = compare(expected, found, exact)
        record |= {"wrong": wrong} if wrong else {}
    record["largest_difference"] = worst
    return (lambda: job.step(compiled)), found if tool.name == REFERENCE else []


def compare(
    expected: Sequence[torch.Tensor], found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor] = ()
) -> tuple[float, str]:
    """The largest difference, as a part of a tensor's norm, and what is wrong ("" where nothing is).

    Args:
        expected: eager's.
        found: somebody else's.
        exact: the same in a wider type, or nothing; what is about as far from these as eager's is rounded otherwise.
    """
    if [(t.shape, t.dtype) for t in expected] != [(t.shape, t.dtype) for t in found]:
        return float("inf"), "other shapes or dtypes than eager's"
    worst = 0.0
    for number, (a, b) in enumerate(zip(expected, found, strict=True)):
        norm = a.float().norm()
        off = distance(a, b)
        if not off <= TOLERANCE:  # nan is wrong too
            said = f"tensor {number} of {len(expected)}: off by {off:.3g} of its norm {float(norm):.3g}"
            if not exact:
                return off, said
            ours, eagers = distance(exact[number], b), distance(exact[number], a)
            if not ours <= WORSE * eagers:
                return off, f"{said}, by {ours:.3g} of what is exact (eager: {eagers:.3g})"
        worst = max(worst, off)
    return worst, ""


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """How far ``b`` is from ``a``, as a part of the norm of ``a``."""
    wide = a.float()
    return float((b.float() - wide).norm() / wide.norm().clamp_min(1e-12))


def peak(step: Callable[[], Any]) -> int:
    """Bytes of the device's memory that a step takes beyond what there is before it."""
    step()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def copy_of(moved: int) -> Callable[[], Any]:
    """torch's copy of so much memory that reading and writing it moves ``moved`` bytes."""
    source = torch.randn(max(1, moved // 8), device=DEVICE)
    copied = torch.empty_like(source)
    return lambda: copied.copy_(source)


def rounds(turns: Turns, most: int, budget: float) -> dict[str, list[float]]:
    """Seconds of a step, for each turn of each round."""
    flushed = torch.empty(CACHE, dtype=torch.uint8, device=DEVICE)
    slowest = max(timed(turn, LEAST_STEPS, flushed) for turn in turns.values())
    steps = min(max(round(TURN_SECONDS / slowest), LEAST_STEPS), MOST_STEPS)
    times: dict[str, list[float]] = {name: [] for name in turns}
    begin = perf_counter()
    for _ in range(most):
        for name, turn in turns.items():
            times[name].append(timed(turn, steps, flushed))
        if perf_counter() - begin > budget:
            break
    return times


def timed(turn: Callable[[], Any], steps: int, flushed: torch.Tensor) -> float:
    """Median seconds of a step by the device's clock; the first one is not counted."""
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(steps + 1)]
    for start, end in marks:
        flushed.zero_()
        start.record()
        turn()
        end.record()
    torch.cuda.synchronize()
    return median(start.elapsed_time(end) for start, end in marks[1:]) / 1e3


def kernel_seconds(turn: Callable[[], Any], steps: int = 5) -> float:
    """Mean seconds that the device works on a step's kernels, by torch's profiler; gaps between them do not count."""
    from torch.profiler import ProfilerActivity, profile

    flushed = torch.empty(CACHE, dtype=torch.uint8, device=DEVICE)
    with profile(activities=[ProfilerActivity.CUDA]) as flushing:
        flushed.zero_()
        torch.cuda.synchronize()
    ignored = {event.key for event in flushing.key_averages()}
    with profile(activities=[ProfilerActivity.CUDA]) as working:
        for _ in range(steps):
            flushed.zero_()
            turn()
        torch.cuda.synchronize()
    spent = sum(event.device_time_total for event in working.key_averages() if event.key not in ignored)
    return float(spent) / 1e6 / steps


# --- all workloads -------------------------------------------------------------------------------------------------


def carry_out(names: Sequence[str], options: argparse.Namespace, tools: Sequence[str]) -> tuple[dict[str, Any], bool]:
    """What was found for each workload; False when Ctrl-C cut it short."""
    found: dict[str, Any] = {}
    columns = (TextColumn("{task.description:<30.30}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=report.console) as progress:
        bar = progress.add_task("", total=len(names))
        try:
            for name in names:
                progress.update(bar, description=name)
                task = {"workload": name, "front_ends": tools, "rounds": options.rounds, "budget": options.budget}
                with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
                    found[name] = ask(__file__, task, empty, options.timeout)
                progress.advance(bar)
        except KeyboardInterrupt:
            return found, False
    return found, True


# --- reporting -----------------------------------------------------------------------------------------------------


def about() -> dict[str, Any]:
    """Where and when the figures were taken."""
    device = torch.cuda.get_device_properties(0)
    return report.about() | {
        "gpu": device.name,
        "capability": f"{device.major}.{device.minor}",
        "multiprocessors": device.multi_processor_count,
        "cuda": torch.version.cuda,
        "triton": triton_version(),
    }


def triton_version() -> str:
    import triton

    return str(triton.__version__)


def summarise(
    found: Mapping[str, Any], tools: Sequence[str], complete: bool, options: argparse.Namespace
) -> dict[str, Any]:
    """What the JSON file holds."""
    return {
        "about": about(),
        "complete": complete,
        "front_ends": list(tools),
        "settings": {"only": options.only, "rounds": options.rounds, "budget": options.budget},
        "geometric_means": speed_table.means(found, tools),
        "workloads": found,
        "memory": {},
        "batches": {"models": {}},
    }


def rest_table(workloads: Mapping[str, Any], names: Sequence[str]) -> speed_table.Table:
    """Seconds of first calls, MiB, kernels, and the largest difference from eager."""
    others = [name for name in names if name != REFERENCE]
    head = ["workload", *(f"{n} first s" for n in others), *(f"{n} peak MiB" for n in names)]
    head += [f"{n} {what}" for n in others for what in ("kernels", "whole", "off by")]
    rows: list[speed_table.Row] = []
    for title, w in workloads.items():
        row: speed_table.Row = [title, *(speed_table.figure(w, n, "first_s") for n in others)]
        row += [speed_table.over(speed_table.figure(w, n, "peak_bytes"), speed_table.MIB) for n in names]
        for n in others:
            off = speed_table.figure(w, n, "largest_difference")
            row += [speed_table.figure(w, n, "kernels"), speed_table.figure(w, n, "whole")]
            row.append(None if off is None else f"{off:.1e}")
        rows.append(row)
    caption = "first s: caches empty; peak: of a step, beyond its data; whole: operators left to ATen; off: of the norm"
    return "First calls, memory, kernels", head, rows, caption


def print_table(title: str, heads: Sequence[str], rows: Sequence[speed_table.Row], caption: str) -> None:
    """As narrow as can be: there are many columns."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left", box=None, padding=(0, 1))
    for i, head in enumerate(heads):
        table.add_column(escape(head).replace(" ", "\n") if i else head, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(report.show(value)) for value in row))
    Console(width=max(report.console.width, 30 + 11 * len(heads))).print(table)
    report.console.print()


def chart(summary: Mapping[str, Any]) -> str:
    others = [name for name in summary["front_ends"] if name != REFERENCE]
    groups: dict[str, dict[str, Any]] = {
        title: {n: speed_table.word(w, n, speed_table.figure(w, n, "speed", REFERENCE)) for n in others}
        for title, w in summary["workloads"].items()
    }
    groups[speed_table.MEAN] = {n: summary["geometric_means"][n]["speed"].get(REFERENCE) for n in others}
    facts = summary["about"]
    note = f"times faster than eager; {facts['gpu']}, torch {facts['torch']}, Triton {facts['triton']}"
    own = [name for name in others if name != PEER]
    colors = dict(zip(own, itertools.cycle(BARS), strict=False)) | {PEER: GREY}
    return speed_chart("Speed on a GPU", note, {name: colors[name] for name in others}, groups)


def present(summary: Mapping[str, Any], out: Path) -> bool:
    """Print the tables and write the files; is all well?"""
    workloads, names = summary["workloads"], summary["front_ends"]
    print_table(*speed_table.speed_table(workloads, names, "Speed on a GPU"))
    print_table(*rest_table(workloads, names))
    failures = speed_table.failures(summary)
    for line in [*speed_table.left_to_eager(summary), *failures]:
        report.console.print(line, markup=False, highlight=False, soft_wrap=True)
    if not summary["complete"]:
        report.console.print("stopped before the end")
    report.save(out, NAME, summary, chart(summary))
    return not failures


# --- the command line ----------------------------------------------------------------------------------------------


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--frontends",
        default=f"{REFERENCE},{PEER},triton_gpu",
        metavar="A,B",
        help="eager, inductor (torch.compile), torch:BACKEND, or a backend of jitney's; default: %(default)s",
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="workloads in whose name it is found (all)")
    parser.add_argument("--rounds", type=int, default=21, help="at most so many per workload (%(default)s)")
    parser.add_argument("--budget", type=float, default=8, help="seconds of rounds per workload (%(default)s)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one workload (%(default)s)")
    parser.add_argument("--out", type=Path, default=report.RESULTS, help="folder for the .json and the .svg")
    return parser.parse_args(argv)


def chosen(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Workloads and front ends; ``ValueError`` says what is wrong with the options."""
    tools = [name.strip() for name in options.frontends.split(",") if name.strip()]
    tools = list(dict.fromkeys([REFERENCE, *tools]))
    for name in tools:
        front_end(name)
    try:
        names = [name for name in WORKLOADS if re.search(options.only, name)]
    except re.error as error:
        raise ValueError(f"--only {options.only!r}: {error}") from error
    if not names:
        raise ValueError(f"--only {options.only!r}: nothing of that name among {', '.join(WORKLOADS)}")
    if options.rounds < 1 or options.timeout <= 0:
        raise ValueError("give at least one round, and a time limit")
    if not torch.cuda.is_available():
        raise ValueError("torch finds no CUDA device")
    return names, tools


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    try:
        names, tools = chosen(options)
    except ValueError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 2
    found, complete = carry_out(names, options, tools)
    well = present(summarise(found, tools, complete, options), options.out) if found else True
    return (0 if well else 1) if complete else 130


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        reply(sys.argv[3], measure(json.loads(sys.argv[2])))
    else:
        sys.exit(main())
