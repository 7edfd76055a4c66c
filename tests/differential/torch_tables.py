"""torch's own tables of modules and optimizers through a backend, each case eagerly and compiled: make torch-tables.

Prints pass rates and the failures, and writes every outcome that is not a plain pass into a JSON file. Exits with 1 if
something failed that torch_tables_known.toml does not list. Cases come in an order drawn by the seed, so that the
first of them, as many as --fraction or --seconds allows, are a fair sample. A case that ends its process or hangs is a
failure of that case. Ctrl-C ends the run and keeps what it has.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import platform
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

import torch  # noqa: E402
from differential.torch_inputs import TABLES, Outcome, Place, attempt  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.markup import escape  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: E402
from rich.table import Table  # noqa: E402

from jitney.backends.registry import registry  # noqa: E402
from jitney.commands.choice import load_backend  # noqa: E402
from jitney.errors import JitneyError  # noqa: E402
from jitney_testing.opinfo.known_failures import read_entries  # noqa: E402
from jitney_testing.opinfo.tally import percent, plain  # noqa: E402
from jitney_testing.task_pool import run_tasks  # noqa: E402

console = Console()


@dataclass(frozen=True)
class Work:
    """What is done with each case.

    Args:
        backend: its name, or MODULE:OBJECT.
        patience: seconds after which a case counts as hanging.
        fresh: is nothing left of what the cases before it have compiled?
    """

    backend: str
    patience: float
    fresh: bool = True

    def run(self, task: Place) -> Iterator[Outcome]:
        """The outcome of a case, in this process."""
        cases = TABLES[task.table](re.escape(task.name), re.escape(task.kind))
        case = next(case for case in cases if case.place == task)
        yield attempt(case, load_backend(self.backend, "torch-tables"), self.fresh)

    def lost(self, task: Place, reason: str) -> Outcome:
        """The outcome of a case whose process is no more."""
        return Outcome(str(task), failure=f"lost: {reason}")


@dataclass(frozen=True)
class Known:
    """A failure that is known. Every pattern is a regular expression.

    Args:
        case: for the whole of a case's text.
        reason: why it fails, and why that stays so.
        backend: for the backend's whole name.
        failure: to be found in the failure's text.
    """

    case: str
    reason: str
    backend: str = ".*"
    failure: str = ""

    def about(self, outcome: Outcome, backend: str) -> bool:
        """Is this one of the cases?"""
        return all(map(re.fullmatch, (self.case, self.backend), (outcome.case, backend)))

    def covers(self, outcome: Outcome, backend: str) -> bool:
        """Is this one of the cases, and the way in which it fails?"""
        fails = outcome.failure and re.search(self.failure, outcome.failure)
        return bool(fails) and self.about(outcome, backend)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="aot_eager", help="its name, or MODULE:OBJECT (%(default)s)")
    parser.add_argument("--tables", default=",".join(TABLES), help="comma-separated: %(default)s")
    parser.add_argument("--names", default=".*", metavar="REGEX", help="classes whose whole name matches (all)")
    parser.add_argument("--kinds", default=".*", metavar="REGEX", help="as 'float32 train', 'fused' (all)")
    parser.add_argument("--fraction", type=float, default=1.0, help="of the cases (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of their order (%(default)s)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="when to end (when all has been tried)")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds for one case (%(default)s)")
    parser.add_argument("--shared", action="store_true", help="class by class, whose cases find each other's code")
    parser.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--known", type=Path, default=Path(__file__).with_name("torch_tables_known.toml"))
    parser.add_argument("--out", type=Path, default=Path("build/torch_tables.json"), help="(%(default)s)")
    return parser.parse_args(argv)


def tasks_of(options: argparse.Namespace) -> list[Place]:
    """The cases that were asked for, in the order drawn by the seed.

    Raises:
        ValueError: there is no such table or case.
    """
    names = options.tables.split(",")
    if unknown := set(names) - set(TABLES):
        raise ValueError(f"--tables: no table {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
    found = [case.place for table in names for case in TABLES[table](options.names, options.kinds)]
    if not found:
        raise ValueError(f"--names {options.names!r} --kinds {options.kinds!r}: no such case")
    random.Random(options.seed).shuffle(found)
    chosen = found[: max(1, round(options.fraction * len(found)))]
    return sorted(chosen, key=lambda task: (task.table, task.name)) if options.shared else chosen


def collect(
    tasks: Sequence[Place], options: argparse.Namespace, known: Sequence[Known]
) -> tuple[dict[Place, Outcome], bool]:
    """All outcomes, and whether Ctrl-C ended the run. Failures that nobody knew are printed as they come."""
    outcomes: dict[Place, Outcome] = {}
    end = time.monotonic() + options.seconds
    columns = (TextColumn("{task.description:<44.44}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    work = Work(options.backend, options.patience, not options.shared)
    with (
        Progress(*columns, TextColumn("{task.fields[note]}"), console=console) as progress,
        contextlib.closing(run_tasks(tasks, work, options.jobs)) as results,
    ):
        bar = progress.add_task("starting", total=len(tasks), note="")
        failed = 0
        try:
            for task, outcome in results:
                if outcome is None:
                    if time.monotonic() > end:
                        break
                    continue
                outcomes[task] = outcome
                for fault in news([outcome], known, options.backend):
                    failed += 1
                    progress.console.print(f"{fault.case}: {fault.failure[:300]}", highlight=False, markup=False)
                progress.update(bar, advance=1, description=escape(str(task)), note=f"{failed} failed")
        except KeyboardInterrupt:
            return outcomes, True
    return outcomes, False


def news(outcomes: Sequence[Outcome], known: Sequence[Known], backend: str) -> list[Outcome]:
    """The failures that nobody knew."""
    return [o for o in outcomes if o.failure and not any(entry.covers(o, backend) for entry in known)]


def print_rates(outcomes: dict[Place, Outcome], known: Sequence[Known], backend: str) -> None:
    """Of each table, dtype and mode how many cases eager passes, and what became of them compiled."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for title in ("", "cases", "eager\nruns", "same", "to the\nbit", "graph\nbreaks", "known", "new"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    groups: dict[str, list[Outcome]] = {}
    for task, outcome in outcomes.items():
        groups.setdefault(f"{task.table} {task.kind}", []).append(outcome)
    for title, every in [*sorted(groups.items()), ("all", [*outcomes.values()])]:
        some = [o for o in every if not o.eager_raises]
        same = [o for o in some if not o.failure]
        fresh = news(some, known, backend)
        old = len(some) - len(same) - len(fresh)
        counts = (len(every), len(some), percent(len(same), len(some)), percent(sum(o.exact for o in some), len(some)))
        table.add_row(title, *map(str, (*counts, sum(bool(o.breaks) for o in some), old, len(fresh))))
    console.print(table)
    reasons = Counter(plain(reason) for o in outcomes.values() for reason in set(o.breaks))
    for reason, count in reasons.most_common(15):
        console.print(f"{count} cases: {reason}", highlight=False, markup=False)


def save(path: Path, outcomes: dict[Place, Outcome], about: dict[str, Any]) -> None:
    """Every outcome that is not a plain pass."""
    rows = [dataclasses.asdict(o) for o in outcomes.values() if o.failure or o.breaks or o.eager_raises or not o.exact]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(about | {"tried": len(outcomes), "outcomes": rows}, indent=1) + "\n")
    console.print(f"wrote {path}: each case that failed, broke or is not exact", highlight=False, markup=False)


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    try:
        backend = load_backend(options.backend, "torch-tables")
        if isinstance(backend, str):
            registry.get(backend)
        tasks, known = tasks_of(options), read_entries(options.known, Known)
    except (ValueError, OSError, JitneyError) as error:
        print(f"torch-tables: {error}", file=sys.stderr)
        return 2
    begin = time.monotonic()
    outcomes, interrupted = collect(tasks, options, known)
    seconds = time.monotonic() - begin
    every = [*outcomes.values()]
    faults = news(every, known, options.backend)
    print_rates(outcomes, known, options.backend)
    for entry in known:
        about = [o for o in every if entry.about(o, options.backend)]
        if about and not any(entry.covers(o, options.backend) for o in about):
            console.print(f"known to fail, and passes: {entry.case}", highlight=False, markup=False)
    setting = {"backend": options.backend, "seed": options.seed, "fraction": options.fraction, "cases": len(tasks)}
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    save(options.out, outcomes, {**versions, **setting, "seconds": round(seconds, 1), "interrupted": interrupted})
    state = "interrupted; " if interrupted else ""
    console.print(
        f"{state}{len(every)} of {len(tasks)} cases, seed {options.seed}, {seconds:.0f} s; {len(faults)} new failures",
        highlight=False,
    )
    return 130 if interrupted else int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
