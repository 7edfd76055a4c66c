"""The table of docs/integrations.md: a call in steady state, plain, compiled and by torch.compile in turn.

    .venv-ecosystem/bin/python tests/ecosystem/measure.py [NAME...] --out build/ecosystem.jsonl
    .venv-ecosystem/bin/python tests/ecosystem/measure.py --table

One line of JSON for each program: the least milliseconds of processor time (one thread), seconds of the whole
program, graphs, breaks, recompiles. Programs that are in the file already are passed over.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("JITNEY_CACHE", "0")
os.environ["JITNEY_ECOSYSTEM_MEASURED"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

import torch
from harness import Compiler, Program, difference, observe, programs

ROUNDS = 15


def measured(program: Program) -> dict[str, Any]:
    """What one program shows."""
    row: dict[str, Any] = {"name": program.name, "libraries": program.libraries}
    steps: dict[str, Any] = {}
    for compiler in map(Compiler, ("eager", "jitney", "torch.compile")):
        begin = time.perf_counter()
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        try:
            seen = observe(program, compiler)
        except Exception as error:
            row[compiler.name] = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
            continue
        found: dict[str, Any] = {"seconds": round(time.perf_counter() - begin, 2)}
        if compiler.name == "eager":
            expected = seen.outcome.results
        else:
            found["differs"] = difference(expected, seen.outcome.results, program.tolerance)[:200]
        if compiler.name == "jitney":
            profile = seen.profile
            found |= {"graphs": profile.graphs, "breaks": profile.graph_breaks, "recompiles": profile.recompiles}
        if compiler.name == "torch.compile":
            counters = torch._dynamo.utils.counters
            found |= {"graphs": counters["stats"]["unique_graphs"], "breaks": sum(counters["graph_break"].values())}
        row[compiler.name] = found
        if seen.outcome.step is not None:
            steps[compiler.name] = seen.outcome.step
    for name, milliseconds in _in_turn(steps).items():
        row[name]["ms"] = milliseconds
    return row


def _in_turn(steps: dict[str, Any]) -> dict[str, float]:
    torch.set_num_threads(1)
    taken: dict[str, list[float]] = {name: [] for name in steps}
    with contextlib.redirect_stdout(io.StringIO()):
        for number in range(ROUNDS + 3):
            for name, step in steps.items():
                begin = time.process_time()
                step()
                if number >= 3:
                    taken[name].append(time.process_time() - begin)
    return {name: round(min(seconds) * 1e3, 3) for name, seconds in taken.items()}


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| program | library | graphs, breaks, recompiles | eager, ms | over eager "
        "| torch.compile: graphs, breaks | over it |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in sorted(rows, key=lambda row: (row["libraries"][0].lower(), row["name"])):
        eager, ours, theirs = (row[name] for name in ("eager", "jitney", "torch.compile"))
        library = f"{row['libraries'][0]} {importlib.metadata.version(row['libraries'][0])}"
        counts = f"{ours['graphs']}, {ours['breaks']}, {ours['recompiles']}"
        failed = "fails" if "error" in theirs else f"{theirs['graphs']}, {theirs['breaks']}"
        ratios = [f"{other['ms'] / ours['ms']:.2f}" if "ms" in other else "" for other in (eager, theirs)]
        cells = (row["name"], library, counts, f"{eager['ms']:.3g}", ratios[0], failed, ratios[1])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and write; or show what is written."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", default="build/ecosystem.jsonl")
    parser.add_argument("--table", action="store_true", help="print what is in the file")
    given = parser.parse_args()
    if given.table:
        print(table([json.loads(line) for line in Path(given.out).read_text().splitlines()]))
        return
    torch.set_num_threads(1)
    out = Path(given.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    done = {json.loads(line)["name"] for line in out.read_text().splitlines()} if out.exists() else set()
    for name, program in programs().items():
        if name not in done and (not given.names or name in given.names):
            row = json.dumps(measured(program))
            with out.open("a") as file:
                file.write(row + "\n")
            print(row, file=sys.stderr)


if __name__ == "__main__":
    main()
