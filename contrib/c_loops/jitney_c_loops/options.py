"""What users may ask of the c_loops backend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CLoopsOptions:
    """Options of the c_loops backend.

    Args:
        optimize: the C compiler's level, 0 to 3.
        relaxed_math: intermediate values of float16 and bfloat16 need not be rounded where eager rounds them.
        fallback_random: random operators are torch's, and give eager's numbers. False: numbers of a counter (Philox),
            part of kernels, whose seeds torch's generator draws.
    """

    optimize: int = 1
    relaxed_math: bool = False
    fallback_random: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.optimize <= 3:
            raise ValueError(f"optimize is a level from 0 to 3, got {self.optimize}")
