"""May a node run in ONNX Runtime?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from jitney_onnxruntime.dtypes import ELEMENT
from jitney_onnxruntime.rules import RULES
from jitney_onnxruntime.table import Call
from jitney_onnxruntime.writer import Refused, Writer

CAT = torch.ops.aten.cat.default  # a part of shape (0,) is left out


def supports(node: fx.Node) -> bool:
    """May the node run in ONNX Runtime?"""
    return refusal(node) == ""


def refusal(node: fx.Node) -> str:
    """Why a node is left to eager; empty if ONNX Runtime may have it."""
    if isinstance(node.meta.get("val"), torch.SymInt):  # computed in Python, from the inputs' sizes
        return ""
    found = RULES.get(node.target)
    if found is None:
        return "no rule writes it"
    reason = _general(node)
    if reason:
        return reason
    call = Call(node)
    try:
        made = found(Writer(scratch=True), call)
    except Refused as refused:
        return str(refused)
    pairs = zip(made, call.out, strict=False) if isinstance(made, tuple) else [(made, call.out)]
    wrong = any(value is not None and value.dtype is not fake.dtype for value, fake in pairs)
    return "its dtype is another in ONNX" if wrong else ""


def _general(node: fx.Node) -> str:
    """What no rule can take."""
    several = isinstance(node.meta["val"], (list, tuple))
    made = [user.meta.get("val") for user in node.users] if several else [node.meta["val"]]
    for value in [*(n.meta.get("val") for n in node.all_input_nodes), *made]:
        for tensor in _tensors(value):
            if tensor.dtype not in ELEMENT:
                return f"ONNX Runtime has no {tensor.dtype}"
            if tensor.layout is not torch.strided or tensor.device.type != "cpu":
                return "not a dense tensor of the CPU"
            if not all(map(_positive, tensor.shape)) and not (node.target is CAT and tuple(tensor.shape) == (0,)):
                return "a tensor without elements"
    return ""


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _positive(size: int | torch.SymInt) -> bool:
    """Is it certain that a size is not 0?"""
    if isinstance(size, int):
        return size > 0
    return bool(size.node.shape_env.bound_sympy(size.node.expr).lower >= 1)
