"""A table of programs: each makes a function (or module) and its arguments, anew at each call."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

Made = tuple[Any, ...]  # what is called, and its arguments


@dataclass
class Program:
    """One row.

    Args:
        name: of the program.
        make: gives what is called, then its arguments.
        graphs: how many graphs jitney makes of it.
        breaks: are there breaks with that one graph? Without, it is captured under ``fullgraph=True``.
        settings: fields of ``jitney.config``, and of ``torch._dynamo.config`` where it has them.
        train: are gradients compared?
    """

    name: str
    make: Callable[[], Made]
    graphs: int = 1
    breaks: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    train: bool = False


class Table:
    """Rows, in the order in which their functions are written."""

    def __init__(self) -> None:
        self.rows: list[Program] = []

    def __call__(
        self, *, graphs: int = 1, breaks: bool = False, train: bool = False, **settings: Any
    ) -> Callable[..., Any]:
        """Add the decorated function as a row."""

        def add(make: Callable[[], Made]) -> Callable[[], Made]:
            self.rows.append(Program(make.__name__, make, graphs, breaks, settings, train))
            return make

        return add


def script(subject: Any) -> Any:
    """``torch.jit.script``, which is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(subject)


def t(*sizes: int, seed: int = 0) -> torch.Tensor:
    """A tensor of fixed numbers, the same for the same sizes and seed."""
    count = 1
    for size in sizes or (4, 6):
        count *= size
    values = torch.sin(torch.arange(count, dtype=torch.float32) * 1.7 + seed) * 1.3
    return values.reshape(sizes or (4, 6))


def leaf(*sizes: int, seed: int = 0) -> torch.Tensor:
    """The same, of which gradients are wanted."""
    return t(*sizes, seed=seed).requires_grad_()
