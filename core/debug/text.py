"""Graphs, kernels and bytes as text for people."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from jitney import events


def readable(graph: fx.Graph) -> str:
    """An ATen graph, one line a node: ``%name: f32[2, 3] = aten.op(...)``, each user line once as a comment."""
    lines = []
    last = None
    for node in graph.nodes:
        stack = node.meta.get("user_stack", ())
        if stack and stack[-1] != last and node.op != "placeholder":
            last = stack[-1]
            lines.append(f"# {last.filename}:{last.lineno}, in {last.name}: {last.line}")
        lines.append(_line(node))
    return "\n".join(lines)


def _line(node: fx.Node) -> str:
    value = node.meta.get("val")
    facts = f": {describe(value)}" if value is not None else ""
    if node.op == "placeholder":
        return f"{node.name}{facts} = input"
    if node.op == "output":
        return f"return {node.args[0]}"
    arguments = ", ".join([*map(str, node.args), *(f"{k}={v}" for k, v in node.kwargs.items())])
    name = str(node.target) if not callable(node.target) else str(getattr(node.target, "__name__", node.target))
    if hasattr(node.target, "overloadpacket"):
        name = str(node.target)
    return f"{node.name}{facts} = {name}({arguments})"


SHORT = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "b8",
    torch.complex64: "c64",
    torch.complex128: "c128",
}


def describe(value: Any) -> str:
    """``f32[2, 3]`` for a tensor, with strides if it is not contiguous."""
    if isinstance(value, torch.Tensor):
        kind = SHORT.get(value.dtype, str(value.dtype).removeprefix("torch."))
        return f"{kind}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(describe, value))})"
    return str(value)


UNITS = ("B", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """``1.5 MB``: bytes for people, in powers of 1000."""
    for unit in UNITS[:-1]:
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} {UNITS[-1]}"


def describe_launch(launch: events.Launch) -> str:
    """A kernel, or an operator that runs as a whole, in one line: what it computes, and how many bytes it moves."""
    what = ", ".join(launch.operators) or "copies"
    moved = f"reads {size(launch.read)}, writes {size(launch.written)}"
    why = f" ({launch.reason})" if launch.reason else ""
    kind = "kernel" if launch.kind == "kernel" else "as a whole"
    where = f" from {', '.join(launch.places)}" if launch.places else ""
    return f"{launch.name.split(' ')[0]}. {kind}{why}: {what}; {moved}{where}"


def describe_counts(event: events.Scheduled) -> str:
    """``2 kernels of 7 operators, 1 operator as a whole``."""
    kernels = [launch for launch in event.launches if launch.kind == "kernel"]
    whole = len(event.launches) - len(kernels)
    fused = sum(len(launch.operators) for launch in kernels)
    return f"{len(kernels)} kernels of {fused} kinds of operators, {whole} operators as a whole"
