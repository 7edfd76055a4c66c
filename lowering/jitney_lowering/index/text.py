"""Index expressions as text: short for people, with every parenthesis for emitters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jitney_lowering.index import expr as ix


def text(x: ix.Index) -> str:
    """Python's own notation with few parentheses: ``(i0*3 + i1)//7 % 5``."""
    if not isinstance(x, ix.Sum):
        return _factor(x)
    parts = [_term(coef, product) for coef, product in x.terms]
    if x.constant or not parts:
        parts.append(str(x.constant))
    return " + ".join(parts).replace("+ -", "- ")


def _term(coef: int, product: ix.Product) -> str:
    lone = len(product) == 1 and coef == 1
    shown = "*".join(
        _factor(f) if lone or isinstance(f, (ix.Atom, ix.Min, ix.Max)) else f"({_factor(f)})" for f in product
    )
    return {1: shown, -1: f"-{shown}"}.get(coef, f"{shown}*{coef}" if coef > 0 else f"-{shown}*{-coef}")


def _factor(x: Any) -> str:
    if isinstance(x, ix.Atom):
        return x.name
    if x.kind in ("min", "max"):
        return f"{x.kind}({text(x.a)}, {text(x.b)})"
    first = text(x.a)
    if not isinstance(x.a, (ix.Atom, ix.FloorDiv, ix.Min, ix.Max)) and not first.isdecimal():
        first = f"({first})"
    second = text(x.b) if isinstance(x.b, ix.Atom) or x.b.value is not None else f"({text(x.b)})"
    return f"{first}//{second}" if x.kind == "floordiv" else f"{first} % {second}"


def render(x: ix.Index, spell: Callable[[ix.Atom], str]) -> str:
    """Text with explicit parentheses; see ``index.render``."""
    if isinstance(x, ix.Atom):
        return spell(x)
    if isinstance(x, ix.Compound):
        return f"{x.kind}({render(x.a, spell)}, {render(x.b, spell)})"
    shown = ""
    for coef, product in sorted(x.terms, key=lambda term: term[0] < 0):
        part = render(product[0], spell)
        for factor in product[1:]:
            part = f"({part} * {render(factor, spell)})"
        minus = coef < 0 and bool(shown)
        if (abs(coef) if minus else coef) != 1:
            part = f"({part} * {abs(coef) if minus else coef})"
        shown = f"({shown} {'-' if minus else '+'} {part})" if shown else part
    if not shown:
        return str(x.constant)
    if x.constant:
        shown = f"({shown} {'-' if x.constant < 0 else '+'} {abs(x.constant)})"
    return shown
