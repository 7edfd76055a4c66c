"""Speed on the CPU: eager, torch.compile and jitney's llvm_cpu on the same workloads, float32.

Per workload one process, in which the front ends take turns on copies of the same data; speeds are medians of the
ratios within a round. Results are compared with eager's first: a wrong answer gets no speed. First calls are measured
in processes of their own, with empty caches, and again with what the first one left there. Training steps also give
their peak memory; a last table calls one compiled module with many batch sizes.

Ctrl-C (or SIGTERM) stops and keeps what has been measured. Exits with 1 if an answer was wrong or a front end failed.
"""

from __future__ import annotations

import argparse
import itertools
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import report
import speed_table
import torch
from bar_chart import BARS, GREY, speed_chart
from children import ask, reply
from front_ends import PEER, REFERENCE, Jitney, front_end
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from speed_child import measure
from workloads_cpu import BATCHED, BATCHES, WORKLOADS

PARTS = ("speed", "start", "memory", "batches")
NAME = "speed_cpu"


@dataclass
class Plan:
    """What to measure, and what has been found so far."""

    front_ends: list[str]
    parts: list[str]
    only: str
    threads: int
    timeout: float
    starts: int
    limits: dict[str, Any]  # of the timed rounds: rounds, budget, patience
    workloads: dict[str, dict[str, Any]] = field(default_factory=dict)
    memory: dict[str, dict[str, Any]] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)

    def names(self, known: Mapping[str, Any]) -> list[str]:
        return [name for name in known if re.search(self.only, name)]

    @property
    def others(self) -> list[str]:
        return [name for name in self.front_ends if name != REFERENCE]

    def ask(self, kind: str, caches: str | None = None, **task: Any) -> dict[str, Any]:
        """One measure in a process of its own, with caches that are empty unless a folder is given."""
        task |= {"measure": kind, "threads": self.threads}
        if caches is not None:
            return ask(__file__, task, caches, self.timeout)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
            return ask(__file__, task, empty, self.timeout)


# --- measuring -----------------------------------------------------------------------------------------------------


def steps_of(plan: Plan) -> Iterator[tuple[str, Callable[[], None]]]:
    """Everything to do, in order: a description, and a function that does it and notes it in the plan."""
    for name in plan.names(WORKLOADS):
        if "speed" in plan.parts:
            yield f"{name}: speed", partial(find_speed, plan, name)
        if "start" in plan.parts:
            for other in plan.others:
                for turn in range(plan.starts):
                    title = f"{name}: {other} first calls {turn + 1}/{plan.starts}"
                    yield title, partial(find_start, plan, name, other)
        if "memory" in plan.parts and WORKLOADS[name].trains:
            for tool in plan.front_ends:
                yield f"{name}: {tool} memory", partial(find_memory, plan, name, tool)
    if "batches" in plan.parts:
        for name in plan.names(BATCHED):
            for other in plan.others:
                yield f"batch sizes of {name}: {other}", partial(find_batches, plan, name, other)


def find_speed(plan: Plan, name: str) -> None:
    tools, failed = plan.front_ends, {}
    found = plan.ask("speed", workload=name, front_ends=tools, **plan.limits)
    if "error" in found and len(tools) > 1:  # one of them took the process with it: which?
        quick: dict[str, Any] = {"rounds": 1, "budget": 0, "patience": 0}
        for other in plan.others:
            alone = plan.ask("speed", workload=name, front_ends=[REFERENCE, other], **quick)
            if "error" in alone:
                failed[other] = alone
        if failed:
            tools = [tool for tool in tools if tool not in failed]
            found = plan.ask("speed", workload=name, front_ends=tools, **plan.limits)
    if failed and "error" not in found:
        found["front_ends"] |= failed
    plan.workloads[name] = found


def find_start(plan: Plan, name: str, other: str) -> None:
    """A first call with empty caches, then one in another process with what the first has left."""
    record = plan.workloads.setdefault(name, {}).setdefault("front_ends", {}).setdefault(other, {})
    if "error" in record:  # it would again
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as caches:
        for kind in ("cold", "warm"):
            found = plan.ask("start", caches, workload=name, front_end=other)
            if "error" in found:
                record.setdefault("start_errors", []).append(f"{kind} start: {found['error']}")
                record["start_traceback"] = found.get("traceback")
                return
            for key, value in found.items():
                record.setdefault(f"{kind}_{key}", []).append(value)


def find_memory(plan: Plan, name: str, tool: str) -> None:
    plan.memory.setdefault(name, {})[tool] = plan.ask("memory", workload=name, front_end=tool)


def find_batches(plan: Plan, name: str, other: str) -> None:
    plan.batches.setdefault(name, {})[other] = plan.ask("batches", model=name, front_end=other)


def carry_out(plan: Plan) -> bool:
    """Measure; False when Ctrl-C cut it short."""
    steps = list(steps_of(plan))
    # The children are sessions of their own: whoever ends this process must end them too.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    columns = (TextColumn("{task.description:<50.50}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=report.console) as progress:
        bar = progress.add_task("", total=len(steps))
        try:
            for title, do in steps:
                progress.update(bar, description=title)
                do()
                progress.advance(bar)
        except KeyboardInterrupt:
            return False
        finally:
            signal.signal(signal.SIGTERM, before)
    return True


# --- reporting -----------------------------------------------------------------------------------------------------


def summarise(plan: Plan, complete: bool) -> dict[str, Any]:
    """What the JSON file holds."""
    return {
        "about": report.about() | {"threads": plan.threads or torch.get_num_threads()},
        "complete": complete,
        "front_ends": plan.front_ends,
        "settings": {"only": plan.only, "parts": plan.parts, "starts": plan.starts, **plan.limits},
        "geometric_means": speed_table.means(plan.workloads, plan.front_ends),
        "workloads": plan.workloads,
        "memory": plan.memory,
        "batches": {"sizes": list(BATCHES), "models": plan.batches},
    }


def tables(summary: Mapping[str, Any]) -> Iterator[speed_table.Table]:
    names, workloads = summary["front_ends"], summary["workloads"]
    if any("ms" in record for w in workloads.values() for record in w.get("front_ends", {}).values()):
        yield speed_table.speed_table(workloads, names)
    if any("cold_s" in record for w in workloads.values() for record in w.get("front_ends", {}).values()):
        yield speed_table.start_table(workloads, names)
    if summary["memory"]:
        yield speed_table.memory_table(summary["memory"], names)
    if summary["batches"]["models"]:
        yield speed_table.batch_table(summary["batches"]["models"], names, summary["batches"]["sizes"])


def print_table(title: str, heads: Sequence[str], rows: Sequence[speed_table.Row], caption: str) -> None:
    """As narrow as can be: there are many columns."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left", box=None, padding=(0, 1))
    for i, head in enumerate(heads):
        table.add_column(escape(head).replace(" ", "\n") if i else head, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(report.show(value)) for value in row))
    Console(width=max(report.console.width, 30 + 11 * len(heads))).print(table)


def chart(summary: Mapping[str, Any]) -> str:
    others = [name for name in summary["front_ends"] if name != REFERENCE]
    groups: dict[str, dict[str, Any]] = {
        speed_table.label(title, w): {
            name: speed_table.word(w, name, speed_table.figure(w, name, "speed", REFERENCE)) for name in others
        }
        for title, w in summary["workloads"].items()
    }
    groups[speed_table.MEAN] = {n: summary["geometric_means"][n]["speed"].get(REFERENCE) for n in others}
    about = summary["about"]
    note = f"times faster than eager; {about['cpu']}, {about['threads']} threads, torch {about['torch']}, float32"
    own = [name for name in others if name != PEER]
    colors = dict(zip(own, itertools.cycle(BARS), strict=False)) | {PEER: GREY}
    return speed_chart("Speed on the CPU", note, {name: colors[name] for name in others}, groups)


def present(summary: Mapping[str, Any], out: Path) -> bool:
    """Print the tables and write the files; is all well?"""
    for table in tables(summary):
        print_table(*table)
        report.console.print()
    for name, found in summary["geometric_means"].items():
        for key, text in (("warm_over_cold", "second process over cold"), (f"seconds_over_{PEER}", f"over {PEER}")):
            values = found[key]
            said = ", ".join(f"{kind.removesuffix('_s')} {v:.3f}".strip() for kind, v in values.items() if v)
            if said:
                line = f"{name}: seconds of first calls, {text}, {speed_table.MEAN}: {said}"
                report.console.print(line, soft_wrap=True)
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
        default=f"{REFERENCE},{PEER},llvm_cpu",
        metavar="A,B",
        help="eager, inductor (torch.compile), torch:BACKEND, or a backend of jitney's; default: %(default)s",
    )
    parser.add_argument("--only", default="", metavar="REGEX", help="workloads in whose name it is found (all)")
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=51, help="at most so many per workload (%(default)s)")
    parser.add_argument("--budget", type=float, default=15, help="seconds of rounds per workload (%(default)s)")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet machine (%(default)s)")
    parser.add_argument("--starts", type=int, default=1, help="cold and second processes per workload (%(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="of torch; default: as torch does")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one process (%(default)s)")
    parser.add_argument("--out", type=Path, default=report.RESULTS, help="folder for the .json and the .svg")
    return parser.parse_args(argv)


def plan_of(options: argparse.Namespace) -> Plan:
    """`ValueError` says what is wrong with the options."""
    tools = [name.strip() for name in options.frontends.split(",") if name.strip()]
    tools = list(dict.fromkeys([REFERENCE, *tools]))
    parts = report.choice(options.parts, PARTS)
    try:
        re.compile(options.only)
    except re.error as error:
        raise ValueError(f"--only {options.only!r}: {error}") from error
    if not parts or min(options.rounds, options.starts) < 1 or options.threads < 0 or options.timeout <= 0:
        raise ValueError("give at least one part, one round, one start, and a time limit")
    check_backends(tools)
    limits = {"rounds": options.rounds, "budget": options.budget, "patience": options.patience}
    plan = Plan(tools, parts, options.only, options.threads, options.timeout, options.starts, limits)
    if not list(steps_of(plan)):
        raise ValueError(f"--only {options.only!r}: nothing of that name among {', '.join([*WORKLOADS, *BATCHED])}")
    return plan


def check_backends(tools: Sequence[str]) -> None:
    wanted = {tool.backend for tool in map(front_end, tools) if isinstance(tool, Jitney)}
    if wanted:
        import jitney

        missing = wanted - {listing.name for listing in jitney.backends.list_backends()}
        if missing:
            raise ValueError(f"no backend {', '.join(sorted(missing))}; `jitney backends` lists those installed")


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    try:
        plan = plan_of(options)
    except ValueError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 2
    complete = carry_out(plan)
    well = True
    if plan.workloads or plan.memory or plan.batches:
        well = present(summarise(plan, complete), options.out)
    return (0 if well else 1) if complete else 130


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        import json

        reply(sys.argv[3], measure(json.loads(sys.argv[2])))
    else:
        sys.exit(main())
