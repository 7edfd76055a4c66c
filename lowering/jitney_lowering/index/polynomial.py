"""Sums of products: how they are made, added and multiplied. There is one object for each expression.

Terms are sorted by the structure of their factors, which is the same in every process; nothing depends on addresses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from jitney_lowering.index import division
from jitney_lowering.index import expr as ix

Product = tuple["ix.Factor", ...]  # factors in their order, a square is the factor twice
Term = tuple[int, Product]
Table = dict[Product, int]  # a sum as it is, nothing sorted or recombined; the constant's product is ()

_NODES: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()
_LOCK = Lock()


def interned(cls: type[Any], key: tuple[Any, ...], slots: tuple[tuple[str, Any], ...]) -> Any:
    """The node of that class and key: the one there is, or a new one with these slots.

    Keys name other nodes by ``id``: the node holds them as long as its entry is there. A reference from the table
    would keep every node alive, since nodes remember their quotients.
    """
    key = (cls, *key)
    found = _NODES.get(key)
    if found is None:
        with _LOCK:
            found = _NODES.get(key)
            if found is None:
                found = object.__new__(cls)
                found._atoms = found._bounds = found._divided = found._order = None
                for name, value in slots:
                    setattr(found, name, value)
                _NODES[key] = found
    return found


def compound(cls: type[ix.Compound], a: ix.Index, b: ix.Index) -> ix.Compound:
    """The operation as it is, without simplifying: for the rules."""
    return interned(cls, (id(a), id(b)), (("a", a), ("b", b)))


def node(terms: tuple[Term, ...], constant: int) -> ix.Index:
    """The sum of terms that are in canonical form, or the lone factor."""
    if not constant and len(terms) == 1 and terms[0][0] == 1 and len(terms[0][1]) == 1:
        return terms[0][1][0]
    key = [constant]
    for coef, product in terms:
        key += (coef, len(product), *map(id, product))
    return interned(ix.Sum, tuple(key), (("terms", terms), ("constant", constant)))


def from_terms(table: Mapping[Product, int], constant: int = 0) -> ix.Index:
    """The sum of coefficients times products and of a constant; a product of no factors is a constant too."""
    terms = [(coef, product) for product, coef in table.items() if coef]
    if () in table:
        constant += table[()]
        terms = [term for term in terms if term[1]]
    if len(terms) > 1:
        terms.sort(key=_term_order)
        if any(isinstance(f, ix.Compound) for _, product in terms for f in product):
            found = division.recombined(terms, constant)
            if found is not None:
                return found
    return node(tuple(terms), constant)


def _term_order(term: Term) -> tuple[Any, ...]:
    return tuple([factor.order for factor in term[1]])


def _factor_order(factor: ix.Factor) -> tuple[Any, ...]:
    return factor.order


def table_of(x: ix.Index) -> Table:
    """The terms and, where it is not 0, the constant."""
    table = {product: coef for coef, product in x.terms}
    if x.constant:
        table[()] = x.constant
    return table


def joined(a: Product, b: Product) -> Product:
    """The product of two products."""
    return tuple(sorted(a + b, key=_factor_order)) if a and b else a or b


def multiply(a: Table, b: Table) -> Table:
    """Two sums multiplied out; coefficients may be 0."""
    table: Table = {}
    for p, left in a.items():
        for q, right in b.items():
            product = joined(p, q)
            table[product] = table.get(product, 0) + left * right
    return table


def add(table: Table, more: Table, times: int = 1) -> None:
    """Add ``times * more`` to a table, in place; coefficients may become 0."""
    for product, coef in more.items():
        table[product] = table.get(product, 0) + times * coef


def plus(a: ix.Index, b: ix.Index, sign: int) -> ix.Index:
    """``a + sign * b``."""
    table = {product: coef for coef, product in a.terms}
    for coef, product in b.terms:
        table[product] = table.get(product, 0) + sign * coef
    return from_terms(table, a.constant + sign * b.constant)


def scaled(a: ix.Index, by: int) -> ix.Index:
    """``a * by``."""
    if by == 0:
        return node((), 0)
    return node(tuple([(by * coef, product) for coef, product in a.terms]), by * a.constant)


def times(a: ix.Index, b: ix.Index) -> ix.Index:
    """``a * b``."""
    return from_terms(multiply(table_of(a), table_of(b)))


def rebuilt(terms: Iterable[Term], constant: int) -> ix.Index:
    """A sum that was pickled."""
    return from_terms({product: coef for coef, product in terms}, constant)


def substitute(x: ix.Index, atoms: Mapping[Any, ix.Index | int], memo: dict[ix.Index, ix.Index]) -> ix.Index:
    """See ``Index.substitute``; ``memo`` holds what is done already."""
    if isinstance(x, ix.Atom):
        return ix.index(atoms.get(x, x))
    if x.atoms.isdisjoint(atoms):
        return x
    found = memo.get(x)
    if found is not None:
        return found
    if isinstance(x, ix.Compound):
        found = type(x).of_indices(substitute(x.a, atoms, memo), substitute(x.b, atoms, memo))
    else:
        table: Table = {(): x.constant}
        for coef, product in x.terms:
            part: Table = {(): coef}
            for factor in product:
                part = multiply(part, table_of(substitute(factor, atoms, memo)))
            add(table, part)
        found = from_terms(table)
    memo[x] = found
    return found
