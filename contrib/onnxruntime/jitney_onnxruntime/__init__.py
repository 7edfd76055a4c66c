"""ONNX Runtime behind jitney: ATen graphs are written as ONNX models, without torch's exporter, and run on the CPU.

Operators whose numbers ONNX Runtime gives otherwise than eager are not taken: jitney runs them eagerly.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jitney.backends import Backend, lazy_function

# The version of jitney's hooks that this package was written for; any other is refused by name.
jitney_hook_api = 1


@dataclass(frozen=True)
class OnnxruntimeOptions:
    """Options of the onnxruntime backend.

    Args:
        threads: of each session, for work within an operator; 0: as many as torch has when the graph is compiled.
        graph_optimization_level: how much ONNX Runtime rewrites the model.
        spin: threads that wait for work keep their cores busy. Saves microseconds, takes them from torch's own threads.
    """

    threads: int = 0
    graph_optimization_level: Literal["disabled", "basic", "extended", "all"] = "all"
    spin: bool = False

    def __post_init__(self) -> None:
        if self.threads < 0:
            raise ValueError(f"threads is 0 or more, got {self.threads}")


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
