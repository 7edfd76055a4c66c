"""Speed of programs that nobody tuned for: eager, torch.compile and jitney on every row of breadth/.

Each row has a process of its own, with empty caches. First calls, comparisons with eager and with float64, memory,
then times in turns; with ``--jobs`` several rows compile at once while one of them measures time, on a CPU on cores
of its own if ``--threads`` leaves some. What is found is appended to a file, so that Ctrl-C or ``--seconds`` end a run
that ``--resume`` continues.

By their names' hashes the rows are in two halves. The tuned one is reported row by row, the other as totals only:
it tells whether the first has become better by chance. Exits with 1 if jitney failed in a row of the tuned half.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from time import monotonic
from typing import Any

import report
import torch
from breadth import exclusive, present, rows
from breadth.journal import HALVES, Journal
from breadth.measure import EAGER, FRONT_ENDS, measure
from breadth.row import Row
from breadth.totals import status, totals
from children import ask, end_all, reply
from cores import division
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

NAME = "speed_breadth"
GROUPS = ("programs", "timm", "torchvision", "transformers")
LAST_START = 60.0  # seconds before the end of a slice after which no row begins
SMOKE = "program/dice_loss|transformers/(ViT|Bert|MPNet|GPT2LM)|timm/mobilenetv3"
SMOKE_ROWS = 5


def half_of(row: Row) -> str:
    return HALVES[0] if row.tuned else HALVES[1]


def group_of(row: Row) -> str:
    """``programs`` for those written by hand, or the library."""
    return row.group if row.group in GROUPS else GROUPS[0]


def chosen(options: argparse.Namespace) -> list[Row]:
    """The rows that the options name; ``ValueError`` says what is wrong with them."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("torch finds no CUDA device")
    try:
        pattern = re.compile(options.rows or (SMOKE if options.smoke else ""))
    except re.error as error:
        raise ValueError(f"--rows {options.rows!r}: {error}") from error
    groups = options.group.split(",") if options.group else list(GROUPS)
    if unknown := [group for group in groups if group not in GROUPS]:
        raise ValueError(f"--group: unknown {', '.join(unknown)}; one of {', '.join(GROUPS)}")
    if options.frontends and options.frontends[0] != EAGER:
        raise ValueError(f"--frontends: {EAGER} is the first")
    if options.jobs < 1 or options.timeout <= 0 or options.seconds < 0:
        raise ValueError("give at least one job, and times above 0")
    halves = HALVES if options.half == "all" else (options.half,)
    found = [row for row in rows.all_rows(options.device) if group_of(row) in groups and half_of(row) in halves]
    found = [row for row in found if pattern.search(row.name)]
    if not found:
        raise ValueError(f"--rows {options.rows!r}: nothing of that name")
    return found[:SMOKE_ROWS] if options.smoke else found


class Run:
    """Rows measured by children, several at once.

    Args:
        options: of the command line.
        journal: where what is found goes.
        lock: the file that a child holds while it measures time.
    """

    def __init__(self, options: argparse.Namespace, journal: Journal, lock: str) -> None:
        self.options, self.journal, self.lock = options, journal, lock
        self.end = monotonic() + options.seconds if options.seconds else float("inf")
        self.last = self.end - min(LAST_START, 0.2 * options.seconds)
        self.stopped = threading.Event()
        apart = options.device == "cpu" and options.jobs > 1
        self.cores = division(options.threads or torch.get_num_threads()) if apart else ()

    def one(self, row: Row) -> bool:
        """Measure a row; False if there was no time for it."""
        if self.stopped.is_set() or monotonic() > self.last:
            return False
        task = {"row": row.name, "device": self.options.device, "threads": self.options.threads}
        task |= {"front_ends": self.options.frontends}
        task |= {"budget": self.options.budget, "lock": self.lock if self.options.jobs > 1 else "", "cores": self.cores}
        limit = min(self.options.timeout, self.end - monotonic())
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
            found = ask(__file__, task, empty, limit)
        if task["lock"]:
            exclusive.release(self.lock)
        if self.stopped.is_set() or (limit < self.options.timeout and "no result" in found.get("error", "")):
            return False
        about = {"row": row.name, "mode": row.mode, "device": self.options.device, "jobs": self.options.jobs}
        kind = str(row.autocast or row.dtype).removeprefix("torch.")
        self.journal.add(half_of(row), about | {"dtype": kind, "autocast": row.autocast is not None} | found)
        return True

    def all(self, wanted: Sequence[Row]) -> bool:
        """Measure the rows; False if Ctrl-C or the end of the slice came first."""
        columns = (TextColumn("{task.description:<40.40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        complete = True
        with ThreadPoolExecutor(self.options.jobs) as pool, Progress(*columns, console=report.console) as progress:
            bar = progress.add_task("", total=len(wanted))
            left: dict[Future[bool], Row] = {pool.submit(self.one, row): row for row in wanted}
            try:
                while left:
                    for future in wait(left, return_when=FIRST_COMPLETED).done:
                        row = left.pop(future)
                        if future.result():
                            progress.update(bar, advance=1, description=row.name if row.tuned else "")
                        else:
                            complete = False
            except BaseException:
                self.stopped.set()
                end_all()
                pool.shutdown(cancel_futures=True)
                raise
        return complete


def summarise(options: argparse.Namespace, journal: Journal, name: str) -> bool:
    """Print and write the report of all that the journal has; False if jitney failed in the tuned half."""
    every = rows.all_rows(options.device)
    order = {row.name: half_of(row) for row in every}
    found = {half: journal.read(half) for half in HALVES}
    found = {half: {name: found[half][name] for name in order if name in found[half]} for half in HALVES}
    sums = {half: totals(found[half].values(), list(order.values()).count(half)) for half in HALVES}
    tuned = found["tuned"]
    present.present(tuned, sums)
    facts = report.about() | {"device": options.device}
    if options.device == "cuda":
        facts["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "a GPU"
    note = f"times faster than eager; {facts.get('gpu', facts['cpu'])}, torch {facts['torch']}"
    data = {"about": facts, "totals": sums, "rows": tuned}
    report.save(options.out, name, data, present.chart(tuned, sums["tuned"]["means"], note))
    return not any(status(record) == "failed" for record in tuned.values())


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--half", choices=(*HALVES, "all"), default="all", help="which rows (%(default)s)")
    parser.add_argument("--group", default="", metavar="A,B", help=f"of {', '.join(GROUPS)} (all)")
    parser.add_argument("--rows", default="", metavar="REGEX", help="rows in whose name it is found (all)")
    parser.add_argument(
        "--frontends",
        type=lambda value: report.choice(value, list(FRONT_ENDS)),
        default=None,
        metavar="A,B",
        help=f"of {', '.join(FRONT_ENDS)}, eager first (all that the device has)",
    )
    parser.add_argument("--jobs", type=int, default=1, help="rows at once, of which one measures time (%(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="of torch in a child (torch's default)")
    parser.add_argument("--budget", type=float, default=2, help="seconds of timing per row (%(default)s)")
    parser.add_argument("--timeout", type=float, default=400, help="seconds for one row (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0, help="end the run after so many (no limit)")
    parser.add_argument("--resume", action="store_true", help="only rows that the files do not have yet")
    parser.add_argument("--report", action="store_true", help="measure nothing: the report of what the files have")
    parser.add_argument("--smoke", action="store_true", help="five small rows")
    parser.add_argument("--out", type=Path, default=report.RESULTS, help="folder for what is written")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    try:
        wanted = chosen(options)
    except ValueError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 2
    name = f"{NAME}_{options.device}{'_smoke' if options.smoke else ''}"
    journal = Journal(options.out, name, options.resume)
    complete = True
    if not options.report:
        journal.begin(tuple({half_of(row) for row in wanted}))
        done = {row for half in HALVES for row in journal.read(half)} if options.resume else set()
        wanted = [row for row in wanted if row.name not in done]
        workers = max(1, (os.cpu_count() or 1) // options.jobs)
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(workers))
        with tempfile.TemporaryDirectory() as folder:
            try:
                complete = Run(options, journal, str(Path(folder) / "lock")).all(wanted)
            except KeyboardInterrupt:
                complete = False
    well = summarise(options, journal, name)
    if not complete:
        report.console.print("stopped before the end: --resume continues")
    return (0 if well else 1) if complete else 130


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        task: dict[str, Any] = json.loads(sys.argv[2])
        reply(sys.argv[3], measure(task, lambda draft: reply(sys.argv[3], draft)))
    else:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends the run: its children end too
        sys.exit(main())
