"""Which keys a query can see, as far as a score says so by comparing positions: what is beyond is not computed.

Products of what cannot be seen count as finite, as in torch's own fused attention.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from jitney_lowering.index import Index, Var
from jitney_lowering.ir import Apply, Constant, Position, Value
from jitney_lowering.ir.operations import INTEGERS

# A comparison -> its operands' order and what is added, such that it says ``first - second + added <= 0``.
_COMPARED = {"le": (0, 1, 0), "lt": (0, 1, 1), "ge": (1, 0, 0), "gt": (1, 0, 1)}
_OPPOSITE = {"le": "gt", "gt": "le", "lt": "ge", "ge": "lt"}


@dataclass(frozen=True)
class Bound:
    """``row * y + column * x + constant <= 0`` wherever query ``y`` sees key ``x``; both factors are -1, 0 or 1."""

    row: int
    column: int
    constant: int


def bounds(scored: Value, row: Var, column: Var) -> list[Bound]:
    """What holds of all that is not minus infinity.

    Args:
        scored: what the softmax is taken of.
        row, column: the variables of query and key.
    """
    found = [_bound(terms, row, column) for terms in _visible(scored, row, column)]
    return [b for b in found if b is not None]


def _visible(value: Value, row: Var, column: Var) -> list[dict[Var | None, int]]:
    if not isinstance(value, Apply):
        return []
    if value.op in ("cast", "add"):
        return [bound for a in value.args for bound in _visible(a, row, column)]
    if value.op != "where":
        return []
    condition, yes, no = value.args
    found = []
    if _hides(no):
        found += _holds(condition, True, row, column) + _visible(yes, row, column)
    elif _hides(yes):
        found += _holds(condition, False, row, column) + _visible(no, row, column)
    return found


def _hides(value: Value) -> bool:
    return isinstance(value, Constant) and value.value == -math.inf


def _holds(condition: Value, wanted: bool, row: Var, column: Var) -> list[dict[Var | None, int]]:
    """Sums that are not above 0 if the condition is as wanted."""
    if not isinstance(condition, Apply):
        return []
    op, args = condition.op, condition.args
    if op == "not":
        return _holds(args[0], not wanted, row, column)
    if op == "where" and all(isinstance(a, Constant) for a in args[1:]) and args[1].dtype is condition.dtype:
        yes, no = (bool(a.value) for a in args[1:] if isinstance(a, Constant))
        return _holds(args[0], wanted is yes, row, column) if yes is not no else []
    if op == ("and" if wanted else "or"):
        return [sum_ for a in args for sum_ in _holds(a, wanted, row, column)]
    if op not in _COMPARED or args[0].dtype not in INTEGERS:
        return []
    first, second, added = _COMPARED[op if wanted else _OPPOSITE[op]]
    right = _linear(args[second])
    found = []
    for left in _ends(args[first]):
        if left is None or right is None:
            return []
        total = {var: left.get(var, 0) - right.get(var, 0) for var in {*left, *right, None}}
        total[None] += added
        found.append(total)
    return found


def _ends(value: Value) -> list[dict[Var | None, int] | None]:
    """Sums of which it is the largest."""
    if isinstance(value, Apply) and value.op == "abs":
        inner = _linear(value.args[0])
        return [None] if inner is None else [inner, {var: -factor for var, factor in inner.items()}]
    return [_linear(value)]


def _linear(value: Value) -> dict[Var | None, int] | None:
    """An integer as a sum of variables; None if it is something else."""
    if isinstance(value, Constant):
        return {None: int(value.value)}
    if isinstance(value, Position):
        return _terms(value.index)
    if isinstance(value, Apply) and value.op in ("add", "sub"):
        left, right = map(_linear, value.args)
        sign = 1 if value.op == "add" else -1
        if left is None or right is None:
            return None
        return {var: left.get(var, 0) + sign * right.get(var, 0) for var in {*left, *right}}
    if isinstance(value, Apply) and value.op == "cast" and value.args[0].dtype in INTEGERS:
        return _linear(value.args[0])
    return None


def _terms(place: Index) -> dict[Var | None, int] | None:
    found: dict[Var | None, int] = {None: place.constant}
    for factor, atoms in place.terms:
        if len(atoms) != 1 or not isinstance(atoms[0], Var):
            return None
        found[atoms[0]] = factor
    return found


def _bound(terms: dict[Var | None, int], row: Var, column: Var) -> Bound | None:
    factors = {var: n for var, n in terms.items() if n and var is not None}
    if not factors.keys() <= {row, column} or any(abs(n) != 1 for n in factors.values()) or column not in factors:
        return None
    return Bound(factors.get(row, 0), factors[column], terms.get(None, 0))


def columns(found: list[Bound], first: str, last: str, count: int, block: str) -> tuple[str, str]:
    """From where and up to where, in text, the keys lie that the queries from ``first`` to ``last`` see.

    Args:
        found: what holds.
        first, last: names of the first and the last query.
        count: of keys.
        block: the name of how many keys are looked at together: the first is a multiple.
    """
    return _between(((b.column, b.row, b.constant) for b in found), first, last, count, block)


def rows(found: list[Bound], first: str, last: str, count: int, block: str) -> tuple[str, str]:
    """The same of the queries that see the keys from ``first`` to ``last``."""
    return _between(((b.row, b.column, b.constant) for b in found), first, last, count, block)


def _between(planes: object, first: str, last: str, count: int, block: str) -> tuple[str, str]:
    begin, end = "0", str(count)
    for own, other, constant in planes:  # type: ignore[attr-defined]
        if own == 1:  # own <= -other * o - constant
            most = {0: "0", 1: f"-{first}", -1: last}[other]
            end = f"tl.minimum({end}, {most} + {1 - constant})"
        elif own == -1:  # own >= other * o + constant
            least = {0: "0", 1: first, -1: f"-{last}"}[other]
            begin = f"tl.maximum({begin}, {least} + {constant})"
    return (begin if begin == "0" else f"{begin} // {block} * {block}"), end
