"""ATen graphs as text: one line a node, with shapes and dtypes, under the user's lines."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


def readable(graph: fx.Graph) -> str:
    """One line a node: ``%name: f32[2, 3] = aten.op(...)``, each user line once as a comment."""
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
