"""The options of the onnxruntime backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
