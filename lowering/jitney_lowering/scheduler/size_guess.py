"""Numbers for sizes that are not known, for those who only compare costs."""

from __future__ import annotations

from jitney_lowering.index import Index, Size

SYMBOLIC = 256  # what a symbolic size counts as


def guess(expression: Index) -> int:
    """A number for an expression over sizes."""
    if expression.value is not None:
        return expression.value
    return expression.evaluate({a: SYMBOLIC for a in expression.atoms if isinstance(a, Size)})
