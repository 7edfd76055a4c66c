"""How tensors of subclasses are made of the plain tensors that a functional graph takes and returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jitney._util.generated_code import is_name
from jitney.torch_compat.subclasses import Wrapping


@dataclass(frozen=True)
class Template:
    """One tensor of a subclass.

    Args:
        wrapping: its class and context.
        inner: for each inner tensor its position in a flat list, or its own template.
        size: numbers; ``Output`` for those that the graph computes.
        stride: likewise.
    """

    wrapping: Wrapping
    inner: tuple[int | Template, ...]
    size: tuple[Any, ...] = ()
    stride: tuple[Any, ...] = ()

    def positions(self) -> Iterator[int]:
        """The positions of the innermost tensors."""
        for part in self.inner:
            yield from part.positions() if isinstance(part, Template) else (part,)

    def paths(self, base: str) -> Iterator[tuple[int, str]]:
        """(position, text that reads the innermost tensor from the expression ``base``) for each of them."""
        for name, part in zip(self.wrapping.names, self.inner, strict=True):
            text = f"{base}.{name}" if is_name(name) else f"getattr({base}, {name!r})"
            yield from part.paths(text) if isinstance(part, Template) else ((part, text),)


@dataclass
class Layout:
    """What a graph with subclasses has for the inputs, results and gradients of the captured graph.

    Args:
        inputs: by input of the captured graph: where its plain tensors are among the joint graph's inputs.
        paths: by input of the joint graph: text that reads it from the arguments ``a0``, ``a1``...
        results: tensors of subclasses that the graph makes, of its outputs.
        tangents: by position in ``results``: what its gradient is expected to be like; positions as in the result.
        gradients: by input of the captured graph: its gradient, of ``Joint.gradients``.
    """

    inputs: list[int | Template] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    results: list[Template] = field(default_factory=list)
    tangents: dict[int, Template] = field(default_factory=dict)
    gradients: list[int | Template | None] = field(default_factory=list)
