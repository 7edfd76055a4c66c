"""Tables of decompositions that a backend may ask for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from jitney.torch_compat import torch_private


@functools.cache
def core_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """torch's own table to core ATen operators, less random operators: those must draw as eager does."""
    table = torch_private.core_decompositions()
    return MappingProxyType(
        {op: rule for op, rule in table.items() if torch.Tag.nondeterministic_seeded not in getattr(op, "tags", ())}
    )
