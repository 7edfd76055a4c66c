"""Show what a running process compiles: jitney watch [PID].

The process has to run with JITNEY_WATCH=1, or config.watch = True, and is seen once it has compiled something. Without
a PID, processes of yours that can be watched are listed, and if there is one, it is shown. Ctrl-C ends it. Seconds in
graphs, between graphs (breaks), in guards and compiling are estimated by looking at its threads 50 times a second.
"""

from __future__ import annotations

import argparse
import time

from rich.console import Console, RenderableType
from rich.live import Live

from jitney.errors import JitneyError
from jitney_tools.watch.folder import state_of, states
from jitney_tools.watch.state import State
from jitney_tools.watch.view import overview, view

NONE = "start one with JITNEY_WATCH=1; it is seen once it has compiled something"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("pid", metavar="PID", type=int, nargs="?", help="of the process")
    parser.add_argument("--once", action="store_true", help="print what is there now, and end")
    parser.add_argument("--json", action="store_true", help="print it as JSON, for programs")
    parser.add_argument("--seconds", type=float, default=0.5, help="between two looks (default: 0.5)")


def run(arguments: argparse.Namespace) -> int:
    """Show it until Ctrl-C, or until the process has ended."""
    if arguments.json:
        found = _found(arguments.pid)
        print(f"[{', '.join(state.text() for state in found)}]" if arguments.pid is None else found[0].text())
        return 0
    console = Console()
    if arguments.once or not console.is_terminal:
        console.print(_shown(_found(arguments.pid)))
        return 0
    shown = _found(arguments.pid)
    pid = shown[0].pid if len(shown) == 1 else None
    with Live(_shown(shown), console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(max(0.1, arguments.seconds))
                shown = _found(pid)
                live.update(_shown(shown), refresh=True)
        except (KeyboardInterrupt, JitneyError):  # or it has ended
            pass
    console.print(_shown(shown))
    return 0


def _found(pid: int | None) -> list[State]:
    found = states() if pid is None else [state_of(pid)]
    if not found:
        raise JitneyError("no process of yours can be watched", hint=NONE, phase="watch")
    return found


def _shown(found: list[State]) -> RenderableType:
    return view(found[0]) if len(found) == 1 else overview(found)
