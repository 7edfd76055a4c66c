"""What users may ask of the triton_gpu backend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TritonGpuOptions:
    """Options of the triton_gpu backend.

    Args:
        relaxed_math: intermediate values of float16 and bfloat16 need not be rounded where eager rounds them, and a
            product that is added to something need not be rounded first.
        dump: show the loops, kernels and Triton code of each graph, in the logs as ``output_code``.
    """

    relaxed_math: bool = False
    dump: bool = False
