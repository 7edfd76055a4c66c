"""The options of the inductor backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class InductorOptions:
    """Options of the inductor backend.

    Args:
        mode: as in torch.compile; those with CUDA graphs are not offered.
        fallback_random: random operators are torch's, and give eager's numbers. False: Inductor's own.
        emulate_precision_casts: values of half dtypes are rounded where eager rounds them.
        settings: fields of ``torch._inductor.config`` by name, such as ``{"compile_threads": 1}``; they come last.
    """

    mode: Literal["default", "max-autotune-no-cudagraphs"] = "default"
    fallback_random: bool = True
    emulate_precision_casts: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)
