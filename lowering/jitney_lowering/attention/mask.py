"""Which keys a query can see, as far as a score says so by comparing positions: what is beyond is not computed.

Products of what cannot be seen count as finite, as in torch's own fused attention.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from jitney_lowering.attention.tile import PRODUCTS
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
Sum = dict[Var | Value | None, int]


@dataclass(frozen=True)
class Bound:
    """``row * y + column * x + constant + factor * number <= 0`` wherever query ``y`` sees key ``x``.

    The factors are -1, 0 or 1; ``number`` is what only the running kernel knows: one for each matrix.
    """

    row: int
    column: int
    constant: int
    factor: int = 0
    number: Value | None = None


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


def masks(scored: Value, row: Var, column: Var, *, safe: bool = False) -> list[Mask]:
    """The masks of what the softmax is taken of.

    Args:
        scored: what is minus infinity, or as good as that, where a key is not seen.
        row, column: the variables of query and key.
        safe: are weights zeros where a query sees nothing? Else they are nan, as all gradients of values are.
    """
    sizes = row.size.value or 0, column.size.value or 0
    found = _masks(scored, row, column, finite=True)
    told = all(mask.exact for mask in found)  # else some query may see nothing but what is hidden
    if any(mask.finite for mask in found) and told and _is_tame(without(scored, found)) and _all_see(found, *sizes):
        return found
    found = _masks(scored, row, column, finite=False)
    return found if safe or _all_see([mask for mask in found if mask.exact], *sizes) else []


def _is_tame(value: Value) -> bool:
    """Is it made of products, positions and moderate numbers, so that it is far from all that hides?"""
    for v in walk(value):
        if isinstance(v, Constant):
            if not abs(v.value) <= MODERATE:
                return False
        elif isinstance(v, Load):
            if v.buffer != PRODUCTS:
                return False
        elif isinstance(v, Apply) and v.op == "div":
            divisor = v.args[1]
            if not isinstance(divisor, Constant) or not abs(divisor.value) >= 1 / MODERATE:
                return False
        elif not isinstance(v, Position) and not (isinstance(v, Apply) and v.op in _TAME):
            return False
    return True


def _all_see(found: list[Mask], rows: int, columns: int) -> bool:
    """Does every query see a key, if one is seen at all by bounds of keys alone?"""
    bounds = [bound for mask in found for bound in mask.bounds]
    if any(b.number is not None for b in bounds):
        # Either these are all that there is, or all queries see a beginning.
        if any(b.row for b in bounds) and any(b.column == -1 for b in bounds):
            return False
        bounds = [b for b in bounds if b.number is None]
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
    sums, exact = _holds(condition, wanted, frozenset((row, column)))
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


def _holds(condition: Value, wanted: bool, inner: frozenset[Var]) -> tuple[list[Sum], bool]:
    """Sums that are not above 0 if the condition is as wanted. Is it as wanted wherever none is above 0?

    ``inner``: the variables of query and key.
    """
    if not isinstance(condition, Apply):
        return [], False
    op, args = condition.op, condition.args
    if op == "not":
        return _holds(args[0], not wanted, inner)
    if op == "where" and all(isinstance(a, Constant) for a in args[1:]) and args[1].dtype is condition.dtype:
        yes, no = (bool(a.value) for a in args[1:] if isinstance(a, Constant))
        return _holds(args[0], wanted is yes, inner) if yes is not no else ([], False)
    if op == ("and" if wanted else "or"):
        parts = [_holds(a, wanted, inner) for a in args]
        return [each for sums, _ in parts for each in sums], all(exact for _, exact in parts)
    if op not in _COMPARED or args[0].dtype not in WIDE:
        return [], False
    first, second, added = _COMPARED[op if wanted else _OPPOSITE[op]]
    right = _linear(args[second], inner)
    found: list[Sum] = []
    for left in _ends(args[first], inner):
        if left is None or right is None:
            return [], False
        total: Sum = {var: left.get(var, 0) - right.get(var, 0) for var in {*left, *right, None}}
        total[None] += added
        found.append(total)
    return found, True


def _ends(value: Value, inner: frozenset[Var]) -> list[Sum | None]:
    """Sums of which it is the largest."""
    if isinstance(value, Apply) and value.op == "abs" and value.dtype in WIDE:
        found = _linear(value.args[0], inner)
        return [None] if found is None else [found, {var: -factor for var, factor in found.items()}]
    return [_linear(value, inner)]


def _linear(value: Value, inner: frozenset[Var]) -> Sum | None:
    """An integer as a sum of variables and a number of the matrix.

    None if it is something else, or might leave its type.
    """
    if value.dtype not in WIDE:
        return None
    if isinstance(value, Constant):
        return {None: int(value.value)} if abs(value.value) < FAR else None
    if isinstance(value, Position):
        return _terms(value.index)
    if not any(isinstance(v, (Load, Position)) and v.index.atoms & inner for v in walk(value)):
        return {None: 0, value: 1}
    if isinstance(value, Apply) and value.op in ("add", "sub"):
        left, right = (_linear(a, inner) for a in value.args)
        sign = 1 if value.op == "add" else -1
        if left is None or right is None:
            return None
        return {var: left.get(var, 0) + sign * right.get(var, 0) for var in {*left, *right}}
    if isinstance(value, Apply) and value.op == "cast" and value.args[0].dtype in WIDE:
        return _linear(value.args[0], inner)
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
    factors = {var: n for var, n in terms.items() if n and isinstance(var, Var)}
    numbers = [(n, value) for value, n in terms.items() if n and isinstance(value, Value)]
    if not factors.keys() <= {row, column} or any(abs(n) != 1 for n in factors.values()) or not factors:
        return None
    found = Bound(factors.get(row, 0), factors.get(column, 0), terms.get(None, 0))
    if not numbers:
        return found
    if len(numbers) > 1 or abs(numbers[0][0]) != 1 or found.row:
        return None
    return replace(found, factor=numbers[0][0], number=numbers[0][1])


def seen(found: Sequence[Mask], columns: int) -> Callable[[int, int], tuple[int, int]]:
    """From the first and the last of some queries to where the keys begin, and end, that any of them sees."""
    bounds = [bound for mask in found for bound in mask.bounds]
    if any(bound.number is not None for bound in bounds):  # only who knows the number knows whether all see a key
        bounds = []

    def ask(first: int, last: int) -> tuple[int, int]:
        begin, end = 0, columns
        for bound in bounds:
            least = min(bound.row * first, bound.row * last) + bound.constant
            begin = max(begin, least) if bound.column == -1 else begin
            end = min(end, 1 - least) if bound.column == 1 else end
        return begin, end

    return ask
