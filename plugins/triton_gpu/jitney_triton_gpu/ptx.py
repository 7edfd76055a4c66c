"""Repairs to PTX that NVIDIA's assembler translates wrongly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend

# ``add.s16x2`` of a constant, of which only the upper half is used: ptxas (12.8 to 13.1, sm_90 and later) adds zero.
# LLVM writes it where ``(x % 4096 + 32) // 65`` and the like fit in 16 bits and one thread computes several.
_PAIR = re.compile(r"add\.[su]16x2\s+(%\w+),\s*(%\w+),\s*(%\w+);")
_HALVES = (
    r"{ .reg .b16 %half<6>; mov.b32 {%half0, %half1}, \2; mov.b32 {%half2, %half3}, \3; "
    r"add.s16 %half4, %half0, %half2; add.s16 %half5, %half1, %half3; mov.b32 \1, {%half4, %half5}; }"
)


def repaired(ptx: str) -> str:
    """The same program without instructions that ptxas translates wrongly: sums of pairs are two sums."""
    return _PAIR.sub(_HALVES, ptx)


def assembled(ptx: str, target: GPUTarget, options: Mapping[str, Any]) -> bytes:
    """Machine code of PTX, by Triton's own call of ptxas.

    Args:
        ptx: a whole module.
        target: the GPU.
        options: what Triton was told when it wrote the module.
    """
    backend: Any = make_backend(target)
    code: bytes = backend.make_cubin(ptx, {}, backend.parse_options(dict(options)), target.arch)
    return code
