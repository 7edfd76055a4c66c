"""Division of index expressions: quotient and remainder are found together, so that they fit each other again.

``RULES`` is tried in order; the first that knows an answer ends it. A quotient and a remainder that meet in a sum
become the number that was divided (``recombined``). That is how views of views of contiguous data collapse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd, prod

from jitney_lowering.index import expr as ix
from jitney_lowering.index import polynomial, ranges
from jitney_lowering.index.polynomial import Table

Divided = tuple[ix.Index, ix.Index]


def divide(x: ix.Index, by: ix.Index) -> Divided:
    """``(x // by, x % by)``; raises ``ValueError`` for a divisor that is never positive."""
    if not by.terms:
        if by.constant < 1:
            raise ValueError(f"division of {x} by {by}: divisors are positive")
        if by.constant == 1:
            return x, ix.index(0)
    key = by if by.terms else by.constant
    if x._divided is None:
        x._divided = {}
    found = x._divided.get(key)
    if found is None:
        if by.terms:
            high = by.bounds()[1]
            if high is not None and high < 1:
                raise ValueError(f"division of {x} by {by}: divisors are positive")
        for rule in RULES:
            found = rule(x, by)
            if found is not None:
                break
        else:
            found = ix.compound(ix.FloorDiv, x, by), ix.compound(ix.Mod, x, by)
        x._divided[key] = found
    return found


def _in_one_block(x: ix.Index, by: ix.Index) -> Divided | None:
    """The quotient has one value only."""
    if by.terms:
        if ranges.nonnegative(x):
            return (ix.index(0), x) if ranges.nonnegative(by - x - 1) else None
        if ranges.nonnegative(-1 - x) and ranges.nonnegative(x + by):
            return ix.index(-1), x + by
        return None
    low, high = x.bounds()
    if low is None or high is None or low // by.constant != high // by.constant:
        return None
    whole = low // by.constant
    return ix.index(whole), x - whole * by.constant


def _whole_terms(x: ix.Index, by: ix.Index) -> Divided | None:
    """``(by*a + r) // by`` is ``a + r // by``, for each term; what is left of a coefficient keeps its sign."""
    if len(by.terms) + bool(by.constant) > 1:
        return _whole_polynomial(x, by)
    unit, product = by.terms[0] if by.terms else (by.constant, ())
    whole: Table = {}
    for coef, factors in x.terms:
        times = coef // unit if coef * unit > 0 else -(-coef // unit)
        left = without(factors, product) if times else None
        if left is not None:
            whole[left] = times
    if not by.terms and x.constant // unit:
        whole[()] = x.constant // unit
    if not whole:
        return None
    outside = ix.from_terms(whole)
    quotient, remainder = divide(x - outside * by, by)
    return outside + quotient, remainder


def _whole_polynomial(x: ix.Index, by: ix.Index) -> Divided | None:
    """A divisor of several terms, such as ``S + 1``: worth it if fewer terms are left."""
    unit, product = _lead(by)[0].terms[0]
    whole: Table = {}
    for coef, factors in x.terms:
        left = without(factors, product)
        if left is not None and coef % unit == 0:
            whole[left] = coef // unit
    outside = ix.from_terms(whole)
    rest = x - outside * by
    if len(rest.terms) >= len(x.terms):
        return None
    quotient, remainder = divide(rest, by)
    return outside + quotient, remainder


def _common_part(x: ix.Index, by: ix.Index) -> Divided | None:
    """``(g*y + r) // (g*k)`` is ``y // k`` where ``0 <= r < g``; the remainder is ``g * (y % k) + r``."""
    for unit, product in _divisors(x, by):
        part: Table = {}
        rest: Table = {}
        for coef, factors in x.terms:
            left = without(factors, product) if coef % unit == 0 else None
            if left is None:
                rest[factors] = coef
            else:
                part[left] = coef // unit
        if product:
            rest[()] = x.constant
        else:
            part[()], rest[()] = divmod(x.constant, unit)
        size = ix.from_terms({product: unit})
        over = _in_one_block(ix.from_terms(rest), size) if not product or ranges.nonnegative(size) else None
        if over is not None:
            smaller = {without(f, product) or (): c // unit for c, f in by.terms}
            count = ix.from_terms(smaller, by.constant // unit)
            quotient, remainder = divide(ix.from_terms(part) + over[0], count)
            return quotient, remainder * size + over[1]
    return None


def _divisors(x: ix.Index, by: ix.Index) -> list[tuple[int, ix.Product]]:
    """What the divisor has in common with single terms, the largest first; neither 1 nor all of it."""
    if len(by.terms) + bool(by.constant) > 1:
        unit = gcd(by.constant, *(coef for coef, _ in by.terms))
        product: ix.Product = ()
    else:
        unit, product = by.terms[0] if by.terms else (by.constant, ())
    if unit < 0:
        return []
    found = {(gcd(coef, unit), common(factors, product)) for coef, factors in x.terms}
    found -= {(1, ()), (by.constant, ())} | {(coef, factors) for coef, factors in by.terms}
    return sorted(found, key=lambda one: (-len(one[1]), -one[0], [factor.order for factor in one[1]]))


def _nested(x: ix.Index, by: ix.Index) -> Divided | None:
    """Quotients and remainders inside the number that is divided."""
    if isinstance(x, ix.Mod):
        times = exact(x.b, by)
        if times is not None:
            inside, remainder = divide(x.a, by)
            return inside % times, remainder
    quotient = _quotient_of_quotient(x, by)
    if quotient is not None and quotient.value is not None:
        return quotient, x - by * quotient
    rest = _remainder_of_remainder(x, by)
    if quotient is None and rest is None:
        return None
    return (
        ix.compound(ix.FloorDiv, x, by) if quotient is None else quotient,
        ix.compound(ix.Mod, x, by) if rest is None else rest,
    )


def _quotient_of_quotient(x: ix.Index, by: ix.Index) -> ix.Index | None:
    """``(y + a // b) // by`` is ``(b*y + a) // (b*by)``; worth it if ``y`` is of atoms only."""
    compounds = [(coef, product) for coef, product in x.terms if any(isinstance(f, ix.Compound) for f in product)]
    if len(compounds) == 1 and compounds[0][0] == len(compounds[0][1]) == 1:
        inner = compounds[0][1][0]
        if isinstance(inner, ix.FloorDiv):
            return divide((x - inner) * inner.b + inner.a, by * inner.b)[0]
    return None


def _remainder_of_remainder(x: ix.Index, by: ix.Index) -> ix.Index | None:
    """``(c * (a % b) + d) % by`` is ``(c * a + d) % by`` where ``by`` divides ``c * b``.

    With more terms than that one, the remainder would not be seen to fit its quotient.
    """
    if len(x.terms) == 1:
        coef, product = x.terms[0]
        if len(product) == 1 and isinstance(product[0], ix.Mod) and exact(product[0].b * coef, by) is not None:
            return divide(product[0].a * coef + x.constant, by)[1]
    return None


RULES: tuple[Callable[[ix.Index, ix.Index], Divided | None], ...] = (
    _in_one_block,
    _whole_terms,
    _common_part,
    _nested,
)


# --- products -------------------------------------------------------------------------------------------------------


def without(product: ix.Product, part: ix.Product) -> ix.Product | None:
    """The product divided by another, None if it is not a multiple."""
    left = list(product)
    for factor in part:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def common(a: ix.Product, b: ix.Product) -> ix.Product:
    """The factors that are in both, as often as in both."""
    left, found = list(a), []
    for factor in b:
        if factor in left:
            left.remove(factor)
            found.append(factor)
    return tuple(found)


def exact(x: ix.Index, by: ix.Index) -> ix.Index | None:
    """``x / by`` if ``by`` has one term and divides every term of ``x``; else None."""
    if len(by.terms) + bool(by.constant) != 1:
        return ix.index(1) if x is by else None
    unit, product = by.terms[0] if by.terms else (by.constant, ())
    table: Table = {}
    for factors, coef in polynomial.table_of(x).items():
        left = without(factors, product)
        if coef % unit or left is None:
            return None
        table[left] = coef // unit
    return ix.from_terms(table)


# --- sums of quotients and remainders -------------------------------------------------------------------------------

Pairs = Iterator[tuple[Table, tuple[ix.Index, ...]]]


def recombined(terms: list[ix.Term], constant: int) -> ix.Index | None:
    """The sum with a quotient and its remainder made one again; None if there is no such pair.

    ``c*b*(a // b) + c*(a % b)`` is ``c*a``; ``c*a - c*b*(a // b)`` is ``c*(a % b)`` and the reverse;
    ``c*b*((a // b) % m) + c*(a % b)`` is ``c*(a % (b*m))``.
    """
    table = {product: coef for coef, product in terms}
    for coef, product in terms:
        for factor in dict.fromkeys(product):
            if not isinstance(factor, (ix.FloorDiv, ix.Mod)):
                continue
            left = without(product, (factor,)) or ()
            times = ix.from_terms({left: coef})
            pairs = _with_quotient if isinstance(factor, ix.Mod) else _with_remainder
            for beside, instead in pairs(factor, times, table):
                number = beside.pop((), 0)
                if beside and all(table.get(p) == c and p != product for p, c in beside.items()):
                    rest = {p: c for p, c in table.items() if p != product and p not in beside}
                    return ix.from_terms(rest, constant - number) + prod(instead, start=ix.index(1))
    return None


def _with_quotient(mod: ix.Mod | ix.FloorDiv, times: ix.Index, table: Table) -> Pairs:
    """What must be in the sum beside ``times * mod``, and the factors of what they make together."""
    quotient = divide(mod.a, mod.b)[0]
    yield _product(times, mod.b, quotient), (times, mod.a)
    yield _product(-times, mod.a), (-times, mod.b, quotient)
    others = {f for product in table for f in product if isinstance(f, ix.Mod) and f is not mod}
    for other in sorted(others, key=lambda f: f.order):
        apart = other.a - quotient  # ((a // b) + d) % m is ((a + d*b) // b) % m
        if divide(quotient, other.b)[1] is other:
            apart = ix.index(0)
        if not any(isinstance(f, ix.Compound) for _, product in apart.terms for f in product):
            yield _product(times, mod.b, other), (times, (mod.a + apart * mod.b) % (mod.b * other.b))


def _with_remainder(div: ix.Mod | ix.FloorDiv, times: ix.Index, table: Table) -> Pairs:
    """What must be in the sum beside ``times * div``, and the factors of what they make together."""
    lead, others = _lead(div.b)
    share = exact(times, lead)
    if share is None:
        return
    remainder = divide(div.a, div.b)[1]
    beside = _product(share, others, div)
    yield _sum(beside, _product(share, remainder)), (share, div.a)
    yield _sum(beside, _product(-share, div.a)), (-share, remainder)


def _lead(by: ix.Index) -> tuple[ix.Index, ix.Index]:
    """The term with most factors, and the other terms."""
    if len(by.terms) + bool(by.constant) == 1:
        return by, ix.index(0)
    coef, product = max(by.terms, key=lambda term: len(term[1]))
    lead = ix.from_terms({product: coef})
    return lead, by - lead


def _product(*parts: ix.Index) -> Table:
    table: Table = {(): 1}
    for part in parts:
        table = polynomial.multiply(table, polynomial.table_of(part))
    return {p: c for p, c in table.items() if c}


def _sum(a: Table, b: Table) -> Table:
    table = dict(a)
    polynomial.add(table, b)
    return {p: c for p, c in table.items() if c}
