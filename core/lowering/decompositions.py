"""Which ATen operators are taken apart before a graph is lowered."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any


@functools.cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """A table as in ``torch._decomp``: operator -> a function of other operators."""
    return MappingProxyType({})
