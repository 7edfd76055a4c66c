"""List, measure or clear what is kept on disk for later processes."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time

from rich.console import Console
from rich.table import Table

from jitney.cache.store import Held, cache_folder, held
from jitney.errors import JitneyError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("action", choices=ACTIONS, help="list the files, say how much there is, or remove all")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Do it; the folder is that of ``config.cache_dir``, or the user's cache folder."""
    folder = cache_folder()
    if folder is None:
        raise JitneyError("there is no folder: the user has no home", hint="set JITNEY_CACHE_DIR", phase="cache")
    ACTIONS[arguments.action](held(folder), str(folder), arguments.json)
    return 0


def ls(found: list[Held], folder: str, as_json: bool) -> None:
    """Print every file."""
    if as_json:
        print(json.dumps([dataclasses.asdict(row) for row in found], indent=2))
        return
    table = Table("what", "name", "kilobytes", "used", title=folder, title_justify="left")
    for row in sorted(found, key=lambda row: -row.used):
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.used))
        table.add_row(row.part, row.name[:16], f"{row.size / 1000:.1f}", used)
    Console().print(table)


def size(found: list[Held], folder: str, as_json: bool) -> None:
    """Print how much there is."""
    parts: dict[str, tuple[int, int]] = {}
    for row in found:
        count, total = parts.get(row.part, (0, 0))
        parts[row.part] = (count + 1, total + row.size)
    if as_json:
        rows = {part: {"files": count, "bytes": total} for part, (count, total) in parts.items()}
        print(json.dumps({"folder": folder, "parts": rows}, indent=2))
        return
    print(folder)
    for part, (count, total) in sorted(parts.items()):
        print(f"  {part}: {count} files, {total / 1e6:.1f} MB")


def clear(found: list[Held], folder: str, as_json: bool) -> None:
    """Remove everything."""
    gone = sum(row.remove() for row in found)
    print(json.dumps({"folder": folder, "removed": gone}) if as_json else f"{folder}: {gone} files removed")


ACTIONS = {"ls": ls, "size": size, "clear": clear}
