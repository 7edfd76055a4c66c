"""What the graphs of a backend depend on besides themselves: what is stored is of use only where that is the same."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Callable
from typing import Any

from jitney.backends.registry import registry
from jitney.backends.resolve import BoundBackend
from jitney.cache.key import sources


def identity(bound: BoundBackend, files: Callable[[str], str] = sources) -> list[Any] | None:
    """Names, versions, options and code; None for a backend that did not come by an entry point.

    Args:
        bound: whose.
        files: what tells the files of a package from others.
    """
    if bound.parts:
        parts = [identity(part, files) for part in bound.parts]
        return None if None in parts else [bound.name, *parts]
    backend = bound.backend
    row = next((row for row in registry.listings() if row.name == backend.name), None)
    if row is None or row.status != "loaded" or registry.get(backend.name) is not backend:
        return None
    fields = dataclasses.fields(bound.options) if bound.options is not None else ()
    options = [(field.name, getattr(bound.options, field.name)) for field in fields]
    return [row.name, row.package, row.version, backend.version, options, *map(files, packages(bound))]


def identity_of_handlers(files: Callable[[str], str] = sources) -> list[list[str]]:
    """Names, versions and code of the packages that register handlers for capture; imports none of them.

    Args:
        files: what tells the files of a package from others.
    """
    return [
        [row.name, row.package, row.version, *map(files, registry.handler_packages(row.name))]
        for row in registry.handler_listings()
        if row.status != "disabled"
    ]


def packages(bound: BoundBackend) -> list[str]:
    """The packages that a backend is written in: its own, and those of jitney's that it requires."""
    if bound.parts:
        return [package for part in bound.parts for package in packages(part)]
    package = str(getattr(bound.backend.compile, "__module__", "")).partition(".")[0]
    if not isinstance(sys.modules.get(package), types.ModuleType):
        return []
    return [package, *registry.required_siblings(bound.backend)]
