"""Index expressions as text for emitters, with every parenthesis. What people read is ``str(expression)``."""

from __future__ import annotations

from collections.abc import Callable

from jitney_lowering.index.expr import Atom, Compound, Index

Spell = Callable[[Atom], str]


def called(x: Compound, a: str, b: str) -> str:
    """An operation as a call: ``floordiv(a, b)``, ``mod``, ``min``, ``max``."""
    return f"{x.kind}({a}, {b})"


def render(x: Index, spell: Spell, compound: Callable[[Compound, str, str], str] = called) -> str:
    """Text with explicit parentheses and infix ``+ - *``.

    Args:
        x: the expression.
        spell: gives the text of an atom.
        compound: gives the text of an operation from those of its operands.
    """
    if isinstance(x, Atom):
        return spell(x)
    if isinstance(x, Compound):
        return compound(x, render(x.a, spell, compound), render(x.b, spell, compound))
    shown = ""
    for coef, product in sorted(x.terms, key=lambda term: term[0] < 0):
        part = render(product[0], spell, compound)
        for factor in product[1:]:
            part = f"({part} * {render(factor, spell, compound)})"
        minus = coef < 0 and bool(shown)
        if (abs(coef) if minus else coef) != 1:
            part = f"({part} * {abs(coef) if minus else coef})"
        shown = f"({shown} {'-' if minus else '+'} {part})" if shown else part
    if not shown:
        return str(x.constant)
    if x.constant:
        shown = f"({shown} {'-' if x.constant < 0 else '+'} {abs(x.constant)})"
    return shown
