"""Random numbers that are a function of a seed and a counter: Philox 4x32, ten rounds.

After Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). A random operator then is one
seed, drawn from torch's generator, and arithmetic: it goes into kernels, gives the same numbers on every device and for
any number of threads, and a backward computes it again from the seed.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["BITS", "MULTIPLIERS", "ROUNDS", "STEPS", "UNIFORM", "WORD", "uniform", "words"]

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)  # of the key, from round to round
WORD = 0xFFFFFFFF
BITS = 24  # of a float32's mantissa


def words(seed: Tensor, counter: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox's four words for each seed and counter (int64, of any shapes that go together), as int64 below 2**32."""
    k0, k1 = seed & WORD, (seed >> 32) & WORD
    c0, c1 = counter & WORD, (counter >> 32) & WORD
    c2 = c3 = torch.zeros_like(c0)
    for number in range(ROUNDS):
        if number:
            k0, k1 = (k0 + STEPS[0]) & WORD, (k1 + STEPS[1]) & WORD
        first, second = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]  # 64 bits, the sign is one of them
        c0, c1, c2, c3 = (
            ((second >> 32) & WORD) ^ c1 ^ k0,
            second & WORD,
            ((first >> 32) & WORD) ^ c3 ^ k1,
            first & WORD,
        )
    return c0, c1, c2, c3


def uniform(seed: Tensor, counter: Tensor) -> Tensor:
    """Numbers from 0 up to, not including, 1 (float32): the highest bits of the first word."""
    return (words(seed, counter)[0] >> (32 - BITS)).to(torch.float32) * 2.0**-BITS


_library = torch.library.Library("jitney", "FRAGMENT")
_library.define("uniform(Tensor seed, Tensor counter) -> Tensor", tags=(torch.Tag.pointwise,))
_library.impl("uniform", uniform, "CompositeExplicitAutograd")
UNIFORM = torch.ops.jitney.uniform.default
