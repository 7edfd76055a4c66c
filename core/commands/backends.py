"""List the installed backends and extensions, with the tracebacks of broken ones."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from jitney.backends import Listing, registry


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Import every plugin and show its state; a broken one is shown, not raised."""
    found = {
        "backends": registry.listings(load=True),
        "extensions": registry.extension_listings(load=True),
    }
    if arguments.json:
        print(json.dumps({kind: [dataclasses.asdict(row) for row in rows] for kind, rows in found.items()}, indent=2))
        return 0
    console = Console()
    for kind, rows in found.items():
        if rows or kind == "backends":
            console.print(table(kind, rows))
    for row in found["backends"] + found["extensions"]:
        if row.error:
            console.print(f"\n[bold red]{escape(row.name)}[/] ({escape(row.package)}) is {row.status}:")
            console.print(escape(row.error), highlight=False)
    if not found["backends"]:
        console.print("no backend is installed: pip install jitney-eager")
    return 0


def table(title: str, rows: Sequence[Listing]) -> Table:
    """The listings as a table."""
    result = Table("name", "package", "version", "status", title=title, title_justify="left")
    for row in rows:
        good = row.status in ("installed", "loaded", "in-process")
        status = f"[{'green' if good else 'red'}]{row.status}[/]"
        result.add_row(escape(row.name), escape(row.package), escape(row.version), status)
    return result
