"""All rows of the benchmark, by group."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

from . import timm_models, torchvision_models, transformers_models
from .row import Row

LIBRARIES = (timm_models, torchvision_models, transformers_models)


@functools.cache
def all_rows(device: str) -> tuple[Row, ...]:
    """Rows as they are on that device; their names are the same on all. No library is imported for it."""
    programs: Any = import_module("breadth.programs")
    own = programs.ROWS if hasattr(programs, "ROWS") else programs.rows() if hasattr(programs, "rows") else ()
    return (*own, *(row for module in LIBRARIES for row in module.rows(device)))


def named(name: str, device: str) -> Row:
    """The row of that name; ``KeyError`` if there is none."""
    for row in all_rows(device):
        if row.name == name:
            return row
    raise KeyError(name)
