"""Where a program of attention looks: not at blocks in which nothing is seen, and where all keys of a block are seen by
all of its queries nothing is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jitney_lowering.attention import Bound, Mask
from jitney_lowering.ir import Value


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


def span(
    found: Sequence[Mask],
    mine: tuple[str, str],
    count: int,
    block: tuple[str, int],
    *,
    columns: bool,
    keys: int = 0,
    name: Callable[[Value], str] = str,
) -> Span:
    """What a program goes through, block by block.

    Args:
        found: the score's masks.
        mine: names of the first and the last of its queries (or keys).
        count: of the keys (or queries) that there are.
        block: the name of how many of these it looks at together, and that number.
        columns: does it go through keys?
        keys: how many there are.
        name: the text of a number of the matrix.
    """
    first, last = mine
    symbol, size = block
    bounds = [_Turned.of(b, columns, name) for mask in found for b in mask.bounds]
    known = tuple(m for m in found if m.exact and all(_Turned.of(b, columns, name).own for b in m.bounds))
    exact = [_Turned.of(b, columns, name) for mask in known for b in mask.bounds]
    ends = [b.end(first, last) for b in bounds if b.own == 1]
    begins = [b.begin(first, last) for b in bounds if b.own == -1]
    full_ends = [b.end(last, first) for b in exact if b.own == 1]
    full_begins = [b.begin(last, first) for b in exact if b.own == -1]
    lines = [
        f"begin = {_all('maximum', '0', begins)} // {symbol} * {symbol}",
        f"end = {_all('minimum', str(count), ends)}",
    ]
    others = [b for b in bounds if b.own == 0]  # of keys alone, for a program that has some
    hidden = [f"({first} > {b.other_end()})" if b.other == 1 else f"({last} < {b.other_begin()})" for b in others]
    if hidden:
        lines.append(f"end = tl.where({' | '.join(hidden)}, begin, end)")
    told = _some_seen(found, keys, name)
    if told:
        lines += [f"told = {told}", "begin = tl.where(told, begin, 0)", f"end = tl.where(told, end, {count})"]
    if count % size == 0 and not known:
        return Span(tuple(lines), (("begin", "end", True),), ())
    lines.append(f"full_end = {_all('minimum', str(count), full_ends)} // {symbol} * {symbol}")
    if hidden:
        lines.append("full_end = tl.minimum(full_end, end)")
    if told:
        lines.append("full_end = tl.where(told, full_end, 0)")
    if not full_begins:
        lines.append("full_end = tl.maximum(full_end, begin)")
        return Span(tuple(lines), (("begin", "full_end", True), ("full_end", "end", False)), known)
    lines.append(f"full_begin = {_all('maximum', '0', full_begins)}")
    lines.append("full_begin = tl.minimum(tl.maximum(full_begin, begin), tl.maximum(end, begin))")
    lines.append(f"full_begin = (full_begin + {size - 1}) // {symbol} * {symbol}")
    lines.append("full_end = tl.maximum(full_end, full_begin)")
    ranges = (("begin", "full_begin", False), ("full_begin", "full_end", True), ("full_end", "end", False))
    return Span(tuple(lines), ranges, known)


def _some_seen(found: Sequence[Mask], keys: int, name: Callable[[Value], str]) -> str:
    """The text of whether bounds of keys alone leave one; empty where they are known."""
    bounds = [_Turned.of(b, True, name) for mask in found for b in mask.bounds if not b.row]
    if not any(b.number is not None for mask in found for b in mask.bounds):
        return ""
    begin = _all("maximum", "0", (b.begin("", "") for b in bounds if b.own == -1))
    return f"{begin} < {_all('minimum', str(keys), (b.end('', '') for b in bounds if b.own == 1))}"


@dataclass(frozen=True)
class _Turned:
    """A bound for a program: ``own`` is the factor of what it goes through, ``other`` that of what it has."""

    own: int
    other: int
    constant: str
    negated: str

    @staticmethod
    def of(bound: Bound, columns: bool, name: Callable[[Value], str]) -> _Turned:
        own, other = (bound.column, bound.row) if columns else (bound.row, bound.column)
        constant, negated = str(bound.constant), str(-bound.constant)
        if bound.number is not None:
            number = name(bound.number)
            plus, minus = ("+", "-") if bound.factor == 1 else ("-", "+")
            constant, negated = f"({constant} {plus} {number})", f"({negated} {minus} {number})"
        return _Turned(own, other, constant, negated)

    def end(self, first: str, last: str) -> str:
        """One after the last that is seen, ``own`` being 1, from ``first`` to ``last``."""
        most = {0: "0", 1: f"-{first}", -1: last}[self.other]
        return f"{most} + {self.negated} + 1"

    def begin(self, first: str, last: str) -> str:
        """The first that is seen, ``own`` being -1, from ``first`` to ``last``."""
        least = {0: "0", 1: first, -1: f"-{last}"}[self.other]
        return f"{least} + {self.constant}"

    def other_end(self) -> str:
        """The last of what it has that is seen at all."""
        return self.negated

    def other_begin(self) -> str:
        """The first of these."""
        return self.constant


def _all(function: str, start: str, others: Iterable[str]) -> str:
    shown = start
    for other in others:
        shown = f"tl.{function}({shown}, {other})"
    return shown
