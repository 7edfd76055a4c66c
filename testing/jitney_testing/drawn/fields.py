"""Programs that write to fields, drawn by Hypothesis: borders, points, running totals, scatters, steps and layouts.

Like ``graphs``, each line is tried on the arguments of each call when it is drawn. Calls differ in values, and in sizes
if the program is drawn so; arguments may be views of each other. A line's ``{own}`` and ``{at}`` are the same wherever
they stand in it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from torch.nn import functional as F

from jitney_testing.drawn.field_grammar import TABLES, THEMES
from jitney_testing.drawn.graphs import KINDS, PLACE
from jitney_testing.examples import example
from jitney_testing.program import Program

SHAPES = ("n, m", "n, n", "m", "n", "n, 1", "1, m", "m, n", "", "2, n, m", "n, m, 3")
DTYPES = ("float32", "float32", "float32", "float32", "float64", "bfloat16", "float16")
LAYOUTS = ("contiguous", "contiguous", "contiguous", "transposed", "gaps", "offset", "expanded")
VIEWS_OF_FIRST = ("x0", "x0.mT", "x0[..., 1:]", "x0[::2]", "x0.flip(0)", "x0.flatten()", "x0.diagonal()", "x0[:1]")
OWN = (*("float",) * 5, "number")
SIZES = (3, 7, 4, 8, 17, 33, 1, 5, 32, 2, 0, 100)
LARGEST = 1 << 16  # elements of a tensor
HIGHEST = 1e6  # magnitude of a number
WORDS: dict[str, tuple[str, ...]] = {
    "dim": ("0", "-1", "1", "-2"),
    "dims": ("(0,)", "(-1,)", "(0, 1)", "(0, -1)", "()"),
    "scalar": ("1.0", "0.5", "-1.25", "0.0", "2"),
    "whole": ("2", "3", "-1"),
    "keep": ("True", "False"),
    "count": ("3", "5", "12", "20"),
    "at": (
        "[:, 0]", "[0]", "[:, -1]", "[-1]", "[:, 1]", "[1:]", "[..., :-1]", "[1:-1]", "[:, 1:-1]", "[1:-1, 1:-1]", "[::2]",
        "[..., ::2]", "[:, 1::3]", "[..., 0]", "[0, 1]", "[-1, 0]", "[:2, :3]", "[..., -2:]", "[2:, 1]", "[..., 1:3]",
        "[...]", "[:, None, 0]",
    ),
    "to": (
        "[:, 1]", "[1]", "[:, -2]", "[-2]", "[:, 0]", "[0]", "[:-1]", "[..., 1:]", "[2:]", "[:-2]", "[..., 2:]", "[1::2]", "[...]",
        "[..., ::2]", "[..., :1]",
    ),
    "wave": ("sin()", "tanh()", "abs()", "sigmoid()", "square()", "neg()", "relu()", "cos()", "clamp(-2, 1)"),
    "reduce": ('"amax"', '"amin"', '"sum"', '"mean"', '"prod"'),
    "dtype": ("torch.float32", "torch.bfloat16", "torch.float64", "torch.float16"),
}  # fmt: skip


@dataclass
class FieldDrawing:
    """A program while it is drawn: its lines, and what its names are in each call."""

    draw: Callable[[Any], Any]
    calls: list[tuple[int, int]]
    sides: list[dict[str, Any]] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    count: int = 0

    def pick(self, choices: Sequence[Any]) -> Any:
        """One of several; to the first of them programs shrink."""
        return self.draw(st.sampled_from(choices))

    def begin(self, train: bool) -> None:
        """Draw the arguments."""
        m = self.pick(SIZES)
        dtype = self.pick(DTYPES)
        for number in range(self.draw(st.integers(2, 4))):
            if number and self.pick((False,) * 7 + (True,)):
                self.inputs.append(self.pick(VIEWS_OF_FIRST))
                continue
            shape = self.pick(SHAPES[:2] if number == 0 else SHAPES).replace("m", str(m))
            text = f"({shape},)" if shape and "," not in shape else f"({shape})"
            kind = self.pick((dtype, dtype, dtype, "int64", "bool", "float32") if number else (dtype,))
            words = [text, f'"{kind}"', f"seed=s + {number}"]
            layout = self.pick(LAYOUTS)
            if layout != "contiguous":
                words.append(f'layout="{layout}"')
            if train and "float" in kind and self.draw(st.booleans()):
                words.append("grad=True")
            self.inputs.append(f"example({', '.join(words)})")
        for n, s in self.calls:
            space: dict[str, Any] = {"torch": torch, "F": F}
            known = {"example": example, "n": n, "s": s}
            with torch.no_grad():
                for number, text in enumerate(self.inputs):
                    space[f"x{number}"] = known[f"x{number}"] = eval(text, known)
            self.sides.append(space)
        for number in range(len(self.inputs)):
            if train and self.sides[0][f"x{number}"].requires_grad:
                self.kept(f"v{self.count} = x{number} * 1", [f"v{self.count}"])

    def names(self, kind: str) -> list[str]:
        """The tensors of a kind, the latest first."""
        fits = KINDS[kind]
        side = self.sides[-1]
        return [name for name, value in reversed(side.items()) if isinstance(value, torch.Tensor) and fits(value)]

    def statement(self, tables: Sequence[str]) -> None:
        """Draw a line, or several that belong together; keep them if they run in each call."""
        row = self.pick(TABLES[self.pick(tables)])
        made: list[str] = []
        same: dict[str, str] = {}

        def fill(match: re.Match[str]) -> str:
            place = match.group(1)
            if place == "new":
                made.append(f"v{self.count + len(made)}")
                return made[-1]
            if place == "made":
                return made[-1]
            if place in same:
                return same[place]
            choices = WORDS[place] if place in WORDS else self.names(self.pick(OWN) if place == "own" else place)
            if not choices:
                raise LookupError(place)
            if place not in WORDS and self.pick((True, True, False)):
                choices = choices[:4]
            chosen = str(self.pick(choices))
            if place in ("own", "at"):
                same[place] = chosen
            return chosen

        try:
            text = PLACE.sub(fill, row)
        except LookupError:
            return
        self.kept(text, made)

    def kept(self, text: str, made: Sequence[str]) -> None:
        """Keep lines if they run in each call, and give numbers that are not too large."""
        code = compile(text, "<drawn>", "exec")
        before = [{name: value.detach().clone() for name, value in _tensors(side)} for side in self.sides]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for side in self.sides:
                    exec(code, side)
            runs = all(_is_moderate(value) for side in self.sides for _, value in _tensors(side))
        except (RuntimeError, LookupError, ValueError, TypeError, ArithmeticError):
            runs = False
        if runs:
            self.lines += text.splitlines()
            self.results += dict.fromkeys(made)
            self.count += len(made)
            return
        for side, old in zip(self.sides, before, strict=True):
            for name in [name for name, _ in _tensors(side)]:
                if name not in old:
                    del side[name]
        self._restore(before)

    def _restore(self, before: Sequence[dict[str, torch.Tensor]]) -> None:
        """Undo what a line wrote before another one raised: the lines so far run anew."""
        changed = any(
            not torch.equal(value.detach().nan_to_num(), old[name].nan_to_num())
            for side, old in zip(self.sides, before, strict=True)
            for name, value in _tensors(side)
        )
        if not changed:
            return
        for side, (n, s) in zip(self.sides, self.calls, strict=True):
            known = {"example": example, "n": n, "s": s}
            side.clear()
            side |= {"torch": torch, "F": F}
            with torch.no_grad():
                for number, text in enumerate(self.inputs):
                    side[f"x{number}"] = known[f"x{number}"] = eval(text, known)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec("\n".join(self.lines), side)

    def text(self, options: str) -> str:
        """The whole program."""
        written = [f"x{number}" for number in range(len(self.inputs))]
        returned = self.results[-1:] + [name for name in self.results[-9:-1] if self.pick((False, True, True))]
        if self.pick((False, False, False, True)):
            returned.append(self.pick(written))
        end = ", ".join(returned or written[:1])
        head = ["import torch"]
        head += ["from torch.nn import functional as F"] * any("F." in line for line in self.lines)
        head += ["", "from jitney_testing import example", "", f"SIZES = {tuple(self.calls)}"]
        head += [options] * bool(options)
        body = [f"def program({', '.join(written)}):", *(f"    {line}" for line in self.lines), f"    return {end}"]
        made = ["def inputs(call):", "    n, s = call", "    with torch.no_grad():"]
        made += [f"        {name} = {text}" for name, text in zip(written, self.inputs, strict=True)]
        made.append(f"    return [{', '.join(written)}]")
        return "\n".join([*head, "", "", *body, "", "", *made, ""])


def _tensors(side: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    return [(name, value) for name, value in side.items() if isinstance(value, torch.Tensor)]


def _is_moderate(value: torch.Tensor) -> bool:
    if value.numel() > LARGEST:
        return False
    value = value.detach()
    if not value.is_floating_point() or not value.numel():
        return True
    return bool((value.abs() <= HIGHEST).all())


@st.composite
def fields(draw: Callable[[Any], Any], *, most: int = 14, train: bool | None = None) -> Program:
    """A program that writes to fields.

    Args:
        most: lines at most, or groups of lines.
        train: do arguments require grad? None: in a third of the programs.
    """
    trains = draw(st.sampled_from((False, False, True))) if train is None else train
    size = draw(st.sampled_from(SIZES))
    calls, options = [(size, 0), (size, 1)], ""
    if size > 1 and draw(st.sampled_from((False, False, True))):
        calls = [(size, 0), (size + 2, 1), (2 * size + 1, 2)]
        options = draw(st.sampled_from(("", 'OPTIONS = {"dynamic": True}')))
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        drawing = FieldDrawing(draw, calls)
        drawing.begin(trains)
        tables = draw(st.sampled_from(THEMES))
        wanted = draw(st.integers(2, most))
        for _ in range(4 * wanted):
            if drawing.count + len(drawing.lines) < 2 * wanted:
                drawing.statement(tables)
    return Program(drawing.text(options))
