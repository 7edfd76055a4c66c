"""What users may ask of the triton_gpu backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TritonGpuOptions:
    """Options of the triton_gpu backend.

    Args:
        relaxed_math: intermediate values of float16 and bfloat16 need not be rounded where eager rounds them, and a
            product that is added to something need not be rounded first.
        fallback_random: random operators are torch's, and give eager's numbers. False: numbers of a counter (Philox),
            part of kernels, whose seeds torch's generator draws.
        layout_optimization: values around convolutions have the channels last, where that saves conversions. Results
            and gradients have eager's strides all the same.
        cudagraphs: record what a graph launches in a CUDA graph, and launch it as one. Nothing large is copied: inputs
            that come from the same memory at each call, as parameters do, are used where they are. None: where that is
            measured to be faster, takes little memory and cannot be noticed.
        mode: ``reduce-overhead`` is the same as ``cudagraphs``; ``max-autotune`` is that and measures which block sizes
            suit each kernel (``max-autotune-no-cudagraphs``: only the latter).
        gemm: who multiplies matrices of half types: ``auto`` is torch's library, and under ``max-autotune`` a kernel of
            ours wherever it, with what follows in it, has been measured to be faster; ``aten`` is torch's library and
            ``triton`` a kernel of ours, wherever there can be one.
        fused_attention: a product, what is done to it, a softmax and another product are one kernel, which keeps no
            products of all queries and keys in memory.
        dump: show the loops, kernels and Triton code of each graph, in the logs as ``output_code``.
    """

    relaxed_math: bool = False
    fallback_random: bool = True
    layout_optimization: bool = True
    cudagraphs: bool | None = None
    mode: str = "default"
    gemm: Literal["auto", "aten", "triton"] = "auto"
    fused_attention: bool = True
    dump: bool = False

    @property
    def records(self) -> bool | None:
        """Are CUDA graphs asked for? None if they are neither asked for nor refused."""
        if self.cudagraphs is not None or self.mode == "default":
            return self.cudagraphs
        return self.mode in ("reduce-overhead", "max-autotune")

    @property
    def tunes(self) -> bool:
        """Are block sizes to be measured?"""
        return self.mode.startswith("max-autotune")
