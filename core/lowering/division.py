"""Division of index expressions: quotient and remainder are found together, so that they fit each other again.

``RULES`` is tried in order; the first that knows an answer ends it. A quotient and a remainder that meet in a sum
become the number that was divided (``recombined``). That is how views of views of contiguous data collapse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd

from jitney.lowering import index as ix
from jitney.lowering import ranges

Divided = tuple["ix.Index", "ix.Index"]
Terms = list["ix.Term"]


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
    whole, most = ranges.quotient(x.bounds(), by.bounds())
    if whole is not None and whole == most:
        return ix.index(whole), x - by * whole if whole else x
    if by.terms and ranges.nonnegative(x) and ranges.nonnegative(by - x - 1):
        return ix.index(0), x
    return None


def _whole_terms(x: ix.Index, by: ix.Index) -> Divided | None:
    """``(by*a + r) // by`` is ``a + r // by``, for each term; what is left of a coefficient keeps its sign."""
    if len(by.terms) + bool(by.constant) > 1:
        return _whole_polynomial(x, by)
    unit, product = by.terms[0] if by.terms else (by.constant, ())
    whole: dict[ix.Product, int] = {}
    for coef, factors in x.terms:
        times = coef // unit if coef * unit > 0 else -(-coef // unit)
        left = without(factors, product) if times else None
        if left is not None:
            whole[left] = whole.get(left, 0) + times
    constant = whole.pop((), 0) if by.terms else x.constant // unit
    if not whole and not constant:
        return None
    outside = ix.from_terms(whole, constant)
    quotient, remainder = divide(x - outside * by, by)
    return outside + quotient, remainder


def _whole_polynomial(x: ix.Index, by: ix.Index) -> Divided | None:
    """A divisor of several terms, such as ``S + 1``: worth it if fewer terms are left."""
    lead, product = max(by.terms, key=lambda term: len(term[1]))
    whole: dict[ix.Product, int] = {}
    for coef, factors in x.terms:
        left = without(factors, product)
        if left is not None and coef % lead == 0:
            whole[left] = coef // lead
    outside = ix.from_terms(whole, whole.pop((), 0))
    rest = x - outside * by
    if len(rest.terms) >= len(x.terms):
        return None
    quotient, remainder = divide(rest, by)
    return outside + quotient, remainder


def _common_part(x: ix.Index, by: ix.Index) -> Divided | None:
    """``(g*y + r) // (g*k)`` is ``y // k`` where ``0 <= r < g``; the remainder is ``g * (y % k) + r``."""
    for unit, product in _divisors(x, by):
        part: dict[ix.Product, int] = {}
        rest: dict[ix.Product, int] = {}
        for coef, factors in x.terms:
            left = without(factors, product) if coef % unit == 0 else None
            if left is None:
                rest[factors] = coef
            else:
                part[left] = part.get(left, 0) + coef // unit
        constant = part.pop((), 0)
        offset = x.constant
        if not product:
            constant += offset // unit
            offset %= unit
        size = ix.from_terms({product: unit}, 0) if product else ix.index(unit)
        left_over = _in_one_block(ix.from_terms(rest, offset), size)
        if left_over is None:
            continue
        smaller: dict[ix.Product, int] = {without(f, product) or (): c // unit for c, f in by.terms}
        number = smaller.pop((), 0) + by.constant // unit
        quotient, remainder = divide(ix.from_terms(part, constant) + left_over[0], ix.from_terms(smaller, number))
        return quotient, remainder * size + left_over[1]
    return None


def _divisors(x: ix.Index, by: ix.Index) -> list[tuple[int, ix.Product]]:
    """What the divisor has in common with single terms, the largest first; neither 1 nor all of it."""
    if len(by.terms) + bool(by.constant) > 1:
        unit, product = gcd(by.constant, *(coef for coef, _ in by.terms)), ()
    else:
        unit, product = by.terms[0] if by.terms else (by.constant, ())
    found = {(gcd(coef, unit), common(factors, product)) for coef, factors in x.terms}
    found -= {(1, ()), (by.constant, ())} | {(coef, factors) for coef, factors in by.terms}
    return sorted(found, key=lambda one: (-len(one[1]), -one[0], [factor.order for factor in one[1]]))


def _nested(x: ix.Index, by: ix.Index) -> Divided | None:
    """Quotients and remainders inside the number that is divided."""
    if isinstance(x, ix.Mod):
        times = exact(x.b, by)
        if times is not None:
            quotient, remainder = divide(x.a, by)
            return quotient % times, remainder
    inner = [p[0] for c, p in x.terms if c == 1 and len(p) == 1 and isinstance(p[0], ix.FloorDiv)]
    quotient = divide((x - inner[0]) * inner[0].b + inner[0].a, by * inner[0].b)[0] if len(inner) == 1 else None
    remainder = _remainder_of_remainders(x, by)
    if quotient is None and remainder is None:
        return None
    return (
        ix.compound(ix.FloorDiv, x, by) if quotient is None else quotient,
        ix.compound(ix.Mod, x, by) if remainder is None else remainder,
    )


def _remainder_of_remainders(x: ix.Index, by: ix.Index) -> ix.Index | None:
    """``(y + c * (a % b)) % by`` is ``(y + c * a) % by`` where ``by`` divides ``c * b``."""
    more = ix.index(0)
    for coef, product in x.terms:
        if len(product) == 1 and isinstance(product[0], ix.Mod) and exact(product[0].b * coef, by) is not None:
            more = more + (product[0].a - product[0]) * coef
    return divide(x + more, by)[1] if more.terms else None


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
    table: dict[ix.Product, int] = {}
    for coef, factors in (*x.terms, (x.constant, ())):
        left = without(factors, product)
        if coef and (coef % unit or left is None):
            return None
        if coef and left is not None:
            table[left] = coef // unit
    return ix.from_terms(table, table.pop((), 0))


# --- sums of quotients and remainders -------------------------------------------------------------------------------


def recombined(terms: Terms, constant: int) -> ix.Index | None:
    """The sum with a quotient and its remainder made one again; None if there is no such pair.

    ``c*b*(a // b) + c*(a % b)`` is ``c*a``; ``c*a - c*b*(a // b)`` is ``c*(a % b)``;
    ``c*b*((a // b) % m) + c*(a % b)`` is ``c*(a % (b*m))``.
    """
    table = {product: coef for coef, product in terms}
    for coef, product in terms:
        for factor in dict.fromkeys(product):
            if not isinstance(factor, (ix.FloorDiv, ix.Mod)):
                continue
            left = without(product, (factor,)) or ()
            times = ix.from_terms({left: coef}, 0) if left else ix.index(coef)
            pairs = _with_quotient if isinstance(factor, ix.Mod) else _with_remainder
            for gone, instead in pairs(factor, times, table):
                if gone.terms and all(table.get(p) == c and p != product for c, p in gone.terms):
                    rest = {p: c for p, c in table.items() if p != product}
                    for _, p in gone.terms:
                        rest.pop(p, None)
                    return ix.from_terms(rest, constant - gone.constant) + instead
    return None


Pairs = Iterator[tuple["ix.Index", "ix.Index"]]


def _with_quotient(mod: ix.Mod | ix.FloorDiv, times: ix.Index, table: dict[ix.Product, int]) -> Pairs:
    """What must be in the sum beside ``times * mod``, and what they make together."""
    quotient = divide(mod.a, mod.b)[0]
    yield times * mod.b * quotient, times * mod.a
    for product in table:
        for other in product:
            if isinstance(other, ix.Mod) and other is not mod and divide(quotient, other.b)[1] is other:
                yield times * mod.b * other, times * (mod.a % (mod.b * other.b))


def _with_remainder(div: ix.Mod | ix.FloorDiv, times: ix.Index, table: dict[ix.Product, int]) -> Pairs:
    """What must be in the sum beside ``times * div``, and what they make together."""
    share = exact(times, div.b)
    if share is not None:
        remainder = divide(div.a, div.b)[1]
        yield share * remainder, share * div.a
        yield -share * div.a, -share * remainder
