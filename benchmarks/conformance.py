"""The whole conformance suite on each backend that is wrong on purpose: which checks find it?

The tests try each with the one check that must find it; this tries all, half an hour with one process. Prints, for each
backend, the checks with findings, the expected one first. Exits with 1 if that is missing. Ctrl-C ends the run.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import track

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from testing.all_wrong import WRONG

from jitney_testing import run_conformance


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="", metavar="REGEX", help="those whose names begin so (all)")
    parser.add_argument("--only", default="", metavar="REGEX", help="checks whose names begin so (all)")
    options = parser.parse_args(argv)
    console = Console()
    chosen = [name for name in WRONG if re.match(options.backends, name)]
    missing = []
    try:
        for name in track(chosen, console=Console(stderr=True), transient=True):
            backend, check = WRONG[name]
            begin = time.monotonic()
            report = run_conformance(backend, only=options.only)
            if report.interrupted:
                break
            found = {finding.check: finding.kind for finding in report.findings}
            missing += [name] if check not in found else []
            others = ", ".join(sorted(set(found) - {check}))
            state = f"{check} ({found[check]})" if check in found else f"[red]not by {check}[/]"
            seconds = time.monotonic() - begin
            console.print(f"{escape(name)}: {state}; {len(found)} checks, {seconds:.0f} s: {others}", highlight=False)
    except KeyboardInterrupt:
        console.print("interrupted")
    console.print(f"{len(chosen)} backends, {len(missing)} not found by the check that must: {', '.join(missing)}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
