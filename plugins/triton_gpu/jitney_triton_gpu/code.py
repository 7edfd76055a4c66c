"""What the emitter makes of one kernel: Triton functions, how each is launched, and the memory between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from jitney_lowering.index import Index, Size


@dataclass(frozen=True)
class Parameter:
    """What a function is given: the address of a buffer or workspace, or a symbolic size or number.

    Args:
        name: in the function's text.
        kind: what it is.
        of: which buffer, workspace or symbol.
        dtype: of the elements there; of a symbol int32 if it counts what the kernel counts, and so fits.
    """

    name: str
    kind: Literal["buffer", "workspace", "size"]
    of: str | Size
    dtype: torch.dtype = torch.int64


@dataclass(frozen=True)
class Function:
    """One Triton function.

    Args:
        name: unique in its kernel.
        parameters: in order; the block sizes follow.
        body: its lines, indented once.
        blocks: the value of each block size.
        programs: how many programs run.
        warps: of 32 threads, for each program.
        wide: are places counted in 64 bits?
        comment: what it does.
        asserts: may it stop the device?
    """

    name: str
    parameters: tuple[Parameter, ...]
    body: str
    blocks: Mapping[str, int]
    programs: Index
    warps: int
    wide: bool = False
    comment: str = ""
    asserts: bool = False

    @property
    def integers(self) -> dict[str, str]:
        """The type of each symbol that it is given, in Triton's words."""
        symbols = [p for p in self.parameters if p.kind == "size"]
        return {p.name: "i64" if self.wide or p.dtype is torch.int64 else "i32" for p in symbols}

    @property
    def text(self) -> str:
        """The function as Triton source."""
        given = [p.name for p in self.parameters] + [f"{b}: tl.constexpr" for b in self.blocks]
        return f"@triton.jit\ndef {self.name}({', '.join(given)}):\n{self.body}\n"


@dataclass(frozen=True)
class Workspace:
    """Memory that one function fills and another reads: ``count`` elements."""

    name: str
    dtype: torch.dtype
    count: Index


@dataclass(frozen=True)
class Code:
    """The functions of a kernel, in the order in which they are launched."""

    functions: tuple[Function, ...]
    workspaces: tuple[Workspace, ...] = field(default=())
