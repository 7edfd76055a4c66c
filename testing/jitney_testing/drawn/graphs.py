"""Graphs as programs, drawn by Hypothesis: typed operators on tensors of many shapes, dtypes and layouts.

Each line is tried when it is drawn, on arguments of each size; one that raises is left out. So every program runs, and
shapes and dtypes are what torch says, not what a model of ours says. A failing program shrinks to fewer lines and to
operators, shapes and layouts that come first in their tables.
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

from jitney_testing.drawn.grammar import TABLES
from jitney_testing.examples import example
from jitney_testing.program import Program

SHAPES = ("n", "n, m", "m", "m, n", "", "1", "n, 1", "1, m", "2, n, m")
FLOATS = ("float32", "float32", "float32", "float64", "bfloat16", "float16")
DTYPES = (*FLOATS, "int64", "int32", "bool", "uint8", "float32")
LAYOUTS = ("contiguous", "contiguous", "transposed", "gaps", "offset", "expanded")
SIZES = ((3,), (3, 5), (3, 2, 7), (1, 4), (4, 0), (9, 40))
LARGEST = 4096  # elements of a tensor

PLACE = re.compile(r"\{(\w+)\}")
KINDS: dict[str, Callable[[torch.Tensor], bool]] = {
    "float": lambda t: t.is_floating_point(),
    "int": lambda t: not t.is_floating_point() and t.dtype is not torch.bool,
    "bool": lambda t: t.dtype is torch.bool,
    "number": lambda t: t.dtype is not torch.bool,
    "any": lambda t: True,
}
WORDS: dict[str, tuple[str, ...]] = {
    "dim": ("0", "-1", "1", "-2"),
    "scalar": ("1", "2.5", "0.5", "-1.25"),
    "whole": ("2", "3", "-1"),
    "keep": ("True", "False"),
}


@dataclass
class Drawing:
    """A program while it is drawn: its lines, and what its names are on each size."""

    draw: Callable[[Any], Any]
    sizes: tuple[Any, ...]
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
        m = self.pick((3, 4, 1, 2, 0, 5, 8, 17, 33) if 0 not in self.sizes else (3, 4, 1))
        count = self.draw(st.integers(1, 3))
        for number in range(count):
            shape = self.pick(SHAPES[:3] if number == 0 else SHAPES).replace("m", str(m))
            if len(self.sizes) == 1:
                shape = shape.replace("n", str(self.sizes[0]))
            text = f"({shape},)" if shape and "," not in shape else f"({shape})"
            dtype = self.pick(FLOATS if number == 0 else DTYPES)
            words = [text, f'"{dtype}"', f"seed={number}"]
            layout = self.pick(LAYOUTS)
            if layout != "contiguous":
                words.append(f'layout="{layout}"')
            if train and "float" in dtype and self.draw(st.booleans()):
                words.append("grad=True")
            elif dtype in FLOATS and self.pick((False, False, False, True)):
                words.append("special=True")
            self.inputs.append(f"example({', '.join(words)})")
        for size in self.sizes:
            space: dict[str, Any] = {"torch": torch, "F": F}
            known = {"example": example, "n": size}
            for number, text in enumerate(self.inputs):
                space[f"x{number}"] = eval(text, known)
            self.sides.append(space)

    def names(self, kind: str) -> list[str]:
        """The tensors of a kind, the latest first."""
        fits = KINDS[kind]
        side = self.sides[-1]
        return [name for name, value in reversed(side.items()) if isinstance(value, torch.Tensor) and fits(value)]

    def statement(self) -> None:
        """Draw a line; keep it if it runs on each size."""
        kinds = [name for name, (_, weight) in TABLES.items() for _ in range(weight)]
        row = self.pick(TABLES[self.pick(kinds)][0])
        made: list[str] = []

        def fill(match: re.Match[str]) -> str:
            place = match.group(1)
            if place == "new":
                made.append(f"v{self.count + len(made)}")
                return made[-1]
            choices = WORDS[place] if place in WORDS else self.names(place)
            if not choices:
                raise LookupError(place)
            return str(self.pick(choices))

        try:
            line = PLACE.sub(fill, row)
        except LookupError:
            return
        if self.runs(line, made):
            self.lines.append(line)
            self.results += made
            self.count += len(made)

    def runs(self, line: str, made: Sequence[str]) -> bool:
        """Run a line on each size; undo everything if one raises."""
        code = compile(line, "<drawn>", "exec")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for side in self.sides:
                    exec(code, side)
            return all(_is_small(side[name]) for side in self.sides for name in made)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            return False
        finally:
            self._forget_unless_everywhere(made)

    def _forget_unless_everywhere(self, made: Sequence[str]) -> None:
        for name in made:
            values = [side.get(name) for side in self.sides]
            if not all(isinstance(v, torch.Tensor) and _is_small(v) for v in values):
                for side in self.sides:
                    side.pop(name, None)

    def text(self, options: str) -> str:
        """The whole program."""
        returned = self.results[-1:] + [name for name in self.results[-5:-1] if self.draw(st.booleans())]
        written = [f"x{number}" for number in range(len(self.inputs))]
        end = ", ".join(returned or written[:1])
        size = "n" if len(self.sizes) > 1 else ""
        head = ["import torch"]
        head += ["from torch.nn import functional as F"] * any("F." in line for line in self.lines)
        head += ["", "from jitney_testing import example", ""]
        head += [f"SIZES = {self.sizes}"] * (len(self.sizes) > 1) + [options] * bool(options)
        body = [f"def program({', '.join(written)}):", *(f"    {line}" for line in self.lines), f"    return {end}"]
        made = [f"def inputs({size}):", "    return [", *(f"        {text}," for text in self.inputs), "    ]"]
        return "\n".join([*head, "", *(["", ""] if head[-1] else []), *body, "", "", *made, ""])


def _is_small(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() <= LARGEST


@st.composite
def graphs(draw: Callable[[Any], Any], *, most: int = 10, train: bool | None = None) -> Program:
    """A program of operators.

    Args:
        most: lines at most.
        train: do arguments require grad? None: in half of the programs.
    """
    trains = draw(st.booleans()) if train is None else train
    sizes = draw(st.sampled_from(SIZES))
    options = ""
    if len(sizes) > 1 and draw(st.booleans()):
        options = 'OPTIONS = {"dynamic": True}'
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        drawing = Drawing(draw, sizes)
        drawing.begin(trains)
        wanted = draw(st.integers(1, most))
        for _ in range(3 * wanted):
            if len(drawing.lines) < wanted:
                drawing.statement()
    return Program(drawing.text(options))
