"""What is known of an index expression's values: numeric bounds, proofs with symbolic sizes, least and greatest.

Numeric bounds are interval arithmetic. Where sizes are symbolic, loop variables are first replaced, one by one, by the
end of their range at which the expression is lowest: ``j < S`` is ``S - 1 - j >= 0``, which is lowest, 0, at
``j = S - 1``. All that is said here holds for every value of the atoms in their ranges; "not proven" is always allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from jitney_lowering.index import expr as ix
from jitney_lowering.index import polynomial
from jitney_lowering.index.expr import Interval
from jitney_lowering.index.polynomial import Table

# --- numeric bounds -------------------------------------------------------------------------------------------------


def bounds(x: ix.Index) -> Interval:
    """The lowest and highest value, None where unknown. Cached by ``Index.bounds``."""
    return INTERVALS[x.kind](x)


def _of_var(x: Any) -> Interval:
    high = x.size.bounds()[1]
    return (0, None if high is None else max(high - 1, 0))


def _of_ranged(x: Any) -> Interval:
    return (x.low, x.high)


def _of_sum(x: ix.Index) -> Interval:
    low, high = _of_terms(x)
    if _symbolic(x):
        highest = _lowest(x, 1)
        return _greatest(low, _lowest(x, -1)), _least(high, None if highest is None else -highest)
    return low, high


def _of_terms(x: ix.Index) -> Interval:
    low: int | None = x.constant
    high: int | None = x.constant
    for coef, product in x.terms:
        a, b = _of_product(product)
        if coef < 0:
            a, b = b, a
        low = None if low is None or a is None else low + coef * a
        high = None if high is None or b is None else high + coef * b
    return (low, high)


def _of_product(product: ix.Product) -> Interval:
    low, high = product[0].bounds()
    for factor in product[1:]:
        low, high = times((low, high), factor.bounds())
    return (low, high)


def times(a: Interval, b: Interval) -> Interval:
    """The interval of all products."""
    (al, ah), (bl, bh) = a, b
    if al is not None and bl is not None and al >= 0 and bl >= 0:
        return (al * bl, None if ah is None or bh is None else ah * bh)
    if al is None or ah is None or bl is None or bh is None:
        return (None, None)
    corners = (al * bl, al * bh, ah * bl, ah * bh)
    return (min(corners), max(corners))


def quotient(x: Interval, by: Interval) -> Interval:
    """The interval of ``x // by``, where ``by`` is at least 1."""
    low, high = x
    least, greatest = max(by[0] or 1, 1), by[1]
    if low is not None:
        if low >= 0:
            low = 0 if greatest is None else low // greatest
        else:
            low = low // least
    if high is not None:
        if high >= 0:
            high = high // least
        else:
            high = -1 if greatest is None else high // greatest
    return (low, high)


def _of_floordiv(x: Any) -> Interval:
    return quotient(x.a.bounds(), x.b.bounds())


def _of_mod(x: Any) -> Interval:
    low, high = x.a.bounds()
    most = x.b.bounds()[1]
    most = None if most is None else most - 1
    return (0, _least(most, high) if low is not None and low >= 0 else most)


def _of_min(x: Any) -> Interval:
    (al, ah), (bl, bh) = x.a.bounds(), x.b.bounds()
    return (None if al is None or bl is None else min(al, bl), _least(ah, bh))


def _of_max(x: Any) -> Interval:
    (al, ah), (bl, bh) = x.a.bounds(), x.b.bounds()
    return (_greatest(al, bl), None if ah is None or bh is None else max(ah, bh))


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _greatest(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


INTERVALS: dict[str, Callable[[Any], Interval]] = {
    "sum": _of_sum,
    "var": _of_var,
    "size": _of_ranged,
    "opaque": _of_ranged,
    "floordiv": _of_floordiv,
    "mod": _of_mod,
    "min": _of_min,
    "max": _of_max,
}


def furthest(x: ix.Index, most: int) -> int:
    """No value of it is further from 0, if no atom of it is further than ``most``."""
    if isinstance(x, ix.Atom):
        low, high = x.bounds()
        return most if low is None or high is None else min(max(abs(low), abs(high)), most)
    if isinstance(x, ix.Compound):
        return furthest(x.a, most) if x.kind == "floordiv" else max(furthest(x.a, most), furthest(x.b, most))
    products = (abs(coef) * math.prod(furthest(factor, most) for factor in product) for coef, product in x.terms)
    return abs(x.constant) + sum(products)


# --- symbolic sizes -------------------------------------------------------------------------------------------------


def nonnegative(x: ix.Index, splits: int = 5) -> bool:
    """Is ``x >= 0`` proven? ``splits`` is how many minima and maxima may be told apart into cases."""
    low, high = x.bounds() if x._bounds is not None or not x.terms else _of_terms(x)
    if low is not None and low >= 0:
        return True
    if high is not None and high < 0:
        return False
    if x._bounds is None and _symbolic(x):  # one end is enough here
        low = _lowest(x, -1)
        if low is not None and low >= 0:
            return True
    return splits > 0 and _by_cases(x, splits - 1)


def _by_cases(x: ix.Index, splits: int) -> bool:
    """A minimum or maximum is one of its operands: prove it for both, or for one where that is enough."""
    enough: list[ix.Index] = []
    for factor in dict.fromkeys(factor for _, product in x.terms for factor in product):
        parts = _split(polynomial.table_of(x), factor) if factor.kind in ("min", "max") else None
        if parts is None:
            continue
        step, rest = (ix.from_terms(part) for part in parts)
        cases = [step * operand + rest for operand in factor.children]
        if _sign(parts[0]) != (-1 if factor.kind == "min" else 1):
            return all(nonnegative(case, splits) for case in cases)
        enough = enough or cases
    return any(nonnegative(case, splits) for case in enough)


def _symbolic(x: ix.Index) -> bool:
    """May replacing variables by the ends of their ranges say more than interval arithmetic?"""
    if len(x.terms) + bool(x.constant) < 2:
        return False
    if any(len(product) > 1 for _, product in x.terms):
        return True
    return any(atom.kind == "size" or (isinstance(atom, ix.Var) and atom.size.terms) for atom in x.atoms)


def _lowest(x: ix.Index, sign: int) -> int | None:
    """A lower bound of ``x`` (sign -1), or of ``-x`` (sign 1)."""
    end = _extreme(polynomial.table_of(x), sign)
    if end is None:
        return None
    table: Table = {}
    for product, coef in end.items():
        polynomial.add(table, _shifted(product), -sign * coef)
    total = table.pop((), 0)
    for product, coef in table.items():
        least = _least_term(coef, product)
        if least is None:
            return None
        total += least
    return total


def _shifted(product: ix.Product) -> Table:
    """The product, multiplied out with each factor written as its lowest value and what it has above that."""
    parts: Table = {(): 1}
    for factor in product:
        low = factor.bounds()[0]
        more = {part + (factor,): coef for part, coef in parts.items()}
        if low:
            polynomial.add(more, parts, low)
        parts = more
    return parts


def _least_term(coef: int, product: ix.Product) -> int | None:
    """The least of ``coef`` times the product of what each factor has above its lowest value."""
    most: int | None = 1
    for factor in product:
        low, high = factor.bounds()
        if low is None and coef:
            return None
        most = None if most is None or high is None or low is None else most * (high - low)
    if coef >= 0:
        return 0
    return None if most is None else coef * most


def _extreme(table: Table, sign: int) -> Table | None:
    """An upper (sign 1) or lower (-1) bound without loop variables, remainders, minima and maxima."""
    while True:
        factor = _first_varying(table)
        if factor is None:
            return table
        parts = _split(table, factor)
        if parts is None:
            return None
        step, rest = parts
        end = _end(factor, sign * _sign(step))
        if end is None:
            return None
        polynomial.add(rest, polynomial.multiply(step, end))
        table = {product: coef for product, coef in rest.items() if coef}


def _first_varying(table: Table) -> ix.Factor | None:
    """A factor to replace, operations before atoms."""
    found = None
    for product in table:
        for factor in product:
            if factor.kind in VARYING and (factor.kind != "floordiv" or _has_var(factor)):
                if isinstance(factor, ix.Compound):
                    return factor
                found = factor
    return found


VARYING = {"var", "mod", "floordiv", "min", "max"}


def _has_var(x: ix.Index) -> bool:
    return any(atom.kind == "var" for atom in x.atoms)


def _split(table: Table, factor: ix.Factor) -> tuple[Table, Table] | None:
    """``step, rest`` of ``step * factor + rest``, the factor being in neither; None if it is squared."""
    step: Table = {}
    rest: Table = {}
    for product, coef in table.items():
        count = product.count(factor)
        if count > 1:
            return None
        if count:
            step[tuple([f for f in product if f is not factor])] = coef
        else:
            rest[product] = coef
    return step, rest


def _sign(table: Table) -> int:
    """1 if it is never negative, -1 if never positive, else 0."""
    if len(table) == 1 and () in table:
        return 1 if table[()] >= 0 else -1
    low, high = ix.from_terms(table).bounds()
    return 1 if low is not None and low >= 0 else -1 if high is not None and high <= 0 else 0


def _end(factor: Any, sign: int) -> Table | None:
    """The factor's highest (sign 1) or lowest (-1) value."""
    if not sign:
        return None
    if factor.kind in ("var", "mod"):
        most = factor.size if factor.kind == "var" else factor.b
        return polynomial.table_of(most - 1) if sign > 0 else {}
    if factor.kind == "floordiv" and not _has_var(factor.b):
        inner = _extreme(polynomial.table_of(factor.a), sign)
        if inner is not None:
            return polynomial.table_of(ix.from_terms(inner) // factor.b)
    numeric = factor.bounds()[sign > 0]
    return None if numeric is None else {(): numeric}


def fits(x: ix.Index, most: int) -> bool:
    """Is every value on the way to ``x`` known to be between ``-most`` and ``most``, whatever the order of sums?"""
    for node in ix.visit(x):
        total = abs(node.constant)
        for coef, product in node.terms:
            size = abs(coef)
            for factor in product:
                low, high = factor.bounds()
                if low is None or high is None:
                    return False
                size *= max(abs(low), abs(high), 1)
            total += size
        if total > most:
            return False
    return True


# --- least and greatest ---------------------------------------------------------------------------------------------


def extremum(cls: type[ix.Compound], items: list[ix.Index]) -> ix.Index:
    """The minimum or maximum (``cls``) of the items, without those that another one is proven to beat."""
    if not items:
        raise ValueError(f"{cls.kind} of nothing")
    flat: list[ix.Index] = []
    while items:
        item = items.pop()
        if isinstance(item, cls):
            items += (item.a, item.b)
        elif item not in flat:
            flat.append(item)
    flat.sort(key=lambda item: item.order)
    sign = 1 if cls.kind == "max" else -1
    kept: list[ix.Index] = []
    for place, item in enumerate(flat):
        others = kept + flat[place + 1 :]
        if not any(nonnegative((other - item) * sign) for other in others):
            kept.append(item)
    result = kept[0]
    for item in kept[1:]:
        result = ix.compound(cls, result, item)
    return result


# --- what is proven -------------------------------------------------------------------------------------------------


def is_zero(x: ix.Index | int) -> bool:
    """Is it proven to be 0?"""
    return ix.index(x).bounds() == (0, 0)


def equal(a: ix.Index | int, b: ix.Index | int) -> bool:
    """Are they proven to be equal?"""
    return a is b or is_zero(ix.index(a) - b)


def less(a: ix.Index | int, b: ix.Index | int) -> bool:
    """Is ``a < b`` proven for all values in the atoms' ranges?"""
    return nonnegative(ix.index(b) - a - 1)


def at_most(a: ix.Index | int, b: ix.Index | int) -> bool:
    """Is ``a <= b`` proven for all values in the atoms' ranges?"""
    return nonnegative(ix.index(b) - a)


def stays_int32(x: ix.Index) -> bool:
    """Does no part of it leave 32 bits, if no atom does? For those who see to it that larger atoms are 64 bits."""
    if isinstance(x, ix.Atom):
        return True
    return furthest(x, 2**31) < 2**31 and all(map(stays_int32, x.children))


def fits_int32(x: ix.Index) -> bool:
    """Is every intermediate value, in whatever order the sums are done, known to fit into 32 bits?"""
    return fits(x, 2**31 - 1)
