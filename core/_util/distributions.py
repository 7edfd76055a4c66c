"""Where jitney's own code lies: the core, and the distributions that are released with it."""

from __future__ import annotations

import functools
import importlib.util
import os

CORE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIBLINGS = ("jitney_lowering", "jitney_tools", "jitney_testing")  # import names


@functools.cache
def folder_of(package: str) -> str:
    """The folder of one of ``SIBLINGS``, imported or not; empty if it is not installed."""
    spec = importlib.util.find_spec(package)
    return "" if spec is None or spec.origin is None else os.path.dirname(os.path.abspath(spec.origin))


@functools.cache
def own_folders() -> tuple[str, ...]:
    """The folders of all that is installed of jitney's own, without plugins."""
    return (CORE, *filter(None, map(folder_of, SIBLINGS)))
