"""Whose functions and classes are taken as they are: nobody replaces them while a program runs."""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

OWN_PACKAGES = {"torch", "jitney", "contextlib"}


@functools.lru_cache(maxsize=4096)
def trusted_module(name: str) -> bool:
    """Is this module torch's or the standard library's, whose functions nobody replaces while running?"""
    root = name.partition(".")[0]
    return root in OWN_PACKAGES or (root in sys.stdlib_module_names and root != "__main__")


def trusted(owner: Any) -> bool:
    """Does this module, class or globals dictionary belong to a trusted module?"""
    if isinstance(owner, types.ModuleType):
        return trusted_module(owner.__name__)
    if isinstance(owner, dict):
        return trusted_module(str(owner.get("__name__", "")))
    return trusted_module(str(getattr(owner, "__module__", "") or ""))
