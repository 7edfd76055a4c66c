"""Floats of 8 bits: how their codes are made up. They are memory formats; arithmetic happens in wider types.

Micikevicius et al., "FP8 Formats for Deep Learning", 2022; for the kinds without a negative zero, Noune et al., "8-bit
Numerical Formats for Deep Neural Networks", 2022. Emitters decode codes and encode float32 by integer arithmetic:
instructions and interpreters differ in what becomes of numbers that are too large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Float8:
    """One kind.

    Args:
        mantissa: bits after the point.
        bias: of the exponent.
        most: the greatest code without a sign that is no nan: what a number becomes that is too large.
        overflows: does it become nan instead?
        unsigned: has it one zero and one nan, which has the code of a negative zero?
        infinity: the code of infinity; codes above it are nan. 0: there is none.
    """

    mantissa: int
    bias: int
    most: int
    overflows: bool = False
    unsigned: bool = False
    infinity: int = 0

    @property
    def shift(self) -> int:
        """Bits of a float32's mantissa that it lacks."""
        return 23 - self.mantissa

    @property
    def least_normal(self) -> int:
        """The bits of its least normal number as a float32."""
        return (128 - self.bias) << 23

    @property
    def magic(self) -> int:
        """The bits of a float32 to which numbers below normal ones can be added: the sum's last bits are the code."""
        return (128 - self.bias + self.shift) << 23

    @property
    def rounding(self) -> int:
        """Added to the bits of a float32, with the last bit that is kept: another bias, rounded to nearest even."""
        return ((self.bias - 127) << 23) + (1 << (self.shift - 1)) - 1

    @property
    def quantum(self) -> float:
        """The least number above 0."""
        return 2.0 ** (1 - self.bias - self.mantissa)

    @property
    def nan(self) -> int:
        """The code of nan."""
        return 0x80 if self.unsigned else 0x7F


# Some releases of torch make nan of what e4m3fn cannot hold, others the greatest number.
_SATURATES = not math.isnan(torch.tensor(1e9).to(torch.float8_e4m3fn).float().item())

FLOAT8_KINDS: dict[torch.dtype, Float8] = {
    torch.float8_e4m3fn: Float8(3, 7, 0x7E, overflows=not _SATURATES),
    torch.float8_e5m2: Float8(2, 15, 0x7C, infinity=0x7C),
    torch.float8_e4m3fnuz: Float8(3, 8, 0x7F, overflows=True, unsigned=True),
    torch.float8_e5m2fnuz: Float8(2, 16, 0x7F, overflows=True, unsigned=True),
}


def float8_code(value: float, dtype: torch.dtype) -> int:
    """The code of a number."""
    return int(torch.tensor(value, dtype=dtype).view(torch.uint8).item())
