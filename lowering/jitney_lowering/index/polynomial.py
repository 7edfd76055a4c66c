"""Sums of products as tables: how they are added and multiplied out.

Terms are sorted by the structure of their factors, which is the same in every process; nothing depends on addresses.
"""

from __future__ import annotations

from typing import Any

from jitney_lowering.index.expr import Factor, Index, Product, Term

Table = dict[Product, int]  # a sum as it is, nothing sorted or recombined; the constant's product is ()


def term_order(term: Term) -> tuple[Any, ...]:
    """Sorts the terms of a sum."""
    return tuple([factor.order for factor in term[1]])


def _factor_order(factor: Factor) -> tuple[Any, ...]:
    return factor.order


def table_of(x: Index) -> Table:
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
