"""Programs that write to fields: borders, points, running totals, scatters, steps and layouts.

Like ``graphs``, each line is tried on the arguments of each call when it is drawn. Calls differ in values, and in sizes
if the program is drawn so; arguments may be views of each other. Hypothesis draws one number, from which all else
follows: left to it, most programs are of the first rows of each table. So they do not shrink by it, but line by line
(``shrink.py``).
"""

from __future__ import annotations

import contextlib
import random
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from torch.nn import functional as F

from jitney_testing.drawn.field_grammar import TABLES, THEMES
from jitney_testing.drawn.graphs import PLACE, Drawing
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
        "[:, 0]", "[0]", "[:, -1]", "[-1]", "[:, 1]", "[1:]", "[..., :-1]", "[1:-1]", "[:, 1:-1]", "[1:-1, 1:-1]",
        "[::2]", "[..., ::2]", "[:, 1::3]", "[..., 0]", "[0, 1]", "[-1, 0]", "[:2, :3]", "[..., -2:]", "[2:, 1]",
        "[..., 1:3]", "[...]", "[:, None, 0]",
    ),
    "to": (
        "[:, 1]", "[1]", "[:, -2]", "[-2]", "[:, 0]", "[0]", "[:-1]", "[..., 1:]", "[2:]", "[:-2]", "[..., 2:]",
        "[1::2]", "[...]", "[..., ::2]", "[..., :1]",
    ),
    "wave": ("sin()", "tanh()", "abs()", "sigmoid()", "square()", "neg()", "relu()", "cos()", "clamp(-2, 1)"),
    "reduce": ('"amax"', '"amin"', '"sum"', '"mean"', '"prod"'),
    "dtype": ("torch.float32", "torch.bfloat16", "torch.float64", "torch.float16"),
}  # fmt: skip


@dataclass
class FieldDrawing(Drawing):
    """A program while it is drawn: its lines, and what its names are in each call.

    Args:
        sizes: of each call: ``n``, and ``s``, which its numbers follow from.
    """

    sizes: tuple[tuple[int, int], ...]
    tables: Sequence[str] = tuple(TABLES)
    dice: random.Random = field(default_factory=random.Random)

    def pick(self, choices: Sequence[Any]) -> Any:
        """One of several, each as often."""
        return self.dice.choice(choices)

    def begin(self, train: bool) -> None:
        """Draw the arguments."""
        m = self.pick((*SIZES, *[self.sizes[0][0]] * 4))  # equal to ``n`` at first: sizes that change then differ
        dtype = self.pick(DTYPES)
        for number in range(self.pick((2, 3, 4))):
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
            if train and "float" in kind and self.pick((False, True)):
                words.append("grad=True")
            self.inputs.append(f"example({', '.join(words)})")
        self.sides = [self._side(*call) for call in self.sizes]
        for name in [name for name, value in _tensors(self.sides[0]) if value.requires_grad]:
            self.runs(f"v{self.count} = {name} * 1", [f"v{self.count}"])  # no leaf, which may be written to

    def _side(self, n: int, s: int) -> dict[str, Any]:
        """The names before the first line, in one call."""
        known: dict[str, Any] = {"example": example, "n": n, "s": s}
        with torch.no_grad():
            for number, text in enumerate(self.inputs):
                known[f"x{number}"] = eval(text, known)
        return {"torch": torch, "F": F, **{name: value for name, value in known.items() if name.startswith("x")}}

    def statement(self) -> None:
        """Draw a line, or several that belong together; keep them if they run in each call."""
        row = self.pick(TABLES[self.pick(self.tables)])
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

        with contextlib.suppress(LookupError):
            self.runs(PLACE.sub(fill, row), made)

    def runs(self, line: str, made: Sequence[str]) -> bool:
        """Run lines in each call, and keep them if none raises and all numbers are moderate; else undo everything."""
        code = compile(line, "<drawn>", "exec")
        before = [{name: value.detach().clone() for name, value in _tensors(side)} for side in self.sides]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for side in self.sides:
                    exec(code, side)
            kept = all(_is_moderate(value) for side in self.sides for _, value in _tensors(side))
        except (RuntimeError, LookupError, ValueError, TypeError, ArithmeticError):
            kept = False
        if kept:
            self.lines += line.splitlines()
            self.results += dict.fromkeys(made)
            self.count += len(made)
            return True
        for side, old in zip(self.sides, before, strict=True):
            for name in [name for name, _ in _tensors(side) if name not in old]:
                del side[name]
        if any(
            _differs(value, old[name])
            for side, old in zip(self.sides, before, strict=True)
            for name, value in _tensors(side)
        ):
            self._repeat()
        return False

    def _repeat(self) -> None:
        """Undo what lines wrote before one raised: those before them run anew."""
        self.sides = [self._side(*call) for call in self.sizes]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for side in self.sides:
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
        head += ["", "from jitney_testing import example", "", f"SIZES = {self.sizes}"]
        head += [options] * bool(options)
        body = [f"def program({', '.join(written)}):", *(f"    {line}" for line in self.lines), f"    return {end}"]
        made = ["def inputs(call):", "    n, s = call", "    with torch.no_grad():"]
        made += [f"        {name} = {text}" for name, text in zip(written, self.inputs, strict=True)]
        made.append(f"    return [{', '.join(written)}]")
        return "\n".join([*head, "", "", *body, "", "", *made, ""])


def _tensors(side: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    return [(name, value) for name, value in side.items() if isinstance(value, torch.Tensor)]


def _differs(value: torch.Tensor, old: torch.Tensor) -> bool:
    return not torch.equal(value.detach().nan_to_num(), old.nan_to_num())


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
    dice = random.Random(draw(st.binary(min_size=16, max_size=16)))
    trains = dice.choice((False, False, True)) if train is None else train
    size = dice.choice(SIZES)
    calls: tuple[tuple[int, int], ...] = ((size, 0), (size, 1))
    options = ""
    if size > 1 and dice.choice((False, False, True)):
        calls = ((size, 0), (size + 2, 1), (2 * size + 1, 2))
        options = dice.choice(("", 'OPTIONS = {"dynamic": True}'))
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        drawing = FieldDrawing(draw, calls, dice=dice, tables=dice.choice(THEMES))
        drawing.begin(trains)
        wanted = dice.randint(2, most)
        for _ in range(4 * wanted):
            if drawing.count + len(drawing.lines) < 2 * wanted:
                drawing.statement()
    return Program(drawing.text(options))
