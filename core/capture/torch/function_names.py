"""The names that torch's functions have in graphs and messages."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from jitney.torch_compat import torch_private

OPERATORS: dict[str, Callable[..., Any]] = {
    f"__{n}__": getattr(operator, f"__{n}__")
    for n in (
        "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift neg pos invert abs eq ne lt le gt ge "
        "getitem setitem iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift"
    ).split()
}
REFLECTED = {
    f"__r{n}__": OPERATORS[f"__{n}__"] for n in "add sub mul truediv floordiv mod pow matmul and or xor".split()
}


# Tensor methods written in Python go by the name that they have on the class.
TENSOR_FUNCTIONS = {id(v): k for k, v in vars(torch.Tensor).items() if isinstance(v, types.FunctionType)}


def function_name(func: Any) -> str:
    """What a message calls it."""
    name = getattr(func, "__name__", None) or repr(func)
    if name in ("item", "__bool__", "__int__", "__float__", "__index__"):
        return f"Tensor.{name}()"
    module = getattr(func, "__module__", None) or ""
    return f"{module}.{name}" if module.startswith("torch") else str(name)


def is_torch_own(node: fx.Node) -> bool:
    """Is it one of torch's functions or methods, rather than an operator that somebody has registered?"""
    if isinstance(node.target, torch_private.OPERATOR_CLASSES):
        return getattr(node.target, "namespace", "") in ("aten", "prims")
    module = getattr(node.target, "__module__", None) or ""
    return node.op == "call_method" or module.partition(".")[0] in ("torch", "_operator")


def first_line(error: BaseException) -> str:
    """The beginning of what torch says."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else ""


def identifier(text: str) -> str:
    """The text as the end of a name in generated code."""
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in text)[-60:]
