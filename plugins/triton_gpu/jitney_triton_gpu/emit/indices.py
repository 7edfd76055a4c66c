"""Index expressions as Triton text. Triton's ``//`` and ``%`` of integers round towards zero, as C's do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from jitney_lowering.index import Atom, Compound, Index, Var, furthest, index
from jitney_lowering.ir.kernel import Kernel, Reduce
from jitney_lowering.ir.values import Load, walk

Spell = Callable[[Atom], str]


def text(x: Index, spell: Spell) -> str:
    """The expression with explicit parentheses; ``spell`` gives the text of an atom."""
    if isinstance(x, Atom):
        return spell(x)
    if isinstance(x, Compound):
        return _compound(x, spell)
    shown = ""
    for coef, product in sorted(x.terms, key=lambda term: term[0] < 0):
        part = " * ".join(text(factor, spell) for factor in product)
        minus = coef < 0 and bool(shown)
        factor = abs(coef) if minus else coef
        part = part if factor == 1 else f"{part} * {factor}"
        shown = f"{shown} {'-' if minus else '+'} {part}" if shown else part
    if not shown:
        return str(x.constant)
    if x.constant:
        shown += f" {'-' if x.constant < 0 else '+'} {abs(x.constant)}"
    return f"({shown})"


def _compound(x: Compound, spell: Spell) -> str:
    a, b = text(x.a, spell), text(x.b, spell)
    if x.kind in ("min", "max"):
        return f"tl.{x.kind}imum({a}, {b})"
    low = x.a.bounds()[0]
    if low is not None and low >= 0:
        return f"({a} {'//' if x.kind == 'floordiv' else '%'} {b})"
    return f"helpers.{x.kind}_int({a}, {b})"


def in_32_bits(x: Index) -> bool:
    """Does no part of it leave 32 bits, if no atom does? Larger sizes come as 64 bits, larger loops are counted so."""
    if isinstance(x, Atom):
        return True
    parts = (x.a, x.b) if isinstance(x, Compound) else [factor for _, product in x.terms for factor in product]
    return furthest(x, 2**31) < 2**31 and all(map(in_32_bits, parts))


def product(loops: Iterable[Var]) -> Index:
    """How many iterations these loops have together."""
    total = index(1)
    for var in loops:
        total = total * var.size
    return total


def places(kernel: Kernel) -> list[Index]:
    """Every place that the kernel reads or writes."""
    found = []
    for nest in (*kernel.body, *kernel.finish):
        for statement in nest.statements:
            if not isinstance(statement, Reduce):
                found.append(statement.index)
            found += [v.index for v in walk(statement.value) if isinstance(v, Load)]
    return found


def tells_apart(place: Index, loops: Sequence[Var]) -> bool:
    """Has each iteration of these loops a place of its own? Asked of places that number the loops, in any order."""
    for order in itertools.permutations(loops):
        number = index(0)
        for var in order:
            number = number * var.size + var
        rest = place - number
        if not any(var in rest.atoms for var in loops):
            return True
    return False


def fastest(accesses: Iterable[Index], loops: Iterable[Var]) -> Mapping[Var, int]:
    """How many of the accesses go through memory element by element along each loop."""
    counts = dict.fromkeys(loops, 0)
    for place in accesses:
        for var in counts:
            stride = place.stride(var)
            if stride is not None and stride.value == 1:
                counts[var] += 1
    return counts
