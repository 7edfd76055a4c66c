"""torch's OpInfo database through a backend: every sample eagerly and compiled, forward and backward.

Prints pass rates and the failures by kind, and writes every outcome that is not a plain pass into a JSON file. Exits
with 1 if something failed that the file of known failures does not list. Ctrl-C ends the run and keeps what it has.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import report
import torch
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from jitney_testing.opinfo.case import Outcome
from jitney_testing.opinfo.known_failures import EVERYWHERE, Known, read_known, stale, unexpected
from jitney_testing.opinfo.samples import DTYPES, VARIANTS, Choice, Variant, operators
from jitney_testing.opinfo.tally import Tally, percent, plain, tallies
from jitney_testing.opinfo.workers import Plan, Task
from jitney_testing.task_pool import run_tasks

TESTS = Path(__file__).parent.parent / "tests"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", metavar="REGEX", help="operators whose whole name matches (all)")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="comma-separated: %(default)s")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="comma-separated: %(default)s; or inference")
    parser.add_argument("--fraction", type=float, default=1.0, help="of the samples, a fixed choice (%(default)s)")
    parser.add_argument("--most", type=int, default=0, metavar="N", help="at most N samples of an operator (all)")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="the I-th of N parts of the operators")
    parser.add_argument("--backend", default="aot_eager", help="%(default)s")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="where the samples are (%(default)s)")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the backend")
    parser.add_argument("--dynamic", action="store_true", help="make every size symbolic")
    parser.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--known", type=Path, default=EVERYWHERE, help="of known failures; and one for the backend")
    parser.add_argument("--out", type=Path, default=Path("build/opinfo.json"), help="where to write (%(default)s)")
    return parser.parse_args(argv)


def tasks_of(options: argparse.Namespace) -> list[Task]:
    index, count = (int(part) for part in options.shard.split("/"))
    if not 1 <= index <= count:
        raise ValueError(f"--shard {options.shard}: I/N with 1 <= I <= N was expected")
    names = operators(options.ops)[index - 1 :: count]
    if not names:
        raise ValueError(f"--ops {options.ops!r}: no operator of this name in torch's database")
    dtypes = report.choice(options.dtypes, list(DTYPES))
    return [(name, dtype) for dtype in dtypes for name in names]


def plan_of(options: argparse.Namespace) -> Plan:
    extra: dict[str, Any] = {"dynamic": True} if options.dynamic else {}
    if options.option:
        extra["options"] = dict(text.split("=", 1) for text in options.option)
    variants: Any = tuple(report.choice(options.variants, get_args(Variant)))
    return Plan(options.backend, Choice(options.fraction, options.most, variants, options.device), extra)


def collect(tasks: list[Task], plan: Plan, jobs: int) -> tuple[list[Outcome], bool]:
    """All outcomes, and whether the run came to its end."""
    columns = (TextColumn("{task.description:<36.36}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    outcomes: list[Outcome] = []
    failed = 0
    with (
        Progress(*columns, TextColumn("{task.fields[note]}"), console=report.console) as progress,
        contextlib.closing(run_tasks(tasks, plan, jobs)) as results,
    ):
        bar = progress.add_task("starting", total=len(tasks), note="")
        try:
            for (name, dtype), outcome in results:
                if outcome is None:
                    progress.advance(bar)
                    continue
                outcomes.append(outcome)
                failed += outcome.failure is not None
                note = f"{len(outcomes)} samples, {failed} failed"
                progress.update(bar, description=f"{name} {dtype}", note=note)
        except KeyboardInterrupt:
            return outcomes, False
    return outcomes, True


# --- what it prints ------------------------------------------------------------------------------------------------


def print_rates(found: dict[tuple[str, str], Tally]) -> None:
    """How many samples eager passes, how many of them differ, and what was tested."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for title in (
        "",
        "eager\npasses",
        "differ",
        "same",
        "with\ngrad",
        "differ",
        "same",
        "last\nbit too",
        "by\nfloat64",
    ):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    for title in ("in a\ngraph", "whole", "bwd"):
        table.add_column(title, justify="right", no_wrap=True)
    for (dtype, variant), t in found.items():
        forward = (t.forward, t.forward - t.forward_passed, percent(t.forward_passed, t.forward))
        backward = (t.backward, t.backward - t.backward_passed, percent(t.backward_passed, t.backward))
        rest = (percent(t.exact, t.forward), t.refereed, t.traced, t.whole, t.traced_backward)
        table.add_row(f"{dtype} {variant}", *map(str, (*forward, *backward, *rest)))
    report.console.print(table)
    report.console.print(
        "by float64: rounded otherwise than eager, and no further from float64.\n"
        "in a graph: the backend had one. whole: one graph, nothing kept or broken. bwd: it had a backward graph."
    )


def print_counts(title: str, counts: Counter[str], limit: int = 25) -> None:
    if counts:
        rows = [[escape(text), str(count)] for text, count in counts.most_common(limit)]
        more = len(counts) - len(rows)
        report.print_table(title, ("", "samples"), rows, f"and {more} more" if more > 0 else "")


def print_failures(outcomes: list[Outcome], known: list[Known]) -> int:
    """By kind and operator; how many are not known."""
    news = unexpected(outcomes, known)
    fresh = {id(o) for o in news}
    old = [o for o in outcomes if o.failure is not None and id(o) not in fresh]
    for title, some in (("Known failures", old), ("New failures", news)):
        groups: dict[tuple[str, str, str], list[Outcome]] = {}
        for o in some:
            assert o.failure is not None
            groups.setdefault((f"{o.failure.stage}: {o.failure.kind}", o.case.op, o.case.variant), []).append(o)
        rows = []
        for (kind, op, variant), members in sorted(groups.items()):
            first = members[0]
            assert first.failure is not None
            rows.append([kind, f"{op} {variant}", str(len(members)), escape(plain(first.failure.detail)[:90])])
        if rows:
            report.print_table(title, ("kind", "operator", "samples", "the first"), rows)
    return len(news)


def save(path: Path, outcomes: list[Outcome], options: argparse.Namespace, seconds: float, whole: bool) -> None:
    """Rates, and every outcome that failed, broke or was kept."""
    interesting = [o for o in outcomes if o.failure or o.coverage.kept or o.coverage.breaks or not o.exact]
    data = {
        **report.about(),
        "backend": options.backend,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "fraction": options.fraction,
        "most": options.most,
        "shard": options.shard,
        "seconds": round(seconds, 1),
        "complete": whole,
        "rates": {f"{dtype} {variant}": vars(t) for (dtype, variant), t in tallies(outcomes).items()},
        "outcomes": [o.as_dict() for o in interesting],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n")
    report.console.print(f"wrote {path}: rates, and each sample that failed, broke, was kept or is not exact")


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    try:
        tasks, plan = tasks_of(options), plan_of(options)
        known = read_known(options.known)
        own = TESTS / f"opinfo_known_{options.backend}.toml"
        known += read_known(own) if own.exists() else []
    except (ValueError, OSError, RuntimeError) as error:
        print(f"opinfo: {error}", file=sys.stderr)
        return 2
    begin = time.monotonic()
    outcomes, whole = collect(tasks, plan, options.jobs)
    seconds = time.monotonic() - begin
    found = tallies(outcomes)
    print_rates(found)
    print_counts("Graphs kept as captured", sum((t.kept for t in found.values()), Counter()))
    print_counts("Graph breaks and eager frames", sum((t.breaks for t in found.values()), Counter()))
    news = print_failures(outcomes, known)
    if whole and options.fraction == 1 and not options.most and not options.dynamic:
        for entry in stale(outcomes, known):
            text = f"{entry.op} {entry.dtype} {entry.variant} {entry.failure}"
            report.console.print(f"expected to fail, and passes: {escape(text)}")
    save(options.out, outcomes, options, seconds, whole)
    state = "" if whole else "interrupted; "
    report.console.print(f"{state}{len(outcomes)} samples in {seconds:.0f} s, {news} new failures")
    return int(news > 0) if whole else 130


if __name__ == "__main__":
    sys.exit(main())
