"""Generated programs on every installed CPU backend, for as long as one likes: make fuzz MINUTES=30.

Each program runs eagerly, on each backend and in float64. One that does something else on a backend is made smaller and
written to --out, as Python that fails alone. Prints the seed with which it begins; each batch has the next one. Ctrl-C
ends the run and keeps what it has. Exits with 1 if something was found.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

sys.path.insert(0, str(Path(__file__).parents[1]))
from differential.backends import installed  # noqa: E402
from triton_interpreter import interpret_triton  # noqa: E402

BATCH = 20  # programs of one strategy and seed
PATIENCE = 60.0  # seconds for one program on one backend


@dataclasses.dataclass
class Run:
    """What a run has done.

    Args:
        out: where failing programs go.
        tried: programs, by backend.
        found: the files that were written.
        seen: how they failed, so that equal ones are written once.
    """

    out: Path
    tried: dict[str, int] = dataclasses.field(default_factory=dict)
    found: list[Path] = dataclasses.field(default_factory=list)
    seen: set[tuple[str, ...]] = dataclasses.field(default_factory=set)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000, help="to begin with (the time)")
    parser.add_argument("--backends", default="", help="comma-separated (all that run on the CPU)")
    parser.add_argument(
        "--only", default="", help="strategies, comma-separated: graphs, training, programs, fields (all)"
    )
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="where to write (default: %(default)s)")
    return parser.parse_args(argv)


def programs(seed: int, only: str) -> Iterator[tuple[str, Any]]:
    """Batch after batch, with the name of the strategy and the seed."""
    from jitney_testing import graphs, python_programs
    from jitney_testing.drawn.fields import fields
    from jitney_testing.suite.generated import drawn

    strategies = {
        "graphs": graphs(most=14, train=False),
        "training": graphs(most=14, train=True),
        "programs": python_programs(),
        "fields": fields(),
    }
    chosen = {name: s for name, s in strategies.items() if not only or name in only.split(",")}
    while True:
        for name, strategy in chosen.items():
            for program in drawn(strategy, BATCH, seed):
                yield f"{name}, seed {seed}", program
        seed += 1


def endless(program: Any) -> bool:
    """Does it take as long in eager? Some loops that are drawn have no end."""
    from jitney_testing.suite.check import Subject
    from jitney_tools.compare.time_limit import TimeLimit, time_limit

    try:
        with time_limit(PATIENCE / 2):  # which are two runs
            Subject("eager").differs(program)
    except TimeLimit:
        return True
    except Exception:
        return False
    return False


def look(run: Run, origin: str, program: Any, backend: Any, name: str) -> None:
    """Try one program on one backend; write it down if it fails in a new way."""
    from jitney_testing.opinfo.compare import Difference
    from jitney_testing.suite.check import Subject
    from jitney_testing.suite.generated import minimal
    from jitney_tools.compare.time_limit import TimeLimit, time_limit

    run.tried[name] = run.tried.get(name, 0) + 1
    subject = Subject(backend)
    try:
        with time_limit(PATIENCE):
            found = subject.differs(program)
    except TimeLimit as limit:
        found = None if endless(program) else Difference("hangs", str(limit))
    except Exception as error:  # whatever the compiler raises is what we look for
        found = Difference("raises", f"{type(error).__name__}: {error}")
    if found is None:
        return
    kind, detail = found.kind, found.detail
    least = minimal(program, subject, found, seconds=20.0) if kind not in ("raises", "hangs") else program
    key = (name, kind, re.sub(r"[\d.e+-]+", "0", detail)[:60])
    if key in run.seen:
        return
    run.seen.add(key)
    path = run.out / f"{name}_{kind.replace(' ', '_')}_{len(run.found)}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(subject.script(least, f"{name}: {kind}: {detail[:300]}\n\nFound by fuzzing, {origin}."))
    run.found.append(path)


def main(argv: Sequence[str] | None = None, backends: dict[str, Any] | None = None) -> int:
    """Fuzz until the time is over; ``backends`` by name, for tests."""
    options = arguments(argv)
    chosen = backends or {name: name for name in options.backends.split(",") if name}
    if not chosen:
        if not torch.cuda.is_available():
            interpret_triton()
        chosen = {name: name for name in installed()}
    elif "triton_gpu" in chosen and not torch.cuda.is_available():
        interpret_triton()
    from jitney_testing.conformance import quiet

    console = Console()
    console.print(f"seed {options.seed}; {', '.join(chosen)}; {options.minutes:g} minutes", highlight=False)
    run, end = Run(options.out), time.monotonic() + options.minutes * 60
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with quiet(), Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=options.minutes * 60)
        try:
            for origin, program in programs(options.seed, options.only):
                for name, backend in chosen.items():
                    if time.monotonic() > end:
                        raise TimeoutError
                    left = end - time.monotonic()
                    text = f"{escape(origin)}: {sum(run.tried.values())} tried, {len(run.found)} found"
                    progress.update(task, description=text, completed=options.minutes * 60 - left)
                    before = len(run.found)
                    look(run, origin, program, backend, name)
                    for path in run.found[before:]:
                        console.print(f"[red]found[/] {escape(str(path))} ({escape(origin)})", highlight=False)
        except (TimeoutError, KeyboardInterrupt):
            pass
    counts = ", ".join(f"{name} {count}" for name, count in run.tried.items())
    console.print(f"tried: {counts}; found: {len(run.found)}", highlight=False)
    return 1 if run.found else 0


if __name__ == "__main__":
    sys.exit(main())
