"""Index arithmetic: a small language of integers over loop variables and sizes. All of it is public.

Each module knows those before it only: expr, polynomial, ranges, division, arithmetic; iterations, text.
"""

from jitney_lowering.index import arithmetic
from jitney_lowering.index.expr import (
    Atom,
    Compound,
    Factor,
    FloorDiv,
    Index,
    Max,
    Min,
    Mod,
    Names,
    Opaque,
    Product,
    Size,
    Sum,
    Term,
    Var,
    from_terms,
    index,
    max_,
    min_,
    simplify_with,
    visit,
)
from jitney_lowering.index.iterations import linear, product, tells_apart, usual_step
from jitney_lowering.index.ranges import at_most, equal, fits_int32, furthest, is_zero, less, stays_int32
from jitney_lowering.index.text import Spell, render

simplify_with(arithmetic)

__all__ = [
    "Atom",
    "Compound",
    "Factor",
    "FloorDiv",
    "Index",
    "Max",
    "Min",
    "Mod",
    "Names",
    "Opaque",
    "Product",
    "Size",
    "Spell",
    "Sum",
    "Term",
    "Var",
    "at_most",
    "equal",
    "fits_int32",
    "from_terms",
    "furthest",
    "index",
    "is_zero",
    "less",
    "linear",
    "max_",
    "min_",
    "product",
    "render",
    "stays_int32",
    "tells_apart",
    "usual_step",
    "visit",
]
