"""Triton's kernels on the CPU, for tests and the fuzzer."""

from __future__ import annotations

import importlib
import os


def interpret_triton() -> None:
    """Have Triton's kernels interpreted on the CPU; to be called before anything imports Triton."""
    os.environ["TRITON_INTERPRET"] = "1"
    triton = importlib.import_module("triton")
    importlib.import_module("jitney_triton_gpu.device")
    triton.knobs.runtime.interpret = True
