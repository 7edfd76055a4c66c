"""Try everything that a backend must do, beside eager: jitney conformance NAME.

NAME is an installed backend, or MODULE:OBJECT. The quick level takes about a minute; full tries all operators of
torch's database, hundreds of generated programs and models of transformers. Each finding comes with a program that
fails alone; --report writes them all, as JSON if FILE ends so, else as a page. Expected failures are listed in a TOML
file: [[xfail]] with check and reason, and case and failure if need be (regular expressions). Ctrl-C ends the run and
keeps what it has. The exit status is 1 if something is wrong that is not expected. The suite runs in a process of its
own, so that a backend that takes it down is a finding. Needs: pip install 'jitney[testing]'
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from jitney.commands.choice import load_backend, load_options
from jitney.errors import JitneyError

if TYPE_CHECKING:
    from jitney_testing.report import Report, Result

PHASE = "conformance"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("backend", metavar="NAME", help="a backend's name, or MODULE:OBJECT of one not installed")
    parser.add_argument("--device", default="cpu", help="where tensors are made (default: cpu)")
    parser.add_argument("--level", default="quick", choices=("quick", "full"), help="default: quick")
    parser.add_argument("--xfails", type=Path, metavar="FILE", help="the failures that are expected")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the scorecard there: .json or .html")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the backend")
    parser.add_argument("--seed", type=int, default=0, help="chooses what is sampled and generated (default: 0)")
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="checks whose names begin so, as in 'training|views'"
    )
    parser.add_argument(
        "--in-process",
        action="store_true",
        help="in this one, as debuggers like it; a crash ends the run",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the suite, show what it finds, write the scorecard."""
    for package in ("hypothesis",):
        if importlib.util.find_spec(package) is None:
            raise JitneyError(f"{package} is not installed", hint="pip install 'jitney[testing]'", phase=PHASE)
    if arguments.report is not None:
        _prepare(arguments.report)
    console = Console()
    begin = time.monotonic()
    report = _with_progress(arguments, console)
    console.print(_table(report))
    for finding in report.findings:
        console.print(f"\n[bold red]{escape(finding.check)}[/] (case {escape(finding.case)}): {escape(finding.kind)}")
        console.print(f"  {escape(finding.says)}\n  {escape(finding.detail)}", highlight=False, soft_wrap=True)
    for stale in report.stale:
        console.print(f"[yellow]expected, but it passes:[/] {escape(stale.check)} {escape(stale.case)}")
    if arguments.report is not None:
        _write(report, arguments.report)
        console.print(f"written to {escape(str(arguments.report))}", highlight=False, soft_wrap=True)
    elif report.findings:
        console.print("programs that fail alone: --report FILE.html")
    state = "interrupted" if report.interrupted else "passed" if report.passed else "failed"
    also = f", {len(report.expected)} expected" if report.expected else ""
    console.print(
        f"{escape(report.backend)} on {report.device}: [bold]{state}[/], {len(report.findings)} findings{also} in "
        f"{report.tried} cases, {time.monotonic() - begin:.0f} s",
        highlight=False,
    )
    return 130 if report.interrupted else 0 if report.passed else 1


def _with_progress(arguments: argparse.Namespace, console: Console) -> Report:
    from jitney_testing.conformance import prepared, run_conformance
    from jitney_testing.isolated import run_apart

    backend = load_backend(arguments.backend, PHASE)
    options = load_options(arguments.option, PHASE)
    _, chosen = prepared(backend, arguments.level, arguments.device, options, arguments.seed, arguments.only)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(chosen))

        def say(check: Any, case: Any, result: Result) -> None:
            what = f"{check.name} {case.name}" if case is not None else check.name
            found = f" [red]{len(result.unexpected)} wrong[/]" if result.unexpected else ""
            progress.update(task, description=f"{escape(what):50.50}{found}", advance=1 if case is None else 0)

        given = {"device": arguments.device, "options": options, "seed": arguments.seed, "only": arguments.only}
        if arguments.in_process:
            return run_conformance(backend, arguments.level, xfails=arguments.xfails or (), say=say, **given)
        found = functools.partial(load_backend, arguments.backend, PHASE)
        return run_apart(found, arguments.level, xfails=arguments.xfails, say=say, **given)


def _table(report: Report) -> Table:
    """Groups at a glance."""
    groups: dict[str, list[Result]] = {}
    for result in report.results:
        groups.setdefault(result.name.partition(".")[0], []).append(result)
    table = Table("group", "checks", "cases", "findings", "seconds")
    for name, results in groups.items():
        wrong = sum(len(result.unexpected) for result in results)
        shown = f"[red]{wrong}[/]" if wrong else "[green]0[/]"
        numbers = len(results), sum(r.tried for r in results), shown, f"{sum(r.seconds for r in results):.1f}"
        table.add_row(name, *map(str, numbers))
    return table


def _prepare(path: Path) -> None:
    """Find out now, rather than when all has run, that the scorecard cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        raise JitneyError(f"{path} cannot be written: {error.strerror or error}", phase=PHASE) from error


def _write(report: Report, path: Path) -> None:
    from jitney_testing.scorecard import page

    text = report.to_json() if path.suffix == ".json" else page(report)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
