"""What jitney calls. Importing JAX may draw Python's random numbers, which are the program's: they are put back."""

from __future__ import annotations

import random

_state = random.getstate()
from jitney_xla.compiler import compile_graph  # noqa: E402 (what follows imports JAX)
from jitney_xla.supported import supports  # noqa: E402

random.setstate(_state)

__all__ = ["compile_graph", "supports"]
