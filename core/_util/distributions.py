"""Where jitney's own code lies: the core, and the distributions that are released with it."""

from __future__ import annotations

import functools
import importlib.util
import os

CORE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIBLINGS = ("jitney_lowering", "jitney_numpy", "jitney_tools", "jitney_testing")  # import names


def file_of(package: str) -> str:
    """The file that importing a package would run first, or has run; empty if it is not installed."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return ""
    return os.path.abspath(spec.origin) if spec is not None and spec.origin is not None and spec.has_location else ""


@functools.cache
def folder_of(package: str) -> str:
    """The folder of one of ``SIBLINGS``, imported or not; empty if it is not installed."""
    return os.path.dirname(file_of(package))


@functools.cache
def own_folders() -> tuple[str, ...]:
    """The folders of all that is installed of jitney's own, without plugins."""
    return (CORE, *filter(None, map(folder_of, SIBLINGS)))
