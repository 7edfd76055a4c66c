"""What the operators of index expressions do: sums in canonical form, and the rules of the modules below.

The module is an ``expr.Arithmetic``; the package passes it in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jitney.errors import BackendFailed
from jitney_lowering.index.division import divide, recombined
from jitney_lowering.index.expr import Atom, Compound, Index, Product, index, node, visit
from jitney_lowering.index.polynomial import Table, add, multiply, table_of, term_order
from jitney_lowering.index.ranges import bounds, extremum

__all__ = ["bounds", "divide", "extremum", "from_terms", "plus", "substitute", "times", "verify"]


def from_terms(table: Mapping[Product, int], constant: int = 0) -> Index:
    """The sum of coefficients times products and of a constant; a product of no factors is a constant too."""
    terms = [(coef, product) for product, coef in table.items() if coef]
    if () in table:
        constant += table[()]
        terms = [term for term in terms if term[1]]
    if len(terms) > 1:
        terms.sort(key=term_order)
        if any(isinstance(f, Compound) for _, product in terms for f in product):
            found = recombined(terms, constant)
            if found is not None:
                return found
    return node(tuple(terms), constant)


def plus(a: Index, b: Index, sign: int) -> Index:
    """``a + sign * b``."""
    table = {product: coef for coef, product in a.terms}
    for coef, product in b.terms:
        table[product] = table.get(product, 0) + sign * coef
    return from_terms(table, a.constant + sign * b.constant)


def times(a: Index, b: Index) -> Index:
    """``a * b``."""
    return from_terms(multiply(table_of(a), table_of(b)))


def substitute(x: Index, atoms: Mapping[Any, Index | int]) -> Index:
    """See ``Index.substitute``."""
    return _substituted(x, atoms, {})


def _substituted(x: Index, atoms: Mapping[Any, Index | int], memo: dict[Index, Index]) -> Index:
    """``memo`` holds what is done already."""
    if isinstance(x, Atom):
        return index(atoms.get(x, x))
    if x.atoms.isdisjoint(atoms):
        return x
    found = memo.get(x)
    if found is not None:
        return found
    if isinstance(x, Compound):
        found = type(x).of_indices(_substituted(x.a, atoms, memo), _substituted(x.b, atoms, memo))
    else:
        table: Table = {(): x.constant}
        for coef, product in x.terms:
            part: Table = {(): coef}
            for factor in product:
                part = multiply(part, table_of(_substituted(factor, atoms, memo)))
            add(table, part)
        found = from_terms(table)
    memo[x] = found
    return found


# --- canonical form -------------------------------------------------------------------------------------------------


def verify(x: Index) -> None:
    """Raise ``BackendFailed`` if an expression inside is not what arithmetic makes."""
    for part in visit(x):
        if not _canonical(part):
            raise BackendFailed(f"lowering: the index expression {part} is not in canonical form")


def _canonical(x: Any) -> bool:
    if x.kind == "sum":
        ordered = sorted(x.terms, key=lambda term: [factor.order for factor in term[1]]) == list(x.terms)
        plain = all(
            coef and product and list(product) == sorted(product, key=lambda factor: factor.order)
            for coef, product in x.terms
        )
        return ordered and plain and from_terms({p: c for c, p in x.terms}, x.constant) is x
    if x.kind in ("floordiv", "mod"):
        return divide(x.a, x.b)[x.kind == "mod"] is x
    if x.kind in ("min", "max"):
        return extremum(type(x), [x.a, x.b]) is x
    return True
