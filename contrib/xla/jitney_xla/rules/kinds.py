"""What kinds of numbers a node is about: where eager raises, or computes otherwise, a rule is not for the node."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from jitney_xla.rules.call import HALVES, fake, leaves


def is_float(node: fx.Node) -> bool:
    """Does the node give floating point numbers?"""
    return bool(node.meta["val"].dtype.is_floating_point)


def is_single(node: fx.Node) -> bool:
    """Does the node give float32 or halves? XLA's float64 is some units less precise than eager's here."""
    return is_float(node) and node.meta["val"].dtype is not torch.float64


def is_first_float(node: fx.Node) -> bool:
    """Is the first argument of floating point?"""
    return bool(fake(node.args[0]).dtype.is_floating_point)


def is_no_float(node: fx.Node) -> bool:
    """Are there only integers and truth values?"""
    return not any(d.is_floating_point for d in dtypes_of(node))


def is_no_bool(node: fx.Node) -> bool:
    """Are there no truth values among the arguments? Eager has no such kernels."""
    return all(d is not torch.bool for n in node.all_input_nodes for d in _dtypes(n))


def stays_float(node: fx.Node) -> bool:
    """Is no float turned into an integer before it is counted? What does not fit would be another number in eager."""
    return not is_first_float(node) or is_float(node)


def holds_numbers(node: fx.Node) -> bool:
    """Does the result's dtype, if halves, hold the numbers that go into it? Eager refuses others."""
    dtype = node.meta["val"].dtype
    numbers: list[Any] = [a for a in node.args if type(a) in (int, float)]
    return dtype not in HALVES or all(not abs(n) > torch.finfo(dtype).max or math.isinf(n) for n in numbers)


def dtypes_of(node: fx.Node) -> list[torch.dtype]:
    """Those of the tensors that the node reads and gives."""
    return [d for n in (node, *node.all_input_nodes) for d in _dtypes(n)]


def _dtypes(node: fx.Node) -> Iterator[torch.dtype]:
    value: Any = node.meta.get("val")
    return (v.dtype for v in leaves(value) if isinstance(v, torch.Tensor))
