"""Numbers of a counter: see ``philox.py``."""

from __future__ import annotations

from jitney_lowering.ir.scalar import Scalar, two
from jitney_lowering.philox import UNIFORM
from jitney_lowering.rules.pointwise import pointwise


@pointwise(UNIFORM, mode="own")
def uniform(seed: Scalar, counter: Scalar) -> Scalar:
    """From 0 up to 1."""
    return two("uniform", seed, counter)
