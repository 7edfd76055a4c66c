"""Make one HTML page of a debug folder: jitney report RUN.

RUN is a folder that JITNEY_COMPILE_DEBUG=1 has written, or the folder that has such folders: then the newest. The page
has the source with what was captured and where it breaks, graphs, guards, recompiles, kernels, memory and compile time;
it needs no network.
"""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from rich.console import Console

from jitney.debug.text import size
from jitney_tools.report import newest, write_report


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", metavar="RUN", type=Path, help="a debug folder, or the folder that has them")
    parser.add_argument("-o", "--output", type=Path, help="the file (default: report.html in the debug folder)")
    parser.add_argument("--open", action="store_true", help="open it in the browser")


def run(arguments: argparse.Namespace) -> int:
    """Write the page, say where it is."""
    folder = newest(arguments.run)
    console = Console(soft_wrap=True)
    with console.status(f"reading {folder}"):
        file = write_report(folder, arguments.output)
    console.print(f"{file} ({size(file.stat().st_size)})", highlight=False)
    if arguments.open:
        webbrowser.open(file.resolve().as_uri())
    return 0
