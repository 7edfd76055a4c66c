"""List the installed backends, extensions and handlers of capture, with the tracebacks of broken ones.

--json prints an object: schema (1; raised when a key changes its meaning or goes, never when one comes), hook_api
and the versions of jitney, torch and python; options (jitney's own, which every backend takes); backends,
extensions and handlers, a list each. A row has name, package, version, entry_points ("module:object"), status (loaded,
broken, disabled, duplicate or in-process), error (a traceback, or empty), but for handlers options, and, of a backend,
level, device_types (empty: any) and lacks (what it misses on this machine). These are null where nobody knows, since
the plugin is not loaded. An option has name, type, default (its repr, where JSON has no such thing) and meaning.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import math
import platform
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from jitney._util.type_check import show
from jitney.backends import HOOK_API_VERSION, Listing, registry
from jitney.backends.backend_fields import lacks_of
from jitney.backends.common_options import OwnOptions
from jitney.backends.options import default_of
from jitney.capture.handlers import handlers as merged_handlers
from jitney.commands.docstrings import taken_apart
from jitney.errors import PluginError

SCHEMA = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Import every plugin and show its state; a broken one is shown, not raised."""
    backends, extensions = registry.listings(load=True), registry.extension_listings(load=True)
    merged_handlers()  # imports those of packages
    handlers = registry.handler_listings()
    if arguments.json:
        print(json.dumps(everything(backends, extensions, handlers), indent=2))
        return 0
    console = Console()
    console.print(table("backends", backends))
    for title, rows in (("extensions", extensions), ("handlers", handlers)):
        if rows:
            console.print(table(title, rows))
    for row in backends + extensions + handlers:
        if row.error:
            console.print(f"\n[bold red]{escape(row.name)}[/] ({escape(row.package)}) is {row.status}:")
            console.print(escape(row.error), highlight=False)
    if not backends:
        console.print("no backend is installed: pip install jitney-eager")
    return 0


def table(title: str, rows: Sequence[Listing]) -> Table:
    """The listings as a table."""
    result = Table("name", "package", "version", "status", title=title, title_justify="left")
    for row in rows:
        status = f"[{'green' if _usable(row) else 'red'}]{row.status}[/]"
        result.add_row(escape(row.name), escape(row.package), escape(row.version), status)
    return result


def everything(
    backends: Sequence[Listing], extensions: Sequence[Listing], handlers: Sequence[Listing]
) -> dict[str, Any]:
    """What ``--json`` prints; see this module's docstring."""
    return {
        "schema": SCHEMA,
        "hook_api": HOOK_API_VERSION,
        "jitney": importlib.metadata.version("jitney"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "options": option_rows(OwnOptions),
        "backends": [_backend(row) for row in backends],
        "extensions": [_extension(row) for row in extensions],
        "handlers": [_row(row, "") for row in handlers],
    }


def option_rows(options: type | None) -> list[dict[str, Any]]:
    """The fields of a dataclass of options: name, type, default and meaning."""
    if options is None:
        return []
    types, says = get_type_hints(options), taken_apart(options).rows
    rows = []
    for field in dataclasses.fields(options):
        if field.init:
            kind, default, meaning = show(types[field.name]), plain(default_of(field)), says.get(field.name, "")
            rows.append({"name": field.name, "type": kind, "default": default, "meaning": meaning})
    return rows


def plain(value: Any) -> Any:
    """The value as JSON has it; text that is its ``repr`` if JSON has no such thing."""
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(item) for key, item in value.items()}
    return repr(value)


def _usable(row: Listing) -> bool:
    return row.status in ("installed", "loaded", "in-process")


def _backend(row: Listing) -> dict[str, Any]:
    facts: dict[str, Any] = dict.fromkeys(("level", "device_types", "options", "lacks"))
    error = ""
    if _usable(row):
        backend = registry.get(row.name)
        facts["level"], facts["device_types"] = backend.level, list(backend.device_types)
        try:
            facts["options"] = option_rows(backend.options)
            facts["lacks"] = lacks_of(backend)
        except Exception:  # the plugin's own code, whatever it does; the others are listed all the same
            error = traceback.format_exc().rstrip()
    return _row(row, error) | facts


def _extension(row: Listing) -> dict[str, Any]:
    options, error = None, ""
    if row.status == "loaded":
        try:
            options = option_rows(registry.options_of_extension(row.name))
        except (PluginError, NameError) as wrong:  # its own jitney_options; an annotation that means nothing
            error = str(wrong)
    return _row(row, error) | {"options": options}


def _row(row: Listing, error: str) -> dict[str, Any]:
    known = dataclasses.asdict(row)
    return known | {"error": row.error or error, "entry_points": list(row.entry_points)}
