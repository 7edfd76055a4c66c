"""CPython's own tests of the language, method by method, plain and compiled: make cpython.

Prints a table and the faults (what passes plain and not compiled) that known.toml does not list, and writes every
result as JSON. Ctrl-C ends the run and keeps what it has. Exits with 1 if there are faults that nobody knew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

os.environ |= {"JITNEY_CACHE": "0", "JITNEY_VERIFY": "1"}  # before the processes import the compiler
TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))
os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])

from cpython.schedule import Part, Result, parts_of, run_parts  # noqa: E402

MODULES = [
    f"test_{name}"
    for name in (
        "generators dict list set tuple slice string exceptions contextlib dataclasses functools itertools collections "
        "enum descr scope patma sort heapq bisect with unpack_ex unpack super property format"
    ).split()
]
KINDS = {"fails": "fail", "bug": "bugs", "crashes": "crash", "hangs": "hang", "skipped": "skip"}
console = Console()


@dataclass(frozen=True)
class Known:
    """An entry of known.toml.

    Args:
        module: as in ``test_dict``.
        methods: a regular expression for the whole of ``Class.method``.
        reason: why they do something else compiled.
    """

    module: str
    methods: str
    reason: str

    def covers(self, result: Result) -> bool:
        """Is the result about one of these methods?"""
        return result.module == self.module and re.fullmatch(self.methods, result.method) is not None


def read_known(path: Path = Path(__file__).with_name("known.toml")) -> list[Known]:
    """The faults that are known."""
    return [Known(**entry) for entry in tomllib.loads(path.read_text())["known"]]


def is_fault(result: Result) -> bool:
    """Does a method pass plain, and not compiled?"""
    return result.compiled is not None and result.compiled.kind != "passes"


def news(results: Sequence[Result], known: Sequence[Known]) -> list[Result]:
    """The faults that nobody knew."""
    return [r for r in results if is_fault(r) and not any(entry.covers(r) for entry in known)]


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", default=",".join(MODULES), help="comma-separated (all 26)")
    parser.add_argument("--methods", default="", metavar="REGEX", help="to be found in Class.method (all)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("build/cpython.json"), help="where to write (%(default)s)")
    return parser.parse_args(argv)


def collect(parts: Sequence[Part], jobs: int, known: Sequence[Known]) -> tuple[list[Result], bool]:
    """All results, and whether the run came to its end. Faults that nobody knew are printed as they come."""
    results: list[Result] = []
    columns = (TextColumn("{task.description:<44.44}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, TextColumn("{task.fields[note]}"), console=console) as progress,
        contextlib.closing(run_parts(parts, jobs)) as coming,
    ):
        bar = progress.add_task("starting", total=sum(len(part.methods) for part in parts), note="")
        try:
            for part, result in coming:
                results.append(result)
                for fault in news([result], known):
                    progress.console.print(line_of(fault), highlight=False)
                note = f"{sum(map(is_fault, results))} faults"
                progress.update(bar, advance=1, description=f"{part.module} {result.method}", note=note)
        except KeyboardInterrupt:
            return results, False
    return results, True


def print_table(results: Sequence[Result], known: Sequence[Known]) -> None:
    """A line per module."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("", "pass\nplain", "pass\ncompiled", *KINDS.values(), "not\nknown", "seconds\nplain", "compiled"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    modules = sorted({r.module for r in results})
    for title, some in [*((m, [r for r in results if r.module == m]) for m in modules), ("all", results)]:
        both = [(r.plain, r.compiled) for r in some if r.compiled is not None]
        kinds = Counter(compiled.kind for _, compiled in both)
        counts = [len(both), kinds["passes"], *(kinds[kind] for kind in KINDS), len(news(some, known))]
        seconds = [sum(plain.seconds for plain, _ in both), sum(compiled.seconds for _, compiled in both)]
        table.add_row(title, *(str(n or "") for n in counts), *(f"{s:.1f}" for s in seconds))
    console.print(table)


def line_of(fault: Result) -> str:
    """A fault, with the line of its text that says most."""
    assert fault.compiled is not None
    lines = fault.compiled.text.strip().splitlines() or [""]
    line = lines[0] if fault.compiled.kind in ("crashes", "hangs") else lines[-1]
    return f"[bold]{fault.module} {escape(fault.method)}[/] {fault.compiled.kind}: {escape(line[:150])}"


def save(path: Path, results: Sequence[Result], complete: bool) -> None:
    """All results."""
    rows = [
        {"module": r.module, "method": r.method, "plain": r.plain._asdict()}
        | ({"compiled": r.compiled._asdict()} if r.compiled is not None else {})
        for r in results
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"python": platform.python_version(), "complete": complete, "results": rows}
    path.write_text(json.dumps(data, indent=1) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    modules = options.modules.split(",")
    if unknown := set(modules) - set(MODULES):
        print(f"cpython: no module {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}", file=sys.stderr)
        return 2
    known = read_known()
    results, complete = collect(parts_of(modules, options.methods), options.jobs, known)
    faults = news(results, known)
    print_table(results, known)
    if complete and not options.methods:
        for entry in known:
            if entry.module in modules and not any(is_fault(r) and entry.covers(r) for r in results):
                console.print(f"known to fail, and passes: {entry.module} {escape(entry.methods)}", highlight=False)
    save(options.out, results, complete)
    console.print(f"{'' if complete else 'interrupted; '}{len(faults)} faults not known; wrote {options.out}")
    return int(bool(faults)) if complete else 130


if __name__ == "__main__":
    sys.exit(main())
