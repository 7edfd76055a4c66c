"""Which keys a query can see, as far as a score says so by comparing positions: what is beyond is not computed, and
where all keys of a block are seen by all of its queries nothing is compared.

Products of what cannot be seen count as finite, as in torch's own fused attention.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from jitney_lowering.attention import PRODUCTS
from jitney_lowering.index import Index, Var
from jitney_lowering.ir import Apply, Constant, Load, Position, Value, apply, walk

# A comparison -> its operands' order and what is added, such that it says ``first - second + added <= 0``.
_COMPARED = {"le": (0, 1, 0), "lt": (0, 1, 1), "ge": (1, 0, 0), "gt": (1, 0, 1)}
_OPPOSITE = {"le": "gt", "gt": "le", "lt": "ge", "ge": "lt"}
MODERATE = 1e4
_TAME = {"add", "sub", "mul", "neg", "tanh", "cast"}
LOW = -1e9  # what people hide keys with: no product comes near
WIDE = (torch.int64, torch.int32)
FAR = 1 << 24  # sums of few such numbers stay in 32 bits
Sum = dict[Var | None, int]


@dataclass(frozen=True)
class Bound:
    """``row * y + column * x + constant <= 0`` wherever query ``y`` sees key ``x``; both factors are -1, 0 or 1."""

    row: int
    column: int
    constant: int


@dataclass(frozen=True)
class Mask:
    """A condition of a score without which a query does not see a key.

    Args:
        condition: the value.
        wanted: what it is where the key is seen.
        bounds: what holds there.
        exact: does it follow from these?
        finite: is what hides the key a number, if one so low that its weight is 0 beside any that is seen?
    """

    condition: Value
    wanted: bool
    bounds: tuple[Bound, ...]
    exact: bool
    finite: bool


def masks(scored: Value, row: Var, column: Var) -> list[Mask]:
    """The masks of what the softmax is taken of.

    Args:
        scored: what is minus infinity, or as good as that, where a key is not seen.
        row, column: the variables of query and key.
    """
    sizes = row.size.value or 0, column.size.value or 0
    found = _masks(scored, row, column, finite=True)
    told = all(mask.exact for mask in found)  # else some query may see nothing but what is hidden
    if any(mask.finite for mask in found) and told and _is_tame(without(scored, found)) and _all_see(found, *sizes):
        return found
    found = _masks(scored, row, column, finite=False)
    # Where a query sees nothing, all gradients of values are nan.
    return found if _all_see([mask for mask in found if mask.exact], *sizes) else []


def _is_tame(value: Value) -> bool:
    """Is it made of products, positions and moderate numbers, so that it is far from all that hides?"""
    for v in walk(value):
        if isinstance(v, Constant):
            if not abs(v.value) <= MODERATE:
                return False
        elif isinstance(v, Load):
            if v.buffer != PRODUCTS:
                return False
        elif not isinstance(v, Position) and not (isinstance(v, Apply) and v.op in _TAME):
            return False
    return True


def _all_see(found: list[Mask], rows: int, columns: int) -> bool:
    """Does every query see a key?"""
    bounds = [bound for mask in found for bound in mask.bounds]
    for y in range(rows):
        least, most = 0, columns - 1
        for bound in bounds:
            rest = bound.row * y + bound.constant
            if bound.column == 0 and rest > 0:
                return False
            least = max(least, rest) if bound.column == -1 else least
            most = min(most, -rest) if bound.column == 1 else most
        if least > most:
            return False
    return True


def _masks(scored: Value, row: Var, column: Var, *, finite: bool) -> list[Mask]:
    """With those of finite numbers, or without these and all below them, which they overrule."""
    if not isinstance(scored, Apply):
        return []
    if scored.op in ("cast", "add"):
        return [mask for a in scored.args for mask in _masks(a, row, column, finite=finite)]
    if scored.op != "where":
        return []
    condition, yes, no = scored.args
    if not _hides(yes) and not _hides(no):
        return []
    wanted = _hides(no)
    sums, exact = _holds(condition, wanted)
    found = [_bound(each, row, column) for each in sums]
    bounds = tuple(b for b in found if b is not None)
    hidden = no if wanted else yes
    is_finite = isinstance(hidden, Constant) and hidden.value != -math.inf
    if is_finite and not finite:
        return []
    mine = Mask(condition, wanted, bounds, exact and None not in found, is_finite)
    return [mine, *_masks(yes if wanted else no, row, column, finite=finite)]


def without(value: Value, known: Iterable[Mask]) -> Value:
    """The value where these masks hide nothing."""
    wanted = {mask.condition: mask.wanted for mask in known}
    made: dict[Value, Value] = {}
    for v in walk(value):
        if isinstance(v, Apply) and v.op == "where" and v.args[0] in wanted:
            made[v] = made[v.args[1 if wanted[v.args[0]] else 2]]
        elif isinstance(v, Apply) and any(made[a] is not a for a in v.args):
            made[v] = apply(v.op, *(made[a] for a in v.args), dtype=v.dtype)
        else:
            made[v] = v
    return made[value]


def _hides(value: Value) -> bool:
    return isinstance(value, Constant) and value.value <= LOW


def _holds(condition: Value, wanted: bool) -> tuple[list[Sum], bool]:
    """Sums that are not above 0 if the condition is as wanted. Is it as wanted wherever none is above 0?"""
    if not isinstance(condition, Apply):
        return [], False
    op, args = condition.op, condition.args
    if op == "not":
        return _holds(args[0], not wanted)
    if op == "where" and all(isinstance(a, Constant) for a in args[1:]) and args[1].dtype is condition.dtype:
        yes, no = (bool(a.value) for a in args[1:] if isinstance(a, Constant))
        return _holds(args[0], wanted is yes) if yes is not no else ([], False)
    if op == ("and" if wanted else "or"):
        parts = [_holds(a, wanted) for a in args]
        return [each for sums, _ in parts for each in sums], all(exact for _, exact in parts)
    if op not in _COMPARED or args[0].dtype not in WIDE:
        return [], False
    first, second, added = _COMPARED[op if wanted else _OPPOSITE[op]]
    right = _linear(args[second])
    found: list[Sum] = []
    for left in _ends(args[first]):
        if left is None or right is None:
            return [], False
        total = {var: left.get(var, 0) - right.get(var, 0) for var in {*left, *right, None}}
        total[None] += added
        found.append(total)
    return found, True


def _ends(value: Value) -> list[Sum | None]:
    """Sums of which it is the largest."""
    if isinstance(value, Apply) and value.op == "abs" and value.dtype in WIDE:
        inner = _linear(value.args[0])
        return [None] if inner is None else [inner, {var: -factor for var, factor in inner.items()}]
    return [_linear(value)]


def _linear(value: Value) -> Sum | None:
    """An integer as a sum of variables; None if it is something else, or might leave its type."""
    if value.dtype not in WIDE:
        return None
    if isinstance(value, Constant):
        return {None: int(value.value)} if abs(value.value) < FAR else None
    if isinstance(value, Position):
        return _terms(value.index)
    if isinstance(value, Apply) and value.op in ("add", "sub"):
        left, right = map(_linear, value.args)
        sign = 1 if value.op == "add" else -1
        if left is None or right is None:
            return None
        return {var: left.get(var, 0) + sign * right.get(var, 0) for var in {*left, *right}}
    if isinstance(value, Apply) and value.op == "cast" and value.args[0].dtype in WIDE:
        return _linear(value.args[0])
    return None


def _terms(place: Index) -> Sum | None:
    low, high = place.bounds()
    if low is None or high is None or max(-low, high) >= FAR:
        return None
    found: Sum = {None: place.constant}
    for factor, atoms in place.terms:
        if len(atoms) != 1 or not isinstance(atoms[0], Var):
            return None
        found[atoms[0]] = factor
    return found


def _bound(terms: Sum, row: Var, column: Var) -> Bound | None:
    factors = {var: n for var, n in terms.items() if n and var is not None}
    if not factors.keys() <= {row, column} or any(abs(n) != 1 for n in factors.values()) or not factors:
        return None
    return Bound(factors.get(row, 0), factors.get(column, 0), terms.get(None, 0))


@dataclass(frozen=True)
class Span:
    """Names, in a kernel's text, of where ranges of what it goes through begin and end, by ``lines``.

    Args:
        lines: what computes them.
        ranges: begin, end, and is all of the range there, with nothing hidden by the masks that are known?
        known: these.
    """

    lines: tuple[str, ...]
    ranges: tuple[tuple[str, str, bool], ...]
    known: tuple[Mask, ...]


def span(found: Sequence[Mask], first: str, last: str, count: int, block: tuple[str, int], *, columns: bool) -> Span:
    """What a program goes through, block by block.

    Args:
        found: the score's masks.
        first, last: names of the first and the last of its queries (or keys).
        count: of the keys (or queries) that there are.
        block: the name of how many of these it looks at together, and that number.
        columns: does it go through keys?
    """
    symbol, size = block
    bounds = [_turned(b, columns) for mask in found for b in mask.bounds]
    known = tuple(m for m in found if m.exact and all(_turned(b, columns)[0] for b in m.bounds))
    exact = [_turned(b, columns) for mask in known for b in mask.bounds]
    ends = [f"{_most(other, first, last)} + {1 - c}" for own, other, c in bounds if own == 1]
    begins = [f"{_least(other, first, last)} + {c}" for own, other, c in bounds if own == -1]
    full_ends = [f"{_most(other, last, first)} + {1 - c}" for own, other, c in exact if own == 1]
    full_begins = [f"{_least(other, last, first)} + {c}" for own, other, c in exact if own == -1]
    lines = [
        f"begin = {_all('maximum', '0', begins)} // {symbol} * {symbol}",
        f"end = {_all('minimum', str(count), ends)}",
    ]
    if count % size == 0 and not known:
        return Span(tuple(lines), (("begin", "end", True),), ())
    lines.append(f"full_end = {_all('minimum', str(count), full_ends)} // {symbol} * {symbol}")
    if not full_begins:
        lines.append("full_end = tl.maximum(full_end, begin)")
        return Span(tuple(lines), (("begin", "full_end", True), ("full_end", "end", False)), known)
    lines.append(f"full_begin = {_all('maximum', '0', full_begins)}")
    lines.append("full_begin = tl.minimum(tl.maximum(full_begin, begin), tl.maximum(end, begin))")
    lines.append(f"full_begin = (full_begin + {size - 1}) // {symbol} * {symbol}")
    lines.append("full_end = tl.maximum(full_end, full_begin)")
    ranges = (("begin", "full_begin", False), ("full_begin", "full_end", True), ("full_end", "end", False))
    return Span(tuple(lines), ranges, known)


def _turned(bound: Bound, columns: bool) -> tuple[int, int, int]:
    """The factor of what a program goes through, the other one, and the constant."""
    own, other = (bound.column, bound.row) if columns else (bound.row, bound.column)
    return own, other, bound.constant


def _most(other: int, first: str, last: str) -> str:
    """The largest ``-other * o`` for ``o`` from first to last."""
    return {0: "0", 1: f"-{first}", -1: last}[other]


def _least(other: int, first: str, last: str) -> str:
    """The least ``other * o``."""
    return {0: "0", 1: first, -1: f"-{last}"}[other]


def _all(function: str, start: str, others: Iterable[str]) -> str:
    shown = start
    for other in others:
        shown = f"tl.{function}({shown}, {other})"
    return shown
