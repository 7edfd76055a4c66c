"""Numbers for sizes that are not known, for those who only compare costs."""

from __future__ import annotations

import math
from collections.abc import Iterable

from jitney_lowering.index import Index, Size, Var

SYMBOLIC = 256  # what a symbolic size counts as


def guess(expression: Index) -> int:
    """A number for an expression over sizes."""
    if expression.value is not None:
        return expression.value
    return expression.evaluate({a: SYMBOLIC for a in expression.atoms if isinstance(a, Size)})


def iterations(loops: Iterable[Var]) -> int:
    """How often these loops go round together."""
    return math.prod(guess(var.size) for var in loops)
