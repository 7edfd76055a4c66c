"""What users may ask of the llvm_cpu backend."""

from __future__ import annotations

from dataclasses import dataclass

from jitney_llvm_cpu.target import Target


@dataclass(frozen=True)
class LlvmCpuOptions:
    """Options of the llvm_cpu backend.

    Args:
        vector_bytes: width of vectors: 16, 32, 64, or 0 for the host's best.
        grain: elements of cheap work below which no second thread is started.
        relaxed_math: intermediate values of float16 and bfloat16 need not be rounded where eager rounds them.
        fallback_random: random operators are torch's, and give eager's numbers. False: numbers of a counter (Philox),
            part of kernels, whose seeds torch's generator draws.
        layout_optimization: values around convolutions have the channels last, where that saves conversions. Results
            and gradients have eager's strides all the same.
        packed_weights: in inference, convolutions keep a copy of their weights in the order that oneDNN computes with;
            it is made again when any byte of the weights has changed, which each call looks at.
        fused_attention: a product, what is done to it, a softmax and another product are torch's fused attention where
            that says the same; if the products are many, they are computed block by block otherwise, and never held.
        layers_once: of equal layers that follow each other, lower and schedule one, repeat its kernels. False: each.
        cache_dir: where object code is kept from one process to the next; empty for ``config.cache_dir``, and if that
            is empty too the user's cache folder.
        cache: keep object code at all.
        dump: show the loops, kernels, LLVM IR and assembly of each graph, in the logs as ``output_code``.
    """

    vector_bytes: int = 0
    grain: int = 32768
    relaxed_math: bool = False
    fallback_random: bool = True
    layout_optimization: bool = True
    packed_weights: bool = True
    fused_attention: bool = True
    layers_once: bool = True
    cache_dir: str = ""
    cache: bool = True
    dump: bool = False

    def __post_init__(self) -> None:
        if self.grain < 1:
            raise ValueError(f"grain is a number of elements, at least 1, got {self.grain}")
        if self.vector_bytes:
            Target.host(self.vector_bytes)  # raises for a width that this machine does not have
