"""Index expressions as Triton text, and what kernels do there. Triton's ``//`` and ``%`` round to zero, as C's do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from jitney_lowering.index import Compound, Index, Spell, Var, render, usual_step
from jitney_lowering.ir import (
    OPERATIONS,
    Accumulate,
    Apply,
    Kernel,
    Load,
    Position,
    Reduce,
    Scan,
    Statement,
    Value,
    cost,
    walk,
)
from jitney_triton_gpu import tiles

FEWER = 8  # times as few elements as others are read from a cache
LOADED = 4  # what a load from a cache costs, as of ``OPERATIONS``


PLACED = (Load, Position)


def text(x: Index, spell: Spell) -> str:
    """The expression with explicit parentheses; ``spell`` gives the text of an atom."""
    return render(x, spell, _compound)


def _compound(x: Compound, a: str, b: str) -> str:
    if x.kind in ("min", "max"):
        return f"tl.{x.kind}imum({a}, {b})"
    low = x.a.bounds()[0]
    if low is not None and low >= 0:
        return f"({a} {'//' if x.kind == 'floordiv' else '%'} {b})"
    return f"helpers.{x.kind}_int({a}, {b})"


def places(kernel: Kernel) -> list[Index]:
    """Every place that the kernel reads or writes."""
    found = []
    for nest in (*kernel.body, *kernel.finish):
        for statement in nest.statements:
            if not isinstance(statement, (Reduce, Scan)):
                found.append(statement.index)
            found += [v.index for v in walk(statement.value) if isinstance(v, Load)]
    return found


def widest(accesses: Iterable[Index]) -> list[Index]:
    """The accesses to most elements: a vector that is read again for each row of a matrix stays in a cache."""
    found = [(math.prod(v.size.value or tiles.GUESS for v in p.atoms if isinstance(v, Var)), p) for p in accesses]
    most = max((count for count, _ in found), default=0)
    return [place for count, place in found if count * FEWER >= most]


def fastest(accesses: Iterable[Index], loops: Iterable[Var]) -> Mapping[Var, int]:
    """How many of the accesses go through memory element by element along each loop."""
    counts = dict.fromkeys(loops, 0)
    for place in accesses:
        for var in counts:
            if var in place.atoms and usual_step(place, var) == 1:
                counts[var] += 1
    return counts


def work(statements: Sequence[Statement]) -> int:
    """What an element costs, as of ``OPERATIONS``."""
    return cost(*(s.value for s in statements))


def registers(statements: Sequence[Statement]) -> int:
    """About how many an element takes: one for each sum, and one for every two loads."""
    loads = {v for s in statements for v in walk(s.value) if isinstance(v, Load)}
    return sum(isinstance(s, (Reduce, Accumulate)) for s in statements) + len(loads) // 2


def shared_by_rows(statements: Sequence[Statement], rows: Sequence[Var]) -> float:
    """Which part of the work on an element of a row is the same for all rows, as of ``OPERATIONS``; from 0 to 1.

    What a row has one of is no work on its elements. 0 where each element is loaded: memory takes the time then.
    """
    varies: dict[Value, frozenset[bool]] = {}  # does it differ with the rows, or within them?
    spent = {True: 0, False: 0}
    for v in walk(*(s.value for s in statements)):
        own = {atom in rows for atom in v.index.atoms if isinstance(atom, Var)} if isinstance(v, PLACED) else set()
        varies[v] = frozenset(own).union(*(varies[part] for part in v.parts))
        if isinstance(v, Load) and len(varies[v]) > 1:
            return 0.0
        if False in varies[v]:
            spent[True in varies[v]] += OPERATIONS[v.op].cost if isinstance(v, Apply) else LOADED * isinstance(v, Load)
    return spent[False] / max(spent[False] + spent[True], 1)
