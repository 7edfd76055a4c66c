"""What all forms have in common: parameters of a function, and how it is put together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import torch
from torch import fx

from jitney_lowering.index import Index, Size
from jitney_lowering.ir import Kernel, index_width
from jitney_triton_gpu.code import Function, Parameter, Workspace
from jitney_triton_gpu.emit.fast_math import rough
from jitney_triton_gpu.emit.policies import policies
from jitney_triton_gpu.emit.spaces import Axis
from jitney_triton_gpu.emit.writer import Writer


def blocks_of(count: Index, size: int) -> Index:
    """How many blocks of this size."""
    return (count + (size - 1)) // size


class Draft:
    """A function under construction.

    Args:
        kernel: whose buffers and sizes it may use.
        name: the function's.
        tile: axes in the order of the tile's dimensions.
        wide: count places in 64 bits.
        workspaces: memory between functions.
        streams: does it write next to nothing?
    """

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        tile: Sequence[Axis],
        wide: bool,
        workspaces: Iterable[Workspace] = (),
        *,
        streams: bool = False,
    ) -> None:
        self.kernel = kernel
        self.name = name
        self.wide = wide
        self.blocks: dict[str, int] = {}
        buffers = [Parameter(b, "buffer", b, dtype) for b, dtype in kernel.buffers.items()]
        memory = [Parameter(w.name, "workspace", w.name, w.dtype) for w in workspaces]
        small = index_width.counted(kernel)
        sizes = [
            Parameter(f"n{n}", "size", s, torch.int32 if s in small else torch.int64)
            for n, s in enumerate(sorted(kernel.sizes, key=str))
        ]
        self.parameters = (*buffers, *memory, *sizes)
        pointers = {str(p.of): p.name for p in (*buffers, *memory)}
        spelled = {p.of: p.name for p in sizes if isinstance(p.of, Size)}
        written = kernel.writes | {m.name for m in kernel.memory} | {w.name for w in workspaces}
        self.writer = Writer(tile, pointers, spelled, written, wide)
        self.writer.policies = policies(kernel, streams=streams)
        self.writer.rough = rough(s for nest in (*kernel.body, *kernel.finish) for s in nest.statements)

    def axis(self, axis: Axis, start: str, subscript: str | None = "") -> None:
        """Begin an axis in the innermost section; see ``Writer.begin_axis``."""
        self.blocks[axis.symbol] = axis.block
        self.writer.begin_axis(axis, start, self.wide, subscript)

    def finished(self, programs: Index, warps: int) -> Function:
        """The function."""
        writer = self.writer
        while len(writer.sections) > 1:
            writer.leave()
        body = "\n".join(writer.sections[0].lines)
        if self.wide:
            body = body.replace("tl.program_id(0)", "tl.program_id(0).to(tl.int64)")
        used = tuple(p for p in self.parameters if p.name in _words(body))
        blocks = {symbol: size for symbol, size in self.blocks.items() if symbol in _words(body)}
        comment = _comment(self.kernel)
        return Function(self.name, used, body, blocks, programs, warps, self.wide, comment, writer.asserts)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def short_name(kernel: Kernel) -> str:
    """What the kernel does, in a few words."""
    names = [_base(n) for n in kernel.nodes]
    told = list(dict.fromkeys(n for n in names if n))
    return "_".join(told[-3:])[-48:].strip("_")


def _base(node: fx.Node) -> str:
    name = getattr(node.target, "__name__", "")
    return name.split(".")[0].strip("_") if isinstance(node.target, torch._ops.OpOverload) else ""


def _comment(kernel: Kernel) -> str:
    return ", ".join(dict.fromkeys(str(n.target).removeprefix("aten.") for n in kernel.nodes))
