"""ONNX Runtime behind jitney: ATen graphs are written as ONNX models, without torch's exporter, and run on the CPU.

Operators whose numbers ONNX Runtime gives otherwise than eager are not taken: jitney runs them eagerly.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jitney.backends import Backend, lazy_function
from jitney_onnxruntime.options import OnnxruntimeOptions

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1


def lacks() -> Sequence[str]:
    """The packages that are not installed."""
    needed = ("onnx", "onnxruntime")
    return [f"the package {name} is not installed" for name in needed if importlib.util.find_spec(name) is None]


backend = Backend(
    name="onnxruntime",
    compile=lazy_function("jitney_onnxruntime.compiler:compile_graph"),
    level="aten",
    device_types=("cpu",),
    options=OnnxruntimeOptions,
    supports=lazy_function("jitney_onnxruntime.support:supports"),
    version="0.1.0",
    lacks=lacks,
)
