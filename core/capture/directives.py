"""What a program says to capture, or asks of it. Outside compiled code these do nothing, or mark tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])


def graph_break() -> None:
    """End the graph here; nothing outside compiled code."""


def is_compiling() -> bool:
    """True inside code that is being captured, False outside."""
    return False


def is_dynamo_compiling() -> bool:
    """The same as ``is_compiling``, by torch's name."""
    return False


def mark_dynamic(tensor: torch.Tensor, index: int | tuple[int, ...] | list[int]) -> None:
    """Make a size of this tensor symbolic from the first compile on."""
    _mark(tensor, "_jitney_dynamic", index)


def maybe_mark_dynamic(tensor: torch.Tensor, index: int | tuple[int, ...] | list[int]) -> None:
    """The same as ``mark_dynamic``, by torch's name: a size that code makes constant is no error with either."""
    _mark(tensor, "_jitney_dynamic", index)


def mark_static(tensor: torch.Tensor, index: int | tuple[int, ...] | list[int] | None = None) -> None:
    """Keep a size (or all) of this tensor constant even if it changes."""
    _mark(tensor, "_jitney_static", range(tensor.dim()) if index is None else index)


def _mark(tensor: torch.Tensor, field: str, index: Any) -> None:
    wanted = [index] if isinstance(index, int) else list(index)
    for i in wanted:
        if not -tensor.dim() <= i < tensor.dim():
            raise IndexError(f"dimension {i} of a tensor with {tensor.dim()} dimensions")
    setattr(tensor, field, getattr(tensor, field, frozenset()) | {i % tensor.dim() for i in wanted})


def assume_constant_result(fn: F) -> F:
    """Call ``fn`` once for each graph, in Python, and take what it returns for a constant: the program promises that.

    In compiled code it may return numbers, text, dtypes, devices and tuples of these; anything else, and tensors among
    its arguments, are graph breaks.
    """
    fn._jitney_constant_result = True  # type: ignore[attr-defined]
    return fn


class BreakRegions:
    """Whether graph breaks are errors now; None: as ``fullgraph`` says."""

    error: bool | None = None

    def _jitney_recipe(self, writer: Any) -> list[Any]:
        """There is one in each process (see ``cache/recipes.py``)."""
        return ["global", __name__, "BREAKS"]


BREAKS = BreakRegions()


class error_on_graph_break(contextlib.ContextDecorator):
    """In this block, or function, a graph break is an error (with ``error=False``: none), whatever ``fullgraph`` says.

    For code in compiled functions; around a call of one it counts, too, for all that the process compiles meanwhile.
    """

    def __init__(self, error: bool = True) -> None:
        self.error = error
        self.before: list[bool | None] = []

    def __enter__(self) -> None:
        self.before.append(BREAKS.error)
        BREAKS.error = self.error

    def __exit__(self, *error: object) -> None:
        BREAKS.error = self.before.pop()


def called_in(context: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of ``fn`` in a block of ``context``."""
    with context:
        return fn(*args, **kwargs)
