"""XLA behind jitney: ATen graphs become JAX functions, and XLA compiles these for the CPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from jitney.backends import Backend, core_decompositions, lazy_function
from jitney_xla.options import XlaOptions

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1


def lacks() -> Sequence[str]:
    """What is missing here: JAX, which brings XLA."""
    missing = [name for name in ("jax", "jaxlib") if importlib.util.find_spec(name) is None]
    return [f"the package {name} is not installed" for name in missing]


# Their decompositions give other strides, copies for what shares memory with the argument, halves that are rounded more
# often, or results for numbers and dtypes that eager refuses.
WHOLE = (
    "binary_cross_entropy", "dot", "lerp", "masked_fill", "max_unpool2d", "max_unpool3d", "mv", "unsafe_split",
    "unsafe_split_with_sizes",
)  # fmt: skip


def decompositions(options: XlaOptions) -> Mapping[Any, Callable[..., Any]]:
    """Core ATen, less what is taken apart in another way than eager's results show."""
    whole = {getattr(torch.ops.aten, name) for name in WHOLE}
    return {op: made for op, made in core_decompositions().items() if getattr(op, "overloadpacket", op) not in whole}


backend = Backend(
    name="xla",
    compile=lazy_function("jitney_xla.entry:compile_graph"),
    level="aten",
    device_types=("cpu",),
    options=XlaOptions,
    decompositions=decompositions,
    supports=lazy_function("jitney_xla.entry:supports"),
    version="0.1.0",
    lacks=lacks,
)
